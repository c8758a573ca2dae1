"""The applications of AuTraScale's evaluation: word count in three variants, Yahoo's benchmark, two Nexmark queries.

The live sides of word count and of Yahoo's benchmark are here. Word count: lines of text are split, and each word is
counted in keyed state. Yahoo's benchmark: views of ads are counted per campaign, in windows of ten seconds. The
campaign of an ad is looked up in an external store, which can be the bottleneck: a `Table` in memory, with a rate limit
for all processes together, or a real `Redis`. As the job ends with the operator that looks it up, its state is kept per
ad: the views of a campaign are the sum over its ads. The live sides of the queries are in `nexmark`.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import ArgumentError, NotFoundError, Operator, Topology
from ..core.typing import Array
from ..core.validation import number
from ..simulator import Link, Node, Plant, Service
from ..workload import Sine, Stair, Trace
from .app import App
from .live import KEPT, Answers, Live, draw, forget
from .nexmark import QUERY_5, QUERY_11

if TYPE_CHECKING:
    from ..spark import Function


Ask = Callable[[list[str]], list[int]]


@dataclass
class RateLimit:
    """A limit of `per_second` answers for all processes of this machine together, in the order of their requests.

    The time at which the store will be free is in a file that all share; each request books its time behind it.
    """

    per_second: float
    _path: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.per_second > 0:
            raise ArgumentError(
                f"per_second={self.per_second!r}", expected="a rate above 0", fix="as in RateLimit(2000)"
            )
        handle, self._path = tempfile.mkstemp(prefix="dspkit-rate-limit-")
        os.write(handle, struct.pack("d", 0.0))
        os.close(handle)
        atexit.register(_remove, self._path, os.getpid())

    def wait(self, answers: int) -> None:
        """Wait for the time that the store takes for so many answers, and for all earlier requests."""
        with open(self._path, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            free = max(time.time(), struct.unpack("d", file.read(8))[0]) + answers / self.per_second
            file.seek(0)
            file.write(struct.pack("d", free))
        time.sleep(max(0.0, free - time.time()))


def _remove(path: str, owner: int) -> None:
    """Delete the file at the end of the process that created it, not at that of a forked worker."""
    if os.getpid() == owner:
        Path(path).unlink(missing_ok=True)


class Table:
    """A store in memory; with `limit_per_s`, it gives at most so many answers/s to all processes together."""

    def __init__(self, rows: Mapping[str, int], limit_per_s: float | None = None):
        self._rows, self._limit = dict(rows), RateLimit(limit_per_s) if limit_per_s is not None else None

    def open(self) -> Ask:
        """Return the function that answers look-ups."""
        return self._ask

    def _ask(self, keys: list[str]) -> list[int]:
        if self._limit is not None:
            self._limit.wait(len(keys))
        return [self._rows[key] for key in keys]


class Redis:
    """A hash of a Redis server, queried with one HMGET per batch."""

    def __init__(self, url: str = "redis://127.0.0.1:6379/0", name: str = "dspkit:campaigns"):
        self.url, self.name = url, name

    def fill(self, rows: Mapping[str, int]) -> Redis:
        """Write the rows into the hash."""
        self._client().hset(self.name, mapping=dict(rows))
        return self

    def open(self) -> Ask:
        """Connect, and return the function that answers look-ups."""
        client = self._client()

        def ask(keys: list[str]) -> list[int]:
            found: Sequence[Any] = client.hmget(self.name, keys)
            if missing := [key for key, value in zip(keys, found, strict=True) if value is None]:
                raise NotFoundError(f"{missing[0]!r}", expected=f"a key of {self.name!r}", fix="fill the store first")
            return [int(value) for value in found]

        return ask

    def _client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url)


CAMPAIGNS, ADS_PER_CAMPAIGN, WINDOW_S = 100, 10, 10
KINDS = ("view", "click", "purchase")
_FORMATS = ("banner", "modal", "sponsored-search", "mail", "mobile")
_SLOT = CAMPAIGNS * ADS_PER_CAMPAIGN  # windows and ads share a key: _SLOT * window + ad
PARSED = "ad string, kind string, at_ms int64"


def campaigns() -> dict[str, int]:
    """Return the campaign of each ad: the content of the store."""
    return {f"ad-{n}": n // ADS_PER_CAMPAIGN for n in range(CAMPAIGNS * ADS_PER_CAMPAIGN)}


def events(ids: Array, event_s: Array) -> Any:
    """Make events as JSON; all kinds of events are equally likely, and so are all ads."""
    import pyarrow as pa

    user, page = draw(ids, 1, 100).tolist(), draw(ids, 2, 100).tolist()
    ad, kind = draw(ids, 3, CAMPAIGNS * ADS_PER_CAMPAIGN).tolist(), draw(ids, 4, len(KINDS)).tolist()
    form, at = draw(ids, 5, len(_FORMATS)).tolist(), (event_s * 1000).astype("int64").tolist()
    text = [
        f'{{"user_id": "user-{u}", "page_id": "page-{p}", "ad_id": "ad-{a}", "ad_type": "{_FORMATS[f]}",'
        f' "event_type": "{KINDS[k]}", "event_time": "{t}", "ip_address": "1.2.3.4"}}'
        for u, p, a, f, k, t in zip(user, page, ad, form, kind, at, strict=True)
    ]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["event"])


def parse(batches: Iterator[Any]) -> Iterator[Any]:
    """Parse events: ad, kind and time."""
    import pyarrow as pa

    for batch in batches:
        found = [json.loads(text) for text in batch.column("event").to_pylist()]
        columns = [[e["ad_id"] for e in found], [e["event_type"] for e in found], [int(e["event_time"]) for e in found]]
        yield pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=["ad", "kind", "at_ms"])


def views(batches: Iterator[Any]) -> Iterator[Any]:
    """Select the views."""
    import pyarrow.compute as pc

    for batch in batches:
        yield batch.filter(pc.equal(batch.column("kind"), "view"))


def project(batches: Iterator[Any]) -> Iterator[Any]:
    """Encode the ad and the window of each view as one number."""
    import pyarrow as pa

    for batch in batches:
        ad = [int(name.removeprefix("ad-")) for name in batch.column("ad").to_pylist()]
        window = batch.column("at_ms").to_numpy() // (1000 * WINDOW_S)
        yield pa.RecordBatch.from_arrays([pa.array(_SLOT * window + ad)], names=["slot"])


@dataclass
class Store:
    """Count the views of each ad per window, with its campaign from an external store, queried once per batch."""

    open: Callable[[], Callable[[list[str]], list[int]]]

    def __call__(self, batches: Iterator[Any], known: dict[int, dict[str, int]]) -> Iterator[Any]:
        forget(known, lambda slot: slot // _SLOT, KEPT)
        ask = self.open()
        for batch in batches:
            slots = batch.column("slot").to_pylist()
            campaigns = ask([f"ad-{slot % _SLOT}" for slot in slots])
            for slot, campaign in zip(slots, campaigns, strict=True):
                views = known[slot]["views"] if slot in known else 0
                known[slot] = {"campaign": campaign, "views": views + 1}
        yield from ()


def expected_views(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state: the views per ad and window."""
    answer: dict[Any, dict[str, int]] = {}
    for row in rows:
        event = json.loads(row["event"])
        if event["event_type"] == "view":
            ad = int(event["ad_id"].removeprefix("ad-"))
            slot = int(event["event_time"]) // (1000 * WINDOW_S) * _SLOT + ad
            views = answer[slot]["views"] if slot in answer else 0
            answer[slot] = {"campaign": ad // ADS_PER_CAMPAIGN, "views": views + 1}
    return {"store": answer}


@dataclass(frozen=True)
class AdFunctions:
    """The functions of all operators, with the store that they query."""

    store: Any = None

    def __call__(self) -> dict[str, Function]:
        import pyarrow as pa

        from ..spark import arrow, keyed

        entry, store = pa.struct({"campaign": pa.int64(), "views": pa.int64()}), self.store or Table(campaigns())
        return {
            "parse": arrow(parse, PARSED),
            "filter": arrow(views, PARSED),
            "project": arrow(project, "slot int64"),
            "store": keyed(Store(store.open), key="slot", state=entry),
        }


def ads(store: Any = None) -> Live:
    """Return the benchmark's live side.

    Examples
    --------
    >>> from dspkit.apps.autrascale import Table
    >>> slow = ads(Table(campaigns(), 300))  # 300 answers/s over all processes
    """
    micros = {"parse": 300.0, "store": 1000.0}
    return Live(AdFunctions(store), events, "event string", expected_views, micros, (600, 3000), "events")


WORDS_PER_LINE = 10
_TEXT = """it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness it
was the epoch of belief it was the epoch of incredulity it was the season of light it was the season of darkness it was
the spring of hope it was the winter of despair we had everything before us we had nothing before us""".split()


def lines(ids: Array, event_s: Array) -> Any:
    """Make the line of each number: ten words of a well-known text, from a position that depends on the number."""
    import pyarrow as pa

    twice = _TEXT * 2
    places = (ids * 7919 % len(_TEXT)).tolist()
    text = [" ".join(twice[at : at + WORDS_PER_LINE]) for at in places]
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["line"])


