"""The QoS monitors of the nodes: pings, network coordinates and gossip.

In each round a node pings one other node, updates its network coordinates, and sends its table to one more node. The
table has the newest known record of each node. A node publishes its coordinates once their error is at most 30 %, and
at most once in two rounds; other nodes use the published coordinates, not the current estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.typing import Array
from ..coordinates import Coordinate, update
from .cluster import StormCluster

RIGHT_ENOUGH = 0.7  # of 1 - error


class Record(NamedTuple):
    """The published state of a node in a round; `x` is None until the coordinates are published."""

    round: int
    x: tuple[float, ...] | None
    availability: float
    utilisation: float


Table = tuple[Record | None, ...]


class Watch(NamedTuple):
    """The state of all monitors.

    Parameters
    ----------
    round : int
        Number of rounds so far.
    coordinates : tuple of Coordinate
        Current estimate of each node.
    published : tuple
        Round and coordinates of each node's last publication, or None.
    tables : tuple
        The table of each node: the newest known record of every node, or None.

    Examples
    --------
    >>> start(2).tables
    ((None, None), (None, None))
    """

    round: int
    coordinates: tuple[Coordinate, ...]
    published: tuple[tuple[int, tuple[float, ...]] | None, ...]
    tables: tuple[Table, ...]


def start(nodes: int) -> Watch:
    """Return the initial state of all monitors: empty tables.

    Parameters
    ----------
    nodes : int
        Number of nodes.

    Examples
    --------
    >>> start(3).round
    0
    """
    return Watch(0, (Coordinate(),) * nodes, (None,) * nodes, ((None,) * nodes,) * nodes)


def monitored(
    watch: Watch,
    cluster: StormCluster,
    availability: Sequence[float],
    utilisation: Sequence[float],
    random: np.random.Generator,
    gain: float = 0.5,
) -> Watch:
    """Return the state of all monitors after one more round of pings, measurements and gossip.

    A ping updates the coordinates of both nodes.

    Parameters
    ----------
    watch : Watch
        The state before.
    cluster : StormCluster
        The nodes that are pinged.
    availability, utilisation : sequence of float
        Values of each node.
    random : numpy.random.Generator
        Source of partners and jitter.
    gain : float
        Vivaldi's alpha and beta: the weight of one ping.

    Examples
    --------
    >>> from dspkit.placement.distributed_storm import thesis_cluster
    >>> watch, cluster, random = start(8), thesis_cluster(), np.random.default_rng(1)
    >>> for _ in range(30):
    ...     watch = monitored(watch, cluster, cluster.availability(0), [0.5] * 8, random)
    >>> watch.round, bool(np.isfinite(known_points(watch, 0)).all())
    (30, True)
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
    """Return the cost space as one node knows it: one row per node, NaN for unknown nodes.

    Parameters
    ----------
    watch : Watch
        The state of all monitors.
    here : int
        Index of the node.

    Examples
    --------
    >>> known_points(start(2), 0).shape
    (2, 4)
    """
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
