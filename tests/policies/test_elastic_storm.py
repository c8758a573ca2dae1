"""Elastic Storm in runs: whose turn it is, who keeps a decision back, where executors go; and places by themselves."""

import math
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import Deployment, Topology, apps, run
from dspkit.core import ArgumentError, Operator
from dspkit.migration import crossing, executor_traffic, groups, least_traffic, relocate
from dspkit.policies.elastic_storm import ElasticStorm, Rota, turn
from dspkit.policies.guards import Bounded, RescaleBudget


@given(st.integers(1, 40), st.data())
def test_groups_are_even_neighbours_and_all(tasks, data):
    executors = data.draw(st.integers(1, tasks))
    made = groups(tasks, executors)
    sizes = [len(g) for g in made]
    assert [t for g in made for t in g] == list(range(tasks))
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_places_move_hardly_more_than_the_best_ones_do():
    """Against all placements of up to five executors on three nodes; never fewer, and exactly as few while growing
    in place with room for all."""
    chance, ours, least = random.Random(0), 0, 0
    for _ in range(150):
        nodes, tasks = ["a", "b", "c"], chance.randint(2, 10)
        old, new = (chance.randint(1, min(5, tasks)) for _ in range(2))
        before = [chance.choice(nodes) for _ in range(old)]
        room = dict.fromkeys(nodes, math.ceil(new / 3))
        found = relocate(tasks, before, new, room=room)
        home = {t: n for g, n in zip(groups(tasks, old), before, strict=True) for t in g}
        away = [{n: sum(home[t] != n for t in g) for n in nodes} for g in groups(tasks, new)]
        allowed = [p for p in product(nodes, repeat=new) if all(p.count(n) <= room[n] for n in nodes)]
        best = min(sum(away[e][n] for e, n in enumerate(p)) for p in allowed)
        assert found.moved == sum(away[e][n] for e, n in enumerate(found.nodes)) >= best
        assert all(found.nodes.count(n) <= room[n] for n in nodes)
        ours, least = ours + found.moved, least + best
        if new % old == 0 and tasks % new == 0:
            assert relocate(tasks, before, new).moved == 0
    assert ours <= 1.1 * least


def test_places_that_cannot_be():
    with pytest.raises(ArgumentError, match="no room"):
        relocate(4, ["a"], 2, room={"a": 1})
    with pytest.raises(ArgumentError, match="sizes"):
        relocate(4, ["a"], 2, sizes=[1, 2])


def test_least_traffic_keeps_a_chain_together():
    """Three executors fit on one node; of two slots a node, the thinner stream crosses."""
    chain, one = Topology.chain("a", "b", "c"), {"a": 1, "b": 1, "c": 1}
    rates = {("a", "b"): 9.0, ("b", "c"): 8.0}
    flow = executor_traffic(chain, one, rates)
    for slots, cut in ((3, 0.0), (2, 8.0)):
        assert crossing(flow, least_traffic(chain, one, rates, ["n1", "n2"], slots)) == cut
    with pytest.raises(ArgumentError, match="slots"):
        least_traffic(chain, one, rates, ["n1", "n2"], slots=1)


def test_topologies_take_turns_one_at_a_time_and_rest():
    rota, chosen = Rota(), []
    for _ in range(8):
        rota, name = turn(rota, {"a": {"x": 2}, "b": {"y": 2}, "c": {}}, rest=2)
        chosen.append(name)
    assert chosen == ["a", "b", None, "a", "b", None, "a", "b"]  # decided at g, again at g + rest + 1 at the earliest
    assert turn(Rota(last="gone"), {"a": {}}, 2) == (Rota(last="gone"), None)


def _job(**options):
    app = apps.detector(executors=20)
    return app.simulator(seed=1, **options)


def test_a_decision_that_is_kept_back_is_no_reason_to_rest():
    history = run(RescaleBudget(ElasticStorm(), changes=0), _job(), steps=5)
    assert not any(step.rescaled for step in history)
    assert all(step.decision.why["executors"] for step in history)  # it goes on wanting it
    free = run(ElasticStorm(), _job(), steps=5)
    assert [step.rescaled for step in free] == [True, False, False, False, False]
    assert "is in progress" in free[1].decision.why["rule"]


def test_a_rest_is_as_long_as_it_says():
    for rest in (0, 3):
        job = apps.detector(pause_s=1.0).simulator(seed=1)
        history = run(ElasticStorm(cooldown_windows=rest), job, steps=12)
        times = [step.index for step in history if step.rescaled]
        assert times[:2] == [0, 2 + rest]  # one window stands still, and is no invocation


def test_without_names_of_machines_only_counts_are_told():
    history = run(ElasticStorm(places="no"), _job(), steps=2)
    assert history[0].decision.deployment == Deployment({"input": 1, "generator": 1, "detector": 10, "reporter": 1})


def test_slots_bound_what_a_node_takes():
    for slots in (0, 4, 20):
        history = run(ElasticStorm(slots_per_node=slots), _job(), steps=2)
        places = list(history[0].decision.deployment.placement.values())
        assert max(places.count(n) for n in set(places)) <= max(slots, 3)


def test_too_few_slots_refuse_nobody():
    history = run(ElasticStorm(slots_per_node=1), _job(), steps=2)
    assert history[0].decision.deployment.parallelism["detector"] == 10


def test_reassigning_lowers_traffic_between_nodes_and_does_not_go_on_for_ever():
    app = apps.detector(executors=5)
    history = run(ElasticStorm(reschedule=True), app.simulator(seed=1), steps=90)
    reassigned = [s for s in history if s.rescaled and s.decision.why.get("rule") == "less traffic between nodes"]
    assert 1 <= len(reassigned) <= 2
    for step in reassigned:
        before, after = step.snapshot.deployment, step.decision.deployment
        assert before.parallelism == after.parallelism


def test_the_signal_is_cpu_or_busy_time():
    topology = Topology((Operator("op", 8),))
    seen = run(ElasticStorm(), apps.detector().simulator(), steps=1)[0].snapshot.operators["detector"]
    assert ElasticStorm(signal="cpu").use(seen) == [pytest.approx(seen.cpu / 20)] * 20
    assert ElasticStorm(signal="busy").use(seen) == [seen.utilisation] * 20
    assert ElasticStorm().use(None) is None
    assert ElasticStorm().decide(topology, {}) == {}


def test_bounds_of_a_guard_are_kept():
    history = run(Bounded(ElasticStorm(), min_parallelism=8, max_parallelism=64), _job(), steps=40)
    assert history[-1].deployment.parallelism["detector"] == 8
