"""Where windows, faults, pauses and limits meet: what a reviewer found, and what nobody had looked at."""

import math
from dataclasses import replace

import pytest

from dspkit import Deployment, Plant, Simulator, Topology, simulate_many, workload
from dspkit.core import ArgumentError, DeploymentError, WorkloadError
from dspkit.simulator import Link, Node, NodeDown, NodeSlow, Service, Skew, outages

ONE, TWO = Topology(("a",)), Topology.chain("a", "b")
FORK = Topology(("s", "b", "c"), (("s", "b"), ("s", "c")))
BOTH = pytest.mark.parametrize("engine", ["fluid", "records"])
EXECUTIONS = pytest.mark.parametrize("execution", ["pipelined", "micro-batch"])
BIG = {"n1": Node(64), "n2": Node(64)}


def _job(topology, plant, load, parallelism=None, **options):
    load = load if isinstance(load, workload.Workload) else workload.Constant(load)
    start = options.pop("deployment", None) or Deployment(parallelism or topology.uniform())
    return Simulator(topology, plant, load, deployment=start, seed=3, **options)


@BOTH
@pytest.mark.parametrize(("window_s", "edge"), [(0.1, 13), (0.2, 6), (2.1, 6), (0.7, 3), (0.1, 17)])
def test_a_fault_at_the_edge_of_a_window_strikes_once_and_ends_once(engine, window_s, edge):
    """The windows' ends are not the next ones' beginnings to the last bit."""
    at = edge * window_s
    fault = NodeDown(at, 3 * window_s, node="n", loses=True)
    services = {"a": Service(1e-5), "b": Service(window_s / 5, queue_records=500, distribution="deterministic")}
    place = {("a", 0): "m", ("b", 0): "n"}
    job = _job(TWO, Plant(services, {"n": Node(4), "m": Node(4)}, faults=(fault,)), 20 / window_s, engine=engine,
               window_s=window_s, tick_s=window_s, deployment=Deployment(TWO.uniform(), placement=place))  # fmt: skip
    seen = [job.observe() for _ in range(edge + 6)]
    losing = [i for i, s in enumerate(seen) if s.dropped > 1e-9]
    assert losing in ([edge - 1], [edge])  # at the end of one, or the beginning of the next
    still = [s.operators["b"].processing_rate == 0 for s in seen]
    assert sum(still) == pytest.approx(3, abs=1)
    assert not still[-1]


def test_at_a_join_each_link_carries_what_it_can():
    """J could do 1,000/s; the links carry 100 and 600 records/s."""
    topology = Topology(("A", "B", "J"), (("A", "J"), ("B", "J")))
    nodes = {n: Node(64) for n in "abj"}
    links = {("a", "j"): Link(bandwidth_bytes_per_s=10e3), ("b", "j"): Link(bandwidth_bytes_per_s=60e3)}
    plant = Plant({n: Service(1e-3, queue_records=100) for n in "ABJ"}, nodes, links=links)
    place = {("A", 0): "a", ("B", 0): "b", ("J", 0): "j"}
    job = _job(topology, plant, 4000, deployment=Deployment(topology.uniform(), placement=place))
    last = [job.observe() for _ in range(5)][-1]
    assert last.edge_rates == {("A", "J"): pytest.approx(100), ("B", "J"): pytest.approx(600)}


@BOTH
@pytest.mark.parametrize("load", [0.2, 0.5, 0.9])
def test_a_narrow_link_takes_time_and_makes_wait(load, engine):
    """10 ms a record, one after the other: M/D/1, within 15 %."""
    services = {"a": Service(1e-6, record_bytes=100), "b": Service(1e-6)}
    plant = Plant(services, BIG, network=Link(bandwidth_bytes_per_s=10e3))
    apart = Deployment(TWO.uniform(), placement={("a", 0): "n1", ("b", 0): "n2"})
    job = _job(TWO, plant, 100 * load, deployment=apart, engine=engine, window_s=500)
    seen = [job.observe() for _ in range(6)][1:]
    mean = sum(s.latency.mean for s in seen) / len(seen)
    assert mean == pytest.approx(0.01 * (1 + load / (2 * (1 - load))), rel=0.15)


