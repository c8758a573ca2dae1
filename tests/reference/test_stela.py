"""Stela's worked examples, exactly, and the numbers its evaluation prints."""

from itertools import combinations

import pytest

from dspkit import etp

# Figure 2, rebuilt so that every printed number holds; congestion rate 1.
EDGES = [(1, 2), (1, 3), (2, 4), (3, 5), (3, 6), (5, 7), (5, 8), (6, 9), (6, 10)]
DONE = {1: 5000, 2: 5000, 3: 2000, 4: 2000, 5: 2000, 6: 500, 7: 1000, 8: 1000, 9: 250, 10: 250}
EMIT = {
    (1, 2): 5000, (1, 3): 5000, (2, 4): 5000, (3, 5): 2000, (3, 6): 2000, (5, 7): 1000, (5, 8): 1000,
    (6, 9): 250, (6, 10): 250,
}  # fmt: skip
FIGURE_2 = etp.Rates(DONE, EMIT, {1: 6000})
TWO, FOUR = dict.fromkeys(DONE, 2), dict.fromkeys(DONE, 4)


def test_figure_2_is_consistent():
    assert etp.inputs(FIGURE_2) == {
        1: 6000, 2: 5000, 3: 5000, 4: 5000, 5: 2000, 6: 2000, 7: 1000, 8: 1000, 9: 250, 10: 250
    }  # fmt: skip
    assert etp.as_graph(EDGES).sinks == (4, 7, 8, 9, 10)
    assert sum(DONE[s] for s in (4, 7, 8, 9, 10)) == 4500


def test_figure_2_etp():
    assert etp.congested(EDGES, FIGURE_2, 1.0) == (1, 3, 4, 6)
    shares = etp.etp(EDGES, FIGURE_2, 1.0)
    assert shares == {
        1: 0, 2: 0, 3: 4 / 9, 4: 4 / 9, 5: 4 / 9, 6: 1 / 9, 7: 2 / 9, 8: 2 / 9, 9: 1 / 18, 10: 1 / 18
    }  # fmt: skip
    assert [f"{shares[o]:.0%}" for o in (3, 4, 6, 1)] == ["44%", "44%", "11%", "0%"]
    ranked = etp.rank(EDGES, FIGURE_2, 1.0)
    assert ranked.operator[ranked.congested].tolist() == [3, 4, 6, 1]
    assert dict(zip(ranked.operator, ranked.reason, strict=True))[3] == "reaches 7, 8 unhindered; blocked by 6"


TRACE = [  # slot by slot: ETP of the congested ones, who is chosen, its new rate
    ({1: 0, 3: 4 / 9, 4: 4 / 9, 6: 1 / 9}, 3, 3000),
    ({1: 0, 3: 0, 4: 4 / 9, 5: 4 / 9, 6: 1 / 9}, 4, 3000),
    ({1: 0, 3: 0, 4: 6 / 11, 5: 4 / 11, 6: 1 / 11}, 4, 4000),
    ({1: 0, 3: 0, 4: 8 / 13, 5: 4 / 13, 6: 1 / 13}, 4, 5000),
    ({1: 2 / 3, 3: 0, 5: 4 / 15, 6: 1 / 15}, 1, 7500),
    ({2: 2 / 3, 3: 0, 5: 4 / 15, 6: 1 / 15}, 2, 7500),
]


def test_the_projected_trace():
    chosen = etp.scale_out(EDGES, FIGURE_2, TWO, ["n"], 6, congestion_rate=1.0)
    for slot, (candidates, operator, rate) in zip(chosen, TRACE, strict=True):
        assert slot.candidates == pytest.approx(candidates)
        assert (slot.operator, slot.processing_rate) == (operator, rate)


@pytest.mark.parametrize(
    ("rate", "limits", "targets"),
    [(1.2, None, [3, 4, 4, 4, 5, 7]), (1.0, FOUR, [3, 4, 4, 5, 7, 3]), (1.2, FOUR, [3, 4, 4, 5, 7, 3])],
)
def test_other_settings_of_the_trace(rate, limits, targets):
    chosen = etp.scale_out(EDGES, FIGURE_2, TWO, ["n"], 6, limits=limits, congestion_rate=rate)
    assert [slot.operator for slot in chosen] == targets


