"""The plant behind a run comes back from what the run shows; what it does not show is called unknown."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy import stats

from dspkit import Deployment, History, Operator, Simulator, Topology, apps, run, workload
from dspkit.core import ArgumentError, Decision, Latency, MetricError, OperatorMetrics, Snapshot, Step
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import Node, Plant, Service, fit
from dspkit.testing.strategies import topologies as graphs

CHAIN = Topology.chain("a", "b")


@dataclass(frozen=True)
class Schedule:
    """A policy that visits these parallelisms in turn, `each` windows long."""

    visits: tuple
    each: int = 6
    name: ClassVar[str] = "schedule"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        visit = self.visits[state // self.each % len(self.visits)]
        return state + 1, Decision(snapshot.deployment.scaled(visit))


def _visits(topology, ks):
    """All operators at each of these, but never two neighbours at the same, so that each is the bottleneck once."""
    ks = list(ks)
    return tuple(
        topology.clip({n: ks[(i + j) % len(ks)] for i, n in enumerate(topology.order)}) for j in range(len(ks))
    )


def _capacity(service, k):
    return k / service.seconds(k)


def _same(fitted, true, history, share=0.05, further=0.05):
    """Capacities at the parallelisms that windows without a pause showed and one beyond; where three were seen."""
    checked = 0
    for name, service in true.services.items():
        if fitted[name, "seconds_per_record"].value is None:
            continue
        rows = [s.snapshot.operators[name] for s in history if not s.snapshot.downtime_s]
        ks = {m.parallelism for m in rows if m.processing_rate * history[0].snapshot.window_s >= 100}
        beyond = {max(ks) + 1} if len(ks) > 2 else set()
        for k in ks | beyond:
            found = _capacity(fitted.plant.services[name], k)
            near = share if k in ks else further
            assert found == pytest.approx(_capacity(service, k), rel=near), (name, k)
            checked += 1
    return checked


@pytest.mark.parametrize("name", ["word_count", "diamond", "star"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_plant_of_an_application_comes_back_within_5_percent(name, seed):
    app = getattr(apps, name)()
    sim = app.simulator(seed=seed)
    history = run(Schedule(_visits(app.topology, (1, 2, 4, 6, 9))), sim, steps=90)
    fitted = fit(history)
    assert _same(fitted, app.plant, history) >= 6 * len(app.topology.order)
    for e in fitted.estimates:
        if e.quantity == "selectivity":
            start, end = e.where.split(" → ")
            assert e.value == pytest.approx(app.plant.services[start].toward(end), rel=1e-6)
        if e.quantity == "seconds_per_record":
            assert e.value == pytest.approx(app.plant.services[e.where].seconds_per_record, rel=0.05)
            assert e.low < e.value < e.high
        if e.quantity == "queue_records" and e.value is not None:
            assert e.value == pytest.approx(app.plant.services[e.where].queue_records, rel=0.02)
    assert sum(e.quantity == "queue_records" and e.value is not None for e in fitted.estimates) >= 1
    assert fitted.plant.pause_s == pytest.approx(app.plant.pause_s)
    assert fitted.plant.noise == pytest.approx(app.plant.noise, rel=0.15)
    assert {n: node.cores for n, node in fitted.plant.nodes.items()} == {
        n: node.cores for n, node in list(app.plant.nodes.items())[: app.workers]
    }


@st.composite
def _plants(draw, topology):
    """Without faults and with machines of one speed: no snapshot shows either."""
    services = {
        o.name: Service(
            draw(st.floats(1e-4, 1e-1)),
            selectivity={child: draw(st.floats(0, 3)) for child in topology.downstream(o.name)},
            contention=draw(st.floats(0, 0.2)),
            queue_records=draw(st.sampled_from([1.0, 10.0, 1000.0, math.inf])),
        )
        for o in topology.operators
    }
    nodes = {f"n{i}": Node(draw(st.integers(1, 4))) for i in range(draw(st.integers(1, 3)))}
    pause, noise = draw(st.sampled_from([0.0, 0.7, 10.0, 25.0])), draw(st.sampled_from([0.0, 0.01]))
    return Plant(services, nodes, pause, noise, draw(st.sampled_from(["rebalance", "in-place"])))


@given(st.data())
@settings(max_examples=40, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
def test_the_plant_of_any_job_comes_back(data):
    """Whatever the graph, load, room and cores: waits for full nodes are not taken for a law that slows down.

    The run starts calm: without a window in which nobody waits, a wait cannot be told from work without CPU.
    """
    topology = data.draw(graphs(most=5))
    true = data.draw(_plants(topology))
    load = workload.Trace((0, 100, 200), (3.0, data.draw(st.floats(50, 500)), data.draw(st.floats(500, 2000))))
    sim = Simulator(topology, true, load, window_s=10, tick_s=1, seed=data.draw(st.integers(0, 99)))
    history = run(Schedule(_visits(topology, (1, 2, 3, 5)), 5), sim, steps=40)
    fitted = fit(history)
    calm = {name for name in topology.order if any(_calm(s.snapshot, name) for s in history)}
    known = replace(true, services={n: s for n, s in true.services.items() if n in calm})
    _same(fitted, known, history, further=0.1)  # a wait of a hundredth looks like jitter; what follows from it grows


def _calm(snapshot, name):
    """Whether its instances never waited for a core in this window, and did some work."""
    m = snapshot.operators[name]
    waited = not m.true_rate or m.cpu * m.true_rate / m.processing_rate < 0.999
    return not waited and m.processing_rate * snapshot.window_s >= 5 and max(snapshot.nodes.values()) < 0.9


USL = Plant({"a": Service(1e-4, selectivity=0.5), "b": Service(1e-2, contention=0.05, coherency=0.01)}, pause_s=3)


def _run(plant, ks, steps=60, load=600, each=5, **options):
    sim = Simulator(CHAIN, plant, workload.Constant(load), tick_s=5, **options)
    return run(Schedule(tuple({"a": 1, "b": k} for k in ks), each), sim, steps=steps)


def _between(hits, trials, confidence):
    """Within what 1 of 10,000 tests of true intervals would leave."""
    low, high = stats.binom.interval(1 - 1e-4, trials, confidence)
    return low <= hits <= high


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.02, 0.15])
def test_intervals_hold_the_truth_as_often_as_they_say(noise):
    true = replace(USL, noise=noise)
    trials, hits = 150, Counter()
    for seed in range(trials):
        fitted = fit(_run(true, (1, 2, 4, 7, 3), seed=seed), confidence=0.8)
        b = true.services["b"]
        truth = {("a", "seconds_per_record"): 1e-4, ("job", "noise"): noise}
        truth |= {("b", name): getattr(b, name) for name in ("seconds_per_record", "contention", "coherency")}
        for what, value in truth.items():
            hits[what] += fitted[what].low <= value <= fitted[what].high
    assert {what: n for what, n in hits.items() if not _between(n, trials, 0.8)} == {}


@pytest.mark.slow
def test_intervals_of_selectivity_hold_under_chance():
    """The record-level engine sends whole records, two or none, so a window's ratio is chance."""
    plant = Plant({"a": Service(1e-3, selectivity=0.4), "b": Service(1e-3)})
    trials, hits = 150, 0
    whole = run(Static(), Simulator(CHAIN, plant, workload.Constant(30), engine="records"), steps=25 * trials)
    for i in range(trials):
        found = fit(whole[25 * i : 25 * (i + 1)], confidence=0.8)["a → b", "selectivity"]
        hits += found.low <= 0.4 <= found.high
    assert _between(hits, trials, 0.8)


