"""Meters in tasks, their collection on the driver, and the snapshots computed from them.

A task sends its reading five times per second, as one datagram: cumulative sums, so that a lost one costs nothing. The
last reading of a task is repeated until the driver has acknowledged it. A datagram begins with a code (HMAC) under a
secret that only the driver and the tasks of the job know, and is thrown away unread if the code is wrong. Readings are
numbered by task: of two the greater number counts, in whatever order they arrive and however often. They name the run
of the query: when it starts again, tasks of the former run that still send change nothing.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import math
import os
import resource
import secrets
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core import Deployment, FrozenMap, InstanceMetrics, Latency, OperatorMetrics, Snapshot, Topology
from .errors import ServiceThread

log = logging.getLogger("dspkit")
WAIT, BUSY, BLOCKED = range(3)
EVERY_S = 0.2  # at whole multiples of it on the clock, so that all tasks are read at the same time
STEP = math.log(1.04)  # width of the latency histogram's bins: percentiles are at most 2 % off
SHORTEST_S = 1e-4


def bucket(seconds: float) -> int:
    """Return the bin of a latency."""
    return max(0, round(math.log(max(seconds, SHORTEST_S) / SHORTEST_S) / STEP))


def middle(index: int) -> float:
    """Return the latency in the middle of a bin."""
    return SHORTEST_S * math.exp(index * STEP)


def memory_bytes() -> int:
    """Return the bytes of memory that this process has for itself: files that it maps, as those of state, do not count.

    Examples
    --------
    >>> memory_bytes() > 1_000_000
    True
    """
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            resident, shared = map(int, file.read().split()[1:3])
        return (resident - shared) * resource.getpagesize()
    except OSError:  # another system than Linux, which knows the peak only
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def queued_s() -> float:
    """Return the seconds for which the first thread of this process could run and waited for a core; 0 if unknown.

    Examples
    --------
    >>> queued_s() >= 0
    True
    """
    try:
        with open("/proc/self/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):  # another system than Linux
        return 0.0


@dataclass(frozen=True)
class Clock:
    """The clocks of a meter, and its gauge of memory; tests pass others."""

    elapsed: Callable[[], float] = time.perf_counter  # of this process, which never goes back
    now: Callable[[], float] = time.time  # of all tasks and the driver
    cpu: Callable[[], float] = time.process_time
    memory: Callable[[], int] = memory_bytes
    queued: Callable[[], float] = queued_s


def worker_number() -> int:
    """Return the number of the cluster's worker that this task runs on; 0 elsewhere."""
    return int(os.environ.get(WORKER, "-0").rpartition("-")[2])


CLOCK = Clock()
_SET_S = 0.1  # less than that the system's clock is not said to be set
_FUTURE_S = 1.0  # stamps that are further ahead are of before the clock was set back, and no latency follows from them
_READ_S = 0.01  # longest time between two clocks that are read together


class ClockWatch:
    """A watch over the system's clock, which can be set at any time, by one that only goes forward.

    Parameters
    ----------
    clock
        Both clocks.

    Examples
    --------
    >>> abs(ClockWatch().step()) < 60
    True
    """

    def __init__(self, clock: Clock = CLOCK):
        self._clock = clock
        self._ahead = clock.now() - clock.elapsed()

    def step(self) -> float:
        """Return the seconds by which the clock was set forward since the last call, below 0 if backward.

        Examples
        --------
        >>> seconds = iter((100.0, 3701.0))
        >>> watch = ClockWatch(Clock(elapsed=lambda: 1.0, now=lambda: next(seconds)))
        >>> watch.step()
        3601.0
        """
        for _ in range(5):  # unless the process had to wait for a core in between
            before, now, after = self._clock.elapsed(), self._clock.now(), self._clock.elapsed()
            if after - before < _READ_S:
                step, self._ahead = now - after - self._ahead, now - after
                return step if abs(step) >= _SET_S else 0.0
        return 0.0


