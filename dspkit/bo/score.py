r"""The score of a configuration, and the threshold at which a search may stop [autrascale].

| paper | here |
|---|---|
| $F(k)$ | `score` |
| $k$, $k'$ | a configuration; `base`, the smallest one that sustains the load |
| $l_r$, $l_t$ | `latency_s`, `target_latency_s`: mean latency inside the job, and its target |
| $\alpha$ | `alpha`: weight of latency against slots |
| $w$ | `over`: over-allocation that is accepted |
| $s_l$ | `stop_threshold` |

Reading not taken by default: ratios above 1 where k is below k' (`clamp=False`), which reward too few instances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import ArgumentError, MetricError
from ..core.validation import share

MOST_SCORE = 1e6  # absolute bound of custom scores, beyond which rounding errors dominate


class Sample(NamedTuple):
    """A measured configuration.

    Parameters
    ----------
    k : tuple of int
        Instances of each operator.
    score : float
        Its score.
    latency_s : float, optional
        The mean latency behind the score, if it is known.
    served : float, optional
        Throughput over the offered rate, if it is known.

    Examples
    --------
    >>> Sample((2, 3), 0.8).latency_s is None
    True
    """

    k: tuple[int, ...]
    score: float
    latency_s: float | None = None
    served: float | None = None


def resource_score(k: Any, base: Any, *, clamp: bool = True) -> Any:
    r"""$\frac1N\sum_i k'_i/k_i$: 1 if nothing is spent beyond the base, 1/2 at twice the base.

    Parameters
    ----------
    k : array_like
        One configuration, or one per row.
    base : array_like
        The smallest configuration that sustains the load.
    clamp : bool
        Whether each ratio counts at most 1.

    Examples
    --------
    >>> resource_score((2, 8), base=(1, 8))
    0.75
    """
    import numpy as np

    from ..core.validation import numbers

    k, base = numbers(k, "configurations"), numbers(base, "base")
    if base.ndim != 1 or not base.size or k.shape[-1:] != base.shape or not (k >= 1).all() or not (base >= 1).all():
        raise ArgumentError(
            f"configurations of shape {k.shape} and a base of shape {base.shape}",
            expected="as many instances (1, 2, ...) as the base has operators",
            fix="name each operator once",
        )
    ratio = base / k
    mean = (np.minimum(1.0, ratio) if clamp else ratio).mean(axis=-1)
    return float(mean) if mean.ndim == 0 else mean


def score(k: Any, base: Any, latency_s: Any, target_latency_s: float, alpha: float = 0.8, *, clamp: bool = True) -> Any:
    r"""$F(k)=\alpha\min(1,l_t/l_r)+(1-\alpha)\frac1N\sum_i k'_i/k_i$ (Eq. 4): 1 if the target is met at the base.

    Parameters
    ----------
    k : array_like
        One configuration, or one per row.
    base : array_like
        The smallest configuration that sustains the load.
    latency_s : float or array
        Mean latency of each; infinity makes the first term 0.
    target_latency_s : float
        The latency to meet.
    alpha : float
        Weight of latency against slots.
    clamp : bool
        As for `resource_score`.

    Examples
    --------
    >>> round(score((7, 8, 12, 38), base=(3, 4, 12, 10), latency_s=0.172, target_latency_s=0.180), 4)  # Table II
    0.9096
    """
    import numpy as np

    from ..core.validation import number, numbers

    _share("alpha", alpha)
    target_latency_s = number(target_latency_s, "target_latency_s", low=0.0, above=True)
    latency = numbers(latency_s, "a latency in seconds of", low=0.0, infinite=True)
    cheap = resource_score(k, base, clamp=clamp)
    if latency.ndim and np.ndim(cheap) and latency.shape != np.shape(cheap):
        raise MetricError(
            f"latencies of shape {latency.shape} for {np.shape(cheap)} configurations",
            expected="one each, or one for all",
            fix="score them one by one",
        )
    with np.errstate(divide="ignore"):
        met = np.minimum(1.0, np.where(latency == 0, np.inf, target_latency_s / latency))
    total = alpha * met + (1 - alpha) * cheap
    return float(total) if np.ndim(total) == 0 else total


def stop_threshold(alpha: float = 0.8, over: float = 1.0) -> float:
    r"""$s_l=\alpha+\frac{1-\alpha}{1+w}$ (Eq. 9): the score of a configuration that meets the target with excess w.

    Parameters
    ----------
    alpha : float
        Weight of latency against slots.
    over : float
        Accepted over-allocation w, a share of the base.

    Examples
    --------
    >>> [round(stop_threshold(0.8, w), 4) for w in (1, 0.25, 0)]
    [0.9, 0.96, 1.0]
    """
    _share("alpha", alpha)
    from ..core.validation import number

    over = number(over, "over", low=0.0)
    return alpha + (1 - alpha) / (1 + over)


def _share(name: str, value: Any) -> None:
    share(value, name, fix="as in 0.8, which is the paper's")
