"""Sinks get each row of a committed epoch once, whatever happens between its steps; without Spark."""

from __future__ import annotations

import contextlib
import datetime
import glob
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
import types
import unittest.mock
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import live
import sinks
import tasks
from dspkit import Topology, workload
from dspkit.core import ArgumentError, TopologyError
from dspkit.spark import (
    CheckpointError,
    ParquetSink,
    SchemaError,
    Sink,
    SinkError,
    SparkJob,
    SqlSink,
    TableSink,
    TraceSource,
    arrow,
)
from dspkit.spark.dataflow import plan, state
from dspkit.spark.dataflow.task import OperatorFailed
from dspkit.spark.errors import readable
from dspkit.spark.functions import same
from dspkit.spark.sinks import parquet, publisher
from dspkit.spark.sinks.sink import SinkMark, Staging, check_schema, staged

KINDS = ("parquet", "sqlite", "table")


def _expected(job: sinks.FakeJob) -> list[dict[str, Any]]:
    return [sinks.row(n) for n in range(job.read)]


@pytest.mark.parametrize("every", [24, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_job_killed_at_any_step_leaves_each_row_once(kind: str, every: int, tmp_path: Path) -> None:
    """Killed with SIGKILL before each change to a file or a database, and some again while they recover."""
    command = [sys.executable, sinks.__file__, kind, str(tmp_path), str(every)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", ["commit", "staged", "state of the newest three"])
def test_rows_of_epochs_that_are_repeated_are_withdrawn(kind: str, damage: str, tmp_path: Path) -> None:
    sink = sinks.make(kind, tmp_path)
    job = sinks.FakeJob(tmp_path, sink)
    for k in (1, 2, 3, 1, 2):
        job.epoch(k)
    spark = job.checkpoint.folder / "spark"
    if damage == "commit":
        (spark / "commits" / "4").write_text("nothing")
    elif damage == "staged":  # of an epoch that was not published
        job.commit(2)
        (path,) = job.checkpoint.own.glob("sinks/1/5-*/1-*.parquet")
        path.write_bytes(bytes([*path.read_bytes()[:-1], 0]))
    else:
        for epoch in (2, 3, 4):
            (spark / "offsets" / str(epoch)).write_text("nothing")
    job = sinks.FakeJob(tmp_path, sink)
    assert job.undone == {"commit": [4], "staged": [5]}.get(damage, [2, 3, 4])
    assert sinks.contents(job.sink) == _expected(job)
    for k in (3, 2, 1):
        job.epoch(k, count=5)
    assert sinks.contents(job.sink) == _expected(job)
    assert job.read == {"commit": 43, "staged": 50}.get(damage, 29)


def test_a_checkpoint_whose_sink_has_rows_of_another_run_is_refused(tmp_path: Path) -> None:
    sink = sinks.make("parquet", tmp_path)
    job = sinks.FakeJob(tmp_path, sink)
    job.epoch(1)
    job.epoch(1)
    for path in (tmp_path / "rows" / "_epochs").iterdir():
        path.write_text(path.read_text().replace("-", "-f", 1))  # the token of another attempt
    with pytest.raises(SinkError, match="from another run of this job"):
        sinks.FakeJob(tmp_path, sink)


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_a_target_without_its_rows_is_refused(kind: str, tmp_path: Path) -> None:
    sink = sinks.make(kind, tmp_path)
    sinks.FakeJob(tmp_path, sink).epoch(1)
    (tmp_path / "rows.db").unlink(missing_ok=True)
    for path in tmp_path.glob("rows/_epochs/*"):
        path.unlink()
    with pytest.raises(SinkError, match="with epochs up to -1, although it had got those up to 0"):
        sinks.FakeJob(tmp_path, sink)


def test_a_checkpoint_without_its_mark_is_refused(tmp_path: Path) -> None:
    job = sinks.FakeJob(tmp_path, sinks.make("parquet", tmp_path))
    job.epoch(1)
    SinkMark.path(job.checkpoint.own, 1).write_text("{}")
    with pytest.raises(CheckpointError, match="how far a sink is"):
        sinks.FakeJob(tmp_path, job.sink)


def test_epochs_without_rows_publish_nothing(tmp_path: Path) -> None:
    job = sinks.FakeJob(tmp_path, sinks.make("parquet", tmp_path))
    for count in (0, 3, 0, 0):
        job.epoch(2, count)
    assert len(list((tmp_path / "rows" / "_epochs").iterdir())) == 1
    assert SinkMark.read(job.checkpoint.own, 1).published == 3
    job = sinks.FakeJob(tmp_path, job.sink)
    assert sinks.contents(job.sink) == _expected(job)


def test_an_epoch_waits_for_the_sink_to_have_the_second_one_before_it(tmp_path: Path) -> None:
    """So the plans of all epochs that are not published are kept."""
    job = sinks.FakeJob(tmp_path, sinks.make("parquet", tmp_path))
    job.commit(1)
    job.commit(2)
    thread = publisher.ServiceThread(
        "test", "publishes late", lambda: thread.ended.wait(0.5) or job.publisher.publish()
    )
    thread.start()
    job.commit(3)  # ends only after the thread has published
    assert SinkMark.read(job.checkpoint.own, 1).published >= 0
    thread.close(5)
    job.publisher.publish()
    assert sinks.contents(job.sink) == _expected(job)


def test_a_target_that_does_not_answer_is_asked_again_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(ParquetSink):
        answers = 2

        def publish(self, *rows: Any) -> None:
            Deaf.answers -= 1
            if Deaf.answers >= 0:
                raise ConnectionError("no answer")
            super().publish(*rows)

    job = sinks.FakeJob(tmp_path, Deaf(tmp_path / "rows"))
    job.epoch(1)
    assert Deaf.answers == -1
    assert sinks.contents(job.sink) == _expected(job)
    monkeypatch.setattr(publisher, "PATIENCE_S", 0.2)
    Deaf.answers = 1000
    with pytest.raises(SinkError, match=r"ConnectionError: no answer.*nothing is lost"):
        job.epoch(1)
    assert 990 < Deaf.answers < 1000
    Deaf.answers = 0
    job.publisher.publish()
    assert sinks.contents(job.sink) == _expected(job)


def test_the_thread_of_a_publisher_that_gives_up_says_why(tmp_path: Path) -> None:
    failed: list[Exception] = []
    job = sinks.FakeJob(tmp_path, sinks.make("sqlite", tmp_path))
    job.publisher._fail = failed.append
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute('CREATE UNIQUE INDEX once ON "rows" (word)')
    job.commit(1)
    job.publisher.thread.start()
    job.publisher.thread._thread.join(10)
    assert failed == [job.publisher.failed]
    assert isinstance(failed[0], SinkError)
    assert "UNIQUE constraint failed" in str(failed[0])
    job.publisher.close()
    assert sinks.contents(job.sink) == []
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("DROP INDEX once")
    job = sinks.FakeJob(tmp_path, job.sink)  # publishes what was committed
    assert sinks.contents(job.sink) == _expected(job)


@pytest.mark.parametrize("kind", KINDS)
def test_two_jobs_from_one_checkpoint_do_not_mix_their_rows(kind: str, tmp_path: Path) -> None:
    first = sinks.FakeJob(tmp_path, sinks.make(kind, tmp_path))
    first.epoch(1)
    first.epoch(2)
    writer, sink = SinkMark.read(first.checkpoint.own, 1).writer, first.sink
    known = sink.open(writer, sinks.SCHEMA)
    for epoch, token in ((1, "1-ffffffff"), (0, "0-ffffffff"), (0, known[0])):
        with pytest.raises(SinkError, match="one job that writes"):
            sink.publish(writer, epoch, token, [])
    sink.publish(writer, 1, known[1], [])  # the same again
    assert sinks.contents(sink) == _expected(first)


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_rows_stay_in_one_place_when_the_working_directory_changes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "else # where").mkdir()
    monkeypatch.chdir(tmp_path / "else # where")
    sink = ParquetSink("rows") if kind == "parquet" else SqlSink("sqlite:///rows.db", "rows")
    job = sinks.FakeJob(tmp_path, sink)
    job.epoch(1)
    monkeypatch.chdir(tmp_path)
    job.epoch(2)
    assert sinks.contents(sink) == _expected(job)
    assert sinks.contents(pickle.loads(pickle.dumps(sink))) == _expected(job)
    assert not list(tmp_path.glob("rows*"))
    assert len(list((tmp_path / "else # where").glob("rows*"))) == 1


class Closed(ParquetSink):
    """A target that rejects all rows while there is a file of this name beside it."""

    def publish(self, writer: str, epoch: int, token: str, files: Any) -> None:
        if Path(f"{self.folder}.closed").exists():
            raise SinkError("the door", expected="an open one", fix="open it")
        super().publish(writer, epoch, token, files)


@pytest.mark.parametrize("temporary", [True, False])
def test_a_checkpoint_with_rows_that_were_not_published_is_kept(
    temporary: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    door = tmp_path / "rows.closed"
    door.touch()
    fake = sinks.FakeJob(tmp_path, Closed(tmp_path / "rows"))
    fake.commit(2)
    folder = fake.checkpoint.folder
    removed: list[str] = []
    jvm = unittest.mock.MagicMock()
    jvm.java.io.File = str
    jvm.org.apache.spark.util.ShutdownHookManager.removeShutdownDeleteDir = removed.append
    spark = types.SimpleNamespace(sparkContext=types.SimpleNamespace(_jvm=jvm))

    def ended() -> SparkJob:
        job = object.__new__(SparkJob)
        job._checkpoint, job._publisher, job._unpublished = fake.checkpoint, fake.publisher, None
        job._owned = [job._remove_temporary] * temporary + [partial(job._publish_rest, spark if temporary else None)]
        return job

    job = ended()
    with pytest.raises(SinkError, match=rf"door.*checkpoint='{folder}'") if temporary else contextlib.nullcontext():
        job.close()
    job.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert removed == [str(folder)] * temporary
    door.unlink()
    fake = sinks.FakeJob(tmp_path, fake.sink)
    assert sinks.contents(fake.sink) == _expected(fake) == [sinks.row(n) for n in range(7)]
    fake.commit(1)
    ended().close()
    assert len(sinks.contents(fake.sink)) == 14
    assert folder.exists() is not temporary


def test_two_jobs_share_a_target(tmp_path: Path) -> None:
    sink = sinks.make("parquet", tmp_path)
    for name in "ab":
        job = sinks.FakeJob(tmp_path / name, sink)
        job.epoch(2)
    sink.withdraw(SinkMark.read(job.checkpoint.own, 1).writer, -1)
    assert sinks.contents(sink) == [sinks.row(n) for n in range(7)]


def test_a_table_keeps_the_newest_rows(tmp_path: Path) -> None:
    job = sinks.FakeJob(tmp_path, TableSink(rows=20))
    for k in (1, 2, 3) * 6:
        job.epoch(k)
    found = job.publisher.newest(1, 10).to_pylist()
    assert len(found) == 10
    assert {row["id"] for row in found} <= {*range(job.read - 14, job.read)}
    every = job.publisher.newest(1, 1000).num_rows
    assert every == 7 * (state.KEPT + 1)  # the job can go back over KEPT epochs
    assert len(list((job.checkpoint.own / "tables" / "1").glob("*.parquet"))) <= 3 * 8
    assert sinks.FakeJob(tmp_path, TableSink(rows=20)).publisher.newest(1, 1000).num_rows == every
    empty = sinks.FakeJob(tmp_path / "other", TableSink()).publisher.newest(1, 5)
    assert (empty.schema, empty.num_rows) == (sinks.SCHEMA, 0)


EXACT = {
    "flag": ([True, False, None], pa.bool_()),
    "whole": ([-(2**63), 2**63 - 1, None], pa.int64()),
    "small": ([0, 255, None], pa.uint8()),
    "real": ([0.1, float("inf"), None], pa.float64()),
    "text": (['a "quoted" ?%s\n', "", None], pa.string()),
    "data": ([b"\0\xff", b"", None], pa.binary()),
    "price": ([Decimal("12345678901234567.89"), Decimal("-0.01"), None], pa.decimal128(19, 2)),
    "day": ([datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None], pa.date32()),
    "at": ([datetime.datetime(2026, 1, 1, 0, 0, 0, 1), None, None], pa.timestamp("us")),
    'odd "name" 100% ?': ([1, 2, None], pa.int16()),
}


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a real PostgreSQL of our own, behind a socket in a temporary folder."""
    pytest.importorskip("psycopg", reason="PostgreSQL needs psycopg: pip install 'psycopg[binary]'")
    found = [*glob.glob("/usr/lib/postgresql/*/bin"), *filter(None, [os.path.dirname(shutil.which("initdb") or "")])]
    if not found:
        pytest.skip("no PostgreSQL on this machine; to have it: apt-get install -y postgresql")
    place = tempfile.mkdtemp(prefix="dspkit-pg-")
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place}
    if os.geteuid() == 0:  # it does not run as root
        shutil.chown(place, "postgres")
        options["user"] = "postgres"
    subprocess.run([f"{found[-1]}/initdb", "-D", f"{place}/data", "-A", "trust", "-U", "me"], check=True, **options)
    command = [f"{found[-1]}/postgres", "-D", f"{place}/data", "-k", place, "-c", "listen_addresses="]
    server = subprocess.Popen(command, **options)
    url = f"postgresql://me@/postgres?host={place}"
    live.until(lambda: _answers(url), 60)
    yield url
    server.terminate()
    server.wait(60)
    shutil.rmtree(place, ignore_errors=True)


def _answers(url: str) -> bool:
    import psycopg

    with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
        return True
    return False


def _stored(sink: SqlSink, folder: Path, batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Return the contents of a sink's table after some rows that were staged and published."""
    check_schema(batch.schema, "out")
    sink.check_schema(batch.schema)
    sink.check_rows(batch)
    sink.open("w", batch.schema)
    made = state.begin_epoch(folder, 0, (1, 1))
    SinkMark("w", -1, -1).write(folder, 1)
    staging = Staging(folder, made, 1, 0, batch.schema)
    staging.write(batch)
    staging.commit()
    (file,) = staged(folder, made, 1)
    file.check()
    assert repr(pa.Table.from_batches(file.batches()).to_pydict()) == repr(batch.to_pydict())
    for _ in range(2):  # the second time it is there already
        sink.publish("w", 0, made.token, [file])
    return {name: sorted(map(repr, column)) for name, column in sink.newest("w", 10).to_pydict().items()}


def test_rows_for_a_sink_stay_as_they_were_when_a_function_fills_its_array_again(tmp_path: Path) -> None:
    numbers, made = np.zeros(2), state.begin_epoch(tmp_path, 0, (1, 1))
    SinkMark("w", -1, -1).write(tmp_path, 1)
    staging = Staging(tmp_path, made, 1, 0, pa.schema({"x": pa.float64()}))
    for value in (1.0, 2.0):
        numbers[:] = value
        staging.write(pa.RecordBatch.from_arrays([pa.array(numbers)], names=["x"]))  # Arrow does not copy it
    staging.commit()
    (file,) = staged(tmp_path, made, 1)
    assert pa.Table.from_batches(file.batches()).column("x").to_pylist() == [1.0, 1.0, 2.0, 2.0]


def test_postgresql_holds_each_value_exactly(postgres: str, tmp_path: Path) -> None:
    more = {
        "big": pa.array([2**64 - 1, 0, None], pa.uint64()),
        "nan": pa.array([float("nan"), -0.0, None]),
        "zoned": pa.array([datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None, None], pa.timestamp("us", "UTC")),
    }
    batch = pa.RecordBatch.from_pydict({name: pa.array(*column) for name, column in EXACT.items()} | more)
    found = _stored(SqlSink(postgres, "the rows"), tmp_path, batch)
    want = batch.to_pydict()
    found["big"] = [each.replace("Decimal('", "").replace("')", "") for each in found["big"]]
    del found["zoned"]  # in the zone of the session
    zoned = SqlSink(postgres, "the rows").newest("w", 10).column("zoned").to_pylist()
    assert {*zoned} == {*want.pop("zoned")}
    assert found == {name: sorted(map(repr, column)) for name, column in want.items()}
    with pytest.raises(ValueError, match="a zero byte in column 'text'"):
        SqlSink(postgres, "x").check_rows(pa.RecordBatch.from_pydict({"text": ["a\0"]}))


def test_postgresql_has_each_row_once_through_a_lost_connection_and_a_damaged_checkpoint(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    def rows() -> list[tuple[int, str]]:
        with psycopg.connect(postgres) as connection:
            return connection.execute("SELECT id, word FROM counts ORDER BY id").fetchall()

    sink = SqlSink(postgres, "counts")
    job = sinks.FakeJob(tmp_path, sink)
    for k in (1, 2, 3):
        job.epoch(k)
    lost = iter([True, True])

    class Lossy(psycopg.Connection[Any]):
        def cursor(self, *args: Any, **more: Any) -> Any:
            made = super().cursor(*args, **more)
            if next(lost, False):  # the server ends the session in the middle of the transaction
                made.executemany = lambda *_: made.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            return made

    with monkeypatch.context() as patch:
        patch.setattr(psycopg, "connect", Lossy.connect)
        job.epoch(2)
    assert next(lost, None) is None
    assert rows() == [tuple(row.values()) for row in _expected(job)]
    (job.checkpoint.folder / "spark" / "commits" / "3").write_text("nothing")
    job = sinks.FakeJob(tmp_path, sink)
    assert job.undone == [3]
    assert rows() == [tuple(row.values()) for row in _expected(job)]
    job.epoch(3, count=4)
    assert job.read == 25
    assert rows() == [tuple(row.values()) for row in _expected(job)]


def test_sqlite_holds_each_value_exactly(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({name: pa.array(*column) for name, column in EXACT.items()})
    found = _stored(SqlSink(f"sqlite:///{tmp_path}/rows.db", "the rows"), tmp_path, batch)
    as_text = {name: [v and str(v) for v in EXACT[name][0]] for name in ("price", "day", "at")}
    want = batch.to_pydict() | as_text
    assert found == {
        name: sorted(map(repr, [int(v) if v is not None and name == "flag" else v for v in column]))
        for name, column in want.items()
    }


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("sqlite:///x.db", pa.uint64(), "int64 in SQLite"),
        ("sqlite:///x.db", pa.list_(pa.int64()), "another type"),
        ("sqlite:///x.db", pa.timestamp("ns"), "milliseconds or microseconds"),
        ("sqlite:///x.db", pa.decimal128(5, -2), "a decimal"),
    ],
)
def test_columns_that_a_database_does_not_hold_exactly_are_refused(url: str, kind: Any, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        SqlSink(url, "rows").check_schema(pa.schema({"x": kind}))


NESTED = (
    pa.list_(pa.int64()),
    pa.large_list(pa.string()),
    pa.map_(pa.string(), pa.list_(pa.float64())),
    pa.struct({"a": pa.list_(pa.date32())}),
)


@pytest.mark.parametrize("kind", NESTED)
def test_lists_and_maps_go_to_parquet(kind: pa.DataType) -> None:
    check_schema(pa.schema({"x": kind}), "out")


BAD = (pa.timestamp("s"), pa.time32("s"), pa.month_day_nano_interval(), pa.struct([]), pa.list_(pa.timestamp("s")))


@pytest.mark.parametrize("kind", BAD)
def test_columns_that_parquet_does_not_hold_are_refused(kind: Any) -> None:
    with pytest.raises(SchemaError, match="a type that Parquet holds"):
        check_schema(pa.schema({"x": kind}), "out")


@pytest.mark.parametrize(
    ("url", "table", "said"),
    [
        ("oracle://x/y", "rows", "sqlite:// or postgresql://"),
        ("sqlite://", "rows", "the path of a file"),
        ("sqlite://rows.db", "rows", "the path of a file"),
        ("sqlite:rows.db", "rows", "the path of a file"),
        ("sqlite:///", "rows", "the path of a file"),
        ("sqlite:///:memory:", "rows", "the path of a file"),
        ("sqlite:////tmp/x.db?mode=ro", "rows", "without options"),
        (Path("x.db"), "rows", "url of type .*expected text"),
        (None, "rows", "url of type NoneType"),
        ("sqlite:///x.db", None, "the name of a table"),
        ("sqlite:///x.db", ["rows"], "the name of a table"),
        ("sqlite:///x.db", "main.rows", "SQLite, which has no schemas"),
        ("sqlite:///x.db", "a.b.rows", "the name of a table"),
        ("sqlite:///x.db", "Dspkit_Epochs", "the name of a table"),
        ("sqlite:///x.db", "", "the name of a table"),
        ("sqlite:///x.db", "dspkit_epochs", "the name of a table"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused(url: Any, table: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        SqlSink(url, table)


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SinkError, match=r"pip install 'psycopg\[binary\]'"):
        SqlSink("postgresql://me:secret@db/stream", "rows")


SECRETS = (
    ("postgresql://me:p@ss/w0rd@127.0.0.1:1/stream", ["p@ss", "w0rd"]),
    ("postgresql://me:s%40cret%2F9@127.0.0.1:1/stream", ["s%40cret%2F9", "s@cret/9"]),
    ("postgresql://me@127.0.0.1:1/stream?password=hush&sslpassword=hush2&connect_timeout=1", ["hush"]),
    ("postgresql://me:hush@127.0.0.1:1/stream?options=a@b", ["hush"]),
)


@pytest.mark.parametrize(("url", "secrets"), SECRETS)
@pytest.mark.parametrize("final", [True, False])
def test_no_error_shows_a_password(
    url: str, secrets: list[str], final: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver says all that it knows: its message has the URL and what it made of it."""

    def connect(*_: Any, **__: Any) -> None:
        raise (sqlite3.IntegrityError if final else sqlite3.OperationalError)(f"no {url} {' '.join(secrets)} there")

    driver = types.SimpleNamespace(connect=connect, Error=sqlite3.Error, OperationalError=sqlite3.OperationalError)
    monkeypatch.setattr(SqlSink, "_driver", lambda self: driver)
    monkeypatch.setattr(publisher, "PATIENCE_S", 0.0)
    sink = SqlSink(url, "rows")
    with pytest.raises(SinkError, match="left out" if url.count("@") > 1 else "there") as caught:
        sinks.FakeJob(tmp_path, sink)
    shown = "".join(traceback.format_exception(caught.value)) + repr(sink)
    for secret in secrets:
        assert secret not in shown


def test_psycopg_does_not_quote_a_password_that_it_cannot_read() -> None:
    pytest.importorskip("psycopg", reason="PostgreSQL needs psycopg: pip install 'psycopg[binary]'")
    with pytest.raises(Exception, match="invalid percent-encoded token") as caught:
        SqlSink("postgresql://me:hush%zz@127.0.0.1/stream", "rows").open("w", sinks.SCHEMA)
    assert "hush" not in str(caught.value)


WRONG_TABLES = {
    "no column": ('"_writer" TEXT, "_epoch" BIGINT, id BIGINT', "expected among them word TEXT"),
    "no writer": ("id BIGINT, word TEXT", "expected among them _writer TEXT, _epoch BIGINT"),
    "another type": (
        '"_writer" TEXT, "_epoch" BIGINT, id BIGINT, word REAL',
        "word REAL; expected among them word TEXT",
    ),
}


@pytest.mark.parametrize("wrong", WRONG_TABLES)
def test_a_table_with_other_columns_is_refused(wrong: str, tmp_path: Path) -> None:
    columns, said = WRONG_TABLES[wrong]
    sink = sinks.make("sqlite", tmp_path)
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute(f"CREATE TABLE rows ({columns})")
    with pytest.raises(SchemaError, match=said):
        sinks.FakeJob(tmp_path, sink)
    with sqlite3.connect(tmp_path / "rows.db") as connection:
        connection.execute("DROP TABLE rows")
        connection.execute(
            "CREATE TABLE rows (note DEFAULT 'mine', WORD VARCHAR(9), id INTEGER, _epoch INT, _writer TEXT)"
        )
    job = sinks.FakeJob(tmp_path, sink)  # other columns are the user's own
    job.epoch(1)
    assert sinks.contents(sink) == _expected(job)


@pytest.mark.parametrize("wrong", ["no column", "no writer"])
def test_postgresql_refuses_a_table_with_other_columns(wrong: str, postgres: str) -> None:
    import psycopg

    name = f"other_{wrong[3:]}"
    with psycopg.connect(postgres) as connection:
        connection.execute(f"CREATE TABLE {name} ({WRONG_TABLES[wrong][0]})")
    with pytest.raises(SchemaError, match=WRONG_TABLES[wrong][1]):
        SqlSink(postgres, name).open("w", sinks.SCHEMA)


def test_passwords_are_neither_shown_nor_sent_to_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SqlSink, "_driver", lambda self: sqlite3)
    sink = SqlSink("postgresql://me:sec:ret@db/stream", "rows")
    assert "ret" not in repr(sink)
    assert repr(sink) == "SqlSink(url='postgresql://me:***@db/stream', table='rows')"
    assert pickle.loads(pickle.dumps(sink)).url == sink.url
    assert b"ret@" not in pickle.dumps(sink.for_tasks())
    code = _functions({"out": sink})
    stages = plan.stages(CHAIN, code, SOURCES, tmp_path, tasks._meter, {"out": sink})
    assert b"ret@" not in b"".join(map(cloudpickle.dumps, stages))
    assert b"ret@" in cloudpickle.dumps(sink)


CHAIN = Topology.chain("read", "out")
SOURCES = {"read": TraceSource(workload.Constant(10))}


def _functions(sinks: Any, topology: Topology = CHAIN, **given: Any) -> Any:
    return plan.functions(topology, given, SOURCES, sinks)


def test_an_operator_with_a_sink_forwards_its_input() -> None:
    made = _functions({"out": ParquetSink("rows")})
    assert made["out"].schema == SOURCES["read"].schema


def test_sinks_that_do_not_fit_the_graph_are_refused() -> None:
    middle = Topology.chain("read", "work", "out")
    work = arrow(same, "id int64")
    with pytest.raises(TopologyError, match="an operator at the end of the graph: 'out'"):
        _functions({"work": ParquetSink("rows")}, middle, work=work, out=arrow(same))
    with pytest.raises(TopologyError, match="an operator at the end"):
        _functions({"nowhere": ParquetSink("rows")}, out=arrow(same))
    with pytest.raises(TopologyError, match="'rows' as the sink"):
        _functions({"out": "rows"}, out=arrow(same, "id int64"))
    with pytest.raises(SchemaError, match="no schema for 'out', whose rows go to a sink"):
        _functions({"out": ParquetSink("rows")}, out=arrow(same))
    with pytest.raises(SchemaError, match="int64 in SQLite"):
        _functions({"out": SqlSink("sqlite:///x.db", "rows")}, out=arrow(same, "id uint64"))
    fork = Topology(("read", "a", "b", "out"), (("read", "a"), ("read", "b"), ("a", "out"), ("b", "out")))
    with pytest.raises(SchemaError, match="different columns from a, b to 'out'"):
        _functions({"out": ParquetSink("rows")}, fork, a=work, b=arrow(same, "word string"))


def test_a_task_stages_the_rows_of_its_function_and_refuses_what_the_sink_cannot_hold(tmp_path: Path) -> None:
    schema = pa.schema({"x": pa.float64()})
    batches = [pa.RecordBatch.from_pydict({"x": [i + 0.5, i + 0.25]}, schema=schema) for i in range(4)]
    sink: Sink = SqlSink(f"sqlite:///{tmp_path}/rows.db", "rows")
    stage = tasks.stage(arrow(same, schema), tmp_path, schema, sink=sink)
    SinkMark("w", -1, -1).write(tmp_path, 1)
    made = tasks.epoch(stage, 0, 2, batches)
    rows = [row["x"] for file in staged(tmp_path, made, 1) for batch in file.batches() for row in batch.to_pylist()]
    assert sorted(rows) == sorted(i + part for i in range(4) for part in (0.5, 0.25))
    bad = pa.RecordBatch.from_pydict({"x": [float("nan")]}, schema=schema)
    with pytest.raises(OperatorFailed) as caught:
        tasks.epoch(stage, 0, 1, [*batches, bad])
    assert "NaN in column 'x'" in str(readable(caught.value))
    with pytest.raises(CheckpointError, match="names rows for a sink"):
        staged(tmp_path, state.read_plan(tmp_path, 0), 1)


def test_a_folder_that_other_programs_read_has_published_rows_only(tmp_path: Path) -> None:
    job = sinks.FakeJob(tmp_path, sinks.make("parquet", tmp_path))
    job.epoch(2)
    job.commit(2)
    assert pq.read_table(tmp_path / "rows").num_rows == 7
    job.publisher.publish()
    assert sorted(pq.read_table(tmp_path / "rows").column("id").to_pylist()) == list(range(14))


def test_files_of_an_epoch_that_was_neither_published_nor_kept_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job dies between files and manifest, and the epoch's commit is lost as well."""
    job = sinks.FakeJob(tmp_path, sinks.make("parquet", tmp_path))
    job.epoch(2)
    job.commit(2)
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "write_atomically", lambda *_, **__: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            job.publisher.publish()
    assert len(list((tmp_path / "rows").glob("*.parquet"))) == 4
    (job.checkpoint.folder / "spark" / "commits" / "1").unlink()
    job = sinks.FakeJob(tmp_path, job.sink)
    job.epoch(1, count=4)
    assert job.read == 11
    assert sinks.contents(job.sink) == _expected(job)
