"""The batteries find what is broken: for every rule a policy and a backend that break it, and no other message."""

import subprocess
import sys
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, ClassVar

import pytest

from dspkit import Decision, DspkitError, Simulator, apps
from dspkit.core import DeploymentError, Knobs, knob
from dspkit.testing import BACKEND_CHECKS, POLICY_CHECKS, ContractError, check_backend, check_policy


@dataclass(frozen=True)
class Good(Knobs):
    """One instance more where an operator is busy."""

    name: ClassVar[str] = "good"
    high: float = knob(0.8, "busy share above which there is one more", low=0.1, high=1.0)

    def init(self, topology: Any, seed: int = 0) -> Any:
        return topology

    def step(self, state: Any, snapshot: Any) -> Any:
        k = dict(snapshot.deployment.parallelism)
        for name, m in snapshot.operators.items():
            k[name] += m.utilisation > self.high
        return state, Decision(snapshot.deployment.scaled(state.clip(k)))


class Shouts(Good):
    """A name in capitals."""

    name: ClassVar[str] = "Shouts"


@dataclass
class Loose:
    """Not frozen."""

    name: ClassVar[str] = "loose"
    high: float = 0.8
    init, step = Good.init, Good.step


@dataclass(frozen=True)
class Silent(Good):
    """A knob without help."""

    low: float = knob(0.1, "", low=0.0, high=1.0)


class Needy(Good):
    """Needs what there is not."""

    needs: ClassVar[Any] = frozenset({"memory"})


class Tossing(Good):
    """Decides by a global that changes."""

    turns: ClassVar[Any] = count()

    def step(self, state: Any, snapshot: Any) -> Any:
        return state, Decision(snapshot.deployment, {"turn": next(self.turns)})


class Meddling(Good):
    """Keeps its state in a list and changes it in place."""

    def init(self, topology: Any, seed: int = 0) -> Any:
        return []

    def step(self, state: Any, snapshot: Any) -> Any:
        state.append(snapshot.t)
        return state, Decision(snapshot.deployment)


@dataclass(frozen=True)
class Hiding(Good):
    """Remembers in itself what ought to be in its state, by the window that it saw first."""

    seen: Any = field(default_factory=dict)

    def init(self, topology: Any, seed: int = 0) -> Any:
        self.seen.clear()
        return topology

    def step(self, state: Any, snapshot: Any) -> Any:
        self.seen[snapshot.t] = True
        return state, Decision(snapshot.deployment, {"windows": len(self.seen)})

    def __deepcopy__(self, memo: Any) -> Any:
        return Hiding()


class Closed(Good):
    """A state that cannot be pickled."""

    def init(self, topology: Any, seed: int = 0) -> Any:
        return lambda: topology

    def step(self, state: Any, snapshot: Any) -> Any:
        return state, Decision(snapshot.deployment)


class Brittle(Good):
    """Its state suits one setting only."""

    def init(self, topology: Any, seed: int = 0) -> Any:
        return {self.high: topology}

    def step(self, state: Any, snapshot: Any) -> Any:
        assert self.high in state, "no state for this setting"
        return state, Decision(snapshot.deployment)


class Trusting(Good):
    """Believes that every operator is always measured."""

    def step(self, state: Any, snapshot: Any) -> Any:
        return state, Decision(snapshot.deployment, {"busy": snapshot.operators["work"].utilisation})


class Grabbing(Good):
    """Forgets the workers and the settings that there are."""

    def step(self, state: Any, snapshot: Any) -> Any:
        return state, Decision(replace(snapshot.deployment, workers=None, settings={}))


class Insisting(Good):
    """Fails where its wish for workers was not granted, which it does not say that it needs."""

    def init(self, topology: Any, seed: int = 0) -> Any:
        return topology, 0

    def step(self, state: Any, snapshot: Any) -> Any:
        topology, windows = state
        now = snapshot.deployment
        assert windows <= 7 or now.workers == 2, "where are my workers?"
        return (topology, windows + 1), Decision(replace(now, workers=2) if windows == 6 else now)


class Boundless(Good):
    """Adds instances beyond all bounds, if operators are many."""

    def step(self, state: Any, snapshot: Any) -> Any:
        k = snapshot.deployment.parallelism
        return state, Decision(snapshot.deployment.scaled({n: i + (len(k) != 3) for n, i in k.items()}))


BROKEN = [
    (Shouts(), "declares_itself", "got name 'Shouts'; expected a name in lower case"),
    (Loose(), "declares_itself", "got high can be set; expected a frozen dataclass"),
    (Silent(), "declares_itself", "knob low without help"),
    (Needy(), "declares_itself", r"needs = frozenset\(\{'memory'\}\)"),
    (Good, "declares_itself", "expected an instance of a policy"),
    (Tossing(), "answers_the_same_twice", "another decision in window 0 when it saw the same snapshots again"),
    (Meddling(), "changes_nothing_it_is_given", r"a state or a snapshot changed by step\(\) at t = 10 s"),
    (Hiding(), "resumes_from_a_pickled_state", "another decision in window 5 when it continued from a pickled state"),
    (Closed(), "resumes_from_a_pickled_state", "pickle"),
    (Brittle(), "bears_turned_knobs", "no state for this setting"),
    (Trusting(), "bears_silent_meters", "KeyError"),
    (Grabbing(), "leaves_what_it_does_not_steer", "workers and settings"),
    (Insisting(), "runs_with_no_more_than_it_needs", "where are my workers"),
    (Boundless(), "decisions_fit", "DeploymentError"),
]


