"""Applications and networks as the thesis makes them, from a seed [nardelli].

Networks: `gaussian` (chapter 4's scalability runs) and `waxman` (chapter 5: BRITE's two layers). Applications:
`sequential`, `diamond` (chapter 4 calls it fat) and `replicated`. `scenario` is chapter 5's whole setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import PlacementError
from .arrays import number, whole
from .problem import Application, Network, Problem

Array = np.ndarray[Any, Any]
LIGHT_KM_PER_MS = 299.792
MEAN_LINK_S = 0.017  # of a physical link: scaled so, the thesis's normalisation constants come out (card)


def layers(*sizes: int, time_s: float = 0.003, rate_per_s: float = 100.0, demand: float = 1.0) -> Application:
    """Operators in layers, every one of a layer feeding every one of the next.

    >>> layers(1, 2, 1).streams
    (('0', '1'), ('0', '2'), ('1', '3'), ('2', '3'))
    """
    if not sizes or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in sizes):
        raise PlacementError(
            f"layers of {sizes}", expected="whole numbers from 1", fix="say how many operators each has"
        )
    first = np.concatenate(([0], np.cumsum(sizes)))
    groups = [range(a, b) for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
    streams = [(str(i), str(j)) for a, b in zip(groups, groups[1:], strict=False) for i in a for j in b]
    operators = tuple(str(i) for i in range(int(first[-1])))
    return Application(operators, tuple(streams), demand, time_s, rate_per_s)


def sequential(operators: int = 20, **settings: float) -> Application:
    """A chain."""
    return layers(*(1,) * whole(operators, "operators", 1), **settings)


def diamond(operators: int = 20, **settings: float) -> Application:
    """A source, one layer of all others, a sink: chapter 4's fat application, chapter 5's diamond."""
    return layers(1, whole(operators, "operators", 3) - 2, 1, **settings)


def replicated(replicas: int = 6, **settings: float) -> Application:
    """A source, 2l operators, l operators, a sink, complete between layers: 90 streams and 72 paths for l = 6."""
    return layers(1, 2 * whole(replicas, "replicas", 1), replicas, 1, **settings)


SHAPES: dict[str, Callable[[int], Application]] = {
    "diamond": diamond,
    "sequential": sequential,
    "replicated": replicated,
}


def gaussian(
    nodes: int = 20, *, seed: int = 0, mean_s: float = 0.022, sd_s: float = 0.005, least_s: float = 0.001,
    capacity: float = 4.0, speed: float = 1.0, availability: float = 1.0,
) -> Network:  # fmt: skip
    """Delays max(Normal(mean, sd), least), the same both ways; all nodes alike."""
    number(mean_s, "mean_s")
    number(sd_s, "sd_s")
    number(least_s, "least_s")
    random = np.random.default_rng(_size(nodes, seed))
    drawn = np.triu(np.maximum(random.normal(mean_s, sd_s, (nodes, nodes)), least_s), 1)
    return Network(_numbered(nodes), drawn + drawn.T, capacity, speed, availability)


def waxman(
    nodes: int = 36, *, seed: int = 0, alpha: float = 0.15, beta: float = 0.20, links: int = 2, capacity: float = 2.0,
    speed: float = 1.0, least_availability: float = 0.97, most_availability: float = 0.9999999,
) -> Network:  # fmt: skip
    """Two Waxman layers, top down: as many autonomous systems as each has routers (or as near as `nodes` allows).

    Systems lie in a plane of 1000 km a side, the routers of each in a plane of their own of 10000 km. They join one by
    one, each with `links` links to earlier ones, near ones rather; a link between systems joins a router of each drawn
    at random. A logical link is the shortest way. Delays are light's, scaled to a mean of 17 ms over physical links.
    """
    from scipy.sparse.csgraph import shortest_path

    number(alpha, "alpha", open_low=True)
    number(beta, "beta", open_low=True)
    whole(links, "links", 1)
    systems = np.array_split(np.arange(_size(nodes, seed)[0]), max(1, round(nodes**0.5)))
    random = np.random.default_rng((nodes, seed))
    physical = np.full((nodes, nodes), np.inf)

    def join(u: int, v: int, km: float) -> None:
        physical[u, v] = physical[v, u] = min(physical[u, v], km / LIGHT_KM_PER_MS)

    for a, b, km in _plane(random, len(systems), 1_000.0, alpha, beta, links):
        join(int(random.choice(systems[a])), int(random.choice(systems[b])), km)
    for routers in systems:
        for a, b, km in _plane(random, len(routers), 10_000.0, alpha, beta, links):
            join(int(routers[a]), int(routers[b]), km)
    there = np.isfinite(physical)
    if there.any():
        physical *= MEAN_LINK_S / physical[there].mean()
    delay_s = shortest_path(np.where(there, physical, 0.0), method="D", directed=False)
    delay_s = np.minimum(delay_s, delay_s.T)  # the two ways differ by rounding
    availability = random.uniform(least_availability, most_availability, nodes)
    return Network(_numbered(nodes), delay_s, capacity, speed, availability)


def _plane(
    random: np.random.Generator, count: int, side_km: float, alpha: float, beta: float, links: int
) -> list[tuple[int, int, float]]:
    """Links of `count` points that join one by one, Waxman's way."""
    points = random.uniform(0.0, side_km, (count, 2))
    found = []
    for new in range(1, count):
        km = np.hypot(*(points[:new] - points[new]).T)
        chance = alpha * np.exp(-km / (beta * side_km * 2**0.5))
        chosen = random.choice(new, size=min(links, new), replace=False, p=chance / chance.sum())
        found += [(int(old), new, float(km[old])) for old in chosen]
    return found


