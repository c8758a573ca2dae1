"""Immutable mappings and plain values, so that frozen dataclasses are frozen all the way down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenMap(dict[K, V]):
    """A dict that cannot change: hashable, picklable, and still a dict to json and pandas.

    `types.MappingProxyType` would do but for pickling, which parallel sweeps need.

    >>> FrozenMap(a=1)["a"]
    1
    """

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("this mapping is frozen; make a changed copy: {**mapping, key: value}")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = _refuse
    __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMap, (dict(self),)


def plain(value: Any) -> Any:
    """`value` as None, bool, int, float, str, tuples and FrozenMaps of these: what JSON can carry and back.

    >>> import numpy as np
    >>> plain({"k": np.int64(3), "rates": [np.float32(0.5), None]})
    {'k': 3, 'rates': (0.5, None)}
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return FrozenMap({str(k): plain(v) for k, v in value.items()})
    if hasattr(value, "tolist"):  # numpy scalars and arrays, pandas series
        return plain(value.tolist())
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
        return tuple(plain(v) for v in items)
    return str(value)
