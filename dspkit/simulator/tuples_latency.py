"""Latencies at the sinks: exact means, and percentiles from histograms with bins of at most 1/128 of their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import Latency
from .compiled import inlined
from .engine import SHARES
from .layout import Array
from .tuples_state import FINEST, OCTAVES, PER_OCTAVE
from .tuples_steps import release

_SHIFT = 52 - 7  # of a double's bits, so that its exponent and 7 bits of its fraction are left: 128 bins an octave
_LOWEST = (1023 + FINEST) * PER_OCTAVE


@inlined
def bin_of(seconds: float) -> int:
    place: Any = (np.float64(seconds).view(np.int64) >> _SHIFT) - _LOWEST
    return max(0, min(place, OCTAVES * PER_OCTAVE - 1))  # type: ignore[no-any-return]


@inlined
def finish(s: Any, c: int, now: float) -> None:
    """c comes out at a sink."""
    g, record = s.g[0], s.recs[c]
    w, inside, whole = record.weight, now - record.taken, now - record.born
    g.ended += record.share
    g.weight += w
    g.latency += w * inside
    g.event_latency += w * whole
    s.histogram[0, bin_of(inside)] += w
    s.histogram[1, bin_of(whole)] += w
    release(s, c)


def latency(total: float, weight: float, histogram: Array) -> Latency | None:
    """The exact mean, and percentiles to within a bin; None if nothing was counted."""
    if not weight > 0:
        return None
    used = np.flatnonzero(histogram)
    bins = slice(used[0], used[-1] + 1)
    below = np.concatenate([[0.0], np.cumsum(histogram[bins])])
    edges = np.arange(bins.start, bins.stop + 1)
    octave, part = np.divmod(edges, PER_OCTAVE)
    seconds = np.ldexp(1 + part / PER_OCTAVE, octave + FINEST)
    return Latency(
        float(total / weight), *(float(x) for x in np.interp(np.multiply(SHARES, below[-1]), below, seconds))
    )
