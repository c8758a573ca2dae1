"""What every policy keeps to, the template and the wrappers too. A new policy file is tested by being there."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dspkit
from dspkit import Decision, Deployment, Policy, Simulator, Topology, mape, policies, predict, workload
from dspkit.knobs import call, knobs
from dspkit.plant import Plant, Service
from dspkit.policies import _template, wrappers
from strategies import plants, topologies

ALL = [
    *(policies.get(name)() for name in policies.available()),
    *(cls() for cls in policies.defined_in(_template)),
    # as it is, it collects for twenty minutes before it decides anything
    policies.get("flink_autoscaler")(metrics_window_s=20.0, stabilization_s=0.0, scale_down_s=20.0),
    *(wrap(policies.get("ds2")()) for wrap in (wrappers.Bounded, wrappers.Cooldown, wrappers.RescaleBudget)),
    *(wrappers.Predictive(policies.get("ds2")(), kind(), least=3, relearn=2) for kind in predict.available().values()),
]
each = pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
CHAIN = Topology.chain("source", "work", "sink", max_parallelism=6)


def _snapshots(policy, steps=12, seed=0):
    plant = Plant({"source": Service(1e-4), "work": Service(1e-3), "sink": Service(5e-4)}, pause_s=5, noise=0.1)
    backend = Simulator(CHAIN, plant, workload.Square(200, 4000, 80), seed=seed)
    return [step.snapshot for step in mape(policy, backend, steps=steps)]


def _replay(policy, snapshots, state=None):
    """The decisions over recorded snapshots, and the state after them."""
    state = policy.init(CHAIN, 3) if state is None else state
    decisions = []
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
        decisions.append(decision)
    return decisions, state


@each
def test_it_is_a_policy_of_frozen_knobs_with_a_name_and_words(policy):
    assert isinstance(policy, Policy)
    assert policy.name == policy.name.lower()
    assert type(policy).__doc__
    for f in fields(policy):
        with pytest.raises(FrozenInstanceError):
            setattr(policy, f.name, None)
    for k in knobs(policy):
        assert k.help, f"knob {k.name} says nothing"


@each
def test_the_same_snapshots_give_the_same_decisions(policy):
    snapshots = _snapshots(policy)
    assert _replay(policy, snapshots) == _replay(policy, copy.deepcopy(snapshots))


@each
def test_a_step_changes_neither_its_state_nor_its_snapshot(policy):
    state = policy.init(CHAIN, 3)
    for snapshot in _snapshots(policy):
        before = pickle.dumps((state, snapshot))
        after, _ = policy.step(state, snapshot)
        assert pickle.dumps((state, snapshot)) == before
        state = after


@each
def test_it_resumes_from_a_pickled_state(policy):
    snapshots = _snapshots(policy)
    whole, _ = _replay(policy, snapshots)
    head, state = _replay(policy, snapshots[:5])
    tail, _ = _replay(policy, snapshots[5:], pickle.loads(pickle.dumps(state)))
    assert head + tail == whole


@each
def test_a_turned_knob_goes_on_with_the_state_of_before(policy):
    """A slider moved in a run must not cost what was learned, nor break it."""
    snapshots = _snapshots(policy)
    _, state = _replay(policy, snapshots[:5])
    for k in knobs(policy):
        values = k.choices or [v for v in (k.low, k.high) if v is not None and v < 1e9]
        for value in values:
            try:
                turned = replace(policy, **{k.name: value})
            except dspkit.DspkitError:
                continue  # does not go with the other knobs
            decisions, _ = _replay(turned, snapshots[5:], state)
            assert len(decisions) == len(snapshots) - 5


@each
@given(data=st.data())
@settings(max_examples=15)
def test_every_decision_fits_its_topology(policy, data):
    """mape() checks each decision before it deploys it, and raises if one does not fit."""
    topology = data.draw(topologies())
    plant = data.draw(plants(topology))
    load = workload.Square(data.draw(st.floats(0, 100)), data.draw(st.floats(0, 1e5)), 40)
    with Simulator(topology, plant, load, tick_s=2.0, seed=data.draw(st.integers(0, 9))) as backend:
        for step in mape(policy, backend, steps=8):
            assert isinstance(step.decision, Decision)


@each
def test_it_bears_silent_meters(policy):
    """An operator without metrics, no metrics at all, no latency: it decides something, and that fits."""
    state = policy.init(CHAIN)
    for snapshot in _snapshots(policy, 6):
        some = {n: m for n, m in snapshot.operators.items() if n != "work"}
        idle = {n: replace(m, true_rate=None, processing_rate=0.0) for n, m in snapshot.operators.items()}
        for operators in (some, {}, idle):
            gap = replace(snapshot, operators=operators, latency=None, event_latency=None, edge_rates={})
            state, decision = policy.step(state, gap)
            CHAIN.check(decision.deployment)


@each
def test_it_leaves_what_it_does_not_steer(policy):
    """Workers, places and settings of the deployment pass through a policy of parallelism."""
    snapshot = _snapshots(policy, 1)[0]
    deployment = Deployment(snapshot.deployment.parallelism, workers=3, settings={"queue": "fast"})
    _, decision = policy.step(policy.init(CHAIN), replace(snapshot, deployment=deployment))
    assert (decision.deployment.workers, decision.deployment.settings) == (3, {"queue": "fast"})


@each
def test_its_reference_resolves_and_its_repr_is_code(policy):
    if reference := getattr(policy, "reference", None):
        assert "author" in str(dspkit.cite(policy)).lower()
        assert isinstance(reference, (str, tuple))
    assert call(policy).startswith(type(policy).__name__)


def test_policies_are_found_by_being_there(tmp_path, monkeypatch):
    """A copy of the template under a new name is offered; a broken file is named and does no harm."""
    text = Path(_template.__file__).read_text().replace('"template"', '"mine"')
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    with pytest.warns(UserWarning, match="policies/broken.py is left out: ModuleNotFoundError"):
        found = policies.available()
    assert found["mine"]().name == "mine"
    assert {"ds2", "static", "mine"} <= set(found)
    assert not any("template" in name or "cooldown" in name for name in found)


def test_an_unknown_policy_is_answered_with_the_nearest():
    with pytest.raises(dspkit.DspkitError, match="did you mean 'ds2'"):
        policies.get("ds")


def test_static_keeps_what_runs_or_holds_what_it_is_told():
    history = dspkit.run(policies.get("static")(), Simulator(CHAIN, _plant(), workload.Constant(9)), steps=3)
    assert not any(step.rescaled for step in history)
    fixed = policies.get("static")(parallelism={"work": 4})
    history = dspkit.run(fixed, Simulator(CHAIN, _plant(), workload.Constant(9)), steps=3)
    assert [s.snapshot.deployment.parallelism["work"] for s in history] == [1, 4, 4]
    with pytest.raises(dspkit.DspkitError, match="adds"):
        policies.get("static")(parallelism={"typo": 4}).init(CHAIN)
    with pytest.raises(dspkit.DspkitError, match="parallelism 7 for 'work'"):
        policies.get("static")(parallelism={"work": 7}).init(CHAIN)


def _plant():
    return Plant({n: Service(1e-4) for n in CHAIN.order})
