"""What our own search for replicas needs to know, as arrays: `replica_branch.py` searches over them.

| here | what it holds |
|---|---|
| levels | operators in their topological order; options, rows by operator, the most promising first |
| `single[i, n, u]`, `spread[i, n, u]` | seconds of n replicas of i, all on u, or some there and some elsewhere |
| `extra[i, n]` | what n replicas cost more than as few as i can do with, in units of the loss |
| room | capacity in whole units: exact where all is whole, else rounded so that bounds stay below |
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import InfeasibleError
from .kernels_onward import bounds, onward
from .replica_metrics import Objective
from .replica_options import Options
from .replica_program import Change, Limits

Array = np.ndarray[Any, Any]
UNITS = 64  # of room on a node, at most


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
        asked = sum(
            float(self.size[a:b].max()) * d for a, b, d in zip(self.first, self.first[1:], demand, strict=False)
        )
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
        for a, b in zip(self.first, self.first[1:], strict=False):
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
