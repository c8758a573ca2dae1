"""Compilation with numba, and an on-disk cache of machine code, so that the next process starts at once.

numba's own cache checks one file, and so misses changes in other files whose code was inlined. Here the name of the
cache folder is a hash of the contents of the kernel's module and of all modules that it imports, so that a renamed or
moved module never loads the machine code of another one.

Without numba (the extra `standard`) the fluid engine runs as plain Python: same results, many times slower. The engine
that follows records, and the placement solvers, then raise an error that names the extra.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from typing import Any

from .caching import module_key
from .lazy import load

try:
    import numba
    from numba import config, njit
except ModuleNotFoundError:  # of a plain `pip install dspkit`
    numba = None

_PREFIX = "numba-"
_PLAIN = ("dspkit.core.", "dspkit.simulator.fluid.")  # what runs as plain Python, too


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates arrays, on its first call.

    The code is kept on disk, in `__pycache__` beside the function's module (if that is not writable, numba uses a
    folder in the user's home). It releases the GIL, so that threads run it in parallel.
    """
    return _compile(function)


def allocation_free(function: Callable[..., Any]) -> Any:
    """Compile a function that allocates no arrays, without reference counting, which costs more than the arithmetic."""
    return _compile(function, _nrt=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a small function as part of the functions marked `allocation_free` that call it.

    Examples
    --------
    >>> @inlined
    ... def doubled(x):
    ...     return 2 * x
    >>> doubled(2.0)
    4.0
    """
    if numba is None:
        return _interpreted(function)
    return njit(nogil=True, error_model="numpy", _nrt=False, forceinline=True)(function)


def _interpreted(function: Callable[..., Any]) -> Any:
    """Return a function of the fluid engine as it is, and for another one, whose arrays numba alone reads, an error."""
    if function.__module__.startswith(_PLAIN):
        return function

    @wraps(function)
    def without(*args: Any, **kwargs: Any) -> Any:
        simulated = function.__module__.startswith("dspkit.simulator.")
        load("numba", "standard", otherwise="simulate with engine='fluid'" if simulated else "")

    return without


def _compile(function: Callable[..., Any], **options: Any) -> Any:
    if numba is None:
        return _interpreted(function)
    before, config.CACHE_DIR = config.CACHE_DIR, str(_folder(Path(function.__code__.co_filename)))
    try:
        return njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    finally:
        config.CACHE_DIR = before


@cache
def _folder(module: Path) -> Path:
    """Return the folder for the machine code of a module's functions with their present contents."""
    home = module.parent / "__pycache__"
    folder = home / _name(module)
    if (use := _share(home)) is not None and not folder.exists():
        _clean(home, use)
    return folder


def _name(module: Path) -> str:
    parts = (numba.__version__, module_key(module), module_key(__file__))
    return _PREFIX + sha256(" ".join(parts).encode()).hexdigest()[:16]


@cache
def _share(home: Path) -> int | None:
    """Hold a shared lock on `home` for the life of this process, and return it; None if locking is impossible."""
    try:
        import fcntl

        home.mkdir(exist_ok=True)
        use = os.open(home, os.O_RDONLY)
        fcntl.flock(use, fcntl.LOCK_SH)
    except (ImportError, OSError):
        return None
    return use


def _clean(home: Path, use: int) -> None:
    """Delete machine code that no present module needs, unless another process uses this folder."""
    import fcntl

    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return  # another process may still use former code; the next change cleans up
    try:
        present = {_name(module) for module in home.parent.glob("*.py")}
        for former in home.glob(f"{_PREFIX}*"):
            if former.name not in present:
                shutil.rmtree(former, ignore_errors=True)
    finally:
        fcntl.flock(use, fcntl.LOCK_SH)
