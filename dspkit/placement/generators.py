"""Random applications and networks of the thesis [nardelli].

Networks: `gaussian_network` (chapter 4's scalability runs) and `waxman_network` (chapter 5: BRITE's two layers).
Applications: `sequential_application`, `diamond_application` (chapter 4 calls it fat) and `replicated_application`.
`scenario` is chapter 5's whole setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core import PlacementError
from ..core.lazy import load
from ..core.validation import is_whole, number, whole
from .problem import Application, Network, Problem

LIGHT_KM_PER_MS = 299.792
MEAN_LINK_S = 0.017  # mean of the physical links; with it the thesis's normalisation constants are met


def layered_application(
    *sizes: int, time_s: float = 0.003, rate_per_s: float = 100.0, demand: float = 1.0
) -> Application:
    """Return an application of layers, in which every operator feeds all operators of the next layer.

    Examples
    --------
    >>> layered_application(1, 2, 1).streams
    (('0', '1'), ('0', '2'), ('1', '3'), ('2', '3'))
    """
    if not sizes or any(not is_whole(n) or n < 1 for n in sizes):
        raise PlacementError(
            f"layers of {sizes}", expected="whole numbers from 1", fix="pass the number of operators of each layer"
        )
    first = np.concatenate(([0], np.cumsum(sizes)))
    groups = [range(a, b) for a, b in zip(first[:-1].tolist(), first[1:].tolist(), strict=True)]
    streams = [(str(i), str(j)) for a, b in zip(groups, groups[1:], strict=False) for i in a for j in b]
    operators = tuple(str(i) for i in range(int(first[-1])))
    return Application(operators, tuple(streams), demand, time_s, rate_per_s)


def sequential_application(operators: int = 20, **settings: float) -> Application:
    """Return a chain.

    Examples
    --------
    >>> sequential_application(3).streams
    (('0', '1'), ('1', '2'))
    """
    return layered_application(*(1,) * whole(operators, "operators", 1, error=PlacementError), **settings)


def diamond_application(operators: int = 20, **settings: float) -> Application:
    """Return a source, one layer of all others, and a sink: chapter 4's fat application, chapter 5's diamond.

    Examples
    --------
    >>> diamond_application(4).streams
    (('0', '1'), ('0', '2'), ('1', '3'), ('2', '3'))
    """
    return layered_application(1, whole(operators, "operators", 3, error=PlacementError) - 2, 1, **settings)


def replicated_application(replicas: int = 6, **settings: float) -> Application:
    """Return a source, 2l operators, l operators, and a sink, complete between layers.

    Examples
    --------
    >>> app = replicated_application(6)
    >>> len(app.streams), app.path_count
    (90, 72)
    """
    return layered_application(1, 2 * whole(replicas, "replicas", 1, error=PlacementError), replicas, 1, **settings)


SHAPES: dict[str, Callable[[int], Application]] = {
    "diamond": diamond_application,
    "sequential": sequential_application,
    "replicated": replicated_application,
}


def gaussian_network(
    nodes: int = 20,
    *,
    seed: int = 0,
    mean_s: float = 0.022,
    sd_s: float = 0.005,
    least_s: float = 0.001,
    capacity: float = 4.0,
    speed: float = 1.0,
    availability: float = 1.0,
) -> Network:
    """Return a network with delays max(Normal(mean, sd), least), the same both ways; all nodes are alike.

    Examples
    --------
    >>> gaussian_network(3, sd_s=0.0).delay_s[0].tolist()
    [0.0, 0.022, 0.022]
    """
    number(mean_s, "mean_s", 0, error=PlacementError)
    number(sd_s, "sd_s", 0, error=PlacementError)
    number(least_s, "least_s", 0, error=PlacementError)
    random = np.random.default_rng(_size(nodes, seed))
    drawn = np.triu(np.maximum(random.normal(mean_s, sd_s, (nodes, nodes)), least_s), 1)
    return Network(_numbered(nodes), drawn + drawn.T, capacity, speed, availability)


def waxman_network(
    nodes: int = 36,
    *,
    seed: int = 0,
    alpha: float = 0.15,
    beta: float = 0.20,
    links: int = 2,
    capacity: float = 2.0,
    speed: float = 1.0,
    least_availability: float = 0.97,
    most_availability: float = 0.9999999,
) -> Network:
    """Return two Waxman layers, top down: as many autonomous systems as each has routers (or nearly so).

    Systems are points of a square of 1,000 km, the routers of each are points of a square of 10,000 km. They join one
    by one, each with `links` links to earlier ones, preferably near ones; a link between systems joins a random router
    of each. A logical link is the shortest path. Delays are those of light, scaled to a mean of 17 ms over physical
    links.

    Parameters
    ----------
    nodes
        Number of routers.
    seed
        Seed of the random network.
    alpha, beta
        Waxman's parameters: the chance of a link is alpha exp(-distance / (beta L)).
    links
        Number of links with which each new point joins.
    capacity, speed
        As of `Network`, the same for all.
    least_availability, most_availability
        Ends of the range that the availability of nodes is drawn from.

    Examples
    --------
    >>> network = waxman_network(16, seed=1)
    >>> len(network.nodes), bool((network.delay_s == network.delay_s.T).all())
    (16, True)
    """
    shortest_path = load("scipy.sparse.csgraph", "standard").shortest_path

    number(alpha, "alpha", 0, above=True, error=PlacementError)
    number(beta, "beta", 0, above=True, error=PlacementError)
    whole(links, "links", 1, error=PlacementError)
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
    delay_s = np.minimum(delay_s, delay_s.T)  # the two directions differ by rounding
    availability = random.uniform(least_availability, most_availability, nodes)
    return Network(_numbered(nodes), delay_s, capacity, speed, availability)


def _plane(
    random: np.random.Generator, count: int, side_km: float, alpha: float, beta: float, links: int
) -> list[tuple[int, int, float]]:
    """Return the links of `count` points that join one by one, by Waxman's probabilities."""
    points = random.uniform(0.0, side_km, (count, 2))
    found = []
    for new in range(1, count):
        km = np.hypot(*(points[:new] - points[new]).T)
        chance = alpha * np.exp(-km / (beta * side_km * 2**0.5))
        chosen = random.choice(new, size=min(links, new), replace=False, p=chance / chance.sum())
        found += [(int(old), new, float(km[old])) for old in chosen]
    return found


