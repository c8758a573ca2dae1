"""Pauses of single instances: those that come or move stand still, the others go on; by arithmetic, in both engines."""

import pytest

from dspkit import Deployment, Plant, Simulator, Topology, workload
from dspkit.simulator import Node, NodeDown, NodeSlow, Service, pauses

ONE, TWO = Topology(("a",)), Topology.chain("a", "b")
BOTH = pytest.mark.parametrize("engine", ["fluid", "records"])
NODES = {"n1": Node(64), "n2": Node(64)}
STEADY = dict(distribution="deterministic", queue_records=1e6)


def _job(nodes, engine, *, load=1000, service=None, **plant):
    """Instances of one operator on these nodes, each of which does 100/s, under more load than all can do."""
    plant = {"pause_s": 6, "pause_kind": "instances", **plant}
    made = Plant({"a": service or Service(1e-2, **STEADY)}, NODES, **plant)
    start = _on(nodes)
    return Simulator(
        ONE, made, workload.Constant(load), deployment=start, window_s=2, tick_s=0.25, engine=engine, seed=1
    )


def _on(nodes):
    return Deployment({"a": len(nodes)}, placement={("a", i): f"n{n}" for i, n in enumerate(nodes)})


def _rates(job, windows):
    seen = [job.observe() for _ in range(windows)]
    return [s.throughput for s in seen], sum(s.downtime_s for s in seen), seen


@BOTH
@pytest.mark.parametrize(
    ("before", "after", "during"),
    [
        ((1, 2), (1, 2, 2), 200),  # one comes: the two go on
        ((1, 2), (1, 2, 2, 1), 200),
        ((1, 2), (1, 1), 100),  # one moves
        ((1, 2, 2), (1, 2), 200),  # one goes: nobody starts anew
        ((1, 2, 1), (1, 1), 100),  # one goes and one moves
        ((1, 1), (1,), 100),
    ],
)
def test_only_those_that_come_or_move_stand_still(before, after, during, engine):
    job = _job(before, engine)
    assert _rates(job, 3)[0] == pytest.approx([100 * len(before)] * 3, rel=0.02)
    job.deploy(_on(after))
    rates, downtime, _ = _rates(job, 6)
    assert downtime == 0
    assert rates[:3] == pytest.approx([during] * 3, rel=0.03)  # the pause is six seconds
    assert rates[3:] == pytest.approx([100 * len(after)] * 3, rel=0.03)


@BOTH
@pytest.mark.parametrize(("before", "after"), [((1, 1), (2, 2)), ((1, 2), (2, 1))])
def test_where_all_come_or_move_the_operator_stands_still(before, after, engine):
    """Two that change places move as well, although as many run on each node as before."""
    job = _job(before, engine)
    job.observe()
    job.deploy(_on(after))
    rates, downtime, _ = _rates(job, 5)
    assert downtime == pytest.approx(6)
    assert rates == pytest.approx([0, 0, 0, 200, 200], abs=2)


@BOTH
def test_state_that_changes_nodes_prolongs_it(engine):
    """Half of 8 MB at 1 MB/s: four seconds more than the pause."""
    service = Service(1e-2, state_bytes=8e6, **STEADY)
    job = _job((1,), engine, service=service, pause_s=2, state_bytes_per_s=1e6)
    job.observe()
    job.deploy(_on((1, 2)))
    assert _rates(job, 4)[0] == pytest.approx([100, 100, 100, 200], rel=0.03)
    plant = Plant({"a": service}, NODES, pause_s=2, pause_kind="instances", state_bytes_per_s=1e6)
    swap = pauses(plant, _on((1, 2, 1)).placement, _on((2, 1, 1)).placement)
    assert swap["a"] == pytest.approx(2 + 2 / 3 * 8)
    assert pauses(plant, _on((1, 2)).placement, _on((1, 2, 1, 2)).placement)["a"] == 2  # doubled in place


@BOTH
def test_they_stand_still_through_other_changes(engine):
    """A node slows down and recovers meanwhile; then more come, and all that start wait for the longer time."""
    slow = NodeSlow(8, 2, node="n1", factor=0.5)
    job = _job((1,), engine, faults=(slow,))
    for _ in range(3):
        job.observe()
    job.deploy(_on((1, 2)))  # until 12 s
    assert _rates(job, 4)[0] == pytest.approx([100, 50, 100, 200], rel=0.04)
    job.deploy(_on((1, 2, 2)))  # at 14 s
    job.observe()
    job.deploy(_on((1, 2, 2, 2)))  # at 16 s: until 22 s for both
    assert _rates(job, 4)[0] == pytest.approx([200, 200, 200, 400], rel=0.04)


@BOTH
def test_an_instance_that_is_held_counts_no_work_and_loses_no_record(engine):
    job = _job((1, 2), engine, load=150)
    job.observe()
    job.deploy(_on((1, 2, 2, 2)))
    _, _, seen = _rates(job, 3)
    for s in seen:
        a = s.operators["a"]
        assert a.true_rate == pytest.approx(100, rel=0.01)
        assert a.cpu == pytest.approx(1.5, rel=0.06)
        assert a.utilisation == pytest.approx(1.5 / 4, rel=0.06)
    assert sum(s.throughput for s in seen) * 2 + seen[-1].lag == pytest.approx(900, rel=0.05)


@BOTH
def test_a_death_stops_only_who_ran_there(engine):
    fault = NodeDown(6, 30, node="n1")
    made = Plant({"a": Service(1e-2, **STEADY)}, NODES, pause_s=6, pause_kind="instances", faults=(fault,))
    job = Simulator(
        ONE, made, workload.Constant(1000), deployment=Deployment({"a": 2}), window_s=2, tick_s=0.25, engine=engine
    )
    rates, downtime, _ = _rates(job, 9)
    assert downtime == 0
    assert rates == pytest.approx([200] * 3 + [100] * 3 + [200] * 3, rel=0.03)


@BOTH
def test_a_queue_of_its_own_waits_for_its_instance_in_tuples_and_not_in_the_fluid(engine):
    """The fluid has one queue for all instances: the limit it has at dead nodes too."""
    service = Service(1e-2, grouping="split", **STEADY)
    job = _job((1,), engine, load=80, service=service)
    job.observe()
    job.deploy(_on((1, 2)))
    rates, _, _ = _rates(job, 3)
    assert sum(rates) / 3 == pytest.approx(40 if engine == "records" else 80, rel=0.15)
    later, _, _ = _rates(job, 5)
    assert (sum(rates) + sum(later)) / 8 == pytest.approx(80, rel=0.06)  # all of it is processed in the end


@BOTH
def test_a_micro_batch_waits_for_all(engine):
    job = _job((1,), engine, execution="micro-batch", load=50, trigger_s=0.1, batch_overhead_s=0.0)
    job.observe()
    job.deploy(_on((1, 2)))
    _, downtime, _ = _rates(job, 4)
    assert downtime == pytest.approx(6)
