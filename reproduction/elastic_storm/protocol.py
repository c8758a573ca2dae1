"""Migration of tasks with their state while records flow: pause and resume with two barriers [nardelli].

A migration has three roles. An *upstream* task sends to a migrating one: it marks the end of the stream (EOS) and puts
later records into an output buffer. The *migrating* task stops, marks the end of all its streams, receives the records
before its senders' marks, and stores state and input buffer in the data store of its node. A *downstream* task stops
until it has the marks of all migrating senders. Barrier 1: all tasks are saved or drained; only then do processes end.
Barrier 2, per task: its state is restored, and its upstream tasks flush their output buffers.

| mode | the task |
|---|---|
| operational | works; some of its streams may be paused |
| draining | waits for marks of migrating senders; its logic is paused |
| saving | has stopped, and waits for its senders' marks |
| saved | is at barrier 1, and may be ended |
| restoring | was started on its new node, and fetches its state |

Choices where the thesis is silent: streams are paused by operator (as in its prototype); drained downstream tasks count
for barrier 1 (as in its prototype; otherwise records in flight can be lost); records that wait for a migrating task
move with the output buffer; sequence numbers per channel discard duplicates. The thesis once writes "synchronisation
buffer" for barrier 1.

The simulation consists of a clock and ordered channels (`MessageNetwork`), the nodes' data stores and a coordination
store (`StateStore`), tasks (`MigratingTask`), and the running job with the notifier of migrations (`Flow`).
"""

from __future__ import annotations

import heapq
import math
import random
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from dspkit.core import ArgumentError, Deployment, DeploymentError, Knobs, Topology, WorkloadError, knob
from dspkit.plots import Plot
from dspkit.plots.theme import PALETTE, Spec, axis, plot

Name = tuple[str, int]  # (operator, index of the task)


@dataclass(frozen=True)
class MigrationCosts(Knobs):
    """Durations of the parts of a migration.

    Examples
    --------
    >>> MigrationCosts(start_s=1.0).start_s
    1.0
    """

    delay_s: float = knob(1e-3, "network delay between nodes", low=0.0, high=60.0, unit="s")
    service_s: float = knob(1e-3, "a task's work on one record", low=0.0, high=60.0, unit="s")
    watch_s: float = knob(5e-3, "delay of notifications from the coordination store", low=0.0, high=60.0, unit="s")
    poll_s: float = knob(
        0.0, "polling interval, 0 for notifications; the prototype polls every second", low=0.0, high=60.0, unit="s"
    )
    start_s: float = knob(0.5, "to start a task on its new node", low=0.0, high=600.0, unit="s")
    bytes_per_s: float = knob(
        12.5e6, "speed at which state travels and is kept", low=1.0, high=math.inf, unit="B/s", infinite=True
    )
    record_bytes: float = knob(100.0, "size of a record in a buffer", low=0.0, high=1e9, unit="B")
    eos_wait_s: float = knob(120.0, "timeout of a missing end of stream", low=0.0, high=3600.0, unit="s")
    barrier_wait_s: float = knob(180.0, "timeout of barrier 1", low=0.0, high=3600.0, unit="s")
    drain_wait_s: float = knob(
        0.0, "wait of a restored task before it resumes; the prototype up to 10 s", low=0.0, high=60.0, unit="s"
    )
    repeats: float = knob(0.0, "share of records that the network delivers twice", low=0.0, high=1.0)
    jitter: float = knob(0.0, "greatest random increase of a delay, as a multiple of it", low=0.0, high=100.0)


@dataclass
class StoredTask:
    """A migrating task in the data store of its node."""

    state: Any
    inbox: list[Any]
    outboxes: dict[str, list[Any]]
    sent: dict[Name, int]
    seen: dict[Name, tuple[int, int]]
    size: float


@dataclass
class StateStore:
    """The coordination store: saved tasks (barrier 1), restored tasks (barrier 2), and the location of each state."""

    saved: dict[int, set[Name]] = field(default_factory=dict)
    restored: dict[int, set[Name]] = field(default_factory=dict)
    where: dict[Name, str] = field(default_factory=dict)


