"""Numbers that chapter 3 of Nardelli's thesis prints, and the method card's worked examples E1 to E11."""

import math

import numpy as np
import pytest

from dspkit.errors import KnobError
from dspkit.placement.cost_space import Weights, distances, nearest, relative_distance, worth_moving
from dspkit.placement.virtual import median, springs
from dspkit.placement.vivaldi import Coordinate, embed, embedding_error, update


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
        with pytest.raises(KnobError):
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
        monkeypatch.setattr("dspkit.placement.virtual.MOST_STEPS", steps)
        assert springs([[0], [20]], [rate, rate], [5], force_limit=0, strict=True) == pytest.approx([x])
    monkeypatch.setattr("dspkit.placement.virtual.MOST_STEPS", 1)
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
    found = distances((10, 20, 1, 0), NODES, Weights(*weights), 100)
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
