"""Prometheus, InfluxDB, Flink and Storm: recorded answers, servers that lie, and real servers."""

from __future__ import annotations

import http.server
import json
import math
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import live
from dspkit import History, apps, run
from dspkit.loaders import (
    FLINK_INFLUX,
    SPARK,
    FlinkRest,
    InfluxDB,
    Limits,
    LoaderError,
    Names,
    Prometheus,
    SparkEventLog,
    SparkRest,
    StormUI,
    Table,
)
from dspkit.loaders.common.http import Server
from dspkit.loaders.common.series import Track
from dspkit.loaders.common.units import Unusable
from dspkit.loaders.influxdb import lines, point
from dspkit.policies.ds2 import DS2

DATA = Path(__file__).parents[1] / "data" / "loaders"
FLINK_CHAIN = ("Source:_clicks", "work", "Sink:_store")


def rates(history: History, index: int = -1) -> dict[str, tuple[float | None, ...]]:
    """Input, processing, output, true rate and utilisation of each operator."""
    operators = history[index].snapshot.operators.items()
    return {n: (m.input_rate, m.processing_rate, m.output_rate, m.true_rate, m.utilisation) for n, m in operators}


# Recorded answers: the numbers are worked out by hand from tests/data/loaders.


def test_flink_one_poll_is_the_last_minute():
    loader = FlinkRest(DATA / "flink")
    history = loader.history()
    assert not loader.problems
    assert set(history.topology.edges) == {("Source: clicks", "work"), ("work", "Sink: store")}
    assert history.topology["work"].max_parallelism == 128
    assert rates(history) == {  # busy 500 of 2 x 1000 ms/s, 3200 of 4 x 1000, 600 of 1000
        "Source: clicks": (1000, 1000, 1000, 2000, 0.25),
        "work": (1000, 1000, 3000, 312.5, 0.8),
        "Sink: store": (3000, 3000, 0, 5000, 0.6),
    }
    (step,) = history
    assert step.snapshot.lag == 4000
    assert step.snapshot.operators["Source: clicks"].blocked == pytest.approx(0.05)
    assert step.deployment.parallelism == {"Source: clicks": 2, "work": 4, "Sink: store": 1}
    assert step.snapshot.edge_rates == {("Source: clicks", "work"): 1000, ("work", "Sink: store"): 3000}
    assert history.about["vertices"]["work"] == "0a448493b4782967b150582570326227"


def test_recorded_polls_come_in_the_order_of_their_numbers(tmp_path):
    """The tenth after the ninth: in the alphabet it comes after the first, and eight windows would be lost."""
    job = "a1b2c3d4e5f60718293a4b5c6d7e8f90"
    for i in range(12):
        shutil.copytree(DATA / "flink_polls" / "1", tmp_path / f"poll-{i}")
        told = tmp_path / f"poll-{i}" / "jobs" / f"{job}.json"
        told.write_text(json.dumps(json.loads(told.read_text()) | {"now": 1_795_034_640_000 + 10_000 * i}))
    loader = FlinkRest(tmp_path)
    assert [step.snapshot.t for step in loader.history()] == [10.0 * i for i in range(1, 12)]
    assert not loader.problems


def test_flink_several_polls_are_differenced():
    loader = FlinkRest(DATA / "flink_polls")
    history = loader.history()
    reset = "numRecordsIn: counter was reset"
    assert dict(loader.problems) == {reset: 1, "window without its source 'Source: clicks'": 1}
    assert [s.snapshot.t for s in history] == [10, 30]
    assert rates(history, 0)["Source: clicks"] == pytest.approx((1260, 1200, 1200, 2000, 0.3))  # pending grew by 600
    assert rates(history, 1)["Source: clicks"] == pytest.approx((1140, 1200, 1200, 2000, 0.3))
    assert rates(history, 1)["work"] == pytest.approx((1200, 1200, 3600, 12000 / 36, 0.9))


