"""Small random problems with replicas, for solvers to be refereed on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dspkit.core import InfeasibleError
from dspkit.placement import Application, Network, Problem, Replication
from dspkit.placement.replication.options import deployments, options


def small(seed: int, most: int = 2_000) -> Problem:
    """Chains, diamonds and any graph on 3 or 4 nodes, with pins, missing and narrow links, in both traffic modes.

    At most `most` combinations of multisets, so that exhaustive search stays quick.
    """
    random = np.random.default_rng(seed)
    while True:
        problem = _drawn(random)
        try:
            if deployments(options(problem)) <= most:
                return problem
        except InfeasibleError:
            return problem


def _drawn(random: np.random.Generator) -> Problem:
    operators, nodes = int(random.integers(2, 5)), int(random.integers(3, 5))
    ends = [(i, i + 1) for i in range(operators - 1)]
    if (shape := random.integers(3)) == 0:
        ends = [(i, j) for i in range(operators) for j in range(i + 1, operators) if random.random() < 0.5]
    elif shape == 1 and operators == 4:
        ends = [(0, 1), (0, 2), (1, 3), (2, 3)]
    names, hosts = tuple(f"o{i}" for i in range(operators)), tuple(f"n{u}" for u in range(nodes))
    rate = random.integers(1, 5, len(ends)) * 5.0
    app = Application(names, tuple((names[a], names[b]) for a, b in ends), random.integers(1, 3, operators), 0.01, rate)
    delay = random.uniform(0.001, 0.05, (nodes, nodes))
    if random.random() < 0.2:
        delay = np.where(random.random((nodes, nodes)) < 0.2, math.inf, delay)
    width: Any = math.inf if random.random() < 0.7 else random.integers(1, 5, (nodes, nodes)) * 5.0
    sure: Any = random.uniform(0.9, 1, (nodes, nodes)) if random.random() < 0.5 else 1.0
    network = Network(
        hosts, delay, random.integers(1, 5, nodes), random.choice([1, 2, 0.5], nodes),
        np.where(random.random(nodes) < 0.3, 1, random.uniform(0.9, 1, nodes)), sure, width,
    )  # fmt: skip
    pins = {
        n: tuple(map(str, random.choice(hosts, int(random.integers(1, 4)), replace=False)))
        for n in names
        if random.random() < 0.6
    }
    mu = np.where(random.random(operators) < 0.2, math.inf, random.uniform(12, 60, operators))
    replication = Replication(
        random.integers(1, 4 if operators < 4 else 3, operators), mu, random.choice([1, 5]),
        random.uniform(0.5, 2, operators), random.uniform(0, 0.1, (nodes, nodes)),
        random.integers(1, 4, len(ends)) * 100,
        traffic=str(random.choice(["multiplicity", "support"])), scale_service_rate=bool(random.random() < 0.3),
    )  # fmt: skip
    return Problem(app, network, pins, replication)


def answer(call: Any, *given: Any, **settings: Any) -> Any:
    """Return the solution of a solver, None if nothing is feasible."""
    try:
        return call(*given, **settings)
    except InfeasibleError:
        return None


def taxi(nodes: int, most: int) -> Problem:
    """The thesis's New York taxi query, every operator free; three of them never replicated."""
    names = ("source", "parser", "filter", "route", "metronome", "count", "partial", "global")
    streams = (
        ("source", "parser"), ("parser", "filter"), ("filter", "route"), ("route", "count"), ("filter", "metronome"),
        ("metronome", "count"), ("count", "partial"), ("partial", "global"),
    )  # fmt: skip
    delay = np.random.default_rng(nodes).uniform(0.01, 0.05, (nodes, nodes))
    network = Network(tuple(f"n{u}" for u in range(nodes)), delay, most + 1.0)
    once = ("source", "metronome", "global")
    degrees = [1 if n in once else most for n in names]
    return Problem(Application(names, streams, 1, 0.005, 100), network, replication=Replication(degrees))
