"""The data of the pipelined fluid engine: state from tick to tick, parameters of a window, sums over a window."""

from __future__ import annotations

from typing import NamedTuple

from ...core.typing import Array


class FluidParameters(NamedTuple):
    """Constants of the ticks of a window. i is an operator, e an edge, j a node, l a link with a limit."""

    live: Array  # [j, i] instances on nodes that are up
    instances: Array  # [i] these over all nodes
    cpu: Array  # [i] core-seconds per record at speed 1
    other: Array  # [i] further seconds per record, external call included
    call: Array  # [i] seconds of the external server per record
    variation: Array  # [i] squared coefficient of variation of service times, at most 1
    uneven: Array  # [i] records of the hottest instance over those of an average one
    room: Array  # [i] records beyond which the queue blocks its senders; inf if it does not
    refuse: Array  # [i] records beyond which the queue drops; inf if it does not
    cores: Array  # [j]
    speed: Array  # [j]
    selectivity: Array  # [e]
    passing: Array  # [l, i] bytes over the link per record of i
    bandwidth: Array  # [l] bytes/s


class FluidState(NamedTuple):
    """State that is kept from tick to tick. i is an operator, j a node."""

    queue: Array
    mass: Array
    pause: Array  # [i] seconds for which it is paused from now on
    held: Array  # [j, i] instances that are paused while the others work
    rest: Array  # [i] seconds for which they are
    share: Array  # [j, i] cores of node j that i's instances may use
    head: Array  # [i] records that have left the queue since the start, lost ones included


class FluidSums(NamedTuple):
    """Sums over a window; see `job.WindowSums`.

    `queued`: record-seconds in the queue; `waits`: record-seconds that the records waited which left it; `flow`: mass
    that ended, seconds stopped, mass lost.
    """

    arrived: Array
    done: Array
    paused: Array  # [i] seconds for which it was paused
    dropped: Array
    busy: Array
    blocked: Array
    cpu: Array
    queued: Array
    waits: Array
    sent: Array
    cores: Array
    flow: Array
