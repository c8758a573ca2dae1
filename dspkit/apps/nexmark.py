"""Nexmark's queries 1, 5, 7, 8 and 11, on events in the proportions of its generator.

Out of fifty events one is a new person, three are new auctions, and 46 are bids. Half of all bids are for a hot
auction, three quarters come from a hot bidder; the others are spread over the newest hundred auctions and the newest
thousand people. Prices are $100 \\cdot 10^{6u}$ cents for a uniform $u$. Numbers are the defaults of Beam's generator.

`nexmark_q1` to `nexmark_q11` are the complete queries; simulated, their operators have the service times of the live
ones, and 0.02 ms per record without a live one. AuTraScale's parts of queries 5 and 11 are in `autrascale`. Windows are
by event time; the last operator keeps the results of the windows that are over, for an hour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import Operator, Topology
from ..core.typing import Array
from ..simulator import Plant, Service
from .app import App
from .live import Answers, Live, draw, forget, share

if TYPE_CHECKING:
    from ..spark import Function


PEOPLE, AUCTIONS, EVENTS = 1, 3, 50  # people and auctions among so many events; the rest are bids
FIRST = 1000  # number of the first person and the first auction
_HOT, _HOT_BIDDERS = 2, 4  # one in so many bids is not for the hot auction, not from the hot bidder
_OPEN_AUCTIONS, _ACTIVE_PEOPLE, _HOT_EVERY = 100, 1000, 100
WINDOW_S, SLIDE_S = 10, 2  # of query 5
GAP_S = 10.0  # gap that ends a session of query 11
EVENT = "kind string, auction int64, bidder int64, price int64, at_s float64"
BID = "auction int64, bidder int64, price int64, at_s float64"
_ENTRANT = {"person": "int64", "joined": "int64", "auctions": "int64", "at_s": "float64"}
_KEPT = 1800  # slices, windows or sessions kept per key: one hour


def events(ids: Array, event_s: Array) -> Any:
    """Make persons, auctions and bids in turn."""
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
    """Select the bids."""
    import pyarrow.compute as pc

    for batch in batches:
        yield batch.filter(pc.equal(batch.column("kind"), "bid")).drop_columns(["kind"])


def convert(batches: Iterator[Any]) -> Iterator[Any]:
    """Query 1: convert prices to euros, at 0.908 euros per dollar."""
    import pyarrow as pa

    for batch in batches:
        price = pa.array(batch.column("price").to_numpy() * 908 // 1000)
        yield batch.set_column(batch.schema.get_field_index("price"), "price", price)


def total(batches: Iterator[Any], known: dict[int, dict[str, int]]) -> Iterator[Any]:
    """Sum up bids and prices per auction, a result to check query 1 by."""
    for batch in batches:
        for auction, price in zip(batch.column("auction").to_pylist(), batch.column("price").to_pylist(), strict=True):
            entry = known.setdefault(auction, {"bids": 0, "cents": 0})
            entry["bids"] += 1
            entry["cents"] += price
    yield from ()


def count(batches: Iterator[Any], known: dict[int, list[dict[str, int]]]) -> Iterator[Any]:
    """Query 5: count bids per auction and slice of `SLIDE_S`, and send the present counts of the slice's windows."""
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


