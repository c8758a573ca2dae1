"""The space of delays: measured ones as they are, others from Vivaldi's coordinates."""

import numpy as np
import pytest

from dspkit import Deployment, Snapshot
from dspkit.placement.coordinates import DelaySpace
from dspkit.placement.distributed_storm import StormCluster, Worker, cluster_of

PLACES = {"a": (0.0, 0.0), "b": (0.03, 0.0), "c": (0.0, 0.04), "d": (0.03, 0.04), "e": (0.06, 0.04)}
PAIRS = [(a, b) for a in PLACES for b in PLACES if a < b]


def far(a, b):
    return float(np.hypot(*np.subtract(PLACES[a], PLACES[b])))


def test_the_plane_is_found_from_pings_of_some_pairs_at_a_time():
    """Five nodes of a plane; in each window only some of the ten pairs are pinged."""
    random, space = np.random.default_rng(7), DelaySpace()
    for _ in range(300):
        space = space.watch({pair: far(*pair) for pair in PAIRS if random.random() < 0.4})
    for pair in PAIRS:
        assert space.delay_s(*pair, pinged=False) == pytest.approx(far(*pair), rel=0.02)
        assert space.delay_s(*reversed(pair)) == far(*pair)
    assert space.delay_s("a", "a") == 0.0
    assert space.delay_s("a", "elsewhere") is None


def test_nodes_do_not_stay_on_one_line():
    """All begin at one point, and are driven apart in directions of their own."""
    space = DelaySpace()
    for _ in range(50):
        space = space.watch({pair: far(*pair) for pair in PAIRS})
    points = np.array([p.x for p in space.points.values()])
    assert np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[1] > 10.0  # ms across


def test_pings_replace_the_delays_of_a_storm_cluster():
    cluster = StormCluster({n: Worker(delay_ms=5) for n in "abc"}, delays={("a", "b"): 0.08})
    assert cluster.mean_delays().tolist() == [[0, 80, 5], [80, 0, 5], [5, 5, 0]]
    assert cluster.ping(1, 0, np.random.default_rng(1)) == 80.0
    assert cluster == StormCluster({n: Worker(delay_ms=5) for n in "abc"})


def test_the_delays_of_a_snapshot_are_those_of_the_cluster():
    nodes, delays = {"n1": 0.1, "n2": 0.1}, {("n1", "n2"): 0.02}
    snapshot = Snapshot(1, 1, Deployment({"a": 1}), {}, {}, 0, None, None, 0, {}, nodes, delays=delays)
    assert cluster_of(snapshot).mean_delays()[0, 1] == pytest.approx(20.0)