class MessageNetwork:
    """Events in the order of their time, and messages that arrive in the order in which they were sent."""

    def __init__(self, costs: MigrationCosts, seed: int = 0):
        self.now, self.costs, self.random = 0.0, costs, random.Random(seed)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._last: dict[Hashable, float] = {}  # arrival of the last message of each channel

    def at(self, t: float, what: Callable[..., None], *details: Any) -> None:
        """Schedule a call at time t."""
        self._count += 1
        heapq.heappush(self._events, (max(t, self.now), self._count, what, details))

    def notify(self, what: Callable[..., None], *details: Any) -> None:
        """Notify of a change in the coordination store: after a delay, or at the next poll."""
        t = self.now + self._longer(self.costs.watch_s)
        if self.costs.poll_s:
            t = math.ceil(t / self.costs.poll_s) * self.costs.poll_s
        self.at(t, what, *details)

    def send(self, channel: Hashable, same_node: bool, deliver: Callable[..., None], *message: Any) -> None:
        """Deliver a message on a channel, in order; a share of messages is delivered twice."""
        t = self.now + (0.0 if same_node else self._longer(self.costs.delay_s))
        self._last[channel] = t = max(t, self._last.get(channel, 0.0))
        self.at(t, deliver, *message)
        if self.random.random() < self.costs.repeats:  # some time later
            self.at(t + self._longer(max(self.costs.delay_s, self.costs.service_s)), deliver, *message)

    def play(self, until: float) -> None:
        """Process all events before `until`."""
        while self._events and self._events[0][0] <= until:
            t, _, what, details = heapq.heappop(self._events)
            self.now = t
            what(*details)
        self.now = max(self.now, min(until, math.inf)) if math.isfinite(until) else self.now

    def _longer(self, seconds: float) -> float:
        return seconds * (1 + self.costs.jitter * self.random.random()) if self.costs.jitter else seconds


OPERATIONAL, DRAINING, SAVING, SAVED, RESTORING, DEAD = "operational draining saving saved restoring dead".split()
Number = tuple[int, int]  # of a record on its channel: births of its sender, and the count since
NONE = (-1, 0)
Logic = Callable[[Any, Hashable, Any], tuple[Any, Any]]  # (state, key, value) -> (state, value to send)


@dataclass
class Pause:
    """A paused stream: the tasks that have to be restored before it resumes, and its buffer."""

    until: set[tuple[int, Name]] = field(default_factory=set)
    buffer: list[tuple[Hashable, Any]] = field(default_factory=list)


