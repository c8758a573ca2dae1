"""Knobs: the typed, bounded fields of a frozen dataclass, from which sliders draw themselves."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from .errors import KnobError

LINES = ("busy", "latency")  # rows of a timeline that thresholds are drawn on: busy share, latency in seconds
_LONGEST = 20  # of a sequence that is shown in full


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
    line: str = "",
) -> Any:
    """A dataclass field with its range, unit, one sentence of help, and where its default comes from.

    `low` and `high` bound what is accepted. An infinite end means "as far as you like", and no slider is drawn;
    infinity itself is accepted only with `infinite`. Two whole bounds make a knob of whole numbers. A threshold names
    in `line` the row of `plots.timeline` on which it is a line: one of LINES.
    """
    if line and line not in LINES:
        raise KnobError(f"line={line!r}", expected=f"one of {', '.join(LINES)}", fix="leave it out for no line")
    meta = dict(help=help, low=low, high=high, choices=choices, unit=unit, source=source, infinite=infinite, line=line)
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
    infinite: bool = False
    line: str = ""


class Knobs:
    """Base of dataclasses whose fields are made with `knob()`: checks each value when one is made.

    Numbers are kept as plain int and float, whatever kind they came as (numpy's, say).

    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     target: float = knob(0.7, "busy share to aim at", low=0.1, high=1.0)
    >>> Rule(target=2)
    Traceback (most recent call last):
    dspkit.errors.KnobError: got Rule.target = 2; expected a number from 0.1 to 1.0; busy share to aim at
    """

    def __post_init__(self) -> None:
        for k in knobs(self):
            object.__setattr__(self, k.name, _checked(type(self).__name__, k))


def knobs(thing: Any) -> Iterator[Knob]:
    """The knobs of a dataclass (defaults) or of one made from it (present values)."""
    for f in dataclasses.fields(thing):
        if meta := f.metadata.get("knob"):
            value = f.default if isinstance(thing, type) else getattr(thing, f.name)
            yield Knob(f.name, value, **meta)


def thresholds(thing: Any) -> dict[str, tuple[str, float]]:
    """The thresholds among the knobs of a policy, and of the policy in a guard: {name: (row, value)}.

    >>> from dspkit.policies.elysium import Elysium
    >>> thresholds(Elysium())
    {'core min': ('busy', 0.25), 'core max': ('busy', 0.65)}
    """
    if not dataclasses.is_dataclass(thing):
        return {}
    inner = getattr(thing, "policy", None)
    found = thresholds(inner) if inner is not None else {}
    return found | {k.name.replace("_", " "): (k.line, k.value) for k in knobs(thing) if k.line}


def call(thing: Any) -> str:
    """The call that makes `thing`, a dataclass, with only what differs from its defaults.

    It is code that makes the same again, but for long sequences, and things that say in `summed` what they are:
    both are in <>.

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
        if f.init and value != default:
            parts.append(f"{f.name}={_code(value)}")
    return f"{type(thing).__name__}({', '.join(parts)})"


def _code(value: Any) -> str:
    if isinstance(summed := getattr(value, "summed", None), str):
        return f"<{summed}>"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return call(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_code(k)}: {_code(v)}' for k, v in value.items())}}}"
    if type(value) is tuple:
        if len(value) > _LONGEST:
            return f"<{len(value)} values, {_code(value[0])} to {_code(value[-1])}>"
        return f"({', '.join(map(_code, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _checked(owner: str, k: Knob) -> Any:
    """The knob's value as it is kept, or a KnobError."""
    if k.choices:
        if k.value not in k.choices:
            raise _wrong(owner, k, f"one of {', '.join(map(repr, k.choices))}")
        return k.choices[k.choices.index(k.value)]  # False, not the 0 that equals it
    if k.low is None and k.high is None:
        return k.value
    low, high = -math.inf if k.low is None else k.low, math.inf if k.high is None else k.high
    whole = isinstance(k.low, int) and isinstance(k.high, int)
    kind: Any = Integral if whole else Real
    try:
        value = (int if whole else float)(k.value) if isinstance(k.value, kind) else math.nan
    except OverflowError:  # a whole number beyond all floats
        value = math.nan
    if isinstance(k.value, bool) or not low <= value <= high or not (k.infinite or math.isfinite(value)):
        noun = "whole number" if whole else "number" if k.infinite or math.isfinite(high - low) else "finite number"
        raise _wrong(owner, k, f"a {noun} from {low} to {high}")
    return value


def _wrong(owner: str, k: Knob, expected: str) -> KnobError:
    return KnobError(f"{owner}.{k.name} = {k.value!r}", expected=expected, fix=k.help)
