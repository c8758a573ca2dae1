"""The scorer's parts: against scikit-learn, GPyTorch, BoTorch, scikit-optimize, integrals and exhaustive search."""

import json
import math
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from dspkit.bo import (
    ENGINES,
    GP,
    Lattice,
    Library,
    Model,
    Optimizer,
    Sample,
    Search,
    acquisition,
    expected_improvement,
    fit,
    log_expected_improvement,
    propose,
    resource_score,
    score,
    stop_threshold,
)
from dspkit.bo.gp import FITTERS
from dspkit.bo.search import PRIORS, prior_mean
from dspkit.bo.transfer import blend, predicted, recommend
from dspkit.core import ArgumentError, CapacityError, FileError, KnobError, MetricError, NotFoundError


def _data(n=14, dimensions=3, seed=0):
    random = np.random.default_rng(seed)
    return random.random((n, dimensions)), 0.8 + 0.1 * random.standard_normal(n)


def _sklearn(X, y, gp):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    kernel = ConstantKernel(gp.variance, "fixed") * Matern(gp.length, "fixed", nu=2.5)
    return GaussianProcessRegressor(kernel, alpha=gp.noise, optimizer=None).fit(X, y - gp.mean)


@pytest.mark.parametrize("noise", [1e-4, 1e-2])
@pytest.mark.parametrize("dimensions", [1, 4])
def test_posterior_and_likelihood_are_scikit_learns(noise, dimensions):
    X, y = _data(dimensions=dimensions)
    gp = GP(X, y, float(y.mean()), 0.6, 0.02, noise)
    theirs, fresh = _sklearn(X, y, gp), _data(50, dimensions, 1)[0]
    mean, sigma = gp.predict(fresh)
    their_mean, their_sigma = theirs.predict(fresh, return_std=True)
    assert np.abs(mean - their_mean - gp.mean).max() < 1e-6
    assert np.abs(sigma - their_sigma).max() < 1e-6
    assert gp.log_likelihood == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-6)