def flat_map(batches: Iterator[Any]) -> Iterator[Any]:
    """Split lines into one record per word."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        words = pc.list_flatten(pc.split_pattern(batch.column("line"), " "))
        yield pa.RecordBatch.from_arrays([words], names=["word"])


def count(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """Count each word, and send it on with its present count: one record per word, however words are batched."""
    import pyarrow as pa

    for batch in batches:
        words = batch.column("word").dictionary_encode()
        for found in words.value_counts().to_pylist():
            known[found["values"]] = known.get(found["values"], 0) + found["counts"]
        present = pa.array([known[word] for word in words.dictionary.to_pylist()], pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("word"), present.take(words.indices)], names=["word", "times"])


def sink(batches: Iterator[Any]) -> Iterator[Any]:
    """Discard the counts, which leave the job here."""
    for _ in batches:
        pass
    yield from ()


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state: the number of each word."""
    return {"count": dict(Counter(word for row in rows for word in row["line"].split()))}


def functions() -> dict[str, Function]:
    """Return the functions of word count."""
    from ..spark import arrow, keyed

    return {
        "flat_map": arrow(flat_map, "word string"),
        "count": keyed(count, "word string, times int64", key="word", state="int64"),
        "sink": arrow(sink),
    }


WORDS = Live(
    functions, lines, "line string", oracle, {"flat_map": 1000.0, "count": 50.0}, (600, 2400), "lines"
)  # `flat_map` takes one millisecond per line