def test_prometheus_samples_become_rates_between_samples():
    loader = Prometheus(DATA / "prometheus", topology=FLINK_CHAIN, window_s=60)
    history = loader.history()
    assert loader.problems["utilisation: NaN"] == 1
    assert loader.problems["processing_rate: counter was reset"] == 1
    assert [s.snapshot.t for s in history] == [60, 120]  # the first window has no sample before it
    assert "work" not in history[0].snapshot.operators
    assert rates(history) == {
        "Source:_clicks": pytest.approx((1020, 1000, 1000, 2000, 0.25)),  # pending grew by 2 x 600 in a minute
        "work": pytest.approx((1000, 1000, 3000, 312.5, 0.8)),
        "Sink:_store": pytest.approx((3000, 3000, 0, 5000, 0.6)),
    }
    assert history[-1].snapshot.lag == 3600


def test_prometheus_names_of_ones_own_and_operators_renamed():
    task = "flink_taskmanager_job_task_"
    metrics = {
        task + "numRecords(In|Nowhere)": ("input_rate", "counter"),
        task + "numRecordsOut": ("processing_rate", "counter"),
        task + "busyTimeMsPerSecond": ("utilisation", "ms/s"),
    }
    names = Names(metrics, operator="task_name", instance="subtask_index")
    rename = {"Source:_clicks": "read", "Sink:_store": "write"}
    more = {"topology": ["read", "work", "write"], "rename": rename, "window_s": 60}
    loader = Prometheus(DATA / "prometheus", names, **more)
    assert rates(loader.history())["work"] == pytest.approx((1000, 3000, 3000, 937.5, 0.8))
    with pytest.raises(LoaderError, match="no window"):
        Prometheus(DATA / "prometheus", names, labels={"job_name": "another"}, **more).history()
    for wrong in ({}, {"a": "speed"}, {"a": ("processing_rate", "records")}, {"a(": "processing_rate"}, {"a": "cpu"}):
        with pytest.raises(LoaderError):
            Names(wrong)


def test_instances_that_fell_silent_are_not_taken_for_a_smaller_job():
    loader = Prometheus(DATA / "prometheus", topology=FLINK_CHAIN, window_s=60, parallelism={"work": 5})
    history = loader.history()
    assert all("work" not in s.snapshot.operators for s in history)
    assert loader.problems["instances that are not heard"] >= 1


def pods(path: Path, *series: tuple[str, int, float, range]) -> Path:
    """A recorded answer: of each series the pod, when it was scraped first, its rate, and which scrapes there were."""
    found = []
    for pod, first, rate, scrapes in series:
        for name, slope in (("events_total", rate), ("busy_total", 0.5)):
            values = [[60_000 + first + 15 * i, str(slope * 15 * (i - scrapes[0]) + first)] for i in scrapes]
            found.append({"metric": {"__name__": name, "stage": "work", "pod": pod}, "values": values})
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}}))
    return path


POD_METRICS = {"events_total": ("processing_rate", "counter"), "busy_total": ("utilisation", "counter s")}


def test_two_series_are_never_one_counter(tmp_path):
    """Whoever forgets the label of the instances must not get one instance's rate, or the difference of two."""
    path = pods(tmp_path / "a.json", ("a", 0, 100, range(60)), ("b", 5, 200, range(60)))
    told = Names(POD_METRICS, operator="stage", instance="pod")
    for step in Prometheus(path, told).history():
        assert step.snapshot.operators["work"].processing_rate == pytest.approx(300)
        assert step.snapshot.operators["work"].true_rate == pytest.approx(300)  # two instances, half busy
    with pytest.raises(LoaderError, match="several series of one instance"):
        Prometheus(path, Names(POD_METRICS, operator="stage")).history()