class MigratingTask:
    """One task: its logic, its buffers, and its behaviour in each role."""

    def __init__(self, flow: Flow, name: Name, node: str, state: Any):
        self.flow, self.name, self.node, self.first = flow, name, node, state
        self.mode, self.busy = OPERATIONAL, False
        self.life = self.births = 0  # number of its processes; number of starts without its state
        self.waiting: list[int] = []  # migrations announced while it was busy or restoring
        self.marks: dict[int, set[Name]] = {}  # EOS received, by migration
        self.draining: dict[int, set[Name]] = {}
        self.moving: int | None = None
        self.progress = 0.0
        self._begin(state)

    def _begin(self, state: Any) -> None:
        self.state = state
        self.inbox: deque[tuple[Hashable, Any]] = deque()
        self.paused: dict[str, Pause] = {}
        self.sent: dict[Name, int] = {}
        self.seen: dict[Name, Number] = {}

    @property
    def works(self) -> bool:
        """True if the process is running with its state."""
        return self.mode in (OPERATIONAL, DRAINING)

    # Records

    def deliver(self, sender: Name, number: Number, key: Hashable, value: Any) -> None:
        """Receive a record; it is lost if the process has ended."""
        if number <= self.seen.get(sender, NONE):
            self.flow.repeated += 1
            return
        if self.mode in (SAVED, RESTORING, DEAD):
            self.flow.lost += 1
            return
        self.seen[sender], self.progress = number, self.flow.net.now
        self.flow.received.setdefault((sender, self.name), []).append(key)
        self.inbox.append((key, value))
        self.work()

    def work(self) -> None:
        """Begin with the next record, if the task is free."""
        if self.mode == OPERATIONAL and self.inbox and not self.busy:
            self.busy = True
            takes = self.flow.net.costs.service_s if self.flow.senders(self.name) else 0.0
            self.flow.net.at(self.flow.net.now + takes, self.done, self.life, *self.inbox.popleft())

    def done(self, life: int, key: Hashable, value: Any) -> None:
        """Finish a record: update the state and send the result."""
        if life != self.life:
            return  # the process crashed meanwhile
        self.busy = False
        self.flow.worked.append((self.flow.net.now, self.name, key))
        self.state, value = self.flow.logic[self.name[0]](self.state, key, value)
        self.emit(key, value)
        self._announced_meanwhile()
        self.work()

    def emit(self, key: Hashable, value: Any) -> None:
        """Send one record to one task of each downstream operator, or into the buffer of a paused stream."""
        below = self.flow.below(self.name)
        if not below:
            self.flow.results.append((self.name, key, value))
        for operator in below:
            if operator in self.paused:
                self.paused[operator].buffer.append((key, value))
            else:
                self._send(operator, key, value)

    def _send(self, operator: str, key: Hashable, value: Any) -> None:
        target = self.flow.target(operator, key)
        self.sent[target] = self.sent.get(target, 0) + 1
        self.flow.sent.setdefault((self.name, target), []).append(key)
        self.flow.send(self, target, "deliver", (self.births, self.sent[target]), key, value)

    # Roles

    def notice(self, m: int) -> None:
        """Begin with migration m, after a record in service; a task without a process does so when it is restored.

        A saved task still reacts, as otherwise two overlapping migrations would wait for each other.
        """
        if self.busy or self.mode in (RESTORING, DEAD):
            self.waiting.append(m)
            return
        moving = self.flow.migrations[m].moves
        for operator in self.flow.below(self.name):
            targets = {(m, t) for t in moving if t[0] == operator}
            if targets:  # upstream: pause the stream to the whole operator
                self.paused.setdefault(operator, Pause()).until |= targets
                self._mark(m, operator)
        if self.name in moving:
            self.mode, self.moving, self.progress = SAVING, m, self.flow.net.now
            self.flow.migrations[m].stopped[self.name] = self.flow.net.now
            for operator in self.flow.below(self.name):
                self._mark(m, operator)
            self.flow.net.at(self.progress + self.flow.net.costs.eos_wait_s, self.patience, m)
        elif senders := moving.keys() & self.flow.senders(self.name):
            self.draining[m] = set(senders)
            self.mode = DRAINING if self.mode == OPERATIONAL else self.mode
        self.progress_made()

    def _mark(self, m: int, operator: str) -> None:
        for target in self.flow.tasks_of(operator):
            self.flow.send(self, target, "mark", m)

    def mark(self, sender: Name, m: int) -> None:
        """Receive the end of a stream, after which no record arrives before barrier 2."""
        self.marks.setdefault(m, set()).add(sender)
        self.progress = self.flow.net.now
        self.progress_made()

    def progress_made(self) -> None:
        """Continue if all awaited marks have arrived."""
        excused = self.flow.crashed
        for m, senders in list(self.draining.items()):
            if senders <= self.marks.get(m, set()) | excused:
                del self.draining[m]
                self.flow.saved(m, self.name)
        if self.mode == DRAINING and not self.draining:
            self.mode = OPERATIONAL
            self.work()
        moving = self.mode == SAVING and self.moving is not None
        if moving and self.flow.senders(self.name) <= self.marks.get(self.moving or 0, set()) | excused:
            self.save()

    def patience(self, m: int) -> None:
        """Continue without a missing end of stream after its timeout, and report it."""
        due = self.progress + self.flow.net.costs.eos_wait_s
        if self.mode == SAVING and self.moving == m:
            if self.flow.net.now + 1e-9 < due:
                self.flow.net.at(due, self.patience, m)
            else:
                self.flow.migrations[m].degraded.append(f"{self.name[0]}[{self.name[1]}] missed an end of stream")
                self.save()

    def save(self) -> None:
        """Store state and buffers in the data store of this node: barrier 1."""
        assert self.moving is not None
        self.mode = SAVED
        outboxes = {operator: pause.buffer for operator, pause in self.paused.items()}
        records = len(self.inbox) + sum(map(len, outboxes.values()))
        size = self.flow.state_bytes + records * self.flow.net.costs.record_bytes
        kept = StoredTask(self.state, list(self.inbox), outboxes, dict(self.sent), dict(self.seen), size)
        self.flow.migrations[self.moving].buffered[self.name] = len(self.inbox)
        self.flow.migrations[self.moving].size += size
        self.flow.net.at(self.flow.net.now + size / self.flow.net.costs.bytes_per_s, self.flow.kept, self, kept)

    # On the new node

    def crash(self) -> None:
        """End the process, with the loss of its state and buffers."""
        self.mode, self.births = DEAD, self.births + 1
        self.end()
        self.flow.lost += len(self.inbox) + self.busy + sum(len(pause.buffer) for pause in self.paused.values())
        paused = self.paused
        self._begin(self.first)
        self.paused = {op: Pause(pause.until) for op, pause in paused.items()}

    def end(self) -> None:
        """End the process, with the loss of its messages in flight."""
        self.life += 1

    def start(self, node: str) -> None:
        """Start the process on its new node, and locate its state."""
        self.node, self.mode, self.busy = node, RESTORING, False
        self.flow.crashed.discard(self.name)
        net, kept = self.flow.net, self.flow.stores.pop(self.name, None)
        away = kept is not None and self.flow.store.where.pop(self.name) != node
        fetch = 2 * net.costs.delay_s + kept.size / net.costs.bytes_per_s if kept and away else 0.0
        net.at(net.now + fetch + net.costs.drain_wait_s, self.restored, kept)

    def restored(self, kept: StoredTask | None) -> None:
        """Reach barrier 2, then process the input buffer, then new records."""
        m, paused = self.moving, self.paused
        assert m is not None
        self._begin(self.first if kept is None else kept.state)
        if kept is not None:
            self.inbox.extend(kept.inbox)
            self.sent, self.seen = kept.sent, kept.seen
        boxes = {} if kept is None else kept.outboxes
        self.paused = {op: Pause(pause.until, boxes.get(op, [])) for op, pause in paused.items()}
        self.mode, self.moving = DRAINING if self.draining else OPERATIONAL, None
        self.inbox.extend(self.flow.unread.pop(self.name, ()))
        self.flow.restored(m, self.name)
        self._mark_again()
        self.resume()
        self._announced_meanwhile()
        self.work()

    def resume(self) -> None:
        """Flush the streams whose targets are all restored, in order."""
        if not self.works:
            return  # the buffer moves with the task, and is flushed after its restoration
        for operator, pause in list(self.paused.items()):
            pause.until = {(m, t) for m, t in pause.until if t not in self.flow.store.restored.get(m, ())}
            if not pause.until:
                del self.paused[operator]
                for key, value in pause.buffer:
                    self._send(operator, key, value)

    def _mark_again(self) -> None:
        """Repeat marks, which are lost if they were in flight when the former process ended."""
        for operator, pause in self.paused.items():
            for m in {m for m, _ in pause.until if self.flow.migrations[m].barrier_s is None}:
                self._mark(m, operator)

    def _announced_meanwhile(self) -> None:
        announced, self.waiting = self.waiting, []
        for m in announced:
            self.notice(m)


