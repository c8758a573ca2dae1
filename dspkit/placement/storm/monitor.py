"""The QoS monitor of each node: pings one other in a round, learns where it is, tells what it knows to one more.

A node's table holds the newest record it has heard of for each node. Coordinates are published once they are right to
70 %, at most once in two rounds, so others place by what was published and not by what is estimated this moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..vivaldi import Coordinate, update
from .cluster import Cluster

RIGHT_ENOUGH = 0.7  # of 1 - error
Array = np.ndarray[Any, np.dtype[Any]]


class Record(NamedTuple):
    """What is known of a node, and since which round; `x` is None until it is published."""

    round: int
    x: tuple[float, ...] | None
    availability: float
    utilisation: float


Table = tuple[Record | None, ...]


class Watch(NamedTuple):
    """All monitors together: where each node believes to be, what it has published when, and its table."""

    round: int
    coordinates: tuple[Coordinate, ...]
    published: tuple[tuple[int, tuple[float, ...]] | None, ...]
    tables: tuple[Table, ...]


def start(nodes: int) -> Watch:
    """Nobody knows anything yet."""
    return Watch(0, (Coordinate(),) * nodes, (None,) * nodes, ((None,) * nodes,) * nodes)


def monitored(
    watch: Watch,
    cluster: Cluster,
    availability: Sequence[float],
    utilisation: Sequence[float],
    random: np.random.Generator,
    gain: float = 0.5,
) -> Watch:
    """The watch after one round of pings, measurements and gossip. A ping teaches both who send and who answer.

    `gain` is Vivaldi's alpha and beta: how much of what one ping says is believed.
    """
    n, now = len(cluster.workers), watch.round + 1
    points, published = list(watch.coordinates), list(watch.published)
    tables = [list(table) for table in watch.tables]
    for u in range(n):
        if n > 1:
            v = _other(u, n, random)
            latency = cluster.ping(u, v, random)
            points[u], points[v] = (
                update(points[u], points[v], latency, alpha=gain, beta=gain, random=random),
                update(points[v], points[u], latency, alpha=gain, beta=gain, random=random),
            )
    for u in range(n):
        last = published[u]
        if 1 - points[u].error >= RIGHT_ENOUGH and (last is None or now - last[0] > 1):
            published[u] = last = (now, points[u].x)
        tables[u][u] = Record(now, last and last[1], availability[u], utilisation[u])
    for u in range(n if n > 1 else 0):
        v = _other(u, n, random)
        heard = zip(tables[v], tables[u], strict=True)
        tables[v] = [theirs if _newer(theirs, mine) else mine for mine, theirs in heard]
    return Watch(now, tuple(points), tuple(published), tuple(map(tuple, tables)))


def known_points(watch: Watch, here: int) -> Array:
    """The cost space as node `here` knows it: a row for each node, NaN where it has not heard of one."""
    rows = np.full((len(watch.tables), 4), np.nan)
    for v, record in enumerate(watch.tables[here]):
        if record is not None and record.x is not None:
            rows[v] = (*record.x, record.availability, record.utilisation)
    return rows


def _newer(one: Record | None, other: Record | None) -> bool:
    return one is not None and (other is None or one.round > other.round)


def _other(u: int, n: int, random: np.random.Generator) -> int:
    v = int(random.integers(n - 1))
    return v + (v >= u)
