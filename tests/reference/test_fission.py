"""Numbers that the self-adaptive graph's paper prints, and the method card's worked examples F1 to F10."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dspkit import Deployment, OperatorMetrics, Snapshot, Topology
from dspkit.comparison.scores import share_lost
from dspkit.core import ArgumentError, KnobError
from dspkit.forecasting import markov
from dspkit.policies.fission import Fission

CHAIN = Topology.chain("work", "next", max_parallelism=100)
EXACT = 1e-15


def _snapshot(t, n, events_per_s, p1=100.0, **more):
    work = OperatorMetrics(events_per_s, min(events_per_s, n * p1), events_per_s, p1, 0.5, more.pop("backlog", 0), n)
    rest = OperatorMetrics(60, 60, 0, 100.0, 0.6, 0, 1)  # balanced: says nothing
    return Snapshot(
        t=t, window_s=1.0, deployment=Deployment({"work": n, "next": 1}), operators={"work": work, "next": rest},
        source_rates={"work": events_per_s}, throughput=0, latency=None, event_latency=None, lag=0, edge_rates={},
    )  # fmt: skip


def _trace(policy, rates, n=1):
    """n after each second, and the `why` of each second, under these events/s."""
    state, counts, told = policy.init(CHAIN), [], []
    for t, rate in enumerate(rates, 1):
        state, decision = policy.step(state, _snapshot(float(t), n, rate))
        n = decision.deployment.parallelism["work"]
        counts.append(n)
        told.append(decision.why)
    return counts, told


def _levels(letters, n=1, **knobs):
    """n after each short-term window in these states (p1 = 100: 20, 75 or 150 % of what runs)."""
    policy, at, state = Fission(mid_term=False, **knobs), n, None
    state, counts = policy.init(CHAIN), []
    for t in range(1, 5 * len(letters) + 1):
        share = {"U": 0.2, "B": 0.75, "O": 1.5}[letters[(t - 1) // 5]]
        state, decision = policy.step(state, _snapshot(float(t), at, 100 * share * at))
        at = decision.deployment.parallelism["work"]
        counts.append(at)
    return counts[4::5]


@pytest.mark.parametrize(("events", "state"), [(240, "B"), (300, "B"), (301, "O"), (150, "B"), (149, "U")])
def test_f1_load(events, state):
    assert markov.STATES[markov.classify(events / 300)] == state
    _, told = _trace(Fission(), [events] * 5, n=3)
    assert told[4]["load"]["work"] == pytest.approx(events / 300, abs=5e-5)
    assert told[4]["state"]["work"][0].upper() == state


F2 = np.array([[0.9, 0.1, 0], [0.2, 0.6, 0.2], [0, 0.3, 0.7]])


def test_f2_stationary_and_the_margin():
    e = markov.stationary(F2)
    assert e == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=EXACT)
    assert markov.STATES[markov.choose(e, markov.O, 0.2)] == "U"
    assert markov.STATES[markov.choose(e, markov.B, 0.2)] == "U"
    assert markov.STATES[markov.choose(e, markov.B, 0.3)] == "B"


def test_f2_chapman_kolmogorov_as_the_paper_iterates():
    raw = markov.iterate(F2, 20, start=(0, 0, 1), average=1)
    assert raw == pytest.approx([0.52976708, 0.27871935, 0.19151357], abs=5e-9)
    assert markov.iterate(F2, 100, start=(0, 0, 1), average=1) == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=1e-7)


def test_f3_from_a_history():
    matrix = markov.transition_matrix("BBOOBBOOBBOO")
    assert matrix[1:].ravel() == pytest.approx([0, 1 / 2, 1 / 2, 0, 2 / 5, 3 / 5], abs=EXACT)
    assert markov.stationary(matrix) == pytest.approx([0, 4 / 9, 5 / 9], abs=EXACT)
    assert markov.predict("BBOOBBOOBBOO") == markov.O
    assert markov.predict("BBOOBBOOBBOO", current=markov.B) == markov.B


@pytest.mark.parametrize(
    ("history", "e", "moves"),
    [
        ("UUUUUUUUUU", (1, 0, 0), "UU"),
        ("BOBOBOBOBO", (0, 1 / 2, 1 / 2), "OO"),
        ("UBOUBOUBOU", (1 / 3, 1 / 3, 1 / 3), "UU BB OO"),
        ("BBBBBBBBBO", (1 / 12, 3 / 4, 1 / 6), "OB"),
        ("UUBBOOOOOOOO", (0, 0, 1), "BO"),
        ("BBBBBOOOOO", (0, 0, 1), "OO"),
    ],
)
def test_f4_corner_histories(history, e, moves):
    assert markov.stationary(markov.transition_matrix(history)) == pytest.approx(e, abs=EXACT)
    for current, result in moves.split():
        assert markov.STATES[markov.predict(history, current=markov.STATES.index(current))] == result


def test_f4_raw_powers_of_a_periodic_chain_alternate_and_their_average_does_not():
    matrix = markov.transition_matrix("BOBOBOBOBO")
    powers = [markov.iterate(matrix, i, start=(0, 1, 0), average=1).tolist() for i in (1, 2, 3)]
    assert powers == [[0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert markov.iterate(matrix, 100, start=(0, 1, 0)) == pytest.approx([0, 1 / 2, 1 / 2], abs=EXACT)


def test_f4_a_self_loop_makes_the_fourth_row_depend_on_the_start():
    matrix = markov.transition_matrix("BBBBBBBBBO", unvisited="self")
    with pytest.raises(Exception, match="2 closed classes"):
        markov.stationary(matrix)
    assert markov.stationary(matrix, start=markov.B) == pytest.approx([0, 0, 1], abs=1e-12)
    assert markov.stationary(matrix, start=markov.U).tolist() == [1, 0, 0]


def test_f5_additive_against_relative():
    e = (0.15, 0.35, 0.50)
    assert markov.choose(e, markov.B, 0.2) == markov.B
    assert markov.choose(e, markov.B, 0.2, "relative") == markov.O


def test_f6_short_term_trace():
    counts, told = _trace(Fission(), [250] * 40)
    assert [told[t - 1]["load"]["work"] for t in (5, 10, 15, 20, 25)] == [2.5, 2.5, 1.25, 1.25, 0.8333]
    assert [told[t - 1]["state"]["work"][0] for t in (5, 10, 15, 20, 25)] == list("oooob")
    assert [counts[t - 1] for t in (5, 10, 15, 20, 25, 30, 40)] == [1, 2, 2, 3, 3, 3, 3]


def test_f7_scale_in_trace():
    counts, told = _trace(Fission(), [40] * 40, n=3)
    assert [told[t - 1]["load"]["work"] for t in (5, 10, 15, 20, 25)] == [0.1333, 0.1333, 0.2, 0.2, 0.4]
    assert [counts[t - 1] for t in (5, 10, 15, 20, 25, 40)] == [3, 2, 2, 1, 1, 1]
    assert told[39]["state"]["work"] == "underloaded"


def test_f8_another_state_begins_the_count_anew():
    assert _levels("OBOO") == [1, 1, 1, 2]
    assert _levels("OUU", n=3) == [3, 3, 2]


def test_without_restart_a_lasting_overload_acts_in_each_window():
    assert _levels("OOOO") == [1, 2, 2, 3]
    assert _levels("OOOO", restart=False) == [1, 2, 3, 4]
    assert _levels("OOOO", windows=1, replicas=2) == [3, 5, 7, 9]
    assert _levels("OOOO", windows=1, replicas=2, max_parallelism=4) == [3, 4, 4, 4]


def test_f9_mid_term_clamp_to_one():
    policy = Fission(windows=20)
    counts, told = _trace(policy, [140] * 100, n=3)  # L = 0.4667: underloaded throughout
    assert counts[98:] == [3, 1]
    assert told[99]["mid-term"] == {"work": "-5"}
    assert told[99]["chance of U, B, O"]["work"] == (1, 0, 0)


def test_the_mid_term_goes_first_and_sets_the_short_term_back():
    """At 100 s both are due: R' and no R; then the next R comes two windows later."""
    counts, told = _trace(Fission(), [5000] * 115)
    assert counts[89] == 10
    assert "short-term" not in told[99]
    assert [counts[t - 1] - counts[t - 2] for t in (100, 105, 110)] == [5, 0, 1]