@BOTH
@EXECUTIONS
def test_a_log_outlives_the_nodes(execution, engine):
    """1,000/s into 200/s: what waits in the log is there whoever dies."""
    fault = NodeDown(20, 10, node="n1", loses=True)
    plant = Plant({"a": Service(1e-2)}, BIG, faults=(fault,), execution=execution, max_batch_records=500)
    job = _job(ONE, plant, 1000, {"a": 2}, engine=engine)
    seen = [job.observe() for _ in range(4)]
    assert [s.dropped for s in seen] == [0] * 4
    done = sum(s.throughput * s.window_s for s in seen)
    assert seen[-1].lag == pytest.approx(1000 * 40 - done, rel=0.02)


@BOTH
def test_what_a_dead_node_takes_along_is_its_share(engine):
    """Of 900 records before b's three instances one third."""
    services = {"a": Service(1e-4), "b": Service(1.0, queue_records=300)}
    place = {("a", 0): "n2", ("b", 0): "n1", ("b", 1): "n2", ("b", 2): "n2"}
    deployment = Deployment({"a": 1, "b": 3}, placement=place)
    plant = Plant(services, BIG, faults=(NodeDown(10, 10, node="n1", loses=True),))
    job = _job(TWO, plant, 1000, deployment=deployment, engine=engine)
    job.observe()
    assert job.observe().operators["b"].dropped * 10 == pytest.approx(300, rel=0.02)


@BOTH
def test_a_restart_loses_what_waits_between_operators_and_keeps_the_log(engine):
    """400/s reach b, which does 100/s: 3,000 records wait after ten seconds; then 400/s wait in the log for 5 s."""
    services = {"a": Service(1e-4), "b": Service(1e-2, queue_records=math.inf)}
    for kind, lost in (("rebalance", 0), ("restart", 3000)):
        job = _job(TWO, Plant(services, BIG, pause_s=5, pause_kind=kind), 400, window_s=5, engine=engine)
        for _ in range(2):
            job.observe()
        job.deploy(Deployment({"a": 1, "b": 2}))
        paused, after = job.observe(), job.observe()
        assert paused.operators["b"].dropped * 5 == pytest.approx(lost, rel=0.03, abs=1)
        assert paused.lag == pytest.approx(2000, rel=0.03)
        assert after.operators["b"].input_rate * 5 == pytest.approx(4000, rel=0.03)  # of the pause, and new ones


def test_what_a_dead_node_loses_is_in_the_curves_and_in_sweeps():
    services = {"a": Service(1e-4), "b": Service(2e-2, queue_records=500)}
    place = {("a", 0): "n2", **{("b", i): f"n{1 + i % 2}" for i in range(4)}}
    plant = Plant(services, BIG, faults=(NodeDown(100, 30, node="n1", loses=True),))
    deployment = Deployment({"a": 1, "b": 4}, placement=place)
    job = _job(TWO, plant, 300, deployment=deployment, keep_ticks=True)
    seen = [job.observe() for _ in range(20)]
    lost = sum(s.dropped * 10 for s in seen)
    assert lost == pytest.approx(1000, rel=0.01)
    last = job.ticks.iloc[-1]
    assert last.lost == pytest.approx(lost)
    assert last.offered == pytest.approx(last.ended + last.lost + job._job.engine.mass)
    rows = simulate_many(TWO, plant, workload.Constant(300), deployment, duration_s=200)
    assert rows.lost[0] * 200 == pytest.approx(lost, rel=0.01)


@BOTH
def test_an_operator_in_a_pause_does_not_slow_the_others(engine):
    """b stands still for 25 s; c, which gets the same records, waits as before; so do records that go to c."""
    services = {"s": Service(1e-4), "b": Service(5e-3, queue_records=1e6), "c": Service(5e-3)}
    job = _job(FORK, Plant(services, BIG, pause_s=25, pause_kind="in-place"), 100, engine=engine, window_s=20)
    before = [job.observe() for _ in range(3)][-1].operators["c"].waited_s
    job.deploy(Deployment({"s": 1, "b": 2, "c": 1}))
    first = job.observe()
    assert first.downtime_s == 20
    assert first.operators["c"].waited_s == pytest.approx(before, rel=0.35)
    assert first.operators["b"].waited_s is None
    assert first.latency.mean >= 5e-3