@dataclass
class Migration:
    """One migration, with the times of its events.

    Parameters
    ----------
    moves : mapping
        New node by task.
    asked_s : float
        Time of the request.
    expected : set
        The tasks that barrier 1 waits for.
    barrier_s : float, optional
        Time of barrier 1.
    restored_s : dict
        Time of barrier 2 by task.
    stopped : dict
        Time at which a migrating task stopped.
    buffered : dict
        Records in the saved input buffer, by task.
    size : float
        Saved bytes.
    degraded : list of str
        Missed guarantees.
    progress : float
        Time of the last progress.

    Examples
    --------
    >>> flow = Flow(Topology.chain("u", "m", "d"))
    >>> number = flow.migrate(0.5, {("m", 0): "node-2"})
    >>> flow.play()
    >>> flow.migrations[number].duration_s < 1.0
    True
    """

    moves: Mapping[Name, str]
    asked_s: float
    expected: set[Name]
    barrier_s: float | None = None
    restored_s: dict[Name, float] = field(default_factory=dict)
    stopped: dict[Name, float] = field(default_factory=dict)
    buffered: dict[Name, int] = field(default_factory=dict)
    size: float = 0.0
    degraded: list[str] = field(default_factory=list)
    progress: float = 0.0

    @property
    def duration_s(self) -> float | None:
        """Seconds from the request until the last task is at barrier 2; None if that was not reached."""
        return max(self.restored_s.values()) - self.asked_s if len(self.restored_s) == len(self.moves) else None

    @property
    def downtime_s(self) -> dict[Name, float]:
        """Seconds for which each migrated task was paused."""
        return {t: end - self.stopped[t] for t, end in self.restored_s.items() if t in self.stopped}


