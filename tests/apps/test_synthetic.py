"""Synthetic operators: every application runs live, with the selectivities, costs and state of its plant."""

from __future__ import annotations

import math
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import live
from dspkit import apps, compare
from dspkit.apps import App, Live, audit, rehearse, synthetic
from dspkit.core import ArgumentError, BackendError, DspkitError, Operator, Topology
from dspkit.policies.static import Static
from dspkit.simulator import Cluster, Plant, Service
from dspkit.workload import Constant, Jump, Workload

NAMES = sorted(apps.available())


def _live(app: App) -> Live:
    assert app.live is not None
    return app.live


def _paths(app: App, records: int) -> dict[str, int]:
    """Records of each operator when each source has so many: floor(n s) on every edge, way by way."""
    counts = dict.fromkeys(app.topology.order, 0)
    left = [(source, records) for source in app.topology.sources]
    while left:
        name, n = left.pop()
        counts[name] += n
        left += [(to, math.floor(n * app.plant.services[name].toward(to))) for to in app.topology.downstream(name)]
    return counts


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_every_application_has_the_records_and_the_state_that_its_plant_says(name: str, instances: int) -> None:
    app = apps.get(name)().synthetic()
    made, ids = _live(app), np.random.default_rng(1).permutation(1000)  # they come in any order
    parts = np.array_split(ids, 10)
    found = rehearse(app, {s: [made.maker(s)(p, p / 100) for p in parts] for s in app.topology.sources}, instances)
    assert found.records == _paths(app, 1000)
    want = made.oracle(app.rows(Constant(100), np.arange(1000)))
    assert set(app.topology.sinks) <= set(want)
    for operator, answers in want.items():
        assert found.known.get(operator, {}) == answers
        assert sum(entry["records"] for entry in answers.values()) == found.records[operator]


@pytest.mark.parametrize("name", NAMES)
def test_what_two_cores_bear_needs_as_many_instances_as_the_simulated_load(name: str) -> None:
    app = apps.get(name)()
    lived = app.synthetic().as_live()
    made = _live(lived)
    load = lived.workload if isinstance(lived.workload, dict) else {lived.topology.sources[0]: lived.workload}
    flow = dict.fromkeys(app.topology.order, 0.0) | {s: w.rate(1e4) for s, w in load.items()}  # type: ignore[union-attr]
    work = 0.0
    for operator in app.topology.operators:
        n, service = operator.name, app.plant.services[operator.name]
        need = flow[n] * made.micros[n] * 1e-6
        assert need <= 0.9 * lived.topology[n].max_parallelism * (1 + 1e-9)
        assert isinstance(made.cpu, dict)
        work += need * made.cpu[n]
        for to in app.topology.downstream(n):
            flow[to] += flow[n] * service.toward(to)
    assert work <= synthetic.CORES * (1 + 1e-9)
    assert sum(flow.values()) <= synthetic.RECORDS_PER_S * (1 + 1e-9)
    scale = app.plant.services[app.topology.order[0]].seconds_per_record / made.micros[app.topology.order[0]] * 1e6
    assert f"{scale:.3g} times the simulated rates" in made.note
    assert sum(o.max_parallelism for o in lived.topology.operators) <= 64


@pytest.mark.parametrize("name", NAMES)
def test_applications_are_values_that_other_processes_can_have(name: str) -> None:
    app = apps.get(name)()
    assert app == apps.get(name)()
    for each in (app, app.synthetic()):
        assert pickle.loads(pickle.dumps(each)) == each
        assert pickle.loads(pickle.dumps(each.as_live())).topology == each.as_live().topology


def test_a_scale_that_is_given_is_kept_and_the_work_on_cores_bounded() -> None:
    app = apps.get("star")()
    made = _live(app.synthetic(scale=0.1))
    assert made.rates == {"left": (40.0, 260.0), "right": (40.0, 170.0)}
    assert made.micros["alert"] == pytest.approx(2e4)
    waits = {n: replace(s, io_share=0.75) for n, s in app.plant.services.items()}
    half = _live(app.under(plant=replace(app.plant, services=waits)).synthetic(scale=0.1))
    assert isinstance(made.cpu, dict)
    assert isinstance(half.cpu, dict)
    assert max(made.cpu.values()) < 0.2  # ten cores' worth of work
    assert half.cpu["bolt"] == pytest.approx(made.cpu["bolt"])  # of a quarter of the work, four times as large a part
    for scale in (0, -1, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="a number above 0"):
            app.synthetic(scale=scale)


