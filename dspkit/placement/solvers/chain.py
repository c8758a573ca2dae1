r"""Label setting for chains: a placement is a shortest path through (operator, node) pairs that respects capacities.

The label of a path need not record all capacity that the path used. Each node has a set of nodes, at first itself,
whose use a label records while the path is on that node; elsewhere the use is forgotten. Forgetting only adds paths,
and so gives a lower bound. If the cheapest path exceeds a capacity, the sets grow by the forgotten nodes, until the
cheapest path is feasible: it is the optimum. (In vehicle routing: ng-routes with decremental state space.) Three
techniques keep the labels few:

* the runs alternate between forward and backward, each pruned by the least cost of the rest that the one before found;
* the capacity of each node has a price $\mu_u$ (Lagrange, by subgradient): the priced cost of a path, less the value of
  all capacity, is at most its cost, so a path is dropped as soon as that exceeds the best known placement;
* that placement is found by local search.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...core.jit import allocation_free, compiled, inlined
from ...core.typing import Array
from ..objective import Costs
from ..problem import Problem
from ..solution import Clock, Longer
from .branch_and_bound import capacity_prices


@allocation_free
def onward(node: Array, link: Array, kind: Array, rest: Array) -> None:
    """Compute rest[i, u]: the least cost of all operators after i on node u, without capacities."""
    operators, nodes = node.shape
    for u in range(nodes):
        rest[operators - 1, u] = 0.0
    for i in range(operators - 2, -1, -1):
        for u in range(nodes):
            least = np.inf
            for v in range(nodes):
                cost = link[kind[i], u, v] + node[i + 1, v] + rest[i + 1, v]
                if cost < least:
                    least = cost
            rest[i, u] = least


@allocation_free
def follow(node: Array, link: Array, kind: Array, rest: Array, x: Array) -> float:
    """Write the cheapest path without capacities into x; return its cost, infinite if there is none."""
    operators, nodes = node.shape
    least = np.inf
    for v in range(nodes):
        if node[0, v] + rest[0, v] < least:
            least = node[0, v] + rest[0, v]
            x[0] = v
    if not least < np.inf:
        return np.inf  # no path: x is unchanged
    for i in range(1, operators):
        low = np.inf
        for v in range(nodes):
            cost = link[kind[i - 1], x[i - 1], v] + node[i, v] + rest[i, v]
            if cost < low:
                low = cost
                x[i] = v
    return least


@inlined
def _bit(memory: Array, row: int, bit: int) -> bool:
    set_: bool = (memory[row, bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1) != np.uint64(0)
    return set_


@compiled
def extend(  # noqa: C901, PLR0913  (compiled: one loop over labels, whose arrays grow)
    at: Array, cost: Array, priced: Array, memory: Array, link: Array, node: Array, price: Array, rest: Array,
    cutoff: float, need: int, slots: Array, offset: Array, mask: Array, closing: bool, most: int, kept: int,
) -> tuple[int, Array, Array, Array, Array, Array]:  # fmt: skip
    """Return the labels of the next operator: count (-1: too many), node, cost, priced cost, memory, parent.

    A label is a path up to this operator; its memory has the used slots of the nodes that it has not forgotten. A label
    is kept if its priced cost with the rest is below the cutoff, and no label with a subset of its memory is as cheap
    in both costs. `closing`: a node that the path leaves counts as full.
    """
    labels, nodes, words = len(at), len(node), memory.shape[1]
    size = min(most, 4 * labels + 4 * nodes)
    new_at, new_parent = np.empty(size, np.int32), np.empty(size, np.int32)
    new_cost, new_priced = np.empty(size), np.empty(size)
    new_memory = np.empty((size, words), np.uint64)
    some, values = np.empty(labels, np.int64), np.empty(labels)
    fresh = np.empty(words, np.uint64)
    made = 0
    for v in range(nodes):
        if not price[v] + rest[v] < np.inf:
            continue
        found = 0
        binding = slots[v] > 0 and need > 0
        for k in range(labels):
            value = priced[k] + link[at[k], v] + price[v]
            if value + rest[v] < cutoff:
                if binding and (need > slots[v] or _bit(memory, k, offset[v] + slots[v] - need)):
                    continue
                some[found] = k
                values[found] = value
                found += 1
        order = np.argsort(values[:found])
        first = made
        for o in range(found):
            k = some[order[o]]
            value = values[order[o]]
            true = cost[k] + link[at[k], v] + node[v]
            for w in range(words):
                fresh[w] = memory[k, w]
            u = at[k]
            if closing and u != v:
                for bit in range(offset[u], offset[u] + slots[u]):
                    fresh[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
            for w in range(words):
                fresh[w] &= mask[v, w]
            if binding:
                bit, left = offset[v], need
                while left > 0:
                    if (fresh[bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1) == np.uint64(0):
                        fresh[bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
                        left -= 1
                    bit += 1
            dominated = False
            for j in range(first, min(made, first + kept)):
                if new_cost[j] <= true + 1e-13:
                    dominated = True
                    for w in range(words):
                        if new_memory[j, w] & ~fresh[w] != np.uint64(0):
                            dominated = False
                            break
                    if dominated:
                        break
            if dominated:
                continue
            if made == size:
                if size >= most:
                    return -1, new_at, new_cost, new_priced, new_memory, new_parent
                size = min(most, 2 * size)
                new_at, new_parent = _longer(new_at, size), _longer(new_parent, size)
                new_cost, new_priced = _longer(new_cost, size), _longer(new_priced, size)
                grown = np.empty((size, words), np.uint64)
                for j in range(made):
                    for w in range(words):
                        grown[j, w] = new_memory[j, w]
                new_memory = grown
            new_at[made], new_parent[made] = v, k
            new_cost[made], new_priced[made] = true, value
            for w in range(words):
                new_memory[made, w] = fresh[w]
            made += 1
    return made, new_at[:made], new_cost[:made], new_priced[:made], new_memory[:made], new_parent[:made]


@compiled
def _longer(array: Array, size: int) -> Array:
    grown = np.empty(size, array.dtype)
    for k in range(len(array)):
        grown[k] = array[k]
    return grown


MOST_LABELS = 2_000_000  # of one operator; some 60 bytes each
MOST_BITS = 4_096


class Layers(NamedTuple):
    """A chain in one direction: costs of each operator on each node, costs of each link, and the slots needed."""

    node: Array
    link: Array
    kind: Array
    need: Array

    @property
    def reversed(self) -> Layers:
        link = np.ascontiguousarray(self.link.transpose(0, 2, 1))
        return Layers(np.ascontiguousarray(self.node[::-1]), link, self.kind[::-1].copy(), self.need[::-1].copy())


def slots_of(problem: Problem) -> tuple[Array, Array] | None:
    """Return demands and capacities as whole slots; None if demands have no common unit."""
    demand, capacity = problem.application.demand, problem.network.capacity
    unit = float(demand[demand > 0].min(initial=math.inf))
    if math.isinf(unit):
        return np.zeros(len(demand), np.int64), np.zeros(len(capacity), np.int64)
    need = np.rint(demand / unit)
    if (abs(need * unit - demand) > 1e-9 * unit).any():
        return None
    slots = np.minimum(np.floor((capacity + 1e-9) / unit), need.sum())
    fits = slots.sum() <= MOST_BITS
    return (need.astype(np.int64), slots.astype(np.int64)) if fits else None


def chain(
    problem: Problem, costs: Costs, order: tuple[int, ...], x: Array, loss: float, clock: Clock, longer: Longer
) -> tuple[Array, float, float, int]:
    """Return the best placement of a chain, its loss, a lower bound, and the number of labels; costs are folded."""
    counted = slots_of(problem)
    assert counted is not None
    need, slots = counted
    at = list(order)
    kinds = {(a, b): costs.kind[e] for e, (a, b) in enumerate(problem.application.ends.tolist())}
    kind = np.array([kinds[step] for step in zip(at, at[1:], strict=False)], np.int64)
    ahead, slots = _pinned(Layers(np.ascontiguousarray(costs.node[at]), costs.link, kind, need[at]), slots)
    if (slots < 0).any():
        return x, loss, math.inf, 0
    best, least = np.array(x)[at], loss
    price, bound = _prices(ahead, slots, least, clock)
    ways = _Ways(ahead, slots, price)
    rest = np.empty(ahead.node.shape)
    onward(ways.priced(ahead), ahead.link, ahead.kind, rest)
    layers, forward, labels, searched = ahead, True, 0, False
    while bound < least - clock.slack(least) and not clock.over:
        if labels > 10_000 and not searched:
            searched = True
            other, its_loss = longer()
            if its_loss < least:
                best, least = other[at], its_loss
        found = ways.run(layers, rest, least - clock.slack(least), clock)
        if found is None:
            break
        labels += found.labels
        if not len(found.paths):
            bound = least
            break
        for path, cost in zip(found.paths, found.costs, strict=True):
            if cost < least and ways.fits(path):
                best, least = (path if forward else path[::-1]), float(cost)
        bound = max(bound, min(least, float(found.costs[0])))
        if not ways.remember(found.paths) and bound < least - clock.slack(least):
            break  # impossible: a path that exceeds a capacity has forgotten a node
        clock.tell(least, bound, best[np.argsort(at)])
        ways.need = ways.need[::-1]
        layers, forward, rest = layers.reversed, not forward, found.rest
    return best[np.argsort(at)], least, min(bound, least), labels


def _pinned(layers: Layers, slots: Array) -> tuple[Layers, Array]:
    """Deduct the slots of pinned operators, and exclude nodes without enough slots left for the others."""
    node, need, left = layers.node.copy(), layers.need.copy(), slots.copy()
    pinned = np.isfinite(node).sum(axis=1) == 1
    for i in np.flatnonzero(pinned):
        left[node[i].argmin()] -= need[i]
        need[i] = 0
    node[need[:, None] > left[None, :]] = np.inf
    return Layers(node, layers.link, layers.kind, need), left


def _in_blocks(layers: Layers) -> bool:
    """Return whether some optimum visits each node once: operators are interchangeable, and no detour is shorter.

    A node may then count as full as soon as a path leaves it. (The same nodes in the order of first visits cost no
    more, by the triangle inequality.) Pinned operators may only be at the ends.
    """
    inner = np.isfinite(layers.node).sum(axis=1) > 1
    first, last = int(inner.argmax()), len(inner) - int(inner[::-1].argmax())
    ends_only = inner.any() and inner[first:last].all() and first <= 1 and last >= len(inner) - 1
    if not ends_only or len(set(layers.kind.tolist())) != 1:
        return False
    node, link = layers.node[first:last], layers.link[layers.kind[0]]
    may = np.isfinite(node[0])
    same = (np.isfinite(node) == may).all() and len(set(layers.need[first:last].tolist())) == 1
    if not same or (np.diag(link) != 0).any() or (link < 0).any():
        return False
    even = node[:, may] - node[:1, may]
    if (np.ptp(even, axis=1) > 1e-12 * (1 + abs(node[:, may]).max(axis=1))).any():
        return False
    tiny = 1e-12 * link[np.isfinite(link)].max()
    return all((link <= link[:, k, None] + link[None, k, :] + tiny).all() for k in range(len(link)))


def _prices(layers: Layers, slots: Array, loss: float, clock: Clock, rounds: int = 300) -> tuple[Array, float]:
    """Return prices of slots, by subgradient steps, and the bound that they prove."""
    price, best, bound = _transport_prices(layers, slots), np.zeros(len(slots)), -math.inf
    rest, way, size = np.empty(layers.node.shape), np.empty(len(layers.need), np.int64), 1.0
    for round_ in range(rounds):
        priced = layers.node + layers.need[:, None] * price[None, :]
        onward(priced, layers.link, layers.kind, rest)
        value = follow(priced, layers.link, layers.kind, rest, way) - float(price @ slots)
        if not math.isfinite(value):
            return best, math.inf  # no path
        if value > bound + 1e-12 * abs(value):
            bound, best = value, price.copy()
        elif round_ % 10 == 9:
            size *= 0.7
        if bound >= loss - clock.slack(loss):
            break
        over = np.bincount(way, weights=layers.need, minlength=len(slots)) - slots
        if not (over > 0).any() and not (price * over).any():
            break
        target = loss if math.isfinite(loss) else value + abs(value) + 1.0
        square = float((over * over).sum())
        if not square:
            break
        price = np.maximum(0.0, price + size * max(target - value, 1e-9) / square * over)
    return best, bound


def _transport_prices(layers: Layers, slots: Array) -> Array:
    """Return prices that charge half of each link's least cost at each of its ends: exact if links cost nothing."""
    cost = layers.node.copy()
    for i, kind in enumerate(layers.kind):
        cost[i] += layers.link[kind].min(axis=1) / 2
        cost[i + 1] += layers.link[kind].min(axis=0) / 2
    return capacity_prices(cost, np.ones(len(cost)), layers.need.astype(float), slots.astype(float))


