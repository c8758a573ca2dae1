"""Sweeps and their heat maps: what cannot be swept or drawn is refused before anything is simulated."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dspkit import Deployment, Topology, apps, plots, workload
from dspkit.apps import App
from dspkit.apps import app as module
from dspkit.core import ArgumentError, DeploymentError, MetricError
from dspkit.simulator import Plant, Service, simulate_many

APP = apps.word_count()
FRAME = pd.DataFrame(
    [(x, y, w, 10.0 * x + y + w, "count", [x]) for x in (1, 2) for y in (0.5, 1.5) for w in (0, 4)],
    columns=["x", "y", "w", "z", "busiest", "lists"],
)


def _app(*names):
    """A job whose operators have these names."""
    topology = Topology.chain(*names)
    return App("odd", topology, Plant(dict.fromkeys(names, Service())), workload.Constant(100), 1.0, "")


@pytest.mark.parametrize("columns", [("x", "x", "z"), ("x", "y", "x"), ("x", "y", "y")])
def test_a_heat_map_is_of_three_columns(columns):
    with pytest.raises(MetricError, match="three different columns"):
        plots.heatmap(FRAME, *columns)


@pytest.mark.parametrize("columns", [("x", "y", "busiest"), ("busiest", "y", "z"), ("x", "lists", "z")])
def test_a_heat_map_is_of_numbers(columns):
    with pytest.raises(MetricError, match=r"column '(busiest|lists)' of .*expected numbers"):
        plots.heatmap(FRAME, *columns)


def test_axes_of_a_heat_map_are_finite_and_of_one_column_each():
    for odd in (math.inf, math.nan):
        with pytest.raises(MetricError, match=r"'y' of (inf|nan).*finite"):
            plots.heatmap(FRAME.assign(y=odd), "x", "y", "z")
    with pytest.raises(MetricError, match="two columns 'z'"):
        plots.heatmap(FRAME.set_axis(["x", "y", "w", "z", "z", "u"], axis=1).assign(z=1.0), "x", "y", "z")
    gap = plots.heatmap(FRAME.assign(z=[math.inf, math.inf, *range(6)]), "x", "y", "z", lower_is_better=False)
    assert "0.5 to 4.5" in gap.summary
    json.dumps(gap.bundle, allow_nan=False)


def test_a_heat_map_says_what_it_averages():
    averaged = plots.heatmap(FRAME, "x", "y", "z").summary
    assert averaged.startswith("Z over 2 values of x and 2 of y, each point the mean of 2: 12.5 to 23.5")
    some = plots.heatmap(FRAME.drop(index=[1, 3, 5]), "x", "y", "z").summary
    assert "each point the mean of 2" in some  # the most that share a point
    single = plots.heatmap(FRAME[(FRAME.w == 0) & (FRAME.x == 1)], "x", "y", "z").summary
    assert single.startswith("Z over 1 value of x and 2 of y: 10.5 to 11.5")


WRONG = [
    (None, "at least one axis"),
    ({}, "at least one axis"),
    ([("count", [1])], "at least one axis"),
    ({"pause_s": []}, "a list of values"),
    ({"pause_s": 5}, "a list of values"),
    ({"pause_kind": "rebalance"}, "a list of values"),
    ({"count": [1.7]}, "a whole number from 1 up"),
    ({"count": [1, True]}, "a finite number"),
    ({"count": ["2"]}, "a finite number"),
    ({"count": [None]}, "a finite number"),
    ({"count": [0]}, "a whole number from 1 up"),
    ({"count": [math.nan]}, "a finite number"),
    ({"workers": [1.5]}, "a whole number from 1 to the 4"),
    ({"workers": [5]}, "a whole number from 1 to the 4"),
    ({"workers": ["x"]}, "a finite number"),
    ({"scale": ["x"]}, "a finite number"),
    ({"scale": [-1]}, "a finite number"),
    ({"pause_s": [5, -1]}, "from 0.0 to 3600.0"),
    ({"count.seconds_per_record": ["x"]}, "from 1e-09"),
    ({"count.typo": [1]}, "operators are"),
    ({"typo": [1]}, "operators are"),
    ({7: [1]}, "operators are"),
    ({"throughput": [1]}, "operators are"),
]


@pytest.mark.parametrize(("axes", "told"), WRONG)
def test_no_point_is_played_unless_all_can_be(axes, told, monkeypatch):
    monkeypatch.setattr(module.simulation, "simulate_many", lambda *a, **k: pytest.fail("simulated"))
    with pytest.raises(ArgumentError, match=told):
        APP.sweep(axes)


def test_what_the_topology_cannot_run_is_not_played(monkeypatch):
    monkeypatch.setattr(module.simulation, "simulate_many", lambda *a, **k: pytest.fail("simulated"))
    operators = tuple(replace(o, max_parallelism=3) for o in APP.topology.operators)
    bounded = replace(APP, topology=Topology(operators, APP.topology.edges), start=1)
    with pytest.raises(DeploymentError):
        bounded.sweep({"count": [1, 4]})


def test_axes_may_be_any_list_and_whole_floats_count():
    frame = APP.sweep({"count": np.linspace(1, 2, 2), "pause_s": range(2), "scale": (0.5,)}, duration_s=20)
    assert frame["instances"].tolist() == [f + frame["instances"][0] for f in (0, 0, 1, 1)]


def test_operators_with_a_dot_are_swept_like_others():
    frame = _app("a.b", "c").sweep({"a.b": [1, 2], "a.b.seconds_per_record": [1e-3, 2e-2]}, duration_s=20)
    assert frame["instances"].tolist() == [2, 2, 3, 3]
    assert frame.throughput[1] < 0.7 * frame.throughput[0]


@pytest.mark.parametrize("name", ["scale", "workers", "lag", "pause_s", "b.cv"])
def test_a_name_with_two_meanings_is_refused_where_it_is_used(name):
    app = _app(name, "b")
    with pytest.raises(ArgumentError, match=r"with several meanings: .*operator.*rename the operator"):
        app.sweep({name: [1]}, duration_s=20)
    assert len(app.sweep({"b": [1, 2]}, duration_s=20)) == 2


def test_columns_of_results_are_those_there_are():
    rows = simulate_many(APP.topology, APP.plant, APP.workload, Deployment(APP.topology.uniform(4)), duration_s=20)
    assert set(module.RESULTS) == set(rows.columns)
