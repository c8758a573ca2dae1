r"""Prior means of the score, which hold before anything is measured. The paper's is a constant.

| kind | prior mean of F(k) |
|---|---|
| "constant" | the samples' mean, as in the paper |
| "cost" | the known cost of slots, $(1-\alpha)\frac1N\sum k'_i/k_i$, and a constant for the latency |
| "monotone" | the same, and $\alpha\min(1, l_t/\hat l(k))$ with a latency that falls with each $k_i$ |

$\hat l(k)=a+\sum_i b_i/(2(k_i-k'_i)+1)+c_ik'_i/k_i$ with $a,b_i,c_i\ge0$ never rises. It falls steeply at first, like a
wait when capacity grows from just sufficient, or like divided work. It is fitted to the measured latencies with
relative errors. The Gaussian process learns the remainder, for instance contention, by which too many instances make a
job slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.typing import Array
from ..core.validation import choice
from .score import Sample, resource_score

KINDS = ("constant", "cost", "monotone")
Mean = Callable[[Any], Array]
_RIDGE = 1e-2  # pulls toward equal shares if samples do not distinguish operators


def prior_mean(
    kind: str, base: Sequence[int], samples: Sequence[Sample], alpha: float, target_latency_s: float
) -> Mean:
    """Return the prior mean of one kind, given the samples."""
    if choice(kind, "prior", KINDS) == "constant":
        return lambda X: np.zeros(len(np.atleast_2d(X)))

    def cost(X: Any) -> Array:
        return (1 - alpha) * np.atleast_1d(resource_score(np.atleast_2d(X), base))

    if kind == "cost" or not samples:
        return cost
    late = falling(base, samples, target_latency_s, alpha)
    return lambda X: cost(X) + alpha / np.maximum(1.0, late(X))


def falling(base: Sequence[int], samples: Sequence[Sample], target_latency_s: float, alpha: float = 0.8) -> Mean:
    r"""Return $\hat l(k)$ relative to the target, fitted to the samples."""
    a = _fitted(base, samples, alpha, target_latency_s)
    return lambda X: _features(X, base) @ a


def _features(X: Any, base: Sequence[int]) -> Array:
    X = np.atleast_2d(np.asarray(X, dtype=float))
    low = np.asarray(base)
    beyond = np.maximum(X - low, 0.0)
    return np.column_stack([np.ones(len(X)), 1.0 / (2.0 * beyond + 1.0), low / np.maximum(X, low)])


def _fitted(base: Sequence[int], samples: Sequence[Sample], alpha: float, target_latency_s: float) -> Array:
    """Return $a, b_i, c_i$ of the latency relative to the target, all non-negative."""
    from scipy.optimize import nnls

    late = np.array([_latency(s, base, alpha, target_latency_s) for s in samples])
    weight = 1.0 / np.maximum(late, 0.2)
    A = _features([s.k for s in samples], base)
    ridge = np.sqrt(_RIDGE) * np.eye(A.shape[1])
    found: Array = nnls(np.vstack([A * weight[:, None], ridge]), np.concatenate([late * weight, np.zeros(len(ridge))]))[
        0
    ]
    return found


def _latency(sample: Sample, base: Sequence[int], alpha: float, target_latency_s: float) -> float:
    """Return the latency relative to the target; if it was not kept, at least 1 as derived from the score."""
    if sample.latency_s is not None:
        return min(sample.latency_s / target_latency_s, 1e3)
    share = (sample.score - (1 - alpha) * resource_score(sample.k, base)) / alpha if alpha else 1.0
    return 1.0 / min(max(share, 1e-3), 1.0)
