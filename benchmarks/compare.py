"""A comparison of 12 policies on 8 loads with 20 seeds, an hour each: its time, its scaling, a lost worker.

A part of it is measured and extrapolated; `python -m benchmarks.compare` executes all 1920 runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import lru_cache
from typing import Any

from benchmarks import Claim

POLICIES = (
    "static, right", "ds2", "drs", "autrascale, transfer", "stela", "fission", "elysium", "elysium, proactive", "joint",
    "elastic_storm", "dhalion", "hpa",
)  # fmt: skip
SEEDS, LOADS, CORES = 20, 8, 2


def sweep_minutes() -> Claim:
    """Minutes of 12 x 8 x 20 runs of an hour in two processes, oracles included; measured on two of the 20 seeds."""
    before = _cpu_s()
    seconds, made = _part(range(2), CORES)
    work = _cpu_s() - before
    minutes, quiet = ((made + (x - made) * SEEDS / 2) / 60 for x in (seconds, work / CORES))
    detail = {"two seeds, s": seconds, "if it had both cores to itself, min": quiet, **_by_policy()}
    return Claim(minutes, "min", target=10, better="lower", detail=detail)


def seconds_by_runs() -> Claim:
    """Seconds per run of 96 runs over those of 24 runs, both in two processes: 1 is linear."""
    few = _few(24, CORES)
    many = _few(96, CORES)
    detail = {"24 runs, s": few, "48 runs, s": _few(48, CORES), "96 runs, s": many}
    return Claim((many / 96) / (few / 24), "x", target=1.25, better="lower", detail=detail)


def two_cores_over_one() -> Claim:
    """The speed-up of 96 runs by a second process, measured in turns, the best of two."""
    seconds = {1: float("inf"), 2: float("inf")}
    for _ in range(2):
        for processes in seconds:
            seconds[processes] = min(seconds[processes], _few(96, processes))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return Claim(
        seconds[1] / seconds[2],
        "x",
        target=1.6,
        detail={**{f"{n} processes, s": x for n, x in seconds.items()}, "load of the machine": load},
    )


def resumed_share() -> Claim:
    """Time of a repeated comparison, whose rows are cached, over that of the first one."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        first, again = _few(48, CORES, folder=folder), _few(48, CORES, folder=folder)
    return Claim(again / first, "share", target=0.1, better="lower", detail={"first, s": first, "again, s": again})


def rows_that_differ_after_a_worker_died() -> Claim:
    """Missing or different rows of 96 runs on a Spark cluster of two workers, one of which is killed half-way."""
    from dspkit.comparison import executors as engines
    from dspkit.spark import SparkCluster

    ask = _question(seeds=range(6), minutes=20, loads=("sine", "poisson"), policies=POLICIES[:8])
    alone = _compare(ask, processes=CORES)
    played = engines.over_spark
    with SparkCluster.local(2, 1) as cluster:
        spark, done = cluster.start("batch"), 0

        def counted(runs: Any, session: Any) -> Any:
            nonlocal done
            for pair in played(runs, session):
                done += 1
                if done == len(runs) // 2:
                    os.kill(cluster._workers[cluster.workers[0]].process.pid, signal.SIGKILL)
                yield pair

        engines.over_spark = counted  # type: ignore[assignment]
        try:
            started = time.perf_counter()
            table = _compare(ask, spark=spark)
            seconds = time.perf_counter() - started
        finally:
            engines.over_spark = played
    wrong = int((table.ne(alone) & ~(table.isna() & alone.isna())).any(axis=1).sum()) + len(alone) - len(table)
    return Claim(wrong, "rows", target=0, better="lower", detail={"runs": len(alone), "Spark, s": seconds})


def oracle_ms() -> Claim:
    """Milliseconds of the oracle of an hour of a job of four operators with up to 64 instances, loads' mean."""
    from dspkit import apps
    from dspkit.comparison import oracle, standard_loads

    app, times = apps.linear(), {}
    for _ in range(2):  # the first compiles
        for name, shape in standard_loads().items():
            started = time.perf_counter()
            oracle(app.topology, app.plant, shape(app, 0), target_latency_s=app.target_latency_s)
            times[name] = 1000 * (time.perf_counter() - started)
    return Claim(sum(times.values()) / len(times), "ms", target=1000, better="lower", detail=times)


def _question(
    seeds: Any = (0,), minutes: float = 60, loads: Any = None, policies: Any = POLICIES
) -> tuple[Any, Any, Any, Any, float]:
    from dspkit import apps
    from dspkit.comparison import standard_loads, standard_policies
    from dspkit.comparison.standard_loads import SHAPES

    shapes = standard_loads(60.0 * minutes, only=loads or SHAPES)
    return standard_policies(policies), shapes, apps.rolling_top_words(), seeds, 60.0 * minutes


def _compare(ask: tuple[Any, Any, Any, Any, float], **how: Any) -> Any:
    from dspkit import compare

    policies, loads, app, seeds, seconds = ask
    return compare(policies, loads, app, seeds=seeds, duration_s=seconds, **how)


def _part(seeds: Any, processes: int) -> tuple[float, float]:
    """Return the seconds of the comparison with these seeds, and of the training that happens once."""
    from dspkit.comparison import Rules
    from dspkit.comparison.cases import runs_of
    from dspkit.comparison.executors import _warm

    _warm()
    ask = _question(seeds)
    started = time.perf_counter()
    runs_of(*ask[:3], None, [10_000], Rules())
    trained = time.perf_counter() - started
    table = _compare(ask, processes=processes)
    if (table.error != "").any() or len(table) != len(POLICIES) * LOADS * len(seeds):
        raise RuntimeError(f"got errors {table.error.unique()} in {len(table)} rows")
    return time.perf_counter() - started, trained


def _few(count: int, processes: int, folder: str | None = None) -> float:
    """Return the seconds of a number of runs of twenty minutes."""
    chosen = ("ds2", "hpa", "joint", "elastic_storm")
    ask = _question(range(count // 8), 20, ("sine", "square"), chosen)
    started = time.perf_counter()
    _compare(ask, processes=processes, folder=folder)
    return time.perf_counter() - started


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    import resource

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@lru_cache(maxsize=1)
def _by_policy() -> dict[str, float]:
    """Return the runs per second of each policy in one process, an hour each, under a sine."""
    from dspkit.comparison import Rules
    from dspkit.comparison.cases import runs_of

    policies, loads, app, *_ = _question(loads=("sine",))
    rates = {}
    for _ in range(2):
        for run in runs_of(policies, loads, app, None, [1], Rules()):
            started = time.perf_counter()
            run.row()
            rates[f"{run.names[0]}, runs/s"] = 1 / (time.perf_counter() - started)
    return rates


if __name__ == "__main__":
    whole = range(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS)
    print(f"{len(POLICIES)} policies x {LOADS} loads x {len(whole)} seeds: {_part(whole, CORES)[0]:.0f} s")
