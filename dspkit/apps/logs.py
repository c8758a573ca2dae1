"""Log processing: lines of a web server's log are filtered; one branch indexes pages, one keeps statistics.

The graph is that of QoS-aware Storm's second application: a filter, one indexing operator beside two of statistics in
sequence, and a consumer in which both branches end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..core import Operator, Topology
from .base import KEPT, MOST, Answers, LiveApp, forget
from .draw import draw

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

TOPOLOGY = Topology(
    (
        *(Operator(name, MOST) for name in ("read", "filter", "classify")),
        *(Operator(name, MOST, stateful=True) for name in ("index", "statistics", "consume")),
    ),
    (
        ("read", "filter"), ("filter", "index"), ("filter", "classify"), ("classify", "statistics"),
        ("index", "consume"), ("statistics", "consume"),
    ),
)  # fmt: skip
SLOT_S = 10
_STATUS = (200,) * 80 + (304,) * 9 + (404,) * 8 + (500,) * 3  # out of a hundred lines
_LINE = re.compile(r'(\S+) - - \[(\d+\.\d+)\] "GET (/\S*) HTTP/1\.1" (\d{3}) (\d+)')
FIELDS = "page string, client string, at_s float64, status int64, size int64"


def lines(ids: Array, event_s: Array) -> Any:
    """Lines in the common log format; one in fifty is broken off."""
    import pyarrow as pa

    client, page, odd = draw(ids, 1, 500).tolist(), draw(ids, 2, 200).tolist(), draw(ids, 3, 50).tolist()
    status, size = draw(ids, 4, len(_STATUS)).tolist(), draw(ids, 5, 50_000).tolist()
    text = [
        f'10.0.{c // 250}.{c % 250} - - [{t:.3f}] "GET /page-{p} HTTP/1.1" {_STATUS[s]} {n}'[: None if o else 30]
        for c, t, p, s, n, o in zip(client, event_s.tolist(), page, status, size, odd, strict=True)
    ]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["line"])


def whole(batches: Iterator[Any]) -> Iterator[Any]:
    """The fields of all lines that are whole."""
    import pyarrow as pa

    for batch in batches:
        found = [m.groups() for line in batch.column("line").to_pylist() if (m := _LINE.fullmatch(line))]
        if found:
            client, at, page, status, size = zip(*found, strict=True)
            columns = [page, client, list(map(float, at)), list(map(int, status)), list(map(int, size))]
            names = ["page", "client", "at_s", "status", "size"]
            yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=names)


def index(batches: Iterator[Any], known: dict[str, dict[str, int]]) -> Iterator[Any]:
    """Hits and bytes of each page."""
    for batch in batches:
        for page, size in zip(batch.column("page").to_pylist(), batch.column("size").to_pylist(), strict=True):
            entry = known.setdefault(page, {"hits": 0, "bytes": 0})
            entry["hits"] += 1
            entry["bytes"] += size
        yield batch.select(["page"]).rename_columns(["item"])


def classify(batches: Iterator[Any]) -> Iterator[Any]:
    """The stretch of time a line is from, and the class of its status: 2 to 5."""
    import pyarrow as pa

    for batch in batches:
        slot = (batch.column("at_s").to_numpy() // SLOT_S).astype("int64")
        yield pa.RecordBatch.from_arrays(
            [pa.array(slot * 10 + batch.column("status").to_numpy() // 100)], names=["slot"]
        )


def statistics(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Lines of each class in each stretch of time."""
    import pyarrow as pa

    forget(known, lambda slot: slot // 10, KEPT)
    for batch in batches:
        slots = batch.column("slot").to_pylist()
        for slot, n in Counter(slots).items():
            known[slot] = known.get(slot, 0) + n
        yield pa.RecordBatch.from_arrays([pa.array([f"class {slot % 10}" for slot in slots])], names=["item"])


def consume(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """How much came from each branch, item by item."""
    for batch in batches:
        for item, n in Counter(batch.column("item").to_pylist()).items():
            known[item] = known.get(item, 0) + n
    yield from ()


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    pages: dict[str, dict[str, int]] = {}
    slots: Counter[int] = Counter()
    items: Counter[str] = Counter()
    for row in rows:
        words = row["line"].split()
        if len(row["line"]) <= 30:
            continue
        page, status, at = words[5], int(words[7]), float(words[3][1:-1])
        before = pages.get(page, {"hits": 0, "bytes": 0})
        pages[page] = {"hits": before["hits"] + 1, "bytes": before["bytes"] + int(words[8])}
        slots[int(at // SLOT_S) * 10 + status // 100] += 1
        items.update([page, f"class {status // 100}"])
    return {"index": dict(pages), "statistics": dict(slots), "consume": dict(items)}


def app() -> LiveApp:
    """Log processing as an application."""
    import pyarrow as pa

    from ..spark import arrow, keyed

    entry = pa.struct({"hits": pa.int64(), "bytes": pa.int64()})
    functions = {
        "filter": arrow(whole, FIELDS),
        "index": keyed(index, "item string", key="page", state=entry),
        "classify": arrow(classify, "slot int64"),
        "statistics": keyed(statistics, "item string", key="slot", state="int64"),
        "consume": keyed(consume, key="item", state="int64"),
    }
    micros = {"filter": 300.0, "index": 1000.0, "classify": 600.0, "statistics": 100.0}
    return LiveApp("logs", TOPOLOGY, functions, lines, "line string", oracle, micros, (500, 2500), "lines")
