"""Tasks move with their state: every record once, in order, whatever moves, however long messages take."""

import json
from collections import Counter

import plotly.graph_objects as go
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dspkit import DspkitError, Topology
from dspkit.core import DeploymentError, WorkloadError
from dspkit.testing.strategies import topologies
from reproduction.elastic_storm.protocol import OPERATIONAL, Flow, MigrationCosts, migration_plot

EVIL = '<script>alert("x")</script>'


def _flow(topology, tasks, costs, feeds, seed, state_bytes=0.0):
    spread = {(name, i): f"node-{(n + i) % 3}" for n, name in enumerate(topology.order) for i in range(3)}
    flow = Flow(topology, tasks, places=spread, costs=costs, seed=seed, state_bytes=state_bytes)
    for source in topology.sources:
        flow.feed(source, [0.013 * (i + 1) for i in range(feeds)])
    return flow


def _exactly_once(flow, calm):
    assert (flow.lost, flow.received) == (0, {channel: keys for channel, keys in flow.sent.items() if keys})
    assert {t: task.state for t, task in flow.tasks.items()} == {t: task.state for t, task in calm.tasks.items()}
    assert Counter((t, k) for t, k, _ in flow.results) == Counter((t, k) for t, k, _ in calm.results)
    assert {task.mode for task in flow.tasks.values()} == {OPERATIONAL}
    assert not any(task.paused or task.inbox or task.draining for task in flow.tasks.values())


@given(data=st.data())
@settings(max_examples=150, phases=[Phase.explicit, Phase.generate])
def test_exactly_once_and_in_order_whatever_moves(data):
    """Several migrations, at once or not, of any tasks, neighbours and sources too; slow, uneven, repeated messages."""
    topology = data.draw(topologies())
    limits = {o.name: o.max_parallelism for o in topology.operators}
    tasks = {o.name: data.draw(st.integers(o.min_parallelism, min(3, limits[o.name]))) for o in topology.operators
             if o.min_parallelism <= 3}  # fmt: skip
    number = st.floats(0, 0.2)
    costs = MigrationCosts(
        delay_s=data.draw(number), service_s=data.draw(st.floats(0, 0.02)), watch_s=data.draw(number),
        poll_s=data.draw(st.sampled_from([0.0, 0.3])), start_s=data.draw(number), repeats=data.draw(st.floats(0, 0.4)),
        jitter=data.draw(st.floats(0, 10)),
    )  # fmt: skip
    feeds, seed = data.draw(st.integers(1, 40)), data.draw(st.integers(0, 9))
    calm = _flow(topology, tasks, costs, feeds, seed)
    calm.play()
    flow = _flow(topology, tasks, costs, feeds, seed, state_bytes=1e5)
    left = sorted(flow.tasks)
    for _ in range(data.draw(st.integers(1, 3))):  # each task in one of them: they may overlap in any way
        if left:
            some = data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True))
            left = [t for t in left if t not in some]
            flow.migrate(data.draw(st.floats(0, 0.6)), {t: f"node-{2 + i % 2}" for i, t in enumerate(some)})
    flow.play()
    _exactly_once(flow, calm)
    for migration in flow.migrations:
        assert (migration.degraded, migration.duration_s is None) == ([], False)
        assert set(migration.restored_s) == set(migration.moves)
        assert migration.asked_s <= migration.barrier_s <= min(migration.restored_s.values())
        for task, begin in migration.stopped.items():
            inside = [t for t, who, _ in flow.worked if who == task and begin < t < migration.restored_s[task]]
            assert not inside  # nothing is processed between the barriers


def test_a_task_moves_again_once_it_is_restored_and_not_before():
    chain = Topology.chain("u", "m", "d")
    flow = _flow(chain, {}, MigrationCosts(), 300, 0)
    flow.migrate(0.5, {("m", 0): "node-2"})
    flow.migrate(2.0, {("m", 0): "node-1"})
    flow.play()
    assert (flow.task("m").state, flow.task("m").node, flow.lost) == (300, "node-1", 0)
    flow = _flow(chain, {}, MigrationCosts(), 300, 0)
    flow.migrate(0.5, {("m", 0): "node-2"})
    flow.migrate(0.6, {("m", 0): "node-3"})
    with pytest.raises(DeploymentError, match="one move at a time"):
        flow.play()


def test_a_crashed_task_counts_as_saved_and_begins_without_its_state():
    """60 records at 13 ms; M dies at 0.65 s, the others go on, and the migration ends and says what happened."""
    flow = _flow(Topology.chain("u", "m", "d"), {}, MigrationCosts(delay_s=0.2), 60, 0)
    flow.migrate(0.62, {("m", 0): "node-2"})
    flow.crash(0.65, ("m", 0))
    flow.play()
    (migration,) = flow.migrations
    assert migration.degraded == ["m[0] begins without its state"]
    assert 0 < flow.task("m").state < 60
    assert flow.task("m").state + flow.lost == pytest.approx(60, abs=20)
    assert flow.task("d").state == len(flow.results)
    back = migration.restored_s["m", 0]
    after = {who: [key for t, task, key in flow.worked if task == (who, 0) and t > back] for who in ("m", "d")}
    assert after["m"]  # what it counts anew, numbered from one again, is taken for no repeat
    assert after["d"] == after["m"]
    assert flow.task("m").mode == OPERATIONAL


