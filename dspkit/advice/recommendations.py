"""The recommendation of each policy for the recorded job, if its load continues, and the default policies of advice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from statistics import median
from typing import Any, ClassVar

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    DspkitError,
    FrozenMap,
    Knobs,
    OperatorMetrics,
    Policy,
    Snapshot,
    Topology,
    call,
    changes,
    knob,
    why_text,
)
from ..policies import get
from ..policies.autrascale import MODES, recommend_instances
from .evidence import Evidence, consecutive_parts, pool
from .needs import unmetered

Asked = dict[str, Policy | str]


@dataclass(frozen=True)
class ThroughputPhase(Knobs):
    """AuTraScale's first phase alone: true rates that sustain the load. Its search for latency must run the job."""

    name: ClassVar[str] = "autrascale"
    reference: ClassVar[str] = "autrascale"
    mode: str = knob("demand", "the rate propagated down the graph: demand, or Eq. 3's rounded capacity", choices=MODES)

    def init(self, topology: Topology, seed: int = 0) -> Topology:
        return topology

    def step(self, state: Topology, snapshot: Snapshot) -> tuple[Topology, Decision]:
        wanted, unknown = recommend_instances(state, snapshot, self.mode)
        why: dict[str, Any] = {"instances needed": wanted} | ({"no data": unknown} if unknown else {})
        return state, Decision(snapshot.deployment.scaled(state.clip(wanted)), why)


def chosen(policies: Any, evidence: Evidence, target_latency_s: float | None) -> Asked:
    """Return the policies to run, by name: the defaults, or the user's own names and policies."""
    if policies is None:
        return defaults(evidence, target_latency_s)
    pairs: Iterable[tuple[str | None, Any]]
    if isinstance(policies, Mapping):
        pairs = policies.items()
    elif isinstance(policies, (str, bytes)) or not isinstance(policies, Iterable):
        pairs = [(None, policies)]
    else:
        pairs = [(None, p) for p in policies]
    asked: Asked = {}
    for name, policy in pairs:
        if isinstance(policy, str):
            known = defaults(evidence, target_latency_s) if policy in NAMES else {}
            policy = known.get(policy) or get(policy)()
            name = name or (policy.name if not isinstance(policy, str) else None)
        if isinstance(policy, type) or not isinstance(policy, (Policy, str)):
            raise ArgumentError(
                f"policy {policy!r:.80}", expected="a name, or an instance of a policy", fix="as in DS2()"
            )
        key = str(name or getattr(policy, "name", policy))
        while key in asked:  # the same policy with other knobs
            key += "'"
        asked[key] = policy
    if not asked:
        raise ArgumentError("no policies", expected="at least one", fix="leave policies out for the defaults")
    return asked


NAMES = ("ds2", "autrascale", "flink_autoscaler", "drs", "elysium", "fission", "stela")


def defaults(evidence: Evidence, target_latency_s: float | None) -> Asked:
    """Return the default policies; a text in place of a policy names what the recording lacks for it.

    ELYSIUM learns CPU in proportion to the rate, from the recording: a line needs loads that vary.
    """
    last = evidence.windows[-1]
    ds2 = get("ds2")
    asked: Asked = {
        "ds2": ds2(),
        "autrascale": ThroughputPhase(),
        # its action, not its time: a recording does not cover the hour that a scale-down waits
        "flink_autoscaler": _made("flink_autoscaler", metrics_window_s=60.0, warm_up_s=0.0, scale_in_delay_s=0.0),
        "drs": "lacks: a latency to meet; pass target_latency_s="
        if target_latency_s is None
        else _made("drs", target_latency_s=target_latency_s),
        "elysium": _elysium(evidence),
        "fission": _made("fission", mid_term=False),  # its chain needs states that change
        "stela": _made("stela", trigger=ds2())
        if last.nodes or last.deployment.placement or last.deployment.workers
        else "lacks: the machines (nodes, workers or places)",
    }
    return {name: asked[name] for name in NAMES}


def _made(name: str, **knobs: Any) -> Policy | str:
    try:
        return get(name)(**knobs)
    except DspkitError as error:
        return f"cannot be created: {error}"


def _elysium(evidence: Evidence) -> Policy | str:
    seen = [m for s in evidence.windows for m in s.operators.values()]
    if not any(m.cpu is not None for m in seen):
        return "lacks: the CPU of operators (cpu)"
    scale = "operators" if evidence.windows[-1].deployment.workers is None else "both"
    return _made("elysium", load="arrivals", scale=scale)


HORIZON_S = 1800.0  # the simulated duration: long enough for policies that collect samples, cool down or wait
_AT_EASE = 0.7  # busy share of a source without metrics
SHORTEST_S = 10.0  # of a window in that time
# The keys that policies write into `why` where the recording lacks an input.
LACKS = ("no data", "not profiled yet", "no load known of", "waits", "refused")


