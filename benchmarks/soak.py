"""Long runs: what stays behind after many jobs, explorers and rescales in one process, and under ten-fold overload.

Descriptors, threads and memory are those of this process and of all below it, temporary files those of a folder of its
own. `DSPKIT_SOAK=0.1 python -m benchmarks soak` does a tenth of each, which takes minutes instead of an hour; in so
short a run the pools of Java, and files of which 100 epochs are kept, still grow to their size.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks import Claim
from benchmarks.spark import Wait

SHARE = float(os.environ.get("DSPKIT_SOAK", "1"))
MB = 1 << 20
FLAT = 5.0  # growth per 100 things that counts as none, in MB or in pieces: a leak of one piece per thing is 100


@dataclass
class Work:
    """Return one of a thousand keys per record, after a number of microseconds."""

    micros: float

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in Wait(self.micros)(batches):
            yield pa.RecordBatch.from_arrays([pa.array(batch.column("id").to_numpy() % 1000)], names=["key"])


def _count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    for batch in batches:
        for key in batch.column("key").to_pylist():
            known[key] = known.get(key, 0) + 1
    yield from ()


def _job(rate: float, micros: float, **more: Any) -> Any:
    from dspkit import Topology, workload
    from dspkit.spark import SparkJob, arrow, keyed

    functions = {"work": arrow(Work(micros), "key int64"), "count": keyed(_count, key="key", state="int64")}
    return SparkJob(Topology.chain("read", "work", "count"), functions, workload.Constant(rate), **more)


def _heap() -> float:
    """Return the live heap of Java, MB."""
    from dspkit.spark.runtime import session

    if (spark := session.running_session()) is None:
        return 0.0
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / MB


def _held(folder: Path) -> dict[str, float]:
    """Return what this process and those below it hold; of Java's memory only the live heap, as it collects rarely."""
    from dspkit.spark.runtime import cluster as processes

    gc.collect()
    own = next(p for p in processes.running() if p.pid == os.getpid())
    all_of_us = [own, *processes.below({own.pid})]
    workers = [p for p in all_of_us if "dspkit.spark.runtime.daemon" in p.command]
    found = dict.fromkeys(("descriptors", "threads"), 0.0)
    for process in all_of_us:
        with contextlib.suppress(OSError):  # it has just ended
            for name, part in (("descriptors", "fd"), ("threads", "task")):
                found[name] += len(os.listdir(f"/proc/{process.pid}/{part}"))
    python = [p for p in all_of_us if "java" not in p.command and p not in workers]
    return found | {
        "processes": len(all_of_us),
        "files": sum(len(files) for _, _, files in os.walk(folder)),
        "MB": sum(p.resident_bytes for p in python) / MB,
        "MB of a worker": sum(p.resident_bytes for p in workers) / max(1, len(workers)) / MB,
        "MB of Java's heap": _heap(),
    }


