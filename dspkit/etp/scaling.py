"""Which operators get the slots of new machines, and which machines may go: Stela's Algorithms 2 and 3 [stela].

    | paper | here |
    |---|---|
    | $N_{instances}$ | instances per machine, rounded down: slots of one new machine |
    | `CongestedMap` | operators congested under the projected rates that may still grow |
    | projected ETP | ETP on the rates that `project` gives after each choice |
    | $ETPSum(m)$ | `machine_etp(...)[m]` |

The printed algorithms do not run as they stand; the readings taken: a source that is chosen because nothing is
congested fills its slot, and the loop goes on; only congested operators compete; no operator passes its limit (Storm's
tasks); equal ETPs go by topological order; in Algorithm 3 instances go to the other machines in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from ..errors import DeploymentError, NotFoundError
from .checks import counted, placed_in, some, whole
from .graph import graph
from .rates import congested, project, rates
from .share import etp, machine_etp

Places = Mapping[tuple[Any, int], Any]  # (operator, index of the instance) -> machine


class Slot(NamedTuple):
    """One new instance: where it goes, and among whom its operator was chosen, with their (projected) ETPs."""

    operator: Any
    machine: Any
    candidates: Mapping[Any, float]  # empty if nothing was congested and a source was taken
    processing_rate: float  # projected, with this instance


class Removal(NamedTuple):
    """One machine that goes, its sum and those of the others, and where its instances move."""

    machine: Any
    sums: Mapping[Any, float]
    moves: Mapping[tuple[Any, int], Any]


def slots(instances: int, machines: int, new: int = 1) -> int:
    """$N_{instances} \\times$ new machines, with $N_{instances}$ = total instances over machines, rounded down.

    >>> slots(24, 6, 1), slots(25, 6, 2), slots(12, 4, 1)
    (4, 8, 3)
    """
    each = whole("instances", instances) // whole("machines", machines, 1)
    return each * whole("new machines", new)


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
    """Algorithm 2: slot by slot, one more instance of the congested operator with the highest projected ETP.

    New instances go to the new `machines` in turn; where nothing is congested a source is taken, in rotation. `limits`
    are the most instances of each operator. `cap` bounds projections by what comes in. `per_instance` is the authors'
    prototype: it ranks by int(100 ETP) over instances, and leaves slots empty while nothing comes out.

    >>> two = {"a": (121, 100), "b": (100, 100)}
    >>> [slot.operator for slot in scale_out([("a", "b")], two, {"a": 2, "b": 2}, ["m"], 2)]
    ['a', 'a']
    """
    if whole("slots", count):
        some(machines, f"{count} slots")
    g, now = graph(topology), rates(measured)
    k = counted(g, instances)
    if strange := [o for o in limits or () if o not in g.children]:
        raise NotFoundError(f"a limit of {strange[0]!r}", expected="limits of operators", fix="check the name")
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
            target = max(stuck, key=lambda o: round(score[o], 9))  # the first of equals, rounding apart
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
    """Algorithm 3: the machine of least ETPSum goes, its instances to the others in turn, least ETPSum first; again.

    Equal sums go by instances, then by name. Sums follow the placement from round to round; ETPs stay as measured.
    `machines` adds machines on which nothing runs.
    """
    g, where = graph(topology), dict(placement)
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
    """Sorts names in the order people count: node-2 before node-10."""
    text = str(machine)
    stem = text.rstrip("0123456789")
    return stem, int(text[len(stem) :] or 0), text
