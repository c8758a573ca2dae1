"""The record-level engine counts every record, whatever happens to the job, and does what the plant says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import Deployment, Plant, Topology
from dspkit.core import BackendError
from dspkit.simulator import Link, Node, NodeDown, NodeSlow, Service, Skew, assign_processes, round_robin
from dspkit.simulator.layout import index_topology, layout, places
from dspkit.simulator.records import engine as tuples
from dspkit.simulator.records import state as record_state
from dspkit.simulator.records.engine import RecordEngine
from dspkit.simulator.system.plant import PROCESS_ASSIGNMENTS
from dspkit.testing.strategies import topologies

INF = math.inf
ONE, CHAIN = Topology(("a",)), Topology.chain("a", "b")
FAST = {"distribution": "deterministic", "queue_records": INF}


def numbers(topology, plant, parallelism, t=0.0, assigned=None):
    where = places(topology, plant, Deployment(parallelism), round_robin)
    if assigned is not None:
        before = dict(assigned)
        assigned.clear()
        assigned.update(assign_processes(plant, where, before))
    return layout(topology, plant, where, parallelism, t, assigned)


def made(topology, plant, parallelism=None, seed=0, arrivals="poisson"):
    k = topology.uniform() | (parallelism or {})
    return RecordEngine(index_topology(topology), numbers(topology, plant, k), np.random.default_rng(seed), arrivals)


def play(engine, topology, rate, seconds, pieces=1):
    line = np.array([[rate if name in topology.sources else 0.0 for name in topology.order]])
    engine.play(np.repeat(line, pieces, axis=0), np.full(pieces, seconds / pieces), np.ones(len(topology.order)))


def window(engine, topology, rate, seconds):
    play(engine, topology, rate, seconds)
    return engine.window()


@st.composite
def plants(draw, topology):
    services = {}
    for o in topology.operators:
        overflow = draw(st.sampled_from(["block", "drop"]))
        rooms = [1.0, 3.0, 50.0] + ([INF] if overflow == "block" else [])
        services[o.name] = Service(
            draw(st.floats(1e-3, 1.0)),
            selectivity={child: draw(st.sampled_from([0, 0.3, 1, 1.5, 4])) for child in topology.downstream(o.name)},
            queue_records=draw(st.sampled_from(rooms)),
            distribution=draw(st.sampled_from(["exponential", "deterministic", "gamma"])),
            cv=draw(st.floats(0.1, 3)),
            io_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
            overflow=overflow,
            external_rate_limit_per_s=draw(st.sampled_from([3.0, INF, INF])),
            grouping=draw(st.sampled_from(["shared", "split"])),
        )
    nodes = {f"n{j}": Node(draw(st.integers(1, 4))) for j in range(draw(st.integers(1, 3)))}
    at, lasting = st.floats(0, 60), st.floats(1, 40)
    faults = [
        NodeDown(draw(at), draw(lasting), node="n0"),
        NodeSlow(draw(at), draw(lasting), node=draw(st.sampled_from(list(nodes))), factor=0.2),
        Skew(draw(at), draw(lasting), operator=draw(st.sampled_from(topology.order)), share=draw(st.floats(0, 1))),
    ]
    delay, bandwidth = draw(st.sampled_from([0.0, 0.5])), draw(st.sampled_from([300.0, INF]))
    network = Link(delay_s=delay, bandwidth_bytes_per_s=bandwidth)
    processes, process_assignment = draw(st.sampled_from([0, 0, 1, 2, 3])), draw(st.sampled_from(PROCESS_ASSIGNMENTS))
    return Plant(
        services,
        nodes,
        network=network,
        faults=tuple(faults),
        processes=processes,
        process_assignment=process_assignment,
    )


def disturbed(data, engine, topology, plant, k, now, assigned):
    """A rescale, a pause, a loss, a fault or nothing; the instances that run from then on."""
    n = len(topology.order)
    event = data.draw(st.sampled_from(["rescale", "pause", "lose", "fault", "nothing"]))
    if event == "rescale":
        k = {name: data.draw(st.integers(1, 6)) for name in topology.order}
    if event in ("rescale", "fault"):
        engine.change(numbers(topology, plant, k, now, assigned))
    if event == "pause":
        engine.pause(np.array([data.draw(st.sampled_from([0.0, 3.0, 12.0])) for _ in range(n)]))
    if event == "lose":
        engine.lose(np.array([data.draw(st.sampled_from([0.0, 0.4, 1.0])) for _ in range(n)]))
    return k


@given(st.data())
@settings(max_examples=120)
def test_whatever_happens_every_record_is_somewhere(data):
    """Rescales, faults, pauses and losses at random: whole numbers add up exactly, source records to rounding."""
    topology = data.draw(topologies(most=5))
    plant = data.draw(plants(topology))
    k = {name: data.draw(st.integers(1, 6)) for name in topology.order}
    assigned = {} if plant.processes else None  # the process of each instance, kept from change to change
    first = numbers(topology, plant, k, assigned=assigned)
    engine = RecordEngine(index_topology(topology), first, np.random.default_rng(data.draw(st.integers(0, 99))))
    n, now = len(topology.order), 0.0
    queue, offered, ended, lost = np.zeros(n), 0.0, 0.0, 0.0
    for _ in range(data.draw(st.integers(2, 8))):
        k = disturbed(data, engine, topology, plant, k, now, assigned)
        seconds = data.draw(st.sampled_from([0.5, 8.0]))
        play(engine, topology, data.draw(st.sampled_from([0.0, 2.0, 30.0])), seconds, pieces=3)
        now += seconds
        w = engine.window()
        assert (w.arrived == w.done + w.dropped + w.queue - queue).all()
        for name, i in zip(topology.order, range(n), strict=True):
            into = [e for e, (_, v) in enumerate(topology.edges) if v == name]
            assert not into or w.arrived[i] == w.sent[into].sum()
        queue = w.queue
        state = engine._state
        offered, lost = float(state.g["offered"][0]), float(state.g["lost"][0])
        ended += w.ended
        assert ended + lost + engine.mass == pytest.approx(offered, rel=1e-9, abs=1e-9)
        assert engine.mass == pytest.approx(inside(state), rel=1e-9, abs=1e-6)
        assert (state.stations["far"] >= 0).all()
        assert state.stations["far"].sum() >= state.processes["n"].sum()
        assert (w.busy >= 0).all()
        assert (w.blocked >= 0).all()
        assert (w.busy + w.blocked <= np.array(list(k.values())) @ np.eye(n) * seconds * (1 + 1e-9) + 1e-9).all()
        cores = np.array([node.cores for node in plant.nodes.values()])
        assert (w.cores <= cores * seconds * (1 + 1e-9)).all()
        assert w.cores.sum() == pytest.approx(w.cpu.sum())
        assert 0 <= w.stopped <= seconds * (1 + 1e-9)


def unused(state):
    """The slots that hold no record."""
    free, slot = [], int(state.g["free"][0])
    while slot >= 0:
        free.append(slot)
        slot = int(state.recs["next"][slot])
    return free


def inside(state):
    """Source records inside, counted from the records themselves."""
    free = set(unused(state))
    held = {int(x["rec"]) for x in state.inst if x["state"] >= record_state.SENDING}
    rest = sum(state.recs["share"][c] for c in range(len(state.recs)) if c not in free | held)
    for x in state.inst[state.inst["state"] >= record_state.SENDING]:
        op = state.ops[x["op"]]
        whole = state.recs["share"][x["rec"]] / (op["out_end"] - op["out_at"])
        rest += x["share"] * x["left"] + whole * (op["out_end"] - 1 - x["edge"])
    return rest


def test_the_same_seed_is_the_same_run_bit_for_bit_however_it_is_cut():
    topology = Topology(("a", "b", "c"), (("a", "b"), ("a", "c")))
    services = {"a": Service(0.1, selectivity=1.5), "b": Service(0.2, distribution="gamma", cv=2), "c": Service(0.3)}
    plant = Plant(services, {"x": Node(1), "y": Node(2)}, network=Link(0.01, 1e4))

    def run(seed, cuts):
        engine, seen = made(topology, plant, {"a": 2, "b": 3, "c": 2}, seed), []
        for _ in range(cuts):
            play(engine, topology, 5.0, 240 / cuts, pieces=48 // cuts)
            seen.append(engine.window())
        return engine._state, seen

    (first, a), (again, b), (_, c) = (run(seed, 4) for seed in (7, 7, 8))
    for x, y, z in zip(a, b, c, strict=True):
        assert repr(x) == repr(y) != repr(z)
    cut, _ = run(7, 16)
    assert first.g["now"] == cut.g["now"]
    assert (first.recs == again.recs).all()
    for name in ("born", "taken", "since"):  # of each record ever made, to the last bit
        assert (first.recs[name] == cut.recs[name]).all()


def test_what_is_in_service_is_counted_where_it_is():
    """One record of 10 s with a window's end in its middle: half of the work is in each window."""
    plant = Plant({"a": Service(10.0, distribution="deterministic", io_share=0.3)}, {"x": Node(1)})
    for k in (1, 2):  # alone on a core, and on a node that may have to be shared
        engine = made(ONE, plant, {"a": k}, arrivals="even")
        play(engine, ONE, 0.2, 6.0)  # arrives at 5
        play(engine, ONE, 0.0, 5.0)
        first = engine.window()
        assert (first.busy[0], first.cpu[0], first.done[0], first.queue[0]) == pytest.approx((6, 6, 0, 1))
        second = window(engine, ONE, 0.0, 9.0)
        assert (second.busy[0], second.cpu[0], second.done[0], second.queue[0]) == pytest.approx((4, 1, 1, 0))
        assert second.latency.mean == pytest.approx(10)
        assert second.latency.p99 == pytest.approx(10, rel=1 / 128)


