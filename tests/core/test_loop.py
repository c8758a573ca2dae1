"""The loop: who is asked when, what is deployed, how a run resumes."""

import dataclasses

import pytest

from dspkit import Decision, Deployment, History, Simulator, Topology, apps, control_loop, run, workload
from dspkit.core import ArgumentError, DeploymentError, MetricError
from dspkit.core.policy import PolicyError
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import Plant, Service

CHAIN = Topology.chain("a", "b")
PLANT = Plant({"a": Service(1e-4), "b": Service(1e-3)}, pause_s=0.0)


class Counter:
    """Adds an instance of `b` each time it is asked; its state counts the calls."""

    name = "counter"

    def init(self, topology, seed=0):
        return seed

    def step(self, state, snapshot):
        return state + 1, Decision(snapshot.deployment.scaled({"b": snapshot.deployment.parallelism["b"] + 1}))


def _simulator(**options):
    return Simulator(CHAIN, PLANT, workload.Constant(500), **options)


def test_each_decision_shows_in_the_next_snapshot():
    history = run(Counter(), _simulator(), steps=5)
    assert [s.snapshot.deployment.parallelism["b"] for s in history] == [1, 2, 3, 4, 5]
    assert all(s.rescaled for s in history)


def test_windows_that_settle_are_observed_and_not_decided_on():
    history = run(Counter(), _simulator(), steps=7, settle=2)
    assert [s.decision is not None for s in history] == [True, False, False, True, False, False, True]
    assert [s.snapshot.deployment.parallelism["b"] for s in history] == [1, 2, 2, 2, 3, 3, 3]
    assert history[-1].state == 3


def test_a_run_resumes_from_a_step_with_its_state_its_index_and_what_had_to_settle():
    backend = _simulator()
    first = list(control_loop(Counter(), backend, steps=2, settle=3, seed=10))
    assert [s.settling for s in first] == [3, 2]
    rest = list(control_loop(Counter(), backend, steps=4, settle=3, after=first[-1]))
    assert [s.index for s in first + rest] == list(range(6))
    assert [s.state for s in first + rest] == [11, 11, 11, 11, 12, 12]
    whole = run(Counter(), _simulator(), steps=6, settle=3, seed=10)
    assert [s.decision for s in whole] == [s.decision for s in first + rest]


def test_a_change_by_somebody_else_settles_too():
    backend, asked = _simulator(), []
    for step in control_loop(Static(), backend, steps=6, settle=2):
        asked.append(step.decision is not None)
        if step.index == 1:
            backend.deploy(Deployment({"a": 1, "b": 4}))
    assert asked == [True, True, False, False, True, True]


class Slow:
    """A backend on which a change takes three windows, as where machines have to start."""

    knobs = frozenset({"parallelism"})

    def __init__(self):
        self._job, self._left = _simulator(), 0
        self.topology, self.deployment = self._job.topology, self._job.deployment
        self.asked = []

    def observe(self):
        self._left -= 1
        if self._left == 0:
            self._job.deploy(self.deployment)
        return self._job.observe()

    def deploy(self, deployment):
        self.deployment, self._left = deployment, 4
        self.asked.append(deployment.parallelism["b"])


@pytest.mark.parametrize("settle", [0, 1])
def test_while_a_change_is_carried_out_nothing_is_decided(settle):
    backend = Slow()
    steps = list(control_loop(Counter(), backend, steps=10, settle=settle))
    assert backend.asked == [2, 3, 4][: 3 - settle]  # not once more in each window
    decided = [s.decision is not None for s in steps]
    assert decided[:6] == [True, False, False, False, not settle, settle > 0]
    assert [s.snapshot.deployment.parallelism["b"] for s in steps][:5] == [1, 1, 1, 1, 2]


def test_a_change_that_is_never_over_is_not_waited_for_for_ever():
    """Windows of ten seconds: after five minutes the policy is asked again."""
    backend = Slow()
    backend.deploy = lambda deployment: setattr(backend, "deployment", deployment)
    decided = [s.decision is not None for s in control_loop(Counter(), backend, steps=40)]
    assert decided == [True] + [False] * 30 + [True] * 9


def test_a_resumed_loop_knows_what_must_run():
    backend = _simulator()
    first = list(control_loop(Counter(), backend, steps=1))
    assert [s.decision is not None for s in control_loop(Static(), backend, steps=2, settle=2, after=first[0])] == [
        True,
        True,
    ]
    backend.deploy(Deployment({"a": 1, "b": 9}))
    last = list(control_loop(Static(), backend, steps=3, settle=2, after=first[0]))
    assert [s.decision is not None for s in last] == [False, False, True]


