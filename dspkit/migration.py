"""Migration: groups of tasks, their placement with few migrations, and the downtime of a change in Storm [nardelli].

| thesis | here |
|---|---|
| $T(op)$, $E(op)$ | `tasks`, `executors`: their numbers |
| $q$, $r$ in $\\lvert T\\rvert = q\\lvert E\\rvert + r$ | the first r executors get q + 1 tasks, the others q |

An executor runs neighbouring tasks. A task is the smallest unit of state and is never split.

A change in Storm restarts the whole job, so that its downtime is the sum over phases (`StormDowntime`):

| thesis | here |
|---|---|
| $t_{syn}$, $t_{s,u}$ | `sync_s`, `spawn_s`: of the rebalance command; of one instance on a node |
| $I_{S,i}$, $\\sum_j I_{C,j}$ | `state_bytes` of the operator, `code_bytes` of the job |
| $d_{(u,DS)}$, $r_{(u,DS)}$ | `delay_s` one way to the data store, `bytes_per_s` |
| $\\mathcal U$, $\\mathcal V$ | `before`, `after`: replicas by node |

(8.40) prints $t_{s,v}$ where only u exists; local rates are not stated and taken as infinite; an empty transfer takes
no time, unless `round_trips` is set.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .core import ArgumentError, Knobs, Topology, instances_of, knob

__all__ = ["Relocation", "StormDowntime", "crossing", "executor_traffic", "groups", "least_traffic", "relocate"]


class Relocation(NamedTuple):
    """A new placement of an operator's executors.

    Parameters
    ----------
    nodes : tuple of str
        Node of each executor.
    moved : int
        Number of tasks that change node.
    weight : float
        The same in bytes, or in the unit of `sizes`.

    Examples
    --------
    >>> relocate(4, ["n1", "n2"], 2).moved
    0
    """

    nodes: tuple[str, ...]
    moved: int
    weight: float


def groups(tasks: int, executors: int) -> tuple[range, ...]:
    """Return the tasks of each executor, divided evenly and in order.

    Parameters
    ----------
    tasks : int
        Number of tasks.
    executors : int
        Number of executors.

    Examples
    --------
    >>> [len(g) for g in groups(20, 6)]
    [4, 4, 3, 3, 3, 3]
    """
    if not 1 <= executors <= tasks:
        raise ArgumentError(
            f"{executors} executors for {tasks} tasks", expected=f"1 to {tasks} executors", fix="clip the number"
        )
    q, r = divmod(tasks, executors)
    starts = [e * q + min(e, r) for e in range(executors + 1)]
    return tuple(range(a, b) for a, b in zip(starts, starts[1:], strict=False))


def relocate(
    tasks: int,
    before: Sequence[str],
    executors: int,
    *,
    room: Mapping[str, float] | None = None,
    busy: Mapping[str, int] | None = None,
    sizes: Sequence[float] | None = None,
) -> Relocation:
    """Regroup the tasks of an operator into executors so that few of them change node.

    Each executor in turn goes to the node with most of its tasks, among nodes with `room`; ties go to the node with
    most executors of the job already (`busy`), then to the lowest name. An executor with the same tasks keeps its
    node.

    Parameters
    ----------
    tasks : int
        Number of tasks.
    before : sequence of str
        Node of each present executor.
    executors : int
        New number of executors.
    room : mapping, optional
        Free slots by node; by default the nodes of `before` without limit.
    busy : mapping, optional
        Executors of the job by node.
    sizes : sequence of float, optional
        Weight of each task, such as its bytes.

    Examples
    --------
    >>> relocate(4, ["n1", "n2"], 4).nodes
    ('n1', 'n1', 'n2', 'n2')
    """
    sizes = [1.0] * tasks if sizes is None else list(sizes)
    if len(sizes) != tasks or not all(math.isfinite(s) and s >= 0 for s in sizes):
        raise ArgumentError(f"{len(sizes)} sizes", expected=f"{tasks} finite sizes >= 0", fix="one for each task")
    old = groups(tasks, len(before))
    home = {t: node for g, node in zip(old, before, strict=True) for t in g}
    left = dict(room) if room is not None else dict.fromkeys(before, math.inf)
    there, new = Counter(busy or {}), groups(tasks, executors)
    kept: dict[range, str] = {}
    for g, node in zip(old, before, strict=True):
        if g in new and left.get(node, 0) >= 1:
            kept[g] = node
            left[node], there[node] = left[node] - 1, there[node] + 1
    nodes: list[str] = []
    moved, weight = 0, 0.0
    for g in new:
        if g in kept:
            node = kept[g]
        else:
            here = dict.fromkeys(left, 0.0)
            for t in g:
                here[home[t]] = here.get(home[t], 0.0) + sizes[t]
            free = [n for n, slots in left.items() if slots >= 1]
            if not free:
                raise ArgumentError(
                    f"no room for executor {len(nodes)}", expected="a free slot", fix="more nodes or slots"
                )
            node = min(free, key=lambda n: (-here[n], -there[n], n))
            left[node], there[node] = left[node] - 1, there[node] + 1
        nodes.append(node)
        away = [t for t in g if home[t] != node]
        moved, weight = moved + len(away), weight + sum(sizes[t] for t in away)
    return Relocation(tuple(nodes), moved, weight)


def executor_traffic(
    topology: Topology, parallelism: Mapping[str, int], rates: Mapping[tuple[str, str], float]
) -> dict[tuple[tuple[str, int], tuple[str, int]], float]:
    """Return the records/s between each two executors; each stream is spread evenly.

    Parameters
    ----------
    topology : Topology
        The operators.
    parallelism : mapping
        Number of executors by operator.
    rates : mapping
        Records/s by edge.

    Examples
    --------
    >>> executor_traffic(Topology.chain("a", "b"), {"a": 1, "b": 2}, {("a", "b"): 10})
    {(('a', 0), ('b', 0)): 5.0, (('a', 0), ('b', 1)): 5.0}
    """
    flow: dict[tuple[tuple[str, int], tuple[str, int]], float] = {}
    for (u, v), rate in rates.items():
        each = rate / (parallelism[u] * parallelism[v])
        flow |= {((u, i), (v, j)): each for i in range(parallelism[u]) for j in range(parallelism[v])}
    return flow


def crossing(flow: Mapping[tuple[Any, Any], float], places: Mapping[Any, str]) -> float:
    """Return the records/s between nodes.

    Parameters
    ----------
    flow : mapping
        Records/s by pair of executors.
    places : mapping
        Node by executor.

    Examples
    --------
    >>> crossing({("a", "b"): 5.0, ("a", "c"): 2.0}, {"a": "n1", "b": "n1", "c": "n2"})
    2.0
    """
    return sum(rate for (a, b), rate in flow.items() if places[a] != places[b])


def least_traffic(
    topology: Topology,
    parallelism: Mapping[str, int],
    rates: Mapping[tuple[str, str], float],
    nodes: Sequence[str],
    slots: int | None = None,
) -> dict[tuple[str, int], str]:
    """Return the placement of T-Storm's rule: executors by decreasing traffic, each where it adds least between nodes.

    Ties go to the fullest node, then to the first.

    Parameters
    ----------
    topology : Topology
        The operators.
    parallelism : mapping
        Number of executors by operator.
    rates : mapping
        Records/s by edge.
    nodes : sequence of str
        The nodes.
    slots : int, optional
        Executors per node; by default an even share, rounded up.

    Examples
    --------
    >>> least_traffic(Topology.chain("a", "b"), {"a": 1, "b": 1}, {("a", "b"): 10}, ["n1", "n2"], slots=2)
    {('a', 0): 'n1', ('b', 0): 'n1'}
    """
    flow = executor_traffic(topology, parallelism, rates)
    executors = instances_of(topology, parallelism)
    most = slots or math.ceil(len(executors) / len(nodes))
    total, peers = dict.fromkeys(executors, 0.0), {e: list[tuple[Any, float]]() for e in executors}
    for (a, b), rate in flow.items():
        total[a] += rate
        total[b] += rate
        peers[a].append((b, rate))
        peers[b].append((a, rate))
    places: dict[tuple[str, int], str] = {}
    filled = Counter[str]()
    for e in sorted(executors, key=lambda e: (-total[e], topology.order.index(e[0]), e[1])):
        added = {n: sum(rate for peer, rate in peers[e] if places.get(peer, n) != n) for n in nodes if filled[n] < most}
        if not added:
            raise ArgumentError(
                f"{most} slots on {len(nodes)} nodes", expected=f"{len(executors)} places", fix="more slots"
            )
        places[e] = min(added, key=lambda n: (added[n], -filled[n], nodes.index(n)))
        filled[places[e]] += 1
    return places


@dataclass(frozen=True)
class StormDowntime(Knobs):
    r"""$t_D = t_{syn} + \max_{u \ne v} [\tau_C(v) + \tau^{upl}(u) + \tau^{dwn}(v) + \mathcal V(v)\,t_{s,v}]$.

    Examples
    --------
    >>> round(StormDowntime().seconds({"a": 1}, {"b": 1}, 1536, running={"a", "b"}), 8)
    6.52024576
    """

    sync_s: float = knob(6.0, "cost of the rebalance command", low=0.0, high=600.0, unit="s", source="prototype")
    spawn_s: float = knob(0.5, "time to start one instance", low=0.0, high=600.0, unit="s", source="prototype")
    delay_s: float = knob(5e-3, "one-way delay to the data store", low=0.0, high=60.0, unit="s", source="prototype")
    bytes_per_s: float = knob(
        12.5e6, "bandwidth to and from the data store", low=1.0, high=1e12, unit="B/s", source="100 Mbit/s"
    )
    code_bytes: float = knob(2.4e6, "code of the whole job", low=0.0, high=1e12, unit="B", source="8 x 300 KB")
    round_trips: bool = knob(False, "an empty transfer takes a round trip, as printed", choices=(False, True))

    def seconds(
        self,
        before: Mapping[str, int],
        after: Mapping[str, int],
        state_bytes: float = 0.0,
        running: Collection[str] | None = None,
    ) -> float:
        """Return the downtime of a change of one operator, in seconds.

        Parameters
        ----------
        before, after : mapping
            Replicas by node.
        state_bytes : float
            State of the operator.
        running : collection of str, optional
            All nodes that have the job's code; by default those in `before`.

        Examples
        --------
        >>> StormDowntime().seconds({"a": 1}, {"a": 1})
        0.0
        """
        old, new = ({n: k for n, k in each.items() if k} for each in (before, after))
        if old == new:
            return 0.0
        known = set(old) if running is None else set(running)
        u, v = sum(old.values()), sum(new.values())
        pairs = [
            (0.0 if b in known else self._transfer(self.code_bytes))
            + self._transfer(state_bytes * old[a] / u)
            + self._transfer(state_bytes * new[b] / v)
            + new[b] * self.spawn_s
            for a in old
            for b in new
            if a != b
        ]
        return self.sync_s + max(pairs or [max(new.values()) * self.spawn_s])

    def restart(self, replicas: Mapping[str, int]) -> float:
        """Return the downtime of an unchanged operator when the job restarts, in seconds.

        Parameters
        ----------
        replicas : mapping
            Replicas by node.

        Examples
        --------
        >>> StormDowntime().restart({"a": 2})
        7.0
        """
        return self.sync_s + max(replicas.values()) * self.spawn_s

    def _transfer(self, size: float) -> float:
        if size == 0 and not self.round_trips:
            return 0.0
        return 2 * self.delay_s + size / self.bytes_per_s
