"""Names and numbers as checked, read-only arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..errors import DspkitError, PlacementError

Array = np.ndarray[Any, Any]


def names(given: Any, what: str) -> tuple[str, ...]:
    """Distinct names, at least one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise PlacementError(f"{what}s {given!r}"[:100], expected=f"names of {what}s", fix="pass a tuple of names")
    if wrong := [n for n in given if not isinstance(n, str) or not n]:
        raise PlacementError(f"{what} {wrong[0]!r}", expected="a name", fix="name each by a word")
    if not given:
        raise PlacementError(f"no {what}", expected="at least one", fix=f"add a {what}")
    if len(set(given)) < len(given):
        twice = next(n for n in given if list(given).count(n) > 1)
        raise PlacementError(f"{what} {twice!r} twice", expected="each once", fix="rename one")
    return tuple(given)


def whole(given: Any, what: str, low: int = 0, kind: type[DspkitError] = PlacementError) -> int:
    """A whole number from `low` on."""
    if not isinstance(given, Integral) or isinstance(given, bool) or given < low:
        raise kind(f"{what} = {given!r}"[:100], expected=f"a whole number from {low}", fix="correct it")
    return int(given)


def number(
    given: Any, what: str, low: float = 0.0, *, open_low: bool = False, infinite: bool = False,
    kind: type[DspkitError] = PlacementError,
) -> float:  # fmt: skip
    """A number from `low` on, or above it."""
    value = float(given) if isinstance(given, Real) and not isinstance(given, bool) else math.nan
    fits = value > low if open_low else value >= low
    if not fits or not (infinite or math.isfinite(value)):
        wanted = f"a {'' if infinite else 'finite '}number {'above' if open_low else 'from'} {low:g}"
        raise kind(f"{what} = {given!r}"[:100], expected=wanted, fix="correct it")
    return value


def vector(
    given: Any, keys: tuple[Any, ...], what: str, *, low: float, high: float | None = None, open_low: bool = False
) -> Array:
    """One number for each key: given as one for all, in order, or by key."""
    if isinstance(given, Mapping):
        if set(given) != set(keys):
            odd = next(iter(set(given) ^ set(keys)))
            raise PlacementError(
                f"{what} with {odd!r} {'too much' if odd in given else 'missing'}",
                expected="a number for each and no other",
                fix="correct the mapping",
            )
        given = [given[k] for k in keys]
    made = _numbers(given, what)
    if made.ndim == 0:
        made = np.full(len(keys), float(made))
    if made.shape != (len(keys),):
        raise PlacementError(f"{what} of shape {made.shape}", expected=f"{len(keys)} numbers", fix="one each, or one")
    return _checked(made, keys, what, low, high, open_low)


def square(given: Any, size: int, what: str, *, loop: float, low: float, high: float, open_low: bool = False) -> Array:
    """One number for each ordered pair of nodes; the diagonal, a node with itself, is `loop`."""
    made = _numbers(given, what)
    if made.ndim == 0:
        made = np.full((size, size), float(made))
    if made.shape != (size, size):
        raise PlacementError(
            f"{what} of shape {made.shape}", expected=f"{size} rows of {size} numbers", fix="a row for each node"
        )
    np.fill_diagonal(made, loop)
    keys = np.array([f"{u} to {v}" for u in range(size) for v in range(size)]) if size < 40 else np.arange(size * size)
    return _checked(made.ravel(), tuple(keys.tolist()), what, low, high, open_low).reshape(size, size)


def _numbers(given: Any, what: str) -> Array:
    try:
        made = np.array(given, np.float64)
    except (TypeError, ValueError):
        made = None
    if made is None or np.asarray(given).dtype == bool:
        raise PlacementError(f"{what} = {given!r}"[:100], expected="numbers", fix="correct the values")
    return made


def _checked(made: Array, keys: tuple[Any, ...], what: str, low: float, high: float | None, open_low: bool) -> Array:
    top = np.inf if high is None else high
    good = ((made > low) if open_low else (made >= low)) & (made <= top)
    if high is None:
        good &= np.isfinite(made)
    if not good.all():
        bad = int(np.flatnonzero(~good)[0])
        sign = ">" if open_low else ">="
        limit = f" and <= {high:g}" if high is not None and math.isfinite(high) else ""
        limit = " and finite" if high is None else limit
        fix = "leave such a node out" if what == "availability" else "correct it"
        raise PlacementError(f"{what} of {keys[bad]!r} = {made[bad]}", expected=f"{sign} {low:g}{limit}", fix=fix)
    made.setflags(write=False)
    return made
