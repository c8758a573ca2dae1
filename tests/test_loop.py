"""The loop: who is asked when, what is deployed, how a run resumes."""

import dataclasses

import pytest

from dspkit import Decision, Deployment, Simulator, Topology, mape, run, topologies, workload
from dspkit.errors import DeploymentError, KnobError, MetricError
from dspkit.plant import Plant, Service
from dspkit.policies.ds2 import DS2

CHAIN = Topology.chain("a", "b")
PLANT = Plant({"a": Service(1e-4), "b": Service(1e-3)}, pause_s=0.0)


class Counter:
    """Adds an instance of `b` each time it is asked; its state counts the calls."""

    name = "counter"

    def init(self, topology, seed=0):
        return seed

    def step(self, state, snapshot):
        return state + 1, Decision(snapshot.deployment.scaled({"b": snapshot.deployment.parallelism["b"] + 1}))


def _simulator(**options):
    return Simulator(CHAIN, PLANT, workload.Constant(500), **options)


def test_each_decision_shows_in_the_next_snapshot():
    history = run(Counter(), _simulator(), steps=5)
    assert [s.snapshot.deployment.parallelism["b"] for s in history] == [1, 2, 3, 4, 5]
    assert all(s.rescaled for s in history)


def test_windows_that_settle_are_observed_and_not_decided_on():
    history = run(Counter(), _simulator(), steps=7, settle=2)
    assert [s.decision is not None for s in history] == [True, False, False, True, False, False, True]
    assert [s.snapshot.deployment.parallelism["b"] for s in history] == [1, 2, 2, 2, 3, 3, 3]
    assert history[-1].state == 3


def test_a_run_resumes_from_the_state_of_a_step():
    backend = _simulator()
    first = list(mape(Counter(), backend, steps=2, seed=10))
    rest = list(mape(Counter(), backend, steps=2, state=first[-1].state))
    assert [s.state for s in first + rest] == [11, 12, 13, 14]


def test_without_a_number_of_steps_it_goes_on_for_ever():
    steps = mape(Counter(), _simulator(), steps=None)
    assert [next(steps).index for _ in range(30)] == list(range(30))
    with pytest.raises(KnobError, match="counts >= 0"):
        next(mape(Counter(), _simulator(), steps=-1))


def test_a_decision_that_does_not_fit_stops_the_run_before_it_is_deployed():
    backend = _simulator(deployment=Deployment({"a": 1, "b": 64}))
    with pytest.raises(DeploymentError, match="parallelism 65 for 'b'"):
        run(Counter(), backend, steps=2)
    assert backend.deployment.parallelism["b"] == 64


def test_metrics_under_names_the_topology_does_not_know_are_refused():
    class Confused(Simulator):
        def observe(self):
            snapshot = super().observe()
            return dataclasses.replace(snapshot, operators={"typo": snapshot.operators["a"]})

    with pytest.raises(MetricError, match=r"unknown operators \['typo'\]"):
        run(Counter(), Confused(CHAIN, PLANT, workload.Constant(1)), steps=1)


def test_ds2_brings_word_count_to_the_load_in_two_decisions():
    """By hand: 250/120, 250/100, 250/30, 250/36 round up to 3, 3, 9, 7; contention of 3 % makes that 8 sinks."""
    app = topologies.word_count()
    history = run(DS2(), app.simulator(workload.Constant(250e3)), steps=30, settle=1)
    assert history[1].snapshot.deployment.parallelism == {"source": 3, "flat_map": 3, "count": 9, "sink": 7}
    assert history[3].snapshot.deployment.parallelism == {"source": 3, "flat_map": 3, "count": 9, "sink": 8}
    assert sum(s.rescaled for s in history) == 2
    assert history[-1].snapshot.throughput >= 250e3 * 0.999
