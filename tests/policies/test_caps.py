"""CAPS: costs and limits as the authors define them, searches against exhaustive ones, and a job that is relieved."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import dspkit
from dspkit import Deployment, Operator, Plant, Simulator, Topology, workload
from dspkit.policies.caps import CAPS, TaskGroup, costs, extremes, search, tuned
from dspkit.simulator import Node, NodeDown, Service

PROFILES = Path(__file__).parents[3] / "shared" / "recorded" / "capsys" / "singlequery_8slot"
measured = pytest.mark.recorded


def _query(name):
    """A profile of CAPSys: measured costs of one instance on AWS m5d.2xlarge."""
    return [
        TaskGroup(
            o["id"], o["parallelism"], o["compute"], o["state"], dict.fromkeys(o["downNode"], o["network"]),
            forward=o["outboundtype"] == "FORWARD",
        )
        for o in json.loads((PROFILES / f"{name}_updated.json").read_text())
    ]  # fmt: skip


def _cost_by_tasks(groups, plan):
    """As the authors' TestCostCorrectnessForAllPlans, task by task."""
    by = {g.name: g for g in groups}
    worst = [0.0, 0.0, 0.0]
    for here in plan:
        tasks = [g.name for g, n in zip(groups, here, strict=True) for _ in range(n)]
        load = [sum(by[t].compute for t in tasks), sum(by[t].state for t in tasks), 0.0]
        for t in set(tasks):
            for receiver, x in by[t].sends.items():
                n, r = tasks.count(t), tasks.count(receiver)
                away = max(0, n - r) if by[t].forward else (1 - r / by[receiver].instances) * n
                load[2] += away * x
        worst = [max(a, b) for a, b in zip(worst, load, strict=True)]
    return tuple(worst)


def _all_plans(groups, workers, slots):
    """Every way to spread the instances on numbered workers."""
    ways = [
        [w for w in itertools.product(range(g.instances + 1), repeat=workers) if sum(w) == g.instances] for g in groups
    ]
    for chosen in itertools.product(*ways):
        plan = tuple(zip(*chosen, strict=True))
        if max(map(sum, plan)) <= slots:
            yield plan


def _random_job(random):
    names = "abcd"[: random.integers(2, 5)]
    groups = []
    for i, name in enumerate(names):
        below = [n for n in names[i + 1 :] if n == names[i + 1] or random.random() < 0.4]
        groups.append(
            TaskGroup(
                name, int(random.integers(1, 4)), float(random.integers(1, 20)), float(random.integers(0, 5)),
                {n: float(random.integers(0, 9)) for n in below}, forward=bool(random.random() < 0.3),
            )
        )  # fmt: skip
    return groups


