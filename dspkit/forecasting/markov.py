r"""Markov chains of an operator's states, and of a load's levels as a predictor [fission].

| paper | here |
|---|---|
| $h$ | history: states of the last samples, oldest first; one row per operator |
| $TM$ | `transition_matrix`: TM[a, b] is the share of b among the direct successors of a |
| $e$ | `stationary`: $e\,TM = e$, $\sum e = 1$ |
| $S$ | `margin`: by how much the most likely state must beat the current one |
| $\Delta$, $\Delta^+$ | current and predicted state: 0 underloaded (U), 1 balanced (B), 2 overloaded (O) |

All functions take one chain or thousands at a time. Readings not taken by default: a self-loop as the row of a state
without successors (`unvisited="self"`: the result then depends on the initial state), and S as a ratio.

`MarkovLevels` is the paper's chain as a predictor of numbers, with levels of the load in the place of three states. The
chain starts at the level of the last value; h steps later its distribution is $e_h = e_0\,TM^h$.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..core import MetricError, knob
from ..core.lazy import load
from ..core.typing import Array
from ..core.validation import choice, whole
from .base import Forecast, LearnedModel, Series
from .calibrated import Calibrated

STATES = "UBO"
U, B, O = range(3)
TIE = 1e-12  # probabilities closer than this are equal, as sums of thirds are not exact
PERIODS = 6  # iterates to average, so that cycles of one, two and three states cancel


def classify(load: Array | float, lower: float = 0.5, upper: float = 1.0) -> Array:
    """Return the state of each load: O above `upper`, U below `lower`, otherwise B; strict on both sides.

    >>> classify([0.49, 0.5, 1.0, 1.01]).tolist()
    [0, 1, 1, 2]
    """
    load = numbers(load, "loads")
    if not lower <= upper:
        raise MetricError(f"lower={lower}, upper={upper}", expected="lower <= upper", fix="swap them")
    if load.size and not load.min() >= 0:  # NaN fails this test too
        raise MetricError("a load that is negative or NaN", expected="loads from 0 up", fix="fill gaps first")
    return (load >= lower).view(np.int8) + (load > upper).view(np.int8)


def states(history: Any, k: int = 3) -> Array:
    """Return a history as an array of whole numbers; letters as in "UUBO" are accepted, in one row or several."""
    whole(k, "k", 1, error=MetricError, fix="pass the number of states, as in 3")
    array = _letters(history)
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu" or not array.size:
        raise MetricError(f"history {history!r:.60}", expected="states in rows of one length", fix='as in "UUBO"')
    if array.min() < 0 or array.max() >= k:
        raise MetricError(
            f"states {array.min()} to {array.max()}", expected=f"0 to {k - 1}", fix=f"letters {STATES}, or their places"
        )
    return array


def _letters(history: Any) -> Array:
    """Return the argument as an array; letters become their index in STATES, or -1."""
    if isinstance(history, str):
        history = [STATES.find(letter) for letter in history.upper()]
    elif isinstance(history, (list, tuple)) and history and all(isinstance(row, str) for row in history):
        history = [[STATES.find(letter) for letter in row.upper()] for row in history]
    try:
        return np.asarray(history)
    except ValueError:  # rows of different lengths
        return np.empty(0)


def transition_matrix(history: Any, k: int = 3, unvisited: str = "uniform") -> Array:
    r"""Return $TM_{ab} = C_{ab}/\sum_b C_{ab}$, where $C_{ab}$ counts how often b follows a directly in each history.

    >>> transition_matrix("BBOOBBOOBBOO")[1:].round(3).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.4, 0.6]]
    """
    choice(unvisited, "unvisited", ("uniform", "self"), error=MetricError)
    array = states(history, k)
    rows = np.atleast_2d(array)
    n = len(rows)
    # One code per operator and pair, so that a single bincount serves any number of operators.
    code = rows[:, :-1] * np.int64(k)
    code += rows[:, 1:]
    code += (np.arange(n, dtype=np.int64) * (k * k))[:, None]
    count = np.bincount(code.ravel(), minlength=n * k * k).reshape(n, k, k).astype(float)
    left = count.sum(axis=2, keepdims=True)
    fill = np.full((k, k), 1 / k) if unvisited == "uniform" else np.eye(k)
    matrix: Array = np.where(left > 0, count / np.maximum(left, 1), fill)
    return matrix if array.ndim == 2 else matrix[0]


def stationary(matrix: Any, start: Any = None) -> Array:
    r"""Return the distribution e with $e\,TM = e$, exactly, also of periodic chains.

    A chain with several closed classes has many such distributions. Then `start`, a state for each chain, selects the
    limit of the average over time from there; without it, that is an error.

    >>> (11 * stationary([[0.9, 0.1, 0], [0.2, 0.6, 0.2], [0, 0.3, 0.7]])).round(9).tolist()
    [6.0, 3.0, 2.0]
    """
    chains, single = _chains(matrix)
    n, k, _ = chains.shape
    if k == 3:
        e, lost = _trees(chains)
    else:
        e, lost = np.empty((n, k)), np.arange(n)
    starts = np.full(n, -1) if start is None else _current(start, n, k)
    for i in lost:
        e[i] = _by_classes(chains[i], int(starts[i]))
    return e[0] if single else e


def _trees(t: Array) -> tuple[Array, Array]:
    """Return the distribution of three states in closed form: $e_i$ is proportional to the weight of all trees to i.

    These are sums of products of non-negative numbers without cancellation, so that a probability of zero is exactly
    zero. All weights are zero if no state is reached from every other one, that is with two or more closed classes.
    """
    a, b, c, d, e, f = (t[:, i, j] for i, j in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)))
    weight = np.stack((c * e + c * f + d * e, a * f + a * e + b * f, b * d + a * d + b * c), axis=1)
    total = weight.sum(axis=1, keepdims=True)
    return weight / np.where(total > 0, total, 1.0), np.flatnonzero(total[:, 0] == 0)


def _by_classes(matrix: Array, start: int) -> Array:
    """Return the distribution of one chain: closed classes by state reduction, weighted by their probability."""
    connected_components = load("scipy.sparse.csgraph", "standard").connected_components

    k = len(matrix)
    count, label = connected_components(matrix > 0, connection="strong")
    closed = [c for c in range(count) if not matrix[np.ix_(label == c, label != c)].any()]
    if len(closed) > 1 and not 0 <= start < k:
        raise MetricError(
            f"a chain with {len(closed)} closed classes",
            expected="one, or the state it starts in",
            fix="pass start=, or fill rows of unvisited states uniformly",
        )
    e = np.zeros(k)
    for c in closed:
        inside = np.flatnonzero(label == c)
        share = 1.0 if len(closed) == 1 else _reach(matrix, np.isin(label, closed), label == c, start)
        e[inside] = share * _reduce(matrix[np.ix_(inside, inside)])
    return e


def _reach(matrix: Array, absorbing: Array, target: Array, start: int) -> float:
    """Return the probability of ending in `target` from `start`."""
    if absorbing[start]:
        return float(target[start])
    passing = np.flatnonzero(~absorbing)
    inner = np.eye(len(passing)) - matrix[np.ix_(passing, passing)]
    enter = matrix[np.ix_(passing, np.flatnonzero(target))].sum(axis=1)
    return float(np.linalg.solve(inner, enter)[passing.tolist().index(start)])


def _reduce(matrix: Array) -> Array:
    """Return the distribution of an irreducible chain by the elimination of Grassmann, Taksar and Heyman."""
    p = matrix.copy()
    for n in range(len(p) - 1, 0, -1):
        p[:n, n] /= p[n, :n].sum()
        p[:n, :n] += np.outer(p[:n, n], p[n, :n])
    e = np.ones(len(p))
    for n in range(1, len(p)):
        e[n] = e[:n] @ p[:n, n]
    whole: Array = e / e.sum()
    return whole


def iterate(matrix: Any, iterations: int = 100, start: Any = None, average: int = PERIODS) -> Array:
    r"""Return the paper's approximation: $e_{n+1} = e_n\,TM$ (Chapman and Kolmogorov), the last iterates averaged.

    `start` is a distribution (by default uniform). `average=1` gives the raw powers, which never converge in a periodic
    chain; six iterates cancel all cycles of three states.
    """
    chains, single = _chains(matrix)
    n, k, _ = chains.shape
    if any(not isinstance(count, (int, np.integer)) or count < 1 for count in (iterations, average)):
        raise MetricError(f"iterations={iterations}, average={average}", expected="1 or more", fix="use the defaults")
    e = np.full((n, k), 1 / k) if start is None else _distributions(start, n, k)
    total = np.zeros((n, k))
    for i in range(iterations + average - 1):
        e = np.matmul(e[:, None, :], chains)[:, 0]
        if i >= iterations - 1:
            total += e
    total /= average
    return total[0] if single else total


def choose(e: Any, current: Any, margin: float = 0.2, rule: str = "additive") -> Array:
    """Return the most likely state if it beats the current one by the margin, otherwise the current one (Algorithm 2).

    Additive: $e_{best} > e_{current} + S$; relative: $e_{best} > (1 + S)\\,e_{current}$. In a tie, O precedes B.
    """
    choice(rule, "rule", ("additive", "relative"), error=MetricError)
    if not margin >= 0:
        raise MetricError(f"margin={margin}", expected="0 or more", fix="the paper takes 0.2")
    e = numbers(e, "distributions")
    rows = np.atleast_2d(e)
    if rows.ndim != 2 or not rows.size or not rows.min() >= 0:
        raise MetricError(f"distributions {e!r:.60}", expected="rows of probabilities", fix="pass stationary(TM)")
    now = _current(current, *rows.shape)
    top = rows.max(axis=1)
    best = rows.shape[1] - 1 - (rows[:, ::-1] >= top[:, None] - TIE).argmax(axis=1)
    mine = rows[np.arange(len(rows)), now]
    least = mine + margin if rule == "additive" else mine * (1 + margin)
    chosen: Array = np.where(top > least + TIE, best, now)
    return chosen if e.ndim == 2 else chosen[0]


def predict(history: Any, margin: float = 0.2, current: Any = None, rule: str = "additive") -> Array:
    """Return each operator's next state from its history (Algorithm 2); by default `current` is its last state.

    >>> STATES[predict("BBBBBBBBBO")], STATES[predict("BBOOBBOOBBOO", current=B)]
    ('B', 'B')
    """
    array = states(history)
    now = array[..., -1] if current is None else current
    return choose(stationary(transition_matrix(array)), now, margin, rule)


def numbers(values: Any, what: str) -> Array:
    """Return an array of numbers, or raise an error that names the argument."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise MetricError(f"{what} {values!r:.60}", expected="numbers", fix="rows of one length, no text") from error


