"""Worker processes inside the record-level engine: waits have reasons, and changes and losses keep all in order."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import Deployment, Plant, Topology, workload
from dspkit.simulator import Link, Node, Service, Simulator, assign_processes
from dspkit.simulator.layout import index_topology, layout
from dspkit.simulator.records import state as record_state
from dspkit.simulator.records.engine import RecordEngine
from dspkit.simulator.records.relayout import waiting
from dspkit.testing.strategies import topologies
from simulator.test_processes import APART, FORK, fork, rates, service
from simulator.test_records import disturbed, numbers, plants, play, unused


def check_that_waits_have_a_reason(state):
    """A thread waits only before a full queue, and so does a sender; each slot is in one place and counted there."""
    heap, st = state.heaps[0], state.stations
    due = state.owners[int(heap["base"]) + int(heap["hole"]) : int(heap["base"]) + int(heap["n"])]
    way = [-1 - int(c) for c in due if c < 0]
    inboxes = [waiting(state, state.processes, p) for p in range(len(state.processes))]
    inside = [c for inbox in inboxes for c in inbox]
    queued = [c for q in range(len(st)) for c in waiting(state, st, q)]
    busy = [int(x["rec"]) for x in state.inst if x["state"] != record_state.IDLE]
    assert sorted([*unused(state), *way, *inside, *queued, *busy]) == list(range(len(state.recs)))
    assert np.bincount(state.recs["station"][[*way, *inside]], minlength=len(st)).tolist() == st["far"].tolist()
    full = st["n"] + st["coming"] + 1 > st["room"]
    threads = {int(state.recs["station"][inbox[0]]) for inbox in inboxes if len(inbox)}
    assert all(full[q] and not state.ops["drops"][st["op"][q]] for q in threads)
    assert set(np.flatnonzero(np.isfinite(st["thread_since"]))) == threads
    assert [bool(stuck) for stuck in state.processes["stuck"]] == [len(inbox) > 0 for inbox in inboxes]
    paused = state.ops["paused"][st["op"]] == 1
    assert (full | paused)[st["held"] >= 0].all()


@given(st.data())
@settings(max_examples=150)
def test_threads_and_senders_wait_only_before_full_queues(data):
    topology = data.draw(topologies(most=5))
    plant = replace(data.draw(plants(topology)), processes=data.draw(st.integers(1, 3)))
    k = {name: data.draw(st.integers(1, 4)) for name in topology.order}
    assigned, now = {}, 0.0
    engine = RecordEngine(
        index_topology(topology), numbers(topology, plant, k, assigned=assigned), np.random.default_rng(0)
    )
    for _ in range(data.draw(st.integers(2, 6))):
        play(engine, topology, data.draw(st.sampled_from([2.0, 30.0])), 8.0)
        now += 8.0
        check_that_waits_have_a_reason(engine._state)
        k = disturbed(data, engine, topology, plant, k, now, assigned)


def assigned(topology, plant, places, before=None):
    """The numbers of these places, and who sits where."""
    k = {name: sum(who[0] == name for who in places) for name in topology.order}
    now = assign_processes(plant, places, before or {})
    return layout(topology, plant, places, k, assigned=now), now


def made(plant, places, topology=FORK):
    return RecordEngine(
        index_topology(topology), assigned(topology, plant, places)[0], np.random.default_rng(0), "even"
    )


def test_a_share_of_what_waits_for_a_thread_is_lost_and_the_rest_is_worked_off():
    """Half of slow's, none of fast's; within five standard errors (1 false alarm in 1.7 million)."""
    engine = made(fork(1), APART)
    play(engine, FORK, 10.0, 400.0)
    inside = [int(n) for n in engine._state.stations["far"]]
    assert min(inside[1:]) > 1500
    engine.window()
    engine.lose(np.array([0.0, 0.5, 0.0]))
    play(engine, FORK, 0.0, 1e-3)
    lost = engine.window()
    assert lost.dropped[2] == 0
    assert abs(lost.dropped[1] - inside[1] / 2) < 5 * math.sqrt(inside[1] / 4) + 5
    play(engine, FORK, 0.0, 1000.0)
    rest = engine.window()
    assert rest.queue.tolist() == [0, 0, 0]
    assert rest.done[2] >= inside[2]
    assert engine.mass == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_lets_all_go_on_for_whom_there_is_room_now(seed):
    """The thread waits first, with a single record, then two senders; half of what the full queue holds is lost."""
    join = Topology(("a", "b", "far", "end"), (("a", "end"), ("b", "end"), ("far", "end")))
    plant = Plant({name: service(100) for name in join.order} | {"end": service(0.01)}, {"n": Node(), "m": Node()},
                  processes=1)  # fmt: skip
    places = {(name, 0): "m" if name == "far" else "n" for name in join.order}
    engine = RecordEngine(index_topology(join), assigned(join, plant, places)[0], np.random.default_rng(seed), "even")
    for rates_now in ([0.0, 0.0, 12 / 13, 0.0], [1.0, 1.0, 0.0, 0.0]):  # one in service, ten wait, the twelfth is stuck
        engine.play(np.array([rates_now]), np.array([13.5]), np.ones(4))
    state = engine._state
    assert state.processes["n"].tolist() == [0, 1] or state.processes["n"].tolist() == [1, 0]
    end = state.stations[3]
    assert np.isfinite(end["thread_since"])
    assert end["held"] >= 0
    engine.lose(np.array([0.0, 0.0, 0.0, 0.5]))
    play(engine, join, 0.0, 1e-3)
    assert engine._state.stations[3]["held"] < 0
    check_that_waits_have_a_reason(engine._state)


@pytest.mark.parametrize("processes", [0, 2])
def test_waiting_begins_where_the_record_arrives(processes):
    found = rates(FORK, fork(processes, network=Link(delay_s=0.5)), workload.Constant(4), APART)
    assert found["fast"].waited_s == pytest.approx(0.0, abs=1e-6)
    assert found["slow"].waited_s == pytest.approx(0.0, abs=1e-6)


def test_the_order_before_the_thread_outlives_a_change():
    """What waited first is taken in first, whatever the layout, and by the operator that it was for."""
    engine = made(fork(1), APART)
    play(engine, FORK, 10.0, 400.0)
    engine.change(assigned(FORK, fork(1), APART | {("a", 1): "m"})[0])
    state = engine._state
    (p,) = np.flatnonzero(state.processes["n"])
    there = waiting(state, state.processes, p)
    assert (np.diff(state.recs["since"][there]) >= 0).all()
    of = state.stations["op"][state.recs["station"][there]].tolist()
    assert set(of) == {1, 2}
    assert abs(of.count(1) - of.count(2)) < 30


def test_two_inboxes_become_one_in_the_order_of_arrival():
    """The processes of slow and fast each hold records back; then slow's instance and fast's share one."""
    services = {"a": service(100), "slow": service(2), "fast": service(3)}
    plant = Plant(services, {"n": Node(), "m": Node(), "o": Node()}, processes=1)
    engine = made(plant, {("a", 0): "m", ("slow", 0): "n", ("fast", 0): "o"})
    play(engine, FORK, 10.0, 100.0)
    assert sorted(engine._state.processes["n"] > 0) == [False, True, True]
    engine.change(assigned(FORK, plant, {("a", 0): "m", ("slow", 0): "n", ("fast", 0): "n"})[0])
    state = engine._state
    (p,) = np.flatnonzero(state.processes["n"])
    there = waiting(state, state.processes, p)
    assert (np.diff(state.recs["since"][there]) >= 0).all()
    assert (np.diff(state.recs["station"][there].astype(int)) != 0).sum() > 100  # well mixed


def test_what_is_on_its_way_to_an_instance_that_stays_still_comes_to_it():
    plant = fork(1)
    places = APART | {("slow", 1): "n"}
    engine = made(plant, places)
    play(engine, FORK, 30.0, 60.0)
    before = engine._state.stations["far"][1:3].tolist()
    assert min(before) > 100
    assert before[0] != before[1]
    engine.change(assigned(FORK, plant, places | {("a", 1): "m"})[0])
    assert engine._state.stations["far"][2:4].tolist() == before


THREE = Topology(("a", "b", "c"), (("a", "b"), ("a", "c")))


@pytest.mark.parametrize("process_assignment", ["spread", "together", "apart"])
def test_work_goes_on_where_another_operators_process_is_new(process_assignment):
    """b's 100 s go on though c comes to a process beside it, which may be a new one."""
    seconds = {"a": 1e-3, "b": 100.0, "c": 1e-3}
    services = {n: Service(s, distribution="deterministic", io_share=1.0) for n, s in seconds.items()}
    plant = Plant(services, {"n": Node(), "m": Node()}, processes=1, process_assignment=process_assignment)
    first = {("a", 0): "n", ("b", 0): "n", ("c", 0): "m"}
    start, sat = assigned(THREE, plant, first)
    engine = RecordEngine(index_topology(THREE), start, np.random.default_rng(0), "even")
    play(engine, THREE, 0.2, 6.0)
    play(engine, THREE, 0.0, 50.0)
    engine.change(assigned(THREE, plant, first | {("c", 0): "n"}, sat)[0])
    play(engine, THREE, 0.0, 50.0)
    assert engine.window().done[1] == 1


