"""ELYSIUM's input load profiler: a small neural net over the calendar and the last loads [elysium].

    | paper | here |
    |---|---|
    | day of the week, hour, minute | the first three inputs, of the last value's time |
    | $n_{ILP}$ | `last`: loads of the last minutes, the other inputs |
    | 13-24-5, linear-tanh-tanh | `last` = 10, `hidden` = 24, `outputs` = 5: one for each future minute |
    | resilient backpropagation, 10-fold cross-validation | `training="rprop"`, `folds` = 10 |
    | 70 % training, 30 % test | `held_out` = 0.3, which tells how wide the interval must be |

All is scaled to [0, 1] by its least and greatest value; `SeasonalNetwork(output="tanh", training="rprop")` is the
paper's net. By default the outputs are linear, since tanh cannot tell a load above the greatest one seen, and training
is by L-BFGS: as accurate as the paper's on linear outputs, and many times as fast (docs/reproduction.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..knobs import knob
from .base import DAY_S, Array, Forecast, Learned, Series
from .calibrated import Calibrated
from .training import Layers, lbfgs, resilient


@dataclass(frozen=True, eq=False)
class Net(Learned):
    """What was learned: plain arrays."""

    layers: Layers
    least: Array  # of each input
    span: Array
    range: tuple[float, float]  # of the load: least and span
    spread: Array  # root mean square of the errors on what it learned from, by step ahead

    def __call__(self, inputs: Array) -> Array:
        outputs: Array = self.layers((inputs - self.least) / self.span) * self.range[1] + self.range[0]
        return outputs


@dataclass(frozen=True)
class SeasonalNetwork(Calibrated):
    """A neural net maps weekday, hour, minute and the last loads to the next ones, each directly."""

    name: ClassVar[str] = "seasonal network"
    reference: ClassVar[str] = "elysium"
    last: int = knob(10, "last loads that it sees", low=1, high=1440, source="13 inputs in the paper")
    hidden: int = knob(24, "neurons", low=1, high=1000, source="ELYSIUM's")
    outputs: int = knob(5, "steps that it predicts directly", low=1, high=1440, source="ELYSIUM's")
    output: str = knob("linear", "what the last neurons do; the paper's are tanh", choices=("linear", "tanh"))
    training: str = knob("lbfgs", "how it learns; the paper's way is rprop", choices=("lbfgs", "rprop"))
    folds: int = knob(10, "parts of the cross-validation that stops rprop", low=1, high=100, source="ELYSIUM's")
    iterations: int = knob(500, "most steps of training", low=1, high=100_000)
    cyclic: bool = knob(False, "put the time of day and week on circles: midnight is no jump", choices=(True, False))
    seed: int = knob(0, "of the first weights", low=0, high=2**32 - 1)

    def _fit(self, past: Series) -> Net | None:
        """None if there are fewer than twenty examples, or all are the same."""
        count = len(past) - self.last - self.outputs + 1
        if count < 20 or not past.varies:
            return None
        ends = np.arange(self.last - 1, self.last - 1 + count)
        inputs = self._inputs(past, ends)
        targets = np.stack([past.values[ends + step] for step in range(1, self.outputs + 1)], axis=1)
        least, span = inputs.min(axis=0), np.ptp(inputs, axis=0)
        span = np.where(span > 0, span, 1.0)
        low, wide = float(past.values.min()), float(np.ptp(past.values))
        layers = self._train((inputs - least) / span, (targets - low) / wide)
        net = Net(layers, least, span, (low, wide), np.zeros(self.outputs))
        return Net(layers, least, span, (low, wide), np.sqrt(np.square((targets - net(inputs)) / wide).mean(axis=0)))

    def _enough(self, model: Net, past: Series) -> bool:
        return len(past) >= self.last

    def _from(self, model: Net, past: Series, ends: Array, steps: int) -> Forecast:
        """Beyond its outputs the net goes on from what it predicted."""
        from scipy.special import ndtri

        known = past.values[np.maximum(ends[:, None] + np.arange(1 - self.last, 1), 0)]
        spread = np.empty(0)
        for turn in range(-(-steps // self.outputs)):
            t = past.times_s[ends] + turn * self.outputs * past.every_s
            more = model(np.concatenate((self._calendar(t), known[:, : -self.last - 1 : -1]), axis=1))
            known = np.concatenate((known, np.maximum(0.0, more)), axis=1)
            spread = np.concatenate((spread, model.spread * (1 + turn)))
        mean = known[:, self.last : self.last + steps]
        aside = spread[:steps] * model.range[1] * ndtri((1 + self.level) / 2)
        return Forecast(mean, mean - aside, mean + aside)

    def _inputs(self, past: Series, ends: Array) -> Array:
        """A row for each place in `ends`: the calendar there, and the loads up to there, the last one first."""
        loads = past.values[ends[:, None] - np.arange(self.last)]
        return np.concatenate((self._calendar(past.times_s[ends]), loads), axis=1)

    def _calendar(self, t: Array) -> Array:
        day, second = np.floor(t / DAY_S) % 7, t % DAY_S
        if self.cyclic:
            angles = 2 * np.pi * np.stack((day / 7, second / DAY_S), axis=1)
            return np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
        return np.stack((day, second // 3600, second % 3600 // 60), axis=1)

    def _train(self, inputs: Array, targets: Array) -> Layers:
        linear = self.output == "linear"
        if self.training == "lbfgs":
            return lbfgs(inputs, targets, self.hidden, linear=linear, rounds=self.iterations, seed=self.seed)
        return resilient(
            inputs, targets, self.hidden, linear=linear, rounds=self.iterations, folds=self.folds, seed=self.seed
        )
