"""Loads: known values, means that theory gives, the same seed the same load."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit.core import KnobError, WorkloadError, call
from dspkit.workload import Bursts, Constant, Jump, PoissonModulated, Scaled, Sine, Square, Stair, Sum, Trace

DAY = np.arange(0, 86_400.0)
RANDOM = [Bursts(seed=3), PoissonModulated(seed=3)]
ALL = [Constant(), Jump(), Stair(), Sine(), Square(), *RANDOM, Trace((0, 5), (1, 2)), Constant(5) + Sine() * 2]


@pytest.mark.parametrize("load", ALL, ids=lambda load: type(load).__name__)
def test_every_load_is_a_pure_function_of_time(load):
    rates = load.rates(DAY[:2000])
    assert rates.shape == (2000,)
    assert (rates >= 0).all()
    assert np.isfinite(rates).all()
    shuffled = np.random.default_rng(0).permutation(2000)
    np.testing.assert_array_equal(load.rates(DAY[shuffled]), rates[shuffled])  # order and horizon do not matter
    assert load.rate(7.0) == rates[7]


def test_known_values():
    assert [Jump(1, 2, at_s=10).rate(t) for t in (0, 9.99, 10)] == [1, 1, 2]
    assert [Stair(10, 5, every_s=10, steps=2).rate(t) for t in (0, 10, 20, 30)] == [10, 15, 20, 20]
    assert [Square(1, 9, 10, duty=0.3).rate(t) for t in (0, 2.9, 3, 10)] == [9, 9, 1, 9]
    assert Sine(10, 5, 8).rate(2) == 15
    assert Sine(10, 5, 8, phase_s=1).rate(3) == 15  # the crest, a second late
    assert Sine(1, 5, 8).rate(6) == 0  # cut off, not negative
    trace = Trace((10, 20), (1, 2))
    assert [trace.rate(t) for t in (0, 10, 19.9, 20, 99)] == [1, 1, 1, 2, 2]
    assert ((Constant(2) + Constant(3)) * 2).rate(0) == 10
    assert Sum(()).rate(0) == 0


def test_means_are_those_of_theory():
    assert Sine(10, 5, 100).rates(DAY).mean() == pytest.approx(10, rel=1e-6)
    assert Square(1, 9, 100, duty=0.25).rates(DAY).mean() == pytest.approx(3)
    assert Bursts(10, 110, period_s=100, burst_s=10).rates(DAY).mean() == pytest.approx(20)


def test_the_modulated_rate_is_busy_its_share_of_the_time():
    """Share busy = 100 / 400. Over n = 2,000 cycles its standard error is 0.0042; 5 sigma: false alarm 6e-7."""
    load = PoissonModulated(0, 1, stay_low_s=300, stay_high_s=100, seed=11)
    share = load.rates(np.arange(0, 800_000.0)).mean()
    assert share == pytest.approx(0.25, abs=5 * 0.0042)


@pytest.mark.parametrize("kind", [Bursts, PoissonModulated])
def test_seeds_differ(kind):
    assert (kind(seed=1).rates(DAY) != kind(seed=2).rates(DAY)).any()


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_a_trace_survives_its_file(rates):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        table = pd.DataFrame({"when": np.arange(len(rates)) * 2.5, "n": rates})
        for suffix, save in ((".csv", table.to_csv), (".parquet", table.to_parquet)):
            save(f"{folder}/trace{suffix}")
            loaded = Trace.load(f"{folder}/trace{suffix}", time="when", rate="n")
            assert loaded == Trace(tuple(table.when), tuple(rates))


@pytest.mark.parametrize(
    ("times", "rates", "message"),
    [
        ((0, 1), (1, -1), "row 1: t=1.0, rate=-1.0"),
        ((0, 1), (math.nan, 1), "row 0"),
        ((0, 1, 1), (1, 1, 1), "row 2: t=1.0 after t=1.0"),
        ((0, 1), (1,), "2 times and 1 rates"),
        ((), (), "at least one"),
        (("x",), (1,), "times_s: could not convert"),
        ((0,), (None,), "rates_per_s: float"),
        (0, (1,), "times_s: 'int' object is not iterable"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_by_row(times, rates, message):
    with pytest.raises(WorkloadError, match=message):
        Trace(times, rates)


def test_a_file_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("t,rate\n0,5\n1,many\n")
    with pytest.raises(WorkloadError, match="row 1"):
        Trace.load(tmp_path / "a.csv")
    with pytest.raises(WorkloadError, match=r"expected a column 'load'"):
        Trace.load(tmp_path / "a.csv", rate="load")
    (tmp_path / "a.parquet").write_text("no")
    for name, message in (
        ("a.parquet", "readable table"),
        ("none.csv", "readable table"),
        ("a.xls", r"\.csv or \.parquet"),
    ):
        with pytest.raises(WorkloadError, match=message):
            Trace.load(tmp_path / name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(-1),
        lambda: Constant(math.nan),
        lambda: Constant(5) * -1,
        lambda: Constant(5) + -1,
        lambda: Constant(math.inf),
        lambda: Constant(5) * math.inf,
        lambda: Constant(10**400),
    ],
)
def test_rates_below_zero_or_without_end_are_refused(make):
    with pytest.raises(KnobError, match="finite number from 0"):
        make()


def test_a_rise_without_end_is_refused():
    with pytest.raises(KnobError, match="finite number"):
        Stair(10, math.inf, steps=0)


def test_loads_add_up_with_each_other_and_with_numbers():
    load, other = Constant(2), Jump(1, 5, at_s=10)
    assert [(load + 3).rate(0), (3 + load).rate(0), (load + np.float64(3)).rate(0)] == [5, 5, 5]
    assert [sum([load, other, load]).rate(t) for t in (0, 10)] == [5, 9]
    assert load + 0 is load
    with pytest.raises(TypeError, match="unsupported operand"):
        load + "3"


@pytest.mark.parametrize("make", [lambda: Sum((Constant(1), 2)), lambda: Sum(3), lambda: Scaled(3, 2)])
def test_what_is_no_load_is_refused(make):
    with pytest.raises(WorkloadError, match="load"):
        make()


@pytest.mark.parametrize("load", [*ALL, (Trace((0,), (5,)) + 3) * 0.5, Sum([Constant(1)])], ids=repr)
def test_its_call_makes_the_same_load_again(load):
    for text in (call(load), repr(load)):
        assert eval(text) == load  # text of ours, in a test


def test_a_long_trace_is_no_code():
    trace = Trace(range(600), [7.0] * 600)
    assert (
        call(trace) == repr(trace) == "Trace(times_s=<600 values, 0.0 to 599.0>, rates_per_s=<600 values, 7.0 to 7.0>)"
    )
    with pytest.raises(SyntaxError):
        compile(call(trace * 2), "load", "eval")


def test_a_stair_below_zero_is_refused():
    with pytest.raises(WorkloadError, match="no stair below zero"):
        Stair(10, -6, steps=2)
