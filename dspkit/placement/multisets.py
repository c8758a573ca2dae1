"""Multisets of nodes: where the replicas of one operator run (6.1 of the thesis) [nardelli].

A multiset is a row of counts, one for each node. The thesis's P(X; k) contains the empty one as printed, which would
let an operator vanish: here there is at least one replica.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from ..errors import PlacementError

Array = np.ndarray[Any, Any]
MOST = 2_000_000  # rows; beyond, a list of multisets is not what one wants


def how_many(nodes: int, most: int) -> int:
    """Multisets of 1 to `most` out of `nodes`.

    >>> how_many(15, 2), how_many(24, 4)
    (135, 20474)
    """
    return math.comb(nodes + most, most) - 1


def multisets(nodes: int, most: int) -> Array:
    """All of them as rows of counts: fewer replicas first, then the first nodes first.

    >>> multisets(2, 2).tolist()
    [[1, 0], [0, 1], [2, 0], [1, 1], [0, 2]]
    """
    for what, value in (("nodes", nodes), ("most", most)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
            raise PlacementError(f"{what} = {value!r}", expected="a whole number from 1", fix="correct it")
    if (count := how_many(nodes, most)) > MOST:
        raise PlacementError(f"{count} multisets", expected=f"at most {MOST}", fix="name candidates, or allow fewer")
    blocks = []
    for size in range(1, most + 1):
        chosen = np.array(list(combinations_with_replacement(range(nodes), size)), np.int64)
        block = np.zeros((len(chosen), nodes), np.int64)
        np.add.at(block, (np.arange(len(chosen))[:, None], chosen), 1)
        blocks.append(block)
    return np.concatenate(blocks)


def neighbours(rows: Array, running: Array, *, printed: bool = False) -> Array:
    """Which rows of counts are one step from the running one: the same, one replica more, less, or moved (rEDRP).

    As printed the last condition always holds, so that two replicas may come or go at once, on two nodes.

    >>> rows = multisets(3, 3)
    >>> int(neighbours(rows, np.array([1, 0, 0])).sum()), int(neighbours(rows, np.array([1, 0, 0]), printed=True).sum())
    (6, 9)
    """
    apart = rows - running
    near = (np.abs(apart) <= 1).all(axis=1) & (np.abs(apart).sum(axis=1) <= 2)
    found: Array = near if printed else near & (np.abs(apart.sum(axis=1)) <= 1)
    return found
