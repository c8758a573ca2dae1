r"""Curves of CPU against rate: a line, an isotonic curve, or ELYSIUM's small neural net [elysium].

| paper | here |
|---|---|
| OCUP, OP | curves: input rate of an instance → its CPU; CPU of a node's instances → CPU of the node |
| 1-3-1, tanh/tanh/tanh | `Net`: one input, three hidden neurons, one output, each through tanh |
| resilient backpropagation | `kind="rprop"`, with the usual factors 0.5 and 1.2; `"network"` is trained by L-BFGS |

CPU is never negative, and the line and the isotonic curve never fall. Beyond the measurements every curve continues
with the slope of the line through all of them, as an isotonic curve or a net does not extrapolate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from ..core import MetricError
from ..core.lazy import load
from ..core.typing import Array
from ..core.validation import choice, whole
from ..forecasting.base import library

Curve = Callable[[Any], Any]
Loss = Callable[[Any], tuple[float, Any]]
TRACE = 1e-12  # share of a core that counts as zero
LEAST = 0.05  # measurements below this part of the greatest are weighted as if they were equal to it


@dataclass(frozen=True)
class Line:
    """$y = a + b x$, never negative.

    Parameters
    ----------
    intercept, slope : float
        The coefficients a and b.

    Examples
    --------
    >>> float(Line(0.5, 0.25)(2.0))
    1.0
    """

    intercept: float
    slope: float

    def __call__(self, x: Any) -> Any:
        return np.maximum(0.0, self.intercept + self.slope * np.asarray(x, dtype=float))[()]


@dataclass(frozen=True)
class Points:
    """Straight lines between points, and a fixed slope beyond the last one.

    Parameters
    ----------
    x, y : tuple of float
        The points, with increasing x.
    slope : float
        Slope beyond the last point.

    Examples
    --------
    >>> float(Points((0.0, 2.0), (0.0, 1.0), slope=1.0)(3.0))
    2.0
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    slope: float

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or not self.x or any(b < a for a, b in pairwise(self.x)):
            raise MetricError(
                f"{len(self.x)} x and {len(self.y)} y",
                expected="equal numbers, increasing x",
                fix="fit the curve again",
            )

    def __call__(self, x: Any) -> Any:
        at = np.asarray(x, dtype=float)
        beyond = np.maximum(0.0, at - self.x[-1]) * self.slope
        return np.maximum(0.0, np.interp(at, self.x, self.y) + beyond)[()]


@dataclass(frozen=True)
class Net:
    """The 1-3-1 net, each layer through tanh, with a fixed slope beyond its training data.

    x is scaled to [0, 1] and y to [0, 0.9], as tanh never reaches the end of the paper's [0, 1].

    Parameters
    ----------
    hidden : tuple of (float, float)
        Weight and bias of each hidden neuron.
    out : tuple of float
        Weights of the output, then its bias.
    low, span : (float, float)
        Minimum and scale of x and y.
    slope : float
        Slope beyond the training data.

    Examples
    --------
    >>> net = fit_curve([0, 100, 200], [0.1, 0.3, 0.5], "network")
    >>> isinstance(net, Net), round(float(net(100)), 1)
    (True, 0.3)
    """

    hidden: tuple[tuple[float, float], ...]
    out: tuple[float, ...]
    low: tuple[float, float]
    span: tuple[float, float]
    slope: float

    def __call__(self, x: Any) -> Any:
        at = np.asarray(x, dtype=float)
        inside = np.clip(at, self.low[0], self.low[0] + self.span[0])
        weights = np.array([[w for w, _ in self.hidden], [b for _, b in self.hidden], self.out[:-1]])
        scaled = _forward(weights, self.out[-1], (inside - self.low[0]) / self.span[0])[1]
        y = scaled * self.span[1] + self.low[1] + np.maximum(0.0, at - inside) * self.slope
        return np.maximum(0.0, y)[()]


def fit_curve(x: Any, y: Any, kind: str = "linear", *, seed: int = 0) -> Line | Points | Net:
    """Return a curve through measurements that minimises relative errors.

    Parameters
    ----------
    x, y : sequence of float
        The measurements.
    kind : {"linear", "isotonic", "network", "rprop"}
        Kind of the curve.
    seed : int
        Seed of the initial weights of a net.

    Examples
    --------
    >>> fit_curve([0, 100, 200], [0.1, 0.3, 0.5])
    Line(intercept=0.1, slope=0.002)
    """
    must_be_kind(kind, seed)
    try:
        xs, ys = (np.asarray(values, dtype=float) for values in (x, y))
    except (TypeError, ValueError) as error:
        raise MetricError(f"measurements: {error}", expected="rows of numbers", fix="pass two rows") from error
    if xs.shape != ys.shape or xs.ndim != 1 or not len(xs):
        raise MetricError(f"{xs.shape} and {ys.shape} measurements", expected="equal numbers", fix="pass two rows")
    if not (np.isfinite(xs).all() and np.isfinite(ys).all() and (xs >= 0).all() and (ys >= 0).all()):
        raise MetricError("a measurement that is negative or NaN", expected="numbers >= 0", fix="check the meter")
    line = _line(xs, ys)
    return line if kind == "linear" or np.ptp(xs) == 0 or np.ptp(ys) == 0 else KINDS[kind](xs, ys, line, seed)


