r"""Instances that nobody needs: after a run that meets all, what would meet the latency with fewer (not in the paper).

The score saturates once latency is met, so its process says little about how far down one may go. What slots cost is
known, though; unknown is only whether fewer still meet the latency. So the configuration of the greatest

$$\Big(\tfrac1N\sum_i\frac{k'_i}{k_i}-\tfrac1N\sum_i\frac{k'_i}{\kappa_i}\Big)\,P(l(k)\le l_t)$$

is run next, of those with no operator above what is kept, $\kappa$: expected improvement under a constraint, where the
gain is certain [gardner2014constrained]. $\ln l$ is a Gaussian process around the falling latency of `prior`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from ..errors import MetricError
from .acquisition import best_of
from .gp import fit
from .prior import falling
from .score import Sample, thrift
from .space import Array, Config, Lattice

NOISES = (1e-3, 1e-2, 1e-1)  # variances of a measured log latency; the likeliest is taken


def meets(lattice: Lattice, samples: Sequence[Sample], target_s: float) -> Callable[[Array], Array]:
    """Log probability that a configuration's mean latency meets the target, from the latencies that were measured."""
    known = [s for s in samples if s.latency_s is not None]
    if not known:
        raise MetricError("no latencies", expected="one at least", fix="tell runs with their latency_s")
    X = lattice.scaled([s.k for s in known])
    late = np.log([min(max(s.latency_s or 0.0, 1e-6) / target_s, 1e3) for s in known])
    prior = falling(lattice.base, known, target_s)

    def expected(k: Array) -> Array:
        found: Array = np.log(np.maximum(prior(k), 1e-6))
        return found

    left = late - expected(np.array([s.k for s in known]))
    process = max((fit(X, left, noise=v, mean=0.0) for v in NOISES), key=lambda g: g.log_likelihood)

    def log_probability(k: Array) -> Array:
        mean, sigma = process.predict(lattice.scaled(k))
        found: Array = log_ndtr(-(expected(k) + mean) / np.maximum(sigma, 1e-9))
        return found

    return log_probability


class Trim(NamedTuple):
    """What to run next, what it would save of $\\frac1N\\sum k'/k$, and the probability that it meets the target."""

    k: Config
    saving: float
    probability: float


def trim(
    lattice: Lattice, samples: Sequence[Sample], kept: Config, target_s: float, *, seed: int | tuple[int, ...] = 0
) -> Trim | None:
    """What to run next below `kept`, of what was not run; None if nothing is left."""
    inside = Lattice(lattice.base, kept)
    log_probability, now = meets(lattice, samples, target_s), float(thrift(kept, lattice.base))

    def worth(X: Array) -> Array:
        gain = np.atleast_1d(thrift(X, lattice.base)) - now
        return np.log(np.maximum(gain, 1e-300)) + log_probability(X)

    found = best_of(worth, inside, {kept, *(s.k for s in samples)}, seed)
    if found is None:
        return None
    saving = float(thrift(found, lattice.base)) - now
    return Trim(found, saving, float(np.exp(log_probability(np.array([found]))[0])))
