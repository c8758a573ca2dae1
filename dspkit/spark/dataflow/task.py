"""A Spark task: one instance of an operator, between incoming and outgoing frames.

In real-time mode a stream cannot fork, so branches share one line of stages in topological order: each stage hosts one
operator and forwards, unopened, frames for a later one.

`PushGenerator` runs a user's function beside its caller: a generator that reads from another one is only ever asked for
its next output, and keeps control until it has one. Here the caller must regain control when the generator asks for
more input. They take turns, in two threads.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..dead_letters import DeadLetters, as_declared, described, storable
from ..errors import CHECKPOINT_FAILED, FAILED, SOURCE_FAILED, CheckpointError, FunctionError, SourceError
from ..event_time import Late
from ..functions import Function
from ..metering import BLOCKED, BUSY, WAIT, ClockWatch, Meter, MeterAddress, memory_bytes, worker_number
from ..sinks.sink import Staging
from . import state, store, watermarks
from .exchange import (
    END,
    FEWEST,
    LARGEST,
    OPERATOR,
    STAMPS,
    WORK_S,
    Edge,
    Records,
    Row,
    keys_of,
    runs,
    stamped,
    unpack_query,
    wire,
)
from .state import KeyedState
from .watermarks import BEFORE, MARK, MARK_S, PartitionTimes, Timers, Watermarks

if TYPE_CHECKING:
    import pyarrow as pa

    from ..sinks.sink import Sink
    from ..sources.log import LogSource
    from ..sources.trace import TraceSource


In = TypeVar("In")
Out = TypeVar("Out")
_END = object()
_MOST = 1 << 30
GROWTH_BYTES = 1 << 30  # by which a worker may grow beyond its first epochs; one that leaks is replaced
# Bytes of this process at the end of its first epoch with records of an operator, which has then loaded what it needs.
_settled: dict[tuple[Path, int], int] = {}
_runs = itertools.count()  # of tasks, in this process


class PushGenerator(Generic[In, Out]):
    """A generator in a thread of its own: `start()`, then `give(x)` per input, then `end()`.

    Each call yields the outputs so far, and returns when the generator asks for its next input.

    >>> def pairs(numbers):
    ...     for n in numbers:
    ...         if n % 2:
    ...             yield n
    ...             yield n
    >>> beside = PushGenerator(pairs)
    >>> list(beside.start()), list(beside.give(1)), list(beside.give(2)), list(beside.end())
    ([], [1, 1], [], [])
    """

    def __init__(self, make: Callable[[Iterator[In]], Iterator[Out]]):
        self._make = make
        self._in: SimpleQueue[Any] = SimpleQueue()
        self._out: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._done = False

    def start(self) -> Iterator[Out]:
        """Start the generator, and yield its outputs up to its first request for input."""
        self._thread.start()
        yield from self._until_asked()

    def give(self, value: In) -> Iterator[Out]:
        """Pass an input, and yield the outputs up to the next request."""
        if not self._done:
            self._in.put(value)
            yield from self._until_asked()

    def end(self) -> Iterator[Out]:
        """End the input, and yield the remaining outputs."""
        if not self._done:
            self._in.put(_END)
            yield from self._until_asked()
        self._thread.join()

    def _until_asked(self) -> Iterator[Out]:
        while True:
            kind, value = self._out.get()
            if kind == "made":
                yield value
                self._in.put(None)  # the output was taken: continue
            elif kind == "asks":
                return
            else:
                self._done = True
                if kind == "failed":
                    raise value
                return

    def _work(self) -> None:
        try:
            for value in self._make(self._inputs()):
                self._out.put(("made", value))
                self._in.get()
        except BaseException as error:
            self._out.put(("failed", error))
        else:
            self._out.put(("done", None))

    def _inputs(self) -> Iterator[In]:
        while True:
            self._out.put(("asks", None))
            value = self._in.get()
            if value is _END:
                return
            yield value


class OperatorFailed(Exception):
    """An exception that carries the operator's name and the user's traceback through Spark, as text."""


@dataclass(frozen=True)
class Output:
    """An outgoing edge: its receiver, and the column or columns that determine the instance of a record."""

    end: int
    name: str
    key: str | tuple[str, ...]
    timed: bool = False  # whether it wants watermarks
    late: pa.Schema | None = None  # its columns, if it is the receiver of late records or of dead letters


@dataclass(frozen=True)
class Stage:
    """One operator as its tasks need it; Spark pickles it and sends it to the workers."""

    index: int
    name: str
    function: Function
    inputs: dict[int, tuple[str, pa.Schema]]  # by sender: its name and the columns that it sends
    outputs: tuple[Output, ...]
    source: TraceSource | LogSource | None
    folder: Path  # of the job, within its checkpoint
    meter: MeterAddress
    passes: bool  # whether frames for other operators pass through
    sink: Sink | None = None  # of its rows, if it is at the end of the graph
    marked: bool = False  # whether a last row says that the input has ended, as in Gather.java
    timed: bool = False  # whether it knows the event time
    lateness: int = 0  # microseconds that a record may be late and still count
    growth_bytes: int = GROWTH_BYTES

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run an instance of the operator; Spark calls it in each task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if (
            next(_runs) == 1
        ):  # Spark lets the process look for garbage behind each task, while no epoch runs: some 30 ms
            gc.freeze()  # so what the first task has imported, and what is left of it, is not looked through again
        try:
            plan = state.Plan.parse(context.getLocalProperty(state.PROPERTY) or "")
            yield from Task(self, plan, context.partitionId(), context.taskAttemptId()).run(batches)
        except CheckpointError as error:
            raise OperatorFailed(CHECKPOINT_FAILED + json.dumps([error.got, error.expected, error.fix])) from None

    def declared(self) -> KeyedState | None:
        """Return the declaration of the operator's state; None without state."""
        if self.function.value is None:
            return None
        keys, (_, sent) = self.function.keys, next(iter(self.inputs.values()))
        kinds = tuple(sent.field(key).type for key in keys)
        return KeyedState(self.name, keys, kinds, self.function.value, isinstance(self.function.key, str))