def median_node(network: Network) -> str:
    """Return the node whose mean delay to the others is the median.

    Examples
    --------
    >>> median_node(Network(("a", "b", "c"), [[0, 1, 9], [1, 0, 8], [9, 8, 0]]))
    'a'
    """
    order = np.argsort(network.delay_s.mean(axis=1), kind="stable")
    return network.nodes[int(order[len(order) // 2])]


def scenario(shape: str = "sequential", nodes: int = 36, *, seed: int = 0, operators: int = 20) -> Problem:
    """Return chapter 5's setting: operators on a Waxman network, source and sink on the node of median mean delay.

    Parameters
    ----------
    shape
        The application, one of `SHAPES`.
    nodes
        Size of the network.
    seed
        Seed of the random network.
    operators
        Size of the application.

    Examples
    --------
    >>> problem = scenario("replicated")
    >>> len(problem.application.streams), problem.application.path_count, len(problem.pinned)
    (90, 72, 2)
    """
    if shape not in SHAPES:
        raise PlacementError(f"shape {shape!r}", expected=f"one of {', '.join(SHAPES)}", fix="choose one")
    count = (whole(operators, "operators", 1, error=PlacementError) - 2) // 3 if shape == "replicated" else operators
    app = SHAPES[shape](count)
    network = waxman_network(nodes, seed=seed)
    home = median_node(network)
    return Problem(app, network, {app.operators[0]: home, app.operators[-1]: home})


def sample_candidates(problem: Problem, share: float, *, seed: int = 0) -> Problem:
    """Return the problem with a random sample of nodes for each operator that is not pinned (chapter 4).

    Examples
    --------
    >>> from dspkit import placement
    >>> sample_candidates(placement.scenario(nodes=16), 0.25).allowed.sum(axis=1).tolist()[:3]
    [1, 4, 4]
    """
    number(share, "share", 0, 1, above=True, error=PlacementError)
    random, nodes = np.random.default_rng(whole(seed, "seed", error=PlacementError)), problem.network.nodes
    kept: dict[str, Any] = dict(problem.candidates)
    for i, operator in enumerate(problem.application.operators):
        if i not in problem.pinned:
            may = np.flatnonzero(problem.allowed[i])
            size = min(len(may), int(np.ceil(share * len(nodes) - 1e-9)))
            kept[operator] = tuple(nodes[u] for u in sorted(random.choice(may, size, replace=False).tolist()))
    return replace(problem, candidates=kept)


def _size(nodes: int, seed: int) -> tuple[int, int]:
    return whole(nodes, "nodes", 1, error=PlacementError), whole(seed, "seed", error=PlacementError)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(str(u) for u in range(count))
