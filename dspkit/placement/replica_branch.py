"""Our own search for deployments with replicas: what the compiled branch and bound needs, and the watch over its time.

| here | what it holds |
|---|---|
| levels | operators in their topological order; options, rows by operator, the most promising first |
| `single[i, n, u]`, `spread[i, n, u]` | seconds of n replicas of i, all on u, or some there and some elsewhere |
| `extra[i, n]` | what n replicas cost more than as few as i can do with, in units of the loss |
| room | capacity in whole units: exact where all is whole, else rounded so that bounds stay below |
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from ..errors import InfeasibleError, PlacementError
from .kernels_replicas import bounds, dig, onward
from .multisets import neighbours
from .replica_metrics import Objective
from .replica_options import Options
from .replica_problem import Replicas
from .replica_program import Change, Limits

Array = np.ndarray[Any, Any]
STEPS = 400  # branches between two looks at the clock
UNITS = 64  # of room on a node, at most
WIDTHS = (1, 2, 3, 5, 8)  # children looked at of each branch, in short searches for a first deployment
SHORT = 2_000  # branches of each
LARGE = 300  # options of an operator above which a local search comes first
STEPS_FEW, STEPS_NEAR = 40_000, 10_000  # branches with few replicas, and of each step of the local search


class Branching:
    """The arrays of one search."""

    def __init__(self, found: Options, objective: Objective, limits: Limits, change: Change | None):
        self.options, self.objective, self.limits = found, objective, limits
        problem = found.problem
        self.app, self.net = problem.problem.application, problem.problem.network
        self.order = list(self.app.order)
        level = {i: k for k, i in enumerate(self.order)}
        self.levels, self.nodes = len(self.order), len(self.net.nodes)
        self.most = max(int(c.sum(axis=1).max()) for c in found.counts)
        self.streams = [(level[i], level[j]) for i, j in self.app.ends.tolist()]
        self._list(change)
        self._graph()
        self._network()

    def _list(self, change: Change | None) -> None:
        """Options of all operators, one after the other."""
        firsts, rows, seconds, prices, moves = [0], [], [], [], []
        least = np.zeros(self.levels)
        self.extra = np.zeros((self.levels, self.most + 1))
        for k, i in enumerate(self.order):
            counts, price = self.options.counts[i], self.options.price[i]
            moved = np.zeros(len(counts))
            if change is not None:
                changed = np.ones(len(counts), bool)
                if (runs := change.running[i]) is not None:
                    changed[runs] = False
                moved = np.where(changed, np.maximum(change.downtime_s[i], change.restart_s), 0.0)
            may = np.flatnonzero(moved <= self.limits.downtime_s * (1 + 1e-9))
            if not len(may):
                raise InfeasibleError(
                    f"operator {self.app.operators[i]!r} longer away than {self.limits.downtime_s:g} s",
                    expected="a change within the limit of downtime", fix="allow more",
                )  # fmt: skip
            least[k] = price[may].min()
            self.extra[k, counts[may].sum(axis=1)] = self.objective.cost * (price[may] - least[k])
            firsts.append(firsts[-1] + len(may))
            rows.append(counts[may])
            seconds.append(self.options.times_s[i][may])
            prices.append(price[may])
            moves.append(moved[may])
        self.first = np.array(firsts, np.int64)
        self.rows = np.concatenate(rows)
        self.seconds, self.price, self.moved = (np.concatenate(x) for x in (seconds, prices, moves))
        self.size = self.rows.sum(axis=1)
        self.support = (self.rows > 0).sum(axis=1)
        widest = int(self.support.max())
        at = np.argsort(self.rows == 0, axis=1, kind="stable")[:, :widest]
        self.counts = np.take_along_axis(self.rows, at, axis=1)
        self.where = np.where(self.counts > 0, at, 0)
        self.cheapest = np.append(np.cumsum(least[::-1])[::-1], 0.0)
        self.constant = self.objective.constant + self.objective.cost * float(least.sum())

    def _graph(self) -> None:
        capacity, demand = self.net.capacity * (1 + 1e-9) + 1e-9, self.app.demand[self.order]
        self.free0, self.demand = capacity, demand
        asked = sum(float(self.size[a:b].max()) * d for a, b, d in zip(self.first, self.first[1:], demand, strict=False))
        top = min(asked, float(capacity.max()))
        whole = bool((demand % 1 == 0).all()) and top <= UNITS
        self.scale = 1.0 if whole else UNITS / max(top, 1e-12)
        self.units = math.floor(min(top * self.scale, UNITS) + 1e-6) + 1
        self.room = np.minimum(np.floor(capacity * self.scale + 1e-6), self.units - 1).astype(np.int64)
        self.unit = np.floor(demand * self.scale + 1e-9).astype(np.int64)
        shape = (self.levels, self.most + 1, self.nodes)
        self.single, self.spread = np.full(shape, np.inf), np.full(shape, np.inf)
        of = np.repeat(np.arange(self.levels), np.diff(self.first))
        for k in range(self.where.shape[1]):
            for into, mine in ((self.single, self.support == 1), (self.spread, self.support > 1)):
                mine = mine & (self.counts[:, k] > 0)
                np.minimum.at(into, (of[mine], self.size[mine], self.where[mine, k]), self.seconds[mine])
        self.out = _adjacent(self.streams, self.levels)
        self.into = _adjacent([(j, i) for i, j in self.streams], self.levels)
        flipped = [(self.levels - 1 - j, self.levels - 1 - i) for i, j in self.streams]
        self.back = _adjacent(flipped, self.levels)

    def _network(self) -> None:
        problem, objective, net = self.options.problem, self.objective, self.net
        apart = ~np.eye(self.nodes, dtype=bool)
        delay = np.where(np.isfinite(net.delay_s), net.delay_s, 0.0)
        power = {"traffic": 0, "usage": 1, "energy": 2}[objective.metric]
        sent = self.app.rate_per_s[:, None, None] * apart
        self.fare = sent * problem.link_price
        bytes_per_s = sent * problem.bytes_per_record[:, None, None]
        self.toll = objective.cost * self.fare + objective.network * bytes_per_s * delay**power
        # between single nodes all of a stream crosses; where pairs of nodes count once, replicas dilute it
        self.toll_ahead = self.toll if problem.traffic == "multiplicity" else np.zeros_like(self.toll)
        self.node_loss = objective.log_availability * np.log(net.availability)
        self.link_loss = objective.log_availability * np.log(net.link_availability)
        self.linked = bool(self.node_loss.any() or self.link_loss.any())
        self.tolled = bool(self.toll.any() or (math.isfinite(self.limits.cost) and self.fare.any()))
        self.narrow = bool((net.bandwidth_per_s < self.app.rate_per_s.sum() * (1 - 1e-12)).any())
        self.nearest = np.where(apart, net.delay_s, np.inf).min(axis=0)
        self.nearest_back = np.where(apart, net.delay_s, np.inf).min(axis=1)

    def bound_options(self) -> None:
        """A bound of each option, and the options of each operator sorted by it."""
        self.dearer = self._dearer()
        weight = self.objective.response
        self.bound = self._bounds(weight, self.constant)
        if self.dearer:
            most_s = self.limits.response_s * (1 + 1e-9)
            self.bound = np.maximum(
                self.bound, self._bounds(weight + self.dearer, self.constant - self.dearer * most_s)
            )
        for k, (a, b) in enumerate(zip(self.first, self.first[1:], strict=False)):
            by = a + np.argsort(self.bound[a:b], kind="stable")
            for name in ("rows", "seconds", "price", "moved", "size", "support", "counts", "where", "bound"):
                mine = getattr(self, name)
                mine[a:b] = mine[by]
        self.floor = float(max(self.bound[a:b].min() for a, b in zip(self.first, self.first[1:], strict=False)))

    def _ways(self, weight: float, backward: bool) -> tuple[Any, ...]:
        """What comes after each operator at least, or before it."""
        turn = slice(None, None, -1) if backward else slice(None)
        heads, succ, via = self.back if backward else self.out
        delay = np.ascontiguousarray(self.net.delay_s.T if backward else self.net.delay_s)
        toll = np.ascontiguousarray(self.toll_ahead.transpose(0, 2, 1) if backward else self.toll_ahead)
        stay, away = np.zeros((self.levels, self.nodes, self.units)), np.zeros((self.levels, 2 * self.nodes))
        here, best = np.zeros((self.levels, self.nodes)), np.zeros((self.levels, self.nodes))
        extra, unit, single, spread = (
            np.ascontiguousarray(a[turn]) for a in (self.extra, self.unit, self.single, self.spread)
        )
        near = self.nearest_back if backward else self.nearest
        onward(
            0, self.room, weight, extra, unit, heads, succ, via, single, spread, delay, near, toll, stay, away, here,
            best,
        )  # fmt: skip
        return heads, succ, delay, stay, away, best

    def _bounds(self, weight: float, constant: float) -> Array:
        found = np.zeros(len(self.rows))
        bounds(
            self.first, self.where, self.counts, self.support, self.size, self.seconds, self.moved, found, self.room,
            constant, weight, self.objective.downtime, self.unit, self.extra, *self._ways(weight, False),
            *self._ways(weight, True),
        )  # fmt: skip
        return found

    def _dearer(self) -> float:
        """By how much a second has to cost more for the bound to be best, as R_max may not be exceeded."""
        if not math.isfinite(most_s := self.limits.response_s):
            return 0.0
        sources = [k for k in range(self.levels) if not any(j == k for _, j in self.streams)]

        def floor(dearer: float) -> float:
            best = self._ways(self.objective.response + dearer, False)[-1]
            return max(float(best[k].min()) for k in sources) - dearer * most_s

        unit = max(float(self.extra.max(initial=0.0)), self.objective.response * most_s, 1e-9) / most_s
        tried = {dearer: floor(dearer) for dearer in (0.0, *(unit * np.geomspace(1e-3, 1e3, 31)))}
        best = max(tried, key=lambda d: tried[d])
        return best if tried[best] > tried[0.0] + 1e-9 else 0.0


def _adjacent(streams: list[tuple[int, int]], levels: int) -> tuple[Array, Array, Array]:
    """Streams by their start: where each operator's begin in the list, their ends, their numbers."""
    by = sorted(range(len(streams)), key=lambda e: streams[e])
    heads = np.searchsorted([streams[e][0] for e in by], np.arange(levels + 1)).astype(np.int64)
    return heads, np.array([streams[e][1] for e in by], np.int64), np.array(by, np.int64)


