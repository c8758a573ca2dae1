"""ELYSIUM's input load profiler: a small neural net over the calendar and the last loads [elysium].

    | paper | here |
    |---|---|
    | day of the week, hour, minute | the first three inputs, of the last value's time |
    | $n_{ILP}$ | `last`: loads of the last minutes, the other inputs |
    | 13-24-5, linear-tanh-tanh | `last` = 10, `hidden` = 24, `outputs` = 5: one for each future minute |

All is scaled to [0, 1] by its least and greatest value; the first 70 % train, the rest tells the errors that the
interval is made of. Ours differs in two ways: the outputs are linear, and training is by L-BFGS (scikit-learn) instead
of resilient backpropagation.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..knobs import knob
from .base import DAY_S, Array, Forecast, Learned, Levelled, Series, ahead, library, needs


@dataclass(frozen=True, eq=False)
class Net(Learned):
    """What was learned: plain arrays, so that a forecast needs no scikit-learn."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    least: Array  # of each input
    span: Array
    range: tuple[float, float]  # of the load: least and span
    errors: tuple[Array, ...]  # on what was not trained on, by step ahead

    def __call__(self, inputs: Array) -> Array:
        hidden = np.tanh((inputs - self.least) / self.span @ self.weights[0] + self.biases[0])
        outputs: Array = (hidden @ self.weights[1] + self.biases[1]) * self.range[1] + self.range[0]
        return outputs


@dataclass(frozen=True)
class SeasonalNetwork(Levelled):
    """A neural net maps weekday, hour, minute and the last loads to the next ones, each directly."""

    name: ClassVar[str] = "seasonal network"
    reference: ClassVar[str] = "elysium"
    last: int = knob(10, "last loads that it sees", low=1, high=1440, source="13 inputs in the paper")
    hidden: int = knob(24, "neurons", low=1, high=1000, source="ELYSIUM's")
    outputs: int = knob(5, "steps that it predicts directly", low=1, high=1440, source="ELYSIUM's")
    train_share: float = knob(0.7, "part that it trains on; the rest tells its errors", low=0.1, high=0.95)
    iterations: int = knob(500, "most steps of training", low=1, high=100_000)
    cyclic: bool = knob(False, "put the time of day and week on circles: midnight is no jump", choices=(True, False))
    seed: int = knob(0, "of the first weights", low=0, high=2**32 - 1)

    def learn(self, past: Series) -> Net | None:
        """None if there are fewer than twenty examples, or all are the same."""
        count = len(past) - self.last - self.outputs + 1
        if count < 20 or not past.varies:
            return None
        ends = np.arange(self.last - 1, self.last - 1 + count)
        inputs = self._inputs(past, ends)
        targets = np.stack([past.values[ends + step] for step in range(1, self.outputs + 1)], axis=1)
        split = max(2, round(self.train_share * count))
        least, low = inputs[:split].min(axis=0), float(past.values.min())
        span = np.ptp(inputs[:split], axis=0)
        span = np.where(span > 0, span, 1.0)
        wide = float(np.ptp(past.values))
        weights, biases = self._train((inputs[:split] - least) / span, (targets[:split] - low) / wide)
        net = Net(weights, biases, least, span, (low, wide), ())
        unseen = slice(split, None) if split < count else slice(0, None)
        errors = targets[unseen] - net(inputs[unseen])
        return replace(net, errors=tuple(errors.T))

    def forecast(self, memory: Net | None, past: Series, horizon: int = 1) -> Forecast:
        """Beyond its outputs the net goes on from what it predicted."""
        needs(past)
        steps = ahead(horizon)
        if memory is None or len(past) < self.last:
            return self._around(np.full(steps, past.values[-1]), [np.diff(past.values)])
        mean = np.empty(0)
        while len(mean) < steps:
            begin = past.start_s + (len(past) - self.last) * past.every_s
            known = Series(np.concatenate((past.values[-self.last :], mean)), past.every_s, begin)
            more = memory(self._inputs(known, np.array([len(known) - 1])))[0]
            mean = np.concatenate((mean, np.maximum(0.0, more)))
        return self._around(mean[:steps], memory.errors)

    def _inputs(self, past: Series, ends: Array) -> Array:
        """A row for each place in `ends`: the calendar there, and the loads up to there."""
        t = past.times_s[ends]
        day, second = np.floor(t / DAY_S) % 7, t % DAY_S
        if self.cyclic:
            angles = 2 * np.pi * np.stack((day / 7, second / DAY_S))
            calendar = [*np.sin(angles), *np.cos(angles)]
        else:
            calendar = [day, second // 3600, second % 3600 // 60]
        loads = [past.values[ends - back] for back in range(self.last)]
        return np.stack([*calendar, *loads], axis=1)

    def _train(self, inputs: Array, targets: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        net = library("sklearn.neural_network").MLPRegressor(
            hidden_layer_sizes=(self.hidden,), activation="tanh", solver="lbfgs", alpha=1e-4, max_iter=self.iterations,
            random_state=self.seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it stops at `iterations`, as it was told
            net.fit(inputs, targets if self.outputs > 1 else targets[:, 0])
        return tuple(net.coefs_), tuple(net.intercepts_)
