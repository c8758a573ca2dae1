"""Many simulations at once are the same simulations, and what cannot be paired is refused."""

import math
import subprocess
import sys

import numpy as np
import pytest

from dspkit import Deployment, Simulator, apps, plots, run, simulate_many, workload
from dspkit.core import ArgumentError, MetricError
from dspkit.policies.static import Static
from dspkit.simulator import NodeDown, NodeSlow, Skew

APP = apps.diamond()
FAULTS = (NodeDown(33.3, 40, node="node-1"), NodeSlow(50, 25.5, node="node-2"), Skew(71, 20, operator="bolt_2"))


@pytest.mark.parametrize("execution", ["pipelined", "micro-batch"])
@pytest.mark.parametrize("faults", [(), FAULTS])
def test_each_row_is_the_run_of_a_simulator(execution, faults):
    from dataclasses import replace

    plant = replace(APP.plant, execution=execution, faults=faults)
    cases = [(k, scale) for k in (1, 4) for scale in (0.3, 2.0)]
    deployments = [Deployment({**APP.topology.uniform(3), "bolt_3": k}) for k, _ in cases]
    loads = [APP.workload * scale for _, scale in cases]
    rows = simulate_many(APP.topology, plant, loads, deployments, duration_s=120, window_s=10, tick_s=1, seed=7)
    for row, load, deployment in zip(rows.itertuples(), loads, deployments, strict=True):
        backend = Simulator(
            APP.topology, plant, load, deployment=deployment, window_s=10, tick_s=1, seed=7, arrivals="even"
        )
        history = run(Static(), backend, steps=12)
        seen = [step.snapshot for step in history]
        weights = [s.throughput for s in seen]
        assert row.throughput == pytest.approx(np.mean(weights))
        assert row.source_rate == pytest.approx(np.mean([s.source_rate for s in seen]))
        assert row.lag == pytest.approx(seen[-1].lag, abs=1e-6)
        assert row.worst_lag == pytest.approx(max(s.lag for s in seen), abs=1e-6)
        assert row.downtime_s == pytest.approx(sum(s.downtime_s for s in seen))
        kept = [s for s in seen if s.latency]
        mean = np.average([s.event_latency.mean for s in kept], weights=[s.throughput for s in kept])
        # a fault cuts a window in two, each with a steady state of its own
        assert row.event_latency_s == pytest.approx(mean, rel=0.2 if faults else 1e-9)


def test_one_of_each_is_one_row_and_threads_change_nothing():
    deployment = Deployment(APP.topology.uniform(4))
    one = simulate_many(APP.topology, APP.plant, APP.workload, deployment)
    many = simulate_many(APP.topology, [APP.plant] * 9, APP.workload, deployment, threads=3)
    assert len(one) == 1
    assert (many == one.iloc[0]).all(axis=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deployment": [Deployment(APP.topology.uniform())] * 2, "plant": [APP.plant] * 3}, r"sequences of \[2, 3\]"),
        ({"deployment": []}, "at least 1"),
        ({"tick_s": 20}, "shorten ticks"),
        ({"duration_s": 5}, "shorten ticks"),
    ],
)
def test_what_cannot_be_paired_is_refused(options, message):
    given = {"plant": APP.plant, "workload": APP.workload, "deployment": Deployment(APP.topology.uniform()), **options}
    with pytest.raises(ArgumentError, match=message):
        simulate_many(APP.topology, **given)


def test_a_sweep_turns_what_its_axes_name():
    axes = {
        "bolt_3": [1, 8],
        "scale": [0.5, 1.0],
        "bolt_3.seconds_per_record": [2e-3, 4e-3],
        "workers": [1],
        "noise": [0],
    }
    frame = APP.sweep(axes, parallelism=4, duration_s=200)
    assert len(frame) == 8
    assert list(frame.columns[:5]) == list(axes)
    slow = frame[(frame.bolt_3 == 1) & (frame.scale == 1.0)].set_index("bolt_3.seconds_per_record").throughput
    assert slow[2e-3] > 1.15 * slow[4e-3]
    half, whole = (frame[frame.scale == s].source_rate.mean() for s in (0.5, 1.0))
    assert half == pytest.approx(whole / 2)
    star = apps.star().sweep({"scale": [1, 2]}, duration_s=60)
    assert star.source_rate[1] == pytest.approx(2 * star.source_rate[0])
    with pytest.raises(ArgumentError, match="axis 'typo'"):
        APP.sweep({"typo": [1]})


def test_a_heat_map_marks_the_best_point_and_says_it():
    frame = APP.sweep({"bolt_3": [1, 4, 8], "scale": [0.5, 1.0]}, parallelism=4, duration_s=60)
    picture = plots.heatmap(frame, "bolt_3", "scale", "throughput", title="<b>")
    heat, star = picture.spec["data"]
    best = frame.loc[frame.throughput.idxmax()]
    assert (star["x"], star["y"]) == ([best.bolt_3], [best.scale])
    assert np.array(heat["customdata"]).max() == pytest.approx(best.throughput)
    assert "best (star) at bolt 3" in picture.summary
    assert "&lt;b&gt;" in picture.spec["layout"]["title"]["text"]
    low = plots.heatmap(frame, "bolt_3", "scale", "event_latency_s").spec["data"][1]
    assert low["x"] == [frame.loc[frame.event_latency_s.idxmin()].bolt_3]
    with pytest.raises(MetricError, match="column 'typo'"):
        plots.heatmap(frame, "bolt_3", "scale", "typo")
    with pytest.raises(MetricError, match="without a number"):
        plots.heatmap(frame.assign(gap=math.nan), "bolt_3", "scale", "gap")


def test_the_second_process_compiles_nothing():
    code = (
        "from dspkit import apps; app = apps.word_count();"
        "app.simulator().observe(); app.sweep({'scale': [1]}); app.simulator(engine='records', scale=0.01).observe();"
        "from dspkit.simulator import sweep; from dspkit.simulator.fluid import kernel;"
        "from dspkit.simulator.records import loop;"
        "used = kernel.play_fluid, sweep.play_windows, loop.play_records;"
        "print(*[sum(f.stats.cache_misses.values()) for f in used])"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[1].stdout == "0 0 0\n"


def test_a_load_for_each_source_is_one_load_not_many():
    app = apps.star()
    loads = {name: workload.Constant(100) for name in app.topology.sources}
    assert len(simulate_many(app.topology, app.plant, loads, Deployment(app.topology.uniform(2)), duration_s=10)) == 1
