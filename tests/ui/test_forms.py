"""Forms: what they guess, what they refuse, and that the code that they print does the same as they do."""

from __future__ import annotations

import ast
import html
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import History, Topology, loaders, run, ui
from dspkit.core import TopologyError
from dspkit.ui.forms import read_graph, written_graph

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "data" / "recorded_job.csv"
GRAPH = "read > parse > enrich > score > store\nparse > sessions > store"
HEAD = ["time", "task", "instances", "processed", "busy"]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] < e[1]), min_size=1, unique=True))
def test_a_graph_is_read_back_as_it_is_written(pairs: list[tuple[int, int]]) -> None:
    edges = [(f"op{a}", f"op{b}") for a, b in pairs]
    names = tuple(dict.fromkeys(name for edge in edges for name in edge))
    graph = Topology(names, tuple(edges))
    again = read_graph(written_graph(graph))
    assert set(again.edges) == set(graph.edges)
    assert set(again.order) == set(graph.order)


@given(st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=5, unique=True))
def test_operators_with_any_name_are_read_back(names: list[str]) -> None:
    graph = Topology.chain(*names)
    again = read_graph(written_graph(graph))
    assert (again.order, again.edges) == (graph.order, graph.edges)


def test_the_chained_names_of_flink_are_suggested_and_read(tmp_path: Path) -> None:
    names = ["Source: cars -> Map", "Window(10 s) -> Sink"]
    rows = [(10 * i, name, 2, 90.0, 0.5) for i in range(1, 4) for name in names]
    pd.DataFrame(rows, columns=HEAD).to_csv(tmp_path / "job.csv", index=False)
    form = ui.OwnData(tmp_path / "job.csv")
    form.confirm.click()
    assert form.error == ""
    assert form.history is not None
    assert form.history.topology.edges == (tuple(names),)


def test_nothing_of_a_former_table_stays(tmp_path: Path) -> None:
    def write(name: str, head: list[str], operators: str, busy: float) -> Path:
        rows = [(10 * i, operator, 2, 90.0, busy) for i in range(1, 4) for operator in operators]
        pd.DataFrame(rows, columns=head).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    form = ui.OwnData(write("a.csv", HEAD, "abc", 50.0), graph="a > b\na > c")
    assert form.graph.value == "a > b\na > c"
    assert form.units["utilisation"].value == "percent"
    form.open(write("next_day.csv", HEAD, "abc", 60.0))
    assert form.graph.value == "a > b\na > c"
    form.open(write("other.csv", [*HEAD[:-1], "load"], "xy", 0.5))
    assert form.graph.value == "x > y"
    assert form.units["utilisation"].value == "share"
    form.open(write("without.csv", ["time", "what", *HEAD[2:]], "z", 0.5))
    assert form.graph.value == ""


def test_a_counter_is_seen_among_idle_and_among_many_operators() -> None:
    def guessed(rows: list[tuple[int, str, int]]) -> str | None:
        return loaders.guess_columns(pd.DataFrame(rows, columns=["t", "task", "processed"]))["processing_rate"].unit

    idle = [(10 * i, name, 900 * i * (name == "read")) for i in range(12) for name in ("read", "side")]
    many = [(10 * i, f"op{k}", 900 * i) for i in range(12) for k in range(200)]
    by_operator = sorted(many, key=lambda row: row[1])
    nothing = [(10 * i, name, 5) for i in range(12) for name in ("read", "side")]
    falls = [(10 * i, name, 900 * (i if name == "read" else 12 - i)) for i in range(12) for name in ("read", "side")]
    assert [guessed(rows) for rows in (idle, many, by_operator)] == ["counter"] * 3
    assert [guessed(rows) for rows in (nothing, falls)] == ["records/s"] * 2


