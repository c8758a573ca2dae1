"""The oracle: exhaustive search finds nothing cheaper, and nobody beats it, whatever the job and the policy."""

import re
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import Decision, Deployment, Simulator, Topology, apps, workload
from dspkit.apps import App
from dspkit.comparison import ComparisonRun, Rules, oracle, standard_loads, standard_policies
from dspkit.comparison.cases import runs_of
from dspkit.comparison.oracle import PathOperator, cheapest_path
from dspkit.core import ArgumentError
from dspkit.simulator import Link, Node, NodeDown, NodeSlow, Plant, Service
from dspkit.testing.strategies import plants
from dspkit.testing.strategies import topologies as graphs


@dataclass(frozen=True)
class Plan:
    """Runs what it is told, window after window."""

    then: tuple
    name = "plan"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        at = min(state, len(self.then) - 1)
        return state + 1, Decision(snapshot.deployment.scaled(self.then[at]))


def _walk(o, ks, window_s, penalty, change_cost):
    """What one sequence of instances costs, tick by tick."""
    waits, stop, cost = 0.0, 0.0, 0.0
    for w, k in enumerate(ks):
        if w and ks[w - 1] != k:
            stop, cost = o.pause_s, cost + change_cost
        able = o.able[w][list(o.ks).index(k)]
        for came, tick in zip(o.arrivals[w], o.ticks, strict=True):
            still = min(stop, tick)
            stop -= still
            waits = max(0.0, waits + came - able * (tick - still))
        late = waits > o.allowed[w]
        cost += window_s * k + late * penalty * window_s
        waits = 0.0 if late and o.loses else waits
    return cost


@given(data=st.data())
@settings(max_examples=60)
def test_dynamic_programming_finds_what_exhaustive_search_finds(data):
    draw = data.draw
    windows, ks = draw(st.integers(1, 5)), np.arange(1, draw(st.integers(2, 3)) + 1)
    ticks = np.full(2, 5.0)
    numbers = st.integers(0, 40).map(float)
    o = PathOperator(
        ks,
        np.array([[draw(numbers) for _ in ticks] for _ in range(windows)]),
        np.array([[draw(st.floats(0.8, 1.2)) * k for k in ks] for _ in range(windows)]),
        ticks,
        np.array([draw(st.sampled_from([0.0, 5.0, 30.0])) for _ in range(windows)]),
        draw(st.sampled_from([0.0, 3.0, 10.0, 13.0, 25.0])),
        draw(st.booleans()),
    )
    penalty, change = draw(st.sampled_from([0.0, 0.7, 3.0])), draw(st.sampled_from([0.0, 4.0, 30.0]))
    found = cheapest_path(o, 10.0, penalty, change)
    every = {ks_: _walk(o, ks_, 10.0, penalty, change) for ks_ in product(ks.tolist(), repeat=windows)}
    assert found.cost == pytest.approx(min(every.values()), rel=1e-9)
    assert _walk(o, found.instances, 10.0, penalty, change) == pytest.approx(found.cost, rel=1e-9)


def _paid(topology, plant, load, ks, *, target_latency_s, penalty, change_cost, windows, seed=0):
    """What a simulated run costs, lateness told from what came and what ended."""
    first, *then = ks
    sim = Simulator(topology, plant, load, deployment=Deployment(first), seed=seed, tick_s=1.0)
    came, done, cost = [], [], 0.0
    for w in range(windows):
        s = sim.observe()
        came.append(s.source_rate * 10)
        done.append(s.throughput * 10)
        recent = target_latency_s * s.source_rate  # no longer than a window
        late = sum(came) - sum(done) > recent + 1e-6 * sum(came)
        cost += 10 * s.deployment.instances + late * penalty * 10
        if w + 1 < windows:
            cost += change_cost * (then[w] != ks[w])
            sim.deploy(sim.deployment.scaled(then[w]))
    return cost


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("pause_s", [0.0, 4.0, 13.0])
def test_for_one_operator_it_is_the_cheapest_of_all_simulated_runs(pause_s, noise):
    topology = Topology.chain("work", max_parallelism=3)
    plant = Plant({"work": Service(0.01, contention=0.05)}, pause_s=pause_s, noise=noise)
    load = workload.Trace((0, 10, 25, 40), (60, 240, 150, 20))
    rules = dict(target_latency_s=5.0, penalty=4.0, change_cost=7.0)
    found = oracle(topology, plant, load, duration_s=50, tick_s=1.0, seed=5, **rules)
    plans = product([{"work": k} for k in (1, 2, 3)], repeat=5)
    cheapest = min(_paid(topology, plant, load, ks, windows=5, seed=5, **rules) for ks in plans)
    assert found.cost == pytest.approx(cheapest, rel=1e-9)


