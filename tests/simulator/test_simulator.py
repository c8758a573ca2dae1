"""The fluid cluster against conservation, arithmetic and queueing theory."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import Deployment, Plant, Simulator, Topology, run, workload
from dspkit.core import ArgumentError, DeploymentError, WorkloadError
from dspkit.policies.static import Static
from dspkit.simulator import Node, NodeDown, Service
from dspkit.simulator.fluid.kernel import fair_share
from dspkit.testing.strategies import deployments, plants, topologies

CHAIN = Topology.chain("a", "b", "c")
PLANT = Plant({"a": Service(1e-4), "b": Service(1e-3), "c": Service(2e-4)})


def _static(plant, load, parallelism=None, steps=10, topology=CHAIN, **options):
    deployment = Deployment(parallelism or topology.uniform())
    return run(Static(), Simulator(topology, plant, load, deployment=deployment, **options), steps=steps)


@given(st.data())
@settings(max_examples=60)
def test_records_are_neither_lost_nor_made(data):
    """In each window and for each operator: arrived = processed + refused or lost + growth of its queue.

    Under rescales and faults; edges carry what was sent, and each source record ends once.
    """
    topology = data.draw(topologies())
    plant = data.draw(plants(topology))
    load = workload.Square(0, data.draw(st.floats(0, 5000)), period_s=data.draw(st.floats(5, 60)))
    backend = Simulator(
        topology, plant, load, window_s=5, tick_s=0.25, seed=data.draw(st.integers(0, 99)), keep_ticks=True
    )
    before, offered, ended = dict.fromkeys(topology.order, 0.0), 0.0, 0.0
    for _ in range(6):
        s = backend.observe()
        offered, ended = offered + s.source_rate * s.window_s, ended + s.throughput * s.window_s
        for name, m in s.operators.items():
            service = plant.services[name]
            grown = (m.input_rate - m.processing_rate - m.dropped) * s.window_s
            assert m.backlog - before[name] == pytest.approx(grown, abs=1e-6 * (1 + m.input_rate))
            inflow = sum(s.edge_rates[p, name] for p in topology.upstream(name))
            assert m.input_rate == pytest.approx(inflow + s.source_rates.get(name, 0.0))
            for child in topology.downstream(name):
                assert s.edge_rates[name, child] == pytest.approx(m.processing_rate * service.toward(child))
            room = service.queue_records * m.parallelism
            if topology.upstream(name) or service.overflow == "drop":  # left over full by a scale-in, it only shrinks
                assert m.backlog <= max(room, before[name]) * (1 + 1e-9)
            before[name] = m.backlog
        assert all(0 <= cpu <= 1 + 1e-9 for cpu in s.nodes.values())
        cores = sum(node.cores * s.nodes.get(n, 0.0) for n, node in plant.nodes.items())  # of those that are up
        assert sum(m.cpu for m in s.operators.values()) == pytest.approx(cores, rel=1e-6, abs=1e-9)
        lost = backend.ticks.lost.iloc[-1]
        inside = backend._job.engine.mass
        dies = any(fault.loses for fault in plant.faults if isinstance(fault, NodeDown))
        if not dies and plant.pause_kind != "restart":
            assert ended + lost + inside == pytest.approx(offered, rel=1e-9, abs=1e-6)
        backend.deploy(data.draw(deployments(topology)))


@given(st.data())
@settings(max_examples=25)
def test_each_record_is_somewhere(data):
    """The same of the record-level engine, in whole records."""
    topology = data.draw(topologies(most=5))
    plant = data.draw(plants(topology, slowest=3e-2))
    load = workload.Square(0, data.draw(st.floats(0, 300)), period_s=data.draw(st.floats(5, 60)))
    backend = Simulator(topology, plant, load, window_s=5, seed=data.draw(st.integers(0, 99)), engine="records")
    inside = dict.fromkeys(topology.order, 0.0)  # waiting, in service, or in transit
    for _ in range(6):
        s = backend.observe()
        for name, m in s.operators.items():
            inside[name] += (m.input_rate - m.processing_rate - m.dropped) * s.window_s
            assert inside[name] == pytest.approx(round(inside[name]), abs=1e-6)
            assert m.backlog <= inside[name] + 1e-6
            inflow = sum(s.edge_rates[p, name] for p in topology.upstream(name))
            assert m.input_rate == pytest.approx(inflow + s.source_rates.get(name, 0.0))
        assert all(0 <= cpu <= 1 + 1e-9 for cpu in s.nodes.values())
        backend.deploy(data.draw(deployments(topology)))


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_throughput_is_the_least_of_load_and_bottleneck(parallelism):
    for load in (500, 3000, 20_000):
        history = _static(PLANT, workload.Constant(load), {"a": 9, "b": parallelism, "c": 9})
        assert history[-1].snapshot.throughput == pytest.approx(min(load, 1000 * parallelism))


def test_overload_waits_in_the_log_and_grows_by_the_difference():
    history = _static(PLANT, workload.Constant(1500))
    assert history.application.lag.diff().iloc[1:].tolist() == pytest.approx([5000] * 9)
    inner = history.operators[history.operators.operator == "b"].backlog
    assert inner.iloc[2:].tolist() == pytest.approx([1000] * 8)  # full, and never fuller
    wide = _static(PLANT, workload.Constant(9000), {"a": 1, "b": 3, "c": 1})[-1].snapshot
    assert wide.operators["b"].backlog == pytest.approx(3000)  # room for each instance


JOINS = {
    "a slow branch of the AuTraScale card's A4": (
        ("s", "a", "b", "j"),
        (("s", "a"), ("s", "b"), ("a", "j"), ("b", "j")),
        {"s": (1e4, 1), "a": (200, 0.5), "b": (5000, 2), "j": (3000, 1)},
        900,
        {"s": 200, "a": 200, "b": 200, "j": 500},  # a holds the source back; nobody else is near capacity
    ),
    "room that one of two cannot use goes to the other": (
        ("A", "B", "J", "S"),
        (("A", "S"), ("A", "J"), ("B", "J")),
        {"A": (1000, 1), "B": (1000, 1), "J": (1000, 1), "S": (10, 1)},
        9000,
        {"A": 10, "S": 10, "B": 990, "J": 1000},  # S holds A back; B may have what A leaves of J
    ),
}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("tick_s", [0.5, 0.1, 0.02])
def test_back_pressure_through_joins_is_that_of_arithmetic_whatever_the_tick(name, tick_s):
    names, edges, speeds, load, expected = JOINS[name]
    topology = Topology(names, edges)
    services = {n: Service(1 / rate, selectivity=s, queue_records=100) for n, (rate, s) in speeds.items()}
    last = _static(Plant(services), workload.Constant(load), topology=topology, tick_s=tick_s)[-1].snapshot
    assert {n: m.processing_rate for n, m in last.operators.items()} == pytest.approx(expected, rel=0.01)


def test_latency_at_a_full_queue_is_its_length_over_its_rate():
    """Little: 1,000 records before b, which does 1,000/s; theory's own waiting (M/M/1 at 95 %) comes on top."""
    last = _static(PLANT, workload.Constant(1500))[-1].snapshot
    assert last.latency is not None
    assert 1.0 < last.latency.mean < 1.0 + 0.001 / 0.05 + 0.002


