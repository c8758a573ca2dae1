"""What is given to the scorer, looked at before it is reckoned with: NaN would else come out as a wrong choice."""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Any

import numpy as np

from ..errors import KnobError, MetricError

Array = np.ndarray[Any, np.dtype[Any]]


def numbers(values: Any, what: str, *, low: float = -math.inf, infinite: bool = False) -> Array:
    """An array of numbers, finite unless `infinite` is allowed, none below `low`; NaN and text are refused."""
    try:
        found = np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not ((found >= low) & (True if infinite else np.isfinite(found))).all():
        least = "" if low == -math.inf else f" from {low:g} up"
        expected = f"{'' if infinite else 'finite '}numbers{least}, rows of one length"
        raise MetricError(f"{what} {values!r:.80}", expected=expected, fix="leave out what was not measured")
    return found


def real(value: Any, what: str, *, low: float = -math.inf, above: bool = False) -> float:
    """One finite number, numpy's too, from `low` on, or `above` it."""
    good = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if good and abs(value) < 1e300 else math.nan
    if not (number > low if above else number >= low) or math.isinf(number):
        least = "" if low == -math.inf else f" above {low:g}" if above else f" from {low:g} up"
        raise KnobError(f"{what}={value!r:.80}", expected=f"a finite number{least}", fix="see the docstring")
    return number


def whole(value: Any, what: str, *, low: int = 0) -> int:
    """One whole number, numpy's too."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or number < low:
        raise KnobError(f"{what}={value!r:.80}", expected=f"a whole number from {low} up", fix="see the docstring")
    return number


def choice(value: Any, what: str, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise KnobError(f"{what}={value!r:.80}", expected=f"one of {', '.join(choices)}", fix="choose one of them")
    return value
