"""Tasks that move with their state while records flow: pause and resume, with two barriers [nardelli].

A migration makes three roles. An *upstream* task sends to one that moves: it marks the end of the stream (EOS) and puts
what follows into an output buffer. The *migrating* task stops, marks the end of all its streams, takes in what comes
before its senders' marks, and leaves state and input buffer in the data store of its node. A *downstream* task stops
until it has the marks of all senders that move. Barrier 1: all have saved, or drained; only then does anybody stop
running. Barrier 2, task by task: the state is there again; who waited for it flushes the output buffer.

| mode | the task |
|---|---|
| operational | works; some of its streams may be paused |
| draining | waits for marks of senders that move; its logic stands still |
| saving | has stopped, and waits for its senders' marks |
| saved | is at barrier 1, and may be ended |
| restoring | was started on its new node, and fetches its state |

Choices where the thesis is silent: streams are paused by operator (its prototype); drained downstream tasks count for
barrier 1 (its prototype; else records in flight can be lost); what waits for a task that moves, moves with the output
buffer; sequence numbers by channel drop what comes twice. The thesis once says "synchronization buffer" for barrier 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .network import Kept, Name

if TYPE_CHECKING:
    from .flow import Flow

OPERATIONAL, DRAINING, SAVING, SAVED, RESTORING, DEAD = "operational draining saving saved restoring dead".split()
Number = tuple[int, int]  # of a record on its channel: births of its sender, and the count since
NONE = (-1, 0)
Logic = Callable[[Any, Hashable, Any], tuple[Any, Any]]  # (state, key, value) -> (state, value to send)


@dataclass
class Pause:
    """A stream that is paused: who has to be restored before it goes on, and what waits for that."""

    until: set[tuple[int, Name]] = field(default_factory=set)
    buffer: list[tuple[Hashable, Any]] = field(default_factory=list)


class Task:
    """One task: its logic, its buffers, and what it does in each role."""

    def __init__(self, flow: Flow, name: Name, node: str, state: Any):
        self.flow, self.name, self.node, self.first = flow, name, node, state
        self.mode, self.busy = OPERATIONAL, False
        self.life = self.births = 0  # processes that ran it; times that it began without its state
        self.waiting: list[int] = []  # migrations it was told of while it was busy or restoring
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
        return self.mode in (OPERATIONAL, DRAINING)

    # Records

    def deliver(self, sender: Name, number: Number, key: Hashable, value: Any) -> None:
        """A record arrives; nobody is there to take it if the task has ended."""
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
        if self.mode == OPERATIONAL and self.inbox and not self.busy:
            self.busy = True
            takes = self.flow.net.costs.service_s if self.flow.senders(self.name) else 0.0
            self.flow.net.at(self.flow.net.now + takes, self.done, self.life, *self.inbox.popleft())

    def done(self, life: int, key: Hashable, value: Any) -> None:
        if life != self.life:
            return  # it crashed meanwhile
        self.busy = False
        self.flow.worked.append((self.flow.net.now, self.name, key))
        self.state, value = self.flow.logic[self.name[0]](self.state, key, value)
        self.emit(key, value)
        self._told_meanwhile()
        self.work()

    def emit(self, key: Hashable, value: Any) -> None:
        """One record to one task of each operator below; or into the buffer of a paused stream."""
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
        """Migration m begins. A record in service is finished first; who is not there hears of it when it is back.

        Who is saved still answers, or two migrations that meet would wait for each other.
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
        """The end of a stream arrives: nothing comes after it before barrier 2."""
        self.marks.setdefault(m, set()).add(sender)
        self.progress = self.flow.net.now
        self.progress_made()

    def progress_made(self) -> None:
        """See whether the marks that were waited for are there."""
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
        """An end of stream is missing for too long: go on with what is there, and say so."""
        due = self.progress + self.flow.net.costs.eos_wait_s
        if self.mode == SAVING and self.moving == m:
            if self.flow.net.now + 1e-9 < due:
                self.flow.net.at(due, self.patience, m)
            else:
                self.flow.migrations[m].degraded.append(f"{self.name[0]}[{self.name[1]}] missed an end of stream")
                self.save()

    def save(self) -> None:
        """Leave all that is known in the data store of this node: barrier 1."""
        assert self.moving is not None
        self.mode = SAVED
        outboxes = {operator: pause.buffer for operator, pause in self.paused.items()}
        records = len(self.inbox) + sum(map(len, outboxes.values()))
        size = self.flow.state_bytes + records * self.flow.net.costs.record_bytes
        kept = Kept(self.state, list(self.inbox), outboxes, dict(self.sent), dict(self.seen), size)
        self.flow.migrations[self.moving].buffered[self.name] = len(self.inbox)
        self.flow.migrations[self.moving].size += size
        self.flow.net.at(self.flow.net.now + size / self.flow.net.costs.bytes_per_s, self.flow.kept, self, kept)

    # On the new node

    def crash(self) -> None:
        """The process dies, and all that it knew with it."""
        self.mode, self.births = DEAD, self.births + 1
        self.end()
        self.flow.lost += len(self.inbox) + self.busy + sum(len(pause.buffer) for pause in self.paused.values())
        paused = self.paused
        self._begin(self.first)
        self.paused = {op: Pause(pause.until) for op, pause in paused.items()}

    def end(self) -> None:
        """The process ends: what it sent and what has not arrived is lost with it."""
        self.life += 1

    def start(self, node: str) -> None:
        """The process begins on its new node, and looks where its state is."""
        self.node, self.mode, self.busy = node, RESTORING, False
        self.flow.crashed.discard(self.name)
        net, kept = self.flow.net, self.flow.stores.pop(self.name, None)
        away = kept is not None and self.flow.store.where.pop(self.name) != node
        fetch = 2 * net.costs.delay_s + kept.size / net.costs.bytes_per_s if kept and away else 0.0
        net.at(net.now + fetch + net.costs.drain_wait_s, self.restored, kept)

    def restored(self, kept: Kept | None) -> None:
        """Barrier 2; then the input buffer, then what comes."""
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
        self._told_meanwhile()
        self.work()

    def resume(self) -> None:
        """Flush the streams whose targets are all restored, in order."""
        if not self.works:
            return  # what waits moves with it, and is looked at again when it is back
        for operator, pause in list(self.paused.items()):
            pause.until = {(m, t) for m, t in pause.until if t not in self.flow.store.restored.get(m, ())}
            if not pause.until:
                del self.paused[operator]
                for key, value in pause.buffer:
                    self._send(operator, key, value)

    def _mark_again(self) -> None:
        """Marks that were under way when the old process ended did not arrive; others know."""
        for operator, pause in self.paused.items():
            for m in {m for m, _ in pause.until if self.flow.migrations[m].barrier_s is None}:
                self._mark(m, operator)

    def _told_meanwhile(self) -> None:
        told, self.waiting = self.waiting, []
        for m in told:
            self.notice(m)
