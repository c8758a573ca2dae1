"""Watermarks: how far event time has come, at the partitions of a log and behind each edge.

The watermark of an instance of a source is the least of its partitions'. It goes to every instance of every receiver,
in a frame of its own behind the records that it speaks of. A receiver keeps the watermark of each instance of each
sender; its own is the least of these, and is sent on once the function has had all that came before. So what a record
on time still can change is never behind the watermark.

Partitions that are idle, because their log has held no further record for `idle_s`, are left out; if all are, the
greatest counts, until one wakes: what is sent then goes back to it, though no receiver does. At the end of an epoch all
marks have arrived, so that the watermark of an operator depends on the records that were read alone. It is kept with
the epoch, as are the partitions' newest times: see `save`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...core.typing import Array
from ..event_time import EventTime
from .state import Plan, incomplete, synchronise
from .store import read_sealed, write_sealed

BEFORE = -(1 << 62)  # the watermark as long as nothing is known
MARK = -1  # in the place of the number of records of a frame, says that it is a watermark
MARK_S = 0.1  # seconds between the watermarks that a source sends
_MARK = struct.Struct("<iq?")  # instance of the sender, watermark, whether it is idle


class PartitionTimes:
    """The newest event times of the partitions that one instance of a source reads.

    Parameters
    ----------
    declared
        The source's event time.
    partitions
        The instance's partitions.
    now
        Time of the clock, in microseconds.
    saved
        Of each partition the newest event time, and when it was last read, as an epoch kept them.
    """

    def __init__(self, declared: EventTime, partitions: Iterable[int], now: int, saved: Mapping[int, tuple[int, int]]):
        self._delay, self._lateness = round(declared.delay_s * 1e6), round(declared.lateness_s * 1e6)
        self._idle = round(declared.idle_s * 1e6)
        self.newest = {p: saved.get(p, (BEFORE, now))[0] for p in partitions}
        self.read_at = {p: saved.get(p, (BEFORE, now))[1] for p in partitions}
        self._empty_at: dict[int, int] = {}  # when that was read: its frame may wait for long, and records behind it
        self._began = now  # or earlier, by the read times of its records
        self._read: set[int] = set()  # in this epoch
        self.now = self.sent = BEFORE
        self.idle = False

    def late(self, partition: Array, at: Array, read_at: int) -> Array:
        """Return which of the next records are late, given the partition and event time of each in the log's order."""
        import numpy as np

        late = np.zeros(len(at), bool)
        for p in np.unique(partition).tolist():
            mine = np.flatnonzero(partition == p)
            newest = np.maximum.accumulate(np.concatenate([[self.newest[p]], at[mine]]))
            late[mine] = at[mine] < newest[:-1] - self._delay - self._lateness
            self.newest[p], self.read_at[p] = int(newest[-1]), read_at
            self._empty_at.pop(p, None)
            self._read.add(p)
        self._began = min(self._began, read_at)
        return late

    def empty(self, partitions: Iterable[int], at: int) -> None:
        """Note that the log held no further record of these partitions at a time of the clock."""
        self._empty_at.update(dict.fromkeys(partitions, at))

    def rest_is_empty(self) -> None:
        """Note that the log held no record of the partitions of which this epoch has read none, when it began."""
        self.empty(set(self.newest) - self._read, self._began)

    def advance(self) -> bool:
        """Move the watermark to where it is by now; return whether that changed it."""
        before = self.now, self.sent, self.idle
        idle = {p for p, at in self._empty_at.items() if at - self.read_at[p] >= self._idle}
        times = [time for p, time in self.newest.items() if p not in idle]
        found = min(times) if times else max(self.newest.values(), default=BEFORE)
        self.sent = found - self._delay if found > BEFORE else BEFORE
        self.now, self.idle = max(self.now, self.sent), not times
        return (self.now, self.sent, self.idle) != before

    def saved(self) -> dict[str, list[int]]:
        """Return what the next epoch needs to know."""
        return {str(p): [time, self.read_at[p]] for p, time in self.newest.items()}


class Watermarks:
    """The watermark of an instance, from those of all instances of its senders.

    Parameters
    ----------
    senders
        Number of instances by sender.
    now
        The watermark to begin with.

    Examples
    --------
    >>> marks = Watermarks({0: 2})
    >>> marks.mark(0, 0, 5, False), marks.advance()
    (None, False)
    >>> marks.mark(0, 1, 3, False), marks.advance(), marks.now
    (None, True, 3)
    """

    def __init__(self, senders: Mapping[int, int], now: int = BEFORE):
        self._marks = {(sender, i): (BEFORE, False) for sender, k in senders.items() for i in range(k)}
        self.now, self.sent, self.idle = now, BEFORE, False

    def mark(self, sender: int, instance: int, watermark: int, idle: bool) -> None:
        """Note the watermark of an instance of a sender."""
        self._marks[sender, instance] = (watermark, idle)

    def advance(self) -> bool:
        """Move to the least watermark of the senders that are not idle; return whether that changed it."""
        before = self.now, self.sent, self.idle
        active = [time for time, idle in self._marks.values() if not idle]
        self.sent = min(active) if active else max(time for time, _ in self._marks.values())
        self.now, self.idle = max(self.now, self.sent), not active
        return (self.now, self.sent, self.idle) != before


def pack(instance: int, watermark: int, idle: bool) -> bytes:
    """Return the frame of a watermark."""
    return _MARK.pack(instance, watermark, idle)


def unpack(frame: bytes) -> tuple[int, int, bool]:
    """Return the instance, its watermark, and whether it is idle, of a frame."""
    return _MARK.unpack(frame)


def _path(folder: Path, token: str, operator: int, instance: int) -> Path:
    return folder / "state" / token / f"time-{operator}-{instance}.json"


def save(folder: Path, plan: Plan, operator: int, instance: int, content: Any) -> None:
    """Write the event time of an instance at the end of an attempt; when this returns it is on the disk."""
    path = _path(folder, plan.token, operator, instance)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_sealed(path, content)
    for each in (path.parent, path.parent.parent):
        synchronise(each)


def load(folder: Path, plan: Plan | None, operator: int) -> list[Any]:
    """Return what the instances of an operator wrote at the end of an epoch; of no epoch, nothing."""
    if plan is None:
        return []
    return [read_sealed(_path(folder, plan.token, operator, i)) for i in range(plan.k[operator])]


def previous(plan: Plan) -> Plan | None:
    """Return the plan of the epoch before; None for the first one."""
    if plan.epoch > 0 and plan.previous is None:
        raise incomplete(f"no plan of epoch {plan.epoch - 1}")
    return plan.previous
