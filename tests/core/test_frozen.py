"""Frozen mappings stay frozen; plain values go through JSON and come back equal."""

import copy
import json
import math
import pickle
from enum import Enum, StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit.core import FrozenMap, plain


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.__setitem__("a", 2),
        lambda m: m.__delitem__("a"),
        lambda m: m.clear(),
        lambda m: m.pop("a"),
        lambda m: m.pop("z", None),
        lambda m: m.popitem(),
        lambda m: m.setdefault("z", 1),
        lambda m: m.update(b=2),
        lambda m: m.__ior__({"b": 2}),
    ],
)
def test_every_change_is_refused(change):
    frozen = FrozenMap(a=1)
    with pytest.raises(TypeError, match="frozen"):
        change(frozen)
    assert frozen == {"a": 1}


def test_a_second_init_changes_nothing():
    frozen = FrozenMap(a=1)
    before = hash(frozen)
    frozen.__init__(b=2)
    frozen.__init__({"a": 5})
    assert frozen == {"a": 1}
    assert hash(frozen) == before


def test_it_is_made_as_a_dict_is_and_copies_what_it_is_made_of():
    given_ = {"a": 1}
    frozen = FrozenMap(given_, b=2)
    given_["a"] = 9
    assert frozen == FrozenMap([("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    assert FrozenMap() == {}
    made = FrozenMap.fromkeys("ab", 0)
    assert made == {"a": 0, "b": 0}
    assert type(made) is FrozenMap
    for twin in (pickle.loads(pickle.dumps(frozen)), copy.deepcopy(frozen)):
        assert (twin, type(twin), hash(twin)) == (frozen, FrozenMap, hash(frozen))


class Colour(Enum):
    RED = "red"


class Word(StrEnum):
    YES = "yes"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (np.float64("nan"), None),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        ([1, math.nan, {"x": np.float32("inf")}], (1, None, {"x": "inf"})),
        (np.array([1.0, math.nan]), (1.0, None)),
        (np.array([[1, 2], [3, 4]]), ((1, 2), (3, 4))),
        (np.bool_(True), True),
        ({3, 1, 2}, (1, 2, 3)),
        ({"c", "a", "b", "e", "d", "f"}, tuple("abcdef")),
        (frozenset({1, "1"}), ("1", 1)),
        ({1: "x", "1": "y"}, {"1": "x", "'1'": "y"}),
        ({"None": 1, None: 2}, {"None": 1, "'None'": 2}),
        (Word.YES, "yes"),
        (Colour.RED, "Colour.RED"),
    ],
)
def test_known_values(value, expected):
    made = plain(value)
    assert made == expected
    assert type(made) is type(plain(expected))
    assert plain(json.loads(json.dumps(made, allow_nan=False))) == made


ANYTHING = st.recursive(
    st.sampled_from([None, True, math.nan, math.inf, -math.inf])
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1) | st.integers(0, 9), inner),
    max_leaves=8,
)


@given(ANYTHING)
def test_what_is_plain_stays_so_through_json_and_through_plain(value):
    made = plain(value)
    assert plain(made) == made
    assert plain(json.loads(json.dumps(made, allow_nan=False))) == made
    assert not isinstance(value, dict) or len(made) == len(value)
    hash(made)
