"""Where dspkit keeps what it makes, and how it writes so that nothing is left half done."""

from __future__ import annotations

import os
import secrets
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
    partial = path.parent / f".dspkit-{secrets.token_hex(8)}"
    try:
        if path.is_dir():
            raise FileError(f"{path}, which is a folder", expected="the name of a file", fix="add a file name to it")
        if path.exists() and not overwrite:
            raise FileError(f"{path}, which exists", expected="a new name", fix="rename, or pass overwrite=True")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # as readable as the umask lets it be
    except OSError as error:
        raise FileError(str(error), expected="a folder to write in", fix="choose another folder") from error
    try:
        fill(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return path
