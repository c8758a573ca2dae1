"""A Kafka topic as a log, through confluent-kafka's client: each message is a record."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...core import FrozenMap
from ...core.typing import Array
from ...core.validation import choice
from ..errors import SourceError
from ..functions import as_schema
from .log import SINCE, Follower, LogSource, Mark, Marks

if TYPE_CHECKING:
    import pyarrow as pa


_ANSWER_S = 10.0
_FETCH_S = 30.0  # timeout of messages that exist according to the broker
_OURS = {  # positions are in Spark's checkpoint, not in a consumer group
    "group.id": "dspkit",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": False,
    "fetch.wait.max.ms": 20,
    "queued.max.messages.kbytes": 4096,
}


@dataclass(frozen=True)
class KafkaSource(LogSource):
    """Messages of a Kafka topic, with columns `key` and `value`; their timestamps are their event times.

    A topic whose messages are dropped before they were read ends the job. In a compacted topic numbers stand for
    offsets, and some have no message.

    Parameters
    ----------
    topic
        Name of the topic.
    servers
        Addresses of brokers, as "host:port".
    since
        "earliest" reads from the first message on, "latest" new messages only.
    text
        Whether keys and values are text; bytes otherwise.
    settings
        Further settings of the client, for security and the like.
    folder
        Folder of the marks, which the job sets.

    Examples
    --------
    >>> source = KafkaSource("clicks", text=False)
    >>> source.schema.names, source.log
    (['key', 'value'], 'Kafka topic clicks')
    """

    topic: str
    servers: str = "127.0.0.1:9092"
    since: str = field(default="earliest", kw_only=True)
    text: bool = field(default=True, kw_only=True)
    settings: Mapping[str, Any] = field(default_factory=FrozenMap, kw_only=True, repr=False)  # may contain passwords

    def __post_init__(self) -> None:
        kind = "string" if self.text else "binary"
        object.__setattr__(self, "schema", as_schema(f"key {kind}, value {kind}"))
        object.__setattr__(self, "settings", FrozenMap(self.settings))
        choice(self.since, "since", SINCE)

    @cached_property
    def partitions(self) -> int:
        consumer = self.consumer()
        try:
            found = consumer.list_topics(self.topic, timeout=_ANSWER_S).topics[self.topic]
        except Exception as error:
            raise SourceError(
                f"{error} from Kafka at {self.servers}", expected="a broker that answers", fix="check the address"
            ) from error
        finally:
            consumer.close()
        if found.error is not None or not found.partitions:
            raise SourceError(
                f"topic {self.topic!r} at {self.servers}: {found.error}", expected="an existing topic", fix="create it"
            )
        return len(found.partitions)

    @property
    def log(self) -> str:
        return f"Kafka topic {self.topic}"

    def consumer(self) -> Any:
        """Return a new client of the topic's brokers."""
        from confluent_kafka import Consumer

        quiet = {"log_level": 2}
        return Consumer(quiet | dict(self.settings) | _OURS | {"bootstrap.servers": self.servers})

    def begin(self) -> list[Any]:
        consumer = self.consumer()
        try:
            return [_marks(consumer, self.topic, p)[self.since == "latest"] for p in range(self.partitions)]
        finally:
            consumer.close()

    def follower(self, marks: list[list[Mark]]) -> _Offsets:
        return _Offsets(self, [known[0].where - known[0].number for known in marks])

    def reader(self) -> _Messages:
        return _Messages(self)


def _marks(consumer: Any, topic: str, p: int) -> tuple[int, int]:
    """Return the first offset that is kept, and the next one to be written."""
    from confluent_kafka import TopicPartition

    low, high = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_ANSWER_S)
    return int(low), int(high)


class _Offsets(Follower):
    """The driver's view of the end of each partition."""

    def __init__(self, source: KafkaSource, first: list[int]):
        self._topic, self._first, self._consumer = source.topic, first, source.consumer()

    def look(self) -> list[tuple[int, list[Mark]]]:
        ends = [_marks(self._consumer, self._topic, p)[1] for p in range(len(self._first))]
        return [(max(0, end - first), []) for end, first in zip(ends, self._first, strict=True)]

    def close(self) -> None:
        self._consumer.close()


class _Messages:
    """A task's consumer for all partitions that this process reads; it fetches ahead."""

    def __init__(self, source: KafkaSource):
        self._source, self._consumer = source, source.consumer()
        self._ahead: dict[int, deque[Any]] = {}
        self._next: dict[int, int] = {}  # by partition: the next offset

    def read(self, p: int, marks: Marks, low: int, high: int) -> tuple[pa.RecordBatch, Array]:
        import numpy as np
        import pyarrow as pa

        first = marks.marks[0].where - marks.marks[0].number
        messages = self._take(p, first + low, first + high)
        kind = pa.string() if self._source.text else pa.binary()
        columns = [
            pa.array([m.key() for m in messages], pa.binary()),
            pa.array([m.value() for m in messages], pa.binary()),
        ]
        try:
            columns = [column.cast(kind) for column in columns]
        except pa.ArrowInvalid:
            raise SourceError(
                f"a message of {self._source.topic!r} that is not text", expected="UTF-8", fix="as in text=False"
            ) from None
        event = np.array([m.timestamp()[1] for m in messages], np.int64) * 1000
        return pa.RecordBatch.from_arrays(columns, names=["key", "value"]), event

    def close(self) -> None:
        self._consumer.close()

    def _take(self, p: int, low: int, high: int) -> list[Any]:
        from confluent_kafka import TopicPartition

        topic = self._source.topic
        if self._next.get(p) != low:
            if p in self._next:
                self._consumer.incremental_unassign([TopicPartition(topic, p)])
            self._ahead[p] = deque()
            self._consumer.incremental_assign([TopicPartition(topic, p, low)])
        ahead, end = self._ahead[p], time.monotonic() + _FETCH_S
        while not (ahead and ahead[-1].offset() >= high - 1):
            for message in self._consumer.consume(high - 1 - (ahead[-1].offset() if ahead else low - 1), 0.05):
                if message.error() is not None:
                    raise SourceError(
                        f"{message.error()} from Kafka topic {topic!r}",
                        expected="messages that are not read yet",
                        fix="keep messages for longer, or give the job more instances",
                    )
                self._ahead[message.partition()].append(message)
            if not ahead or ahead[-1].offset() < high - 1:
                (position,) = self._consumer.position([TopicPartition(topic, p)])
                if position.offset >= high:
                    break  # the last ones were compacted away
                if time.monotonic() > end:
                    raise SourceError(
                        f"no message {high - 1} of partition {p} within {_FETCH_S:g} s",
                        expected="a message that exists according to the broker",
                        fix="check the broker",
                    )
        taken = []
        while ahead and ahead[0].offset() < high:
            taken.append(ahead.popleft())
        self._next[p] = high
        return taken