def test_there_is_no_prediction_before_the_first_hundred_samples():
    _, told = _trace(Fission(mid_term_interval_s=40.0), [200] * 45, n=3)
    assert [t for t, why in enumerate(told, 1) if "expected" in why] == [40]
    state, policy = Fission().init(CHAIN), Fission()
    for t in range(51, 101):  # begun late: 50 samples at the tick
        state, decision = policy.step(state, _snapshot(float(t), 1, 500))
    assert "expected" not in decision.why


def test_literal_an_operator_that_is_overloaded_now_gets_r_prime_though_nothing_was_predicted():
    """60 s balanced, then overloaded for 40: e says B, by less than S; the current state is returned."""
    _counts, told = _trace(Fission(windows=20, margin=0.99), [75] * 60 + [150] * 40)
    assert told[99]["expected"]["work"] == "overloaded"
    assert told[99]["mid-term"] == {"work": "+5"}


def test_the_current_state_is_that_of_the_last_five_seconds_not_of_the_last_one():
    """Card, 2.6: of the last window 1.35 times the capacity came, in its last second three quarters of it."""
    _counts, told = _trace(Fission(windows=20, margin=0.99), [75] * 95 + [150] * 4 + [75])
    assert told[99]["state"]["work"] == "overloaded"
    assert told[99]["mid-term"] == {"work": "+5"}


