"""Argument checks: one function per kind of value, which returns the value as a plain Python type or raises an error.

Each takes the value, its name as the caller knows it, and bounds, which are accepted themselves unless `above` or
`below` rejects them. The error is an `ArgumentError` unless `error` names another class; `fix` states the remedy if
the bounds do not suggest it. Numbers of numpy are accepted; booleans are not numbers, and NaN is never within bounds.
Fields made with `knob()` are checked by `dspkit.core.parameters`.

`FrozenMap` and `plain` make what was checked deeply immutable: frozen dataclasses hold them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ArgumentError, DspkitError, MetricError

if TYPE_CHECKING:
    import numpy as np


def is_whole(value: object) -> bool:
    """Return whether `value` is a whole number, which True and 2.0 are not.

    Examples
    --------
    >>> is_whole(2), is_whole(2.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(*values: object) -> bool:
    """Return whether all values are real numbers, including infinity and NaN, but not booleans.

    Examples
    --------
    >>> is_number(1, 0.5), is_number("1"), is_number(True)
    (True, False, False)
    """
    return all(isinstance(value, Real) and not isinstance(value, bool) for value in values)


def whole(
    value: Any,
    name: str,
    low: int = 0,
    high: int | None = None,
    *,
    error: type[DspkitError] = ArgumentError,
    fix: str = "",
) -> int:
    """Return a whole number within bounds as an int.

    Examples
    --------
    >>> whole(3, "seed")
    3
    >>> whole(2.5, "threads", 1)
    Traceback (most recent call last):
    dspkit.core.errors.ArgumentError: got threads=2.5; expected a whole number from 1 up; pass one, such as 1
    """
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or found < low or (high is not None and found > high):
        expected = f"a whole number from {low} {'up' if high is None else f'to {high}'}"
        raise error(_shown(name, value), expected=expected, fix=fix or f"pass one, such as {low}")
    return found


def number(
    value: Any,
    name: str,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    below: bool = False,
    infinite: bool = False,
    error: type[DspkitError] = ArgumentError,
    fix: str = "",
) -> float:
    """Return a number within bounds as a float, finite unless infinity is allowed.

    Examples
    --------
    >>> number(1, "rate_per_s", 0)
    1.0
    >>> number(0, "window_s", 0, above=True, fix="as in window_s=10")
    Traceback (most recent call last):
    dspkit.core.errors.ArgumentError: got window_s=0; expected a finite number above 0; as in window_s=10
    """
    try:
        found = float(value) if is_number(value) else math.nan
    except OverflowError:  # a whole number beyond all floats
        found = math.nan
    good = (low < found if above else low <= found) and (found < high if below else found <= high)
    if not good or not (infinite or math.isfinite(found)):
        kind = "number" if infinite or math.isfinite(high - low) else "finite number"
        limits = [] if low == -math.inf else [f"above {low:g}" if above else f"from {low:g}"]
        limits += [] if high == math.inf else [f"below {high:g}" if below else f"to {high:g}"]
        up = " up" if limits and not above and high == math.inf else ""
        expected = " ".join([f"a {kind}", *limits]) + up
        raise error(_shown(name, value), expected=expected, fix=fix or "pass such a number")
    return found


def share(value: Any, name: str, *, error: type[DspkitError] = ArgumentError, fix: str = "") -> float:
    """Return a share, a number from 0 to 1, as a float.

    Examples
    --------
    >>> share(1, "scale_out_above")
    1.0
    >>> share(80, "scale_out_above")
    Traceback (most recent call last):
    dspkit.core.errors.ArgumentError: got scale_out_above=80; expected a share from 0 to 1; pass a share, such as 0.8
    """
    if not is_number(value) or not 0 <= value <= 1:
        expected = "a share from 0 to 1"
        raise error(_shown(name, value), expected=expected, fix=fix or "pass a share, such as 0.8")
    return float(value)


def choice(
    value: Any, name: str, choices: Collection[str], *, error: type[DspkitError] = ArgumentError, fix: str = ""
) -> str:
    """Return one of several words.

    Examples
    --------
    >>> choice("fluid", "engine", ("fluid", "records"))
    'fluid'
    >>> choice("flow", "engine", ("fluid", "records"))
    Traceback (most recent call last):
    dspkit.core.errors.ArgumentError: got engine='flow'; expected one of fluid, records; choose one of them
    """
    if not isinstance(value, str) or value not in choices:
        raise error(_shown(name, value), expected=f"one of {', '.join(choices)}", fix=fix or "choose one of them")
    return value


def members(
    names: Collection[Any],
    among: Collection[Any],
    what: str,
    *,
    error: type[DspkitError] = ArgumentError,
    fix: str = "",
) -> None:
    """Raise an error if a name is not among the existing ones.

    Examples
    --------
    >>> members({"split": 2}, ("split", "count"), "operator")
    >>> members({"splt": 2}, ("split", "count"), "operator")
    Traceback (most recent call last):
    dspkit.core.errors.ArgumentError: got operator 'splt'; expected some of split, count; use the names as listed
    """
    if unknown := [name for name in names if name not in among]:
        listed = ", ".join(map(str, among))
        raise error(f"{what} {unknown[0]!r}", expected=f"some of {listed}", fix=fix or "use the names as listed")


def mapping(
    value: Any, name: str, expected: str, *, error: type[DspkitError] = ArgumentError, fix: str = ""
) -> Mapping[Any, Any]:
    """Return a mapping.

    Examples
    --------
    >>> mapping({"count": "n1"}, "pinned", "a node by operator")
    {'count': 'n1'}
    >>> mapping("n1", "pinned", "a node by operator")
    Traceback (most recent call last):
    dspkit.core.errors.ArgumentError: got pinned='n1'; expected a node by operator; pass a mapping, such as a dict
    """
    if not isinstance(value, Mapping):
        raise error(_shown(name, value), expected=expected, fix=fix or "pass a mapping, such as a dict")
    return value


def numbers(
    values: Any,
    name: str,
    low: float = -math.inf,
    *,
    infinite: bool = False,
    error: type[DspkitError] = MetricError,
    fix: str = "leave out what was not measured",
) -> np.ndarray[Any, np.dtype[Any]]:
    """Return an array of numbers, finite unless infinity is allowed; NaN and text are rejected.

    Examples
    --------
    >>> numbers([1, 2], "scores")
    array([1., 2.])
    >>> numbers([1, float("nan")], "a", fix="drop it")
    Traceback (most recent call last):
    dspkit.core.errors.MetricError: got a [1, nan]; expected finite numbers, rows of one length; drop it
    """
    import numpy as np

    try:
        found = np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not ((found >= low) & (True if infinite else np.isfinite(found))).all():
        least = "" if low == -math.inf else f" from {low:g} up"
        expected = f"{'' if infinite else 'finite '}numbers{least}, rows of one length"
        raise error(f"{name} {values!r:.80}", expected=expected, fix=fix)
    return found


def _shown(name: str, value: Any) -> str:
    text = repr(value)
    return f"{name}={text if len(text) <= 80 else text[:79] + '…'}"


K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(dict[K, V]):
    """An immutable dict: hashable, picklable, and still a dict for json and pandas.

    `types.MappingProxyType` cannot be pickled, which parallel sweeps need.

    Examples
    --------
    >>> FrozenMap(a=1)["a"]
    1
    """

    if not TYPE_CHECKING:  # type checkers see the constructor of dict

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            made = super().__new__(cls)
            dict.update(made, *args, **kwargs)
            return made

        def __init__(self, *_: Any, **__: Any) -> None:
            """Do nothing: dict's own `__init__` would fill the mapping again when called twice."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this mapping is frozen; make a changed copy: {**mapping, key: value}")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    @classmethod
    def fromkeys(cls, keys: Iterable[Any], value: Any = None) -> FrozenMap[Any, Any]:
        """Return a FrozenMap with the same value for all keys.

        Parameters
        ----------
        keys : iterable
            The keys.
        value : object
            Their value.

        Examples
        --------
        >>> FrozenMap.fromkeys("ab", 1)
        {'a': 1, 'b': 1}
        """
        return cls(dict.fromkeys(keys, value))

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self),)


_PLAIN = frozenset((bool, str, int))


def plain(value: Any) -> Any:
    """Return `value` as None, bool, int, float, str, tuples and FrozenMaps of these, which JSON can store and restore.

    NaN becomes None, like all values that were not measured. Infinities, which JSON lacks, become "inf" and "-inf";
    sets are sorted. Keys become str; if two keys have the same text, one is quoted, so that nothing is dropped.

    Parameters
    ----------
    value : object
        Any value.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"k": np.int64(3), "rates": [np.float32(0.5), np.nan, np.inf], 1: "a", "1": "b"})
    {'k': 3, 'rates': (0.5, None, 'inf'), '1': 'a', "'1'": 'b'}
    """
    kind = type(value)
    if value is None or kind in _PLAIN or (kind is float and math.isfinite(value)):  # nearly all, in every window
        return value
    if isinstance(value, str):
        return str.__str__(value)  # the value of a str enum
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return _plain_map(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays, pandas series
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return tuple(plain(v) for v in value)
    if isinstance(value, (set, frozenset)):
        return tuple(sorted(map(plain, value), key=lambda v: (str(v), repr(v))))  # a stable order of 1 and "1"
    return str(value)


def _plain_map(mapping: Mapping[Any, Any]) -> FrozenMap[str, Any]:
    made: dict[str, Any] = {}
    for key, value in mapping.items():
        name = key if type(key) is str else plain(key) if isinstance(key, str) else str(key)
        while name in made:
            name = repr(name)
        made[name] = plain(value)
    return FrozenMap(made)
