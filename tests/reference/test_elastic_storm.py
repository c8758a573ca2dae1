"""Worked examples of Elastic Storm's card, and the printed sequence of Detectors."""

import pytest

from dspkit import Deployment, Snapshot, Topology
from dspkit.apps import detector
from dspkit.core import ArgumentError, FrozenMap, KnobError, Operator, OperatorMetrics
from dspkit.migration import groups, relocate
from dspkit.policies.elastic_storm import ElasticStorm
from reproduction.elastic_storm import study as reproduce
from reproduction.elastic_storm.protocol import Flow, MigrationCosts, forward


def _one(tasks=20, least=1):
    return Topology((Operator("op", tasks, least),))


@pytest.mark.parametrize(
    ("use", "least", "count"),
    [
        ([0.9, 0.8, 0.3, 0.2], 1, 6),
        ([0.71] * 4, 1, 8),
        ([0.70] * 4, 1, None),
        ([0.9, 0.1, 0.1, 0.1], 1, 5),
        ([0.9] * 12, 1, 20),
        ([0.9] * 20, 1, None),
        ([0.1, 0.1, 0.19, 0.20], 1, None),
        ([0.1, 0.1, 0.19, 0.19], 1, 2),
        ([0.1] * 5, 1, 2),
        ([0.1] * 3, 1, 1),
        ([0.1] * 2, 1, 1),
        ([0.05], 1, None),
        ([0.1] * 6, 4, 4),
    ],
)
def test_the_threshold_policy(use, least, count):
    assert ElasticStorm().decide(_one(least=least), {"op": use}) == ({} if count is None else {"op": count})


def test_variants_of_the_policy():
    assert ElasticStorm(halve="ceil").decide(_one(), {"op": [0.1] * 5}) == {"op": 3}
    prototype = ElasticStorm(scale_out_above=0.8, prototype=True)
    assert prototype.decide(_one(), {"op": [0.9] + [0.5] * 3}) == {}  # a quarter more is too little
    assert prototype.decide(_one(), {"op": [0.9] * 9}) == {"op": 20}  # 18 of 20: a tenth is left
    assert prototype.decide(_one(5), {"op": [0.9] + [0.5] * 3}) == {"op": 5}
    two = Topology.chain("a", "b", max_parallelism=20)
    assert ElasticStorm().decide(two, {"a": [0.9], "b": None}) == {}  # a missing sample
    assert ElasticStorm().decide(two, {"a": [0.9], "b": [0.1, 0.1]}) == {"a": 2, "b": 1}


def test_the_stability_gap():
    assert ElasticStorm(gap=0.29).gap == 0.29
    with pytest.raises(KnobError, match="out > 2 low"):
        ElasticStorm(gap=0.3)
    with pytest.raises(KnobError, match="3 executors may become 1"):
        ElasticStorm(scale_out_above=0.7, scale_in_below=0.25, gap=0.1)
    assert ElasticStorm(scale_out_above=0.7, scale_in_below=0.25, gap=0.1, halve="ceil")


TASKS = {"input": 1, "generator": 2, "detector": 20, "reporter": 1}


def _trace(start, seconds=0.0125, until=4500):
    """The card's model: what changes when, as the policy sees a window each ten seconds."""
    topology, policy = detector().topology, ElasticStorm()
    load, state = detector().load, ElasticStorm().init(detector().topology)
    running, changes = dict(start), []
    for t in range(10, until + 1, 10):
        rate = load.rate(float(t))
        work = {"detector": rate * seconds, "generator": rate * 0.0005}
        use = {n: min(1.0, work[n] / k) if n in work else 0.1 for n, k in running.items()}
        metrics = {
            n: OperatorMetrics(rate, rate, rate, 100.0, use[n], 0.0, running[n], cpu=use[n] * running[n])
            for n in running
        }
        seen = Snapshot(
            float(t), 10.0, Deployment(running), FrozenMap(metrics), {"input": rate}, rate, None, None, 0.0, {}
        )
        state, decision = policy.step(state, seen)
        after = dict(decision.deployment.parallelism)
        if after != running:
            changes.append(
                (t, {n: k for n, k in after.items() if k != running[n]}, sum(after.values()), use["detector"])
            )
        running = after
    assert topology.check(Deployment(running))
    return changes


def test_the_trace_of_the_experiment():
    changes = _trace(TASKS)
    assert [(t, c, total) for t, c, total, _ in changes] == [
        (10, {"detector": 10, "generator": 1}, 13),
        (140, {"detector": 5}, 8),
        (900, {"detector": 10}, 13),
        (1800, {"detector": 20}, 23),
        (2700, {"detector": 10}, 13),
        (3600, {"detector": 5}, 8),
    ]
    assert [use for *_, use in changes] == pytest.approx([0.075, 0.15, 0.875, 1.0, 0.15625, 0.15])


@pytest.mark.parametrize("seconds", [0.0101, 0.011, 0.013, 0.0154])
def test_the_sequence_does_not_hang_on_the_service_time(seconds):
    counts = [20, *(c["detector"] for _, c, *_ in _trace(TASKS, seconds) if "detector" in c)]
    assert counts == [20, 10, 5, 10, 20, 10, 5]
    assert all(t in (10, 140) or t >= 900 for t, *_ in _trace(TASKS, seconds))  # no decision while it rests


