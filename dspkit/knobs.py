"""Knobs: the typed, bounded fields of a frozen dataclass, from which sliders draw themselves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .errors import KnobError


def knob(
    default: Any,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[Any, ...] = (),
    unit: str = "",
    source: str = "",
    infinite: bool = False,
) -> Any:
    """A dataclass field with its range, unit, one sentence of help, and where its default comes from.

    `low` and `high` bound what is accepted. An infinite end means "as far as you like", and no slider is drawn;
    infinity itself is accepted only with `infinite`. Two whole bounds make a knob of whole numbers.
    """
    meta = dict(help=help, low=low, high=high, choices=choices, unit=unit, source=source, infinite=infinite)
    return dataclasses.field(default=default, metadata={"knob": meta})


@dataclass(frozen=True)
class Knob:
    """One knob as a slider sees it."""

    name: str
    value: Any
    help: str
    low: float | None
    high: float | None
    choices: tuple[Any, ...]
    unit: str
    source: str
    infinite: bool


class Knobs:
    """Base of dataclasses whose fields are made with `knob()`: checks each value when one is made.

    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     target: float = knob(0.7, "busy share to aim at", low=0.1, high=1.0)
    >>> Rule(target=2)
    Traceback (most recent call last):
    dspkit.errors.KnobError: got Rule.target = 2; expected a number from 0.1 to 1.0; busy share to aim at
    """

    def __post_init__(self) -> None:
        for k in knobs(self):
            _check(type(self).__name__, k)


def knobs(thing: Any) -> Iterator[Knob]:
    """The knobs of a dataclass (defaults) or of one made from it (present values)."""
    for f in dataclasses.fields(thing):
        if meta := f.metadata.get("knob"):
            value = f.default if isinstance(thing, type) else getattr(thing, f.name)
            yield Knob(f.name, value, **meta)


def call(thing: Any) -> str:
    """The call that makes `thing`, a dataclass, with only what differs from its defaults.

    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     target: float = knob(0.7, "busy share to aim at", low=0.1, high=1.0)
    >>> call(Rule()), call(Rule(0.8))
    ('Rule()', 'Rule(target=0.8)')
    """
    parts = []
    for f in dataclasses.fields(thing):
        value = getattr(thing, f.name)
        default = f.default if f.default_factory is dataclasses.MISSING else f.default_factory()
        if value != default and (value or default is not None):  # an empty collection is what None became
            parts.append(f"{f.name}={call(value) if dataclasses.is_dataclass(value) else repr(value)}")
    return f"{type(thing).__name__}({', '.join(parts)})"


def _check(owner: str, k: Knob) -> None:
    if k.choices:
        good, expected = k.value in k.choices, f"one of {', '.join(map(repr, k.choices))}"
    elif k.low is None and k.high is None:
        return
    else:
        whole = isinstance(k.low, int) and isinstance(k.high, int)
        low, high = -math.inf if k.low is None else k.low, math.inf if k.high is None else k.high
        expected = f"a {'whole ' if whole else ''}number from {k.low} to {k.high}"
        good = isinstance(k.value, int if whole else (int, float)) and not isinstance(k.value, bool)
        good = good and low <= k.value <= high
    if not good:
        raise KnobError(f"{owner}.{k.name} = {k.value!r}", expected=expected, fix=k.help)
