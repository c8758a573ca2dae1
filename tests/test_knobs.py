"""Knobs refuse what is out of range, and tell sliders what they need."""

import math
from dataclasses import dataclass

import pytest

from dspkit.errors import KnobError
from dspkit.knobs import Knobs, call, knob, knobs
from dspkit.plant import Service


@dataclass(frozen=True)
class Rule(Knobs):
    whole: int = knob(3, "a count", low=1, high=9)
    share: float = knob(0.5, "a share", low=0.0, high=1.0, unit="-", source="its paper")
    mode: str = knob("a", "a way", choices=("a", "b"))
    open_end: float = knob(1.0, "any rate", low=0.0, high=math.inf)
    note: str = ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"whole": 0}, {"whole": 10}, {"whole": 2.0}, {"whole": "3"}, {"whole": True},
        {"share": -0.1}, {"share": 1.01}, {"share": math.nan}, {"share": None}, {"mode": "c"}, {"open_end": -1},
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_name(wrong):
    name, value = next(iter(wrong.items()))
    with pytest.raises(KnobError) as error:
        Rule(**wrong)
    assert f"Rule.{name} = {value!r}" in str(error.value)


def test_what_is_in_range_is_taken():
    assert Rule(whole=9, share=1, mode="b", open_end=1e12).share == 1


def test_knobs_are_read_from_a_class_and_from_what_is_made_of_it():
    assert [k.name for k in knobs(Rule)] == ["whole", "share", "mode", "open_end"]
    values = {k.name: k for k in knobs(Rule(share=0.25))}
    assert (values["share"].value, values["share"].unit, values["share"].source) == (0.25, "-", "its paper")


def test_call_shows_what_differs_and_makes_the_same_again():
    rule = Rule(whole=4, mode="b", note="it's")
    assert call(rule) == "Rule(whole=4, mode='b', note=\"it's\")"
    assert eval(call(rule)) == rule  # text of ours, in a test
    assert call(Service()) == "Service()"
