"""Stela's scale-in with executors that share Storm's workers, where a full bolt blocks its neighbours, simulated.

In the authors' version of Storm (0.9.2), one receiving thread per worker process puts records from the network into its
executors' queues one by one. These queues are bounded, and the thread waits at a full one (`mk-transfer-local-fn`,
`DisruptorQueue.publish`); the queue in front of the thread is unbounded, so that there is no back-pressure upstream. A
congested bolt therefore limits all executors of its worker to the share of records that it processes itself, and
operators lose throughput at each stage that shares workers with it, without any shortage of cores. The simulator's
`Plant.processes` models this, record by record.

Settings are those of Table I, with the third operator congested, so that two machines have an ETP of 0; all others are
equally busy. Bolts sleep, like those that the authors published. All workers restart, empty, when executors move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from dspkit.apps import App
from dspkit.apps.stela import SCALE_IN
from dspkit.core import run
from dspkit.policies.on_demand import ScaleIn
from dspkit.policies.stela import Stela
from dspkit.simulator import packed
from dspkit.simulator.system.plant import PROCESS_ASSIGNMENTS

from .study import ASKED, STEPS, by_lot, carried_out, kept, throughput

if TYPE_CHECKING:
    import pandas as pd


Places = Mapping[tuple[str, int], str]
RATIO = 2.2  # input of the congested bolt over its capacity, as in the trials of Table I
RATIOS = (1.25, 1.5, RATIO, 3.5, 5.0)
ENTRIES = 1024  # capacity of an executor's queue
SIZE = 0.3  # scale of load, capacities and queues: shares are the same, runs take a third of the time
BUSY = 0.7  # utilisation of the others


def starts() -> dict[str, Places]:
    """Return initial placements on eight machines: one machine per operator, and the eighth for one of them.

    They are those in which, as in the paper, two machines have an ETP of 0 if the third operator is congested, and the
    one that packs operators one after the other, similar to the authors' published scheduler.
    """
    app = SCALE_IN.app()
    order, nodes, each = app.topology.order, list(app.plant.nodes), SCALE_IN.executors
    found: dict[str, Places] = {}
    for second in order[2:]:
        homes = {name: [nodes[i]] for i, name in enumerate(order)}
        homes[second].append(nodes[-1])
        found[second] = {(n, i): homes[n][i % len(homes[n])] for n in order for i in range(each)}
    return found | {"packed": packed(app.topology, dict.fromkeys(order, each), nodes)}


def in_workers(places: Places, ratio: float = RATIO, rule: str = "together", size: float = SIZE) -> App:
    """Return the trial's application on machines with Storm's workers, with this placement."""
    third = SCALE_IN.app().topology.order[2]
    busy = {name: (ratio if name == third else BUSY, 0.0) for name in SCALE_IN.services}
    app = replace(SCALE_IN, services=busy).app(noise=0.0, pause_kind="restart")
    services = {
        name: replace(
            service,
            seconds_per_record=service.seconds_per_record / size,
            queue_records=ENTRIES * size if app.topology.upstream(name) else math.inf,
        )
        for name, service in app.plant.services.items()
    }
    workers = SCALE_IN.processes // SCALE_IN.before
    plant = replace(app.plant, services=services, processes=workers, process_assignment=rule)
    return replace(app, plant=plant, workload=app.load * size, placement=places)


def shares_kept(app: App, *, draws: int = 70, seed: int = 1) -> tuple[float, list[float]]:
    """Return the shares of the former throughput that Stela keeps, and that `draws` of the 70 random choices keep."""
    asked = ScaleIn(SCALE_IN.before - SCALE_IN.after, ASKED * 10.0)
    stela = run(Stela(requests=(asked,)), app.simulator(engine="records", seed=seed), steps=STEPS)
    targets = by_lot(app, draws).values()
    lots = [carried_out(app.simulator(engine="records", seed=seed), target) for target in targets]
    return kept(throughput(stela)), [kept(lot) for lot in lots]


def workers_table(
    ratios: Sequence[float] = RATIOS, rules: Sequence[str] = PROCESS_ASSIGNMENTS, *, draws: int = 70
) -> pd.DataFrame:
    """Return the shares kept by Stela and random choices, one row per initial placement, rule and ratio."""
    import pandas as pd

    rows = []
    for start, places in starts().items():
        for rule in rules:
            for ratio in ratios if rule == "together" else set(ratios) & {RATIO}:
                stela, lots = shares_kept(in_workers(places, ratio, rule), draws=draws)
                row = {"eighth": start, "rule": rule, "ratio": ratio, "stela": stela, "worst": min(lots)}
                row |= {"middle": median(lots), "best": max(lots)}
                row |= {f"lose_{x}": fmean(lot <= 1 - x / 100 for lot in lots) for x in (40, 80)}
                row["twice"] = fmean(stela >= 2 * lot for lot in lots)
                rows.append(row)
    return pd.DataFrame(rows)
