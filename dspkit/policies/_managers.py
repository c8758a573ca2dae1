"""The operator managers of `hierarchical.py`: what they know, and the changes that they request [nardelli]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from ..core import ArgumentError, Deployment, FrozenMap, Snapshot
from ..etp import counting
from ..placement.coordinates import DelaySpace

NEAREST_S = 1e-3  # lower bound of delays


class ReplicaAction(NamedTuple):
    """One change of an operator: a further replica on `to`, `replica` moved there, or `replica` removed."""

    kind: str  # "scale out", "migrate", "scale in"
    operator: str
    replica: int = -1
    to: str = ""

    def after(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the nodes of the replicas after the change; the last replica takes the number of a removed one."""
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


class ManagerRequest(NamedTuple):
    """A request of an operator manager to the application manager."""

    action: ReplicaAction
    gain: float
    cost_s: float  # downtime of the job
    issued_at: float = 0.0

    @property
    def operator(self) -> str:
        """The operator to change."""
        return self.action.operator

    def __str__(self) -> str:
        return str(self.action)


@dataclass(frozen=True)
class ManagerView:
    """The knowledge of a manager: its replicas, their nodes, and the nodes that it could use."""

    busy: Sequence[float]  # share of a core that each replica uses
    nodes: Sequence[str]  # node of each replica; "" if unknown
    used: Mapping[str, float]  # load of each node
    machines: Sequence[str]  # all known nodes; empty if placements are unknown
    free: Mapping[str, float]  # free slots of each node
    min_parallelism: int = 1
    max_parallelism: int = 64


class ManagerSettings(Protocol):
    """The knobs of `Hierarchical` that a manager uses."""

    @property
    def scale_out_above(self) -> float: ...
    @property
    def migrate_above(self) -> float: ...
    @property
    def scale_in_margin(self) -> float: ...
    @property
    def room(self) -> str: ...
    @property
    def include_self(self) -> bool: ...
    @property
    def delays(self) -> Mapping[tuple[str, str], float]: ...


def plan_action(operator: str, view: ManagerView, rules: ManagerSettings, random: Any) -> ReplicaAction | None:
    """Return at most one change, the one of the greatest gain."""
    n = len(view.busy)
    first = min(range(n), key=lambda a: (-view.busy[a], a))
    if view.busy[first] > rules.scale_out_above and n < view.max_parallelism:
        if not view.machines:
            return ReplicaAction("scale out", operator)
        if target := pick(view.nodes[first], view, rules, random, rules.include_self):
            return ReplicaAction("scale out", operator, to=target)
    hot = [r for r in dict.fromkeys(view.nodes) if view.used.get(r, 0.0) > rules.migrate_above]
    if hot and view.machines and view.max_parallelism > 1:
        worst = min(hot, key=lambda r: (-view.used[r], r))
        replica = min((a for a in range(n) if view.nodes[a] == worst), key=lambda a: (-view.busy[a], a))
        if target := pick(worst, view, rules, random):
            return ReplicaAction("migrate", operator, replica, target)
    if n > max(1, view.min_parallelism) and sum(view.busy) / (n - 1) < rules.scale_in_margin * rules.scale_out_above:
        two = sorted(range(n), key=lambda a: (-view.busy[a], a))[:2]
        return ReplicaAction("scale in", operator, two[int(random.integers(2))])
    return None


def pick(start: str, view: ManagerView, rules: ManagerSettings, random: Any, with_self: bool = False) -> str:
    """Return a random node with room, with probability decreasing in its delay; "" if there is none."""
    near = {m: max(delay(rules.delays, start, m), NEAREST_S) for m in view.machines if m != start}
    if with_self and view.used.get(start, 0.0) <= rules.migrate_above:
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
        if view.free.get(chosen, 0) >= 1 and (
            rules.room == "slots" or view.used.get(chosen, 0.0) <= rules.migrate_above
        ):
            return chosen
        left.remove(chosen)
    return ""


def known_nodes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return all known nodes, idle ones included: those that were measured, and those in the placement."""
    return tuple(sorted({*snapshot.nodes, *snapshot.deployment.placement.values()}, key=counting))


def freeze_tables(policy: Any, *names: str) -> None:
    """Check these tables of a new policy, `delays` and `state_bytes` by default, and replace them by frozen copies."""
    for name in names or ("delays", "state_bytes"):
        values = getattr(policy, name)
        if not isinstance(values, Mapping) or not all(
            isinstance(v, (int, float)) and 0 <= v < math.inf for v in values.values()
        ):
            raise ArgumentError(f"{name} = {values!r}", expected="finite numbers >= 0 by key", fix="correct the table")
        object.__setattr__(policy, name, FrozenMap(values))


def delay(delays: Mapping[tuple[str, str], float], a: str, b: str, space: DelaySpace | None = None) -> float:
    """Return the delay between two nodes, which is symmetric unless both directions are listed.

    For a pair that is not listed, it is that of the `space` of pings, and otherwise the least.
    """
    if (given := delays.get((a, b), delays.get((b, a)))) is not None:
        return given
    found = None if space is None else space.delay_s(a, b)
    return NEAREST_S if found is None else found


def applied(
    deployment: Deployment, places: Mapping[tuple[str, int], str], actions: Sequence[ReplicaAction], tell: bool
) -> Deployment:
    """Return the deployment after these changes, with the placement of all replicas if `tell`."""
    counts, placement = dict(deployment.parallelism), dict(places)
    for action in actions:
        name, k = action.operator, counts[action.operator]
        after = action.after([placement.get((name, i), "") for i in range(k)])
        counts[name] = len(after)
        placement = {place: node for place, node in placement.items() if place[0] != name}
        placement |= {(name, i): node for i, node in enumerate(after) if node}
    return replace(deployment, parallelism=counts, placement=placement if tell else {})
