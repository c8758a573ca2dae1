"""Knobs refuse what is out of range, and tell sliders what they need."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pytest

from dspkit.core import FrozenMap, KnobError, Knobs, call, knob, knobs_of
from dspkit.policies.static import Static
from dspkit.simulator import Service


@dataclass(frozen=True)
class Rule(Knobs):
    whole: int = knob(3, "a count", low=1, high=9)
    share: float = knob(0.5, "a share", low=0.0, high=1.0, unit="-", source="its paper")
    mode: str = knob("a", "a way", choices=("a", "b"))
    open_end: float = knob(1.0, "any rate", low=0.0, high=math.inf)
    room: float = knob(math.inf, "any rate, or no limit", low=0.0, high=math.inf, infinite=True)
    on: bool = knob(True, "a switch", choices=(True, False))
    note: str = ""
    least: int | None = None


@pytest.mark.parametrize(
    "wrong",
    [
        {"whole": 0}, {"whole": 10}, {"whole": 2.0}, {"whole": "3"}, {"whole": True},
        {"share": -0.1}, {"share": 1.01}, {"share": math.nan}, {"share": None}, {"mode": "c"}, {"open_end": -1},
        {"open_end": math.inf}, {"open_end": 10**400}, {"room": -math.inf}, {"share": np.bool_(True)},
        {"whole": np.float64(2)}, {"room": "inf"}, {"on": 2},
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_name(wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(KnobError) as error:
        Rule(**wrong)
    assert f"Rule.{name} = {value!r}" in str(error.value)
    assert "; expected " in str(error.value)


def test_what_is_in_range_is_taken():
    assert Rule(whole=9, share=1, mode="b", open_end=1e12, room=math.inf).share == 1


def test_numbers_of_any_kind_are_kept_as_plain_ones():
    rule = Rule(whole=np.int64(4), share=np.float32(0.25), open_end=3, room=Fraction(1, 2), on=0)
    assert rule == Rule(whole=4, share=0.25, open_end=3.0, room=0.5, on=False)
    assert [type(v) for v in (rule.whole, rule.share, rule.open_end, rule.room, rule.on)] == [
        int, float, float, float, bool,
    ]  # fmt: skip
    assert [Rule(whole=k).whole for k in np.arange(1, 4)] == [1, 2, 3]


def test_knobs_are_read_from_a_class_and_from_what_is_made_of_it():
    assert [k.name for k in knobs_of(Rule)] == ["whole", "share", "mode", "open_end", "room", "on"]
    values = {k.name: k for k in knobs_of(Rule(share=0.25))}
    assert (values["share"].value, values["share"].unit, values["share"].source) == (0.25, "-", "its paper")


def test_call_shows_what_differs_and_makes_the_same_again():
    rule = Rule(whole=4, mode="b", note="it's")
    assert call(rule) == "Rule(whole=4, mode='b', note=\"it's\")"
    assert eval(call(rule)) == rule  # text of ours, in a test
    assert call(Service()) == "Service()"


@dataclass(frozen=True)
class Many:
    """Fields of every kind that a call has to write."""

    rules: Mapping[str, Rule] = field(default_factory=FrozenMap)
    pair: tuple[object, ...] = ()
    least: int | None = None


@pytest.mark.parametrize(
    "thing",
    [
        Many(least=0),
        Many(FrozenMap(a=Rule(), b=Rule(whole=5))),
        Many(pair=(math.inf,)),
        Many(pair=(-math.inf, (Rule(least=0), None))),
        Many(pair=tuple(range(20))),
        Static(),
        Static({"a": 3}),
        Service(queue_records=math.inf, selectivity={"b": 0.5}),
    ],
    ids=repr,
)
def test_nested_values_are_code_too(thing):
    assert eval(call(thing)) == thing


def test_what_is_falsy_is_shown_where_it_differs():
    assert call(Many(least=0)) == "Many(least=0)"
    assert call(Static()) == "Static()"


def test_a_long_sequence_is_summed_up():
    assert call(Many(pair=tuple(range(21)))) == "Many(pair=<21 values, 0 to 20>)"
