"""What is replicated and placed in one step: ODRP's inputs on top of a placement problem (chapter 6) [nardelli].

| here | thesis |
|---|---|
| `most` | k_i, at most so many replicas |
| `service_rate_per_s`, `latency_factor` | mu_i, and 5 where the thesis says "5x service time" |
| `price`, `link_price` | C_i per unit of Res_i, C_(u,v) per record/s |
| `bytes_per_record`, `source_rate_per_s` | b_(i,j), lambda of operators that nothing feeds |
| `Problem`'s `demand`, `capacity` | Res_i, Res_u |

An operator with a service rate is an M/M/1 queue: one of n replicas takes factor / (mu - lambda / n) seconds on a node
of speed 1. Without (infinite) it takes the application's `time_s` whatever comes: chapter 4's model. `latency_s` gives
any other increasing function of a replica's rate. The speed divides all of it, as printed; with `scale_service_rate` it
multiplies mu instead, which is what a faster M/M/1 server does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import PlacementError
from ..frozen import FrozenMap
from .arrays import square, vector
from .problem import Problem

Array = np.ndarray[Any, Any]
Replicas = Array  # how many replicas of each operator (row) run on each node (column)
TRAFFIC = ("multiplicity", "support")


@dataclass(frozen=True, eq=False)
class ReplicaProblem:
    """A placement problem whose operators may run as several replicas on any multiset of their nodes.

    `traffic="multiplicity"` counts every pair of replicas; "support" each pair of nodes once, as (6.7) is printed: two
    replicas on one node then carry half the stream only.
    """

    problem: Problem
    most: Any = 1
    service_rate_per_s: Any = math.inf
    latency_factor: Any = 1.0
    price: Any = 1.0
    link_price: Any = 0.0
    bytes_per_record: Any = 1.0
    source_rate_per_s: Mapping[str, float] = field(default_factory=FrozenMap)
    latency_s: Mapping[str, Callable[[float], float]] = field(default_factory=FrozenMap)
    traffic: str = "multiplicity"
    scale_service_rate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.problem, Problem):
            raise PlacementError(repr(self.problem)[:80], expected="a Problem", fix="see dspkit.placement.problem")
        if self.traffic not in TRAFFIC:
            raise PlacementError(f"traffic {self.traffic!r}", expected=f"one of {TRAFFIC}", fix="correct the name")
        app, net = self.problem.application, self.problem.network
        for name in ("source_rate_per_s", "latency_s"):
            given = dict(getattr(self, name))
            if unknown := [o for o in given if o not in app.index]:
                raise PlacementError(f"{name} of {unknown[0]!r}", expected="an operator", fix="correct the name")
            object.__setattr__(self, name, FrozenMap(given))
        for operator, rate in self.source_rate_per_s.items():
            if app.index[operator] not in app.sources:
                raise PlacementError(f"source_rate_per_s of {operator!r}", expected="a source", fix="leave it out")
            vector(rate, (operator,), "source_rate_per_s", low=0.0)
        size = len(net.nodes)
        values = {
            "most": vector(self.most, app.operators, "most", low=1.0),
            "service_rate_per_s": vector(
                self.service_rate_per_s, app.operators, "service_rate_per_s", low=0.0, high=math.inf, open_low=True
            ),
            "latency_factor": vector(self.latency_factor, app.operators, "latency_factor", low=0.0),
            "price": vector(self.price, app.operators, "price", low=0.0),
            "bytes_per_record": vector(self.bytes_per_record, app.streams, "bytes_per_record", low=0.0),
            "link_price": square(self.link_price, size, "link_price", loop=0.0, low=0.0, high=1e300),
        }
        if (values["most"] % 1).any():
            raise PlacementError("most with a fraction", expected="whole numbers from 1", fix="correct it")
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def load_per_s(self) -> Array:
        """lambda_i: what comes in; of a source what it was given, or else the greatest of its streams."""
        app = self.problem.application
        load = np.zeros(len(app.operators))
        np.add.at(load, app.ends[:, 1], app.rate_per_s)
        for i in app.sources:
            out = app.rate_per_s[app.ends[:, 0] == i]
            load[i] = self.source_rate_per_s.get(app.operators[i], out.max() if len(out) else 0.0)
        load.setflags(write=False)
        return load

    def times_s(self, i: int, replicas: int) -> Array:
        """Seconds that one of so many replicas of operator i takes, on each node; infinite where it cannot keep up."""
        app, speed = self.problem.application, self.problem.network.speed
        operator, rate = app.operators[i], float(self.load_per_s[i]) / replicas
        mu, factor = float(self.service_rate_per_s[i]), float(self.latency_factor[i])
        if operator in self.latency_s:
            found: Array = self.own_latency_s(operator, rate) / speed
        elif math.isinf(mu):
            found = app.time_s[i] / speed
        else:
            spare = speed * mu - rate if self.scale_service_rate else np.full(len(speed), mu - rate)
            per_node = np.ones(len(speed)) if self.scale_service_rate else speed
            with np.errstate(divide="ignore"):
                found = np.where(spare > 0, factor / (np.maximum(spare, 0) * per_node), np.inf)
        return found

    def own_latency_s(self, operator: str, rate: float) -> float:
        """Seconds by the function that was given for this operator."""
        try:
            found = float(self.latency_s[operator](rate))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise PlacementError(
                f"latency_s of {operator!r} at {rate:g} records/s: {error}", expected="seconds", fix="correct it"
            ) from error
        if not found >= 0:
            raise PlacementError(
                f"latency_s of {operator!r} = {found} at {rate:g} records/s",
                expected="seconds from 0, or inf where it cannot keep up",
                fix="correct it",
            )
        return found

    def deploy(self, deployment: Any) -> Replicas:
        """A deployment as counts, from {operator: node or nodes}, or counts (operators x nodes)."""
        app, net = self.problem.application, self.problem.network
        shape = (len(app.operators), len(net.nodes))
        if not isinstance(deployment, Mapping):
            try:
                made = np.asarray(deployment, np.float64)
                fits = made.shape == shape and (made >= 0).all() and (made % 1 == 0).all() and made.any(axis=1).all()
            except (TypeError, ValueError):
                fits = False
            if not fits:
                raise PlacementError(
                    f"deployment {deployment!r}"[:120],
                    expected=f"{shape[0]} rows of {shape[1]} counts, at least one replica each, or operator: nodes",
                    fix="say where each replica runs",
                )
            return made.astype(np.int64)
        counts = np.zeros(shape, np.int64)
        if odd := set(deployment) ^ set(app.operators):
            came = f"{min(odd, key=str)!r} unknown or missing"
            raise PlacementError(came, expected="nodes for each operator", fix="correct it")
        for operator, where in deployment.items():
            nodes = where if isinstance(where, (list, tuple)) else (where,)
            unknown = [n for n in nodes if not isinstance(n, str) or n not in net.index]
            if unknown or not nodes:
                came = f"{operator!r} on {unknown[0]!r}" if nodes else f"no node for {operator!r}"
                raise PlacementError(came, expected="a node of the network for each replica", fix="correct the name")
            for node in nodes:
                counts[app.index[operator], net.index[node]] += 1
        return counts

    def named(self, deployment: Any) -> dict[str, tuple[str, ...]]:
        """A deployment as {operator: its nodes}, one for each replica."""
        counts, nodes = self.deploy(deployment), self.problem.network.nodes
        return {
            o: tuple(nodes[u] for u in np.repeat(np.arange(len(nodes)), row))
            for o, row in zip(self.problem.application.operators, counts, strict=True)
        }
