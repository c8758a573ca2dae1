"""Live Spark with 1, 2 and 4 instances per operator, side by side: throughput, cores, latency.

One job per rate, in one Spark; rescales bring it from one parallelism to the next, in turns. Ratios and processor time
hold on a busy machine; records/s and latency do so on a quiet one only.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import Claim, _four

INSTANCES = (1, 2, 4)
FLAT_OUT, LIGHT = 2_000_000.0, 10_000.0  # records/s offered
TURNS = {FLAT_OUT: 3, LIGHT: 2}
SECONDS = 5.0  # of a measurement
_SETTLED_S = 20.0  # longest wait until a job keeps up


@cache
def _measured(per_s: float) -> dict[int, dict[str, float]]:
    """Return the medians of all turns by parallelism: records/s, cores, records per CPU second, latencies in ms."""
    found: dict[int, list[dict[str, float]]] = {k: [] for k in INSTANCES}
    with _four.job(per_s, 1, window_s=1.0, epoch_s=60.0) as job:
        job.observe()
        for _ in range(TURNS[per_s]):
            for k in INSTANCES:
                job.deploy(job.deployment.scaled(dict.fromkeys(_four.OPERATORS, k)))
                job.window_s = 1.0
                end = time.monotonic() + _SETTLED_S
                for _ in range(2):  # the window with the rescale in it, and one more
                    job.observe()
                while per_s == LIGHT and job.observe().lag > per_s / 5 and time.monotonic() < end:
                    pass
                job.window_s = SECONDS
                found[k].append(_window(job))
    return {k: {name: statistics.median(e[name] for e in each) for name in each[0]} for k, each in found.items()}


def _window(job: Any) -> dict[str, float]:
    before, began = _four.cpu_by_process(), time.monotonic()
    s = job.observe()
    cpu_s, seconds = _four.spent(before, _four.cpu_by_process()), time.monotonic() - began
    ages = s.event_latency
    return {
        "per_s": s.throughput,
        "cores": cpu_s / seconds,
        "per_cpu_s": s.throughput * seconds / cpu_s,
        "p50": float("inf") if ages is None else 1000 * ages.p50,
        "p99": float("inf") if ages is None else 1000 * ages.p99,
    }


def _detail(per_s: float, *names: str) -> dict[str, float]:
    found = _measured(per_s)
    return {"load": _four.load()} | {f"{name} k={k}": found[k][name] for name in names for k in INSTANCES}


def _over_one(k: int) -> Claim:
    found = _measured(FLAT_OUT)
    target = {2: 0.9, 4: 0.75}[k]
    return Claim(found[k]["per_s"] / found[1]["per_s"], "x", target, detail=_detail(FLAT_OUT, "per_s", "per_cpu_s"))


def throughput_at_2_over_1() -> Claim:
    """Records/s of four light operators with two instances each over those with one."""
    return _over_one(2)


def throughput_at_4_over_1() -> Claim:
    """The same with four instances each."""
    return _over_one(4)


def throughput_per_cpu_s() -> Claim:
    """Records per CPU second flat out, one instance each; bytewax without recovery does some 525,000."""
    return Claim(_measured(FLAT_OUT)[1]["per_cpu_s"], "1/s", 300_000, detail=_detail(FLAT_OUT, "per_cpu_s"))


def _cores(k: int, target: float) -> Claim:
    return Claim(_measured(LIGHT)[k]["cores"], "cores", target, "lower", _detail(LIGHT, "cores", "per_s"))


def cores_at_10k_with_1() -> Claim:
    """Cores that the whole job uses at 10,000 records/s, with one instance per operator: Java, Python, driver."""
    return _cores(1, 0.2)


def cores_at_10k_with_2() -> Claim:
    """The same with two instances per operator."""
    return _cores(2, 0.3)


def cores_at_10k_with_4() -> Claim:
    """The same with four instances per operator."""
    return _cores(4, 0.4)


def latency_p50_at_10k_ms() -> Claim:
    """Median age at the sink at 10,000 records/s, one instance per operator."""
    return Claim(_measured(LIGHT)[1]["p50"], "ms", 20.0, "lower", _detail(LIGHT, "p50", "p99"))


def frame_after_four_hops() -> Claim:
    """Mean records that the last operator gets at once, ten instances each and 200,000 records/s, when it keeps up."""
    per_s = 200_000.0
    with tempfile.TemporaryDirectory() as folder:
        with _four.job(per_s, 10, Path(folder), window_s=2.0, epoch_s=5.0) as job:
            end = time.monotonic() + 3 * _SETTLED_S
            while job.observe().lag > per_s / 2 and time.monotonic() < end:
                pass
            begun = {file: len(file.read_text().splitlines()) for file in Path(folder).iterdir()}
            job.window_s = 20.0
            last = job.observe()
        # Of each process, the epochs after the one that was running then.
        lines = [e.split() for file, n in begun.items() for e in file.read_text().splitlines()[n + 1 :]]
    frames, records = (sum(int(line[i]) for line in lines) for i in (0, 1))
    detail = {"load": _four.load(), "per_s": last.throughput or 0.0, "lag": last.lag or 0.0}
    return Claim(records / max(1, frames), "records", 500, detail=detail)
