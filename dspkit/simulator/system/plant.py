"""The description of a simulated cluster: the cost of each operator, the nodes, and the downtime of changes and faults.

Policies never see a plant; they see what a backend measures. A `Service` is the cost of one operator: time, variation,
cores, state, queue, and calls to an external server. `VARIANTS` holds common modifications of a plant (fewer cores,
noise, a slow node, micro-batches), which the views of the notebooks offer.

With `processes` above 0 instances run in worker processes, as in Storm. Records from another process go through the one
receiving thread of a process, in the order of their arrival, into the queues of its instances. The thread blocks at a
full queue, and all later records wait behind it, whichever instance they are for; the senders are not blocked by that.
Records from the same process go straight into the queue, and their sender is blocked while it is full.

| `process_assignment` | process of instances that are new on a node |
|---|---|
| spread | one by one the process that has the fewest instances |
| together | for all the one in which the fewest remain: Stela's published scheduler where no slot is free |
| apart | for all an empty one, a new one if need be: the same scheduler where a slot is free |

On a node where no instance remains they are always spread.

`pauses` computes the downtime of a rescale from the placement before and after, in the way of each engine:

| `pause_kind` | stops | for |
|---|---|---|
| rebalance (Storm) | the job | the pause |
| restart (Storm, whose workers die with their queues) | the job; records inside it are lost | the pause |
| savepoint (Flink) | the job | the pause + all state, written and read again |
| in-place | operators whose parallelism changes, or that had an instance on a node that dies | the pause |
| migration | operators with an instance that starts, ends or moves | the pause + their state that changes nodes |
| instances | of these operators only the instances that start or move; the others continue | the same |

If all of an operator's instances start or move, the operator is paused as a whole. Micro-batches wait for all
instances.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, TypeVar

from ...core import EXECUTIONS, ArgumentError, FrozenMap, KnobError, Knobs, NotFoundError, Topology, knob
from ...core.validation import choice, mapping, number
from . import faults as faulty
from .faults import Fault
from .nodes import Link, Node, Places

DISTRIBUTIONS = ("exponential", "deterministic", "gamma")


@dataclass(frozen=True)
class Service(Knobs):
    """The true cost of one operator.

    With k instances a record takes $s\\,(1+\\sigma(k-1)+\\kappa k(k-1))$ seconds of one instance: the universal
    scalability law, so that k instances process $k/s$ over that factor records/s [gunther2007usl].

    A full queue either blocks its senders ("block") or refuses further records ("drop"); an infinite one does neither.
    A source's queue is its log: unbounded, unless `overflow` is "drop", for sources without a durable log.

    Parameters
    ----------
    selectivity
        Records sent per record processed, along each edge; a number for all edges, or one per receiver by name.

    Examples
    --------
    >>> split = Service(1e-3, selectivity={"count": 5, "store": 1}, contention=0.1)
    >>> split.toward("count"), round(split.seconds(3), 4)
    (5.0, 0.0012)
    """

    seconds_per_record: float = knob(1e-3, "$s$: time of one instance per record", low=1e-9, high=1e3, unit="s")
    selectivity: float | Mapping[str, float] = 1.0
    contention: float = knob(0.0, "$\\sigma$: share of the work that instances queue for", low=0.0, high=1.0)
    coherency: float = knob(0.0, "$\\kappa$: cost of keeping instances in step", low=0.0, high=1.0)
    queue_records: float = knob(
        1000.0, "queue of one instance; a full one blocks its senders", low=1.0, high=math.inf, infinite=True
    )
    results: float = knob(1.0, "of a sink only: results per record processed", low=0.0, high=math.inf)
    distribution: str = knob("exponential", "distribution of service times over records", choices=DISTRIBUTIONS)
    cv: float = knob(1.0, "coefficient of variation of gamma service times", low=1e-3, high=10.0)
    io_share: float = knob(0.0, "share of the time that takes no CPU", low=0.0, high=1.0)
    state_bytes: float = knob(0.0, "state of the whole operator, over all instances", low=0.0, high=1e15, unit="B")
    record_bytes: float = knob(100.0, "size of a record that it sends", low=0.0, high=1e12, unit="B")
    overflow: str = knob("block", "what a full queue does", choices=("block", "drop"))
    external_rate_limit_per_s: float = knob(
        math.inf,
        "calls/s that one external server takes; each instance calls it once per record and waits for the answer",
        low=1e-6,
        high=math.inf,
        unit="records/s",
        infinite=True,
    )
    grouping: str = knob(
        "shared",
        "one queue for all instances, or one per instance with records assigned at random",
        choices=("shared", "split"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.selectivity, Mapping):
            values = FrozenMap({child: _selectivity(value) for child, value in self.selectivity.items()})
            object.__setattr__(self, "selectivity", values)
        else:
            object.__setattr__(self, "selectivity", _selectivity(self.selectivity))
        if self.overflow == "drop" and math.isinf(self.queue_records):
            raise KnobError(
                "an unbounded queue with overflow='drop'", expected="a finite queue_records", fix="bound the queue"
            )

    def toward(self, child: str) -> float:
        """Return the records sent to one receiver per record processed.

        Parameters
        ----------
        child
            Name of the receiver.

        Examples
        --------
        >>> Service(selectivity=2).toward("count")
        2.0
        """
        return self.selectivity[child] if isinstance(self.selectivity, Mapping) else self.selectivity

    def seconds(self, parallelism: int) -> float:
        """Return the time of one instance per record when `parallelism` instances run, without external calls.

        Parameters
        ----------
        parallelism
            The number of instances.

        Examples
        --------
        >>> Service(1e-3, contention=0.1).seconds(1)
        0.001
        """
        k = parallelism
        return self.seconds_per_record * (1 + self.contention * (k - 1) + self.coherency * k * (k - 1))

    @property
    def variation(self) -> float:
        """Coefficient of variation of service times."""
        return {"exponential": 1.0, "deterministic": 0.0, "gamma": self.cv}[self.distribution]


def _selectivity(value: Any) -> float:
    return number(value, "selectivity", 0, fix="pass the number of records sent per record")


_WITHIN = Link()  # within a node records move without delay
PAUSES = ("rebalance", "restart", "savepoint", "in-place", "migration", "instances")
PROCESS_ASSIGNMENTS = ("spread", "together", "apart")


@dataclass(frozen=True)
class Plant(Knobs):
    """A simulated cluster: services, nodes, links, the pause of a rescale, noise, faults.

    With `execution` "pipelined" all operators work at the same time. With "micro-batch" the job works in batches: every
    `trigger_s` seconds, or as soon as the last batch has ended, the records that wait go through one operator after the
    other. Then there are no queues between operators: records stay in the logs until their batch has ended.

    With `processes` instances share Storm's worker processes, whose receiving threads a full instance blocks (see
    `processes.py`); each instance then has a queue of its own. Only the "records" engine models them.

    Parameters
    ----------
    services
        The `Service` of each operator, by name.
    nodes
        The nodes by name; four of 16 cores if left out.
    network
        The link between any two nodes that `links` does not name.
    links
        Links by their two nodes, for both directions unless both are given.
    faults
        The faults of the run.

    Examples
    --------
    >>> plant = Plant({"read": Service(1e-4), "count": Service(1e-3)}, {"n1": Node(8)}, pause_s=5.0)
    >>> plant.services["count"].seconds_per_record, plant.execution
    (0.001, 'pipelined')
    """

    services: Mapping[str, Service]
    nodes: Mapping[str, Node] = field(default_factory=lambda: {f"node-{i}": Node() for i in range(1, 5)})
    pause_s: float = knob(10.0, "downtime of a rescale, without the time for state", low=0.0, high=3600.0, unit="s")
    noise: float = knob(0.0, "coefficient of variation of service times from window to window", low=0.0, high=1.0)
    pause_kind: str = knob("rebalance", "operators that a rescale stops, and state that it moves", choices=PAUSES)
    state_bytes_per_s: float = knob(
        math.inf, "speed at which state is saved, restored or moved", low=1.0, high=math.inf, unit="B/s", infinite=True
    )
    network: Link = field(default_factory=Link)
    links: Mapping[tuple[str, str], Link] = field(default_factory=FrozenMap)
    execution: str = knob("pipelined", "pipelined or micro-batch execution", choices=EXECUTIONS)
    trigger_s: float = knob(0.1, "micro-batch: shortest time from batch to batch", low=1e-3, high=3600.0, unit="s")
    batch_overhead_s: float = knob(0.05, "micro-batch: time of a batch beyond its work", low=0.0, high=60.0, unit="s")
    max_batch_records: float = knob(
        math.inf, "micro-batch: most records of a batch", low=1.0, high=math.inf, infinite=True
    )
    processes: int = knob(0, "worker processes per node, one receiving thread each; 0: not modelled", low=0, high=64)
    process_assignment: str = knob(
        "spread", "process of its node to which a new instance is assigned", choices=PROCESS_ASSIGNMENTS
    )
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in (("services", Service), ("nodes", Node)):
            object.__setattr__(self, name, _named(getattr(self, name), name, kind))
        if not self.nodes:
            raise ArgumentError("no nodes", expected="at least one node", fix="leave nodes out for four of 16 cores")
        if self.processes and self.execution != "pipelined":
            raise KnobError(
                f"processes={self.processes} with execution={self.execution!r}",
                expected="execution='pipelined': micro-batches have no queues between operators",
                fix="leave processes out",
            )
        if not isinstance(self.network, Link):
            raise ArgumentError(f"network = {self.network!r}", expected="a Link", fix="as in Link(delay_s=0.001)")
        mapping(self.links, "links", "a mapping", fix="as in {('a', 'b'): Link(delay_s=0.01)}")
        for ends, link in self.links.items():
            if not (
                isinstance(ends, tuple)
                and len(set(ends)) == 2
                and set(ends) <= set(self.nodes)
                and isinstance(link, Link)
            ):
                raise ArgumentError(
                    f"links with {ends!r}: {link!r}",
                    expected=f"a Link for two of the nodes {sorted(self.nodes)}",
                    fix="as in {('node-1', 'node-2'): Link(delay_s=0.01)}",
                )
        object.__setattr__(self, "links", FrozenMap(self.links))
        object.__setattr__(self, "faults", faulty.check_faults(self.faults, self.nodes, self.services))

    def link(self, start: str, end: str) -> Link:
        """Return the link between two nodes, given in either order.

        Parameters
        ----------
        start
            Name of one node.
        end
            Name of the other.

        Examples
        --------
        >>> Plant({}, network=Link(delay_s=0.001)).link("node-1", "node-2").delay_s
        0.001
        """
        if start == end:
            return _WITHIN
        return self.links.get((start, end)) or self.links.get((end, start)) or self.network

    def cost_per_hour(self, nodes: Any) -> float:
        """Return the cost of these nodes while they are in use.

        Parameters
        ----------
        nodes
            Names of nodes; each is counted once.

        Examples
        --------
        >>> Plant({}, {"n1": Node(cost_per_hour=0.4)}).cost_per_hour(["n1", "n1"])
        0.4
        """
        return sum(self.nodes[name].cost_per_hour for name in set(nodes))

    def check(self, topology: Topology) -> Plant:
        """Return this plant, or raise an error that says why it does not fit `topology`.

        Parameters
        ----------
        topology
            The operators that the plant must have services for.

        Examples
        --------
        >>> from dspkit import Topology
        >>> plant = Plant({"a": Service(), "b": Service()})
        >>> plant.check(Topology.chain("a", "b")) is plant
        True
        """
        names = {o.name for o in topology.operators}
        if set(self.services) != names:
            raise ArgumentError(
                f"services for {sorted(self.services)}",
                expected=f"one per operator: {sorted(names)}",
                fix="use the names of the operators",
            )
        for name, service in self.services.items():
            children = set(topology.downstream(name))
            if isinstance(service.selectivity, Mapping) and set(service.selectivity) != children:
                raise ArgumentError(
                    f"selectivity of {name!r} toward {sorted(service.selectivity)}",
                    expected=f"one per receiver: {sorted(children)}",
                    fix="pass a single number, or one per edge",
                )
            if children and service.results != 1:
                raise ArgumentError(
                    f"results={service.results:g} of {name!r}, which feeds {sorted(children)}",
                    expected="results of sinks only",
                    fix="use selectivity for records sent to other operators",
                )
        return self


def _named(things: Any, what: str, kind: type) -> FrozenMap[str, Any]:
    mapping(things, what, "a mapping by name", fix=f"pass {{name: {kind.__name__}(...)}}")
    for name, thing in things.items():
        if not isinstance(name, str) or not isinstance(thing, kind):
            raise ArgumentError(
                f"{what} with {name!r}: {thing!r}",
                expected=f"a {kind.__name__} per name",
                fix=f"wrap it: {kind.__name__}({thing!r})"
                if isinstance(thing, Real)
                else f"as in {{name: {kind.__name__}(...)}}",
            )
    return FrozenMap(things)


OWN = "as it is"


def _cores(plant: Plant, times: float) -> Plant:
    nodes = {name: replace(node, cores=max(1, math.ceil(node.cores * times))) for name, node in plant.nodes.items()}
    return replace(plant, nodes=nodes)


def _slow_node(plant: Plant) -> Plant:
    first: str = next(iter(plant.nodes))
    node: Node = plant.nodes[first]
    return replace(plant, nodes={**plant.nodes, first: replace(node, speed=node.speed / 2)})


VARIANTS: dict[str, Callable[[Plant], Plant]] = {
    OWN: lambda plant: plant,
    "half the cores": lambda plant: _cores(plant, 0.5),
    "twice the cores": lambda plant: _cores(plant, 2),
    "one slow node": _slow_node,
    "noisy": lambda plant: replace(plant, noise=0.2),
    "slow restarts": lambda plant: replace(plant, pause_s=60.0),
    "micro-batches": lambda plant: replace(plant, execution="micro-batch", trigger_s=1.0, processes=0),
}


def variant(plant: Plant, name: str = OWN, **changes: Any) -> Plant:
    """Return `plant` in one of VARIANTS, with fields changed after that.

    Parameters
    ----------
    plant
        The plant to start from.
    name
        A key of VARIANTS.
    changes
        Fields of the plant with their new values.

    Examples
    --------
    >>> from dspkit import apps
    >>> plant = apps.word_count().plant
    >>> variant(plant, "noisy", pause_s=30.0).noise, plant.noise
    (0.2, 0.01)
    """
    choice(name, "plant", VARIANTS, error=NotFoundError)
    known = {f.name for f in fields(plant)}
    if unknown := sorted(set(changes) - known):
        raise NotFoundError(
            f"{unknown} of a plant", expected=f"some of {', '.join(sorted(known))}", fix="check the names"
        )
    return replace(VARIANTS[name](plant), **changes)


# (operator, index of the instance) -> (node, number of the process there)
ProcessAssignment = Mapping[tuple[str, int], tuple[str, int]]


def assign_processes(plant: Plant, places: Places, before: ProcessAssignment) -> dict[tuple[str, int], tuple[str, int]]:
    """Return the process of each instance. An instance that stays on its node stays in its process.

    Parameters
    ----------
    plant
        The cluster; without worker processes the result is empty.
    places
        The node of each instance from now on.
    before
        The process of each instance so far; empty at the start.

    Examples
    --------
    >>> two = Plant({}, processes=2, process_assignment="together")
    >>> first = assign_processes(two, {("a", 0): "n", ("a", 1): "n", ("a", 2): "n"}, {})
    >>> sorted(first.values())
    [('n', 0), ('n', 0), ('n', 1)]
    >>> places = dict.fromkeys([("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)], "n")
    >>> later = assign_processes(two, places, first)
    >>> later["b", 0], later["b", 1]
    (('n', 1), ('n', 1))
    """
    if not plant.processes:
        return {}
    found = {instance: place for instance, place in before.items() if places.get(instance) == place[0]}
    counts = {node: [0] * plant.processes for node in set(places.values())}
    for node, process in found.values():
        counts[node] += [0] * (process + 1 - len(counts[node]))
        counts[node][process] += 1
    joined = {}
    for node, each in counts.items():
        if any(each) and plant.process_assignment != "spread":
            empty = each.index(0) if 0 in each else len(each)
            joined[node] = each.index(min(each)) if plant.process_assignment == "together" else empty
    for instance, node in places.items():
        if instance not in found:
            process = joined.get(node, counts[node].index(min(counts[node])))
            found[instance] = node, process
            if node not in joined:
                counts[node][process] += 1
    return found


Instance = tuple[str, int]
Place = TypeVar("Place", bound=Hashable)  # a node, or a process of a node


def pauses(plant: Plant, before: Places, after: Places, dead: Collection[str] = ()) -> dict[str, float]:
    """Return the seconds for which each operator is paused by a change of the placement.

    Parameters
    ----------
    plant
        The cluster, which defines the kind of pause, its length and the state of the operators.
    before
        The node of each instance before the change.
    after
        The node of each instance after the change.
    dead
        Nodes that die at this moment.

    Examples
    --------
    >>> from dspkit.simulator import Plant, Service
    >>> plant = Plant({"a": Service(), "b": Service()}, pause_s=5.0, pause_kind="in-place")
    >>> pauses(plant, {("a", 0): "n1", ("b", 0): "n1"}, {("a", 0): "n1", ("a", 1): "n2", ("b", 0): "n1"})
    {'a': 5.0, 'b': 0.0}
    """
    if plant.pause_kind in ("rebalance", "restart", "savepoint"):
        state = sum(service.state_bytes for service in plant.services.values())
        twice = 2 * state / plant.state_bytes_per_s if plant.pause_kind == "savepoint" else 0.0
        return dict.fromkeys(plant.services, plant.pause_s + twice)
    old, new = _by_operator(before), _by_operator(after)
    moves = Counter(name for (name, i), node in after.items() if before.get((name, i), node) != node)
    each = plant.pause_kind == "instances"  # two instances that swap nodes both move, which the counts do not show
    stopped = dict.fromkeys(plant.services, 0.0)
    for name in plant.services:
        if plant.pause_kind == "in-place":
            struck = any(old[name][node] for node in dead)
            stopped[name] = plant.pause_s if struck or old[name].total() != new[name].total() else 0.0
        elif old[name] != new[name] or (each and moves[name]):
            share = max(moved_share(old[name], new[name]), each * moves[name] / new[name].total())
            stopped[name] = plant.pause_s + plant.services[name].state_bytes * share / plant.state_bytes_per_s
    return stopped


def arrivals_by_node(before: Mapping[Instance, Place], after: Mapping[Instance, Place]) -> dict[str, Counter[Place]]:
    """Count the instances per operator and node that are new there.

    Parameters
    ----------
    before
        The node, or (node, process), of each instance before.
    after
        The same afterwards.

    Examples
    --------
    >>> arrivals_by_node({("a", 0): "n1", ("a", 1): "n2"}, {("a", 0): "n2", ("a", 1): "n2", ("a", 2): "n1"})
    {'a': Counter({'n2': 1, 'n1': 1})}
    """
    return dict(_by_operator({instance: node for instance, node in after.items() if before.get(instance) != node}))


def moved_share(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Return the share of an operator's state that changes nodes, if instances hold equal parts of it.

    Parameters
    ----------
    before
        The number of instances per node before.
    after
        The same afterwards.

    Examples
    --------
    >>> moved_share({"a": 1}, {"a": 1, "b": 1}), moved_share({"a": 2}, {"a": 3})
    (0.5, 0.0)
    """
    old, new = sum(before.values()), sum(after.values())
    return sum(max(0.0, n / new - before.get(node, 0) / old) for node, n in after.items())


def _by_operator(places: Mapping[Instance, Place]) -> dict[str, Counter[Place]]:
    counted: dict[str, Counter[Place]] = defaultdict(Counter)
    for (name, _), place in places.items():
        counted[name][place] += 1
    return counted
