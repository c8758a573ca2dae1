"""Policies and backends, the decisions that pass between them, and which backend suits which policy.

A policy needs to change some fields of a Deployment ("parallelism", "workers", "placement", "settings"), and a backend
can change some: `policy.needs` and `backend.knobs` are compared before a run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from .errors import ArgumentError, BackendError, KnobError
from .metrics import Snapshot
from .parameters import Knobs, at_pace
from .topology import Deployment, Topology
from .validation import FrozenMap, number, plain

KNOBS = tuple(f.name for f in fields(Deployment))
USUAL = frozenset({"parallelism"})  # the needs of a policy without `needs`


@dataclass(frozen=True)
class Decision:
    """The deployment that a policy requests.

    Parameters
    ----------
    deployment : Deployment
        The deployment to run from now on.
    why : mapping
        Reasons for plots and reports; the next step never reads them.

    Examples
    --------
    >>> Decision(Deployment({"read": 1}), {"rule": "load fits"}).why["rule"]
    'load fits'
    """

    deployment: Deployment
    why: Mapping[str, Any] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", plain(self.why))


@dataclass(frozen=True)
class Step:
    """One round of the control loop.

    Parameters
    ----------
    index : int
        Number of the window, from 0.
    snapshot : Snapshot
        Measurements of the window.
    decision : Decision, optional
        The policy's decision; None in windows in which an earlier change settles.
    rescaled : bool
        Whether the decision was deployed and changed the deployment.
    settling : int
        Number of following windows that are observed without a decision.
    state : object
        The policy's state, from which a run can be resumed; it is not saved.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run("ds2", apps.word_count(), steps=2)[0].rescaled
    True
    """

    index: int
    snapshot: Snapshot
    decision: Decision | None
    rescaled: bool = False
    settling: int = 0
    state: Any = field(default=None, repr=False, compare=False)

    @property
    def deployment(self) -> Deployment:
        """The deployment from this step on, unless it is changed from outside."""
        return self.decision.deployment if self.rescaled and self.decision else self.snapshot.deployment


@runtime_checkable
class Policy(Protocol):
    """A scaling method, which decides from snapshots alone.

    Policies are pure: the same state and snapshot give the same decision. An optional attribute `needs`, a frozenset,
    names the Deployment fields that the backend must be able to change; by default that is "parallelism".

    Examples
    --------
    >>> from dspkit.policies.static import Static
    >>> isinstance(Static(), Policy)
    True
    """

    @property
    def name(self) -> str:
        """The policy's name, in lower case."""
        ...

    def init(self, topology: Topology, seed: int = 0) -> Any:
        """Return the initial state for a job of this topology.

        Parameters
        ----------
        topology : Topology
            The operators of the job.
        seed : int
            Seed of all random choices.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.ds2 import DS2
        >>> DS2().init(apps.star().topology).recommendations
        ()
        """
        ...

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        """Return the next state and the decision for one window.

        Parameters
        ----------
        state : object
            The state of the previous window.
        snapshot : Snapshot
            The measurements of the window.

        Examples
        --------
        >>> from dspkit import apps
        >>> from dspkit.policies.ds2 import DS2
        >>> job = apps.word_count().simulator()
        >>> state, decision = DS2().step(DS2().init(job.topology), job.observe())
        >>> decision.deployment.parallelism["count"]
        3
        """
        ...


