"""Each check accepts what it should as Python's own type, and refuses the rest with the error that was named."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit.core import ArgumentError, MetricError, WorkloadError
from dspkit.core.validation import choice, is_number, is_whole, mapping, members, number, numbers, share, whole

NO_NUMBERS = [True, np.True_, None, "1", math.nan, [1], 1j, object()]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1.0, math.inf])
def test_whole_numbers_are_integers_and_nothing_else(value):
    assert not is_whole(value)
    with pytest.raises(ArgumentError, match=r"seed=.*a whole number from 0 up"):
        whole(value, "seed")


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(0, 5))
def test_whole_numbers_within_bounds(value, low, width):
    for given_value in (value, np.int64(value)):
        if low <= value <= low + width:
            found = whole(given_value, "n", low, low + width)
            assert (found, type(found)) == (value, int)
        else:
            with pytest.raises(WorkloadError, match=f"from {low} to {low + width}"):
                whole(given_value, "n", low, low + width, error=WorkloadError)


@pytest.mark.parametrize("value", [*NO_NUMBERS, math.inf, -math.inf, 10**400])
def test_numbers_are_finite_unless_infinity_is_allowed(value):
    with pytest.raises(ArgumentError, match=r"rate=.*a finite number; pass such a number"):
        number(value, "rate")


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int8(1), Fraction(1)])
def test_numbers_become_floats(value):
    assert is_number(value)
    found = number(value, "rate", 0, 1)
    assert (found, type(found)) == (1.0, float)


@pytest.mark.parametrize(
    ("bounds", "good", "bad", "expected"),
    [
        (dict(low=0), 0, -1e-9, "a finite number from 0 up"),
        (dict(low=0, above=True), 1e-9, 0, "a finite number above 0"),
        (dict(low=0, high=1), 1, 1.01, "a number from 0 to 1"),
        (dict(low=0.5, high=1, below=True), 0.99, 1, "a number from 0.5 below 1"),
        (dict(low=0, infinite=True), math.inf, -math.inf, "a number from 0 up"),
        (dict(high=3), -5, 4, "a finite number to 3"),
    ],
)
def test_the_bounds_of_a_number_are_kept_and_told(bounds, good, bad, expected):
    assert number(good, "x", **bounds) == good
    with pytest.raises(ArgumentError) as error:
        number(bad, "x", **bounds)
    assert error.value.expected == expected


@pytest.mark.parametrize("value", [*NO_NUMBERS, -0.1, 1.1])
def test_shares_are_from_0_to_1(value):
    assert share(0.25, "x") == 0.25
    with pytest.raises(ArgumentError, match=r"a share from 0 to 1; as in 0\.8"):
        share(value, "x", fix="as in 0.8")


@pytest.mark.parametrize("value", ["c", None, 1, ["a"], ("a",)])
def test_choices_are_words_among_those(value):
    assert choice("a", "x", ("a", "b")) == "a"
    with pytest.raises(ArgumentError, match="one of a, b"):
        choice(value, "x", ("a", "b"))


def test_members_and_mappings():
    members([], ("a",), "operator")
    with pytest.raises(WorkloadError, match="operator 'b'; expected some of a"):
        members(("a", "b"), ("a",), "operator", error=WorkloadError)
    assert mapping({"a": 1}, "x", "a number by name") == {"a": 1}
    with pytest.raises(ArgumentError, match="x=5; expected a number by name"):
        mapping(5, "x", "a number by name")


@pytest.mark.parametrize("values", [["a"], [1, math.nan], [[1], [1, 2]], [math.inf], [10**400], [-1]])
def test_arrays_of_numbers(values):
    assert numbers([[1, 2]], "x", 0).tolist() == [[1.0, 2.0]]
    assert numbers([math.inf], "x", 0, infinite=True).tolist() == [math.inf]
    with pytest.raises(MetricError, match="finite numbers from 0 up"):
        numbers(values, "x", 0)


def test_what_is_long_is_cut_in_the_message():
    with pytest.raises(ArgumentError) as error:
        number("x" * 1000, "rate")
    assert len(error.value.got) < 100
