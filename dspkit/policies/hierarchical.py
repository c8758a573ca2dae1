r"""Two layers: operator managers ask for changes of their operator, an application manager grants few [nardelli].

    | thesis | here |
    |---|---|
    | $S_\alpha$, $U_r$ | `busy` of a replica (share of a core), `used` of its node |
    | $S_{s\text{-}out}$, $U_{\max}$, $c$ | `out`, `node_most`, `c` |
    | $R$, $R_{\max}$, $\beta$ | mean response time of the interval; `most_s`, `beta` |
    | tokens, $T$ | `Bucket.level`; `grant_s`, and `plan_s` of the lower layer |

Choices: scale-out is looked at before migration before scale-in, by gain; nearer nodes are drawn with probability
proportional to 1/delay; tokens come before grants are given, by halves if T is half a minute; R leaves out windows in
which the job stood still, and an interval without output is above the threshold. Other readings are knobs: a token
every second interval (`accrual`), a rate that rises with R (`rule`), room that looks at load too (`room`), R of all
windows, or the SLA's "worst end-to-end delay" (`hears`; the 99 % point stands for it).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, Policy, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ..migration import StormDowntime
from ._managers import Action, Request, View, applied, freeze_tables, known, plan
from .on_demand import placed

GAINS = FrozenMap({"scale out": 100.0, "migrate": 10.0, "scale in": 1.0})  # only their order is printed


class Bucket(NamedTuple):
    """Tokens, and how many intervals were above the threshold since the last whole one came."""

    level: float = 0.0
    above: int = 0


class State(NamedTuple):
    topology: Topology
    seed: int
    drawn: int = 0  # random choices so far
    bucket: Bucket = Bucket()
    plan_at: float = 0.0
    grant_at: float = 0.0
    requests: tuple[Request, ...] = ()
    heard: tuple[
        tuple[float, float, float, bool], ...
    ] = ()  # of the interval: mean, median and 99 % latency, whether it stood still
    counts: tuple[int, int] = (0, 0)  # requests and grants so far
    inner: Any = None
    wished: Deployment | None = None  # by `manager`, since it was last asked


@dataclass(frozen=True)
class Hierarchical(Knobs):
    r"""Managers of operators ask by thresholds; one for all grants, a token each, which come if $R > \beta R_{\max}$.

    A replica above `out` asks for one more, a node above `node_most` for a replica to leave, and replicas that would
    do with one fewer, $\sum S_\alpha/(n-1) < c\,S_{out}$, to lose it. Grants go by gain over cost.
    """

    name: ClassVar[str] = "hierarchical"
    reference: ClassVar[str] = "nardelli"
    grants: str = knob("tokens", "who is granted: as tokens allow, or all who ask", choices=("tokens", "all"))
    beta: float = knob(0.75, "share of `most_s` above which tokens come", low=0.0, high=1.0, source="thesis: 0.5, 0.75")
    most_s: float = knob(
        0.2, "R_max: response time that is agreed", low=1e-3, high=3600.0, unit="s", source="thesis", line="latency"
    )
    tokens_per_min: float = knob(1.0, "tokens that come", low=0.0, high=60.0, source="thesis")
    capacity: float = knob(1.0, "tokens that are kept", low=1.0, high=100.0, source="thesis")
    rule: str = knob("step", "how the rate of tokens depends on R", choices=("step", "rising"))
    hears: str = knob(
        "calm", "R: mean while the job runs, mean of all, or the worst delay", choices=("calm", "all", "worst")
    )
    accrual: str = knob("parts", "tokens come in parts each interval, or whole", choices=("parts", "whole"))
    out: float = knob(
        0.7, "share of a core above which a replica wants another", low=0.05, high=1.0, source="thesis", line="busy"
    )
    node_most: float = knob(0.7, "load of a node above which a replica leaves it", low=0.05, high=1.0, source="thesis")
    c: float = knob(0.75, "margin of scale-in", low=0.0, high=0.99, source="thesis")
    plan_s: float = knob(30.0, "period of operator managers", low=1.0, high=3600.0, unit="s", source="thesis")
    grant_s: float = knob(30.0, "period of the application manager", low=1.0, high=3600.0, unit="s", source="thesis")
    slots: int = knob(8, "replicas that a node takes", low=1, high=4096, source="prototype of chapter 8")
    room: str = knob("slots", "which nodes have room", choices=("slots", "slots and load"))
    include_self: bool = knob(False, "a replica may be added on the node of the busiest", choices=(False, True))
    signal: str = knob(
        "auto", "what counts: CPU, busy time, or CPU where it is measured", choices=("auto", "cpu", "busy")
    )
    places: str = knob(
        "auto", "whether to say which replica runs where; auto: if machines have names", choices=("auto", "yes", "no")
    )
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap)  # of nodes, s; 1 ms where unknown
    state_bytes: Mapping[str, float] = field(default_factory=FrozenMap)  # of each operator
    downtime: StormDowntime = field(default_factory=StormDowntime)  # predicts what a change costs
    manager: Policy | None = None  # asks instead of the thresholds: its wishes become requests, one replica at a time

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze_tables(self)
        if self.manager is not None and (isinstance(self.manager, type) or not isinstance(self.manager, Policy)):
            raise KnobError(f"manager {self.manager!r}", expected="a policy that is made", fix="as in manager=DS2()")
        if not isinstance(self.downtime, StormDowntime):
            raise KnobError(f"downtime {self.downtime!r}", expected="a StormDowntime", fix="leave it out")

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology, seed, inner=self.manager.init(topology, seed) if self.manager else None)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now, t = snapshot.deployment, snapshot.t + 1e-9
        latency = snapshot.latency
        if latency:
            heard = (latency.mean, latency.p50, latency.p99, snapshot.downtime_s > 0)
            state = state._replace(heard=(*state.heard, heard))
        asked: tuple[Request, ...] = ()
        if state.plan_at == 0.0 and state.grant_at == 0.0:
            begin = snapshot.t - snapshot.window_s
            state = state._replace(plan_at=begin + self.plan_s, grant_at=begin + self.grant_s)
        if self.manager:
            inner = state.inner if state.inner is not None else self.manager.init(state.topology, state.seed)
            inner, wish = self.manager.step(inner, snapshot)
            state = state._replace(inner=inner)
            if wish.deployment.parallelism != now.parallelism:
                state = state._replace(wished=wish.deployment)
        if t >= state.plan_at:
            state = state._replace(plan_at=_next(state.plan_at, self.plan_s, t))
            if snapshot.downtime_s < snapshot.window_s:  # else a change is still under way
                asked = self._plans(state, snapshot)
                state = state._replace(wished=None)
            kept = {r.operator: r for r in (*state.requests, *asked)}  # the newest of each operator
            state = state._replace(
                requests=tuple(kept.values()), drawn=state.drawn + 1,
                counts=(state.counts[0] + len(asked), state.counts[1]),
            )  # fmt: skip
        if t < state.grant_at:
            return state, Decision(now, {"rule": "collects", "asked": [str(r) for r in state.requests]})
        response = self.response(state)
        seconds = max(self.grant_s, snapshot.window_s)
        bucket, granted = self.end_of_interval(state.bucket, response, state.requests, seconds)
        target = now
        if granted:
            target = self._carry_out(state.topology, snapshot, [r.action for r in granted])
        why = {
            "R": response, "tokens": round(bucket.level, 9), "asked": [str(r) for r in state.requests],
            "granted": [str(r) for r in granted], "requests so far": state.counts[0],
        }  # fmt: skip
        counts = (state.counts[0], state.counts[1] + len(granted))
        grant_at = _next(state.grant_at, self.grant_s, t)
        state = state._replace(bucket=bucket, grant_at=grant_at, requests=(), heard=(), counts=counts)
        return state, Decision(target, why)

    def response(self, state: State) -> float:
        """R of the interval: of windows in which the job ran; if there is none, the medians, which buffering spares.

        Other readings: the mean of all windows, the worst there was (99 %). Without any output it is infinite.
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
        self, bucket: Bucket, response_s: float, requests: tuple[Request, ...], seconds: float | None = None
    ) -> tuple[Bucket, list[Request]]:
        """Tokens come for an interval of `seconds`, then the best requests are granted, one token each."""
        bucket = self._filled(bucket, response_s, self.grant_s if seconds is None else seconds)
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
            share = 1.0 if self.beta == 1 else (response_s / self.most_s - self.beta) / (1 - self.beta)
            per_interval *= min(1.0, max(0.0, share))
        elif not response_s > self.beta * self.most_s:
            return bucket
        if self.accrual == "parts":
            return bucket._replace(level=min(self.capacity, bucket.level + per_interval))
        above = bucket.above + 1
        if above * per_interval < 1 - 1e-9:
            return bucket._replace(above=above)
        return Bucket(min(self.capacity, bucket.level + max(1, math.floor(above * per_interval + 1e-9))), 0)

    def _plans(self, state: State, snapshot: Snapshot) -> tuple[Request, ...]:
        """What each operator manager asks for, each by itself: by the thresholds, or as `manager` wishes."""
        import numpy as np

        made, wanted = [], (state.wished or snapshot.deployment).parallelism
        for i, (name, view) in enumerate(self._views(state.topology, snapshot).items()):
            seen, k = view, len(view.busy)
            if self.manager:
                if wanted[name] == k:
                    continue
                urge = 2.0 if wanted[name] > k else 0.0  # as if the replicas were that busy
                seen = replace(view, busy=(urge,) * k, used=dict.fromkeys(view.used, 0.0))
            random = np.random.default_rng([state.seed, state.drawn, i])
            if action := plan(name, seen, self, random):
                made.append(self._request(action, view, snapshot.t))
        return tuple(made)

    def _views(self, topology: Topology, snapshot: Snapshot) -> dict[str, View]:
        """What each operator's manager sees; none where its operator was not measured."""
        machines, now, views = known(snapshot), snapshot.deployment, {}
        places = placed(topology, now, machines) if machines and self.places != "no" else {}
        filled = Counter(places.values())
        free = {m: self.slots - filled[m] for m in machines}
        for o in topology.operators:
            metrics, k = snapshot.operators.get(o.name), now.parallelism[o.name]
            if metrics is None or (self.signal == "cpu" and metrics.cpu is None):
                continue
            busy = metrics.utilisation
            if self.signal != "busy" and metrics.cpu is not None:
                busy = metrics.cpu / metrics.parallelism
            homes = tuple(places.get((o.name, i), "") for i in range(k))
            views[o.name] = View(
                (busy,) * k, homes, snapshot.nodes, machines if places else (), free, o.min_parallelism,
                o.max_parallelism,
            )  # fmt: skip
        return views

    def _request(self, action: Action, view: View, t: float) -> Request:
        before = Counter(view.nodes)
        after = Counter(action.after(view.nodes))
        cost = self.downtime.seconds(before, after, self.state_bytes.get(action.operator, 0.0), running=view.machines)
        return Request(action, GAINS[action.kind], cost, t)

    def _carry_out(self, topology: Topology, snapshot: Snapshot, actions: list[Action]) -> Deployment:
        now, machines = snapshot.deployment, known(snapshot)
        tell = bool(machines) and self.places != "no"
        tell = tell and (self.places == "yes" or bool(snapshot.nodes or now.placement))
        places = placed(topology, now, machines) if machines else {}
        return applied(now, places, actions, tell)


def _next(due: float, period: float, t: float) -> float:
    """The first multiple of the period after t, counted from `due`."""
    return due + period * max(1, math.ceil((t - due) / period))
