"""The same Gaussian process in GPyTorch: exact, in double precision, with the noise given and not learned."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ..errors import NotFoundError

Array = np.ndarray[Any, np.dtype[Any]]


def libraries() -> tuple[Any, Any]:
    """GPyTorch and torch, loaded on first use; what they themselves call deprecated is not the user's concern."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import gpytorch
            import torch
        except ModuleNotFoundError as error:
            came = f"fit='gpytorch' without {error.name}"
            raise NotFoundError(came, expected="it installed", fix="pip install 'dspkit[bo]', or fit='grid'") from error
    return gpytorch, torch


def model(X: Any, y: Any, *, mean: float, length: float, variance: float, noise: float) -> Any:
    """A `gpytorch.models.ExactGP` of these samples with these hyper-parameters; call `.eval()` on it to predict.

    Only the kernel's two numbers can be trained.
    """
    gpytorch, torch = libraries()

    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc,name-defined]
        def __init__(self, X: Any, y: Any, likelihood: Any):
            super().__init__(X, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5))

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    inputs, scores = (torch.as_tensor(np.asarray(v), dtype=torch.double) for v in (X, y))
    known = torch.full((len(scores),), max(noise, 1e-10), dtype=torch.double)  # GPyTorch wants some
    with gpytorch.settings.min_fixed_noise(double_value=1e-10):
        likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise=known)
    made = Exact(inputs, scores, likelihood).double()
    made.mean_module.constant = mean
    made.mean_module.raw_constant.requires_grad_(False)
    made.covar_module.outputscale = variance
    made.covar_module.base_kernel.lengthscale = length
    return made


def likeliest(
    X: Array, y: Array, mean: float, noise: float, length: tuple[float, float], variance: tuple[float, float]
) -> tuple[float, float]:
    """The length and variance of the greatest marginal likelihood, by L-BFGS on GPyTorch's gradients from 4 starts."""
    from scipy.optimize import minimize

    gpytorch, torch = libraries()
    made = model(X, y, mean=mean, length=1.0, variance=0.1, noise=noise)
    made.train()
    target = gpytorch.mlls.ExactMarginalLogLikelihood(made.likelihood, made)
    kernel = made.covar_module

    raws = (kernel.base_kernel.raw_lengthscale, kernel.raw_outputscale)
    behind = (kernel.base_kernel.raw_lengthscale_constraint, kernel.raw_outputscale_constraint)

    def loss(logs: Array) -> tuple[float, Array]:
        values = np.exp(logs)
        for raw, constraint, value in zip(raws, behind, values, strict=True):
            raw.data.fill_(constraint.inverse_transform(torch.tensor(value, dtype=torch.double)))
        made.zero_grad()
        worse = -target(made(*made.train_inputs), made.train_targets)
        worse.backward()
        # the parameters lie behind a softplus, whose slope is a sigmoid: back to logarithms, where the surface is round
        slopes = [float(r.grad.sum() / torch.sigmoid(r.data).sum()) * v for r, v in zip(raws, values, strict=True)]
        return float(worse.detach()), np.array(slopes)

    bounds = [tuple(np.log(length)), tuple(np.log(variance))]
    best, found = math.inf, (1.0, 0.1)
    with gpytorch.settings.fast_computations(False, False, False):
        for start_l in np.quantile(bounds[0], (0.2, 0.7)):
            for start_s in np.quantile(bounds[1], (0.2, 0.7)):
                done = minimize(loss, [start_l, start_s], jac=True, bounds=bounds, method="L-BFGS-B")
                if done.fun < best:
                    best, found = float(done.fun), (float(np.exp(done.x[0])), float(np.exp(done.x[1])))
    return found