@dataclass(frozen=True)
class PolicyKnobs(Knobs):
    """Base class of policies whose settings are knobs: it adds `live`, and `suited` for backends without places.

    A subclass states in `paper_run_s` the time of a run in which the method, at the periods of its paper, shows all
    that it does; it marks its durations by `knob(..., pace="duration")`.

    Examples
    --------
    >>> from dspkit.policies.drs import DRS
    >>> DRS().running_s, DRS().live(120).running_s
    (60.0, 6.0)
    """

    paper_run_s: ClassVar[float] = 0.0  # 0: it decides in every window, so that nothing has to be shortened

    def __post_init__(self) -> None:
        super().__post_init__()
        below, above = (getattr(self, name, None) for name in ("scale_in_below", "scale_out_above"))
        if below is not None and above is not None and below >= above:
            raise KnobError(
                f"scale_in_below={below}, scale_out_above={above}",
                expected="scale_in_below < scale_out_above",
                fix="move them apart",
            )

    def live(self, seconds: float = 120.0) -> Self:
        """Return the live preset: all durations shortened by the same factor, so that a run of `seconds` is enough.

        The factor is `seconds` over `paper_run_s`, and at most 1. The present durations are shortened, those of an
        inner policy as well; thresholds, latencies and numbers of windows stay. No duration needs to be shorter than a
        window, for which 2 s is a good choice.

        Parameters
        ----------
        seconds : float
            Length of the live run.

        Examples
        --------
        >>> from dspkit.policies.elysium import Elysium
        >>> Elysium().live(120).decision_interval_s, Elysium().live(600).decision_interval_s
        (6.0, 30.0)
        """
        number(seconds, "seconds", 0, above=True, fix="pass the length of the run, as in 120")
        inner = self._inner(lambda policy: policy.live(seconds))
        return at_pace(inner, min(1.0, seconds / self.paper_run_s)) if self.paper_run_s else inner

    def suited(self, knobs: frozenset[str]) -> Self:
        """Return the policy in its mode for a backend that can change these fields of a Deployment.

        A policy that decides placements only where it is possible (`places="auto"`) leaves them alone where they are
        none of the fields. The control loop asks for it before a run.

        Parameters
        ----------
        knobs : frozenset of str
            The backend's `knobs`.

        Examples
        --------
        >>> from dspkit.policies.edrp import EDRP
        >>> EDRP().suited(frozenset({"parallelism"})).places
        'no'
        """
        inner = self._inner(lambda policy: policy.suited(knobs))
        without = "placement" not in knobs and getattr(self, "places", None) == "auto"
        return replace(inner, places="no") if without else inner  # type: ignore[call-arg]

    def _inner(self, change: Callable[[Any], Any]) -> Self:
        """Return the policy with its inner policies changed."""
        held = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), PolicyKnobs)}
        return replace(self, **{name: change(policy) for name, policy in held.items()}) if held else self


@runtime_checkable
class Backend(Protocol):
    """A job that can be observed and rescaled: simulated, live or recorded. A backend is a context manager.

    Examples
    --------
    >>> from dspkit import apps
    >>> with apps.star().simulator() as job:
    ...     isinstance(job, Backend), job.observe().t
    (True, 10.0)
    """

    @property
    def topology(self) -> Topology:
        """The operators of the job and the streams between them."""
        ...

    @property
    def knobs(self) -> frozenset[str]:
        """The Deployment fields that deploy() can change on this backend."""
        ...

    @property
    def deployment(self) -> Deployment:
        """The deployment that runs now, or from the next window on."""
        ...

    def observe(self) -> Snapshot | None:
        """Return the next window; None after the last, as at the end of a recording.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.word_count().simulator()
        >>> job.observe().t
        10.0
        """
        ...

    def deploy(self, deployment: Deployment) -> None:
        """Change the job to this deployment.

        Parameters
        ----------
        deployment : Deployment
            The deployment to run.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.word_count().simulator()
        >>> job.deploy(job.deployment.scaled({"count": 2}))
        >>> job.observe().deployment.parallelism["count"]
        2
        """
        ...

    def close(self) -> None:
        """Stop the job and release its resources; closing twice is allowed.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.word_count().simulator()
        >>> job.close(), job.close()
        (None, None)
        """
        ...

    def __enter__(self) -> Any: ...
    def __exit__(self, *exception: Any) -> None: ...


