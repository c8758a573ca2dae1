"""Applications by name: built in, registered, or offered by somebody else's package; and a live run as a plant."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dspkit import History, Plant, apps, plots, run
from dspkit.apps import App
from dspkit.core import ArgumentError, Deployment, MetricError, Step, TopologyError
from dspkit.policies.ds2 import DS2
from dspkit.simulator import Link, Node, Service, Simulator
from dspkit.workload import Constant, Jump

OTHERS = '''
"""Somebody else's application."""
from dspkit import Plant, Topology
from dspkit.apps import App, Live
from dspkit.simulator import Service
from dspkit.workload.shapes import Constant

def parcels() -> App:
    """Parcels are scanned, and sorted."""
    services = {"scan": Service(1e-3), "sort": Service(5e-3)}
    return App("parcels", Topology.chain("scan", "sort"), Plant(services), Constant(300))

def whole(batches, known):
    for batch in batches:
        for n in batch.column("n").to_pylist():
            known[n % 3] = known.get(n % 3, 0) + 1
    yield from ()

def numbers(ids, event_s):
    import pyarrow as pa
    return pa.RecordBatch.from_arrays([pa.array(ids)], names=["n"])

def functions():
    from dspkit.spark import keyed
    return {"sort": keyed(whole, key="n", state="int64")}

def only_live() -> App:
    """The same without simulated costs."""
    live = Live(functions, numbers, "n int64", lambda rows: {"sort": {}}, {"sort": 100.0}, (100, 200))
    return App("only_live", Topology.chain("scan", "sort"), live=live)
'''
ASKS = """
import numpy as np
from dspkit import apps, policies, run
from dspkit.core.errors import BackendError
app = apps.get("parcels")()
history = run(policies.get("ds2")(), apps.parcels().simulator(), steps=20)
assert history[-1].snapshot.deployment.parallelism["sort"] >= 2, history
ids = np.arange(90)
batches = [app.synthetic().live.maker("scan")(ids, ids / 10)]
assert apps.rehearse(app, batches).records == {"scan": 90, "sort": 90}
lone = apps.only_live()
found = apps.rehearse(lone, [lone.live.make(ids, ids / 10)])
assert found.known == {"sort": {0: 30, 1: 30, 2: 30}}, found
try:
    lone.simulator()
except BackendError as error:
    print(error)
print(*sorted({"parcels", "only_live", "word_count"} & set(apps.available())))
"""


def test_another_package_offers_its_own(tmp_path: Path) -> None:
    (tmp_path / "parcel_service.py").write_text(OTHERS)
    info = tmp_path / "parcel_service-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parcel-service\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dspkit.apps]\nparcels = parcel_service:parcels\nonly_live = parcel_service:only_live\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    known = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, env=known, check=False)
    assert done.returncode == 0, done.stderr
    refused, names = done.stdout.splitlines()
    assert "'only_live' without simulated costs" in refused
    assert names == "only_live parcels word_count"


def test_both_packages_tell_of_the_same_applications() -> None:
    assert apps.available() == apps.available()
    assert apps.get("star") is apps.star is apps.star
    assert set(apps.available()) < set(dir(apps))
    for name, make in apps.available().items():
        assert make().name == name


def test_what_is_registered_is_found_and_what_makes_no_application_is_refused() -> None:
    @apps.register
    def small_star() -> App:
        return apps.get("star")().under(Constant(10))

    try:
        assert apps.small_star is apps.get("small_star") is small_star
    finally:
        apps.unregister("small_star")
    for wrong in (7, App, lambda topology: topology):
        with pytest.raises(ArgumentError, match="expected an application"):
            apps.register(wrong)  # type: ignore[type-var]


def _as_if_live(seconds: float) -> History:
    """A run of word count on another cluster, as a job would record it, steered by DS2."""
    app = apps.get("word_count")().as_live()
    services = {
        "source": Service(1e-5),
        "flat_map": Service(seconds, 10, queue_records=250),
        "count": Service(2.1e-5, queue_records=250),
        "sink": Service(2e-6, queue_records=250),
    }
    nodes = {f"slot {i}": Node() for i in range(64)}
    plant = Plant(services, nodes, network=Link(0.02), noise=0.02, pause_s=0.3, pause_kind="rebalance")
    simulator = Simulator(app.topology, plant, Jump(600, 2400, 40), window_s=2.0)
    seen = run(DS2(), simulator, steps=60, settle=1)
    return History(app.topology, [Step(s.index, replace(s.snapshot, nodes={}), s.decision) for s in seen])


def test_a_live_run_gives_its_app_simulated_costs_and_is_played_again_on_them() -> None:
    app, history = apps.get("word_count")(), _as_if_live(1e-3)
    fitted = app.fitted(history)
    assert fitted.simulated
    assert fitted.live is app.live
    assert fitted.plant.services["flat_map"].seconds_per_record == pytest.approx(1e-3, rel=0.1)
    assert fitted.simulator().observe().source_rate == pytest.approx(600, rel=0.01)
    measured, played = app.parity(history)
    assert measured is history
    assert [s.snapshot.deployment for s in played] == [s.snapshot.deployment for s in history]
    rates = [[s.snapshot.source_rate for s in h] for h in (measured, played)]
    assert rates[1] == pytest.approx(rates[0], rel=0.01)
    done = [sum(s.snapshot.throughput for s in h) for h in (measured, played)]
    assert done[1] == pytest.approx(done[0], rel=0.05)
    assert "windows of 2 s" in plots.parity(measured, played).summary


def test_a_plant_is_held_against_a_run_that_it_has_not_seen() -> None:
    """One that is three times as slow: its backlog is not that of the plant."""
    app, seen, slow = apps.get("word_count")(), _as_if_live(1e-3), _as_if_live(3e-3)
    measured, played = app.parity(seen, against=slow)
    assert measured is slow
    lag = [max(s.snapshot.lag for s in h) for h in (measured, played)]
    assert lag[1] < 0.5 * lag[0]


def test_runs_of_others_are_refused() -> None:
    app = apps.get("word_count")()
    other = run(DS2(), apps.get("star")().simulator(), steps=2)
    with pytest.raises(TopologyError, match=r"a run of left, right.*expected a run of word_count: source, flat_map"):
        app.fitted(other)
    with pytest.raises(MetricError):
        app.parity(History(app.topology))


def test_the_live_start_is_one_of_each_whatever_the_simulated_one() -> None:
    app = apps.get("detector")()
    assert app.deployment().parallelism["detector"] == 20
    assert app.as_live().deployment() == Deployment(app.topology.uniform())