class _Dig:
    """One search over the options of `made`, that goes on where it stopped."""

    def __init__(self, made: Branching, best: float):
        self.made = made
        levels, nodes = made.levels, made.nodes
        shape = (levels, nodes, made.units)
        self.many = int(np.diff(made.first).max())
        self.state, self.ended = np.array([0, 1, 0], np.int64), False
        done, free = np.zeros((levels + 1, 5)), np.zeros((levels + 1, nodes))
        done[0, 0], free[0] = made.constant, made.free0
        wide = (levels + 1, nodes, nodes) if made.tolled or made.linked or made.narrow else (levels + 1, 1, 1)
        self.child_bound = np.zeros((levels, self.many))
        self.children, self.position = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
        self.rows, self.least = np.full(levels, -1, np.int64), np.array([best])
        width_per_s = made.net.bandwidth_per_s * (1 + 1e-9) + 1e-9
        after = [np.zeros((3, *shape)), np.zeros((3, levels, 2 * nodes)), *np.zeros((2, 3, *shape[:2]))]
        limits = made.limits
        self.arrays = (
            made.first, made.where, made.counts, made.support, made.size, made.seconds, made.price, made.moved,
            made.bound, *made.into, *made.out, made.demand, made.unit, made.scale, made.extra, made.single, made.spread,
            made.net.delay_s, made.nearest, made.toll, made.toll_ahead, made.fare, made.tolled, made.node_loss,
            made.link_loss, made.linked, made.app.rate_per_s, width_per_s, made.narrow,
            made.options.problem.traffic == "support", made.objective.response, made.objective.downtime, made.dearer,
            limits.response_s * (1 + 1e-9), limits.cost * (1 + 1e-9) + 1e-9, made.cheapest,
            np.zeros(levels, np.int64), done, np.zeros((levels, nodes)), free, np.zeros((levels + 1, nodes), np.int64),
            np.zeros(wide, np.int64), np.zeros(wide), np.zeros((levels, nodes)),
            np.zeros((levels, self.many), np.int64), self.child_bound, self.children, self.position, self.rows,
            self.least, np.zeros(nodes, np.int64), np.zeros(nodes), *after,
            np.zeros_like(made.extra), np.zeros_like(made.toll), *np.zeros((3, 3)),
        )  # fmt: skip

    def dig(self, deadline: float, *, width: int = 0, most: float = math.inf, gap: float = 0.0) -> bool:
        """Go on until all is looked at (True), or time or branches are over."""
        while self.state[2] < most:
            if dig(int(min(STEPS, most)), width or self.many, self.state, gap, *self.arrays):
                return True
            if time.perf_counter() > deadline:
                break
        return False

    def again(self) -> None:
        """From the start, with what was found."""
        self.state[:] = 0, 1, 0

    @property
    def found(self) -> Replicas | None:
        if self.rows[0] < 0:
            return None
        made = np.zeros((self.made.levels, self.made.nodes), np.int64)
        made[self.made.order] = self.made.rows[self.rows]
        return made

    @property
    def open(self) -> float:
        """The least bound of what was not looked at."""
        level, look = int(self.state[0]), int(self.state[1])
        left = [math.inf]
        for k in range(level + 1 - look):
            at = self.position[k] - (1 if look and k == level - 1 else 0)
            if at < self.children[k]:
                left.append(float(self.child_bound[k, at]))
        return min(left)