def test_records_that_come_one_by_one_show_the_same_plant():
    sim = Simulator(CHAIN, USL, workload.Constant(300), engine="records", seed=3)
    history = run(Schedule(tuple({"a": 1, "b": k} for k in (1, 2, 4, 7)), 8), sim, steps=64)
    fitted = fit(history)
    assert _same(fitted, USL, history) >= 6
    assert fitted.plant.pause_s == pytest.approx(3, rel=0.05)


def test_one_parallelism_shows_a_speed_and_no_law():
    fitted = fit(_run(USL, (4,), steps=20)[2:])
    b = fitted.plant.services["b"]
    assert _capacity(b, 4) == pytest.approx(_capacity(USL.services["b"], 4), rel=1e-6)
    for name in ("contention", "coherency"):
        e = fitted["b", name]
        assert (e.value, e.low, e.high) == (None, None, None)
        assert "run it at another parallelism" in e.note
        assert any(f"{name} of " in note and "another parallelism" in note for note in fitted.notes)
    assert "at 4 instances" in fitted["b", "seconds_per_record"].note
    started = fit(_run(USL, (4,), steps=20)[2:], start=USL).plant.services["b"]
    for k in (1, 4, 9):  # what start knows of the law stays
        assert _capacity(started, k) == pytest.approx(_capacity(USL.services["b"], k), rel=1e-6)