def test_where_only_new_instances_wait_it_lets_the_others_work():
    topology = Topology.chain("work", max_parallelism=3)
    plant = Plant({"work": Service(0.01)}, pause_s=8.0, pause_kind="instances")
    load, rules = workload.Trace((0, 10, 20), (95, 195, 250)), dict(target_latency_s=2.0, penalty=4.0, change_cost=0.0)
    found = oracle(topology, plant, load, duration_s=40, tick_s=1.0, **rules)
    plans = product([{"work": k} for k in (1, 2, 3)], repeat=4)
    cheapest = min(_paid(topology, plant, load, ks, windows=4, **rules) for ks in plans)
    assert 0.8 * cheapest <= found.cost <= cheapest + 1e-6
    halted = oracle(topology, replace(plant, pause_kind="rebalance"), load, duration_s=40, tick_s=1.0, **rules)
    assert halted.cost > cheapest  # if all stood still nothing would be so cheap


def test_for_two_operators_no_simulated_run_is_cheaper_and_the_gap_is_small():
    topology = Topology.chain("a", "b", max_parallelism=2)
    plant = Plant({"a": Service(0.01), "b": Service(0.008)}, pause_s=3.0)
    load = workload.Trace((0, 20), (60, 170))
    rules = dict(target_latency_s=5.0, penalty=4.0, change_cost=1.0)
    found = oracle(topology, plant, load, duration_s=40, tick_s=1.0, **rules)
    each = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)]
    cheapest = min(_paid(topology, plant, load, ks, windows=4, **rules) for ks in product(each, repeat=4))
    assert 0.9 * cheapest <= found.cost <= cheapest + 1e-6