def test_without_a_number_of_steps_it_goes_on_until_the_backend_has_no_more():
    steps = control_loop(Counter(), _simulator())
    assert [next(steps).index for _ in range(30)] == list(range(30))

    class Recorded(Simulator):
        def observe(self):
            return super().observe() if self._window < 3 else None

    history = run(Counter(), Recorded(CHAIN, PLANT, workload.Constant(1)))
    assert len(history) == 3


@pytest.mark.parametrize("wrong", [{"steps": -1}, {"settle": -1}, {"settle": 0.5}, {"steps": 2.5}])
def test_counts_below_zero_are_refused_before_anything_runs(wrong):
    with pytest.raises(ArgumentError, match="a count from 0 up"):
        control_loop(Counter(), _simulator(), **wrong)


def test_decisions_may_be_recorded_and_not_carried_out():
    class Fixed(Simulator):
        knobs = frozenset()

    for backend, options in ((_simulator(), {"act": False}), (Fixed(CHAIN, PLANT, workload.Constant(500)), {})):
        history = run(Counter(), backend, steps=3, settle=2, **options)
        assert [s.decision.deployment.parallelism["b"] for s in history] == [2, 2, 2]
        assert not any(s.rescaled for s in history)
        assert backend.deployment.parallelism["b"] == 1


def test_an_interrupted_run_keeps_what_it_recorded():
    class Breaks(Simulator):
        def observe(self):
            if self._window == 2:
                raise KeyboardInterrupt
            return super().observe()

    history = History(CHAIN)
    with pytest.raises(KeyboardInterrupt):
        run(Counter(), Breaks(CHAIN, PLANT, workload.Constant(1)), steps=9, history=history)
    assert len(history) == 2
    assert "Counter" in history.about["policy"]


def test_a_backend_that_refuses_is_told_with_the_decision():
    class Refuses(Simulator):
        def deploy(self, deployment):
            raise OSError("no slots")

    with pytest.raises(OSError, match="no slots") as error:
        run(Counter(), Refuses(CHAIN, PLANT, workload.Constant(1)), steps=1)
    assert "counter: b 1 → 2" in error.value.__notes__[0]


class Unchecked(Simulator):
    """A backend that believes whatever it is told."""

    def deploy(self, deployment):
        raise AssertionError("the loop must check first")


def test_a_decision_that_does_not_fit_stops_the_run_before_it_is_deployed():
    backend = Unchecked(CHAIN, PLANT, workload.Constant(500), deployment=Deployment({"a": 1, "b": 64}))
    with pytest.raises(DeploymentError, match="parallelism 65 for 'b'") as error:
        run(Counter(), backend, steps=2)
    assert error.value.__notes__ == ["in step() of policy 'counter' in window 0 (t = 10 s) on Unchecked"]
    assert backend.deployment.parallelism["b"] == 64


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("operators", lambda s: {"typo": s.operators["a"]}, r"unknown operators \['typo'\]"),
        ("source_rates", lambda s: {"a": 1.0, "b": 5.0}, r"unknown sources \['b'\]"),
        ("edge_rates", lambda s: {("b", "a"): 5.0}, r"unknown edges \[\('b', 'a'\)\]"),
    ],
)
def test_metrics_under_names_the_topology_does_not_know_are_refused(field, value, message):
    class Confused(Simulator):
        def observe(self):
            snapshot = super().observe()
            return dataclasses.replace(snapshot, **{field: value(snapshot)})

    with pytest.raises(MetricError, match=message):
        run(Counter(), Confused(CHAIN, PLANT, workload.Constant(1)), steps=1)


@pytest.mark.parametrize(
    ("returns", "came"),
    [
        (lambda state, now: None, "None"),
        (lambda state, now: Decision(now), "a bare Decision"),
        (lambda state, now: now, "a bare Deployment"),
        (lambda state, now: (state, now), r"\(state, a bare Deployment\)"),
        (lambda state, now: (state, None), r"\(state, None\)"),
        (lambda state, now: (state, {"b": 2}), r"\(state, dict \{'b': 2\}\)"),
        (lambda state, now: (state, Decision(now), "why"), r"tuple \("),
        (lambda state, now: (state, Decision({"b": 2})), r"a Decision of dict \{'b': 2\}"),
    ],
)
def test_what_is_no_state_and_decision_is_one_sentence_with_policy_window_and_backend(returns, came):
    class Wrong(Counter):
        def step(self, state, snapshot):
            return super().step(state, snapshot) if snapshot.t < 15 else returns(state, snapshot.deployment)

    where = r"from step\(\) of policy 'counter' in window 1 \(t = 20 s\) on Simulator; expected the next state and a"
    with pytest.raises(PolicyError, match=f"got {came}.*{where}"):
        run(Wrong(), _simulator(), steps=3)


