"""Numbers that chapter 3 of Nardelli's thesis prints, and the method card's worked examples E1 to E11."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dspkit import apps, run
from dspkit.apps import tag_and_count
from dspkit.core import ArgumentError
from dspkit.placement.coordinates import Coordinate, embed, embedding_error, median, springs, update
from dspkit.placement.distributed_storm import (
    Died,
    MigrationRules,
    NodeView,
    Stressed,
    Unreliable,
    plan,
    streams,
    thesis_cluster,
    traffic,
)
from dspkit.placement.distributed_storm.schedulers import (
    AxisWeights,
    distances,
    nearest,
    relative_distance,
    room,
    worth_moving,
)
from dspkit.policies.distributed_storm import DistributedStorm
from dspkit.simulator import NodeDown
from reproduction.distributed_storm import failures
from reproduction.distributed_storm.bounds import log_processing_bound, word_count_pairs, word_count_table


def test_e1_vivaldi():
    me, other = Coordinate((0, 0), 1), Coordinate((3, 4), 1)
    assert update(me, other, 10) == Coordinate((-0.75, -1.0), 0.875)
    assert update(me, other, 10, alpha=0.25, beta=0.25) == Coordinate((-0.375, -0.5), 0.9375)
    near = update(Coordinate((0, 0), 0.2), Coordinate((3, 4), 0.6), 4)
    assert near.error == pytest.approx(0.20625, abs=1e-15)
    assert near.x == pytest.approx((0.075, 0.1), abs=1e-15)


def test_vivaldi_corners():
    sure = Coordinate((0, 0), 0.0)
    assert update(sure, Coordinate((3, 4), 0.0), 10).x == pytest.approx((-1.5, -2))  # w = 1 if both errors are 0
    assert update(sure, Coordinate((3, 4), 1.0), 10) == sure  # the surer node does not move
    assert update(sure, sure, 0) == sure
    parted = update(Coordinate(), Coordinate(), 8, random=np.random.default_rng(3))
    assert math.hypot(*parted.x) == pytest.approx(0.5 * 0.5 * 8)
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(ArgumentError):
            update(sure, sure, wrong)


def test_points_of_a_plane_are_found_again_and_a_star_is_not():
    points = np.random.default_rng(1).uniform(0, 100, (12, 2))
    plane = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert embedding_error(embed(plane), plane) < 0.01
    mu = np.array([15, 23, 19, 25, 12, 17, 32, 27])  # the thesis's cluster: delay of outgoing packets
    star = (mu[:, None] + mu[None]) / 2 * (1 - np.eye(8))
    assert star[np.triu_indices(8, 1)].mean() == pytest.approx(21.25)
    assert star.max() == 29.5
    assert embedding_error(embed(star), star) > 0.03


def test_e2_springs_as_printed():
    line = springs([(0, 0), (10, 0)], [3, 1], (10, 0), strict=True)
    assert line == pytest.approx((2.6259712, 0), abs=1e-9)
    triangle = springs([(0, 0), (12, 0), (0, 12)], [2, 1, 1], (0, 0), strict=True)
    assert triangle == pytest.approx((2.9160192, 2.9160192), abs=1e-9)
    # The first two moves: a limit just above their force stops behind them.
    assert springs([(0, 0), (12, 0), (0, 12)], [2, 1, 1], (0, 0), force_limit=16.970564, strict=True) == pytest.approx(
        (1.2, 1.2)
    )
    assert springs([(0, 0), (12, 0), (0, 12)], [2, 1, 1], (0, 0), force_limit=10.182339, strict=True) == pytest.approx(
        (1.92, 1.92)
    )


@pytest.mark.parametrize(
    ("rate", "course"), [(10, [5, 15, 5, 15]), (15, [5, 20, -10, 50, -70]), (5, [5, 10, 10])], ids=str
)
def test_e3_as_printed_springs_swing_or_fly_apart(rate, course, monkeypatch):
    for steps, x in enumerate(course[1:], 1):
        monkeypatch.setattr("dspkit.placement.coordinates.MOST_STEPS", steps)
        assert springs([[0], [20]], [rate, rate], [5], force_limit=0, strict=True) == pytest.approx([x])
    monkeypatch.setattr("dspkit.placement.coordinates.MOST_STEPS", 1)
    assert springs([[0], [20]], [rate, rate], [5]) == pytest.approx([10])


def test_e4_energy_is_not_usage():
    at, rates = np.array([[0.0], [3.0]]), np.array([1, 2])
    rest, middle = springs(at, rates, [0], force_limit=1e-9), median(at, rates, [0])
    assert (rest[0], middle[0]) == pytest.approx((2, 3))
    for place, usage, energy in ((rest, 4, 6), (middle, 3, 9)):
        far = np.abs(at - place).ravel()
        assert (rates @ far, rates @ far**2) == pytest.approx((usage, energy))


def test_e5_a_whole_chain():
    x = [0.0, 0.0, 0.0, 9.0]
    for _ in range(60):
        for i in (1, 2):
            x[i] = float(springs([[x[i - 1]], [x[i + 1]]], [10, 10], [x[i]], force_limit=1e-9)[0])
    assert x == pytest.approx([0, 3, 6, 9])
    hops = np.diff(x)
    assert (10 * (hops**2).sum(), 10 * hops.sum()) == pytest.approx((270, 90))


NODES = [(40, 60, 0.9, 0.5), (16, 28, 1, 0.9), (22, 29, 0.99, 0.1)]


@pytest.mark.parametrize(
    ("weights", "far", "first"),
    [
        ((1, 0, 0), (0.5, 0.1, 0.15), 1),
        ((1, 0, 0.5), (0.559017, 0.460977, 0.158114), 2),
        ((1, 10, 0), (1.118034, 0.1, 0.180278), 1),
        ((1, 1, 1), (0.714143, 0.905539, 0.180555), 2),
    ],
)
def test_e6_distance_in_cost_space(weights, far, first):
    found = distances((10, 20, 1, 0), NODES, AxisWeights(*weights), 100)
    assert found == pytest.approx(far, abs=1e-6)
    assert nearest(found)[0] == first


def test_e7_migration_test():
    assert relative_distance(0.30, 0.22) == pytest.approx(0.153846, abs=1e-6)
    assert relative_distance(0.30, 0.23) == pytest.approx(0.132075, abs=1e-6)
    assert [worth_moving(*pair) for pair in ((0.30, 0.22), (0.30, 0.23), (0.23, 0.17))] == [True, False, False]
    assert not worth_moving(0.22, 0.30)  # the printed test takes a worse one too
    assert not worth_moving(0, 0)
    assert worth_moving(math.inf, 3.0)
    assert worth_moving(1.0, 0.739)
    assert not worth_moving(1.0, 0.7392)


def test_the_median_is_where_usage_is_least():
    random = np.random.default_rng(5)
    for _ in range(20):
        points, rates = random.uniform(0, 50, (5, 2)), random.uniform(0, 4, 5)
        place = median(points, rates, (0, 0))
        usage = rates @ np.linalg.norm(points - place, axis=1)
        grid = random.uniform(0, 50, (4000, 2))
        others = np.linalg.norm(points[:, None] - np.vstack([grid, points])[None], axis=2)
        assert usage <= (rates @ others).min() + 1e-6


def _view(points, where, streams, here=0, marked=()):
    rows = np.array([(*p, 1.0, 0.0) for p in points], float)
    return NodeView(here, rows, where, streams, frozenset({"alpha", "beta"}), frozenset(marked), (2,) * len(points))


@pytest.mark.parametrize("skip_local", [True, False])
def test_e8_no_ping_pong(skip_local):
    """Alpha on A, beta on B, gamma on A talks to both as much: it stays, in either reading."""
    a, b, c = (("alpha", 0), ("beta", 0), ("gamma", 0))
    talk = {c: ((a, 10.0), (b, 10.0)), a: ((c, 10.0),), b: ((c, 10.0),)}
    where = {a: (0, 0), b: (1, 0), c: (0, 0)}
    rules = MigrationRules(w_utilisation=0, skip_local=skip_local)
    assert plan(_view([(0, 0), (10, 0)], where, talk), rules) is None
    # With a heavier stream to B it goes, and stays there.
    talk[c] = ((a, 1.0), (b, 10.0))
    if not skip_local:
        move = plan(_view([(0, 0), (10, 0)], where, talk), rules)
        assert (move.executor, move.end) == (c, (1, 0))
        assert plan(_view([(0, 0), (10, 0)], where | {c: (1, 0)}, talk, here=1), rules) is None
    assert plan(_view([(0, 0), (10, 0)], where, talk, marked=("beta",)), rules) is None  # somebody moves a neighbour


def test_a_slot_takes_four_and_then_the_next_slot():
    busy = {("x", i): (1, 0) for i in range(4)}
    assert room(1, {("x", 0): (1, 0), ("x", 1): (1, 0), ("x", 2): (1, 0)}, (2, 2), 4) == (1, 0)
    assert room(1, busy, (2, 2), 4) == (1, 1)
    assert room(1, busy | {("y", i): (1, 1) for i in range(3)}, (2, 2), 4) == (1, 1)
    assert room(1, busy | {("y", i): (1, 1) for i in range(4)}, (2, 2), 4) is None


def test_only_three_worker_processes_give_what_is_printed_of_round_robin():
    """A node with three of seven executors (0.85^3), one with two, and less between nodes with twelve executors."""
    names, fits = thesis_cluster().names, []
    for processes in range(2, 9):
        crossing = []
        for replicas in (1, 2):
            app = apps.tag_and_count(replicas, nodes=names[:processes])
            rates = dict.fromkeys(app.topology.edges, 10.0)
            crossing.append(traffic(app.topology, {**app.topology.uniform(), **app.start}, rates, app.placement))
            if replicas == 1:
                hosted = [list(app.placement.values()).count(node) for node in names]
        if {2, 3} <= set(hosted) and crossing[1] < crossing[0]:
            fits.append((processes, *crossing))
    assert fits == [(3, 60, 50)]


def test_word_count_saves_what_its_first_placement_saves():
    """Pools: split is on the source's node, so each word crosses once. Dealt: 1/2, 5/9 and 5/9 of the streams."""
    table = word_count_table((1.0, 1.5, 6.4))
    assert table.pools_per_s.tolist() == pytest.approx([1, 1.5, 6.4])
    for words, change in zip(table.words, table.printed_order, strict=True):
        assert change == pytest.approx(words / (1 / 2 + 10 / 9 * words) - 1)
    assert table.printed_order[1] == pytest.approx(-0.31, abs=0.005)  # printed
    pairs = word_count_pairs((1.0,), seeds=range(2)).set_index("skip_local").stay
    assert 0.3 < pairs[False] < pairs[True] < 1


