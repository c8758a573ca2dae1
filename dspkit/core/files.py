"""Output folders, atomic and durable writing of files, and the opening of files that others provide."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from .errors import DspkitError, FileError

_PARTIAL = ".dspkit-partial-"
_STALE = re.compile(re.escape(_PARTIAL) + "[0-9a-f]{16}")
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS} | {
    errno.EMLINK,
    errno.EXDEV,
    errno.EINVAL,
}
_REMEDIES = {
    errno.ENOSPC: "free space on its disk, or choose a folder on another one",
    errno.EDQUOT: "delete files of yours there to stay within your quota, or choose a folder on another disk",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write less",
    errno.EROFS: "choose a folder on a disk that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
}


class ExistingFileError(FileError, FileExistsError):
    """A file that exists, and that was not to be replaced."""


def home(kind: str) -> Path:
    """Return the folder for one kind of output: below $DSPKIT_HOME, otherwise below the working directory.

    Examples
    --------
    >>> home("runs").name
    'runs'
    """
    return Path(os.environ.get("DSPKIT_HOME") or Path.cwd()) / kind


def given_path(path: object, *, error: type[DspkitError] = FileError) -> Path:
    """Return a path given by a user, or raise an error: text that no file system accepts is rejected.

    Examples
    --------
    >>> given_path("runs/a.parquet").name
    'a.parquet'
    >>> given_path(None)
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got None; expected a path; pass the name of a file as text
    """
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(text, str) or not text:
        raise error(f"{path!r:.200}", expected="a path", fix="pass the name of a file as text")
    try:
        unusable = b"\0" in os.fsencode(text)
    except UnicodeEncodeError:  # half a character
        unusable = True
    if unusable:
        raise error(f"{text!a:.200}", expected="a path", fix="leave out what no file name can contain")
    return Path(text)


def file_error(path: object, cause: OSError, *, expected: str = "a file that can be written") -> FileError:
    """Return an error that names the file, the reason of the operating system, and the remedy.

    Examples
    --------
    >>> file_error("run.parquet", OSError(errno.ENOSPC, "No space left on device")).fix
    'free space on its disk, or choose a folder on another one'
    """
    reason = os.strerror(cause.errno) if cause.errno else str(cause)
    remedy = _REMEDIES.get(cause.errno or 0, "check the path and its permissions, or choose another folder")
    return FileError(f"{_shown(path)}: {reason}", expected=expected, fix=remedy)


def open_regular(path: str | Path, *, error: type[DspkitError] = FileError, expected: str = "a file") -> IO[bytes]:
    """Open a file for reading; pipes, devices and folders, from which reading may never end, are rejected.

    Parameters
    ----------
    path : str or Path
        The file.
    error : type
        The kind of error to raise.
    expected : str
        Description of the file.

    Examples
    --------
    >>> open_regular("/dev/zero")
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got /dev/zero, which is a device; expected a file; check the path
    """
    path = given_path(path, error=error)
    try:
        # A pipe without a writer would block the opening itself; a device is not opened at all.
        handle = os.open(path, os.O_RDONLY | _NONBLOCK) if _kind(path.stat()) == "" else -1
        try:
            kind = _kind(path.stat() if handle < 0 else os.fstat(handle))
            if not kind:
                return open(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
        if handle >= 0:
            os.close(handle)
    except FileNotFoundError as cause:
        raise error(f"no file {_shown(path)}", expected=expected, fix="check the path") from cause
    except OSError as cause:
        raise error(f"{_shown(path)}: {cause.strerror}", expected="a file to read", fix="check the path") from cause
    raise error(f"{_shown(path)}, which is a {kind}", expected=expected, fix="check the path")


_NONBLOCK = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {
    stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}  # fmt: skip


def _kind(found: os.stat_result) -> str:
    """Return "" for a regular file, otherwise what it is."""
    return "" if stat.S_ISREG(found.st_mode) else _KINDS.get(stat.S_IFMT(found.st_mode), "special file")


def _shown(path: object) -> str:
    """Return a path for messages, without the characters that terminals or encoders stumble over."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def write_atomically(path: str | Path, fill: Callable[[Path], object], *, overwrite: bool = False) -> Path:
    """Write a file so that readers see the complete file or none, also after a crash or a power failure.

    The contents are written to a temporary file beside `path` and synchronised with the disk, before the file gets its
    name and the folder is synchronised too. Without `overwrite`, exactly one of several concurrent writers of a name
    succeeds. A temporary file that a killed process left is deleted when a file is next written in the same folder.

    Parameters
    ----------
    path : str or Path
        The file; without a folder, it is relative to the working directory.
    fill : callable
        Writes the contents to the path that it is called with.
    overwrite : bool
        Whether to replace an existing file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_atomically(f"{folder}/a.txt", lambda path: path.write_text("text")).read_text()
    'text'
    """
    path = given_path(path).absolute()
    check_free(path, overwrite=overwrite)
    try:
        make_folder(path.parent)
        remove_stale(path.parent)
    except OSError as error:
        raise file_error(path, error, expected="a folder to write in") from error
    with _partial(path) as partial:
        try:
            fill(partial)
            _synchronise(partial)
            _name(partial, path, overwrite)
            _synchronise(path.parent)
        except DspkitError:
            raise
        except OSError as error:
            raise file_error(path, error) from error
    return path