def test_what_a_policy_needs_is_asked_of_the_backend_before_anything_starts():
    class Placer(Counter):
        needs = frozenset({"placement", "parallelism"})

        def init(self, topology, seed=0):
            raise AssertionError("the loop must check first")

    class Few(Simulator):
        knobs = frozenset({"parallelism", "workers"})

    message = (
        "policy 'counter' on Few, which cannot change placement; expected a backend that can change parallelism and"
    )
    with pytest.raises(PolicyError, match=message):
        control_loop(Placer(), Few(CHAIN, PLANT, workload.Constant(500)))


def test_needs_that_are_no_fields_of_a_deployment_are_refused():
    class Odd(Counter):
        needs = frozenset({"memory"})

    with pytest.raises(PolicyError, match="expected a frozenset of parallelism, workers, placement, settings"):
        control_loop(Odd(), _simulator())


def test_what_the_backend_cannot_change_is_left_out_of_a_decision_and_told():
    class Greedy(Counter):
        def step(self, state, snapshot):
            state, decision = super().step(state, snapshot)
            wanted = dataclasses.replace(
                decision.deployment, workers=7, placement={("b", 1): "node-1"}, settings={"x": 1}
            )
            return state, Decision(wanted, {"rule": "all of it"})

    class Few(Simulator):
        knobs = frozenset({"parallelism"})

    history = run(Greedy(), Few(CHAIN, PLANT, workload.Constant(500)), steps=2)
    assert history[1].snapshot.deployment == Deployment({"a": 1, "b": 2})
    assert dict(history[0].decision.why) == {
        "rule": "all of it", "left out": "workers None → 7, placement, settings: Few can change parallelism only"
    }  # fmt: skip


def test_ds2_brings_word_count_to_the_load_in_two_decisions():
    """By hand: 250/120, 250/100, 250/30, 250/36 round up to 3, 3, 9, 7; contention of 3 % makes that 8 sinks."""
    app = apps.word_count()
    history = run(DS2(), app.simulator(workload.Constant(250e3)), steps=30, settle=1)
    assert history[1].snapshot.deployment.parallelism == {"source": 3, "flat_map": 3, "count": 9, "sink": 7}
    assert history[3].snapshot.deployment.parallelism == {"source": 3, "flat_map": 3, "count": 9, "sink": 8}
    assert sum(s.rescaled for s in history) == 2
    assert history[-1].snapshot.throughput >= 250e3 * 0.999


class Full(Simulator):
    """A backend with three slots."""

    def deploy(self, deployment):
        if deployment.instances > 3:
            raise DeploymentError(f"{deployment.instances} instances", expected="at most 3 slots", fix="ask for fewer")
        super().deploy(deployment)


def test_a_refused_wish_ends_the_run_or_is_skipped():
    def full():
        return Full(CHAIN, PLANT, workload.Constant(500))

    with pytest.raises(DeploymentError, match="at most 3 slots"):
        run(Counter(), full(), steps=5)
    history = run(Counter(), full(), steps=5, refused="skip")
    assert [s.snapshot.deployment.parallelism["b"] for s in history] == [1, 2, 2, 2, 2]
    assert [s.rescaled for s in history] == [True, False, False, False, False]
    assert [s.state for s in history] == [1, 2, 3, 4, 5]  # it continues
    refusal = history[2].decision
    assert refusal.deployment == history[2].snapshot.deployment
    assert "b 2 → 3" in refusal.why["refused"]
    assert "at most 3 slots" in refusal.why["refused"]


def test_a_wish_that_does_not_fit_the_topology_is_a_refused_one_too():
    class Beyond(Counter):
        def step(self, state, snapshot):
            return state, Decision(snapshot.deployment.scaled({"b": 10**6}), {"rule": "more"})

    with pytest.raises(DeploymentError):
        run(Beyond(), _simulator(), steps=2)
    history = run(Beyond(), _simulator(), steps=2, refused="skip")
    assert len(history) == 2
    assert not any(step.rescaled for step in history)
    assert history[0].decision.why["rule"] == "more"
    assert "refused" in history[0].decision.why


def test_skipping_hides_no_other_error():
    class Broken(Full):
        def deploy(self, deployment):
            raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="gone"):
        run(Counter(), Broken(CHAIN, PLANT, workload.Constant(500)), steps=2, refused="skip")

    class Mute(Counter):
        def step(self, state, snapshot):
            return state, None

    with pytest.raises(PolicyError):
        run(Mute(), _simulator(), steps=2, refused="skip")
    with pytest.raises(ArgumentError, match="refused"):
        run(Counter(), _simulator(), steps=2, refused="maybe")
