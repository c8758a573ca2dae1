"""Checked, read-only arrays from names and numbers, and what compiled searches do with arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core import PlacementError
from ..core.jit import inlined
from ..core.typing import Array

TINY = 1e-9  # by which two costs may differ and still be equal


@inlined
def copy(into: Array, of: Array) -> None:
    for k in range(len(into)):
        into[k] = of[k]


def names(given: Any, what: str) -> tuple[str, ...]:
    """Return the names as a tuple: distinct, at least one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise PlacementError(f"{what}s {given!r}"[:100], expected=f"names of {what}s", fix="pass a tuple of names")
    if wrong := [n for n in given if not isinstance(n, str) or not n]:
        raise PlacementError(f"{what} {wrong[0]!r}", expected="a name", fix="pass non-empty strings")
    if not given:
        raise PlacementError(f"no {what}", expected="at least one", fix=f"add a {what}")
    if len(set(given)) < len(given):
        twice = next(n for n in given if list(given).count(n) > 1)
        raise PlacementError(f"{what} {twice!r} twice", expected="each once", fix="rename one")
    return tuple(given)


def vector(
    given: Any, keys: tuple[Any, ...], what: str, *, low: float, high: float | None = None, open_low: bool = False
) -> Array:
    """Return one number per key, from a single number, numbers in order, or a mapping by key."""
    if isinstance(given, Mapping):
        if set(given) != set(keys):
            odd = next(iter(set(given) ^ set(keys)))
            raise PlacementError(
                f"{what} with {odd!r} {'unknown' if odd in given else 'missing'}",
                expected="a number for each and no other",
                fix="pass a number for each, and leave others out",
            )
        given = [given[k] for k in keys]
    made = _numbers(given, what)
    if made.ndim == 0:
        made = np.full(len(keys), float(made))
    if made.shape != (len(keys),):
        raise PlacementError(f"{what} of shape {made.shape}", expected=f"{len(keys)} numbers", fix="one each, or one")
    return _checked(made, keys, what, low, high, open_low)


def square(given: Any, size: int, what: str, *, loop: float, low: float, high: float, open_low: bool = False) -> Array:
    """Return one number per ordered pair of nodes; the diagonal, a node with itself, is `loop`."""
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
        raise PlacementError(
            f"{what} = {given!r}"[:100], expected="numbers", fix="replace text and booleans by numbers"
        )
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
        fix = "leave such a node out" if what == "availability" else "replace it by a number in this range"
        raise PlacementError(f"{what} of {keys[bad]!r} = {made[bad]}", expected=f"{sign} {low:g}{limit}", fix=fix)
    made.setflags(write=False)
    return made
