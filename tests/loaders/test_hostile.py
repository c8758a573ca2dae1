"""Mutated input for every loader: it loads, or it is a DspkitError, and it ends."""

from __future__ import annotations

import io
import json
import math
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks._event_log import Stage, events
from dspkit import DspkitError, History
from dspkit.loaders import (
    FLINK_INFLUX,
    SPARK,
    FlinkRest,
    InfluxDB,
    Loader,
    Prometheus,
    SparkEventLog,
    SparkProgress,
    SparkRest,
    StormUI,
    Table,
)
from loaders.test_spark import lz4, progress, rest_of, snappy, zstd

DATA = Path(__file__).parents[1] / "data" / "loaders"
QUICK, SLOW = 20, 1750  # examples a kind; ten kinds, and five with a third of it, make 20,000
HANGS_S = 60
TINY = (Stage(1, 10, 10, 100), Stage(2, 5, 5, 100, 10, (0,)))
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, -0.0, 0.5, 1e308, -1e308, 5e-324, 10**30, 2**63, math.nan, math.inf, "", " ", "x", "-1",
    "NaN", "1e999", "1_0", "../../x", "\ud800", "é" * 300, "a\nb", "__proto__", "<script>", [], {}, [[]], [None],
    {"a": {}}, [[1, "2"], [1, "2"]], ["x"] * 50, {str(i): i for i in range(50)},
)  # fmt: skip
BYTES = (
    b"",
    b"\0",
    b"\n",
    b'"',
    b",",
    b"{",
    b"[",
    b"]}",
    b"-",
    b"1e999",
    b"\xff\xfe",
    b"[" * 3000,
    b"9" * 5000,
    b"=",
    b" ",
)


class Kind:
    """The files of one good input, and who loads them."""

    def __init__(self, files: dict[str, bytes], load: Callable[[Path], Loader]):
        self.files, self.load = files, load


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.json"))}


def rows() -> pd.DataFrame:
    chain = ("read", "work")
    told = {"processing_rate": 90.0, "utilisation": 0.5, "parallelism": 2, "backlog": 1.0, "cpu": 0.5}
    return pd.DataFrame([{"t": 10.0 * i, "operator": name, **told} for i in range(1, 4) for name in chain])


def parquet() -> bytes:
    sink = io.BytesIO()
    rows().to_parquet(sink)
    return sink.getvalue()


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """Every server answers what the one file of the folder holds."""
    data = next(folder.iterdir()).read_bytes()
    with mock.patch("dspkit.loaders.common.http.Server.answer", return_value=data):
        yield


class Served:
    """A loader that asks a server, which answers a file."""

    problems = None

    def __init__(self, folder: Path, made: Callable[[str], Loader]):
        self._folder, self._made = folder, made

    def history(self) -> History:
        with served(self._folder):
            return self._made("http://127.0.0.1:1").history()


def influxql() -> bytes:
    tags = {"task_name": "work", "subtask_index": "0", "job_id": "j"}
    values = [[(1_795_034_640 + t) * 10**6, 100 * t, 100 * t] for t in range(0, 40, 5)]
    one = {"name": "m", "tags": tags, "columns": ["time", "count", "value"], "values": values}
    return json.dumps({"results": [{"statement_id": 0, "series": [one]}]}).encode()


def flux() -> bytes:
    head = ",result,table,_time,_value,_field,_measurement,task_name,subtask_index,job_id\r\n"
    line = ",_result,0,2026-11-18T20:44:{:02d}.000000001Z,{},{},m,work,0,j\r\n"
    told = [line.format(t, t * 100, field) for field in ("count", "value") for t in range(0, 40, 5)]
    return (head + "".join(told)).replace(",4000,value", ",400,value").encode()


def scraped() -> bytes:
    """What Prometheus says of a query of Spark."""
    name = "metrics_ours_driver_spark_streaming_clicks_{}_total_Value"
    values = [[1_795_034_640 + t, str(100 + t)] for t in range(0, 200, 10)]
    found = [{"metric": {"__name__": name.format(n)}, "values": values} for n in ("inputRate", "processingRate")]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}).encode()


