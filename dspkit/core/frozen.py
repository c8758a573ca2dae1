"""Immutable mappings and plain values, which make frozen dataclasses deeply immutable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

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
    if value is None or isinstance(value, bool):
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
        name = plain(key) if isinstance(key, str) else str(key)
        while name in made:
            name = repr(name)
        made[name] = plain(value)
    return FrozenMap(made)
