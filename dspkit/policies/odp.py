r"""ODP and ODRP as policies: the best placement of the present instances, or of as many as are best [nardelli].

| thesis | here |
|---|---|
| S-ODP, S-ODRP | `ODP`, `ODRP`: the schedulers of the prototypes |
| $w_r, w_a, w_z, w_c$ | `response`, `availability`, `network`, `cost` |
| $Z$: $T$, $N$, $EE$ | `metric`: traffic, usage, energy |
| $C_u$, $d_{(u,v)}$, $A_u$ | `slots_per_node`, `delays` or pings, `up` |
| $R_i$ | seconds per record of an instance: measured, or 1 ms (`times`) |
| $\lambda_{(i,j)}$ | mean rates of the monitored time, shared evenly by the instances of both ends |

Both plan in two steps, as in Algorithm 6: early without rates, for the highest availability (ODP) or the least cost
(ODRP), and again after `monitor_s`. A node in use that is not reported any more has failed: the whole assignment is
discarded, and planned again on the others, at once if rates are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    Edge,
    FrozenMap,
    PlacementError,
    PolicyKnobs,
    Snapshot,
    Topology,
    demands,
    knob,
)
from ..core.validation import mapping, number
from ..placement import (
    HEURISTICS,
    NETWORK_METRICS,
    Application,
    Network,
    Problem,
    Ranges,
    Replication,
    Solution,
    Weights,
    find_ranges,
    solve,
)
from ..placement.coordinates import DelaySpace
from ..placement.distributed_storm import executors_problem
from ._managers import delay, freeze_tables, known_nodes
from ._measurements import Attained, commits_knob

METHODS = ("exact", *HEURISTICS)
UNIT_S = 1e-3  # the thesis's R_i = 1 ms


class PeriodRates(NamedTuple):
    """Measurements of load and network since the last decision, for a plan of the next deployment."""

    rates: Mapping[str, float] = FrozenMap()  # last measured records/s of one instance
    sends: Mapping[Edge, float] = FrozenMap()  # records sent along an edge per record processed
    offered: Mapping[str, float] = FrozenMap()  # records at each source since the last decision
    seconds: float = 0.0
    space: DelaySpace = DelaySpace()
    attained: Attained = Attained()

    def watch(self, topology: Topology, snapshot: Snapshot) -> PeriodRates:
        """Return the measurements with one more window."""
        rates = {n: m.true_rate for n, m in snapshot.operators.items() if m.true_rate}
        sends = {e: s for e in topology.edges if (s := snapshot.selectivity(e)) is not None}
        offered = dict(self.offered)
        for n, rate in snapshot.source_rates.items():
            offered[n] = offered.get(n, 0.0) + rate * snapshot.window_s
        return PeriodRates(
            FrozenMap({**self.rates, **rates}),
            FrozenMap({**self.sends, **sends}),
            FrozenMap(offered),
            self.seconds + snapshot.window_s,
            self.space.watch(snapshot.delays) if snapshot.delays else self.space,
            self.attained.after(snapshot),
        )

    def again(self) -> PeriodRates:
        """Begin a new period."""
        return self._replace(offered=FrozenMap(), seconds=0.0)

    def speeds(self, topology: Topology, commits: str) -> list[float]:
        """Return the records/s of one instance of each operator, less the time lost at commits if it is "measured"."""
        share = self.attained.share if commits == "measured" else 1.0
        return [self.rates.get(n, math.inf) * share for n in topology.order]

    def loads(self, topology: Topology) -> tuple[dict[str, float], dict[Edge, float]]:
        """Return the records/s of each operator and edge: mean source rates, times selectivities (1 if unknown)."""
        offered = {n: c / self.seconds for n, c in self.offered.items()} if self.seconds else {}
        senders = {n: topology.upstream(n) for n in topology.order}
        found = demands(senders, {n: offered.get(n, 0.0) for n in senders}, lambda e: self.sends.get(e, 1.0))
        load = {n: rate or 0.0 for n, rate in found.items()}
        return load, {(a, b): load[a] * self.sends.get((a, b), 1.0) for a, b in topology.edges}


def on_nodes(
    topology: Topology,
    now: Deployment,
    places: Mapping[tuple[str, int], str],
    nodes: Mapping[str, tuple[str, ...]],
    tell: bool = True,
) -> Deployment:
    """Return the deployment with replicas on these nodes; those that remain on their node keep their numbers.

    `places` are the present ones; without `tell` only the numbers of replicas change.
    """
    counts: dict[str, int] = {}
    placement: dict[tuple[str, int], str] = {}
    for name, chosen in nodes.items():
        count = topology.clip({name: len(chosen)})[name]
        left = [*chosen, *(chosen[i % len(chosen)] for i in range(count - len(chosen)))]
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


class PlanState(NamedTuple):
    """The measurements, the phase ("early", "monitors", "placed"), and what the last plan was made for."""

    topology: Topology
    seed: int = 0
    phase: str = "early"
    since_s: float | None = None  # begin of the phase
    measured: PeriodRates = PeriodRates()
    parallelism: Mapping[str, int] = FrozenMap()


@dataclass(frozen=True)
class PlannedPlacement(PolicyKnobs):
    """Base class of ODP and ODRP; a subclass defines `early` and `plan`."""

    needs: ClassVar[frozenset[str]] = frozenset({"placement"})
    reference: ClassVar[str] = "nardelli"
    paper_run_s: ClassVar[float] = 900.0
    response: float = knob(1.0, "weight of the response time (w_r)", low=0.0, high=1.0)
    availability: float = knob(0.0, "weight of the availability (w_a)", low=0.0, high=1.0)
    network: float = knob(0.0, "weight of the network metric (w_z)", low=0.0, high=1.0)
    metric: str = knob(
        "usage", "the network metric: records/s, in flight, or times delay squared", choices=NETWORK_METRICS
    )
    slots_per_node: int = knob(8, "instances that a node takes", low=1, high=4096, source="thesis: 2 slots of 4")
    monitor_s: float = knob(
        100.0,
        "time in which rates are measured before a plan",
        low=1.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="thesis",
    )
    decision_interval_s: float = knob(
        0.0,
        "time between further plans; 0: after a failure or a change from outside alone",
        low=0.0,
        high=3600.0,
        unit="s",
        pace="duration",
        source="thesis: 0",
    )
    two_step: bool = knob(
        True, "plan early, without rates, and again with them", choices=(False, True), source="thesis"
    )
    times: str = knob(
        "measured",
        "seconds per record of an instance: measured, or 1 ms (unit)",
        choices=("measured", "unit"),
        source="thesis: unit",
    )
    delays: Mapping[tuple[str, str], float] = field(default_factory=FrozenMap)
    up: Mapping[str, float] = field(default_factory=FrozenMap)
    pinned: Mapping[str, str] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze_tables(self, "delays")
        for name, what in (("pinned", "a node by operator"), ("up", "an availability by node")):
            mapping(getattr(self, name), name, what)
            object.__setattr__(self, name, FrozenMap(getattr(self, name)))
        if wrong := [n for n in self.pinned.values() if not isinstance(n, str)]:
            raise ArgumentError(f"pinned to {wrong[0]!r}", expected="a node's name", fix="as in {'source': 'node-1'}")
        for node, share in self.up.items():
            number(share, f"up[{node!r}]", 0, 1, above=True)
        self.weights()

    def weights(self) -> Weights:
        """Return the weights of the plan with known rates.

        Examples
        --------
        >>> ODP(network=1.0, response=0.0).weights().network
        1.0
        """
        return Weights(self.response, self.availability, self.network, metric=self.metric)

    def early(self, state: PlanState, now: Deployment, nodes: tuple[str, ...]) -> Solution:
        """Return the plan without rates.

        Parameters
        ----------
        state : PlanState
            The measurements.
        now : Deployment
            What runs.
        nodes : tuple of str
            The nodes that are up.

        Examples
        --------
        >>> policy = ODP(up={"n1": 0.9})
        >>> found = policy.early(policy.init(Topology.chain("a", "b")), Deployment({"a": 1, "b": 1}), ("n1", "n2"))
        >>> found.named
        {'a[0]': 'n2', 'b[0]': 'n2'}
        """
        raise NotImplementedError(f"{type(self).__name__} must define early(state, now, nodes)")

    def plan(self, state: PlanState, now: Deployment, nodes: tuple[str, ...]) -> Solution:
        """Return the plan with the measured rates.

        Parameters
        ----------
        state, now, nodes
            As of `early`.

        Examples
        --------
        >>> policy = ODP(pinned={"a": "n1"})
        >>> found = policy.plan(policy.init(Topology.chain("a", "b")), Deployment({"a": 1, "b": 1}), ("n1", "n2"))
        >>> found.named
        {'a[0]': 'n1', 'b[0]': 'n1'}
        """
        raise NotImplementedError(f"{type(self).__name__} must define plan(state, now, nodes)")

    def nodes_of(self, found: Solution) -> Mapping[str, tuple[str, ...]]:
        """Return the nodes of each operator's instances.

        Parameters
        ----------
        found : Solution
            A plan.

        Examples
        --------
        >>> policy, now = ODP(), Deployment({"a": 2})
        >>> policy.nodes_of(policy.plan(policy.init(Topology(("a",))), now, ("n1",)))
        {'a': ('n1', 'n1')}
        """
        return found.nodes

    def init(self, topology: Topology, seed: int = 0) -> PlanState:
        """Return the initial state, as described in `dspkit.Policy`."""
        if strangers := [o for o in self.pinned if o not in topology.order]:
            expected = f"one of {', '.join(topology.order)}"
            raise ArgumentError(f"{strangers[0]!r} pinned", expected=expected, fix="use the operator's name")
        return PlanState(topology, seed)

    def step(self, state: PlanState, snapshot: Snapshot) -> tuple[PlanState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, t = snapshot.deployment, snapshot.t
        nodes = tuple(sorted(snapshot.nodes)) or known_nodes(snapshot)
        if state.since_s is None:
            state = state._replace(since_s=t - snapshot.window_s, phase="early" if self.two_step else "monitors")
        state = state._replace(measured=state.measured.watch(state.topology, snapshot))
        if not nodes:
            return state, Decision(now, {"rule": "waits: no nodes are known"})
        known = all(n in state.measured.rates for n in state.topology.order) and bool(state.measured.seconds)
        reason = self._due(state, snapshot, nodes, known)
        if reason is None:
            waits = "placed" if state.phase == "placed" else f"measures rates for {self.monitor_s:g} s"
            return state, Decision(now, {"rule": waits})
        with_rates = known and state.phase != "early"
        try:
            found = (self.plan if with_rates else self.early)(state, now, nodes)
        except PlacementError as error:
            after = state._replace(phase="placed" if with_rates else "monitors", since_s=t, parallelism=now.parallelism)
            return after, Decision(now, {"rule": "nothing can run", "because": str(error)})
        target = on_nodes(state.topology, now, now.placement, self.nodes_of(found))
        m = found.metrics
        why = {
            "rule": reason,
            "method": found.solver,
            "status": found.status,
            "R": m.response_s,
            "A": math.exp(m.log_availability),
            "traffic": m.traffic,
            "usage": m.usage,
        }
        phase, measured = ("placed" if with_rates else "monitors"), state.measured.again()
        if not with_rates:  # rates of the former placement are not those of the plan
            measured = PeriodRates(space=measured.space)
        after = state._replace(phase=phase, since_s=t, measured=measured, parallelism=target.parallelism)
        return after, Decision(target, why)

    def _due(self, state: PlanState, snapshot: Snapshot, nodes: tuple[str, ...], known: bool) -> str | None:
        """Return the reason to plan in this window, or None."""
        now = snapshot.deployment
        lost = sorted({n for n in now.placement.values() if n not in nodes})
        if lost and snapshot.nodes:
            return f"failed: {', '.join(lost)}"
        if state.phase == "early":
            return "early plan, without rates"
        elapsed = snapshot.t - (state.since_s or 0.0)
        if state.phase == "monitors":
            return "plan with measured rates" if known and elapsed >= self.monitor_s - 1e-9 else None
        if dict(now.parallelism) != dict(state.parallelism):
            return "the instances were changed from outside"
        again = self.decision_interval_s and elapsed >= self.decision_interval_s - 1e-9 and known
        return "next plan" if again else None

    def _network(self, nodes: tuple[str, ...], space: DelaySpace) -> Network:
        far = [[0.0 if a == b else delay(self.delays, a, b, space) for b in nodes] for a in nodes]
        sure = [float(self.up.get(n, 1.0)) for n in nodes]
        return Network(nodes, far, float(self.slots_per_node), availability=sure)

    def _pins(self, nodes: tuple[str, ...]) -> dict[str, str]:
        """Return the pinned operators whose node is up."""
        return {o: n for o, n in self.pinned.items() if n in nodes}

    def _seconds(self, state: PlanState) -> dict[str, float]:
        rates = state.measured.rates if self.times == "measured" else {}
        return {n: 1 / rates[n] if n in rates else UNIT_S for n in state.topology.order}


@dataclass(frozen=True)
class ODP(PlannedPlacement):
    """Place the present instances for the least loss of response time, availability and traffic: exact or heuristic.

    Each instance is one operator of the problem, and takes one of a node's slots. The exact method and ODP+T end after
    `time_limit_s` with the best plan so far, which then depends on the machine.

    Parameters
    ----------
    delays : mapping
        Delay in seconds by pair of nodes; by default as pings measure it (`Snapshot.delays`), or else 1 ms.
    up : mapping
        Availability by node; 1 by default. If it is 1 everywhere, the early plan is for the least response time.
    pinned : mapping
        Node by operator.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> policy = ODP(method="local_search", monitor_s=20)
    >>> [step.decision.why["rule"] for step in run(policy, apps.star(), steps=4)]
    ['early plan, without rates', 'measures rates for 20 s', 'plan with measured rates', 'placed']
    """

    name: ClassVar[str] = "odp"
    needs: ClassVar[frozenset[str]] = frozenset({"placement"})
    method: str = knob("exact", "the solver, or a heuristic of chapter 5", choices=METHODS)
    time_limit_s: float = knob(10.0, "time limit of the solver", low=0.01, high=86_400.0, unit="s")

    def __post_init__(self) -> None:
        if isinstance(self.method, str):  # "local search" as the tables have it
            object.__setattr__(self, "method", self.method.replace(" ", "_"))
        super().__post_init__()

    def early(self, state: PlanState, now: Deployment, nodes: tuple[str, ...]) -> Solution:
        # For the highest availability, or if all nodes are equal, the least response time.
        equal = len({self.up.get(n, 1.0) for n in nodes}) == 1
        weights = Weights(1.0, 0.0, 0.0) if equal else Weights(0.0, 1.0, 0.0)
        return self._solved(self._problem(state, now, nodes, dict.fromkeys(state.topology.edges, 1.0)), weights, state)

    def plan(self, state: PlanState, now: Deployment, nodes: tuple[str, ...]) -> Solution:
        _, sent = state.measured.loads(state.topology)
        return self._solved(self._problem(state, now, nodes, sent), self.weights(), state)

    def nodes_of(self, found: Solution) -> Mapping[str, tuple[str, ...]]:
        nodes: dict[str, list[str]] = {}
        for instance, node in found.named.items():
            nodes.setdefault(instance.rpartition("[")[0], []).append(node)
        return {operator: tuple(of) for operator, of in nodes.items()}

    def _problem(
        self, state: PlanState, now: Deployment, nodes: tuple[str, ...], rates: Mapping[Edge, float]
    ) -> Problem:
        network = self._network(nodes, state.measured.space)
        return executors_problem(
            state.topology, now.parallelism, rates, network, self._pins(nodes), time_s=self._seconds(state)
        )

    def _solved(self, problem: Problem, weights: Weights, state: PlanState) -> Solution:
        limit_s = self.time_limit_s
        single = [w for w in (weights.response, weights.availability, weights.network) if w] == [weights.total]
        if single:  # the scale of one metric does not matter
            ranges = Ranges((0.0, 1.0), (0.0, 1.0), (0.0, 1.0))
        else:
            ranges = find_ranges(problem, weights.metric, time_limit_s=limit_s)
        if self.method == "exact":
            return solve(problem, weights, ranges, time_limit_s=limit_s)
        settings: dict[str, Any] = {"seed": state.seed} if self.method in _DRAWN else {}
        if self.method in _LIMITED:
            settings["time_limit_s"] = limit_s
        return HEURISTICS[self.method](problem, weights, ranges, **settings)


_DRAWN = ("relaxed", "spring_relaxation", "rizou")  # heuristics that take a seed
_LIMITED = ("relaxed", "pruned", "hierarchical", "time_limited")  # heuristics that solve programs


@dataclass(frozen=True)
class ODRP(PlannedPlacement):
    """Choose the number of instances and their nodes for the least loss of response time, cost and the other metrics.

    Operators are M/M/1 queues with the measured rate of an instance. The search ends after `branches`.

    Parameters
    ----------
    delays : mapping
        Delay in seconds by pair of nodes; by default as pings measure it (`Snapshot.delays`), or else 1 ms.
    up : mapping
        Availability by node; 1 by default.
    pinned : mapping
        Node by operator.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> history = run(ODRP(monitor_s=20), apps.star(), steps=4)
    >>> [step.decision.why["rule"] for step in history][2]
    'plan with measured rates'
    """

    name: ClassVar[str] = "odrp"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism", "placement"})
    cost: float = knob(0.0, "weight of the cost, of which an instance has 1 (w_c)", low=0.0, high=1.0)
    max_parallelism: int = knob(3, "replicas of an operator at most", low=1, high=8, source="k_i, thesis: 3")
    commits: str = commits_knob()
    branches: int = knob(20_000, "branches that a search visits", low=100, high=10_000_000)

    def weights(self) -> Weights:
        return Weights(self.response, self.availability, self.network, self.metric, self.cost)

    def early(self, state: PlanState, now: Deployment, nodes: tuple[str, ...]) -> Solution:
        # For the least cost.
        return self._solved(
            self._problem(state, nodes, PeriodRates(space=state.measured.space)), Weights(0.0, cost=1.0)
        )

    def plan(self, state: PlanState, now: Deployment, nodes: tuple[str, ...]) -> Solution:
        return self._solved(self._problem(state, nodes, state.measured), self.weights())

    def _problem(self, state: PlanState, nodes: tuple[str, ...], measured: PeriodRates) -> Problem:
        topology = state.topology
        load, sent = measured.loads(topology)
        app = Application(
            topology.order,
            topology.edges,
            1.0,
            list(self._seconds(state).values()),
            [sent[e] for e in topology.edges] or 0.0,
        )
        replication = Replication(
            [min(self.max_parallelism, topology[n].max_parallelism) for n in topology.order],
            measured.speeds(topology, self.commits),
            source_rate_per_s={n: load[n] for n in topology.sources},
        )
        return Problem(app, self._network(nodes, measured.space), self._pins(nodes), replication)

    def _solved(self, problem: Problem, weights: Weights) -> Solution:
        single = {
            "response_s": weights.response,
            "log_availability": weights.availability,
            weights.metric: weights.network,
            "cost": weights.cost,
        }
        asked = [name for name, weight in single.items() if weight]
        return solve(problem, asked[0] if len(asked) == 1 else weights, branches=self.branches)