def test_gpytorchs_model_is_the_same_process():
    from dspkit.bo.gp import libraries, model

    gpytorch, torch = libraries()
    X, y = _data()
    gp, fresh = GP(X, y, float(y.mean()), 0.4, 0.01, 1e-3), _data(30, 3, 1)[0]
    theirs = model(X, y, mean=gp.mean, length=gp.length, variance=gp.variance, noise=gp.noise)
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(theirs.likelihood, theirs.train())
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        log = float(likelihood(theirs(*theirs.train_inputs), theirs.train_targets)) * len(y)
        said = theirs.eval()(torch.as_tensor(fresh))
        mean, sigma = said.mean.numpy(), said.stddev.numpy()
    assert log == pytest.approx(gp.log_likelihood, abs=1e-6)
    assert np.abs(np.array(gp.predict(fresh)) - [mean, sigma]).max() < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_grid_gpytorch_and_scikit_learn_find_the_same_likelihood(seed):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    X, y = _data(12, 2, seed)
    y = y + 0.3 * X[:, 0] ** 2
    kernel = ConstantKernel(0.1, (1e-4, 1.0)) * Matern(0.5, (0.05, 5.0), nu=2.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GaussianProcessRegressor(kernel, alpha=1e-4, n_restarts_optimizer=8, random_state=0).fit(
            X, y - y.mean()
        )
    found = [fit(X, y, engine=engine).log_likelihood for engine in FITTERS]
    assert found == pytest.approx([theirs.log_marginal_likelihood_value_] * 2, abs=2e-3)


@pytest.mark.parametrize("z", [3.0, 0.5, -0.5, -2.0, -6.0])
def test_expected_improvement_is_the_integral(z):
    mean, sigma, best, xi = 0.9 + z * 0.05 + 0.01, 0.05, 0.9, 0.01
    integral, _ = quad(
        lambda f: (f - best - xi) * norm.pdf(f, mean, sigma), best + xi, mean + 20 * sigma, epsabs=1e-300
    )
    assert expected_improvement(mean, sigma, best, xi) == pytest.approx(integral, rel=1e-6)


def test_its_logarithm_is_botorchs_far_into_the_tail():
    from dspkit.bo.gp import libraries

    _, torch = libraries()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from botorch.acquisition.analytic import _log_ei_helper

    z = np.concatenate([-np.logspace(6, -3, 200), np.linspace(0, 5, 50)])
    theirs = _log_ei_helper(torch.as_tensor(z)).numpy()
    assert log_expected_improvement(z, 1.0, 0.0, 0.0) == pytest.approx(theirs, rel=1e-9, abs=1e-9)
    assert (np.diff(log_expected_improvement(z, 1.0, 0.0, 0.0)) > 0).all()  # so that tails can be told apart


def _posterior(lattice, seed=0, n=12):
    random = np.random.default_rng(seed)
    samples = [Sample(tuple(k), 0.8 + 0.05 * random.standard_normal()) for k in lattice.draw(random, n).tolist()]
    return Search().surrogate(lattice, samples), {s.k for s in samples}, max(s.score for s in samples)


@pytest.mark.parametrize("seed", range(3))
def test_the_proposal_is_that_of_exhaustive_search(seed, monkeypatch):
    lattice = Lattice((2, 1, 4), (12, 9, 14))
    posterior, tried, best = _posterior(lattice, seed)
    points = np.array([k for k in lattice.points().tolist() if tuple(k) not in tried])
    worth = expected_improvement(*posterior(points), best)
    found = propose(posterior, lattice, best, tried=tried)
    assert found.improvement == pytest.approx(worth.max(), rel=1e-9)
    assert found.k not in tried
    monkeypatch.setattr(acquisition, "ENUMERATED", 10)
    monkeypatch.setattr(acquisition, "DRAWN", 60)  # of 990 points: the climb must do the rest
    climbed = propose(posterior, lattice, best, tried=tried, seed=seed)
    assert climbed.improvement >= np.quantile(worth, 0.995)
    assert climbed.k not in tried


def test_ties_go_to_the_fewest_slots_and_then_to_the_first():
    def flat(X):
        return np.full(len(X), 0.9), np.full(len(X), 0.1)

    assert propose(flat, Lattice((1, 1), 5), 0.9, tried={(1, 1)}).k == (1, 2)
    assert propose(flat, Lattice((1, 1), 5), 0.9, tried={(1, 1), (1, 2)}).k == (2, 1)


def test_when_everything_was_run_there_is_nothing_to_propose():
    posterior, _, best = _posterior(Lattice((1,), 3))
    assert propose(posterior, Lattice((1,), 3), best, tried={(1,), (2,), (3,)}) is None


def test_a_lattice_says_what_is_wrong():
    with pytest.raises(CapacityError, match="cluster is too small for operator 1"):
        Lattice((1, 5), 4)
    for wrong in ((), (0, 1), (1.5, 2), "ab", (True, 1)):
        with pytest.raises(ArgumentError):
            Lattice(wrong, 4)
    with pytest.raises(ArgumentError, match="the same number"):
        Lattice((1, 2), (3, 4, 5))
    with pytest.raises(CapacityError, match="at most 200,000"):
        Lattice((1,) * 9, 40).points()
    assert Lattice(np.array([1, 2]), np.int64(4)).size == 12


@given(data=st.data())
@settings(max_examples=50, deadline=None)
def test_bootstrap_clamp_and_neighbours_stay_in_the_box(data):
    base = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    most = [b + data.draw(st.integers(0, 20)) for b in base]
    box = Lattice(base, most)
    first = box.bootstrap(data.draw(st.integers(1, 8)))
    assert len(set(first)) == len(first)
    assert all(k in box for k in first)
    assert box.clamp([99] * len(base)) == tuple(most)
    assert all(tuple(k) in box for k in box.neighbours(np.array(first)).tolist())
    unit = box.scaled(first)
    assert ((unit >= 0) & (unit <= 1)).all()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (dict(latency_s=math.nan), MetricError), (dict(latency_s=-1), MetricError),
        (dict(target_latency_s=0), ArgumentError),
        (dict(alpha=1.2), ArgumentError), (dict(k=(1, 2)), ArgumentError), (dict(k=(0, 2, 3)), ArgumentError),
    ],
)  # fmt: skip
def test_a_score_of_nonsense_is_refused(wrong, error):
    with pytest.raises(error):
        score(**{"k": (1, 2, 3), "base": (1, 2, 3), "latency_s": 0.1, "target_latency_s": 0.2, **wrong})


