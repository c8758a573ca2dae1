"""A real cluster on this machine: workers come and go under a running job, die, and all end with whoever began them."""

from __future__ import annotations

import copy
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import live
from dspkit import Deployment, History, Topology, policies, profiling, run, workload
from dspkit.core import ArgumentError, DeploymentError, control_loop
from dspkit.etp import rebalance
from dspkit.policies.on_demand import ScaleOut
from dspkit.spark import ClusterError, SessionError, SparkCluster, SparkJob, arrow, keyed
from dspkit.spark.runtime import cluster as processes
from dspkit.spark.runtime import session
from dspkit.spark.runtime.workers import places, runnable, task_slots
from sockets import Watch

CORES = 8


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    live.end()
    with SparkCluster.local(1, CORES, memory="512m") as made:
        yield made


@pytest.fixture
def spark(cluster: SparkCluster) -> Any:
    """The one Spark on it, in real-time mode; it ends with the cluster."""
    return session.running_session() or cluster.start("realtime")


def _job(cluster: SparkCluster, spark: Any, *load: float, **more: Any) -> SparkJob:
    return live.job(*load, master=cluster, spark=spark, **more)


def _until(happened: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_workers_and_parallelism_move_each_on_its_own_and_nothing_is_lost(
    cluster: SparkCluster, spark: Any, tmp_path: Path
) -> None:
    """ELYSIUM's two decisions, one without the other and both at once."""
    application = spark.sparkContext.applicationId
    with _job(cluster, spark, 1500, 50, checkpoint=tmp_path) as job:
        assert job.knobs == {"parallelism", "workers", "placement"}
        start = job.observe().deployment
        assert start.workers == 1
        for change in (
            replace(start, workers=2),
            replace(start.scaled({"work": 4, "count": 2}), workers=2),
            replace(start.scaled({"read": 2, "work": 2, "count": 3}), workers=1),
        ):
            job.deploy(change)
            seen = live.until(lambda change=change: (seen := job.observe()).deployment == change and seen)  # type: ignore[misc]
            assert len(seen.nodes) == len(set(cluster.executors(application).values())) == change.workers
            assert task_slots(spark) == change.workers * CORES
        with pytest.raises(DeploymentError, match=rf"needs 11 slots at once; expected at most the {CORES} that"):
            job.deploy(job.deployment.scaled({"work": 6}))
        assert len(cluster.workers) == 1
        _until(lambda: job.observe().throughput > 1000)
        assert job.restarts == 0
    assert live.each_once(tmp_path) > 3000


@pytest.mark.spark
@pytest.mark.slow
def test_stela_has_a_worker_added_and_the_congested_operator_gets_its_slots(cluster: SparkCluster, spark: Any) -> None:
    """4 ms per record: 250 records/s for an instance of `work`, which is offered 550."""
    start = Deployment({"read": 1, "work": 1, "count": 1}, workers=1)
    stela = policies.get("stela")(places="no")
    with _job(cluster, spark, 550, 4000, deployment=start, window_s=1.0, epoch_s=30.0) as job:

        def work_is_what_is_short() -> Any:  # its workers are warm, and the machine has time for them
            seen = job.observe()
            target, why = stela.answer(ScaleOut(1), job.topology, seen)
            return why["one by one"][:1] == ["work (100%)"] and 200 < seen.throughput < 275 and (seen, target, why)

        seen, target, why = _until(work_is_what_is_short, 120)
        job.deploy(target)
        _until(lambda: len(cluster.workers) == 2)
        last = _until(lambda: (s := job.observe()).throughput > 1.5 * seen.throughput and s, 120)
    given = why["slots go to"]
    assert sum(given.values()) == 3  # as many as the worker before had
    assert last.deployment == Deployment({o: 1 + given.get(o, 0) for o in start.parallelism}, workers=2)


@pytest.mark.spark
@pytest.mark.slow
def test_elysium_scales_instances_and_workers_each_by_itself(cluster: SparkCluster, spark: Any) -> None:
    """2 ms of a core a record. From 60 to 250 records/s an instance is in stress, and its worker is not; at 360 it is.

    Profiles come from a live run under all three. What a worker uses beside its tasks is this machine's matter, so
    its threshold is half-way between what the profile expects of the last two loads.
    """
    low, middle, high, each_s = 60.0, 250.0, 360.0, 4.0
    start = Deployment({"read": 1, "work": 1, "count": 1}, workers=1)
    chain = Topology.chain("read", "work", "count", max_parallelism=2)
    functions = {"work": arrow(live.Burn(2000), live.RECORD), "count": keyed(live.count, key="id", state="int64")}
    told: dict[str, Any] = {"master": cluster, "spark": spark, "window_s": 1.0, "epoch_s": 30.0}

    def loads(*rates: float) -> workload.Trace:
        return workload.Trace(tuple(each_s * i for i in range(len(rates))), rates)

    both = start.scaled({"work": 2})
    with SparkJob(chain, functions, loads(high, low, middle, high), deployment=both, **told) as job:
        seen = run(policies.get("static")(), job, steps=round(4 * each_s))
    learned = profiling.learn(History(chain, seen[round(each_s) :]), metrics_window_s=2.0)  # workers are warm
    assert learned.cpu["work"].curve(300.0) == pytest.approx(0.6, rel=0.25)
    estimator = profiling.Estimator(chain, learned)
    places = rebalance(chain, both.parallelism, ["one"])
    shares = [estimator.node_cpu_usages(places, both.parallelism, x)["one"] for x in (middle, high)]
    elysium = policies.get("elysium")(
        learned=learned, load="arrivals", scale_in_below=0.05, scale_out_above=0.4,
        node_scale_out_above=sum(shares) / 2, decision_interval_s=2.0, metrics_window_s=2.0, nodes=2,
    )  # fmt: skip
    with SparkJob(chain, functions, loads(low, middle, high, low), deployment=start, **told) as job:
        ran: list[tuple[int, int | None]] = []
        for step in control_loop(elysium, job, steps=120):  # the last load holds: busy machines need more
            ran.append((step.snapshot.deployment.parallelism["work"], step.snapshot.deployment.workers))
            if (2, 2) in ran and ran[-1] == (1, 1):
                break
        assert job.restarts == 0
    moves = set(pairwise(ran))
    assert ((1, 1), (2, 1)) in moves  # one decision,
    assert ((2, 1), (2, 2)) in moves  # then the other
    assert ran[-1] == (1, 1)


def _kill_one(what: str, job: SparkJob) -> None:
    """Kill processes below this one that are that until the job has died of it, and wait until it works again.

    One without a task, between two epochs, is replaced and the job never knows.
    """
    before = job.restarts
    end = time.monotonic() + 120
    while job.restarts == before:
        assert time.monotonic() < end, "no loss was noticed"
        os.kill(next(p.pid for p in processes.below({os.getpid()}) if what in p.command), signal.SIGKILL)
        noticed = time.monotonic() + 10
        while job.restarts == before and time.monotonic() < noticed:
            job.observe()
    _until(lambda: job.observe().throughput > 0, 120)


@pytest.mark.slow
@pytest.mark.spark
def test_a_master_given_by_its_address_tells_its_slots_and_its_machines_load(cluster: SparkCluster, spark: Any) -> None:
    """As a company's cluster would: whatever workers there are, none of them a knob."""
    with live.job(500, 50, master=cluster.url, spark=spark) as job:
        assert job.knobs == {"parallelism"}
        _until(lambda: 0 < job.observe().nodes.get("127.0.0.1", 0) <= 1)
        with pytest.raises(DeploymentError, match=f"at most the {len(cluster.workers) * CORES} that"):
            job.deploy(job.deployment.scaled({"work": 40}))
        assert job.observe().deployment.workers is None


@pytest.mark.spark
@pytest.mark.slow
def test_killed_executors_and_workers_are_replaced_and_every_record_counts_once(
    cluster: SparkCluster, spark: Any, tmp_path: Path
) -> None:
    application = spark.sparkContext.applicationId
    with _job(cluster, spark, 1500, 50, checkpoint=tmp_path, epoch_s=1.0) as job:
        more_than_one_worker_holds = {"work": 5, "count": 4}  # so that none is idle: nobody would miss one that is
        job.deploy(replace(job.deployment.scaled(more_than_one_worker_holds), workers=2))
        for what in ("--executor-id", "deploy.worker.Worker"):
            _kill_one(what, job)
        _until(lambda: set(cluster.executors(application).values()) == set(cluster.workers))
        assert _until(lambda: task_slots(spark) == len(cluster.workers) * CORES)
    assert live.each_once(tmp_path) > 500


@pytest.mark.spark
@pytest.mark.slow
def test_a_master_that_dies_is_replaced_and_workers_still_come_and_go(
    cluster: SparkCluster, spark: Any, tmp_path: Path
) -> None:
    with _job(cluster, spark, 1500, 50, checkpoint=tmp_path, epoch_s=1.0) as job:
        live.works(job)
        few, died = len(cluster.workers), cluster._master.process
        died.kill()
        _until(lambda: cluster._master.process is not died)
        for workers in (few + 1, few):
            job.deploy(replace(job.deployment.scaled({"work": workers}), workers=workers))
            live.until(lambda workers=workers: job.observe().deployment.workers == workers)  # type: ignore[misc]
            live.works(job)
            assert len(cluster.workers) == workers
            assert task_slots(spark) == workers * CORES
        assert job.restarts == 0  # tasks and executors do not need it
    assert live.each_once(tmp_path) > 500


@pytest.mark.spark
def test_it_listens_on_the_loopback_address_only_and_to_who_knows_its_secret(cluster: SparkCluster, spark: Any) -> None:
    """All the time: each epoch's senders listen for its receivers, and close with it."""
    with Watch() as watch, _job(cluster, spark, 500, 50, epoch_s=1.0) as job:
        for work in (1, 3):
            job.deploy(job.deployment.scaled({"work": work}))
            _until(lambda: job.observe().throughput > 0)
    assert not watch.beyond
    heard = {found for found in watch.within if "java" in found.command}
    assert len({found.pid for found in heard}) >= 4  # the driver, the master, a worker, its executor
    assert sum("--executor-id" in found.command for found in heard) >= 1 + 2 + 4  # servers of two epochs among them
    secret = cluster._secret
    assert secret not in os.environ.values()
    assert not any(secret in p.command for p in processes.running())


@pytest.mark.spark
def test_a_job_for_another_cluster_is_told_what_runs_here(cluster: SparkCluster, spark: Any) -> None:
    other = copy.copy(cluster)
    other.url = "spark://127.0.0.1:1"
    with pytest.raises(SessionError, match=re.escape(cluster.url)):
        _job(other, spark)


ALONE = """
import sys, time
sys.path[:0] = {path!r}
from dspkit.spark import SparkCluster
cluster = SparkCluster.local(1, 2, memory="512m")
print(cluster._folder, cluster._master.process.pid, cluster._workers["worker-1"].process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_whoever_began_it_is_killed_and_it_ends_by_itself() -> None:
    path = [str(Path(__file__).parents[2])]
    with subprocess.Popen(
        [sys.executable, "-c", ALONE.format(path=path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            folder, *pids = process.stdout.readline().split()
            ours = {int(pid) for pid in pids}
            assert ours <= {p.pid for p in processes.running()}
        finally:  # else the end of this block waits for it
            process.kill()
    _until(lambda: not ours & {p.pid for p in processes.running()})
    _until(lambda: not Path(folder).exists())


@pytest.mark.spark
def test_a_port_that_is_taken_is_one_readable_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ClusterError, match="port that is taken"):
            SparkCluster.local(1, 1, port=taken.getsockname()[1])
    assert not [p for p in processes.below({os.getpid()}) if "deploy.master" in p.command and "port 0" not in p.command]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"workers": 0}, {"workers": 1.5}, {"cores": -1}, {"cores": True}, {"port": 80}, {"memory": "much"}),
        *(
            {"delays": {("worker-1", "worker-1"): 1.0}},
            {"delays": {("worker-1", "b"): 1.0}},
            {"delays": {"worker-1": 1.0}},
        ),
        *({"delays": {("worker-1", "worker-2"): -1.0}}, {"rates": {("worker-1", "worker-2"): 0.0}}),
        {"rates": {("worker-1", "worker-2"): "fast"}},
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_it_starts(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        SparkCluster.local(**wrong)


NAMES = ("read", "work", "count")


@pytest.mark.spark
@pytest.mark.slow
def test_instances_run_where_the_deployment_says_and_nothing_is_lost(
    cluster: SparkCluster, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Random placements, whole and in part, while workers are added and removed by name."""
    chance = random.Random(5)
    with _job(cluster, spark, 500, 50, checkpoint=tmp_path) as job:
        job.deploy(replace(job.deployment, workers=2))
        for _ in range(6):
            first, *others = cluster.workers
            k = {name: chance.randint(1, 3) for name in NAMES}
            asked = {
                (n, i): chance.choice([first, *others]) for n in NAMES for i in range(k[n]) if chance.random() < 0.8
            }
            job.deploy(replace(job.deployment.scaled(k), placement=asked))
            job.observe()
            every = {(n, i) for n in NAMES for i in range(k[n])}
            _until(
                lambda every=every: (
                    set(job.places()) == every and job.places().items() >= job.deployment.placement.items()
                )
            )
        for wrong, reason in (
            ({("read", 0): "worker-99"}, "worker-99"),
            ({("work", i): first for i in range(CORES + 1)}, f"more than {CORES} instances"),
        ):
            with pytest.raises(DeploymentError, match=reason):
                job.deploy(replace(job.deployment.scaled({"work": CORES + 1}), placement=wrong))
        # The worker that leaves is the one on which nothing is placed; one that comes has the name of its placement.
        last = others[-1]
        here = {(n, 0): last for n in NAMES}
        job.deploy(replace(job.deployment.scaled(dict.fromkeys(NAMES, 1)), placement=here, workers=1))
        assert cluster.workers == (last,)
        job.deploy(replace(job.deployment, placement=here | {("work", 0): "worker-1"}, workers=2))
        assert set(cluster.workers) == {last, "worker-1"}
        _until(lambda: job.places() == here | {("work", 0): "worker-1"})
        job.deploy(replace(job.deployment, placement={(n, 0): "worker-1" for n in NAMES}, workers=1))
        assert job.restarts == 0
    assert "not on the worker" not in caplog.text
    assert live.each_once(tmp_path) > 500


@given(st.data())
def test_places_are_those_asked_for_and_the_rest_where_slots_are_free(data: st.DataObject) -> None:
    workers = [f"worker-{i}" for i in range(1, data.draw(st.integers(2, 4)))]
    slots = data.draw(st.integers(1, 4))
    k = {name: data.draw(st.integers(1, 4)) for name in NAMES}
    every = [(name, i) for name in NAMES for i in range(k[name])]
    asked = data.draw(st.dictionaries(st.sampled_from(every), st.sampled_from(workers), min_size=1))
    deployment = Deployment(k, placement=asked)
    most = max(Counter(asked.values()).values())
    if most > slots:
        with pytest.raises(DeploymentError, match=f"more than {slots} instances"):
            places(NAMES, deployment, workers, slots)
        return
    found = places(NAMES, deployment, workers, slots)
    where = {(name, i): worker for name, each in zip(NAMES, found, strict=True) for i, worker in enumerate(each)}
    assert set(where) == set(every)
    assert asked.items() <= where.items()
    if len(every) <= slots * len(workers):
        assert max(Counter(where.values()).values()) <= slots


def test_workers_are_no_knob_without_a_cluster() -> None:
    from dspkit import Topology
    from dspkit.spark.dataflow import plan as line

    code = line.functions(Topology.chain("a"), {}, logs := line.logs(Topology.chain("a"), workload.Constant(1)))
    deployment = Deployment({"a": 1}, workers=2)
    with pytest.raises(DeploymentError, match=r"another workers; .*SparkCluster"):
        runnable(Topology.chain("a"), code, logs, deployment, 8, "pipelined", frozenset({"parallelism"}))
