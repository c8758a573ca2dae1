"""Numbers that AuTraScale prints, and worked examples of its formulas, of DRS and of Gaussian processes."""

from itertools import product
from math import inf, pi, sqrt
from statistics import fmean

import numpy as np
import pytest

from dspkit import Deployment, OperatorMetrics, Snapshot, Topology
from dspkit.bo import GP, Lattice, Library, Model, Sample, Search, expected_improvement, score, stop_threshold
from dspkit.bo.transfer import blend, predicted
from dspkit.policies.autrascale import recommend_instances
from dspkit.policies.drs import allocate, network_time, operator_time

# Tables II and III: k, latency, target, base (of the throughput test before), printed score
PRINTED = {
    "WordCount up": ((7, 8, 12, 38), 0.172, 0.180, (3, 4, 12, 10), 0.9096),
    "WordCount down": ((10, 16, 12, 10), 0.160, 0.180, (3, 4, 12, 10), 0.9275),
    "Yahoo up": ((4, 2, 1, 1, 40), 0.2237, 0.300, (4, 2, 1, 1, 34), 0.994),
    "Yahoo down": ((22, 2, 1, 1, 36), 0.246, 0.300, (4, 2, 1, 1, 34), 0.965),
}


@pytest.mark.parametrize("row", PRINTED)
def test_printed_scores(row):
    k, latency, target, base, printed = PRINTED[row]
    digits = len(str(printed).partition(".")[2])
    assert round(score(k, base, latency, target), digits) == printed


def test_printed_scores_fix_alpha():
    """Solved for alpha, each row gives 0.8."""
    for k, _, _, base, printed in PRINTED.values():
        ratio = fmean(b / x for b, x in zip(base, k, strict=True))
        assert (printed - ratio) / (1 - ratio) == pytest.approx(0.8, abs=5e-4)


def test_printed_savings():
    """66.6 % and 36.7 % fewer slots than the mean of both DRS variants, averaged over both jobs."""
    slots = {  # AuTraScale, DRS observed, DRS true
        "down": [((10, 16, 12, 10), (40, 40, 40, 33), (40, 33, 40, 40)),
                 ((22, 2, 1, 1, 36), (40, 33, 33, 33, 33), (40, 33, 33, 33, 40))],
        "up": [((7, 8, 12, 38), (23, 33, 40, 16), (2, 1, 8, 8)),
               ((4, 2, 1, 1, 40), (40, 33, 33, 33, 33), (40, 33, 33, 33, 40))],
    }  # fmt: skip
    for direction, printed in (("down", 66.65), ("up", 36.71)):
        saved = [100 * (1 - sum(ours) / fmean((sum(o), sum(t)))) for ours, o, t in slots[direction]]
        assert fmean(saved) == pytest.approx(printed, abs=0.01)
    assert saved == pytest.approx([0.76, 72.65], abs=0.01)


def test_a_base_that_is_not_reached_is_clamped():
    k, base = (1, 3, 12, 2), (3, 4, 12, 10)
    assert score(k, base, 0.1, 0.18, clamp=False) == pytest.approx(0.8 + 0.2 * (3 + 4 / 3 + 1 + 5) / 4)
    assert score(k, base, 0.1, 0.18, clamp=False) == pytest.approx(1.316667, abs=1e-6)
    assert score(k, base, 0.1, 0.18) == 1.0


def test_stop_thresholds():
    assert [stop_threshold(0.8, w) for w in (1, 0.25, 0)] == pytest.approx([0.9, 0.96, 1.0])


def _seen(topology, rates, offered, selectivity=None, k=1):
    """A window in which instances are busy all the time; `selectivity` is of an operator, along each edge."""
    share, v = selectivity or {}, rates
    operators = {n: OperatorMetrics(k * v[n], k * v[n], 0.0, v[n], 1.0, 0, k) for n in v}
    edges = {(a, b): k * v[a] * share.get(a, 1.0) for a, b in topology.edges}
    return Snapshot(
        t=10, window_s=10, deployment=Deployment(topology.uniform(k)), operators=operators,
        source_rates=dict.fromkeys(topology.sources, offered), throughput=0, latency=None, event_latency=None, lag=0,
        edge_rates=edges,
    )  # fmt: skip


def _recommended(topology, *seen, mode):
    needs, unknown = recommend_instances(topology, _seen(topology, *seen), mode)
    assert not unknown
    return list(topology.clip(needs).values())


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    ("offered", "rates", "literal", "demand"),
    [
        (1000, (600, 250, 900), [2, 5, 2], [2, 4, 2]),
        (1000, (5000, 250), [1, 20], [1, 4]),
        (350, (120, 100, 30, 36), [3, 4, 14, 12], [3, 4, 12, 10]),
    ],
)
def test_equation_3_literal_and_by_demand(offered, rates, literal, demand, k):
    names = [f"op{i}" for i in range(len(rates))]
    topology = Topology.chain(*names)
    v = dict(zip(names, rates, strict=True))
    for mode, expected in (("literal", literal), ("printed", literal), ("demand", demand)):
        assert _recommended(topology, v, offered, None, k, mode=mode) == expected


