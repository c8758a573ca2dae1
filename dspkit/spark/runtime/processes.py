"""Processes of this machine: descendants of a process, their memory, and their processor time (psutil).

`machine`, `node_shares` and `others` are readings of the work of nodes, as the kernel or executors count it, and
`shares` the utilisation between two readings; empty if it is not measured.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.lazy import load


@dataclass(frozen=True)
class Process:
    """A process as it was when it was listed; `handle` is psutil's, which is not misled by a reused number."""

    pid: int
    parent: int
    resident_bytes: int
    command: str
    handle: Any = field(repr=False, compare=False)


def running() -> list[Process]:
    """Return all processes of this machine that we may see.

    Examples
    --------
    >>> any(p.pid == os.getpid() for p in running())
    True
    """
    return _listed(_psutil().process_iter())


def below(pids: Iterable[int]) -> list[Process]:
    """Return the descendants of some processes.

    Parameters
    ----------
    pids : iterable of int
        Numbers of the processes at the top, which are not returned; one that has ended has no descendants.

    Examples
    --------
    >>> below([])
    []
    """
    psutil = _psutil()
    found: list[Any] = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(pid).children(recursive=True)
    return _listed(found)


def kill(processes: Iterable[Process], grace_s: float = 1.0) -> None:
    """Kill the processes that have not ended by themselves after a moment.

    Parameters
    ----------
    processes : iterable of Process
        As `running` or `below` returned them.
    grace_s : float
        How long they may take to end by themselves, s.

    Examples
    --------
    >>> kill([])
    """
    left, end = list(processes), time.monotonic() + grace_s
    while left := [process for process in left if _alive(process.handle)]:
        if time.monotonic() > end:
            for process in left:
                with contextlib.suppress(_psutil().Error):
                    process.handle.kill()
            return
        time.sleep(0.1)


def cpu_s(sessions: set[int]) -> dict[int, float]:
    """Return the processor seconds of all running processes of some sessions, by session.

    Parameters
    ----------
    sessions : set of int
        Numbers of sessions; one in which nothing runs is left out.

    Examples
    --------
    >>> cpu_s({os.getsid(0)})[os.getsid(0)] > 0
    True
    """
    psutil = _psutil()
    spent: Counter[int] = Counter()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if (session := os.getsid(process.pid)) in sessions:
                times = process.cpu_times()
                spent[session] += times.user + times.system
    return dict(spent)


def _psutil() -> Any:
    return load("psutil", "spark")


def _listed(handles: Iterable[Any]) -> list[Process]:
    psutil, found = _psutil(), []
    for handle in handles:
        with contextlib.suppress(psutil.NoSuchProcess):
            info = handle.as_dict(["pid", "ppid", "memory_info", "cmdline"])  # None without permission
            resident = info["memory_info"].rss if info["memory_info"] else 0
            found.append(Process(info["pid"], info["ppid"], resident, " ".join(info["cmdline"] or ()), handle))
    return found


def _alive(handle: Any) -> bool:
    """Return whether the process runs; a zombie, whose end its parent has not read yet, does not."""
    psutil = _psutil()
    try:
        return bool(handle.is_running() and handle.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


Reading = tuple[float, Mapping[str, float]]  # time of all cores so far, and of each node's work, in one unit


def machine() -> Reading:
    """Return this machine as one node, in seconds of its cores since it started.

    Examples
    --------
    >>> whole, busy = machine()
    >>> 0 < busy["localhost"] <= whole
    True
    """
    psutil = load("psutil", "spark")
    try:
        times = psutil.cpu_times()._asdict()
    except (OSError, psutil.Error):
        return 0, {}
    whole = sum(times.values()) - times.get("guest", 0) - times.get("guest_nice", 0)  # which are in user and nice, too
    return whole, {"localhost": whole - times["idle"] - times.get("iowait", 0)}


def node_shares(cpu_s: Mapping[str, float]) -> Reading:
    """Return a reading of nodes that share this machine, from the processor seconds of each."""
    return time.monotonic() * (os.cpu_count() or 1), cpu_s


def others(busy_s: Mapping[str, float]) -> Reading:
    """Return a reading of whole machines elsewhere, from seconds of full load of each."""
    return time.monotonic(), busy_s


def shares(before: Reading, after: Reading) -> dict[str, float]:
    """Return the share of its machine's cores that each node's work used between two readings."""
    whole = after[0] - before[0]
    return (
        {name: min(1.0, max(0.0, (spent - before[1].get(name, 0.0)) / whole)) for name, spent in after[1].items()}
        if whole > 0
        else {}
    )
