"""Chains of M/M/c queues, whose best configuration is known, and searches for it by several libraries."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dspkit.bo import Lattice, Optimizer, Sample, Search, score
from dspkit.core.queueing import sojourn
from dspkit.core.typing import Array

MOST, RATE, RUNS = 24, 100.0, 30
Ask = Callable[[], Any]
Tell = Callable[[Sample], object]


class Chain:
    """Two to four operators in a row under 100 records/s, to meet 1.15 times the sum of their service times.

    `noise` is the standard deviation of a measured log latency, the same for all searches of one seed.
    """

    def __init__(self, number: int, seed: int = 0, noise: float = 0.0):
        draw = random.Random(number)
        self.services = [draw.uniform(0.01, 0.1) for _ in range(draw.randint(2, 4))]
        self.lattice = Lattice([int(RATE * s) + 1 for s in self.services], MOST)
        self.target_latency_s = 1.15 * sum(self.services)
        self.seed, self._noise, self._random = seed, noise, np.random.default_rng([number, seed])

    @cached_property
    def _waits(self) -> list[Array]:
        return [
            np.array([sojourn(k, RATE, s)[0] for k in range(a, MOST + 1)])
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

    def regrets(self, ask: Ask, tell: Tell) -> list[float]:
        """Return what the best configuration run so far lacks of the best there is, after each of the runs."""
        found, worst = [], math.inf
        for _ in range(RUNS):
            k = ask()
            if k is not None:
                tell(self.run(k))
                worst = min(worst, self.best - self.true_score(k))
            found.append(worst)
        return found


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
    return lambda: [int(v) for v in made.ask()], lambda s: made.tell(list(s.k), -s.score)


def botorch(chain: Chain) -> tuple[Ask, Tell]:
    """Search by BoTorch: SingleTaskGP and LogEI over the unit cube, after 2 (n + 1) Sobol points; rounded."""
    import torch
    from botorch.acquisition.analytic import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim.optimize import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(chain.seed)
    box = chain.lattice
    told: list[Sample] = []
    n = len(box.base)
    first = torch.quasirandom.SobolEngine(n, scramble=True, seed=chain.seed).draw(2 * (n + 1)).double().numpy()

    def rounded(x: Any) -> tuple[int, ...]:
        return box.clamp((box.low + np.asarray(x) * (box.high - box.low)).tolist())

    def ask() -> tuple[int, ...]:
        if len(told) < len(first):
            return rounded(first[len(told)])
        X = torch.as_tensor(box.scaled([s.k for s in told]))
        y = torch.tensor([[s.score] for s in told], dtype=torch.double)
        model = SingleTaskGP(X, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bounds = torch.stack([torch.zeros(n), torch.ones(n)]).double()
        x, _ = optimize_acqf(
            LogExpectedImprovement(model, best_f=y.max()), bounds=bounds, q=1, num_restarts=5, raw_samples=128
        )
        return rounded(x[0].numpy())

    return ask, told.append


WAYS = {"ours": ours, "paper": paper, "random": at_random, "skopt": skopt, "botorch": botorch}
RIVALS = ("skopt", "botorch")
