"""What each part of a plant does to a job, by arithmetic, in both engines."""

import math

import numpy as np
import pytest

from dspkit import Deployment, Plant, Simulator, Topology, workload
from dspkit.core import ArgumentError, DeploymentError
from dspkit.simulator import Link, MetricsOutage, Node, NodeDown, NodeSlow, Service, Skew, outages, packed

ONE, TWO = Topology(("a",)), Topology.chain("a", "b")
BOTH = pytest.mark.parametrize("engine", ["fluid", "records"])
BIG = {"n1": Node(64), "n2": Node(64)}


def _play(plant, load, parallelism, topology=ONE, steps=20, window_s=20, **options):
    load = workload.Constant(load) if isinstance(load, (int, float)) else load
    start = options.pop("deployment", None) or Deployment(parallelism)
    job = Simulator(topology, plant, load, deployment=start, window_s=window_s, seed=5, **options)
    return [job.observe() for _ in range(steps)]


def _steady(seen, skip=5):
    """Means over the windows after the first few: throughput, event latency."""
    kept = seen[skip:]
    weights = [s.throughput for s in kept]
    return np.mean(weights), np.average([s.event_latency.mean for s in kept], weights=weights)


@BOTH
def test_a_faster_node_does_more(engine):
    plant = Plant({"a": Service(1e-2)}, {"n": Node(8, speed=2.5)})
    seen = _play(plant, 900, {"a": 2}, engine=engine)
    assert _steady(seen)[0] == pytest.approx(500, rel=0.02)
    assert seen[-1].operators["a"].true_rate == pytest.approx(250, rel=0.04)
    assert seen[-1].operators["a"].cpu == pytest.approx(2, rel=0.02)  # cores in use, however fast they are


@BOTH
def test_io_needs_no_core(engine):
    """Ten instances on one core: 100/s if all is CPU, all ten at work if a tenth of it is."""
    for io, expected in ((0.0, 100), (0.9, 1000 / 1.0), (0.5, 200)):
        plant = Plant({"a": Service(1e-2, io_share=io, distribution="deterministic")}, {"n": Node(1)})
        throughput, _ = _steady(_play(plant, 3000, {"a": 10}, engine=engine))
        assert throughput <= expected * 1.01
        assert throughput >= expected * (0.8 if io == 0.9 else 0.97)  # ten callers of one core collide now and then


@BOTH
def test_an_external_server_is_a_ceiling_for_all_instances(engine):
    """A Redis of 500 calls/s: eight instances that could do 1,600/s do 500, all busy, as if 62.5/s were their best."""
    plant = Plant({"a": Service(3e-3, external_rate_limit_per_s=500)}, BIG)
    seen = _play(plant, 2000, {"a": 8}, engine=engine)
    assert _steady(seen)[0] == pytest.approx(500, rel=0.02)
    assert seen[-1].operators["a"].utilisation == pytest.approx(1, abs=0.02)
    assert seen[-1].operators["a"].true_rate == pytest.approx(62.5, rel=0.03)
    alone = _play(plant, 2000, {"a": 1}, engine=engine)
    assert _steady(alone)[0] == pytest.approx(1 / (3e-3 + 2e-3), rel=0.03)


# Rate, busy share and back-pressured share of a model in SimPy: an instance's own time, one server, the queue of b.
CALLERS = [  # instances, own seconds, calls/s of the server, records/s of b; rate, busy, blocked
    (2, 0.02, 80, 1e4, 55.97, 1.0, 0.0),
    (3, 0.02, 80, 1e4, 72.11, 1.0, 0.0),
    (4, 0.05, 80, 1e4, 57.80, 1.0, 0.0),
    (2, 0.005, 80, 60, 60.0, 0.694, 0.306),
    (4, 0.02, 80, 70, 70.0, 0.825, 0.175),
    (8, 0.005, 80, 50, 50.0, 0.175, 0.825),
]