@pytest.mark.parametrize(
    ("name", "last", "unit"),
    [
        ("timestamp_ms", 600_000, "ms"),
        ("time (ns)", 10**11, "ns"),
        ("timeMillis", 600_000, "ms"),
        ("window_end_us", 10**9, "us"),
        ("timestamp", 600_000, "s"),
        ("ts", 600, "s"),
        ("time_s", 1_700_000_000_000, "ms"),  # no time in seconds
    ],
)
def test_the_unit_in_the_clocks_name_counts(name: str, last: int, unit: str) -> None:
    frame = pd.DataFrame([(last * i // 6, "work", 0.5) for i in range(7)], columns=[name, "task", "busy"])
    assert loaders.guess_columns(frame)["t"].unit == unit


@pytest.mark.parametrize(
    ("name", "top", "unit", "unsure"),
    [("cpu_percent", 40.0, "percent", False), ("cpu %", 40.0, "percent", False), ("cpu_pct", 3.0, "percent", False)]
    + [("cpu", 40.0, "cores", True), ("cpu", 250.0, "percent", False)],
)
def test_cpu_is_taken_by_its_name_and_else_said_to_be_uncertain(name: str, top: float, unit: str, unsure: bool) -> None:
    frame = pd.DataFrame([(10 * i, "work", top - i) for i in range(3)], columns=["t", "task", name])
    found = loaders.guess_columns(frame)["cpu"]
    assert (found.unit, "uncertain" in found.reason) == (unit, unsure)


@pytest.mark.parametrize("text", ["", "  \n", "a >", "a > > b", "> a", "a > b\nb > a", '"a', '"a" b', '"\\x"', '""'])
def test_a_graph_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        read_graph(text)


@pytest.mark.parametrize(
    ("start", "step", "busy", "clock", "share"),
    [
        (10, 10, 0.8, "s", "share"),
        (1_700_000_000, 10, 80, "s", "percent"),
        (1_700_000_000_000, 10_000, 800, "ms", "ms/s"),
        (1_700_000_000_000_000, 10_000_000, 0.8, "us", "share"),
        (1_700_000_000_000_000_000, 10_000_000_000, 80, "ns", "percent"),
    ],
)
def test_units_are_guessed_from_the_values_and_give_the_same_numbers(
    tmp_path: Path, start: float, step: float, busy: float, clock: str, share: str
) -> None:
    rows = [(start + step * i, name, 2, 90 + i, busy) for i in range(6) for name in ("read", "work")]
    pd.DataFrame(rows, columns=HEAD).to_csv(tmp_path / "job.csv", index=False)
    found = loaders.guess_columns(tmp_path / "job.csv")
    assert (found["t"].unit, found["utilisation"].unit) == (clock, share)
    form = ui.OwnData(tmp_path / "job.csv", graph="read > work")
    form.read()
    assert form.history is not None
    last = form.history[-1].snapshot
    assert last.window_s == pytest.approx(10)
    assert last.operators["work"].utilisation == pytest.approx(0.8)
    assert last.operators["work"].processing_rate == pytest.approx(95)


def test_a_column_that_only_grows_is_taken_for_a_counter(tmp_path: Path) -> None:
    rows = [(10 * i, name, 1, 900 * i, 0.5) for i in range(12) for name in ("read", "work")]
    table = tmp_path / "job.parquet"
    pd.DataFrame(rows, columns=HEAD).to_parquet(table)
    assert loaders.guess_columns(table)["processing_rate"].unit == "counter"
    form = ui.OwnData(table, graph="read > work")
    form.read()
    assert form.history is not None
    assert form.history[-1].snapshot.operators["work"].processing_rate == pytest.approx(90)


def test_nothing_is_read_before_it_is_confirmed_and_a_choice_is_no_guess_any_more() -> None:
    form = ui.OwnData(RECORDED)
    assert form.history is None
    assert "guessed" in form._why["utilisation"].value
    form.units["utilisation"].value = "percent"
    assert "guessed" not in form._why["utilisation"].value
    assert form.mapping()["utilisation"] == ("busy_ms_per_s", "percent")
    assert form.graph.value == "read > parse > enrich > sessions > score > store"  # in the table's order
    assert "only their order" in form._hint.value


def test_the_printed_code_reads_the_same_and_finds_the_same_bottleneck() -> None:
    form = ui.OwnData(RECORDED, graph=GRAPH)
    form.confirm.click()
    assert form.error == ""
    made: dict[str, object] = {}
    exec(form.code(), made)
    again = made["job"].history()  # type: ignore[attr-defined]
    assert isinstance(again, History)
    assert form.history is not None
    assert again.operators.equals(form.history.operators)
    form.ask.click()
    assert form.error == ""
    assert "score" in form._advice.outputs[0]["data"]["text/plain"]


def _sent(name: str, content: bytes) -> tuple[dict[str, object], ...]:
    return ({"name": name, "type": "text/csv", "size": len(content), "content": memoryview(content)},)


def test_an_uploaded_table_is_kept_and_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path))
    form = ui.OwnData()
    form._uploaded({"new": _sent("mine.csv", RECORDED.read_bytes())})
    assert (tmp_path / "uploads" / "mine.csv").read_bytes() == RECORDED.read_bytes()
    assert form.columns["operator"].value == "task"
    assert form.path.value == str(tmp_path / "uploads" / "mine.csv")


@pytest.mark.parametrize(
    "name", ["../x.csv", "a/../../x.csv", "..\\x.csv", "x.exe", ".csv", "x.csv\0", "x" * 200 + ".csv"]
)
def test_an_uploaded_file_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path / "home"))
    form = ui.OwnData()
    form._errors.guard("upload", form._uploaded)({"new": _sent(name, b"a,b\n1,2\n")})
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and p.parent != tmp_path / "home" / "uploads"]
    assert outside == []
    if (tmp_path / "home").exists():
        assert [p.name for p in (tmp_path / "home" / "uploads").iterdir()] == ["x.csv"]
    else:
        assert "expected a .csv or .parquet file" in html.unescape(form.error)


