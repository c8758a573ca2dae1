"""A running job whose tasks migrate: who sends to whom, the notifier of migrations, and what to look at afterwards."""

from __future__ import annotations

import math
import zlib
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core import Deployment, Topology
from ..errors import DeploymentError, WorkloadError
from .network import Costs, Kept, Name, Network, Store
from .protocol import DEAD, NONE, RESTORING, SAVED, Logic, Task


@dataclass
class Migration:
    """One migration: which tasks go where, and when what happened."""

    moves: Mapping[Name, str]
    asked_s: float
    expected: set[Name]  # whom barrier 1 waits for
    barrier_s: float | None = None  # barrier 1
    restored_s: dict[Name, float] = field(default_factory=dict)  # barrier 2, task by task
    stopped: dict[Name, float] = field(default_factory=dict)  # when a task that moves stopped
    buffered: dict[Name, int] = field(default_factory=dict)  # records in the input buffer that was saved
    size: float = 0.0  # bytes saved
    degraded: list[str] = field(default_factory=list)
    progress: float = 0.0

    @property
    def duration_s(self) -> float | None:
        """From the request until the last task is at barrier 2; None if it never was."""
        return max(self.restored_s.values()) - self.asked_s if len(self.restored_s) == len(self.moves) else None

    @property
    def downtime_s(self) -> dict[Name, float]:
        """Seconds for which each task that moved stood still."""
        return {t: end - self.stopped[t] for t, end in self.restored_s.items() if t in self.stopped}


def forward(state: Any, key: Hashable, value: Any) -> tuple[Any, Any]:
    """Send on what comes."""
    return state, value


def count(state: Any, key: Hashable, value: Any) -> tuple[Any, Any]:
    """Count, and send the count."""
    return state + 1, state + 1


