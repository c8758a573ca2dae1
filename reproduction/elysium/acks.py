"""ELYSIUM's evaluation with acknowledged records as throughput: `python -m reproduction.elysium.acks`.

The paper's throughput is the rate of acked records. The treatment of other records is not printed, but much of it is in
the authors' public code (github.com/FLombardi-PhD: `Storm-topologies`, `ELYSIUM-Storm-autoscaler`) and in Storm's:

| there | here |
|---|---|
| ackers are on; the timeout is Storm's 30 s (T2 sets it, T1 leaves it) | `TIMEOUT_S` |
| Storm's map of pending records has two buckets and rotates every 30 s | a record fails 30 to 60 s after it was sent |
| a rebalance kills the workers one second after the request | `pause_kind="restart"`: records inside are lost |
| no bound on pending records (`setMaxSpoutPending` is commented out) | none |
| the queue before the source buffers arrivals during a restart | the source's log; waiting there is not timed |

Readings differ in the delivery of a record that failed or was lost:

* "never": it is not sent again. The authors' published sources do so: the queue forgets the records that it delivers
  (AUTO_ACKNOWLEDGE), and `fail()` only logs. This rule was fixed before the first run.
* "again": the source sends a failed record once more, Storm's at-least-once delivery. "at once": it sends the records
  that a restart lost right after the restart. Both are in `replays.py`.
* "kept": no record fails, and restarts lose nothing, as in our other simulations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dspkit.comparison import scores
from dspkit.core import History, Policy, run
from dspkit.core.typing import Array
from dspkit.forecasting import AutoRegression, SeasonalNetwork
from dspkit.workload import Workload

from . import replays as elysium_replays
from . import study as elysium
from .loads import LEVELS, MINUTES, earlier, laid_over, load, other_days, recorded
from .recorded import YEAR, rivals
from .replays import TIMEOUT_S
from .study import MINUTE, NODES, PAPER, RIVALS, WINDOW_S, app, policies, started

if TYPE_CHECKING:
    import pandas as pd


DELIVERIES = ("kept", "never", "again", "at once")
WEEK = tuple(range(7))
ROWS = tuple((a, s) for a, shape in PAPER for s in (("dense", "recorded") if shape == "recorded" else (shape,)))


def printed(name: str, shape: str) -> Any:
    """Return the paper's values of a row; overlaid weeks are compared with its tweets."""
    return PAPER[name, "recorded" if shape == "dense" else shape]


def acked(ticks: pd.DataFrame) -> Array:
    """Return the records acknowledged in each tick of a simulation with stored ticks: first in, first out.

    Records that end or are lost are numbered consecutively; each left the log when as many records had left it.
    """
    import numpy as np

    t, lost = ticks.t.to_numpy(), ticks.lost.to_numpy()
    gone, left = ticks.ended.to_numpy() + lost, (ticks.offered - ticks.lag).to_numpy()
    first = np.concatenate(([0.0], gone[:-1])) + np.diff(
        lost, prepend=0.0
    )  # lost records leave at the start of the tick
    since = (np.floor(t / TIMEOUT_S + 1e-9) - 1) * TIMEOUT_S  # Storm's buckets
    failed = np.interp(since, np.concatenate(([0.0], t)), np.concatenate(([0.0], left)))
    return np.asarray(np.maximum(0.0, gone - np.maximum(first, failed)))


def degradation(ticks: pd.DataFrame, done: Array, window_s: float = WINDOW_S) -> float:
    """Return the mean of |in - acked| / in over windows with arrivals."""
    import numpy as np

    window = np.ceil(ticks.t.to_numpy() / window_s - 1e-9).astype(int) - 1
    came = np.bincount(window, np.diff(ticks.offered.to_numpy(), prepend=0.0))
    thr = np.bincount(window, done)
    some = came > 1e-9 * window_s
    return float(np.mean(np.abs(came - thr)[some] / came[some]))


def play(
    name: str, trace: Workload, policy: Policy, *, pause_s: float = 6.5, minutes: float, seed: int = 0
) -> tuple[History, pd.DataFrame]:
    """Run a policy with restarts that lose the records inside, without replays; return history and ticks."""
    now, begin = app(name), started(name, trace.rate(0.0))
    plant = replace(now.plant, pause_s=pause_s, pause_kind="restart")
    now = replace(now, plant=plant, workers=begin.workers)
    job = now.simulator(trace, parallelism=begin.parallelism, seed=seed, window_s=WINDOW_S, keep_ticks=True)
    return run(policy, job, steps=round(minutes * MINUTE / WINDOW_S), seed=seed), job.ticks


def scored(
    name: str, trace: Workload, policy: Policy, delivery: str, *, pause_s: float = 6.5, minutes: int, seed: int = 0
) -> dict[str, float]:
    """Return degradation, nodes saved in %, and changes of one run."""
    if delivery == "never":
        history, ticks = play(name, trace, policy, pause_s=pause_s, minutes=minutes, seed=seed)
        lost = degradation(ticks, acked(ticks))
    else:
        if delivery == "kept":
            history = elysium.play(name, trace, policy, pause_s=pause_s, minutes=minutes, seed=seed)
        else:
            once = delivery == "at once"
            history = elysium_replays.play(
                name, trace, policy, pause_s=pause_s, minutes=minutes, at_once=once, seed=seed
            )
        lost = scores.degradation(history).mean
    saved = 100 * scores.nodes_saved(history, NODES, every_s=MINUTE)
    return {"degradation": lost, "saved": saved, "changes": scores.rescales(history)}


