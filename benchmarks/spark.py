"""Live Spark: interruptions by a rescale, latency of records, cost of metering, size of frames."""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import Claim, side_by_side

RECORD = "id int64, event_s float64"


@dataclass
class Beat:
    """A sink that reports to the benchmark when each batch reached it."""

    address: tuple[str, int]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        tell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for batch in batches:
            if batch.num_rows:
                tell.sendto(b"%d" % round(time.time() * 1e6), self.address)
        yield from ()


@dataclass
class Wait:
    """An operator that forwards records, each after a number of microseconds."""

    micros: float

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from dspkit.apps.live import Service

        service = Service(self.micros)
        for batch in batches:
            service.pay(batch.num_rows)
            yield batch


class Ear:
    """The receiver of the sink's reports."""

    def __init__(self) -> None:
        self.at: list[float] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = self._socket.getsockname()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        while True:
            self.at.append(int(self._socket.recv(64)) * 1e-6)

    def longest_gap(self, since: float, until: float) -> float:
        times = sorted(t for t in list(self.at) if since <= t <= until)
        times = [since, *times, until]
        return max(b - a for a, b in zip(times, times[1:], strict=False))


def _gaps(rate: float, turns: int) -> dict[str, list[float]]:
    """The longest silence at the sink while `work` changes between 2 and 3 instances, both ways, in turn.

    A query's first change of epochs takes longer than all later ones (0.4 s instead of 0.2 s), and in one that has run
    for some epochs it has been. So one live rescale after each restart is not counted, nor is the first turn.
    """
    from dspkit import Deployment, Topology, workload
    from dspkit.spark import SparkJob, arrow

    ear, gaps = Ear(), {"live": [], "restart": [], "delay": []}  # type: ignore[var-annotated]
    functions = {"work": arrow(Wait(1000), RECORD), "sink": arrow(Beat(ear.address))}
    start = Deployment({"read": 1, "work": 2, "sink": 1})
    with (
        tempfile.TemporaryDirectory() as folder,
        SparkJob(
            Topology.chain("read", "work", "sink"), functions, workload.Constant(rate), deployment=start,
            checkpoint=Path(folder), epoch_s=60.0, window_s=2.0,
        ) as job,
    ):  # fmt: skip
        job.observe()
        for turn in range(turns + 1):
            for way in ("first", "live", "restart"):
                time.sleep(1.5)
                k = 3 if job.deployment.parallelism["work"] == 2 else 2
                began = time.time()
                if way != "restart":
                    job.deploy(job.deployment.scaled({"work": k}))
                    delay = time.time() - began
                else:
                    _restart(job, k)
                time.sleep(2.0)
                if turn and way != "first":
                    gaps[way].append(ear.longest_gap(began, time.time()))
                    if way == "live":
                        gaps["delay"].append(delay)
    return gaps


def _restart(job: Any, k: int) -> None:
    """Perform the shortest possible restart: end the epoch, stop the query, start the next one at once."""
    keeper = job._supervisor
    with keeper._lock:
        job._deployment = job._wanted = job._present = job.deployment.scaled({"work": k})
        keeper._k = job._k()
        keeper._engine.finish(keeper._k, 60.0)
        keeper._engine = keeper._make()
        keeper._engine.start(keeper._k, keeper._zero_micros)
    keeper._engine.ready(30.0)


def _interruption(rate: float) -> Claim:
    gaps = _gaps(rate, turns=5)
    middle = {way: statistics.median(each) for way, each in gaps.items()}
    return Claim(middle["restart"] / middle["live"], "x", target=5.0, detail=middle | {"all": gaps})


def rescale_over_restart_idle() -> Claim:
    """A restart's longest gap at the sink over a live rescale's; the bottleneck is half busy."""
    return _interruption(1000.0)


def rescale_over_restart_saturated() -> Claim:
    """The same with an overloaded bottleneck."""
    return _interruption(4000.0)


CHAIN = 20


def chain_of_20_rescale_s() -> Claim:
    """Longest silence at the end of a chain of 20 operators around a rescale; `deploy` beside it."""
    from dspkit import Topology, workload
    from dspkit.spark import SparkJob, arrow

    ear, gaps, delays = Ear(), list[float](), list[float]()
    names = [f"o{i}" for i in range(1, CHAIN)]
    functions: dict[str, Any] = {name: arrow(Wait(0), RECORD) for name in names}
    functions[names[-1]] = arrow(Beat(ear.address))
    with SparkJob(
        Topology.chain("read", *names), functions, workload.Constant(2000.0), epoch_s=60.0, window_s=2.0
    ) as job:
        while job.observe().throughput < 1000:
            pass
        for turn in range(6):
            began = time.time()
            job.deploy(job.deployment.scaled({"o9": 2 - turn % 2}))
            delays.append(time.time() - began)
            time.sleep(5.0)
            gaps.append(ear.longest_gap(began, time.time()))
    detail = {"all": gaps, "deploy": statistics.median(delays[1:]), "load": os.getloadavg()[0]}
    return Claim(statistics.median(gaps[1:]), "s", 3.0, "lower", detail)  # a query's first one takes longer


