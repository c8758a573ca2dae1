"""How busy this machine's cores are, from the kernel's own counts; nothing where it keeps none."""

from __future__ import annotations

from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)  # the columns of time in which nothing ran: idle, and waiting for a disk


def busy() -> tuple[int, int]:
    """Ticks in which cores were busy, and all ticks, since the machine started."""
    try:
        ticks = [int(word) for word in _STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0, 0
    return sum(ticks) - sum(ticks[i] for i in _IDLE), sum(ticks)


def shares(before: tuple[int, int], after: tuple[int, int]) -> dict[str, float]:
    """The busy share of this machine's cores between two readings."""
    ticks = after[1] - before[1]
    return {"localhost": min(1.0, max(0.0, (after[0] - before[0]) / ticks))} if ticks > 0 else {}
