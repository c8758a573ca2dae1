"""Markov chains of operator states, against theory, networkx and numpy's eigenvectors."""

from itertools import product

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit.core import DspkitError
from dspkit.forecasting import markov


def _random(rng, n, k=3):
    """Chains with many zeros, so that periodic and reducible ones come up."""
    weight = rng.random((n, k, k)) * (rng.random((n, k, k)) < 0.6)
    weight[weight.sum(axis=2) == 0] = 1
    return weight / weight.sum(axis=2, keepdims=True)


def _classes(matrix):
    """The closed classes, by networkx."""
    graph = nx.from_numpy_array(np.asarray(matrix) > 0, create_using=nx.DiGraph)
    return [sorted(c) for c in nx.attracting_components(graph)]


@pytest.mark.parametrize("length", range(1, 10))
def test_every_history_up_to_nine_states_has_one_stationary_distribution(length):
    """All 29 523 of them, card 2.6: with uniform rows one closed class, whatever the history."""
    histories = np.array(list(product(range(3), repeat=length)))
    matrix = markov.transition_matrix(histories)
    e = markov.stationary(matrix)  # would raise, were there two closed classes
    assert np.abs(np.einsum("ni,nij->nj", e, matrix) - e).max() < 1e-14
    assert np.abs(e.sum(axis=1) - 1).max() < 1e-14
    if length < 6:
        assert all(len(_classes(m)) == 1 for m in matrix)


def test_with_self_loops_3039_of_them_have_several():
    """Exactly those that miss a state: sum over lengths of 3 * 2^n - 3."""
    several = 0
    for length in range(1, 10):
        histories = np.array(list(product(range(3), repeat=length)))
        _, lost = markov._trees(markov.transition_matrix(histories, unvisited="self"))
        assert all(len(set(h.tolist())) < 3 for h in histories[lost])
        several += len(lost)
    assert several == sum(3 * 2**n - 3 for n in range(1, 10)) == 3039


@given(seed=st.integers(0, 10**6), k=st.integers(1, 6))
def test_stationary_is_that_of_networkx_and_of_the_eigenvectors(seed, k):
    for matrix in _random(np.random.default_rng(seed), 4, k):
        classes = _classes(matrix)
        if len(classes) > 1:
            with pytest.raises(DspkitError, match=f"{len(classes)} closed classes"):
                markov.stationary(matrix)
            continue
        e = markov.stationary(matrix)
        assert e @ matrix == pytest.approx(e, abs=1e-12)
        assert set(np.flatnonzero(e > 0)) == set(classes[0])
        values, vectors = np.linalg.eig(matrix.T)
        vector = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        assert e == pytest.approx(vector / vector.sum(), abs=1e-6)


@given(seed=st.integers(0, 10**6), k=st.sampled_from([2, 3, 4]))
def test_with_several_classes_the_average_over_time_from_the_start_is_meant(seed, k):
    """Against the mean of 2^40 powers, summed by doubling."""
    for matrix in _random(np.random.default_rng(seed), 4, k):
        power, total = matrix.copy(), np.eye(k)
        for _ in range(40):  # total = I + P + ... + P^(2^n - 1)
            total = (total + total @ power) / 2
            power = power @ power
            power /= power.sum(axis=1, keepdims=True)
        for start in range(k):
            assert markov.stationary(matrix, start=start) == pytest.approx(total[start], abs=1e-6)


def test_closed_form_and_state_reduction_agree_on_three_states():
    chains = _random(np.random.default_rng(1), 500)
    e, lost = markov._trees(chains)
    for i in set(range(500)) - set(lost.tolist()):
        assert markov._by_classes(chains[i], -1) == pytest.approx(e[i], abs=1e-12)


def test_thousands_at_once_are_each_by_themselves():
    rng = np.random.default_rng(2)
    histories = rng.integers(0, 3, (400, 100))
    together = markov.predict(histories)
    assert together.tolist() == [int(markov.predict(h)) for h in histories]
    by_words = markov.predict("".join(markov.STATES[s] for s in histories[0]))
    assert by_words == together[0]


def test_transitions_are_counted_as_one_counts_by_hand():
    rng = np.random.default_rng(3)
    for _ in range(20):
        history = rng.integers(0, 3, rng.integers(1, 40))
        count = np.zeros((3, 3))
        for a, b in zip(history[:-1], history[1:], strict=True):
            count[a, b] += 1
        for fill, row in (("uniform", lambda a: np.full(3, 1 / 3)), ("self", lambda a: np.eye(3)[a])):
            expected = [count[a] / count[a].sum() if count[a].any() else row(a) for a in range(3)]
            assert markov.transition_matrix(history, unvisited=fill) == pytest.approx(np.array(expected), abs=1e-15)