def test_two_parallelisms_show_contention_alone():
    fitted = fit(_run(USL, (2, 4), steps=30)[2:])
    assert fitted["b", "coherency"].value is None
    assert "coherency" in fitted["b", "contention"].note
    for k in (2, 4):
        b = fitted.plant.services["b"]
        assert _capacity(b, k) == pytest.approx(_capacity(USL.services["b"], k), rel=1e-6)


def _changed(history, change):
    """The same run, its operators' metrics as `change(index, name, metrics)` wants them."""
    steps = []
    for i, step in enumerate(history):
        metrics = {n: change(i, n, m) for n, m in step.snapshot.operators.items()}
        steps.append(replace(step, snapshot=replace(step.snapshot, operators=metrics)))
    return History(history.topology, steps)


@pytest.mark.parametrize("factor", [0.1, 5.0])
def test_a_few_wild_windows_change_nothing(factor):
    def wild(i, name, m):
        if i % 11 != 3 or not m.true_rate:
            return m
        return replace(m, true_rate=m.true_rate * factor, cpu=m.cpu / factor)  # all that a slow machine changes

    history = _run(replace(USL, noise=0.05), (1, 2, 4, 7), steps=120)
    calm, shaken = fit(history), fit(_changed(history, wild))
    for k in (1, 2, 4, 7, 8):
        b = shaken.plant.services["b"]
        assert _capacity(b, k) == pytest.approx(_capacity(USL.services["b"], k), rel=0.05)
        assert _capacity(b, k) == pytest.approx(_capacity(calm.plant.services["b"], k), rel=0.02)
    assert "outliers left out" in shaken["b", "seconds_per_record"].note
    assert shaken.plant.noise == pytest.approx(0.05, rel=0.2)


def test_work_without_cpu_is_told_from_work_with_it():
    services = {"a": Service(1e-4), "b": Service(1e-2, contention=0.02, io_share=0.7)}
    fitted = fit(_run(Plant(services, noise=0.05), (1, 2, 4, 7)))
    assert fitted["b", "io_share"].value == pytest.approx(0.7, abs=0.01)
    assert fitted.plant.services["a"].io_share == pytest.approx(0, abs=0.01)
    blind = fit(_changed(_run(USL, (1, 2)), lambda i, n, m: replace(m, cpu=None)))
    assert blind["b", "io_share"].value is None
    assert blind["node-1", "cores"].value is None


