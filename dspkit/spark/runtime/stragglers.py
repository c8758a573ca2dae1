"""Stragglers: tasks whose process has stopped, although it has not ended. They are found, reported and replaced.

Each task sends a reading five times per second, from a thread of its own, also when it waits. One that is silent while
others are not has either been stopped (SIGSTOP), hangs, or holds Python's lock in a long call. Only the first two are
replaced: their process is killed, and the supervisor restarts the query from its checkpoint. A task that a busy machine
lets wait is not stopped for the kernel, and uses some processor time.

A process that grows from epoch to epoch leaks. Its task leaves it at the end of the epoch, and the next one has a new
process (`task.py`); here it is reported, and the epoch ended at once if the limit is reached within it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...core.lazy import load
from ..metering import HeavyTask, SilentTask
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
    """A thread that looks for silent tasks, and for heavy ones.

    `silent` returns those without a reading for some seconds, `heavy` those whose processes are to be replaced, and
    `cut` ends the present epoch.
    """

    def __init__(
        self,
        silent: Callable[[float], Sequence[SilentTask]],
        names: Sequence[str],
        heavy: Callable[[], Sequence[HeavyTask]] = tuple,
        cut: Callable[[], object] = lambda: None,
    ):
        self._silent, self._names, self._heavy, self._cut = silent, names, heavy, cut
        self._cut_token = ""  # of the last epoch that was ended
        self._leaks: set[int] = set()  # operators of which that was said
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
        for heavy in self._heavy():
            self._replace(heavy)

    def _replace(self, task: HeavyTask) -> None:
        if task.operator not in self._leaks:
            self._leaks.add(task.operator)
            log.warning(
                "process %d of %r has %.1f GB, and grows from epoch to epoch: it is replaced between two epochs",
                *(task.pid, self._names[task.operator], task.memory_bytes / 1e9),
            )
        if not task.ended and task.token != self._cut_token:
            self._cut_token = task.token
            self._cut()

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
