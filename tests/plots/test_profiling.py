"""Pictures of profiles and of nodes: they draw what they say, and say what is so."""

import re

import numpy as np
import pytest

from dspkit import DspkitError, History, apps, plots, profiling, run, workload
from dspkit.comparison import scores
from dspkit.policies.elysium import Elysium, Joint
from dspkit.policies.static import Static

TOP = apps.rolling_top_words()


@pytest.fixture(scope="module")
def history():
    return run(Static(), TOP.simulator(workload.Sine(200, 100, 300), parallelism=4), steps=36)


@pytest.fixture(scope="module")
def learned(history):
    return profiling.learn(history)


@pytest.mark.parametrize("of", ["counter", "node"])
def test_a_profile_shows_the_measurements_of_its_run(learned, history, of):
    rows = profiling.samples(history).nodes if of == "node" else profiling.samples(history).cpu[of]
    measured, _, whole = plots.profile(learned, history, of).spec["data"]
    assert list(zip(measured["x"], measured["y"], strict=True)) == [pytest.approx(r) for r in rows]
    assert whole["y"] == [1, 1]


@pytest.mark.parametrize("of", ["counter", "node"])
def test_the_curve_of_a_profile_goes_through_what_it_was_learned_from(learned, history, of):
    picture = plots.profile(learned, history, of)
    measured, curve, _ = picture.spec["data"]
    drawn = np.interp(measured["x"], curve["x"], curve["y"])
    error = np.abs(drawn - measured["y"]) / np.asarray(measured["y"])
    assert error.mean() < 0.01  # the simulator's operators cost the same for each record
    assert float(re.search(r"mean error of ([\d.]+)%", picture.summary)[1]) == pytest.approx(
        100 * error.mean(), abs=0.01
    )


def test_a_profile_of_an_unknown_operator_is_refused_with_those_there_are(learned, history):
    with pytest.raises(DspkitError, match="one of source"):
        plots.profile(learned, history, "nobody")


def test_nodes_of_several_runs_lie_over_each_other_with_their_scores(monkeypatch):
    load = workload.Jump(100, 360, 120)
    runs = {name: run(p, TOP.simulator(load), steps=40) for name, p in (("<elysium>", Elysium()), ("joint", Joint()))}
    picture = plots.nodes(runs, 4)
    assert len(picture.spec["data"]) == 1 + 2 * 3
    assert picture.spec["data"][2]["y"] == [scores.nodes(s) for s in runs["<elysium>"]]
    told = re.search(r"joint: degradation ([\d.]+) and (\d+)% nodes saved", picture.summary)
    assert float(told[1]) == pytest.approx(scores.degradation(runs["joint"]).mean, abs=0.005)
    used = [scores.nodes(s) for s in runs["joint"]]
    assert int(told[2]) == pytest.approx(100 * (1 - sum(used) / (4 * len(used))), abs=3)
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    picture._ipython_display_()
    assert "<em>&lt;elysium&gt;: degradation" in shown[1]["text/html"]  # text is escaped by who shows it, once
    for wrong in ({}, {"x": History(TOP.topology)}):
        with pytest.raises(DspkitError, match="at least one History"):
            plots.nodes(wrong)


def test_a_saved_run_teaches_what_the_run_does(history, tmp_path):
    assert profiling.learn(History.load(history.save(tmp_path / "run.parquet"))) == profiling.learn(history)