def forward(state: Any, key: Hashable, value: Any) -> tuple[Any, Any]:
    """Return the state and the received value unchanged.

    Parameters
    ----------
    state : object
        The task's state.
    key : hashable
        Key of the record.
    value : object
        The received value.

    Examples
    --------
    >>> forward(0, "a", 5)
    (0, 5)
    """
    return state, value


def counting_logic(state: Any, key: Hashable, value: Any) -> tuple[Any, Any]:
    """Count records, and send the count.

    Parameters
    ----------
    state : int
        The count so far.
    key : hashable
        Key of the record.
    value : object
        The received value.

    Examples
    --------
    >>> counting_logic(2, "a", 5)
    (3, 3)
    """
    return state + 1, state + 1


class Flow:
    """A running job whose tasks migrate; each record goes to one task of every downstream operator, by its key.

    Parameters
    ----------
    topology : Topology
        The operators.
    tasks : mapping, optional
        Number of tasks by operator; by default one each.
    places : mapping, optional
        Node by task; by default "node-1".
    logic : mapping, optional
        Logic by operator; by default sources forward and other operators count.
    state_bytes : float
        Size of the state of one task.
    costs : MigrationCosts, optional
        Durations.
    seed : int
        Seed of random delays and duplicates.

    Examples
    --------
    >>> flow = Flow(Topology.chain("u", "m", "d"))
    >>> flow.feed("u", [0.1 * i for i in range(1, 16)])
    >>> flow.migrate(0.65, {("m", 0): "node-2"})
    0
    >>> flow.play()
    >>> flow.task("m").state, [key for _, key, _ in flow.results] == list(range(1, 16)), flow.lost
    (15, True, 0)
    """

    def __init__(
        self,
        topology: Topology,
        tasks: Mapping[str, int] | None = None,
        *,
        places: Mapping[Name, str] | None = None,
        logic: Mapping[str, Logic] | None = None,
        state_bytes: float = 0.0,
        costs: MigrationCosts | None = None,
        seed: int = 0,
    ):

        if not (isinstance(state_bytes, (int, float)) and 0 <= state_bytes < math.inf):
            raise DeploymentError(f"state_bytes={state_bytes!r}", expected="a finite number >= 0", fix="in bytes")
        self.topology, self.state_bytes = topology, float(state_bytes)
        self.counts = dict(topology.check(Deployment({**topology.uniform(), **(tasks or {})})).parallelism)
        self.net, self.store = MessageNetwork(costs or MigrationCosts(), seed), StateStore()
        default = {name: counting_logic if topology.upstream(name) else forward for name in topology.order}
        self.logic: Mapping[str, Logic] = {**default, **(logic or {})}
        names = [(name, i) for name, n in self.counts.items() for i in range(n)]
        self.tasks = {t: MigratingTask(self, t, (places or {}).get(t, "node-1"), 0) for t in names}
        self.migrations: list[Migration] = []
        self.stores: dict[Name, StoredTask] = {}  # data stores of all nodes, by saved task
        self.crashed: set[Name] = set()
        self.unread: dict[Name, deque[tuple[Hashable, Any]]] = {}  # arrivals at a migrating source
        self.sent: dict[tuple[Name, Name], list[Hashable]] = {}  # keys by channel, in order
        self.received: dict[tuple[Name, Name], list[Hashable]] = {}
        self.worked: list[tuple[float, Name, Hashable]] = []
        self.results: list[tuple[Name, Hashable, Any]] = []  # output of sinks
        self.lost = self.repeated = self._fed = 0

    # The public interface

    def feed(self, source: str, times: Sequence[float], keys: Sequence[Hashable] | None = None) -> None:
        """Schedule the arrival of records at a source; each goes to a task by its key.

        Parameters
        ----------
        source : str
            The source.
        times : sequence of float
            Times of arrival in seconds.
        keys : sequence, optional
            Their keys; by default 1, 2, ...

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"))
        >>> flow.feed("u", [0.1, 0.2])
        >>> flow.play()
        >>> len(flow.results)
        2
        """
        if source not in self.topology.sources:
            raise WorkloadError(f"source {source!r}", expected=f"one of {self.topology.sources}", fix="choose one")
        if not all(isinstance(t, (int, float)) and 0 <= t < math.inf for t in times):
            raise WorkloadError("times of records", expected="finite seconds >= 0", fix="correct or drop them")
        if keys is not None and len(keys) != len(times):
            raise WorkloadError(
                f"{len(keys)} keys for {len(times)} times", expected="one each", fix="or leave keys out"
            )
        for i, t in enumerate(times):
            self._fed += 1
            self.net.at(t, self._arrive, source, self._fed if keys is None else keys[i])

    def migrate(self, at_s: float, moves: Mapping[Name, str]) -> int:
        """Request the migration of tasks, and return its number.

        Parameters
        ----------
        at_s : float
            Time of the request.
        moves : mapping
            New node by task.

        Examples
        --------
        >>> Flow(Topology.chain("u", "d")).migrate(0.5, {("d", 0): "node-2"})
        0
        """
        for task in moves:
            self._known(task)
        below = {t for task in moves for op in self.below(task) for t in self.tasks_of(op)}
        self.migrations.append(Migration(dict(moves), at_s, set(moves) | below))
        self.net.at(at_s, self._publish, len(self.migrations) - 1)
        return len(self.migrations) - 1

    def crash(self, at_s: float, task: Name) -> None:
        """Schedule the crash of a task's process; a migrating task then starts on its new node without its state.

        Parameters
        ----------
        at_s : float
            Time of the crash.
        task : (str, int)
            The task.

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"))
        >>> flow.crash(0.5, ("d", 0))
        >>> flow.play()
        >>> flow.task("d").mode
        'dead'
        """
        self._known(task)
        self.net.at(at_s, self._crash, task)

    def play(self, until: float = float("inf")) -> None:
        """Simulate until a time, by default until no event is left.

        Parameters
        ----------
        until : float
            Time in seconds.

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"))
        >>> flow.play(until=5.0)
        >>> flow.net.now
        5.0
        """
        self.net.play(until)

    def task(self, operator: str, index: int = 0) -> MigratingTask:
        """Return one task.

        Parameters
        ----------
        operator : str
            The operator.
        index : int
            Index of the task.

        Examples
        --------
        >>> Flow(Topology.chain("u", "d")).task("d").node
        'node-1'
        """
        return self.tasks[operator, index]

    # Neighbours of tasks

    def below(self, task: Name) -> tuple[str, ...]:
        """Return the operators that a task sends to.

        Parameters
        ----------
        task : (str, int)
            The task.

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"), {"d": 2})
        >>> flow.below(("u", 0))
        ('d',)
        """
        return self.topology.downstream(task[0])

    def tasks_of(self, operator: str) -> list[Name]:
        """Return the tasks of an operator.

        Parameters
        ----------
        operator : str
            The operator.

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"), {"d": 2})
        >>> flow.tasks_of("d")
        [('d', 0), ('d', 1)]
        """
        return [(operator, i) for i in range(self.counts[operator])]

    def senders(self, task: Name) -> set[Name]:
        """Return the tasks that send to a task.

        Parameters
        ----------
        task : (str, int)
            The task.

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"), {"d": 2})
        >>> flow.senders(("d", 1))
        {('u', 0)}
        """
        return {t for op in self.topology.upstream(task[0]) for t in self.tasks_of(op)}

    def target(self, operator: str, key: Hashable) -> Name:
        """Return the task of `operator` that receives a key; it is the same in every process.

        Parameters
        ----------
        operator : str
            The operator.
        key : hashable
            Key of the record.

        Examples
        --------
        >>> flow = Flow(Topology.chain("u", "d"), {"d": 2})
        >>> flow.target("d", 3)
        ('d', 1)
        """
        spread = key if isinstance(key, int) else zlib.crc32(repr(key).encode())
        return operator, spread % self.counts[operator]

    def _known(self, task: Name) -> None:
        if task not in self.tasks:
            raise DeploymentError(f"task {task!r}", expected=f"one of {sorted(self.tasks)}", fix="choose one")

    # Calls from tasks

    def send(self, sender: MigratingTask, target: Name, kind: str, *message: Any) -> None:
        """Send a message on the channel between two tasks.

        Parameters
        ----------
        sender : MigratingTask
            The sending task.
        target : (str, int)
            The receiving task.
        kind : {"deliver", "mark"}
            A record, or the end of a stream.
        *message : object
            Arguments of the receiver's method of that name.
        """
        near = sender.node == self.tasks[target].node
        self.net.send((sender.name, target), near, self._arrives, sender, sender.life, target, kind, message)

    def _arrives(self, sender: MigratingTask, life: int, target: Name, what: str, message: tuple[Any, ...]) -> None:
        if sender.life == life:
            getattr(self.tasks[target], what)(sender.name, *message)
        elif what == "deliver" and message[0] > self.tasks[target].seen.get(sender.name, NONE):
            self.lost += 1  # connections end with the process

    def kept(self, task: MigratingTask, what: StoredTask) -> None:
        """Record that the data store has a task's state: barrier 1 of this task.

        Parameters
        ----------
        task : MigratingTask
            The task.
        what : StoredTask
            Its state and buffers.
        """
        if task.mode == SAVED and task.moving is not None:
            self.stores[task.name], self.store.where[task.name] = what, task.node
            self.saved(task.moving, task.name)

    def saved(self, m: int, task: Name) -> None:
        """Record in the coordination store that a task is saved or drained.

        Parameters
        ----------
        m : int
            Number of the migration.
        task : (str, int)
            The task.
        """
        self.store.saved.setdefault(m, set()).add(task)
        self.migrations[m].progress = self.net.now
        self.net.notify(self._barrier, m)

    def restored(self, m: int, task: Name) -> None:
        """Record in the coordination store that a task is restored, and notify its senders.

        Parameters
        ----------
        m : int
            Number of the migration.
        task : (str, int)
            The task.
        """
        self.store.restored.setdefault(m, set()).add(task)
        self.migrations[m].restored_s[task] = self.net.now
        for sender in self.senders(task):
            self.net.notify(self.tasks[sender].resume)

    # The notifier

    def _publish(self, m: int) -> None:
        moves = self.migrations[m].moves
        busy = [t for t in moves if any(t in o.moves and t not in o.restored_s for o in self.migrations[:m])]
        if busy:
            raise DeploymentError(
                f"{busy[0]} asked to migrate while it migrates", expected="one move at a time", fix="wait for barrier 2"
            )
        self.migrations[m].progress = self.net.now
        for task in self.tasks.values():
            self.net.notify(task.notice, m)
        self.net.at(self.net.now + self.net.costs.barrier_wait_s, self._patience, m)

    def _barrier(self, m: int) -> None:
        """Publish the new places once all tasks are saved or drained: barrier 1."""
        migration = self.migrations[m]
        if migration.barrier_s is None and migration.expected <= self.store.saved.get(m, set()) | self.crashed:
            self._release(m)

    def _patience(self, m: int) -> None:
        migration = self.migrations[m]
        due = migration.progress + self.net.costs.barrier_wait_s
        if migration.barrier_s is None and self.net.now + 1e-9 < due:
            self.net.at(due, self._patience, m)
        elif migration.barrier_s is None:
            migration.degraded.append("barrier 1 was not reached in time")
            self._release(m)

    def _release(self, m: int) -> None:
        migration = self.migrations[m]
        migration.barrier_s = self.net.now
        for name, node in migration.moves.items():
            task = self.tasks[name]
            if name not in self.stores:
                migration.degraded.append(f"{name[0]}[{name[1]}] begins without its state")
                task.crash()
            else:
                task.end()
            task.moving, task.mode = m, RESTORING
            self.net.at(self.net.now + self.net.costs.start_s, task.start, node)

    def _crash(self, name: Name) -> None:
        self.crashed.add(name)
        self.tasks[name].crash()
        for task in self.tasks.values():
            task.progress_made()
        for m in range(len(self.migrations)):
            self._barrier(m)

    def _arrive(self, source: str, key: Hashable) -> None:
        task = self.tasks[self.target(source, key)]
        if task.works:
            task.inbox.append((key, key))
            task.work()
        elif task.mode != DEAD:  # the source's log keeps the record
            self.unread.setdefault(task.name, deque()).append((key, key))
        else:
            self.lost += 1