def test_cores_that_run_out_are_no_contention():
    """Ten instances on two cores: each is slow, and the law is not to blame."""
    services = {"a": Service(1e-5), "b": Service(1e-2, contention=0.02)}
    true = Plant(services, nodes={"n1": Node(1), "n2": Node(3)}, noise=0.01)
    fitted = fit(history := _run(true, (1, 2, 3, 4, 10), steps=75, load=2000))
    seen = [s.snapshot.operators["b"] for s in history]
    assert min(1 / m.true_rate for m in seen if m.parallelism == 10 and m.true_rate) > 0.02
    for k in (1, 2, 3, 4, 10):
        assert _capacity(fitted.plant.services["b"], k) == pytest.approx(_capacity(services["b"], k), rel=0.03)
    assert "nodes were full" in fitted["b", "seconds_per_record"].note
    assert {name: node.cores for name, node in fitted.plant.nodes.items()} == {"n1": 1, "n2": 3}


def test_a_server_that_all_call_is_a_ceiling_and_no_coherency():
    services = {"a": Service(1e-5), "b": Service(1e-2, contention=0.01, external_rate_limit_per_s=350)}
    true = Plant(services, noise=0.01)
    fitted = fit(_run(true, (1, 2, 3, 5, 6, 8), steps=90, load=5000))
    b = fitted.plant.services["b"]
    assert b.external_rate_limit_per_s == pytest.approx(350, rel=0.02)
    assert fitted["b", "external_rate_limit_per_s"].low < 350 < fitted["b", "external_rate_limit_per_s"].high
    assert fitted["b", "coherency"].value is None
    for k in (1, 2):
        assert _capacity(b, k) == pytest.approx(_capacity(services["b"], k), rel=0.05)


def test_a_law_that_bends_down_is_no_ceiling():
    fitted = fit(_run(replace(USL, noise=0.01), (1, 2, 4, 7, 9), load=5000))
    assert fitted.plant.services["b"].external_rate_limit_per_s == math.inf
    assert fitted["b", "coherency"].value == pytest.approx(0.01, rel=0.2)


def _snapshot(t, k, down=0.0, execution="pipelined", lag=0.0, latency=None, busy=0.5, **rates):
    """A window of 10 s made by hand."""
    metrics = {
        n: OperatorMetrics(rate, rate, rate, rate / (k * busy) if rate else None, busy, 0.0, k)
        for n, rate in rates.items()
    }
    times = Latency(latency, latency, latency, latency) if latency else None
    deployment = Deployment({"a": k, "b": k})
    return Snapshot(
        t,
        10,
        deployment,
        metrics,
        {"a": 100},
        100,
        times,
        times,
        lag,
        {("a", "b"): 100},
        downtime_s=down,
        execution=execution,
    )


def _by_hand(*snapshots):
    return History(CHAIN, [Step(i, s, None) for i, s in enumerate(snapshots)])


PAUSES = {  # (parallelism, downtime) by window: pauses seen whole; those cut; what is said
    "in one window": ([(1, 0), (2, 4), (2, 0), (3, 6), (3, 0)], 5.0),
    "over windows": ([(1, 0), (2, 10), (2, 10), (2, 5), (2, 0)], 25.0),
    "cut by the next": ([(1, 0), (2, 10), (3, 10), (3, 5), (3, 0)], 15.0),
    "at the end": ([(1, 0), (2, 3)], 3.0),
    "a stop that nobody asked for": ([(1, 0), (1, 7), (2, 4), (2, 0), (2, 9)], 4.0),
    "no stop": ([(1, 0), (2, 0), (3, 0)], 0.0),
}


@pytest.mark.parametrize("case", PAUSES)
def test_pauses_are_stitched(case):
    windows, expected = PAUSES[case]
    shown = [_snapshot(10.0 * i, k, down, a=100, b=100) for i, (k, down) in enumerate(windows, 1)]
    fitted = fit(_by_hand(*shown))
    assert fitted.plant.pause_s == pytest.approx(expected)
    assert ("cut short" in fitted["job", "pause_s"].note) == (case == "cut by the next")


