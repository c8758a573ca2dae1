"""Event time in live jobs: results are those of plain Python through rescales and a killed worker."""

from __future__ import annotations

import contextlib
import operator
import os
import random
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import live
from dspkit import Operator, Topology
from dspkit.spark import EventTime, SparkJob, TraceSource, arrow, keyed, windowed
from dspkit.spark.dataflow.checkpoint import Checkpoint
from dspkit.spark.functions import same
from dspkit.workload import Constant

pytestmark = pytest.mark.spark
PARTITIONS, DELAY_S, SIZE_S, SLIDE_S = 6, 1.0, 8, 4
CHAIN = Topology.chain("read", "pass", "window", "results")


def _job(checkpoint: Path, *added: str, **start: Any) -> SparkJob:
    source = TraceSource(Constant(300), make=live.out_of_order, schema=live.EVENT, partitions=PARTITIONS)
    window = windowed(
        "key int64, end float64, value int64",
        key="key",
        time="at",
        size_s=SIZE_S,
        slide_s=SLIDE_S,
        of=live.n_of,
        merge=operator.add,
    )
    functions = {
        "read": EventTime("at", delay_s=DELAY_S),
        "pass": arrow(same, live.EVENT),
        "window": window,
        "results": keyed(live.received, key=("key", "end"), state=pa.list_(pa.int64())),
    } | dict.fromkeys(added, arrow(same, live.EVENT))
    chain = Topology.chain("read", *added, *CHAIN.order[1:])
    topology = Topology(tuple(replace(o, max_parallelism=4) for o in chain.operators), chain.edges)
    if added:  # and another window, whose results are not looked at
        functions |= {"other": window, "end": arrow(live.swallow)}
        more = tuple(Operator(name, max_parallelism=4) for name in ("other", "end"))
        topology = Topology((*topology.operators, *more), (*topology.edges, ("pass", "other"), ("other", "end")))
    settings = {"spark": live.spark("realtime"), "window_s": 0.5, "epoch_s": 2.0, "checkpoint": checkpoint}
    return SparkJob(topology, functions, source, **settings | start)


def _wanted(checkpoint: Path) -> tuple[dict[tuple[int, float], int], int]:
    """The sums of all windows that are over, and how many records came too late."""
    source = TraceSource(Constant(300), make=live.out_of_order, schema=live.EVENT, partitions=PARTITIONS)
    sums: Counter[tuple[int, float]] = Counter()
    newest, late = [], 0
    for p, read in enumerate(Checkpoint(checkpoint).offsets()[0]):
        most = -(10**18)
        ids = np.arange(read) * PARTITIONS + p
        for row in live.out_of_order(ids, source.event_s(ids)).to_pylist():
            at = round(row["at"] * 1e6)
            if at < most - DELAY_S * 1e6:
                late += 1
            else:
                start = at // (SLIDE_S * 10**6) * SLIDE_S
                for each in range(start, start - SIZE_S, -SLIDE_S):
                    sums[row["key"], float(each + SIZE_S)] += row["n"]
            most = max(most, at)
        newest.append(most)
    over = min(newest) / 1e6 - DELAY_S
    return {window: total for window, total in sums.items() if window[1] <= over}, late


def test_results_through_rescales_are_those_of_plain_python(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    with _job(tmp_path) as job:
        live.works(job)
        for _ in range(4):
            job.deploy(job.deployment.scaled({name: int(random.integers(1, 4)) for name in CHAIN.order}))
            assert job.observe().operators["results"].late_rate == 0.0
        live.until(lambda: job.observe().operators["read"].late_rate)
        assert job.restarts == 0
    _exact(tmp_path)


def _exact(checkpoint: Path) -> None:
    wanted, late = _wanted(checkpoint)
    assert len(wanted) > 10
    assert late > 0
    table = Checkpoint(checkpoint).state("results")
    keys = zip(table.column("key").to_pylist(), table.column("end").to_pylist(), strict=True)
    assert dict(zip(keys, table.column("value").to_pylist(), strict=True)) == {w: [n] for w, n in wanted.items()}


def _killed_at_work(job: SparkJob) -> bool:
    """Kill the processes of the running epoch; return whether the query has died of it."""
    readings = [r for (token, *_), r in list(job._collector._last.items()) if token == job._collector.totals().token]
    for pid in {reading["pid"] for reading in readings if not reading["final"]}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return job.restarts > 0


@pytest.mark.slow
def test_a_job_with_another_operator_continues_the_windows_of_a_savepoint(tmp_path: Path) -> None:
    with _job(tmp_path / "old") as job:
        live.works(job)
        job.deploy(job.deployment.scaled({"window": 3, "pass": 2}))
        live.works(job)
        job.save(tmp_path / "saved")
    with _job(tmp_path / "new", "first", "second", start_from=tmp_path / "saved") as job:
        job.deploy(job.deployment.scaled({"window": 2, "first": 3}))
        for _ in range(8):
            job.observe()
    _exact(tmp_path / "new")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["realtime", "microbatch", "plain"])