def kinds(folder: Path) -> dict[str, Kind]:
    log = ("\n".join(events(3, TINY)) + "\n").encode()
    names = ["read", "work"]
    chain = ["Source:_clicks", "work", "Sink:_store"]
    point = "dspkit,operator=read,run=a processing_rate=90.0,utilisation=0.5,parallelism=2i {}\n"
    span = {"start_s": 1_795_034_640.0, "end_s": 1_795_034_680.0, "window_s": 10, "topology": ["work"]}
    return {
        "csv": Kind({"a.csv": rows().to_csv(index=False).encode()}, lambda f: Table(f / "a.csv", topology=names)),
        "parquet": Kind({"a.parquet": parquet()}, lambda f: Table(f / "a.parquet", topology=names)),
        "log": Kind({"log": log}, lambda f: SparkEventLog(f / "log")),
        "zstd": Kind({"log": zstd(log)}, lambda f: SparkEventLog(f / "log")),
        "lz4": Kind({"log": lz4(log)}, lambda f: SparkEventLog(f / "log")),
        "snappy": Kind({"log": snappy(log)}, lambda f: SparkEventLog(f / "log")),
        "rest": Kind(tree(rest_of(log.decode().splitlines(), folder / "rest")), SparkRest),
        "progress": Kind(
            {"p": "\n".join(progress(i) for i in range(3)).encode()}, lambda f: SparkProgress(f / "p", parallelism=2)
        ),
        "prometheus": Kind(tree(DATA / "prometheus"), lambda f: Prometheus(f, topology=chain)),
        "prometheus_http": Kind(
            {"a.json": scraped()},
            lambda f: Served(f, lambda url: Prometheus(url, SPARK, start_s=1_795_034_700.0, end_s=1_795_034_900.0)),
        ),
        "lines": Kind(
            {"a.lp": "".join(point.format((100 + t) * 10**9) for t in range(0, 40, 5)).encode()},
            lambda f: InfluxDB(f / "a.lp", window_s=10),
        ),
        "influxql": Kind(
            {"a": influxql().replace(b'"m"', b'"taskmanager_job_task_numRecordsIn"')},
            lambda f: Served(f, lambda url: InfluxDB(url, FLINK_INFLUX, database="d", **span)),
        ),
        "flux": Kind(
            {"a": flux().replace(b",m,", b",taskmanager_job_task_numRecordsIn,")},
            lambda f: Served(f, lambda url: InfluxDB(url, FLINK_INFLUX, bucket="d", **span)),
        ),
        "flink": Kind(tree(DATA / "flink_polls"), FlinkRest),
        "storm": Kind(tree(DATA / "storm"), StormUI),
    }


KINDS = (
    "csv", "parquet", "log", "zstd", "lz4", "snappy", "rest", "progress", "prometheus", "prometheus_http", "lines",
    "influxql", "flux", "flink", "storm",
)  # fmt: skip


def mutated(data: bytes, how: random.Random) -> bytes:
    """A few changes: of values, where the input is JSON or lines of it, else of bytes."""
    for _ in range(how.randint(1, 3)):
        if data[:1] in b"{[" and how.random() < 0.7:
            pieces = data.split(b"\n") if data.count(b"\n{") else [data]
            i = how.randrange(len(pieces))
            try:
                pieces[i] = json.dumps(changed(json.loads(pieces[i]), how)).encode()
            except (ValueError, RecursionError):
                continue
            data = b"\n".join(pieces)
            continue
        a, b = sorted(how.randrange(len(data) + 1) for _ in range(2))
        if how.random() < 0.7:
            b = min(b, a + how.choice((0, 1, 2, 8)))
        new = how.choice((*BYTES, data[a:b] * 2, data[a : a + 20], bytes([how.randrange(256)])))
        data = data[:a] + new + data[b:]
    return data


def changed(value: Any, how: random.Random) -> Any:
    """`value` with one of its parts replaced, removed or repeated."""
    if isinstance(value, (dict, list)) and value and how.random() < 0.93:
        key = how.choice(list(value)) if isinstance(value, dict) else how.randrange(len(value))
        what = how.random()
        if what < 0.04:
            del value[key]
        elif what < 0.08 and isinstance(value, list):
            value.insert(how.randrange(len(value)), value[key])
        else:
            value[key] = changed(value[key], how)
        return value
    return how.choice(VALUES)


