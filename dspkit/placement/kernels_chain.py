"""Shortest ways through (operator, node) for a chain, compiled; `chain.py` says what they are for."""

from __future__ import annotations

import numpy as np

from ..simulator.compiled import compiled, inlined, lean
from .kernels import Array


@lean
def onward(node: Array, link: Array, kind: Array, rest: Array) -> None:
    """rest[i, u]: the least cost of all after operator i on node u, capacities aside."""
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


@lean
def follow(node: Array, link: Array, kind: Array, rest: Array, x: Array) -> float:
    """The cheapest way, capacities aside, into x; returns its cost, infinite if there is none."""
    operators, nodes = node.shape
    least = np.inf
    for v in range(nodes):
        if node[0, v] + rest[0, v] < least:
            least = node[0, v] + rest[0, v]
            x[0] = v
    if not least < np.inf:
        return np.inf  # no way at all: x stays as it was
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
def extend(
    at: Array, cost: Array, priced: Array, memory: Array, link: Array, node: Array, price: Array, rest: Array,
    cutoff: float, need: int, slots: Array, offset: Array, mask: Array, closing: bool, most: int, kept: int,
) -> tuple[int, Array, Array, Array, Array, Array]:  # fmt: skip
    """All labels of the next operator worth keeping: count (-1: too many), node, cost, priced cost, memory, parent.

    A label is a way up to here. Its memory says which slots it used on the nodes that it has not forgotten. It is kept
    if its priced cost with the rest stays below the cutoff, and no label with a part of its memory is as cheap in both.
    `closing`: a node that is left counts as full.
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
