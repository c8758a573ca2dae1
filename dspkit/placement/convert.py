"""Conversion of applications and networks from and to networkx graphs and data frames."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import PlacementError
from .problem import Application, Network, Problem

if TYPE_CHECKING:
    import pandas as pd


_OPERATOR = {"demand": 1.0, "time_s": 0.0}
_NODE = {"capacity": 1.0, "speed": 1.0, "availability": 1.0}
_LINK = {"delay_s": math.inf, "link_availability": 1.0, "bandwidth_per_s": math.inf}


def application_of_frames(operators: pd.DataFrame, streams: pd.DataFrame) -> Application:
    """Return an application from data frames; columns demand, time_s and rate_per_s may be missing.

    Parameters
    ----------
    operators
        A row for each operator: operator, demand, time_s.
    streams
        A row for each stream: start, end, rate_per_s.

    Examples
    --------
    >>> import pandas as pd
    >>> streams = pd.DataFrame({"start": ["read"], "end": ["count"], "rate_per_s": [100.0]})
    >>> application_of_frames(pd.DataFrame({"operator": ["read", "count"]}), streams).streams
    (('read', 'count'),)
    """
    names = _column(operators, "operator")
    ends = list(zip(_column(streams, "start"), _column(streams, "end"), strict=True))
    values = {name: operators[name].tolist() if name in operators else value for name, value in _OPERATOR.items()}
    rate = streams["rate_per_s"].tolist() if "rate_per_s" in streams else 1.0
    return Application(names, tuple(ends), values["demand"], values["time_s"], rate)


def network_of_frames(nodes: pd.DataFrame, links: pd.DataFrame, *, both_ways: bool = False) -> Network:
    """Return a network from data frames.

    Parameters
    ----------
    nodes
        One row per node: node, and optionally capacity, speed, availability.
    links
        One row per link: start, end, delay_s, and optionally link_availability, bandwidth_per_s. Pairs without a row
        have no link.
    both_ways
        Whether each row also describes the link back.

    Examples
    --------
    >>> import pandas as pd
    >>> links = pd.DataFrame({"start": ["edge"], "end": ["cloud"], "delay_s": [0.02]})
    >>> network_of_frames(pd.DataFrame({"node": ["edge", "cloud"]}), links, both_ways=True).delay_s.tolist()
    [[0.0, 0.02], [0.02, 0.0]]
    """
    names = _column(nodes, "node")
    at = {n: i for i, n in enumerate(names)}
    values = {name: nodes[name].tolist() if name in nodes else value for name, value in _NODE.items()}
    matrices = {name: np.full((len(names),) * 2, value) for name, value in _LINK.items()}
    for name in ("delay_s", "start", "end"):
        _column(links, name, text=False)
    for row in links.to_dict("records"):
        ends = str(row["start"]), str(row["end"])
        if wrong := [e for e in ends if e not in at]:
            raise PlacementError(
                f"a link of {wrong[0]!r}",
                expected="a node of the other frame",
                fix="add the node to it, or drop the link",
            )
        for name, matrix in matrices.items():
            value = _numeric(row.get(name, _LINK[name]), f"{name} of the link from {ends[0]} to {ends[1]}")
            matrix[at[ends[0]], at[ends[1]]] = value
            if both_ways:
                matrix[at[ends[1]], at[ends[0]]] = value
    return Network(
        names, capacity=values["capacity"], speed=values["speed"], availability=values["availability"], **matrices
    )


def application_of_graph(graph: Any) -> Application:
    """Return an application from a networkx graph; attributes that are missing take their defaults.

    Parameters
    ----------
    graph
        A DiGraph: nodes with demand and time_s, edges with rate_per_s.

    Examples
    --------
    >>> import networkx as nx
    >>> application_of_graph(nx.DiGraph([("read", "count")])).operators
    ('read', 'count')
    """
    _needs_graph(graph)
    if not graph.is_directed():
        raise PlacementError("an undirected graph", expected="streams with a direction", fix="pass a DiGraph")
    operators = tuple(str(n) for n in graph)
    values = {k: [graph.nodes[n].get(k, default) for n in graph] for k, default in _OPERATOR.items()}
    rates = [a.get("rate_per_s", 1.0) for *_, a in graph.edges(data=True)]
    streams = tuple((str(u), str(v)) for u, v in graph.edges)
    return Application(operators, streams, values["demand"], values["time_s"], rates)


def network_of_graph(graph: Any, *, shortest_ways: bool = False) -> Network:
    """Return a network from a networkx graph.

    Parameters
    ----------
    graph
        Directed or not: nodes with capacity, speed and availability, edges with delay_s, link_availability and
        bandwidth_per_s.
    shortest_ways
        Whether nodes without an edge between them are linked by the shortest path over several. On a path delays add
        up, availabilities multiply, and the least bandwidth counts.

    Examples
    --------
    >>> import networkx as nx
    >>> graph = nx.path_graph(["a", "b", "c"])
    >>> nx.set_edge_attributes(graph, 0.01, "delay_s")
    >>> network_of_graph(graph, shortest_ways=True).delay_s[0].tolist()
    [0.0, 0.01, 0.02]
    """
    _needs_graph(graph)
    names = tuple(str(n) for n in graph)
    at = {n: i for i, n in enumerate(graph)}
    matrices = {name: np.full((len(names),) * 2, value) for name, value in _LINK.items()}
    for u, v, attributes in graph.edges(data=True):
        pairs = [(at[u], at[v])] if graph.is_directed() else [(at[u], at[v]), (at[v], at[u])]
        for pair in pairs:
            for name, matrix in matrices.items():
                if name == "delay_s" and name not in attributes:
                    raise PlacementError(f"an edge from {u} to {v} without delay_s", expected="seconds", fix="add it")
                matrix[pair] = _numeric(attributes.get(name, _LINK[name]), f"{name} of the edge from {u} to {v}")
    if shortest_ways:
        matrices = _ways(matrices)
    values = {k: [graph.nodes[n].get(k, default) for n in graph] for k, default in _NODE.items()}
    return Network(
        names, capacity=values["capacity"], speed=values["speed"], availability=values["availability"], **matrices
    )


def _ways(link: dict[str, Any]) -> dict[str, Any]:
    """Return logical links from physical ones (Floyd and Warshall)."""
    delay, sure, wide = (link[name].copy() for name in _LINK)
    np.fill_diagonal(delay, 0.0)
    for k in range(len(delay)):
        over = delay[:, k, None] + delay[None, k, :]
        better = over < delay
        delay = np.where(better, over, delay)
        sure = np.where(better, sure[:, k, None] * sure[None, k, :], sure)
        wide = np.where(better, np.minimum(wide[:, k, None], wide[None, k, :]), wide)
    return dict(zip(_LINK, (delay, sure, wide), strict=True))


def placement_frame(problem: Problem, placement: Any) -> pd.DataFrame:
    """Return a placement as a data frame (operator, node) with one row per replica.

    Parameters
    ----------
    problem
        The problem that it places.
    placement
        {operator: node} or indices of nodes; with replication {operator: node or nodes}, or counts.

    Examples
    --------
    >>> from dspkit import placement
    >>> placement.placement_frame(placement.example("A"), (0, 1, 2)).node.tolist()
    ['0', '1', '2']
    """
    import pandas as pd

    pairs = [(operator, node) for operator, nodes in problem.nodes_of(placement).items() for node in nodes]
    return pd.DataFrame(pairs, columns=["operator", "node"])


def _needs_graph(graph: Any) -> None:
    import networkx as nx

    if not isinstance(graph, nx.Graph) or graph.is_multigraph():
        got = f"a {type(graph).__name__}"
        raise PlacementError(got, expected="a networkx Graph or DiGraph", fix="merge parallel edges")


def _numeric(value: Any, what: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise PlacementError(
            f"{what} = {value!r}"[:100], expected="a number", fix="store numbers in the graph"
        ) from None


def _column(frame: pd.DataFrame, name: str, *, text: bool = True) -> tuple[Any, ...]:
    if name not in getattr(frame, "columns", ()):
        raise PlacementError(f"no column {name!r}", expected="a data frame with it", fix="rename a column")
    return tuple(str(v) for v in frame[name]) if text else tuple(frame[name])