def test_the_wait_in_a_growing_log_is_the_distance_between_the_curves():
    """Whoever leaves the log at t came at t' with 1500 t' = 1000 t + 1000: the room of b fills first."""
    last = _static(PLANT, workload.Constant(1500))[-1].snapshot
    t = last.t - last.window_s / 2
    assert last.event_latency.mean - last.latency.mean == pytest.approx(t - (1000 * t + 1000) / 1500, rel=1e-3)


def test_ticks_are_curves_whose_distance_is_the_wait():
    """The log drains in order: the same wait from the kept curves, by another function."""
    backend = Simulator(CHAIN, PLANT, workload.Square(0, 3000, period_s=40), window_s=10, tick_s=0.1, keep_ticks=True)
    seen = [backend.observe() for _ in range(12)]
    ticks = backend.ticks
    assert len(ticks) == 1200
    assert ticks.offered.iloc[-1] == pytest.approx(sum(s.source_rate * s.window_s for s in seen))
    left = ticks.offered - ticks.lag - ticks.lost  # taken from the log
    wait = ticks.t - np.interp(left, ticks.offered, ticks.t)  # t - A^-1(D(t))
    during = ticks.t.between(90.05, 100.05) & (left.diff() > 0)
    expected = np.average(wait[during], weights=left.diff()[during])
    waited = seen[9].operators["a"].waited_s
    assert waited == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("utilisation", [0.2, 0.5, 0.9, 0.94])
