"""Micro-batches of single records against arithmetic, order statistics and conservation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dspkit import Deployment, Plant, Simulator, Topology
from dspkit.core import BackendError
from dspkit.simulator import Node, NodeDown, Service, Skew, round_robin
from dspkit.simulator.layout import index_topology, layout, places
from dspkit.simulator.records import microbatch
from dspkit.simulator.records.microbatch import MicrobatchRecords
from dspkit.testing.strategies import deployments, plants, topologies
from dspkit.workload import Constant

ONE, CHAIN = Topology(("a",)), Topology.chain("a", "b")
EXACT = {"distribution": "deterministic"}


def numbers(topology, plant, parallelism, t=0.0):
    return layout(topology, plant, places(topology, plant, Deployment(parallelism), round_robin), parallelism, t)


def made(
    topology, services, parallelism=None, seed=0, arrivals="even", trigger_s=1.0, overhead_s=0.1, most=math.inf, **plant
):
    k = topology.uniform() | (parallelism or {})
    numbered = numbers(topology, Plant(services, **plant), k)
    return MicrobatchRecords(
        index_topology(topology), numbered, np.random.default_rng(seed), trigger_s, overhead_s, arrivals, most
    )


def window(engine, topology, rate, seconds):
    line = np.array([[rate if name in topology.sources else 0.0 for name in topology.order]])
    engine.play(line, np.array([seconds]), np.ones(len(topology.order)))
    return engine.window()


def settled(engine, topology, rate):
    """After some batches that begin between two arrivals: the first one begins with a record, at another rate."""
    window(engine, topology, 7.0, 0.2)
    window(engine, topology, rate, 3.6)
    return engine


def mean_is(values, expected):
    """Student's t at 99.99 %: 1 false alarm in 10,000 seeds."""
    half = stats.t.ppf(0.99995, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - expected) <= half <= 0.05 * expected


def test_a_batch_takes_its_overhead_and_stage_after_stage():
    """Twelve records a second over two instances, and half as many over three: 0.1 + 6 * 0.01 + 2 * 0.05."""
    services = {"a": Service(0.01, selectivity=2.0, **EXACT), "b": Service(0.0125, **EXACT)}
    engine = settled(made(CHAIN, services, {"a": 2, "b": 3}), CHAIN, 12.0)
    w = window(engine, CHAIN, 12.0, 10.0)
    assert w.latency.mean == pytest.approx(0.1 + 6 * 0.01 + 8 * 0.0125)
    assert (w.done.tolist(), w.sent.tolist()) == ([120, 240], [240])
    assert w.busy == pytest.approx([1.2, 3.0])
    assert w.cores.sum() == pytest.approx(4.2)
    assert w.waited_s[0] == pytest.approx(0.5, abs=0.1)


def test_a_job_that_cannot_keep_up_does_one_over_the_sum_of_its_stages():
    """Not the least over operators: each record takes 0.01 / 2 + 2 * 0.01 / 4 s, and 10,000 of them 100 s."""
    services = {"a": Service(0.01, selectivity=2.0), "b": Service(0.01)}
    engine = made(CHAIN, services, {"a": 2, "b": 4}, arrivals="poisson", overhead_s=0.0)
    window(engine, CHAIN, 500.0, 20.0)
    assert window(engine, CHAIN, 0.0, 75.0).queue[0] > 0
    assert window(engine, CHAIN, 0.0, 12.0).queue[0] == 0


def test_a_batch_takes_the_oldest_and_no_more_than_it_may():
    """Ten of two sources that came first, every second; a thousand are there when the second batch begins."""
    topology = Topology(("a", "b", "c"), (("a", "c"), ("b", "c")))
    engine = made(topology, {n: Service(1e-6, **EXACT) for n in "abc"}, most=10, overhead_s=0.5)
    rates = np.array([[300.0, 200.0, 0.0]])
    engine.play(rates, np.array([2.3]), np.ones(3))
    engine.window()  # one of a's, as no other was there; then ten; and ten are taken
    rest = [window(engine, topology, 0.0, 1.0) for _ in range(113)]
    assert [w.done[2] for w in rest] == [10] * 113
    assert sum(w.done[0] for w in rest[:50]) == pytest.approx(300, abs=5)
    assert [w.waited_s[0] for w in rest[:-1]] == sorted(w.waited_s[0] for w in rest[:-1])
    assert rest[-1].event_latency.mean > 100


