r"""What is taken to hold before anything was run: the prior mean of the score. The paper's is a constant.

| kind | prior mean of F(k) |
|---|---|
| "constant" | the samples' mean, as in the paper |
| "cost" | what slots cost is known: $(1-\alpha)\frac1N\sum k'_i/k_i$, and a constant for the latency |
| "monotone" | the same, and $\alpha\min(1, l_t/\hat l(k))$ with a latency that falls with each $k_i$ |

$\hat l(k)=a+\sum_i b_i/(2(k_i-k'_i)+1)+c_ik'_i/k_i$ with $a,b_i,c_i\ge0$ never rises: it falls steeply at first, as a
wait does where capacity grows from just enough, or as work that is divided. It is fitted to the latencies that were
measured, with errors relative to them. The Gaussian process learns what remains, contention for instance, by which too
many instances make a job slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._given import choice
from .score import Sample, thrift
from .space import Array

KINDS = ("constant", "cost", "monotone")
Mean = Callable[[Any], Array]
_RIDGE = 1e-2  # pulls toward equal shares where samples do not tell operators apart


def prior_mean(kind: str, base: Sequence[int], samples: Sequence[Sample], alpha: float, target_s: float) -> Mean:
    """The prior mean of this kind, given what was run."""
    if choice(kind, "prior", KINDS) == "constant":
        return lambda X: np.zeros(len(np.atleast_2d(X)))

    def cost(X: Any) -> Array:
        return (1 - alpha) * np.atleast_1d(thrift(np.atleast_2d(X), base))

    if kind == "cost" or not samples:
        return cost
    late = falling(base, samples, target_s, alpha)
    return lambda X: cost(X) + alpha / np.maximum(1.0, late(X))


def falling(base: Sequence[int], samples: Sequence[Sample], target_s: float, alpha: float = 0.8) -> Mean:
    r"""$\hat l(k)$ over the target, fitted to the samples."""
    a = _fitted(base, samples, alpha, target_s)
    return lambda X: _features(X, base) @ a


def _features(X: Any, base: Sequence[int]) -> Array:
    X = np.atleast_2d(np.asarray(X, dtype=float))
    low = np.asarray(base)
    beyond = np.maximum(X - low, 0.0)
    return np.column_stack([np.ones(len(X)), 1.0 / (2.0 * beyond + 1.0), low / np.maximum(X, low)])


def _fitted(base: Sequence[int], samples: Sequence[Sample], alpha: float, target_s: float) -> Array:
    """$a, b_i, c_i$ of the latency over its target, none below 0."""
    from scipy.optimize import nnls

    late = np.array([_latency(s, base, alpha, target_s) for s in samples])
    weight = 1.0 / np.maximum(late, 0.2)
    A = _features([s.k for s in samples], base)
    ridge = np.sqrt(_RIDGE) * np.eye(A.shape[1])
    found: Array = nnls(np.vstack([A * weight[:, None], ridge]), np.concatenate([late * weight, np.zeros(len(ridge))]))[
        0
    ]
    return found


def _latency(sample: Sample, base: Sequence[int], alpha: float, target_s: float) -> float:
    """Latency over target; from the score where it was not kept, at least 1 then."""
    if sample.latency_s is not None:
        return min(sample.latency_s / target_s, 1e3)
    share = (sample.score - (1 - alpha) * thrift(sample.k, base)) / alpha if alpha else 1.0
    return 1.0 / min(max(share, 1e-3), 1.0)