@given(data=st.data())
@settings(max_examples=60)
def test_nobody_beats_it_on_random_jobs(data):
    """Random graphs, services, queues that block or drop, pauses, noise, faults, loads, and random deployments."""
    draw = data.draw
    topology = draw(graphs())
    plant = draw(plants(topology))
    nodes = list(plant.nodes)
    faults = draw(st.sampled_from([(), (NodeDown(20, 15, node=nodes[0]),), (NodeSlow(20, 30, node=nodes[-1]),),
                                   (NodeDown(20, 15, node=nodes[0], loses=True),)]))  # fmt: skip
    kind = draw(st.sampled_from(["rebalance", "restart", "savepoint", "in-place", "migration", "instances"]))
    plant = replace(plant, noise=draw(st.sampled_from([0.0, 0.2])), pause_kind=kind, faults=faults)
    high = draw(st.sampled_from([20.0, 200.0, 5000.0]))
    square, chance = workload.Square(0.1 * high, high, 40), workload.PoissonModulated(0.0, high, 30, 20)
    load = draw(st.sampled_from([workload.Constant(high), square, chance, workload.Jump(high, 0.0, 50)]))
    seed = draw(st.integers(0, 50))
    random = np.random.default_rng(seed)
    plan = tuple(
        {o.name: int(random.integers(o.min_parallelism, min(o.max_parallelism, 6) + 1)) for o in topology.operators}
        for _ in range(8)
    )
    keep = draw(st.integers(1, 4))
    rules = Rules(80.0, 10.0, 1.0, target_latency_s=draw(st.sampled_from([0.1, 2.0, 15.0])), penalty=draw(
        st.sampled_from([None, 0.0, 1.0, 50.0])), change_cost=draw(st.sampled_from([0.0, 5.0])))  # fmt: skip
    app = App("job", topology, plant, load, 1.0, "")
    policy = Plan(tuple(plan[i // keep] for i in range(8)))
    run = ComparisonRun(("plan", "load", "job", "own"), seed, policy, app, load, Deployment(plan[0]), rules)
    paid, bound = run.row()["cost"], run.oracle().cost
    assert paid >= bound * (1 - 1e-9) - 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("app", [apps.rolling_top_words(), apps.linear(), apps.tweet_words()],
                         ids=lambda app: app.name)  # fmt: skip
def test_no_policy_beats_it(app):
    rules, loads = Rules(1200.0, change_cost=20.0), standard_loads(1200.0, only=["square", "bursts", "day"])
    rows = [run.row() for run in runs_of(standard_policies(), loads, app, None, [3], rules)]
    bound = 0.0
    for row in rows:
        assert not row["error"], row
        bound = row["cost"] if row["policy"] == "oracle" else bound
        assert row["cost"] >= bound * (1 - 1e-9)


def test_what_the_bound_is_made_of():
    app = apps.linear()
    calm = oracle(app.topology, app.plant, workload.Constant(100), duration_s=100)
    assert calm.instance_seconds == calm.cost == 100 * 4  # one instance each is enough
    assert not any(any(late) for late in calm.violated.values())
    flooded = oracle(app.topology, replace(app.plant, noise=0.0), workload.Constant(1e9), duration_s=100, penalty=2)
    assert flooded.cost == pytest.approx(100 * 4 + 2 * 100)  # hopeless: it pays for lateness, and runs the least
    free = oracle(app.topology, app.plant, workload.Constant(1e9), duration_s=100, penalty=0)
    assert free.cost == 100 * 4
    load = workload.Square(300, 3000, 400)
    dear = [oracle(app.topology, app.plant, load, duration_s=800, change_cost=c) for c in (0.0, 100.0, 1e5)]
    changes = [sum(a != b for ks in o.parallelism.values() for a, b in pairwise(ks)) for o in dear]
    assert changes[0] > 0
    assert changes == sorted(changes, reverse=True)
    assert changes[-1] == 0
    assert dear[0].cost <= dear[1].cost <= dear[2].cost


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (dict(target_latency_s=-1), "target_latency_s=-1; expected a finite number from 0 up"),
        (dict(penalty=float("nan")), "penalty=nan; expected a finite number from 0 up"),
        (dict(change_cost="2"), "change_cost='2'; expected a finite number from 0 up"),
        (dict(duration_s=25), "duration_s=25, window_s=10.0; expected whole windows"),
        (dict(window_s=0), "window_s=0; expected whole windows"),
        (dict(window_s="x"), "window_s='x'; expected whole windows"),
        (dict(tick_s=0), "tick_s=0, start_s=0.0; expected 0 < tick_s <= window_s"),
        (dict(duration_s=float("nan")), "duration_s=nan, window_s=10.0; expected whole windows"),
        (dict(start_s=None), "tick_s=1.0, start_s=None"),
    ],
)
def test_an_argument_outside_its_range_is_named_with_what_is_expected(bad, told):
    app = apps.linear()
    with pytest.raises(ArgumentError, match=re.escape(told)):
        oracle(app.topology, app.plant, workload.Constant(100), **{"duration_s": 100, **bad})


def test_links_and_short_nodes_only_make_runs_worse():
    topology = Topology.chain("a", "b", max_parallelism=4)
    plant = Plant({"a": Service(0.01), "b": Service(0.01)}, {"n1": Node(1), "n2": Node(2, speed=0.5)}, pause_s=2.0,
                  network=Link(0.01, 1e3))  # fmt: skip
    app = App("job", topology, plant, workload.Constant(150), 1.0, "")
    for ks in ({"a": 2, "b": 2}, {"a": 4, "b": 4}):
        run = ComparisonRun(("p", "l", "j", "own"), 0, Plan((ks,)), app, app.workload, Deployment(ks), Rules(100.0))
        assert run.row()["cost"] >= run.oracle().cost
