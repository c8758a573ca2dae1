"""The search space: all whole numbers of instances from the base k' to the maximum, for each operator."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core import ArgumentError, CapacityError
from ..core.typing import Array
from ..core.validation import numbers, whole

Config = tuple[int, ...]
ENUMERATED = 200_000  # the greatest number of points that are enumerated
MOST = 10**9  # instances; more indicates a mistake


@dataclass(frozen=True)
class Lattice:
    """The configurations k with $k'_i \\le k_i \\le P_{max}$.

    Parameters
    ----------
    base : iterable of int
        Smallest number of instances of each operator.
    max_parallelism : int or iterable of int
        Greatest number of instances, of all operators or of each.

    Examples
    --------
    >>> box = Lattice(base=(3, 4, 12, 10), max_parallelism=40)
    >>> box.size, box.bootstrap(3)
    (1263994, ((12, 12, 12, 12), (26, 26, 26, 26), (40, 40, 40, 40),
      (40, 4, 12, 10), (3, 40, 12, 10), (3, 4, 40, 10), (3, 4, 12, 40)))
    """

    base: Config
    max_parallelism: Config

    def __init__(self, base: Iterable[int], max_parallelism: int | Iterable[int]):
        low = _whole(base, "base")
        high = _whole(
            max_parallelism if isinstance(max_parallelism, Iterable) else [max_parallelism] * len(low),
            "max_parallelism",
        )
        if len(low) != len(high):
            raise ArgumentError(f"{len(low)} and {len(high)} operators", expected="the same number", fix="see Lattice")
        if short := [i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a > b]:
            raise CapacityError(
                f"a base of {low} instances with at most {high}",
                expected="a maximum of at least the base",
                fix=f"the cluster is too small for operator {short[0]}: raise max_parallelism, or lower the load",
            )
        object.__setattr__(self, "base", low)
        object.__setattr__(self, "max_parallelism", high)

    @cached_property
    def low(self) -> Array:
        """The base as an array."""
        return np.array(self.base)

    @cached_property
    def high(self) -> Array:
        """The maximum as an array."""
        return np.array(self.max_parallelism)

    @property
    def size(self) -> int:
        """Number of configurations."""
        return math.prod(b - a + 1 for a, b in zip(self.base, self.max_parallelism, strict=True))

    def __contains__(self, k: Any) -> bool:
        try:
            found = [operator.index(x) for x in k]
        except TypeError:
            return False
        inside = zip(self.base, found, self.max_parallelism, strict=False)
        return len(found) == len(self.base) and all(a <= x <= b for a, x, b in inside)

    def scaled(self, X: Any) -> Array:
        """Return configurations as points of the unit cube, with 0 for an operator that cannot vary.

        Parameters
        ----------
        X : array_like
            One configuration per row.

        Examples
        --------
        >>> Lattice((2, 3), 10).scaled([(6, 3)]).tolist()
        [[0.5, 0.0]]
        """
        X = np.atleast_2d(numbers(X, "configurations"))
        if X.ndim != 2 or X.shape[1] != len(self.base):
            raise ArgumentError(
                f"configurations of shape {X.shape}",
                expected=f"{len(self.base)} operators each",
                fix="one job, one box",
            )
        span = np.where(self.high > self.low, self.high - self.low, 1)
        scaled: Array = np.where(self.high > self.low, (X - self.low) / span, 0.0)
        return scaled

    def clamp(self, k: Iterable[float]) -> Config:
        """Return the nearest configuration of the box.

        Parameters
        ----------
        k : iterable of float
            Numbers of instances, also fractions.

        Examples
        --------
        >>> Lattice((2, 3), 9).clamp((0, 4.6))
        (2, 5)
        """
        given = numbers([*k], "a configuration", infinite=True)
        if given.shape != (len(self.base),):
            raise ArgumentError(
                f"{given.shape} instances", expected=f"{len(self.base)} of them", fix="one per operator"
            )
        return tuple(
            round(min(max(x, a), b)) for x, a, b in zip(given.tolist(), self.base, self.max_parallelism, strict=True)
        )

    def points(self) -> Array:
        """Return all configurations, one per row, of a box of at most ENUMERATED points.

        Examples
        --------
        >>> Lattice((1, 1), 2).points().tolist()
        [[1, 1], [1, 2], [2, 1], [2, 2]]
        """
        if self.size > ENUMERATED:
            raise CapacityError(f"{self.size:,} points", expected=f"at most {ENUMERATED:,}", fix="use draw() instead")
        sides = [np.arange(a, b + 1) for a, b in zip(self.base, self.max_parallelism, strict=True)]
        every: Array = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))
        return every

    def draw(self, random: np.random.Generator, count: int) -> Array:
        """Return random configurations, all equally likely.

        Parameters
        ----------
        random : numpy.random.Generator
            Source of random numbers.
        count : int
            Number of configurations.

        Examples
        --------
        >>> Lattice((2, 3), 9).draw(np.random.default_rng(0), 5).shape
        (5, 2)
        """
        drawn: Array = random.integers(self.low, self.high + 1, (whole(count, "count"), len(self.base)))
        return drawn

    def neighbours(self, X: Array, step: int = 1) -> Array:
        """Return the configurations of the box that differ from a row by `step` instances of one operator.

        Parameters
        ----------
        X : array
            One configuration per row.
        step : int
            Difference of instances.

        Examples
        --------
        >>> Lattice((2, 3), 9).neighbours(np.array([(2, 3)])).tolist()
        [[3, 3], [2, 4]]
        """
        steps = step * np.vstack([np.eye(len(self.base), dtype=int), -np.eye(len(self.base), dtype=int)])
        moved = (X[:, None, :] + steps).reshape(-1, len(self.base))
        inside: Array = moved[((moved >= self.low) & (moved <= self.high)).all(axis=1)]
        return inside

    def bootstrap(self, levels: int = 6) -> tuple[Config, ...]:
        """Return the first configurations to run: all operators alike on several levels, then each at its maximum.

        Levels are rounded half up, clamped to an operator's own bounds, and repeated ones are left out.

        Parameters
        ----------
        levels : int
            Number of levels between base and maximum.

        Examples
        --------
        >>> Lattice((2, 3), 9).bootstrap(2)
        ((3, 3), (9, 9), (9, 3), (2, 9))
        """
        levels = whole(levels, "levels", low=1)
        first, last = max(self.base), max(self.max_parallelism)
        step = (last - first) / (levels - 1) if levels > 1 else 0.0
        alike = [self.clamp([math.floor(first + i * step + 0.5)] * len(self.base)) for i in range(levels)]
        alone = [(*self.base[:i], self.max_parallelism[i], *self.base[i + 1 :]) for i in range(len(self.base))]
        return tuple(dict.fromkeys(alike + alone))

    def dimensions(self) -> list[Any]:
        """Return the box as scikit-optimize's dimensions, scaled to [0, 1]; a fixed operator is a single category.

        Examples
        --------
        >>> len(Lattice((2, 3), 9).dimensions())
        2
        """
        from skopt.space import Categorical, Integer

        return [
            Integer(a, b, transform="normalize") if a < b else Categorical([a], transform="label")
            for a, b in zip(self.base, self.max_parallelism, strict=True)
        ]


def _whole(values: Any, name: str) -> Config:
    try:
        given = tuple(values)
        found = tuple(operator.index(v) for v in given if not isinstance(v, bool))
        if not found or len(found) != len(given) or min(found) < 1 or max(found) > MOST:
            raise TypeError
    except TypeError:
        raise ArgumentError(
            f"{name}={values!r:.80}",
            expected=f"whole numbers of instances from 1 to {MOST:,}",
            fix="one for each operator",
        ) from None
    return found