def test_what_a_pause_keeps_waiting_drains_at_the_spare_rate():
    """Fluid limit, nothing random: 5 a second come, 8 can be done; 20 s of pause take 20 * 5 / (8 - 5) s to undo."""
    plant = Plant({"a": Service(0.125, distribution="deterministic")})
    engine = made(ONE, plant, arrivals="even")
    window(engine, ONE, 5.0, 10.1)
    engine.pause(np.array([20.0]))
    paused = window(engine, ONE, 5.0, 20.0)
    assert (paused.done[0], paused.queue[0], paused.stopped, paused.busy[0]) == (0, 101, 20.0, 0)  # one was in service
    after = window(engine, ONE, 5.0, 30.0)
    assert after.queue[0] == pytest.approx(101 - 30 * 3, abs=1)
    last = window(engine, ONE, 5.0, 10.0)
    assert last.queue[0] <= 1
    assert last.stopped == 0
    assert after.busy[0] == pytest.approx(30)
    assert paused.done[0] + after.done[0] + last.done[0] == pytest.approx(300, abs=2)


def test_a_longer_pause_replaces_a_shorter_one_and_the_other_operators_go_on():
    plant = Plant({"a": Service(0.01, **FAST), "b": Service(0.01, **FAST)})
    engine = made(CHAIN, plant, arrivals="even")
    engine.pause(np.array([0.0, 5.0]))
    first = window(engine, CHAIN, 10.0, 3.0)
    engine.pause(np.array([0.0, 1.0]))  # ends sooner: nothing changes
    engine.pause(np.array([0.0, 4.0]))
    second = window(engine, CHAIN, 10.0, 10.0)
    assert (first.stopped, second.stopped) == (3.0, 4.0)
    assert first.done.tolist() == pytest.approx([30, 0], abs=1)
    assert second.done.tolist() == pytest.approx([100, 130], abs=1)


