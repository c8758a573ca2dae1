"""What the fluid keeps from tick to tick, what its ticks have in common, and what a window adds up."""

from __future__ import annotations

from typing import NamedTuple

from .layout import Array


class Cluster(NamedTuple):
    """What the ticks of a window have in common. i is an operator, e an edge, j a node, l a link that has a limit."""

    live: Array  # [j, i] instances on nodes that are up
    instances: Array  # [i] of them in all
    cpu: Array  # [i] core-seconds a record takes at speed 1
    other: Array  # [i] seconds it takes beside that, the call included
    call: Array  # [i] seconds of the external server that a record takes
    uneven: Array  # [i] records of the hottest instance over those of the average one
    room: Array  # [i] records; inf where nobody is held back
    refuse: Array  # [i] records beyond which the queue refuses; inf where it does not
    cores: Array  # [j]
    speed: Array  # [j]
    selectivity: Array  # [e]
    passing: Array  # [l, i] bytes that a record of i sends over the link
    bandwidth: Array  # [l] bytes/s


class State(NamedTuple):
    """What goes from tick to tick."""

    queue: Array
    mass: Array
    pause: Array  # [i] seconds that it stands still from now on
    held: Array  # [j, i] instances that stand still while the others work
    rest: Array  # [i] seconds for which they do
    share: Array  # [j, i] cores of node j that i's instances may use
    head: Array  # [i] records that have left the queue since the start, lost ones included


class Sums(NamedTuple):
    """What a window adds up; see `engine.Window`. `queued`, `waits`: record-seconds in the queue, and of those who left
    it; `flow`: ended, stopped, lost mass.
    """

    arrived: Array
    done: Array
    still: Array  # [i] seconds that it stood still
    dropped: Array
    busy: Array
    blocked: Array
    cpu: Array
    queued: Array
    waits: Array
    sent: Array
    cores: Array
    flow: Array