def summary(
    delivery: str = "again", seeds: Sequence[int] = (0, 1, 2), *, pause_s: float = 6.5, only: Sequence[str] = RIVALS
) -> pd.DataFrame:
    """Return Figure 9: one row per application, load and policy of `only`; means over seeds."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, shape in ROWS:
        for i, rival in enumerate(RIVALS):
            if rival not in only:
                continue
            runs = [
                scored(name, load(name, shape, s), policies(name, shape, s)[rival], delivery, pause_s=pause_s,
                       minutes=MINUTES[shape], seed=s)
                for s in seeds
            ]  # fmt: skip
            told = printed(name, shape)[i] if i < 3 else None
            rows.append(
                {"app": name, "load": shape, "policy": rival}
                | {k: fmean(r[k] for r in runs) for k in runs[0]}
                | {"paper": "" if told is None else f"{told[0]:.2f} / {told[1]}"}
            )
    return pd.DataFrame(rows)


def proactive(
    seeds: Sequence[int] = (0, 1, 2), *, delivery: str = "again", pause_s: float = 6.5, nets: Sequence[int] = (0,)
) -> pd.DataFrame:
    """Return the proactive rows of Figure 9 by predictor, and by the days that it has learned from.

    The paper's predictor is its net, with tanh outputs and trained by resilient backpropagation, from several initial
    weights (`nets`). "other" days differ from the judged one (`loads.other_days`), "same" ones are copies of it
    if the load is synthetic.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for name, shape in ROWS:
        if (told := printed(name, shape)[2]) is None:
            continue
        for days, past_of in (("other", other_days), ("same", earlier)):
            if days == "same" and shape in ("dense", "recorded"):  # other days already
                continue
            for title, made in (
                ("net", [SeasonalNetwork(output="tanh", training="rprop", seed=n) for n in nets]),
                ("autoregression", [AutoRegression()]),
            ):
                runs = []
                for s in seeds:
                    policy, past = policies(name, shape, s)["proactive"], past_of(name, shape, s)
                    source = app(name).topology.sources[0]
                    for predictor in made:
                        changed = replace(policy, predictor=predictor, past={source: past}, began_s=MINUTE * len(past))  # type: ignore[type-var]
                        trace = load(name, shape, s)
                        runs.append(
                            scored(name, trace, changed, delivery, pause_s=pause_s, minutes=MINUTES[shape], seed=s)
                        )
                rows.append(
                    {"app": name, "load": shape, "days": days, "predictor": title, "paper": told[0],
                     "paper saved": told[1]}
                    | {k: fmean(r[k] for r in runs) for k in runs[0]}
                    | {"least": min(r["degradation"] for r in runs), "most": max(r["degradation"] for r in runs)}
                )  # fmt: skip
    return pd.DataFrame(rows)


def deliveries(pause_s: float = 6.5, *, months: Sequence[int] = YEAR, weekdays: Sequence[int] = WEEK) -> pd.DataFrame:
    """Return joint and reactive scaling on flights of each month, and on overlaid weeks from each weekday on.

    A row each delivery, application and load: means, and in how many ELYSIUM degrades throughput no more.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for delivery in DELIVERIES:
        for name, levels in LEVELS.items():
            of: Mapping[str, list[Workload]] = {
                "dense": [laid_over(levels[-1], d) for d in weekdays],
                "recorded": [recorded(levels[-1], m) for m in months],
            }
            for shape, traces in of.items():
                each = rivals(name)
                pairs = [
                    [scored(name, trace, each[r], delivery, pause_s=pause_s, minutes=MINUTES[shape])["degradation"]
                     for r in ("joint", "reactive")]
                    for trace in traces
                ]  # fmt: skip
                joint, reactive = (fmean(p[i] for p in pairs) for i in (0, 1))
                rows.append({"delivery": delivery, "app": name, "load": shape, "joint": joint, "reactive": reactive,
                             "wins": sum(r <= j for j, r in pairs), "of": len(pairs)})  # fmt: skip
    return pd.DataFrame(rows)


def off_by(table: pd.DataFrame) -> float:
    """Return the typical factor (geometric mean) between degradations of joint and reactive scaling and printed ones.

    Its tweets are compared with weeks laid over one another, not with flights of one week.
    """
    return math.exp(fmean(abs(math.log(x)) for x in over_printed(table)))


def over_printed(table: pd.DataFrame) -> list[float]:
    """Return degradation over the paper's, of joint and reactive scaling, for each printed row."""
    rows = table.set_index(["app", "load", "policy"]).degradation
    return [
        float(rows[name, shape, rival]) / told[0]
        for name, shape in ROWS
        if shape != "recorded"
        for rival, told in zip(("joint", "reactive"), printed(name, shape), strict=False)
        if told is not None
    ]


def main() -> None:
    import pandas as pd

    with pd.option_context("display.width", 200, "display.max_columns", 20, "display.max_rows", 200):
        for pause_s in (6.5, 19.2):
            print(f"Figure 9 where what fails is sent again, restarts of {pause_s} s\n")
            print(elysium.beside(summary(pause_s=pause_s)).to_string())
            print(f"\nWhat becomes of records that fail, restarts of {pause_s} s\n")
            print(deliveries(pause_s).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