@EXECUTIONS
@pytest.mark.parametrize("at", [13.0, 16.0, 20.0])
def test_a_tick_that_a_fault_cuts_keeps_its_load(execution, at):
    plant = Plant({"a": Service(1e-4)}, BIG, faults=(NodeSlow(at, 3, node="n1"),), execution=execution)
    load = workload.Jump(0, 1000, at_s=20)
    rows = simulate_many(ONE, plant, load, Deployment({"a": 1}), duration_s=40, window_s=10, tick_s=10)
    assert rows.source_rate[0] * 40 == pytest.approx(20_000)


@BOTH
def test_a_scale_in_keeps_what_waits(engine):
    plant = Plant({"a": Service(1e-4), "b": Service(0.1, queue_records=100, overflow="drop")}, BIG, pause_s=0)
    job = _job(TWO, plant, workload.Jump(400, 0, at_s=20), {"a": 1, "b": 5}, engine=engine)
    full = [job.observe() for _ in range(2)][-1].operators["b"].backlog
    assert full > 480
    job.deploy(Deployment({"a": 1, "b": 1}))
    after = job.observe().operators["b"]
    assert after.dropped * 10 <= 1
    assert after.backlog == pytest.approx(full - 100, abs=30)


@pytest.mark.parametrize(("kind", "pause"), [("rebalance", 10), ("in-place", 10), ("migration", 10)])
def test_a_death_costs_a_pause_of_any_kind(kind, pause):
    plant = Plant({"a": Service(1e-3)}, BIG, pause_kind=kind, faults=(NodeDown(20, 60, node="n1"),))
    job = _job(ONE, plant, 100, {"a": 2})
    assert sum(job.observe().downtime_s for _ in range(6)) == pytest.approx(pause)


@BOTH
@EXECUTIONS
def test_without_a_node_the_job_stands_still(execution, engine):
    faults = tuple(NodeDown(20, 35, node=n) for n in BIG)
    plant = Plant({"a": Service(1e-3)}, BIG, faults=faults, execution=execution, pause_s=0)
    seen = [job.observe() for job in [_job(ONE, plant, 50, engine=engine)] for _ in range(12)]
    assert sum(s.downtime_s for s in seen) == pytest.approx(35)
    assert sum(s.throughput for s in seen) == pytest.approx(sum(s.source_rate for s in seen), rel=0.02)


def test_a_rescale_during_an_outage_uses_the_nodes_that_are_up():
    plant = Plant({"a": Service(1e-3)}, BIG, faults=(NodeDown(20, 600, node="n1"),))
    job = _job(ONE, plant, 100, {"a": 2})
    for _ in range(3):
        job.observe()
    job.deploy(Deployment({"a": 4}))
    assert set(job.placement.values()) == {"n2"}


def test_slow_twice_is_slower_still():
    faults = (NodeSlow(10, 50, node="n", factor=0.5), NodeSlow(20, 20, node="n", factor=0.5))
    job = _job(ONE, Plant({"a": Service(1e-2)}, {"n": Node(4)}, faults=faults), 500)
    rates = [job.observe().throughput for _ in range(7)]
    assert rates == pytest.approx([100, 50, 25, 25, 50, 50, 100])


@BOTH
def test_a_hot_key_holds_up_each_batch(engine):
    """Four instances, half of the records to one: a stage takes twice as long as if it were even."""
    plant = Plant({"a": Service(1e-2)}, BIG, execution="micro-batch", batch_overhead_s=0.0, max_batch_records=1000)
    for skew, expected in ((0.25, 400), (0.5, 200), (0.01, 400)):
        faults = (Skew(0, operator="a", share=skew),)
        job = _job(ONE, replace(plant, faults=faults), 1000, {"a": 4}, engine=engine, window_s=100)
        seen = [job.observe() for _ in range(3)]
        assert seen[-1].throughput == pytest.approx(expected, rel=0.07)


def test_a_share_below_the_average_is_no_skew():
    plant = Plant({"a": Service(1e-2, grouping="split")}, BIG)
    for share in (0.0, 0.01, 0.25):
        skewed = replace(plant, faults=(Skew(0, operator="a", share=share),))
        assert _job(ONE, skewed, 1000, {"a": 4}).observe().throughput == pytest.approx(400)


