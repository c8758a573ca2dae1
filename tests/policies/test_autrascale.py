"""AuTraScale as a policy: its phases, what stops it, and what it does where something is missing."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import Deployment, Latency, OperatorMetrics, Simulator, Snapshot, Topology, control_loop, workload
from dspkit.bo import Library, Model, Sample
from dspkit.core import ArgumentError, KnobError
from dspkit.policies._measurements import DeploymentRun, merge_stretches
from dspkit.policies.autrascale import AuTraScale, ThroughputTrial, best, verdict
from dspkit.testing.strategies import plants, topologies

PAIR = Topology.chain("read", "work", max_parallelism=12)
QUICK = {"running_s": 10.0, "warm_up_s": 0.0, "max_parallelism": 12, "levels": 2, "target_latency_s": 0.1}


class World:
    """A job of two operators whose latency is a formula: what a policy is told, window by window."""

    def __init__(self, rate=100.0, rates=(60.0, 30.0), latency=lambda k: 0.05 + 0.2 / k[1], topology=PAIR):
        self.rate, self.rates, self.latency, self.topology, self.t = rate, rates, latency, topology, 0.0
        self.k = (1, 1)

    def window(self, **changes):
        self.t += 10.0
        done = min(self.rate, *(k * v for k, v in zip(self.k, self.rates, strict=True)))
        operators = {
            n: OperatorMetrics(done, done, done, v, done / v / k, 0, k)
            for n, k, v in zip(PAIR.order, self.k, self.rates, strict=True)
        }
        late = self.latency(self.k)
        seen = Snapshot(
            t=self.t, window_s=10.0, deployment=Deployment(dict(zip(PAIR.order, self.k, strict=True))),
            operators=operators, source_rates={"read": self.rate}, throughput=done,
            latency=None if late is None else Latency(late, late, late, late), event_latency=None, lag=0,
            edge_rates={("read", "work"): done},
        )  # fmt: skip
        return replace(seen, **changes)

    def play(self, policy, steps, state=None, obey=True):
        """The last state, and every decision."""
        state = policy.init(self.topology, 3) if state is None else state
        decisions = []
        for _ in range(steps):
            state, decision = policy.step(state, self.window())
            decisions.append(decision)
            if obey:
                self.k = tuple(decision.deployment.parallelism[n] for n in PAIR.order)
        return state, decisions


def test_it_goes_through_its_phases_and_ends_where_all_is_met():
    world = World(latency=lambda k: 0.05 + 0.3 / k[1])
    state, decisions = world.play(AuTraScale(**QUICK), 30)
    phases = [d.why["phase"] for d in decisions]
    assert list(dict.fromkeys(phases)) == ["throughput", "bootstrap", "search", "hold"]
    assert state.base == (2, 4)
    assert [s.k for s in state.samples[:5]] == [(2, 4), (4, 4), (12, 12), (12, 4), (2, 12)]
    assert state.met
    assert world.latency(world.k) <= 0.1
    assert state.samples[-1].score >= 0.9
    assert [t.k for t in state.tried] == [(1, 1), (2, 4)]
    assert len(pickle.dumps(state)) < 5000


def test_why_tells_phase_rates_base_score_posterior_and_threshold():
    _, decisions = World(latency=lambda k: 0.05 + 1.0 / k[1]).play(AuTraScale(**QUICK), 20)
    searched = [d.why for d in decisions if "expected improvement" in d.why]
    keys = {"phase", "rate", "base", "score", "latency", "posterior mean", "sigma", "expected improvement"}
    assert keys | {"stop threshold", "samples", "runs"} <= set(searched[0])
    assert searched[0]["stop threshold"] == pytest.approx(0.9)


def test_the_throughput_phase_stops_at_a_ceiling_and_keeps_the_fewest_slots():
    """An operator that waits for a store: its true rate is what the store leaves to each instance."""
    world = World(rate=100.0)
    policy = AuTraScale(**QUICK)
    state = policy.init(PAIR)
    for _ in range(8):
        world.rates = (60.0, min(30.0, 80.0 / world.k[1]))
        state, decision = policy.step(state, world.window())
        world.k = tuple(decision.deployment.parallelism[n] for n in PAIR.order)
        if state.phase != "throughput":
            break
    assert decision.why["rule"] == "recommended twice"
    assert [t.recommended for t in state.tried] == [(2, 4), (2, 5), (2, 7), (2, 9), (2, 12), (2, 12)][
        : len(state.tried)
    ]
    assert state.base[1] <= 5  # 80 records/s with as few as will do


def test_the_best_of_what_ran_counts_a_draining_queue_as_no_merit():
    trials = [
        ThroughputTrial((1, 1), 50, 100, ()),
        ThroughputTrial((2, 3), 99, 100, ()),
        ThroughputTrial((4, 9), 130, 100, ()),
    ]
    assert best(trials).k == (2, 3)
    assert best(trials, near=0.005).k == (4, 9)
    assert best([ThroughputTrial((1, 3), 99, 100, ()), ThroughputTrial((3, 1), 100, 100, ())]).k == (
        3,
        1,
    )  # of as few, the greater


def test_it_scales_in_where_less_would_do():
    world = World()
    world.k = (9, 11)
    state, _ = world.play(AuTraScale(**QUICK), 3)
    assert state.base == (2, 4)


def test_a_new_rate_keeps_the_model_and_transfers_with_fewer_runs():
    world = World(latency=lambda k: 0.04 + 0.35 * world.rate / 100 / k[1])
    policy = AuTraScale(**QUICK)
    state, _ = world.play(policy, 40)
    first, k = state.runs, world.k
    assert state.met
    world.rate = 150.0
    state, decisions = world.play(policy, 40, state)
    assert [m.rate for m in state.library.models] == [100.0]
    assert "transfer" in {d.why["phase"] for d in decisions}
    assert state.met
    assert state.runs < first
    assert state.rate == 150.0
    assert world.k != k


def test_models_of_several_rates_are_kept():
    world, policy, state = World(latency=lambda k: 0.05), AuTraScale(**QUICK), None
    for rate in (100.0, 150.0, 220.0):
        world.rate = rate
        state, _ = world.play(policy, 14, state)
    assert [m.rate for m in state.library.models] == [100.0, 150.0]
    assert [m.rate for m in policy.learned(state).models] == [100.0, 150.0, 220.0]
    assert len(pickle.dumps(state)) < 6000


def test_weights_of_old_models_are_told():
    models = tuple(Model(r, (2, 4), (12, 12), (Sample((2, 4), 0.7), Sample((2, 12), 0.9))) for r in (60.0, 90.0))
    world = World(latency=lambda k: 0.05 + 1.0 / k[1])
    policy = AuTraScale(**QUICK, library=Library(PAIR.order, models), transfer="weighted")
    _, decisions = world.play(policy, 12)
    told = [d.why["old rates"] for d in decisions if "old rates" in d.why]
    assert told
    assert set(told[0]) == {"60", "90"}
    assert told[0]["90"] > told[0]["60"]


def test_after_num_real_samples_the_old_model_is_left():
    model = Model(90.0, (2, 4), (12, 12), (Sample((2, 4), 0.7), Sample((2, 12), 0.9)))
    world = World(latency=lambda k: 5.0)
    policy = AuTraScale(**QUICK, library=Library(PAIR.order, (model,)), num=2, max_iterations=5)
    _, decisions = world.play(policy, 20)
    phases = [d.why["phase"] for d in decisions]
    assert phases.index("search") > phases.index("transfer")
    assert phases[-1] == "hold"


def test_the_old_model_serves_for_exactly_num_real_samples():
    model = Model(90.0, (2, 4), (12, 12), (Sample((2, 4), 0.7), Sample((2, 12), 0.9)))
    world = World(latency=lambda k: 5.0)
    policy = AuTraScale(**QUICK, library=Library(PAIR.order, (model,)), num=3, max_iterations=9)
    state, served = policy.init(PAIR), []
    for _ in range(14):
        state, _ = world.play(policy, 1, state)
        served.append((state.phase, state.added))
    assert next(added for phase, added in served if phase == "search") == 3
    assert max(added for phase, added in served if phase == "transfer") == 2


def test_a_run_that_is_in_time_but_falls_short_of_the_rate_meets_nothing():
    class Starved(World):
        def window(self, **changes):
            return super().window(throughput=0.9 * self.rate, **changes)

    state, _ = Starved(latency=lambda k: 0.05).play(AuTraScale(**QUICK, max_iterations=3), 30)
    assert state.phase == "hold"
    assert not state.met
    assert {s.k for s in state.samples} == state.starved


def test_a_search_without_hope_ends():
    _, decisions = World(latency=lambda k: 5.0).play(AuTraScale(**QUICK, alpha=1.0, xi=0.5), 14)
    assert any(d.why["rule"] == "no improvement expected: best that ran" for d in decisions)


def test_steps_are_pure():
    """The same state and window give the same, also after others were played, and the state is as it was."""
    world, policy = World(latency=lambda k: 0.05 + 0.9 / k[1]), AuTraScale(**QUICK, max_iterations=6)
    state, past = policy.init(PAIR, 3), []
    for _ in range(14):
        seen = world.window()
        before = pickle.dumps(state)
        after, decision = policy.step(state, seen)
        assert pickle.dumps(state) == before
        past.append((state, seen, after, decision))
        state = after
        world.k = tuple(decision.deployment.parallelism[n] for n in PAIR.order)
    for earlier, seen, after, decision in reversed(past):
        assert policy.step(earlier, seen) == (after, decision)


def test_with_an_old_model_a_base_that_meets_all_is_kept_at_once():
    model = Model(90.0, (2, 4), (12, 12), (Sample((2, 4), 0.7), Sample((2, 12), 0.9)))
    world = World(latency=lambda k: 0.05)
    state, _ = world.play(AuTraScale(**QUICK, library=Library(PAIR.order, (model,))), 6)
    assert (world.k, state.phase, state.runs, state.met) == ((2, 4), "hold", 2, True)


def test_a_known_base_goes_straight_to_the_search():
    state, decisions = World().play(AuTraScale(**QUICK, base={"read": 2, "work": 4}), 1)
    assert state.phase == "bootstrap"
    assert decisions[0].deployment.parallelism == {"read": 4, "work": 4}


def test_iterations_have_an_end_and_the_best_is_kept():
    world = World(latency=lambda k: 0.2 + 1 / k[1])
    state, decisions = world.play(AuTraScale(**QUICK, max_iterations=2), 20)
    assert state.phase == "hold"
    assert not state.met
    assert state.iterations == 2
    assert world.k == max(state.samples, key=lambda s: s.score).k
    assert any("iterations are spent" in d.why["rule"] for d in decisions)


def test_what_is_held_and_no_longer_meets_the_target_is_searched_again():
    world = World()
    policy = AuTraScale(**QUICK)
    state, _ = world.play(policy, 20)
    assert state.phase == "hold"
    held, world.latency = world.k, lambda k: 0.05 + 0.6 / k[1]
    state, _ = world.play(policy, 30, state)
    assert world.k != held
    assert world.latency(world.k) <= 0.1


def test_a_job_that_is_not_ready_is_waited_for():
    world = World(latency=lambda k: None)
    state, decisions = world.play(AuTraScale(**QUICK), 2)
    assert state.runs == 0
    assert decisions[-1].why["rule"].startswith("measured")
    state, _ = world.play(AuTraScale(**QUICK), 20, state)  # but not for ever
    assert state.runs > 1
    assert all(s.latency_s is None and s.score <= 0.2 for s in state.samples)


def test_no_load_needs_one_instance_each():
    world = World(rate=0.0, latency=lambda k: None)
    world.k = (5, 5)
    state, _ = world.play(AuTraScale(**QUICK), 8)
    assert (world.k, state.phase) == ((1, 1), "hold")


def test_a_cluster_that_is_too_small_is_told_and_used_up():
    world = World(rate=1000.0)
    state, decisions = world.play(AuTraScale(**QUICK), 12)
    assert state.base == (12, 12)
    assert decisions[-1].why["cluster too small"] == {"read": 17, "work": 34}
    assert world.k == (12, 12)
    assert state.phase == "hold"  # an empty range: nothing to search


def test_a_change_that_is_kept_back_is_asked_for_and_then_given_up():
    world = World()
    state, decisions = world.play(AuTraScale(**QUICK), 6, obey=False)
    asked = [tuple(d.deployment.parallelism.values()) for d in decisions]
    assert asked[:3] == [(2, 4)] * 3
    assert state.runs >= 2  # after three running times what runs is judged


def test_one_operator_alone():
    topology = Topology(("only",))
    policy, state = AuTraScale(**QUICK), AuTraScale(**QUICK).init(topology)
    k = 1
    for i in range(25):
        done = min(100.0, 30.0 * k)
        late = 0.05 + 0.3 / k
        seen = Snapshot(
            t=10.0 * (i + 1), window_s=10.0, deployment=Deployment({"only": k}),
            operators={"only": OperatorMetrics(done, done, done, 30.0, done / 30 / k, 0, k)},
            source_rates={"only": 100.0}, throughput=done, latency=Latency(late, late, late, late),
            event_latency=None, lag=0, edge_rates={},
        )  # fmt: skip
        state, decision = policy.step(state, seen)
        k = decision.deployment.parallelism["only"]
    assert state.phase == "hold"
    assert k in (6, 7, 8)


@pytest.mark.parametrize(
    "wrong",
    [
        dict(running_s=10, warm_up_s=10), dict(alpha=2), dict(levels=0), dict(mode="guess"), dict(library="x"),
        dict(prior="linear"), dict(confidence=1.0), dict(base=3),
    ],
)  # fmt: skip
def test_knobs_that_do_not_fit_are_refused(wrong):
    with pytest.raises(ArgumentError):
        AuTraScale(**wrong)


def test_a_library_or_base_of_another_job_is_refused():
    model = Model(9.0, (1,), (2,), (Sample((1,), 0.9),))
    for policy in (AuTraScale(library=Library(("other",), (model,))), AuTraScale(base={"other": 3})):
        with pytest.raises(ArgumentError):
            policy.init(PAIR)


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_decision_fits_whatever_the_job(data):
    """Runs of one window, so that all phases are reached; control_loop() checks each decision."""
    topology = data.draw(topologies())
    plant = data.draw(plants(topology))
    policy = AuTraScale(
        running_s=5, warm_up_s=0, levels=1, max_parallelism=data.draw(st.integers(1, 50)), max_iterations=3,
        prior=data.draw(st.sampled_from(["constant", "cost", "monotone", "latency"])),
        mode=data.draw(st.sampled_from(["demand", "literal", "printed"])),
        confidence=data.draw(st.sampled_from([0.0, 0.9])),
        trims=data.draw(st.sampled_from([0, 2])),
    )  # fmt: skip
    load = workload.Square(data.draw(st.floats(0, 100)), data.draw(st.floats(0, 1e4)), 250)
    with Simulator(topology, plant, load, tick_s=5.0, seed=data.draw(st.integers(0, 9))) as backend:
        for step in control_loop(policy, backend, steps=25):
            assert set(step.decision.deployment.parallelism) == set(topology.order)


def test_two_stretches_together_are_what_a_meter_would_have_shown():
    world = World()
    a, b = world.window(), world.window()
    b = replace(b, operators={"read": replace(b.operators["read"], processing_rate=30.0, true_rate=20.0)})
    whole = merge_stretches(a, b)
    first, second = a.operators["read"], b.operators["read"]
    busy = first.processing_rate / first.true_rate + second.processing_rate / second.true_rate
    assert whole.window_s == 20
    assert whole.operators["read"].true_rate == pytest.approx((first.processing_rate + 30.0) / busy)
    assert whole.operators["work"] == a.operators["work"]
    assert merge_stretches(replace(a, latency=None), b).latency == b.latency


def test_a_run_waits_until_its_log_is_worked_off():
    world, run = World(), DeploymentRun()
    run = run.watch(world.window(lag=1e4, throughput=150.0), 0.0, 100.0)
    assert run.snapshot is None
    run = run.watch(world.window(lag=0, throughput=100.0), 0.0, 100.0)
    assert run.measured_s == 10
    stuck = DeploymentRun().watch(world.window(lag=1e4, throughput=50.0), 0.0, 100.0)  # it grows: that is how it runs
    assert stuck.measured_s == 10


def test_a_verdict_with_a_confidence_is_rarely_wrong():
    """Means of 6 windows truly 1 % above the target: 95 % confidence accepts at most 5 % (of 2000; 4 sigma: 7 %).

    The same for long tails (lognormal), and for windows of which each resembles the one before.
    """
    import numpy as np

    random = np.random.default_rng(0)
    even = random.normal(1.01, 0.05, (2000, 6))
    tailed = 1.01 * np.exp(random.standard_normal((2000, 12)) - 0.5)
    steps = random.standard_normal((2000, 24))
    for i in range(1, 24):
        steps[:, i] = 0.5 * steps[:, i - 1] + np.sqrt(0.75) * steps[:, i]
    for draws in (even, tailed, 1.01 * np.exp(0.3 * steps - 0.045)):
        accepted = {c: np.mean([verdict(list(d), 1.0, c) is True for d in draws]) for c in (0.0, 0.95)}
        assert accepted[0.0] > 0.25
        assert accepted[0.95] < 0.07
    assert np.mean([verdict(list(d / 2), 1.0, 0.95) is True for d in even]) == 1.0
    assert verdict([], 1.0, 0.0) is False
    assert verdict([1.0, 1.0], 2.0, 0.9) is None
    assert verdict([3.0, 3.0, 3.0], 2.0, 0.9) is False


def test_with_a_feasibility_it_holds_the_fewest_slots_that_meet_the_target():
    """Six of the second operator meet it (by the formula); the paper's search holds more."""
    world = World(latency=lambda k: 0.05 + 0.27 / k[1])
    knobs = {**QUICK, "prior": "latency", "bootstrap": "base", "feasibility": 0.9}
    state, decisions = world.play(AuTraScale(**knobs), 60)
    assert (state.phase, state.met, world.k) == ("hold", True, (2, 6))
    ended = [d.why for d in decisions if d.why["rule"] == "meets latency and rate"]
    assert ended
    assert ended[0]["probability"] >= 0.9
    assert all(s.served == pytest.approx(1.0) for s in state.samples)