@BOTH
@pytest.mark.parametrize(("k", "own", "calls", "room", "rate", "busy", "blocked"), CALLERS)
def test_few_callers_of_one_server_wait_for_each_other(engine, k, own, calls, room, rate, busy, blocked):
    services = {"a": Service(own, external_rate_limit_per_s=calls), "b": Service(1 / room, queue_records=50)}
    seen = _play(Plant(services, BIG), 200, {"a": k, "b": 1}, TWO, steps=16, window_s=60, engine=engine)[4:]
    a = [s.operators["a"] for s in seen]
    assert np.mean([m.processing_rate for m in a]) == pytest.approx(rate, rel=0.015)
    assert np.mean([m.utilisation for m in a]) == pytest.approx(busy, abs=0.035)
    assert np.mean([m.blocked for m in a]) == pytest.approx(blocked, abs=0.035)
    assert max(m.utilisation + m.blocked for m in a) <= 1 + 1e-9


def test_callers_that_take_equally_long_do_not_meet():
    """With a constant own time the calls of two instances fall into step: no waiting, as in `records`."""
    plant = Plant({"a": Service(0.02, external_rate_limit_per_s=80, distribution="deterministic")}, BIG)
    for engine in ("fluid", "records"):
        assert _steady(_play(plant, 200, {"a": 2}, engine=engine))[0] == pytest.approx(2 / 0.0325, rel=0.01)


@BOTH
def test_a_source_that_drops_keeps_no_log(engine):
    plant = Plant({"a": Service(1e-2, overflow="drop", queue_records=20)}, BIG)
    seen = _play(plant, 250, {"a": 1}, engine=engine)
    for s in seen[2:]:
        assert s.lag <= 21
        assert s.dropped == pytest.approx(150, rel=0.2)
        assert s.throughput == pytest.approx(100, rel=0.1)


@BOTH
def test_an_inner_queue_that_drops_holds_nobody_back(engine):
    plant = Plant({"a": Service(1e-3), "b": Service(1e-2, overflow="drop", queue_records=20)}, BIG)
    seen = _play(plant, 250, {"a": 1, "b": 1}, TWO, engine=engine)
    last = seen[-1]
    assert last.operators["a"].processing_rate == pytest.approx(250, rel=0.1)
    assert last.operators["a"].blocked == 0
    assert last.operators["b"].dropped == pytest.approx(150, rel=0.15)


@BOTH
def test_whoever_feeds_a_full_queue_is_blocked_not_busy(engine):
    """a could do 1,000/s and does 100/s: busy a tenth of its time, held back for the rest."""
    plant = Plant({"a": Service(1e-3), "b": Service(1e-2, queue_records=20)}, BIG)
    a = _play(plant, 500, {"a": 1, "b": 1}, TWO, engine=engine)[-1].operators["a"]
    assert a.utilisation == pytest.approx(0.1, abs=0.02)
    assert a.blocked == pytest.approx(0.9, abs=0.03)
    assert a.true_rate == pytest.approx(1000, rel=0.1)


@BOTH
def test_a_link_delays_and_a_narrow_one_limits(engine):
    apart = Deployment({"a": 1, "b": 1}, placement={("a", 0): "n1", ("b", 0): "n2"})
    together = Deployment({"a": 1, "b": 1}, placement={("a", 0): "n1", ("b", 0): "n1"})
    services = {"a": Service(1e-3, record_bytes=1000), "b": Service(1e-3)}
    slow = Plant(services, BIG, links={("n1", "n2"): Link(delay_s=0.05)})
    latency = {d: _steady(_play(slow, 100, None, TWO, deployment=d, engine=engine))[1] for d in (apart, together)}
    assert latency[apart] - latency[together] == pytest.approx(0.05, rel=0.02)
    narrow = Plant(services, BIG, links={("n2", "n1"): Link(bandwidth_bytes_per_s=60e3)})
    assert _steady(_play(narrow, 100, None, TWO, deployment=apart, engine=engine))[0] == pytest.approx(60, rel=0.03)
    assert _steady(_play(narrow, 100, None, TWO, deployment=together, engine=engine))[0] == pytest.approx(100, rel=0.05)


