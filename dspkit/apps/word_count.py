"""Word count: lines of text are split, and each word is counted; the count is keyed state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import Topology
from ..workload import Workload
from .service import Service

if TYPE_CHECKING:
    import numpy as np

    from ..spark import SparkJob

    Array = np.ndarray[Any, np.dtype[Any]]

TOPOLOGY = Topology.chain("read", "split", "count")
WORDS_A_LINE = 10
_TEXT = """it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness it
was the epoch of belief it was the epoch of incredulity it was the season of light it was the season of darkness it was
the spring of hope it was the winter of despair we had everything before us we had nothing before us""".split()


def lines(ids: Array, event_s: Array) -> Any:
    """The line of each number: ten words of a well-known text, from a place that the number says."""
    import pyarrow as pa

    twice = _TEXT * 2
    places = (ids * 7919 % len(_TEXT)).tolist()
    text = [" ".join(twice[at : at + WORDS_A_LINE]) for at in places]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["line"])


@dataclass
class Split:
    """One record for each word of a line."""

    micros: float

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        service = Service(self.micros)
        for batch in batches:
            service.pay(batch.num_rows)
            words = pc.list_flatten(pc.split_pattern(batch.column("line"), " "))
            yield pa.RecordBatch.from_arrays([words], names=["word"])


@dataclass
class Count:
    """How often each word came."""

    micros: float

    def __call__(self, batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
        service = Service(self.micros)
        for batch in batches:
            service.pay(batch.num_rows)
            for found in batch.column("word").value_counts().to_pylist():
                known[found["values"]] = known.get(found["values"], 0) + found["counts"]
        yield from ()


def job(load: Workload, *, split_micros: float = 1000.0, count_micros: float = 50.0, **settings: Any) -> SparkJob:
    """Word count as a live job under `load` (lines/s); `settings` are SparkJob's."""
    from ..spark import SparkJob, TraceSource, arrow, keyed

    functions = {
        "split": arrow(Split(split_micros), "word string"),
        "count": keyed(Count(count_micros), key="word", state="int64"),
    }
    return SparkJob(TOPOLOGY, functions, TraceSource(load, lines, "line string"), **settings)