def test_work_begins_anew_where_the_process_is_another_though_the_node_is_the_same():
    """b0 leaves the node as b1 comes to its other process: nobody there can go on with b0's record."""
    seconds = {"a": 1e-3, "b": 100.0, "c": 1e-3}
    services = {n: Service(s, distribution="deterministic", io_share=1.0) for n, s in seconds.items()}
    plant = Plant(services, {"n": Node(), "m": Node()}, processes=2, process_assignment="together")
    first = {("a", 0): "m", ("b", 0): "n", ("b", 1): "m", ("c", 0): "n"}  # b0 in process 0 of n, c in 1
    start, sat = assigned(THREE, plant, first)
    engine = RecordEngine(index_topology(THREE), start, np.random.default_rng(0), "even")
    play(engine, THREE, 0.2, 6.0)
    play(engine, THREE, 0.0, 50.0)
    then = first | {("b", 0): "m", ("b", 1): "n", ("c", 1): "n", ("c", 2): "n"}
    now = {**sat, ("b", 0): ("m", 0), ("b", 1): ("n", 1), ("c", 1): ("n", 1), ("c", 2): ("n", 1)}
    k = {"a": 1, "b": 2, "c": 3}
    engine.change(layout(THREE, plant, then, k, assigned=now))
    play(engine, THREE, 0.0, 90.0)
    assert engine.window().done[1] == 0