@pytest.mark.parametrize("content", ["", "a\n", "\0\0", 'a,b\n"', "time,task\n1,x\n", "a,a\n1,2\n", "é" * 5000])
def test_a_table_that_is_none_is_an_error_in_the_form(tmp_path: Path, content: str) -> None:
    (tmp_path / "job.csv").write_text(content)
    form = ui.OwnData()
    form.path.value = str(tmp_path / "job.csv")
    form.graph.value = "read > work"
    form.confirm.click()
    assert "Error" in form.error
    assert form.history is None


def test_text_of_a_table_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "job.csv").write_text("time,<img src=x>,task\n1,<script>alert(1)</script>,<b>x</b>\n")
    form = ui.OwnData(tmp_path / "job.csv")
    assert "<script>" not in form.preview.value + form._hint.value
    assert "<img" not in form.preview.value
    assert "<b>x" not in form._hint.value


def test_characters_that_hide_others_are_shown_as_such_in_the_preview(tmp_path: Path) -> None:
    (tmp_path / "job.csv").write_text("time,task\n1,exe.\u202egpj\n", encoding="utf-8")
    shown = ui.OwnData(tmp_path / "job.csv").preview.value
    assert "\u202e" not in shown
    assert "exe.\\u202egpj" in shown


def test_an_application_of_a_form_is_what_its_code_makes() -> None:
    form = ui.OwnApp("read > parse > store\nparse > side > store")
    form.costs["parse"].milliseconds.value = 4.123456789
    form.costs["parse"].sends.value = 0.123456789
    form.target.value = 0.987654321
    form.costs["side"].most.value = 7
    form.shape.value = "wave"
    form.high.value = 900.0
    made: dict[str, object] = {}
    exec(form.code(), made)
    assert made["my_job"] == form.app
    assert made["history"].operators.equals(run("ds2", form.app, steps=60).operators)  # type: ignore[attr-defined]
    form.graph.value = "read > parse > other"  # an operator that stays keeps what was set of it
    assert form.costs["parse"].milliseconds.value == 4.123456789
    assert form.error == ""
    explorer = form.open("static", windows=4, speed=0)
    explorer.start()
    assert explorer.wait(60)
    assert explorer.history is not None
    assert explorer.history.topology.order == ("read", "parse", "other")


def test_a_name_that_the_printed_code_uses_is_refused() -> None:
    form = ui.OwnApp()
    tree = ast.parse(form.code())
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for alias in n.names}
    for name in names - {"my_job"}:
        form.name.value = name
        assert "ArgumentError" in form.error, name
    form.name.value = "my_job"
    assert form.error == ""


@pytest.mark.parametrize("name", ["", "class", "my job", "x;import os", "1st", "é", 'a"b'])
def test_a_name_that_is_no_code_is_refused(name: str) -> None:
    form = ui.OwnApp()
    before = form._code.value
    form.name.value = name
    assert "ArgumentError" in form.error
    assert form._code.value == before


def test_a_graph_with_a_circle_is_an_error_in_the_form() -> None:
    form = ui.OwnApp()
    form.graph.value = "a > b\nb > a"
    assert "TopologyError" in form.error
    assert list(form.costs) == ["read", "parse", "store"]