def test_two_sources_and_a_killed_worker(mode: str, tmp_path: Path) -> None:
    """A source's instance knows its partitions beside another source; nothing is late or early after a failure."""
    topology = Topology(
        Topology.chain("left", "right", "window", "results").operators,
        (("left", "window"), ("right", "window"), ("window", "results")),
    )
    topology = Topology(tuple(replace(o, max_parallelism=4) for o in topology.operators), topology.edges)
    time = EventTime("at", delay_s=3.1)  # no record is late
    functions = {"left": time, "right": time} | {
        "window": windowed("key int64, end float64, value int64", key="key", time="at", gap_s=0.5),
        "results": keyed(live.received, key=("key", "end"), state=pa.list_(pa.int64())),
    }
    sources = {
        name: TraceSource(Constant(200), make=live.out_of_order, schema=live.EVENT, partitions=n)
        for name, n in (("left", 5), ("right", 3))
    }
    settings = {"engine": "plain", "mode": "microbatch"} if mode == "plain" else {"mode": mode}
    settings |= {"spark": live.spark(mode), "window_s": 0.5, "epoch_s": 2.0, "checkpoint": tmp_path}
    with SparkJob(topology, functions, sources, **settings) as job:
        live.works(job)
        for k in (3, 1, 2):
            job.deploy(job.deployment.scaled({"left": k, "right": 4 - k, "window": k, "results": 3}))
            job.observe()
            if mode == "realtime" and k == 1:
                live.until(lambda: _killed_at_work(job))
                live.works(job)
    newest, times = [], Counter[tuple[int, int]]()
    for name, read in zip(("left", "right"), Checkpoint(tmp_path).offsets(), strict=True):
        for p, upto in enumerate(read):
            ids = np.arange(upto) * len(read) + p
            rows = live.out_of_order(ids, sources[name].event_s(ids)).to_pylist()
            times.update((row["key"], round(row["at"] * 1e6)) for row in rows)
            newest.append(max(row["at"] for row in rows))
    wanted: dict[tuple[int, float], int] = {}
    for key in {key for key, _ in times}:
        mine = sorted(at for each, at in times if each == key)
        n = 0
        for at, following in zip(mine, [*mine[1:], 10**18], strict=True):
            n += times[key, at]
            if following - at >= 500_000:
                wanted[key, (at + 500_000) / 1e6] = n
                n = 0
    over = {window: n for window, n in wanted.items() if window[1] <= round(min(newest) - 3.1, 6)}
    table = Checkpoint(tmp_path).state("results")
    keys = zip(table.column("key").to_pylist(), table.column("end").to_pylist(), strict=True)
    assert len(over) > 10
    assert dict(zip(keys, table.column("value").to_pylist(), strict=True)) == {w: [n] for w, n in over.items()}


BEHIND_S, LATENESS_S, GAP_S = 0.4, 0.6, 0.35


@pytest.mark.slow
def test_sessions_are_exact_while_two_threads_rescale_and_a_process_is_killed(tmp_path: Path) -> None:
    source = TraceSource(Constant(300), make=live.jittered, schema=live.EVENT, partitions=5)
    functions = {
        "read": EventTime("at", delay_s=BEHIND_S, lateness_s=LATENESS_S),
        "window": windowed(
            "key int64, start float64, end float64, value int64",
            key="key",
            time="at",
            gap_s=GAP_S,
            of=live.n_of,
            merge=operator.add,
        ),
        "results": keyed(
            live.newest_result, key=("key", "start"), state=pa.struct({"end": pa.float64(), "value": pa.int64()})
        ),
    }
    topology = Topology(
        tuple(Operator(name, max_parallelism=5) for name in functions), Topology.chain(*functions).edges
    )
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "window_s": 0.5, "epoch_s": 2.0}
    ended = threading.Event()
    with SparkJob(topology, functions, source, checkpoint=tmp_path / "job", **settings) as job:
        live.works(job)

        def rescale(seed: int) -> None:
            chance = random.Random(seed)
            while not ended.wait(2 * chance.random()):
                job.deploy(job.deployment.scaled({name: chance.randint(1, 4) for name in functions}))

        threads = [threading.Thread(target=rescale, args=(seed,)) for seed in range(2)]
        for thread in threads:
            thread.start()
        try:
            live.until(lambda: job.observe() and len(Checkpoint(tmp_path / "job").state("results")) > 100)
            job.save(tmp_path / "savepoint")
            live.until(lambda: _killed_at_work(job) or not job.observe())
            live.until(lambda: job.observe() and len(Checkpoint(tmp_path / "job").state("results")) > 300)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    wanted, sessions = _sessions(tmp_path / "job", source)
    table = Checkpoint(tmp_path / "job").state("results")
    found = {
        (key, round(start * 1e6)): (round(each["end"] * 1e6), each["value"])
        for key, start, each in zip(
            *(table.column(name).to_pylist() for name in ("key", "start", "value")), strict=True
        )
    }
    assert len(wanted) > 100
    assert {at: found.get(at) for at in wanted} == wanted
    for (key, start), (end, _) in found.items():  # others are parts of a session, before late records merged them
        assert any(k == key and low <= start and end <= high for (k, low), (high, _) in sessions.items())


def _sessions(checkpoint: Path, source: TraceSource) -> tuple[Any, Any]:
    """The sessions that are over, and all sessions, by key and start in microseconds: their end and sum."""
    kept: dict[int, list[tuple[int, int]]] = {}
    newest = []
    for p, read in enumerate(Checkpoint(checkpoint).offsets()[0]):
        ids, most = np.arange(read) * source.partitions + p, -(10**18)
        for row in live.jittered(ids, source.event_s(ids)).to_pylist():
            at = round(row["at"] * 1e6)
            if at >= most - (BEHIND_S + LATENESS_S) * 1e6:
                kept.setdefault(row["key"], []).append((at, row["n"]))
            most = max(most, at)
        newest.append(most)
    sessions: dict[tuple[int, int], tuple[int, int]] = {}
    for key, rows in kept.items():
        start, end, total = 0, -(10**18), 0
        for at, n in sorted(rows):
            start, total = (at, n) if at >= end else (start, total + n)
            end = at + round(GAP_S * 1e6)
            sessions[key, start] = end, total
    over = min(newest) - (BEHIND_S + LATENESS_S) * 1e6
    return {at: each for at, each in sessions.items() if each[0] < over}, sessions
