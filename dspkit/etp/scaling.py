"""Stela's Algorithms 2 and 3: which operators get the slots of new machines, and which machines are removed [stela].

| paper | here |
|---|---|
| $N_{instances}$ | instances per machine, rounded down: slots of one new machine |
| `CongestedMap` | operators congested under the projected rates that may still grow |
| projected ETP | ETP on the rates that `project` gives after each choice |
| $ETPSum(m)$ | `machine_etp(...)[m]` |

The printed algorithms are incomplete. The readings taken: a source that is chosen because no operator is congested
fills its slot, and the loop continues; only congested operators compete; no operator exceeds its limit (Storm's tasks);
ties are broken by topological order; in Algorithm 3 instances move to the other machines in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from ..core import DeploymentError, NotFoundError
from .graph import as_graph, count_of, counted, placed_in, require_nonempty
from .rates import congested, project, rates
from .share import etp, machine_etp

Places = Mapping[tuple[Any, int], Any]  # (operator, index of the instance) -> machine


class Slot(NamedTuple):
    """One new instance.

    Parameters
    ----------
    operator : hashable
        The operator.
    machine : hashable
        The machine of the instance.
    candidates : mapping
        (Projected) ETP of the operators among which it was chosen; empty if none was congested and a source was taken.
    processing_rate : float
        Projected processing rate with this instance.

    Examples
    --------
    >>> Slot("a", "m1", {"a": 1.0}, 150.0).operator
    'a'
    """

    operator: Any
    machine: Any
    candidates: Mapping[Any, float]
    processing_rate: float


class Removal(NamedTuple):
    """One machine that is removed.

    Parameters
    ----------
    machine : hashable
        The machine.
    sums : mapping
        ETPSum of all machines, in the order of removal.
    moves : mapping
        New machine of each of its instances.

    Examples
    --------
    >>> Removal("m1", {"m1": 0.5, "m2": 1.0}, {("a", 0): "m2"}).machine
    'm1'
    """

    machine: Any
    sums: Mapping[Any, float]
    moves: Mapping[tuple[Any, int], Any]


def slots(instances: int, machines: int, new: int = 1) -> int:
    """Return $N_{instances} \\times$ new machines, with $N_{instances}$ = instances per machine, rounded down.

    Parameters
    ----------
    instances : int
        Number of all instances.
    machines : int
        Number of machines.
    new : int
        Number of new machines.

    Examples
    --------
    >>> slots(24, 6, 1), slots(25, 6, 2), slots(12, 4, 1)
    (4, 8, 3)
    """
    each = count_of(instances, "instances") // count_of(machines, "machines", 1)
    return each * count_of(new, "new machines")


def scale_out(
    topology: Any,
    measured: Any,
    instances: Mapping[Any, int],
    machines: Sequence[Any],
    count: int,
    *,
    limits: Mapping[Any, int] | None = None,
    congestion_rate: float = 1.2,
    tree_sum: bool = False,
    cap: bool = False,
    per_instance: bool = False,
) -> list[Slot]:
    """Return new instances slot by slot, each of the congested operator with the highest projected ETP (Algorithm 2).

    New instances go to the new machines in turn. If no operator is congested, sources are taken in rotation.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    measured : Snapshot, mapping, data frame or Rates
        As for `rates`.
    instances : mapping
        Number of instances by operator.
    machines : sequence
        The new machines.
    count : int
        Number of slots.
    limits : mapping, optional
        Greatest number of instances by operator.
    congestion_rate : float
        Input rate over processing rate above which an operator is congested.
    tree_sum : bool
        As for `etp`.
    cap : bool
        Whether inputs bound projected rates.
    per_instance : bool
        Whether to rank as the authors' prototype: by int(100 ETP) per instance, with empty slots while there is no
        output.

    Examples
    --------
    >>> two = {"a": (121, 100), "b": (100, 100)}
    >>> [slot.operator for slot in scale_out([("a", "b")], two, {"a": 2, "b": 2}, ["m"], 2)]
    ['a', 'a']
    """
    if count_of(count, "slots"):
        require_nonempty(machines, f"{count} slots")
    g, now = as_graph(topology), rates(measured)
    k = counted(g, instances)
    if strange := [o for o in limits or () if o not in g.children]:
        raise NotFoundError(f"a limit of {strange[0]!r}", expected="limits of operators", fix="choose one")
    most = dict.fromkeys(g.order, math.inf) | dict(limits or {})
    sources, turn, chosen = g.sources, 0, list[Slot]()
    for slot in range(count):
        stuck = [o for o in congested(g, now, congestion_rate) if k[o] < most[o]]
        shares: dict[Any, float] = {}
        if stuck:
            every = etp(g, now, congestion_rate, tree_sum=tree_sum)
            shares = {o: every[o] for o in stuck}
            if per_instance and not any(now.processing.get(s) for s in g.sinks):
                continue
            score = {o: int(100 * x + 1e-9) / k[o] for o, x in shares.items()} if per_instance else shares
            target = max(stuck, key=lambda o: round(score[o], 9))  # the first of those equal up to rounding
        else:
            turned = [*sources[turn:], *sources[:turn]]
            target = next((o for o in turned if k[o] < most[o]), None)
            if target is None:
                break
            turn = (sources.index(target) + 1) % len(sources)
        now = project(g, now, target, k[target], cap=cap)
        k[target] += 1
        chosen.append(Slot(target, machines[slot % len(machines)], shares, now.processing.get(target, 0.0)))
    return chosen


def scale_in(
    topology: Any, placement: Places, shares: Mapping[Any, float], count: int, *, machines: Sequence[Any] | None = None
) -> list[Removal]:
    """Return the removed machines: again and again the one of least ETPSum (Algorithm 3).

    Its instances move to the others in turn, least ETPSum first. Ties are broken by the number of instances, then by
    name. Sums follow the placement from round to round; ETPs remain as measured.

    Parameters
    ----------
    topology : Topology, edges, mapping or data frame
        As for `as_graph`.
    placement : mapping
        Machine by (operator, index).
    shares : mapping
        ETP by operator.
    count : int
        Number of machines to remove.
    machines : sequence, optional
        Further machines, on which nothing runs.

    Examples
    --------
    >>> placement = {("a", 0): "m1", ("b", 0): "m2"}
    >>> [removal.machine for removal in scale_in([("a", "b")], placement, {"a": 0.2, "b": 1.0}, 1)]
    ['m1']
    """
    g, where = as_graph(topology), dict(placement)
    placed_in(g, where)
    at = {o: i for i, o in enumerate(g.order)}
    left = list(dict.fromkeys([*(machines or ()), *where.values()]))
    if not isinstance(count, Integral) or not 0 <= count < len(left):
        raise DeploymentError(
            f"{count} of {len(left)} machines to remove", expected=f"0 to {len(left) - 1}", fix="one machine must stay"
        )
    removed = []
    for _ in range(count):
        sums = dict.fromkeys(left, 0.0) | machine_etp(where, shares)
        here = {m: sum(1 for place in where.values() if place == m) for m in left}
        # Sums of the same shares in another order may differ in the last digit.
        order = sorted(left, key=lambda m: (round(sums[m], 9), here[m], counting(m)))
        victim, targets = order[0], order[1:]
        leaving = sorted((i for i, m in where.items() if m == victim), key=lambda i: (at[i[0]], i[1]))
        moves = {instance: targets[j % len(targets)] for j, instance in enumerate(leaving)}
        where |= moves
        left.remove(victim)
        removed.append(Removal(victim, {m: sums[m] for m in order}, moves))
    return removed


def counting(machine: Any) -> tuple[str, int, str]:
    """Return a sort key that orders names by their number: node-2 before node-10.

    Parameters
    ----------
    machine : hashable
        The name.

    Examples
    --------
    >>> sorted(["node-10", "node-2"], key=counting)
    ['node-2', 'node-10']
    """
    text = str(machine)
    stem = text.rstrip("0123456789")
    return stem, int(text[len(stem) :] or 0), text