def test_log_processing_needs_latency_that_is_not_the_networks():
    """By hand, the default on nodes 7, 5, 1 (32, 12, 15 ms): 1.25, 0.875 and 0.75 of these, and 4.75 streams cross.

    37 % of those are the source's (32 ms, of every result) and 0.7575 of another (at most 32 ms, of every second).
    """
    bound = log_processing_bound().set_index("nodes")
    dealt, left = 1.25 * 32 + 0.875 * 12 + 0.75 * 15, 32 + (0.37 * 4.75 - 1) / 2 * 32
    found = bound.loc["node-7, node-5, node-1"]
    assert (found.default_ms, found.least_cut) == pytest.approx((dealt, left / dealt - 1))
    assert (left + found.outside_ms) / (dealt + found.outside_ms) == pytest.approx(1 - 0.18)  # printed
    assert bound.least_cut.max() == found.least_cut < -0.28
    assert bound.outside_ms.min() > 25


def test_e10_cooldown():
    """A node that moved something at 600 s looks again at 780 s."""
    app, cluster = apps.tag_and_count(), thesis_cluster()
    policy = DistributedStorm(cluster=cluster, pinned={"source": "node-1", "consumer": "node-5"})
    history = run(policy, app.simulator(window_s=30, tick_s=5, seed=4), steps=150, seed=4)
    by_node = {}
    for step in history:
        for move in step.decision.why["moves"] if isinstance(step.decision.why["moves"], tuple) else ():
            by_node.setdefault(move.split()[1], []).append(step.snapshot.t)
    gaps = [b - a for times in by_node.values() for a, b in zip(times, times[1:], strict=False)]
    assert len(gaps) > 3
    assert min(gaps) >= 180
    assert 180 in gaps  # the first tick after five skipped ones is used


