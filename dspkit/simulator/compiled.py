"""Compile with numba, and keep what was compiled so that the next process starts at once.

numba's own cache looks at the date of one file, and so misses a change in another that its code was inlined from, and
an upgrade that keeps dates. Here the cache's folder is named by the contents of all the modules compiled together.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit

_HERE = Path(__file__).parent


@cache
def _folder(home: Path, family: str) -> Path:
    """Where the machine code of these modules is kept: fluid and fluid_kernel are one family, tuples another."""
    sources = [*sorted(home.glob(f"{family}*.py")), _HERE / "layout.py", _HERE.parent / "queueing.py"]
    contents = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    folder = home / "__pycache__" / f"{family}-{contents[:16]}"
    if not folder.exists():
        for former in folder.parent.glob(f"{family}-*"):
            shutil.rmtree(former, ignore_errors=True)
    return folder


def compiled(function: Callable[..., Any]) -> Any:
    """`function`, which makes arrays, as machine code.

    It is kept on disk (where the package's own folder cannot be written, numba takes one in the user's home), and
    holds no lock of Python's, so that threads run it side by side.
    """
    return _compile(function)


def lean(function: Callable[..., Any]) -> Any:
    """The same for what makes no arrays: nobody counts who refers to them, which takes longer than the arithmetic."""
    return _compile(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Small steps that become part of the lean functions that call them."""
    return njit(nogil=True, error_model="numpy", _nrt=False, forceinline=True)(function)


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    family = function.__module__.rpartition(".")[2].partition("_")[0]
    home = Path(function.__code__.co_filename).parent
    before, config.CACHE_DIR = config.CACHE_DIR, str(_folder(home, family))
    try:
        return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before
