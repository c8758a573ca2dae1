"""The wire format between operators: frames, small Arrow batches with an address.

Spark moves rows of five columns: the operator that a frame is for, the one that it is from (and on a cluster of ours
the number of the worker where that ran), the instance that it is for, the records themselves in Arrow's own format, and
the most records that a frame should hold there, which is -1 for the frame of a watermark (`watermarks.py`). So a frame
costs Spark as much as one row, whatever its size; each edge has a schema of its own; and a frame arrives as soon as it
is sent, where rows would wait until a batch of them is full.

A frame costs as much as some hundred records, so frames must not become small. Without a key they are assigned whole,
in turn; a receiver merges those that wait (`runs`). Neither makes frames that keep the job's slowest instance busy for
longer than `WORK_S`: flow control finds how many records of the sources that are, sources write it into their rows, and
each operator passes it on, times the records that it sends per record.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.typing import Array
from .keys import owners

if TYPE_CHECKING:
    import pyarrow as pa


WIRE = "_to int, _from int, _p int, _frame binary, _most int"  # as a schema of Spark
END = -1  # receiver of the row that ends the input, as in Gather.java
OPERATOR = (1 << 12) - 1  # bits of `_from` that name the operator; those above name the worker, as in Links.java
STAMPS = ("_event", "_read")  # event time of a record, and when it left its log: microseconds
WORK_S = 0.02  # work of a frame for the slowest instance
FEWEST = 32  # records that may be in one frame, however long they take
LARGEST = 1 << 14  # records of a frame that is merged or cut, however fast they are
Row = tuple[int, int, int, Any, int]  # of WIRE; a frame is bytes or a buffer of Arrow
_MERGED_BYTES = 1 << 26  # of frames that are merged
_MOST_BYTES = (1 << 31) - 1  # of binary data in a batch


@cache
def wire_schema() -> pa.Schema:
    """Return WIRE as an Arrow schema."""
    import pyarrow as pa

    whole = pa.int32()
    return pa.schema([("_to", whole), ("_from", whole), ("_p", whole), ("_frame", pa.binary()), ("_most", whole)])


def wire(rows: list[Row]) -> pa.RecordBatch:
    """Return frames as a batch of Spark's rows."""
    import numpy as np
    import pyarrow as pa

    # Arrow's own conversion from Python takes longer than all else that a frame needs, so the buffers are made here.
    numbers = np.array([(to, sender, p, most) for to, sender, p, _, most in rows], np.int32).T.copy()
    ends = np.cumsum([0, *(len(row[3]) for row in rows)])
    if ends[-1] > _MOST_BYTES:
        raise pa.ArrowCapacityError(f"{ends[-1]} bytes of frames in one batch; at most {_MOST_BYTES}")
    data = rows[0][3] if len(rows) == 1 else b"".join(row[3] for row in rows)
    to, sender, p, most = (pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(each)]) for each in numbers)
    frames = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(data)]
    columns = [to, sender, p, pa.Array.from_buffers(pa.binary(), len(rows), frames), most]
    return pa.RecordBatch.from_arrays(columns, schema=wire_schema())


def stamped(schema: pa.Schema, sender: str) -> pa.Schema:
    """Return the schema of the frames of one edge, which also carries the sender's name."""
    import pyarrow as pa

    fields = [*schema, *(pa.field(name, pa.int64()) for name in STAMPS)]
    return pa.schema(fields, metadata={"from": sender})