def test_scores_at_their_ends_and_of_many_at_once():
    assert score((3,), (3,), 0.0, 0.2, 0.8) == 1.0
    assert score((3,), (3,), math.inf, 0.2, 0.8) == pytest.approx(0.2)
    many = score([(3, 6), (6, 6)], (3, 3), [0.2, 0.4], 0.2)
    assert many == pytest.approx([0.8 + 0.2 * 0.75, 0.4 + 0.2 * 0.5])
    with pytest.raises(ArgumentError):
        stop_threshold(0.8, -1)


def test_one_operator_and_an_empty_range():
    optimizer = Optimizer(Lattice((4,), 4), Search(target_latency_s=0.1))
    assert optimizer.ask() == (4,)
    optimizer.tell((4,), latency_s=0.3)
    assert optimizer.ask() is None
    assert optimizer.ask(again=True) == (4,)
    assert not optimizer.reached()
    fixed = Optimizer(Lattice((4, 2), (4, 9)), Search(target_latency_s=0.1), levels=2)
    for _ in range(8):
        fixed.tell(fixed.ask(), latency_s=0.2)
    assert sorted(s.k for s in fixed.samples) == [(4, n) for n in range(2, 10)]
    assert fixed.ask() is None


def test_equal_samples_and_coinciding_ones_do_no_harm():
    search, box = Search(), Lattice((1, 1), 9)
    same = [Sample((i, 3), 0.8) for i in range(1, 6)]
    mean, sigma = search.surrogate(box, same)([(9, 9), (1, 3)])
    assert mean == pytest.approx([0.8, 0.8])
    assert sigma[0] > sigma[1] > 0
    assert search.propose(box, same).k not in {s.k for s in same}
    twice = GP(np.zeros((3, 2)), np.array([0.7, 0.8, 0.9]), 0.8, 1.0, 0.01, 0.0)
    assert np.isfinite(twice.predict([[0.0, 0.0], [1.0, 1.0]])).all()


@pytest.mark.parametrize(
    "wrong", [([[0.0]], [math.nan]), ([[0.0]], []), ([[0.0], [1.0]], [0.5]), ([[math.inf]], [0.5])]
)
def test_a_process_of_nonsense_is_refused(wrong):
    with pytest.raises(MetricError):
        fit(*wrong)


def test_the_optimizer_refuses_what_it_cannot_use():
    optimizer = Optimizer(Lattice((1, 1), 5))
    for k in ((1,), (1, 9), (1.5, 2), "ab", None):
        with pytest.raises(ArgumentError):
            optimizer.tell(k, 0.5)
    for result in (dict(), dict(score=math.nan), dict(latency_s=math.nan), dict(score="good")):
        with pytest.raises(MetricError):
            optimizer.tell((1, 1), **result)
    with pytest.raises(MetricError, match="no results"):
        optimizer.best  # noqa: B018


@pytest.mark.parametrize(("prior", "within"), [("constant", 0.02), ("cost", 1e-9), ("monotone", 1e-9), ("auto", 1e-9)])
def test_the_optimizer_finds_a_known_best_and_asks_nothing_twice(prior, within):
    """The best lies in a corner, behind a kink: what knows the cost of slots finds it, the paper's constant nearly."""
    box, target = Lattice((2, 3), 20), 0.1

    def truth(k):
        return 0.04 + 0.1 / k[0] + 0.12 / k[1]

    points = box.points()
    best = max(score(k, box.base, truth(k), target) for k in points.tolist())
    optimizer = Optimizer(box, Search(target_latency_s=target, prior=prior), levels=3, bootstrap=prior != "auto")
    for _ in range(25):
        k = optimizer.ask()
        assert k not in {s.k for s in optimizer.samples}
        optimizer.tell(k, latency_s=truth(k))
    assert optimizer.best.score >= best - within
    assert optimizer.reached() == (optimizer.best.score >= 0.9)
    assert "25 of 342" in repr(optimizer)