def test_an_external_server_stands_still_with_those_who_call_it():
    """A second a call: at 1.5 s one of three has its answer; after ten seconds of pause a fourth waits for all."""
    plant = Plant({"a": Service(0.001, external_rate_limit_per_s=1.0, distribution="deterministic")})
    engine = made(ONE, plant, {"a": 4}, arrivals="even")
    play(engine, ONE, 10.0, 0.35)
    assert window(engine, ONE, 0.0, 1.15).done[0] == 1
    engine.pause(np.array([10.0]))
    assert window(engine, ONE, 0.0, 10.0).done[0] == 0
    play(engine, ONE, 10.0, 0.1)
    assert window(engine, ONE, 0.0, 2.45).done[0] == 2
    assert engine.mass == 1
    assert window(engine, ONE, 0.0, 0.1).done[0] == 1  # at 14.101 s


def test_work_goes_on_where_it_stays_and_begins_anew_where_it_moves():
    """A record of 10 s, 6 s of which are done: at half speed it takes 8 s more; in another layout 10 s."""
    services = {"a": Service(10.0, distribution="deterministic")}
    slow = Plant(services, {"x": Node(4)}, faults=(NodeSlow(1.0, node="x", factor=0.5),))
    for k, rest in (({"a": 1}, 8.0), ({"a": 2}, 20.0)):
        engine = made(ONE, slow, {"a": 1}, arrivals="even")
        play(engine, ONE, 0.2, 6.0)
        play(engine, ONE, 0.0, 5.0)
        engine.change(numbers(ONE, slow, k, t=2.0))
        assert window(engine, ONE, 0.0, rest - 0.01).done[0] == 0
        assert window(engine, ONE, 0.0, 0.02).done[0] == 1


