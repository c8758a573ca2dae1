"""Batches, noise, constraints, stopping, cost of moving, transfer: against integrals, simulation, scikit-learn."""

import math
import warnings

import numpy as np
import pytest
from scipy import stats

from dspkit.bo import Lattice, Library, Model, Optimizer, Sample, Search, fit, resource_score, score
from dspkit.bo.search import Improvement, LatencySurrogate, Saving, _beyond_base
from dspkit.bo.stopping import LOOKS, RATE_LOOKS, Confirmation, below_zero
from dspkit.bo.transfer import blend, guarded, recommend
from dspkit.core import ArgumentError, KnobError

BOX, TARGET = Lattice((2, 3), 12), 0.2


def latency(k):
    return 0.08 + 0.15 / (k[0] - 1.2) ** 1.2 + 0.1 / (k[1] - 2.1)


def sample(k, late=None, served=None):
    late = latency(k) if late is None else late
    return Sample(k, score(k, BOX.base, late, TARGET), late, served)


SOME = [sample(k) for k in ((2, 3), (12, 12), (4, 5), (3, 9))]


@pytest.mark.parametrize("goal", ["score", "saving"])
def test_what_a_configuration_adds_to_a_batch_is_the_joint_expectation(goal):
    """Gain of two less that of one, by 400,000 draws of the joint posterior; within six standard errors and 2 %."""
    surrogate = LatencySurrogate(BOX, SOME, 0.8, TARGET)
    gain = Improvement(BOX, 0.8, 0.8) if goal == "score" else Saving(BOX, 0.3, lambda X: np.zeros(len(X)))
    first, floor = (5, 6), gain.floor
    added = surrogate.log_gain(gain, [first], draws=4096)
    random = np.random.default_rng(5)
    for k in ((6, 7), (4, 6), (7, 4)):
        points = _beyond_base(BOX, [first, k])
        C = surrogate.process.covariance(points, points)
        m = surrogate.log_latency([first, k])[0]
        z = m + random.standard_normal((400_000, 2)) @ np.linalg.cholesky(C + 1e-12 * np.eye(2)).T
        values = np.stack([np.maximum(gain.value([p], z[:, i : i + 1])[:, 0], floor) for i, p in enumerate((first, k))])
        more = np.maximum(values.max(axis=0) - values[0], 0.0)
        error = 6 * more.std() / math.sqrt(len(more))
        assert math.exp(added([k])[0]) == pytest.approx(more.mean(), rel=0.02, abs=error)
        assert math.exp(added([k])[0]) <= math.exp(surrogate.log_gain(gain)([k])[0]) + error  # diminishing returns


def test_a_batch_does_not_run_neighbours_that_tell_the_same():
    optimizer = Optimizer(BOX, Search(TARGET), samples=SOME)
    asked = optimizer.batch(3)
    alone = optimizer.search.propose(BOX, SOME, tried={*(s.k for s in SOME), asked[0]})
    assert asked[0] == optimizer.ask()
    assert len(set(asked)) == 3
    after = optimizer.surrogate.log_gain(Improvement(BOX, 0.8, max(s.score for s in SOME)), [asked[0]])
    assert after([asked[1]])[0] >= after([alone.k])[0] - 1e-9


