"""Pictures of profiles and of nodes: they draw what they say, and say what is so."""

import pytest

from dspkit import DspkitError, History, plots, profile, run, scores, topologies, workload
from dspkit.policies.elysium import Elysium
from dspkit.policies.joint import Joint
from dspkit.policies.static import Static

TOP = topologies.rolling_top_words()


@pytest.fixture(scope="module")
def history():
    return run(Static(), TOP.simulator(workload.Sine(200, 100, 300), parallelism=4), steps=36)


def test_a_profile_is_drawn_over_what_was_measured(history):
    learned = profile.learn(history)
    for of, rows in (("counter", profile.samples(history).cpu["counter"]), ("node", profile.samples(history).nodes)):
        measured, curve, whole = plots.profile(learned, history, of).spec["data"]
        assert list(zip(measured["x"], measured["y"], strict=True)) == [pytest.approx(r) for r in rows]
        told = learned.cpu[of] if of == "counter" else learned.overhead
        assert curve["y"] == pytest.approx([float(told.curve(x)) for x in curve["x"]])
        assert whole["y"] == [1, 1]
        assert "off by 0." in plots.profile(learned, history, of).summary
    with pytest.raises(DspkitError, match="one of source"):
        plots.profile(learned, history, "nobody")


def test_nodes_of_several_runs_lie_over_each_other_with_their_scores(monkeypatch):
    load = workload.Jump(100, 360, 120)
    runs = {name: run(p, TOP.simulator(load), steps=40) for name, p in (("<elysium>", Elysium()), ("joint", Joint()))}
    picture = plots.nodes(runs, 4)
    assert len(picture.spec["data"]) == 1 + 2 * 3
    assert picture.spec["data"][2]["y"] == [scores.nodes(s) for s in runs["<elysium>"]]
    saved = scores.nodes_saved(runs["joint"], 4, every_s=60)
    assert (
        f"joint: degradation {scores.degradation(runs['joint']).mean:.2f} and {saved:.0%} nodes saved"
        in picture.summary
    )
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: shown.append(data))
    picture._ipython_display_()
    assert "<em>&lt;elysium&gt;: degradation" in shown[1]["text/html"]  # text is escaped by who shows it, once
    for wrong in ({}, {"x": History(TOP.topology)}):
        with pytest.raises(DspkitError, match="at least one History"):
            plots.nodes(wrong)


def test_a_saved_run_teaches_what_the_run_does(history, tmp_path):
    assert profile.learn(History.load(history.save(tmp_path / "run.parquet"))) == profile.learn(history)