def median_node(network: Network) -> str:
    """The node whose mean delay to the others is the median."""
    order = np.argsort(network.delay_s.mean(axis=1), kind="stable")
    return network.nodes[int(order[len(order) // 2])]


def scenario(shape: str = "sequential", nodes: int = 36, *, seed: int = 0, operators: int = 20) -> Problem:
    """Chapter 5's setting: 20 operators on a Waxman network, source and sink on the node of median mean delay.

    >>> problem = scenario("replicated")
    >>> len(problem.application.streams), problem.application.path_count, len(problem.pinned)
    (90, 72, 2)
    """
    if shape not in SHAPES:
        raise PlacementError(f"shape {shape!r}", expected=f"one of {', '.join(SHAPES)}", fix="correct the name")
    app = replicated((whole(operators, "operators", 1) - 2) // 3) if shape == "replicated" else SHAPES[shape](operators)
    network = waxman(nodes, seed=seed)
    home = median_node(network)
    return Problem(app, network, {app.operators[0]: home, app.operators[-1]: home})


def sampled(problem: Problem, share: float, *, seed: int = 0) -> Problem:
    """The same with a random sample of `share` of the nodes for each operator that is not pinned (chapter 4)."""
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 < share <= 1:
        raise PlacementError(f"share = {share!r}", expected="a number above 0, at most 1", fix="correct it")
    random, nodes = np.random.default_rng(whole(seed, "seed")), problem.network.nodes
    kept: dict[str, Any] = dict(problem.candidates)
    for i, operator in enumerate(problem.application.operators):
        if i not in problem.pinned:
            may = np.flatnonzero(problem.allowed[i])
            size = min(len(may), int(np.ceil(share * len(nodes) - 1e-9)))
            kept[operator] = tuple(nodes[u] for u in sorted(random.choice(may, size, replace=False).tolist()))
    return Problem(problem.application, problem.network, kept)


def _size(nodes: int, seed: int) -> tuple[int, int]:
    return whole(nodes, "nodes", 1), whole(seed, "seed")


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(u) for u in range(count))
