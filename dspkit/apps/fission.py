"""The three applications of the self-adaptive graph with fission, on S4: a full queue drops further events.

The second one, the tweet pipeline with branches, also has a live side: which topics are discussed in Spanish? Stop
words are removed first. A quick test recognises clearly Spanish tweets; for the others a slower operator decides with
dictionaries. Spanish tweets are counted by topic, and all are stored by language.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core import Operator, Topology, WorkloadError
from ..core.typing import Array
from ..core.validation import whole
from ..simulator import Node, Plant, Service
from ..workload import Trace, Workload
from .app import App
from .live import Answers, Live, draw

if TYPE_CHECKING:
    from ..spark import Function


TOPICS = ("#terremoto", "#ayuda", "#noticias", "#futbol", "#clima", "#musica", "#salud", "#viaje")
STOP_WORDS = frozenset("el la los de en y que un una the of in and that a an is es o os da do em e".split())
_CLEAR = frozenset("ñáéíóú¿¡")  # letters by which the quick test recognises Spanish
WORDS = {
    "spanish": "temblor señal edificio rescate población réplica ciudad agua familia daño".split(),
    "english": "tremor building rescue city water family damage people street help".split(),
    "portuguese": "tremor prédio resgate cidade água família dano gente rua socorro".split(),
}
_PLAIN = [word for word in WORDS["spanish"] if not _CLEAR & set(word)]
_MARKED = [word for word in WORDS["spanish"] if _CLEAR & set(word)]
_FILLERS = {"spanish": "el la de que".split(), "english": "the of and is".split(), "portuguese": "o os da em".split()}
_SHARES = ("marked",) * 50 + ("plain",) * 10 + ("english",) * 40  # half are clear, a fifth of the others Spanish
TWEET = "topic string, text string"


def tweets(ids: Array, event_s: Array) -> Any:
    """Make tweets: five words and three fillers, with one topic."""
    import pyarrow as pa

    topic, kind = draw(ids, 1, len(TOPICS)).tolist(), draw(ids, 2, len(_SHARES)).tolist()
    picks = list(zip(*(draw(ids, 10 + i, 1000).tolist() for i in range(8)), strict=True))
    text = []
    for t, k, p in zip(topic, kind, picks, strict=True):
        group = _SHARES[k]
        language = "english" if group == "english" else "spanish"
        words = WORDS["english"] if language == "english" else _PLAIN
        content = [words[n % len(words)] for n in p[:5]]
        if group == "marked":
            content[p[0] % 5] = _MARKED[p[1] % len(_MARKED)]
        fillers = [_FILLERS[language][n % 4] for n in p[5:]]
        text.append(" ".join([fillers[0], *content[:3], *fillers[1:], *content[3:], TOPICS[t]]))
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["tweet"])


def stop_words(batches: Iterator[Any]) -> Iterator[Any]:
    """Remove the stop words of tweets, and separate the topic."""
    import pyarrow as pa

    for batch in batches:
        kept = [[w for w in tweet.split() if w not in STOP_WORDS] for tweet in batch.column("tweet").to_pylist()]
        columns = [[next(w for w in words if w[0] == "#") for words in kept]]
        columns.append([" ".join(w for w in words if w[0] != "#") for words in kept])
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], names=["topic", "text"])


def language(batches: Iterator[Any]) -> Iterator[Any]:
    """Send clearly Spanish tweets to `count`, the rest to `dictionary`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        clear = pa.array([not _CLEAR.isdisjoint(text) for text in batch.column("text").to_pylist()], pa.bool_())
        yield "count", batch.filter(clear)
        yield "dictionary", batch.filter(pc.invert(clear))


def dictionary(batches: Iterator[Any]) -> Iterator[Any]:
    """Determine the language whose dictionary has most of the words; the first one on a tie."""
    import pyarrow as pa

    dictionaries = {name: frozenset(words) for name, words in WORDS.items()}
    for batch in batches:
        found = []
        for text in batch.column("text").to_pylist():
            words = text.split()
            found.append(max(dictionaries, key=lambda name: sum(w in dictionaries[name] for w in words)))
        spanish = [name == "spanish" for name in found]
        yield "count", _with_language(batch, found).filter(pa.array(spanish, pa.bool_()))
        yield "store", _with_language(batch, found).filter(pa.array([not s for s in spanish], pa.bool_()))


