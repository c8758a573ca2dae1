"""Redis Streams as a log: each stream is a partition, each entry a record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import ArgumentError
from ...core.typing import Array
from ...core.validation import choice
from ..errors import SourceError
from ..functions import as_schema
from .log import SINCE, Follower, LogSource, Mark, Marks

if TYPE_CHECKING:
    import pyarrow as pa


_APART = 1000  # entries between marks: the most that a new reader skips
_HOP = """
local found = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
return {#found, found[#found][1]}
"""


@dataclass(frozen=True)
class RedisSource(LogSource):
    """Entries of Redis Streams; their ids are their event times. It needs Redis 7 or newer, which counts added entries.

    An entry that is trimmed or deleted before it was read ends the job with an error.

    Parameters
    ----------
    streams
        Names of the streams, one partition each.
    fields
        Fields of an entry and their types, as "user string, n int64".
    url
        Address of the server.
    since
        "earliest" reads from the first entry on, "latest" new entries only.
    folder
        Folder of the marks, which the job sets.

    Examples
    --------
    >>> source = RedisSource(["clicks:0", "clicks:1"], fields="user string, n int64")
    >>> source.partitions, source.log
    (2, 'Redis streams clicks:0, clicks:1')
    """

    streams: Sequence[str]
    fields: Any = field(kw_only=True)
    url: str = field(default="redis://127.0.0.1:6379/0", kw_only=True, repr=False)  # may contain a password
    since: str = field(default="earliest", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", as_schema(self.fields))
        streams = (self.streams,) if isinstance(self.streams, str) else tuple(self.streams)
        object.__setattr__(self, "streams", streams)
        if not 1 <= len(streams) <= 256 or len(set(streams)) < len(streams):
            raise ArgumentError(
                f"streams {streams!r}", expected="1 to 256 different names", fix="name each stream once"
            )
        choice(self.since, "since", SINCE)

    @property
    def partitions(self) -> int:
        return len(self.streams)

    @property
    def log(self) -> str:
        return f"Redis streams {', '.join(self.streams)}"

    def begin(self) -> list[Any]:
        # Each stream begins at the id before its first entry to read, and the number of entries added up to it.
        where = []
        for found in _look(_client(self.url), self.streams):
            if self.since == "latest":
                where.append([found["last-generated-id"].decode(), found["entries-added"]])
            else:
                where.append(["0-0", found["entries-added"] - found["length"]])
        return where

    def follower(self, marks: list[list[Mark]]) -> _Counts:
        return _Counts(self, marks)

    def reader(self) -> _Entries:
        return _Entries(self)


def _client(url: str) -> Any:
    import redis

    try:
        return redis.Redis.from_url(url, socket_timeout=10, socket_connect_timeout=5)
    except (ValueError, TypeError, AttributeError):  # it quotes a part of the address, which may be of the password
        raise SourceError(
            "the address of a Redis, which is not shown, as it may have a password",
            expected="redis://:password@host:port/0",
            fix="write / in a password as %2F, @ as %40, ? as %3F, and # as %23",
        ) from None


def _look(client: Any, streams: Sequence[str]) -> list[dict[str, Any]]:
    """Return Redis' description of each stream; one that does not exist yet is empty."""
    import redis

    pipe = client.pipeline(transaction=False)
    for name in streams:
        pipe.xinfo_stream(name)
    found = pipe.execute(raise_on_error=False)
    for i, one in enumerate(found):
        if isinstance(one, redis.ResponseError) and "no such key" in str(one):
            found[i] = {"entries-added": 0, "length": 0, "last-generated-id": b"0-0"}
        elif isinstance(one, Exception):
            raise one
        elif "entries-added" not in one:
            raise SourceError("a Redis before 7", expected="one that counts added entries", fix="use Redis 7 or newer")
    return list(found)


class _Counts(Follower):
    """The driver's count of entries as they are added."""

    def __init__(self, source: RedisSource, marks: list[list[Mark]]):
        self._streams, self._client = source.streams, _client(source.url)
        self._last = [known[-1] for known in marks]
        self._added = [mark.where[1] for mark in self._last]

    def look(self) -> list[tuple[int, list[Mark]]]:
        counts = []
        for p, found in enumerate(_look(self._client, self._streams)):
            last, fresh, now = self._last[p], [], round(time.time() * 1e6)
            added = found["entries-added"]
            if added < self._added[p]:
                raise SourceError(
                    f"stream {self._streams[p]!r} with {added} entries ever added, after it had {self._added[p]}",
                    expected="the stream that the job began with",
                    fix="start again, with another checkpoint",
                )
            count = last.number + added - last.where[1]
            while count - last.number > 2 * _APART:  # many at once: a stream that was filled before
                passed, upto = self._hop(self._streams[p], last.where[0])
                if passed < _APART:
                    break
                last = Mark(last.number + passed, [upto.decode(), last.where[1] + passed], now)
                fresh.append(last)
            if count - last.number >= _APART:
                last = Mark(count, [found["last-generated-id"].decode(), added], now)
                fresh.append(last)
            self._last[p], self._added[p] = last, added
            counts.append((count, fresh))
        return counts

    def _hop(self, stream: str, last: str) -> tuple[int, bytes]:
        passed, upto = self._client.eval(_HOP, 1, stream, last, _APART)
        return int(passed), upto

    def close(self) -> None:
        self._client.close()


class _Entries:
    """A task's reader, which continues behind the last entry, or searches from the mark before."""

    def __init__(self, source: RedisSource):
        self._source, self._client = source, _client(source.url)
        self._last: dict[int, tuple[int, str]] = {}  # by partition: the next entry's number, the last one's id

    def read(self, p: int, marks: Marks, low: int, high: int) -> tuple[pa.RecordBatch, Array]:
        import numpy as np

        stream, (mark, _) = self._source.streams[p], marks.at(low)
        number, last = self._last.get(p, (-1, ""))
        passed = 0
        if number != low:
            last, passed = mark.where[0], low - mark.number
        pipe = self._client.pipeline()
        pipe.xinfo_stream(stream)
        pipe.xrange(stream, f"({last}", "+", count=passed + high - low)
        found, entries = pipe.execute()
        entries = entries[passed:]
        before = mark.where[1] + low - mark.number  # entries that were added before the first one to read
        ids = [each.decode() for each, _ in entries]
        nxt, _ = marks.at(high)
        wrong = low < nxt.number <= high and ids[nxt.number - low - 1 : nxt.number - low] != [nxt.where[0]]
        if len(entries) < high - low or found["entries-added"] - found["length"] > before or wrong:
            raise SourceError(
                f"stream {stream!r}, of which entries were trimmed or deleted before they were read",
                expected="a stream that keeps what is not read yet",
                fix="give it a greater MAXLEN, or the job more instances",
            )
        self._last[p] = (high, ids[-1])
        event = np.array([int(each.partition("-")[0]) for each in ids], np.int64) * 1000
        return self._batch(entries), event

    def close(self) -> None:
        self._client.close()

    def _batch(self, entries: list[Any]) -> pa.RecordBatch:
        import pyarrow as pa

        columns = []
        for column in self._source.schema:
            try:
                text = [fields[column.name.encode()].decode(errors="replace") for _, fields in entries]
                columns.append(pa.array(text, pa.string()).cast(column.type))
            except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise SourceError(
                    f"an entry without {column.name!r} of type {column.type} ({error!r:.200})",
                    expected=f"fields {self._source.schema.names}",
                    fix="correct fields= or what is written",
                ) from None
        return pa.RecordBatch.from_arrays(columns, schema=self._source.schema)
