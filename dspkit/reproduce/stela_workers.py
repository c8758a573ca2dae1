"""Stela's scale-in where executors share Storm's workers, and a full bolt blocks those beside it.

In the Storm that the authors used (0.9.2), what reaches a worker process over the network goes through one receiving
thread, which puts it into its executors' queues one by one. These queues have an end and the thread waits at a full
one (`mk-transfer-local-fn`, `DisruptorQueue.publish`); what waits for the thread has none, and nobody upstream is held
back. So a congested bolt lets all executors of its worker have only the part of their records that it takes itself:

    | here | meaning |
    |---|---|
    | `came[o]` | records/s that reach operator o's executors, dealt evenly (shuffle grouping) |
    | `part[o]` | what o could take of that, at most 1 |
    | `through[w]` | what gets through worker w's thread: the least `part` of the bolts in it |
    | `done[o]` | `came[o]` times the mean of `through` over o's executors |

A bolt loses so at each stage that shares workers with a congested one, and losses multiply along a chain. This is a
steady state, by fixed-point rounds; cores play no part, as the authors' published bolts sleep. A record that stays in
its worker passes by the thread, one in fifteen here; that is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from .. import etp
from ..core import Topology
from ..plant import packed
from ..topologies.table_one import LOAD_PER_S, SCALE_IN

if TYPE_CHECKING:
    import pandas as pd

Places = Mapping[tuple[str, int], str]
Workers = dict[tuple[str, int], tuple[str, int]]  # the machine of each executor, and which of its workers
WORKERS = 4  # a machine
RATIO = 2.2  # what the congested bolt is sent over what it can do: as in the trial of `table_one`
RATIOS = (1.25, 1.5, RATIO, 3.5, 5.0)
RULES = ("spread", "one", "own")
ROUNDS, SETTLED = 200, 1e-9


def steady(topology: Topology, able: Mapping[str, float], load: float, workers: Workers) -> dict[str, float]:
    """Records/s that each operator processes, if its executors together can do `able` of them.

    Each makes as many records as it takes; a fork deals them to its branches in turn.
    """
    order, places = topology.order, {place: j for j, place in enumerate(dict.fromkeys(workers.values()))}
    here = np.zeros((len(places), len(order)))
    for (name, _), place in workers.items():
        here[places[place], order.index(name)] += 1
    share, most = here / here.sum(axis=0), np.array([able[name] for name in order])
    bolt = np.array([bool(topology.upstream(name)) for name in order])
    after = [[order.index(child) for child in topology.downstream(name)] for name in order]
    part = np.ones(len(order))
    for _ in range(ROUNDS):
        through = np.where((here > 0) & bolt, part, 1.0).min(axis=1) @ share
        came, done = np.where(bolt, 0.0, load / (~bolt).sum()), np.zeros(len(order))
        for i in range(len(order)):
            done[i] = came[i] * through[i] if bolt[i] else min(came[i], most[i])
            came[after[i]] += done[i] / max(1, len(after[i]))
        wanted = np.minimum(1.0, most / np.maximum(came, 1e-12))
        if abs(wanted - part).max() < SETTLED:
            break
        part += (wanted - part) / 2
    return dict(zip(order, done.tolist(), strict=True))


def into_workers(places: Places, before: Workers, rule: str = "spread") -> Workers:
    """The workers of all executors: who stays on its machine stays in its worker.

    Those that come go one by one to the worker that has the fewest ("spread"), all to the one that had the fewest
    before ("one": what the authors' published scheduler does where no slot is free), or all to a new one ("own": the
    same where a slot is free).
    """
    found = {who: worker for who, worker in before.items() if places[who] == worker[0]}
    crowd: dict[str, list[int]] = defaultdict(lambda: [0] * WORKERS)
    for machine, w in found.values():
        crowd[machine][w] += 1
    first = {machine: int(np.argmin(crowd[machine])) for machine in set(places.values())}
    for who, machine in places.items():
        if who not in found:
            w = {"spread": int(np.argmin(crowd[machine])), "one": first[machine], "own": WORKERS}[rule]
            found[who] = machine, w
            if w < WORKERS:
                crowd[machine][w] += 1
    return found


def starts() -> dict[str, Places]:
    """How executors lie on eight machines at first: a machine for each operator, and the eighth for one of them.

    Only those in which, as in the paper, two machines have an ETP of 0 if the third operator is congested; and packed
    one operator after the other, which is near to what the authors' published scheduler does.
    """
    app = SCALE_IN.app()
    order, nodes, each = app.topology.order, list(app.plant.nodes), SCALE_IN.executors
    found: dict[str, Places] = {}
    for second in order[2:]:
        homes = {name: [nodes[i]] for i, name in enumerate(order)}
        homes[second].append(nodes[-1])
        found[second] = {(n, i): homes[n][i % len(homes[n])] for n in order for i in range(each)}
    return found | {"packed": packed(app.topology, dict.fromkeys(order, each), nodes)}


def abilities(ratio: float, busy: float = 0.7) -> dict[str, float]:
    """Records/s that operators can do: the third is sent `ratio` times that, and all others at most `busy` times."""
    topology = SCALE_IN.app().topology
    flow = defaultdict(float, dict.fromkeys(topology.sources, LOAD_PER_S / len(topology.sources)))
    for name in topology.order:
        for child in topology.downstream(name):
            flow[child] += flow[name] / len(topology.downstream(name))
    return {name: flow[name] / (ratio if i == 2 else busy) for i, name in enumerate(topology.order)}


def chosen(places: Places, done: Mapping[str, float]) -> dict[tuple[str, int], str]:
    """Where executors are after Stela's scale-in."""
    app, after = SCALE_IN.app(), dict(places)
    emits = {(u, v): done[u] / len(app.topology.downstream(u)) for u, v in app.topology.edges}
    shares = etp.etp(app.topology, etp.Rates(done, emits))
    count = SCALE_IN.before - SCALE_IN.after
    for removal in etp.scale_in(app.topology, places, shares, count, machines=list(app.plant.nodes)):
        after |= removal.moves
    return after


