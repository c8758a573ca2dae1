"""The tweet pipeline of the fission paper, with its branches: which topics are spoken of in Spanish?

Stop words go first. A quick test takes what is clearly Spanish; what it leaves open, a slower one decides with
dictionaries. Spanish tweets are counted by topic, and all are stored by language. `topologies.tweet_branches()` is the
same graph, simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..core import Operator, Topology
from .base import MOST, Answers, LiveApp
from .draw import draw

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

TOPOLOGY = Topology(
    (
        *(Operator(name, MOST) for name in ("read", "stop_words", "language", "dictionary")),
        *(Operator(name, MOST, stateful=True) for name in ("count", "store")),
    ),
    (
        ("read", "stop_words"), ("stop_words", "language"), ("language", "count"), ("language", "dictionary"),
        ("dictionary", "count"), ("dictionary", "store"), ("count", "store"),
    ),
)  # fmt: skip
TOPICS = ("#terremoto", "#ayuda", "#noticias", "#futbol", "#clima", "#musica", "#salud", "#viaje")
STOP_WORDS = frozenset("el la los de en y que un una the of in and that a an is es o os da do em e".split())
_CLEAR = frozenset("ñáéíóú¿¡")  # letters by which the quick test knows Spanish
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
    """Tweets: five words and three fillers, with one topic."""
    import pyarrow as pa

    topic, kind = draw(ids, 1, len(TOPICS)).tolist(), draw(ids, 2, len(_SHARES)).tolist()
    picks = list(zip(*(draw(ids, 10 + i, 1000).tolist() for i in range(8)), strict=True))
    text = []
    for t, k, p in zip(topic, kind, picks, strict=True):
        share = _SHARES[k]
        language = "english" if share == "english" else "spanish"
        words = WORDS["english"] if language == "english" else _PLAIN
        said = [words[n % len(words)] for n in p[:5]]
        if share == "marked":
            said[p[0] % 5] = _MARKED[p[1] % len(_MARKED)]
        fillers = [_FILLERS[language][n % 4] for n in p[5:]]
        text.append(" ".join([fillers[0], *said[:3], *fillers[1:], *said[3:], TOPICS[t]]))
    return pa.RecordBatch.from_arrays([pa.array(text)], names=["tweet"])


def stop_words(batches: Iterator[Any]) -> Iterator[Any]:
    """Tweets without their stop words, the topic apart."""
    import pyarrow as pa

    for batch in batches:
        kept = [[w for w in tweet.split() if w not in STOP_WORDS] for tweet in batch.column("tweet").to_pylist()]
        columns = [[next(w for w in words if w[0] == "#") for words in kept]]
        columns.append([" ".join(w for w in words if w[0] != "#") for words in kept])
        yield pa.RecordBatch.from_arrays([pa.array(c, pa.string()) for c in columns], names=["topic", "text"])


def language(batches: Iterator[Any]) -> Iterator[Any]:
    """What is clearly Spanish goes to be counted, the rest to the dictionaries."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        clear = pa.array([not _CLEAR.isdisjoint(text) for text in batch.column("text").to_pylist()], pa.bool_())
        yield "count", batch.filter(clear)
        yield "dictionary", batch.filter(pc.invert(clear))


def dictionary(batches: Iterator[Any]) -> Iterator[Any]:
    """The language in whose dictionary most words are; the first of those that know as many."""
    import pyarrow as pa

    dictionaries = {name: frozenset(words) for name, words in WORDS.items()}
    for batch in batches:
        found = []
        for text in batch.column("text").to_pylist():
            words = text.split()
            found.append(max(dictionaries, key=lambda name: sum(w in dictionaries[name] for w in words)))
        spanish = [name == "spanish" for name in found]
        yield "count", _told(batch, found).filter(pa.array(spanish, pa.bool_()))
        yield "store", _told(batch, found).filter(pa.array([not s for s in spanish], pa.bool_()))


def count(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """Spanish tweets by topic."""
    for batch in batches:
        topics = batch.column("topic").to_pylist()
        for topic, n in Counter(topics).items():
            known[topic] = known.get(topic, 0) + n
        yield _told(batch, ["spanish"] * len(topics))


def store(batches: Iterator[Any], known: dict[str, int]) -> Iterator[Any]:
    """Tweets by language."""
    for batch in batches:
        for name, n in Counter(batch.column("language").to_pylist()).items():
            known[name] = known.get(name, 0) + n
    yield from ()


def _told(batch: Any, languages: list[str]) -> Any:
    import pyarrow as pa

    columns = [batch.column("topic"), pa.array(languages, pa.string())]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "language"])


def oracle(rows: Iterable[dict[str, Any]]) -> Answers:
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


def app() -> LiveApp:
    """The pipeline as an application."""
    from ..spark import arrow, keyed

    functions = {
        "stop_words": arrow(stop_words, TWEET),
        "language": arrow(language, TWEET),
        "dictionary": arrow(dictionary, "topic string, language string"),
        "count": keyed(count, "topic string, language string", key="topic", state="int64"),
        "store": keyed(store, key="language", state="int64"),
    }
    micros = {"stop_words": 250.0, "language": 200.0, "dictionary": 1300.0, "count": 950.0, "store": 200.0}
    return LiveApp("tweets", TOPOLOGY, functions, tweets, "tweet string", oracle, micros, (300, 1600), "tweets")