HOSTS = {f"host-{i}": Node(cores=20) for i in (1, 2, 3)}  # as in the paper


def word_count() -> App:
    """Return AuTraScale's word count: source → flat map → count → sink.

    Rates of one instance are those of the method card (example A3), so that 350 k records/s need 3, 4, 12, 10 instances
    with ideal scaling; contention of 0.5 % and noise of 1 % are ours.

    Examples
    --------
    >>> word_count().topology["count"].stateful
    True
    """
    rates = {"source": 120e3, "flat_map": 100e3, "count": 30e3, "sink": 36e3}
    services = {name: Service(1 / rate, contention=0.005, queue_records=3e3) for name, rate in rates.items()}
    topology = Topology(
        (Operator("source"), Operator("flat_map"), Operator("count", stateful=True), Operator("sink")),
        (("source", "flat_map"), ("flat_map", "count"), ("count", "sink")),
    )
    load = Trace((0, 300, 700), (80e3, 250e3, 110e3))
    return App("word_count", topology, Plant(services, noise=0.01), load, 0.180, "autrascale", live=WORDS)


def case_study() -> App:
    """Return AuTraScale's case study: its word count with the same parallelism everywhere, under a rising staircase.

    The scalability law of `count` is fitted to the paper's 150, 250 and about 275 k records/s for 1, 2 and 3 instances
    (ours: 288), and the buffers to its 100 ms for 5; the other operators have capacity to spare.

    Examples
    --------
    >>> count = case_study().plant.services["count"]
    >>> [round(k / count.seconds(k) / 1e3) for k in (1, 2, 3)]
    [150, 250, 288]
    """
    services = {
        "source": Service(1 / 400e3, queue_records=2600),
        "flat_map": Service(1 / 360e3, queue_records=2600),
        "count": Service(1 / 150e3, contention=0.04, coherency=0.08, queue_records=2600),
        "sink": Service(1 / 450e3, queue_records=2600),
    }
    return App("case_study", Topology.chain(*services), Plant(services, HOSTS), Stair(), 0.180, "autrascale")


