r"""The paper's chain as a predictor of numbers: levels of the load instead of three states [fission].

The chain is at the level of the last value; h steps later it is distributed as $e_h = e_0\,TM^h$.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..knobs import knob
from . import markov
from .base import Array, Forecast, Learned, Levelled, Series, ahead, needs, positive


@dataclass(frozen=True, eq=False)
class Chain(Learned):
    edges: Array  # between levels
    matrix: Array
    sorted: Array  # all values seen
    level: Array  # of each of them


@dataclass(frozen=True)
class MarkovLevels(Levelled):
    """The load moves between levels as it did before; each level stands for the values that were seen in it."""

    name: ClassVar[str] = "markov levels"
    reference: ClassVar[str] = "fission"
    levels: int = knob(8, "levels, each with as many values", low=2, high=100)
    stationary: bool = knob(False, "forget where it is now, as the paper does: the long run", choices=(True, False))

    def learn(self, past: Series) -> Chain | None:
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

    def forecast(self, memory: Chain | None, past: Series, horizon: int = 1) -> Forecast:
        needs(past)
        steps = ahead(horizon)
        if memory is None:
            return self._around(np.full(steps, past.values[-1]), [])
        now = int(np.searchsorted(memory.edges, past.values[-1]))
        k = len(memory.matrix)
        seen = np.bincount(memory.level, minlength=k)
        means = np.bincount(memory.level, memory.sorted, k) / np.maximum(seen, 1)
        e = np.eye(k)[now]
        rows = []
        for _ in range(steps):
            e = markov.stationary(memory.matrix, start=now) if self.stationary else e @ memory.matrix
            rows.append((float((e * (seen > 0)) @ means), *self._bounds(memory, e, seen)))
        mean, low, high = (np.array(column) for column in zip(*rows, strict=True))
        return positive(mean, np.minimum(low, mean), np.maximum(high, mean))

    def _bounds(self, memory: Chain, e: Array, seen: Array) -> tuple[float, float]:
        """Quantiles of all values seen, each weighted by how likely its level is."""
        weight = (e / np.maximum(seen, 1))[memory.level].cumsum()
        at = np.searchsorted(weight / weight[-1], [(1 - self.level) / 2, (1 + self.level) / 2])
        low, high = memory.sorted[np.minimum(at, len(memory.sorted) - 1)]
        return float(low), float(high)