def kept(places: Places, ratio: float = RATIO, rule: str = "spread") -> tuple[float, list[float]]:
    """Shares of the throughput before that Stela keeps, and that each of the 70 choices by lot keeps."""
    app, able = SCALE_IN.app(), abilities(ratio)
    topology, machines = app.topology, list(app.plant.nodes)
    before = into_workers(places, {})
    done = steady(topology, able, LOAD_PER_S, before)

    def share(after: Places) -> float:
        now = steady(topology, able, LOAD_PER_S, into_workers(after, before, rule))
        return sum(now[name] for name in topology.sinks) / sum(done[name] for name in topology.sinks)

    leave = combinations(machines, SCALE_IN.before - SCALE_IN.after)
    lots = [etp.without(topology, places, gone, machines, deal="moved") for gone in leave]
    return share(chosen(places, done)), [share(lot) for lot in lots]


def workers_table(ratios: Sequence[float] = RATIOS, rules: Sequence[str] = RULES) -> pd.DataFrame:
    """A row for each start, rule and ratio: shares kept by Stela and by lot, over all 70 choices of machines."""
    import pandas as pd

    rows = []
    for start, places in starts().items():
        for rule in rules:
            for ratio in ratios:
                stela, lots = kept(places, ratio, rule)
                row = {"eighth": start, "rule": rule, "ratio": ratio, "stela": stela, "worst": min(lots)}
                row |= {"middle": median(lots), "best": max(lots)}
                row |= {f"lose_{x}": fmean(lot <= 1 - x / 100 for lot in lots) for x in (40, 80)}
                rows.append(row)
    return pd.DataFrame(rows)
