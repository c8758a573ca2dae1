"""The default search: what it knows, scores of any scale, boxes of any size, batches."""

from statistics import fmean

import numpy as np
import pytest
from scipy import integrate, stats

from benchmarks import _bo_chains as chains
from dspkit.bo import Lattice, Optimizer, Sample, Search, resource_score
from dspkit.bo.acquisition import best_of
from dspkit.bo.search import LatencySurrogate
from dspkit.core import MetricError

BOX = Lattice((2, 3), 9)
SAMPLES = [Sample((2, 3), 0.73, 0.3), Sample((9, 3), 0.92, 0.1), Sample((5, 5), 0.87, 0.15)]


@pytest.mark.parametrize("best", [0.5, 0.8, 0.95])
def test_expected_improvement_of_the_score_is_its_integral(best):
    """E max(0, F - best) over the normal log latency, by quadrature; likewise mean and deviation of F."""
    surrogate = LatencySurrogate(BOX, SAMPLES, 0.8, 0.2)
    points = [(3, 3), (3, 8), (4, 4), (7, 6)]
    m, s = surrogate.log_latency(points)
    mean, sigma = surrogate(points)
    for i, k in enumerate(points):

        def score(z, k=k):
            return 0.8 * np.minimum(1.0, np.exp(-z)) + 0.2 * resource_score(k, BOX.base)

        def expected(f, i=i):
            ends = m[i] - 9 * s[i], m[i] + 9 * s[i]
            kinks = [x for x in (0.0,) if ends[0] < x < ends[1]]
            return integrate.quad(lambda z: f(z) * stats.norm.pdf(z, m[i], s[i]), *ends, points=kinks, limit=400)[0]

        assert mean[i] == pytest.approx(expected(score), abs=1e-6)
        assert sigma[i] ** 2 == pytest.approx(expected(lambda z: score(z) ** 2) - expected(score) ** 2, abs=1e-5)
        gain = expected(lambda z: np.maximum(0.0, score(z) - best))
        assert np.exp(surrogate.log_improvement([k], best)[0]) == pytest.approx(gain, abs=2e-5)


@pytest.mark.slow
def test_the_default_finds_the_least_parallelism_far_better_than_chance_and_the_paper():
    """Chains of M/M/c queues, whose best configuration is known: regret of F after 30 runs, mean of eight."""
    regrets = {
        way: fmean(chains.Chain(n).regrets(*chains.WAYS[way](chains.Chain(n)))[0][-1] for n in range(8))
        for way in ("ours", "paper", "random")
    }
    assert regrets["ours"] < 0.2 * min(regrets["paper"], regrets["random"])


def test_the_default_begins_with_the_base_and_the_paper_with_its_bootstrap_set():
    assert Optimizer(BOX).ask() == BOX.base
    assert Optimizer(BOX, Search.paper()).ask() == BOX.bootstrap()[0]
    own = Optimizer(BOX)  # scores of one's own: nothing is known, so it looks around first
    own.tell(own.ask(), 3.0)
    assert own.ask() in BOX.bootstrap()


@pytest.mark.parametrize(("factor", "shift"), [(1e-4, 0.0), (1000.0, 0.0), (1.0, 10_000.0), (-1e-4, 5.0)])
def test_the_scale_of_own_scores_does_not_matter(factor, shift):
    random = np.random.default_rng(3)
    box = Lattice((1, 1, 1), 30)
    points = [tuple(k) for k in box.draw(random, 14).tolist()]
    scores = [-abs(k[0] - 20) - 0.3 * abs(k[1] - 5) + 0.1 * k[2] for k in points]
    sign = np.sign(factor)
    plain = Search().propose(box, [Sample(k, sign * y) for k, y in zip(points, scores, strict=True)])
    scaled = Search().propose(box, [Sample(k, factor * y + shift) for k, y in zip(points, scores, strict=True)])
    assert scaled.k == plain.k
    assert scaled.sigma == pytest.approx(abs(factor) * plain.sigma, rel=1e-4)


def test_an_ask_takes_no_longer_the_wider_the_box():
    """Points evaluated in boxes of 1e3 to 1e9 instances: as many, up to the logarithm."""
    counts = {}
    for side in (10**3, 10**6, 10**9):
        box, seen = Lattice((1, 1, 1, 1), side), [0]

        def worth(X, box=box, seen=seen):
            seen[0] += len(X)
            return -np.abs(X / box.high - 0.37).sum(axis=1)

        k = best_of(worth, box, (), 0)
        counts[side] = seen[0]
        assert np.abs(np.array(k) - 0.37 * side).max() <= 1
    assert counts[10**9] < 9 * counts[10**3]  # three times the steps, in three times the rounds


def test_tell_and_ask_accept_the_same_scores():
    optimizer = Optimizer(BOX)
    for score in (-6e300, 6e300, 1.1e6):
        with pytest.raises(MetricError, match="score"):
            optimizer.tell((2, 3), score)
    for i, score in enumerate((-1e6, 1e6, 0.0)):
        optimizer.tell((2, 3 + i), score)
    optimizer = Optimizer(BOX, samples=optimizer.samples, bootstrap=False)
    assert optimizer.ask() in BOX


@pytest.mark.parametrize("search", [Search(0.2), Search.paper(target_latency_s=0.2)])
def test_a_batch_begins_with_the_next_run_and_has_no_two_alike(search):
    optimizer = Optimizer(BOX, search, bootstrap=False, samples=SAMPLES)
    asked = optimizer.batch(4)
    assert len(set(asked)) == 4
    assert asked[0] == optimizer.ask()
    assert not set(asked) & {s.k for s in SAMPLES}
    assert len(Optimizer(Lattice((1,), 3), search).batch(9)) == 3
    assert [s.k for s in optimizer.samples] == [s.k for s in SAMPLES]  # no measurement was added