@BOTH
def test_where_instances_run_decides_who_shares_cores(engine):
    plant = Plant({"a": Service(1e-2), "b": Service(1e-2)}, {"n1": Node(1), "n2": Node(1)})
    crowded = Deployment({"a": 1, "b": 1}, placement={("a", 0): "n1", ("b", 0): "n1"})
    assert _steady(_play(plant, 300, None, TWO, deployment=crowded, engine=engine))[0] == pytest.approx(50, rel=0.03)
    apart = _play(plant, 300, {"a": 1, "b": 1}, TWO, engine=engine)
    assert _steady(apart)[0] == pytest.approx(100, rel=0.05)
    assert apart[-1].nodes == {"n1": pytest.approx(1, abs=0.06), "n2": pytest.approx(1, abs=0.06)}
    one_worker = Deployment({"a": 1, "b": 1}, workers=1)
    seen = _play(plant, 300, None, TWO, deployment=one_worker, engine=engine)
    assert list(seen[-1].nodes) == ["n1"]
    assert _steady(seen)[0] == pytest.approx(50, rel=0.03)


def test_any_scheduler_places():
    plant = Plant({"a": Service(), "b": Service()}, BIG)
    start = Deployment({"a": 2, "b": 2})
    spread = Simulator(TWO, plant, workload.Constant(), deployment=start)
    assert list(spread.placement.values()) == ["n1", "n2", "n1", "n2"]
    neighbours = Simulator(TWO, plant, workload.Constant(), deployment=start, scheduler=packed)
    assert neighbours.placement == {("a", 0): "n1", ("a", 1): "n1", ("b", 0): "n2", ("b", 1): "n2"}
    with pytest.raises(DeploymentError, match="one placement per instance, 4 in all"):
        Simulator(TWO, plant, workload.Constant(), deployment=start, scheduler=lambda *_: {("a", 0): "n1"})


@BOTH
def test_a_node_dies_and_its_instances_begin_elsewhere(engine):
    """Two instances at 150/s, one of them on the dead node: a pause of 10 s, then both run on n2, which has a core."""
    plant = Plant({"a": Service(1e-2)}, {"n1": Node(2), "n2": Node(1)}, faults=(NodeDown(100, 60, node="n1"),))
    seen = _play(plant, 80, {"a": 2}, steps=20, window_s=10, engine=engine)
    assert [s.downtime_s for s in seen] == [0] * 10 + [10] + [0] * 9
    assert "n1" not in seen[15].nodes  # nothing runs there that could measure it
    assert seen[12].throughput == pytest.approx(100, rel=0.1)  # one core for two, and a log to drain
    assert sum(s.throughput for s in seen) == pytest.approx(sum(s.source_rate for s in seen), rel=0.02)


@BOTH
def test_instances_placed_by_hand_wait_for_their_node(engine):
    plant = Plant({"a": Service(1e-2)}, {"n1": Node(2), "n2": Node(2)}, faults=(NodeDown(100, 50, node="n1"),))
    placed = Deployment({"a": 1}, placement={("a", 0): "n1"})
    seen = _play(plant, 50, None, deployment=placed, steps=30, window_s=10, engine=engine)
    assert [s.throughput for s in seen[10:15]] == [0] * 5
    assert seen[14].lag == pytest.approx(50 * 50, rel=0.1)
    assert seen[16].throughput == pytest.approx(100, rel=0.1)
    assert sum(s.throughput for s in seen) == pytest.approx(sum(s.source_rate for s in seen), rel=0.02)


@BOTH
def test_records_on_a_dead_node_may_be_lost(engine):
    """2,000 wait before b's four instances when one of two nodes dies: half of them go."""
    services = {"a": Service(1e-4), "b": Service(2e-2, queue_records=500)}
    fault = NodeDown(200, 30, node="n1", loses=True)
    places = {("a", 0): "n2", **{("b", i): f"n{1 + i % 2}" for i in range(4)}}
    placed = Deployment({"a": 1, "b": 4}, placement=places)
    seen = _play(
        Plant(services, BIG, faults=(fault,)), 300, None, TWO, deployment=placed, window_s=10, steps=21, engine=engine
    )
    assert seen[19].operators["b"].backlog == pytest.approx(2000, rel=0.01)
    assert seen[20].operators["b"].dropped * 10 == pytest.approx(1000, rel=0.02)