def test_a_node_that_is_down_does_nothing_and_its_work_waits_for_it():
    services = {"a": Service(10.0, distribution="deterministic", io_share=0.5)}
    plant = Plant(services, {"x": Node(4), "y": Node(4)}, faults=(NodeDown(1.0, 1.0, node="x"),))
    where = {("a", 0): "x", ("a", 1): "y"}
    up, down = (layout(ONE, plant, where, {"a": 2}, t) for t in (0.0, 1.5))
    engine = RecordEngine(index_topology(ONE), up, np.random.default_rng(0), "even")
    play(engine, ONE, 0.2, 6.0)  # at 5 s one begins on x
    engine.change(down)
    play(engine, ONE, 1.0, 3.0)  # one begins on y, two wait although x is idle but for a record that stands still
    w = engine.window()
    assert (w.queue[0], w.done[0], w.cores[0]) == (4, 0, pytest.approx(1.0))
    engine.change(up)
    assert window(engine, ONE, 0.0, 8.99).done[0] == 1
    assert window(engine, ONE, 0.0, 0.02).done[0] == 1


def test_what_is_lost_is_that_share_of_what_waits():
    plant = Plant({"a": Service(100.0, **FAST)})
    engine = made(ONE, plant, arrivals="even")
    before = window(engine, ONE, 1.0, 81.5)
    engine.lose(np.array([0.25]))
    after = window(engine, ONE, 0.0, 1.0)
    assert (before.queue[0], after.dropped[0], after.queue[0]) == (81, 20, 61)
    assert engine.mass == 61


def test_losing_a_share_of_few_is_right_on_average():
    """400 times 30 % of one waiting record: five standard errors, 1 false alarm in 1.7 million."""
    lost = 0
    for seed in range(400):
        engine = made(ONE, Plant({"a": Service(100.0, **FAST)}), seed=seed, arrivals="even")
        play(engine, ONE, 1.0, 2.5)
        engine.lose(np.array([0.3]))
        lost += engine.window().dropped[0]
    assert abs(lost - 120) <= 5 * math.sqrt(400 * 0.3 * 0.7)


def test_output_that_was_held_back_survives_a_rescale_to_fewer():
    """Six instances hold a record each that b has no room for; then there is one, and b gets all of them in time."""
    plant = Plant({"a": Service(0.001, **FAST), "b": Service(1.0, distribution="deterministic", queue_records=1)})
    engine = made(CHAIN, plant, {"a": 6}, arrivals="even")
    first = window(engine, CHAIN, 20.0, 2.2)
    assert first.blocked[0] > 6
    engine.change(numbers(CHAIN, plant, {"a": 1, "b": 1}))
    rest = window(engine, CHAIN, 0.0, 100.0)
    assert first.done[1] + rest.done[1] == first.arrived[0]
    assert rest.queue.tolist() == [0, 0]
    assert rest.blocked[0] <= 100


def test_arrivals_follow_the_rates_tick_by_tick():
    """Counts in 4,000 ticks of three rates: means within five standard errors, and the spread of Poisson."""
    engine = made(ONE, Plant({"a": Service(1e-4, **FAST)}))
    rates, counts = np.array([[3.0], [0.0], [17.0]]), []
    for _ in range(4000):
        for rate in rates:
            engine.play(rate[None], np.array([1.0]), np.ones(1))
            counts.append(engine.window().arrived[0])
    seen = np.reshape(counts, (-1, 3))
    for rate, column in zip(rates[:, 0], seen.T, strict=True):
        assert abs(column.mean() - rate) <= 5 * math.sqrt(rate / 4000)
        assert abs(column.var() - rate) <= 5 * math.sqrt((2 * rate**2 + rate) / 4000)
    even = made(ONE, Plant({"a": Service(1e-4, **FAST)}), arrivals="even")
    even.play(np.array([[0.25], [0.5], [0.0], [0.75]]), np.ones(4), np.ones(1))
    assert even.window().arrived[0] == 1  # a quarter, three quarters, no more, and 1.5 in the end
    even.play(np.array([[0.6]]), np.ones(1), np.ones(1))
    assert even.window().arrived[0] == 1


def test_noise_stretches_all_service_times():
    engine = made(ONE, Plant({"a": Service(0.1, distribution="deterministic")}), arrivals="even")
    engine.play(np.array([[1.0]]), np.array([10.5]), np.array([3.0]))
    assert engine.window().latency.mean == pytest.approx(0.3)


def test_memory_has_a_limit_that_says_so(monkeypatch):
    monkeypatch.setattr(tuples, "_MOST_BYTES", 10_000 * tuples._SLOT)
    engine = made(ONE, Plant({"a": Service(10.0)}))
    play(engine, ONE, 100.0, 50.0)
    with pytest.raises(BackendError, match="records waiting at"):
        play(engine, ONE, 100.0, 1000.0)


def test_a_window_in_which_nothing_happened_says_so():
    w = window(made(CHAIN, Plant({"a": Service(), "b": Service()})), CHAIN, 0.0, 10.0)
    assert (w.latency, w.event_latency, w.ended, w.stopped) == (None, None, 0.0, 0.0)
    assert np.isnan(w.waited_s).all()
    assert not w.queue.any()
