"""Small random placement problems of every kind, for solvers to be refereed on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dspkit import placement
from dspkit.placement import Application, Network, Problem, Ranges, Weights
from dspkit.placement.objective import Costs, metric_costs, weighted_costs

MOST = 3_000  # placements, so that exhaustive search stays quick
AIMS = [
    ("response_s", 1),
    *((aim, sign) for aim in ("log_availability", *placement.NETWORK_METRICS) for sign in (1, -1)),
]


def small(seed: int) -> Problem:
    """Chains, diamonds and any graph, alike or not, with pins, candidate sets, missing links and narrow ones."""
    random = np.random.default_rng(seed)
    operators, nodes = int(random.integers(1, 7)), int(random.integers(1, 6))
    while nodes**operators > MOST:
        nodes -= 1
    shape, same = random.integers(4), random.random() < 0.5
    ends = [(i, j) for i in range(operators) for j in range(i + 1, operators) if random.random() < 0.5]
    if shape == 0:
        ends = [(i, i + 1) for i in range(operators - 1)]
    elif shape == 1 and operators >= 3:
        ends = [(0, i) for i in range(1, operators - 1)] + [(i, operators - 1) for i in range(1, operators - 1)]
    names = tuple(f"o{i}" for i in range(operators))
    demand: Any = 1.0 if random.random() < 0.5 else random.integers(0, 4, operators) * 1.0
    rate: Any = 100.0 if same else random.integers(1, 5, len(ends)) * 50.0
    time_s: Any = 0.003 if same else random.uniform(0, 0.02, operators)
    app = Application(names, tuple((names[a], names[b]) for a, b in ends), demand, time_s, rate)
    delay = random.uniform(0.001, 0.03, (nodes, nodes))
    if random.random() < 0.3:
        delay = random.integers(1, 3, (nodes, nodes)) * 0.01  # many ties
    if random.random() < 0.6:
        delay = np.triu(delay) + np.triu(delay).T
    if random.random() < 0.15:
        delay = np.where(random.random((nodes, nodes)) < 0.2, np.inf, delay)
    width: Any = math.inf if random.random() < 0.6 else random.integers(1, 8, (nodes, nodes)) * 50.0
    sure: Any = random.uniform(0.95, 1, (nodes, nodes)) if random.random() < 0.4 else 1.0
    hosts = tuple(f"n{i}" for i in range(nodes))
    speed, available = random.choice([1, 1, 2, 0.5], nodes), random.uniform(0.9, 1, nodes)
    network = Network(hosts, delay, random.integers(0, 6, nodes) * 1.0, speed, available, sure, width)
    chosen = {
        name: tuple(random.choice(hosts, int(random.integers(1, nodes + 1)), replace=False).tolist())
        for name in names
        if random.random() < 0.25
    }
    return Problem(app, network, chosen)


def objective(problem: Problem, seed: int) -> Costs:
    """One of all objectives, or a mix."""
    kind = seed % (len(AIMS) + 3)
    if kind < len(AIMS):
        return metric_costs(problem, *AIMS[kind])
    random = np.random.default_rng((seed, 1))
    weights = Weights(*random.dirichlet((1, 1, 1)).tolist(), str(random.choice(placement.NETWORK_METRICS)))
    return weighted_costs(problem, weights, Ranges((0.01, 0.1), (-1.0, -0.01), (10.0, 500.0)))
