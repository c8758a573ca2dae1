"""T-Storm's scheduler: heaviest talkers first, each where it adds the least traffic between nodes [xu2014tstorm]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import DeploymentError
from .adaptive import Slot, Streams, load
from .bootstrap import slots_in_turn
from .cluster import Executor


def least_traffic(
    streams: Streams, slots: Sequence[int], most: int, fixed: Mapping[Executor, Slot]
) -> dict[Executor, Slot]:
    """Every executor's slot; those in `fixed` are placed first and stay, no slot takes more than `most`.

    Of equal slots the fullest wins, then the one of lower number. Neighbours that are not placed yet add nothing.
    """
    where = dict(fixed)
    total = {e: sum(rate for _, rate in others) for e, others in streams.items()}
    for e in sorted((e for e in streams if e not in fixed), key=lambda e: (-total[e], e)):
        used = load(where.values())
        open_slots = [s for s in slots_in_turn(slots) if used.get(s, 0) < most]
        if not open_slots:
            raise DeploymentError(
                f"{len(streams)} executors for {sum(slots)} slots of {most}",
                expected="room for all",
                fix="add nodes, or let a slot take more",
            )
        added = {
            s: sum(rate for other, rate in streams[e] if other in where and where[other][0] != s[0]) for s in open_slots
        }
        where[e] = min(open_slots, key=lambda s: (round(added[s], 9), -used.get(s, 0), s))
    return where
