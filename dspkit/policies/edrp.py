r"""EDRP as a policy: keep the deployment in a period, or change replicas and placement at a downtime [nardelli].

| thesis | here |
|---|---|
| $w_r, w_c, w_d$ | `response`, `cost`, `downtime`; `WEIGHTINGS` has the four of Table 8.3 |
| $R_{\max}, C_{\max}, T_{D,\max}$ | `target_latency_s`, `max_cost`, `max_downtime_s` |
| $k_i$ | `max_parallelism`, bounded by the operator's own |
| $Res_u$, $d_{(u,v)}$ | `slots_per_node` of each node, `delays` |
| $\mu_i$, $\lambda_{(i,j)}$ | true rate of an instance; mean source rates of the period, times selectivities |
| rEDRP | `restricted`: each operator one step from its present state |

Operators are M/M/1 queues, as in the numeric experiment. The first decision with measured rates ignores downtime, like
S-EDRP's (`begin`). The search ends after a number of `branches` rather than a time, so that a step is pure. Without
places (`places="no"`, the mode for a backend that cannot change them) all replicas run on one node with room for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    FrozenMap,
    InfeasibleError,
    PlacementError,
    Snapshot,
    Topology,
    knob,
)
from ..placement import Application, Downtime, Limits, Network, Problem, Replication, Solution, Weights, solve
from ..placement.replication.control import FIRST
from ._managers import delay, freeze_tables, known_nodes
from ._measurements import ChangeCost, LearnsChangeCost, change_cost_knob, commits_knob
from .odp import PeriodRates, on_nodes
from .on_demand import placed

WEIGHTINGS: Mapping[str, Mapping[str, Any]] = {
    "baseline": {"response": 0.5, "cost": 0.5, "downtime": 0.0},
    "balanced": {"response": 0.3, "cost": 0.3, "downtime": 0.4},
    "response time": {"response": 0.6, "cost": 0.0, "downtime": 0.4},
    "cost": {"response": 0.0, "cost": 0.6, "downtime": 0.4},
}
ANYWHERE = "anywhere"  # a single node, if placements are unknown


class EdrpState(NamedTuple):
    """The measurements since the last decision."""

    topology: Topology
    due: float = 0.0
    begun: bool = False  # whether there was a decision with measured rates
    measured: PeriodRates = PeriodRates()
    cost: ChangeCost = ChangeCost()


@dataclass(frozen=True)
class EDRP(LearnsChangeCost):
    """Minimise the weighted response time, cost and downtime, each relative to its limit, in every period.

    Parameters
    ----------
    delays : mapping
        Delay in seconds by pair of nodes; by default as pings measure it (`Snapshot.delays`), or else 1 ms.
    state_bytes : mapping
        Size of the state by operator.
    pinned : mapping
        Node by operator.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(EDRP(), apps.star(), steps=1)[-1].decision.why["rule"]
    'measures'
    """

    name: ClassVar[str] = "edrp"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "nardelli"
    paper_run_s: ClassVar[float] = 1200.0
    response: float = knob(0.3, "weight of the response time (w_r)", low=0.0, high=1.0, source="thesis: balanced")
    cost: float = knob(0.3, "weight of the cost (w_c)", low=0.0, high=1.0, source="thesis: balanced")
    downtime: float = knob(0.4, "weight of a change's downtime (w_d)", low=0.0, high=1.0, source="thesis: balanced")
    target_latency_s: float = knob(
        0.175, "response time at most", low=1e-3, high=3600.0, unit="s", source="R_max, thesis"
    )
    max_cost: float = knob(30.0, "cost at most; a replica costs 1", low=1.0, high=1e6, source="C_max, thesis")
    max_downtime_s: float = knob(
        7.5, "downtime of a change at most", low=1e-3, high=3600.0, unit="s", source="T_D,max, thesis"
    )
    max_parallelism: int = knob(3, "replicas of an operator at most", low=1, high=8, source="k_i, thesis: 2 to 4")
    slots_per_node: int = knob(8, "replicas that a node takes", low=1, high=4096, source="thesis: prototype")
    decision_interval_s: float = knob(
        60.0, "time between decisions", low=1.0, high=3600.0, unit="s", pace="duration", source="thesis"
    )
    restricted: bool = knob(False, "rEDRP: each operator at most one step from where it runs", choices=(False, True))
    begin: str = knob(
        "free", "the first decision with measured rates: free of downtime, or weighed", choices=("free", "weighed")
    )
    model: str = knob(
        "storm", "a change stops operators that move, or the whole job (storm)", choices=("storm", "general")
    )
    sync_s: float = knob(6.0, "t_syn: time that any change takes", low=0.0, high=600.0, unit="s", source="prototype")
    spawn_s: float = knob(0.5, "t_s: time to start a replica", low=0.0, high=600.0, unit="s", source="thesis")
    change_cost: str = change_cost_knob()
    commits: str = commits_knob()
    branches: int = knob(20_000, "branches that a search visits", low=100, high=10_000_000)
    ties: str = knob(
        "stay",
        "of equally good deployments: the running one, or any, as a solver of w_d = 0 answers",
        choices=("stay", "any"),
    )
    places: str = knob(
        "auto", "whether to decide placements; auto: if machines have names", choices=("auto", "yes", "no")
    )
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap)
    state_bytes: Mapping[str, float] = field(default_factory=FrozenMap)
    pinned: Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze_tables(self)
        if not isinstance(self.pinned, Mapping) or not all(isinstance(n, str) for n in self.pinned.values()):
            raise ArgumentError(
                f"pinned = {self.pinned!r}", expected="{operator: node}", fix="as in {'source': 'node-1'}"
            )
        object.__setattr__(self, "pinned", FrozenMap(self.pinned))
        if self.response == self.cost == self.downtime == 0:
            raise ArgumentError("all weights 0", expected="one above 0", fix="set a weight")
        if self.places == "yes":
            object.__setattr__(self, "needs", frozenset({"parallelism", "placement"}))

    def init(self, topology: Topology, seed: int = 0) -> EdrpState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return EdrpState(topology)

    def step(self, state: EdrpState, snapshot: Snapshot) -> tuple[EdrpState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now = snapshot.deployment
        if not state.due:
            state = state._replace(due=snapshot.t - snapshot.window_s + self.decision_interval_s)
        state = state._replace(measured=state.measured.watch(state.topology, snapshot), cost=state.cost.after(snapshot))
        if snapshot.t + 1e-9 < state.due:
            return state, Decision(now, {"rule": "measures"})
        late = max(1, math.ceil((snapshot.t - state.due) / self.decision_interval_s + 1e-9))
        state = state._replace(due=state.due + self.decision_interval_s * late)
        if not state.measured.rates or snapshot.downtime_s >= snapshot.window_s:
            return state, Decision(now, {"rule": "nothing is measured yet, or a change is in progress"})
        machines = () if self.places == "no" else known_nodes(snapshot)
        places = placed(state.topology, now, machines) if machines else {}
        try:
            problem = self.problem(state, machines)
            found = self._solve(state, problem, now, places)
        except InfeasibleError as error:
            return self._next(state), Decision(now, {"rule": "nothing can run", "because": str(error)})
        tell = bool(machines) and (bool(snapshot.nodes) or self.places == "yes")
        target = on_nodes(state.topology, now, places, found.nodes, tell)
        metrics = found.metrics
        why = {
            "status": found.status,
            "R": metrics.response_s,
            "cost": metrics.cost,
            "downtime": found.downtime_s,
            "loss": found.loss,
            "gap": found.gap,
            "rates": {n: round(r, 6) for n, r in state.measured.rates.items()},
            "actions": {o: a for o, a in found.actions.items() if a != "none"},
        }
        if self.change_cost == "measured":
            why["any change, s"] = self._sync_s(state)
        if target != now:
            predicted = found.downtime_s - self._sync_s(state) + self.sync_s
            state = state._replace(cost=state.cost._replace(predicted_s=predicted))
        return self._next(state), Decision(target, why)

    def _sync_s(self, state: EdrpState) -> float:
        """Return the seconds that any change takes."""
        return max(0.0, self.sync_s + (state.cost.error_s if self.change_cost == "measured" else 0.0))

    def problem(self, state: EdrpState, machines: tuple[str, ...]) -> Problem:
        """Return the placement problem with replication and downtime that results from the measurements.

        Parameters
        ----------
        state : EdrpState
            The measurements.
        machines : tuple of str
            The nodes.

        Examples
        --------
        >>> policy = EDRP()
        >>> policy.problem(policy.init(Topology.chain("a", "b")), ("n1", "n2")).network.nodes
        ('n1', 'n2')
        """
        topology = state.topology
        load, sent = state.measured.loads(topology)
        names = topology.order
        app = Application(names, topology.edges, 1, 0.0, [sent[e] for e in topology.edges] or 0.0)
        nodes = machines or (ANYWHERE,)
        far = [[0.0 if a == b else delay(self.delays, a, b, state.measured.space) for b in nodes] for a in nodes]
        room = float(self.slots_per_node) if machines else float(self.max_parallelism * len(names))
        pins = {o: n for o, n in self.pinned.items() if o in names and n in nodes}
        replication = Replication(
            [min(self.max_parallelism, topology[n].max_parallelism) for n in names],
            state.measured.speeds(topology, self.commits),
            source_rate_per_s={n: load[n] for n in topology.sources},
        )
        state_bytes = [self.state_bytes.get(n, 0.0) for n in names]
        change = Downtime(state_bytes=state_bytes, spawn_s=self.spawn_s, sync_s=self._sync_s(state), model=self.model)
        return Problem(app, Network(nodes, far, room), pins, replication, change)

    def _solve(
        self, state: EdrpState, problem: Problem, now: Deployment, places: Mapping[tuple[str, int], str]
    ) -> Solution:
        weights = Weights(self.response, cost=self.cost, downtime=self.downtime)
        if not state.begun and self.begin == "free":
            weights = FIRST
        running = {n: tuple(places.get((n, i), ANYWHERE) for i in range(k)) for n, k in now.parallelism.items()}
        limits = Limits(self.target_latency_s, self.max_cost, self.max_downtime_s)
        try:
            return solve(
                problem,
                weights,
                limits=limits,
                running=running,
                restricted=self.restricted,
                branches=self.branches,
                ties=self.ties,
            )
        except PlacementError as error:  # no first deployment within these branches
            if isinstance(error, InfeasibleError):
                raise
            raise InfeasibleError(str(error), expected="a deployment", fix="allow more branches") from error

    def _next(self, state: EdrpState) -> EdrpState:
        """Begin a new period."""
        return state._replace(begun=True, measured=state.measured.again())
