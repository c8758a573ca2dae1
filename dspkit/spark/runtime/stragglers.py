"""Stragglers: tasks whose process has stopped, although it has not ended. They are found, reported and replaced.

Each task sends a reading five times per second, from a thread of its own, also when it waits. One that is silent while
others are not has either been stopped (SIGSTOP), hangs, or holds Python's lock in a long call. Only the first two are
replaced: their process is killed, and the supervisor restarts the query from its checkpoint. A task that a busy machine
lets wait is not stopped for the kernel, and uses some processor time.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...core.lazy import load
from ..metering import SilentTask
from ..threads import ServiceThread

log = logging.getLogger("dspkit")
_LOOK_S = 1.0
STOPPED_S = 10.0  # silence of a stopped process, after which it is killed
IDLE_S = 120.0  # silence without any processor time, after which a process is killed
_HELD_S = 30.0  # silence of a process that works, after which that is reported
_COMMAND = "daemon"  # in the command line of Spark's Python workers


class _Seen(NamedTuple):
    """A silent process when its silence was first noticed."""

    cpu_s: float
    seconds: float


class StragglerWatch:
    """A thread that looks for silent tasks. `silent` returns those without a reading for some seconds."""

    def __init__(self, silent: Callable[[float], Sequence[SilentTask]], names: Sequence[str]):
        self._silent, self._names = silent, names
        self._seen: dict[tuple[str, int], _Seen] = {}  # by token and process
        self._said: set[tuple[str, int]] = set()
        self.thread = ServiceThread("dspkit-stragglers", "looks for tasks that have stopped", self._run)
        self.thread.start()

    def close(self) -> None:
        self.thread.close(5)

    def _run(self) -> None:
        while not self.thread.ended.wait(_LOOK_S):
            self.look()

    def look(self) -> None:
        """Kill the processes of stopped tasks, and report other silent ones once."""
        silent = self._silent(STOPPED_S)
        keys = {(task.token, task.pid) for task in silent}
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
        self._said &= keys
        for task in silent:
            self._judge(task)

    def _judge(self, task: SilentTask) -> None:
        who = f"instance {task.instance} of {self._names[task.operator]!r} has sent no reading for {task.seconds:.0f} s"
        if task.host != socket.gethostname():
            if task.certain:
                self._say(task, f"{who}: look at process {task.pid} on {task.host}")
            return
        psutil, key = load("psutil", "spark"), (task.token, task.pid)
        try:
            process = psutil.Process(task.pid)
            if not any(_COMMAND in word for word in process.cmdline()):  # another process has the number by now
                return
            times, state = process.cpu_times(), process.status()
            first = self._seen.setdefault(key, _Seen(times.user + times.system, task.seconds))
            idle = times.user + times.system == first.cpu_s
            reason = why_replaced(
                stopped=state == psutil.STATUS_STOPPED, idle=idle, since=first.seconds, now=task.seconds
            )
            if reason is not None and (task.certain or state == psutil.STATUS_STOPPED):
                log.warning("%s, as process %d %s: it is killed, and the query starts again", who, task.pid, reason)
                process.kill()
            elif task.seconds >= _HELD_S and not idle and task.certain:
                self._say(task, f"{who}, while process {task.pid} works: its function may hold Python's lock")
        except psutil.Error as error:  # it has ended, or belongs to another user
            if task.certain:
                self._say(task, f"{who}, and process {task.pid} cannot be looked at: {error}")

    def _say(self, task: SilentTask, text: Any) -> None:
        if (key := (task.token, task.pid)) not in self._said:
            self._said.add(key)
            log.warning("%s", text)


def why_replaced(*, stopped: bool, idle: bool, since: float, now: float) -> str | None:
    """Return the reason to kill the process of a task that is silent for `now` seconds, or None.

    Parameters
    ----------
    stopped
        Whether the kernel says that the process is stopped.
    idle
        Whether it has used no processor time since its silence had lasted for `since` seconds.
    since, now
        Seconds of silence when it was first looked at, and at present.

    Examples
    --------
    >>> why_replaced(stopped=True, idle=True, since=10, now=10)
    'is stopped'
    >>> why_replaced(stopped=False, idle=False, since=10, now=1000) is None
    True
    """
    if stopped and now >= STOPPED_S:
        return "is stopped"
    if idle and now - since >= IDLE_S - STOPPED_S:
        return f"has used no processor time for {now - since:.0f} s"
    return None
