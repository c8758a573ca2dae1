"""Service time that is set: what a record costs besides the work that is done on it anyway."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import KnobError

_SHORTEST_S = 5e-4  # a nap takes longer than it should by some ten microseconds: short ones are put together


@dataclass
class Service:
    """`micros` for each record: waiting, as for an answer from elsewhere, or with `cpu` at work on a core.

    Waiting scales with instances beyond the cores of a machine, work on cores does not.
    """

    micros: float
    cpu: bool = False
    _owed: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.micros < 1e9:
            raise KnobError(f"micros={self.micros!r}", expected="a time from 0 up", fix="as in Service(200)")

    def pay(self, records: int) -> None:
        """Spend the time of that many records; what is too short to be spent exactly is owed."""
        self._owed += records * self.micros * 1e-6
        if self._owed < _SHORTEST_S:
            return
        if self.cpu:
            end = time.thread_time() + self._owed
            while time.thread_time() < end:
                pass
            self._owed = 0.0
        else:
            began = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - began
