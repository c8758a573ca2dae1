"""ELYSIUM on recorded flights, and the causes of its row of Figure 9: `python -m reproduction.elysium.recorded`.

`days` covers all months and three compressions, by the rule of `loads.py`. `causes` changes one setting at a time: the
cost of a restart, the queues, the time of assessments, the level of the load, and ELYSIUM's reserve. `RESERVE` are
thresholds with which it saves about as many nodes as the paper's on its tweets (45 %).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dspkit.comparison.scores import degradation, nodes_saved, rescales
from dspkit.core import Policy, run
from dspkit.policies.elysium import Elysium, Joint
from dspkit.workload import Trace, Workload

from .loads import LEVELS, MINUTES, recorded
from .study import MINUTE, NODES, WINDOW_S, app, profiled, started

if TYPE_CHECKING:
    import pandas as pd


RESERVE: Mapping[str, Any] = {"scale_out_above": 0.5, "node_scale_out_above": 0.65}
COMPRESSIONS = (30.0, 60.0, 120.0)
YEAR = tuple(range(1, 13))


def rivals(name: str, **knobs: Any) -> dict[str, Policy]:
    """Return joint scaling, and reactive ELYSIUM as printed, from the running deployment, and with reserve."""
    reactive = Elysium(learned=profiled(name), load="emitted", signal="cpu", **knobs)
    return {
        "joint": Joint(signal="cpu"),
        "reactive": reactive,
        "current": replace(reactive, from_current=True),
        "reserve": replace(reactive, **RESERVE),
    }


def played(
    name: str, trace: Workload, policies: Mapping[str, Policy], *, pause_s: float = 6.5, queue: float | None = None
) -> dict[str, float]:
    """Return degradation, nodes saved in % and changes of each policy under a load of 48 minutes."""
    now, begin = app(name), started(name, trace.rate(0.0))
    services = now.plant.services
    if queue is not None:
        services = {n: replace(s, queue_records=queue) for n, s in services.items()}
    now = replace(now, plant=replace(now.plant, pause_s=pause_s, services=services), workers=begin.workers)
    row: dict[str, float] = {}
    for title, policy in policies.items():
        backend = now.simulator(trace, parallelism=begin.parallelism, window_s=WINDOW_S)
        history = run(policy, backend, steps=round(MINUTES["recorded"] * MINUTE / WINDOW_S))
        row[title] = degradation(history).mean
        row[f"{title}_saved"] = 100 * nodes_saved(history, NODES, every_s=MINUTE)
        row[f"{title}_changes"] = rescales(history)
    return row


def days(
    pauses: Sequence[float] = (6.5, 19.2),
    *,
    compressions: Sequence[float] = COMPRESSIONS,
    months: Sequence[int] = YEAR,
    names: Sequence[str] = tuple(LEVELS),
) -> pd.DataFrame:
    """Return one row per restart time, compression, application and month."""
    import pandas as pd

    rows = []
    for pause_s in pauses:
        for compress in compressions:
            for name in names:
                for month in months:
                    trace = recorded(LEVELS[name][-1], month, compress=compress)
                    at = {"pause_s": pause_s, "compress": compress, "app": name, "month": month}
                    rows.append(at | played(name, trace, rivals(name), pause_s=pause_s))
    return pd.DataFrame(rows)


def causes(months: Sequence[int] = YEAR) -> pd.DataFrame:
    """Return means over months at 60:1, as in Figure 9 with one change; one row per change and application."""
    import pandas as pd

    changed: dict[str, dict[str, Any]] = {
        "nothing": {},
        "restarts of 19.2 s": {"pause_s": 19.2},
        "queues of 1,000 records, load as emitted": {"queue": 1000.0},
        "queues of 1,000 records, load as it arrives": {"queue": 1000.0, "load": "arrivals"},
        "assessments half a minute later": {"late_s": 30.0},
        "three quarters of the load": {"times": 0.75},
        "five quarters of the load": {"times": 1.25},
        "flights of half an hour evenly spread": {"every_s": 30.0},
    }
    rows = []
    for title, told in changed.items():
        for name in LEVELS:
            policies = rivals(name, load=told.get("load", "emitted"))
            found = [
                played(name, _changed(recorded(LEVELS[name][-1], month), told), policies,
                       pause_s=told.get("pause_s", 6.5), queue=told.get("queue"))
                for month in months
            ]  # fmt: skip
            rows.append({"changed": title, "app": name} | {k: fmean(f[k] for f in found) for k in found[0]})
    return pd.DataFrame(rows)


def _changed(trace: Trace, told: Mapping[str, Any]) -> Workload:
    import numpy as np

    times, rates = np.array(trace.times_s), np.array(trace.rates_per_s) * told.get("times", 1.0)
    if every_s := told.get("every_s"):
        rates = np.repeat(rates.reshape(-1, round(every_s)).mean(axis=1), round(every_s))
    late = np.where(times > 0, times + told.get("late_s", 0.0), 0.0)
    return Trace(tuple(late.tolist()), tuple(rates.tolist()))


def main() -> None:
    import pandas as pd

    with pd.option_context("display.width", 250, "display.max_columns", 30, "display.max_rows", 200):
        table = days()
        for rival in ("reactive", "current", "reserve"):
            table[f"{rival} ok"] = table[rival] <= table.joint
        print("Means over the first Mondays of twelve months, two days of 60:1, four of 120:1, one of 30:1\n")
        print(table.drop(columns="month").groupby(["pause_s", "compress", "app"]).mean().round(3).T.to_string())
        print("\nOne thing changed at a time, 60:1, restarts of 6.5 s\n")
        print(causes().round(3).to_string(index=False))


if __name__ == "__main__":
    main()