def branch_replicas(
    found: Options, objective: Objective, limits: Limits = Limits(), *, change: Change | None = None,  # noqa: B008
    start: tuple[Replicas, float] | None = None, time_limit_s: float = math.inf, gap: float = 0.0,
    branches: float = math.inf,
) -> tuple[Replicas, float, dict[str, Any]]:  # fmt: skip
    """The best deployment, the bound below all others, and what the search did; `start`: one that may run, its loss."""
    deadline = time.perf_counter() + time_limit_s
    made = Branching(found, objective, limits, change)
    made.bound_options()
    search = _Dig(made, math.inf if start is None else start[1])
    for width in WIDTHS:
        if width < search.many and time.perf_counter() < deadline:
            search.again()
            search.dig(deadline, width=width, most=SHORT, gap=gap)
    best, least = start if start is not None else (None, math.inf)
    if search.found is not None:
        best, least = search.found, float(search.least[0])
    if best is not None and search.many > LARGE:
        best, least = climb(found, objective, limits, change, best, least, deadline)
        if least < search.least[0]:
            search.least[0], search.rows[:] = least, -1
    search.again()
    ended = time.perf_counter() < deadline and search.dig(deadline, most=branches, gap=gap)
    if search.found is not None:
        best, least = search.found, float(search.least[0])
    if best is None:
        if not ended:
            raise PlacementError("no deployment in time", expected="one within the limits", fix="give it longer")
        raise InfeasibleError(
            "a problem without any feasible deployment", expected="room for all operators", fix="add capacity or links"
        )
    bound = least - max(gap, 1e-9) * abs(least)
    if not ended:
        bound = min(bound, max(made.floor, search.open if search.state[2] else -math.inf))
    return best, bound, {"branches": int(search.state[2]), "options": int(made.first[-1]), "floor": made.floor}


