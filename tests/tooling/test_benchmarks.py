"""The benchmark runner finds claims by themselves, hides no failure, and keeps other topics' results."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from benchmarks import Claim, side_by_side, spark_state
from benchmarks import __main__ as runner
from benchmarks import live_policies as measured
from dspkit import apps

TOPIC = """
from __future__ import annotations
from benchmarks import Claim, side_by_side
def fast() -> Claim:
    return Claim(5.0, "x", target=2.0, detail={"a": 1})
def slow() -> Claim:
    return Claim(5.0, "s", target=2.0, better="lower")
def helper() -> float:
    raise AssertionError("no claim")
def _hidden() -> Claim:
    raise AssertionError("not public")
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runner with one topic, `made`, and a file of results of its own."""
    path = tmp_path / "build" / "bench.json"
    monkeypatch.setattr(runner, "RESULTS", path)
    monkeypatch.setattr(runner, "topics", lambda: ["made"])
    use(TOPIC, monkeypatch)
    return path


def use(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("benchmarks.made")
    exec(source, module.__dict__)
    monkeypatch.setitem(sys.modules, "benchmarks.made", module)


def test_claims_are_found_and_judged(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main([]) == 0
    kept = json.loads(results.read_text())
    assert {name: entry["ok"] for name, entry in kept.items()} == {"made.fast": True, "made.slow": False}
    assert kept["made.fast"]["detail"] == {"a": 1}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["made.fast", "made.slow"]
    assert " ok " in lines[0]
    assert lines[0].endswith("(a 1)")
    assert " short " in lines[1]


def test_other_topics_results_stay_and_stale_ones_go(results: Path) -> None:
    results.parent.mkdir()
    results.write_text(json.dumps({"other.claim": {"value": 1}, "made.former": {"value": 2}}))
    assert runner.main(["made"]) == 0
    assert json.loads(results.read_text()).keys() == {"other.claim", "made.fast", "made.slow"}
    assert [path.name for path in results.parent.iterdir()] == ["bench.json"]


def test_a_claim_that_breaks_is_shown_and_fails_the_run(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(TOPIC + "def broken() -> Claim:\n    raise OSError('no such rival')\n", monkeypatch)
    assert runner.main([]) == 1
    output = capsys.readouterr().out
    assert "made.broken" in output
    assert "OSError: no such rival" in output
    assert "made.broken" not in results.read_text()
    assert "made.slow" in results.read_text()


def test_an_unknown_topic_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["nope"]) == 2
    assert "got nope; expected one of:" in capsys.readouterr().err


def test_every_topic_of_ours_has_a_claim() -> None:
    import importlib

    for topic in runner.topics():
        assert list(runner.claims(importlib.import_module(f"benchmarks.{topic}"))), topic


def test_rivals_take_turns_and_the_first_turn_does_not_count() -> None:
    turns: list[str] = []
    medians = side_by_side({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, repeats=2)
    assert turns == ["a", "b"] * 3
    assert medians.keys() == {"a", "b"}


def test_a_claim_on_its_target_holds() -> None:
    assert Claim(2.0, "x", target=2.0).holds
    assert Claim(2.0, "s", target=2.0, better="lower").holds
    assert not Claim(float("nan"), "x", target=2.0).holds


def test_live_policies_continues_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are kept as soon as they are there; other code, another length and `fresh` measure again."""

    def live(app: apps.App, name: str, seconds: float) -> tuple[measured.Row, None]:
        if name == "hpa" and not calm:
            raise KeyboardInterrupt
        ran.append((app.name, name, seconds))
        return measured.Row(app.name, name, "live", measured.promise_of(name), lag_at_end=len(ran), falls=True), None

    ran: list[tuple[str, str, float]] = []
    calm: list[bool] = []
    monkeypatch.setattr(measured, "KEPT", tmp_path / "rows.jsonl")
    monkeypatch.setattr(measured, "live", live)
    with pytest.raises(KeyboardInterrupt):
        list(measured.rows(["word_count"], ["ds2", "hpa"], 60.0, beside=False))
    calm.append(True)
    found = list(measured.rows(["word_count"], ["ds2", "hpa", "odp"], 60.0, beside=False))
    assert ran == [("word_count", name, 60.0) for name in ("ds2", "hpa", "odp")]
    assert [(r.policy, r.lag_at_end) for r in found] == [("ds2", 1), ("hpa", 2), ("odp", 3)]
    assert list(measured.kept().values()) == found
    assert measured.table(found).count("\n") == 5
    list(measured.rows(["word_count"], ["ds2"], 90.0, beside=False))
    list(measured.rows(["word_count"], ["ds2"], 90.0, beside=False, fresh=True))
    monkeypatch.setattr(measured, "code", lambda: "another")
    list(measured.rows(["word_count"], ["ds2"], 90.0, beside=False))
    assert len(ran) == 6


