"""Measured values that cannot be, and what a snapshot says of itself."""

import dataclasses
import math

import pytest

from dspkit import Deployment, Latency, OperatorMetrics, Snapshot
from dspkit.core import InstanceMetrics, MetricError

GOOD = OperatorMetrics(100, 90, 180, true_rate=50, utilisation=0.9, backlog=10, parallelism=2, cpu=1.8)


@pytest.mark.parametrize("field", ["input_rate", "processing_rate", "output_rate", "true_rate", "backlog", "cpu"])
@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf, "12"])
def test_a_rate_that_cannot_be_is_refused_by_name(field, value):
    with pytest.raises(MetricError, match=rf"OperatorMetrics\.{field} = .*expected a finite number >= 0"):
        dataclasses.replace(GOOD, **{field: value})


def test_what_was_not_measured_is_none_not_zero():
    assert dataclasses.replace(GOOD, true_rate=None, cpu=None).true_rate is None
    with pytest.raises(MetricError):
        dataclasses.replace(GOOD, backlog=None)


def test_utilisation_is_a_share():
    with pytest.raises(MetricError, match=r"utilisation 1.2; expected a share 0\.\.1"):
        dataclasses.replace(GOOD, utilisation=1.2)


def _snapshot(**changed):
    values = {
        "t": 10.0, "window_s": 10.0, "deployment": Deployment({"a": 1, "b": 1}), "operators": {"a": GOOD},
        "source_rates": {"a": 100.0}, "throughput": 90.0, "latency": None, "event_latency": None, "lag": 0.0,
        "edge_rates": {("a", "b"): 180.0},
    }  # fmt: skip
    return Snapshot(**{**values, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"source_rates": {"a": -1}},
        {"edge_rates": {("a", "b"): math.nan}},
        {"nodes": {"n": -0.1}},
        {"lag": math.nan},
        {"throughput": -1},
    ],
)
def test_a_snapshot_with_such_a_value_is_refused(changed):
    with pytest.raises(MetricError, match=next(iter(changed))):
        _snapshot(**changed)


def test_latency_is_checked_too():
    with pytest.raises(MetricError, match=r"Latency\.p99"):
        Latency(1, 1, 1, -1)


def test_selectivity_is_known_only_where_something_was_processed():
    assert _snapshot().selectivity(("a", "b")) == 2.0
    idle = dataclasses.replace(GOOD, processing_rate=0.0)
    assert _snapshot(operators={"a": idle}).selectivity(("a", "b")) is None
    assert _snapshot(operators={}).selectivity(("a", "b")) is None
    assert _snapshot(edge_rates={}).selectivity(("a", "b")) is None


@pytest.mark.parametrize("parallelism", [0, -1, 2.5, "2"])
def test_instances_are_whole_and_at_least_one(parallelism):
    with pytest.raises(MetricError, match="parallelism"):
        dataclasses.replace(GOOD, parallelism=parallelism)


def test_a_share_a_rounding_above_one_is_one():
    """Live meters divide; 1 + 1e-12 must not end a run."""
    assert dataclasses.replace(GOOD, utilisation=1 + 1e-12, blocked=1 + 1e-9).utilisation == 1.0
    with pytest.raises(MetricError, match="blocked"):
        dataclasses.replace(GOOD, blocked=1.1)


@pytest.mark.parametrize(
    "changed", [{"window_s": 0}, {"downtime_s": 10.1}, {"execution": "parallel"}, {"window_s": -1}, {"downtime_s": -1}]
)
def test_a_window_has_a_length_and_a_known_law(changed):
    with pytest.raises(MetricError, match=next(iter(changed))):
        _snapshot(**changed)


def test_what_operators_dropped_adds_up():
    lossy = dataclasses.replace(GOOD, dropped=3.0)
    assert _snapshot(operators={"a": lossy, "b": lossy}).dropped == 6.0
    assert _snapshot().dropped == 0.0


def test_instances_are_as_many_as_the_operator_has_and_checked_one_by_one():
    two = (InstanceMetrics(50, utilisation=0.9, backlog=3, cpu=0.2), InstanceMetrics(40, utilisation=0.3))
    assert dataclasses.replace(GOOD, instances=list(two)).instances == two
    assert hash(dataclasses.replace(GOOD, instances=two))
    for wrong in (two[:1], (), (*two, two[0]), ({}, {})):
        with pytest.raises(MetricError, match="instances"):
            dataclasses.replace(GOOD, instances=wrong)
    for name in ("processing_rate", "utilisation", "backlog", "cpu"):
        with pytest.raises(MetricError, match=f"InstanceMetrics.{name}"):
            dataclasses.replace(two[0], **{name: -1.0})
    with pytest.raises(MetricError, match="utilisation"):
        dataclasses.replace(two[0], utilisation=1.2)


def test_skew_is_the_busiest_instance_over_the_mean():
    def skew(*busy):
        instances = tuple(InstanceMetrics(1, utilisation=share) for share in busy)
        return dataclasses.replace(GOOD, parallelism=len(busy), instances=instances).skew

    assert skew(0.4, 0.4, 0.4) == pytest.approx(1)
    assert skew(0.9, 0.3) == pytest.approx(1.5)
    assert skew(0.0, 0.0, 0.6) == pytest.approx(3)  # one does everything
    assert skew(0.0, 0.0) is None
    assert GOOD.skew is None
