r"""The Markov chain of an operator's states: transition matrix, stationary distribution, prediction [fission].

    | paper | here |
    |---|---|
    | $h$ | history: states of the last samples, oldest first; one row an operator |
    | $TM$ | `transition_matrix`: TM[a, b] is the share of b among what followed a directly |
    | $e$ | `stationary`: $e\,TM = e$, $\sum e = 1$ |
    | $S$ | `margin`: by how much the likeliest state must beat the current one |
    | $\Delta$, $\Delta^+$ | current and predicted state: 0 underloaded (U), 1 balanced (B), 2 overloaded (O) |

All functions take one chain or thousands at a time. Readings not taken by default: a self-loop as the row of a state
that nothing left (`unvisited="self"`: the answer then depends on where one starts), and S as a ratio.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import MetricError
from .base import Array

STATES = "UBO"
U, B, O = range(3)
TIE = 1e-12  # probabilities closer than this are equal: sums of thirds are not exact
PERIODS = 6  # iterates to average so that cycles of one, two and three states all cancel


def classify(load: Array | float, lower: float = 0.5, upper: float = 1.0) -> Array:
    """The state of each load: O above `upper`, U below `lower`, else B; strict on both sides.

    >>> classify([0.49, 0.5, 1.0, 1.01]).tolist()
    [0, 1, 1, 2]
    """
    load = numbers(load, "loads")
    if not lower <= upper:
        raise MetricError(f"lower={lower}, upper={upper}", expected="lower <= upper", fix="swap them")
    if load.size and not load.min() >= 0:  # not a number is not >= 0 either
        raise MetricError("a load that is negative or no number", expected="loads from 0 up", fix="fill gaps first")
    return (load >= lower).view(np.int8) + (load > upper).view(np.int8)


def states(history: Any, k: int = 3) -> Array:
    """A history as an array of whole numbers; letters as in "UUBO", one row or several, are welcome."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise MetricError(f"k={k!r} states", expected="a whole number from 1 up", fix="the paper has 3")
    array = _letters(history)
    if array.ndim not in (1, 2) or array.dtype.kind not in "iu" or not array.size:
        raise MetricError(f"history {history!r:.60}", expected="states in rows of one length", fix='as in "UUBO"')
    if array.min() < 0 or array.max() >= k:
        raise MetricError(
            f"states {array.min()} to {array.max()}", expected=f"0 to {k - 1}", fix=f"letters {STATES}, or their places"
        )
    return array


def _letters(history: Any) -> Array:
    """What was passed as an array; letters become places in STATES, or -1."""
    if isinstance(history, str):
        history = [STATES.find(letter) for letter in history.upper()]
    elif isinstance(history, (list, tuple)) and history and all(isinstance(row, str) for row in history):
        history = [[STATES.find(letter) for letter in row.upper()] for row in history]
    try:
        return np.asarray(history)
    except ValueError:  # rows of several lengths
        return np.empty(0)


def transition_matrix(history: Any, k: int = 3, unvisited: str = "uniform") -> Array:
    r"""$TM_{ab} = C_{ab}/\sum_b C_{ab}$, where $C_{ab}$ counts how often b follows a directly in each history.

    >>> transition_matrix("BBOOBBOOBBOO")[1:].round(3).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.4, 0.6]]
    """
    if unvisited not in ("uniform", "self"):
        raise MetricError(f"unvisited={unvisited!r}", expected="'uniform' or 'self'", fix="see transition_matrix")
    array = states(history, k)
    rows = np.atleast_2d(array)
    n = len(rows)
    # One code for operator and pair: a single count of small numbers, whatever the number of operators.
    code = rows[:, :-1] * np.int64(k)
    code += rows[:, 1:]
    code += (np.arange(n, dtype=np.int64) * (k * k))[:, None]
    count = np.bincount(code.ravel(), minlength=n * k * k).reshape(n, k, k).astype(float)
    left = count.sum(axis=2, keepdims=True)
    fill = np.full((k, k), 1 / k) if unvisited == "uniform" else np.eye(k)
    matrix: Array = np.where(left > 0, count / np.maximum(left, 1), fill)
    return matrix if array.ndim == 2 else matrix[0]