WORKER = "DSPKIT_WORKER"  # variable of the environment with the name of a cluster's worker, as in Pings.java
_CODE = 32  # bytes of the code in front of a reading
_LONGEST = 30_000  # bytes of a traceback in a datagram, which can have 65,507
_ENTRIES = 1_000  # counters, and partitions of a log, in one datagram
_ANSWERS_S = (EVERY_S, 0.4, 0.8, 1.6)  # waits for the receipt of a last reading, before it is sent again


@dataclass(frozen=True)
class MeterAddress:
    """The socket on the driver to which tasks send their readings, and the secret under which they sign them."""

    host: str
    port: int
    key: bytes = field(repr=False)
    run: int = 0  # of the query, whose tasks send to it

    def sign(self, body: bytes) -> bytes:
        """Return the datagram of a reading."""
        return hmac.digest(self.key, body, "sha256") + body

    def verified(self, datagram: bytes) -> bytes | None:
        """Return the reading of a datagram, or None if it was not signed with this job's secret."""
        code, body = datagram[:_CODE], datagram[_CODE:]
        return body if hmac.compare_digest(code, hmac.digest(self.key, body, "sha256")) else None

    def receipt(self, datagram: bytes) -> bytes:
        """Return the driver's answer to a datagram."""
        return hmac.digest(self.key, b"received" + datagram[:_CODE], "sha256")