def test_the_length_of_batches_settles_where_it_holds_what_comes_meanwhile():
    """x = overhead + rate * x * s: a geometric series."""
    engine = made(ONE, {"a": Service(0.01, **EXACT)}, overhead_s=2.0)
    settled(engine, ONE, 60.0)
    window(engine, ONE, 60.0, 500.0)
    assert window(engine, ONE, 60.0, 500.0).latency.mean == pytest.approx(2.0 / (1 - 0.6), rel=0.01)


@pytest.mark.parametrize(("cores", "expected"), [(3, 1 + 1 / 2 + 1 / 3), (1, 3.0)])
def test_a_stage_ends_with_its_slowest_instance(cores, expected):
    """A record for each of three: the largest of three exponentials; on one core, whoever is last ends with the sum."""
    engine = made(ONE, {"a": Service(0.01)}, {"a": 3}, nodes={"x": Node(cores)}, overhead_s=0.0)
    settled(engine, ONE, 3.0)
    mean_is([window(engine, ONE, 3.0, 1.0).latency.mean for _ in range(12000)], 0.01 * expected)


def test_sums_of_service_times_have_the_spread_of_their_law():
    """Variance of a stage of 100 gamma records with cv 2: 100 * 4 * s^2, to five standard errors."""
    engine = made(ONE, {"a": Service(0.001, distribution="gamma", cv=2.0)}, overhead_s=0.0)
    settled(engine, ONE, 100.0)
    seen = np.array([window(engine, ONE, 100.0, 1.0).latency.mean for _ in range(4000)])
    mean_is(seen, 0.1)
    assert seen.var() == pytest.approx(100 * 4 * 1e-6, rel=5 * math.sqrt((2 + 6 * 4 / 100) / 4000))


def test_a_few_cores_are_shared_until_the_shortest_is_done():
    """All records at one of two instances take what they take; spread over four on one core, that too."""
    service, skew = {"a": Service(0.0005, **EXACT)}, (Skew(operator="a", share=1.0),)
    for cores in (1, 2):
        engine = made(ONE, service, {"a": 2}, nodes={"x": Node(cores)}, faults=skew, overhead_s=0.0)
        settled(engine, ONE, 1000.0)
        assert window(engine, ONE, 1000.0, 1.0).latency.mean == pytest.approx(0.5)
    split = {"a": Service(0.0005, grouping="split", **EXACT)}
    engine = made(ONE, split, {"a": 4}, nodes={"x": Node(1)}, overhead_s=0.0)
    settled(engine, ONE, 1000.0)
    assert window(engine, ONE, 1000.0, 1.0).latency.mean == pytest.approx(0.5)  # whoever is last: all of the work
    loose = made(ONE, split, {"a": 4}, nodes={"x": Node(4)}, overhead_s=0.0)
    settled(loose, ONE, 1000.0)
    assert 0.125 < window(loose, ONE, 1000.0, 1.0).latency.mean < 0.16  # the largest of four random parts


def test_an_external_server_takes_all_calls_of_a_stage():
    engine = made(ONE, {"a": Service(0.0001, external_rate_limit_per_s=100.0)}, {"a": 8}, overhead_s=0.0)
    settled(engine, ONE, 50.0)
    assert window(engine, ONE, 50.0, 1.0).latency.mean == pytest.approx(0.5)


def test_a_pause_freezes_the_batch_and_a_rescale_begins_it_anew():
    services, nodes = {"a": Service(0.1, **EXACT)}, {"x": Node(8)}
    engine = made(ONE, services, nodes=nodes, overhead_s=0.0, trigger_s=1.0)
    line = np.array([[5.0]])
    engine.play(line, np.array([2.3]), np.ones(1))  # five records from 1.2 on: done at 1.7; at 2.2 begins another
    engine.window()
    engine.pause(np.array([3.0]))
    paused = window(engine, ONE, 0.0, 3.0)
    assert (paused.stopped, paused.done[0], paused.busy[0]) == (3.0, 0, 0)
    assert window(engine, ONE, 0.0, 0.39).done[0] == 0
    assert window(engine, ONE, 0.0, 0.02).done[0] == 5
    engine.play(line, np.array([1.3]), np.ones(1))
    before = engine.window()
    engine.change(numbers(ONE, Plant(services, nodes=nodes), {"a": 5}))
    after = window(engine, ONE, 0.0, 3.0)
    assert before.arrived[0] + after.arrived[0] == before.done[0] + after.done[0] + after.queue[0]
    assert after.queue[0] == 0


