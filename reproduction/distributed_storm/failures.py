"""Nodes that fail, and tuples that are sent again: Figure 3.5b and c, and the loss of section 4.6.1.

The thesis says that a node is available 85 or 99 % of the time, not how long it is gone each time, nor how that was
emulated. Here a node fails and returns at exponential times (`simulator.outages`); what waits for it waits upstream, in
the plant. Storm acknowledges a tuple once it has reached the end: its map of pending tuples has two buckets and rotates
every 30 s, so that a tuple fails 30 to 60 s after it was sent. The source sends it again at most once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from dspkit.apps import tag_and_count
from dspkit.core.typing import Array
from dspkit.experiment import run
from dspkit.placement.distributed_storm import Unreliable, thesis_cluster
from dspkit.simulator import Node, NodeDown, outages

from .study import DRAWS, PROCESSES, WINDOW_S, drawn_nodes, schedulers, struck

if TYPE_CHECKING:
    import pandas as pd


FAILS_S, END_S = 600.0, 1800.0
REPAIRS_S = (60.0, 20.0, 180.0)  # mean times to repair; the first, the simulator's default, is the one of the headlines
TIMEOUT_S = 30.0


def deadline(sent_s: Array) -> Array:
    """Return the times at which tuples that were sent at these times fail.

    >>> deadline(np.array([0.0, 29.0, 30.0])).tolist()
    [60.0, 60.0, 90.0]
    """
    return np.asarray(TIMEOUT_S * (np.floor(sent_s / TIMEOUT_S + 1e-9) + 2))


def sent_again(ticks: pd.DataFrame) -> tuple[float, float]:
    """Return the shares of tuples that were sent again, and that failed then, too; first in, first out.

    >>> import pandas as pd
    >>> t = np.arange(1.0, 301.0)  # one tuple/s leaves the log, and for 90 s none reaches the end
    >>> ended = np.where((t > 100) & (t < 190), 100, t)
    >>> ticks = pd.DataFrame({"t": t, "offered": t, "lag": 0.0, "ended": ended})
    >>> [round(share, 3) for share in sent_again(ticks)]  # 50 of 240, whose second copies are in time
    [0.208, 0.0]
    """
    t, left = ticks.t.to_numpy(), (ticks.offered - ticks.lag).to_numpy()
    ended = ticks.ended.to_numpy()
    known = np.arange(0.5, min(left[-1], np.interp(t[-1] - 2 * TIMEOUT_S, t, left)))  # the fate of later ones is open
    sent = np.interp(known, left, t)
    fails = deadline(sent)
    failed = _when(known, ended, t) > fails
    second = _when(np.interp(fails[failed], t, left), ended, t) > deadline(fails[failed])
    return float(failed.mean()), float(second.sum() / len(known))


def _when(number: Array, count: Array, t: Array) -> Array:
    """Return the time at which a cumulative count has reached a number; infinite if it never does."""
    at = np.searchsorted(count, number - 1e-9)
    return np.asarray(np.append(t, np.inf)[at])


def failures(draws: Sequence[int] = DRAWS, repairs_s: Sequence[float] = REPAIRS_S) -> pd.DataFrame:
    """Return Figure 3.5: a node in use is up 85 % of the time from 600 s on, and its failures reach the plant.

    It is the node of most executors without the source, since tuples of a source that is gone are not sent again.
    """
    import pandas as pd

    rows = []
    knobs: dict[str, Any] = {"w_availability": 10.0, "w_utilisation": 0.0}
    for repair_s in repairs_s:
        for draw in draws:
            for name in ("round robin", "springs"):
                nodes = drawn_nodes(draw)
                if name == "round robin":
                    first = Counter(tag_and_count(nodes=nodes[:PROCESSES]).placement.values())
                    hit = max(nodes[1:PROCESSES], key=first.__getitem__)
                    cluster = thesis_cluster(Unreliable(FAILS_S, node=hit))
                else:
                    cluster, _, hit = struck(draw, name, FAILS_S, Unreliable, steps=1, **knobs)
                downs = outages({hit: Node(availability=0.85)}, END_S - FAILS_S, repair_s, seed=draw)
                app = tag_and_count(cluster=cluster, nodes=nodes[:PROCESSES])
                late = tuple(replace(d, at_s=d.at_s + FAILS_S) for d in downs)
                app = replace(app, plant=replace(app.plant, faults=late))
                policy = schedulers(app, cluster, nodes=nodes[:2], **knobs)[name]
                with app.simulator(seed=draw, window_s=WINDOW_S, tick_s=1.0, keep_ticks=True) as job:
                    history = run(policy, job, steps=round(END_S / WINDOW_S), seed=draw)
                    again, lost = sent_again(job.ticks)
                ms = [1e3 * s.snapshot.latency.mean for s in history if s.snapshot.latency and s.snapshot.t > FAILS_S]
                gone = sum(min(d.until_s, END_S) - d.at_s for d in late) / (END_S - FAILS_S)
                rows.append({"repair_s": repair_s, "draw": draw, "scheduler": name, "down": 100 * gone,
                             "again": 100 * again, "lost": 100 * lost, "median_ms": median(ms)})  # fmt: skip
    table = pd.DataFrame(rows)
    dealt = table.groupby(["repair_s", "draw"]).median_ms.transform("first")  # round robin's
    return table.assign(latency_change=table.median_ms / dealt - 1)


def lost_tuples(
    places: Mapping[tuple[str, int], str], unsure: Sequence[str], *, seed: int = 0, repair_s: float = REPAIRS_S[0],
    seconds: float = 3600.0, rate_per_s: float = 10.0, availability: float = 0.99,
) -> float:  # fmt: skip
    """Return the percentage of tuples that fail while `unsure` nodes fail and return, without sending them again.

    Tuples pass the operators in the order of `places`, each by an executor that is drawn, and wait for its node.

    >>> lost_tuples({("a", 0): "n1", ("b", 0): "n2"}, ["n3"])
    0.0
    """
    downs = outages({n: Node(availability=availability) for n in unsure}, seconds, repair_s, seed=seed)
    random, by_node = np.random.default_rng(seed), _intervals(downs)
    sent = np.arange(0.0, seconds, 1 / rate_per_s)
    t = sent.copy()
    for operator in dict.fromkeys(o for o, _ in places):
        homes = [node for (o, _), node in places.items() if o == operator]
        chosen = random.integers(len(homes), size=len(t))
        for i, node in enumerate(homes):
            for begin, end in by_node.get(node, ()):
                waits = (chosen == i) & (t >= begin) & (t < end)
                t[waits] = end
    return float(100 * (t > deadline(sent)).mean())


def _intervals(downs: Sequence[NodeDown]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for down in downs:
        found.setdefault(down.node, []).append((down.at_s, down.until_s))
    return found


def as_printed(draws: Sequence[int] = range(40), executors: int = 8) -> list[float]:
    """Return the loss with the printed 8 of 12 executors on drawn places of four nodes that are up 99 % of the time."""
    k = tag_and_count(2).start
    assert isinstance(k, Mapping)
    found = []
    for draw in draws:
        every = [(o, i) for o in k for i in range(k[o])]
        random = np.random.default_rng([11, draw])
        moved = set(random.choice(len(every), executors, replace=False).tolist())
        nodes = [f"unsure-{u}" for u in range(4)]
        places = {who: nodes[random.integers(4)] if j in moved else "sure" for j, who in enumerate(every)}
        found.append(lost_tuples(places, nodes, seed=draw))
    return found
