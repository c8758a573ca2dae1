"""Shapes that the papers print of a job nobody scales: AuTraScale's figures 1 and 2, ELYSIUM's cost of changes."""

import pytest

from dspkit import Deployment, Plant, Simulator, Topology, apps, run, workload
from dspkit.policies.static import Static
from dspkit.simulator import Service


@pytest.fixture(scope="module")
def case_study():
    """The last window of five minutes at 300 k records/s, for each parallelism."""
    app = apps.case_study()
    load = workload.Constant(300e3)
    return {p: run(Static(), app.simulator(load, parallelism=p), steps=30)[-1].snapshot for p in range(1, 7)}


def test_throughput_is_not_proportional_to_parallelism(case_study):
    """Figure 2 (a): about 150, 250 and 275 k records/s."""
    for parallelism, printed in ((1, 150e3), (2, 250e3), (3, 275e3)):
        assert case_study[parallelism].throughput == pytest.approx(printed, rel=0.05)


def test_latency_falls_and_then_rises_with_parallelism(case_study):
    """Figure 2 (b): the more instances the less latency and lag, up to a point; 100 and 125 ms for 5 and 6.

    What falls is the latency with the wait in Kafka; inside the job it is full buffers that make it.
    """
    waits = [case_study[p].event_latency.mean for p in range(1, 7)]
    assert waits[0] > 2 * waits[1] > 4 * waits[2]
    assert waits[2] < waits[4] < waits[5]
    for parallelism, printed in ((5, 0.100), (6, 0.125)):
        assert case_study[parallelism].latency.mean == pytest.approx(printed, rel=0.1)


def test_two_instances_are_not_enough_for_the_whole_staircase():
    """Figure 1: from 250 k records/s on throughput stays, while lag and latency grow."""
    history = run(Static(), apps.case_study().simulator(parallelism=2), steps=300).application
    before, after = history[history.t <= 2400], history[history.t > 2410]
    assert before.throughput.tolist() == pytest.approx(before.source_rate.tolist(), rel=0.01)
    assert before.lag.max() < 1000
    assert after.throughput.tolist() == pytest.approx([250e3] * len(after), rel=0.01)
    assert after.lag.diff().iloc[1:].tolist() == pytest.approx([50e3 * 10] * (len(after) - 1), rel=0.01)
    assert (after.event_latency_mean.diff().iloc[1:] > 0).all()
    assert after.latency_mean.iloc[-1] > 100 * before.latency_mean.iloc[0]


@pytest.mark.parametrize("engine", ["fluid", "records"])
@pytest.mark.parametrize(("pause_s", "period_s", "spare"), [(6.5, 60, 1.5), (6.5, 120, 4.0), (20, 100, 2.0)])
def test_changes_at_a_constant_load_cost_twice_their_pause(pause_s, period_s, spare, engine):
    """ELYSIUM: mean of |in - out| / in is 2d/T: d of nothing, and the same again while the log drains, however fast.

    Arrivals are even: their noise would count as degradation. Windows end where pauses do, or both would cancel.
    """
    plant = Plant({"only": Service(1 / (500 * spare), distribution="deterministic")}, pause_s=pause_s)
    options = {"window_s": 0.5, "tick_s": 0.1, "engine": engine, "arrivals": "even"}
    job = Simulator(Topology(("only",)), plant, workload.Constant(500), **options)
    job.observe()
    degradation = []
    for period in range(4):
        job.deploy(Deployment({"only": 1}, placement={("only", 0): f"node-{2 - period % 2}"}))
        seen = [job.observe() for _ in range(2 * period_s)]
        degradation += [abs(s.source_rate - s.throughput) / s.source_rate for s in seen]
    assert sum(degradation) / len(degradation) == pytest.approx(2 * pause_s / period_s, rel=0.02, abs=0.002)
