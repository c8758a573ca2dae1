"""Scores against what they are by definition, on runs made by hand."""

import pytest

from dspkit import (
    Decision,
    Deployment,
    DspkitError,
    History,
    Latency,
    OperatorMetrics,
    Snapshot,
    Step,
    Topology,
    apps,
    run,
)
from dspkit.comparison import scores  # fmt: skip
from dspkit.policies.ds2 import DS2

CHAIN = Topology.chain("a", "b")


def made(rows, window_s=10.0):
    """Rows of (in, out, instances of b after it, nodes after it, mean latency)."""
    history, now = History(CHAIN), Deployment({"a": 1, "b": rows[0][2]}, rows[0][3])
    for i, (came, done, b, nodes, *more) in enumerate(rows):
        m = {n: OperatorMetrics(came, done, done, None, 0.0, 0.0, k) for n, k in now.parallelism.items()}
        latency = Latency(*more * 4) if more else None
        s = Snapshot(window_s * (i + 1), window_s, now, m, {"a": came}, done, latency, latency, 0.0, {})
        then = Deployment({"a": 1, "b": b}, nodes)
        history.append(Step(i, s, Decision(then), then != now))
        now = then
    return history


def test_degradation_counts_both_directions():
    assert scores.degradation(made([(100, 100, 1, 1), (100, 0, 1, 1), (100, 200, 1, 1)])).mean == pytest.approx(2 / 3)


def test_nodes_saved_by_decision_and_by_the_minute():
    history = made([(1, 1, 1, n) for n in (4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 1)])
    assert scores.nodes_saved(history, 4, every_s=60) == pytest.approx(1 - (2 + 1) / 8)
    assert scores.nodes_saved(history, 4) == pytest.approx(1 - (5 * 4 + 6 * 2 + 1) / 48)


def test_latency_is_that_of_records():
    history = made([(100, 100, 1, 1, 1.0), (100, 300, 1, 1, 2.0), (0, 0, 1, 1)])
    assert scores.latency(history) == pytest.approx((100 * 1 + 300 * 2) / 400)
    assert scores.latency(made([(0, 0, 1, 1)])) is None


def test_what_is_paid_for_and_how_often_it_changed():
    history = made([(1, 1, 2, 1), (1, 1, 3, 2), (1, 1, 3, 2), (1, 1, 1, 1)])
    assert scores.rescales(history) == 2
    assert scores.node_seconds(history) == 10 * (1 + 1 + 2 + 2)
    assert scores.instance_seconds(history) == 10 * (3 + 3 + 4 + 4)


def test_saso_of_a_textbook_response():
    """Load steps up at 30 s. b goes 1, 4, 6, 5 and stays: one turn, overshoot 1/5 of b, settled after 30 s."""
    loads = [100] * 3 + [500] * 7
    b = [1, 1, 1, 4, 6, 5, 5, 5, 5, 5]
    found = scores.saso(made([(x, x, k, 1) for x, k in zip(loads, b, strict=True)]), "b")
    assert found.levels == 2
    assert found.stability == 0.5
    assert found.settling_s == pytest.approx((0 + 30) / 2)
    assert found.overshoot == pytest.approx((0 + 1 / 5) / 2)
    assert found.accuracy == 1.0
    wanted = scores.saso(made([(x, x, k, 1) for x, k in zip(loads, b, strict=True)]), "b",
                         needed=lambda s: 4 if s.source_rate > 200 else 1)  # fmt: skip
    assert wanted.accuracy == pytest.approx(1 - (0 + 1 / 4) / 2)


def test_saso_of_a_fall_and_of_one_who_swings():
    falling = made([(500, 500, 5, 1)] * 3 + [(100, 100, k, 1) for k in (3, 1, 2, 2)])
    found = scores.saso(falling, "b")
    assert found.overshoot == pytest.approx((0 + 1 / 2) / 2)
    swinging = made([(100, 90, k, 1) for k in (1, 2, 1, 2, 1, 2)])
    found = scores.saso(swinging, "b")
    assert (found.stability, found.settling_s) == (0.0, 60.0)
    assert found.accuracy == pytest.approx(0.9)


def test_levels_begin_where_the_load_leaves_the_last():
    assert scores.levels(made([(x, x, 1, 1) for x in (100, 110, 119, 121, 130, 60, 60)])) == [(0, 3), (3, 5), (5, 7)]
    assert scores.levels(made([(0, 0, 1, 1)] * 3)) == [(0, 3)]


def test_all_scores_of_a_real_run_are_numbers():
    told = scores.scores(run(DS2(), apps.word_count().simulator(), steps=60), 4)
    assert {"degradation", "nodes_saved", "latency_s", "stability", "accuracy", "settling_s", "overshoot"} <= set(told)
    assert all(isinstance(v, (int, float)) and v == v for v in told.values())
    assert told["nodes_saved"] == 0.0
    assert 0.5 < told["accuracy"] <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda h: scores.degradation(History(CHAIN)), lambda h: scores.nodes_saved(h, 0),
        lambda h: scores.nodes_saved(h, 4, every_s=0), lambda h: scores.latency(h, "x"), lambda h: scores.levels(h, -1),
        lambda h: scores.node_seconds("x"), lambda h: scores.instance_seconds(None), lambda h: scores.rescales("x"),
        lambda h: scores.saso(h, lambda s: float("nan")), lambda h: scores.saso(h, lambda s: "x"),
        lambda h: scores.saso(h, needed=lambda s: float("nan")), lambda h: scores.saso(h, needed=3),
        lambda h: scores.saso(h, "nobody"), lambda h: scores.saso("x"),
        lambda h: scores.nodes_saved(made([(1, 1, 1, None)]), 4),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(call):
    with pytest.raises(DspkitError, match="expected"):
        call(made([(1, 1, 1, 1)]))
