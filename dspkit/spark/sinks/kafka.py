"""A Kafka topic: the messages of an epoch and its number are written in one transaction.

The number and the token are kept as an offset of a consumer group of the writer, which Kafka commits with the messages.
A producer with the same transactional id fences its predecessor, so that a job that was taken for dead adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...core import FrozenMap
from ..errors import SchemaError, SinkError
from .sink import Sink, StagedFile

if TYPE_CHECKING:
    import pyarrow as pa


_ANSWER_S = 20.0
_TYPES = ("string", "large_string", "binary", "large_binary")


@dataclass(frozen=True)
class KafkaSink(Sink):
    """Messages of a Kafka topic, from the columns `value` and, if there is one, `key`.

    Consumers see each row once if they read with `isolation.level=read_committed`. Rows cannot be withdrawn: a job
    whose checkpoint went back behind a published epoch is refused. A broker forgets the number of the last epoch when
    a job has been idle for longer than `offsets.retention.minutes` (a week); the job is then refused as well.

    Parameters
    ----------
    topic
        Name of the topic.
    servers
        Addresses of brokers, as "host:port".
    settings
        Further settings of the client, for security and the like.

    Examples
    --------
    >>> KafkaSink("counts")
    KafkaSink(topic='counts', servers='127.0.0.1:9092')
    """

    topic: str
    servers: str = "127.0.0.1:9092"
    settings: Mapping[str, Any] = field(default_factory=FrozenMap, kw_only=True, repr=False)  # may contain passwords

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", FrozenMap(self.settings))

    def for_tasks(self) -> KafkaSink:
        return replace(self, settings={})

    def check_schema(self, schema: pa.Schema) -> None:
        # Kafka holds `value` and perhaps `key`, of text or bytes.
        kinds = {column.name: str(column.type) for column in schema}
        if "value" not in kinds or {*kinds} - {"key", "value"} or {*kinds.values()} - {*_TYPES}:
            raise SchemaError(
                f"columns {', '.join(f'{name} {kind}' for name, kind in kinds.items())} for the topic {self.topic!r}",
                expected="'value string' or 'key string, value string'; binary as well",
                fix="make the messages in an operator before the sink, as with json.dumps",
            )

    def _settings(self) -> dict[str, Any]:
        return {"log_level": 2} | dict(self.settings) | {"bootstrap.servers": self.servers}

    @contextmanager
    def _consumer(self, writer: str) -> Iterator[Any]:
        from confluent_kafka import Consumer

        own = {"group.id": f"dspkit-{writer}", "enable.auto.commit": False, "isolation.level": "read_committed"}
        consumer = Consumer(self._settings() | own)
        try:
            yield consumer
        finally:
            consumer.close()

    def _producer(self, writer: str) -> Any:
        """Return a client that has ended the transactions of those before it, and lets them add nothing."""
        from confluent_kafka import Producer

        producer = Producer(self._settings() | {"transactional.id": f"dspkit-{writer}"})
        producer.init_transactions(_ANSWER_S)
        return producer

    def open(self, writer: str, schema: pa.Schema) -> dict[int, str]:
        self._producer(writer)
        return self._newest(writer)

    def _newest(self, writer: str) -> dict[int, str]:
        from confluent_kafka import KafkaError, TopicPartition

        with self._consumer(writer) as consumer:
            (place,) = consumer.committed([TopicPartition(self.topic, 0)], timeout=_ANSWER_S)
        if place.error is not None and place.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise SinkError(
                f"topic {self.topic!r} at {self.servers}: {place.error}", expected="an existing topic", fix="create it"
            )
        if place.error is not None:
            raise ConnectionError(str(place.error))
        return {place.offset - 1: str(place.metadata)} if place.offset > 0 else {}

    def publish(self, writer: str, epoch: int, token: str, files: Sequence[StagedFile]) -> None:
        # The messages of an epoch are one transaction.
        from confluent_kafka import KafkaException, TopicPartition

        producer = self._producer(writer)  # first: a transaction that has not ended could still be committed
        for last, known in self._newest(writer).items():
            if (last, known) == (epoch, token):
                return
            if last >= epoch:
                raise SinkError(
                    f"epoch {last} ({known}) in topic {self.topic!r}, where epoch {epoch} ({token}) is to be written",
                    expected="one job that writes from a checkpoint",
                    fix="close the other job; start this one again with another topic and another checkpoint",
                )
        failed: list[str] = []
        producer.begin_transaction()
        try:
            for batch in (batch for file in files for batch in file.batches()):
                values = batch.column("value").to_pylist()
                keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * len(values)
                for key, value in zip(keys, values, strict=True):
                    self._send(producer, key, value, failed)
            with self._consumer(writer) as consumer:
                place = TopicPartition(self.topic, 0, epoch + 1, metadata=token)
                producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), _ANSWER_S)
            producer.flush(_ANSWER_S)
            if failed:
                raise ConnectionError(f"{len(failed)} messages were not delivered: {failed[0]}")
            producer.commit_transaction(_ANSWER_S)
        except Exception:
            with suppress(KafkaException):  # the next producer ends it otherwise
                producer.abort_transaction(_ANSWER_S)
            raise

    def _send(self, producer: Any, key: Any, value: Any, failed: list[str]) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(str(error))

        while True:
            try:
                producer.produce(self.topic, key=key, value=value, on_delivery=delivered)
                producer.poll(0)
                return
            except BufferError:  # the client's queue is full
                producer.poll(0.1)