def test_the_instance_that_comes_stands_still_and_not_another_of_its_operator():
    """b1 comes to c's process, where its full queue starves c until it works; b0 beside them goes on."""
    topology = Topology(("a", "d", "b", "c"), (("a", "d"), ("a", "b"), ("a", "c")))
    plant = Plant({n: service(1000) for n in topology.order}, {x: Node() for x in "nmo"}, processes=2,
                  process_assignment="together", pause_kind="instances", pause_s=20.0)  # fmt: skip
    places = {("a", 0): "m", ("d", 0): "n", ("b", 0): "n", ("c", 0): "n", ("b", 1): "o"}
    start = Deployment({"a": 1, "d": 1, "b": 2, "c": 1}, placement=places)
    sim = Simulator(topology, plant, workload.Constant(100), deployment=start, engine="records", arrivals="even")
    sim.observe()
    sim.deploy(replace(start, placement=places | {("b", 1): "n", ("d", 0): "o"}))
    sat = sim._job.processes
    assert sat["b", 1] == sat["c", 0] != sat["b", 0]
    sim.observe()
    moved = {**sim.deployment.placement, ("d", 0): "m"}
    sim.deploy(replace(start, placement=moved))  # another change while b1 still stands still
    seen = sim.observe().operators
    assert seen["c"].processing_rate < 10
    assert seen["b"].processing_rate == pytest.approx(50, rel=0.2)
    assert [sim.observe().operators["c"].processing_rate for _ in range(9)][-1] == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize("copies", [1, 3, 10])
def test_the_longest_waiting_is_first_though_a_sender_has_more_to_send(copies):
    join = Topology(("a", "b", "far", "end"), (("a", "end"), ("b", "end"), ("far", "end")))
    services = {name: service(100) for name in join.order} | {"end": service(6), "a": service(100, selectivity=copies)}
    plant = Plant(services, {"n": Node(), "m": Node()}, processes=1)
    places = {(name, 0): "m" if name == "far" else "n" for name in join.order}
    found = rates(join, plant, workload.Constant(300), places)
    assert found["b"].processing_rate == pytest.approx(2, rel=0.05)