def test_a_quarter_off_in_traffic_and_latency_is_not_as_predicted() -> None:
    model = measured.Row("a", "odp", "simulated", "places", crossing=1000.0, latency_s=0.1)
    for crossing, latency_s, right in ((1240.0, 9.0, True), (1260.0, 0.12, True), (1260.0, 0.13, False)):
        assert measured.as_predicted(replace(model, crossing=crossing, latency_s=latency_s), model) is right
    assert not measured.as_predicted(replace(model, crossing=None, latency_s=None), model)


def test_policies_that_choose_places_run_on_a_simulator_with_the_links_of_the_workers() -> None:
    """Three workers, ODP between two pinned ends; traffic and latency are in the row."""
    app = apps.get("word_count")().as_live()
    row = measured.simulated(app, "odp", apps.word_count(), 40.0)
    assert (row.promise, row.where, row.note) == ("places", "simulated", "")
    assert row.decisions >= 1
    assert row.crossing is not None
    assert row.latency_s


def test_spark_state_keeps_its_turns_and_continues_with_those_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = spark_state.Size(10_000), spark_state.Size(10_000_000)
    ran: list[tuple[str, int]] = []
    left = [3]

    def turn(case: spark_state.Case) -> spark_state.Turn:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        ran.append((str(case.size), len(ran)))
        return {"silence_s": [float(len(ran))], "merged_over_touched": []}

    @contextlib.contextmanager
    def cases(per_s: float, sizes: Sequence[spark_state.Size]) -> Iterator[list[spark_state.Case]]:
        yield [spark_state.Case(None, tmp_path, size, per_s) for size in sizes]

    monkeypatch.setattr(spark_state, "_STORE", tmp_path / "kept.json")
    monkeypatch.setattr(spark_state, "_cases", cases)
    with pytest.raises(KeyboardInterrupt):
        spark_state._complete("light", 1.0, turn, (small, large))
    left[0] = 100
    found = spark_state._complete("light", 1.0, turn, (small, large))
    assert [size for size, _ in ran] == ["10,000", "10,000,000"] * 3  # in turns, also after the interruption
    assert (found[small]["silence_s"], found[large]["silence_s"]) == (3.0, 4.0)
    assert spark_state._complete("light", 1.0, turn, (large,)) == {large: found[large]}
    assert len(ran) == 6
    kept = spark_state.Kept()
    kept.add("stock sql", small, {})  # which did not end in time
    drawn, listed = spark_state.chart(kept), spark_state.table(kept)
    ElementTree.fromstring(drawn)
    assert drawn.count("<circle") == 2
    assert "| silence of a rescale, s | 3 |  |  | 4 |  |" in listed
    monkeypatch.setattr(spark_state, "code", lambda: "another")
    assert spark_state.Kept().of("light", small) == []
    monkeypatch.setattr(spark_state, "_END", 0.0)
    with pytest.raises(TimeoutError, match="turn 1 of 3 with 10,000 keys"):
        spark_state._complete("light", 1.0, turn, (small,))
