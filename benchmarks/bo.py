"""The time of the scorer against scikit-optimize and BoTorch; `bo_quality` has the quality of its searches."""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks import Claim, side_by_side
from dspkit.bo import Lattice, Library, Model, Optimizer, Sample, Search, score
from dspkit.bo.transfer import blend, recommend

OPERATORS, SAMPLES = (2, 4, 6, 8, 10), (10, 30)


def ask_and_tell_over_skopt() -> Claim:
    """One tell and one ask, over `skopt.Optimizer` with its default GP: the worst of 2 to 10 operators."""
    return Claim(max(v["skopt"] for v in _ratios().values()), "x", target=0.1, better="lower", detail=_timings())


def ask_and_tell_over_botorch() -> Claim:
    """The same over a fitted SingleTaskGP and LogEI, optimised from 10 of 512 starts."""
    return Claim(max(v["botorch"] for v in _ratios().values()), "x", target=0.1, better="lower", detail=_timings())


def prediction_ms() -> Claim:
    """Mean and sigma of one configuration of ten operators after 30 samples (paper, its machine: 0.6 ms)."""
    lattice, told = _told(10, 30)
    surrogate = Search.paper().surrogate(lattice, told)
    k = [lattice.max_parallelism]
    seconds = side_by_side({"one": lambda: [surrogate(k) for _ in range(100)]})["one"] / 100
    return Claim(1e3 * seconds, "ms", target=0.3, better="lower")


def training_over_gpytorch() -> Claim:
    """Fitting the kernel of 30 samples of ten operators, over GPyTorch's (paper, its machine: 88 ms)."""
    lattice, told = _told(10, 30)
    ways = {engine: Search.paper(engine=engine) for engine in ("ours", "gpytorch")}
    seconds = side_by_side({e: partial(s.surrogate, lattice, told) for e, s in ways.items()}, repeats=3)
    return Claim(seconds["ours"] / seconds["gpytorch"], "x", target=0.2, better="lower", detail=seconds)


def transfer_over_gpytorch() -> Claim:
    """A step of Algorithm 2 with ten operators (old model, residual, proposal), over the same with GPyTorch.

    The paper says 116 ms on its machine.
    """
    lattice, told = _told(10, 30)
    library = Library(tuple("abcdefghij"), (Model(1e3, lattice.base, lattice.max_parallelism, tuple(told)),))

    def step(search: Search) -> None:
        recommend(blend(library, 2e3, lattice, search), told[:5], search, 6)

    ways = {engine: Search.paper(engine=engine) for engine in ("ours", "gpytorch")}
    seconds = side_by_side({e: partial(step, s) for e, s in ways.items()}, repeats=3)
    return Claim(seconds["ours"] / seconds["gpytorch"], "x", target=0.5, better="lower", detail=seconds)


def _told(operators: int, samples: int) -> tuple[Lattice, list[Sample]]:
    random = np.random.default_rng([operators, samples])
    lattice = Lattice(random.integers(1, 9, operators).tolist(), 40)
    drawn = [tuple(k) for k in lattice.draw(random, samples).tolist()]
    late = [0.1 + 0.5 / min(k) + 0.01 * random.standard_normal() for k in drawn]
    return lattice, [Sample(k, score(k, lattice.base, t, 0.18), t) for k, t in zip(drawn, late, strict=True)]


@cache
def _timings() -> dict[str, dict[str, float]]:
    """Seconds for a tell and an ask, by operators and samples, printed as it grows."""
    found: dict[str, dict[str, float]] = {}
    for n in OPERATORS:
        for samples in SAMPLES:
            lattice, told = _told(n, samples)
            rivals = {
                "ours": lambda lattice=lattice, told=told: _ours(lattice, told),
                "skopt": lambda lattice=lattice, told=told: _skopt(lattice, told),
                "botorch": lambda lattice=lattice, told=told: _botorch(lattice, told),
            }
            case = f"{n} operators, {samples} samples"
            found[case] = side_by_side(rivals, repeats=3)
            print(f"{case:26}", *(f"{who} {1e3 * s:7.1f} ms" for who, s in found[case].items()), sep="  ", flush=True)
    return found


def _ratios() -> dict[str, dict[str, float]]:
    return {case: {r: t["ours"] / t[r] for r in ("skopt", "botorch")} for case, t in _timings().items()}


def _ours(lattice: Lattice, told: list[Sample]) -> Any:
    made = Optimizer(lattice, samples=[*told[:-1], Sample(lattice.base, 0.5)], bootstrap=False)
    made.tell(told[-1].k, told[-1].score)
    return made.ask()


def _skopt(lattice: Lattice, told: list[Sample]) -> Any:
    from skopt import Optimizer as Theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Theirs(lattice.dimensions(), n_initial_points=len(told), random_state=0)
        made.tell([list(s.k) for s in told], [-s.score for s in told])
        return made.ask()


def _botorch(lattice: Lattice, told: list[Sample]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from botorch.acquisition.analytic import LogExpectedImprovement
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.optim.optimize import optimize_acqf
        from gpytorch.mlls import ExactMarginalLogLikelihood

        torch.set_num_threads(1)
        X = torch.as_tensor(lattice.scaled([s.k for s in told]))
        y = torch.tensor([[s.score] for s in told], dtype=torch.double)
        model = SingleTaskGP(X, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bounds = torch.stack([torch.zeros(X.shape[1]), torch.ones(X.shape[1])]).double()
        acquisition = LogExpectedImprovement(model, best_f=y.max())
        return optimize_acqf(acquisition, bounds=bounds, q=1, num_restarts=10, raw_samples=512)