def test_a_task_that_was_started_anew_is_another_series(tmp_path):
    """In whatever order a server tells of them; nothing is differenced across the restart."""
    old, new = ("z", 0, 100, range(22)), ("a", 0, 5000, range(22, 60))
    for series in ((old, new), (new, old)):
        loader = Prometheus(pods(tmp_path / "a.json", *series), Names(POD_METRICS, operator="stage"))
        rates = [step.snapshot.operators["work"].processing_rate for step in loader.history()]
        assert [round(rate, 6) for rate in rates[:13]] == [100.0] * 5 + [5000.0] * 8
        assert loader.problems["processing_rate: several series of one instance "
                               "(Names: the label instance= distinguishes them)"] == 1  # fmt: skip


def test_operators_may_be_metered_in_different_units(tmp_path):
    """The counter of one must not be read as the other's rate."""
    path = tmp_path / "a.line"
    path.write_text("".join(
        f"app,stage=read n={1000 * i}i,busy=0.5 {(600 + 10 * i) * 10**9}\n"
        f"app,stage=work rate=100.0,busy=0.5 {(600 + 10 * i) * 10**9}\n" for i in range(30)
    ))  # fmt: skip
    metrics = {"app.n": ("processing_rate", "counter"), "app.rate": "processing_rate", "app.busy": "utilisation"}
    history = InfluxDB(path, Names(metrics, operator="stage"), topology=["read", "work"]).history()
    assert len(history) >= 3
    for step in history:
        assert {m.processing_rate for m in step.snapshot.operators.values()} == {100.0}
    path.write_text(path.read_text().replace("n=", "rate=7.0,n="))  # one operator, both
    loader = InfluxDB(path, Names(metrics, operator="stage"), topology=["read", "work"])
    loader.history()
    assert loader.problems["processing_rate: in two units"] == 30


def test_instances_that_are_heard_once_each_are_not_looked_for_in_every_window(tmp_path, monkeypatch):
    """A file of a few megabytes, each of whose lines is another instance, would take hours."""
    looked = 0

    class Looked(dict):
        def __contains__(self, key):
            nonlocal looked
            looked += 1
            return super().__contains__(key)

    class Watched(Track):
        def __init__(self, *told):
            super().__init__(*told)
            self.last = Looked()

    monkeypatch.setattr("dspkit.loaders.common.series.Track", Watched)
    path = tmp_path / "a.line"
    path.write_text("".join(f"app,stage=work,pod={i} rate=1,busy=0.5 {10**10 * i}\n" for i in range(1, 301)))
    told = Names({"app.rate": "processing_rate", "app.busy": "utilisation"}, operator="stage", instance="pod")
    assert len(InfluxDB(path, told, window_s=10).history()) == 300
    assert looked < 10 * 600


def test_lines_of_two_hosts_are_not_one_counter(tmp_path):
    path = tmp_path / "a.line"
    path.write_text("".join(
        f"app,stage=work,host={host} events={rate * 10 * i}i,busy={5 * i} {(600 + 10 * i) * 10**9}\n"
        for i in range(60) for host, rate in (("a", 100), ("b", 90))
    ))  # fmt: skip
    metrics = {"app.events": ("processing_rate", "counter"), "app.busy": ("utilisation", "counter s")}
    with pytest.raises(LoaderError, match="several series of one instance"):
        InfluxDB(path, Names(metrics, operator="stage")).history()
    found = InfluxDB(path, Names(metrics, operator="stage", instance="host")).history()
    assert found[0].snapshot.operators["work"].processing_rate == pytest.approx(190)


def test_storm_as_its_documentation_prints_it():
    loader = StormUI(DATA / "storm")
    history = loader.history()
    assert history.topology.edges == (("split", "count"), ("spout", "split"))
    (step,) = history
    assert step.snapshot.window_s == 600
    assert step.snapshot.source_rates == {"spout": pytest.approx(28880 / 600)}
    assert step.deployment.parallelism == {"spout": 5, "split": 8, "count": 12}
    assert rates(history)["count"] == pytest.approx(
        (184620 / 600, 184620 / 600, 184580 / 600, 1 / 0.048e-3, 184620 * 0.048e-3 / 600 / 12)
    )
    assert step.snapshot.edge_rates["split", "count"] == pytest.approx(307.7)
    assert loader.problems["spout: Storm does not measure how busy it is"] == 1


