"""Worker processes as in Storm: one receiving thread each, which waits at a full instance."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import Deployment, Plant, Topology, simulate_many, workload
from dspkit.apps import App
from dspkit.core import ArgumentError
from dspkit.simulator import Cluster, Link, Node, Service, Simulator, assign_processes
from dspkit.simulator.system.plant import PROCESS_ASSIGNMENTS

INF = float("inf")
FORK = Topology(("a", "slow", "fast"), (("a", "slow"), ("a", "fast")))


def service(per_s, **options):
    return Service(1 / per_s, distribution="deterministic", io_share=1.0, queue_records=10, **options)


def rates(topology, plant, load, places, *, seconds=400.0, arrivals="even", seed=0):
    """Operators of the second half of a run."""
    k = {name: sum(who[0] == name for who in places) for name in topology.order}
    start = Deployment(k, placement=places)
    sim = Simulator(topology, plant, load, deployment=start, window_s=seconds / 2, engine="records", seed=seed,
                    arrivals=arrivals)  # fmt: skip
    sim.observe()
    return sim.observe().operators


def fork(processes, overflow="block", **options):
    """10 records/s to each branch, of which one does 5; all on one node but where `processes` parts them."""
    services = {"a": service(100), "slow": service(5, overflow=overflow), "fast": service(100)}
    return Plant(services, {"n": Node(), "m": Node()}, processes=processes, **options)


APART = {("a", 0): "m", ("slow", 0): "n", ("fast", 0): "n"}
TOGETHER = dict.fromkeys(APART, "n")


def test_a_full_instance_holds_up_all_that_come_to_its_process_and_nobody_who_sends():
    found = rates(FORK, fork(1), workload.Constant(10), APART)
    assert found["a"].processing_rate == pytest.approx(10, rel=0.01)
    assert found["a"].blocked == 0
    assert found["slow"].processing_rate == found["fast"].processing_rate == pytest.approx(5, rel=0.01)


def test_in_another_process_of_the_node_nobody_minds():
    found = rates(FORK, fork(2), workload.Constant(10), APART)
    assert found["fast"].processing_rate == pytest.approx(10, rel=0.01)
    assert found["slow"].processing_rate == pytest.approx(5, rel=0.01)


def test_who_sends_within_its_process_is_held_back():
    found = rates(FORK, fork(1), workload.Constant(10), TOGETHER)
    assert [m.processing_rate for m in found.values()] == pytest.approx([5, 5, 5], rel=0.02)
    assert found["a"].blocked > 0.4


def test_without_processes_the_queue_holds_back_its_sender_wherever_that_is():
    found = rates(FORK, fork(0), workload.Constant(10), APART)
    assert [m.processing_rate for m in found.values()] == pytest.approx([5, 5, 5], rel=0.02)


def test_where_a_full_queue_refuses_the_thread_goes_on():
    found = rates(FORK, fork(1, overflow="drop"), workload.Constant(10), APART)
    assert found["fast"].processing_rate == pytest.approx(10, rel=0.01)
    assert found["slow"].processing_rate == pytest.approx(5, rel=0.01)
    assert found["slow"].dropped == pytest.approx(5, rel=0.02)


def test_senders_and_thread_take_turns_at_a_full_queue():
    """Two senders in the process and the thread each get a third of what the full instance does."""
    join = Topology(("a", "b", "far", "end"), (("a", "end"), ("b", "end"), ("far", "end")))
    plant = Plant({name: service(100) for name in join.order} | {"end": service(6)}, {"n": Node(), "m": Node()},
                  processes=1)  # fmt: skip
    places = {(name, 0): "m" if name == "far" else "n" for name in join.order}
    found = rates(join, plant, workload.Constant(30), places)
    assert found["a"].processing_rate == pytest.approx(2, rel=0.05)
    assert found["b"].processing_rate == pytest.approx(2, rel=0.05)
    assert found["far"].processing_rate == pytest.approx(10, rel=0.01)
    assert found["end"].processing_rate == pytest.approx(6, rel=0.01)


def test_records_come_in_the_order_of_their_arrival_over_links_too():
    """Over a link with delay: the thread still lets only the mix through."""
    found = rates(FORK, fork(1, network=Link(delay_s=0.5)), workload.Constant(10), APART)
    assert found["fast"].processing_rate == pytest.approx(5, rel=0.01)


def test_a_restart_empties_the_inbox_too():
    """Overload, then a restart with enough instances: what waits is lost; without a loss it is worked off."""
    four = Deployment({"a": 1, "slow": 4, "fast": 1}, placement=APART | {("slow", i): "m" for i in range(1, 4)})
    start = Deployment(FORK.uniform(1), placement=APART)
    waiting, lost = {}, {}
    for kind in ("restart", "migration"):
        plant = fork(1, pause_kind=kind, pause_s=1.0)
        sim = Simulator(FORK, plant, workload.Constant(10), engine="records", deployment=start)
        for _ in range(30):
            before = sim.observe()
        assert sum(m.backlog for m in before.operators.values()) > 2000
        sim.deploy(four)
        after = sim.observe()
        lost[kind] = sum(m.dropped for m in after.operators.values()) * sim.window_s
        waiting[kind] = sum(m.backlog for m in after.operators.values())
    assert lost["restart"] > 2000
    assert waiting["restart"] < 100
    assert lost["migration"] == 0
    assert waiting["migration"] > 1000


def test_what_cannot_be_is_refused():
    app = App("x", FORK, fork(1), workload.Constant(10), 1.0, "none")
    load = workload.Constant(1)
    for call in (
        lambda: Simulator(FORK, fork(1), load),
        lambda: simulate_many(FORK, fork(1), load, Deployment(FORK.uniform())),
        lambda: Cluster({"x": app}),
        lambda: fork(1, execution="micro-batch"),
        lambda: fork(-1),
        lambda: fork(1, process_assignment="nowhere"),
    ):
        with pytest.raises(ArgumentError):
            call()


instances = st.tuples(st.sampled_from("ab"), st.integers(0, 5))
placed = st.dictionaries(instances, st.sampled_from(["n", "m"]), min_size=1)


@given(placed, st.lists(placed, max_size=3), st.integers(1, 4), st.sampled_from(PROCESS_ASSIGNMENTS))
def test_process_assignment(first, later, processes, process_assignment):
    """Everybody sits on its node, who stays on its node stays where it is, and newcomers go where the rule says."""
    plant = Plant({}, processes=processes, process_assignment=process_assignment)
    before = {}
    for places in [first, *later]:
        after = assign_processes(plant, places, before)
        assert {who: node for who, (node, _) in after.items()} == places
        stayed = {who for who, node in places.items() if before.get(who, (None, 0))[0] == node}
        assert all(after[who] == before[who] for who in stayed)
        for node in set(places.values()):
            come = [after[who][1] for who in places if places[who] == node and who not in stayed]
            there = np.bincount([after[who][1] for who in stayed if places[who] == node], minlength=processes)
            if process_assignment == "spread" or not there.any():
                now = there + np.bincount(come, minlength=len(there))
                touched = now[np.unique(come).astype(int)] if come else np.zeros(0)
                assert not come or max(come) < len(there)
                assert not come or touched.max() <= now.min() + 1
            elif process_assignment == "together":
                assert set(come) <= {int(np.argmin(there))}
            else:
                empty = np.flatnonzero(there == 0)
                assert set(come) <= {int(empty[0]) if len(empty) else len(there)}
        before = after


def test_apart_takes_an_empty_process_before_a_new_one():
    plant, sat, places = Plant({}, processes=1, process_assignment="apart"), {}, {}
    for i in range(4):
        places |= {("a", i): "n"}
        sat = assign_processes(plant, places, sat)
    assert [process for _, process in sat.values()] == [0, 1, 2, 3]
    sat = assign_processes(plant, {who: node for who, node in places.items() if who != ("a", 1)}, sat)
    assert assign_processes(plant, places, sat)["a", 1] == ("n", 1)


@pytest.mark.parametrize("process_assignment", PROCESS_ASSIGNMENTS)
def test_process_assignment_after_a_rescale_decides_the_throughput(process_assignment):
    """Two instances of fast join the node of slow, in whose process only what slow lets through arrives."""
    services = {"a": service(200), "slow": service(5), "fast": service(100)}
    plant = Plant(
        services,
        {"n": Node(), "m": Node(), "o": Node()},
        processes=1,
        process_assignment=process_assignment,
        pause_kind="restart",
    )
    start = {("a", 0): "m", ("slow", 0): "n", ("fast", 0): "o", ("fast", 1): "o"}
    sim = Simulator(FORK, plant, workload.Constant(10), engine="records", arrivals="even", window_s=100.0,
                    deployment=Deployment({"a": 1, "slow": 1, "fast": 2}, placement=start))  # fmt: skip
    assert sim.observe().operators["fast"].processing_rate == pytest.approx(10, rel=0.02)
    moved = start | {("fast", 0): "n", ("fast", 1): "n"}
    sim.deploy(replace(sim.deployment, placement=moved))
    for _ in range(3):
        seen = sim.observe().operators
    expected = 10 if process_assignment == "apart" else 5
    assert seen["fast"].processing_rate == pytest.approx(expected, rel=0.02)
