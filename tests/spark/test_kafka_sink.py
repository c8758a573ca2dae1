"""A topic has each row once, by a model of Kafka's transactions; the calls are shown by librdkafka's own broker.

That broker keeps no offsets of transactions, shows aborted messages and fences no producer, so what depends on these is
tested with the model only.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

import sinks
from dspkit.spark import KafkaSink, KafkaSource, SchemaError, SinkError
from dspkit.spark.dataflow import state
from dspkit.spark.sinks.publisher import Publisher, Target
from dspkit.spark.sinks.sink import SinkMark, Staging, staged

SCHEMA = pa.schema({"key": pa.string(), "value": pa.string()})


class Broker:
    """A topic with transactions: a producer ends those of its predecessor of the same id, which can add nothing."""

    def __init__(self) -> None:
        self.messages: list[tuple[Any, Any]] = []
        self.offsets: dict[str, Any] = {}
        self.newest: Counter[str] = Counter()  # producer by transactional id
        self.steps, self.last = 0, -1

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.last:
            raise SystemExit


class Producer:
    def __init__(self, broker: Broker, settings: dict[str, Any]):
        self.broker, self.id = broker, settings["transactional.id"]

    def init_transactions(self, timeout: float) -> None:
        self.broker.step()
        self.broker.newest[self.id] += 1
        self.number = self.broker.newest[self.id]

    def check(self) -> None:
        self.broker.step()
        if self.number != self.broker.newest[self.id]:
            raise confluent_kafka.KafkaException("fenced")

    def begin_transaction(self) -> None:
        self.check()
        self.pending: list[tuple[Any, Any]] = []
        self.offset: dict[str, Any] = {}

    def produce(self, topic: str, key: Any, value: Any, on_delivery: Callable[..., None]) -> None:
        self.check()
        self.pending.append((key, value))
        on_delivery(None, None)

    def poll(self, timeout: float) -> None:
        pass

    def flush(self, timeout: float) -> None:
        self.broker.step()

    def send_offsets_to_transaction(self, places: list[Any], group: str, timeout: float) -> None:
        self.check()
        self.offset[group] = places[0]

    def commit_transaction(self, timeout: float) -> None:
        self.check()
        self.broker.messages += self.pending
        self.broker.offsets |= self.offset
        self.broker.step()

    def abort_transaction(self, timeout: float) -> None:
        self.check()
        del self.pending


class Consumer:
    def __init__(self, broker: Broker, settings: dict[str, Any]):
        assert settings["isolation.level"] == "read_committed"
        self.broker, self.group = broker, settings["group.id"]

    def committed(self, places: list[Any], timeout: float) -> list[Any]:
        self.broker.step()
        return [self.broker.offsets.get(self.group) or confluent_kafka.TopicPartition(places[0].topic, 0)]

    def consumer_group_metadata(self) -> str:
        return self.group

    def close(self) -> None:
        pass


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(confluent_kafka, "Producer", lambda settings: Producer(broker, settings))
    monkeypatch.setattr(confluent_kafka, "Consumer", lambda settings: Consumer(broker, settings))
    return broker


class Messages(sinks.FakeJob):
    """A log of numbers that become messages."""

    def __init__(self, folder: Path):
        super().__init__(folder, KafkaSink("out"))

    def commit(self, k: int, count: int = 7) -> None:
        epoch, low = self.checkpoint.committed() + 1, self.read
        plan = state.begin_epoch(self.checkpoint.own, epoch, (1, k))
        sinks.write_spark(self.checkpoint.folder, "offsets", epoch, f"v1\n{{}}\n[{low + count}]")
        for i in range(k):
            staging = Staging(self.checkpoint.own, plan, 1, i, SCHEMA)
            rows = [{"key": str(n % 3), "value": str(n)} for n in range(low, low + count) if n % k == i]
            if rows:
                staging.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
            staging.commit()
        sinks.write_spark(self.checkpoint.folder, "commits", epoch, 'v1\n{"nextBatchWatermarkMs":0}')


def _expected(job: sinks.FakeJob) -> Counter[tuple[str, str]]:
    return Counter((str(n % 3), str(n)) for n in range(job.read))


def test_a_job_that_ends_between_any_two_calls_leaves_each_message_once(model: Broker, tmp_path: Path) -> None:
    last = model.steps = 0
    while model.steps >= last:
        last += 1
        model.__init__()  # type: ignore[misc]
        model.last = last
        job = None
        try:
            job = Messages(tmp_path / str(last))
            for k in (1, 2):
                job.epoch(k)
        except SystemExit:
            assert set(model.messages) <= {(str(n % 3), str(n)) for n in range(14)}
        steps, model.last = model.steps, -1
        job = Messages(tmp_path / str(last))
        assert Counter(model.messages) == _expected(job)
        job.epoch(3)
        assert Counter(model.messages) == _expected(job)
        model.steps = steps
    assert last > 30


def test_a_job_that_was_taken_for_dead_adds_nothing(model: Broker, tmp_path: Path) -> None:
    job = Messages(tmp_path)
    job.epoch(1)
    writer = SinkMark.read(job.checkpoint.own, 1).writer
    old = KafkaSink("out")._producer(writer)
    old.begin_transaction()
    Messages(tmp_path)
    with pytest.raises(confluent_kafka.KafkaException, match="fenced"):
        old.commit_transaction(1)
    with pytest.raises(SinkError, match="one job that writes from a checkpoint"):
        job.sink.publish(writer, 0, "0-ffffffff", [])
    assert Counter(model.messages) == _expected(job)


def test_a_checkpoint_that_went_back_is_refused(model: Broker, tmp_path: Path) -> None:
    job = Messages(tmp_path)
    job.epoch(1)
    job.epoch(2)
    (job.checkpoint.folder / "spark" / "commits" / "1").write_text("nothing")
    with pytest.raises(SinkError, match="rows of epochs after 0"):
        Messages(tmp_path)
    assert len(model.messages) == 14


def test_messages_arrive_at_a_broker(broker: Any, tmp_path: Path) -> None:
    servers, producer = broker
    topic = f"sink-{time.time_ns()}"
    plan = state.begin_epoch(tmp_path, 0, (1, 1))
    SinkMark("w", -1, -1).write(tmp_path, 1)
    staging = Staging(tmp_path, plan, 1, 0, SCHEMA)
    rows = [{"key": str(n % 3) if n % 5 else None, "value": f"ä{n}"} for n in range(1000)]
    staging.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    staging.commit()
    sink = KafkaSink(topic, servers)
    with pytest.raises(SinkError, match="expected an existing topic; create it"):
        sink.open(topic, SCHEMA)
    producer.list_topics(topic, timeout=10)  # which creates it there
    assert sink.open(topic, SCHEMA) == {}
    sink.publish(topic, 0, plan.token, staged(tmp_path, plan, 1))
    source = KafkaSource(topic, servers)
    reader = source.consumer()
    reader.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(source.partitions)])
    found: list[tuple[Any, Any]] = []
    end = time.monotonic() + 30
    while len(found) < 1000 and time.monotonic() < end:
        found += [
            (m.key() and m.key().decode(), m.value().decode()) for m in reader.consume(1000, 0.5) if not m.error()
        ]
    reader.close()
    assert Counter(found) == Counter((row["key"], row["value"]) for row in rows)


def test_a_broker_that_does_not_answer_is_an_error_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dspkit.spark.sinks import kafka, publisher

    monkeypatch.setattr(kafka, "_ANSWER_S", 0.2)
    monkeypatch.setattr(publisher, "PATIENCE_S", 0.1)
    job = sinks.FakeJob(tmp_path, sinks.make("parquet", tmp_path))
    nowhere = Publisher(job.checkpoint, {1: Target("out", KafkaSink("out", "127.0.0.1:9"), SCHEMA)})
    with pytest.raises(SinkError, match="the sink of 'out': KafkaException"):
        nowhere.recover()


@pytest.mark.parametrize(
    "schema", [{"key": pa.string()}, {"value": pa.int64()}, {"value": pa.string(), "n": pa.string()}]
)
def test_columns_that_are_no_messages_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="make the messages in an operator"):
        KafkaSink("out").check_schema(pa.schema(schema))