def test_storm_edges_from_its_visualization(tmp_path):
    (tmp_path / "topology.json").write_bytes((DATA / "storm" / "topology.json").read_bytes())
    with pytest.raises(LoaderError, match="topology="):
        StormUI(tmp_path).history()
    (tmp_path / "visualization.json").write_bytes((DATA / "storm_visualization.json").read_bytes())
    assert set(StormUI(tmp_path).history().topology.edges) == {("spout", "split"), ("split", "count")}
    young = json.loads((DATA / "storm" / "topology.json").read_text()) | {"uptimeSeconds": 100}
    (tmp_path / "topology.json").write_text(json.dumps(young))
    assert StormUI(tmp_path).history()[0].snapshot.window_s == 100


# Servers of our own making.

Answer = Callable[[str, bytes], tuple[int, dict[str, str], bytes]]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Starts a server on loopback that answers what a function says."""
    started = []

    def start(answer: Answer) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                status, headers, body = answer(self.path, self.rfile.read(length) if length else b"")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def from_files(folder: Path) -> Answer:
    def answer(path: str, _: bytes) -> tuple[int, dict[str, str], bytes]:
        file = folder / (urllib.parse.urlsplit(path).path[1:] + ".json")
        return (200, {}, file.read_bytes()) if file.is_file() else (404, {}, b"not here")

    return answer


def test_flink_over_http_is_as_recorded(serve):
    url = serve(from_files(DATA / "flink"))
    assert FlinkRest(url).history().steps == FlinkRest(DATA / "flink").history().steps
    with pytest.raises(LoaderError, match="404"):
        FlinkRest(url, job="0" * 32).history()


def test_storm_over_http_is_as_recorded(serve):
    def answer(path: str, _: bytes) -> tuple[int, dict[str, str], bytes]:
        name = urllib.parse.urlsplit(path).path
        if name.endswith("/summary"):
            return 200, {}, b'{"topologies": [{"id": "WordCount3-1-1402960825", "name": "WordCount3"}]}'
        file = f"component-{name.rpartition('/')[2]}.json" if "/component/" in name else "topology.json"
        return (
            (200, {}, (DATA / "storm" / file).read_bytes()) if (DATA / "storm" / file).is_file() else (200, {}, b"{}")
        )

    assert StormUI(serve(answer)).history().steps == StormUI(DATA / "storm").history().steps


def test_a_server_cannot_send_us_elsewhere_or_keep_us(serve):
    asked = []

    def elsewhere(path: str, _: bytes) -> tuple[int, dict[str, str], bytes]:
        asked.append(path)
        return 200, {}, b"{}"

    other = serve(elsewhere)
    for target in (f"{other}/x", "file:///etc/passwd", "ftp://127.0.0.1/x", "//127.0.0.1:1/x"):
        url = serve(lambda *_, to=target: (302, {"Location": to}, b""))
        with pytest.raises(LoaderError, match=r"302|redirect"):
            Server(url, Limits()).json("/x")
    assert not asked
    url = serve(lambda path, _: (200, {}, b"[1]") if path == "/y" else (302, {"Location": "/y"}, b""))
    assert Server(url, Limits()).json("/x") == [1]
    url = serve(lambda *_: (302, {"Location": "/x"}, b""))
    with pytest.raises(LoaderError, match=r"302|redirect"):
        Server(url, Limits()).json("/x")
    big = serve(lambda *_: (200, {}, b"[" * 100_000))
    with pytest.raises(LoaderError, match="answer_bytes"):
        Server(big, Limits(answer_bytes=1000)).json("/")
    with pytest.raises(LoaderError, match="not JSON"):
        Server(big, Limits()).json("/")
    with pytest.raises(LoaderError, match="500: it burns"):
        Server(serve(lambda *_: (500, {}, b"it burns")), Limits()).json("/")
    with pytest.raises(LoaderError, match="breaks off"):
        Server(serve(lambda *_: (200, {"Content-Length": "100"}, b"{}")), Limits()).json("/")


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_drips_meets_a_deadline(head):
    """Every byte comes in time, and there is no last one."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(head)
                    while True:
                        connection.sendall(b" ")
                        time.sleep(0.01)
                except OSError:
                    return

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(LoaderError):
            Server(f"http://127.0.0.1:{server.getsockname()[1]}", Limits(deadline_s=0.5)).json("/")


