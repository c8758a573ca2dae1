"""Where a search looks: every whole number of instances from the base k' up to the most, operator by operator."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import CapacityError, KnobError
from ._given import numbers, whole

Array = np.ndarray[Any, np.dtype[Any]]
Config = tuple[int, ...]
ENUMERATED = 200_000  # points up to which all are looked at
MOST = 10**9  # instances; more is a mistake


@dataclass(frozen=True)
class Lattice:
    """The configurations k with $k'_i \\le k_i \\le P_{max}$. `most` is one number for all operators, or one for each.

    >>> box = Lattice(base=(3, 4, 12, 10), most=40)
    >>> box.size, box.bootstrap(3)
    (1263994, ((12, 12, 12, 12), (26, 26, 26, 26), (40, 40, 40, 40),
      (40, 4, 12, 10), (3, 40, 12, 10), (3, 4, 40, 10), (3, 4, 12, 40)))
    """

    base: Config
    most: Config

    def __init__(self, base: Iterable[int], most: int | Iterable[int]):
        low = _whole(base, "base")
        high = _whole(most if isinstance(most, Iterable) else [most] * len(low), "most")
        if len(low) != len(high):
            raise KnobError(f"{len(low)} and {len(high)} operators", expected="the same number", fix="see Lattice")
        if short := [i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a > b]:
            raise CapacityError(
                f"a base of {low} instances with room for {high}",
                expected="room for the base at least",
                fix=f"the cluster is too small for operator {short[0]}: raise the most, or lower the load",
            )
        object.__setattr__(self, "base", low)
        object.__setattr__(self, "most", high)

    @cached_property
    def low(self) -> Array:
        return np.array(self.base)

    @cached_property
    def high(self) -> Array:
        return np.array(self.most)

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return math.prod(b - a + 1 for a, b in zip(self.base, self.most, strict=True))

    def __contains__(self, k: Any) -> bool:
        try:
            found = [operator.index(x) for x in k]
        except TypeError:
            return False
        inside = zip(self.base, found, self.most, strict=False)
        return len(found) == len(self.base) and all(a <= x <= b for a, x, b in inside)

    def scaled(self, X: Any) -> Array:
        """Configurations as points of the unit cube; 0 along an operator that cannot vary."""
        X = np.atleast_2d(numbers(X, "configurations"))
        if X.ndim != 2 or X.shape[1] != len(self.base):
            raise KnobError(
                f"configurations of shape {X.shape}",
                expected=f"{len(self.base)} operators each",
                fix="one job, one box",
            )
        span = np.where(self.high > self.low, self.high - self.low, 1)
        scaled: Array = np.where(self.high > self.low, (X - self.low) / span, 0.0)
        return scaled

    def clamp(self, k: Iterable[float]) -> Config:
        """The nearest configuration of the box."""
        given = numbers([*k], "a configuration", infinite=True)
        if given.shape != (len(self.base),):
            raise KnobError(f"{given.shape} instances", expected=f"{len(self.base)} of them", fix="one per operator")
        return tuple(round(min(max(x, a), b)) for x, a, b in zip(given.tolist(), self.base, self.most, strict=True))

    def points(self) -> Array:
        """Every configuration, one a row; for boxes of at most ENUMERATED."""
        if self.size > ENUMERATED:
            raise CapacityError(f"{self.size:,} points", expected=f"at most {ENUMERATED:,}", fix="use draw() instead")
        sides = [np.arange(a, b + 1) for a, b in zip(self.base, self.most, strict=True)]
        every: Array = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, len(sides))
        return every

    def draw(self, random: np.random.Generator, count: int) -> Array:
        """Configurations at random, all equally likely."""
        drawn: Array = random.integers(self.low, self.high + 1, (whole(count, "count"), len(self.base)))
        return drawn

    def neighbours(self, X: Array, step: int = 1) -> Array:
        """Each row with one operator `step` instances up or down, those inside the box."""
        steps = step * np.vstack([np.eye(len(self.base), dtype=int), -np.eye(len(self.base), dtype=int)])
        moved = (X[:, None, :] + steps).reshape(-1, len(self.base))
        inside: Array = moved[((moved >= self.low) & (moved <= self.high)).all(axis=1)]
        return inside

    def bootstrap(self, levels: int = 6) -> tuple[Config, ...]:
        """The first runs: all operators alike on `levels` levels up to the most, then one of them alone at the most.

        Levels are rounded half up, what is beyond an operator's own bounds is clamped, and doubles are left out.
        """
        levels = whole(levels, "levels", low=1)
        first, last = max(self.base), max(self.most)
        step = (last - first) / (levels - 1) if levels > 1 else 0.0
        alike = [self.clamp([math.floor(first + i * step + 0.5)] * len(self.base)) for i in range(levels)]
        alone = [(*self.base[:i], self.most[i], *self.base[i + 1 :]) for i in range(len(self.base))]
        return tuple(dict.fromkeys(alike + alone))

    def dimensions(self) -> list[Any]:
        """The box as scikit-optimize's dimensions, scaled to [0, 1] as here; an empty range is a single category."""
        from skopt.space import Categorical, Integer

        return [
            Integer(a, b, transform="normalize") if a < b else Categorical([a], transform="label")
            for a, b in zip(self.base, self.most, strict=True)
        ]


def _whole(values: Any, name: str) -> Config:
    try:
        given = tuple(values)
        found = tuple(operator.index(v) for v in given if not isinstance(v, bool))
        if not found or len(found) != len(given) or min(found) < 1 or max(found) > MOST:
            raise TypeError
    except TypeError:
        raise KnobError(
            f"{name}={values!r:.80}",
            expected=f"whole numbers of instances from 1 to {MOST:,}",
            fix="one for each operator",
        ) from None
    return found