def test_a_pause_that_was_always_cut_is_a_bound_and_one_never_seen_unknown():
    shown = [_snapshot(10.0 * i, i, 10.0 * (i > 1), a=100, b=100) for i in range(1, 5)]
    least = fit(_by_hand(*shown))["job", "pause_s"]
    assert (least.value, least.low, least.high, least.note) == (10, 10, None, "at least")
    never = fit(_by_hand(_snapshot(10, 1, a=100, b=100)))
    assert never["job", "pause_s"].value is None
    assert never.plant.pause_s == Plant({"a": Service()}).pause_s
    assert any("change a parallelism" in note for note in never.notes)


def test_the_state_that_a_savepoint_writes_is_not_counted_twice():
    services = {"a": Service(1e-4), "b": Service(1e-3, state_bytes=1e9)}
    true = Plant(services, pause_s=4, pause_kind="savepoint", state_bytes_per_s=1e9)
    history = _run(true, (1, 2, 3), steps=30)
    assert history.application.downtime_s.max() == pytest.approx(6)
    assert fit(history, start=true).plant.pause_s == pytest.approx(4)


@pytest.mark.parametrize("room", [50.0, 3000.0])
def test_room_shows_where_it_held_somebody_back(room):
    topology = Topology.chain("a", "b", "c")
    services = {"a": Service(1e-4), "b": Service(1e-4, queue_records=room), "c": Service(1e-2, queue_records=2 * room)}
    sim = Simulator(topology, Plant(services), workload.Constant(500))
    fitted = fit(run(Static(), sim, steps=150))
    assert fitted.plant.services["b"].queue_records == pytest.approx(room, rel=0.02)
    assert fitted.plant.services["c"].queue_records == pytest.approx(2 * room, rel=0.02)
    calm = fit(run(Static(), Simulator(topology, Plant(services), workload.Constant(50)), steps=20))
    assert calm["c", "queue_records"].value is None


def test_a_queue_that_refuses_shows_its_room():
    services = {"a": Service(1e-4), "b": Service(1e-2, queue_records=70, overflow="drop")}
    fitted = fit(run(Static(), Simulator(CHAIN, Plant(services), workload.Constant(500)), steps=20))
    b = fitted.plant.services["b"]
    assert (b.overflow, b.queue_records) == ("drop", pytest.approx(70, rel=0.02))


def test_overhead_of_batches_is_the_time_that_no_stage_works():
    """Batches of 4 s back to back: stages work 1.5 s each, 1 s is overhead."""
    shown = [
        _snapshot(10.0 * i, 1, execution="micro-batch", lag=500, latency=4.0, busy=0.375, a=100, b=100)
        for i in (1, 2, 3)
    ]
    fitted = fit(_by_hand(*shown))
    assert (fitted.plant.execution, fitted.plant.batch_overhead_s) == ("micro-batch", pytest.approx(1.0))
    idle = fit(_by_hand(*(_snapshot(10.0 * i, 1, execution="micro-batch", a=100, b=100) for i in (1, 2, 3))))
    assert idle["job", "batch_overhead_s"].value is None


@pytest.mark.parametrize("io", [0.0, 0.6])
def test_on_faster_machines_the_time_is_still_that_of_speed_1(io):
    services = {"a": Service(1e-4), "b": Service(1e-2, io_share=io)}
    fast = {f"n{i}": Node(16, speed=2.0) for i in range(2)}
    true = Plant(services, fast)

    def metered(i, name, m):
        return replace(m, cpu=m.processing_rate * services[name].seconds(1) * (1 - services[name].io_share) / 2)

    history = _changed(_run(true, (1, 2, 4)), metered)
    fitted = fit(history, start=Plant(dict.fromkeys("ab", Service()), fast)).plant
    again = _run(fitted, (1, 2, 4))
    assert fitted.services["b"].seconds_per_record == pytest.approx(1e-2, rel=0.01)
    assert again[-1].snapshot.operators["b"].true_rate == pytest.approx(100 / (io + (1 - io) / 2), rel=0.01)


