r"""The paper's chain as a predictor of numbers: levels of the load instead of three states [fission].

The chain is at the level of the last value; h steps later it is distributed as $e_h = e_0\,TM^h$.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..knobs import knob
from . import markov
from .base import Array, Forecast, Learned, Series
from .calibrated import Calibrated


@dataclass(frozen=True, eq=False)
class Chain(Learned):
    edges: Array  # between levels
    matrix: Array
    sorted: Array  # all values seen
    level: Array  # of each of them


@dataclass(frozen=True)
class MarkovLevels(Calibrated):
    """The load moves between levels as it did before; each level stands for the values that were seen in it."""

    name: ClassVar[str] = "markov levels"
    reference: ClassVar[str] = "fission"
    levels: int = knob(8, "levels, each with as many values", low=2, high=100)
    stationary: bool = knob(False, "forget where it is now, as the paper does: the long run", choices=(True, False))

    def _fit(self, past: Series) -> Chain | None:
        if len(past) < 2:
            return None
        x = past.values
        below = x[x < x.max()]  # the greatest value has a level of its own at least, or there is but one value
        inner = np.linspace(0, 1, self.levels + 1)[1:-1]
        edges = np.unique(np.minimum(np.quantile(x, inner), below.max())) if len(below) else below
        at = np.searchsorted(edges, x)
        order = np.argsort(x, kind="stable")
        matrix = markov.transition_matrix(at, k=len(edges) + 1)
        return Chain(edges, matrix, x[order], at[order])

    def _from(self, model: Chain, past: Series, ends: Array, steps: int) -> Forecast:
        """What is expected at each level, once; then every place takes the row of the level it is at."""
        k = len(model.matrix)
        seen = np.bincount(model.level, minlength=k)
        means = np.bincount(model.level, model.sorted, k) / np.maximum(seen, 1)
        now = np.searchsorted(model.edges, past.values[ends])
        e, parts = np.eye(k), np.empty((3, k, steps))
        if self.stationary:
            e = np.stack([markov.stationary(model.matrix, start=level) for level in range(k)])
        for step in range(steps):
            e = e if self.stationary else e @ model.matrix
            parts[0, :, step] = (e * (seen > 0)) @ means
            parts[1:, :, step] = self._bounds(model, e, seen)
        return Forecast(*parts[:, now])

    def _bounds(self, model: Chain, e: Array, seen: Array) -> Array:
        """Quantiles of all values seen, each weighted by how likely its level is; one column for each row of `e`."""
        weight = (e / np.maximum(seen, 1))[:, model.level].cumsum(axis=1)
        weight /= weight[:, -1:]
        tails = ((1 - self.level) / 2, (1 + self.level) / 2)
        at = np.stack([(weight < tail).sum(axis=1) for tail in tails])
        bounds: Array = model.sorted[np.minimum(at, len(model.sorted) - 1)]
        return bounds