def test_iteration_and_exact_solution_decide_the_same():
    rng = np.random.default_rng(4)
    rates = np.repeat(rng.uniform(0, 300, 60), 10)
    assert _trace(Fission(), rates)[0] == _trace(Fission(solver="iteration"), rates)[0]


def test_f10_events_lost_of_table_2():
    """Loss = 1 - elastic / SS2; the text prints 1.1 and 13.8 (truncated)."""
    table = {
        "1, 10 min": (185_353, 187_333, 1.057), "1, 60 min": (1_119_554, 1_224_341, 8.559),
        "2, 10 min": (186_843, 187_660, 0.435), "2, 60 min": (1_096_732, 1_112_899, 1.453),
        "3, 10 min": (329_574, 382_713, 13.885),
    }  # fmt: skip
    for elastic, ideal, percent in table.values():
        assert 100 * share_lost(elastic, ideal) == pytest.approx(percent, abs=1e-3)
    assert round(100 * share_lost(185_353, 187_333), 1) == 1.1
    assert math.floor(1000 * share_lost(329_574, 382_713)) / 10 == 13.8


def test_steps_of_one_cannot_flap_under_a_constant_load_and_steps_of_five_can():
    """Card, 6: with lower = upper / 2, going from n to n - 1 never makes an underloaded operator overloaded."""
    for n in range(2, 200):
        worst = Fraction(n, n - 1) * Fraction(1, 2)
        assert worst <= 1
    assert _trace(Fission(mid_term=False), [270] * 400, n=6)[0][-1] == 5  # 0.45 -> 0.54: balanced, and stays
    counts, _ = _trace(Fission(windows=20, replicas=0), [270] * 210, n=6)
    assert [counts[t] for t in (98, 99, 199)] == [6, 1, 6]


def test_the_backlog_is_not_in_the_load_unless_asked_for():
    for policy, state in ((Fission(), "underloaded"), (Fission(count_backlog=True), "overloaded")):
        held = policy.init(CHAIN)
        for t in range(1, 6):
            held, decision = policy.step(held, _snapshot(float(t), 1, 10, backlog=500.0))
        assert decision.why["state"]["work"] == state


def test_nothing_came_is_underloaded_even_where_the_capacity_is_unknown():
    policy, n = Fission(mid_term=False), 3
    state = policy.init(CHAIN)
    for t in range(1, 11):
        snapshot = _snapshot(float(t), n, 0.0)
        idle = replace(snapshot.operators["work"], true_rate=None)
        snapshot = replace(snapshot, operators={**snapshot.operators, "work": idle})
        state, decision = policy.step(state, snapshot)
    assert decision.deployment.parallelism["work"] == 2


def test_the_capacity_is_benchmarked_once_or_given_or_followed():
    for policy, load in ((Fission(), 0.5), (Fission(capacity="latest"), 1.0), (Fission(events_per_s={"work": 25}), 2)):
        state = policy.init(CHAIN)
        for t in range(1, 11):
            state, decision = policy.step(state, _snapshot(float(t), 1, 50.0, p1=100.0 if t < 6 else 50.0))
        assert decision.why["load"]["work"] == load


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan"), "many", True])
def test_a_capacity_of_nothing_is_refused(rate):
    with pytest.raises(ArgumentError, match="a finite number above 0"):
        Fission(events_per_s={"work": rate})


def test_unknown_operators_and_crossed_thresholds_are_refused():
    with pytest.raises(ArgumentError, match="a rate by operator"):
        Fission(events_per_s=[100])
    with pytest.raises(ArgumentError, match="some of"):
        Fission(events_per_s={"typo": 5}).init(CHAIN)
    with pytest.raises(KnobError, match="scale_in_below < scale_out_above"):
        Fission(scale_in_below=0.9, scale_out_above=0.8)
