"""Each policy is asked about the job as it was recorded: what does it want if things go on like this?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from statistics import median
from typing import Any

from ..core import Deployment, OperatorMetrics, Policy, Snapshot, Topology
from ..errors import DspkitError
from ..frozen import FrozenMap
from ..history import changes, why_text
from ..knobs import call
from .evidence import Evidence, parts, pool
from .needs import unmetered

HORIZON_S = 1800.0  # that the job goes on for: policies that collect, rest or wait have their time
_AT_EASE = 0.7  # busy share of a source that nobody meters
SHORTEST_S = 10.0  # of a window in it
# What policies write into `why` where the recording did not tell them enough.
LACKS = ("no data", "not profiled yet", "no load known of", "waits", "refused")


@dataclass(frozen=True)
class Recommendation:
    """What one policy wants first. `deployment` is None where it could not say; then `note` tells what is missing.

    `spread` has the least and the most instances it wants if asked about parts of the recording; `agree` the share of
    these parts that give the very same deployment.
    """

    policy: str
    made: str
    now: Deployment
    deployment: Deployment | None = None
    why: Mapping[str, Any] = field(default_factory=FrozenMap)
    after_s: float = 0.0  # how long it watched before it said so
    note: str = ""
    spread: Mapping[str, tuple[int, int]] = field(default_factory=FrozenMap)
    agree: float | None = None
    reference: Any = ()

    @property
    def says(self) -> str:
        """In a few words."""
        if self.deployment is None:
            return "cannot say"
        return changes(self.now, self.deployment) or "keeps what runs"

    @property
    def reasons(self) -> str:
        return "; ".join(filter(None, (self.note, why_text(self.why))))


def ask(name: str, policy: Policy | str, topology: Topology, evidence: Evidence) -> Recommendation:
    """The recommendation of `policy`, or of none: then `policy` is a text that says what it would need."""
    now = evidence.windows[-1].deployment
    if isinstance(policy, str):
        return Recommendation(name, name, now, note=policy)
    made = call(policy) if is_dataclass(policy) else repr(policy)
    window_s = max(SHORTEST_S, median(s.window_s for s in evidence.windows))
    told = Recommendation(name, made, now, reference=getattr(policy, "reference", ()))
    try:
        told = _asked(told, policy, topology, pool(evidence.windows), window_s)
        others = [_asked(told, policy, topology, part, window_s).deployment for part in parts(evidence.windows)]
    except DspkitError as error:
        return replace(told, deployment=None, note=str(error))
    except Exception as error:  # a user's own policy: whatever is wrong in it must not cost the others' advice
        return replace(told, deployment=None, note=f"{type(error).__name__}: {error}")
    return _with_spread(told, others)


def _asked(told: Recommendation, policy: Policy, topology: Topology, seen: Snapshot, window_s: float) -> Recommendation:
    """Plays the same window on and on until the policy wants something else than what runs."""
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
    """The window with sources that nobody meters as if at ease, and their parallelism, which is kept as it is.

    Otherwise no policy knew what reaches the operators below them.
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
