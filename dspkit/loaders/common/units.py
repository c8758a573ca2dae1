"""Quantities, their units, and the check of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .base import LoaderError

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_UNITS: dict[str, dict[str, tuple[float, str]]] = {
    "rate": {
        "records/s": (1.0, "now"),
        "records/ms": (1e3, "now"),
        "records/min": (1 / 60, "now"),
        "records/h": (1 / 3600, "now"),
        "records": (1.0, "window"),  # within the window
        "counter": (1.0, "total"),  # since some start
    },
    "share": {
        "share": (1.0, "now"),
        "percent": (0.01, "now"),
        "ms/s": (1e-3, "now"),
        **{unit: (factor, "window") for unit, factor in _TIMES.items()},
        **{f"counter {unit}": (factor, "total") for unit, factor in _TIMES.items()},
    },
    "cores": {
        "cores": (1.0, "now"),
        "percent": (0.01, "now"),
        **{unit: (factor, "window") for unit, factor in _TIMES.items()},
        **{f"counter {unit}": (factor, "total") for unit, factor in _TIMES.items()},
    },
    "time": {unit: (factor, "now") for unit, factor in _TIMES.items()},
    "records": {"records": (1.0, "now")},
    "instances": {"instances": (1.0, "now")},
}
QUANTITIES = {
    "input_rate": "rate",
    "processing_rate": "rate",
    "output_rate": "rate",
    "dropped": "rate",
    "true_rate": "rate",  # of one instance
    "capacity": "rate",  # true rate of all instances together
    "utilisation": "share",
    "blocked": "share",
    "cpu": "cores",
    "backlog": "records",
    "waited_s": "time",
    "parallelism": "instances",
}
BEYOND_S = 1e11  # from 1970: beyond any time, except one in milliseconds that was declared as seconds
OPTIONAL = frozenset({"true_rate", "capacity", "cpu", "blocked", "waited_s", "backlog"})  # a row is usable without


class Unusable(Exception):
    """An invalid value; the text is the reason."""


@dataclass(frozen=True)
class Unit:
    """A factor, and `how` the value counts: "now" (a current value), in this "window", or in "total" so far."""

    factor: float
    how: str


def unit(quantity: str, name: str | None = None) -> Unit:
    """The unit of that name for a quantity; None is the unit that dspkit itself uses.

    >>> unit("utilisation", "ms/s"), unit("processing_rate").how
    (Unit(factor=0.001, how='now'), 'now')
    """
    if quantity not in QUANTITIES:
        raise LoaderError(
            f"quantity {quantity!r}", expected=f"one of {', '.join(QUANTITIES)}", fix="use one of these in the mapping"
        )
    known = _UNITS[QUANTITIES[quantity]]
    name = next(iter(known)) if name is None else name
    if name not in known or (known[name][1] != "now" and quantity in ("true_rate", "capacity")):
        raise LoaderError(
            f"unit {name!r} for {quantity}",
            expected=f"one of {', '.join(known)}",
            fix="use one of these in the mapping",
        )
    return Unit(*known[name])


def units_of(quantity: str) -> tuple[str, ...]:
    """Return the names of the units that a column of a quantity may have; none where there is but one.

    >>> units_of("true_rate"), units_of("backlog")
    (('records/s', 'records/ms', 'records/min', 'records/h'), ())
    """
    known = _UNITS.get(QUANTITIES.get(quantity, ""), {})
    present = quantity in ("true_rate", "capacity")  # which are no counts
    names = tuple(name for name, (_, how) in known.items() if how == "now" or not present)
    return names if len(names) > 1 else ()


def number(value: Any, *, text: bool = False, signed: bool = False) -> float:
    """Return a finite number, not negative unless `signed`, or raise Unusable; `text` allows numbers as text."""
    if value is None or (text and isinstance(value, str) and not value.strip()):
        raise Unusable("missing")
    if isinstance(value, bool) or not (text if isinstance(value, str) else hasattr(value, "__float__")):
        raise Unusable("not a number")
    try:
        if isinstance(value, str) and "_" in value:  # a form of numbers that only Python accepts
            raise ValueError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise Unusable("not a number") from None
    if math.isnan(found):
        raise Unusable("NaN")
    if math.isinf(found):
        raise Unusable("infinite")
    if found < 0 and not signed:
        raise Unusable("negative")
    return found + 0.0  # -0.0 is 0


def dated(value: Any) -> float | None:
    """Return seconds since 1970 of a date and time, in UTC where it names no zone; None for other values.

    >>> dated("2026-01-01T00:00:10+00:00") - dated("2026-01-01 00:00:00"), dated("20260101"), dated(7.5)
    (10.0, None, None)
    """
    try:
        if isinstance(value, str) and value.strip()[4:5] == "-":
            value = datetime.fromisoformat(value.strip())
        if not isinstance(value, datetime):
            return None
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def whole(value: Any, *, text: bool = False) -> int:
    """Return a number of instances, from 1 up."""
    found = number(value, text=text)
    if found != int(found) or not 1 <= found <= 1_000_000:
        raise Unusable("not a number of instances")
    return int(found)