UNLIKE = {"fast": Node(16, speed=2.0), "slow": Node(16, speed=0.5)}
VISITS = tuple({"a": a, "b": b} for a, b in ((1, 1), (1, 2), (1, 3), (2, 4)))


def _unlike(plant, steps=48, **options):
    return run(Schedule(VISITS), Simulator(CHAIN, plant, workload.Constant(5000), **options), steps=steps)


@pytest.mark.parametrize("io", [0.0, 0.5])
def test_nodes_that_differ_in_speed_count_where_instances_run(io):
    """Round robin, or as placed; the plant that comes back replays the run."""
    true = Plant({"a": Service(1e-3, io_share=io), "b": Service(4e-3, contention=0.03)}, UNLIKE)
    placed = Deployment(CHAIN.uniform(), placement={("a", 0): "slow", ("b", 0): "fast"})
    for deployment in (None, placed, Deployment(CHAIN.uniform(), workers=1)):
        history = _unlike(true, deployment=deployment)
        fitted = fit(history, start=true)
        assert fitted["a", "seconds_per_record"].value == pytest.approx(1e-3, rel=0.05)
        assert fitted["b", "seconds_per_record"].value == pytest.approx(4e-3, rel=0.05)
        assert fitted["b", "contention"].value == pytest.approx(0.03, abs=0.005)
        assert fitted["a", "io_share"].value == pytest.approx(io, abs=0.02)
        again = _unlike(fitted.plant, deployment=deployment)
        assert [s.snapshot.throughput for s in again] == pytest.approx(
            [s.snapshot.throughput for s in history], rel=0.02
        )
        blind = fit(_changed(history, lambda i, n, m: replace(m, cpu=None)), start=true)
        assert blind["a", "seconds_per_record"].value == pytest.approx(1e-3, rel=0.05)


def test_unlike_nodes_in_micro_batches_take_equal_parts():
    true = Plant({"a": Service(1e-3), "b": Service(4e-3, io_share=0.3)}, UNLIKE, execution="micro-batch")
    history = run(Schedule(VISITS), Simulator(CHAIN, true, workload.Constant(100)), steps=48)
    for shown in (history, _changed(history, lambda i, n, m: replace(m, cpu=None))):
        fitted = fit(shown, start=true)
        assert fitted["a", "seconds_per_record"].value == pytest.approx(1e-3, rel=0.05)
        assert fitted["b", "seconds_per_record"].value == pytest.approx(4e-3, rel=0.05)


def test_a_node_that_start_does_not_know_is_named():
    services = {"a": Service(1e-3), "b": Service(4e-3)}
    placed = Deployment(CHAIN.uniform(), placement={("a", 0): "slow"})
    history = _unlike(Plant(services, UNLIKE), steps=6, deployment=placed)
    with pytest.raises(ArgumentError, match=r"instances on 'slow'.*speed of each node.*nodes of start"):
        fit(history, start=Plant(services, {"fast": Node(speed=2.0), "other": Node()}))
    fit(history, start=Plant(services, {"fast": Node(speed=2.0), "other": Node(speed=2.0)}))  # all alike
    fit(history)


def test_micro_batches_show_their_overhead_and_their_speed():
    true = replace(USL, execution="micro-batch", batch_overhead_s=0.05, trigger_s=1.0, max_batch_records=500)
    sim = Simulator(CHAIN, true, workload.Constant(450))
    fitted = fit(run(Schedule(tuple({"a": 1, "b": k} for k in (1, 2, 4)), 8), sim, steps=48))
    assert fitted.plant.batch_overhead_s == pytest.approx(0.05, rel=0.05)
    for k in (1, 2, 4):
        assert _capacity(fitted.plant.services["b"], k) == pytest.approx(_capacity(USL.services["b"], k), rel=1e-3)