@BOTH
def test_a_slow_node_and_a_hot_key(engine):
    slow = Plant({"a": Service(1e-2)}, {"n": Node(4)}, faults=(NodeSlow(200, node="n", factor=0.4),))
    seen = _play(slow, 300, {"a": 2}, engine=engine)
    assert np.mean([s.throughput for s in seen[2:10]]) == pytest.approx(200, rel=0.03)
    assert np.mean([s.throughput for s in seen[12:]]) == pytest.approx(80, rel=0.03)
    services = {"a": Service(1e-4), "b": Service(1e-2, queue_records=50)}
    skewed = Plant(services, BIG, faults=(Skew(200, operator="b", share=0.5),))
    seen = _play(skewed, 350, {"a": 1, "b": 4}, TWO, engine=engine)
    assert np.mean([s.throughput for s in seen[2:10]]) == pytest.approx(350, rel=0.03)
    assert np.mean([s.throughput for s in seen[14:]]) == pytest.approx(200, rel=0.05)
    busy = seen[-1].operators["b"].utilisation  # the hot one does 100/s, the other three the other 100/s
    assert busy == pytest.approx(0.5, abs=0.05)


def test_meters_fall_silent_while_the_operator_works_on():
    plant = Plant({"a": Service(1e-3), "b": Service(1e-3)}, BIG, faults=(MetricsOutage(45, 20, operator="b"),))
    seen = _play(plant, 100, {"a": 1, "b": 1}, TWO, steps=6)
    assert [sorted(s.operators) for s in seen] == [["a", "b"]] * 2 + [["a"]] * 2 + [["a", "b"]] * 2
    assert [round(s.throughput) for s in seen] == [100] * 6


PAUSES = {
    "rebalance": ({"a": 3.0, "b": 3.0}, 3.0),
    "restart": ({"a": 3.0, "b": 3.0}, 3.0),
    "savepoint": ({"a": 7.0, "b": 7.0}, 7.0),  # 2 x 2 MB at 1 MB/s
    "in-place": ({"a": 0.0, "b": 3.0}, 3.0),
    "migration": ({"a": 0.0, "b": 4.0}, 4.0),  # half of 2 MB to the other node
}


@BOTH
@pytest.mark.parametrize("kind", PAUSES)
def test_a_rescale_stops_what_its_kind_stops(kind, engine):
    """b gets a second instance, on the other node. Where a goes on, it fills b's queue meanwhile."""
    stops, downtime = PAUSES[kind]
    services = {"a": Service(1e-4), "b": Service(1e-3, state_bytes=2e6, queue_records=1e6)}
    plant = Plant(services, BIG, pause_s=3, pause_kind=kind, state_bytes_per_s=1e6)
    start = Deployment({"a": 1, "b": 1}, placement={("a", 0): "n1", ("b", 0): "n1"})
    job = Simulator(TWO, plant, workload.Constant(400), deployment=start, window_s=1, tick_s=0.1, engine=engine)
    job.observe()
    job.deploy(Deployment({"a": 1, "b": 2}, placement={**start.placement, ("b", 1): "n2"}))
    seen = [job.observe() for _ in range(12)]
    assert sum(s.downtime_s for s in seen) == pytest.approx(downtime)
    for name, stop in stops.items():
        still = sum(s.operators[name].processing_rate == 0 for s in seen)
        assert still == pytest.approx(stop, abs=1)


@BOTH
def test_stages_of_a_micro_batch_take_turns(engine):
    """1 / (1/1000 + 1/500) = 333 records/s, where a pipeline would do 500; twice the instances, twice of it."""
    services = {"a": Service(1e-3), "b": Service(2e-3)}
    plant = Plant(services, BIG, execution="micro-batch", batch_overhead_s=0.0, trigger_s=0.5, max_batch_records=500)
    for k in (1, 2):
        seen = _play(plant, 2000, {"a": k, "b": k}, TWO, engine=engine, steps=12)
        assert seen[-1].execution == "micro-batch"
        assert _steady(seen)[0] == pytest.approx(k * 1000 / 3, rel=0.05)
        last = seen[-1].operators
        assert last["a"].true_rate == pytest.approx(1000, rel=0.05)
        assert last["a"].utilisation == pytest.approx(1 / 3, abs=0.03)
        assert last["b"].utilisation == pytest.approx(2 / 3, abs=0.03)