def stationary(matrix: Any, start: Any = None) -> Array:
    r"""The distribution e with $e\,TM = e$, exactly; of periodic chains too.

    A chain with several closed classes has many: then `start`, a state for each chain, chooses the one that the
    average over time goes to from there; without it that is an error.

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
    """Three states in closed form: $e_i$ is proportional to the weight of all trees that lead to i.

    Only sums of products of what is there: no cancellation, so a probability of zero comes out as zero. All weights
    are zero where no state is reached from everywhere, that is with two closed classes or more.
    """
    a, b, c, d, e, f = (t[:, i, j] for i, j in ((0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)))
    weight = np.stack((c * e + c * f + d * e, a * f + a * e + b * f, b * d + a * d + b * c), axis=1)
    total = weight.sum(axis=1, keepdims=True)
    return weight / np.where(total > 0, total, 1.0), np.flatnonzero(total[:, 0] == 0)


def _by_classes(matrix: Array, start: int) -> Array:
    """One chain of any size: its closed classes, each by state reduction, joined by how likely each is from `start`."""
    from scipy.sparse.csgraph import connected_components

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
    """Probability of ending in `target` from `start`."""
    if absorbing[start]:
        return float(target[start])
    passing = np.flatnonzero(~absorbing)
    inner = np.eye(len(passing)) - matrix[np.ix_(passing, passing)]
    enter = matrix[np.ix_(passing, np.flatnonzero(target))].sum(axis=1)
    return float(np.linalg.solve(inner, enter)[passing.tolist().index(start)])


def _reduce(matrix: Array) -> Array:
    """Grassmann, Taksar and Heyman's elimination of an irreducible chain: exact to the last digits."""
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
    r"""The paper's way: $e_{n+1} = e_n\,TM$ (Chapman and Kolmogorov), the last `average` iterates averaged.

    `start` is a distribution (uniform where none is given). `average=1` are the raw powers, which never settle in a
    periodic chain; six iterates cancel every cycle that three states can have.
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
    """Algorithm 2's last lines: the likeliest state if it beats the current one by the margin, else the current one.

    Additive: $e_{best} > e_{current} + S$; relative: $e_{best} > (1 + S)\\,e_{current}$. Of equals O goes before B.
    """
    if rule not in ("additive", "relative"):
        raise MetricError(f"rule={rule!r}", expected="'additive' or 'relative'", fix="see choose")
    if not margin >= 0:
        raise MetricError(f"margin={margin}", expected="0 or more", fix="the paper takes 0.2")
    e = numbers(e, "distributions")
    rows = np.atleast_2d(e)
    if rows.ndim != 2 or not rows.size or not rows.min() >= 0:
        raise MetricError(f"distributions {e!r:.60}", expected="rows of chances from 0 up", fix="pass stationary(TM)")
    now = _current(current, *rows.shape)
    top = rows.max(axis=1)
    best = rows.shape[1] - 1 - (rows[:, ::-1] >= top[:, None] - TIE).argmax(axis=1)
    mine = rows[np.arange(len(rows)), now]
    least = mine + margin if rule == "additive" else mine * (1 + margin)
    chosen: Array = np.where(top > least + TIE, best, now)
    return chosen if e.ndim == 2 else chosen[0]


def predict(history: Any, margin: float = 0.2, current: Any = None, rule: str = "additive") -> Array:
    """Each operator's next state from its history (Algorithm 2); `current` is its last state if not given.

    >>> STATES[predict("BBBBBBBBBO")], STATES[predict("BBOOBBOOBBOO", current=B)]
    ('B', 'B')
    """
    array = states(history)
    now = array[..., -1] if current is None else current
    return choose(stationary(transition_matrix(array)), now, margin, rule)


def numbers(values: Any, what: str) -> Array:
    """An array of numbers; what is none is refused by name."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise MetricError(f"{what} {values!r:.60}", expected="numbers", fix="rows of one length, no text") from error


def _current(state: Any, n: int, k: int) -> Array:
    """A state for each of n chains, from one for all or one each."""
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
        raise MetricError(f"start {start!r:.60}", expected=f"{k} chances that sum to 1", fix="as in start=(0, 1, 0)")
    return np.broadcast_to(array, (n, k))


def _chains(matrix: Any) -> tuple[Array, bool]:
    array = numbers(matrix, "a matrix")
    chains = array[None] if array.ndim == 2 else array
    if chains.ndim != 3 or chains.shape[1] != chains.shape[2] or not chains.size:
        raise MetricError(f"a matrix of shape {array.shape}", expected="square ones", fix="pass transition_matrix(h)")
    if not (np.all(chains >= 0) and np.all(np.abs(chains.sum(axis=2) - 1) < 1e-9)):
        raise MetricError(
            "rows that are no probabilities", expected="each >= 0, sum 1", fix="pass transition_matrix(h)"
        )
    return chains, array.ndim == 2
