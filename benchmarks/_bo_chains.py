"""Chains of M/M/c queues, whose best configuration is known, and searches for it by several libraries.

All searches begin with the base and have the same 30 runs. scikit-optimize, Optuna, SMAC and BoTorch's "botorch F"
learn the score F, as their users would have it. "botorch l" has what ours has: it learns the logarithm of the latency,
and F is a known function of it and of the slots (composite objective).
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dspkit.bo import Lattice, Library, Model, Optimizer, Sample, Search, score
from dspkit.core.queueing import sojourn
from dspkit.core.typing import Array

MOST, RATE, RUNS = 24, 100.0, 30
Ask = Callable[[], Any]
Tell = Callable[[Sample], object]


class Chain:
    """Two to four operators in a row, to meet 1.15 times the sum of their service times at `rate` records/s.

    `noise` is the standard deviation of a measured log latency, the same for all searches of one seed.
    """

    def __init__(self, number: int, seed: int = 0, noise: float = 0.0, rate: float = RATE):
        draw = random.Random(number)
        self.services = [draw.uniform(0.01, 0.1) for _ in range(draw.randint(2, 4))]
        self.lattice = Lattice([int(rate * s) + 1 for s in self.services], MOST)
        self.target_latency_s = 1.15 * sum(self.services)
        self.rate, self.seed, self._noise, self._random = rate, seed, noise, np.random.default_rng([number, seed])

    @cached_property
    def _waits(self) -> list[Array]:
        return [
            np.array([sojourn(k, self.rate, s)[0] for k in range(a, MOST + 1)])
            for a, s in zip(self.lattice.base, self.services, strict=True)
        ]

    def latency_s(self, k: Any) -> float:
        """Return the exact mean latency."""
        return float(sum(w[n - a] for w, n, a in zip(self._waits, k, self.lattice.base, strict=True)))

    def true_score(self, k: Any) -> float:
        """Return F of the exact mean latency."""
        return float(score(k, self.lattice.base, self.latency_s(k), self.target_latency_s))

    @cached_property
    def best(self) -> float:
        """The greatest F of all configurations."""
        shape = [-1 if j == 0 else 1 for j in range(len(self.services))]
        late: Any = 0.0
        cost: Any = 0.0
        for i, (wait, a) in enumerate(zip(self._waits, self.lattice.base, strict=True)):
            along = np.roll(shape, i)
            late = late + wait.reshape(along)
            cost = cost + (a / np.arange(a, MOST + 1)).reshape(along)
        F = 0.8 * np.minimum(1.0, self.target_latency_s / late) + 0.2 * cost / len(self.services)
        return float(F.max())

    def run(self, k: Any) -> Sample:
        """Return a measured sample."""
        late = self.latency_s(k) * math.exp(self._noise * self._random.standard_normal())
        return Sample(tuple(k), float(score(k, self.lattice.base, late, self.target_latency_s)), late)

    def regrets(self, ask: Ask, tell: Tell) -> tuple[list[float], Any]:
        """Return what the best run so far lacks of the best there is, after each run; and the k of the best F."""
        found: list[float] = []
        measured: list[Sample] = []
        for _ in range(RUNS):
            k = ask()
            if k is not None:
                measured.append(self.run(k))
                tell(measured[-1])
                found.append(min([self.best - self.true_score(k), *found[-1:]]))
            else:
                found.append(found[-1])
        return found, max(measured, key=lambda s: s.score).k


def ours(chain: Chain, search: Search | None = None) -> tuple[Ask, Tell]:
    """Search by `dspkit.bo`, with its defaults or as printed in the paper."""
    made = Optimizer(chain.lattice, search or Search(chain.target_latency_s), seed=chain.seed)
    return made.ask, lambda s: made.tell(s.k, latency_s=s.latency_s)


def paper(chain: Chain) -> tuple[Ask, Tell]:
    """Search as printed: the whole bootstrap set, a process of the score."""
    return ours(chain, Search.paper(target_latency_s=chain.target_latency_s))


def at_random(chain: Chain) -> tuple[Ask, Tell]:
    """Search by uniformly random configurations."""
    drawn = np.random.default_rng(chain.seed)
    return lambda: tuple(chain.lattice.draw(drawn, 1)[0].tolist()), lambda s: None


def skopt(chain: Chain) -> tuple[Ask, Tell]:
    """Search by scikit-optimize with its defaults."""
    from skopt import Optimizer as Theirs

    warnings.simplefilter("ignore")
    made = Theirs(chain.lattice.dimensions(), random_state=chain.seed)
    first = [chain.lattice.base]
    return (
        lambda: first.pop() if first else [int(v) for v in made.ask()],
        lambda s: made.tell([int(v) for v in s.k], -s.score),
    )


def optuna(chain: Chain, sampler: str = "TPESampler") -> tuple[Ask, Tell]:
    """Search by Optuna: the tree-structured Parzen estimator, its default, or its Gaussian process."""
    import optuna as library

    warnings.simplefilter("ignore")
    library.logging.set_verbosity(library.logging.ERROR)
    study = library.create_study(direction="maximize", sampler=getattr(library.samplers, sampler)(seed=chain.seed))
    study.enqueue_trial({f"k{i}": n for i, n in enumerate(chain.lattice.base)})
    asked: list[Any] = []
    box = list(zip(chain.lattice.base, chain.lattice.max_parallelism, strict=True))

    def ask() -> tuple[int, ...]:
        asked.append(study.ask())
        return tuple(asked[-1].suggest_int(f"k{i}", a, b) for i, (a, b) in enumerate(box))

    return ask, lambda s: study.tell(asked[-1], s.score)


def smac(chain: Chain) -> tuple[Ask, Tell]:
    """Search by SMAC's facade for black boxes: a Gaussian process and expected improvement."""
    import logging
    import tempfile

    import ConfigSpace as spaces
    from smac import BlackBoxFacade, Scenario
    from smac.runhistory import TrialInfo, TrialValue

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    space = spaces.ConfigurationSpace(seed=chain.seed)
    box = zip(chain.lattice.base, chain.lattice.max_parallelism, strict=True)
    space.add([spaces.UniformIntegerHyperparameter(f"k{i}", a, b, default_value=a) for i, (a, b) in enumerate(box)])
    base = space.get_default_configuration()
    scenario = Scenario(
        space,
        deterministic=True,
        n_trials=RUNS,
        seed=chain.seed,
        output_directory=Path(tempfile.mkdtemp(prefix="smac-")),
    )
    made = BlackBoxFacade(
        scenario, lambda config, seed=0: 0.0, overwrite=True, logging_level=False,
        initial_design=BlackBoxFacade.get_initial_design(scenario, additional_configs=[base]),
    )  # fmt: skip
    asked: list[Any] = [TrialInfo(space.get_default_configuration(), seed=0)]
    first = [chain.lattice.base]

    def ask() -> tuple[int, ...]:
        if first:
            return first.pop()
        asked.append(made.ask())
        return tuple(int(asked[-1].config[f"k{i}"]) for i in range(len(chain.lattice.base)))

    return ask, lambda s: made.tell(asked[-1], TrialValue(cost=-s.score))