class Task:
    """One instance of an operator in one epoch."""

    def __init__(self, stage: Stage, plan: state.Plan, instance: int, attempt: int):
        self.stage, self.plan, self.instance = stage, plan, instance
        self._schemas = {i: stamped(schema, name) for i, (name, schema) in stage.inputs.items()}
        sent = stage.function.schema
        self._stamped = stamped(sent, stage.name) if sent is not None else None
        self._sender = stage.index + worker_number() * (OPERATOR + 1)
        edges = {o.name: self._edge(o) for o in stage.outputs}
        self._late_edge = edges.get(stage.function.late)
        self._dead_edge = edges.get(stage.function.on_error)
        apart = (stage.function.late, stage.function.on_error)
        self._edges = {name: edge for name, edge in edges.items() if name not in apart}
        about = {"operator": stage.index, "token": plan.token, "epoch": plan.epoch, "k": list(plan.k)}
        self._meter = Meter(stage.meter, about | {"task": f"{instance}.{attempt}"})
        self._meter.edges = {edge.end: edge for edge in edges.values()}
        self._place = stage.folder, stage.index
        if self._place in _settled:
            self._meter.memory_limit = max(_settled.values()) + stage.growth_bytes
        self._now: Records | None = None  # the input on which the function is working
        self._outside: BaseException | None = None  # an error of the input, not of the function
        self._pass: list[Row] = []
        self._aside: list[Row] = []  # late records, for their receiver
        self._most = FEWEST  # records in a frame, by what the sources say
        self._away_s = self._worked_s = 0.0  # waiting for the receivers; working on the input
        self._ended = False  # whether the mark of the end has come
        self._known: store.StateStore | None = None
        self._timers: Timers | None = None
        self._time: PartitionTimes | Watermarks | None = None
        self._marked_at = -math.inf  # when the last watermark was sent
        self._due_mark = False  # whether the watermark has moved since
        self._watch, self._clock_set = ClockWatch(), (0, 0)
        if stage.timed:
            self._meter.late = 0
            self._time = self._event_time()
        self._staging: Staging | None = None  # of rows for a sink
        if stage.sink is not None and sent is not None:
            self._staging = Staging(stage.folder, plan, stage.index, instance, sent)

    def _edge(self, output: Output) -> Edge:
        schema = self._stamped if output.late is None else stamped(output.late, self.stage.name)
        end = output.end
        return Edge(self._sender, end, schema, output.key, self.plan.k[end], _turn=self.instance)

    def _event_time(self) -> PartitionTimes | Watermarks:
        """Return the event time as the last epoch left it, whichever instances had it before."""
        stage, plan, function = self.stage, self.plan, self.stage.function
        if stage.source is not None and function.event_time is not None:
            readers, before = plan.k[stage.index], sum(plan.k[: stage.index])  # sources come first, side by side
            self._reader = (self.instance - before) % readers
            kept = watermarks.load(stage.folder, watermarks.previous(plan), stage.index)
            saved = {int(p): (time, at) for each in kept for p, (time, at) in each["partitions"].items()}
            own = range(self._reader, stage.source.partitions, readers)
            return PartitionTimes(function.event_time, own, _now(), saved)
        now = BEFORE
        if function.timer:
            kept = watermarks.load(stage.folder, watermarks.previous(plan), stage.index)
            now = max((each["watermark"] for each in kept), default=BEFORE)
        return Watermarks({sender: plan.k[sender] for sender in stage.inputs}, now)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the incoming frames, and yield the outgoing ones."""
        try:
            beside = self.stage.passes or self.stage.timed
            made = self._beside(batches) if beside else self._made(self._mine(batches))
            for rows in made:
                self._meter.turn(BLOCKED)
                left = time.perf_counter()
                yield wire(rows)
                self._away_s += time.perf_counter() - left
                self._meter.turn(BUSY)
            if self.stage.marked and not self._ended:
                raise OperatorFailed(f"the input of {self.stage.name!r} was not read to its end")
            if memory_bytes() > self._meter.memory_limit:
                _leave()
            elif self._meter.arrived:
                _settled.setdefault(self._place, memory_bytes())
        finally:
            if self._staging is not None:
                self._staging.abandon()
            self._meter.close()

    def _mine(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Records]:
        """Yield the records for this operator; the frames for others are set aside to be forwarded."""
        for rows in _outer(batches, self):
            yield from self._records(self._own(rows))

    def _own(self, rows: pa.RecordBatch) -> list[tuple[int, bytes]]:
        """Return the frames for this operator with their senders, and set aside those for others."""
        own = []
        for to, sender, p, frame, most in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if to == self.stage.index and most == MARK:
                assert isinstance(self._time, Watermarks)
                # It counts once the frames beside it are done.
                self._time.mark(sender & OPERATOR, *watermarks.unpack(frame))
            elif to == self.stage.index:
                own.append((sender & OPERATOR, frame))
                self._most = most
            elif to == END:
                self._ended = True
            else:
                self._pass.append((to, sender, p, frame, most))
        return own

    def _records(self, frames: list[tuple[int, bytes]]) -> Iterator[Records]:
        """Yield the records of frames that came together, merged where they are few."""
        if frames:
            self._meter.turn(BUSY)
            if self.stage.source is not None:
                for _, frame in frames:
                    if (rest := self._seen(frame)) is not None:
                        records, self._meter.read_to = self._fetched(rest)
                        if records.batch.num_rows:
                            yield records
                        else:  # all of them are late
                            self._meter.arrived += records.rows
                            self._meter.done += records.rows
            else:
                yield from runs([(sender, self._unpacked(sender, frame)) for sender, frame in frames], self._fitting())
        self._meter.turn(WAIT)

    def _unpacked(self, sender: int, frame: bytes) -> Records:
        if not self.stage.function.query:
            return Records.unpack(frame, self._schemas[sender])
        records, seconds, worked = unpack_query(frame, self._stamped)
        self._meter.elsewhere(seconds, worked)
        return records

    def _fitting(self) -> int:
        """Return the records that may be merged: by the slowest instance's pace, and by this one's so far."""
        done = self._meter.done
        own = int(WORK_S * done / self._worked_s * self._meter.hindered) if done and self._worked_s > 0 else FEWEST
        return min(own, max(FEWEST, self._most), LARGEST)

    def _beside(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Row]]:
        """Yield the output where frames for other operators pass through, which must not wait for the function."""
        beside: PushGenerator[Records, Any] = PushGenerator(self._made)
        yield from beside.start()
        for rows in _outer(batches, self):
            own = self._own(rows)
            if self._pass:
                self._meter.turn(BUSY)
                passing, self._pass = self._pass, []
                yield passing
                self._meter.turn(WAIT)
            for records in self._records(own):
                yield from beside.give(records)
            if self._aside:
                late, self._aside = self._aside, []
                yield late
            yield from self._moved(beside.give)
        if isinstance(self._time, PartitionTimes) and not self.stage.marked:
            self._time.rest_is_empty()  # a micro-batch has all that there was
        if self._known is not None:
            with self._reported():
                self._note(self._known.changed)
        yield from self._moved(beside.give)
        yield from beside.end()
        yield from self._marks(final=True)

    def _moved(self, give: Callable[[Records], Iterator[list[Row]]]) -> Iterator[list[Row]]:
        """Yield what the function makes of keys whose time has come, then the watermark that they are behind."""
        if self._time is None:
            return
        moved = self._time.advance()
        if self._timers is not None and self._known is not None:
            self._meter.turn(BUSY)
            while fired := self._due(self._timers, self._known, self._time.now):
                yield from give(_unstamped(self._timers.batch(fired), 0))
                with self._reported():
                    self._timers.check_moved(fired)
            self._meter.turn(WAIT)
        self._due_mark |= moved
        yield from self._marks(final=False)

    def _due(self, timers: Timers, known: store.StateStore, watermark: int) -> dict[Any, int]:
        """Return keys whose time the watermark has reached."""
        with self._reported():
            if known.full:  # what was changed is written out next, and no longer in memory
                self._note(known.changed)
            return timers.due(known, watermark, known.prefetch)

    def _marks(self, *, final: bool) -> Iterator[list[Row]]:
        """Yield the watermark for all instances of all receivers, if it is time to send it."""
        if self._time is None or not (self._due_mark or final):
            return
        if self._time.now == BEFORE and not self._time.idle:  # nothing is known yet
            return
        source = isinstance(self._time, PartitionTimes)
        if source and not final and time.monotonic() < self._marked_at + MARK_S:
            return
        self._due_mark, self._marked_at = False, time.monotonic()
        number = self._reader if source else self.instance
        frame = watermarks.pack(number, self._time.sent, self._time.idle)
        ends = [output.end for output in self.stage.outputs if output.timed]
        rows: list[Row] = [(end, self._sender, p, frame, MARK) for end in ends for p in range(self.plan.k[end])]
        if rows:
            yield rows

    def _seen(self, frame: bytes) -> bytes | None:
        """Return a frame of a log without the partitions of which it only says that they are empty; None if all are."""
        import numpy as np

        if not isinstance(self._time, PartitionTimes):
            return frame
        words = np.frombuffer(frame, "<i8")
        stretches = words[2:].reshape(-1, 3)
        empty = stretches[:, 1] == stretches[:, 2]
        self._time.empty(stretches[empty, 0].tolist(), self._by_the_clock(int(words[0])))
        if not empty.any():
            return frame
        return None if empty.all() else np.concatenate([words[:2], stretches[~empty].ravel()]).tobytes()

    def _by_the_clock(self, read_at: int) -> int:
        """Return when a frame was read, by the clock as it is now: it may have been set since."""
        if step := round(self._watch.step() * 1e6):
            assert isinstance(self._time, PartitionTimes)
            self._time.clock_set(step)
            self._clock_set = _now() - step // 2, step  # frames of before have earlier stamps, if it was set forward
        before, step = self._clock_set
        return min(_now(), read_at + (step if step > 0 and read_at < before else 0))

    def _fetched(self, frame: bytes) -> tuple[Records, dict[int, int]]:
        """Return the records of the log at the positions that a frame names."""
        assert self.stage.source is not None
        try:
            records, read_to = self.stage.source.records(frame, self._meter.read_to)
            asked, given = _asked(frame), records.batch.num_rows
            if given != asked:
                raise SourceError(
                    f"{given} records from the source {self.stage.name!r}, which was asked for {asked}",
                    expected="one record per number",
                    fix="return a record for each, and drop records in an operator behind the source",
                )
            if isinstance(self._time, PartitionTimes):
                records = self._on_time(records, frame)
            return records, read_to
        except SourceError as error:
            self._outside = OperatorFailed(SOURCE_FAILED + json.dumps([error.got, error.expected, error.fix]))
            raise self._outside from None

    def _on_time(self, records: Records, frame: bytes) -> Records:
        """Return the records of a log that are not late, as the source's function sees them; set the others aside."""
        import numpy as np
        import pyarrow as pa

        times, declared, source = self._time, self.stage.function.event_time, self.stage.source
        assert isinstance(times, PartitionTimes)
        assert declared is not None
        assert source is not None
        words = np.frombuffer(frame, "<i8")
        partition = source.partition_of(words[2:].reshape(-1, 3))
        with self._reported() if callable(declared.time) else nullcontext():
            at = declared.micros(records.batch, records.event)
        if len(at) != len(partition):
            raise SourceError(
                f"{len(at)} event times for {len(partition)} records of {self.stage.name!r}",
                expected="one per record",
                fix="return one for each from EventTime(function)",
            )
        late = times.late(partition, at, self._by_the_clock(int(words[0])))
        batch, event, read = records.batch, records.event, records.read
        if late.any():
            mask = pa.array(late)
            aside = Records(batch.filter(mask), event[late], read[late])
            self._aside += self._late(aside.batch, aside)
            batch, event, read = batch.filter(pa.array(~late)), event[~late], read[~late]
        return Records(declared.with_own_time(batch, event), event, read, len(late))

    def _late(self, batch: pa.RecordBatch, stamps: Records) -> list[Row]:
        """Count late records, and return the frames for their receiver if there is one."""
        import pyarrow as pa

        self._meter.late = (self._meter.late or 0) + batch.num_rows
        if (edge := self._late_edge) is None:
            return []
        if batch.schema.names != edge.schema.names[: -len(STAMPS)]:
            batch = as_declared(batch, pa.schema(list(edge.schema)[: -len(STAMPS)]))
        return self._rows([edge], stamps.stamp(batch, edge.schema))

    def _made(self, mine: Iterator[Records]) -> Iterator[list[Row]]:
        """Yield the outputs of the function as frames."""
        function, declared = self.stage.function, self.stage.declared()
        known = None
        if declared is not None:
            known = store.open_store(self.stage.folder, self.plan, self.stage.index, self.instance, declared)
            self._meter.state = known.size()
            self._known = known
            if function.timer:
                if known.timers is None:
                    known.timers = Timers(declared, function.timer)
                    known.timers.load(known.rows())
                self._timers = known.timers
        inputs = self._fed(mine, known)
        with self._reported():
            made = function.run(inputs) if known is None else function.run(inputs, known)
            outputs = iter(() if made is None else made)
        while True:
            with self._reported():
                if (out := next(outputs, _END)) is _END:
                    break
                rows = self._frames(out)
            if rows:
                yield rows
        with self._reported():
            self._check_read(mine)
            if self._outside is not None:  # the function caught an error of its input, whose records would be lost
                raise self._outside
            self._meter.turn(WAIT)
            if known is not None:
                self._note(known.changed)  # what the function set behind its input
                store.commit_store(self.plan, self.stage.index, self.instance, known)
                self._meter.state = known.size()
            if self._staging is not None:
                self._meter.turn(BLOCKED)
                self._staging.commit()
            self._save_time()

    def _save_time(self) -> None:
        """Keep the event time with the epoch, where the next one has to know it."""
        content: dict[str, Any]
        if isinstance(self._time, PartitionTimes):
            number, content = self._reader, {"partitions": self._time.saved()}
        elif self._time is not None and self._timers is not None:
            number, content = self.instance, {"watermark": self._time.now}
        else:
            return
        watermarks.save(self.stage.folder, self.plan, self.stage.index, number, content)

    def _note(self, keys: Iterable[Any]) -> None:
        """Read the timers of keys that the function may have changed."""
        if self._timers is not None and self._known is not None:
            self._timers.note(self._known, keys)

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Report what the user's function raises, whatever it is, with the operator's name."""
        try:
            yield
        except BaseException as error:
            if error is self._outside or isinstance(error, CheckpointError):
                raise
            if isinstance(error, FunctionError):
                text = f"{error.got}; expected {error.expected}; {error.fix}".replace("\n", " ")
            else:
                text = user_traceback(error)
            self._meter.fail(self.stage.name, text)
            raise OperatorFailed(FAILED + json.dumps([self.stage.name, text])) from None

    def _check_read(self, mine: Iterator[Records]) -> None:
        """Raise an error if the function left records of the epoch, which would be committed, and lost, with it."""
        if any(records.batch.num_rows for records in mine):
            raise FunctionError(
                f"the function of {self.stage.name!r}, which returned before its input ended",
                expected="one that reads all batches of an epoch",
                fix="read on without using the rest (for batch in batches: pass), instead of returning",
            )

    def _fed(self, mine: Iterator[Records], known: store.StateStore | None) -> Iterator[pa.RecordBatch]:
        """Yield batches as the function sees them; when it asks for the next one, the last one is done."""
        meter = self._meter
        for records in mine:
            self._now = records
            meter.arrived += records.rows
            if known is not None:
                if known.full:
                    self._note(known.changed)
                known.prefetch(records.batch)
            began, away_s = time.perf_counter(), self._away_s
            yield records.batch if self._time is None else self._with_time(records.batch)
            if self._timers is not None:
                self._note(dict.fromkeys(keys_of(self._timers.declared.batch_keys(records.batch))))
            self._worked_s += time.perf_counter() - began - (self._away_s - away_s)
            meter.done += records.rows
            if not self._edges:
                meter.finish(records.read, records.event)
        meter.turn(BUSY)  # the function's work behind its input

    def _with_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch whose metadata states the watermark, once one is known."""
        assert self._time is not None
        if self._time.now == BEFORE:
            return batch
        about = {"watermark": str(self._time.now), "lateness": str(self.stage.lateness)}
        return batch.replace_schema_metadata({**(batch.schema.metadata or {}), **about})

    def _frames(self, out: Any) -> list[Row]:
        """Split one output of the function into frames for its receivers."""
        import pyarrow as pa

        if isinstance(out, Late):
            return self._late(out.batch, self._now or _unstamped(out.batch))
        if isinstance(out, DeadLetters):
            return self._dead(out)
        name, batch = out if isinstance(out, tuple) and len(out) == 2 else (None, out)
        declared, whole = self.stage.function.schema, self._stamped
        if not isinstance(batch, pa.RecordBatch) or (name is not None and name not in self._edges):
            wanted = " or ".join(map(repr, self._edges)) or "none: it is a sink"
            raise TypeError(f"it gave {out!r:.200}; a RecordBatch is wanted, or a pair (receiver, batch) with {wanted}")
        if declared is None or whole is None:
            raise TypeError("it gave a batch although it has no schema: declare its columns, or yield nothing")
        if not batch.num_rows:
            return []
        if not batch.schema.equals(declared):
            batch = as_declared(batch, declared)
        if not self._edges:
            if self._staging is not None and self.stage.sink is not None:
                self.stage.sink.check_rows(batch)
                self._staging.write(batch)
            self._meter.results += batch.num_rows
            return []
        now = self._now or _unstamped(batch)
        edges = self._edges.values() if name is None else (self._edges[name],)
        return self._rows(edges, now.stamp(batch, whole))

    def _dead(self, letters: DeadLetters) -> list[Row]:
        """Return the frames with records for which the function raised."""
        import pyarrow as pa

        assert self._dead_edge is not None
        shown = [(described(error), storable(user_traceback(error))) for error in letters.errors]
        columns = [*letters.batch.columns, *(pa.array(texts, pa.string()) for texts in zip(*shown, strict=True))]
        schema = self._dead_edge.schema
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(schema)[: -len(STAMPS)]))
        now = self._now or _unstamped(batch)
        return self._rows([self._dead_edge], now.stamp(batch, schema))

    def _rows(self, edges: Iterable[Edge], ready: pa.RecordBatch) -> list[Row]:
        """Return stamped records as frames for these receivers."""
        made: list[Row] = []
        for edge in edges:
            most = self._most_for(edge, ready.num_rows)
            made += [(*row, most) for row in edge.frames(ready, max(FEWEST, min(LARGEST, most)))]
        return made

    def _most_for(self, edge: Edge, rows: int) -> int:
        """Return the records that a frame on this edge should hold: as many as its share of the input sends."""
        return max(1, min(_MOST, round(self._most * (edge.sent + rows) / max(1, self._meter.arrived))))