def test_a_missing_end_of_stream_is_waited_for_so_long_and_then_told():
    """One of two senders hangs (its service never ends within the run's first minutes)."""
    topology = Topology(("a", "b", "m"), (("a", "m"), ("b", "m")))
    costs = MigrationCosts(eos_wait_s=120.0, service_s=0.001)
    flow = Flow(topology, costs=costs)
    flow.feed("a", [0.1 * i for i in range(30)])
    flow.task("b").busy = True  # hangs: it hears of nothing
    flow.migrate(1.0, {("m", 0): "node-2"})
    flow.play()
    (migration,) = flow.migrations
    assert "m[0] missed an end of stream" in migration.degraded
    assert migration.restored_s["m", 0] == pytest.approx(121, abs=3)
    assert flow.task("m").state == 30


def test_barrier_1_is_given_up_after_its_patience():
    flow = Flow(Topology.chain("u", "m", "d"), costs=MigrationCosts(barrier_wait_s=180.0))
    flow.feed("u", [0.1 * i for i in range(20)])
    flow.task("d").busy = True  # never says that it has drained
    flow.migrate(1.0, {("m", 0): "node-2"})
    flow.play(1000)
    (migration,) = flow.migrations
    assert migration.degraded == ["barrier 1 was not reached in time"]
    assert migration.barrier_s == pytest.approx(181, abs=3)


def test_polling_and_a_wait_before_draining_are_what_takes_long():
    """16 MB at 100 Mbit/s: 1.3 s to save and 1.3 s to fetch; the prototype's looks and wait come on top."""
    took = {}
    for name, costs in {"told": MigrationCosts(), "polls": MigrationCosts(poll_s=1.0, drain_wait_s=10.0)}.items():
        flow = _flow(Topology.chain("u", "m", "d"), {}, costs, 100, 0, state_bytes=16e6)
        flow.migrate(0.5, {("m", 0): "node-2"})
        flow.play()
        took[name] = flow.migrations[0].duration_s
        assert flow.task("m").state == 100
    assert took["told"] == pytest.approx(2 * 1.28 + 0.5, abs=0.1)
    assert took["polls"] > took["told"] + 10


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda f: f.migrate(0, {("x", 0): "n"}), "task \\('x', 0\\)"),
        (lambda f: f.crash(0, ("m", 7)), "task \\('m', 7\\)"),
        (lambda f: f.feed("m", [1.0]), "source 'm'"),
        (lambda f: f.feed("u", [float("nan")]), "finite seconds"),
        (lambda f: f.feed("u", [1.0], keys=[]), "0 keys for 1 times"),
        (lambda f: Flow(f.topology, {"m": 0}), "parallelism"),
        (lambda f: Flow(f.topology, state_bytes=-1), "state_bytes"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message):
    with pytest.raises((DeploymentError, WorkloadError), match=message):
        wrong(Flow(Topology.chain("u", "m", "d")))


def test_migrations_that_meet_do_not_wait_for_each_other():
    """a and b move in one, c and d in another at the same time; who is saved for one must answer for the other."""
    edges = (("a", "b"), ("a", "c"), ("a", "d"), ("b", "d"), ("c", "d"))
    for seed in range(100):
        flow = Flow(Topology(tuple("abcd"), edges), costs=MigrationCosts(watch_s=0.1, jitter=10.0), seed=seed)
        flow.feed("a", [0.1, 0.7])
        flow.migrate(0.5, {("a", 0): "node-2", ("b", 0): "node-3"})
        flow.migrate(0.5, {("c", 0): "node-4", ("d", 0): "node-5"})
        flow.play()
        assert max(m.duration_s for m in flow.migrations) < 20  # nobody waited until his patience ended
        assert flow.task("d").state == 6


def test_a_migration_is_drawn_and_told():
    flow = Flow(Topology.chain("u", EVIL, "d"), costs=MigrationCosts(delay_s=0.01), state_bytes=1e6)
    flow.feed("u", [0.05 * i for i in range(1, 40)])
    flow.migrate(0.5, {(EVIL, 0): "node-2"})
    with pytest.raises(DspkitError, match="migration 7"):
        migration_plot(flow, 7)
    early = migration_plot(flow)  # before it began
    flow.play()
    picture = migration_plot(flow)
    for each in (early, picture):
        assert isinstance(each.figure, go.Figure)
        assert "<script" not in json.dumps(each.spec["data"])
    assert "1 of 3 tasks moved in" in picture.summary
    assert "0 were lost" in picture.summary
    still = [t for t in picture.spec["data"] if t["name"] == "paused"]
    (migration,) = flow.migrations
    assert still[0]["x"][1] - still[0]["x"][0] == pytest.approx(migration.downtime_s[EVIL, 0])
