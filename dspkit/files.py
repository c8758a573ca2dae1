"""Where dspkit keeps what it makes, and how it writes so that nothing is left half done."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from .errors import FileError


def home(kind: str) -> Path:
    """The folder for `kind` ("runs", "reports"): below $DSPKIT_HOME, else below the working directory."""
    return Path(os.environ.get("DSPKIT_HOME") or Path.cwd()) / kind


def write(path: str | Path, fill: Callable[[Path], object], *, overwrite: bool = False) -> Path:
    """Let `fill` write a temporary file beside `path`, then rename it: readers see all of it or none.

    A path that names no folder is taken as it is, relative to the working directory.
    """
    path = Path(path).absolute()
    if path.exists() and not overwrite:
        raise FileError(f"{path}, which exists", expected="a new name", fix="rename, or pass overwrite=True")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise FileError(str(error), expected="a folder to write in", fix="choose another folder") from error
    os.close(handle)
    partial = Path(name)
    try:
        fill(partial)
        partial.chmod(0o666 & ~_umask())  # mkstemp makes it private; a report is for others too
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
