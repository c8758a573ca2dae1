"""What an operator manager sees and asks for: the local half of `hierarchical.py` [nardelli]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from ..core import Deployment, Snapshot
from ..errors import KnobError
from ..etp import counting
from ..frozen import FrozenMap

NEAREST_S = 1e-3  # delays below this count as this


class Action(NamedTuple):
    """One change of one operator: another replica on `to`, `replica` moved there, or `replica` removed."""

    kind: str  # "scale out", "migrate", "scale in"
    operator: str
    replica: int = -1
    to: str = ""

    def after(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes of the operator's replicas once it is done; the last one takes the number of one that goes."""
        left = list(nodes)
        if self.kind == "scale out":
            return (*left, self.to)
        if self.kind == "migrate":
            left[self.replica] = self.to
        else:
            left[self.replica] = left[-1]
            left.pop()
        return tuple(left)

    def __str__(self) -> str:
        what = {"scale out": "one more", "migrate": f"#{self.replica} away", "scale in": f"without #{self.replica}"}
        return f"{self.operator}: {what[self.kind]}{f' to {self.to}' if self.to else ''}"


class Request(NamedTuple):
    """What an operator manager asks of the application manager."""

    action: Action
    gain: float
    cost_s: float  # as downtime of the job
    issued_at: float = 0.0

    @property
    def operator(self) -> str:
        return self.action.operator

    def __str__(self) -> str:
        return str(self.action)


@dataclass(frozen=True)
class View:
    """What a manager knows: its replicas, the nodes they run on, and the nodes it could use."""

    busy: Sequence[float]  # share of a core that each replica uses
    nodes: Sequence[str]  # of each replica; "" where places are not known
    used: Mapping[str, float]  # load of each node
    machines: Sequence[str]  # all that are known; none where places are not
    free: Mapping[str, float]  # slots
    least: int = 1
    most: int = 64


class Rules(Protocol):
    """The knobs of `Hierarchical` that a manager goes by."""

    @property
    def out(self) -> float: ...
    @property
    def node_most(self) -> float: ...
    @property
    def c(self) -> float: ...
    @property
    def room(self) -> str: ...
    @property
    def include_self(self) -> bool: ...
    @property
    def delays(self) -> Mapping[tuple[str, str], float]: ...


def plan(operator: str, view: View, rules: Rules, random: Any) -> Action | None:
    """At most one change: the one that gains most."""
    n = len(view.busy)
    first = min(range(n), key=lambda a: (-view.busy[a], a))
    if view.busy[first] > rules.out and n < view.most:
        if not view.machines:
            return Action("scale out", operator)
        if target := pick(view.nodes[first], view, rules, random, rules.include_self):
            return Action("scale out", operator, to=target)
    hot = [r for r in dict.fromkeys(view.nodes) if view.used.get(r, 0.0) > rules.node_most]
    if hot and view.machines and view.most > 1:
        worst = min(hot, key=lambda r: (-view.used[r], r))
        replica = min((a for a in range(n) if view.nodes[a] == worst), key=lambda a: (-view.busy[a], a))
        if target := pick(worst, view, rules, random):
            return Action("migrate", operator, replica, target)
    if n > max(1, view.least) and sum(view.busy) / (n - 1) < rules.c * rules.out:
        two = sorted(range(n), key=lambda a: (-view.busy[a], a))[:2]
        return Action("scale in", operator, two[int(random.integers(2))])
    return None


def pick(start: str, view: View, rules: Rules, random: Any, with_self: bool = False) -> str:
    """A node with room, the nearer the likelier; "" if there is none."""
    near = {m: max(delay(rules.delays, start, m), NEAREST_S) for m in view.machines if m != start}
    if with_self and view.used.get(start, 0.0) <= rules.node_most:
        near[start] = NEAREST_S
    left = sorted(near, key=lambda m: (near[m], m))
    while left:
        weights = [1 / near[m] for m in left]
        mark = float(random.random()) * sum(weights)
        chosen = left[-1]
        for m, w in zip(left, weights, strict=True):
            mark -= w
            if mark < 0:
                chosen = m
                break
        if view.free.get(chosen, 0) >= 1 and (rules.room == "slots" or view.used.get(chosen, 0.0) <= rules.node_most):
            return chosen
        left.remove(chosen)
    return ""


def known(snapshot: Snapshot) -> tuple[str, ...]:
    """All nodes that are known, idle ones too: those that were measured, and those that instances were put on."""
    return tuple(sorted({*snapshot.nodes, *snapshot.deployment.placement.values()}, key=counting))


def freeze_tables(policy: Any) -> None:
    """Check `delays` and `state_bytes` of a policy that is being made, and keep copies that nobody can change."""
    for name in ("delays", "state_bytes"):
        values = getattr(policy, name)
        if not isinstance(values, Mapping) or not all(
            isinstance(v, (int, float)) and 0 <= v < math.inf for v in values.values()
        ):
            raise KnobError(f"{name} = {values!r}", expected="finite numbers >= 0 by key", fix="mend the table")
        object.__setattr__(policy, name, FrozenMap(values))


def delay(delays: Mapping[tuple[str, str], float], a: str, b: str) -> float:
    return delays.get((a, b), delays.get((b, a), NEAREST_S))


def applied(
    deployment: Deployment, places: Mapping[tuple[str, int], str], actions: Sequence[Action], tell: bool
) -> Deployment:
    """What runs once all these are done; with places of all replicas if `tell`."""
    counts, placement = dict(deployment.parallelism), dict(places)
    for action in actions:
        name, k = action.operator, counts[action.operator]
        after = action.after([placement.get((name, i), "") for i in range(k)])
        counts[name] = len(after)
        placement = {place: node for place, node in placement.items() if place[0] != name}
        placement |= {(name, i): node for i, node in enumerate(after) if node}
    return replace(deployment, parallelism=counts, placement=placement if tell else {})
