"""The applications run, fit together, and need more than one instance somewhere: else there is nothing to scale."""

import numpy as np
import pytest

import dspkit
from dspkit import run, topologies
from dspkit.policies.ds2 import DS2


# The law of case_study peaks below its load; tag_and_count is about delays, its load is light.
@pytest.mark.parametrize("name", sorted(set(topologies.available()) - {"case_study", "tag_and_count"}))
def test_an_app_can_be_scaled_to_its_load_and_back(name):
    app = topologies.available()[name]()
    assert app.name == name
    assert str(dspkit.cite(app.reference))
    history = run(DS2(activation=3), app.simulator(), steps=120, settle=1)
    assert history.application.instances.max() > 1.3 * len(app.topology.operators)
    rate = app.load.rates(np.linspace(0, 1200, 2400)).mean()
    assert history.application.source_rate.mean() == pytest.approx(rate, rel=0.01)
    assert history.application.throughput.iloc[-20:].mean() >= 0.99 * history.application.source_rate.iloc[-1]


@pytest.mark.parametrize("name", topologies.available())
def test_load_and_start_can_be_set(name):
    app = topologies.available()[name]()
    plain, double = app.simulator().observe(), app.simulator(scale=2.0, parallelism=3).observe()
    assert double.source_rate == pytest.approx(2 * plain.source_rate)
    assert set(double.deployment.parallelism.values()) == {3}
    own = app.simulator(dspkit.workload.Constant(12), parallelism={**app.topology.uniform(2)}).observe()
    assert own.source_rate == pytest.approx(12)
    assert set(own.deployment.parallelism.values()) == {2}