def crowded_word_count(rate_per_s: float = 350e3) -> App:
    """Return AuTraScale's word count of the latency test: instances disturb each other, and the load swings by 15 %.

    With ideal scaling 350 k records/s would need 3, 4, 10, 9 instances. `count` loses so much to coherency that it
    needs 12, has its maximum at 22, and with 40 it processes hardly more than with 12; the throughput base 3, 4, 12, 10
    is the paper's.

    Parameters
    ----------
    rate_per_s
        Mean of the load, in records/s.

    Examples
    --------
    >>> count = crowded_word_count().plant.services["count"]
    >>> max(range(1, 65), key=lambda k: k / count.seconds(k))
    22
    """
    services = {
        "source": Service(1 / 124e3, contention=0.002, coherency=0.002, queue_records=1e4),
        "flat_map": Service(1 / 104e3, contention=0.002, coherency=0.002, queue_records=1e4),
        "count": Service(1 / 38.2e3, contention=0.0005, coherency=0.0021, queue_records=1e4),
        "sink": Service(1 / 42.2e3, contention=0.002, coherency=0.002, queue_records=1e4),
    }
    return _swinging("crowded_word_count", services, rate_per_s, 0.15, 0.180, hop_s=0.03)


def yahoo(rate_per_s: float = 34e3, store: Any = None) -> App:
    """Return the Yahoo benchmark as a chain; its last operator waits for an external store that takes 36.6 k calls/s.

    34 instances of it keep up with 34 k records/s on average, 36 with the swings too; beyond the store's own limit more
    instances only wait longer.

    Parameters
    ----------
    rate_per_s
        Mean of the load, in records/s.
    store
        The live store for the look-ups: a `Table` (in memory, the default) or a `Redis`.

    Examples
    --------
    >>> yahoo().plant.services["store"].external_rate_limit_per_s
    36600.0
    """
    disturbed = {"contention": 0.002, "coherency": 0.0004, "queue_records": 1e4}
    rates = {"source": 9.6e3, "parse": 19e3, "filter": 60e3, "project": 70e3}
    services = {name: Service(1 / rate, **disturbed) for name, rate in rates.items()}  # type: ignore[arg-type]
    services["store"] = Service(1 / 1.045e3, io_share=0.9, queue_records=2000, external_rate_limit_per_s=36.6e3)
    return _swinging("yahoo", services, rate_per_s, 0.12, 0.300, hop_s=0.066, live=ads(store))


def query5(rate_per_s: float = 20e3) -> App:
    """Return Nexmark's query 5: bids in a sliding window, whose own wait is the 0.5 s from host to host.

    As in the paper it ends with the counts of each window; `nexmark_q5` continues to the hottest auction.

    Parameters
    ----------
    rate_per_s
        Mean of the load, in records/s.

    Examples
    --------
    >>> query5().topology.order, query5(10e3).load.rate(0)
    (('source', 'window'), 10000.0)
    """
    services = {
        "source": Service(1 / 40e3, queue_records=1e4),
        "window": Service(1 / 1.78e3, contention=0.0005, coherency=0.0001, queue_records=1e4),
    }
    return _swinging("query5", services, rate_per_s, 0.15, 0.500, hop_s=0.5, live=QUERY_5)


def query11(rate_per_s: float = 80e3) -> App:
    """Return Nexmark's query 11: bids of a user in a session.

    Parameters
    ----------
    rate_per_s
        Mean of the load, in records/s.

    Examples
    --------
    >>> query11().topology.order
    ('source', 'session')
    """
    services = {
        "source": Service(1 / 130e3, queue_records=1e4),
        "session": Service(1 / 9.6e3, contention=0.0005, coherency=0.0001, queue_records=1e4),
    }
    return _swinging("query11", services, rate_per_s, 0.15, 0.150, hop_s=0.065, live=QUERY_11)


def _swinging(
    name: str,
    services: dict[str, Service],
    rate_per_s: float,
    swing: float,
    target_latency_s: float,
    *,
    hop_s: float,
    live: Live | None = None,
) -> App:
    """Return a chain on the paper's three hosts under a load that swings by this share every ten seconds.

    The swings cause delays in a job with just enough capacity. All but the structure is ours.
    """
    plant = Plant(services, HOSTS, noise=0.01, pause_kind="savepoint", network=Link(delay_s=hop_s))
    rate_per_s = number(rate_per_s, "rate_per_s", fix="pass records/s, as in yahoo(34e3)")
    load = Sine(rate_per_s, swing * rate_per_s, 10.0)
    operators = tuple(Operator(n, max_parallelism=256 if services[n].io_share else 64) for n in services)
    topology = Topology(operators, tuple(zip(services, list(services)[1:], strict=False)))
    return App(name, topology, plant, load, target_latency_s, "autrascale", live=live)