def test_equation_3_on_a_join():
    topology = Topology(("s", "a", "b", "j"), (("s", "a"), ("s", "b"), ("a", "j"), ("b", "j")))
    rates, share = {"s": 1000, "a": 200, "b": 500, "j": 300}, {"a": 0.5, "b": 2}
    assert _recommended(topology, rates, 900, share, mode="demand") == [1, 5, 2, 8]
    assert _recommended(topology, rates, 900, share, mode="literal") == [1, 5, 2, 9]
    assert _recommended(topology, rates, 900, share, mode="printed")[-1] == 7


def test_expected_improvement():
    found = [expected_improvement(*row) for row in ((0.95, 0.05, 0.90, 0.01), (0.80, 0.10, 0.90, 0.01))]
    assert found == pytest.approx([0.0460103617, 0.0068619510], abs=5e-11)
    assert expected_improvement(0.90, 0.10, 0.90, 0) == pytest.approx(0.1 / sqrt(2 * pi), abs=1e-15)
    assert expected_improvement(0.95, 0, 0.90, 0.01) == 0


def test_posterior_of_two_samples():
    gp = GP(np.array([[0.0], [1.0]]), np.array([0.8, 0.9]), mean=0.85, length=1.0, variance=0.01, noise=0.0)
    mean, sigma = gp.predict([[0.5], [2.0], [0.0]])
    assert mean == pytest.approx([0.85, 0.89047575, 0.8], abs=5e-9)
    assert sigma == pytest.approx([0.03144339, 0.08366406, 0.0], abs=5e-9)
    assert expected_improvement(mean, sigma, 0.9, 0.01) == pytest.approx([0.00034026, 0.02451975, 0.0], abs=5e-9)


def test_transfer_is_exact_at_samples_without_noise():
    """Old mean plus residual mean is the measured score there; far away it is the old mean plus the mean residual."""
    search, box = Search(noise=0.0), Lattice((2, 2), 40)
    old = tuple(Sample(k, score(k, (1, 1), 0.1 + 0.3 / k[0], 0.18)) for k in Lattice((1, 1), 40).bootstrap(4))
    real = [Sample((2, 2), 0.7), Sample((4, 3), 0.75), Sample((9, 30), 0.71)]
    model = blend(Library(("a", "b"), (Model(1e3, (1, 1), (40, 40), old),)), 2e3, box, search)
    every = predicted(model, real[:2], search, 6)
    assert every[:2] == tuple(real[:2])
    first = real[0]  # of one sample the residual process knows one number
    for sample in predicted(model, [first], search, 6)[1:]:
        gap = first.score - model.mean([first.k])[0]
        assert sample.score == pytest.approx(model.mean([sample.k])[0] + gap, abs=1e-9)
    from dspkit.bo import fit

    ran = np.array([s.k for s in real])
    left = np.array([s.score for s in real]) - model.mean(ran)
    residual = fit(box.scaled(ran), left, noise=0.0)
    assert model.mean(ran) + residual.predict(box.scaled(ran))[0] == pytest.approx([s.score for s in real], abs=1e-9)
    assert residual.predict([[1e6, 1e6]])[0] == pytest.approx(left.mean())


def test_bootstrap_sets():
    box = Lattice((3, 4, 12, 10), 40)
    alike = [(n,) * 4 for n in (12, 18, 23, 29, 34, 40)]
    assert list(box.bootstrap(6)) == [*alike, (40, 4, 12, 10), (3, 40, 12, 10), (3, 4, 40, 10), (3, 4, 12, 40)]
    assert [len(Lattice((4, 2, 1, 1, 34), most).bootstrap(35)) for most in (40, 50, 67, 68)] == [12, 22, 39, 40]
    assert box.bootstrap(1)[0] == (12, 12, 12, 12)


def test_drs_times():
    rows = {(3, 5, 1): 0.5, (3, 2, 2): 8 / 7, (10, 4, 3): 0.6011236, (10, 4, 4): 0.3033095, (10, 4, 5): 0.2630371}
    for (arrivals, rate, k), expected in rows.items():
        assert operator_time(arrivals, rate, k) == pytest.approx(expected, abs=5e-8)
    assert operator_time(10, 4, 2) == inf
    assert operator_time(0, 4, 1) == 0.25


def test_drs_vectors():
    network = (10, 10, 5), (4, 3, 12)
    steps = {(3, 4, 1): 1.3347463, (4, 4, 1): 1.0369322, (4, 5, 1): 0.7734052, (4, 6, 1): 0.7265984}
    for slots, (k, expected) in enumerate(steps.items(), start=8):
        assert allocate(*network, 10, slots=slots) == list(k)
        assert network_time(*network, k, 10) == pytest.approx(expected, abs=5e-8)
    assert allocate(*network, 10, target_latency_s=0.75) == [4, 6, 1]


@pytest.mark.parametrize("slots", [9, 11, 14])
def test_drs_is_optimal(slots):
    """Exhaustive search over all vectors of as many slots."""
    network = (10, 10, 5), (4, 3, 12)
    every = [k for k in product(range(1, slots), repeat=3) if sum(k) == slots]
    best = min(every, key=lambda k: network_time(*network, k, 10))
    assert tuple(allocate(*network, 10, slots=slots)) == best
