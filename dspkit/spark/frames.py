"""How records travel between operators: in frames, small Arrow batches with an address.

Spark moves rows of four columns: which operator a frame is for, which one it is from, for which of its instances, and
the records themselves in Arrow's own format. So a frame costs Spark as much as one row, whatever it holds; each edge
has a schema of its own; and a frame arrives as soon as it is sent, where rows would wait until a batch of them is full.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .functions import GROUPS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Array = np.ndarray[Any, np.dtype[Any]]

WIRE = "_to int, _from int, _p int, _frame binary"  # as Spark says it
STAMPS = ("_event", "_read")  # when a record came about, and when it left its log: microseconds
_FEWEST = 32  # records worth a frame of their own where no key says whose they are


def wire_schema() -> pa.Schema:
    import pyarrow as pa

    whole = pa.int32()
    return pa.schema([("_to", whole), ("_from", whole), ("_p", whole), ("_frame", pa.binary())])


def wire(rows: list[tuple[int, int, int, bytes]]) -> pa.RecordBatch:
    """Rows as Spark takes them."""
    import pyarrow as pa

    schema = wire_schema()
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def stamped(schema: pa.Schema, sender: str) -> pa.Schema:
    """The schema of the frames of one edge; the sender's name goes to the receiver with it."""
    import pyarrow as pa

    fields = [*schema, *(pa.field(name, pa.int64()) for name in STAMPS)]
    return pa.schema(fields, metadata={"from": sender})


@dataclass(frozen=True)
class Records:
    """A batch as a function sees it, and the stamps of its records."""

    batch: pa.RecordBatch
    event: Array
    read: Array
    came: int | None = None  # of how many records they were made already; None: of as many

    @property
    def rows(self) -> int:
        """Records that came."""
        return int(self.batch.num_rows) if self.came is None else self.came

    @classmethod
    def unpack(cls, frame: Any, schema: pa.Schema) -> Records:
        import pyarrow as pa

        whole = pa.ipc.read_record_batch(frame, schema)
        columns = whole.columns
        event, read = (column.to_numpy() for column in columns[-2:])
        seen = pa.schema(list(schema)[:-2], metadata=schema.metadata)
        return cls(pa.RecordBatch.from_arrays(columns[:-2], schema=seen), event, read)

    def stamp(self, made: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """`made` from these records, with their stamps: the same place in the batch has the same age."""
        import numpy as np
        import pyarrow as pa

        rows = made.num_rows
        if rows == len(self.event):
            event, read = self.event, self.read
        elif len(self.event):
            place = np.arange(rows) * len(self.event) // max(1, rows)
            event, read = self.event[place], self.read[place]
        else:
            event = read = np.zeros(rows, np.int64)
        return pa.RecordBatch.from_arrays([*made.columns, pa.array(event), pa.array(read)], schema=schema)


@dataclass
class Edge:
    """One edge, seen by an instance of the sender: cuts batches into frames for the receiver's instances."""

    start: int
    end: int
    schema: pa.Schema
    key: str
    instances: int
    sent: int = 0
    _turn: int = field(default=0)

    def frames(self, batch: pa.RecordBatch) -> Iterator[tuple[int, int, int, bytes]]:
        self.sent += batch.num_rows
        for instance, part in self.parts(batch):
            yield self.end, self.start, instance, part.serialize().to_pybytes()

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """What each of the receiver's instances gets of a batch."""
        return self._by_key(batch) if self.key else self._in_turn(batch)

    def _in_turn(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        rows = batch.num_rows
        pieces = min(self.instances, -(-rows // _FEWEST))
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
        owner = groups(batch.column(self.key)) % self.instances
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner, minlength=self.instances))
        ordered = batch.take(pa.array(order))
        low = 0
        for instance, high in enumerate(ends.tolist()):
            if high > low:
                yield instance, ordered.slice(low, high - low)
            low = high


def groups(keys: Any) -> Array:
    """The key group of each key: the same in every process, now and after a restart."""
    import numpy as np
    import pyarrow as pa

    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if pa.types.is_integer(keys.type):
        numbers = keys.fill_null(-1).cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.uint64)
        mixed: Array = ((numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)).astype(np.int64)
        return mixed % GROUPS
    coded = keys.dictionary_encode("encode")
    each = [zlib.crc32(str(key).encode()) % GROUPS for key in coded.dictionary.to_pylist()]
    found: Array = np.array(each, np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
    return found