@pytest.mark.parametrize(("replicas", "executors_", "links"), [(2, 12, 20), (1, 7, 6)])
def test_e11_links(replicas, executors_, links):
    app = apps.tag_and_count(replicas)
    found = streams(app.topology, app.start, dict.fromkeys(app.topology.edges, 10.0))
    assert (len(found), sum(map(len, found.values())) / 2) == (executors_, links)


def test_the_thesis_cluster():
    cluster = thesis_cluster(Unreliable(600, "node-3"), Stressed(1200, "node-4"), Died(2100, "node-5", slot=1))
    assert cluster.availability(599)[2] == 0.99999
    assert cluster.availability(600)[2] == 0.85
    assert (cluster.stress(1199)[3], cluster.stress(1200)[3]) == (0, 1)
    assert cluster.died(2070, 2100) == [(4, 1)]
    assert cluster.died(2100, 2130) == []
    random = np.random.default_rng(0)
    pings = [cluster.ping(6, 7, random) for _ in range(4000)]
    assert np.mean(pings) == pytest.approx(29.5, abs=0.1)  # 5 standard errors are 0.09
    with pytest.raises(ArgumentError, match="'node-9'"):
        thesis_cluster(Unreliable(600, "node-9"))


def test_a_constant_lat_max_weighs_latency_less_in_a_small_network():
    """The prototype's 38 ms: between nodes 10 ms apart latency then counts a quarter, and a busy node is left."""
    a, b, c = (("alpha", 0), ("beta", 0), ("gamma", 0))
    talk = {c: ((a, 10.0),), a: ((c, 10.0),)}
    where = {a: (0, 0), b: (1, 0), c: (0, 0)}
    view = _view([(0, 0), (10, 0)], where, talk)
    view.points[0, 3] = 0.9
    assert plan(view, MigrationRules(w_utilisation=0.5)) is None
    move = plan(view, MigrationRules(w_utilisation=0.5, fixed_latency_max=38.0))
    assert move.end == (1, 0)
    far = [distances((0, 0, 1, 0), view.points, AxisWeights(1, 0, 0.5), m).tolist() for m in (10, 38)]
    assert far == [pytest.approx([0.45, 1.0]), pytest.approx([0.45, 10 / 38])]