@pytest.mark.parametrize(
    "url", ["ftp://h", "file:///etc/passwd", "http://", "http://u:p@h", "http://h/?x=1", "http://h:x", "http://h\n", 7]
)
def test_urls_that_are_none(url):
    with pytest.raises(LoaderError):
        Server(url, Limits())
    for loader in (Prometheus, SparkRest, FlinkRest, StormUI):
        with pytest.raises(LoaderError):
            loader(url, **({"topology": ["a"]} if loader is Prometheus else {})).history()


@pytest.mark.parametrize(
    "url", ["http://u:se/cret@h", "http://u:sec@ret@h/x", "https://h/?token=secret", "http://:secret@"]
)
def test_an_address_that_is_refused_is_shown_without_its_password(url):
    with pytest.raises(LoaderError, match=r"got url 'http") as refused:
        Server(url, Limits())
    assert not re.search("sec|ret", str(refused.value).partition("; expected")[0])


@pytest.mark.parametrize("loader", [Prometheus, SparkRest, FlinkRest, StormUI, InfluxDB, SparkEventLog, Table])
@pytest.mark.parametrize("path", [None, 7, b"a.csv", "", "a\0.csv"])
def test_paths_that_are_none(loader, path):
    with pytest.raises(LoaderError):
        loader(path, **({"topology": ["a"]} if loader in (Prometheus, InfluxDB, Table) else {})).history()


@pytest.mark.parametrize(("loader", "more"), [
    (Prometheus, {"labels": ["a"]}), (Prometheus, {"rename": "a"}), (InfluxDB, {"labels": 7}),
    (StormUI, {"headers": "a"}), (SparkRest, {"headers": ["a"]}), (SparkRest, {"window_s": "4"}),
    (SparkEventLog, {"window_s": math.nan}), (SparkEventLog, {"window_s": -4}), (SparkEventLog, {"names": 7}),
    (FlinkRest, {"rename": ["a"]}), (FlinkRest, {"every_s": "1"}),
])  # fmt: skip
def test_options_that_are_none(tmp_path, loader, more):
    with pytest.raises(LoaderError, match=next(iter(more))):
        loader(tmp_path, **more)


def test_names_that_match_nothing_are_told_as_that(tmp_path):
    path = pods(tmp_path / "a.json", ("a", 0, 100, range(60)))
    with pytest.raises(LoaderError, match="no metrics of any operator"):
        Prometheus(path, Names({"events": "processing_rate"}, operator="stage")).history()


def test_ids_from_a_server_are_no_paths(tmp_path, serve):
    jobs = tmp_path / "a" / "jobs"
    jobs.mkdir(parents=True)
    (tmp_path / "secret.json").write_text("{}")
    (jobs / "overview.json").write_text(json.dumps({"jobs": [{"jid": "../../secret", "state": "RUNNING"}]}))
    with pytest.raises(LoaderError, match="the id"):
        FlinkRest(tmp_path / "a").history()
    with pytest.raises(LoaderError, match="topology's id"):
        StormUI(serve(lambda *_: (200, {}, b'{"topologies": [{"id": "../x"}]}'))).history()


# Line protocol and InfluxDB's answers.

WORDS = st.text("ab ,=é☃1\"'#", min_size=1)


