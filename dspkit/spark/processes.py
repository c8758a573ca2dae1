"""The processes of this machine, as `ps` and the kernel tell: what runs below another one, and its processor time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """One that runs now."""

    pid: int
    parent: int
    resident_bytes: int
    command: str


def running() -> list[Process]:
    listed = subprocess.run(["ps", "-eww", "-o", "pid=,ppid=,rss=,args="], capture_output=True, text=True, check=True)
    rows = (line.split(None, 3) for line in listed.stdout.splitlines())
    return [Process(int(row[0]), int(row[1]), 1024 * int(row[2]), row[3] if len(row) > 3 else "") for row in rows]


def below(pids: Iterable[int]) -> list[Process]:
    """All that these started, and what that started in turn."""
    children: dict[int, list[Process]] = {}
    for process in running():
        children.setdefault(process.parent, []).append(process)
    waiting, found = list(pids), []
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child.pid)
            found.append(child)
    return found


def kill(processes: Iterable[Process], grace_s: float = 1.0) -> None:
    """End those that are still the same processes after a moment: their number may be another's by then."""
    left = {(p.pid, p.command) for p in processes}
    end = time.monotonic() + grace_s
    while left := left & {(p.pid, p.command) for p in running()}:
        if time.monotonic() > end:
            for pid, _ in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.1)


def cpu_s(sessions: set[int]) -> dict[int, float]:
    """Processor seconds of all processes in each of these sessions; nothing where the kernel does not tell."""
    spent: Counter[int] = Counter()
    for path in _PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            if (session := int(fields[3])) in sessions:
                spent[session] += int(fields[11]) + int(fields[12])
    return {session: ticks / os.sysconf("SC_CLK_TCK") for session, ticks in spent.items()}