def check(loader: Loader) -> bool:
    """Whether it loaded; what it gave can be used and kept."""
    signal.alarm(HANGS_S)
    try:
        history = loader.history()
        assert len(history)
        for before, step in zip([None, *history], history, strict=False):
            s = step.snapshot
            history.topology.check(s.deployment)
            assert before is None or s.t - s.window_s >= before.snapshot.t - 0.06 * s.window_s
            for m in s.operators.values():
                assert m.true_rate is None or 0 < m.true_rate < math.inf
                if m.true_rate is not None:
                    assert m.processing_rate <= 1.3 * m.true_rate * m.parallelism
        repr(history)
        json.dumps(history.about)
        return True
    except DspkitError:
        return False
    finally:
        signal.alarm(0)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    return kinds(tmp_path_factory.mktemp("kinds"))


def hangs(*_: Any) -> None:
    raise RuntimeError(f"no end within {HANGS_S} s")


@pytest.fixture(autouse=True)
def _watchdog() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, hangs)
    yield
    signal.signal(signal.SIGALRM, before)


def fuzz(kind: Kind, folder: Path, examples: int) -> None:
    for name, data in kind.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    check(kind.load(folder))

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
    @given(st.integers(0, 2**63), st.sampled_from(sorted(kind.files)))
    def once(seed: int, name: str) -> None:
        (folder / name).write_bytes(mutated(kind.files[name], random.Random(seed)))
        try:
            check(kind.load(folder))
        except DspkitError:
            pass  # refused before it was read
        finally:
            (folder / name).write_bytes(kind.files[name])

    once()


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_input_is_loaded_or_refused(kind, inputs, tmp_path):
    fuzz(inputs[kind], tmp_path, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_much_mutated_input_is_loaded_or_refused(kind, inputs, tmp_path):
    fuzz(inputs[kind], tmp_path, SLOW if kind not in ("zstd", "lz4", "snappy", "flux", "influxql") else SLOW // 3)


@pytest.mark.parametrize("kind", KINDS)
def test_the_input_that_is_mutated_is_good(kind, inputs, tmp_path):
    """Or the fuzzing would only knock at the door."""
    for name, data in inputs[kind].files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert check(inputs[kind].load(tmp_path))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file here that is regular and cannot be read")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("prometheus_http", "influxql", "flux")])
def test_a_disk_that_fails_is_an_error_by_type(kind, inputs, tmp_path):
    for name in inputs[kind].files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to("/proc/self/mem")
    with pytest.raises(DspkitError):
        inputs[kind].load(tmp_path).history()


@given(st.data())
@settings(max_examples=QUICK, suppress_health_check=list(HealthCheck))
def test_frames_of_anything_are_loaded_or_refused(data):
    frame = rows().astype(object)
    for _ in range(data.draw(st.integers(1, 4))):
        row, column = data.draw(st.integers(0, len(frame) - 1)), data.draw(st.integers(0, frame.shape[1] - 1))
        frame.iat[row, column] = data.draw(st.sampled_from(VALUES[:30]))
    check(Table(frame, topology=["read", "work"]))


def test_loading_runs_no_code(tmp_path, monkeypatch):
    """A pickle under any of the names that loaders take is only bytes."""
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    for name, load in (
        ("a.csv", lambda p: Table(p, topology=["a"])),
        ("a.parquet", lambda p: Table(p, topology=["a"])),
        ("log", SparkEventLog),
        ("p.jsonl", SparkProgress),
        ("a.lp", InfluxDB),
        ("a.json", lambda p: Prometheus(p, topology=["a"])),
    ):
        (tmp_path / name).write_bytes(pickle.dumps(Evil()))
        with pytest.raises(DspkitError):
            load(tmp_path / name).history()
    assert not (tmp_path / "ran").exists()
    shutil.rmtree(tmp_path)


def main(count: int) -> None:
    """Give the loaders so many mutated inputs, each kind its share, and print how many were given and which failed."""
    given, failed = 0, []
    signal.signal(signal.SIGALRM, hangs)
    with tempfile.TemporaryDirectory() as scratch:
        found = kinds(Path(scratch))
        for kind, of in found.items():
            folder = Path(scratch, "input", kind)
            for name, data in of.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
            names = sorted(of.files)
            for seed in range(-(-count // len(found))):
                how = random.Random(f"{kind} {seed}")
                name = how.choice(names)
                (folder / name).write_bytes(mutated(of.files[name], how))
                given += 1
                try:
                    check(of.load(folder))
                except DspkitError:
                    pass  # refused before it was read
                except BaseException as error:
                    failed.append(f"{kind} {seed}: {error!r:.200}")
                (folder / name).write_bytes(of.files[name])
    print(json.dumps({"given": given, "failed": failed}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
