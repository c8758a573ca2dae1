"""Knobs: typed, bounded fields of frozen dataclasses, for which notebooks draw sliders, and their form as code.

`call` prints settings as the Python that creates them. `read_literal` reads this text back without evaluating it: only
listed names may be called. `is_printed_code` recognises the code that views and experiments print: imports from dspkit,
calls of its names, and literals.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import ArgumentError, DspkitError, KnobError, visible
from .validation import is_number, is_whole

LINES = ("busy", "latency")  # rows of a timeline on which thresholds are drawn: busy share, latency in seconds
PACES = ("duration", "rate")  # how the value of a knob changes if a policy runs at another pace
T = TypeVar("T")
_LONGEST = 20  # items of a sequence that is shown in full


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
    pace: str = "",
) -> Any:
    """Return a dataclass field with its range, unit, description and the source of its default.

    Two whole bounds make a knob of whole numbers. An infinite bound means that no slider is drawn; infinity itself is
    accepted only with `infinite`.

    Parameters
    ----------
    default : object
        Default value.
    help : str
        One sentence that describes the knob.
    low, high : float, optional
        Bounds of the accepted values.
    choices : tuple
        The accepted values, in the place of bounds.
    unit : str
        Unit of the value.
    source : str
        Where the default comes from, such as a table of a paper, or the paper's symbol.
    infinite : bool
        Whether infinity is accepted.
    line : str
        For a threshold, the row of `plots.timeline` in which it is drawn: one of LINES.
    pace : str
        "duration" for a period, an interval or a warm-up, which is shorter in a live preset, "rate" for what it raises;
        empty for what the pace does not change, such as a latency target. See `at_pace`.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     target: float = knob(0.7, "busy share to aim at", low=0.1, high=1.0)
    >>> Rule().target
    0.7
    """
    for name, value, known in (("line", line, LINES), ("pace", pace, PACES)):
        if value and value not in known:
            raise ArgumentError(f"{name}={value!r}", expected=f"one of {', '.join(known)}", fix="leave it out for none")
    meta = dict(help=help, low=low, high=high, choices=choices, unit=unit, source=source, infinite=infinite)
    meta |= dict(line=line, pace=pace)
    return dataclasses.field(default=default, metadata={"knob": meta})


@dataclass(frozen=True)
class Knob:
    """One knob with its present value, as a notebook's slider needs it.

    Parameters
    ----------
    name : str
        Name of the field.
    value : object
        Present value, or the default.
    help, low, high, choices, unit, source, infinite, line, pace
        As for `knob`.

    Examples
    --------
    >>> from dspkit.policies.ds2 import DS2
    >>> isinstance(next(knobs_of(DS2)), Knob)
    True
    """

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
    pace: str = ""


class Knobs:
    """Base class of dataclasses whose fields are made with `knob()`; validates each value on construction.

    Numbers are stored as plain int and float, also if they are given as numpy's.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     target: float = knob(0.7, "busy share to aim at", low=0.1, high=1.0)
    >>> Rule(target=2)
    Traceback (most recent call last):
    dspkit.core.errors.KnobError: got Rule.target = 2; expected a number from 0.1 to 1.0; busy share to aim at
    """

    def __post_init__(self) -> None:
        for k in knobs_of(self):
            object.__setattr__(self, k.name, _checked(type(self).__name__, k))


def knobs_of(thing: Any) -> Iterator[Knob]:
    """Yield the knobs of a dataclass, with defaults, or of an instance, with its present values.

    Parameters
    ----------
    thing : type or object
        A dataclass or an instance of one.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     target: float = knob(0.7, "busy share to aim at", low=0.1, high=1.0)
    >>> [(k.name, k.value, k.high) for k in knobs_of(Rule(0.8))]
    [('target', 0.8, 1.0)]
    """
    for f in dataclasses.fields(thing):
        if meta := f.metadata.get("knob"):
            value = f.default if isinstance(thing, type) else getattr(thing, f.name)
            yield Knob(f.name, value, **meta)


def at_pace(thing: T, factor: float) -> T:
    """Return a copy of a dataclass whose durations are multiplied by `factor`, and whose rates are divided by it.

    Values stay within the bounds of their knobs.

    Parameters
    ----------
    thing : object
        An instance of a dataclass with knobs.
    factor : float
        Length of a second of the copy; below 1 it is faster.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Rule(Knobs):
    ...     cooldown_s: float = knob(60.0, "time without a change after one", low=1.0, high=600.0, pace="duration")
    >>> at_pace(Rule(), 0.1).cooldown_s
    6.0
    """
    changed = {}
    for k in knobs_of(thing):
        if k.pace and is_number(k.value) and math.isfinite(k.value):
            value = k.value * factor if k.pace == "duration" else k.value / factor
            low, high = -math.inf if k.low is None else k.low, math.inf if k.high is None else k.high
            changed[k.name] = min(max(round(value, 9), low), high)
    return dataclasses.replace(thing, **changed) if changed else thing  # type: ignore[type-var]


def thresholds(thing: Any) -> dict[str, tuple[str, float]]:
    """Return the thresholds among the knobs of a policy, and of the policy inside a guard: {name: (row, value)}.

    Parameters
    ----------
    thing : object
        A policy; anything but a dataclass has no thresholds.

    Examples
    --------
    >>> from dspkit.policies.elysium import Elysium
    >>> thresholds(Elysium())
    {'scale in below': ('busy', 0.25), 'scale out above': ('busy', 0.65)}
    """
    if not dataclasses.is_dataclass(thing):
        return {}
    inner = getattr(thing, "policy", None)
    found = thresholds(inner) if inner is not None else {}
    return found | {k.name.replace("_", " "): (k.line, k.value) for k in knobs_of(thing) if k.line}


def call(thing: Any) -> str:
    """Return the call that creates a dataclass instance, with only the arguments that differ from their defaults.

    The text is valid code except for long sequences and for values with an attribute `summed`, whose summaries stand
    in <>.

    Parameters
    ----------
    thing : object
        An instance of a dataclass.

    Examples
    --------
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
            parts.append(f"{f.name}={code_of(value)}")
    return f"{type(thing).__name__}({', '.join(parts)})"