@pytest.mark.parametrize("cycle", [(1, 0), (1, 2, 0), (0,)])
def test_six_averaged_iterates_cancel_every_cycle_of_three_states(cycle):
    matrix = np.eye(len(cycle))[list(cycle)]
    start = np.eye(len(cycle))[0]
    assert markov.iterate(matrix, 50, start) == pytest.approx(markov.stationary(matrix), abs=1e-14)


def test_iteration_comes_to_the_exact_solution():
    histories = np.random.default_rng(5).integers(0, 3, (300, 100))
    matrix = markov.transition_matrix(histories)
    assert np.abs(markov.iterate(matrix, 200) - markov.stationary(matrix)).max() < 1e-9


def test_equals_o_goes_before_b_and_the_current_state_before_both():
    third = np.full(3, 1 / 3)
    assert [int(markov.choose(third, now, 0.0)) for now in range(3)] == [0, 1, 2]
    assert markov.choose((0.0, 0.5, 0.5), markov.U, 0.2) == markov.O
    assert markov.choose((0.3, 0.2, 0.5), markov.U, 0.2) == markov.U  # exactly S more is not more than S
    assert markov.choose((0.1 + 0.2, 0.2, 0.5), markov.U, 0.2) == markov.U  # nor is a rounding error


def test_classes_of_load_are_strict_on_both_sides():
    loads = np.array([[0.0, 0.5, np.nextafter(0.5, 0)], [1.0, np.nextafter(1.0, 2), 9.0]])
    assert markov.classify(loads).tolist() == [[0, 1, 0], [1, 2, 2]]
    assert int(markov.classify(0.9, upper=0.8)) == markov.O


@pytest.mark.parametrize(
    "history", ["", "UXB", [0, 3], [0.5, 1], [-1], [[[0]]], "word", None, [True], [[0, 1], [1]], ["UB", "O"], ["UB", 1]]
)
def test_what_is_no_history_is_refused(history):
    with pytest.raises(DspkitError):
        markov.predict(history)


@pytest.mark.parametrize(
    "matrix", [[[1, 0]], [[0.5, 0.4], [0, 1]], [[2, -1], [0, 1]], [], [[float("nan"), 1], [0, 1]], "UB", [[1], [1, 0]]]
)
def test_what_is_no_chain_is_refused(matrix):
    with pytest.raises(DspkitError):
        markov.stationary(matrix)


NAN = float("nan")


@pytest.mark.parametrize(
    "call",
    [
        lambda: markov.choose((1, 0, 0), 0, 0.2, "other"),
        lambda: markov.choose((1, 0, 0), 0, -0.1),
        lambda: markov.choose((1, 0, 0), 0, NAN),
        lambda: markov.choose((1, 0, 0), 3),
        lambda: markov.choose((1, 0, 0), -1),
        lambda: markov.choose((1, 0, 0), 1.5),
        lambda: markov.choose((1, 0, 0), [0, 1]),
        lambda: markov.choose((NAN, 0, 1), 0),
        lambda: markov.choose("UBO", 0),
        lambda: markov.predict("UBO", current="X"),
        lambda: markov.transition_matrix("UB", unvisited="other"),
        lambda: markov.transition_matrix([0, 1], k=2.5),
        lambda: markov.transition_matrix([0, 1], k=0),
        lambda: markov.iterate(np.eye(3), 0),
        lambda: markov.iterate(np.eye(3), 2.5),
        lambda: markov.iterate(np.eye(3), start=(5, 0, 0)),
        lambda: markov.iterate(np.eye(3), start=(2, -1, 0)),
        lambda: markov.iterate(np.eye(3), start=(1, 0)),
        lambda: markov.stationary(np.eye(3), start=3),
        lambda: markov.classify([0.5, NAN]),
        lambda: markov.classify([-0.1]),
        lambda: markov.classify("many"),
        lambda: markov.classify([0.5], lower=1.0, upper=0.5),
    ],
)
def test_what_makes_no_sense_is_refused_and_never_a_silent_number(call):
    with pytest.raises(DspkitError):
        call()


def test_letters_do_for_states_wherever_states_are_asked_for():
    assert markov.predict(["UUUUB", "UUBOO"]).tolist() == markov.predict([[0, 0, 0, 0, 1], [0, 0, 1, 2, 2]]).tolist()
    assert markov.predict("BBOOBBOOBBOO", current="B") == markov.B
    assert markov.choose([(0.1, 0.2, 0.7)] * 3, "UBO").tolist() == [2, 2, 2]
    assert markov.stationary(np.eye(3), start="O").tolist() == [0, 0, 1]


def test_chances_too_small_to_multiply_are_still_solved():
    """Products of 1e-200 are 0 in floating point: then state by state, not all at once."""
    e = markov.stationary([[1 - 1e-200, 1e-200, 0], [1e-200, 1 - 1e-200, 0], [0, 1, 0]])
    assert e == pytest.approx([0.5, 0.5, 0], abs=1e-12)