def must_be_kind(kind: Any, seed: Any) -> None:
    """Raise an error for an unknown kind of curve, or an invalid seed."""
    choice(kind, "kind", KINDS)
    whole(seed, "seed")


def percentage_error(curve: Curve, x: Any, y: Any) -> float | None:
    """Return the mean of $|\\hat y - y|/y$ where y is well above zero; None if it is nowhere."""
    xs, ys = (np.asarray(values, dtype=float) for values in (x, y))
    kept = ys > 1e-3 * ys.max(initial=0.0)
    return float(np.mean(np.abs(curve(xs[kept]) - ys[kept]) / ys[kept])) if kept.any() else None


def _line(x: Array, y: Array) -> Line:
    """Return the line of least relative squares, with a and b >= 0."""
    nnls = load("scipy.optimize", "standard").nnls

    if y.max() <= TRACE:
        return Line(0.0, 0.0)
    weight, scale = 1 / np.maximum(y, LEAST * y.max()), max(float(x.max()), TRACE)
    if np.ptp(x) == 0 and scale > TRACE:  # a single rate determines only the slope
        return Line(0.0, float((weight * y).sum() / (weight * x).sum()))
    (a, b), _ = nnls(np.column_stack((weight, weight * x / scale)), weight * y)
    return Line(_clean(a), _clean(b / scale))


def _clean(value: float) -> float:
    return float(f"{value:.12g}")  # 0.1, not 0.09999999999999998


def _isotonic(x: Array, y: Array, line: Line, seed: int) -> Points:
    model = library("sklearn.isotonic").IsotonicRegression(out_of_bounds="clip")
    model.fit(x, y, sample_weight=1 / np.maximum(y, LEAST * y.max()))
    return Points(tuple(model.X_thresholds_.tolist()), tuple(model.y_thresholds_.tolist()), line.slope)


def _net(x: Array, y: Array, line: Line, seed: int, *, rprop: bool = False) -> Net:
    low, span = (float(x.min()), float(y.min())), (float(np.ptp(x)), float(np.ptp(y)) / 0.9)
    matter = np.maximum(y, LEAST * y.max()) ** -2
    start = np.append(np.random.default_rng(seed).uniform(-1, 1, 9), 0.0)
    slope = partial(_loss, np.tanh((x - low[0]) / span[0]), (y - low[1]) / span[1], matter / matter.sum())
    weights, bias = _rprop(slope, start) if rprop else _lbfgs(slope, start)
    hidden = tuple(zip(weights[0].tolist(), weights[1].tolist(), strict=True))
    return Net(hidden, (*weights[2].tolist(), bias), low, span, line.slope)


def _forward(weights: Array, bias: float, x: Array) -> tuple[Array, Array]:
    """Return the outputs of the hidden neurons and of the net; rows of `weights`: input, biases, output."""
    hidden = np.tanh(np.multiply.outer(np.tanh(x), weights[0]) + weights[1])
    return hidden, np.tanh(hidden @ weights[2] + bias)


def _loss(t: Array, y: Array, matter: Array, at: Array) -> tuple[float, Array]:
    """Return the weighted squared error of a net on inputs after tanh, and its gradient by the ten parameters."""
    weights, bias = at[:9].reshape(3, 3), at[9]
    hidden = np.tanh(np.multiply.outer(t, weights[0]) + weights[1])
    out = np.tanh(hidden @ weights[2] + bias)
    back = 2 * matter * (out - y) * (1 - out**2)
    deep = np.multiply.outer(back, weights[2]) * (1 - hidden**2)
    return float(matter @ (out - y) ** 2), np.concatenate((t @ deep, deep.sum(axis=0), back @ hidden, [back.sum()]))


def _lbfgs(loss: Loss, start: Array, steps: int = 300) -> tuple[Array, float]:
    minimize = load("scipy.optimize", "standard").minimize

    options = {"maxiter": steps, "ftol": 1e-12, "gtol": 1e-10}
    at = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return at[:9].reshape(3, 3), float(at[9])


def _rprop(loss: Loss, start: Array, steps: int = 1000) -> tuple[Array, float]:
    """Minimise by resilient backpropagation: each weight has a step that depends on the signs of its slope."""
    at, step, before = start, np.full(10, 0.1), np.zeros(10)
    best, least = at, np.inf
    for _ in range(steps):
        now, slope = loss(at)
        if now < least:
            best, least = at, now
        same = slope * before
        step = np.clip(step * np.where(same > 0, 1.2, np.where(same < 0, 0.5, 1.0)), 1e-9, 1.0)
        slope = np.where(same < 0, 0.0, slope)
        at, before = at - np.sign(slope) * step, slope
    return best[:9].reshape(3, 3), float(best[9])


KINDS: dict[str, Any] = {"linear": None, "isotonic": _isotonic, "network": _net, "rprop": partial(_net, rprop=True)}