class Meter:
    """Counters and times of a task; `turn` switches to its next activity. Without an address nothing is sent."""

    def __init__(self, address: MeterAddress | None, about: dict[str, Any], clock: Clock = CLOCK):
        self._address, self._clock = address, clock
        run = address.run if address is not None else 0
        self._about = about | {"pid": os.getpid(), "host": socket.gethostname(), "run": run}
        if WORKER in os.environ:  # of a SparkCluster
            self._about["worker"] = os.environ[WORKER]
        self._lock = threading.Lock()  # of times and latencies, so that a reading in between is of one moment
        self._spent = [0.0, 0.0, 0.0]
        self._doing, self._since = WAIT, clock.elapsed()
        self._cpu, self._queued, self._work = clock.cpu(), clock.queued(), 0.0
        self.hindered = 1.0  # busy seconds over those of work; in the others it waited for a core
        self.arrived = self.done = self.results = 0
        self.late: int | None = None  # records that came too late; None without event time
        self.edges: dict[int, Any] = {}  # exchange.Edge by receiver: they count what they send
        self.read_to: dict[int, int] = {}  # of a source: how far each partition of its log was read
        self.state: dict[str, int] = {}  # of a keyed operator: what is kept, in counts of their own
        self.memory_limit = math.inf  # bytes of the process beyond which the task asks for the end of its epoch
        self._ages = [Counter[int](), Counter[int]()]
        self._age_sums = [0.0, 0.0]
        self._began = clock.now()
        self._number = 0  # of the last reading
        self._turn = threading.Lock()  # readings are sent in the order of their numbers
        self._ended, self._closed = threading.Event(), threading.Event()
        if address is not None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with contextlib.suppress(OSError):  # connected, it is bound to the driver's network only
                self._socket.connect((address.host, address.port))
            self._thread = threading.Thread(target=self._report, daemon=True)
            self._thread.start()

    def turn(self, doing: int) -> None:
        """Switch to another activity: WAIT, BUSY or BLOCKED."""
        with self._lock:
            now = self._clock.elapsed()
            self._spent[self._doing] += now - self._since
            self._doing, self._since = doing, now

    def elsewhere(self, seconds: float, cpu: float) -> None:
        """Count time that Java worked for this task while Python waited for it, and the part of it on a core."""
        with self._lock:
            self._cpu -= cpu
            moved = min(seconds, self._spent[WAIT])
            self._spent[WAIT] -= moved
            self._spent[BUSY] += moved

    def finish(self, read: Any, event: Any) -> None:
        """Count finished records with these stamps (microseconds)."""
        import numpy as np

        now = self._clock.now()
        for ages, (i, stamps) in zip(self._ages, enumerate((read, event)), strict=True):
            seconds = now - stamps * 1e-6
            seconds = np.maximum(seconds[seconds > -_FUTURE_S], SHORTEST_S)
            counts = np.bincount(np.rint(np.log(seconds / SHORTEST_S) / STEP).astype(np.intp))
            found = np.flatnonzero(counts)
            with self._lock:
                self._age_sums[i] += float(seconds.sum())
                for index, count in zip(found.tolist(), counts[found].tolist(), strict=True):
                    ages[index] += count

    def fail(self, operator: str, error: str) -> None:
        """Report the exception of the user's function: Spark may name a neighbour that failed with it."""
        kept = error.encode(errors="replace")[-_LONGEST:].decode(errors="ignore")
        self._send({"failed": [operator, kept]})

    def close(self) -> None:
        """Send the last reading; a thread repeats it until the driver has acknowledged it."""
        self.turn(WAIT)
        self._ended.set()
        if self._address is not None:
            self._closed.wait()

    def reading(self, *, final: bool) -> dict[str, Any]:
        """Return all sums so far, and how far the partitions of a source's log were read."""
        with self._lock:
            spent, now = list(self._spent), self._clock.elapsed()
            spent[self._doing] += now - self._since  # the present activity counts up to now
            cpu, age_sums, ages = self._clock.cpu() - self._cpu, list(self._age_sums), [a.copy() for a in self._ages]
        memory = self._clock.memory()
        queued = self._clock.queued() - self._queued
        work = self._work = max(self._work, min(spent[BUSY], max(cpu, spent[BUSY] - queued)))
        self.hindered = spent[BUSY] / work if work > 0 else 1.0
        counts = {
            "arrived": self.arrived,
            "done": self.done,
            "results": self.results,
            "wait": spent[WAIT],
            "busy": spent[BUSY],
            "work": work,
            "blocked": spent[BLOCKED],
            "cpu": cpu,
            "memory": memory,
            **({} if self.late is None else {"late": self.late}),
            **self.state,
            **{f"edge {end}": edge.sent for end, edge in self.edges.items()},
            **{f"edge {end} {i}": n for end, edge in self.edges.items() for i, n in edge.sent_to.copy().items()},
            **{f"{name} sum": total for name, total in zip(("latency", "event"), age_sums, strict=True)},
        }
        for name, found in zip(("latency", "event"), ages, strict=True):
            counts |= {f"{name} {index}": count for index, count in found.items()}
        about = {"began": self._began, "now": self._clock.now(), "heavy": memory > self.memory_limit}
        return self._about | about | {"read_to": self.read_to.copy(), "final": final, "counts": counts}

    def _report(self) -> None:
        try:
            while not self._ended.wait(EVERY_S - time.time() % EVERY_S):
                self._send_parts(self.reading(final=False))
            whole = self.reading(final=True)
            sent = self._send_parts(whole)
        finally:
            self._closed.set()
        with contextlib.suppress(OSError), self._socket:  # the driver is gone
            for seconds in _ANSWERS_S:
                if self._answered(sent, seconds):
                    return
                sent = self._send_parts(whole)

    def _answered(self, sent: Sequence[bytes], seconds: float) -> bool:
        """Wait for the receipts of datagrams; return whether all of them have come in time."""
        assert self._address is not None
        missing, end = {self._address.receipt(datagram) for datagram in sent}, time.monotonic() + seconds
        while missing and (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                missing.discard(self._socket.recv(_CODE + 1))
        return not missing

    def _send_parts(self, whole: dict[str, Any]) -> list[bytes]:
        """Send a reading, in as many datagrams as it needs, and return these."""
        counts, read = list(whole["counts"].items()), list(whole["read_to"].items())
        sent = []
        for low in range(0, max(1, len(counts), len(read)), _ENTRIES):
            part = {"counts": dict(counts[low : low + _ENTRIES]), "read_to": dict(read[low : low + _ENTRIES])}
            last = low + _ENTRIES >= max(len(counts), len(read))
            about = {"final": whole["final"] and last, "answer": whole["final"]}
            sent.append(self._send(whole | part | about))
        return sent

    def _send(self, reading: dict[str, Any]) -> bytes:
        if self._address is None:
            return b""
        with self._turn:
            self._number += 1
            body = json.dumps(self._about | reading | {"number": self._number}, ensure_ascii=False).encode()
            datagram = self._address.sign(body)
            with contextlib.suppress(OSError):  # the driver is gone, and Spark ends this task
                self._socket.send(datagram)
        return datagram


_KEPT = 4  # tokens whose tasks may still send readings
_REMEMBERED = 4096  # tokens that are known to be over
_BY_INSTANCE = ("done", "busy", "cpu", "memory")  # counters that are also kept by instance
_TOGETHER_S = 1.0  # a task is silent only if another one has sent a reading within this time


@dataclass
class Totals:
    """Sums since the job began, by operator; and the state of the running epoch.

    A counter "done 3" is that of instance 3, and "edge 2 3" the records sent to instance 3 of operator 2.
    """

    operators: dict[int, Counter[str]] = field(default_factory=dict)
    epoch: dict[int, Counter[str]] = field(default_factory=dict)  # of the newest token only
    read_to: dict[int, dict[int, int]] = field(default_factory=dict)
    tasks: Counter[int] = field(default_factory=Counter)  # running now
    gaps: list[tuple[float, float]] = field(default_factory=list)  # no task ran, for a change or failure: from, to
    commits: list[tuple[float, float]] = field(default_factory=list)  # no task ran, as an epoch was committed
    token: str = ""
    number: int = -1  # of the newest epoch
    workers: dict[tuple[int, int], str] = field(default_factory=dict)  # by operator and instance of the newest token


@dataclass(frozen=True)
class SilentTask:
    """A task that has not sent a reading for some time, while others have.

    One that has sent none in its epoch may run in any process of the epochs before: `certain` is False then.
    """

    operator: int
    instance: int
    token: str
    pid: int
    host: str
    seconds: float
    certain: bool = True


@dataclass(frozen=True)
class HeavyTask:
    """A task whose process has grown beyond its limit."""

    operator: int
    instance: int
    token: str
    pid: int
    memory_bytes: int
    ended: bool


class Collector:
    """A receiver of readings by UDP. Each job has a random secret; messages that are not signed with it are ignored."""

    def __init__(self, host: str = "127.0.0.1", clock: Clock = CLOCK):
        self._clock = clock
        self._lock = threading.Lock()
        self._watch, self._moved = ClockWatch(clock), 0.0
        self._last: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._received: dict[tuple[str, int, str], float] = {}  # when, on the clock of this process
        self._tokens: list[str] = []
        self._over: deque[str] = deque(maxlen=_REMEMBERED)
        self._totals = Totals()
        self._failed: tuple[str, str] | None = None  # the operator whose function raised last, its traceback
        self._ends = 0.0  # end of the last task of the previous token
        self._planned: tuple[int, list[int]] = (-1, [])  # epoch and parallelism of the newest token
        self._since = 0.0  # when its first reading was received
        self._disturbed = False  # whether the next stop is that of a change or failure
        self._restarted = 0
        self.restarts: Callable[[], int] = lambda: 0  # how often the query was restarted, as its supervisor knows
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind((host, 0))
        self._socket.settimeout(0.5)
        port: int = self._socket.getsockname()[1]
        self.address = MeterAddress(host, port, secrets.token_bytes(_CODE))
        self.thread = ServiceThread("dspkit-meters", "collects the readings of tasks", self._listen)
        self.thread.start()

    def totals(self) -> Totals:
        """Return a copy of the present sums."""
        with self._lock:
            self._follow_clock()
            now, newest = self._totals, self._tokens[-1] if self._tokens else ""
            epoch: dict[int, Counter[str]] = {}
            tasks: Counter[int] = Counter()
            workers: dict[tuple[int, int], str] = {}
            for (token, operator, task), reading in self._last.items():
                if token == newest:
                    if "worker" in reading:
                        workers[operator, int(task.partition(".")[0])] = reading["worker"]
                    sums = epoch.setdefault(operator, Counter())
                    sums.update(reading["counts"])
                    sums.update(_by_instance(reading["counts"], task))
                    tasks[operator] += not reading["final"]
            operators = {i: Counter(counts) for i, counts in now.operators.items()}
            read_to = {i: dict(to) for i, to in now.read_to.items()}
            gaps, commits = list(now.gaps), list(now.commits)
            failed = self.restarts() != self._restarted
            if newest and (failed or not tasks.total()) and self._clock.now() > self._ends:  # it has not ended yet
                (gaps if failed or self._disturbed else commits).append((self._ends, self._clock.now()))
            return Totals(operators, epoch, read_to, tasks, gaps, commits, newest, self._planned[0], workers)

    @property
    def moved_s(self) -> float:
        """Seconds by which the system's clock was set since the job began; intervals in `totals` move with it."""
        with self._lock:
            self._follow_clock()
            return self._moved

    def _follow_clock(self) -> None:
        """Move all known times with the system's clock, if it was set, so that those between them stay the same."""
        if not (step := self._watch.step()):
            return
        self._moved += step
        now, totals = self._clock.now(), self._totals
        self._ends = min(now, self._ends + step)  # a reading may already be of the new time
        for kept in (totals.gaps, totals.commits):
            kept[:] = [(min(now, a + step), min(now, b + step)) for a, b in kept]

    @property
    def parallelism(self) -> list[int]:
        """The instances of each operator in the newest epoch."""
        with self._lock:
            return self._planned[1]

    def blame(self) -> tuple[str, str] | None:
        """Return the operator whose function raised since the last call, and its traceback."""
        with self._lock:
            found, self._failed = self._failed, None
        return found

    def begin_run(self) -> MeterAddress:
        """Return the address for the tasks of a new run of the query; readings of former runs are ignored from now on.

        How far these have read is forgotten: what they did not commit is read again.
        """
        with self._lock:
            self.address = replace(self.address, run=self.address.run + 1)
            self._totals.read_to.clear()
            self._failed = None
            return self.address

    def disturb(self) -> None:
        """Count the next stop of all tasks as downtime: the deployment is about to change."""
        with self._lock:
            self._disturbed = True

    def silent(self, seconds: float) -> list[SilentTask]:
        """Return the running tasks without a reading for `seconds`, if some task has sent one just now."""
        with self._lock:
            now, newest = self._clock.elapsed(), self._tokens[-1] if self._tokens else ""
            ages = {key: now - at for key, at in self._received.items() if key[0] == newest}
            if not ages or min(ages.values()) > _TOGETHER_S:
                return []
            found, begun, pids = [], set(), set()
            for key, age in ages.items():
                reading, instance = self._last[key], int(key[2].partition(".")[0])
                begun.add((key[1], instance))
                pids.add(reading["pid"])
                if age >= seconds and not reading["final"]:
                    found.append(SilentTask(key[1], instance, newest, reading["pid"], reading["host"], age))
            missing = [(i, j) for i, k in enumerate(self._planned[1]) for j in range(k) if (i, j) not in begun]
            if missing and now - self._since >= seconds:
                free = {r["pid"]: r["host"] for r in self._last.values() if r["pid"] not in pids}
                found += [
                    SilentTask(*missing[0], newest, pid, host, now - self._since, certain=False)
                    for pid, host in free.items()
                ]
            return found

    def heavy(self) -> list[HeavyTask]:
        """Return the tasks of the newest epoch whose processes have grown beyond their limit."""
        with self._lock:
            newest = self._tokens[-1] if self._tokens else ""
            return [
                HeavyTask(i, int(task.partition(".")[0]), token, r["pid"], r["counts"]["memory"], r["final"])
                for (token, i, task), r in self._last.items()
                if token == newest and r["heavy"]
            ]

    def close(self) -> None:
        """End the thread and its socket."""
        self.thread.close(5)
        self._socket.close()

    def receive(self, datagram: bytes) -> bytes | None:
        """Count the reading of a datagram, if it is one of this run's and not an old one; return the answer to it."""
        body = self.address.verified(datagram)
        if body is None:
            return None
        reading = json.loads(body)
        with self._lock:
            if reading["run"] == self.address.run:
                if "failed" in reading:
                    self._failed = tuple(reading["failed"])
                else:
                    self._take(reading)
        return self.address.receipt(datagram) if reading.get("answer") else None

    def _listen(self) -> None:
        while not self.thread.ended.is_set():
            try:
                datagram, sender = self._socket.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if (answer := self.receive(datagram)) is not None:
                with contextlib.suppress(OSError):  # it is sent again if it is asked for again
                    self._socket.sendto(answer, sender)

    def _take(self, reading: dict[str, Any]) -> None:
        self._follow_clock()
        token, operator, task = reading["token"], reading["operator"], reading["task"]
        key = (token, operator, task)
        if token not in self._tokens:
            if token in self._over:
                return
            self._new(token, reading)
        last = self._last.get(key)
        if last is not None and reading["number"] <= last["number"]:
            return
        self._received[key] = self._clock.elapsed()
        if reading["read_to"]:
            read = self._totals.read_to.setdefault(operator, {})
            for p, to in reading["read_to"].items():  # a late reading of the epoch before says less
                read[int(p)] = max(to, read.get(int(p), 0))
        before, counts = last["counts"] if last is not None else {}, reading["counts"]
        grown = {name: value - before.get(name, 0) for name, value in counts.items()}
        total = self._totals.operators.setdefault(operator, Counter())
        for name, value in (grown | _by_instance(grown, task)).items():
            total[name] += value
        self._last[key] = reading | {"counts": before | counts}  # a long reading comes in parts
        if token == self._tokens[-1]:
            self._ends = max(self._ends, min(reading["now"], self._clock.now()))

    def _new(self, token: str, reading: dict[str, Any]) -> None:
        """Begin a new epoch at its first reading; between the last one of the old epoch and this no task ran."""
        planned, restarted = (reading["epoch"], reading["k"]), self.restarts()
        if self._tokens and reading["began"] > self._ends:
            routine = (self._planned[0] + 1, self._planned[1]) == planned and restarted == self._restarted
            kept = self._totals.commits if routine and not self._disturbed else self._totals.gaps
            kept.append((self._ends, reading["began"]))
            del kept[:-1000]
        self._planned, self._restarted, self._disturbed = planned, restarted, False
        self._since = self._clock.elapsed()
        self._tokens.append(token)
        for old in self._tokens[:-_KEPT]:
            self._warn_of_lost_readings(old)
            self._over.append(old)
            for key in [k for k in self._last if k[0] == old]:
                del self._last[key], self._received[key]
        del self._tokens[:-_KEPT]

    def _warn_of_lost_readings(self, token: str) -> None:
        """Report that counts are too low if a task of a committed epoch never sent its last reading."""
        readings = [reading for key, reading in self._last.items() if key[0] == token]
        lost = sum(not reading["final"] for reading in readings)
        run, epoch = readings[0]["run"], readings[0]["epoch"]
        planned = {(reading["run"], reading["epoch"]) for key, reading in self._last.items() if key[0] != token}
        if lost and (run, epoch) not in planned and (run, epoch + 1) in planned:
            log.warning(
                "the last readings of %d tasks of epoch %d were lost: what they did in its last %g s is not counted",
                *(lost, epoch, EVERY_S),
            )


def _by_instance(counts: Mapping[str, float], task: str) -> dict[str, float]:
    instance = task.partition(".")[0]
    return {f"{name} {instance}": counts[name] for name in _BY_INSTANCE if name in counts}


class SourceShares:
    """The source records that end in a window: each record of an operator carries its share of one.

    The shares are those of the window in which a record was sent: an operator divides the source records behind what it
    processed in a window evenly over its edges, and on each edge evenly over what it sent there in this window; what is
    sent waits at the receiver, first in, first out, with its share. Where nothing was sent, the part of that edge ends.
    So each source record ends once, in whatever windows it is in flight.
    """

    def __init__(self, topology: Topology, index: Mapping[str, int], before: Totals):
        self._topology, self._index = topology, index
        self._waiting = {name: _Queue() for name in topology.order}
        self.ended({name: before.operators.get(i, Counter()) for name, i in index.items()}, before)  # what waits now

    def ended(self, did: Mapping[str, Mapping[str, float]], after: Totals) -> float:
        """Return the source records that ended in the next window, from what the operators did in it."""
        ended = 0.0
        for name in self._topology.order:
            queue, children = self._waiting[name], self._topology.downstream(name)
            if self._topology.upstream(name):
                carried = queue.take(max(0.0, did[name]["done"]))
                queue.settle(_waiting(self._topology, after, self._index, name))
            else:
                carried = max(0.0, did[name]["done"])
            for child in children:
                sent = max(0.0, did[name][f"edge {self._index[child]}"])
                if sent > 0:
                    self._waiting[child].add(sent, carried / len(children))
                else:
                    ended += carried / len(children)
            ended += 0.0 if children else carried
        return ended


class _Queue:
    """Records that wait, first in, first out, and the source records that they carry."""

    def __init__(self) -> None:
        self._parts: deque[tuple[float, float]] = deque()  # records, source records
        self._owed = 0.0  # records that were processed, and whose sender has not said so yet
        self._early = 0.0  # source records that such records carry

    def add(self, records: float, carried: float) -> None:
        known = min(records, self._owed)
        self._owed -= known
        self._early += carried * known / records
        if records > known:
            self._parts.append((records - known, carried * (records - known) / records))

    def take(self, records: float) -> float:
        """Return the source records that the next `records` carry."""
        carried, self._early = self._early, 0.0
        while records > 0 and self._parts:
            first, behind = self._parts.popleft()
            if first > records:
                self._parts.appendleft((first - records, behind * (1 - records / first)))
                return carried + behind * records / first
            carried += behind
            records -= first
        self._owed += records
        return carried

    def settle(self, waiting: float) -> None:
        """Keep as many records as wait by the tasks' own account.

        Records that were in flight when a try failed are dropped: they are sent again, and their source records counted
        again. Records of which nothing is known carry nothing.
        """
        surplus = sum(records for records, _ in self._parts) - self._owed - waiting
        if surplus > 0:
            self.take(surplus)
        elif surplus < 0:
            forgiven = min(self._owed, -surplus)
            self._owed -= forgiven
            self._parts.appendleft((-surplus - forgiven, 0.0))


_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class ObservedWindow:
    """Properties of a window that the meters do not know; times on the job's own clock, in seconds."""

    start: float
    end: float
    deployment: Deployment
    execution: str
    offered: Mapping[str, float]  # records by source within the window
    lag: Mapping[str, float]  # by source, at its end
    gaps: tuple[tuple[float, float], ...]  # intervals in which no task ran, for a change or failure
    nodes: Mapping[str, float]
    commits: tuple[tuple[float, float], ...] = ()  # intervals in which no task ran, as an epoch was committed
    delays: Mapping[tuple[str, str], float] = FrozenMap()  # between workers

    def overlap(self, intervals: Sequence[tuple[float, float]]) -> float:
        """Return the seconds of the window that are in any of these intervals."""
        seconds, upto = 0.0, self.start
        for a, b in sorted(intervals):
            seconds += max(0.0, min(b, self.end) - max(a, upto))
            upto = max(upto, b)
        return seconds


def snapshot(
    topology: Topology,
    names: Sequence[str],
    window: ObservedWindow,
    before: Totals,
    after: Totals,
    shares: SourceShares | None = None,
) -> Snapshot:
    """Return the snapshot of a window; `names` are in the order in which the meters number the operators.

    `shares` knows the records in flight at its beginning; without it, they carry the shares of the run so far.
    """
    w = window.end - window.start
    index = {name: i for i, name in enumerate(names)}
    did = {n: _difference(before.operators.get(i), after.operators.get(i)) for n, i in index.items()}
    sent = {(u, v): max(0.0, did[u][f"edge {index[v]}"]) for u, v in topology.edges}
    operators = {}
    for name in topology.order:
        k, d = window.deployment.parallelism[name], did[name]
        busy = max(0.0, min(d["busy"], w * k))
        done, source = max(0.0, d["done"]), name in topology.sources
        children = topology.downstream(name)
        operators[name] = OperatorMetrics(
            input_rate=(window.offered[name] if source else sum(sent[u, name] for u in topology.upstream(name))) / w,
            processing_rate=done / w,
            output_rate=(sum(sent[name, v] for v in children) if children else max(0.0, d["results"])) / w,
            true_rate=done / busy if done > 0 and busy > 0 else None,
            utilisation=busy / (w * k),
            backlog=window.lag[name] if source else max(0.0, _waiting(topology, after, index, name)),
            parallelism=k,
            cpu=max(0.0, d["cpu"]) / w,
            blocked=min(1.0, max(0.0, d["blocked"]) / (w * k)),
            instances=tuple(_instance(topology, after, index, name, i, d, w) for i in range(k)),
            state_keys=_state(after, index[name], "state_keys", k),
            state_bytes=_state(after, index[name], "state_bytes", k),
            late_rate=max(0.0, d["late"]) / w if "late" in after.operators.get(index[name], ()) else None,
        )
    latency, event = (_latency(did, topology, kind) for kind in ("latency", "event"))
    down = min(w, window.overlap(window.gaps))
    shares = shares or SourceShares(topology, index, before)
    return Snapshot(
        t=window.end,
        window_s=w,
        deployment=window.deployment,
        operators=operators,
        source_rates={name: operators[name].input_rate for name in topology.sources},
        throughput=shares.ended(did, after) / w,
        latency=latency,
        event_latency=event,
        lag=sum(window.lag[name] for name in topology.sources),
        edge_rates={edge: count / w for edge, count in sent.items()},
        nodes=window.nodes,
        delays=window.delays,
        downtime_s=down,
        commit_s=min(w - down, window.overlap(window.commits)),
        execution=window.execution,
    )


def _state(after: Totals, operator: int, name: str, instances: int) -> float | None:
    """Return the size of an operator's state; None while an instance of the epoch has not sent its own."""
    epoch = after.epoch.get(operator, Counter())
    return float(epoch[name]) if epoch["state tasks"] >= instances else None


def _instance(
    topology: Topology, after: Totals, index: Mapping[str, int], name: str, i: int, did: Mapping[str, float], w: float
) -> InstanceMetrics:
    waiting = _waiting(topology, after, index, name, f" {i}") if name not in topology.sources else None
    return InstanceMetrics(
        processing_rate=max(0.0, did[f"done {i}"]) / w,
        utilisation=min(1.0, max(0.0, did[f"busy {i}"]) / w),
        backlog=None if waiting is None else max(0.0, waiting),
        cpu=max(0.0, did[f"cpu {i}"]) / w,
        memory_bytes=after.epoch.get(index[name], Counter()).get(f"memory {i}"),
    )


def _difference(before: Counter[str] | None, after: Counter[str] | None) -> Counter[str]:
    difference = Counter(after or {})
    difference.subtract(before or {})
    return difference


def _waiting(topology: Topology, after: Totals, index: Mapping[str, int], name: str, instance: str = "") -> float:
    """Return the records between the senders and the end of this operator's work; there are none between epochs.

    It can be below zero, as tasks do not send their readings at the very same moment.
    """
    epoch, nothing = after.epoch, Counter[str]()
    sent = sum(epoch.get(index[u], nothing)[f"edge {index[name]}{instance}"] for u in topology.upstream(name))
    return float(sent - epoch.get(index[name], nothing)[f"done{instance}"])


def _latency(did: Mapping[str, Counter[str]], topology: Topology, kind: str) -> Latency | None:
    histogram: Counter[int] = Counter()
    total = 0.0
    for name in topology.sinks:
        total += did[name][f"{kind} sum"]
        for key, count in did[name].items():
            word, _, rest = key.partition(" ")
            if word == kind and rest != "sum" and count > 0:
                histogram[int(rest)] += count
    records = sum(histogram.values())
    if not records:
        return None
    levels, seen, wanted = [], 0, list(_SHARES)
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        while wanted and seen >= wanted[0] * records:
            levels.append(middle(bucket))
            wanted.pop(0)
    return Latency(max(0.0, total) / records, *levels)