def test_noise_is_learned_with_replicates_as_scikit_learn_learns_it():
    """25 points four times each, noise 0.05: the likelihood of our fit is not below that of its optimiser."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    random = np.random.default_rng(2)
    X = np.repeat(random.random((25, 2)), 4, axis=0)
    y = np.sin(4 * X[:, 0]) * 0.3 + 0.2 * X[:, 1] + 0.05 * random.standard_normal(100)
    ours = fit(X, y, mean=0.0, noise=(1e-6, 0.25), variance=(1e-5, 4.0))
    kernel = ConstantKernel(0.1, (1e-5, 4.0)) * Matern(0.5, (0.05, 5.0), nu=2.5) + WhiteKernel(1e-2, (1e-6, 0.25))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, random_state=0).fit(X, y)
    assert ours.log_likelihood >= theirs.log_marginal_likelihood_value_ - 0.05
    assert ours.noise == pytest.approx(0.0025, rel=0.4)
    once = fit(X[::4], y.reshape(25, 4).mean(axis=1), mean=0.0, noise=ours.noise / 4)
    same = type(once)(once.X, once.y, 0.0, ours.length, ours.variance, ours.noise / 4)
    assert ours.predict([[0.3, 0.4]])[0] == pytest.approx(same.predict([[0.3, 0.4]])[0], abs=1e-6)
    assert ours.predict([[0.3, 0.4]])[1] == pytest.approx(same.predict([[0.3, 0.4]])[1], rel=1e-4)


def test_beliefs_hold_with_few_samples_and_yield_to_many():
    X = np.linspace(0, 1, 60)[:, None]
    y = np.sin(12 * X[:, 0])
    strong = {"length": (3.0, 0.3)}
    few, many = (fit(X[:n], y[:n], mean=0.0, noise=1e-6, around=strong).length for n in (1, 60))
    assert few == pytest.approx(3.0, rel=0.05)
    assert many < 1.0


def test_the_constrained_search_finds_the_cheapest_that_meets_all():
    """Latency from above, and a rate that only five or more of the second operator serve; against exhaustive search."""
    served = lambda k: min(1.0, k[1] / 5)  # noqa: E731
    optimizer = Optimizer(BOX, Search(TARGET, feasibility=0.9))
    for _ in range(14):
        k = optimizer.ask()
        optimizer.tell(k, latency_s=latency(k), served=served(k))
    fine = [k for k in map(tuple, BOX.points().tolist()) if latency(k) <= TARGET and served(k) == 1]
    best = max(fine, key=lambda k: resource_score(k, BOX.base))
    kept = optimizer.search.kept(BOX, optimizer.samples)
    assert kept in fine
    assert resource_score(kept, BOX.base) >= resource_score(best, BOX.base) - 0.03
    late_only = Search(TARGET, feasibility=0.9).kept(BOX, [s._replace(served=None) for s in optimizer.samples])
    assert resource_score(late_only, BOX.base) >= resource_score(kept, BOX.base)


def test_constraints_need_a_process_of_the_latency():
    for knobs in ({"prior": "constant"}, {"engine": "skopt"}):
        with pytest.raises(KnobError, match="process of the latency"):
            Search(feasibility=0.9, **knobs)
    with pytest.raises(ArgumentError, match="process of the score"):
        Optimizer(BOX, Search.paper(), error=0.05)
    with pytest.raises(ArgumentError):
        Optimizer(BOX, error=1.0)


@pytest.mark.parametrize("error", [0.05, 0.2])
def test_a_candidate_at_the_limit_is_confirmed_as_rarely_as_stated(error):
    """The worst case, a mean exactly at the target, 4,000 times; at most the stated error plus four deviations."""
    random = np.random.default_rng(8)
    confirmed = 0
    for _ in range(4000):
        test = Confirmation((1,), error)
        for z in random.normal(0.0, 0.05, LOOKS[-1]):
            test = test.told(z)
            if test.verdict is not None:
                break
        confirmed += test.verdict is True
    assert confirmed / 4000 <= error + 4 * math.sqrt(error * (1 - error) / 4000)
    assert confirmed > 0


RATES = {  # shares of the rate that a configuration serves which does so in just under half of its runs
    "all or half": lambda random: 1.0 if random.random() < 0.499 else 0.5,
    "all or nearly": lambda random: 1.0 if random.random() < 0.499 else 0.97,
    "skewed": lambda random: 0.98 - random.exponential(0.1) + 0.0692,
}


@pytest.mark.parametrize("shares", RATES)
@pytest.mark.parametrize("error", [0.05, 0.2])
def test_a_rate_that_most_runs_miss_is_confirmed_as_rarely_as_stated(shares, error):
    """The latency is met by far. Shares are cut at 1, as the search cuts them, and far from normal."""
    random = np.random.default_rng(9)
    confirmed, samples = 0, 400
    for _ in range(samples):
        test = Confirmation((1,), error)
        while test.verdict is None:
            test = test.told(-1.0 + 0.01 * random.standard_normal(), math.log(0.98 / min(RATES[shares](random), 1.0)))
        confirmed += test.verdict is True
    assert confirmed / samples <= error + 4 * math.sqrt(error * (1 - error) / samples)


def test_a_rate_that_is_served_is_confirmed_by_the_binomial_distribution():
    """Nine of nine, or twelve of thirteen: by scipy.stats, a share of the error for each look."""
    each = 6 * 0.05 / math.pi**2 / 2 / len(RATE_LOOKS)
    for failures, expected in (((), True), ((3,), True), ((3, 5), False)):
        test = Confirmation((1,), 0.05)
        while test.verdict is None:
            n = len(test.late)
            test = test.told(-1.0 - 0.001 * n, 0.1 if n in failures else -0.02)
        assert test.verdict is expected
        n, good = len(test.short), len(test.short) - len(failures)
        assert (stats.binom.sf(good - 1, n, 0.5) <= each) == expected
        assert n == {(): 9, (3,): 13, (3, 5): 6}[failures]  # two of six can no longer become twelve of thirteen


def test_shares_of_the_rate_are_learned_on_the_scale_on_which_they_vary():
    """A box up to 200 of which 40 instances serve the rate: squared errors of the chance, against linear distances."""
    box, search = Lattice((2,), (200,)), Search(TARGET, feasibility=0.9)
    ran = [Sample((k,), 0.5, 0.1, min(1.0, k / 40)) for k in (2, 6, 20, 40, 200)]
    points = box.points()
    chance = np.exp(search.served(box, ran)(points))
    far = np.log([s.served for s in ran])
    linear = fit(
        box.scaled([s.k for s in ran]), far, mean=0.0, noise=(1e-6, 0.1), variance=(1e-6, 1.0),
        around={"variance": (1e-3, 2.0), "noise": (1e-4, 2.0)},
    ).predict(box.scaled(points))  # fmt: skip
    before = stats.norm.cdf((linear[0] - math.log(0.98)) / linear[1])
    truth = points[:, 0] >= 0.98 * 40
    assert ((chance - truth) ** 2).mean() < 0.5 * ((before - truth) ** 2).mean()
    assert chance[points[:, 0] <= 20].max() < 0.05


def test_the_cost_of_moving_counts_in_a_transfer_too_and_scikit_optimize_refuses_it():
    search = Search.paper(target_latency_s=TARGET, running_s=10, rescale_s=20, move_s=15)
    library = Library(("a", "b"), (_old(lambda k: 1.0),))
    at, new = (3, 4), SOME[:2]
    old = blend(library, 100.0, BOX, search, new)
    free, near = (recommend(old, new, search, 6, at=where).k for where in (None, at))
    assert search.seconds([near], at)[0] < search.seconds([free], at)[0]
    with pytest.raises(KnobError, match="cost of changes"):
        Search(TARGET, engine="skopt", move_s=1.0)


def test_the_test_is_students():
    values = [-0.10, -0.02, -0.05, -0.08]
    p = stats.ttest_1samp(values, 0.0, alternative="less").pvalue
    assert below_zero(values, p * 1.001)
    assert not below_zero(values, p * 0.999)
    assert not below_zero([-math.inf, -1.0], 0.5)


def test_a_search_ends_with_what_it_confirmed_and_gives_up_what_missed():
    random = np.random.default_rng(0)
    optimizer = Optimizer(BOX, Search(TARGET), error=0.1)
    for _ in range(120):
        k = optimizer.ask()
        if k is None:
            break
        optimizer.tell(k, latency_s=latency(k) * math.exp(0.03 * random.standard_normal()))
    assert optimizer.decided is not None
    assert latency(optimizer.decided) <= TARGET
    assert sum(s.k == optimizer.decided for s in optimizer.samples) >= 3  # it was run again
    assert optimizer.ask() is None
    late = Optimizer(BOX, Search(TARGET), error=0.1)
    late.confirmation = Confirmation((5, 5), 0.1)
    for _ in range(2):
        late.tell((5, 5), latency_s=1.5 * TARGET)
    assert late.confirmation is None
    assert late.decided is None


def test_the_improvement_is_one_per_second_of_run_and_change():
    """By hand: among all untried ones, the greatest ratio of expected improvement to seconds."""
    search = Search(TARGET, running_s=10, rescale_s=20, move_s=15)
    at, tried = (4, 5), {s.k for s in SOME}
    surrogate = search.surrogate(BOX, SOME)
    top = float(surrogate.mean([s.k for s in SOME]).max()) + search.xi
    points = [k for k in map(tuple, BOX.points().tolist()) if k not in tried]
    gain = surrogate.log_improvement(points, top) - np.log(search.seconds(points, at))
    assert search.propose(BOX, SOME, at=at).k == points[int(np.argmax(gain))]
    assert search.propose(BOX, SOME).k == points[int(np.argmax(surrogate.log_improvement(points, top)))]
    assert search.seconds([at, (6, 4)], at).tolist() == [10, 10 + 20 + 45]


def _old(shift, rate=80.0):
    base = (2, 3)
    ran = ((2, 3), (12, 12), (4, 5), (3, 9), (6, 4), (8, 7))
    late = [latency(k) * shift(k) for k in ran]
    return Model(
        rate, base, (12, 12), tuple(Sample(k, score(k, base, t, TARGET), t) for k, t in zip(ran, late, strict=True))
    )


def test_an_old_model_that_is_right_is_believed_and_one_that_is_wrong_is_not():
    told = [sample(k) for k in ((2, 3), (5, 5), (3, 4))]
    right, wrong = _old(lambda k: 1.0), _old(lambda k: 4.0 if k[0] > 3 else 0.3, 90.0)
    found = guarded(Library(("a", "b"), (right, wrong)), 100.0, BOX, Search(TARGET), told)
    weights = {rate: weight for weight, rate, _ in found.parts}
    before = 0.5 * 0.8**2 / (0.8**2 + 0.9**2)  # by the distance of its rate
    assert weights[80.0] > before
    assert weights.get(90.0, 0.0) < 0.01
    assert sum(weights.values()) == pytest.approx(1.0)
    alone = LatencySurrogate(BOX, told, 0.8, TARGET)
    only_wrong = guarded(Library(("a", "b"), (wrong,)), 100.0, BOX, Search(TARGET), told)
    points = [(4, 4), (6, 6), (3, 6)]
    assert only_wrong.mean(points) == pytest.approx(alone.mean(points), abs=0.01)


def test_a_mixture_has_the_moments_and_the_gain_of_its_parts():
    told = [sample((2, 3)), sample((5, 5))]
    found = guarded(Library(("a", "b"), (_old(lambda k: 1.1),)), 100.0, BOX, Search(TARGET), told)
    points = [(4, 4), (6, 6)]
    weights = [w for w, _, _ in found.parts]
    assert len(weights) == 2
    means = [p.mean(points) for _, _, p in found.parts]
    assert found.mean(points) == pytest.approx(sum(w * m for w, m in zip(weights, means, strict=True)))
    gain = Improvement(BOX, 0.8, 0.8)
    each = [np.exp(p.log_gain(gain)(points)) for _, _, p in found.parts]
    assert np.exp(found.log_gain(gain)(points)) == pytest.approx(sum(w * e for w, e in zip(weights, each, strict=True)))
