"""Runs as data for the cockpit: sentences with the numbers of the window, graphs with few crossings, recordings."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from dspkit import Topology, apps, plots, policies, report, run
from dspkit.core import History, Operator
from dspkit.plots import playback
from dspkit.plots.graph import positions


@pytest.mark.parametrize("name", sorted(policies.available()))
def test_every_policy_gives_sentences_for_every_window(name: str) -> None:
    history = run(policies.available()[name](), apps.word_count(), steps=12)
    for step, row in zip(history, playback.rows(history), strict=True):
        said = plots.sentences(step)
        assert said
        assert all(line[0] == line[0].strip() and line.endswith((".", "!", "?")) for line in said), said
        assert row["say"] == list(said)
        changed = {n for n, k in step.deployment.parallelism.items() if k != step.snapshot.deployment.parallelism[n]}
        if step.rescaled:
            assert all(any(line.startswith(f"{n}: ") for line in said) for n in changed)
    json.dumps(playback.rows(history), allow_nan=False)


def test_the_inequality_is_that_of_the_window() -> None:
    step = run("ds2", apps.word_count(), steps=1)[0]
    assert step.decision is not None
    for line in plots.sentences(step):
        name, can, arrive, k = re.fullmatch(
            r"(\w+): one instance can do (\S+) k/s, (\S+) k/s arrive: (\d+)\.", line
        ).groups()  # type: ignore[union-attr]
        assert step.decision.deployment.parallelism[name] == int(k)
        assert float(can) * (int(k) - 1) < float(arrive) <= float(can) * int(k)
        assert float(can) == pytest.approx(step.snapshot.operators[name].true_rate / 1000, rel=0.01)  # type: ignore[operator]


def _crossings(topology: Topology) -> int:
    place, bends = positions(topology)
    ways = [[place[u], *bends[u, v], place[v]] for u, v in topology.edges]
    pieces = [piece for way in ways for piece in itertools.pairwise(way)]
    return sum(
        a[0] == c[0] and (a[1] - c[1]) * (b[1] - d[1]) < 0 for (a, b), (c, d) in itertools.combinations(pieces, 2)
    )


def test_graphs_that_can_be_drawn_without_crossings_are() -> None:
    names = [f"{side}{i}" for side in "ab" for i in range(6)]
    edges = [(f"a{i}", f"b{5 - i}") for i in range(6)]
    assert _crossings(Topology(tuple(Operator(n) for n in names), tuple(edges))) == 0
    tree = [("r", "x"), ("r", "y"), ("y", "p"), ("y", "q"), ("x", "s"), ("x", "t")]
    names = list(dict.fromkeys(n for edge in tree for n in edge))
    assert _crossings(Topology(tuple(Operator(n) for n in names), tuple(tree))) == 0


def test_a_long_recording_is_thinned_and_keeps_every_decision() -> None:
    history = run("ds2", apps.word_count(), steps=90)
    long = History(history.topology, history.steps * 60)
    kept = playback.Recording.of(long).data["rows"]
    assert len(kept) * 4 < playback.MOST_RECORDED + 4 * sum(step.rescaled for step in long)
    assert sum("act" in row for row in kept) == sum(step.rescaled for step in long)


def test_a_name_that_is_a_script_stays_a_name_in_the_replay(tmp_path) -> None:  # type: ignore[no-untyped-def]
    bad = "</script><script>alert(1)</script>"
    history = run("static", apps.star(), steps=2)
    history.notes.append((10.0, bad))
    text = report.from_history(history, tmp_path / "r.html").read_text()
    assert bad not in text
    found = re.search(r'<script type="application/json" id="recording-1">(.*?)</script>', text)
    assert found is not None
    assert json.loads(found[1])["notes"][0]["what"] == bad
