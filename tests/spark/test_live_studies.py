"""The studies that hold live runs against simulated ones, on simulated runs whose truth is known; and their picture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dspkit import History, apps, plots
from dspkit import simulator as plant
from dspkit.core import Deployment, DspkitError, Step
from dspkit.simulator import Link, Node, Plant, Service, Simulator
from dspkit.workload import Constant
from reproduction.autrascale import case_study_live
from reproduction.live import study as parity_live


def _as_if_live(delay_s: float) -> History:
    """What a job would record whose records spend `delay_s` on each link, and of which 250 may wait for an instance."""
    app = apps.get("word_count")()
    services = {
        "source": Service(1e-5),
        "flat_map": Service(2.05e-3, 10, queue_records=250),
        "count": Service(2.1e-5, queue_records=250),
        "sink": Service(2e-6, queue_records=250, results=0),
    }
    nodes = {f"slot {i}": Node() for i in range(64)}
    made = Plant(services, nodes, network=Link(delay_s), noise=0.02)
    steps = []
    for k, rate in parity_live.settings():
        start = Deployment({**app.topology.uniform(), "flat_map": k})
        simulator = Simulator(app.topology, made, Constant(rate), deployment=start, window_s=2.0)
        for snapshot in [simulator.observe() for _ in range(8)][5:]:
            at = replace(snapshot, t=2.0 * (len(steps) + 1), nodes={}, downtime_s=0.0)
            steps.append(Step(len(steps), at, None))
    return History(app.topology, steps)


def test_a_plant_fitted_to_two_parallelisms_says_what_the_job_does_at_two_others() -> None:
    app, history = apps.get("word_count")(), _as_if_live(0.02)
    rows = parity_live.rows(app, history)
    assert [(r.k, r.offered) for r in rows] == [(2, 600), (4, 1200), (2, 2000), (4, 4000)]
    for row in rows:
        assert row.throughput_off < 0.05, row
        assert row.latency_off < 0.1, row
    assert plant.fit_live(history).network.delay_s == pytest.approx(0.02, rel=0.1)


def test_windows_in_which_the_job_still_catches_up_are_left_out() -> None:
    snapshot = _as_if_live(0.02)[0].snapshot
    assert parity_live._steady(snapshot)
    assert not parity_live._steady(replace(snapshot, throughput=1.3 * snapshot.throughput))
    assert not parity_live._steady(replace(snapshot, downtime_s=0.5))


def test_the_papers_case_study_saturates_and_so_does_work_on_two_cores() -> None:
    paper = case_study_live.paper_simulated([1, 2, 3, 6])
    for k, rate in case_study_live.PAPER.items():
        assert paper[k] == pytest.approx(rate, rel=0.1)
    assert paper[6] < 1.1 * paper[3]
    app, micros = apps.get("word_count")(), {"flat_map": 400.0}
    curve = case_study_live.simulated(app, 10_000, [1, 2, 6], micros, cores=2)
    assert curve[1] == pytest.approx(2500, rel=0.02)  # one core's worth
    full = 2e6 / (400 + 1 + 10 + 10)  # a line, its ten words and their counts, on two cores
    assert curve[2] == pytest.approx(full, rel=0.01)
    assert curve[6] == pytest.approx(full, rel=0.01)


def test_the_picture_of_scaling_draws_multiples_of_the_first() -> None:
    plot = plots.scaling({"a <b>": {1: 100.0, 2: 150.0, 4: 200.0}, "c": {2: 10.0, 4: 10.0}})
    first, second, ideal = plot.spec["data"]
    assert (first["x"], first["y"], first["name"]) == ([1, 2, 4], [1, 1.5, 2], "a &lt;b&gt;")
    assert second["y"] == [1, 1]
    assert ideal["y"] == [1, 4]
    assert plot.summary == (
        "a <b>: 4 instances have 2 times the throughput of 1 (200 records/s). "
        "c: 2 instances have 1 times the throughput of 2 (10 records/s)."
    )
    assert plot.figure.layout.xaxis.title.text == "instances of each operator"
    for curves in ({}, {"a": {}}, {"a": {1: 0.0}}, {"a": {1: 1.0, 2: float("nan")}}, {"a": {0: 1.0}}):
        with pytest.raises(DspkitError):
            plots.scaling(curves)