class BackendBase:
    """Base class of backends and other closable objects: a context manager that rejects calls after `close()`.

    A subclass that holds resources overrides `close`, calls `super().close()` in it, and begins each other method with
    `self._must_be_open()`.

    Examples
    --------
    >>> class Recording(BackendBase):
    ...     def observe(self):
    ...         self._must_be_open()
    >>> with Recording() as recording:
    ...     recording.observe()
    >>> recording.observe()
    Traceback (most recent call last):
    dspkit.core.errors.BackendError: got a call after close(); expected an open Recording; make a new one
    """

    _open = True

    def close(self) -> None:
        """Reject all calls from now on; closing twice has no further effect.

        Examples
        --------
        >>> base = BackendBase()
        >>> base.close(), base.close()
        (None, None)
        """
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _must_be_open(self) -> None:
        if not self._open:
            raise BackendError("a call after close()", expected=f"an open {type(self).__name__}", fix="make a new one")


class PolicyError(ArgumentError):
    """A policy that returns anything but a state and a Decision, or that needs what its backend cannot change."""


def needs_of(policy: Any) -> frozenset[str]:
    """Return the Deployment fields that a policy, or a class of policies, must be able to change.

    Examples
    --------
    >>> from dspkit.policies.ds2 import DS2
    >>> from dspkit.policies.traffic_aware import TrafficAware
    >>> sorted(needs_of(DS2())), sorted(needs_of(TrafficAware))
    (['parallelism'], ['placement'])
    """
    needs = getattr(policy, "needs", USUAL)
    if isinstance(needs, property):  # a class whose instances know it: a guard has the needs of its inner policy
        return USUAL
    if not isinstance(needs, (frozenset, set, tuple, list)) or not set(needs) <= set(KNOBS):
        raise PolicyError(
            f"needs = {needs!r} of {getattr(policy, 'name', policy)!r}",
            expected=f"a frozenset of {', '.join(KNOBS)}",
            fix='as in needs: ClassVar[frozenset[str]] = frozenset({"placement"})',
        )
    return frozenset(needs)


def check_needs(policy: Policy, backend: Backend) -> None:
    """Raise a PolicyError if the backend cannot change what the policy needs.

    A backend that can change nothing, such as a recording, suits every policy: decisions are then recorded as advice.

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.ds2 import DS2
    >>> check_needs(DS2(), apps.star().simulator())
    """
    missing = needs_of(policy) - backend.knobs
    if missing and backend.knobs:
        raise PolicyError(
            f"policy {policy.name!r} on {type(backend).__name__}, which cannot change {words(missing)}",
            expected=f"a backend that can change {words(needs_of(policy))}",
            fix=f"choose a policy that needs only {words(backend.knobs)}, or another backend",
        )


def words(knobs: frozenset[str]) -> str:
    """Return the names in the order of Deployment's fields, as text.

    Examples
    --------
    >>> words(frozenset({"placement", "parallelism"}))
    'parallelism and placement'
    """
    return " and ".join(name for name in KNOBS if name in knobs)


def changes(before: Deployment, after: Deployment) -> str:
    """Return a description of what a decision changes, such as "count 2 → 5, workers 3 → 4"; "" for no change.

    Parameters
    ----------
    before, after : Deployment
        The deployments before and after the change.

    Examples
    --------
    >>> changes(Deployment({"count": 2}, workers=3), Deployment({"count": 5}, workers=4))
    'count 2 → 5, workers 3 → 4'
    """
    parts = [
        f"{n} {before.parallelism.get(n, 0)} → {k}"
        for n, k in after.parallelism.items()
        if k != before.parallelism.get(n)
    ]
    if after.workers != before.workers:
        parts.append(f"workers {before.workers} → {after.workers}")
    parts += [name for name in ("placement", "settings") if getattr(after, name) != getattr(before, name)]
    return ", ".join(parts)


def why_text(why: Mapping[str, Any]) -> str:
    """Return the reasons of a decision as one readable line.

    Parameters
    ----------
    why : mapping
        The field `why` of a Decision.

    Examples
    --------
    >>> why_text({"true_rate": {"count": 1250.0}, "rule": "load fits"})
    'true rate: count 1,250; rule: load fits'
    """
    return "; ".join(f"{key.replace('_', ' ')}: {_short(value)}" for key, value in why.items())


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_short, value))
    return "unknown" if value is None else str(value)
