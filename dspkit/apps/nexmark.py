"""Nexmark's queries 1, 5 and 11, on events in its generator's proportions.

Out of fifty events one is a new person, three are new auctions, and 46 are bids. Half of all bids go to a hot auction,
three quarters come from a hot bidder; the others spread over the newest hundred auctions and the newest thousand
people. Prices are $100 \\cdot 10^{6u}$ cents for a uniform $u$. Numbers are Beam's generator's defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from .base import Answers, LiveApp, chain, forget
from .draw import draw, share

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

PEOPLE, AUCTIONS, EVENTS = 1, 3, 50  # of so many events; the rest are bids
FIRST = 1000  # number of the first person and the first auction
_HOT, _HOT_BIDDERS = 2, 4  # one in so many bids does not go to the hot auction, is not from the hot bidder
_OPEN_AUCTIONS, _ACTIVE_PEOPLE, _HOT_EVERY = 100, 1000, 100
WINDOW_S, SLIDE_S = 10, 2  # of query 5
GAP_S = 10.0  # that ends a session of query 11
EVENT = "kind string, auction int64, bidder int64, price int64, at_s float64"
BID = "auction int64, bidder int64, price int64, at_s float64"
_KEPT = 1800  # stretches, windows, or sessions, of each: an hour's


def events(ids: Array, event_s: Array) -> Any:
    """Persons, auctions and bids in their turns."""
    import numpy as np
    import pyarrow as pa

    epoch, place = ids // EVENTS, ids % EVENTS
    person = FIRST + epoch  # the newest one
    last = FIRST + epoch * AUCTIONS + np.clip(place - PEOPLE, 0, AUCTIONS - 1)  # the newest auction
    hot_auction = (last // _HOT_EVERY) * _HOT_EVERY
    open_auctions = np.minimum(last - FIRST + 1, _OPEN_AUCTIONS)
    any_auction = last - (share(ids, 1) * open_auctions).astype(np.int64)
    auction = np.where(draw(ids, 2, _HOT) > 0, np.maximum(hot_auction, FIRST), any_auction)
    hot_bidder = (person // _HOT_EVERY) * _HOT_EVERY + 1
    active = np.minimum(person - FIRST + 1, _ACTIVE_PEOPLE)
    any_bidder = person - (share(ids, 3) * active).astype(np.int64)
    bidder = np.where(draw(ids, 4, _HOT_BIDDERS) > 0, hot_bidder, any_bidder)
    price = np.round(100 * 10 ** (6 * share(ids, 5))).astype(np.int64)
    kind = np.where(place < PEOPLE, "person", np.where(place < PEOPLE + AUCTIONS, "auction", "bid"))
    columns = [kind.tolist(), np.where(kind == "bid", auction, last), np.where(kind == "bid", bidder, person)]
    arrays = [pa.array(c) for c in (*columns, price, event_s)]
    return pa.RecordBatch.from_arrays(arrays, names=["kind", "auction", "bidder", "price", "at_s"])


def bids(batches: Iterator[Any]) -> Iterator[Any]:
    """Bids only."""
    import pyarrow.compute as pc

    for batch in batches:
        yield batch.filter(pc.equal(batch.column("kind"), "bid")).drop_columns(["kind"])


def convert(batches: Iterator[Any]) -> Iterator[Any]:
    """Query 1: prices in euros, a dollar being 0.908 of one."""
    import pyarrow as pa

    for batch in batches:
        price = pa.array(batch.column("price").to_numpy() * 908 // 1000)
        yield batch.set_column(batch.schema.get_field_index("price"), "price", price)


def total(batches: Iterator[Any], known: dict[int, dict[str, int]]) -> Iterator[Any]:
    """Bids of each auction, and the sum of their prices: what is left to check query 1 by."""
    for batch in batches:
        for auction, price in zip(batch.column("auction").to_pylist(), batch.column("price").to_pylist(), strict=True):
            entry = known.setdefault(auction, {"bids": 0, "cents": 0})
            entry["bids"] += 1
            entry["cents"] += price
    yield from ()


def count(batches: Iterator[Any], known: dict[int, list[dict[str, int]]]) -> Iterator[Any]:
    """Query 5: bids of each auction in each stretch of `SLIDE_S`; what it is now goes on to the windows it is in."""
    import pyarrow as pa

    for batch in batches:
        stretches = (batch.column("at_s").to_numpy() // SLIDE_S).astype("int64").tolist()
        came = Counter(zip(batch.column("auction").to_pylist(), stretches, strict=True))
        fresh: dict[tuple[int, int], int] = {}
        for (auction, stretch), n in came.items():
            bids = {each["stretch"]: each["bids"] for each in known.get(auction, ())}
            bids[stretch] = bids.get(stretch, 0) + n
            known[auction] = [{"stretch": s, "bids": bids[s]} for s in sorted(bids)[-_KEPT:]]
            for last in range(stretch, stretch + WINDOW_S // SLIDE_S):
                fresh[last, auction] = sum(bids.get(last - i, 0) for i in range(WINDOW_S // SLIDE_S))
        columns = [[w for w, _ in fresh], [a for _, a in fresh], list(fresh.values())]
        names = ["window", "auction", "bids"]
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], names=names)


def hottest(batches: Iterator[Any], known: dict[int, dict[str, int]]) -> Iterator[Any]:
    """Query 5: the auction with most bids in each window, named by its last stretch; the lowest number of several."""
    forget(known, lambda window: window, _KEPT)
    for batch in batches:
        rows = batch.to_pydict()
        for window, auction, n in zip(rows["window"], rows["auction"], rows["bids"], strict=True):
            best = known.get(window)
            if best is None or (-n, auction) < (-best["bids"], best["auction"]):
                known[window] = {"auction": auction, "bids": n}
    yield from ()


def sessions(batches: Iterator[Any], known: dict[int, list[dict[str, float]]]) -> Iterator[Any]:
    """Query 11: bids of each bidder by session; one ends when nothing comes for `GAP_S`."""
    for batch in batches:
        for bidder, at in zip(batch.column("bidder").to_pylist(), batch.column("at_s").to_pylist(), strict=True):
            one = {"since": at, "until": at, "bids": 1}
            apart = []
            for other in known.get(bidder, ()):  # whatever comes too late joins, or brings two together
                if other["since"] - one["until"] < GAP_S and one["since"] - other["until"] < GAP_S:
                    one = {
                        "since": min(one["since"], other["since"]),
                        "until": max(one["until"], other["until"]),
                        "bids": one["bids"] + other["bids"],
                    }
                else:
                    apart.append(other)
            known[bidder] = sorted([*apart, one], key=lambda s: s["since"])[-_KEPT:]
    yield from ()


def oracle(query: str, rows: Iterable[dict[str, Any]]) -> Answers:
    seen = [row for row in rows if row["kind"] == "bid"]
    if query == "q1":
        totals: dict[Any, Any] = {}
        for bid in seen:
            before = totals.get(bid["auction"], {"bids": 0, "cents": 0})
            cents = before["cents"] + bid["price"] * 908 // 1000
            totals[bid["auction"]] = {"bids": before["bids"] + 1, "cents": cents}
        return {"total": totals}
    if query == "q5":
        windows: dict[int, dict[int, int]] = {}
        for bid in seen:
            for last in range(WINDOW_S // SLIDE_S):
                bids = windows.setdefault(int(bid["at_s"] // SLIDE_S) + last, {})
                bids[bid["auction"]] = bids.get(bid["auction"], 0) + 1
        best = {w: min((-n, auction) for auction, n in bids.items()) for w, bids in windows.items()}
        return {"hottest": {w: {"auction": auction, "bids": -n} for w, (n, auction) in best.items()}}
    found: dict[Any, list[dict[str, Any]]] = {}
    for bid in sorted(seen, key=lambda bid: bid["at_s"]):
        mine, at = found.setdefault(bid["bidder"], []), bid["at_s"]
        if mine and at - mine[-1]["until"] < GAP_S:
            mine[-1] = {"since": mine[-1]["since"], "until": at, "bids": mine[-1]["bids"] + 1}
        else:
            mine.append({"since": at, "until": at, "bids": 1})
    return {"sessions": found}


def _app(query: str, functions: dict[str, Any], micros: dict[str, float]) -> LiveApp:
    from ..spark import arrow

    topology = chain("read", "bids", *functions, stateful=[name for name, f in functions.items() if f.stateful])
    every = {"bids": arrow(bids, BID)} | functions
    name = f"nexmark_{query}"
    return LiveApp(name, topology, every, events, EVENT, partial(oracle, query), micros, (800, 4000), "events")


def q1() -> LiveApp:
    """Query 1, currency conversion: each bid's price in euros."""
    import pyarrow as pa

    from ..spark import arrow, keyed

    entry = pa.struct({"bids": pa.int64(), "cents": pa.int64()})
    functions = {"convert": arrow(convert, BID), "total": keyed(total, key="auction", state=entry)}
    return _app("q1", functions, {"convert": 1000.0})


def q5() -> LiveApp:
    """Query 5, hot items: the auction with most bids in the last ten seconds, every two."""
    import pyarrow as pa

    from ..spark import keyed

    best = pa.struct({"auction": pa.int64(), "bids": pa.int64()})
    stretches = pa.list_(pa.struct({"stretch": pa.int64(), "bids": pa.int64()}))
    functions = {
        "count": keyed(count, "window int64, auction int64, bids int64", key="auction", state=stretches),
        "hottest": keyed(hottest, key="window", state=best),
    }
    return _app("q5", functions, {"bids": 200.0, "count": 600.0})


def q11() -> LiveApp:
    """Query 11, user sessions: how much each bidder bids while active."""
    import pyarrow as pa

    from ..spark import keyed

    session = pa.struct({"since": pa.float64(), "until": pa.float64(), "bids": pa.int64()})
    return _app("q11", {"sessions": keyed(sessions, key="bidder", state=pa.list_(session))}, {"sessions": 700.0})