def _leave() -> None:
    """Let Spark end this process behind the present task, instead of giving it the next one."""
    with suppress(ImportError):  # another Spark, in which it stays
        from pyspark.messages.spark_message_receiver import SparkMessageReceiver as Receiver

        read_end = Receiver.get_finish_signal_from_stream

        def read_end_and_leave(receiver: Receiver) -> None:
            read_end(receiver)
            raise RuntimeError("this process has grown too large")  # which the worker takes for a broken connection

        Receiver.get_finish_signal_from_stream = read_end_and_leave  # type: ignore[method-assign]


def _now() -> int:
    """Return the time of the clock in microseconds."""
    return time.time_ns() // 1000


def _unstamped(batch: pa.RecordBatch, rows: int | None = None) -> Records:
    """Return a batch that was made from no record."""
    import numpy as np

    return Records(batch, *2 * (np.zeros(0, np.int64),), rows)


def _asked(frame: bytes) -> int:
    """Return the number of records that a frame of a log names."""
    import numpy as np

    stretches = np.frombuffer(frame, "<i8")[2:].reshape(-1, 3)
    return int((stretches[:, 2] - stretches[:, 1]).sum())


def _outer(batches: Iterator[Any], task: Task) -> Iterator[Any]:
    """Yield the input, and note its errors, which pass through the user's function but are not its own."""
    try:
        yield from batches
    except GeneratorExit:
        raise
    except BaseException as error:
        task._outside = error
        raise


def user_traceback(error: BaseException) -> str:
    """Return the traceback of the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/dspkit/spark/" not in frame.filename and "/pyspark/" not in frame.filename]
    lines = traceback.format_list(own) + traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" * bool(own) + "".join(lines).rstrip()
