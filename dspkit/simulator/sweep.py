"""Many simulations at once, one row each: the data of a heat map over two sliders.

Pipelined cases run all their windows in one compiled call, `play_windows`, without Python in between, and in threads
side by side; micro-batch cases run window by window.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..core import ArgumentError, Deployment, DeploymentError, Topology
from ..core.jit import compiled
from ..core.typing import Array
from ..core.validation import is_number, whole
from ..workload import Workload
from .fluid.engine import Fluid, sums
from .fluid.kernel import play_fluid
from .fluid.latency import Curves, Theory, extended, latencies
from .fluid.state import FluidParameters, FluidState, FluidSums
from .job import Job
from .layout import IndexedGraph
from .simulator import by_source, make_engine, noises, offered, random_streams
from .system import Plant, Scheduler, round_robin

if TYPE_CHECKING:
    import pandas as pd


# Columns of a window: sums, and the means of the two latencies in seconds.
COLUMNS = ("offered", "ended", "lost", "lag", "stopped", "cores", "latency", "event")


@compiled
def play_windows(  # noqa: PLR0913  (compiled: one array each)
    g: IndexedGraph,
    c: FluidParameters,
    theory: Theory,
    s: FluidState,
    sums: FluidSums,
    curves: Curves,
    seconds: Array,
    io: Array,
    rates: Array,
    dt: Array,
    starts: Array,
    noise: Array,
    rows: Array,
    busy: Array,
    kept: Array,
) -> None:
    """Simulate windows, of which w is ticks `starts[w]` to `starts[w + 1]`.

    Fill `rows[w]` with COLUMNS and `busy[w, i]` with instance-seconds.
    """
    n, waited, out = len(s.queue), busy[0].copy(), rows[0, :6].copy()
    for w in range(len(starts) - 1):
        a, b = starts[w], starts[w + 1]
        sums.arrived[:] = sums.done[:] = sums.paused[:] = sums.dropped[:] = sums.busy[:] = sums.blocked[:] = 0.0
        sums.cpu[:] = sums.queued[:] = sums.waits[:] = 0.0
        sums.sent[:] = 0.0
        sums.cores[:] = 0.0
        sums.flow[:] = 0.0
        for i in range(n):
            c.cpu[i] = seconds[i] * noise[w, i] * (1 - io[i])
            c.other[i] = seconds[i] * noise[w, i] * io[i] + c.call[i]
        play_fluid(g, c, s, sums, curves, rates[a:b], dt[a:b], kept[a:b])
        latencies(g, c, theory, sums, dt[a:b].sum(), waited, out)
        busy[w] = sums.busy
        for i in range(n):
            if g.into_at[i] == g.into_at[i + 1]:
                rows[w, 0] += sums.arrived[i]
        rows[w, 1], rows[w, 2], rows[w, 3] = sums.flow[0], sums.flow[2], kept[b - 1, 1]
        rows[w, 4], rows[w, 5] = sums.flow[1], sums.cores.sum()
        rows[w, 6], rows[w, 7] = out[0] + out[1], out[3] + out[4]


T = TypeVar("T")
Loads = Workload | Mapping[str, Workload]


def simulate_many(
    topology: Topology,
    plant: Plant | Sequence[Plant],
    workload: Loads | Sequence[Loads],
    deployment: Deployment | Sequence[Deployment],
    *,
    duration_s: float = 600.0,
    window_s: float = 10.0,
    tick_s: float = 1.0,
    seed: int = 0,
    scheduler: Scheduler = round_robin,
    threads: int | None = None,
) -> pd.DataFrame:
    """Simulate the fluid of every case, without a policy, and return one row per case.

    Plant, workload and deployment are one for all cases, or a sequence with one per case. Rates are means over the run,
    `latency_s` is the mean over records, `worst_latency_s` that of the worst window; `lag` is that at the end.

    Parameters
    ----------
    topology
        The graph of operators, the same in all cases.
    plant
        The simulated cluster, or one per case.
    workload
        The load, or one per case.
    deployment
        The deployment, or one per case.
    duration_s
        Length of each simulation, a multiple of `window_s`, in seconds.
    window_s
        Length of the windows, in seconds.
    tick_s
        Length of the steps within a window, in seconds.
    seed
        Seed of the noise, the same in all cases.
    scheduler
        Function that places the instances.
    threads
        Number of threads; as many as there are cores if left out.

    Examples
    --------
    >>> from dspkit import apps
    >>> app = apps.word_count()
    >>> three = [Deployment(app.topology.uniform(k)) for k in (1, 4, 12)]
    >>> simulate_many(app.topology, app.plant, app.workload, three).throughput.round(-3).tolist()
    [30000.0, 99000.0, 165000.0]
    """
    import pandas as pd

    cases = _cases(plant, workload, deployment)
    if not is_number(tick_s, window_s, duration_s) or not (0 < tick_s <= window_s <= duration_s < np.inf):
        raise ArgumentError(
            f"tick_s={tick_s}, window_s={window_s}, duration_s={duration_s}",
            expected="0 < tick_s <= window_s <= duration_s, all finite",
            fix="shorten ticks or windows",
        )
    if abs(duration_s / window_s - round(duration_s / window_s)) > 1e-9:
        raise ArgumentError(
            f"duration_s={duration_s}", expected=f"whole windows of {window_s:g} s", fix="choose a multiple"
        )
    if threads is not None:
        whole(threads, "threads", 1, fix="leave it out for all cores")
    for one in {id(case[0]): case[0] for case in cases}.values():
        one.check(topology)
    for _, _, each in cases:
        if topology.check(each).settings:
            raise DeploymentError(f"settings {dict(each.settings)}", expected="no settings", fix="leave them out")
    windows = max(1, round(duration_s / window_s))
    ends = np.linspace(0.0, windows * window_s, windows + 1)
    inner = max(1, round(window_s / tick_s))
    edges = np.linspace(0.0, ends[-1], windows * inner + 1)
    rates: dict[int, tuple[Any, Array]] = {}  # by identity of the workload: most cases share one
    for _, load, _ in cases:
        if id(load) not in rates:
            rates[id(load)] = load, offered(by_source(topology, load), topology, (edges[1:] + edges[:-1]) / 2)

    def one_row(case: tuple[Plant, Loads, Deployment]) -> dict[str, float | str]:
        return _play(topology, *case, rates[id(case[1])][1], edges, ends, seed, scheduler)

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return pd.DataFrame(list(pool.map(one_row, cases)))


def _cases(
    plant: Plant | Sequence[Plant], workload: Loads | Sequence[Loads], deployment: Deployment | Sequence[Deployment]
) -> list[tuple[Plant, Loads, Deployment]]:
    many = [x for x in (plant, workload, deployment) if not isinstance(x, (Plant, Workload, Mapping, Deployment))]
    if strange := [x for x in many if not isinstance(x, Sequence) or isinstance(x, str)]:
        raise ArgumentError(
            repr(strange[0])[:80], expected="a Plant, a load, a Deployment, or a list of them", fix="pass a list"
        )
    lengths = {len(x) for x in many}
    if len(lengths) > 1 or 0 in lengths:
        raise ArgumentError(
            f"sequences of {sorted(lengths)} cases",
            expected="sequences of the same length, at least 1",
            fix="pass one item per case",
        )
    b = lengths.pop() if lengths else 1

    def each(x: Any) -> Iterable[Any]:
        return x if any(x is one for one in many) else itertools.repeat(x, b)

    cases = list(zip(each(plant), each(workload), each(deployment), strict=True))
    for case in cases:
        for thing, kind in zip(case, (Plant, (Workload, Mapping), Deployment), strict=True):
            if not isinstance(thing, kind):  # type: ignore[arg-type]
                raise ArgumentError(
                    repr(thing)[:80], expected="plants, loads, deployments, in this order", fix="check the case"
                )
    return cases


def _play(
    topology: Topology,
    plant: Plant,
    load: Loads,
    deployment: Deployment,
    rates: Array,
    edges: Array,
    ends: Array,
    seed: int,
    scheduler: Scheduler,
) -> dict[str, float | str]:
    noise_random, records = random_streams(seed)
    job = Job(topology, plant, deployment, scheduler, lambda g, a: make_engine("fluid", plant, g, a, records, "even"))
    windows, n = len(ends) - 1, len(topology.order)
    noise = noises(noise_random, plant.noise, (windows, n))
    rows, busy, held = np.zeros((windows, len(COLUMNS))), np.zeros((windows, n)), np.zeros(n)
    for a, b in job.stretches(0.0, float(ends[-1])):
        cut = np.concatenate(([a], edges[(edges > a + 1e-9) & (edges < b - 1e-9)], [b]))
        ticks = rates[np.searchsorted(edges, (cut[1:] + cut[:-1]) / 2) - 1]
        first, last = np.searchsorted(ends, a + 1e-9) - 1, np.searchsorted(ends, b - 1e-9)
        starts = np.searchsorted(cut, np.clip(ends[first : last + 1], a, b) - 1e-9)
        part = slice(first, last)
        more, worked = _stretch(job, ticks, np.diff(cut), starts, noise[part])
        before = rows[part].copy()
        rows[part] += more
        rows[part, 3] = more[:, 3]  # the lag is that at the end
        with np.errstate(invalid="ignore"):
            means = (before[:, 6:] * before[:, 1:2] + more[:, 6:] * more[:, 1:2]) / rows[part, 1:2]
        rows[part, 6:] = np.nan_to_num(means)
        busy[part] += worked
        held += job.layout.instances * (b - a)
    return _row(job, rows, busy, held, float(ends[-1]))


def _stretch(job: Job, rates: Array, dt: Array, starts: Array, noise: Array) -> tuple[Array, Array]:
    """Simulate windows in which only the load changes; return their rows and busy instance-seconds."""
    windows, n = len(starts) - 1, rates.shape[1]
    rows, busy, engine = np.zeros((windows, len(COLUMNS))), np.zeros((windows, n)), job.engine
    if isinstance(engine, Fluid):
        a, engine.curves = engine.layout, extended(engine.curves, len(dt))
        play_windows(
            engine.graph, engine.cluster, engine.theory, engine.state, sums(engine.graph, a), engine.curves, a.seconds,
            a.io, rates, dt, starts, noise, rows, busy, np.empty((len(dt), 3)),
        )  # fmt: skip
        rows[0, 2] += engine.lost
        engine.lost = 0.0
        return rows, busy
    sources = [i for i, name in enumerate(job.order) if not job.topology.upstream(name)]
    for w, (a, b) in enumerate(itertools.pairwise(starts)):
        engine.play(rates[a:b], dt[a:b], noise[w])
        done = engine.window()
        rows[w, :6] = (
            done.arrived[sources].sum(),
            done.ended,
            done.dropped[sources].sum(),
            done.waiting[sources].sum(),
            done.stopped,
            done.cores.sum(),
        )
        rows[w, 6:] = [x.mean if x else 0.0 for x in (done.latency, done.event_latency)]
        busy[w] = done.busy
    return rows, busy


def _row(job: Job, rows: Array, busy: Array, held: Array, seconds: float) -> dict[str, float | str]:
    came, ended, lost, lag, stopped, cores, latency, event = rows.T
    total, use = ended.sum(), busy.sum(axis=0) / held
    busiest = int(use.argmax())
    return {
        "throughput": total / seconds,
        "source_rate": came.sum() / seconds,
        "lost": lost.sum() / seconds,
        "lag": lag[-1],
        "worst_lag": lag.max(),
        "latency_s": float(latency @ ended / total) if total > 0 else np.nan,
        "worst_latency_s": latency.max() if total > 0 else np.nan,
        "event_latency_s": float(event @ ended / total) if total > 0 else np.nan,
        "busiest": job.order[busiest],
        "utilisation": min(1.0, float(use[busiest])),
        "cores": cores.sum() / seconds,
        "downtime_s": stopped.sum(),
        "instances": job.deployment.instances,
        "cost_per_hour": job.plant.cost_per_hour(job.where.values()),
    }
