r"""ELYSIUM's input load profiler: a small neural net of the calendar and the last loads, in plain numpy [elysium].

| paper | here |
|---|---|
| day of the week, hour, minute | the first three inputs, of the last value's time |
| $n_{ILP}$ | `last`: loads of the last minutes, the other inputs |
| 13-24-5, linear-tanh-tanh | `last` = 10, `hidden` = 24, `outputs` = 5: one per future minute |
| resilient backpropagation, 10-fold cross-validation | `training="rprop"`, `folds` = 10 |
| 70 % training, 30 % test | `held_out` = 0.3, which calibrates the width of the interval |

All values are scaled to [0, 1] by their minimum and maximum. `SeasonalNetwork(output="tanh", training="rprop")` is the
paper's net. By default the outputs are linear, since tanh cannot exceed the greatest load of the past, and training is
by L-BFGS: as accurate as the paper's method on linear outputs, and many times as fast (docs/reproduction.md).

In resilient backpropagation each weight has its own step, and only the sign of the gradient determines its direction. A
weight whose gradient changed its sign jumped over a minimum: its last move is reverted, and the next one is skipped.

| Riedmiller and Braun | here |
|---|---|
| $\Delta_0$, $\Delta_{max}$, $\Delta_{min}$ | `FIRST`, `MOST`, `LEAST`: initial, greatest and least step |
| $\eta^+$, $\eta^-$ | `GROW`, `CUT`: factors of the step if the sign is unchanged, or changed |

L-BFGS (scipy) minimises half the mean squared error and a small penalty on the weights. Both methods stop where
held-out values are predicted best, as a longer training would fit the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core import knob
from ..core.lazy import load
from ..core.typing import Array
from .base import DAY_S, Forecast, LearnedModel, Series
from .calibrated import Calibrated

GROW, CUT, FIRST, LEAST, MOST = 1.2, 0.5, 0.1, 1e-6, 50.0
PATIENCE = 50  # rounds without a better forecast of held-out values
PENALTY = 1e-4
HELD_OUT = 0.3  # last part of the examples, which determines when L-BFGS stops: ELYSIUM's split

TrainedNet = Sequence[Array]  # weights of both layers, then their biases; a stack of nets has one more leading axis


@dataclass(frozen=True, eq=False)
class TrainedNetwork(LearnedModel):
    """A trained net, which maps rows of inputs to rows of outputs."""

    weights: tuple[Array, Array]
    biases: tuple[Array, Array]
    linear: bool

    def __call__(self, inputs: Array) -> Array:
        return _pass([*self.weights, *self.biases], inputs, self.linear)[1]


def resilient(
    inputs: Array,
    targets: Array,
    hidden: int,
    *,
    linear: bool = False,
    rounds: int = 500,
    folds: int = 10,
    seed: int = 0,
) -> TrainedNetwork:
    """Train a net by resilient backpropagation.

    With several `folds`, as many nets are first trained together, each without one block of the examples, and the final
    training stops at the round in which they forecast these blocks best. One fold trains for all `rounds`.
    """
    net = _start(inputs, targets, hidden, seed)
    folds = min(folds, len(inputs))
    if folds > 1:
        block = np.arange(len(inputs)) * folds // len(inputs)
        seen = (block != np.arange(folds)[:, None]).astype(float)[:, :, None]
        misses = (
            float((np.square(_pass(nets, inputs, linear)[1] - targets) * (1 - seen)).sum())
            for nets in _resilient_rounds(net, inputs, targets, seen, rounds, linear)
        )
        rounds = _best(misses)
    everything = np.ones((1, len(inputs), 1))
    for stack in _resilient_rounds(net, inputs, targets, everything, rounds, linear):
        net = [part[0] for part in stack]
    return _layers(net, linear)


def lbfgs(
    inputs: Array, targets: Array, hidden: int, *, linear: bool = True, rounds: int = 500, seed: int = 0
) -> TrainedNetwork:
    """Train a net by L-BFGS: first on a part of the examples to find the best stopping point, then on all of them."""
    net = _start(inputs, targets, hidden, seed)
    seen = len(inputs) - round(HELD_OUT * len(inputs))
    if 0 < seen < len(inputs):
        misses: list[float] = []

        def look(now: TrainedNet) -> bool:
            misses.append(float(np.square(_pass(now, inputs[seen:], linear)[1] - targets[seen:]).sum()))
            return len(misses) - _best(iter(misses)) > PATIENCE

        _minimise(net, inputs[:seen], targets[:seen], linear, rounds, look)
        rounds = _best(iter(misses))
    return _layers(_minimise(net, inputs, targets, linear, rounds, lambda now: False), linear)


def gradient(
    net: TrainedNet, inputs: Array, targets: Array, sample_weight: Array | float, linear: bool
) -> tuple[float, list[Array]]:
    """Return half the weighted sum of squared errors, and its gradient by each weight and bias."""
    inner, outputs = _pass(net, inputs, linear)
    error = (outputs - targets) * sample_weight
    half = 0.5 * float((error * (outputs - targets)).sum())
    if not linear:
        error = error * (1 - outputs * outputs)
    within = (error @ net[1].swapaxes(-1, -2)) * (1 - inner * inner)
    weights = [inputs.T @ within, inner.swapaxes(-1, -2) @ error]
    return half, [*weights, within.sum(axis=-2, keepdims=True), error.sum(axis=-2, keepdims=True)]


def _pass(net: TrainedNet, inputs: Array, linear: bool) -> tuple[Array, Array]:
    """Return the outputs of the hidden neurons and of the net."""
    inner = np.tanh(inputs @ net[0] + net[2])
    sums = inner @ net[1] + net[3]
    return inner, sums if linear else np.tanh(sums)


def _start(inputs: Array, targets: Array, hidden: int, seed: int) -> list[Array]:
    """Return small random weights as in Glorot and Bengio, and zero biases."""
    random = np.random.default_rng(seed)
    sizes = ((inputs.shape[1], hidden), (hidden, targets.shape[1]))
    return [
        *(random.uniform(-1, 1, size) * np.sqrt(6 / sum(size)) for size in sizes),
        *(np.zeros((1, size[1])) for size in sizes),
    ]


def _layers(net: TrainedNet, linear: bool) -> TrainedNetwork:
    return TrainedNetwork((net[0], net[1]), (net[2][0], net[3][0]), linear)


def _best(misses: Iterator[float]) -> int:
    """Return the round, from 1, with the least miss; stop after many rounds without improvement."""
    best, least = 1, np.inf
    for turn, miss in enumerate(misses, 1):
        if miss < least:
            best, least = turn, miss
        elif turn - best > PATIENCE:
            break
    return best


def _resilient_rounds(
    start: TrainedNet, inputs: Array, targets: Array, seen: Array, rounds: int, linear: bool
) -> Iterator[list[Array]]:
    """Yield a stack of nets, one per row of `seen`, after each round."""
    net = [np.repeat(part[None], len(seen), axis=0) for part in start]
    step = [np.full(part.shape, FIRST) for part in net]
    former, moved = ([np.zeros(part.shape) for part in net] for _ in range(2))
    for _ in range(rounds):
        for i, slope in enumerate(gradient(net, inputs, targets, seen, linear)[1]):
            agree = slope * former[i]
            step[i] = np.clip(step[i] * np.where(agree > 0, GROW, np.where(agree < 0, CUT, 1.0)), LEAST, MOST)
            move = np.where(agree < 0, -moved[i], -np.sign(slope) * step[i])
            net[i] = net[i] + move
            former[i], moved[i] = np.where(agree < 0, 0.0, slope), np.where(agree < 0, 0.0, move)
        yield net


def _minimise(
    start: TrainedNet, inputs: Array, targets: Array, linear: bool, rounds: int, stop: Callable[[TrainedNet], bool]
) -> list[Array]:
    minimize = load("scipy.optimize", "standard").minimize

    cuts = np.cumsum([part.size for part in start])[:-1]
    n = len(inputs)

    def parts(flat: Array) -> list[Array]:
        return [p.reshape(like.shape) for p, like in zip(np.split(flat, cuts), start, strict=True)]

    def loss(flat: Array) -> tuple[float, Array]:
        net = parts(flat)
        half, slopes = gradient(net, inputs, targets, 1.0, linear)
        slopes = [s + PENALTY * part if i < 2 else s for i, (s, part) in enumerate(zip(slopes, net, strict=True))]
        half += 0.5 * PENALTY * sum(float(np.square(part).sum()) for part in net[:2])
        return half / n, np.concatenate([s.ravel() for s in slopes]) / n

    def look(flat: Array) -> None:
        if stop(parts(flat)):
            raise StopIteration

    flat = np.concatenate([part.ravel() for part in start])
    found = minimize(loss, flat, jac=True, method="L-BFGS-B", callback=look, options={"maxiter": rounds})
    return parts(found.x)


@dataclass(frozen=True, eq=False)
class NetworkWeights(LearnedModel):
    """A trained net with the scaling of its inputs and outputs."""

    layers: TrainedNetwork
    least: Array  # minimum of each input
    span: Array
    range: tuple[float, float]  # minimum and span of the load
    spread: Array  # root mean square of the training errors, by step ahead

    def __call__(self, inputs: Array) -> Array:
        outputs: Array = self.layers((inputs - self.least) / self.span) * self.range[1] + self.range[0]
        return outputs


@dataclass(frozen=True)
class SeasonalNetwork(Calibrated):
    """A neural net that maps weekday, hour, minute and the last loads directly to the next ones.

    Examples
    --------
    >>> from dspkit.forecasting import Series
    >>> Series([1, 2, 3] * 20).forecast(SeasonalNetwork(last=3, outputs=1)).mean.round(1).tolist()
    [1.0]
    """

    name: ClassVar[str] = "seasonal network"
    reference: ClassVar[str] = "elysium"
    last: int = knob(10, "number of last loads among the inputs", low=1, high=1440, source="13 inputs in the paper")
    hidden: int = knob(24, "neurons", low=1, high=1000, source="ELYSIUM's")
    outputs: int = knob(5, "number of steps that are predicted directly", low=1, high=1440, source="ELYSIUM's")
    output: str = knob("linear", "activation of the output neurons; the paper's is tanh", choices=("linear", "tanh"))
    training: str = knob("lbfgs", "training method; the paper's is rprop", choices=("lbfgs", "rprop"))
    folds: int = knob(10, "parts of the cross-validation that stops rprop", low=1, high=100, source="ELYSIUM's")
    iterations: int = knob(500, "most steps of training", low=1, high=100_000)
    cyclic: bool = knob(
        False, "represent time of day and week on circles, without a jump at midnight", choices=(True, False)
    )
    seed: int = knob(0, "seed of the initial weights", low=0, high=2**32 - 1)

    def _fit(self, past: Series) -> NetworkWeights | None:
        """Return the net; None if there are fewer than twenty examples, or all values are equal."""
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
        net = NetworkWeights(layers, least, span, (low, wide), np.zeros(self.outputs))
        return NetworkWeights(
            layers, least, span, (low, wide), np.sqrt(np.square((targets - net(inputs)) / wide).mean(axis=0))
        )

    def _enough(self, model: NetworkWeights, past: Series) -> bool:
        return len(past) >= self.last

    def _from(self, model: NetworkWeights, past: Series, ends: Array, steps: int) -> Forecast:
        """Return the forecast; beyond its outputs the net continues from its own predictions."""
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
        """Return one row per place in `ends`: the calendar, and the loads up to there, the last one first."""
        loads = past.values[ends[:, None] - np.arange(self.last)]
        return np.concatenate((self._calendar(past.times_s[ends]), loads), axis=1)

    def _calendar(self, t: Array) -> Array:
        day, second = np.floor(t / DAY_S) % 7, t % DAY_S
        if self.cyclic:
            angles = 2 * np.pi * np.stack((day / 7, second / DAY_S), axis=1)
            return np.concatenate((np.sin(angles), np.cos(angles)), axis=1)
        return np.stack((day, second // 3600, second % 3600 // 60), axis=1)

    def _train(self, inputs: Array, targets: Array) -> TrainedNetwork:
        linear = self.output == "linear"
        if self.training == "lbfgs":
            return lbfgs(inputs, targets, self.hidden, linear=linear, rounds=self.iterations, seed=self.seed)
        return resilient(
            inputs, targets, self.hidden, linear=linear, rounds=self.iterations, folds=self.folds, seed=self.seed
        )
