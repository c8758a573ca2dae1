r"""Two layers: operator managers request changes of their operator, and an application manager grants few [nardelli].

| thesis | here |
|---|---|
| $S_\alpha$, $U_r$ | `busy` of a replica (share of a core, or of its time: `signal`), `used` of its node |
| $S_{s\text{-}out}$, $U_{\max}$, $c$ | `scale_out_above`, `migrate_above`, `scale_in_margin` |
| $R$, $R_{\max}$, $\beta$ | mean response time of the interval; `target_latency_s`, `beta` |
| tokens, $T$ | `Bucket.level`; `grant_interval_s`, and `decision_interval_s` of the lower layer |

Choices: scale-out precedes migration and scale-in, by gain; nodes are drawn with probability proportional to 1/delay;
tokens are added before requests are granted, in halves if T is half a minute; R excludes windows with downtime, and an
interval without output is above the threshold. Other readings are knobs: a token every second interval (`accrual`), a
rate that rises with R (`rule`), room that depends on load too (`room`), R of all windows, or the SLA's "worst
end-to-end delay" (`hears`; the 99 % point takes its place).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    FrozenMap,
    KnobError,
    Policy,
    Snapshot,
    Topology,
    knob,
)
from ..migration import StormDowntime
from ._managers import ManagerRequest, ManagerView, ReplicaAction, applied, freeze_tables, known_nodes, plan_action
from ._measurements import ChangeCost, LearnsChangeCost, change_cost_knob, signal_knob, uses
from .on_demand import placed

GAINS = FrozenMap({"scale out": 100.0, "migrate": 10.0, "scale in": 1.0})  # the thesis states only their order


class Bucket(NamedTuple):
    """The token bucket: its level, and the number of intervals above the threshold since the last whole token."""

    level: float = 0.0
    above: int = 0


class HierarchicalState(NamedTuple):
    """The token bucket, the pending requests, and the latencies of the interval."""

    topology: Topology
    seed: int
    drawn: int = 0  # number of random choices so far
    bucket: Bucket = Bucket()
    plan_at: float = 0.0
    grant_at: float = 0.0
    requests: tuple[ManagerRequest, ...] = ()
    heard: tuple[
        tuple[float, float, float, bool], ...
    ] = ()  # per window of the interval: mean, median and 99 % latency, whether there was downtime
    counts: tuple[int, int] = (0, 0)  # requests and grants so far
    inner: Any = None
    wished: Deployment | None = None  # decided by `manager` since the last requests
    cost: ChangeCost = ChangeCost()


@dataclass(frozen=True)
class Hierarchical(LearnsChangeCost):
    r"""Managers of operators request changes by thresholds; grants cost a token each, added if $R > \beta R_{\max}$.

    A replica above `scale_out_above` requests one more, a node above `migrate_above` the migration of a replica, and
    replicas that could do with one fewer, $\sum S_\alpha/(n-1) < c\,S_{out}$, the removal of one. Grants are in the
    order of gain over cost.

    Parameters
    ----------
    delays : mapping
        Delay in seconds by pair of nodes; 1 ms by default.
    state_bytes : mapping
        Size of the state by operator.
    downtime : StormDowntime
        Model of the downtime of a change.
    manager : Policy, optional
        A policy in the place of the thresholds: its decisions become requests, one replica at a time.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(Hierarchical(), apps.star(), steps=1)[-1].decision.why["rule"]
    'collects'
    """

    name: ClassVar[str] = "hierarchical"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "nardelli"
    paper_run_s: ClassVar[float] = 1200.0
    grants: str = knob("tokens", "grant as many requests as there are tokens, or all", choices=("tokens", "all"))
    beta: float = knob(
        0.75, "share of `target_latency_s` above which tokens are added", low=0.0, high=1.0, source="thesis: 0.5, 0.75"
    )
    target_latency_s: float = knob(
        0.2, "agreed response time", low=1e-3, high=3600.0, unit="s", source="R_max, thesis", line="latency"
    )
    tokens_per_min: float = knob(1.0, "tokens added per minute", low=0.0, high=60.0, pace="rate", source="thesis")
    token_capacity: float = knob(1.0, "capacity of the bucket", low=1.0, high=100.0, source="thesis")
    rule: str = knob("step", "dependence of the token rate on R", choices=("step", "rising"))
    hears: str = knob(
        "calm", "R: mean without downtime, mean of all windows, or the worst delay", choices=("calm", "all", "worst")
    )
    accrual: str = knob("parts", "add tokens in parts each interval, or whole", choices=("parts", "whole"))
    scale_out_above: float = knob(
        0.7,
        "share of a core above which a further replica is requested",
        low=0.05,
        high=1.0,
        source="S_s-out, thesis",
        line="busy",
    )
    migrate_above: float = knob(
        0.7, "load of a node above which a replica migrates", low=0.05, high=1.0, source="U_max, thesis"
    )
    scale_in_margin: float = knob(0.75, "margin of scale-in", low=0.0, high=0.99, source="c, thesis")
    decision_interval_s: float = knob(
        30.0, "period of operator managers", low=1.0, high=3600.0, unit="s", pace="duration", source="thesis"
    )
    grant_interval_s: float = knob(
        30.0, "period of the application manager", low=1.0, high=3600.0, unit="s", pace="duration", source="T, thesis"
    )
    slots_per_node: int = knob(8, "replicas that a node takes", low=1, high=4096, source="prototype of chapter 8")
    room: str = knob("slots", "criterion of a node with room", choices=("slots", "slots and load"))
    include_self: bool = knob(False, "a replica may be added on the node of the busiest", choices=(False, True))
    signal: str = signal_knob()
    places: str = knob(
        "auto", "whether to decide placements; auto: if machines have names", choices=("auto", "yes", "no")
    )
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap)
    state_bytes: Mapping[str, float] = field(default_factory=FrozenMap)
    downtime: StormDowntime = field(default_factory=StormDowntime)
    manager: Policy | None = None
    change_cost: str = change_cost_knob()

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze_tables(self)
        if self.manager is not None and (isinstance(self.manager, type) or not isinstance(self.manager, Policy)):
            raise ArgumentError(
                f"manager {self.manager!r}", expected="an instance of a policy", fix="as in manager=DS2()"
            )
        if not isinstance(self.downtime, StormDowntime):
            raise KnobError(f"downtime {self.downtime!r}", expected="a StormDowntime", fix="leave it out")

    def init(self, topology: Topology, seed: int = 0) -> HierarchicalState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return HierarchicalState(topology, seed, inner=self.manager.init(topology, seed) if self.manager else None)

    def step(self, state: HierarchicalState, snapshot: Snapshot) -> tuple[HierarchicalState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, t = snapshot.deployment, snapshot.t + 1e-9
        latency = snapshot.latency
        if latency:
            heard = (latency.mean, latency.p50, latency.p99, snapshot.downtime_s > 0)
            state = state._replace(heard=(*state.heard, heard))
        state = state._replace(cost=state.cost.after(snapshot))
        asked: tuple[ManagerRequest, ...] = ()
        if state.plan_at == 0.0 and state.grant_at == 0.0:
            begin = snapshot.t - snapshot.window_s
            state = state._replace(plan_at=begin + self.decision_interval_s, grant_at=begin + self.grant_interval_s)
        if self.manager:
            inner = state.inner if state.inner is not None else self.manager.init(state.topology, state.seed)
            inner, wish = self.manager.step(inner, snapshot)
            state = state._replace(inner=inner)
            if wish.deployment.parallelism != now.parallelism:
                state = state._replace(wished=wish.deployment)
        if t >= state.plan_at:
            state = state._replace(plan_at=_next(state.plan_at, self.decision_interval_s, t))
            if snapshot.downtime_s < snapshot.window_s:  # otherwise a change is still in progress
                asked = self._plans(state, snapshot)
                state = state._replace(wished=None)
            kept = {r.operator: r for r in (*state.requests, *asked)}  # the newest of each operator
            state = state._replace(
                requests=tuple(kept.values()),
                drawn=state.drawn + 1,
                counts=(state.counts[0] + len(asked), state.counts[1]),
            )
        if t < state.grant_at:
            return state, Decision(now, {"rule": "collects", "asked": [str(r) for r in state.requests]})
        response = self.response(state)
        seconds = max(self.grant_interval_s, snapshot.window_s)
        bucket, granted = self.end_of_interval(state.bucket, response, state.requests, seconds)
        target = now
        if granted:
            predicted = max(r.cost_s for r in granted) - self._correction_s(state)
            state = state._replace(cost=state.cost._replace(predicted_s=predicted))
            target = self._carry_out(state.topology, snapshot, [r.action for r in granted])
        why = {
            "R": response,
            "tokens": round(bucket.level, 9),
            "asked": [str(r) for r in state.requests],
            "granted": [str(r) for r in granted],
            "requests so far": state.counts[0],
        }
        counts = (state.counts[0], state.counts[1] + len(granted))
        grant_at = _next(state.grant_at, self.grant_interval_s, t)
        state = state._replace(bucket=bucket, grant_at=grant_at, requests=(), heard=(), counts=counts)
        return state, Decision(target, why)

    def _correction_s(self, state: HierarchicalState) -> float:
        """Return the seconds by which changes have cost more than `downtime` says."""
        return state.cost.error_s if self.change_cost == "measured" else 0.0

    def response(self, state: HierarchicalState) -> float:
        """Return R of the interval: the mean of windows without downtime, or else of the medians of all windows.

        Other readings: the mean of all windows, the worst delay (99 %). Without any output it is infinite.

        Parameters
        ----------
        state : HierarchicalState
            The state, which contains the latencies of the interval.

        Examples
        --------
        >>> from dspkit import Topology
        >>> policy = Hierarchical()
        >>> policy.response(policy.init(Topology.chain("a", "b")))
        inf
        """
        if not state.heard:
            return math.inf
        if self.hears == "worst":
            return max(p99 for _, _, p99, _ in state.heard)
        if self.hears == "all":
            return fmean(mean for mean, *_ in state.heard)
        if calm := [mean for mean, _, _, still in state.heard if not still]:
            return fmean(calm)
        return fmean(p50 for _, p50, *_ in state.heard)

    def end_of_interval(
        self, bucket: Bucket, response_s: float, requests: tuple[ManagerRequest, ...], seconds: float | None = None
    ) -> tuple[Bucket, list[ManagerRequest]]:
        """Add the tokens of an interval, then grant the best requests, one token each.

        Parameters
        ----------
        bucket : Bucket
            The tokens before.
        response_s : float
            R of the interval.
        requests : tuple of ManagerRequest
            The requests.
        seconds : float, optional
            Length of the interval; by default `grant_interval_s`.

        Examples
        --------
        >>> Hierarchical().end_of_interval(Bucket(), 1.0, ())[0].level
        0.5
        """
        bucket = self._filled(bucket, response_s, self.grant_interval_s if seconds is None else seconds)
        newest = {r.operator: r for r in requests}
        ranked = sorted(newest.values(), key=lambda r: (-r.gain / max(r.cost_s, 1e-3), r.operator))
        if self.grants == "all":
            return bucket, ranked
        granted, level = [], bucket.level
        for request in ranked:
            if level >= 1 - 1e-9:
                granted.append(request)
                level -= 1
        return bucket._replace(level=max(0.0, level)), granted

    def _filled(self, bucket: Bucket, response_s: float, seconds: float = 30.0) -> Bucket:
        per_interval = self.tokens_per_min / 60 * seconds
        if self.rule == "rising":
            share = 1.0 if self.beta == 1 else (response_s / self.target_latency_s - self.beta) / (1 - self.beta)
            per_interval *= min(1.0, max(0.0, share))
        elif not response_s > self.beta * self.target_latency_s:
            return bucket
        if self.accrual == "parts":
            return bucket._replace(level=min(self.token_capacity, bucket.level + per_interval))
        above = bucket.above + 1
        if above * per_interval < 1 - 1e-9:
            return bucket._replace(above=above)
        return Bucket(min(self.token_capacity, bucket.level + max(1, math.floor(above * per_interval + 1e-9))), 0)

    def _plans(self, state: HierarchicalState, snapshot: Snapshot) -> tuple[ManagerRequest, ...]:
        """Return the requests of all operator managers: by the thresholds, or by `manager`."""
        import numpy as np

        made, wanted = [], (state.wished or snapshot.deployment).parallelism
        rules = replace(self, delays=snapshot.delays) if snapshot.delays and not self.delays else self
        for i, (name, view) in enumerate(self._views(state.topology, snapshot).items()):
            seen, k = view, len(view.busy)
            if self.manager:
                if wanted[name] == k:
                    continue
                urge = 2.0 if wanted[name] > k else 0.0  # a utilisation that triggers the change
                seen = replace(view, busy=(urge,) * k, used=dict.fromkeys(view.used, 0.0))
            random = np.random.default_rng([state.seed, state.drawn, i])
            if action := plan_action(name, seen, rules, random):
                request = self._request(action, view, snapshot.t)
                made.append(request._replace(cost_s=request.cost_s + self._correction_s(state)))
        return tuple(made)

    def _views(self, topology: Topology, snapshot: Snapshot) -> dict[str, ManagerView]:
        """Return the knowledge of each operator's manager; operators without metrics have none."""
        machines, now, views = known_nodes(snapshot), snapshot.deployment, {}
        places = placed(topology, now, machines) if machines and self.places != "no" else {}
        filled = Counter(places.values())
        free = {m: self.slots_per_node - filled[m] for m in machines}
        for o in topology.operators:
            metrics, k = snapshot.operators.get(o.name), now.parallelism[o.name]
            if (busy := uses(metrics, self.signal)) is None:
                continue
            if len(busy) != k:  # measured with another number of replicas
                busy = (fmean(busy),) * k
            homes = tuple(places.get((o.name, i), "") for i in range(k))
            views[o.name] = ManagerView(
                busy,
                homes,
                snapshot.nodes,
                machines if places else (),
                free,
                o.min_parallelism,
                o.max_parallelism,
            )
        return views

    def _request(self, action: ReplicaAction, view: ManagerView, t: float) -> ManagerRequest:
        before = Counter(view.nodes)
        after = Counter(action.after(view.nodes))
        cost = self.downtime.seconds(before, after, self.state_bytes.get(action.operator, 0.0), running=view.machines)
        return ManagerRequest(action, GAINS[action.kind], cost, t)

    def _carry_out(self, topology: Topology, snapshot: Snapshot, actions: list[ReplicaAction]) -> Deployment:
        now, machines = snapshot.deployment, known_nodes(snapshot)
        tell = bool(machines) and self.places != "no"
        tell = tell and (self.places == "yes" or bool(snapshot.nodes or now.placement))
        places = placed(topology, now, machines) if machines else {}
        return applied(now, places, actions, tell)


def _next(due: float, period: float, t: float) -> float:
    """Return the first multiple of the period after t, counted from `due`."""
    return due + period * max(1, math.ceil((t - due) / period))