@dataclass(frozen=True)
class Records:
    """A batch as a function sees it, and the stamps of its records."""

    batch: pa.RecordBatch
    event: Array
    read: Array
    row_count: int | None = None  # number of input records, if a query has processed them already

    @property
    def rows(self) -> int:
        """Number of input records."""
        return int(self.batch.num_rows) if self.row_count is None else self.row_count

    @classmethod
    def unpack(cls, frame: Any, schema: pa.Schema) -> Records:
        """Return the records of a frame."""
        import pyarrow as pa

        whole = pa.ipc.read_record_batch(frame, schema)
        columns = whole.columns
        event, read = (column.to_numpy() for column in columns[-2:])
        seen = pa.schema(list(schema)[:-2], metadata=schema.metadata)
        return cls(pa.RecordBatch.from_arrays(columns[:-2], schema=seen), event, read)

    @classmethod
    def merged(cls, parts: Sequence[Records]) -> Records:
        """Return the records of several frames of one sender, in their order."""
        import numpy as np
        import pyarrow as pa

        if len(parts) == 1:
            return parts[0]
        whole = pa.Table.from_batches([part.batch for part in parts]).combine_chunks().to_batches()
        counted = any(part.row_count is not None for part in parts)
        return cls(
            whole[0] if whole else parts[0].batch,
            np.concatenate([part.event for part in parts]),
            np.concatenate([part.read for part in parts]),
            sum(part.rows for part in parts) if counted else None,
        )

    def stamp(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return `batch`, an output of these records, with their stamps: equal positions have equal stamps."""
        import numpy as np
        import pyarrow as pa

        rows = batch.num_rows
        if rows == len(self.event):
            event, read = self.event, self.read
        elif len(self.event):
            place = np.arange(rows) * len(self.event) // max(1, rows)
            event, read = self.event[place], self.read[place]
        else:
            event = read = np.full(rows, time.time_ns() // 1000, np.int64)  # made from no record: here and now
        return pa.RecordBatch.from_arrays([*batch.columns, pa.array(event), pa.array(read)], schema=schema)


def runs(parts: Iterable[tuple[int, Records]], most: int) -> Iterator[Records]:
    """Yield the records of frames that wait together: those of one sender merged, up to `most` records.

    A frame is never cut, and those of one sender stay in their order.
    """
    waiting: dict[int, list[Records]] = {}
    for sender, records in parts:
        before = waiting.setdefault(sender, [])
        together = [*before, records]
        if before and (sum(p.rows for p in together) > most or sum(p.batch.nbytes for p in together) > _MERGED_BYTES):
            yield Records.merged(before)
            before.clear()
        before.append(records)
    for each in waiting.values():
        if each:
            yield Records.merged(each)


@dataclass
class Edge:
    """One edge, as an instance of the sender sees it: splits batches into frames for the receiver's instances."""

    start: int
    end: int
    schema: pa.Schema
    key: str | tuple[str, ...]
    instances: int
    sent: int = 0
    sent_to: Counter[int] = field(default_factory=Counter)  # by instance
    _turn: int = field(default=0)

    def frames(self, batch: pa.RecordBatch, most: int = LARGEST) -> Iterator[tuple[int, int, int, pa.Buffer]]:
        """Yield the frames of a batch: receiver, sender, instance, bytes.

        Without a key they hold at most `most` records each.
        """
        self.sent += batch.num_rows
        for instance, part in self.parts(batch, most):
            self.sent_to[instance] += part.num_rows
            yield self.end, self.start, instance, part.serialize()

    def parts(self, batch: pa.RecordBatch, most: int = LARGEST) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the parts of a batch, each with the receiver's instance that it is for."""
        return self._by_key(batch) if self.key else self._in_turn(batch, most)

    def _in_turn(self, batch: pa.RecordBatch, most: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        rows = batch.num_rows
        pieces = -(-rows // max(1, most))
        for i in range(pieces):
            low, high = rows * i // pieces, rows * (i + 1) // pieces
            yield self._turn % self.instances, batch.slice(low, high - low)
            self._turn += 1

    def _by_key(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        import numpy as np
        import pyarrow as pa

        if self.instances == 1:
            yield 0, batch
            return
        names = (self.key,) if isinstance(self.key, str) else self.key
        owner = owners([batch.column(name) for name in names], self.instances)
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=self.instances))
        ordered = batch.take(pa.array(order))
        low = 0
        for instance, high in enumerate(ends.tolist()):
            if high > low:
                yield instance, ordered.slice(low, high - low)
            low = high