@dataclass
class Sizes:
    """A sink that reports how many records each batch has."""

    address: tuple[str, int]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        tell = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for batch in batches:
            tell.sendto(b"%d" % (batch.num_rows * 1_000_000), self.address)  # `Ear` hears microseconds
        yield from ()


def frame_after_four_hops_records() -> Claim:
    """Mean batch of the fourth of four operators with ten instances each, at 200,000 records/s."""
    from dspkit import Deployment, Topology, workload
    from dspkit.spark import SparkJob, arrow

    ear = Ear()
    functions = {name: arrow(Wait(0), RECORD) for name in "abc"} | {"d": arrow(Sizes(ear.address))}
    topology = Topology.chain("read", *"abcd")
    start = Deployment(dict.fromkeys(topology.order, 10))
    with SparkJob(topology, functions, workload.Constant(200_000.0), deployment=start, window_s=5.0) as job:
        end = time.monotonic() + 90
        while job.observe().throughput < 150_000 and time.monotonic() < end:
            pass
        ear.at.clear()
        per_s = job.observe().throughput
    detail = {"per_s": per_s, "batches": len(ear.at), "load": os.getloadavg()[0]}
    return Claim(statistics.fmean(ear.at), "records", 500.0, detail=detail)


def _four(rate: float) -> Any:
    """Return the latency of a source and four Python operators that forward records, after a warm-up."""
    from dspkit import Topology, workload
    from dspkit.spark import SparkJob, arrow

    functions = {name: arrow(Wait(0), RECORD) for name in "abc"} | {"d": arrow(_end)}
    with SparkJob(
        Topology.chain("read", *"abcd"), functions, workload.Constant(rate), window_s=10.0, epoch_s=30.0
    ) as job:
        job.observe()
        return job.observe()


def _end(batches: Iterator[Any]) -> Iterator[Any]:
    for _ in batches:
        pass
    yield from ()


def latency_p50_at_10k_ms() -> Claim:
    """Median age at the end of four Python operators at 10,000 records/s."""
    s = _four(10_000.0)
    return Claim(
        1000 * s.event_latency.p50, "ms", 80.0, "lower", {"p99 ms": 1000 * s.event_latency.p99, "cpu": dict(s.nodes)}
    )


def latency_p99_at_10k_ms() -> Claim:
    """The 99th percentile of the same."""
    s = _four(10_000.0)
    return Claim(
        1000 * s.event_latency.p99, "ms", 150.0, "lower", {"p50 ms": 1000 * s.event_latency.p50, "cpu": dict(s.nodes)}
    )


def latency_p50_at_100k_ms() -> Claim:
    """Median age at 100,000 records/s; infinite if they are not sustained."""
    s = _four(100_000.0)
    held = s.throughput >= 0.95 * s.source_rate
    detail = {"throughput": s.throughput, "p99 ms": 1000 * s.event_latency.p99, "cpu": dict(s.nodes)}
    return Claim(1000 * s.event_latency.p50 if held else float("inf"), "ms", 60.0, "lower", detail)


def meter_overhead_percent() -> Claim:
    """Time of a task with its meter over one without: 2,000 frames of 50 records, forwarded."""
    import numpy as np

    from dspkit.core import Topology
    from dspkit.spark import TraceSource, arrow
    from dspkit.spark.dataflow import plan as line
    from dspkit.spark.dataflow import task
    from dspkit.spark.dataflow.exchange import wire
    from dspkit.spark.dataflow.state import Plan
    from dspkit.spark.functions import same
    from dspkit.spark.metering import Meter, MeterAddress
    from dspkit.workload import Constant

    topology, source = Topology.chain("read", "next"), {"read": TraceSource(Constant(1))}
    code = line.functions(topology, {"next": arrow(same)}, source)
    stage = line.stages(topology, code, source, Path(os.devnull), MeterAddress("127.0.0.1", 9, b""))[0]
    frame = np.array([0, 0, 0, 0, 50], "<i8").tobytes()
    rows = [wire([(0, -1, 0, frame, 2048)]) for _ in range(2000)]

    def run(meter: Any) -> None:
        task.Meter = meter  # type: ignore[attr-defined]
        try:
            for _ in task.Task(stage, Plan(0, "0-x", (1, 1)), 0, 0).run(iter(rows)):
                pass
        finally:
            task.Meter = Meter  # type: ignore[attr-defined]

    seconds = side_by_side({"with": lambda: run(Meter), "without": lambda: run(_Nothing)}, repeats=15)
    return Claim(100 * (seconds["with"] / seconds["without"] - 1), "%", target=3.0, better="lower", detail=seconds)


class _Nothing:
    """A meter without measurements."""

    def __init__(self, *_: Any) -> None:
        self.arrived = self.done = self.results = 0
        self.read_to: dict[int, int] = {}
        self.edges: dict[int, Any] = {}

    def turn(self, doing: int) -> None:
        pass

    def close(self) -> None:
        pass

    def finish(self, read: Any, event: Any) -> None:
        pass
