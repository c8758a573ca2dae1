"""Fixtures of the tests with a browser."""

from real_lab import lab, lab_folder

__all__ = ["lab", "lab_folder"]
