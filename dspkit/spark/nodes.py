"""How busy nodes are, as the kernel counts, or as executors say of their machines; nothing where nobody counts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)  # the columns of time in which nothing ran: idle, and waiting for a disk
Reading = tuple[float, Mapping[str, float]]  # time of all cores so far, and of each node's work, in one unit


def machine() -> Reading:
    """This machine as one node, in the kernel's ticks since it started."""
    try:
        ticks = [int(word) for word in _STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0, {}
    return sum(ticks), {"localhost": sum(ticks) - sum(ticks[i] for i in _IDLE)}


def parts(cpu_s: Mapping[str, float]) -> Reading:
    """Nodes that share this machine, from the processor seconds of each."""
    return time.monotonic() * (os.cpu_count() or 1), cpu_s


def others(busy_s: Mapping[str, float]) -> Reading:
    """Whole machines elsewhere, from seconds of full load of each."""
    return time.monotonic(), busy_s


def shares(before: Reading, after: Reading) -> dict[str, float]:
    """The share of its machine's cores that each node's work took between two readings."""
    whole = after[0] - before[0]
    return (
        {name: min(1.0, max(0.0, (spent - before[1].get(name, 0.0)) / whole)) for name, spent in after[1].items()}
        if whole > 0
        else {}
    )
