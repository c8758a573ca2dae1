"""Lower bounds of the open operators of a deployment with replicas, compiled, and the arrays of the exact search.

The bounds are shortest paths from one representative replica to the next, over nodes that have room. A path may stay on
a node as long as the node has room, then it has to hop; a multiset on several nodes always hops. The bounds hold
because the slowest pair of replicas is at least as far apart as the two representatives, and because a path forgets
the room that it used on nodes it has left. A multiset on several nodes sends at least one part in n of a stream over
links if it has n replicas. `new_nodes` bounds the loss by nodes that are not used yet, which the open operators need.
`branch_and_bound.py` prunes by them.

| array | contents |
|---|---|
| levels | operators in topological order; options are rows by operator, the most promising first |
| `single[i, n, u]`, `spread[i, n, u]` | seconds of n replicas of i, all on u, or some there and some elsewhere |
| `extra[i, n]` | additional loss of n replicas, compared with the fewest that i can run with |
| `room` | capacity in whole units: exact if all demands are whole, else rounded such that the bounds hold |
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core import InfeasibleError
from ...core.jit import allocation_free
from ...core.typing import Array
from ..metrics import Limits, Objective
from .options import Options
from .program import Change


class OptionArrays(NamedTuple):
    """The multisets of nodes that each operator may get, operator by operator; o is an option."""

    first: Array  # [level] the operator's first option
    where: Array  # [o, :] its nodes
    counts: Array  # [o, :] replicas on each of them
    support: Array  # [o] number of its nodes
    size: Array  # [o] number of its replicas
    seconds: Array  # [o] response time
    price: Array  # [o]
    moved: Array  # [o] downtime
    bound: Array  # [o] of the loss of any deployment with it


class Streams(NamedTuple):
    """The streams into level k, `tails[k]` to `tails[k + 1]`, and those out of it, `heads[k]` to `heads[k + 1]`."""

    tails: Array
    pred: Array  # level that the stream comes from
    into_streams: Array  # its number
    heads: Array
    succ: Array  # level that the stream goes to
    out_streams: Array  # its number


class OperatorArrays(NamedTuple):
    """Needs and costs of operators, by level."""

    demand: Array  # [level]
    unit: Array  # [level] the same in units of room
    scale: float  # units of room for each of demand
    extra: Array  # [level, n] cost of n replicas, beyond the fewest
    single: Array  # [level, n, u] seconds of n replicas, all of them on u
    spread: Array  # [level, n, u] seconds of n replicas, some of them on u
    cheapest: Array  # [level] least price of the operators from here on


class NetworkArrays(NamedTuple):
    """The network, and the costs of links and nodes in units of the loss and in price; e is a stream."""

    delay: Array  # [u, v]
    nearest: Array  # [v] from any other node
    toll: Array  # [e, u, v] loss
    toll_ahead: Array  # the same, for the bound of what is to come
    part_out: Array  # [e] least loss if the sender is on several nodes
    part_in: Array  # [e] least loss if the receiver is
    fare: Array  # [e, u, v] price
    tolled: bool
    node_loss: Array  # [u]
    link_loss: Array  # [u, v]
    linked: bool  # whether one of these two counts
    needs: Array  # [level] least demand of the operators from here on
    forced: Array  # [level, u] whether one of them can only run with a replica on u
    by_room: Array  # nodes, those of most capacity first
    by_loss: Array  # nodes, those of least loss first
    rate: Array  # [e] records/s
    width_per_s: Array  # [u, v] records/s
    narrow: bool  # whether that could ever be too little
    support_only: bool  # whether each pair of nodes carries all of a stream


class CompletionBound(NamedTuple):
    """The least cost of the operators after j, where j stands on node v."""

    stay: Array  # [j, v, c] all of j on v, with c units of v's room left
    away: Array  # [j, v] j on v and elsewhere; [j, nodes + v] the same, j's own time included
    here: Array  # [j, v] j, all of it on v, and after
    best: Array  # [j, v] the same, or v is one of several nodes


class Ways(NamedTuple):
    """The completion bounds in one direction of the streams, with the graph that they were made from."""

    heads: Array
    succ: Array
    via: Array
    delay: Array
    toll: Array
    part: Array  # [e] least loss if the operator is on several nodes
    bound: CompletionBound


@allocation_free
def onward(  # noqa: C901  (compiled: one recursion over operators, streams and nodes)
    first: int,
    room: Array,
    weight: float,
    extra: Array,
    toll: Array,
    part_out: Array,
    part_in: Array,
    graph: Streams,
    operators: OperatorArrays,
    delay: Array,
    nearest: Array,
    after: CompletionBound,
) -> None:
    """Bound the cost of the operators from `first` on and of the paths after them, given the room of nodes.

    `extra` and tolls stand apart from the operators and the network, as one of the bounds counts neither.
    """
    heads, succ, via = graph.heads, graph.succ, graph.out_streams
    unit, single, spread = operators.unit, operators.single, operators.spread
    stay, away, here, best = after.stay, after.away, after.here, after.best
    nodes, most = len(room), stay.shape[2]
    for j in range(len(heads) - 2, first - 1, -1):
        stay[j] = 0.0
        away[j] = 0.0
        for at in range(heads[j], heads[j + 1]):
            s, e = succ[at], via[at]
            for v in range(nodes):
                hop, from_many = np.inf, np.inf
                for u in range(nodes):
                    if u != v and best[s, u] < np.inf and delay[v, u] < np.inf:
                        far = weight * delay[v, u]
                        both = away[s, nodes + u] + max(part_out[e], part_in[e])
                        from_many = min(from_many, far + min(here[s, u] + part_out[e], both))
                        hop = min(hop, far + min(here[s, u] + toll[e, v, u], away[s, nodes + u] + part_in[e]))
                if nearest[v] < np.inf:
                    from_many = min(from_many, weight * nearest[v] + here[s, v] + part_out[e])
                away[j, v] = max(away[j, v], from_many)
                for c in range(most):
                    least = hop
                    for n in range(1, single.shape[1]):
                        if n * unit[s] <= c and single[s, n, v] < np.inf:
                            last = weight * single[s, n, v] + extra[s, n] + stay[s, v, c - n * unit[s]]
                            least = min(least, last)
                    stay[j, v, c] = max(stay[j, v, c], least)
        for v in range(nodes):
            least, many = np.inf, np.inf
            for n in range(1, single.shape[1]):
                if n * unit[j] <= room[v] and single[j, n, v] < np.inf:
                    least = min(least, weight * single[j, n, v] + extra[j, n] + stay[j, v, room[v] - n * unit[j]])
                if unit[j] <= room[v] and spread[j, n, v] < np.inf:
                    many = min(many, weight * spread[j, n, v] + extra[j, n] + away[j, v])
            here[j, v], away[j, nodes + v] = least, many
            best[j, v] = min(least, many)


@allocation_free
def rest(
    level: int,
    nodes_of: Array,
    counts: Array,
    count: int,
    left: int,
    weight: float,
    ways: Ways,
) -> float:
    """Return a bound of the cost after an operator that was just placed on these nodes."""
    heads, succ, via, delay, toll, part, after = ways
    stay, away, here, best = after
    if count == 1:
        return stay[level, nodes_of[0], left]  # type: ignore[no-any-return]
    found, size, nodes = 0.0, 0, delay.shape[0]
    for k in range(count):
        found = max(found, away[level, nodes_of[k]])
        size += counts[k]
    for at in range(heads[level], heads[level + 1]):
        s, e, least = succ[at], via[at], np.inf
        for u in range(nodes):
            if best[s, u] < least:
                far, sent = 0.0, 0.0
                for k in range(count):
                    far = max(far, delay[nodes_of[k], u])
                    sent += counts[k] / size * toll[e, nodes_of[k], u]
                if far < np.inf:
                    least = min(least, weight * far + min(here[s, u] + sent, away[s, nodes + u] + part[e]))
        found = max(found, least)
    return found


@allocation_free
def _there(u: int, used: Array, nodes_of: Array, count: int) -> bool:
    found: bool = used[u] > 0
    for k in range(count):
        found = found or nodes_of[k] == u
    return found


@allocation_free
def new_nodes(
    level: int, need: float, free: Array, used: Array, nodes_of: Array, count: int, network: NetworkArrays
) -> float:
    """Return the least loss by nodes that the operators from `level` on, with this demand, have to add.

    `used` and the first `count` of `nodes_of` are there already. Nodes that an open operator cannot do without come
    first; for what has no room on all these, as few others as could hold it, at the losses of those that cost least.
    """
    loss, more = 0.0, 0
    for u in range(len(free)):
        if _there(u, used, nodes_of, count):
            need -= free[u]
        elif network.forced[level, u] > 0:
            need -= free[u]
            loss += network.node_loss[u]
    for u in network.by_room:
        if need <= 1e-9:
            break
        if network.forced[level, u] == 0 and not _there(u, used, nodes_of, count):
            need -= free[u]
            more += 1
    if need > 1e-9:
        return np.inf
    for u in network.by_loss:
        if more == 0:
            break
        if network.forced[level, u] == 0 and not _there(u, used, nodes_of, count):
            loss += network.node_loss[u]
            more -= 1
    return loss


@allocation_free
def bounds(
    options: OptionArrays,
    room: Array,
    constant: float,
    weight: float,
    idle: float,
    unit: Array,
    extra: Array,
    ahead: Ways,
    back: Ways,
) -> None:
    """Compute a bound of the loss of any deployment with each option, by `onward` in both directions."""
    first, where, counts, support = options.first, options.where, options.counts, options.support
    levels = len(first) - 1
    for level in range(levels):
        for o in range(first[level], first[level + 1]):
            left = room[where[o, 0]] - counts[o, 0] * unit[level]
            own = constant + extra[level, options.size[o]] + idle * options.moved[o] + weight * options.seconds[o]
            after = rest(level, where[o], counts[o], support[o], left, weight, ahead)
            before = rest(levels - 1 - level, where[o], counts[o], support[o], left, weight, back)
            options.bound[o] = own + after + before


UNITS = 64  # most units of room of a node


class Branching:
    """The arrays of a search."""

    def __init__(self, found: Options, objective: Objective, limits: Limits, change: Change | None):
        self.options, self.objective, self.limits = found, objective, limits
        problem = found.problem
        self.app, self.net = problem.application, problem.network
        self.order = list(self.app.order)
        level = {i: k for k, i in enumerate(self.order)}
        self.levels, self.nodes = len(self.order), len(self.net.nodes)
        self.most = max(int(c.sum(axis=1).max()) for c in found.counts)
        self.streams = [(level[i], level[j]) for i, j in self.app.ends.tolist()]
        self._list(change)
        self._graph()
        self._network()

    def _list(self, change: Change | None) -> None:
        """List the options of all operators, one after the other."""
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
                    f"a downtime of operator {self.app.operators[i]!r} above {self.limits.downtime_s:g} s",
                    expected="a change within the limit of downtime",
                    fix="allow more",
                )
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
        streams, last = self.streams, self.levels - 1
        arriving, leaving = _adjacent([(j, i) for i, j in streams], self.levels), _adjacent(streams, self.levels)
        self.graph = Streams(*arriving, *leaving)
        flipped = _adjacent([(last - j, last - i) for i, j in streams], self.levels)
        self.reversed_graph = Streams(*leaving, *flipped)  # only the second half is read

    def _network(self) -> None:
        problem, objective, net = self.options.problem, self.objective, self.net
        apart = ~np.eye(self.nodes, dtype=bool)
        delay = np.where(np.isfinite(net.delay_s), net.delay_s, 0.0)
        power = {"traffic": 0, "usage": 1, "energy": 2}[objective.metric]
        sent = self.app.rate_per_s[:, None, None] * apart
        self.fare = sent * problem.replica_model.link_price
        bytes_per_s = sent * problem.replica_model.bytes_per_record[:, None, None]
        self.toll = objective.cost * self.fare + objective.network * bytes_per_s * delay**power
        # between single nodes all of a stream is sent; if pairs of nodes count once, replicas reduce it
        self.support_only = problem.replica_model.traffic == "support"
        self.toll_ahead = np.zeros_like(self.toll) if self.support_only else self.toll
        # A sender (receiver) on several nodes has at most n - 1 of its n replicas on one of them.
        least = np.where(apart & np.isfinite(net.delay_s), self.toll_ahead, np.inf).min(axis=(1, 2), initial=np.inf)
        least = np.where(np.isfinite(least), least, 0.0)
        most = np.array([int(c.sum(axis=1).max()) for c in self.options.counts])
        self.part_out, self.part_in = (least / most[self.app.ends[:, end]] for end in (0, 1))
        self.node_loss = objective.log_availability * np.log(net.availability)
        self.link_loss = objective.log_availability * np.log(net.link_availability)
        self.linked = bool(self.node_loss.any() or self.link_loss.any())
        self.tolled = bool(self.toll.any() or (math.isfinite(self.limits.cost) and self.fare.any()))
        self.narrow = bool((net.bandwidth_per_s < self.app.rate_per_s.sum() * (1 - 1e-12)).any())
        self.needs, self.forced = np.zeros(self.levels + 1), np.zeros((self.levels + 1, self.nodes), np.int64)
        for k in range(self.levels - 1, -1, -1):
            mine = slice(self.first[k], self.first[k + 1])
            self.needs[k] = self.needs[k + 1] + int(self.size[mine].min()) * self.demand[k]
            self.forced[k] = np.maximum(self.forced[k + 1], (self.rows[mine] > 0).all(axis=0))
        self.by_room = np.argsort(-self.free0, kind="stable")
        self.by_loss = np.argsort(self.node_loss, kind="stable")
        self.nearest = np.where(apart, net.delay_s, np.inf).min(axis=0)
        self.nearest_back = np.where(apart, net.delay_s, np.inf).min(axis=1)

    def bound_options(self) -> None:
        """Compute the bound of each option, and sort the options of each operator by it."""
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

    def option_arrays(self, bound: Array) -> OptionArrays:
        return OptionArrays(
            self.first, self.where, self.counts, self.support, self.size, self.seconds, self.price, self.moved, bound
        )

    @property
    def operator_arrays(self) -> OperatorArrays:
        return OperatorArrays(self.demand, self.unit, self.scale, self.extra, self.single, self.spread, self.cheapest)

    @property
    def network_arrays(self) -> NetworkArrays:
        return NetworkArrays(
            self.net.delay_s, self.nearest, self.toll, self.toll_ahead, self.part_out, self.part_in, self.fare,
            self.tolled, self.node_loss, self.link_loss, self.linked, self.needs, self.forced, self.by_room,
            self.by_loss, self.app.rate_per_s, self.net.bandwidth_per_s * (1 + 1e-9) + 1e-9, self.narrow,
            self.support_only,
        )  # fmt: skip

    def _ways(self, weight: float, backward: bool) -> Ways:
        """Return the bounds of the cost after each operator, or before it, with the graph that they use."""
        turn = slice(None, None, -1) if backward else slice(None)
        graph = self.reversed_graph if backward else self.graph
        delay = np.array(self.net.delay_s.T if backward else self.net.delay_s, order="C")
        toll = np.ascontiguousarray(self.toll_ahead.transpose(0, 2, 1) if backward else self.toll_ahead)
        stay, away = np.zeros((self.levels, self.nodes, self.units)), np.zeros((self.levels, 2 * self.nodes))
        here, best = np.zeros((self.levels, self.nodes)), np.zeros((self.levels, self.nodes))
        extra, unit, single, spread = (
            np.ascontiguousarray(a[turn]) for a in (self.extra, self.unit, self.single, self.spread)
        )
        operators = self.operator_arrays._replace(extra=extra, unit=unit, single=single, spread=spread)
        out, into = (self.part_in, self.part_out) if backward else (self.part_out, self.part_in)
        near, after = self.nearest_back if backward else self.nearest, CompletionBound(stay, away, here, best)
        onward(0, self.room, weight, extra, toll, out, into, graph, operators, delay, near, after)
        return Ways(graph.heads, graph.succ, graph.out_streams, delay, toll, out, after)

    def _bounds(self, weight: float, constant: float) -> Array:
        found = np.zeros(len(self.rows))
        bounds(
            self.option_arrays(found),
            self.room,
            constant,
            weight,
            self.objective.downtime,
            self.unit,
            self.extra,
            self._ways(weight, False),
            self._ways(weight, True),
        )
        return found + self._nodes_for() if self.linked else found

    def _nodes_for(self) -> Array:
        """Return the least loss by nodes with each option: its own, and those that all other operators need."""
        network, needs = self.network_arrays, self.needs[0]
        found = np.zeros(len(self.rows))
        none = np.zeros(self.nodes, np.int64)
        for k, (a, b) in enumerate(zip(self.first, self.first[1:], strict=False)):
            others = needs - (self.needs[k] - self.needs[k + 1])
            for o in range(a, b):
                own = self.where[o, : self.support[o]]
                free = self.free0 - self.rows[o] * self.demand[k]
                found[o] = self.node_loss[own].sum() + new_nodes(0, others, free, none, own, len(own), network)
        return found

    def _dearer(self) -> float:
        """Return the multiplier of R_max (Lagrange), loss per second, that makes the bound greatest."""
        if not math.isfinite(most_s := self.limits.response_s):
            return 0.0
        sources = [k for k in range(self.levels) if not any(j == k for _, j in self.streams)]

        def floor(dearer: float) -> float:
            best = self._ways(self.objective.response + dearer, False).bound.best
            return max(float(best[k].min()) for k in sources) - dearer * most_s

        unit = max(float(self.extra.max(initial=0.0)), self.objective.response * most_s, 1e-9) / most_s
        tried = {dearer: floor(dearer) for dearer in (0.0, *(unit * np.geomspace(1e-3, 1e3, 31)))}
        best = max(tried, key=lambda d: tried[d])
        return best if tried[best] > tried[0.0] + 1e-9 else 0.0


def _adjacent(streams: list[tuple[int, int]], levels: int) -> tuple[Array, Array, Array]:
    """Return the streams by their start: the first of each operator, their ends, their indices."""
    by = sorted(range(len(streams)), key=lambda e: streams[e])
    heads = np.searchsorted([streams[e][0] for e in by], np.arange(levels + 1)).astype(np.int64)
    return heads, np.array([streams[e][1] for e in by], np.int64), np.array(by, np.int64)