def code_of(value: Any) -> str:
    """Return a value as code: a literal, or the call of a dataclass.

    Examples
    --------
    >>> code_of({"a": (1.5, math.inf)})
    "{'a': (1.5, float('inf'))}"
    """
    if isinstance(summed := getattr(value, "summed", None), str):
        return f"<{visible(' '.join(summed.split()))}>"  # in one line: it may quote a name from a file
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return call(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{code_of(k)}: {code_of(v)}' for k, v in value.items())}}}"
    if type(value) is tuple:
        if len(value) > _LONGEST:
            return f"<{len(value)} values, {code_of(value[0])} to {code_of(value[-1])}>"
        return f"({', '.join(map(code_of, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _checked(owner: str, k: Knob) -> Any:
    """Return the knob's value as it is stored, or raise a KnobError."""
    if k.choices:
        if k.value not in k.choices:
            raise _wrong(owner, k, f"one of {', '.join(map(repr, k.choices))}")
        return k.choices[k.choices.index(k.value)]  # False, not the 0 that equals it
    if k.low is None and k.high is None:
        return k.value
    low, high = -math.inf if k.low is None else k.low, math.inf if k.high is None else k.high
    whole = isinstance(k.low, int) and isinstance(k.high, int)
    try:
        value = (int if whole else float)(k.value) if (is_whole if whole else is_number)(k.value) else math.nan
    except OverflowError:  # a whole number beyond all floats
        value = math.nan
    if not low <= value <= high or not (k.infinite or math.isfinite(value)):
        noun = "whole number" if whole else "number" if k.infinite or math.isfinite(high - low) else "finite number"
        raise _wrong(owner, k, f"a {noun} from {low} to {high}")
    return value


def _wrong(owner: str, k: Knob, expected: str) -> KnobError:
    return KnobError(f"{owner}.{k.name} = {k.value!r}", expected=expected, fix=k.help)


MOST_LETTERS = 100_000  # bound of a text to read: settings have a few hundred letters


class LiteralError(ArgumentError):
    """A text that is not one of the permitted calls."""


def read_literal(text: str, constructors: Mapping[str, Callable[..., Any]]) -> Any:
    """Read one expression of numbers, words, tuples, lists, mappings, and calls of the names in `constructors`.

    `float("inf")` is permitted too, since infinity has no other literal. Nothing is evaluated: other code is rejected,
    and errors of a constructor are raised unchanged.

    Parameters
    ----------
    text : str
        The expression, such as the output of `call`.
    constructors : mapping
        Callables by the names that the text may use.

    Examples
    --------
    >>> read_literal("dict(a=(1, -2.5), b=['x', None])", {"dict": dict})
    {'a': (1, -2.5), 'b': ['x', None]}
    >>> read_literal("__import__('os')", {})
    Traceback (most recent call last):
    dspkit.core.parameters.LiteralError: got __import__('os'); expected numbers, words, tuples, mappings; copy it whole
    """
    if not isinstance(text, str):
        raise LiteralError(f"{text!r:.80}", expected="a text", fix="copy it whole, within quotes")
    if len(text) > MOST_LETTERS:
        raise LiteralError(
            f"{len(text):,} letters", expected=f"at most {MOST_LETTERS:,}", fix="check that it is the right text"
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _made(tree, {"float": _infinity, **constructors})
    except (SyntaxError, RecursionError, MemoryError, TypeError, ValueError) as error:
        if isinstance(error, DspkitError):
            raise
        shown = text.strip()[:80]
        raise LiteralError(f"{shown!r} ({error})", expected="one line of code", fix="copy it whole") from None


def _made(node: ast.expr, known: Mapping[str, Callable[..., Any]]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Call() as inner) if inner.args and not inner.keywords:
            made = _made(inner, known)
            if isinstance(made, float):
                return -made
        case ast.Tuple(elts=parts):
            return tuple(_made(part, known) for part in parts)
        case ast.List(elts=parts):
            return [_made(part, known) for part in parts]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            pairs = [(_made(k, known), _made(v, known)) for k, v in zip(keys, values, strict=True) if k is not None]
            if len(made := dict(pairs)) < len(pairs):
                raise LiteralError(f"{ast.unparse(node)[:80]}", expected="each key once", fix="drop one of them")
            return made
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in known:
            if all(k.arg for k in keywords) and not any(isinstance(a, ast.Starred) for a in args):
                named = {str(k.arg): _made(k.value, known) for k in keywords}
                if len(named) < len(keywords):
                    raise LiteralError(f"{ast.unparse(node)[:80]}", expected="each argument once", fix="drop one")
                return _called(name, known[name], [_made(a, known) for a in args], named)
    names = ", ".join(sorted(set(known) - {"float"})[:12])
    calls = f" and calls of {names}" + (", …" if len(known) > 13 else "") if names else ""
    raise LiteralError(ast.unparse(node)[:80], expected=f"numbers, words, tuples, mappings{calls}", fix="copy it whole")


def _called(name: str, make: Callable[..., Any], args: list[Any], named: dict[str, Any]) -> Any:
    try:
        return make(*args, **named)
    except TypeError as error:
        raise LiteralError(f"{name}: {error}", expected="its own arguments", fix="check their names") from None


def _infinity(text: Any) -> float:
    if text in ("inf", "-inf"):
        return float(text)
    raise LiteralError(f"float({text!r})", expected="float('inf') or float('-inf')", fix="write the number itself")


_PACKAGE = __name__.partition(".")[0]
_CLASS = re.compile(r"[A-Z]\w*")
_FROM_TOP = frozenset("Experiment apps plots run simulator workload".split())
_METHODS = frozenset("items managed run simulator spark timeline under variant".split())
_GIVEN = frozenset(("backend", "float", "app"))  # what the reader has: a backend or application of his own
_MOST_CODE = 100_000


def is_printed_code(text: str) -> bool:
    """Return whether a text is such code as dspkit prints, with which a file of another person does no more than that.

    Only names and classes of dspkit may be imported, and only some functions and methods be called, with literals.

    Examples
    --------
    >>> is_printed_code("from dspkit import Experiment\\nhistory = Experiment(app='star', policy='ds2').run()")
    True
    >>> is_printed_code("from os import system\\nsystem('id')")
    False
    """
    if len(text) > _MOST_CODE:
        return False
    try:
        return _block(ast.parse(text).body, set(_GIVEN))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _block(statements: list[ast.stmt], known: set[str]) -> bool:
    return all(_statement(statement, known) for statement in statements)


def _statement(statement: ast.stmt, known: set[str]) -> bool:
    match statement:
        case ast.ImportFrom(module=str() as module, names=names, level=0):
            top, inner = module == _PACKAGE, module.startswith(f"{_PACKAGE}.")
            known |= {name.name for name in names}
            return all(
                name.asname is None and ((inner and _CLASS.fullmatch(name.name)) or (top and name.name in _FROM_TOP))
                for name in names
            )
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in ("app", "history", "policies", "runs"):
            fine = _value(value, known)
            known.add(name)
            return fine
        case ast.With(items=[ast.withitem(context_expr=made, optional_vars=ast.Name(id="job"))], body=body):
            fine = _value(made, known)
            known.add("job")
            return fine and _block(body, known)
        case ast.Expr(value=value):
            return _value(value, known)
    return False


def _value(node: ast.expr | None, known: set[str]) -> bool:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return True
        case ast.Name(id=name):
            return name in known
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _value(inner, known)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_value(part, known) for part in parts)
        case ast.Dict(keys=keys, values=values):
            return None not in keys and all(_value(part, known) for part in (*keys, *values))
        case ast.Attribute(value=ast.Name(id="app"), attr="plant"):
            return True
        case ast.Call(func=function, args=args, keywords=keywords):
            named = [keyword.value for keyword in keywords]
            return (
                all(keyword.arg for keyword in keywords)
                and _function(function, known)
                and all(_value(part, known) for part in (*args, *named))
            )
        case ast.DictComp(
            key=ast.Name(id="name"),
            value=value,
            generators=[ast.comprehension(target=ast.Tuple(elts=[ast.Name(id="name"), ast.Name(id="policy")]), ifs=[])],
        ):
            return _value(node.generators[0].iter, known) and _value(value, known | {"name", "policy"})
    return False


def _function(node: ast.expr, known: set[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in known
        case ast.Attribute(value=ast.Name(id="apps"), attr=name):
            return "apps" in known and not name.startswith("_")
        case ast.Attribute(value=ast.Name(id="workload"), attr=name):
            return "workload" in known and bool(_CLASS.fullmatch(name))
        case ast.Attribute(value=made, attr=name):
            return name in _METHODS and _value(made, known)
    return False
