"""Stores that applications ask: a table in memory with a ceiling for all who ask together, or a real Redis."""

from __future__ import annotations

import atexit
import fcntl
import os
import struct
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import KnobError, NotFoundError

Ask = Callable[[list[str]], list[int]]


@dataclass
class Ceiling:
    """So many answers a second for all processes of this machine together, in the order in which they ask.

    The moment at which the store will be free is in a file that all share; whoever asks books its time behind it.
    """

    per_second: float
    _path: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.per_second > 0:
            raise KnobError(f"per_second={self.per_second!r}", expected="a rate above 0", fix="as in Ceiling(2000)")
        handle, self._path = tempfile.mkstemp(prefix="dspkit-ceiling-")
        os.write(handle, struct.pack("d", 0.0))
        os.close(handle)
        atexit.register(_remove, self._path, os.getpid())

    def wait(self, answers: int) -> None:
        """Wait as long as the store takes for so many, and for all who asked before."""
        with open(self._path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            free = max(time.time(), struct.unpack("d", file.read(8))[0]) + answers / self.per_second
            file.seek(0)
            file.write(struct.pack("d", free))
        time.sleep(max(0.0, free - time.time()))


def _remove(path: str, owner: int) -> None:
    """At the end of the process that made it; workers are forked from others."""
    if os.getpid() == owner:
        Path(path).unlink(missing_ok=True)


class Table:
    """A store in memory; with `ceiling`, no more answers a second than that, however many ask."""

    def __init__(self, rows: Mapping[str, int], ceiling: float | None = None):
        self._rows, self._ceiling = dict(rows), Ceiling(ceiling) if ceiling is not None else None

    def open(self) -> Ask:
        return self._ask

    def _ask(self, keys: list[str]) -> list[int]:
        if self._ceiling is not None:
            self._ceiling.wait(len(keys))
        return [self._rows[key] for key in keys]


class Redis:
    """A hash of a Redis server, asked with one HMGET a batch."""

    def __init__(self, url: str = "redis://127.0.0.1:6379/0", name: str = "dspkit:campaigns"):
        self.url, self.name = url, name

    def fill(self, rows: Mapping[str, int]) -> Redis:
        """Write what it shall know."""
        self._client().hset(self.name, mapping=dict(rows))
        return self

    def open(self) -> Ask:
        client = self._client()

        def ask(keys: list[str]) -> list[int]:
            found: Sequence[Any] = client.hmget(self.name, keys)
            if missing := [key for key, value in zip(keys, found, strict=True) if value is None]:
                raise NotFoundError(f"{missing[0]!r}", expected=f"a key of {self.name!r}", fix="fill the store first")
            return [int(value) for value in found]

        return ask

    def _client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url)
