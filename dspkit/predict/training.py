r"""Small neural nets in plain numpy: one hidden layer of tanh, outputs linear or tanh; two ways to train [elysium].

Resilient backpropagation, as ELYSIUM has it: each weight has a step of its own, and only the gradient's sign decides
where it goes. A weight whose gradient changed its sign jumped over a minimum: its last move is taken back, and the next
one waits.

    | Riedmiller and Braun | here |
    |---|---|
    | $\Delta_0$, $\Delta_{max}$, $\Delta_{min}$ | `FIRST`, `MOST`, `LEAST`: steps at first, at most, at least |
    | $\eta^+$, $\eta^-$ | `GROW`, `CUT`: of the step where the sign stays, and where it changes |

L-BFGS (scipy) minimises half the mean squared error and a small penalty on the weights. Both stop where what is held
out is predicted best: a net that goes on learns the noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .base import Array, Learned

GROW, CUT, FIRST, LEAST, MOST = 1.2, 0.5, 0.1, 1e-6, 50.0
PATIENCE = 50  # rounds without a better forecast of what is held out
PENALTY = 1e-4
HELD_OUT = 0.3  # last part of the examples, by which L-BFGS is stopped: ELYSIUM's split

Net = Sequence[Array]  # weights of both layers, then their biases; a stack of nets has one more axis in front


@dataclass(frozen=True, eq=False)
class Layers(Learned):
    """A trained net: rows of inputs to rows of outputs."""

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
) -> Layers:
    """With `folds`, as many nets are trained first, all at once and each without one block of the examples: the round
    in which they forecast these best is the one to stop at. One fold trains for all `rounds`.
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
) -> Layers:
    """Trained on the first part of the examples to learn when to stop, then on all of them."""
    net = _start(inputs, targets, hidden, seed)
    seen = len(inputs) - round(HELD_OUT * len(inputs))
    if 0 < seen < len(inputs):
        misses: list[float] = []

        def look(now: Net) -> bool:
            misses.append(float(np.square(_pass(now, inputs[seen:], linear)[1] - targets[seen:]).sum()))
            return len(misses) - _best(iter(misses)) > PATIENCE

        _minimise(net, inputs[:seen], targets[:seen], linear, rounds, look)
        rounds = _best(iter(misses))
    return _layers(_minimise(net, inputs, targets, linear, rounds, lambda now: False), linear)


def gradient(net: Net, inputs: Array, targets: Array, seen: Array | float, linear: bool) -> tuple[float, list[Array]]:
    """Half the squared errors, each times `seen`, summed; and how they change with each weight and bias."""
    inner, outputs = _pass(net, inputs, linear)
    error = (outputs - targets) * seen
    half = 0.5 * float((error * (outputs - targets)).sum())
    if not linear:
        error = error * (1 - outputs * outputs)
    within = (error @ net[1].swapaxes(-1, -2)) * (1 - inner * inner)
    weights = [inputs.T @ within, inner.swapaxes(-1, -2) @ error]
    return half, [*weights, within.sum(axis=-2, keepdims=True), error.sum(axis=-2, keepdims=True)]


def _pass(net: Net, inputs: Array, linear: bool) -> tuple[Array, Array]:
    """What the hidden neurons say, and the outputs."""
    inner = np.tanh(inputs @ net[0] + net[2])
    sums = inner @ net[1] + net[3]
    return inner, sums if linear else np.tanh(sums)


def _start(inputs: Array, targets: Array, hidden: int, seed: int) -> list[Array]:
    """Small weights by chance, as Glorot and Bengio take them, and no biases."""
    random = np.random.default_rng(seed)
    sizes = ((inputs.shape[1], hidden), (hidden, targets.shape[1]))
    return [
        *(random.uniform(-1, 1, size) * np.sqrt(6 / sum(size)) for size in sizes),
        *(np.zeros((1, size[1])) for size in sizes),
    ]


def _layers(net: Net, linear: bool) -> Layers:
    return Layers((net[0], net[1]), (net[2][0], net[3][0]), linear)


def _best(misses: Iterator[float]) -> int:
    """The round, from 1, with the least miss; looks no further where many rounds brought nothing better."""
    best, least = 1, np.inf
    for turn, miss in enumerate(misses, 1):
        if miss < least:
            best, least = turn, miss
        elif turn - best > PATIENCE:
            break
    return best


def _resilient_rounds(
    start: Net, inputs: Array, targets: Array, seen: Array, rounds: int, linear: bool
) -> Iterator[list[Array]]:
    """A stack of nets, one for each row of `seen`, after each round."""
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
    start: Net, inputs: Array, targets: Array, linear: bool, rounds: int, stop: Callable[[Net], bool]
) -> list[Array]:
    from scipy.optimize import minimize

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
