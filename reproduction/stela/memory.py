"""Stela's evaluation with queues in limited memory, as in Storm without acknowledgements.

Records that wait for a bolt are in the heaps of its machine's processes. There is no back-pressure, so that a heap
fills in front of a bolt that cannot keep up. When it overflows, the supervisor restarts the machine's processes after
`restart_s`, and the records that were there, or are sent there meanwhile, are lost. A process with new or moved
executors starts empty, too. Records of an operator are distributed over its machines in proportion to its executors;
sources have none, as they create records on request.

The size of a heap is given in seconds of the job's whole load: the records that fit in it over `LOAD_PER_S`. The paper
prints neither the size of records nor their rate; this combines both: 1 GB per machine is 100 s of 10,000 records/s of
1 kB, and 5,000 s of the 200 records/s that the spouts of the authors' published Page Load create at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dspkit.apps import App
from dspkit.apps.stela import LOAD_PER_S, SCALE_IN, TABLE_ONE, Trial
from dspkit.core import Deployment, Snapshot, run
from dspkit.etp import convergence_s
from dspkit.policies.on_demand import ScaleIn, ScaleOut
from dspkit.simulator import Scheduler, Simulator
from dspkit.simulator.fluid.engine import Fluid
from dspkit.simulator.job import Engine, Job
from dspkit.simulator.layout import IndexedGraph, Layout

from .study import by_lot, carried_out, strategies, throughput

if TYPE_CHECKING:
    import pandas as pd


HEAPS_S = (1000.0, 100.0, 30.0, 10.0)
RESTART_S = 40.0  # 30 s until a silent process counts as dead (Storm's default), and the start of another
LOOK_S = 1.0
BEFORE, AFTER = 180, 360  # windows: half an hour, and an hour


class _Heaps(Job):
    """A job whose machines restart for `restart_s` when more than `heap` records wait on them."""

    def __init__(self, *arguments: Any, heap: float, restart_s: float):
        self._heap, self._restart_s = heap, restart_s
        self._back: dict[int, float] = {}  # machines that are down, and the times of their return
        super().__init__(*arguments)

    def deploy(self, deployment: Deployment, t: float) -> None:
        before = dict(self.where)
        super().deploy(deployment, t)
        moved = np.array([fmean(before.get(i) != n for i, n in self.where.items() if i[0] == o) for o in self.order])
        self.engine.lose(np.where(self._fed, moved, 0.0))

    def stretches(self, start: float, end: float) -> Iterator[tuple[float, float]]:
        for a, b in super().stretches(start, end):
            for t in np.arange(a, b - 1e-9, LOOK_S).tolist():
                yield t, min(t + LOOK_S, b)
                self._look(min(t + LOOK_S, b))

    def _look(self, t: float) -> None:
        up = [j for j, at in self._back.items() if at <= t + 1e-9]
        share = self.layout.node_instances / np.maximum(1, self.layout.instances)
        waiting = share @ np.where(self._fed, cast(Fluid, self.engine).state.queue, 0.0)
        full = [j for j in np.flatnonzero(waiting > self._heap).tolist() if j not in self._back]
        for j in up:
            del self._back[j]
        self._back |= dict.fromkeys(full, t + self._restart_s)
        if full or up:  # records sent to a machine that was down are lost
            self.engine.lose(np.where(self._fed, share[full + up].sum(axis=0), 0.0))
            self.layout = self._layout(t)
            self.engine.change(self.layout)

    def _layout(self, t: float) -> Layout:
        found = super()._layout(t)
        return found._replace(cores=np.where(np.isin(np.arange(len(self.nodes)), list(self._back)), 0.0, found.cores))


class Heaps(Simulator):
    """The application's simulator with heaps of `heap_s` seconds of the whole load per machine."""

    def __init__(self, app: App, heap_s: float, restart_s: float = RESTART_S, *, seed: int = 1):
        self._limits = {"heap": heap_s * LOAD_PER_S, "restart_s": restart_s}
        super().__init__(app.topology, app.plant, app.workload, deployment=app.deployment(), seed=seed)

    def observe(self) -> Snapshot:
        """Return the window; a machine whose processes restart still reports, as its supervisor runs on."""
        seen = super().observe()
        used = list(self.plant.nodes)[: seen.deployment.workers]
        return replace(seen, nodes={name: seen.nodes.get(name, 0.0) for name in dict.fromkeys([*used, *seen.nodes])})

    def _make_job(self, start: Deployment, scheduler: Scheduler, make: Callable[[IndexedGraph, Layout], Engine]) -> Job:
        return _Heaps(self.topology, self.plant, start, scheduler, make, **self._limits)


def scale_out_heaps(
    heaps_s: Sequence[float] = HEAPS_S, restart_s: float = RESTART_S, *, trials: Sequence[Trial] = TABLE_ONE
) -> pd.DataFrame:
    """Return throughput of Stela and the default, half an hour before and an hour after machines join; convergence."""
    import pandas as pd

    rows = []
    for trial in trials:
        asked = ScaleOut(trial.after - trial.before, at_s=BEFORE * 10.0)
        for heap_s in heaps_s:
            row: dict[str, Any] = {"topology": trial.name, "heap_s": heap_s}
            for name in ("stela", "default"):
                backend = Heaps(trial.app(), heap_s, restart_s)
                x = throughput(run(strategies(asked)[name], backend, steps=BEFORE + AFTER, seed=1))
                row |= {f"{name}_before": fmean(x[5:BEFORE]), f"{name}_after": fmean(x[BEFORE + 30 :])}
                row[f"{name}_convergence_s"] = convergence_s(x[BEFORE : BEFORE + 60])
            row["over_default"] = row["stela_after"] / row["default_after"] - 1
            rows.append(row)
    return pd.DataFrame(rows)


def scale_in_heaps(
    heaps_s: Sequence[float] = HEAPS_S, restart_s: float = RESTART_S, *, draws: int = 14
) -> pd.DataFrame:
    """Return the throughput before and after machines leave, by Stela and by `draws` of the 70 choices."""
    import pandas as pd

    app, count = SCALE_IN.app(), SCALE_IN.before - SCALE_IN.after
    rows = []
    with Heaps(app, 1e9) as calm:
        for _ in range(6):
            snapshot = calm.observe()
    target, _ = strategies()["stela"].answer(ScaleIn(count), app.topology, snapshot)  # type: ignore[attr-defined]
    ends = [target, *by_lot(app, draws).values()]
    for heap_s in heaps_s:
        kept = []
        for end in ends:
            x = carried_out(Heaps(app, heap_s, restart_s), end, BEFORE, BEFORE + AFTER)
            kept.append((fmean(x[5:BEFORE]), fmean(x[BEFORE + 30 :])))
        lot = [after for _, after in kept[1:]]
        rows.append((heap_s, kept[0][0], kept[0][1], min(lot), median(lot), max(lot)))
    return pd.DataFrame(rows, columns=["heap_s", "before", "stela", "worst by lot", "middle by lot", "best by lot"])
