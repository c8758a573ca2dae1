"""Live jobs on logs outside of Spark: each record once through rescales and a restart, lag as it is, in every mode."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import live
from dspkit import Topology
from dspkit.spark import CheckpointError, FileSource, KafkaSource, RedisSource, SourceError, SparkJob, arrow, keyed
from dspkit.spark.dataflow.checkpoint import Checkpoint

pytestmark = pytest.mark.spark
Write = Callable[[int], None]


class Log:
    """A log of its own, and how to write a number to it."""

    def __init__(self, kind: str, request: pytest.FixtureRequest, folder: Path):
        self.flush: Callable[[], Any] = lambda: None
        if kind == "files":
            folder.mkdir()
            files = [(folder / f"{i}.log").open("a", buffering=1) for i in range(4)]
            request.addfinalizer(lambda: [file.close() for file in files])
            self.source: Any = FileSource(folder, partitions=4)
            self.write: Write = lambda n: print(f"record {n}", file=files[n % 4])
        elif kind == "redis":
            client = request.getfixturevalue("stream")
            self.source = RedisSource(list("abcd"), fields="id int64", url=request.getfixturevalue("redis_url"))
            self.write = lambda n: client.xadd("abcd"[n % 4], {"id": n})
        else:
            servers, producer = request.getfixturevalue("broker")
            topic = f"{request.node.name.replace('[', '-').rstrip(']')}"
            self.write = lambda n: producer.produce(topic, str(n), str(n))
            self.flush = lambda: producer.flush(10)
            self.write(0)
            self.flush()
            self.source = KafkaSource(topic, servers)

    @contextmanager
    def filling(self, first: int, count: int, rate: float) -> Iterator[None]:
        """Numbers from `first` on come at that rate, all of them by the end."""

        def fill() -> None:
            began = time.monotonic()
            for n in range(first, first + count):
                self.write(n)
                if n % 20 == 0:
                    time.sleep(max(0.0, (n - first) / rate - (time.monotonic() - began)))
            self.flush()

        thread = threading.Thread(target=fill)
        thread.start()
        yield
        thread.join()


def _job(log: Log, checkpoint: Path, mode: str, micros: float = 50) -> SparkJob:
    functions = {
        "work": arrow(live.numbered, "id int64"),
        "slow": arrow(live.Work(micros), "id int64"),
        "count": keyed(live.count, key="id", state="int64"),
    }
    topology = Topology.chain("read", "work", "slow", "count")
    settings: Any = {"window_s": 1.0, "epoch_s": 3.0, "checkpoint": checkpoint, "spark": live.spark(mode)}
    if mode == "plain":
        mode, settings = "microbatch", settings | {"engine": "plain"}
    return SparkJob(topology, functions, log.source, mode=mode, **settings)


def _counted(checkpoint: Path) -> dict[int, int]:
    table = Checkpoint(checkpoint).state("count")
    assert table.num_rows == len(set(table.column("key").to_pylist()))
    return dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))


SLOW = [pytest.param(kind, mode, marks=pytest.mark.slow) for kind in ("files", "kafka") for mode in ("realtime",)]
SLOW += [pytest.param("files", mode, marks=pytest.mark.slow, id=f"files-{mode}") for mode in ("microbatch", "plain")]


@pytest.mark.parametrize(("kind", "mode"), [("redis", "realtime"), *SLOW])
def test_each_record_of_a_log_counts_once(kind: str, mode: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    log, checkpoint = Log(kind, request, tmp_path / "log"), tmp_path / "checkpoint"
    offered, done = 0.0, False
    with _job(log, checkpoint, mode) as job, log.filling(1, 3999, 1000):
        for k in (3, 1, 2):
            job.deploy(job.deployment.scaled({"read": k, "slow": k, "count": k}))
            seen = job.observe()
            offered += seen.source_rate * seen.window_s
            done |= seen.throughput > 0
        assert done or any(job.observe().throughput for _ in range(60))
        assert job.restarts == 0
    assert 0 < offered <= 4000
    first = _counted(checkpoint)
    assert len(first) > 100
    assert sum(first.values()) == len(first) == Checkpoint(checkpoint).records()
    with log.filling(4000, 1000, 2000), _job(log, checkpoint, mode) as job:
        job.deploy(job.deployment.scaled({"read": 4}))
        for _ in range(30):
            snapshot = job.observe()
            if snapshot.lag == 0 and snapshot.source_rate == 0:
                break
    written = range(0 if kind == "kafka" else 1, 5000)
    assert _counted(checkpoint) == dict.fromkeys(written, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "redis"])
def test_a_job_that_is_stopped_hard_reads_the_same_records_again(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log, checkpoint = Log(kind, request, tmp_path / "log"), tmp_path / "checkpoint"
    job = _job(log, checkpoint, "realtime")
    with log.filling(1, 3000, 1000):
        live.works(job)
        job.deploy(job.deployment.scaled({"read": 2, "count": 3}))
        job.observe()
    job._supervisor._engine.stop()  # as if the process had ended: no cut before
    job._supervisor.thread.ended.set()
    job._supervisor.failed = RuntimeError("stopped by the test")
    job.close()
    with log.filling(3001, 500, 2000):  # nobody looks
        pass
    with _job(log, checkpoint, "realtime") as job:
        for _ in range(60):
            snapshot = job.observe()
            if snapshot.lag == 0 and snapshot.source_rate == 0:
                break
    assert _counted(checkpoint) == dict.fromkeys(range(1, 3501), 1)


@pytest.mark.slow
def test_a_log_that_fills_faster_than_it_is_read_waits_outside(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """200 records/s of 2000: the rest is lag, what is under way stays small, and the rates are what was written."""
    log = Log("redis", request, tmp_path / "log")
    with _job(log, tmp_path / "checkpoint", "realtime", micros=5000) as job:
        with log.filling(1, 400, 150):  # so that it is known what `slow` can do
            job.observe()
        with log.filling(401, 12_000, 2000):
            job.observe()
            gauge = live.Interference()
            snapshots = [job.observe() for _ in range(3)]
            quiet = gauge.share() < live.QUIET
        inside = sum(m.backlog for name, m in snapshots[-1].operators.items() if name != "read")
        assert inside < 1000
        assert snapshots[2].lag > snapshots[0].lag
        assert sum(s.throughput for s in snapshots) / 3 < 230  # 5 ms per record, and a record may end a window late
        if not quiet:
            return
        assert sum(s.source_rate for s in snapshots) / 3 == pytest.approx(2000, rel=0.1)
        assert sum(s.throughput for s in snapshots) / 3 == pytest.approx(200, rel=0.15)
        assert snapshots[2].lag - snapshots[0].lag == pytest.approx(2 * 1800, rel=0.15)


@pytest.mark.slow
def test_entries_that_were_trimmed_away_end_the_job_in_one_readable_error(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    log, client = Log("redis", request, tmp_path / "log"), request.getfixturevalue("stream")
    with _job(log, tmp_path / "checkpoint", "realtime", micros=3000) as job:
        with log.filling(1, 400, 150):  # so that it is known what `slow` can do, and the rest waits in the log
            live.works(job)
        for n in range(401, 30_000):
            log.write(n)
        for name in "abcd":
            client.xtrim(name, maxlen=5, approximate=False)
        with pytest.raises(SourceError, match="trimmed or deleted before they were read"):
            live.until(lambda: job.observe() is None)  # never: on a busy machine the restarts take their time


@pytest.mark.slow
def test_a_checkpoint_belongs_to_one_log(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    log = Log("files", request, tmp_path / "log")
    with _job(log, tmp_path / "checkpoint", "realtime"):
        pass
    other = Log("files", request, tmp_path / "other")
    with pytest.raises(CheckpointError, match="logs"):
        _job(other, tmp_path / "checkpoint", "realtime")