def botorch(chain: Chain, learns: str = "F") -> tuple[Ask, Tell]:
    """Search by BoTorch: SingleTaskGP and LogEI over the unit cube, after the base and 2 n + 1 Sobol points; rounded.

    With `learns="l"` the process is one of the log latency, and the score a known function of it.
    """
    import torch
    from botorch.acquisition.analytic import LogExpectedImprovement
    from botorch.acquisition.logei import qLogExpectedImprovement
    from botorch.acquisition.objective import GenericMCObjective
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim.optimize import optimize_acqf
    from botorch.sampling.normal import SobolQMCNormalSampler
    from gpytorch.mlls import ExactMarginalLogLikelihood

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(chain.seed)
    box = chain.lattice
    told: list[Sample] = []
    n = len(box.base)
    drawn = torch.quasirandom.SobolEngine(n, scramble=True, seed=chain.seed).draw(2 * n + 1).double().numpy()
    low, span = torch.as_tensor(box.low, dtype=torch.double), torch.as_tensor(box.high - box.low, dtype=torch.double)

    def rounded(x: Any) -> tuple[int, ...]:
        return box.clamp((box.low + np.asarray(x) * (box.high - box.low)).tolist())

    def of_latency(z: Any, X: Any) -> Any:
        cost = (low / (low + X * span)).mean(dim=-1)
        return 0.8 * torch.exp(-torch.clamp(z[..., 0], min=0.0)) + 0.2 * cost

    def ask() -> tuple[int, ...]:
        if len(told) <= len(drawn):
            return rounded(drawn[len(told) - 1]) if told else box.base
        X = torch.as_tensor(box.scaled([s.k for s in told]))
        score = torch.tensor([s.score for s in told], dtype=torch.double)
        log = [math.log((s.latency_s or 1.0) / chain.target_latency_s) for s in told]
        model = SingleTaskGP(X, score[:, None] if learns == "F" else torch.tensor(log, dtype=torch.double)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bounds = torch.stack([torch.zeros(n), torch.ones(n)]).double()
        if learns == "F":
            acquisition: Any = LogExpectedImprovement(model, best_f=score.max())
        else:
            sampler = SobolQMCNormalSampler(torch.Size([128]), seed=chain.seed)
            acquisition = qLogExpectedImprovement(
                model, best_f=score.max(), sampler=sampler, objective=GenericMCObjective(of_latency)
            )
        x, _ = optimize_acqf(acquisition, bounds=bounds, q=1, num_restarts=5, raw_samples=128)
        return rounded(x[0].numpy())

    return ask, told.append


class Stopped(NamedTuple):
    """A search that stops by itself: its runs, and whether what it decided truly misses (None if undecided)."""

    runs: int
    missed: bool | None


def stopped(chain: Chain, error: float, most: int = 80) -> Stopped:
    """Search until it stops, at most `most` runs."""
    made = Optimizer(chain.lattice, Search(chain.target_latency_s), seed=chain.seed, error=error)
    for _ in range(most):
        k = made.ask()
        if k is None:
            break
        made.tell(k, latency_s=chain.run(k).latency_s)
    missed = None if made.decided is None else chain.latency_s(made.decided) > chain.target_latency_s
    return Stopped(len(made.samples), missed)


def transfer_runs(number: int, seed: int, kind: str, most: int = 13) -> tuple[int, int]:
    """Return the runs until within 2 % of the best: from scratch, and with models of 0.6 and 0.8 times the rate.

    `kind` is "two rates", of the same chain, or "another job", of another chain of as many operators.
    """
    noise = 0.05 * (seed % 2)
    size = len(Chain(number).lattice.base)
    of = number if kind == "two rates" else next(n for n in range(1000, 2000) if len(Chain(n).lattice.base) == size)
    models = []
    for rate in (0.6 * RATE, 0.8 * RATE):
        chain = Chain(of, seed, noise, rate)
        made = Optimizer(chain.lattice, Search(chain.target_latency_s), seed=seed)
        for _ in range(12):
            if (k := made.ask()) is not None:
                made.tell(k, latency_s=chain.run(k).latency_s)
        models.append(Model(rate, chain.lattice.base, chain.lattice.max_parallelism, tuple(made.samples)))
    library = Library(tuple(f"operator {i}" for i in range(size)), tuple(models))
    found = []
    for known in (None, library):
        chain = Chain(number, seed, noise)
        made = Optimizer(chain.lattice, Search(chain.target_latency_s), seed=seed, library=known, rate=RATE)
        for run in range(1, most + 1):
            k = made.ask()
            if k is None or (made.tell(k, latency_s=chain.run(k).latency_s) and run == most):
                break
            if chain.best - chain.true_score(k) <= 0.02 * chain.best:
                break
        found.append(run)
    return found[0], found[1]


WAYS: dict[str, Callable[[Chain], tuple[Ask, Tell]]] = {
    "ours": ours,
    "paper": paper,
    "random": at_random,
    "skopt": skopt,
    "optuna TPE": optuna,
    "optuna GP": lambda chain: optuna(chain, "GPSampler"),
    "smac": smac,
    "botorch F": botorch,
    "botorch l": lambda chain: botorch(chain, "l"),
}
LIBRARIES = {"random": "numpy", "skopt": "scikit-optimize", "optuna": "optuna", "smac": "smac", "botorch": "botorch"}
RIVALS = tuple(way for way in WAYS if way.partition(" ")[0] in LIBRARIES and way != "random")
