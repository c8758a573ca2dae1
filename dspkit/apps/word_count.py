"""Word count: lines of text are split, and each word is counted; the count is keyed state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..workload import Workload
from .base import Answers, LiveApp, chain

if TYPE_CHECKING:
    import numpy as np

    from ..spark import SparkJob

    Array = np.ndarray[Any, np.dtype[Any]]

TOPOLOGY = chain("read", "split", "count", stateful=["count"])
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


def split(batches: Iterator[Any]) -> Iterator[Any]:
    """One record for each word of a line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        words = pc.list_flatten(pc.split_pattern(batch.column("line"), " "))
        yield pa.RecordBatch.from_arrays([words], names=["word"])


def count(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """How often each word came."""
    for batch in batches:
        for found in batch.column("word").value_counts().to_pylist():
            known[found["values"]] = known.get(found["values"], 0) + found["counts"]
    yield from ()


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    return {"count": dict(Counter(word for row in rows for word in row["line"].split()))}


def app() -> LiveApp:
    """Word count as an application: a line takes `split` 1 ms."""
    from ..spark import arrow, keyed

    functions = {"split": arrow(split, "word string"), "count": keyed(count, key="word", state="int64")}
    micros = {"split": 1000.0, "count": 50.0}
    return LiveApp("word_count", TOPOLOGY, functions, lines, "line string", oracle, micros, (600, 2400), "lines")


def job(
    load: Workload, *, split_micros: float = 1000.0, count_micros: float = 50.0, cpu: bool = False, **settings: Any
) -> SparkJob:
    """Word count as a live job under `load` (lines/s); `settings` are SparkJob's."""
    return app().job(load, micros={"split": split_micros, "count": count_micros}, cpu=cpu, **settings)
