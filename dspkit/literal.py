"""Settings read back from the code that prints them, without running it: only names on a list may be called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from .errors import DspkitError

MOST_LETTERS = 100_000  # of a text that is read: settings are a few hundred


class LiteralError(DspkitError):
    """A text that is not one of the calls it may be."""


def read(text: str, known: Mapping[str, Callable[..., Any]]) -> Any:
    """What `text`, one expression, makes: numbers, words, tuples, lists, mappings, and calls of what `known` names.

    `float("inf")` is known too, since nothing else prints as infinity. Nothing is evaluated: what is not on this list
    is refused, and what a call refuses is its own error.

    >>> read("dict(a=(1, -2.5), b=['x', None])", {"dict": dict})
    {'a': (1, -2.5), 'b': ['x', None]}
    >>> read("__import__('os')", {})
    Traceback (most recent call last):
    dspkit.literal.LiteralError: got __import__('os'); expected numbers, words, tuples, mappings; copy it whole
    """
    if len(text) > MOST_LETTERS:
        raise LiteralError(f"{len(text):,} letters", expected=f"at most {MOST_LETTERS:,}", fix="is it the right text?")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return _made(tree, {"float": _infinity, **known})
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
            pairs = zip(keys, values, strict=True)
            return {_made(k, known): _made(v, known) for k, v in pairs if k is not None}
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in known:
            if all(k.arg for k in keywords) and not any(isinstance(a, ast.Starred) for a in args):
                named = {str(k.arg): _made(k.value, known) for k in keywords}
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