def test_tuples_that_wait_for_a_node_are_sent_again_as_storm_would():
    """A node is gone from 700 to 800 s: what was sent before 750 s has failed by 780 s, the rest arrives in time."""
    app = tag_and_count(nodes=("node-1", "node-2", "node-3"))
    down = NodeDown(700.0, 100.0, node="node-2")
    app = replace(app, plant=replace(app.plant, faults=(down,)))
    with app.simulator(seed=0, window_s=10.0, tick_s=1.0, keep_ticks=True) as job:
        for _ in range(120):
            job.observe()
        again, lost = failures.sent_again(job.ticks)
    known = 10 * (1200 - 60)
    assert again == pytest.approx(10 * (750 - 700) / known, rel=0.05)
    assert lost == 0


def test_loss_on_a_node_is_the_share_of_long_waits():
    """Of the tuples sent while the node is gone those fail whose wait is longer than the 30 to 60 s that are left."""
    found = np.mean([
        failures.lost_tuples({("a", 0): "n"}, ["n"], seed=s, seconds=40_000, rate_per_s=0.5) for s in range(40)
    ])  # fmt: skip
    late = (math.exp(-30 / 60) - math.exp(-60 / 60)) / (30 / 60)  # the wait's deadline is uniform from 30 to 60 s
    assert found == pytest.approx(100 * 0.01 * late, rel=0.25)  # about 270 failures: 6 % of standard error for each
    assert failures.lost_tuples({("a", 0): "n"}, []) == 0