def test_latency_of_a_steady_chain_is_that_of_a_jackson_network(utilisation):
    """Each M/M/1 station holds a record 1 / (mu - lambda) on average."""
    rate = 1000 * utilisation
    last = _static(PLANT, workload.Constant(rate))[-1].snapshot
    expected = sum(1 / (mu - rate) for mu in (1e4, 1e3, 5e3))
    assert last.event_latency.mean == pytest.approx(expected, rel=1e-6)
    waiting = 1 / (1e4 - rate) - 1e-4  # in the log
    assert last.latency.mean == pytest.approx(expected - waiting, rel=1e-6)
    assert last.latency.p50 < last.latency.mean < last.latency.p95 < last.latency.p99


def test_latency_of_a_diamond_weighs_its_branches():
    topology = Topology(("s", "l", "r", "j"), (("s", "l"), ("s", "r"), ("l", "j"), ("r", "j")))
    services = {"s": Service(1e-4, selectivity=0.5), "l": Service(1e-3), "r": Service(5e-3), "j": Service(1e-3)}
    last = _static(Plant(services), workload.Constant(200), topology=topology)[-1].snapshot
    rates = {"s": 200, "l": 100, "r": 100, "j": 200}
    time = {n: 1 / (1 / s.seconds_per_record - rates[n]) for n, s in services.items()}
    assert last.event_latency.mean == pytest.approx(time["s"] + (time["l"] + time["r"]) / 2 + time["j"])


def test_latency_of_sources_weighs_them_by_their_records():
    topology = Topology(("l", "r", "j"), (("l", "j"), ("r", "j")))
    plant = Plant({"l": Service(1e-3), "r": Service(5e-3), "j": Service(1e-5)})
    loads = {"l": workload.Constant(100), "r": workload.Constant(10)}
    last = _static(plant, loads, topology=topology)[-1].snapshot
    time = {"l": 1 / (1000 - 100), "r": 1 / (200 - 10), "j": 1 / (1e5 - 110)}
    assert last.event_latency.mean == pytest.approx((10 * time["l"] + time["r"]) / 11 + time["j"])


def test_a_queue_in_one_branch_counts_for_the_records_that_take_it():
    topology = Topology(("s", "l", "r", "j"), (("s", "l"), ("s", "r"), ("l", "j"), ("r", "j")))
    services = {"s": Service(1e-5, selectivity=0.5), "l": Service(1e-5), "j": Service(1e-5)}
    services["r"] = Service(1e-2, queue_records=200)
    last = _static(Plant(services), workload.Constant(1000), topology=topology)[-1].snapshot
    steady = 0.01 / 0.05  # M/M/1 at the 95 % that the waiting term is capped at
    assert last.latency.mean == pytest.approx((200 / 100 + steady) / 2, rel=0.01)


def test_after_a_pause_the_load_of_the_time_that_was_left_makes_the_waiting():
    """Ten seconds of records in the five that the job was up: M/M/1 at twice the rate."""
    plant = Plant({"only": Service(1e-3)}, pause_s=5)
    backend = Simulator(Topology(("only",)), plant, workload.Constant(100), window_s=10, tick_s=0.01)
    backend.deploy(Deployment({"only": 2}))
    backend.deploy(Deployment({"only": 1}))
    s = backend.observe()
    queued = 5 * 500 / 2 + 500 / 900 * 500 / 2  # record-seconds: while it grows, while it drains
    assert s.event_latency.mean == pytest.approx(queued / 1000 + 1 / (1000 - 200), rel=1e-3)
    assert s.operators["only"].waited_s == pytest.approx(s.event_latency.mean - s.latency.mean)


def test_downtime_counts_in_utilisation():
    backend = Simulator(CHAIN, Plant(PLANT.services, pause_s=5), workload.Constant(9000), window_s=10)
    backend.observe()
    backend.deploy(Deployment({"a": 2, "b": 1, "c": 1}))
    b = backend.observe().operators["b"]
    assert (b.utilisation, b.true_rate) == (pytest.approx(0.5), pytest.approx(1000))


