"""Several applications as one graph: how those that share a cluster are named, put together and told apart.

>>> both = merge({"a": Topology.chain("read", "count"), "b": Topology.chain("read", "write")})
>>> both.sources, applications(both)["b"]
(('a/read', 'b/read'), ('b/read', 'b/write'))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from .core import Deployment, Topology
from .errors import TopologyError

V = TypeVar("V")
MARK = "/"  # between the name of an application and that of its operator


def named(application: str, operator: str) -> str:
    """The operator's name among those of other applications."""
    return f"{application}{MARK}{operator}"


def prefixed(application: str, things: Mapping[str, V]) -> dict[str, V]:
    """Things by operator, under the operators' names among those of other applications."""
    return {named(application, name): thing for name, thing in things.items()}


def merge(topologies: Mapping[str, Topology]) -> Topology:
    """One graph of all, in which operator o of application a is called "a/o"."""
    if not isinstance(topologies, Mapping) or not topologies:
        raise TopologyError(f"applications {topologies!r}"[:100], expected="at least one by name", fix="pass {name: …}")
    for name, topology in topologies.items():
        if not isinstance(name, str) or not name.strip() or MARK in name or not isinstance(topology, Topology):
            raise TopologyError(
                f"application {name!r}: {topology!r}"[:100],
                expected=f"a Topology under a name without {MARK!r}",
                fix="rename it",
            )
        if len(topology.operators) == 1 < len(topologies):
            raise TopologyError(
                f"application {name!r} of a single operator", expected="two or more", fix="give it a source of its own"
            )
    operators = tuple(replace(o, name=named(a, o.name)) for a, t in topologies.items() for o in t.operators)
    edges = tuple((named(a, u), named(a, v)) for a, t in topologies.items() for u, v in t.edges)
    return Topology(operators, edges)


def applications(topology: Topology) -> dict[str, tuple[str, ...]]:
    """The operators of each application, in topological order: parts of the graph that no edge connects.

    A part has the name that `merge` gave it, or else that of its first source.
    """
    found: dict[str, tuple[str, ...]] = {}
    for part in topology.parts:
        head = part[0].partition(MARK)[0]
        whole = MARK in part[0] and all(name.startswith(head + MARK) for name in part)
        found[head if whole and head not in found else part[0]] = part
    return found


def its_own(application: str, deployment: Deployment, topology: Topology) -> Deployment:
    """What `application` has of a deployment of all, under its operators' own names."""
    parallelism = {n: deployment.parallelism[named(application, n)] for n in topology.order}
    places = {
        (name, i): node
        for name, k in parallelism.items()
        for i in range(k)
        if (node := deployment.placement.get((named(application, name), i))) is not None
    }
    return Deployment(parallelism, deployment.workers, places, deployment.settings)
