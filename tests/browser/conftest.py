"""Fixtures of the tests with a browser."""

from real_lab import lab

__all__ = ["lab"]