def test_state_has_the_size_that_the_plant_gives_it() -> None:
    topology = Topology((Operator("a"), Operator("b", stateful=True), Operator("c")), (("a", "b"), ("b", "c")))
    for size, keys, each in ((5e4, 500, 100), (16e6, 1000, 1000), (40.0, 1, 40)):
        plant = Plant({"a": Service(), "b": Service(state_bytes=size), "c": Service()})
        app = App("three", topology, plant, Constant(10)).synthetic()
        ids = np.arange(3000)
        known = rehearse(app, [_live(app).maker("a")(ids, ids / 10)]).known
        assert len(known["b"]) == keys
        assert {len(entry["pad"]) for entry in known["b"].values()} == {each}
        assert len(known["c"]) == synthetic.SINK_KEYS


@given(st.floats(0, 20), st.integers(0, 500), st.integers(1, 7))
def test_records_are_numbered_without_gaps_whoever_has_them(selectivity: float, n: int, parts: int) -> None:
    ids = np.arange(n)
    made = [synthetic.sent(ids[i::parts], selectivity) for i in range(parts)]
    assert np.sort(np.concatenate(made)).tolist() == list(range(math.floor(n * selectivity)))


def test_what_an_application_has_not_it_refuses_and_says_what_to_do() -> None:
    whole = apps.get("word_count")()
    lone = App("lone", whole.topology, live=whole.live)
    assert not lone.simulated
    assert lone.as_live().load.rate(0) == 600
    elsewhere = (lambda: Cluster({"lone": lone}), lambda: compare({"nothing": Static()}, apps=lone, seeds=[1]))
    for refused in (lone.simulator, lone.synthetic, lambda: lone.sweep({"scale": [1.0]}), *elsewhere):
        with pytest.raises(BackendError, match=r"'lone' without simulated costs.*app\.fitted\(history\)"):
            refused()
    with pytest.raises(BackendError, match="neither a plant and a load nor a live side"):
        App("nothing", whole.topology)


def test_one_load_for_several_sources_is_shared_and_one_by_source_is_kept() -> None:
    app = apps.get("star")()
    both = app.source(Constant(100))
    assert isinstance(both, dict)
    assert [log.offered(10) for log in both.values()] == pytest.approx([500, 500])
    rows = app.rows({"left": Constant(1), "right": Constant(5)}, {"left": np.arange(2), "right": np.arange(3)})
    assert [row["source"] for row in rows] == [0, 0, 1, 1, 1]


FAN: dict[str, Workload] = {"left": Jump(200, 400, 3), "right": Constant(150)}


@pytest.mark.spark
@pytest.mark.slow
def test_branches_that_meet_and_part_are_exact_live_through_rescales(tmp_path: Path) -> None:
    """Star: two sources in one bolt, which feeds three sinks."""
    app = apps.get("star")()
    settings: dict[str, Any] = {"spark": live.spark("realtime"), "window_s": 1.0, "epoch_s": 3.0}
    with app.spark(FAN, micros=50, checkpoint=tmp_path, **settings) as job:
        assert any(job.observe().throughput for _ in range(30))
        for k in (3, 2):
            job.deploy(job.deployment.scaled(dict.fromkeys(app.topology.order, k)))
            job.observe()
        last = job.observe()
        assert job.restarts == 0
    bolt = last.operators["bolt"]
    assert last.operators["store"].input_rate == pytest.approx(bolt.processing_rate / 3, rel=0.2)
    records, got, want = audit(app, FAN, tmp_path)
    assert records > 500
    assert set(want) == {"store", "alert", "report"}
    assert got == want


@pytest.mark.spark
@pytest.mark.slow
def test_an_application_starts_a_cluster_of_its_own_and_ends_it() -> None:
    live.end()
    app = apps.get("tag_and_count")()
    with app.spark(workers=2, window_s=1.0) as job:
        assert job.knobs == {"parallelism", "workers", "placement"}
        assert job.deployment.workers == 2
        assert any(job.observe().throughput for _ in range(30))
        cluster = job._cluster
    assert cluster is not None
    assert not any(_alive(daemon.process.pid) for daemon in cluster._workers.values())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_of_a_name_are_told_apart() -> None:
    with pytest.raises(DspkitError, match="did you mean 'word_count'"):
        apps.get("wordcount")
    with pytest.raises(AttributeError, match="no attribute 'wordcount'"):
        apps.wordcount  # noqa: B018
    assert apps.word_count is apps.get("word_count") is apps.available()["word_count"]