@dataclass(frozen=True)
class Kept:
    """A function that keeps the results of each window, the first by `rank` if there are several, for an hour."""

    columns: tuple[str, ...]
    key: tuple[str, ...] = ("end",)
    rank: Callable[[dict[str, Any]], Any] = len

    def __call__(self, batches: Iterator[Any], known: dict[Any, dict[str, int]]) -> Iterator[Any]:
        forget(known, self._window, _KEPT)
        for batch in batches:
            for row in batch.to_pylist():
                key = row["end"] if len(self.key) == 1 else tuple(row[name] for name in self.key)
                new = {name: row[name] for name in self.columns}
                known[key] = min(known.get(key, new), new, key=self.rank)
        yield from ()

    @staticmethod
    def _window(key: Any) -> int:
        return int((key[-1] if isinstance(key, tuple) else key) // SLIDE_S)


def hotter(row: dict[str, Any]) -> tuple[int, int]:
    """Rank auctions: most bids first, then the lowest number."""
    return -row["value"], row["auction"]


def dearer(row: dict[str, Any]) -> tuple[int, int, int]:
    """Rank bids: the highest price first, then the lowest numbers."""
    return -row["price"], row["auction"], row["bidder"]


def bid(row: dict[str, Any]) -> dict[str, int]:
    """Return a bid as a value of query 7."""
    return {name: row[name] for name in ("price", "auction", "bidder")}


def higher(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Return the higher of two bids."""
    return min(one, other, key=dearer)


def newcomers(batches: Iterator[Any]) -> Iterator[Any]:
    """Select people and auctions, each with the person or the seller as `person`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        kept = batch.filter(pc.not_equal(batch.column("kind"), "bid"))
        joined = pc.cast(pc.equal(kept.column("kind"), "person"), pa.int64())
        columns = [kept.column("bidder"), joined, pc.subtract(1, joined), kept.column("at_s")]
        yield pa.RecordBatch.from_arrays(columns, names=list(_ENTRANT))


def entrant(row: dict[str, Any]) -> dict[str, int]:
    """Return a person who joined, or an auction, as a value of query 8."""
    return {"joined": row["joined"], "auctions": row["auctions"]}


def together(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """Return the sums of two values of query 8."""
    return {name: one[name] + other[name] for name in one}


def sellers(person: Any, window: Any, value: dict[str, int]) -> dict[str, int] | None:
    """Return a result of query 8 for people who joined and opened an auction in the same window."""
    return {"auctions": value["auctions"]} if value["joined"] and value["auctions"] else None


def sessions(batches: Iterator[Any], known: dict[int, list[dict[str, float]]]) -> Iterator[Any]:
    """Query 11: count the bids of each bidder by session; a session ends after a gap of `GAP_S`."""
    for batch in batches:
        for bidder, at in zip(batch.column("bidder").to_pylist(), batch.column("at_s").to_pylist(), strict=True):
            one = {"since": at, "until": at, "bids": 1}
            apart = []
            for other in known.get(bidder, ()):  # a late bid extends a session, or merges two
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


def _bids(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["kind"] == "bid"]


def totals(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state for query 1."""
    found: dict[Any, Any] = {}
    for bid in _bids(rows):
        before = found.get(bid["auction"], {"bids": 0, "cents": 0})
        cents = before["cents"] + bid["price"] * 908 // 1000
        found[bid["auction"]] = {"bids": before["bids"] + 1, "cents": cents}
    return {"total": found}


def windows(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state of query 5's window: bids per auction and slice."""
    found: dict[int, Counter[int]] = {}
    for bid in _bids(rows):
        found.setdefault(bid["auction"], Counter())[int(bid["at_s"] // SLIDE_S)] += 1
    return {"window": {a: [{"stretch": s, "bids": n} for s, n in sorted(c.items())] for a, c in found.items()}}


def _micros(row: dict[str, Any]) -> int:
    at: float = row["at_s"]
    return round(at * 1e6)


def _window_ends(row: dict[str, Any], slide_s: int) -> list[float]:
    """Return the ends of the windows that a record is in."""
    first = _micros(row) // (slide_s * 10**6) * slide_s + slide_s
    return [float(end) for end in range(first, first + WINDOW_S - slide_s + 1, slide_s)]


def hot_items(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state for query 5: the hottest auction of each window, by the window's end."""
    counts: dict[float, Counter[int]] = {}
    for bid in _bids(rows):
        for end in _window_ends(bid, SLIDE_S):
            counts.setdefault(end, Counter())[bid["auction"]] += 1
    best = {end: min((-n, auction) for auction, n in bids.items()) for end, bids in counts.items()}
    return {"hottest": {end: {"auction": auction, "value": -n} for end, (n, auction) in best.items()}}


def highest_bids(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state for query 7: the highest bid of each window."""
    found: dict[Any, dict[str, Any]] = {}
    for row in _bids(rows):
        (end,) = _window_ends(row, WINDOW_S)
        found[end] = min(found.get(end, row), row, key=dearer)
    return {"highest": {end: bid(row) for end, row in found.items()}}


def new_sellers(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state for query 8: auctions of each person who joined in the same window."""
    joined, opened = set(), Counter[Any]()
    for row in rows:
        if row["kind"] != "bid":
            (end,) = _window_ends(row, WINDOW_S)
            if row["kind"] == "person":
                joined.add((row["bidder"], end))
            else:
                opened[row["bidder"], end] += 1
    return {"sellers": {key: {"auctions": n} for key, n in opened.items() if key in joined}}


def finished_sessions(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state of the complete query 11: the bids of each session, by bidder and end."""
    found: dict[Any, dict[str, int]] = {}
    last: dict[int, tuple[int, int]] = {}  # by bidder: time of the last bid, and bids of the session
    for row in sorted(_bids(rows), key=_micros):
        before, n = last.get(row["bidder"], (-(10**15), 0))
        if _micros(row) - before >= GAP_S * 1e6:
            n = 0
        else:
            del found[row["bidder"], (before + GAP_S * 1e6) / 1e6]
        last[row["bidder"]] = _micros(row), n + 1
        found[row["bidder"], (_micros(row) + GAP_S * 1e6) / 1e6] = {"value": n + 1}
    return {"sessions": found}


def end_of(key: Any) -> float:
    """Return the end of the window that a key of results is about."""
    return float(key[-1] if isinstance(key, tuple) else key)


def user_sessions(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state for query 11."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for bid in sorted(_bids(rows), key=lambda bid: bid["at_s"]):
        mine, at = found.setdefault(bid["bidder"], []), bid["at_s"]
        if mine and at - mine[-1]["until"] < GAP_S:
            mine[-1] = {"since": mine[-1]["since"], "until": at, "bids": mine[-1]["bids"] + 1}
        else:
            mine.append({"since": at, "until": at, "bids": 1})
    return {"session": found}


def query1() -> dict[str, Function]:
    """Return the functions of query 1."""
    import pyarrow as pa

    from ..spark import arrow, keyed

    entry = pa.struct({"bids": pa.int64(), "cents": pa.int64()})
    return {
        "bids": arrow(bids, BID),
        "convert": arrow(convert, BID),
        "total": keyed(total, key="auction", state=entry),
    }


def _window() -> Function:
    import pyarrow as pa

    from ..spark import keyed

    stretches = pa.list_(pa.struct({"stretch": pa.int64(), "bids": pa.int64()}))
    return keyed(count, "window int64, auction int64, bids int64", key="auction", state=stretches)


def query5() -> dict[str, Function]:
    """Return the functions of AuTraScale's part of query 5."""
    from ..spark import arrow

    return {"source": arrow(bids, BID), "window": _window()}


def _results(of: str, select: Function, window: Function, name: str, kept: Kept) -> dict[str, Function]:
    """Return the functions of a query by windows: the events in event time, a selection, windows, and their results."""
    import pyarrow as pa

    from ..spark import EventTime, arrow, keyed
    from ..spark.functions import same

    key = kept.key[0] if len(kept.key) == 1 else kept.key
    state = pa.struct([(column, pa.int64()) for column in kept.columns])
    source = arrow(same, EVENT, event_time=EventTime("at_s"))
    return {"source": source, of: select, "window": window, name: keyed(kept, key=key, state=state)}


def query5_whole() -> dict[str, Function]:
    """Return the functions of the complete query 5."""
    from ..spark import arrow, windowed

    schema = "auction int64, end float64, value int64"
    window = windowed(schema, key="auction", time="at_s", size_s=WINDOW_S, slide_s=SLIDE_S)
    return _results("bids", arrow(bids, BID), window, "hottest", Kept(("auction", "value"), rank=hotter))


def query7() -> dict[str, Function]:
    """Return the functions of query 7."""
    import pyarrow as pa

    from ..spark import arrow, windowed

    columns = ("price", "auction", "bidder")
    state = pa.struct([(name, pa.int64()) for name in columns])
    schema = "auction int64, price int64, bidder int64, end float64"
    window = windowed(schema, key="auction", time="at_s", size_s=WINDOW_S, of=bid, merge=higher, state=state)
    return _results("bids", arrow(bids, BID), window, "highest", Kept(columns, rank=dearer))


def query8() -> dict[str, Function]:
    """Return the functions of query 8."""
    import pyarrow as pa

    from ..spark import arrow, windowed

    window = windowed(
        "person int64, end float64, auctions int64",
        key="person",
        time="at_s",
        size_s=WINDOW_S,
        of=entrant,
        merge=together,
        result=sellers,
        state=pa.struct({"joined": pa.int64(), "auctions": pa.int64()}),
    )
    select = arrow(newcomers, _ENTRANT)
    return _results("newcomers", select, window, "sellers", Kept(("auctions",), ("person", "end")))


def query11_whole() -> dict[str, Function]:
    """Return the functions of the complete query 11."""
    from ..spark import arrow, windowed

    window = windowed("bidder int64, end float64, value int64", key="bidder", time="at_s", gap_s=GAP_S)
    return _results("bids", arrow(bids, BID), window, "sessions", Kept(("value",), ("bidder", "end")))


def query11() -> dict[str, Function]:
    """Return the functions of query 11."""
    import pyarrow as pa

    from ..spark import arrow, keyed

    session = pa.struct({"since": pa.float64(), "until": pa.float64(), "bids": pa.int64()})
    return {"source": arrow(bids, BID), "session": keyed(sessions, key="bidder", state=pa.list_(session))}


_RATES = (800, 4000)
QUERY_1 = Live(query1, events, EVENT, totals, {"convert": 1000.0}, _RATES, "events")
QUERY_5 = Live(query5, events, EVENT, windows, {"source": 200.0, "window": 600.0}, _RATES, "events")
_WINDOW = {"bids": 200.0, "window": 600.0}
QUERY_5_WHOLE = Live(query5_whole, events, EVENT, hot_items, _WINDOW, _RATES, "events", final=end_of)
QUERY_7 = Live(query7, events, EVENT, highest_bids, _WINDOW, _RATES, "events", final=end_of)
QUERY_8 = Live(
    query8, events, EVENT, new_sellers, {"newcomers": 600.0, "window": 600.0}, _RATES, "events", final=end_of
)
QUERY_11_WHOLE = Live(query11_whole, events, EVENT, finished_sessions, _WINDOW, _RATES, "events", final=end_of)
QUERY_11 = Live(query11, events, EVENT, user_sessions, {"session": 700.0}, _RATES, "events")


_LEAST_MICROS = 20.0


def nexmark_q1() -> App:
    """Return Nexmark's query 1, currency conversion: each bid's price in euros, summed up by auction.

    Examples
    --------
    >>> nexmark_q1().topology.order
    ('source', 'bids', 'convert', 'total')
    """
    return _query("nexmark_q1", {"source": False, "bids": False, "convert": False, "total": True}, QUERY_1)


def nexmark_q5() -> App:
    """Return Nexmark's query 5, hot items: the auction with most bids in the last ten seconds, every two seconds.

    `query5` is the part of it that AuTraScale's paper runs.

    Examples
    --------
    >>> nexmark_q5().topology.order
    ('source', 'bids', 'window', 'hottest')
    """
    return _query("nexmark_q5", {"source": False, "bids": False, "window": True, "hottest": True}, QUERY_5_WHOLE)


def nexmark_q7() -> App:
    """Return Nexmark's query 7, highest bid: the bid with the highest price of every ten seconds.

    Examples
    --------
    >>> nexmark_q7().topology.order
    ('source', 'bids', 'window', 'highest')
    """
    return _query("nexmark_q7", {"source": False, "bids": False, "window": True, "highest": True}, QUERY_7)


def nexmark_q8() -> App:
    """Return Nexmark's query 8, new users: people who open auctions in the ten seconds in which they join.

    Examples
    --------
    >>> nexmark_q8().topology.order
    ('source', 'newcomers', 'window', 'sellers')
    """
    return _query("nexmark_q8", {"source": False, "newcomers": False, "window": True, "sellers": True}, QUERY_8)


def nexmark_q11() -> App:
    """Return Nexmark's query 11, user sessions: how often each person bids before a pause of ten seconds.

    `query11` is the part of it that AuTraScale's paper runs.

    Examples
    --------
    >>> nexmark_q11().topology.order
    ('source', 'bids', 'window', 'sessions')
    """
    return _query("nexmark_q11", {"source": False, "bids": False, "window": True, "sessions": True}, QUERY_11_WHOLE)


def _query(name: str, stateful: Mapping[str, bool], live: Live) -> App:
    micros = {n: max(_LEAST_MICROS, live.micros.get(n, 0.0)) for n in stateful}
    entrants = (PEOPLE + AUCTIONS) / EVENTS
    selectivity = {"bids": 1 - entrants, "newcomers": entrants}
    services = {n: Service(each * 1e-6, selectivity.get(n, 1.0), io_share=1.0) for n, each in micros.items()}
    topology = Topology(tuple(Operator(n, stateful=s) for n, s in stateful.items()), Topology.chain(*stateful).edges)
    load = live.load(at_s=300.0)
    return App(name, topology, Plant(services), load, live.target_latency_s, "tucker2008nexmark", live=live)
