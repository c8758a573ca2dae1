"""Stela's scale-in where executors share Storm's workers, and a full bolt blocks those beside it, on the simulator.

In the Storm that the authors used (0.9.2), what reaches a worker process over the network goes through one receiving
thread, which puts it into its executors' queues one by one. These queues have an end and the thread waits at a full
one (`mk-transfer-local-fn`, `DisruptorQueue.publish`); what waits for the thread has none, and nobody upstream is held
back. So a congested bolt lets all executors of its worker have only the part of their records that it takes itself, and
operators lose so at each stage that shares workers with it: a loss without any core being short. The simulator's
`Plant.processes` does that, record by record.

Settings are Table I's, with the third operator congested, so that two machines have an ETP of 0; all others are busy
alike. Bolts sleep, as those that the authors published do. All workers start again, empty, as executors move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from ..loop import run
from ..plant import packed
from ..plant.plant import JOINING
from ..policies.on_demand import ScaleIn
from ..policies.stela import Stela
from ..topologies.app import App
from ..topologies.table_one import SCALE_IN
from .stela import ASKED, STEPS, by_lot, carried_out, kept, throughput

if TYPE_CHECKING:
    import pandas as pd

Places = Mapping[tuple[str, int], str]
RATIO = 2.2  # what the congested bolt is sent over what it can do: as in the trial of `table_one`
RATIOS = (1.25, 1.5, RATIO, 3.5, 5.0)
ENTRIES = 1024  # of an executor's queue
SIZE = 0.3  # of load, abilities and queues: shares stay, runs take a third of the time
BUSY = 0.7  # the others at most


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


def in_workers(places: Places, ratio: float = RATIO, rule: str = "together", size: float = SIZE) -> App:
    """The trial's application on machines with Storm's workers, its executors in these places."""
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
    plant = replace(app.plant, services=services, processes=workers, joining=rule)
    return replace(app, plant=plant, workload=app.load * size, placement=places)


def shares_kept(app: App, *, draws: int = 70, seed: int = 1) -> tuple[float, list[float]]:
    """Shares of the throughput before that Stela keeps, and that `draws` of the 70 choices by lot keep."""
    asked = ScaleIn(SCALE_IN.before - SCALE_IN.after, ASKED * 10.0)
    stela = run(Stela(requests=(asked,)), app.simulator(engine="tuples", seed=seed), steps=STEPS)
    targets = by_lot(app, draws).values()
    lots = [carried_out(app.simulator(engine="tuples", seed=seed), target) for target in targets]
    return kept(throughput(stela)), [kept(lot) for lot in lots]


def workers_table(ratios: Sequence[float] = RATIOS, rules: Sequence[str] = JOINING, *, draws: int = 70) -> pd.DataFrame:
    """A row for each start, rule and ratio: shares kept by Stela and by lot; ratios other than RATIO by one rule."""
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