def test_a_second_rescale_in_a_pause_begins_the_pause_anew():
    backend = Simulator(CHAIN, Plant(PLANT.services, pause_s=10), workload.Constant(400), window_s=5)
    backend.deploy(Deployment({"a": 1, "b": 2, "c": 1}))
    first = backend.observe().downtime_s
    backend.deploy(Deployment({"a": 1, "b": 3, "c": 1}))
    assert first + sum(backend.observe().downtime_s for _ in range(6)) == pytest.approx(5 + 10)


def test_what_is_offered_is_the_integral_of_the_load():
    """A quarter of a sine: ticks taken at their start would be 2 % off."""
    load = workload.Sine(1000, 800, period_s=40)
    offered = Simulator(CHAIN, PLANT, load, window_s=10).observe().source_rate
    assert offered == pytest.approx(1000 + 800 * 2 / math.pi, rel=1e-3)


@pytest.mark.parametrize("pause_s", [4.0, 10.0, 12.25])
def test_a_rescale_stops_the_job_for_its_pause_and_loses_nothing(pause_s):
    plant = Plant(PLANT.services, pause_s=pause_s)
    backend = Simulator(CHAIN, plant, workload.Constant(400), window_s=5)
    backend.observe()
    backend.deploy(Deployment({"a": 1, "b": 2, "c": 1}))
    seen = [backend.observe() for _ in range(8)]
    assert sum(s.downtime_s for s in seen) == pytest.approx(pause_s)
    assert sum(s.throughput * s.window_s for s in seen) == pytest.approx(400 * 40)  # it has caught up
    assert seen[0].latency is None or pause_s < 5
    twice = Simulator(CHAIN, plant, workload.Constant(400), window_s=5)
    twice.deploy(twice.deployment)
    assert twice.observe().downtime_s == 0  # nothing changed, nothing stops


def test_lag_after_a_pause_is_load_times_pause():
    plant = Plant(PLANT.services, pause_s=10)
    backend = Simulator(CHAIN, plant, workload.Constant(400), window_s=10)
    backend.deploy(Deployment({"a": 1, "b": 2, "c": 1}))
    assert backend.observe().lag == pytest.approx(4000)


@pytest.mark.parametrize("k", [1, 2, 8])
def test_true_rate_follows_the_scalability_law_whatever_the_load(k):
    plant = Plant({**PLANT.services, "b": Service(1e-3, contention=0.05, coherency=0.01)})
    for load in (100, 100_000):
        b = _static(plant, workload.Constant(load), {"a": 20, "b": k, "c": 20})[-1].snapshot.operators["b"]
        assert b.true_rate == pytest.approx(1000 / (1 + 0.05 * (k - 1) + 0.01 * k * (k - 1)))


def test_utilisation_and_cpu_are_rate_times_service_time():
    m = _static(PLANT, workload.Constant(600), {"a": 1, "b": 2, "c": 1})[-1].snapshot.operators["b"]
    assert m.utilisation == pytest.approx(0.3)
    assert m.cpu == pytest.approx(0.6)


def test_instances_share_too_few_cores():
    """Four busy instances on one core do what one does; idle neighbours keep what they use."""
    plant = Plant({"a": Service(1e-5), "b": Service(1e-3), "c": Service(1e-5)}, nodes={"only": Node(1)})
    last = _static(plant, workload.Constant(10_000), {"a": 1, "b": 4, "c": 1})[-1].snapshot
    assert last.nodes["only"] == pytest.approx(1)
    assert last.throughput == pytest.approx(1 / (1e-3 + 2e-5))
    assert last.operators["b"].true_rate < 260


@pytest.mark.parametrize("seed", range(12))
def test_an_overloaded_node_is_busy_to_the_full(seed):
    """Whatever the graph: if more is asked for than its one core, none of it is idle."""
    r = random.Random(seed)
    names = [f"o{i}" for i in range(r.randint(3, 6))]
    edges = {(names[r.randrange(i)], names[i]) for i in range(1, len(names))}
    services = {n: Service(10 ** r.uniform(-4, -2), r.choice([0.5, 1, 2]), queue_records=50) for n in names}
    plant = Plant(services, nodes={"only": Node(1)})
    many = {n: r.randint(2, 4) for n in names}
    last = _static(plant, workload.Constant(20_000), many, topology=Topology(tuple(names), tuple(edges)))[-1].snapshot
    assert last.nodes["only"] == pytest.approx(1, rel=0.01)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=9), st.integers(1, 30))
