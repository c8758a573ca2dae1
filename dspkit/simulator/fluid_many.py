"""Many windows of one fluid in a row, without Python between them. Compiled."""

from __future__ import annotations

from .compiled import compiled
from .fluid_curves import Curves
from .fluid_kernel import play
from .fluid_state import Cluster, State, Sums
from .fluid_steady import Theory, latencies
from .layout import Array, Graph

COLUMNS = ("offered", "ended", "lost", "lag", "stopped", "cores", "latency", "event")  # sums of a window; mean seconds


@compiled
def play_windows(
    g: Graph, c: Cluster, theory: Theory, s: State, sums: Sums, curves: Curves, seconds: Array, io: Array,
    rates: Array, dt: Array, starts: Array, noise: Array, rows: Array, busy: Array, kept: Array,
) -> None:  # fmt: skip
    """Window w is ticks `starts[w]` to `starts[w + 1]`. Fill `rows[w]` by COLUMNS, `busy[w, i]` in instance-seconds."""
    n, waited, out = len(s.queue), busy[0].copy(), rows[0, :6].copy()
    for w in range(len(starts) - 1):
        a, b = starts[w], starts[w + 1]
        sums.arrived[:] = sums.done[:] = sums.still[:] = sums.dropped[:] = sums.busy[:] = sums.blocked[:] = 0.0
        sums.cpu[:] = sums.queued[:] = sums.waits[:] = 0.0
        sums.sent[:] = 0.0
        sums.cores[:] = 0.0
        sums.flow[:] = 0.0
        for i in range(n):
            c.cpu[i] = seconds[i] * noise[w, i] * (1 - io[i])
            c.other[i] = seconds[i] * noise[w, i] * io[i] + c.call[i]
        play(g, c, s, sums, curves, rates[a:b], dt[a:b], kept[a:b])
        latencies(g, c, theory, sums, dt[a:b].sum(), waited, out)
        busy[w] = sums.busy
        for i in range(n):
            if g.into_at[i] == g.into_at[i + 1]:
                rows[w, 0] += sums.arrived[i]
        rows[w, 1], rows[w, 2], rows[w, 3] = sums.flow[0], sums.flow[2], kept[b - 1, 1]
        rows[w, 4], rows[w, 5] = sums.flow[1], sums.cores.sum()
        rows[w, 6], rows[w, 7] = out[0] + out[1], out[3] + out[4]
