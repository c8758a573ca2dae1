"""Many simulations at once, one row each: what a heat map of two sliders is drawn from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..core import Deployment, Topology
from ..errors import DeploymentError, KnobError
from ..plant import Plant, Scheduler, round_robin
from ..workload import Workload
from .fluid import Fluid, sums
from .fluid_curves import extended
from .fluid_many import COLUMNS, play_windows
from .job import Job
from .layout import Array
from .simulator import all_numbers, by_source, make_engine, noises, offered, random_streams

if TYPE_CHECKING:
    import pandas as pd

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
    """Play the fluid of every case, without a policy; one row each.

    Plant, workload and deployment are one for all cases, or a sequence with one for each. Rates are means over the
    run, `latency_s` is that of a record, `worst_latency_s` of the worst window; `lag` is that of the end.

    >>> from dspkit import topologies
    >>> app = topologies.word_count()
    >>> three = [Deployment(app.topology.uniform(k)) for k in (1, 4, 12)]
    >>> simulate_many(app.topology, app.plant, app.workload, three).throughput.round(-3).tolist()
    [30000.0, 99000.0, 165000.0]
    """
    import pandas as pd

    cases = _cases(plant, workload, deployment)
    if not all_numbers(tick_s, window_s, duration_s) or not (0 < tick_s <= window_s <= duration_s < np.inf):
        raise KnobError(
            f"tick_s={tick_s}, window_s={window_s}, duration_s={duration_s}",
            expected="0 < tick_s <= window_s <= duration_s, all finite",
            fix="shorten ticks or windows",
        )
    if abs(duration_s / window_s - round(duration_s / window_s)) > 1e-9:
        raise KnobError(
            f"duration_s={duration_s}", expected=f"whole windows of {window_s:g} s", fix="choose a multiple"
        )
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise KnobError(f"threads={threads!r}", expected="a whole number from 1 up", fix="leave it out for all cores")
    for one in {id(case[0]): case[0] for case in cases}.values():
        one.check(topology)
    for _, _, each in cases:
        if topology.check(each).settings:
            raise DeploymentError(f"settings {dict(each.settings)}", expected="none here", fix="leave them out")
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
        raise KnobError(
            repr(strange[0])[:80], expected="a Plant, a load, a Deployment, or a list of them", fix="pass a list"
        )
    lengths = {len(x) for x in many}
    if len(lengths) > 1 or 0 in lengths:
        raise KnobError(
            f"sequences of {sorted(lengths)} cases",
            expected="the same number of each, at least one",
            fix="pair them up",
        )
    b = lengths.pop() if lengths else 1

    def each(x: Any) -> Iterable[Any]:
        return x if any(x is one for one in many) else itertools.repeat(x, b)

    cases = list(zip(each(plant), each(workload), each(deployment), strict=True))
    for case in cases:
        for thing, kind in zip(case, (Plant, (Workload, Mapping), Deployment), strict=True):
            if not isinstance(thing, kind):  # type: ignore[arg-type]
                raise KnobError(
                    repr(thing)[:80], expected="plants, loads, deployments, in this order", fix="check the case"
                )
    return cases


def _play(
    topology: Topology, plant: Plant, load: Loads, deployment: Deployment, rates: Array, edges: Array, ends: Array,
    seed: int, scheduler: Scheduler,
) -> dict[str, float | str]:  # fmt: skip
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
        rows[part, 3] = more[:, 3]  # the lag is that of the end
        with np.errstate(invalid="ignore"):
            means = (before[:, 6:] * before[:, 1:2] + more[:, 6:] * more[:, 1:2]) / rows[part, 1:2]
        rows[part, 6:] = np.nan_to_num(means)
        busy[part] += worked
        held += job.layout.instances * (b - a)
    return _row(job, rows, busy, held, float(ends[-1]))


def _stretch(job: Job, rates: Array, dt: Array, starts: Array, noise: Array) -> tuple[Array, Array]:
    """Windows in which nothing but the load changes: rows and busy instance-seconds."""
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
            done.arrived[sources].sum(), done.ended, done.dropped[sources].sum(), done.queue[sources].sum(),
            done.stopped, done.cores.sum(),
        )  # fmt: skip
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
