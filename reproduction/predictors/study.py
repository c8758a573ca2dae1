"""Errors of the load predictors, and coverage of their intervals: `python -m reproduction.predictors.study`.

ELYSIUM prints no errors of its input load profiler to compare with. This study compares its network as printed with
ours, and the models' own intervals with calibrated ones, on three kinds of load.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dspkit.forecasting import (
    AutoRegression,
    HoltWinters,
    LastValue,
    MarkovLevels,
    MovingAverage,
    SeasonalNetwork,
    Series,
    backtest,
)

if TYPE_CHECKING:
    import pandas as pd


LOADS = ("week", "waves", "wandering")


def load(kind: str, seed: int) -> Series:
    """Return two weeks of half-hours with daily and weekly seasons, a wave of 60 minutes, or a random walk."""
    random = np.random.default_rng(seed)
    if kind == "week":
        t = 1800 * np.arange(14 * 48)
        day, weekend = 2 * np.pi * t / 86_400, np.where(t // 86_400 % 7 >= 5, 0.6, 1.0)
        rhythm = weekend * (500 - 300 * np.cos(day) + 120 * np.sin(2 * day))
        return Series(rhythm + random.normal(0, 25, len(t)), every_s=1800)
    t = np.arange(600)
    if kind == "waves":
        return Series(500 + 300 * np.sin(2 * np.pi * t / 60) + random.normal(0, 15, len(t)))
    x = [0.0, 0.0]
    for shock in random.normal(0, 10, 700):
        x.append(0.6 * x[-1] + 0.3 * x[-2] + shock)
    return Series(500 + np.array(x[-600:]))


def predictors(kind: str) -> dict[str, Any]:
    """Return the predictors, with a season that fits the load, if it has one."""
    season, lags = {"week": (48, 48), "waves": (60, 10), "wandering": (0, 10)}[kind]
    return {
        "last value": LastValue(),
        "moving average": MovingAverage(),
        "autoregression": AutoRegression(lags=lags),
        "Holt-Winters": HoltWinters(season=season),
        "seasonal network": SeasonalNetwork(),
        # not calibrated: ten folds take long, and only the errors matter here
        "the same, ELYSIUM's way of training": SeasonalNetwork(training="rprop", interval="model"),
        "tanh outputs as well: ELYSIUM's net": SeasonalNetwork(training="rprop", output="tanh", interval="model"),
        "Markov levels": MarkovLevels(),
    }


def table(seeds: Sequence[int] = (0, 1), stride: int = 6) -> pd.DataFrame:
    """Return MASE and the coverage of the 90 % intervals, the model's own and calibrated; means over seeds."""
    import pandas as pd

    rows: dict[str, dict[str, float]] = {}
    for kind in LOADS:
        for name, predictor in predictors(kind).items():
            ways = [predictor]
            if getattr(predictor, "interval", "") == "calibrated":
                ways.append(replace(predictor, interval="model"))
            scores = [
                [backtest(way, load(kind, seed), stride=stride, relearn=30).scores for seed in seeds] for way in ways
            ]
            row = rows.setdefault(name, {})
            row[f"{kind}: MASE"] = float(np.mean([s["MASE"] for s in scores[0]]))
            row[f"{kind}: held"] = float(np.mean([s["coverage"] for s in scores[0]]))
            row[f"{kind}: model's own"] = float(np.mean([s["coverage"] for s in scores[-1]]))
    return pd.DataFrame.from_dict(rows, orient="index")


def main() -> None:
    from .section import SECTION

    sys.stdout.write("\n\n".join(SECTION.show(SECTION.found()).values.values()) + "\n")


if __name__ == "__main__":
    main()