class _Found(NamedTuple):
    labels: int
    paths: list[Array]  # cheapest first
    costs: Array
    rest: Array  # for the next run, the other way


class _Ways:
    """The sets of remembered nodes, as bit masks: one bit per slot of each node whose slots may run short."""

    def __init__(self, layers: Layers, slots: Array, price: Array):
        self.slots, self.price, self.need, self.closing = slots, price, layers.need, _in_blocks(layers)
        self.offset = np.concatenate(([0], np.cumsum(slots)[:-1])).astype(np.int64)
        self.words = max(1, -(-int(slots.sum()) // 64))
        self.mask = np.zeros((len(slots), self.words), np.uint64)
        self.sets: list[set[int]] = [set() for _ in slots]
        for u in range(len(slots)):
            self._add(u, u)

    def _add(self, u: int, remembered: int) -> bool:
        if remembered in self.sets[u]:
            return False
        self.sets[u].add(remembered)
        for bit in range(self.offset[remembered], self.offset[remembered] + self.slots[remembered]):
            self.mask[u, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        return True

    def priced(self, layers: Layers) -> Array:
        made: Array = layers.node + layers.need[:, None] * self.price[None, :]
        return made

    def run(self, layers: Layers, rest: Array, cutoff: float, clock: Clock) -> _Found | None:
        """Return the paths that may cost less than the cutoff; None if time or memory is exhausted."""
        priced = self.priced(layers)
        cutoff_priced = cutoff + float(self.price @ self.slots)
        root = (np.zeros(1, np.int32), np.zeros(1), np.zeros(1), np.zeros((1, self.words), np.uint64))
        nothing = np.zeros((1, *layers.link.shape[1:]))
        trail, labels = [], 0
        least = np.full(priced.shape, np.inf)
        at, cost, with_price, memory = root
        for i in range(len(layers.need)):
            link = layers.link[layers.kind[i - 1]] if i else nothing[0]
            count, at, cost, with_price, memory, parent = extend(
                at, cost, with_price, memory, link, layers.node[i], priced[i], rest[i], cutoff_priced,
                int(layers.need[i]), self.slots, self.offset, self.mask, self.closing, MOST_LABELS, 400,
            )  # fmt: skip
            if count < 0 or clock.over:
                return None
            labels += count
            trail.append((at, parent))
            np.minimum.at(least[i], at, with_price)
        chosen = np.argsort(cost, kind="stable")[:50]
        paths = [self._way_back(trail, int(k)) for k in chosen]
        with np.errstate(invalid="ignore"):
            beyond = np.where(np.isfinite(least), least - priced, np.inf)
        return _Found(labels, paths, cost[chosen], np.ascontiguousarray(beyond[::-1]))

    def _way_back(self, trail: list[tuple[Array, Array]], k: int) -> Array:
        way = np.empty(len(trail), np.int64)
        for i in range(len(trail) - 1, -1, -1):
            at, parent = trail[i]
            way[i], k = at[k], parent[k]
        return way

    def fits(self, path: Array) -> bool:
        used = np.bincount(path, weights=self.need, minlength=len(self.slots))
        return bool((used <= self.slots).all())

    def remember(self, paths: list[Array]) -> bool:
        """Let each node between two visits to an overloaded node remember that one, for the cheapest few paths.

        Return False if all of them were remembered already.
        """
        grown = False
        for path in paths[:20]:
            used = np.bincount(path, weights=self.need, minlength=len(self.slots))
            for u in np.flatnonzero(used > self.slots):
                visits = np.flatnonzero((path == u) & (self.need > 0))
                filled = 0
                for here in visits:
                    filled += int(self.need[here])
                    if filled > self.slots[u]:
                        for between in path[visits[0] : here]:
                            grown |= self._add(int(between), int(u))
                        break
        return grown
