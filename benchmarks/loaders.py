"""Memory and time to load an event log of 2 GB, in this process and by Spark."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import Claim
from benchmarks._event_log import CHAIN, events

_GB = 1e9
_SIZE = 2 * _GB
_CHILD = """
import json, resource, sys, time
from dspkit.loaders import SparkEventLog
spark = None
if sys.argv[2] == "spark":
    from dspkit.spark.runtime import session
    spark = session.start_session("local[2]", "microbatch", with_jar=False)
began = time.perf_counter()
history = SparkEventLog(sys.argv[1], names=["read", "work", "count"], spark=spark).history()
seconds = time.perf_counter() - began
print(json.dumps({
    "seconds": seconds,
    "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
    "windows": len(history),
    "rates": {n: [m.processing_rate, m.true_rate] for n, m in history[-1].snapshot.operators.items()},
}))
if spark is not None:
    session.stop(spark)
"""


def memory_of_2_gb_log_mb() -> Claim:
    """Peak memory of a process that loads 2 GB as a stream, and the time per GB."""
    told = _loaded()["stream"]
    return Claim(told["peak MB"], "MB", target=600, better="lower", detail=told)


def memory_of_2_gb_log_by_spark_mb() -> Claim:
    """The same if Spark reads the log, on two cores; the JVM's memory is in the detail."""
    told = _loaded()["spark"]
    return Claim(told["peak MB"], "MB", target=600, better="lower", detail=told)


def seconds_a_gb() -> Claim:
    """Seconds per GB as a stream in one process; those of Spark on two cores are in the detail."""
    told = _loaded()
    each = {reader: one["s a GB"] for reader, one in told.items()}
    return Claim(each["stream"], "s/GB", target=60, better="lower", detail=each)


@cache
def _loaded() -> dict[str, dict[str, Any]]:
    """Run both readers on one log, each in a process of its own with its own peak memory."""
    with tempfile.TemporaryDirectory(prefix="dspkit-bench-") as folder:
        path = Path(folder) / "log"
        size, batches = _write(path)
        found = {}
        for reader in ("stream", "spark"):
            command = [sys.executable, "-c", _CHILD, str(path), reader]
            ran = subprocess.run(command, check=False, capture_output=True, text=True)
            if ran.returncode:
                raise RuntimeError(ran.stderr[-2000:])
            told = json.loads(ran.stdout.splitlines()[-1])
            if told["windows"] != batches or not _as_expected(told["rates"]):
                raise RuntimeError(f"got {told}; expected {batches} windows with {_expected()}")
            found[reader] = told | {"GB": size / _GB, "s a GB": told["seconds"] / (size / _GB)}
            print(f"  {reader}: peak {told['peak MB']:.0f} MB, {found[reader]['s a GB']:.1f} s a GB", flush=True)
        return found


def _write(path: Path) -> tuple[int, int]:
    """Write a log of 2 GB; return the number of its batches."""
    of_ten = sum(len(line) + 1 for line in events(10))
    batches = int(_SIZE / of_ten * 10) + 1
    with path.open("w", encoding="ascii", buffering=1 << 20) as file:
        file.writelines(line + "\n" for line in events(batches))
    return path.stat().st_size, batches


def _expected() -> dict[str, list[float]]:
    """Return the rate and true rate of each stage in windows of 2 s."""
    found = {}
    for name, stage in zip(("read", "work", "count"), CHAIN, strict=True):
        found[name] = [stage.received * stage.tasks / 2.0, stage.received / ((stage.run_ms - stage.wait_ms) / 1e3)]
    return found


def _as_expected(rates: dict[str, list[float]]) -> bool:
    pairs = [pair for name, two in _expected().items() for pair in zip(two, rates[name], strict=True)]
    return all(math.isclose(a, b, rel_tol=1e-9) for a, b in pairs)
