r"""EDRP as a policy: each minute keep what runs, or change replicas and places, downtime weighed in [nardelli].

    | thesis | here |
    |---|---|
    | $w_r, w_c, w_d$ | `response`, `cost`, `downtime`; `WEIGHTINGS` has the four of Table 8.3 |
    | $R_{\max}, C_{\max}, T_{D,\max}$ | `most_s`, `most_price`, `most_downtime_s` |
    | $k_i$ | `replicas`, and no more than the operator may have |
    | $Res_u$, $d_{(u,v)}$ | `slots` of each node, `delays` |
    | $\mu_i$, $\lambda_{(i,j)}$ | true rate of an instance; mean source rates of the period, times what is sent on |
    | rEDRP | `restricted`: each operator one step from where it runs |

Operators are M/M/1 queues, as in the numeric experiment. The first decision with measured rates ignores downtime, as
S-EDRP's does (`begin`). The search stops after `branches`, not after a time, so that a step stays pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, Edge, Snapshot, Topology
from ..errors import InfeasibleError, KnobError, PlacementError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ..placement import (
    Application,
    Downtime,
    ElasticAnswer,
    ElasticWeights,
    Limits,
    Network,
    Problem,
    ReplicaProblem,
    adapt,
)
from ..placement.control import FIRST
from ._managers import delay, freeze_tables, known
from .on_demand import placed

WEIGHTINGS: Mapping[str, Mapping[str, Any]] = {
    "baseline": {"response": 0.5, "cost": 0.5, "downtime": 0.0},
    "balanced": {"response": 0.3, "cost": 0.3, "downtime": 0.4},
    "response time": {"response": 0.6, "cost": 0.0, "downtime": 0.4},
    "cost": {"response": 0.0, "cost": 0.6, "downtime": 0.4},
}
ANYWHERE = "anywhere"  # one node for all, where places are not known


class State(NamedTuple):
    topology: Topology
    due: float = 0.0
    begun: bool = False  # whether a decision with measured rates was taken
    rates: Mapping[str, float] = FrozenMap()  # records/s of one instance, as last measured
    sends: Mapping[Edge, float] = FrozenMap()  # records sent along a stream for each one processed
    offered: Mapping[str, float] = FrozenMap()  # records at each source since the last decision
    seconds: float = 0.0


@dataclass(frozen=True)
class Edrp(Knobs):
    """Minimise the weighted response time, cost and downtime, all as shares of their limits, each period anew."""

    name: ClassVar[str] = "edrp"
    reference: ClassVar[str] = "nardelli"
    response: float = knob(0.3, "weight of the response time (w_r)", low=0.0, high=1.0, source="thesis: balanced")
    cost: float = knob(0.3, "weight of the cost (w_c)", low=0.0, high=1.0, source="thesis: balanced")
    downtime: float = knob(0.4, "weight of a change's downtime (w_d)", low=0.0, high=1.0, source="thesis: balanced")
    most_s: float = knob(0.175, "R_max: response time at most", low=1e-3, high=3600.0, unit="s", source="thesis")
    most_price: float = knob(30.0, "C_max: cost at most; a replica costs 1", low=1.0, high=1e6, source="thesis")
    most_downtime_s: float = knob(
        7.5, "T_D,max: downtime of a change at most", low=1e-3, high=3600.0, unit="s", source="thesis"
    )
    replicas: int = knob(3, "replicas of an operator at most (k)", low=1, high=8, source="thesis: 2 to 4")
    slots: int = knob(8, "replicas that a node takes", low=1, high=4096, source="thesis: prototype")
    period_s: float = knob(60.0, "time between decisions", low=1.0, high=3600.0, unit="s", source="thesis")
    restricted: bool = knob(False, "rEDRP: each operator at most one step from where it runs", choices=(False, True))
    begin: str = knob(
        "free", "the first decision with measured rates: free of downtime, or weighed", choices=("free", "weighed")
    )
    model: str = knob(
        "storm", "a change stops operators that move, or the whole job (storm)", choices=("storm", "general")
    )
    sync_s: float = knob(6.0, "t_syn: time that any change takes", low=0.0, high=600.0, unit="s", source="prototype")
    spawn_s: float = knob(0.5, "t_s: time to start a replica", low=0.0, high=600.0, unit="s", source="thesis")
    branches: int = knob(20_000, "branches that a search looks at", low=100, high=10_000_000)
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap)  # of nodes, s; 1 ms where unknown
    state_bytes: Mapping[str, float] = field(default_factory=FrozenMap)  # of each operator
    pinned: Mapping[str, str] = field(default_factory=FrozenMap)  # operator: its node

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze_tables(self)
        if not isinstance(self.pinned, Mapping) or not all(isinstance(n, str) for n in self.pinned.values()):
            raise KnobError(f"pinned = {self.pinned!r}", expected="{operator: node}", fix="correct it")
        object.__setattr__(self, "pinned", FrozenMap(self.pinned))
        if self.response == self.cost == self.downtime == 0:
            raise KnobError("all weights 0", expected="one above 0", fix="say what counts")

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now = snapshot.deployment
        if not state.due:
            state = state._replace(due=snapshot.t - snapshot.window_s + self.period_s)
        state = self._heard(state, snapshot)
        if snapshot.t + 1e-9 < state.due:
            return state, Decision(now, {"rule": "measures"})
        late = max(1, math.ceil((snapshot.t - state.due) / self.period_s + 1e-9))
        state = state._replace(due=state.due + self.period_s * late)
        if not state.rates or snapshot.downtime_s >= snapshot.window_s:
            return state, Decision(now, {"rule": "nothing is measured yet, or a change is under way"})
        machines = known(snapshot)
        places = placed(state.topology, now, machines) if machines else {}
        try:
            moves = self.problem(state, machines)
            found = self._solve(state, moves, now, places)
        except InfeasibleError as error:
            return self._next(state), Decision(now, {"rule": "nothing can run", "because": str(error)})
        target = self._deployed(state.topology, now, places, found, bool(machines) and bool(snapshot.nodes))
        metrics = found.metrics
        why = {
            "status": found.status, "R": metrics.response_s, "cost": metrics.cost, "downtime": found.downtime_s,
            "loss": found.loss, "gap": found.gap, "rates": {n: round(r, 6) for n, r in state.rates.items()},
            "actions": {o: a for o, a in found.actions.items() if a != "none"},
        }  # fmt: skip
        return self._next(state), Decision(target, why)

    def problem(self, state: State, machines: tuple[str, ...]) -> Downtime:
        """What is known, as a problem with replicas and the downtime of its changes."""
        topology = state.topology
        offered = {n: c / state.seconds for n, c in state.offered.items()} if state.seconds else {}
        load = {n: offered.get(n, 0.0) for n in topology.order}
        sent = {}
        for n in topology.order:
            for m in topology.downstream(n):
                sent[n, m] = load[n] * state.sends.get((n, m), 1.0)
                load[m] += sent[n, m]
        names = topology.order
        app = Application(names, topology.edges, 1, 0.0, [sent[e] for e in topology.edges] or 0.0)
        nodes = machines or (ANYWHERE,)
        far = [[0.0 if a == b else delay(self.delays, a, b) for b in nodes] for a in nodes]
        room = float(self.slots) if machines else float(self.replicas * len(names))
        pins = {o: n for o, n in self.pinned.items() if o in names and n in nodes}
        problem = ReplicaProblem(
            Problem(app, Network(nodes, far, room), pins),
            [min(self.replicas, topology[n].max_parallelism) for n in names],
            [state.rates.get(n, math.inf) for n in names],
            source_rate_per_s={n: load[n] for n in topology.sources},
        )
        state_bytes = [self.state_bytes.get(n, 0.0) for n in names]
        return Downtime(problem, state_bytes=state_bytes, spawn_s=self.spawn_s, sync_s=self.sync_s, model=self.model)

    def _solve(
        self, state: State, moves: Downtime, now: Deployment, places: Mapping[tuple[str, int], str]
    ) -> ElasticAnswer:
        weights = ElasticWeights(self.response, self.cost, self.downtime)
        if not state.begun and self.begin == "free":
            weights = FIRST
        running = {n: tuple(places.get((n, i), ANYWHERE) for i in range(k)) for n, k in now.parallelism.items()}
        limits = Limits(self.most_s, self.most_price, self.most_downtime_s)
        settings: dict[str, Any] = {"solver": "own", "branches": self.branches}
        try:
            return adapt(moves, running, weights, limits, restricted=self.restricted, **settings)
        except PlacementError as error:  # no first deployment within these branches
            if isinstance(error, InfeasibleError):
                raise
            raise InfeasibleError(str(error), expected="a deployment", fix="allow more branches") from error

    def _heard(self, state: State, snapshot: Snapshot) -> State:
        """With one window more."""
        rates = {n: m.true_rate for n, m in snapshot.operators.items() if m.true_rate}
        sends = {e: s for e in state.topology.edges if (s := snapshot.selectivity(e)) is not None}
        offered = dict(state.offered)
        for n, rate in snapshot.source_rates.items():
            offered[n] = offered.get(n, 0.0) + rate * snapshot.window_s
        return state._replace(
            rates=FrozenMap({**state.rates, **rates}), sends=FrozenMap({**state.sends, **sends}),
            offered=FrozenMap(offered), seconds=state.seconds + snapshot.window_s,
        )  # fmt: skip

    def _next(self, state: State) -> State:
        """A new period."""
        return state._replace(begun=True, offered=FrozenMap(), seconds=0.0)

    def _deployed(
        self, topology: Topology, now: Deployment, places: Mapping[tuple[str, int], str], found: ElasticAnswer,
        tell: bool,
    ) -> Deployment:  # fmt: skip
        """The answer as a deployment: replicas that stay on their node keep their numbers where they can."""
        counts: dict[str, int] = {}
        placement: dict[tuple[str, int], str] = {}
        for name, nodes in found.named.items():
            count = topology.clip({name: len(nodes)})[name]
            left = [*nodes, *(nodes[i % len(nodes)] for i in range(count - len(nodes)))]
            homes: list[str | None] = [places.get((name, i)) for i in range(count)]
            for i, home in enumerate(homes):
                if home in left:
                    left.remove(home)
                else:
                    homes[i] = None
            counts[name] = count
            placement |= {(name, i): home or left.pop(0) for i, home in enumerate(homes)}
        if not tell:
            return now.scaled(counts)
        same = counts == dict(now.parallelism) and all(places.get(k) == v for k, v in placement.items())
        return now if same else replace(now, parallelism=counts, placement=placement)
