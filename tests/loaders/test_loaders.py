"""Loaders of tables, and what all loaders share: units, windows, gaps, and what is dropped."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import History, Topology, policies
from dspkit.loaders import Limits, Loader, LoaderError, Problems, Table
from dspkit.loaders.common.units import Unusable, number
from dspkit.loaders.common.windows import edge_rates

CHAIN = ("read", "work")


def rows(windows: int = 6, rate: float = 100.0, busy: float = 0.4) -> list[dict[str, object]]:
    """Two operators, two instances each, in windows of ten seconds."""
    return [
        {
            "t": 10.0 * i,
            "operator": name,
            "processing_rate": rate,
            "output_rate": rate,
            "utilisation": busy,
            "parallelism": 2,
        }
        for i in range(1, windows + 1)
        for name in CHAIN
    ]


def load(data: object, **more: object) -> tuple[History, Problems]:
    frame = pd.DataFrame(data) if isinstance(data, list) else data
    loader = Table(frame, topology=CHAIN, **more)
    assert isinstance(loader, Loader)
    return loader.history(), loader.problems


def test_the_utilisation_law_gives_what_was_not_measured():
    history, problems = load(rows())
    assert not problems
    assert [s.decision for s in history] == [None] * 6
    for step in history:
        for m in step.snapshot.operators.values():
            assert m.true_rate == pytest.approx(100 / (0.4 * 2))
            assert m.input_rate == m.output_rate == 100
        assert step.snapshot.edge_rates == {CHAIN: 100}
    other = [{k: v for k, v in row.items() if k != "utilisation"} | {"true_rate": 125.0} for row in rows()]
    for step in load(other)[0]:
        assert {m.utilisation for m in step.snapshot.operators.values()} == {0.4}


@pytest.mark.parametrize(
    ("columns", "change"),
    [
        ({}, lambda i: {}),
        ({"processing_rate": ("n", "records")}, lambda i: {"n": 1000}),
        ({"processing_rate": ("n", "counter")}, lambda i: {"n": 7000 + 1000 * i}),
        ({"processing_rate": ("n", "records/min")}, lambda i: {"n": 6000.0}),
        ({"processing_rate": ("n", "records/h")}, lambda i: {"n": 360_000.0}),
        ({"processing_rate": ("n", "records/ms")}, lambda i: {"n": 0.1}),
        ({"utilisation": ("b", "percent")}, lambda i: {"b": 40.0}),
        ({"utilisation": ("b", "ms/s")}, lambda i: {"b": 400.0}),
        ({"utilisation": ("b", "ms")}, lambda i: {"b": 8000.0}),  # of both instances in ten seconds
        ({"utilisation": ("b", "counter ns")}, lambda i: {"b": i * 8e9}),
        ({"t": ("ms", "ms")}, lambda i: {"ms": 10_000.0 * i}),
    ],
)
def test_a_quantity_is_the_same_in_every_unit(columns, change):
    data = [row | change(row["t"] / 10) for row in rows()]
    for row in data:
        del row["output_rate"]  # follows from what the receiver took
    history, problems = load(data, columns=columns)
    assert set(problems) <= {"a counter's first row", "window without its source 'read'"}
    assert len(history) >= 5
    for step in history:
        assert step.snapshot.window_s == pytest.approx(10)
        for m in step.snapshot.operators.values():
            assert (m.processing_rate, m.utilisation, m.true_rate) == pytest.approx((100, 0.4, 125))


@pytest.mark.parametrize(
    ("row", "column", "value", "reason"),
    [
        (5, "processing_rate", math.nan, "processing_rate: NaN"),
        (5, "processing_rate", -1.0, "processing_rate: negative"),
        (5, "processing_rate", math.inf, "processing_rate: infinite"),
        (5, "processing_rate", "many", "processing_rate: not a number"),
        (5, "processing_rate", True, "processing_rate: not a number"),
        (5, "processing_rate", 1e9, "processed more than its instances can"),
        (5, "utilisation", 40.0, "utilisation above 1"),
        (5, "utilisation", 0.0, "processed without any busy time"),
        (5, "utilisation", None, "utilisation: missing"),
        (5, "parallelism", 0, "parallelism: not a number of instances"),
        (5, "parallelism", 1.5, "parallelism: not a number of instances"),
        (5, "operator", "typo", "unknown operator"),
        (5, "operator", 7, "operator: not a name"),
        (5, "t", 5.0, "clock stepped back"),
        (5, "t", 20.0, "second row of a window"),
        (5, "t", math.nan, "t: NaN"),
    ],
)
def test_a_row_that_makes_no_sense_is_dropped_and_counted(row, column, value, reason):
    frame = pd.DataFrame(rows()).astype(object)
    frame.loc[row, column] = value
    if reason.startswith("processed more"):
        frame["true_rate"] = 125.0
    history, problems = load(frame)
    assert problems[reason] == 1
    assert "row" in problems.examples[reason][0]
    for step in history:
        for name, m in step.snapshot.operators.items():
            assert (m.processing_rate, m.true_rate) == pytest.approx((100, 125)), name
        missing = {*CHAIN} - {*step.snapshot.operators}
        assert missing == ({"work"} if step.snapshot.t == 30 else set())
    with pytest.raises(LoaderError, match=r"row \d.*: " + reason.replace("(", r"\(")):
        load(frame, strict=True)


def test_a_counter_that_was_reset_or_skipped_gives_no_rate():
    data = [row | {"n": 1000.0 * row["t"]} for row in rows(8)]
    for row in data:
        if row["t"] >= 40:
            row["n"] -= 40_000.0  # began anew
    history, problems = load([r for r in data if r["t"] != 60], columns={"processing_rate": ("n", "counter")})
    assert problems["counter was reset"] == 2
    assert problems["gap before a counter"] == 2
    assert [s.snapshot.t for s in history] == [20, 30, 50, 80]
    assert {m.processing_rate for s in history for m in s.snapshot.operators.values()} == {1000.0}


def test_a_table_may_be_written_operator_by_operator():
    by_operator = sorted(rows(8), key=lambda row: row["operator"], reverse=True)
    assert by_operator[0]["operator"] == by_operator[7]["operator"]
    for columns in ({}, {"processing_rate": ("n", "counter")}):
        for data in (rows(8), by_operator):
            history, problems = load([row | {"n": 1000.0 * row["t"]} for row in data], columns=columns)
            assert len(history) == (7 if columns else 8)
            assert "clock stepped back" not in problems
            assert {len(step.snapshot.operators) for step in history} == {2}


def test_milliseconds_are_not_taken_for_seconds():
    """Rates of counters would be a thousandth."""
    data = [row | {"n": 1000.0 * row["t"], "t": 1.7e12 + 1000 * row["t"]} for row in rows(8)]
    counted = {"processing_rate": ("n", "counter")}
    with pytest.raises(LoaderError, match="not a time in seconds"):
        load(data, columns=counted)
    history, _ = load(data, columns=counted | {"t": ("t", "ms")})
    assert {m.processing_rate for s in history for m in s.snapshot.operators.values()} == {1000.0}


def test_windows_that_overlap_are_dropped_and_gaps_are_told():
    data = [row | {"window_s": 10.0} for row in rows(6) if row["t"] != 30]
    data += [row | {"t": 65.0, "window_s": 10.0} for row in rows(1)]
    history, problems = load(data)
    assert problems["overlaps the window before"] == 1
    assert problems["gap before the window"] == 1
    ends = [s.snapshot.t for s in history]
    assert ends == [10, 20, 40, 50, 60]
    assert all(b - a >= s.snapshot.window_s for a, b, s in zip(ends, ends[1:], history[1:], strict=False))


def test_a_missing_operator_is_missing_and_counted():
    history, problems = load([row for row in rows() if (row["t"], row["operator"]) != (30, "work")])
    assert problems["operator without readings"] == 1
    assert [len(s.snapshot.operators) for s in history] == [2, 2, 1, 2, 2, 2]
    history, problems = load([row for row in rows() if (row["t"], row["operator"]) != (30, "read")])
    assert len(history) == 5
    assert problems["window without its source 'read'"] == 1


def test_what_a_source_was_offered_is_what_it_took_and_what_its_log_grew_by():
    data = [row | {"backlog": 50.0 * row["t"] if row["operator"] == "read" else 0.0} for row in rows()]
    history, _ = load(data)
    assert [s.snapshot.source_rate for s in history] == [100, *[150.0] * 5]
    assert [s.snapshot.lag for s in history] == [500.0 * i for i in range(1, 7)]


def test_csv_parquet_and_frames_say_the_same(tmp_path):
    frame = pd.DataFrame(rows())
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    told = [load(data)[0] for data in (frame, tmp_path / "a.csv", str(tmp_path / "a.parquet"))]
    assert told[0].steps == told[1].steps == told[2].steps
    told[0].save(tmp_path / "kept.parquet")
    assert History.load(tmp_path / "kept.parquet") == told[0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"columns": {"t": "when"}}, "a column 'when' for t"),
        ({"columns": {"rate": "n"}}, "one of t, operator"),
        ({"columns": {"utilisation": ("utilisation", "furlongs")}}, "unit 'furlongs'"),
        ({"columns": {"true_rate": ("n", "counter")}}, "unit 'counter' for true_rate"),
        ({"columns": 7}, "a mapping"),
        ({"parallelism": 0}, "parallelism=0"),
        ({"window_s": -1}, "window_s=-1"),
        ({"limits": Limits(readings=3)}, "limits=Limits"),
    ],
)
def test_what_cannot_be_is_a_typed_error(more, said):
    with pytest.raises(LoaderError, match=said):
        load(rows(), **more)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "empty"),
        ("a.csv", b"\xff\xfe\x00", "UTF-8"),
        ("a.csv", b't,operator\n"', "CSV"),
        ("a.csv", b"t,t\n1,2\n", "once"),
        ("a.csv", b"x" * 9_000_000, "line_bytes"),
        ("a.parquet", b"PAR1nonsensePAR1", "Parquet"),
        ("a.xls", b"", "convert"),
        ("none.csv", None, "check the path"),
    ],
)
def test_a_broken_file_is_a_typed_error(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(LoaderError, match=said):
        load(tmp_path / name)


def test_what_must_be_told_is_asked_for():
    frame = pd.DataFrame(rows())
    with pytest.raises(LoaderError, match="topology"):
        Table(frame).history()
    with pytest.raises(LoaderError, match="the number of instances of each operator"):
        load(frame.drop(columns="parallelism"))
    assert load(frame.drop(columns="parallelism"), parallelism={"read": 2, "work": 2})[0].steps == load(frame)[0].steps
    with pytest.raises(LoaderError, match="neither busy time nor true rate"):
        load(frame.drop(columns="utilisation"))


@pytest.mark.parametrize("name", ["ds2", "stela", "drs", "fission", "template"])
def test_policies_decide_on_what_was_loaded(name):
    from dspkit.policies._template import Template

    history, _ = load([row for row in rows() if (row["t"], row["operator"]) != (30, "work")])
    policy = Template() if name == "template" else policies.get(name)()
    state = policy.init(history.topology)
    for step in history:
        state, decision = policy.step(state, step.snapshot)
        history.topology.check(decision.deployment)


@given(st.data())
def test_in_a_tree_the_edges_carry_what_came(data):
    """Each operator has one sender: nothing is left to guess. With more senders, what arrives adds up all the same."""
    count = data.draw(st.integers(2, 8))
    names = [f"o{i}" for i in range(count)]
    senders = [data.draw(st.sets(st.integers(0, i - 1), min_size=1, max_size=2)) for i in range(1, count)]
    edges = [(names[u], names[i]) for i, us in enumerate(senders, 1) for u in sorted(us)]
    true = {edge: data.draw(st.integers(1, 1000)) * 1.0 for edge in edges}
    topology = Topology(tuple(names), tuple(edges))
    came = {v: sum(true[u, v] for u in topology.upstream(v)) for v in names[1:]}
    sent = {u: sum(true[u, v] for v in topology.downstream(u)) for u in names}
    found = edge_rates(topology, came, sent, {})
    for v in names[1:]:
        assert sum(found[u, v] for u in topology.upstream(v)) == pytest.approx(came[v])
        if len(topology.upstream(v)) == 1:
            (u,) = topology.upstream(v)
            assert found[u, v] == true[u, v]


def test_numbers_are_what_python_and_numpy_call_so_and_nothing_else():
    assert number(np.float32(0.5)) == number("0.5", text=True) == number(5e-1) == 0.5
    assert math.copysign(1, number(-0.0)) == 1
    for value in ("1_0", "0x10", "", " ", None, [], {}, b"1", "nan", "-1", 10**400, 1j):
        with pytest.raises(Unusable):
            number(value, text=True)


@pytest.mark.parametrize("kind", ["text", "zone", "pandas", "csv", "parquet"])
def test_times_may_be_dates(kind, tmp_path):
    """Without a zone they are UTC; the history is that of the same seconds since 1970."""
    began = 1_767_225_600.0  # 2026-01-01T00:00Z
    seconds = pd.DataFrame(rows()).assign(t=lambda d: d.t + began)
    data = seconds.assign(t=pd.to_datetime(seconds.t, unit="s"))
    if kind == "text":
        data["t"] = data.t.map(lambda t: t.isoformat())
    elif kind == "zone":
        data["t"] = data.t.map(lambda t: t.tz_localize("UTC").tz_convert("Asia/Tokyo").isoformat())
    elif kind == "csv":
        data.to_csv(tmp_path / "t.csv", index=False)
        data = tmp_path / "t.csv"
    elif kind == "parquet":
        data.to_parquet(tmp_path / "t.parquet")
        data = tmp_path / "t.parquet"
    found, problems = load(data)
    assert not problems
    same, _ = load(seconds)
    assert found.about["began_unix_s"] == same.about["began_unix_s"] == began
    assert [s.snapshot for s in found] == [s.snapshot for s in same]


def test_a_date_that_is_none_is_dropped_and_counted():
    told = rows()
    told[4]["t"] = told[5]["t"] = "2026-13-45"
    _, problems = load(told)
    assert problems["t: not a number"] == 2
