r"""The least cost of one operator over a horizon: dynamic programming over what runs and what waits.

A state is how many instances run, how long they still stand still, and the backlog. Of two ways to the same instances
the one that costs no more and leaves no more waiting is as good: only ways that nothing beats in both are kept.

Within a window what waits goes from q to $\max(q + x, y)$: x is what came less what can be done, and y the most of
that over the window's last ticks, which is what waits if the queue was empty in between (Lindley).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .paths_kernel import unbeaten, window

Array = np.ndarray[Any, np.dtype[Any]]
FEW = 150  # ways that the first search keeps
MOST = 20_000  # ways that the other keeps; beyond, backlogs are rounded down, which keeps the bound a bound


class Operator(NamedTuple):
    """One operator as the oracle sees it."""

    ks: Array  # instances it may run with
    arrivals: Array  # [window, tick] records
    able: Array  # [window, k] records/s
    ticks: Array  # [tick] s
    allowed: Array  # [window] records that may wait at its end
    pause_s: float
    loses: bool  # a late window may end with nothing waiting


class Path(NamedTuple):
    cost: float
    instances: tuple[int, ...]
    late: tuple[bool, ...]


class _Ways(NamedTuple):
    k: Array  # index of the instances
    left: Array  # windows' starts since the change that still stops it; 0: it works
    waits: Array
    cost: Array
    parent: Array
    late: Array


def least(o: Operator, window_s: float, penalty: float, change_cost: float) -> Path:
    r"""The least $\sum_w T k_w + penalty\,T\,L + change\,C$, and a path that attains it.

    Two searches: one that keeps few ways finds a good path; the other leaves out only what must cost more than that.
    """
    o = _useful(o)
    stops = _stops(o.pause_s, window_s)
    maps = [_window_maps(o, stop) for stop in stops]
    price, late_cost = window_s * o.ks.astype(float), penalty * window_s
    each = (price + late_cost * (maps[0][1] > o.allowed[:, None])).min(axis=1)  # had nothing been left waiting before
    to_go = np.append(np.cumsum(each[::-1])[::-1][1:], 0.0)
    question = _Question(o, maps, price, late_cost, change_cost, to_go)
    still, windows = _standing(question), len(o.arrivals)
    if still[0] == windows * price[0]:  # the fewest are enough
        return Path(float(still[0]), (int(o.ks[0]),) * windows, (False,) * windows)
    found = _search(question, float(still.min()), FEW)
    return _search(question, found.cost, None)


def _search(question: _Question, bound: float, few: int | None) -> Path:
    """Window by window all ways that nothing beats and that may still cost no more than `bound`, or the best few."""
    o, maps, price, late_cost, change_cost, to_go = question
    n, stops, last = len(o.ks), len(maps), bound * (1 + 1e-12) + 1e-9
    after = np.array([0, *range(2, stops), 0][:stops])  # what a window leaves of a pause
    effort = float((o.ks / o.able.max(axis=0)).min())  # instance-seconds of a record
    ways = _Ways(np.arange(n), np.zeros(n, int), np.zeros(n), np.zeros(n), np.full(n, -1), np.zeros(n, bool))
    past: list[_Ways] = []
    for w in range(len(o.arrivals)):
        gain, rest = (np.stack([m[i][w] for m in maps]) for i in (0, 1))
        ways = _Ways(*window(
            w == 0, ways.k, ways.left, ways.waits, ways.cost, gain, rest, price, after, late_cost, change_cost,
            o.allowed[w], to_go[w], last, o.loses,
        ))  # fmt: skip
        if few is not None and len(ways.k) > few:
            best = np.argsort(ways.cost + effort * ways.waits, kind="stable")[:few]
            ways = _Ways(*(part[best] for part in ways))
        elif len(ways.k) > MOST:
            ways = ways._replace(waits=_rounded(ways.waits))
            ways = _Ways(
                *(part[unbeaten(ways.k * stops + ways.left, n * stops, ways.waits, ways.cost)] for part in ways)
            )
        past.append(ways)
    if not len(ways.cost):  # the few were the wrong ones
        return Path(bound, (), ())
    at = int(ways.cost.argmin())
    total, path, missed = float(ways.cost[at]), [], []
    for ways in reversed(past):
        path.append(int(o.ks[ways.k[at]]))
        missed.append(bool(ways.late[at]))
        at = int(ways.parent[at])
    return Path(total, tuple(reversed(path)), tuple(reversed(missed)))


class _Question(NamedTuple):
    """What both searches are about."""

    o: Operator
    maps: list[tuple[Array, Array]]  # by how long it stands still: x and y, [window, k] each
    price: Array  # [k] of a window
    late_cost: float  # of a window
    change_cost: float
    to_go: Array  # [window] the least that the windows after it cost, whatever waits


def _stops(pause_s: float, window_s: float) -> list[float]:
    """Seconds that a window begins with standing still: none, all of the pause, and what is left of it later."""
    stops, left = [0.0], pause_s
    while left > 1e-9:
        stops.append(min(left, window_s))
        left -= window_s
    return stops


def _useful(o: Operator) -> Operator:
    """Without numbers of instances that never do more than fewer would."""
    before = np.maximum.accumulate(o.able, axis=1)
    useful = np.concatenate(([True], (o.able[:, 1:] > before[:, :-1]).any(axis=0)))
    return o._replace(ks=o.ks[useful], able=o.able[:, useful])


def _window_maps(o: Operator, stop_s: float) -> tuple[Array, Array]:
    """x and y of each window and number of instances, if it stands still for its first `stop_s`."""
    ends = np.cumsum(o.ticks)
    works = np.clip(ends - stop_s, 0.0, o.ticks)
    net = o.arrivals[:, None, :] - o.able[:, :, None] * works
    tails = np.cumsum(net[:, :, ::-1], axis=2)
    return tails[:, :, -1], np.maximum(tails.max(axis=2), 0.0)


def _standing(question: _Question) -> Array:
    """What each number of instances costs that never changes."""
    o, (gain, rest) = question.o, question.maps[0]
    waits, missed = np.zeros(len(o.ks)), np.zeros(len(o.ks), int)
    for x, y, allowed in zip(gain, rest, o.allowed, strict=True):
        waits = np.maximum(waits + x, y)
        late = waits > allowed
        missed += late
        if o.loses:
            waits = np.where(late, 0.0, waits)
    return len(gain) * question.price + question.late_cost * missed


def _rounded(waits: Array) -> Array:
    """Backlogs rounded down, so coarsely that few differ."""
    step = float(waits.max()) / 256
    return np.floor(waits / step) * step if step > 0 else waits