def test_the_engines_own_cores_are_in_use_and_not_for_the_job():
    plant = Plant({"a": Service(1e-2)}, {"n": Node(4, overhead_cores=1.5)})
    last = _job(ONE, plant, 1000, {"a": 8}).observe()
    assert last.throughput == pytest.approx(250)
    assert last.nodes["n"] == pytest.approx(1)
    idle = _job(ONE, plant, 100, {"a": 8}).observe()
    assert idle.nodes["n"] == pytest.approx(2.5 / 4)


def test_a_sweep_counts_what_it_says():
    """Two operators of known cost, one of them at four fifths; the load doubles half-way."""
    nodes = {"n1": Node(8, cost_per_hour=2.0), "n2": Node(8, cost_per_hour=3.0)}
    plant = Plant({"a": Service(1e-3), "b": Service(8e-3)}, nodes)
    load = workload.Jump(50, 100, at_s=100)
    row = simulate_many(TWO, plant, load, Deployment(TWO.uniform()), duration_s=200).iloc[0]
    assert row.busiest == "b"
    assert row.utilisation == pytest.approx(75 * 8e-3)
    assert row.cores == pytest.approx(75 * 9e-3)
    assert row.cost_per_hour == 5.0
    job = _job(TWO, plant, load)
    seen = [job.observe().latency.mean for _ in range(20)]
    assert row.worst_latency_s == pytest.approx(max(seen))
    assert row.latency_s < max(seen)


def test_a_second_rescale_does_not_add_its_pause_to_the_first():
    plant = Plant({"a": Service(1e-3)}, BIG, execution="micro-batch", pause_s=10)
    job = _job(ONE, plant, 100)
    job.deploy(Deployment({"a": 2}))
    job.deploy(Deployment({"a": 3}))
    assert sum(job.observe().downtime_s for _ in range(5)) == pytest.approx(10)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: outages(BIG, 100, repair_s=0), ArgumentError, "finite times above 0"),
        (lambda: outages(BIG, math.inf), ArgumentError, "finite times above 0"),
        (lambda: Plant({"a": Service()}, BIG, faults=NodeDown(1, node="n1")), ArgumentError, "a tuple of faults"),
        (lambda: Plant({"a": Service()}, BIG, faults=None), ArgumentError, "a tuple of faults"),
        (lambda: Plant({"a": Service()}, BIG, links=5), ArgumentError, "a mapping"),
        (lambda: Plant({"a": Service()}, BIG, links={("n1", "n1"): Link()}), ArgumentError, "two of the nodes"),
        (lambda: _job(ONE, Plant({"a": Service()}), 1, window_s="10"), ArgumentError, "window_s=10"),
        (lambda: _job(ONE, None, 1), ArgumentError, "plant=None"),
        (lambda: _job(ONE, Plant({"a": Service()}), 1, scheduler=None), ArgumentError, "scheduler=None"),
        (lambda: _job(ONE, Plant({"a": Service()}), 1, scheduler=lambda *_: None), DeploymentError, "returned None"),
        (lambda: _many(duration_s=math.inf), ArgumentError, "all finite"),
        (lambda: _many(duration_s=15, window_s=10), ArgumentError, "whole windows of 10 s"),
        (lambda: _many(threads=-1), ArgumentError, "threads=-1"),
        (lambda: _many(plant=[5]), ArgumentError, "got 5"),
        (lambda: _many(plant=(p for p in ())), ArgumentError, "a list of them"),
        (lambda: _many(deployment=Deployment({"a": 1}, settings={"x": 1})), DeploymentError, "settings"),
        (lambda: _many(deployment=[Deployment({"a": 1}), Deployment({"a": 99})]), DeploymentError, "parallelism 99"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, error, message):
    with pytest.raises(error, match=message):
        make()


def _many(**more):
    given = {"plant": Plant({"a": Service()}), "workload": workload.Constant(), "deployment": Deployment({"a": 1})}
    return simulate_many(ONE, **{**given, **more})


class _Broken(workload.Workload):
    def rates(self, t):
        return 0 * t - 5


@BOTH
def test_a_load_that_cannot_be_is_refused_before_it_is_played(engine):
    job = Simulator(ONE, Plant({"a": Service()}), _Broken(), engine=engine)
    with pytest.raises(WorkloadError, match="-5 records/s"):
        job.observe()
    with pytest.raises(WorkloadError, match="-5 records/s"):
        _many(workload=_Broken())
