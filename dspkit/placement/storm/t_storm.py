"""T-Storm's scheduler: heaviest talkers first, each where it adds the least traffic between nodes [xu2014tstorm]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...errors import InfeasibleError
from .adaptive import Slot

T = TypeVar("T", bound=Any)
TINY = 1e-9


def least_traffic(
    streams: Mapping[T, tuple[tuple[T, float], ...]],
    capacity: Mapping[Slot, float],
    fixed: Mapping[T, Slot],
    *,
    demand: Mapping[T, float] | None = None,
    may: Callable[[T, Slot], bool] = lambda thing, slot: True,
) -> dict[T, Slot]:
    """Every thing's slot; those in `fixed` are placed first and stay, no slot takes more demand than its capacity.

    Of equal slots the fullest wins, then the one that comes first. Neighbours that are not placed yet add nothing.
    """
    where, used = dict(fixed), dict.fromkeys(capacity, 0.0)
    asks = {e: 1.0 if demand is None else demand[e] for e in streams}
    for e, slot in fixed.items():
        used[slot] += asks[e]
    total = {e: sum(rate for _, rate in others) for e, others in streams.items()}
    number = {slot: n for n, slot in enumerate(capacity)}
    for e in sorted((e for e in streams if e not in fixed), key=lambda e: (-total[e], e)):
        fits = [s for s in capacity if used[s] + asks[e] <= capacity[s] + TINY and may(e, s)]
        if not fits:
            raise InfeasibleError(
                f"no slot left for {e!r}, in order of traffic", expected="room for all", fix="add nodes or capacity"
            )
        added = {s: sum(rate for other, rate in streams[e] if other in where and where[other][0] != s[0]) for s in fits}
        where[e] = min(fits, key=lambda s: (round(added[s], 9), -used[s], number[s]))
        used[where[e]] += asks[e]
    return where