def test_without_an_instance_that_is_up_nothing_moves_and_nothing_is_lost():
    plant = Plant({"a": Service(0.01)}, {"x": Node(4)}, faults=(NodeDown(5.0, 5.0, node="x"),))
    engine = made(ONE, plant.services, nodes=plant.nodes)
    window(engine, ONE, 10.0, 5.0)
    engine.change(numbers(ONE, plant, {"a": 1}, t=5.0))
    down = window(engine, ONE, 10.0, 5.0)
    engine.lose(np.ones(1))
    engine.change(numbers(ONE, plant, {"a": 1}, t=10.0))
    assert (down.done[0], down.stopped, down.cores[0]) == (0, 5.0, 0)
    assert window(engine, ONE, 0.0, 20.0).queue[0] == 0
    assert engine.mass == 0


@given(st.data())
@settings(max_examples=80)
def test_whatever_happens_every_record_is_somewhere(data):
    topology = data.draw(topologies(most=5))
    plant = data.draw(plants(topology))
    engine = made(
        topology, plant.services, data.draw(deployments(topology)).parallelism, data.draw(st.integers(0, 9)),
        "poisson", nodes=plant.nodes,
    )  # fmt: skip
    queue = np.zeros(len(topology.order))
    offered = ended = 0.0
    for _ in range(data.draw(st.integers(2, 6))):
        if data.draw(st.booleans()):
            engine.change(numbers(topology, plant, data.draw(deployments(topology)).parallelism))
        if data.draw(st.booleans()):
            engine.pause(np.full(len(queue), data.draw(st.sampled_from([0.5, 4.0]))))
        w = window(engine, topology, data.draw(st.sampled_from([0.0, 3.0, 100.0])), 3.0)
        assert (w.arrived == w.done + w.dropped + w.queue - queue).all()
        for i, name in enumerate(topology.order):
            into = [e for e, (_, v) in enumerate(topology.edges) if v == name]
            offered += 0 if into else w.arrived[i] - w.dropped[i]
            assert not into or w.arrived[i] == w.sent[into].sum()
        ended, queue = ended + w.ended, w.queue
        assert ended + engine.mass == offered
        cores = np.array([node.cores for node in plant.nodes.values()])
        assert (w.cores <= cores * 3.0 * (1 + 1e-9)).all()
        assert (w.busy >= 0).all()
        assert w.cores.sum() == pytest.approx(w.cpu.sum())


def test_the_same_seed_is_the_same_run_however_it_is_cut():
    def run(seed, cuts):
        services = {"a": Service(0.01, selectivity=1.5), "b": Service(0.002, grouping="split")}
        engine = made(CHAIN, services, {"a": 2, "b": 3}, seed, "poisson", nodes={"x": Node(2)})
        return [window(engine, CHAIN, 50.0, 64.0 / cuts) for _ in range(cuts)]

    assert repr(run(3, 4)) == repr(run(3, 4)) != repr(run(4, 4))
    assert sum(w.latency.mean * w.ended for w in run(3, 4) if w.latency) == pytest.approx(
        sum(w.latency.mean * w.ended for w in run(3, 16) if w.latency), rel=1e-12
    )


def test_a_source_that_drops_and_memory_have_limits(monkeypatch):
    engine = made(ONE, {"a": Service(10.0, queue_records=7, overflow="drop")})
    w = window(engine, ONE, 10.0, 10.05)
    assert (w.arrived[0], w.dropped[0], w.queue[0] + w.done[0]) == (100, 92, 8)  # one batch of one began at once
    monkeypatch.setattr(microbatch, "_MOST_BYTES", 20_000)
    with pytest.raises(BackendError, match="records waiting at"):
        window(made(ONE, {"a": Service(10.0)}), ONE, 1000.0, 100.0)


def test_no_window_shows_more_cores_than_busy_instances():
    """Windows that cut through batches, on a node with fewer cores than instances and skewed work."""
    services = {"a": Service(0.02, io_share=0.5, cv=2.0, distribution="gamma"), "b": Service(0.05)}
    plant = Plant(services, {"n": Node(2)}, execution="micro-batch", trigger_s=10.0)
    sim = Simulator(
        Topology.chain("a", "b"), plant, Constant(25), deployment=Deployment({"a": 3, "b": 4}), window_s=1.3,
        engine="records", seed=4,
    )  # fmt: skip
    for _ in range(80):
        for m in sim.observe().operators.values():
            assert m.cpu <= m.utilisation * m.parallelism + 1e-9