@pytest.mark.parametrize("seed", range(12))
def test_the_plans_are_those_of_an_exhaustive_search(seed):
    """All plans within the limits, of which none dominates another; and none is missing."""
    random = np.random.default_rng(seed)
    groups, workers = _random_job(random), int(random.integers(2, 4))
    slots = -(-sum(g.instances for g in groups) // workers) + 1
    alphas = tuple(random.uniform(0.2, 1.0, 3))
    least, most = extremes(groups, workers, slots)
    limits = [a + x * (b - a) + 1e-9 for a, b, x in zip(least, most, alphas, strict=True)]
    good = set()
    for plan in _all_plans(groups, workers, slots):
        cost = _cost_by_tasks(groups, plan)
        assert costs(groups, plan) == pytest.approx(cost)
        assert all(a - 1e-9 <= c <= b + 1e-9 for a, c, b in zip(least, cost, most, strict=True))
        if all(c <= x for c, x in zip(cost, limits, strict=True)):
            good.add(tuple(round(c, 6) for c in cost))
    best = {c for c in good if not any(d != c and all(x <= y for x, y in zip(d, c, strict=True)) for d in good)}
    found = search(groups, workers, slots, alphas, steps=10**6, plans=10**6)
    assert {tuple(round(c, 6) for c in costs(groups, p)) for p in found} == best
    for plan in found:
        assert max(map(sum, plan)) <= slots
        assert [sum(w[i] for w in plan) for i in range(len(groups))] == [g.instances for g in groups]


@measured
@pytest.mark.parametrize("query", ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6"])
def test_the_authors_queries_are_placed_within_tuned_limits(query):
    """Four workers with eight slots: no worker is loaded above the auto-tuned limits, by an independent count."""
    groups = _query(query)
    assert sum(g.instances for g in groups) <= 32
    alphas, plans = tuned(groups, 4, 8)
    assert plans
    least, most = extremes(groups, 4, 8)
    limits = [a + x * (b - a) for a, b, x in zip(least, most, alphas, strict=True)]
    for plan in plans:
        cost = _cost_by_tasks(groups, plan)
        assert all(c <= x * (1 + 1e-6) + 1e-9 for c, x in zip(cost, limits, strict=True))
        assert [sum(w[i] for w in plan) for i in range(len(groups))] == [g.instances for g in groups]
    in_turn = np.zeros((4, len(groups)), dtype=int)  # Flink's default and Storm's: one after the other
    tasks = [i for i, g in enumerate(groups) for _ in range(g.instances)]
    for at, i in enumerate(tasks):
        in_turn[at // 8, i] += 1  # slot by slot, a worker full first
    assert costs(groups, plans[0])[0] < costs(groups, tuple(map(tuple, in_turn)))[0]


@measured
def test_the_limits_of_the_inference_query_by_hand():
    """Q3: 19.75 + 4 x 1045.16 + 6 x 769.73 + 8 x 826.99 + 5 x 741.65 over four workers; the costliest eight tasks."""
    least, most = extremes(_query("Q3"), 4, 8)
    assert least[0] == pytest.approx((19.746955 + 4180.648753 + 4618.382287 + 6615.93144 + 3708.260312) / 4, rel=1e-6)
    assert most[0] == pytest.approx(4 * 1045.1621883 + 4 * 826.99143, rel=1e-6)
    assert least[2] == 0
    assert most[2] == pytest.approx(5 * 44.60072474 + 3 * 27.86467697, rel=1e-6)


def test_what_does_not_fit_has_no_plan():
    assert search([TaskGroup("a", 9, 1.0)], 2, 4, (1.0, 1.0, 1.0)) == []
    assert tuned([TaskGroup("a", 9, 1.0)], 2, 4)[1] == []


HEAVY = Topology(
    tuple(Operator(n, max_parallelism=8) for n in ("src", "heavy", "light", "end")),
    (("src", "heavy"), ("heavy", "light"), ("light", "end")),
)


def _job(load=180.0, placement=None, heavy=8, faults=()):
    """Two nodes of four cores; four heavy instances, which fill one node if they are put together."""
    plant = Plant(
        {"src": Service(1e-4), "heavy": Service(0.04), "light": Service(0.001), "end": Service(1e-4)},
        nodes={"n1": Node(4), "n2": Node(4)}, pause_s=1.0, faults=faults,
    )  # fmt: skip
    deployment = Deployment({"src": 1, "heavy": heavy, "light": 2, "end": 1}, placement=placement or {})
    return Simulator(HEAVY, plant, workload.Constant(load), window_s=10.0, deployment=deployment)


def test_a_crowded_node_is_relieved_and_the_placement_stays_then():
    crowded = {("heavy", i): "n1" for i in range(8)} | {("light", i): "n2" for i in range(2)}
    crowded |= {("src", 0): "n2", ("end", 0): "n2"}
    before = dspkit.run("static", _job(placement=crowded), steps=12)[-1].snapshot
    assert before.throughput < 0.6 * 180  # eight instances of one core each have four
    history = dspkit.run(CAPS(), _job(placement=crowded), steps=12)
    after = history[-1].snapshot
    homes = [after.deployment.placement["heavy", i] for i in range(8)]
    assert sorted(homes.count(n) for n in ("n1", "n2")) == [4, 4]
    assert after.throughput == pytest.approx(180, rel=0.02)
    assert sum(step.rescaled for step in history) <= 2  # the load that it places for is seen once it is relieved
    stay = [i for i in range(8) if homes[i] == "n1"]
    assert len(stay) == 4  # only those move that must


def _fails(source):
    """Four heavy instances on two nodes of four cores, of which one fails after 50 s for good."""
    placement = {("heavy", i): f"n{1 + i % 2}" for i in range(4)} | {("light", i): f"n{1 + i % 2}" for i in range(2)}
    placement |= {("src", 0): source, ("end", 0): "n1"}
    return _job(40.0, placement, heavy=4, faults=(NodeDown(50.0, 1e4, node="n2"),))


@pytest.mark.parametrize("source", ["n1", "n2"])  # on the node that fails: nothing flows, and no rate is measured
def test_a_node_that_is_down_is_left(source):
    history = dspkit.run(CAPS(), _fails(source), steps=15)
    after = history[-1].snapshot
    assert set(after.deployment.placement.values()) == {"n1"}
    assert after.throughput == pytest.approx(40, rel=0.02)


def test_a_placement_that_was_withheld_is_asked_for_until_it_runs():
    crowded = {("heavy", i): "n1" for i in range(8)} | {("light", i): "n2" for i in range(2)}
    crowded |= {("src", 0): "n2", ("end", 0): "n2"}
    policy, job = CAPS(), _job(placement=crowded)
    state = policy.init(HEAVY)
    for _ in range(3):  # a guard lets nothing through
        state, decision = policy.step(state, job.observe())
        assert decision.deployment.placement != crowded
        assert decision.why["rule"] == "places by contention"
    job.deploy(decision.deployment)
    state, decision = policy.step(state, job.observe())  # which measures the whole load for the first time
    job.deploy(decision.deployment)
    rules = []
    for _ in range(3):
        state, decision = policy.step(state, job.observe())
        rules.append(decision.why["rule"])
        assert decision.deployment == job.deployment
    assert rules[1:] == ["what it was placed for still holds"] * 2


def test_with_ds2_it_scales_and_places():
    job = _job(load=90.0)
    assert CAPS().needs == {"placement"}
    assert CAPS(scaling="ds2").needs == {"placement", "parallelism"}
    history = dspkit.run(CAPS(scaling="ds2"), job, steps=10)
    last = history[-1].snapshot.deployment
    assert last.parallelism["heavy"] == 4  # 90 x 0.04 = 3.6
    homes = [last.placement["heavy", i] for i in range(4)]
    assert sorted(homes.count(n) for n in ("n1", "n2")) == [2, 2]


def test_limits_that_nothing_keeps_change_nothing():
    policy = CAPS(limits="given", alpha_compute=0.0, alpha_network=0.0, alpha_state=0.0)
    history = dspkit.run(policy, _job(load=90.0), steps=3)
    assert not any(step.rescaled for step in history)
    assert history[-1].decision.why["rule"].startswith(("stays", "what it was placed for"))


def test_tables_that_are_no_numbers_are_refused():
    with pytest.raises(dspkit.DspkitError, match="state_io"):
        CAPS(state_io={"a": -1.0})
