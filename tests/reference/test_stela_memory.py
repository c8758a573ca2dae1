"""Heaps that run over: against a cycle worked out by hand, and against the simulator where nothing runs over."""

from dataclasses import replace

import pytest

from dspkit.apps.stela import LOAD_PER_S, TABLE_ONE, trial
from reproduction.stela.memory import LOOK_S, Heaps, scale_out_heaps


def linear(heap_s, **kw):
    """Linear without noise, each operator on a machine of its own; `enrich` does half of the whole load."""
    app = trial("linear").app(noise=0.0)
    places = {(o, i): f"node-{j}" for j, o in enumerate(app.topology.order, 1) for i in range(app.start)}
    nodes = {name: replace(node, cores=6) for name, node in app.plant.nodes.items()}
    return Heaps(replace(app, placement=places, plant=replace(app.plant, nodes=nodes)), heap_s, **kw)


def done(backend, windows):
    with backend:
        return [backend.observe().operators["sink"].processing_rate for _ in range(windows)]


@pytest.mark.parametrize(("heap_s", "restart_s"), [(20.0, 40.0), (50.0, 20.0), (5.0, 30.0)])
def test_a_bolt_works_while_its_heap_fills(heap_s, restart_s):
    """Half of the load is too much, so a heap of h seconds of the load fills in 2 h; then the bolt stands still."""
    cycles = 4
    x = done(linear(heap_s, restart_s=restart_s), round(cycles * (2 * heap_s + restart_s) / 10))
    share = 2 * heap_s / (2 * heap_s + restart_s)
    assert sum(x) / len(x) == pytest.approx(LOAD_PER_S / 2 * share, rel=LOOK_S / (2 * heap_s))
    assert min(x) == 0


def test_who_moves_begins_empty():
    with linear(1e9) as backend:
        for _ in range(6):
            full = backend.observe().operators["enrich"].backlog
        now = backend.deployment
        away = {who: "node-5" if who[0] == "enrich" else node for who, node in now.placement.items()}
        backend.deploy(replace(now, placement=away))
        assert full == pytest.approx(60 * LOAD_PER_S / 2)
        assert backend.observe().operators["enrich"].backlog == pytest.approx(10 * LOAD_PER_S)


def test_large_heaps_change_nothing():
    app = TABLE_ONE[3].app()
    with app.simulator(seed=1) as plain:
        expected = [plain.observe().throughput for _ in range(6)]
    with Heaps(app, 1e9) as backend:
        assert [backend.observe().throughput for _ in range(6)] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_memory_costs_throughput_before_machines_join_too():
    """What is congested runs over before scaling as well: heaps that move a gain by much have taken a part by then."""
    known = scale_out_heaps((1000.0, 30.0), trials=(trial("diamond"),)).set_index("heap_s")
    assert known.over_default[1000.0] == pytest.approx(1.0, abs=0.05)
    assert known.stela_before[30.0] < 0.95 * known.stela_before[1000.0]
