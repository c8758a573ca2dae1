"""Stela's evaluation under other settings: the paper does not print the share of a core that an executor takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from dspkit.apps.stela import SCALE_IN, TABLE_ONE, Trial
from dspkit.policies.on_demand import ScaleIn
from dspkit.policies.stela import Stela
from dspkit.simulator import simulate_many

from .study import ASKED, SETTLED, by_lot, scale_out_runs, throughput

if TYPE_CHECKING:
    import pandas as pd


CORES = (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0)  # of a busy instance
CORES_IN = (0.03, 0.05, 0.07, 0.1, 0.2, 1.0)  # fifteen instances share a core before machines leave


def cores_table(cores: Sequence[float] = CORES, *, trials: Sequence[Trial] = TABLE_ONE) -> pd.DataFrame:
    """Return scale-out with the same share of a core for a busy instance of every operator, without noise."""
    import pandas as pd

    rows = []
    for trial in trials:
        for share in cores:
            alike = replace(trial, services={name: (busy, share) for name, (busy, _) in trial.services.items()})
            x = {n: throughput(h) for n, h in scale_out_runs(alike, noise=0.0, only=("stela", "default")).items()}
            before, after = fmean(x["stela"][5:ASKED]), {n: fmean(y[SETTLED:]) for n, y in x.items()}
            rows.append(
                {
                    "topology": trial.name,
                    "cores": share,
                    "own_gain": after["stela"] / before - 1,
                    "default_gain": after["default"] / before - 1,
                    "over_default": after["stela"] / after["default"] - 1,
                }
            )
    return pd.DataFrame(rows)


def scale_in_by_cores(cores: Sequence[float] = CORES_IN, *, busy: float = 0.7, draws: int = 24) -> pd.DataFrame:
    """Return scale-in with settings that follow from the text: two of eight machines have an ETP of 0.

    The third operator of the chain is therefore the congested one. All others have the utilisation `busy`, and every
    busy instance takes the same share of a core. Values are the shares of the former throughput that Stela and `draws`
    of the 70 random choices keep after settling; only instances of leaving machines migrate.
    """
    import pandas as pd

    rows = []
    for share in cores:
        names = list(SCALE_IN.services)
        trial = replace(SCALE_IN, services={n: (2.0 if n == names[2] else busy, share) for n in names})
        app = trial.app(noise=0.0)
        with app.simulator() as backend:
            for _ in range(6):
                snapshot = backend.observe()
        target, _ = Stela().answer(ScaleIn(trial.before - trial.after), app.topology, snapshot)
        runs = [snapshot.deployment, target, *by_lot(app, draws).values()]
        came = simulate_many(app.topology, app.plant, app.workload, runs, duration_s=200.0).throughput
        before, stela, *lot = came.tolist()
        kept = [x / before for x in lot]
        rows.append((share, stela / before, min(kept), median(kept), max(kept)))
    return pd.DataFrame(rows, columns=["cores", "stela", "worst by lot", "middle by lot", "best by lot"])