@BOTH
def test_a_batch_begins_with_its_trigger_and_takes_what_came(engine):
    """100/s, a trigger each second: batches of 100 records, 0.2 s and 0.1 s of overhead, after half a second."""
    services = {"a": Service(2e-3, distribution="deterministic")}
    plant = Plant(services, BIG, execution="micro-batch", batch_overhead_s=0.1, trigger_s=1.0)
    seen = _play(plant, 100, {"a": 1}, engine=engine, arrivals="even", steps=10)[-1]
    assert seen.throughput == pytest.approx(100, rel=0.03)
    assert seen.latency.mean == pytest.approx(0.3, rel=0.03)
    assert seen.event_latency.mean == pytest.approx(0.8, rel=0.03)


def test_a_timetable_of_outages_has_the_availability_it_says():
    """20 nodes for 10^6 s with repairs of 60 s: the share of time down has a relative spread of about 1.4 %; 5 of
    these are allowed."""
    nodes = {f"n{i}": Node(availability=0.95) for i in range(20)}
    downs = outages(nodes, until_s=1e6, repair_s=60, seed=1)
    down = sum(min(f.duration_s, 1e6 - f.at_s) for f in downs) / (20 * 1e6)
    assert down == pytest.approx(0.05, rel=0.07)
    assert outages(nodes, until_s=1e6, repair_s=60, seed=1) == downs
    assert outages({"n": Node()}, until_s=1e6) == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Node(0), "cores"),
        (lambda: Node(2, overhead_cores=2), "less than all cores of the node"),
        (lambda: Service(-1.0), "seconds_per_record"),
        (lambda: Service(overflow="drop", queue_records=math.inf), "bound the queue"),
        (lambda: Service(distribution="normal"), "distribution"),
        (lambda: Plant({"a": Service()}, faults=(NodeDown(node="mars"),)), "a fault of node 'mars'"),
        (lambda: Plant({"a": Service()}, faults=(Skew(operator="x"),)), "a fault of operator 'x'"),
        (lambda: Plant({"a": Service()}, faults=(7,)), "expected a fault"),
        (lambda: Plant({"a": Service()}, BIG, links={("n1", "n3"): Link()}), "two of the nodes"),
        (lambda: Plant({"a": Service()}, BIG, network=0.1), "expected a Link"),
        (lambda: outages({"n": Node(availability=0.0)}, 100), "leave the node out"),
        (lambda: _play(Plant({"a": Service()}), 1, {"a": 1}, engine="magic"), "fluid, records"),
        (lambda: _play(Plant({"a": Service()}), 1, {"a": 1}, arrivals="late"), "poisson, even"),
        (lambda: _play(Plant({"a": Service()}), 1, {"a": 1}, engine="records", keep_ticks=True), "keep_ticks"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@BOTH
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Deployment({"a": 1}, placement={("a", 0): "mars"}), "on 'mars'; expected one of the nodes 'n1', 'n2'"),
        (Deployment({"a": 1}, workers=3), "at most the 2 nodes"),
        (Deployment({"a": 1}, settings={"x": 1}), "settings"),
        (Deployment({"a": 99}), "parallelism 99"),
    ],
)
def test_a_deployment_that_cannot_be_changes_nothing(wrong, message, engine):
    plant = Plant({"a": Service()}, BIG)
    with pytest.raises(DeploymentError, match=message):
        Simulator(ONE, plant, workload.Constant(), deployment=wrong, engine=engine)
    job = Simulator(ONE, plant, workload.Constant(), engine=engine)
    before, where = job.deployment, job.placement
    with pytest.raises(DeploymentError, match=message):
        job.deploy(wrong)
    assert (job.deployment, job.placement) == (before, where)
    assert job.observe().downtime_s == 0
