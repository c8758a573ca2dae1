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
from .replica_metrics import Objective
from .replica_options import Options
from .replica_problem import Replicas
from .replica_program import Change, Limits

Array = np.ndarray[Any, Any]
STEPS = 400  # branches between two looks at the clock
UNITS = 64  # of room on a node, at most
WIDTHS = (1, 2, 3, 5, 8)  # children looked at of each branch, in short searches for a first deployment
SHORT = 2_000  # branches of each


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
        self.picked: list[Array] = []  # which option of its operator each of ours is
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
            self.picked.append(may)
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
        self.unit = np.floor(demand * self.scale + 1e-9).astype(np.int64)
        shape = (self.levels, self.most + 1, self.nodes)
        self.single, self.spread = np.full(shape, np.inf), np.full(shape, np.inf)
        for k in range(self.levels):
            for o in range(self.first[k], self.first[k + 1]):
                into = self.single if self.support[o] == 1 else self.spread
                n, u = self.size[o], self.where[o, : self.support[o]]
                into[k, n, u] = np.minimum(into[k, n, u], self.seconds[o])
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
        shape = (self.levels, self.nodes, self.units)
        room = np.minimum(np.floor(self.free0 * self.scale + 1e-6), self.units - 1).astype(np.int64)
        ways = []
        for backward in (False, True):
            turn = slice(None, None, -1) if backward else slice(None)
            heads, succ, via = self.back if backward else self.out
            delay = np.ascontiguousarray(self.net.delay_s.T if backward else self.net.delay_s)
            toll = np.ascontiguousarray(self.toll_ahead.transpose(0, 2, 1) if backward else self.toll_ahead)
            stay, away = np.zeros(shape), np.zeros((self.levels, 2 * self.nodes))
            here, best = np.zeros(shape[:2]), np.zeros(shape[:2])
            arrays = [np.ascontiguousarray(a[turn]) for a in (self.extra, self.unit, self.single, self.spread)]
            onward(
                0, room, self.objective.response, arrays[0], arrays[1], heads, succ, via, arrays[2], arrays[3],
                delay, self.nearest_back if backward else self.nearest, toll, stay, away, here, best,
            )  # fmt: skip
            ways.append((heads, succ, delay, stay, away, best))
        self.bound = np.zeros(len(self.rows))
        bounds(
            self.first, self.where, self.counts, self.support, self.size, self.seconds, self.moved, self.bound, room,
            self.constant, self.objective.response, self.objective.downtime, self.unit, self.extra, *ways[0], *ways[1],
        )  # fmt: skip
        for k, (a, b) in enumerate(zip(self.first, self.first[1:], strict=False)):
            by = a + np.argsort(self.bound[a:b], kind="stable")
            for name in ("rows", "seconds", "price", "moved", "size", "support", "counts", "where", "bound"):
                mine = getattr(self, name)
                mine[a:b] = mine[by]
            self.picked[k] = self.picked[k][by - a]


def _adjacent(streams: list[tuple[int, int]], levels: int) -> tuple[Array, Array, Array]:
    """Streams by their start: where each operator's begin in the list, their ends, their numbers."""
    by = sorted(range(len(streams)), key=lambda e: streams[e])
    heads = np.searchsorted([streams[e][0] for e in by], np.arange(levels + 1)).astype(np.int64)
    return heads, np.array([streams[e][1] for e in by], np.int64), np.array(by, np.int64)


def branch_replicas(
    found: Options, objective: Objective, limits: Limits = Limits(), *, change: Change | None = None,  # noqa: B008
    start: tuple[Replicas, float] | None = None, time_limit_s: float = math.inf, gap: float = 0.0,
) -> tuple[Replicas, float, dict[str, Any]]:  # fmt: skip
    """The best deployment, the bound below all others, and what the search did; `start`: one that may run, its loss."""
    began = time.perf_counter()
    made = Branching(found, objective, limits, change)
    made.bound_options()
    levels, nodes = made.levels, made.nodes
    shape = (levels, nodes, made.units)
    many = int(np.diff(made.first).max())
    state = np.zeros(3, np.int64)
    done, free = np.zeros((levels + 1, 5)), np.zeros((levels + 1, nodes))
    done[0, 0], free[0] = made.constant, made.free0
    wide = (levels + 1, nodes, nodes) if made.tolled or made.linked or made.narrow else (levels + 1, 1, 1)
    child, child_bound = np.zeros((levels, many), np.int64), np.zeros((levels, many))
    children, position = np.zeros(levels, np.int64), np.zeros(levels, np.int64)
    rows, least = np.full(levels, -1, np.int64), np.array([math.inf if start is None else start[1]])
    width_per_s = made.net.bandwidth_per_s * (1 + 1e-9) + 1e-9
    after = [np.zeros(shape), np.zeros((levels, 2 * nodes)), np.zeros(shape[:2]), np.zeros(shape[:2])]
    arrays = (
        made.first, made.where, made.counts, made.support, made.size, made.seconds, made.price, made.moved, made.bound,
        *made.into, *made.out, made.demand, made.unit, made.scale, made.extra, made.single, made.spread,
        made.net.delay_s, made.nearest, made.toll, made.toll_ahead, made.fare, made.tolled, made.node_loss, made.link_loss,
        made.linked, made.app.rate_per_s, width_per_s, made.narrow, found.problem.traffic == "support",
        objective.response, objective.downtime, limits.response_s * (1 + 1e-9), limits.cost * (1 + 1e-9) + 1e-9,
        made.cheapest, np.zeros(levels, np.int64), done, np.zeros((levels, nodes)), free,
        np.zeros((levels + 1, nodes), np.int64), np.zeros(wide, np.int64), np.zeros(wide), np.zeros((levels, nodes)),
        child, child_bound, children, position, rows, least, np.zeros(nodes, np.int64), np.zeros(nodes),
        *after, *map(np.zeros_like, after), np.zeros_like(made.extra), np.zeros_like(made.toll),
    )  # fmt: skip
    ended, branches = False, 0
    for width in (*(w for w in WIDTHS if w < many), many):
        state[:] = 0, 1, 0
        short = width < many
        while not ended:
            ended = bool(dig(min(STEPS, SHORT) if short else STEPS, width, state, gap, *arrays))
            if time.perf_counter() - began > time_limit_s or (short and state[2] >= SHORT):
                break
        branches += int(state[2])
        if time.perf_counter() - began > time_limit_s:
            break
        if short:
            ended = False
    best = float(least[0])
    if math.isinf(best):
        if not ended or width < many:
            raise PlacementError("no deployment in time", expected="one within the limit", fix="give it longer")
        raise InfeasibleError(
            "a problem without any feasible deployment", expected="room for all operators", fix="add capacity or links"
        )
    bound = best - max(gap, 1e-9) * abs(best)
    if width < many:
        bound = min(bound, float(min(made.bound[a:b].min() for a, b in zip(made.first, made.first[1:], strict=False))))
    elif not ended:
        depth = int(state[0]) + (0 if state[1] else 1)
        for k in range(min(depth, levels)):
            nxt = position[k] - (1 if k == depth - 1 and state[1] else 0)
            if nxt < children[k]:
                bound = min(bound, float(child_bound[k, nxt]))
    if rows[0] < 0:
        assert start is not None
        deployment = start[0]
    else:
        deployment = np.zeros((levels, nodes), np.int64)
        deployment[made.order] = made.rows[rows]
    details = {"branches": branches, "options": int(made.first[-1])}
    return deployment, bound, details
