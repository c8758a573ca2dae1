"""Guards around a policy let through what their rule allows, and no more."""

from itertools import pairwise

import pytest

from dspkit import Decision, Operator, Simulator, Topology, run, workload
from dspkit.errors import KnobError
from dspkit.plant import Plant, Service
from dspkit.policies.static import Static
from dspkit.policies.wrappers import Bounded, Cooldown, RescaleBudget

CHAIN = Topology.chain("a", "b")


class Restless:
    """Wants another parallelism in every window: 1, 20, 1, 20 ..."""

    name = "restless"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        wanted = 1 if snapshot.deployment.parallelism["b"] > 1 else 20
        return state + 1, Decision(snapshot.deployment.scaled({"b": wanted}), {"call": state})


def _backend():
    plant = Plant({"a": Service(1e-4), "b": Service(1e-3)}, pause_s=0.0)
    return Simulator(CHAIN, plant, workload.Constant(500))


def _run(policy, steps=30):
    return run(policy, _backend(), steps=steps)


def _changes(history):
    return [s.snapshot.t for s in history if s.rescaled]


def test_alone_it_changes_in_every_window():
    assert len(_changes(_run(Restless()))) == 30


def test_bounded_keeps_every_operator_between_its_bounds_and_says_what_was_wanted():
    history = _run(Bounded(Restless(), low=2, high=5))
    seen = {s.snapshot.deployment.parallelism["b"] for s in history[1:]}
    assert seen == {2, 5} or seen == {2} or seen == {5}
    assert {s.snapshot.deployment.parallelism["a"] for s in history[1:]} == {2}
    assert history[0].decision.why["wanted beyond bounds"] == {"a": 1, "b": 20}
    with pytest.raises(KnobError, match="low <= high"):
        Bounded(Restless(), low=3, high=2)


def test_cooldown_rests_after_each_change_and_goes_on_asking():
    history = _run(Cooldown(Restless(), rest_s=50))
    times = _changes(history)
    assert len(times) >= 5
    assert all(later - earlier == 50 for earlier, later in pairwise(times))  # no sooner, and no later
    assert [s.decision.why["call"] for s in history] == list(range(30))
    assert "rests until" in history[1].decision.why["held back"]
    assert len(_changes(_run(Cooldown(Restless(), rest_s=0)))) == 30


@pytest.mark.parametrize("settle", [0, 3])
def test_a_guard_dates_its_own_changes_when_they_were_made_however_late_it_is_asked(settle):
    cooled = run(Cooldown(Restless(), rest_s=60), _backend(), steps=30, settle=settle)
    assert [s.snapshot.t for s in cooled if s.rescaled] == [10, 70, 130, 190, 250]
    budget = run(RescaleBudget(Restless(), changes=1, period_s=100), _backend(), steps=30, settle=settle)
    assert [s.snapshot.t for s in budget if s.rescaled] == [10, 110, 210]


def test_cooldown_counts_a_change_by_somebody_else():
    backend = _backend()
    policy = Cooldown(Restless(), rest_s=30)
    state = policy.init(CHAIN)
    state, _ = policy.step(state, backend.observe())
    backend.deploy(backend.deployment.scaled({"a": 2}))
    state, decision = policy.step(state, backend.observe())
    assert "held back" in decision.why


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_budget_holds_in_any_period(budget):
    times = _changes(_run(RescaleBudget(Restless(), changes=budget, period_s=100)))
    assert all(sum(t <= x < t + 100 for x in times) <= budget for t in times)
    assert len(times) == budget * 3  # 300 s: the budget is used in full, not just kept


def test_budget_counts_what_happened_not_what_was_wished():
    """Held back by the outer guard, a wish costs the inner one nothing; a change by somebody else does."""
    inner_first = _changes(_run(Cooldown(RescaleBudget(Restless(), changes=3, period_s=600), rest_s=100), 60))
    outer_first = _changes(_run(RescaleBudget(Cooldown(Restless(), rest_s=100), changes=3, period_s=600), 60))
    assert inner_first == outer_first == [10.0, 110.0, 210.0]
    backend = _backend()
    policy = RescaleBudget(Restless(), changes=1, period_s=500)
    state = policy.init(CHAIN)
    state, _ = policy.step(state, backend.observe())
    backend.deploy(backend.deployment.scaled({"a": 2}))
    _, decision = policy.step(state, backend.observe())
    assert "1 changes in 500 s are spent" in decision.why["held back"]


def test_a_policy_that_is_not_made_is_refused():
    with pytest.raises(KnobError, match=r"as in Cooldown\(DS2\(\)\)"):
        Bounded(Static)


def test_bounds_of_the_topology_hold_above_those_of_the_guard():
    narrow = Topology((Operator("a"), Operator("b", max_parallelism=4)), (("a", "b"),))
    policy = Bounded(Static(), low=9)
    plant = Plant({"a": Service(1e-4), "b": Service(1e-3)})
    _, decision = policy.step(policy.init(narrow), Simulator(narrow, plant, workload.Constant(5)).observe())
    assert decision.deployment.parallelism == {"a": 9, "b": 4}


def test_wrappers_stack_and_pass_on_names_and_references():
    policy = RescaleBudget(Cooldown(Bounded(Static(), high=9), rest_s=10), changes=2)
    assert policy.name == "rescalebudget(cooldown(bounded(static)))"
    assert _changes(_run(policy)) == []
