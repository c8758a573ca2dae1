"""Guards around a policy let through what their rule allows, and no more."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dspkit import Decision, Operator, Simulator, Topology, apps, run, workload
from dspkit.core import ArgumentError, KnobError
from dspkit.forecasting import AutoRegression, Forecast, LastValue, SeasonalNetwork
from dspkit.policies.ds2 import DS2
from dspkit.policies.guards import Bounded, Cooldown, Predictive, RescaleBudget
from dspkit.policies.static import Static
from dspkit.simulator import Plant, Service

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


def test_a_restless_policy_without_a_guard_changes_in_every_window():
    assert len(_changes(_run(Restless()))) == 30


def test_bounded_keeps_every_operator_between_its_bounds_and_says_what_was_wanted():
    history = _run(Bounded(Restless(), min_parallelism=2, max_parallelism=5))
    seen = {s.snapshot.deployment.parallelism["b"] for s in history[1:]}
    assert seen == {2, 5} or seen == {2} or seen == {5}
    assert {s.snapshot.deployment.parallelism["a"] for s in history[1:]} == {2}
    assert history[0].decision.why["wanted beyond bounds"] == {"a": 1, "b": 20}
    with pytest.raises(KnobError, match="min_parallelism <= max_parallelism"):
        Bounded(Restless(), min_parallelism=3, max_parallelism=2)


def test_cooldown_rests_after_each_change_and_goes_on_asking():
    history = _run(Cooldown(Restless(), cooldown_s=50))
    times = _changes(history)
    assert len(times) >= 5
    assert all(later - earlier == 50 for earlier, later in pairwise(times))  # no sooner, and no later
    assert [s.decision.why["call"] for s in history] == list(range(30))
    assert "rests until" in history[1].decision.why["withheld"]
    assert len(_changes(_run(Cooldown(Restless(), cooldown_s=0)))) == 30


@pytest.mark.parametrize("settle", [0, 3])
def test_a_guard_dates_its_own_changes_when_they_were_made_however_late_it_is_asked(settle):
    cooled = run(Cooldown(Restless(), cooldown_s=60), _backend(), steps=30, settle=settle)
    assert [s.snapshot.t for s in cooled if s.rescaled] == [10, 70, 130, 190, 250]
    budget = run(RescaleBudget(Restless(), changes=1, budget_period_s=100), _backend(), steps=30, settle=settle)
    assert [s.snapshot.t for s in budget if s.rescaled] == [10, 110, 210]


def test_cooldown_counts_a_change_by_somebody_else():
    backend = _backend()
    policy = Cooldown(Restless(), cooldown_s=30)
    state = policy.init(CHAIN)
    state, _ = policy.step(state, backend.observe())
    backend.deploy(backend.deployment.scaled({"a": 2}))
    state, decision = policy.step(state, backend.observe())
    assert "withheld" in decision.why


@pytest.mark.parametrize("budget", [0, 1, 3])
def test_budget_holds_in_any_period(budget):
    times = _changes(_run(RescaleBudget(Restless(), changes=budget, budget_period_s=100)))
    assert all(sum(t <= x < t + 100 for x in times) <= budget for t in times)
    assert len(times) == budget * 3  # 300 s: the budget is used in full, not just kept


def test_budget_counts_what_happened_not_what_was_wished():
    """Held back by the outer guard, a wish costs the inner one nothing; a change by somebody else does."""
    inner_first = _changes(
        _run(Cooldown(RescaleBudget(Restless(), changes=3, budget_period_s=600), cooldown_s=100), 60)
    )
    outer_first = _changes(
        _run(RescaleBudget(Cooldown(Restless(), cooldown_s=100), changes=3, budget_period_s=600), 60)
    )
    assert inner_first == outer_first == [10.0, 110.0, 210.0]
    backend = _backend()
    policy = RescaleBudget(Restless(), changes=1, budget_period_s=500)
    state = policy.init(CHAIN)
    state, _ = policy.step(state, backend.observe())
    backend.deploy(backend.deployment.scaled({"a": 2}))
    _, decision = policy.step(state, backend.observe())
    assert "1 changes in 500 s are spent" in decision.why["withheld"]


def test_a_policy_that_is_not_made_is_refused():
    with pytest.raises(ArgumentError, match=r"as in Cooldown\(DS2\(\)\)"):
        Bounded(Static)


def test_bounds_of_the_topology_hold_above_those_of_the_guard():
    narrow = Topology((Operator("a"), Operator("b", max_parallelism=4)), (("a", "b"),))
    policy = Bounded(Static(), min_parallelism=9)
    plant = Plant({"a": Service(1e-4), "b": Service(1e-3)})
    _, decision = policy.step(policy.init(narrow), Simulator(narrow, plant, workload.Constant(5)).observe())
    assert decision.deployment.parallelism == {"a": 9, "b": 4}


def test_wrappers_stack_and_pass_on_names_and_references():
    policy = RescaleBudget(Cooldown(Bounded(Static(), max_parallelism=9), cooldown_s=10), changes=2)
    assert policy.name == "rescalebudget(cooldown(bounded(static)))"
    assert _changes(_run(policy)) == []


# Predictive


class Oracle:
    """Knows that the load will be five times what it is."""

    name, level = "oracle", 0.9

    def learn(self, past):
        return len(past)

    def forecast(self, memory, past, horizon=1):
        mean = np.full(horizon, 5.0 * past.values[-1])
        return Forecast(mean, 0.5 * mean, 2 * mean)


class Spy:
    """Keeps what it was shown."""

    name = "spy"

    def init(self, topology, seed=0):
        return ()

    def step(self, state, snapshot):
        return (*state, snapshot), Decision(snapshot.deployment)


def _shown(policy, steps=8, load=500.0):
    history = run(policy, Simulator(CHAIN, _backend().plant, workload.Constant(load)), steps=steps)
    return [s.snapshot for s in history], history[-1].state.inner


def test_predictive_shows_what_is_until_it_knows_enough_and_then_what_comes():
    seen, shown = _shown(Predictive(Spy(), Oracle(), min_windows=4))
    assert list(shown[:3]) == seen[:3]
    for now, then in zip(seen[3:], shown[3:], strict=True):
        assert then.source_rate == 5 * now.source_rate
        a, b = then.operators["a"], then.operators["b"]
        assert a.input_rate == pytest.approx(5 * now.operators["a"].input_rate)
        assert b.processing_rate == pytest.approx(1000)  # all that one instance can
        assert b.true_rate == now.operators["b"].true_rate
        assert then.selectivity(("a", "b")) == pytest.approx(now.selectivity(("a", "b")))
        assert b.utilisation == 1
        assert (then.deployment, then.t) == (now.deployment, now.t)


def test_predictive_can_take_the_upper_end_a_factor_and_less_than_now():
    shown = _shown(Predictive(Spy(), Oracle(), min_windows=2, bound="high", factor=0.5))[1]
    assert shown[-1].source_rate == 0.5 * 2 * 5 * 500
    low = Predictive(Spy(), Oracle(), min_windows=2, factor=0.1)
    assert _shown(low)[1][-1].source_rate == 500
    assert _shown(replace(low, never_below=False))[1][-1].source_rate == 250


def test_ds2_asks_for_what_the_forecast_needs():
    """5 x 500 records/s need three instances of 1 000: theory, before a single one of them came."""
    history = run(Predictive(DS2(), Oracle(), min_windows=2), _backend(), steps=5)
    assert [s.snapshot.deployment.parallelism["b"] for s in history] == [1, 1, 3, 3, 3]
    assert history[1].decision.why["expected source rate"] == {"a": 2500}


def test_predictive_is_early_on_a_ramp_where_the_policy_alone_is_late():
    """50 records/s more each 10 s: alone, DS2 has too few instances in some window after each crossing."""
    ramp = workload.Trace([10.0 * i for i in range(60)], [400 + 50.0 * i for i in range(60)])
    backends = [Simulator(CHAIN, _backend().plant, ramp) for _ in range(2)]
    alone = run(DS2(), backends[0], steps=60)
    ahead = run(Predictive(DS2(), AutoRegression(lags=2), min_windows=10, ahead=3), backends[1], steps=60)
    short = [
        sum(s.snapshot.source_rate > 1000 * s.snapshot.deployment.parallelism["b"] for s in h) for h in (alone, ahead)
    ]
    assert short[0] >= 2
    assert short[1] == 0


def test_predictive_learns_again_in_time_and_when_the_predictor_is_another():
    policy = Predictive(Spy(), Oracle(), min_windows=3, relearn=4)
    backend, state, learned = _backend(), policy.init(CHAIN), []
    for i in range(16):
        if i == 13:
            policy = replace(policy, predictor=LastValue())
        state, _ = policy.step(state, backend.observe())
        learned.append(state.outlooks["a"].memory)
    assert learned == [None, None, 3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, None, None, None]


def test_predictive_keeps_no_more_than_its_memory_and_bears_a_silent_source():
    policy = Predictive(Spy(), LastValue(), memory=10, min_windows=2)
    backend, state = _backend(), policy.init(CHAIN)
    for _ in range(15):
        state, _ = policy.step(state, backend.observe())
    assert len(state.outlooks["a"].rates) == 10
    silent = replace(backend.observe(), source_rates={}, operators={})
    state, _ = policy.step(state, silent)
    assert state.outlooks["a"].rates[-1] == state.outlooks["a"].rates[-2] == 500
    other = replace(backend.observe(), window_s=5.0)
    state, _ = policy.step(state, other)
    assert state.outlooks["a"].rates == (500,)


def test_each_source_is_predicted_by_itself_and_a_join_sees_the_sum():
    star = apps.star()
    policy = Predictive(Spy(), Oracle(), min_windows=2)
    backend = star.simulator(parallelism=4)
    state = policy.init(star.topology)
    for _ in range(3):
        state, _ = policy.step(state, snapshot := backend.observe())
    shown = state.inner[-1]
    assert {n: shown.source_rates[n] / r for n, r in snapshot.source_rates.items()} == {"left": 5, "right": 5}
    assert shown.operators["bolt"].input_rate == pytest.approx(5 * snapshot.operators["bolt"].input_rate)


def test_predictive_says_both_names_and_cites_both():
    policy = Predictive(DS2(), SeasonalNetwork())
    assert policy.name == "predictive(ds2, seasonal network)"
    assert policy.reference == ("kalavri2018ds2", "elysium")
    with pytest.raises(ArgumentError, match="an instance of a predictor"):
        Predictive(DS2(), LastValue)