@given(
    WORDS,
    st.dictionaries(WORDS, WORDS, max_size=3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text('a ,=\\"'),
)
def test_line_protocol_keeps_what_is_escaped(measurement, tags, value, words):
    """Written by the rules of InfluxDB's documentation."""

    def escaped(word: str) -> str:
        return word.replace(",", "\\,").replace("=", "\\=").replace(" ", "\\ ")

    quoted = words.replace("\\", "\\\\").replace('"', '\\"')
    head = ",".join([escaped(measurement), *(f"{escaped(k)}={escaped(v)}" for k, v in tags.items())])
    found = point(f'{head} v={value!r},i=-3i,s="{quoted}",b=true 1795034648805000000'.encode())
    assert found[:2] == (measurement, tags)
    assert found[2]["v"] == value
    assert (found[2]["i"], found[2]["b"]) == (-3, True)
    assert found[3] == pytest.approx(1795034648805000000, rel=1e-15)


@pytest.mark.parametrize(
    "line", [b"", b"m", b"m 1", b"m v=1", b"m v=1 x", b"m v= 1", b"m,=1 v=1", b"\xff v=1 1", b"m v=1 1 2"]
)
def test_what_is_no_line_protocol_is_unusable(line):
    with pytest.raises(Unusable):
        point(line)


def recorded(windows: int = 5) -> History:
    """A run of numbers that differ from window to window."""
    rows = [
        {
            "t": 10.0 * i,
            "operator": name,
            "parallelism": k + i // 3,
            "input_rate": 100.5 * i,
            "processing_rate": 90.25 * i,
            "output_rate": 91.0 * i,
            "utilisation": 0.1 * k,
            "backlog": 7.0 * i,
            "cpu": 0.3 * k,
        }
        for i in range(1, windows + 1)
        for k, name in enumerate(("read", "work all, day=x"), 1)
    ]
    return Table(pd.DataFrame(rows), topology=["read", "work all, day=x"]).history()


def same_rates(found: History, before: History) -> None:
    zero = found[0].snapshot.t - before[0].snapshot.t
    assert len(found) == len(before)
    for a, b in zip(found, before, strict=True):
        assert a.snapshot.t - zero == pytest.approx(b.snapshot.t)
        assert a.snapshot.window_s == pytest.approx(b.snapshot.window_s)
        assert a.snapshot.deployment.parallelism == b.snapshot.deployment.parallelism
        for name, m in b.snapshot.operators.items():
            theirs = a.snapshot.operators[name]
            for value in ("input_rate", "processing_rate", "output_rate", "utilisation", "backlog"):
                assert getattr(theirs, value) == pytest.approx(getattr(m, value), rel=1e-9), (name, value)
            if m.true_rate is not None and m.processing_rate > 0:
                assert theirs.true_rate == pytest.approx(m.true_rate, rel=1e-9), name


def test_a_run_written_as_line_protocol_comes_back(tmp_path):
    ours = recorded()
    (tmp_path / "run.lp").write_text("# ours\n" + "\n".join(lines(ours)) + "\nnonsense\n")
    loader = InfluxDB(tmp_path / "run.lp", topology=ours.topology, window_s=10)
    same_rates(loader.history(), ours)
    assert dict(loader.problems) == {"not line protocol with a time": 1}


def test_two_runs_are_never_added_up(tmp_path):
    ours = recorded()
    (tmp_path / "run.lp").write_text("\n".join([*lines(ours, run="a"), *lines(ours, run="b")]))
    with pytest.raises(LoaderError, match="several of run"):
        InfluxDB(tmp_path / "run.lp", topology=ours.topology, window_s=10).history()
    loader = InfluxDB(tmp_path / "run.lp", topology=ours.topology, window_s=10, labels={"run": "b"})
    same_rates(loader.history(), ours)


def test_influxql_and_flux_answers_as_documented(serve):
    """Two counters of two instances, ten seconds apart."""
    zero = 1_795_034_640

    def influxql(path: str, _: bytes) -> tuple[int, dict[str, str], bytes]:
        asked = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        assert asked["db"] == ["flink"]
        found = []
        for measurement, column, rate in (
            ("taskmanager_job_task_numRecordsIn", "count", 100),
            ("taskmanager_job_task_busyTimeMsPerSecond", "value", None),
        ):
            if f'FROM "{measurement}"' in asked["q"][0]:
                for i in range(2):
                    values = [[(zero + t) * 10**6, 500 if rate is None else rate * t] for t in range(5, 60, 5)]
                    tags = {"task_name": "work", "subtask_index": str(i), "job_id": "j"}
                    found.append({"name": measurement, "tags": tags, "columns": ["time", column], "values": values})
        return 200, {}, json.dumps({"results": [{"statement_id": 0, "series": found}]}).encode()

    def flux(path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        assert path == "/api/v2/query?org=us"
        out = []
        for measurement, field, rate in (
            ("taskmanager_job_task_numRecordsIn", "count", 100),
            ("taskmanager_job_task_busyTimeMsPerSecond", "value", None),
        ):
            if f'r._measurement == "{measurement}"' in body.decode():
                for i in range(2):
                    out += ["#datatype,string,long,dateTime:RFC3339,double,string,string,string,string,string"]
                    out += [",result,table,_time,_value,_field,_measurement,task_name,subtask_index,job_id"]
                    for t in range(5, 60, 5):
                        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(zero + t)) + ".000000001Z"
                        value = 500 if rate is None else rate * t
                        out.append(f",_result,{i},{stamp},{value},{field},{measurement},work,{i},j")
                    out.append("")
        return 200, {"Content-Type": "application/csv"}, "\r\n".join(out).encode()

    more = {"start_s": zero + 10.0, "end_s": zero + 60.0, "window_s": 10, "topology": ["work"]}
    for answer, where in ((influxql, {"database": "flink"}), (flux, {"bucket": "flink", "org": "us", "token": "t"})):
        loader = InfluxDB(serve(answer), FLINK_INFLUX, **where, **more)
        history = loader.history()
        assert len(history) >= 4
        for step in history:
            m = step.snapshot.operators["work"]
            assert (m.processing_rate, m.utilisation, m.true_rate) == pytest.approx((200, 0.5, 200))
            assert m.parallelism == 2
    failed = json.dumps({"results": [{"error": "database not found: flink"}]}).encode()
    with pytest.raises(LoaderError, match="database not found"):
        InfluxDB(serve(lambda *_: (200, {}, failed)), FLINK_INFLUX, database="flink", topology=["work"]).history()


# Real servers.


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def until(holds: Callable[[], bool], limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.2)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status < 300
    except OSError:
        return False


@pytest.fixture(scope="module")
def influxdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real InfluxDB 1.x of our own."""
    path = shutil.which("influxd")
    if path is None:
        pytest.skip("no influxd on PATH; to have it: apt-get install -y influxdb")
    folder, port = tmp_path_factory.mktemp("influxdb"), free_port()
    (folder / "conf").write_text(
        f'reporting-disabled = true\nbind-address = "127.0.0.1:{free_port()}"\n'
        f'[meta]\ndir = "{folder}/meta"\n[data]\ndir = "{folder}/data"\nwal-dir = "{folder}/wal"\n'
        f'[http]\nbind-address = "127.0.0.1:{port}"\nlog-enabled = false\n[monitor]\nstore-enabled = false\n'
    )
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([path, "-config", str(folder / "conf")], stdout=log, stderr=log)
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/ping"))
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.slow
def test_a_real_influxdb_gives_back_one_of_our_runs(influxdb):
    def post(path: str, data: bytes) -> None:
        with urllib.request.urlopen(urllib.request.Request(influxdb + path, data), timeout=20) as response:
            assert response.status < 300

    post("/query", urllib.parse.urlencode({"q": "CREATE DATABASE ours"}).encode())
    played = run(DS2(), apps.word_count().simulator(), steps=30)
    simulated = History(played.topology, played.steps, {"began_unix_s": 1_795_034_640.0})
    post("/write?db=ours&precision=ns", "\n".join(lines(simulated)).encode())
    start = 1_795_034_640.0
    more = {"topology": simulated.topology, "window_s": 10, "start_s": start, "end_s": start + 400}
    loader = InfluxDB(influxdb, database="ours", **more)
    same_rates(loader.history(), simulated)
    assert not loader.problems
    with pytest.raises(LoaderError, match="database not found"):
        InfluxDB(influxdb, database="theirs", **more).history()


@pytest.mark.slow
@pytest.mark.spark
def test_a_real_prometheus_that_scrapes_a_real_spark(tmp_path):
    """A query of Spark's own rate source: so many rows a second, whoever counts them."""
    path = shutil.which("prometheus")
    if path is None:
        pytest.skip("no prometheus on PATH; to have it: apt-get install -y prometheus")
    from dspkit.spark.runtime import session

    rows = 500
    live.end()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.ui.prometheus.enabled": "true",
        "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
        "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
        "spark.metrics.namespace": "ours",
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = session.start_session("local[2]", "microbatch", settings, with_jar=False)
    server = None
    try:
        query = (
            spark.readStream.format("rate").option("rowsPerSecond", rows).option("numPartitions", 2).load()
            .writeStream.format("noop").queryName("clicks").trigger(processingTime="2 seconds").start()
        )  # fmt: skip
        address = spark.sparkContext.uiWebUrl.removeprefix("http://")
        port = free_port()
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: spark\n  metrics_path: /metrics/prometheus\n"
            f"  static_configs: [{{targets: ['{address}']}}]\n"
        )
        command = [path, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
        with (tmp_path / "log").open("wb") as log:
            server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(url + "/-/ready"))
        until(lambda: len(query.recentProgress) >= 10 and query.lastProgress["numInputRows"] > 0)
        began = time.time()  # Spark's first batches have no rate yet
        batch = query.lastProgress["batchId"]
        until(lambda: query.lastProgress["batchId"] >= batch + 7)
        loader = Prometheus(url, SPARK, topology=["clicks"], window_s=4, start_s=began, end_s=time.time())
        history = loader.history()
        told = [p for p in query.recentProgress if p["batchId"] > batch]
        capacity = [p["processedRowsPerSecond"] for p in told]
        query.stop()
    finally:
        session.stop(spark)
        if server is not None:
            server.terminate()
            server.wait(20)
    steps = history[1:]
    assert len(steps) >= 2
    found = [s.snapshot.operators["clicks"] for s in steps]
    assert sum(m.processing_rate for m in found) / len(found) == pytest.approx(rows, rel=0.05)
    for m in found:
        assert min(capacity) * 0.9 <= m.true_rate <= max(capacity) * 1.1
        assert m.utilisation == pytest.approx(m.processing_rate / m.true_rate)


def test_a_legacy_source_of_flink_is_known_by_its_rate(tmp_path):
    """A SourceFunction reports NaN as its busy time; the job's other operators are loaded all the same."""
    shutil.copytree(DATA / "flink", tmp_path / "answers")
    (job,) = (p for p in (tmp_path / "answers" / "jobs").glob("*.json") if p.stem != "overview")
    (source,) = (v["id"] for v in json.loads(job.read_text())["vertices"] if v["name"] == "Source: clicks")
    told = tmp_path / "answers" / "jobs" / job.stem / "vertices" / source / "subtasks" / "metrics.json"
    metrics = json.loads(told.read_text())
    for metric in metrics:
        if "usy" in metric["id"]:
            metric["sum"] = metric["avg"] = "NaN"
    told.write_text(json.dumps(metrics))
    (step,) = FlinkRest(tmp_path / "answers").history()
    assert set(step.snapshot.operators) == {"work", "Sink: store"}
    assert step.snapshot.source_rates == {"Source: clicks": 1000}
    assert step.snapshot.edge_rates[("Source: clicks", "work")] == 1000