@pytest.mark.parametrize("engine", FITTERS)
def test_it_plugs_into_scikit_optimize(engine):
    from dspkit.bo import Regressor, skopt_optimizer

    box = Lattice((2, 3, 4), (9, 9, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = skopt_optimizer(box, levels=2, engine=engine)
        asked = []
        for _ in range(7):
            k = theirs.ask()
            asked.append(tuple(int(v) for v in k))
            theirs.tell(k, -score(k, box.base, 0.3 / k[0], 0.1))
    assert tuple(asked[:5]) == box.bootstrap(2)
    assert all(k in box for k in asked)
    assert isinstance(theirs.models[-1], Regressor)
    from sklearn.base import clone

    assert clone(theirs.models[-1]).get_params() == {"noise": 1e-4, "engine": engine}


JOB = Lattice((2, 3, 4), (12, 12, 4))  # the third operator cannot vary


def _job_latency(k):
    return 0.05 + 0.3 / k[0] + 0.002 * k[1]


def _searched(engine, *, runs, seed=0, box=JOB):
    optimizer = Optimizer(box, Search(target_latency_s=0.1, engine=engine), levels=2, seed=seed)
    while len(optimizer.samples) < runs and (k := optimizer.ask()) is not None:
        optimizer.tell(k, latency_s=_job_latency(k))
    return optimizer


def test_gpytorchs_surrogate_of_a_job_is_ours():
    samples = _searched("ours", runs=12).samples
    ours, theirs = (Search.paper(target_latency_s=0.1, engine=engine).surrogate(JOB, samples) for engine in FITTERS)
    assert type(theirs.gp) is not type(ours.gp)
    points = JOB.points()
    (mean, sigma), (their_mean, their_sigma) = ours(points), theirs(points)
    assert np.abs(mean - their_mean).max() < 2e-3  # both look for the likeliest kernel, each in its own way
    assert np.abs(sigma - their_sigma).max() < 2e-3
    same = GP(theirs.gp.X, theirs.gp.y, theirs.gp.mean, theirs.gp.length, theirs.gp.variance, theirs.gp.noise)
    assert np.abs(np.array(same.predict(JOB.scaled(points))) - [their_mean, their_sigma]).max() < 1e-6


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_asks_inside_the_lattice_once_each_and_finds_the_best(engine):
    optimizer = _searched(engine, runs=14)
    asked = [s.k for s in optimizer.samples]
    assert len(set(asked)) == 14
    assert all(k in JOB and all(type(v) is int for v in k) for k in asked)
    assert tuple(asked[:5]) == JOB.bootstrap(2) if engine == "skopt" else asked[0] == JOB.base
    best = max(score(k, JOB.base, _job_latency(k), 0.1) for k in JOB.points().tolist())
    assert optimizer.best.score >= best - 0.01
    again = _searched(engine, runs=8)
    assert [s.k for s in again.samples] == asked[:8]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_ends_when_all_was_run_and_may_ask_again(engine):
    optimizer = _searched(engine, runs=99, box=Lattice((1, 2), (2, 3)))
    assert len(optimizer.samples) == 4
    assert optimizer.ask() is None
    assert optimizer.ask(again=True) in optimizer.lattice


def test_what_skopts_search_cannot_do_is_refused():
    with pytest.raises(KnobError, match=r"prior='monotone'.*'constant'"):
        Search(engine="skopt", prior="monotone")
    with pytest.raises(ArgumentError, match="best with engine='skopt'"):
        Search(engine="skopt").propose(JOB, [Sample((2, 3, 4), 0.5)], best=0.7)


@pytest.mark.parametrize(
    ("engine", "missing"), [("gpytorch", "gpytorch"), ("gpytorch", "torch"), ("skopt", "skopt"), ("skopt", "sklearn")]
)
def test_an_engine_that_is_not_installed_says_how_to_install_it(monkeypatch, engine, missing):
    samples = [Sample((2, 3, 4), 0.5), Sample((4, 3, 4), 0.6)]
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NotFoundError, match=rf"{missing}.*pip install 'dspkit\[bo\]', or engine='ours'"):
        Search(engine=engine).propose(JOB, samples)


def test_prior_means():
    box, late = Lattice((2, 3), 20), lambda k: 0.05 + 0.2 / (2 * (k[0] - 2) + 1)
    samples = [Sample(k, score(k, box.base, late(k), 0.1), late(k)) for k in box.bootstrap(4)]
    some = [(2, 3), (5, 9), (20, 20)]
    assert prior_mean("constant", box.base, samples, 0.8, 0.1)(some) == pytest.approx(0)
    assert prior_mean("cost", box.base, samples, 0.8, 0.1)(some) == pytest.approx(0.2 * resource_score(some, box.base))
    monotone = prior_mean("monotone", box.base, samples, 0.8, 0.1)
    assert monotone(some) == pytest.approx([score(k, box.base, late(k), 0.1) for k in some], abs=0.03)
    kept = [s._replace(latency_s=None) for s in samples]  # scores alone: latencies below the target are not known
    assert prior_mean("monotone", box.base, kept, 0.8, 0.1)([(2, 3)]) == pytest.approx(
        score((2, 3), (2, 3), 0.25, 0.1), abs=0.1
    )
    for k in ((3, 3), (2, 4), (7, 9)):  # more instances never expect more latency
        cost = 0.2 * resource_score(k, box.base)
        assert monotone([k]) - cost >= monotone([(2, 3)]) - 0.2 - 1e-12


@pytest.mark.parametrize("kind", PRIORS)
def test_every_prior_passes_through_its_samples(kind):
    box, random = Lattice((2, 3), 20), np.random.default_rng(1)
    samples = [Sample(tuple(k), 0.8 + 0.05 * random.standard_normal(), 0.1) for k in box.draw(random, 8).tolist()]
    if kind == "latency":  # its scores follow from latencies, and it learns that these have no noise
        late = np.array([0.05 + 0.3 / s.k[0] + 0.2 / s.k[1] for s in samples])
        samples = [Sample(s.k, score(s.k, box.base, t, 0.1), t) for s, t in zip(samples, late, strict=True)]
    surrogate = Search(prior=kind, noise=1e-8, target_latency_s=0.1).surrogate(box, samples)
    near = 5e-3 if kind == "latency" else 1e-3
    assert surrogate.mean([s.k for s in samples]) == pytest.approx([s.score for s in samples], abs=near)


def _model(rate, base, slope=0.3):
    box = Lattice(base, 20)
    return Model(
        rate, base, box.max_parallelism, tuple(Sample(k, score(k, base, slope / k[0], 0.1)) for k in box.bootstrap(4))
    )


def test_the_nearest_model_and_of_two_the_higher_rate():
    library = Library(("a", "b"), tuple(_model(r, (1, 1)) for r in (10.0, 20.0, 40.0)))
    assert [library.nearest(r).rate for r in (1, 15, 31, 30, 99)] == [10, 20, 40, 40, 40]
    assert [m.rate for m in library.add(_model(20.5, (1, 1)), within=0.05).models] == [10, 20.5, 40]
    with pytest.raises(MetricError, match="empty library"):
        Library().nearest(3)


def test_weights_follow_what_the_new_samples_say():
    """Two models as near: the one that is right up to a constant gets the weight."""
    right, wrong = _model(10.0, (2, 2), 0.3), _model(10.0, (2, 2), 3.0)
    box, search = Lattice((2, 2), 20), Search(target_latency_s=0.1)
    new = [Sample(k, score(k, (2, 2), 0.3 / k[0], 0.1) + 0.02) for k in box.bootstrap(6)]
    mixed = blend(Library(("a", "b"), (wrong, right)), 10.0, box, search, new, models="weighted")
    weights = {id(model): weight for weight, model, _ in mixed.parts}
    assert weights[id(right)] > 0.95
    far = blend(Library(("a", "b"), (_model(1.0, (2, 2)), right)), 10.0, box, search, models="weighted")
    assert [round(w, 2) for w, *_ in far.parts] == [0.01, 0.99]


def test_relative_alignment_asks_about_the_same_multiple_of_the_base():
    model, search = _model(10.0, (2, 2)), Search.paper(target_latency_s=0.1)
    box, surrogate = Lattice((4, 6), 20), search.surrogate(model.lattice, model.samples)
    mixed = blend(Library(("a", "b"), (model,)), 20.0, box, search, align="relative")
    assert mixed.mean([(8, 12)]) == pytest.approx(surrogate.mean([(4, 4)]))


def test_a_transfer_proposes_what_was_not_run_at_the_new_rate():
    library, box, search = (
        Library(("a", "b"), (_model(10.0, (2, 2)),)),
        Lattice((4, 4), 20),
        Search(target_latency_s=0.1),
    )
    samples = [Sample((4, 4), 0.7)]
    for incumbent in ("measured", "predicted"):
        found = recommend(blend(library, 20.0, box, search), samples, search, 4, incumbent=incumbent)
        assert found.k in box
        assert found.k != (4, 4)
    assert len(predicted(blend(library, 20.0, box, search), (), search, 4)) == len(box.bootstrap(4))


def test_a_transfer_improves_on_what_was_measured_or_on_what_is_predicted_too():
    library, box, search = (
        Library(("a", "b"), (_model(10.0, (2, 2)),)),
        Lattice((4, 4), 20),
        Search(target_latency_s=0.1),
    )
    samples = [Sample((4, 4), 0.7), Sample((9, 9), 0.8)]
    old = blend(library, 20.0, box, search)
    known = {"measured": 0.8, "predicted": max(s.score for s in predicted(old, samples, search, 4))}
    assert known["predicted"] > 0.8
    for incumbent, best in known.items():
        found = recommend(old, samples, search, 4, incumbent=incumbent)
        assert found.improvement == pytest.approx(
            expected_improvement(found.mean, found.sigma, best, search.xi), rel=1e-9
        )


def test_a_transfer_asks_nothing_twice():
    library, search = Library(("a", "b"), (_model(10.0, (2, 2)),)), Search(target_latency_s=0.1)
    box = Lattice((4, 4), (4, 5))
    old, samples = blend(library, 20.0, box, search), [Sample((4, 4), 0.9)]
    assert recommend(old, samples, search, 2).k == (4, 5)
    assert recommend(old, [*samples, Sample((4, 5), 0.7)], search, 2) is None


def test_a_model_that_explains_the_new_samples_gets_the_weight_by_its_evidence():
    """Weights are those of the residual processes' marginal likelihoods, by scikit-learn, at equal rates."""
    right, wrong = _model(10.0, (2, 2), 0.3), _model(10.0, (2, 2), 0.5)
    box, search = Lattice((2, 2), 20), Search(target_latency_s=0.1)
    new = [Sample(k, score(k, (2, 2), 0.35 / k[0], 0.1)) for k in ((2, 2), (4, 9), (9, 3))]
    mixed = blend(Library(("a", "b"), (wrong, right)), 10.0, box, search, new, models="weighted")
    logs = []
    for _, model, surrogate in mixed.parts:
        ran = np.array([s.k for s in new])
        left = np.array([s.score for s in new]) - surrogate.mean(ran)
        gp = fit(box.scaled(ran), left)
        logs.append(_sklearn(gp.X, gp.y, gp).log_marginal_likelihood_value_)
        assert model in (right, wrong)
    weights = np.exp(np.array(logs) - max(logs))
    assert [w for w, *_ in mixed.parts] == pytest.approx(weights / weights.sum(), rel=1e-4)


def test_a_library_is_kept_in_a_file_that_people_can_read(tmp_path):
    samples = (Sample((1, 2), 0.9, 0.05), Sample((3, 2), 0.8))
    library = Library(("map", "jo<in"), (Model(1e4, (1, 2), (9, 9), samples), _model(2e4, (1, 1))))
    path = library.save(tmp_path / "models.json")
    assert Library.load(path) == library
    assert '"rate_per_s": 10000.0' in path.read_text()
    with pytest.raises(FileError, match="exists"):
        library.save(path)
    assert Library().save(path, overwrite=True) == path
    assert Library.load(path) == Library()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(format=9), lambda d: d.pop("models"), lambda d: d["models"][0].update(base=[1, 2, 3]),
        lambda d: d["models"][0].update(rate_per_s="fast"), lambda d: d["models"][0].update(samples=[]),
        lambda d: d["models"][0]["samples"][0].update(score="high"),
        lambda d: d["models"][0].update(max_parallelism=[0, 0]),
        lambda d: d["models"][0]["samples"][0].update(k=[1.5, 2]), lambda d: d.update(operators=[1, 2]),
        lambda d: d["models"][0]["samples"][0].update(latency_s=-3), lambda d: d["models"][0].update(rate_per_s=-1),
        lambda d: d["models"].append("x"), lambda d: d["models"][0]["samples"][0].update(score=math.nan),
    ],
)  # fmt: skip
def test_a_file_that_is_no_library_is_refused(tmp_path, change):
    path = Library(("a", "b"), (_model(1e4, (1, 1)),)).save(tmp_path / "models.json")
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))
    with pytest.raises(FileError):
        Library.load(path)


def test_files_that_are_not_even_json(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "list").write_text("[]")
    (tmp_path / "deep").write_text("[" * 100_000)
    for name in ("none", "bytes", "list", "deep", "."):
        with pytest.raises(FileError):
            Library.load(tmp_path / name)


def test_importing_it_loads_no_learning_library():
    import subprocess
    import sys

    code = "import sys, dspkit.bo, dspkit.policies.autrascale; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {name.split(".")[0] for name in out.split()} & {"torch", "gpytorch", "skopt", "sklearn"}
