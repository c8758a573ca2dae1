"""Metrics of somebody else's engine as a History: one file a source, one protocol (`Loader`).

Each loader reads with `.history()` and counts in `.problems` what it dropped. docs/loaders.md says what each reads.
"""

from .base import LIMITS, Limits, Loader, LoaderError, Problems
from .table import Table

__all__ = ["LIMITS", "Limits", "Loader", "LoaderError", "Problems", "Table"]
