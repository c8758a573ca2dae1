"""Every policy keeps to the contract, the template and the wrappers too. A new policy file is tested by being there."""

from pathlib import Path

import pytest

import dspkit
from dspkit import Simulator, forecasting, policies, workload
from dspkit.policies import _template
from dspkit.policies import guards as wrappers
from dspkit.simulator import Plant, Service
from dspkit.testing import POLICY_CHECKS
from dspkit.testing.contracts import CHAIN

ALL = [
    *(policies.get(name)() for name in policies.available()),
    *(cls() for cls in policies.defined_in(_template)),
    # as it is, it collects for twenty minutes before it decides anything
    policies.get("flink_autoscaler")(metrics_window_s=20.0, warm_up_s=0.0, scale_in_delay_s=20.0),
    *(wrap(policies.get("ds2")()) for wrap in (wrappers.Bounded, wrappers.Cooldown, wrappers.RescaleBudget)),
    *(
        wrappers.Predictive(policies.get("ds2")(), kind(), min_windows=3, relearn=2)
        for kind in forecasting.available().values()
    ),
]
each = pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)


@each
@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_to_the_contract(policy, check):
    check(policy)


@each
def test_its_reference_resolves(policy):
    if getattr(policy, "reference", None):
        assert "author" in str(dspkit.cite(policy)).lower()


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