def count(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """Count Spanish tweets by topic."""
    for batch in batches:
        topics = batch.column("topic").to_pylist()
        for topic, n in Counter(topics).items():
            known[topic] = known.get(topic, 0) + n
        yield _with_language(batch, ["spanish"] * len(topics))


def store(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """Count tweets by language."""
    for batch in batches:
        for name, n in Counter(batch.column("language").to_pylist()).items():
            known[name] = known.get(name, 0) + n
    yield from ()


def _with_language(batch: Any, languages: list[str]) -> Any:
    import pyarrow as pa

    columns = [batch.column("topic"), pa.array(languages, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "language"])


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
    """Compute the expected state: Spanish tweets by topic, all tweets by language."""
    topics: Counter[str] = Counter()
    languages: Counter[str] = Counter()
    for row in rows:
        *words, topic = [w for w in row["tweet"].split() if w not in STOP_WORDS]
        known = {name: sum(w in WORDS[name] for w in words) for name in WORDS}
        spanish = any(letter in word for word in words for letter in _CLEAR)
        name = "spanish" if spanish else max(known, key=lambda name: known[name])
        languages[name] += 1
        topics[topic] += name == "spanish"
    return {"count": {t: n for t, n in topics.items() if n}, "store": dict(languages)}


def functions() -> dict[str, Function]:
    """Return the functions of the tweet pipeline."""
    from ..spark import arrow, keyed

    return {
        "stop_words": arrow(stop_words, TWEET),
        "language": arrow(language, TWEET),
        "dictionary": arrow(dictionary, "topic string, language string"),
        "count": keyed(count, "topic string, language string", key="topic", state="int64"),
        "store": keyed(store, key="language", state="int64"),
    }


TWEETS = Live(
    functions,
    tweets,
    "tweet string",
    oracle,
    {"stop_words": 250.0, "language": 200.0, "dictionary": 1300.0, "count": 950.0, "store": 200.0},
    (300, 1600),
    "tweets",
)


LONGEST = 10_080  # minutes: one week


def tweet_words(minutes: int = 10) -> App:
    """Return fission's first application: stop words → language → count → store, under tweets after an earthquake.

    S4 drops events at a full queue. Rates of one replica (`count` is the bottleneck, as in SS1), room for events and
    the curve are ours: rises at 300 and 500 s to about 800 events/s, and a mean of 312, as in the paper.

    Parameters
    ----------
    minutes
        Length to which the load of ten minutes is stretched.

    Examples
    --------
    >>> tweet_words().topology.order
    ('stop_words', 'language', 'count', 'store')
    """
    rates = {"stop_words": 400, "language": 395, "count": 106.5, "store": 500}
    return _s4("tweet_words", Topology.chain(*rates), rates, 80, _tweets(minutes))


def tweet_branches(minutes: int = 10) -> App:
    """Return fission's second application: tweets branch by language, after a quick test and, if need be, a slower one.

    The quick test recognises half of them as Spanish, the dictionary a fifth of the others. The load is that of the
    first application; shares and the rates of one replica are ours, such that with one replica each the results are
    those of SS1.

    Parameters
    ----------
    minutes
        Length to which the load of ten minutes is stretched.

    Examples
    --------
    >>> tweet_branches().plant.services["dictionary"].toward("count")
    0.2
    """
    rates = {"stop_words": 400, "language": 500, "dictionary": 84, "count": 106.5, "store": 500}
    edges = [("stop_words", "language"), ("language", "count"), ("language", "dictionary")]
    edges += [("dictionary", "count"), ("dictionary", "store"), ("count", "store")]
    branches = {"language": {"count": 0.5, "dictionary": 0.5}, "dictionary": {"count": 0.2, "store": 0.8}}
    topology = Topology(tuple(map(Operator, rates)), tuple(edges))
    return _s4("tweet_branches", topology, rates, 80, _tweets(minutes), branches, TWEETS)


def news_entities(minutes: int = 10) -> App:
    """Return fission's third application: spam → sentiment → entities → store, under phrases of the news in high peaks.

    It has a peak of 3000 events/s at about 300 s and a mean of 638, as in the paper; `entities` is the bottleneck, as
    in SS1. The curve between and the other rates are ours; SS2 has 30 replicas, as printed.

    Parameters
    ----------
    minutes
        Length to which the load of ten minutes is stretched.

    Examples
    --------
    >>> round(news_entities(60).load.rate(6 * 307))
    3000
    """
    rates = {"spam": 1000, "sentiment": 1000, "entities": 141, "store": 1500}
    times = (0, 168, 206, 299, 307, 337, 395, 454, 600)
    heights = (150, 125, 290, 1790, 3000, 3000, 550, 150, 150)
    return _s4("news_entities", Topology.chain(*rates), rates, 350, _lines(times, heights, minutes))


def _tweets(minutes: int) -> Workload:
    times = (0, 293, 344, 415, 464, 519, 600)
    heights = (188, 94, 379, 310, 298, 800, 800)
    return _lines(times, heights, minutes)


def _lines(times_s: Sequence[float], heights: Sequence[float], minutes: int) -> Workload:
    """Return a load of straight lines between these points of ten minutes, stretched to `minutes`.

    It has one rate per second.
    """
    import numpy as np

    whole(minutes, "minutes", 1, LONGEST, error=WorkloadError, fix="the paper's are 10 and 60")
    t = np.arange(60.0 * minutes)
    return Trace(t.tolist(), np.interp((t + 0.5) * 10 / minutes, times_s, heights).tolist())


def _s4(
    name: str,
    topology: Topology,
    rates: Mapping[str, float],
    room: float,
    load: Workload,
    branches: Any = None,
    live: Live | None = None,
) -> App:
    """Return an application on S4: replicas are free and start at once on one large host; full queues drop events."""
    services = {
        n: Service(
            1 / rate, (branches or {}).get(n, 1.0), queue_records=room, overflow="drop", distribution="deterministic"
        )
        for n, rate in rates.items()
    }
    plant = Plant(services, {"host": Node(4096)}, pause_s=0.0, pause_kind="in-place")
    return App(name, topology, plant, load, 1.0, "fission", live=live)
