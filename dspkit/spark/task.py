"""What runs in a Spark task: one instance of an operator, between the frames that come and those that go.

In real-time mode a stream cannot fork, so branches share one line of stages in topological order: each stage hosts one
operator and hands on, unopened, what is for a later one.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import query, state
from .beside import Beside
from .errors import FAILED, SOURCE_FAILED, SourceError
from .frames import Edge, Records, stamped, wire
from .functions import Function
from .meter import BLOCKED, BUSY, WAIT, Meter

if TYPE_CHECKING:
    import pyarrow as pa

    from .source import TraceSource
    from .source_log import LogSource


class OperatorFailed(Exception):
    """Carries the operator's name and the user's traceback through Spark, as text."""


@dataclass(frozen=True)
class Output:
    """An edge as the job knows it: where it leads, and the column that says which instance gets a record."""

    end: int
    name: str
    key: str


@dataclass(frozen=True)
class Stage:
    """One operator as its tasks need it; Spark pickles this and sends it to the workers."""

    job: str
    index: int
    name: str
    function: Function
    inputs: dict[int, tuple[str, pa.Schema]]  # by sender: its name and what it sends
    outputs: tuple[Output, ...]
    source: TraceSource | LogSource | None
    folder: Path  # of the job, within its checkpoint
    meter: tuple[str, int]
    passes: bool  # whether frames for other operators come by

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        plan = state.Plan.parse(context.getLocalProperty(state.PROPERTY) or "")
        yield from Task(self, plan, context.partitionId(), context.taskAttemptId()).run(batches)


class Task:
    """One instance of an operator in one epoch."""

    def __init__(self, stage: Stage, plan: state.Plan, instance: int, attempt: int):
        self.stage, self.plan, self.instance = stage, plan, instance
        self._schemas = {i: stamped(schema, name) for i, (name, schema) in stage.inputs.items()}
        sent = stage.function.schema
        self._stamped = stamped(sent, stage.name) if sent is not None else None
        self._edges = {
            o.name: Edge(stage.index, o.end, self._stamped, o.key, plan.k[o.end], _turn=instance) for o in stage.outputs
        }
        about = {"job": stage.job, "operator": stage.index, "token": plan.token, "epoch": plan.epoch}
        self._meter = Meter(stage.meter, about | {"task": f"{instance}.{attempt}"})
        self._meter.edges = {edge.end: edge for edge in self._edges.values()}
        self._now: Records | None = None  # what the function is working on
        self._outside: BaseException | None = None  # an error that came with the input: not the function's
        self._pass: list[tuple[int, int, int, bytes]] = []

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            made = self._beside(batches) if self.stage.passes else self._made(self._mine(batches))
            for rows in made:
                self._meter.turn(BLOCKED)
                yield wire(rows)
                self._meter.turn(BUSY)
        finally:
            self._meter.close()

    def _mine(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Records]:
        """The frames that are for this operator, unpacked; the others are put aside to be handed on."""
        me, meter = self.stage.index, self._meter
        meter.turn(WAIT)
        for rows in _outer(batches, self):
            for to, sender, p, frame in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                if to != me:
                    self._pass.append((to, sender, p, frame))
                    continue
                meter.turn(BUSY)
                if self.stage.source is not None:
                    records, meter.read_to = self._fetched(frame)
                elif self.stage.function.query:
                    records, seconds, worked = query.unpack(frame, self._stamped)
                    meter.elsewhere(seconds, worked)
                else:
                    records = Records.unpack(frame, self._schemas[sender])
                yield records
            meter.turn(WAIT)

    def _beside(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[tuple[int, int, int, bytes]]]:
        """The same where frames come by that are not ours: they must not wait until the function says something."""
        beside: Beside[Records, Any] = Beside(self._made)
        yield from beside.start()
        for records in self._mine_or_none(batches):
            if records is not None:
                yield from beside.give(records)
            if self._pass:
                passing, self._pass = self._pass, []
                yield passing
        yield from beside.end()

    def _mine_or_none(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Records | None]:
        for rows in _outer(batches, self):
            yield from self._mine(iter((rows,)))
            yield None
            self._meter.turn(WAIT)  # handing on what passes by ended as busy

    def _fetched(self, frame: bytes) -> tuple[Records, dict[int, int]]:
        """What the log has at the places that a frame names."""
        assert self.stage.source is not None
        try:
            return self.stage.source.records(frame, self._meter.read_to)
        except SourceError as error:
            self._outside = OperatorFailed(SOURCE_FAILED + json.dumps([error.came, error.expected, error.fix]))
            raise self._outside from None

    def _made(self, mine: Iterator[Records]) -> Iterator[list[tuple[int, int, int, bytes]]]:
        """What the function makes of its input, as frames."""
        function = self.stage.function
        inputs = self._fed(mine)
        known: dict[Any, Any] | None = None
        if function.stateful:
            assert function.value is not None
            known = state.read(self.stage.folder, self.plan, self.stage.index, self.instance, function.value)
        try:
            made = function.run(inputs) if known is None else function.run(inputs, known)
            for out in made if made is not None else ():
                if rows := self._frames(out):
                    yield rows
        except GeneratorExit:
            raise
        except Exception as error:
            if error is self._outside:
                raise
            self._meter.fail(self.stage.name, told := _told(error))
            raise OperatorFailed(FAILED + json.dumps([self.stage.name, told])) from None
        if known is not None:
            key = next(iter(self.stage.inputs.values()))[1].field(function.key).type
            types = (key, function.value)
            state.save(self.stage.folder, self.plan, self.stage.index, self.instance, known, types)

    def _fed(self, mine: Iterator[Records]) -> Iterator[pa.RecordBatch]:
        """Batches as the function sees them; when it asks for the next one, it is done with the last."""
        meter = self._meter
        for records in mine:
            self._now = records
            meter.arrived += records.rows
            yield records.batch
            meter.done += records.rows
            if not self.stage.outputs:
                meter.finish(records.read, records.event)

    def _frames(self, out: Any) -> list[tuple[int, int, int, bytes]]:
        """One thing that the function gave, cut for whoever gets it."""
        import pyarrow as pa

        name, batch = out if isinstance(out, tuple) and len(out) == 2 else (None, out)
        declared, whole = self.stage.function.schema, self._stamped
        if not isinstance(batch, pa.RecordBatch) or (name is not None and name not in self._edges):
            wanted = " or ".join(map(repr, self._edges)) or "none: it is a sink"
            raise TypeError(f"it gave {out!r:.200}; a RecordBatch is wanted, or a pair (receiver, batch) with {wanted}")
        if declared is None or whole is None:
            raise TypeError("it gave a batch although it has no schema: say what it sends, or yield nothing")
        if not batch.num_rows:
            return []
        if not batch.schema.equals(declared):
            batch = _as_declared(batch, declared)
        if not self._edges:
            self._meter.results += batch.num_rows
            return []
        now = self._now or Records(batch, *2 * (pa.array([], pa.int64()).to_numpy(),))
        ready = now.stamp(batch, whole)
        edges = self._edges.values() if name is None else (self._edges[name],)
        return [row for edge in edges for row in edge.frames(ready)]


def _as_declared(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """The columns in the order that was said, and of the types that were said."""
    import pyarrow as pa

    if sorted(batch.schema.names) != sorted(declared.names):
        raise TypeError(f"it gave columns {batch.schema.names}, and said it would give {declared.names}")
    columns = [batch.column(field.name).cast(field.type) for field in declared]
    return pa.RecordBatch.from_arrays(columns, schema=declared)


def _outer(batches: Iterator[Any], task: Task) -> Iterator[Any]:
    """Errors of the input pass through the user's function: note that they are none of its own."""
    try:
        yield from batches
    except Exception as error:
        task._outside = error
        raise


def _told(error: Exception) -> str:
    """The traceback from the user's own code on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/dspkit/spark/" not in frame.filename and "/pyspark/" not in frame.filename]
    lines = traceback.format_list(own) + traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" * bool(own) + "".join(lines).rstrip()