def test_from_five_only_the_last_four_changes_come():
    changes = _trace({**TASKS, "detector": 5})
    assert [(t, c) for t, c, *_ in changes] == [
        (10, {"generator": 1}), (900, {"detector": 10}), (1800, {"detector": 20}), (2700, {"detector": 10}),
        (3600, {"detector": 5}),
    ]  # fmt: skip


def test_groups_of_tasks():
    assert [(g[0] + 1, g[-1] + 1) for g in groups(20, 5)] == [(1, 4), (5, 8), (9, 12), (13, 16), (17, 20)]
    assert [len(g) for g in groups(20, 6)] == [4, 4, 3, 3, 3, 3]
    assert [len(g) for g in groups(20, 3)] == [7, 7, 6]
    with pytest.raises(ArgumentError, match=r"1 to .* executors"):
        groups(4, 5)


def test_relocation():
    robin = [f"n{i % 5}" for i in range(10)]
    assert relocate(20, robin, 5).moved == 10  # half, whatever the ties
    assert relocate(20, sorted(robin), 5) == (("n0", "n1", "n2", "n3", "n4"), 0, 0.0)
    assert relocate(8, ["a", "a", "a", "b"], 2).moved == 2
    assert relocate(20, [f"n{i}" for i in range(5)], 10).moved == 0
    assert relocate(20, robin, 20).moved == 0
    assert relocate(4, ["a", "b"], 4, room={"a": 1, "b": 3}).nodes == ("a", "b", "b", "b")
    assert relocate(4, ["a", "b"], 1, sizes=[1, 1, 5, 5]) == (("b",), 2, 2.0)  # bytes count, if they are known


def test_one_task_moves_while_records_flow():
    """U has emitted 10, M processed 6, and 7 to 10 are under way; 11 to 13 come while M moves, 14 and 15 later."""
    places = {("u", 0): "a", ("m", 0): "b", ("d", 0): "c"}
    costs = MigrationCosts(delay_s=0.4, service_s=0.01, watch_s=0.0, start_s=0.5, bytes_per_s=float("inf"))
    flow = Flow(Topology.chain("u", "m", "d"), places=places, costs=costs, logic={"d": forward})
    flow.feed("u", [0.1 * i for i in range(1, 14)] + [5.0, 5.1])
    flow.migrate(1.05, {("m", 0): "n"})
    flow.play(1.05)
    assert (flow.task("m").state, flow.sent[("u", 0), ("m", 0)]) == (6, list(range(1, 11)))
    flow.play(1.6)  # barrier 1
    kept = flow.stores["m", 0]
    assert (kept.state, [key for key, _ in kept.inbox]) == (6, [7, 8, 9, 10])
    assert [key for key, _ in flow.task("u").paused["m"].buffer] == [11, 12, 13]
    flow.play()
    (migration,) = flow.migrations
    assert flow.task("m").state == 15
    assert [(key, counted) for _, key, counted in flow.results] == [(i, i) for i in range(1, 16)]
    assert flow.received[("m", 0), ("d", 0)] == list(range(1, 16))
    stopped, back = migration.stopped["m", 0], migration.restored_s["m", 0]
    assert not [key for t, who, key in flow.worked if who == ("m", 0) and stopped < t < back]
    worked = [key for t, who, key in flow.worked if who == ("m", 0) and t > back]
    assert worked == list(range(7, 16))  # the input buffer, what was diverted, what came later
    assert migration.buffered == {("m", 0): 4}
    assert migration.downtime_s["m", 0] == pytest.approx(back - 1.05)


@pytest.mark.parametrize("engine", ["fluid", pytest.param("records", marks=pytest.mark.slow)])
def test_the_experiment_on_the_simulator(engine):
    """The printed sequence; 23 executors at the peak, 8 at the end; at the peak latency far below the static run."""
    elastic, static = (reproduce.play(name, engine=engine) for name in ("elastic", "static"))
    assert reproduce.detectors(elastic) == reproduce.SEQUENCE
    ours, theirs = reproduce.phases(elastic), reproduce.phases(static)
    assert ours.executors.tolist() == [8, 13, 23, 13, 8]
    assert ours.latency_ms[3] < 900
    assert theirs.latency_ms[3] == pytest.approx(1500, rel=0.1)
    assert (ours.waiting < 20).all()
    assert theirs.waiting[3] > 100_000
    assert ours.busiest_node.max() > 0.8
    shares = reproduce.moved(elastic)["mean"]
    assert shares["scale out"] < shares["scale in"] < 0.5


def test_moving_16_mb_costs_far_less_than_ten_seconds_if_barriers_are_told():
    cost = reproduce.overhead((2.0, 16.0))
    assert cost.told[16.0] < 3
    assert cost.prototype[16.0] > 10
    assert cost.prototype[16.0] - cost.prototype[2.0] < 0.25 * cost.prototype[2.0]  # the state's size hardly shows