@pytest.mark.parametrize(("policy", "name", "message"), BROKEN, ids=[type(policy).__name__ for policy, _, _ in BROKEN])
def test_a_policy_with_one_broken_rule_is_caught_by_that_rule(policy, name, message):
    with pytest.raises(ContractError, match=message):
        check_policy(policy, only=[name], examples=60)


def test_there_is_a_broken_policy_for_every_rule_and_a_good_one_passes():
    assert {name for _, name, _ in BROKEN} == {check.__name__ for check in POLICY_CHECKS}
    check_policy(Good())


def test_a_failure_names_the_policy_and_the_rule():
    with pytest.raises(ContractError) as caught:
        check_policy(Meddling(), examples=0)
    assert caught.value.__notes__ == [
        "'good' breaks the rule changes_nothing_it_is_given: A step changes neither its state nor its snapshot"
    ]
    assert isinstance(caught.value, AssertionError)


def test_without_hypothesis_the_other_rules_are_checked():
    code = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "from dspkit import policies, testing\n"
        "testing.check_policy(policies.DS2(), examples=0)\n"
        "try: testing.check_policy(policies.DS2())\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "BackendError got no hypothesis; expected it installed; pip install hypothesis, or pass examples=0\n"


class Off(Simulator):
    """A simulator with faults of its own."""

    broken = ""

    def observe(self) -> Any:
        s = super().observe()
        name, m = next(iter(s.operators.items()))
        match self.broken:
            case "late":
                return replace(s, t=s.t + self._window)
            case "gap":
                return replace(s, operators={n: m for n, m in s.operators.items() if n != name})
            case "count":
                return replace(s, operators={**s.operators, name: replace(m, parallelism=9)})
            case "lag":
                return replace(s, lag=s.lag + 1.0)
            case "rates":
                return replace(s, operators={**s.operators, name: replace(m, output_rate=m.output_rate + 1.0)})
            case "none":
                return None
        return s

    def deploy(self, deployment: Any) -> None:
        match self.broken:
            case "deaf":
                self.topology.check(deployment)
            case "trusting":
                if set(deployment.parallelism) == set(self.topology.order):
                    deployment = replace(deployment, parallelism=self.topology.clip(deployment.parallelism))
                    super().deploy(deployment)
            case "hasty" if deployment.parallelism.keys() != set(self.topology.order):
                super().deploy(replace(self.deployment, workers=1))
                raise DeploymentError("a wrong one", expected="a right one", fix="check it first")
            case "vague" if deployment.settings or deployment.placement:
                raise DspkitError("something else", expected="the same", fix="guess")
            case _:
                super().deploy(deployment)

    def close(self) -> None:
        if self.broken == "undead":
            return
        if self.broken == "once" and not self._open:
            self.broken = ""
            raise RuntimeError("twice")
        super().close()

    def __repr__(self) -> str:
        return "a simulator" if self.broken == "mute" else super().__repr__()


WRONG = [
    ("odd", "says_what_it_can_change", r"knobs frozenset\(\{'speed'\}\)"),
    ("late", "windows_follow_one_another", r"windows that end at 11 s and 22 s, the second 10 s long"),
    ("none", "windows_follow_one_another", r"None from observe\(\)"),
    ("gap", "snapshots_cover_the_topology", r"operators of \['alert', 'bolt', 'report', 'right', 'store'\]; expected"),
    ("count", "snapshots_cover_the_topology", "9 instances of 'left' in its metrics; expected 1"),
    ("lag", "rates_fit_together", "lag = .*, but the sources' backlog"),
    ("rates", "rates_fit_together", "output rate of 'left'"),
    ("deaf", "deploys_for_the_next_window", "in the next window"),
    ("trusting", "refuses_what_does_not_fit", "parallelism .* deployed; expected a DeploymentError"),
    ("hasty", "refuses_what_does_not_fit", "after that; expected"),
    ("vague", "refuses_what_is_no_knob", "got got something else.*expected 'settings' in it"),
    ("undead", "stays_closed", r"observe\(\) after close\(\); expected a BackendError"),
    ("once", "stays_closed", "RuntimeError"),
    ("mute", "says_what_it_is", "expected 'left' in it"),
]


def _make(broken):
    app = apps.star()
    backend = Off(app.topology, app.plant, app.workload, deployment=app.deployment())
    backend.broken = broken
    if broken == "odd":
        backend.knobs = frozenset({"speed"})
    return backend


@pytest.mark.parametrize(("broken", "name", "message"), WRONG, ids=[broken for broken, _, _ in WRONG])
def test_a_backend_with_one_broken_rule_is_caught_by_that_rule(broken, name, message):
    with pytest.raises(ContractError, match=message):
        check_backend(partial(_make, broken), only=[name])


def test_there_is_a_broken_backend_for_every_rule_and_a_good_one_passes():
    assert {name for _, name, _ in WRONG} == {check.__name__ for check in BACKEND_CHECKS}
    check_backend(partial(_make, ""))