@dataclass
class _Watch:
    """Readings of what is held, beside the number of things that were done; the first third is for warming up."""

    folder: Path
    count: int
    done: list[int] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)

    def due(self, number: int) -> bool:
        """Return whether there is a reading after the n-th thing: there are thirty or so."""
        return number % max(1, self.count // 30) == 0

    def __iter__(self) -> Iterator[int]:
        for number in range(1, self.count + 1):
            yield number
            if self.due(number):
                self.done.append(number)
                self.rows.append(_held(self.folder))

    def claim(self, flat: float = FLAT, **seen: Any) -> Claim:
        """Return the steepest slope, per 100 things."""
        from scipy.stats import theilslopes

        later = len(self.rows) // 3
        slopes = {
            name: 100 * float(theilslopes([row[name] for row in self.rows[later:]], self.done[later:])[0])
            for name in self.rows[0]
        }
        per_100 = {name: round(slope, 3) for name, slope in slopes.items()}
        seen |= {"first": self.rows[later], "last": self.rows[-1]}
        return Claim(max(slopes.values()), "per 100", flat, "lower", {"done": self.done[-1], **per_100, **seen})


@contextlib.contextmanager
def _watched(count: int) -> Iterator[_Watch]:
    """Watch this process, whose temporary files and those of what it starts are in a folder of their own."""
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield _Watch(Path(folder), max(6, round(count * SHARE)))
        finally:
            tempfile.tempdir = before[0]
            os.environ.pop("TMPDIR") if before[1] is None else os.environ.update(TMPDIR=before[1])


def simulated_jobs() -> Claim:
    """500 simulated jobs, each run for twenty windows and closed."""
    from dspkit import apps, run

    with _watched(500) as watch:
        for _ in watch:
            run("ds2", apps.word_count(), steps=20)
        return watch.claim()


def live_jobs() -> Claim:
    """500 live jobs, each started on one Spark and closed after its first window with records."""
    from dspkit.spark.runtime import session

    with _watched(500) as watch:
        spark = session.start_session("local[8]", "realtime")
        try:
            for _ in watch:
                _first_window(spark=spark)
        finally:
            session.stop(spark)
        return watch.claim()


def sparks() -> Claim:
    """Forty live jobs with a Java of their own each; the logs of ten former ones are kept on purpose."""
    with _watched(40) as watch:
        for _ in watch:
            _first_window(master="local[8]")
        return watch.claim()


def explorers() -> Claim:
    """200 explorers in one kernel: a cell that is run again makes, shows and plays another one."""
    from jupyter_client.manager import start_new_kernel

    code = """
        from dspkit import ui
        from dspkit.ui import controls
        controls.CLOSE_AFTER_S = 0.5  # the patience with slow browsers, of which there is none
        explorer = ui.Explorer("star", windows=20, speed=0)
        explorer.start()
        explorer.wait()
        explorer
    """
    with _watched(200) as watch:
        manager, client = start_new_kernel()
        client.session.digest_history_size = 1000  # or this client, which plays the browser, grows
        try:
            for _ in watch:
                request = {"code": inspect.cleandoc(code), "silent": False, "store_history": True}
                message = client.session.msg("execute_request", request, metadata={"cellId": "as JupyterLab sends it"})
                client.shell_channel.send(message)
                while (reply := client.get_shell_msg(timeout=600))["parent_header"].get("msg_id") != message["msg_id"]:
                    pass
                if reply["content"]["status"] != "ok":
                    raise RuntimeError(f"{reply['content']['ename']}: {reply['content']['evalue']}")
                while client.iopub_channel.msg_ready():
                    client.get_iopub_msg()
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
        return watch.claim()


def rescales() -> Claim:
    """1,000 random rescales of a live job, one per window of a second; two instances of each at a reading."""
    chance = random.Random(3)
    with _watched(1000) as watch, _job(2000.0, 200.0, window_s=1.0) as job:
        for number in watch:
            k = {name: 2 if watch.due(number) else chance.randint(1, 5) for name in job.topology.order}
            job.deploy(job.deployment.scaled(k))
            for _ in range(6 if watch.due(number) else 1):  # Java takes seconds to end the servers of an epoch
                job.observe()
        return watch.claim(restarts=job.restarts)


def overload() -> Claim:
    """600 windows of a second at ten times the capacity of a live job, at most 1 MB/min; infinite if the job died."""
    latencies = []
    # Of 100 epochs files are kept: so many end within the first third, which is left out.
    with _watched(600) as watch, _job(10_000.0, 1000.0, window_s=1.0, epoch_s=1.5) as job:
        for _ in watch:  # one instance of 1 ms processes 1,000 records/s
            snapshot = job.observe()
            latencies += [snapshot.latency.p99] if snapshot.latency else []
        claim = watch.claim(1 / 0.6, restarts=job.restarts, p99_s_worst_window=max(latencies, default=float("inf")))
        return replace(claim, value=float("inf")) if job.restarts else claim


def _first_window(**more: Any) -> None:
    """Start a job, and close it after its first window with records."""
    with _job(500.0, 50.0, window_s=0.2, **more) as job:
        while not job.observe().throughput:
            pass
