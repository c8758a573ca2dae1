"""Integer linear programs as sparse arrays that any solver takes, gathered block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """min cost·z with low <= matrix·z <= high, 0 <= z <= upper, and the first `binaries` columns whole."""

    cost: Array
    upper: Array
    matrix: Any  # scipy's csr
    low: Array
    high: Array
    binaries: int
    constant: float


class Rows:
    """Rows of the matrix, gathered block by block."""

    def __init__(self) -> None:
        self.row: list[Array] = []
        self.column: list[Array] = []
        self.value: list[Array] = []
        self.low: list[Array] = []
        self.high: list[Array] = []
        self.count = 0

    def add(self, entries: list[tuple[Any, Any, Any]], count: int, low: Any, high: Any) -> None:
        """`count` rows; each entry has rows counted from 0, columns and values."""
        for row, column, value in entries:
            r, c, v = np.broadcast_arrays(np.asarray(row, np.int64), np.asarray(column, np.int64), np.float64(value))
            self.row.append(r.ravel() + self.count)
            self.column.append(c.ravel())
            self.value.append(v.ravel())
        self.low.append(np.broadcast_to(np.asarray(low, np.float64), (count,)))
        self.high.append(np.broadcast_to(np.asarray(high, np.float64), (count,)))
        self.count += count

    def program(self, cost: list[Array], upper: list[Array], binaries: int, constant: float) -> LinearProgram:
        """All rows, with a cost and an upper limit for each column."""
        from scipy.sparse import csr_matrix

        costs = np.concatenate(cost)
        entries = (np.concatenate(self.value), (np.concatenate(self.row), np.concatenate(self.column)))
        matrix = csr_matrix(entries, shape=(self.count, len(costs)))
        low, high = np.concatenate(self.low), np.concatenate(self.high)
        return LinearProgram(costs, np.concatenate(upper), matrix, low, high, binaries, constant)