def climb(
    found: Options, objective: Objective, limits: Limits, change: Change | None, best: Replicas, least: float,
    deadline: float,
) -> tuple[Replicas, float]:  # fmt: skip
    """A better deployment: with few replicas, then ever more; then all operators at once one step from the best."""

    def among(keep: list[Array], most: int) -> bool:
        nonlocal best, least
        near, changed = found.only(keep), None if change is None else change.only(keep)
        try:
            made = Branching(near, objective, limits, changed)
        except InfeasibleError:  # none of these few within the limit of downtime
            return False
        made.bound_options()
        search = _Dig(made, least)
        search.dig(deadline, most=most)
        better = search.found is not None and search.least[0] < least - 1e-9 * abs(least)
        if better and search.found is not None:
            best, least = search.found, float(search.least[0])
        return better

    fewest = [int(rows.sum(axis=1).min()) for rows in found.counts]
    for more in range(1, max(int(rows.sum(axis=1).max()) for rows in found.counts) - 1):
        if time.perf_counter() < deadline:
            among([rows.sum(axis=1) <= few + more for rows, few in zip(found.counts, fewest, strict=True)], STEPS_FEW)
    while time.perf_counter() < deadline:
        if not among([neighbours(rows, best[i]) for i, rows in enumerate(found.counts)], STEPS_NEAR):
            break
    return best, least
