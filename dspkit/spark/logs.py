"""What a job's sources read: how much each log has been offered, how much of it was read, and what lies between."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import DspkitError
from .checkpoint import Checkpoint
from .collector import Totals
from .follow import Follow
from .source import TraceSource
from .source_log import LogSource
from .supervisor import Supervisor


class Logs:
    """The logs of a job, by source; `sources` get to know where those outside of Spark keep their marks."""

    def __init__(self, sources: dict[str, Any], names: Sequence[str], checkpoint: Checkpoint):
        self._follows: dict[str, Follow] = {}
        for i, name in enumerate(names):
            if isinstance(source := sources[name], LogSource):
                sources[name] = source = source.at(checkpoint.own / "logs" / str(i))
                self._follows[name] = Follow(source, partial(checkpoint.read, i))
        self._sources, self.zero_s = sources, 0.0
        offsets = checkpoint.offsets() or [[] for _ in sources]
        self._read = {n: dict(enumerate(read)) for n, read in zip(names, offsets, strict=True)}

    def start(self, supervisor: Supervisor, names: Sequence[str]) -> None:
        """Tell the job's sources from now on how far logs outside of Spark are filled."""
        for name, followed in self._follows.items():
            followed.start(partial(supervisor.filled, names.index(name)))

    def offered(self, at: float) -> dict[str, float]:
        """Records that each log had at that time, since the job first began."""
        return {
            n: s.offered(at - self.zero_s) if isinstance(s, TraceSource) else self._follows[n].offered(at)
            for n, s in self._sources.items()
        }

    def lag(self, offered: Mapping[str, float], totals: Totals, names: Sequence[str]) -> dict[str, float]:
        """Records of each log that nobody has read yet."""
        for name, read in self._read.items():
            read |= totals.read_to.get(names.index(name), {})
        return {n: max(0.0, math.floor(offered[n]) - sum(self._read[n].values())) for n in offered}

    @property
    def failed(self) -> DspkitError | None:
        """Why a log answers no more."""
        return next((f.error for f in self._follows.values() if f.error is not None), None)

    def close(self) -> None:
        for followed in self._follows.values():
            followed.close()
