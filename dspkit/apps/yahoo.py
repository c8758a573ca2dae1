"""The Yahoo streaming benchmark: views of ads are counted by campaign in windows of ten seconds.

Which campaign an ad belongs to is asked from outside, so that the store behind the job can be what limits it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .base import KEPT, Answers, LiveApp, chain, forget
from .draw import draw
from .store import Table

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

TOPOLOGY = chain("read", "parse", "filter", "project", "join", "count", stateful=["count"])
CAMPAIGNS, ADS_A_CAMPAIGN, WINDOW_S = 100, 10, 10
KINDS = ("view", "click", "purchase")
_FORMATS = ("banner", "modal", "sponsored-search", "mail", "mobile")
_SLOT = 1000  # windows and campaigns share a key: _SLOT * window + campaign
PARSED = "ad string, kind string, at_ms int64"


def campaigns() -> dict[str, int]:
    """The campaign of each ad: what the store holds."""
    return {f"ad-{n}": n // ADS_A_CAMPAIGN for n in range(CAMPAIGNS * ADS_A_CAMPAIGN)}


def events(ids: Array, event_s: Array) -> Any:
    """Events as JSON: each kind of event and each ad is as likely as any other."""
    import pyarrow as pa

    user, page = draw(ids, 1, 100).tolist(), draw(ids, 2, 100).tolist()
    ad, kind = draw(ids, 3, CAMPAIGNS * ADS_A_CAMPAIGN).tolist(), draw(ids, 4, len(KINDS)).tolist()
    form, at = draw(ids, 5, len(_FORMATS)).tolist(), (event_s * 1000).astype("int64").tolist()
    text = [
        f'{{"user_id": "user-{u}", "page_id": "page-{p}", "ad_id": "ad-{a}", "ad_type": "{_FORMATS[f]}",'
        f' "event_type": "{KINDS[k]}", "event_time": "{t}", "ip_address": "1.2.3.4"}}'
        for u, p, a, f, k, t in zip(user, page, ad, form, kind, at, strict=True)
    ]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["event"])


def parse(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    for batch in batches:
        found = [json.loads(text) for text in batch.column("event").to_pylist()]
        columns = [[e["ad_id"] for e in found], [e["event_type"] for e in found], [int(e["event_time"]) for e in found]]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=["ad", "kind", "at_ms"])


def views(batches: Iterator[Any]) -> Iterator[Any]:
    """Views only."""
    import pyarrow.compute as pc

    for batch in batches:
        yield batch.filter(pc.equal(batch.column("kind"), "view"))


def project(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch.select(["ad", "at_ms"])


@dataclass
class Join:
    """The campaign of each ad, asked from a store batch by batch."""

    open: Callable[[], Callable[[list[str]], list[int]]]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa

        ask = self.open()
        for batch in batches:
            if batch.num_rows:
                campaign = np.array(ask(batch.column("ad").to_pylist()), np.int64)
                window = batch.column("at_ms").to_numpy() // (1000 * WINDOW_S)
                yield pa.RecordBatch.from_arrays([pa.array(_SLOT * window + campaign)], names=["slot"])


def count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Views of each campaign in each window."""
    forget(known, lambda slot: slot // _SLOT, KEPT)
    for batch in batches:
        for found in batch.column("slot").value_counts().to_pylist():
            known[found["values"]] = known.get(found["values"], 0) + found["counts"]
    yield from ()


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    answer: dict[Any, int] = {}
    for row in rows:
        event = json.loads(row["event"])
        if event["event_type"] == "view":
            campaign = int(event["ad_id"].removeprefix("ad-")) // ADS_A_CAMPAIGN
            slot = int(event["event_time"]) // (1000 * WINDOW_S) * _SLOT + campaign
            answer[slot] = answer.get(slot, 0) + 1
    return {"count": answer}


def app(store: Any = None) -> LiveApp:
    """The benchmark; `store` answers its lookups: a `Table` (the default: in memory) or a `Redis`."""
    from ..spark import arrow, keyed

    functions = {
        "parse": arrow(parse, PARSED),
        "filter": arrow(views, PARSED),
        "project": arrow(project, "ad string, at_ms int64"),
        "join": arrow(Join((store or Table(campaigns())).open), "slot int64"),
        "count": keyed(count, key="slot", state="int64"),
    }
    micros = {"parse": 300.0, "join": 1000.0}
    return LiveApp("yahoo", TOPOLOGY, functions, events, "event string", oracle, micros, (600, 3000), "events")
