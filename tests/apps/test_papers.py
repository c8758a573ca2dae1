"""The applications run, fit together, and need more than one instance somewhere: else there is nothing to scale."""

import numpy as np
import pytest

import dspkit
from dspkit import apps, run
from dspkit.core import PlacementError
from dspkit.policies.ds2 import DS2

STILL = {"case_study", "log_processing", "storm_word_count", "tag_and_count"}  # its law peaks below its load; these
# three the thesis places and does not scale


@pytest.mark.parametrize("name", sorted(set(apps.available()) - STILL))
def test_an_app_can_be_scaled_to_its_load_and_back(name):
    app = apps.available()[name]()
    assert app.name == name
    assert str(dspkit.cite(app.reference))
    history = run(DS2(activation=3), app.simulator(), steps=120, settle=1)
    assert history.application.instances.max() > 1.2 * len(app.topology.operators)
    rate = app.load.rates(np.linspace(0, 1200, 2400)).mean()
    assert history.application.source_rate.mean() == pytest.approx(rate, rel=0.01)
    assert history.application.throughput.iloc[-20:].mean() >= 0.99 * history.application.source_rate.iloc[-1]


@pytest.mark.parametrize("name", apps.available())
def test_load_and_start_can_be_set(name):
    app = apps.available()[name]()
    two, three = ({o.name: min(k, o.max_parallelism) for o in app.topology.operators} for k in (2, 3))  # some have one
    plain, double = app.simulator().observe(), app.simulator(scale=2.0, parallelism=three).observe()
    assert double.source_rate == pytest.approx(2 * plain.source_rate)
    assert double.deployment.parallelism == three
    own = app.simulator(dspkit.workload.Constant(12), parallelism=two).observe()
    assert own.source_rate == pytest.approx(12)
    assert own.deployment.parallelism == two


def test_places_of_instances_that_are_not_there_are_left_out():
    app = apps.storm_word_count()
    assert {instance for _, instance in app.simulator(parallelism=1).deployment.placement} == {0}


def test_the_thesis_topologies_are_as_it_says():
    """Executors and links between executors of its placement studies (worked example E11), and phases of its tweets."""
    from dspkit.migration import executor_traffic

    for app, executors, links in (
        (apps.tag_and_count(), 7, 6),
        (apps.tag_and_count(replicas=2), 12, 20),
        (apps.storm_word_count(), 11, 6 + 9 + 9),
    ):
        start = app.simulator().deployment.parallelism
        assert sum(start.values()) == executors
        assert len(executor_traffic(app.topology, start, dict.fromkeys(app.topology.edges, 1.0))) == links
    tweets = apps.detector()
    assert [tweets.load.rate(t) for t in (0, 900, 1800, 2700, 3600)] == [120, 350, 900, 250, 120]
    delay = apps.log_processing().plant.link
    assert (delay("node-7", "node-8").delay_s, delay("node-8", "node-7").delay_s) == (0.032, 0.027)
    taxi = apps.taxi(upstream_speed=1.0)
    assert len(taxi.topology.edges) == len(taxi.topology.operators) == 8
    assert 1 / taxi.plant.services["parser"].seconds_per_record == pytest.approx(233)
    pinned = {o.name for o in taxi.topology.operators if o.max_parallelism == 1}
    assert pinned == {"data_source", "metronome", "global_rank"}


@pytest.mark.parametrize("nodes", [(), ("node-1", "nod-5")])
def test_nodes_that_the_cluster_does_not_have_are_named(nodes):
    with pytest.raises(PlacementError, match="expected one or more of node-1"):
        apps.tag_and_count(nodes=nodes)


def test_two_days_of_taxis_are_quiet_at_night_and_swing_as_told():
    load = apps.TaxiDays(swing=0.08)
    t = np.arange(0, 5760, 1.0)
    calm, real = apps.TaxiDays(swing=0).rates(t), load.rates(t)
    hour = (9.5 + t / load.day_s * 24) % 24
    assert load.day_s == 2880
    assert calm.max() == pytest.approx(265, rel=1e-3)
    assert real.max() == pytest.approx(300, rel=0.05)  # printed
    assert 4 < hour[calm.argmin()] < 6
    assert np.std(real / calm - 1) == pytest.approx(0.08 * np.sqrt(2 / 3), rel=0.25)  # between two draws: 2/3 of it
    assert (load.rates(t[:100]) == real[:100]).all()
    assert apps.TaxiDays(seed=1).rate(100) != load.rate(100)