def check_free(path: str | Path | None, *, overwrite: bool = False) -> None:
    """Raise an error if `write_atomically` would reject a path, before the work of making the contents.

    Examples
    --------
    >>> check_free(__file__)
    Traceback (most recent call last):
    dspkit.core.files.ExistingFileError: got ...files.py, which exists; expected a new name; ...
    """
    if path is None:
        return
    path = given_path(path).absolute()
    try:
        if path.is_dir():
            raise FileError(f"{_shown(path)}, which is a folder", expected="the name of a file", fix="add a file name")
        if not overwrite and os.path.lexists(path):
            raise _exists(path)
    except OSError as error:
        if isinstance(error, DspkitError):
            raise
        raise file_error(path, error) from error


def remove_stale(folder: str | Path) -> None:
    """Delete the temporary files that writers of this user left in a folder when they were killed.

    A file whose writer is alive is locked by it, and stays.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, ".dspkit-partial-0123456789abcdef").write_text("half a fi")
    ...     remove_stale(folder)
    ...     os.listdir(folder)
    []
    """
    if os.name == "nt":
        return  # it deletes them itself, or not at all while they are open
    try:
        with os.scandir(folder) as entries:
            found = [entry.path for entry in entries if _STALE.fullmatch(entry.name)]
    except OSError:
        return
    for name in found:
        with contextlib.suppress(OSError):  # its writer is alive, or another process deletes it as well
            handle = os.open(name, os.O_RDWR | _NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
            try:
                seen = os.fstat(handle)
                if stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and _lock(handle):
                    os.unlink(name)
            finally:
                os.close(handle)


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[Path]:
    """Create an empty temporary file beside `path`, lock it, and delete what is left of it at the end."""
    while True:
        partial = path.parent / f"{_PARTIAL}{secrets.token_hex(8)}"
        try:
            handle = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_RDWR | _NONBLOCK, 0o666)  # less the umask
        except OSError as error:
            raise file_error(path, error, expected="a folder to write in") from error
        if _lock(handle) is not False and os.fstat(handle).st_nlink:
            break
        os.close(handle)  # another process took the file for stale before it was locked
    try:
        yield partial
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Lock an open file until it is closed or its process ends.

    Return False if another process has locked it, None if the system or the file system has no locks.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _name(partial: Path, path: Path, overwrite: bool) -> None:
    """Give a file its name; without `overwrite` only if no file has it, nor a symbolic link that leads nowhere."""
    if overwrite:
        partial.replace(path)
        return
    try:
        if os.name == "nt":
            partial.rename(path)  # which does not replace there
        else:
            os.link(partial, path, follow_symlinks=False)
    except NotImplementedError:  # this system has no such flag; `partial` is no symbolic link
        os.link(partial, path)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Some file systems have no links. There the name is taken first: a crash right here leaves it, empty.
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            raise _exists(path) from error
        partial.replace(path)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, durably; one that exists stays.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     make_folder(Path(folder, "a", "b"))
    ...     Path(folder, "a", "b").is_dir()
    True
    """
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _synchronise(folder.parent)


def _synchronise(path: Path) -> None:
    """Wait until a file's contents or a folder's names are on the disk."""
    folder = path.is_dir()
    if folder and os.name == "nt":
        return  # folders cannot be opened
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    except PermissionError:
        if folder:
            return  # a folder that may be written to but not read: its names cannot be waited for
        raise
    try:
        os.fsync(handle)
    except OSError as error:
        if not folder or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network folders cannot do it
            raise
    finally:
        os.close(handle)


def _exists(path: Path) -> ExistingFileError:
    return ExistingFileError(
        f"{_shown(path)}, which exists", expected="a new name", fix="rename, or pass overwrite=True"
    )
