"""The same plant otherwise: fewer cores, noise, a slow node, micro-batches. What a notebook's picker offers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from ..errors import NotFoundError
from .cluster import Node
from .plant import Plant

OWN = "as it is"


def _cores(plant: Plant, times: float) -> Plant:
    nodes = {name: replace(node, cores=max(1, math.ceil(node.cores * times))) for name, node in plant.nodes.items()}
    return replace(plant, nodes=nodes)


def _slow_node(plant: Plant) -> Plant:
    first: str = next(iter(plant.nodes))
    node: Node = plant.nodes[first]
    return replace(plant, nodes={**plant.nodes, first: replace(node, speed=node.speed / 2)})


VARIANTS: dict[str, Callable[[Plant], Plant]] = {
    OWN: lambda plant: plant,
    "half the cores": lambda plant: _cores(plant, 0.5),
    "twice the cores": lambda plant: _cores(plant, 2),
    "one slow node": _slow_node,
    "noisy": lambda plant: replace(plant, noise=0.2),
    "slow restarts": lambda plant: replace(plant, pause_s=60.0),
    "micro-batches": lambda plant: replace(plant, law="sequential", trigger_s=1.0, processes=0),
}


def variant(plant: Plant, name: str = OWN, **changes: Any) -> Plant:
    """`plant` with one of VARIANTS, and fields of its own changed after that.

    >>> from dspkit import topologies
    >>> plant = topologies.word_count().plant
    >>> variant(plant, "noisy", pause_s=30.0).noise, plant.noise
    (0.2, 0.01)
    """
    if name not in VARIANTS:
        raise NotFoundError(f"plant {name!r}", expected=f"one of {', '.join(VARIANTS)}", fix="check the name")
    known = {f.name for f in fields(plant)}
    if unknown := sorted(set(changes) - known):
        raise NotFoundError(
            f"{unknown} of a plant", expected=f"some of {', '.join(sorted(known))}", fix="check the names"
        )
    return replace(VARIANTS[name](plant), **changes)