def test_fair_share_fills_the_cores_or_satisfies_all(demands, cores):
    wanted, instances = (np.array(column, dtype=float) for column in zip(*demands, strict=True))
    one = np.ones(len(demands))
    share = fair_share(
        0, instances[None], one, 0 * one, np.array([float(cores)]), np.ones(1), one, wanted * instances,
        instances[None], instances, one.copy(),
    )  # fmt: skip
    used = float(instances @ np.minimum(wanted, share))
    assert used == pytest.approx(min(cores, sum(n * d for d, n in demands)))


def test_the_same_seed_is_the_same_run_bit_for_bit():
    noisy = Plant(PLANT.services, noise=0.2)
    load = workload.PoissonModulated(200, 1500, 50, 20, seed=4)
    first, again, other = (_static(noisy, load, steps=30, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first.application.throughput.tolist() != other.application.throughput.tolist()


def test_noise_has_the_spread_it_says_and_no_bias():
    """2,000 windows of a saturated operator, each bound five standard errors: false alarms 1 in 800,000."""
    noise, n = 0.5, 2000
    noisy = Plant(PLANT.services, noise=noise)
    true = _static(noisy, workload.Constant(5000), steps=n, window_s=1, tick_s=1).operators
    seconds = 1 / true[true.operator == "b"].true_rate
    kurtosis = 3 + 16 * noise**2 + 15 * noise**4 + 6 * noise**6 + noise**8  # of a lognormal of this variation
    assert seconds.mean() == pytest.approx(1e-3, rel=5 * noise / math.sqrt(n))
    assert seconds.std() / 1e-3 == pytest.approx(noise, rel=5 / 2 * math.sqrt((kurtosis - 1) / n))


def test_sources_may_have_loads_of_their_own():
    topology = Topology(("l", "r", "j"), (("l", "j"), ("r", "j")))
    plant = Plant({n: Service(1e-4) for n in "lrj"})
    loads = {"l": workload.Constant(10), "r": workload.Constant(30)}
    assert Simulator(topology, plant, loads).observe().source_rates == {"l": pytest.approx(10), "r": pytest.approx(30)}
    shared = Simulator(topology, plant, workload.Constant(40)).observe()
    assert shared.source_rates == {"l": pytest.approx(20), "r": pytest.approx(20)}
    for wrong, message in (
        ({"l": workload.Constant(1)}, "one per source"),
        (500, "a Workload"),
        ({"l": 1, "r": 1}, "a W"),
    ):
        with pytest.raises(WorkloadError, match=message):
            Simulator(topology, plant, wrong)


@pytest.mark.parametrize("more", [{"workers": 7}, {"placement": {("b", 0): "mars"}}, {"settings": {"x": 1}}])
def test_a_start_that_it_cannot_carry_out_is_refused(more):
    with pytest.raises(DeploymentError, match=next(iter(more))):
        Simulator(CHAIN, PLANT, workload.Constant(), deployment=Deployment(CHAIN.uniform(), **more))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Service(0), "seconds_per_record"),
        (lambda: Service(-1e-3), "seconds_per_record"),
        (lambda: Service(1e-3, selectivity=-1), "selectivity"),
        (lambda: Service(1e-3, selectivity={"b": math.nan}), "selectivity"),
        (lambda: Node(0), "cores"),
        (lambda: Plant(PLANT.services, nodes={}), "no nodes"),
        (lambda: Plant(PLANT.services, pause_s=-1), "pause_s"),
        (lambda: Plant({"a": Service()}).check(CHAIN), "services for"),
        (lambda: Plant({**PLANT.services, "a": Service(selectivity={"c": 1})}).check(CHAIN), "toward"),
        (lambda: Simulator(CHAIN, PLANT, workload.Constant(), window_s=1, tick_s=2), "tick_s"),
        (lambda: Simulator(CHAIN, PLANT, workload.Constant(), seed=-1), "seed"),
    ],
)
def test_a_plant_that_cannot_be_is_refused_before_anything_runs(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