def _current(state: Any, n: int, k: int) -> Array:
    """Return a state for each of n chains, from one for all or one each."""
    array = _letters(state).reshape(-1)
    if array.dtype.kind not in "iu" or len(array) not in (1, n) or array.min() < 0 or array.max() >= k:
        raise MetricError(
            f"state {state!r:.60}", expected=f"0 to {k - 1}, one for all chains or one each", fix="as in current=O"
        )
    return np.broadcast_to(array, (n,))


def _distributions(start: Any, n: int, k: int) -> Array:
    array = numbers(start, "start")
    right = array.shape in ((k,), (1, k), (n, k)) and array.min() >= 0 and np.abs(array.sum(axis=-1) - 1).max() < 1e-9
    if not right:
        raise MetricError(
            f"start {start!r:.60}", expected=f"{k} probabilities that sum to 1", fix="as in start=(0, 1, 0)"
        )
    return np.broadcast_to(array, (n, k))


def _chains(matrix: Any) -> tuple[Array, bool]:
    array = numbers(matrix, "a matrix")
    chains = array[None] if array.ndim == 2 else array
    if chains.ndim != 3 or chains.shape[1] != chains.shape[2] or not chains.size:
        raise MetricError(f"a matrix of shape {array.shape}", expected="square ones", fix="pass transition_matrix(h)")
    if not (np.all(chains >= 0) and np.all(np.abs(chains.sum(axis=2) - 1) < 1e-9)):
        raise MetricError(
            "rows that are not probabilities", expected="each >= 0, sum 1", fix="pass transition_matrix(h)"
        )
    return chains, array.ndim == 2


