"""A double of a disk: after a power cut it holds what was synchronised, and of all else whatever it likes."""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

STEPS = ("open", "write", "truncate", "fsync", "replace", "rename", "link", "unlink", "mkdir", "rmdir")


class PowerCut(BaseException):
    """The end of a program: no handler for errors may catch it."""


class Disk:
    """A folder on such a disk; all that is in it at first is synchronised.

    `fsync` of a file keeps its contents, `fsync` of a folder the names in it. Names and contents that were not
    synchronised are lost at a cut, or kept, or each by chance; contents may also be there in part, or as zeros.
    """

    def __init__(self, folder: Path, chance: random.Random):
        self.folder, self._chance = folder, chance
        self._open: dict[int, int] = {}  # by inode, whose number is no other's as long as it is open
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._left, self._lock = 0, threading.RLock()
        self._root = self._hold(folder)
        for above, _, files in os.walk(folder):
            self._synchronise(self._hold(Path(above)))
            for name in files:
                self._synchronise(self._hold(Path(above, name)))

    @contextmanager
    def power(self, steps: int) -> Iterator[None]:
        """Cut the power before the n-th change of a file, or else at the end; from then on each raises PowerCut."""
        self._left, before = steps, set(threading.enumerate())
        real = {name: getattr(os, name) for name in STEPS}

        def step(name: str) -> Any:
            def call(*args: Any, **more: Any) -> Any:
                with self._lock:  # a disk does one thing after the other
                    self._left -= 1
                    if self._left == 0:
                        self._cut(real["mkdir"])
                    if self._left <= 0:
                        raise PowerCut
                    if name != "fsync":
                        return real[name](*args, **more)
                    self._synchronise(self._hold(Path(f"/proc/self/fd/{args[0]}")))
                    return None

            return call

        with mock.patch.multiple(os, **{name: step(name) for name in STEPS}):
            try:
                yield
            except BaseException:  # after the cut no error is seen
                if self._left > 0:
                    raise
            if self._left > 0:
                self._left = 0
                self._cut(real["mkdir"])
            for thread in set(threading.enumerate()) - before:
                thread.join()
        shutil.rmtree(self.folder)
        os.rename(self._after, self.folder)
        for number in self._open.values():
            os.close(number)

    def _hold(self, path: Path, opened: Any = os.open) -> int:
        """Return the inode of a file or folder, which stays readable when its name is gone."""
        number = opened(path, os.O_RDONLY)  # not by the name in `os`, which raises after the cut
        inode = os.fstat(number).st_ino
        if self._open.setdefault(inode, number) != number:
            os.close(number)
        return inode

    def _is_folder(self, inode: int) -> bool:
        return stat.S_ISDIR(os.fstat(self._open[inode]).st_mode)

    def _now(self, inode: int) -> dict[str, int]:
        place = Path(f"/proc/self/fd/{self._open[inode]}")
        return {name: self._hold(place / name) for name in os.listdir(place)}

    def _read(self, inode: int) -> bytes:
        return os.pread(self._open[inode], os.fstat(self._open[inode]).st_size, 0)

    def _synchronise(self, inode: int) -> None:
        if self._is_folder(inode):
            self._names[inode] = self._now(inode)
        else:
            self._contents[inode] = self._read(inode)

    @property
    def _after(self) -> Path:
        return self.folder.with_name(f"{self.folder.name} after")

    def _cut(self, make_folder: Callable[[Path], None]) -> None:
        how = self._chance.choice(("nothing", "everything", "by chance"))
        self._put(self._root, self._after, how, make_folder)

    def _put(self, inode: int, to: Path, how: str, make_folder: Callable[[Path], None]) -> None:
        if self._is_folder(inode):
            names, now = self._names.get(inode, {}), self._now(inode)
            make_folder(to)
            for name in sorted(names.keys() | now.keys()):
                child = (now if self._keeps(how) else names).get(name)
                if child is not None:
                    self._put(child, to / name, how, make_folder)
            return
        kept, there = self._contents.get(inode, b""), self._read(inode)
        if self._keeps(how):
            kept = there
        elif how == "by chance" and there.startswith(kept):
            more = there[len(kept) :]
            kept += self._chance.choice((b"", more[: self._chance.randrange(len(more) + 1)], bytes(len(more))))
        to.write_bytes(kept)

    def _keeps(self, how: str) -> bool:
        return how == "everything" or (how == "by chance" and self._chance.random() < 0.5)
