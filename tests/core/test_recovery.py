"""The time that a change or a failure costs, until the former throughput is back."""

import pytest

from dspkit import Deployment, History, Plant, Snapshot, Topology, run, workload
from dspkit.core import Decision, recoveries
from dspkit.simulator import Node, NodeDown, Service, Simulator

ONE, TWO = Deployment({"read": 1}), Deployment({"read": 2})


def _windows(*rows):
    """Windows of 5 s from (throughput, downtime, deployment), under a load of 100/s."""
    return [
        Snapshot(5.0 * (i + 1), 5.0, k, {}, {"read": 100.0}, rate, None, None, 0.0, {}, downtime_s=down)
        for i, (rate, down, k) in enumerate(rows)
    ]


def test_time_runs_until_the_former_throughput_is_back():
    rows = [(100, 0, ONE), (100, 0, ONE), (20, 2, TWO), (60, 0, TWO), (180, 0, TWO), (100, 0, TWO)]
    (found,) = recoveries(_windows(*rows))
    assert found == (10.0, True, 2.0, 15.0, pytest.approx(0.8 * 5 + 0.4 * 5))


def test_a_change_that_nobody_feels_costs_nothing_and_commits_are_none():
    (found,) = recoveries(_windows((80, 0, ONE), (95, 0.1, TWO), (95, 0, TWO)))
    assert found == (5.0, True, 0.1, 5.0, 0.0)
    assert recoveries(_windows((80, 0, ONE), (10, 0, ONE), (80, 0, ONE))) == []  # the load may have been low


def test_a_second_change_ends_the_first_and_the_run_may_end_before_the_last():
    found = recoveries(_windows((100, 0, ONE), (10, 4, TWO), (0, 5, ONE), (50, 0, ONE)))
    assert [(r.t, r.recovery_s) for r in found] == [(5.0, None), (10.0, None)]
    assert found[1].lost_s == pytest.approx(7.5)


def test_a_failure_without_a_change_counts_from_its_window():
    found = recoveries(_windows((100, 0, ONE), (40, 3, ONE), (0, 5, ONE), (95, 0, ONE), (95, 0, ONE)))
    assert found == [(5.0, False, 8.0, 15.0, pytest.approx(3 + 5 + 0.25))]


def test_windows_in_which_a_change_drains_are_a_part_of_it():
    (found,) = recoveries(_windows((100, 0, ONE), (10, 4, ONE), (0, 5, ONE), (60, 1, TWO), (95, 0, TWO)))
    assert found == (5.0, True, 10.0, 20.0, pytest.approx(4.5 + 5 + 2 + 0.25))


def test_less_load_needs_less_throughput():
    windows = _windows((100, 0, ONE), (0, 5, TWO), (30, 0, TWO))
    from dataclasses import replace

    windows[2] = replace(windows[2], source_rates={"read": 30.0})
    assert recoveries(windows)[0].recovery_s == 10.0


class _Once:
    """Rescales in one window."""

    name = "once"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        now = snapshot.deployment
        return state + 1, Decision(now.scaled({"work": 2}) if state == 3 else now)


def test_a_simulated_rescale_costs_its_pause_and_a_frame_shows_it(tmp_path):
    plant = Plant({"read": Service(1e-4), "work": Service(1e-3)}, pause_s=12.0)
    sim = Simulator(Topology.chain("read", "work"), plant, workload.Constant(500), window_s=10.0)
    history = run(_Once(), sim, steps=12)
    frame = history.recoveries
    assert frame[["t", "changed", "downtime_s", "recovery_s"]].values.tolist() == [[40.0, True, 12.0, 20.0]]
    assert frame.lost_s[0] == pytest.approx(10.0, abs=0.3)  # the second window catches up with what it missed itself
    assert History.load(history.save(tmp_path / "run.parquet")).recoveries.equals(frame)
    assert History(history.topology).recoveries.empty


def test_a_simulated_failure_is_found_as_well():
    plant = Plant(
        {"read": Service(1e-4), "work": Service(1e-3)}, {"a": Node(4)}, faults=(NodeDown(30.0, 15.0, "a", True),)
    )
    sim = Simulator(Topology.chain("read", "work"), plant, workload.Constant(500), window_s=10.0)
    found = recoveries(sim.observe() for _ in range(10))
    assert [(r.t, r.changed) for r in found] == [(30.0, False)]
    assert found[0].downtime_s >= 15.0