def test_a_fitted_plant_runs_as_the_true_one():
    """The same load and deployments again: throughput and mean latency window by window."""
    app = apps.word_count()
    history = run(DS2(), app.simulator(seed=5), steps=100)
    again = Simulator(app.topology, replace(fit(history).plant, noise=0.0), app.load, seed=9)
    visits = [s.deployment.parallelism for s in history]
    replay = run(Schedule(tuple(visits), 1), again, steps=100)
    error = [
        (abs(b.throughput / a.throughput - 1), abs(b.latency.mean / a.latency.mean - 1))
        for a, b in ((x.snapshot, y.snapshot) for x, y in zip(history, replay, strict=True))
        if a.latency and b.latency
    ]
    throughput, latency = np.median(error, axis=0)
    assert len(error) > 80
    assert throughput < 0.01
    assert latency < 0.05


def test_what_is_saved_tells_the_same(tmp_path):
    history = run(DS2(), apps.diamond().simulator(), steps=40)
    assert fit(History.load(history.save(tmp_path / "run"))) == fit(history)


def test_meters_that_fall_silent_now_and_then_do_no_harm():
    history = _run(USL, (1, 2, 4, 7))
    steps = [
        replace(s, snapshot=replace(s.snapshot, operators={} if s.index % 3 == 0 else s.snapshot.operators, nodes={}))
        for s in history
    ]
    fitted = fit(History(CHAIN, steps))
    for k in (1, 2, 4, 7):
        assert _capacity(fitted.plant.services["b"], k) == pytest.approx(_capacity(USL.services["b"], k), rel=1e-4)


def test_what_cannot_be_fitted_says_what_to_record():
    history = _run(USL, (1, 2), steps=6)
    with pytest.raises(MetricError, match=r"empty history.*record a run"):
        fit(History(CHAIN))
    mute = History(CHAIN, [replace(s, snapshot=replace(s.snapshot, operators={})) for s in history])
    with pytest.raises(MetricError, match=r"no metrics of 'a', 'b'.*their metrics"):
        fit(mute)
    with pytest.raises(MetricError, match=r"without a processed record.*5 records.*record a run"):
        fit(mute, start=USL)
    half = History(
        CHAIN,
        [replace(s, snapshot=replace(s.snapshot, operators={"a": s.snapshot.operators["a"]})) for s in history],
    )
    with pytest.raises(MetricError, match=r"no metrics of 'b'.*start=Plant"):
        fit(half)
    assert fit(half, start=USL).plant.services["b"] == USL.services["b"]
    still = _run(USL, (1,), steps=3, load=0)
    with pytest.raises(MetricError, match="without a processed record"):
        fit(still)
    for confidence in (95, 0, 1, -0.5, math.nan, "x", None):
        with pytest.raises(ArgumentError, match="between 0 and 1"):
            fit(history, confidence=confidence)
    with pytest.raises(MetricError, match=r"history None.*a History.*run\(\)"):
        fit(None)
    with pytest.raises(ArgumentError, match=r"start=5.*a Plant"):
        fit(history, start=5)
    with pytest.raises(ArgumentError, match="one per operator"):
        fit(history, start=Plant({"x": Service()}))


def test_a_fit_reads_as_text_table_and_page():
    topology = Topology((Operator("<b>&"), Operator("sink")), (("<b>&", "sink"),))
    plant = Plant({"<b>&": Service(1e-3), "sink": Service(1e-3)})
    fitted = fit(run(Static(), Simulator(topology, plant, workload.Constant(300)), steps=9))
    page = fitted._repr_html_()
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page
    assert "unknown" in page
    assert "run it at another parallelism" in repr(fitted)
    table = fitted.table
    assert list(table.columns) == ["where", "quantity", "value", "low", "high", "windows", "note"]
    known = table[table["value"].notna() & table.low.notna() & table.high.notna()]
    assert ((known.low <= known["value"]) & (known["value"] <= known.high)).all()
    assert table.set_index(["where", "quantity"])["value"]["sink", "contention"] != 0  # NaN, not 0
    with pytest.raises(KeyError):
        fitted["sink", "typo"]
