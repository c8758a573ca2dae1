"""Against closed forms and sums that are written out here, not against our own code."""

from math import exp, factorial, log

import pytest

from dspkit.core.queueing import erlang_c, percentiles, sojourn


@pytest.mark.parametrize("servers", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("utilisation", [0.05, 0.5, 0.9, 0.99])
def test_erlang_c_is_the_textbook_sum(servers, utilisation):
    a = servers * utilisation
    last = a**servers / factorial(servers) / (1 - utilisation)
    expected = last / (sum(a**n / factorial(n) for n in range(servers)) + last)
    assert erlang_c(servers, a) == pytest.approx(expected, rel=1e-12)


def test_erlang_c_at_and_beyond_capacity_is_one():
    assert erlang_c(3, 3.0) == erlang_c(3, 5.0) == 1.0
    assert erlang_c(3, 0.0) == 0.0


@pytest.mark.parametrize(
    ("arrivals", "rate", "servers", "expected"),
    [(3, 5, 1, 0.5), (3, 2, 2, 8 / 7), (10, 4, 3, 0.6011236), (10, 4, 4, 0.3033095), (10, 4, 5, 0.2630371)],
)
def test_sojourn_times_of_the_drs_card(arrivals, rate, servers, expected):
    """Example D1 of the AuTraScale card."""
    assert sojourn(servers, arrivals, 1 / rate)[0] == pytest.approx(expected, abs=1e-6)


def test_one_server_is_exponential():
    """M/M/1: the time in the system is exponential with rate mu - lambda."""
    mean, variance = sojourn(1, 3.0, 0.2)
    assert (mean, variance) == (pytest.approx(1 / 2), pytest.approx(1 / 4))
    shares = (0.5, 0.95, 0.99)
    assert percentiles(mean, variance, shares) == pytest.approx([-log(1 - s) / 2 for s in shares])
    assert 1 - exp(-2 * percentiles(mean, variance, [0.9])[0]) == pytest.approx(0.9)


def test_a_time_that_does_not_vary_has_one_percentile():
    assert percentiles(0.3, 0.0, (0.5, 0.99)) == [0.3, 0.3]
