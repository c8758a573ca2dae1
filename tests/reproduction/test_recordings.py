"""Recordings of others: the arithmetic against a job that the simulator itself played, and the page that is made."""

import numpy as np
import pytest

from reproduction.recordings import (
    FOLDER,
    HEAD,
    PAGE,
    Recording,
    backlog,
    catch_ups,
    chart,
    compared,
    fitted,
    means,
    phoebe,
    simulate,
)


def _played(per_worker=1000.0, pause_s=20.0):
    """A job with known numbers: a square load, and a worker more or less at each step."""
    seconds = np.arange(3 * 3600)
    offered = np.where(seconds // 600 % 2, 3500.0, 1500.0)
    workers = np.where((seconds - 60) // 600 % 2, 5.0, 2.0)
    made = Recording("made", "here", offered, workers, offered, np.ones(len(seconds)), None)
    seen = simulate(made, per_worker, pause_s, 1.0, len(seconds))
    return Recording(
        "made",
        "here",
        offered,
        workers,
        np.repeat(seen.done, 60),
        np.repeat(seen.latency_s, 60),
        np.repeat(seen.lag, 60),
    )


def test_the_fluid_of_the_fit_is_the_simulators():
    made = _played()
    rates, workers = means(made.offered, 10), made.workers[::10]
    done, lag = backlog(rates.tolist(), workers.tolist(), 1000.0, 20.0)
    assert means(done, 6) == pytest.approx(means(made.done), rel=1e-6, abs=1e-3)
    at_ends = lag.reshape(-1, 6).mean(axis=1)
    assert at_ends == pytest.approx(means(made.lag), rel=0.02, abs=200.0)


def test_known_numbers_are_found_from_the_first_third_and_predict_the_rest():
    made = _played()
    per_worker, pause_s, usual = fitted(made)
    assert per_worker == pytest.approx(1000.0, rel=0.08)  # the grid's steps are 7 %
    assert pause_s == 20.0
    seen = simulate(made, per_worker, pause_s, usual, len(made.offered))
    errors = compared(made, seen, usual, slice(made.third // 60, None))
    assert errors["throughput, mean error"] < 0.03
    assert errors["throughput, mean error"] < 0.3 * errors["the same if it always kept up"]
    assert errors["minutes late, predicted"] == pytest.approx(errors["minutes late, recorded"], abs=10)


def test_times_to_catch_up_end_at_the_next_change():
    workers = np.array([2, 2, 3, 3, 3, 4, 4, 4, 4])
    latency = np.array([1, 1, 9, 9, 9, 9, 9, 1, 1.0])
    assert catch_ups(latency, workers, 1.0) == [(1, 3), (4, 3)]


def test_a_change_is_late_from_the_minute_in_which_it_was_made_and_may_be_late_after_one_that_is_not():
    workers = np.array([2, 2, 2, 3, 3, 3, 3, 4, 4])  # made in the minutes 2 and 6
    assert catch_ups(np.array([1, 1, 9, 9, 1, 1, 1, 1, 1.0]), workers, 1.0) == [(2, 2), (6, 0)]
    assert catch_ups(np.array([1, 1, 1, 9, 9, 1, 1, 1, 9.0]), workers, 1.0) == [(2, 3), (6, 3)]


def test_charts_hold_both_curves():
    svg = chart(np.arange(10.0), np.arange(10.0), 3, "records per second")
    assert svg.count("<polyline") == 2
    assert "nan" not in svg


def test_the_page_is_that_of_the_command():
    text = PAGE.read_text()
    assert text.startswith(HEAD.split("\n")[0])
    assert text.count("throughput, mean error") == 2
    for line in text.splitlines():
        if line.startswith("!["):
            assert (PAGE.parent / line.rpartition("](")[2].rstrip(")")).exists()


@pytest.mark.recorded
def test_the_fit_on_the_page_is_that_of_the_recording():
    per_worker, pause_s, usual = fitted(phoebe(FOLDER))
    said = f"Fitted: {per_worker:,.0f} records/s per worker, {pause_s:g} s for a change; usual latency {usual:.2f} s."
    assert said in PAGE.read_text()
