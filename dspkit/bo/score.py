r"""The score that a configuration is judged by, and the threshold at which a search may stop [autrascale].

    | paper | here |
    |---|---|
    | $F(k)$ | `score` |
    | $k$, $k'$ | a configuration; `base`, the least that sustains the load |
    | $l_r$, $l_t$ | `latency_s`, `target_s`: mean latency inside the job, and what it shall be |
    | $\alpha$ | `alpha`: weight of latency against slots |
    | $w$ | `over`: over-allocation that is accepted |
    | $s_l$ | `stop_threshold` |

Reading not taken by default: ratios above 1 where k is below k' (`clamp=False`), which reward too few instances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import KnobError, MetricError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


class Sample(NamedTuple):
    """A configuration that was run, its score, and the mean latency that it came from, where that is known."""

    k: tuple[int, ...]
    score: float
    latency_s: float | None = None


def thrift(k: Any, base: Any, *, clamp: bool = True) -> Any:
    r"""$\frac1N\sum_i k'_i/k_i$: 1 where nothing is spent beyond the base, 1/2 at twice of it.

    >>> thrift((2, 8), base=(1, 8))
    0.75
    """
    import numpy as np

    from ._given import numbers

    k, base = numbers(k, "configurations"), numbers(base, "base")
    if base.ndim != 1 or not base.size or k.shape[-1:] != base.shape or not (k >= 1).all() or not (base >= 1).all():
        raise KnobError(
            f"configurations of shape {k.shape} and a base of shape {base.shape}",
            expected="as many instances (1, 2, ...) as the base has operators",
            fix="name each operator once",
        )
    ratio = base / k
    mean = (np.minimum(1.0, ratio) if clamp else ratio).mean(axis=-1)
    return float(mean) if mean.ndim == 0 else mean


def score(k: Any, base: Any, latency_s: Any, target_s: float, alpha: float = 0.8, *, clamp: bool = True) -> Any:
    r"""$F(k)=\alpha\min(1,l_t/l_r)+(1-\alpha)\frac1N\sum_i k'_i/k_i$ (Eq. 4): 1 is the target met at the base.

    Takes one configuration, or many with a latency each; an infinite latency counts as 0 of the first term.

    >>> round(score((7, 8, 12, 38), base=(3, 4, 12, 10), latency_s=0.172, target_s=0.180), 4)  # Table II
    0.9096
    """
    import numpy as np

    from ._given import numbers, real

    _share("alpha", alpha)
    target_s = real(target_s, "target_s", low=0.0, above=True)
    latency = numbers(latency_s, "a latency in seconds of", low=0.0, infinite=True)
    cheap = thrift(k, base, clamp=clamp)
    if latency.ndim and np.ndim(cheap) and latency.shape != np.shape(cheap):
        raise MetricError(
            f"latencies of shape {latency.shape} for {np.shape(cheap)} configurations",
            expected="one each, or one for all",
            fix="score them one by one",
        )
    with np.errstate(divide="ignore"):
        met = np.minimum(1.0, np.where(latency == 0, np.inf, target_s / latency))
    total = alpha * met + (1 - alpha) * cheap
    return float(total) if np.ndim(total) == 0 else total


def stop_threshold(alpha: float = 0.8, over: float = 1.0) -> float:
    r"""$s_l=\alpha+\frac{1-\alpha}{1+w}$ (Eq. 9): the score of a configuration that meets the target with w too much.

    >>> [round(stop_threshold(0.8, w), 4) for w in (1, 0.25, 0)]
    [0.9, 0.96, 1.0]
    """
    _share("alpha", alpha)
    from ._given import real

    over = real(over, "over", low=0.0)
    return alpha + (1 - alpha) / (1 + over)


def _share(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise KnobError(f"{name}={value!r}", expected="a share 0..1", fix="the paper's is 0.8")
