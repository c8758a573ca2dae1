"""Random numbers that are a function of a record's number, so that an input is the same however often it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]


def draw(ids: Array, salt: int, below: int) -> Array:
    """A whole number from 0 up to `below` for each id; another one for another salt (splitmix64's last steps).

    >>> import numpy as np
    >>> draw(np.arange(5), 1, 10).tolist() == draw(np.arange(5), 1, 10).tolist()
    True
    """
    import numpy as np

    x = (ids.astype(np.uint64) + np.uint64(salt * 0x632BE59BD9B4E019 % 2**64)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: Array = ((x ^ (x >> np.uint64(31))) % np.uint64(below)).astype(np.int64)
    return drawn


def share(ids: Array, salt: int) -> Array:
    """A real number from 0 up to 1 for each id."""
    return draw(ids, salt, 1 << 53) / (1 << 53)