def test_the_boundary_of_congestion():
    for came, done, stuck in ((120, 100, False), (121, 100, True), (5, 0, True), (0, 0, False)):
        assert (etp.congested([("a", "b")], {"a": (1, 1), "b": (came, done)}) == ("b",)) == stuck


def test_graphs_in_which_paths_meet():
    fan = [("s", m) for m in "abc"] + [(m, "t") for m in "abc"]
    free = dict.fromkeys("sabct", (1, 1))
    assert etp.etp(fan, free)["s"] == 1
    assert etp.etp(fan, free, tree_sum=True)["s"] == 3
    two = [("a", "b"), ("a", "c"), ("b", "t1"), ("b", "t2"), ("c", "t2")]
    rates = {"a": (100, 100), "b": (50, 50), "c": (50, 50), "t1": (30, 30), "t2": (70, 70)}
    assert etp.etp(two, rates)["a"] == 1
    assert etp.etp(two, rates, tree_sum=True)["a"] == pytest.approx(1.7)
    stuck = {**rates, "b": (70, 50)}
    assert etp.etp(two, stuck)["a"] == etp.etp(two, stuck, tree_sum=True)["a"] == 0.7


def test_slots_and_their_machines():
    assert [etp.slots(24, 6, 1), etp.slots(25, 6, 2), etp.slots(12, 4, 1)] == [4, 8, 3]
    chosen = etp.scale_out(EDGES, FIGURE_2, TWO, ["n1", "n2"], 5)
    assert [slot.machine for slot in chosen] == ["n1", "n2", "n1", "n2", "n1"]


def test_without_congestion_sources_take_turns():
    edges = [("s1", "t"), ("s2", "t")]
    calm = {"s1": (0, 10), "s2": (0, 10), "t": (20, 20)}
    chosen = etp.scale_out(edges, calm, dict.fromkeys(calm, 1), ["n"], 3)
    assert [(slot.operator, dict(slot.candidates)) for slot in chosen] == [("s1", {}), ("s2", {}), ("s1", {})]


def test_more_of_a_source_may_congest_what_it_feeds():
    rates = etp.Rates({"s": 10, "t": 10}, {("s", "t"): 10})
    chosen = etp.scale_out([("s", "t")], rates, {"s": 1, "t": 1}, ["n"], 2)
    assert [slot.operator for slot in chosen] == ["s", "t"]


def test_scale_in():
    shares = {"A": 0.2, "B": 0, "C": 0.8, "D": 0.8, "E": 0.2}
    held = {"m1": "AB", "m2": "BBE", "m3": "CD", "m4": "CE"}
    placement, seen = {}, dict.fromkeys("ABCDE", 0)
    for machine, operators in held.items():
        for o in operators:
            placement[o, seen[o]] = machine
            seen[o] += 1
    order = [("A", "B"), ("B", "C"), ("C", "D"), ("D", "E")]
    first, second = etp.scale_in(order, placement, shares, 2)
    assert first.sums == pytest.approx({"m1": 0.2, "m2": 0.2, "m4": 1.0, "m3": 1.6})
    assert (first.machine, first.moves) == ("m1", {("A", 0): "m2", ("B", 0): "m4"})
    assert second.sums == pytest.approx({"m2": 0.4, "m4": 1.0, "m3": 1.6})
    assert second.machine == "m2"
    assert [(o, m) for (o, _), m in second.moves.items()] == [("A", "m4"), ("B", "m3"), ("B", "m4"), ("E", "m3")]


def test_a_lucky_choice():
    """The paper's 0.21: four of eight drawn at random contain both best ones."""
    drawn = list(combinations(range(8), 4))
    assert sum({0, 1} <= set(d) for d in drawn) / len(drawn) == 15 / 70


def test_convergence_and_down_time():
    x = [0, 0, 20, 60, 110, 95, 103, 98, 101, 99, 102, 98]
    assert etp.convergence_s(x) == 90
    assert etp.downtime_s(x) == 20
    assert etp.convergence_s([0, 0, 50, 100, 100]) == float("inf")