def test_guarded_transfer_names_its_weights_and_needs_few_runs():
    late = lambda k: 0.05 + 0.3 / k[1]  # noqa: E731
    world = World(latency=late)
    knobs = {**QUICK, "prior": "latency", "bootstrap": "base", "feasibility": 0.9, "transfer": "guarded"}
    state, _ = world.play(AuTraScale(**knobs), 60)
    scratch = state.runs
    world.rate, world.latency = 150.0, lambda k: late((k[0], k[1] / 1.5))
    state, decisions = world.play(AuTraScale(**knobs), 60, state)
    weights = [d.why["old rates"] for d in decisions if "old rates" in d.why]
    assert set(weights[0]) <= {"none", "100"}
    assert sum(weights[-1].values()) == pytest.approx(1.0, abs=1e-3)
    assert (state.phase, state.met) == ("hold", True)
    assert world.latency(world.k) <= 0.1
    assert state.runs <= scratch
    with pytest.raises(KnobError, match="process of the latency"):
        AuTraScale(transfer="guarded")


def test_a_job_without_latencies_ends_unmet_instead_of_with_an_error():
    knobs = {**QUICK, "prior": "latency", "bootstrap": "base", "feasibility": 0.9}
    state, _ = World(latency=lambda k: None).play(AuTraScale(**knobs), 60)
    assert state.phase == "hold"
    assert not state.met