@dataclass(frozen=True, eq=False)
class Chain(LearnedModel):
    """A learned chain of levels."""

    edges: Array  # bounds between levels
    matrix: Array
    sorted: Array  # all observed values, in increasing order
    level: Array  # their levels


@dataclass(frozen=True)
class MarkovLevels(Calibrated):
    """A load that moves between levels as observed before; each level stands for its observed values.

    Examples
    --------
    >>> from dspkit.forecasting import Series
    >>> Series([1, 2] * 10).forecast(MarkovLevels()).mean.tolist()
    [1.0]
    """

    name: ClassVar[str] = "markov levels"
    reference: ClassVar[str] = "fission"
    levels: int = knob(8, "levels, each with as many values", low=2, high=100)
    stationary: bool = knob(False, "forecast the stationary distribution, as the paper does", choices=(True, False))

    def _fit(self, past: Series) -> Chain | None:
        if len(past) < 2:
            return None
        x = past.values
        below = x[x < x.max()]  # the greatest value has its own level, unless all values are equal
        inner = np.linspace(0, 1, self.levels + 1)[1:-1]
        edges = np.unique(np.minimum(np.quantile(x, inner), below.max())) if len(below) else below
        at = np.searchsorted(edges, x)
        order = np.argsort(x, kind="stable")
        matrix = transition_matrix(at, k=len(edges) + 1)
        return Chain(edges, matrix, x[order], at[order])

    def _from(self, model: Chain, past: Series, ends: Array, steps: int) -> Forecast:
        """Compute the expectation once per level; each place then takes the row of its level."""
        k = len(model.matrix)
        seen = np.bincount(model.level, minlength=k)
        means = np.bincount(model.level, model.sorted, k) / np.maximum(seen, 1)
        now = np.searchsorted(model.edges, past.values[ends])
        e, parts = np.eye(k), np.empty((3, k, steps))
        if self.stationary:
            e = np.stack([stationary(model.matrix, start=level) for level in range(k)])
        for step in range(steps):
            e = e if self.stationary else e @ model.matrix
            parts[0, :, step] = (e * (seen > 0)) @ means
            parts[1:, :, step] = self._bounds(model, e, seen)
        return Forecast(*parts[:, now])

    def _bounds(self, model: Chain, e: Array, seen: Array) -> Array:
        """Return quantiles of all observed values, weighted by the probability of their levels."""
        weight = (e / np.maximum(seen, 1))[:, model.level].cumsum(axis=1)
        weight /= weight[:, -1:]
        tails = ((1 - self.level) / 2, (1 + self.level) / 2)
        at = np.stack([(weight < tail).sum(axis=1) for tail in tails])
        bounds: Array = model.sorted[np.minimum(at, len(model.sorted) - 1)]
        return bounds
