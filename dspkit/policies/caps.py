r"""CAPS: contention-aware placement, the search of CAPSys, beside DS2 or with the present parallelism [wang2025capsys].

| paper | here |
|---|---|
| $U_{cpu}$, $U_{io}$, $U_{net}$ of a task | `TaskGroup`: `compute`, `state`, `sends` of one instance |
| $C_{cpu}$, $C_{io}$, $C_{net}$ of a plan | `costs`: the greatest load of a worker |
| $C_{min}$, $C_{max}$ | `extremes`: total over workers (network: 0), and the costliest tasks together on one worker |
| $\alpha$ | `alphas`: a worker's load is at most $C_{min}+\alpha(C_{max}-C_{min})$ |
| auto-tuning | `tuned`: the least $\alpha$ of each by halving, then all by 10 % more until there is a plan |

An instance sends to remote receivers the share $1-n_{here}/n$ of its records. The search goes through operators by
decreasing compute, and for each through workers, of which those with the same content are alike; a worker above a
limit ends a branch. Of the plans found, those that no other one dominates are left. The authors draw one of them; here
it is the one whose greatest relative cost is least, so that a step is pure. For the same reason a search ends after a
number of steps, not of seconds. Compute is the load that arrives over true rates; state I/O and the size of records are
not measured here and can be given. Workers are alike, with the same number of slots. Of our own is that a placement
that runs and lies within the limits stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, FrozenMap, PolicyKnobs, Snapshot, Topology, knob
from ..etp import counting
from ._managers import freeze_tables, known_nodes
from ._measurements import arrivals
from .ds2 import DS2, DS2State
from .odp import on_nodes

Costs = tuple[float, float, float]  # compute, state, network
Plan = tuple[tuple[int, ...], ...]  # instances of each operator, by worker

CEILINGS: Costs = (0.07, 0.07, 0.5)  # where auto-tuning begins, and its steps: the authors' main.go
GRANULARITY, RELAX = 0.01, 0.1
_SAME = 1e-9  # tolerance of rounding errors
_MOST = 200  # plans that are compared
_LOAD = 0.2  # change of the load from which on another plan is made


class TaskGroup(NamedTuple):
    """The instances of an operator and the load that each of them causes, in any units."""

    name: str
    instances: int
    compute: float
    state: float = 0.0
    sends: Mapping[str, float] = FrozenMap()  # by receiver
    forward: bool = False  # each instance sends to one, on its own worker if there is one


def extremes(groups: Sequence[TaskGroup], workers: int, slots: int) -> tuple[Costs, Costs]:
    """Return the least and the greatest load that a worker of a plan can have.

    >>> extremes([TaskGroup("a", 2, 3.0), TaskGroup("b", 2, 1.0, sends={"a": 2.0})], 2, 3)
    ((4.0, 0.0, 0.0), (7.0, 0.0, 4.0))
    """
    least, most = [], []
    for kind in range(3):
        each = [(g.compute, g.state, sum(g.sends.values()))[kind] for g in groups]
        least.append(sum(x * g.instances for x, g in zip(each, groups, strict=True)) / workers if kind < 2 else 0.0)
        tasks = sorted((x for x, g in zip(each, groups, strict=True) for _ in range(g.instances)), reverse=True)
        most.append(sum(tasks[:slots]))
    return (least[0], least[1], least[2]), (most[0], most[1], most[2])


def costs(groups: Sequence[TaskGroup], plan: Plan) -> Costs:
    """Return the greatest compute, state and network load of a worker.

    >>> costs([TaskGroup("a", 2, 3.0), TaskGroup("b", 2, 1.0, sends={"a": 2.0})], ((1, 1), (1, 1)))
    (4.0, 0.0, 1.0)
    """
    place = {g.name: i for i, g in enumerate(groups)}
    found = [[0.0, 0.0, 0.0]]
    for here in plan:
        compute = sum(n * g.compute for n, g in zip(here, groups, strict=True))
        state = sum(n * g.state for n, g in zip(here, groups, strict=True))
        found.append([compute, state, sum(_sent(groups, here, i, place) for i in range(len(groups)))])
    return max(x[0] for x in found), max(x[1] for x in found), max(x[2] for x in found)


def _sent(groups: Sequence[TaskGroup], here: Sequence[int], sender: int, place: Mapping[str, int]) -> float:
    """Return the load of the network by the instances of one operator on one worker, to receivers that are placed."""
    group, n = groups[sender], here[sender]
    return sum(
        _remote(group, n, here[i], groups[i].instances) * x
        for r, x in group.sends.items()
        if (i := place[r]) < len(here)
    )


def _remote(group: TaskGroup, senders: int, receivers: int, all_receivers: int) -> float:
    return max(0, senders - receivers) if group.forward else senders * (1 - receivers / all_receivers)


class _Search:
    """One search for plans within limits; groups are in the order in which they are placed."""

    def __init__(self, groups: Sequence[TaskGroup], workers: int, slots: int, limits: Costs, steps: int, plans: int):
        self.groups, self.slots, self.left, self.enough = groups, slots, steps, plans
        self.limits = tuple(x + _SAME * max(1.0, x) for x in limits)
        self.place = {g.name: i for i, g in enumerate(groups)}
        self.found: list[Plan] = []
        self.operator([()] * workers)

    @property
    def over(self) -> bool:
        return self.left <= 0 or len(self.found) >= self.enough

    def operator(self, workers: list[tuple[int, ...]]) -> None:
        """Place the next operator on workers with these instances of the former ones."""
        at = len(workers[0])
        if at == len(self.groups):
            self.found.append(tuple(workers))
            return
        workers = sorted(workers, reverse=True)
        free = [self.slots - sum(w) for w in workers]
        self.worker(at, workers, free, [], self.groups[at].instances)

    def worker(
        self, at: int, workers: list[tuple[int, ...]], free: list[int], given: list[int], remaining: int
    ) -> None:
        """Choose how many of the remaining instances the next worker gets, the even share first."""
        i = len(given)
        if i == len(workers):
            self.operator([(*w, n) for w, n in zip(workers, given, strict=True)])
            return
        low, high = max(0, remaining - sum(free[i + 1 :])), min(remaining, free[i])
        if i and workers[i] == workers[i - 1]:  # alike: the former has as many or more
            high = min(high, given[-1])
        share = remaining / (len(workers) - i)
        for n in sorted(range(low, high + 1), key=lambda n: (abs(n - share), -n)):
            self.left -= 1
            if self.over:
                return
            if self._within(at, (*workers[i], n)):
                self.worker(at, workers, free, [*given, n], remaining - n)

    def _within(self, at: int, here: tuple[int, ...]) -> bool:
        groups = self.groups[: at + 1]
        if sum(n * g.compute for n, g in zip(here, groups, strict=True)) > self.limits[0]:
            return False
        if sum(n * g.state for n, g in zip(here, groups, strict=True)) > self.limits[1]:
            return False
        sent = sum(_sent(self.groups, here, i, self.place) for i in range(len(here)))
        return sent <= self.limits[2]


def search(
    groups: Sequence[TaskGroup], workers: int, slots: int, alphas: Costs, *, steps: int = 5000, plans: int = _MOST
) -> list[Plan]:
    """Return the plans within the limits that no other one dominates, least first; none if none was found.

    The order of operators in the plans is that of `groups`.

    >>> search([TaskGroup("a", 2, 3.0), TaskGroup("b", 2, 1.0)], 2, 2, (0.0, 1.0, 1.0))
    [((1, 1), (1, 1))]
    """
    if sum(g.instances for g in groups) > workers * slots:
        return []
    least, most = extremes(groups, workers, slots)
    limits = tuple(a + alpha * (b - a) for a, b, alpha in zip(least, most, alphas, strict=True))
    order = sorted(range(len(groups)), key=lambda i: -groups[i].compute)
    back = sorted(range(len(groups)), key=lambda k: order[k])
    found = _Search([groups[i] for i in order], workers, slots, (limits[0], limits[1], limits[2]), steps, plans).found
    known = {p: costs(groups, p) for plan in found if (p := tuple(tuple(w[i] for i in back) for w in plan))}
    best = [
        p for p, c in known.items()
        if not any(d != c and all(x <= y for x, y in zip(d, c, strict=True)) for d in known.values())
    ]  # fmt: skip
    return sorted(best, key=lambda p: (_relative(known[p], least, most), p))


def _relative(cost: Costs, least: Costs, most: Costs) -> tuple[float, float]:
    each = [(c - a) / (b - a) for c, a, b in zip(cost, least, most, strict=True) if b > a]
    return max(each, default=0.0), sum(each)


def tuned(groups: Sequence[TaskGroup], workers: int, slots: int, *, steps: int = 5000) -> tuple[Costs, list[Plan]]:
    """Return the least limits at which a search finds plans, and the plans.

    >>> tuned([TaskGroup("a", 2, 3.0), TaskGroup("b", 2, 1.0)], 2, 2)[1]
    [((1, 1), (1, 1))]
    """
    if sum(g.instances for g in groups) > workers * slots:
        return (1.0, 1.0, 1.0), []

    def exists(alphas: Sequence[float]) -> bool:
        return bool(search(groups, workers, slots, (alphas[0], alphas[1], alphas[2]), steps=steps, plans=1))

    def relaxed(alphas: Sequence[float]) -> list[float]:
        return [min(1.0, a * (1 + RELAX)) for a in alphas]

    top: list[float] = list(CEILINGS)
    while not exists(top) and min(top) < 1:
        top = relaxed(top)
    found = list(top)
    least, most = extremes(groups, workers, slots)
    for kind in range(3):
        low, high = 0.0, top[kind]
        while most[kind] > least[kind] and high - low >= GRANULARITY:
            middle = (low + high) / 2
            if exists([middle if k == kind else a for k, a in enumerate(top)]):
                high = middle
            else:
                low = middle
        found[kind] = high
    while not (plans := search(groups, workers, slots, (found[0], found[1], found[2]), steps=steps)) and min(found) < 1:
        found = relaxed(found)
    return (found[0], found[1], found[2]), plans


class CapsState(NamedTuple):
    """The input of the last plan (parallelism, nodes, and the compute load of all instances), and what it asked for."""

    topology: Topology
    parallelism: Mapping[str, int] = FrozenMap()
    nodes: tuple[str, ...] = ()
    load: float = 0.0
    placement: Mapping[tuple[str, int], str] = FrozenMap()  # wanted: a guard may have withheld it
    seen: tuple[TaskGroup, ...] = ()  # the last loads that were measured: nothing flows after a source's node failed
    scaling: DS2State | None = None


@dataclass(frozen=True)
class CAPS(PolicyKnobs):
    """Place instances so that no worker has much more compute, state I/O and network load than the least possible.

    Parameters
    ----------
    state_io : mapping
        Bytes read from and written to state per record, by operator; 0 by default.
    record_bytes : mapping
        Size of the records that an operator sends, by operator; 1 by default.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(CAPS(), apps.star(), steps=1)[-1].decision.why["rule"]
    'places by contention'
    """

    name: ClassVar[str] = "caps"
    main_knobs: ClassVar[tuple[str, ...]] = ("scaling", "slots_per_node", "limits")
    needs: ClassVar[frozenset[str]] = frozenset({"placement"})
    reference: ClassVar[tuple[str, ...]] = ("wang2025capsys", "kalavri2018ds2")
    scaling: str = knob(
        "none", "number of instances: as they are (none), or DS2's, as in CAPSys", choices=("none", "ds2")
    )
    slots_per_node: int = knob(8, "instances that a node takes", low=1, high=4096, source="CAPSys on m5d.2xlarge: 8")
    limits: str = knob(
        "tuned", "limits of the load of a worker: found, or the alphas below", choices=("tuned", "given")
    )
    alpha_compute: float = knob(0.08, "limit of compute, from even to worst", low=0.0, high=1.0, source="Section 6.4")
    alpha_state: float = knob(0.15, "limit of state I/O, from even to worst", low=0.0, high=1.0, source="Section 6.4")
    alpha_network: float = knob(
        0.6, "limit of the network, from none to worst", low=0.0, high=1.0, source="Section 6.4"
    )
    iterations: int = knob(5000, "steps of one search at most", low=100, high=1_000_000, source="500 ms of 38 threads")
    state_io: Mapping[str, float] = field(default_factory=FrozenMap)
    record_bytes: Mapping[str, float] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze_tables(self, "state_io", "record_bytes")
        if self.scaling == "ds2":
            object.__setattr__(self, "needs", frozenset({"placement", "parallelism"}))

    def init(self, topology: Topology, seed: int = 0) -> CapsState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return CapsState(topology, scaling=DS2().init(topology, seed) if self.scaling == "ds2" else None)

    def step(self, state: CapsState, snapshot: Snapshot) -> tuple[CapsState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, topology = snapshot.deployment, state.topology
        why: dict[str, Any] = {}
        target = now
        if state.scaling is not None:
            scaling, decision = DS2().step(state.scaling, snapshot)
            state, target = state._replace(scaling=scaling), decision.deployment
            why = {"ds2": decision.why}
        # A node that is down is not measured, but it is in the placement until its instances are moved.
        nodes = tuple(sorted(snapshot.nodes, key=counting)) or known_nodes(snapshot)
        if not nodes:
            return state, Decision(target, {"rule": "waits: no nodes are known", **why})
        groups = self.groups(topology, snapshot, target.parallelism)
        if groups is not None:
            state = state._replace(seen=tuple(groups))
        else:
            lost = not set(now.placement.values()) <= set(nodes)
            if lost and all(target.parallelism[g.name] == g.instances for g in state.seen):
                groups = list(state.seen) or None
        if groups is None:
            return state, Decision(target, {"rule": "waits: no rates are known", **why})
        load = sum(g.instances * g.compute for g in groups)
        same = (state.parallelism, state.nodes, state.placement) == (target.parallelism, nodes, now.placement)
        if same and target == now and abs(load - state.load) <= _LOAD * state.load:
            return state, Decision(now, {"rule": "what it was placed for still holds", **why})
        if sum(g.instances for g in groups) > len(nodes) * self.slots_per_node:
            return state, Decision(target, {"rule": "stays: more instances than slots", **why})
        state = state._replace(parallelism=target.parallelism, nodes=nodes, load=load, placement=target.placement)
        alphas, plans = self._plans(groups, len(nodes))
        if not plans:
            return state, Decision(target, {"rule": "stays: no plan within the limits", "alphas": alphas, **why})
        here = _present(topology, now.placement, nodes) if target == now else None
        why |= {"alphas": tuple(round(a, 4) for a in alphas), "plans": len(plans)}
        if here is not None and _inside(groups, here, alphas, len(nodes), self.slots_per_node):
            return state, Decision(now, {"rule": "what runs is within the limits", **why})
        chosen = _named(topology, plans[0], now.placement, nodes)
        why["compute, state, network"] = tuple(round(c, 6) for c in costs(groups, plans[0]))
        target = on_nodes(topology, target, now.placement, chosen)
        return state._replace(placement=target.placement), Decision(target, {"rule": "places by contention", **why})

    def groups(self, topology: Topology, snapshot: Snapshot, parallelism: Mapping[str, int]) -> list[TaskGroup] | None:
        """Return the load of each instance in a deployment, or None before it was measured.

        Parameters
        ----------
        topology : Topology
            The operators.
        snapshot : Snapshot
            The measurements.
        parallelism : mapping
            Number of instances by operator.

        Examples
        --------
        >>> from dspkit import apps
        >>> job = apps.star().simulator()
        >>> seen = job.observe()
        >>> len(CAPS().groups(job.topology, seen, seen.deployment.parallelism))
        6
        """
        rates = arrivals(snapshot)
        if not any(snapshot.edge_rates.values()):
            return None
        found = []
        for name in topology.order:
            m, k = snapshot.operators.get(name), parallelism[name]
            if m is None:
                return None
            rate = rates.get(name, 0.0)
            one = rate / m.true_rate if m.true_rate else m.utilisation * m.parallelism
            sends = {
                b: rate * (snapshot.selectivity((name, b)) or 0.0) * self.record_bytes.get(name, 1.0) / k
                for b in topology.downstream(name)
            }
            found.append(TaskGroup(name, k, one / k, rate * self.state_io.get(name, 0.0) / k, FrozenMap(sends)))
        return found

    def _plans(self, groups: Sequence[TaskGroup], workers: int) -> tuple[Costs, list[Plan]]:
        if self.limits == "tuned":
            return tuned(groups, workers, self.slots_per_node, steps=self.iterations)
        alphas = (self.alpha_compute, self.alpha_state, self.alpha_network)
        return alphas, search(groups, workers, self.slots_per_node, alphas, steps=self.iterations)


def _present(topology: Topology, placement: Mapping[tuple[str, int], str], nodes: Sequence[str]) -> Plan | None:
    """Return the running placement as a plan; None if it is not known whole."""
    if not placement or not set(placement.values()) <= set(nodes):
        return None
    count = Counter((node, name) for (name, _), node in placement.items())
    return tuple(tuple(count[node, name] for name in topology.order) for node in nodes)


def _inside(groups: Sequence[TaskGroup], plan: Plan, alphas: Costs, workers: int, slots: int) -> bool:
    if any(sum(p[i] for p in plan) != g.instances for i, g in enumerate(groups)) or max(map(sum, plan)) > slots:
        return False
    each = zip(costs(groups, plan), *extremes(groups, workers, slots), alphas, strict=True)
    return all(c <= a + alpha * (b - a) + _SAME * max(1.0, b) for c, a, b, alpha in each)


def _named(
    topology: Topology, plan: Plan, placement: Mapping[tuple[str, int], str], nodes: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """Return the nodes of each operator's instances; workers of the plan go where most of them run already."""
    count = Counter((node, name) for (name, _), node in placement.items())
    order = topology.order
    stay = {
        (i, node): sum(min(n, count[node, name]) for n, name in zip(here, order, strict=True))
        for i, here in enumerate(plan)
        for node in nodes
    }
    names: dict[int, str] = {}
    for (i, node), _ in sorted(stay.items(), key=lambda item: (-item[1], item[0][0], nodes.index(item[0][1]))):
        if i not in names and node not in names.values():
            names[i] = node
    return {
        name: tuple(names[i] for i, here in enumerate(plan) for _ in range(here[j])) for j, name in enumerate(order)
    }
