"""The policies that are asked if the user names none, as they make sense for a recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core import Decision, Policy, Snapshot, Topology
from ..errors import DspkitError, KnobError
from ..knobs import Knobs, knob
from ..policies import get
from ..policies._throughput import MODES, recommend
from .evidence import Evidence

Asked = dict[str, Policy | str]


@dataclass(frozen=True)
class ThroughputPhase(Knobs):
    """AuTraScale's first phase alone: true rates that sustain the load. Its search for latency must run the job."""

    name: ClassVar[str] = "autrascale"
    reference: ClassVar[str] = "autrascale"
    mode: str = knob("demand", "what is handed down the graph: demand, or Eq. 3's rounded capacity", choices=MODES)

    def init(self, topology: Topology, seed: int = 0) -> Topology:
        return topology

    def step(self, state: Topology, snapshot: Snapshot) -> tuple[Topology, Decision]:
        wanted, unknown = recommend(state, snapshot, self.mode)
        why: dict[str, Any] = {"instances needed": wanted} | ({"no data": unknown} if unknown else {})
        return state, Decision(snapshot.deployment.scaled(state.clip(wanted)), why)


def chosen(policies: Any, evidence: Evidence, target_latency: float | None) -> Asked:
    """What is asked, by name: the defaults, or the user's own choice of names and policies."""
    if policies is None:
        return defaults(evidence, target_latency)
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
            known = defaults(evidence, target_latency) if policy in NAMES else {}
            policy = known.get(policy) or get(policy)()
            name = name or (policy.name if not isinstance(policy, str) else None)
        if isinstance(policy, type) or not isinstance(policy, (Policy, str)):
            raise KnobError(f"policy {policy!r:.80}", expected="a name, or a policy that is made", fix="as in DS2()")
        key = str(name or getattr(policy, "name", policy))
        while key in asked:  # the same policy with other knobs
            key += "'"
        asked[key] = policy
    if not asked:
        raise KnobError("no policies", expected="at least one", fix="leave policies out for the defaults")
    return asked


NAMES = ("ds2", "autrascale", "flink_autoscaler", "drs", "elysium", "fission", "stela")


def defaults(evidence: Evidence, target_latency: float | None) -> Asked:
    """A text in place of a policy says what the recording lacks for it.

    ELYSIUM learns CPU in proportion to the rate, from the recording: a line needs loads that vary.
    """
    last = evidence.windows[-1]
    ds2 = get("ds2")
    asked: Asked = {
        "ds2": ds2(),
        "autrascale": ThroughputPhase(),
        # what it would do, not when: a recording says nothing of the hour that a scale-down waits
        "flink_autoscaler": _made("flink_autoscaler", metrics_window_s=60.0, stabilization_s=0.0, scale_down_s=0.0),
        "drs": "lacks: a latency to meet; pass target_latency="
        if target_latency is None
        else _made("drs", target_latency_s=target_latency),
        "elysium": _elysium(evidence),
        "fission": _made("fission", mid_term=False),  # its chain wants states that change
        "stela": _made("stela", trigger=ds2())
        if last.nodes or last.deployment.placement or last.deployment.workers
        else "lacks: how many machines there are, or which (nodes, workers or places)",
    }
    return {name: asked[name] for name in NAMES}


def _made(name: str, **knobs: Any) -> Policy | str:
    try:
        return get(name)(**knobs)
    except DspkitError as error:
        return f"cannot be made: {error}"


def _elysium(evidence: Evidence) -> Policy | str:
    seen = [m for s in evidence.windows for m in s.operators.values()]
    if not any(m.cpu is not None for m in seen):
        return "lacks: the CPU of operators (cpu)"
    scale = "operators" if evidence.windows[-1].deployment.workers is None else "both"
    return _made("elysium", load="arrivals", scale=scale)