class Flow:
    """Tasks of a topology that pass records on, each to one task of every operator below, by key.

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
        costs: Costs | None = None,
        seed: int = 0,
    ):
        """`logic` by operator; sources forward, the others count. `state_bytes` is that of one task."""
        if not (isinstance(state_bytes, (int, float)) and 0 <= state_bytes < math.inf):
            raise DeploymentError(f"state_bytes={state_bytes!r}", expected="a finite number >= 0", fix="in bytes")
        self.topology, self.state_bytes = topology, float(state_bytes)
        self.counts = dict(topology.check(Deployment({**topology.uniform(), **(tasks or {})})).parallelism)
        self.net, self.store = Network(costs or Costs(), seed), Store()
        default = {name: count if topology.upstream(name) else forward for name in topology.order}
        self.logic: Mapping[str, Logic] = {**default, **(logic or {})}
        names = [(name, i) for name, n in self.counts.items() for i in range(n)]
        self.tasks = {t: Task(self, t, (places or {}).get(t, "node-1"), 0) for t in names}
        self.migrations: list[Migration] = []
        self.stores: dict[Name, Kept] = {}  # of all nodes, by the task that was saved there
        self.crashed: set[Name] = set()
        self.unread: dict[Name, deque[tuple[Hashable, Any]]] = {}  # what came to a source that moves
        self.sent: dict[tuple[Name, Name], list[Hashable]] = {}  # keys by channel, in order
        self.received: dict[tuple[Name, Name], list[Hashable]] = {}
        self.worked: list[tuple[float, Name, Hashable]] = []
        self.results: list[tuple[Name, Hashable, Any]] = []  # what came out of sinks
        self.lost = self.repeated = self._fed = 0

    # What a user does

    def feed(self, source: str, times: Sequence[float], keys: Sequence[Hashable] | None = None) -> None:
        """Records come to `source` at these times, with keys 1, 2, ... unless given; each goes to a task by its key."""
        if source not in self.topology.sources:
            raise WorkloadError(f"source {source!r}", expected=f"one of {self.topology.sources}", fix="check the name")
        if not all(isinstance(t, (int, float)) and 0 <= t < math.inf for t in times):
            raise WorkloadError("times of records", expected="finite seconds >= 0", fix="mend or drop them")
        if keys is not None and len(keys) != len(times):
            raise WorkloadError(
                f"{len(keys)} keys for {len(times)} times", expected="one each", fix="or leave keys out"
            )
        for i, t in enumerate(times):
            self._fed += 1
            self.net.at(t, self._arrive, source, self._fed if keys is None else keys[i])

    def migrate(self, at_s: float, moves: Mapping[Name, str]) -> int:
        """Ask that these tasks move to these nodes; the number of the migration."""
        for task in moves:
            self._known(task)
        below = {t for task in moves for op in self.below(task) for t in self.tasks_of(op)}
        self.migrations.append(Migration(dict(moves), at_s, set(moves) | below))
        self.net.at(at_s, self._publish, len(self.migrations) - 1)
        return len(self.migrations) - 1

    def crash(self, at_s: float, task: Name) -> None:
        """The process of `task` dies; if it is to move, it begins anew on its new node, without its state."""
        self._known(task)
        self.net.at(at_s, self._crash, task)

    def play(self, until: float = float("inf")) -> None:
        self.net.play(until)

    def task(self, operator: str, index: int = 0) -> Task:
        return self.tasks[operator, index]

    # Who is who

    def below(self, task: Name) -> tuple[str, ...]:
        return self.topology.downstream(task[0])

    def tasks_of(self, operator: str) -> list[Name]:
        return [(operator, i) for i in range(self.counts[operator])]

    def senders(self, task: Name) -> set[Name]:
        return {t for op in self.topology.upstream(task[0]) for t in self.tasks_of(op)}

    def target(self, operator: str, key: Hashable) -> Name:
        """The task of `operator` that gets this key: the same in every process."""
        spread = key if isinstance(key, int) else zlib.crc32(repr(key).encode())
        return operator, spread % self.counts[operator]

    def _known(self, task: Name) -> None:
        if task not in self.tasks:
            raise DeploymentError(f"task {task!r}", expected=f"one of {sorted(self.tasks)}", fix="check the name")

    # What tasks ask for

    def send(self, sender: Task, target: Name, what: str, *message: Any) -> None:
        """On the channel between two tasks; `what` is "deliver" or "mark"."""
        near = sender.node == self.tasks[target].node
        self.net.send((sender.name, target), near, self._arrives, sender, sender.life, target, what, message)

    def _arrives(self, sender: Task, life: int, target: Name, what: str, message: tuple[Any, ...]) -> None:
        if sender.life == life:
            getattr(self.tasks[target], what)(sender.name, *message)
        elif what == "deliver" and message[0] > self.tasks[target].seen.get(sender.name, NONE):
            self.lost += 1  # connections end with the process

    def kept(self, task: Task, what: Kept) -> None:
        """The data store of the task's node has it: barrier 1 of this task."""
        if task.mode == SAVED and task.moving is not None:
            self.stores[task.name], self.store.where[task.name] = what, task.node
            self.saved(task.moving, task.name)

    def saved(self, m: int, task: Name) -> None:
        self.store.saved.setdefault(m, set()).add(task)
        self.migrations[m].progress = self.net.now
        self.net.told(self._barrier, m)

    def restored(self, m: int, task: Name) -> None:
        self.store.restored.setdefault(m, set()).add(task)
        self.migrations[m].restored_s[task] = self.net.now
        for sender in self.senders(task):
            self.net.told(self.tasks[sender].resume)

    # The notifier

    def _publish(self, m: int) -> None:
        moves = self.migrations[m].moves
        busy = [t for t in moves if any(t in o.moves and t not in o.restored_s for o in self.migrations[:m])]
        if busy:
            raise DeploymentError(
                f"{busy[0]} asked to move while it moves", expected="one move at a time", fix="wait for barrier 2"
            )
        self.migrations[m].progress = self.net.now
        for task in self.tasks.values():
            self.net.told(task.notice, m)
        self.net.at(self.net.now + self.net.costs.barrier_wait_s, self._patience, m)

    def _barrier(self, m: int) -> None:
        """Barrier 1: publish the new places once all have saved or drained."""
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
        elif task.mode != DEAD:  # its log keeps it
            self.unread.setdefault(task.name, deque()).append((key, key))
        else:
            self.lost += 1
