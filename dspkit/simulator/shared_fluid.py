"""The fluid of several applications that share nodes, and what each of them had of a window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..core import Latency
from .engine import Window
from .fluid import Fluid, as_latency
from .fluid_steady import TRACE, latencies
from .layout import Array, Graph, Layout


class SharedFluid(Fluid):
    """A fluid whose graph falls into parts that meet only at the nodes' cores."""

    def __init__(self, graph: Graph, layout: Layout, parts: Sequence[Array]):
        """`parts`: the operators of each application, by number."""
        super().__init__(graph, layout)
        fed = np.isin(np.arange(len(layout.instances)), graph.end)
        self._parts = [(members, members[~fed[members]]) for members in parts]
        self._before = [0.0] * len(self._parts)
        self._stood = [0.0] * len(self._parts)  # seconds in which some operator stood still as a whole
        self.parts: list[Window] = []  # of the last window, one for each application

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        pause, seconds = self.state.pause, float(dt.sum())  # what stands still now does so from here on
        self._stood = [
            s + min(seconds, float(pause[i].max())) for s, (i, _) in zip(self._stood, self._parts, strict=True)
        ]
        super().play(rates, dt, noise)

    def window(self) -> Window:
        stood, self._stood = self._stood, [0.0] * len(self._parts)
        own = [self._part(p, members, sources) for p, (members, sources) in enumerate(self._parts)]
        whole = super().window()
        self.parts = [
            Window(
                whole.arrived[i], whole.done[i], whole.dropped[i], whole.busy[i], whole.blocked[i], whole.cpu[i],
                whole.waited_s[i], whole.sent[np.isin(self.graph.start, i)], whole.cores, ended,
                stopped, whole.queue[i], *latency,
            )
            for (i, _), (ended, latency), stopped in zip(self._parts, own, stood, strict=True)
        ]  # fmt: skip
        return whole

    def _part(self, p: int, members: Array, sources: Array) -> tuple[float, tuple[Latency | None, Latency | None]]:
        """Source records of one application that ended, and their latencies: no record goes from one to another, so
        what came and is not inside any more has ended."""
        sums, inside = self._sums, float(self.state.mass[members].sum())
        came = float(sums.arrived[sources].sum())
        ended = max(0.0, self._before[p] + came - inside)
        self._before[p] = inside
        if ended <= TRACE:
            return ended, (None, None)
        arrived = np.zeros(len(sums.arrived))
        arrived[sources] = sums.arrived[sources] if came > 0 else 1.0  # others' records weigh nothing
        waited, out = np.empty(len(arrived)), np.empty(6)
        latencies(self.graph, self.cluster, self.theory, sums._replace(arrived=arrived), self._played, waited, out)
        return ended, (as_latency(*out[:3].tolist()), as_latency(*out[3:].tolist()))