@dataclass(frozen=True)
class Recommendation:
    """The first change that one policy requests; without one, `deployment` is None and `note` names what is missing.

    Parameters
    ----------
    policy : str
        Name of the policy.
    made : str
        The code that creates the policy.
    now : Deployment
        The current deployment.
    deployment : Deployment, optional
        The recommended deployment.
    why : mapping
        The policy's reasons.
    after_s : float
        Seconds that the policy observed before its request.
    note : str
        The missing input, or the error.
    spread : mapping
        Minimum and maximum of each operator's instances over parts of the recording.
    agree : float, optional
        Share of these parts that yield the same deployment.
    reference : str or tuple
        Reference keys of the policy.

    Examples
    --------
    >>> one = Recommendation("ds2", "DS2()", Deployment({"count": 3}), Deployment({"count": 5}))
    >>> one.says
    'count 3 → 5'
    """

    policy: str
    made: str
    now: Deployment
    deployment: Deployment | None = None
    why: Mapping[str, Any] = field(default_factory=FrozenMap)
    after_s: float = 0.0
    note: str = ""
    spread: Mapping[str, tuple[int, int]] = field(default_factory=FrozenMap)
    agree: float | None = None
    reference: Any = ()

    @property
    def says(self) -> str:
        """The recommendation in a few words."""
        if self.deployment is None:
            return "no recommendation"
        return changes(self.now, self.deployment) or "no change"

    @property
    def reasons(self) -> str:
        """The note and the policy's reasons as text."""
        return "; ".join(filter(None, (self.note, why_text(self.why))))


def ask(name: str, policy: Policy | str, topology: Topology, evidence: Evidence) -> Recommendation:
    """Return the recommendation of `policy`; if `policy` is a text, it names the missing input."""
    now = evidence.windows[-1].deployment
    if isinstance(policy, str):
        return Recommendation(name, name, now, note=policy)
    made = call(policy) if is_dataclass(policy) else repr(policy)
    window_s = max(SHORTEST_S, median(s.window_s for s in evidence.windows))
    told = Recommendation(name, made, now, reference=getattr(policy, "reference", ()))
    try:
        told = _asked(told, policy, topology, pool(evidence.windows), window_s)
        others = [
            _asked(told, policy, topology, part, window_s).deployment for part in consecutive_parts(evidence.windows)
        ]
    except DspkitError as error:
        return replace(told, deployment=None, note=str(error))
    except Exception as error:  # a user's own policy: its faults must not cost the advice of the others
        return replace(told, deployment=None, note=f"{type(error).__name__}: {error}")
    return _with_spread(told, others)


def _asked(told: Recommendation, policy: Policy, topology: Topology, seen: Snapshot, window_s: float) -> Recommendation:
    """Repeat the same window until the policy requests another deployment than the current one."""
    state, t = policy.init(topology, 0), 0.0
    seen, kept = _filled(topology, seen)
    while t < HORIZON_S:
        t += window_s
        state, decision = policy.step(state, replace(seen, t=t, window_s=window_s))
        wanted = topology.check(decision.deployment.scaled(kept))
        if wanted != seen.deployment:
            break
    lacks = {key: decision.why[key] for key in LACKS if key in decision.why}
    silent = wanted == seen.deployment and lacks
    return replace(
        told,
        deployment=None if silent else wanted,
        why=decision.why,
        after_s=t,
        note=f"lacks: {why_text(lacks)}" if silent else "",
    )


def _filled(topology: Topology, seen: Snapshot) -> tuple[Snapshot, dict[str, int]]:
    """Return the window with moderately busy sources in place of unmetered ones, and the parallelism these keep.

    Otherwise no policy would know the input of the operators below them.
    """
    operators, kept = dict(seen.operators), {}
    for name in unmetered(topology, [seen]):
        k, rate = seen.deployment.parallelism[name], seen.source_rates[name]
        sent = sum(seen.edge_rates.get((name, child), 0.0) for child in topology.downstream(name))
        speed = rate / (_AT_EASE * k) if rate > 0 else None
        operators[name] = OperatorMetrics(rate, rate, sent, speed, _AT_EASE if rate > 0 else 0.0, 0.0, k)
        kept[name] = k
    return replace(seen, operators=operators), kept


def _with_spread(told: Recommendation, others: Sequence[Deployment | None]) -> Recommendation:
    said = [d.parallelism for d in others if d is not None]
    if told.deployment is None or not said:
        return told
    mine = told.deployment.parallelism
    spread = {n: (min(d[n] for d in (mine, *said)), max(d[n] for d in (mine, *said))) for n in mine}
    return replace(told, spread=FrozenMap(spread), agree=sum(d == mine for d in said) / len(others))