def migration_plot(flow: Flow, number: int = 0, *, title: str = "") -> Plot:
    """Plot the processed records of each task, the pauses of the tasks that migrate, and the two barriers.

    Parameters
    ----------
    flow : Flow
        A simulated job with migrations.
    number : int
        Index of the migration.
    title : str, optional
        Title of the figure.

    Examples
    --------
    >>> from dspkit import Topology
    >>> flow = Flow(Topology.chain("u", "m", "d"))
    >>> flow.feed("u", [0.1 * i for i in range(1, 16)])
    >>> number = flow.migrate(0.65, {("m", 0): "node-2"})
    >>> _ = flow.play()
    >>> migration_plot(flow, number).summary
    '1 of 3 tasks moved in ... s; the longest pause is ... s, ... 0 were lost and 0 repeats dropped.'
    """
    if not 0 <= number < len(flow.migrations):
        raise ArgumentError(
            f"migration {number}", expected=f"one of {len(flow.migrations)}", fix="request one by flow.migrate(...)"
        )
    m = flow.migrations[number]
    label = {task: escape(f"{task[0]}[{task[1]}]") for task in flow.tasks}
    begin, end = m.asked_s, max(m.restored_s.values(), default=m.asked_s)
    first, last = begin - 0.5 * (end - begin) - 0.1, end + 0.7 * (end - begin) + 0.1
    near = [(t, task, key) for t, task, key in flow.worked if first <= t <= last]
    rows = [label[t] for t in reversed(list(flow.tasks))]
    traces: list[Spec] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "a record",
            "x": [t for t, _, _ in near],
            "y": [label[task] for _, task, _ in near],
            "text": [f"key {escape(str(key))}" for _, _, key in near],
            "marker": {"size": 6, "color": PALETTE[0]},
            "hovertemplate": "%{text} at %{x:.3f} s<extra></extra>",
        }
    ]
    for i, (task, stopped) in enumerate(m.stopped.items()):
        back = m.restored_s.get(task, last)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "paused",
                "legendgroup": "paused",
                "showlegend": not i,
                "x": [stopped, back],
                "y": [label[task]] * 2,
                "line": {"width": 12, "color": "rgba(213, 94, 0, 0.35)"},
                "hovertemplate": f"{back - stopped:.3g} s<extra></extra>",
            }
        )
    marks = {"asked": m.asked_s, "barrier 1": m.barrier_s, "barrier 2": end if m.restored_s else None}
    shown = {text: t for text, t in marks.items() if t is not None}
    layout: Spec = {
        "xaxis": axis("seconds", range=[first, last]),
        "yaxis": axis("", type="category", categoryorder="array", categoryarray=rows, range=[-0.6, len(rows) - 0.4]),
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.14, "yanchor": "bottom"},
        "shapes": [
            {"type": "line", "x0": t, "x1": t, "yref": "paper", "y0": 0, "y1": 1,
             "line": {"width": 1, "dash": "dot", "color": "#000000"}} for t in shown.values()
        ],
        "annotations": [
            {"x": t, "y": 1, "yref": "paper", "yanchor": "bottom", "text": text, "showarrow": False, "textangle": -30,
             "xanchor": "left"} for text, t in shown.items()
        ],
    }  # fmt: skip
    longest = max(m.downtime_s.values(), default=0.0)
    kept = sum(m.buffered.values())
    said = f"{len(m.moves)} of {len(flow.tasks)} tasks moved in {end - begin:.3g} s"
    said += f"; the longest pause is {longest:.3g} s"
    summary = (
        f"{said}, {kept} records moved in input buffers, {flow.lost} were lost and {flow.repeated} repeats dropped."
    )
    return plot(traces, layout, summary, height=130 + 34 * len(rows), title=title)
