"""Replication, ODRP's part of a placement problem: replicas, their service rates, and prices (chapter 6) [nardelli].

| here | thesis |
|---|---|
| `max_replicas` | k_i, the greatest number of replicas |
| `service_rate_per_s`, `latency_factor` | mu_i, and 5 where the thesis says "5x service time" |
| `price`, `link_price` | C_i per unit of Res_i, C_(u,v) per record/s |
| `bytes_per_record`, `source_rate_per_s` | b_(i,j), lambda of the sources |
| `Problem`'s `demand`, `capacity` | Res_i, Res_u |

An operator with a service rate is an M/M/1 queue: one of n replicas takes factor / (mu - lambda / n) seconds on a node
of speed 1. With an infinite service rate it takes the application's `time_s`, independently of its load: chapter 4's
model. `latency_s` sets any other increasing function of a replica's rate. The speed of the node divides the response
time, as printed; with `scale_service_rate` it multiplies mu instead, as in a faster M/M/1 server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core import FrozenMap, PlacementError
from ...core.typing import Array
from ..arrays import square, vector

Replicas = Array  # number of replicas of each operator (row) on each node (column)
TRAFFIC = ("multiplicity", "support")


@dataclass(frozen=True, eq=False)
class Replication:
    """The part of a problem that lets operators run as several replicas, on any multiset of their nodes.

    Numbers are one for all, one each in order, or a mapping by name; a `Problem` checks them against its operators.

    Parameters
    ----------
    max_replicas
        The greatest number of replicas of each operator, from 1.
    service_rate_per_s
        Records/s that one replica can process on a node of speed 1; infinite: the load does not change `time_s`.
    latency_factor
        Factor of the M/M/1 response time.
    price
        Cost of a replica per unit of its demand.
    link_price
        Cost of one record/s over a link, one number or one row per sending node.
    bytes_per_record
        Size of the records of each stream; the network metrics count bytes.
    source_rate_per_s
        Records/s of sources by name; the others take the greatest rate of their streams.
    latency_s
        Functions of a replica's rate by operator, instead of the M/M/1 response time.
    traffic
        "multiplicity" counts every pair of replicas; "support" each pair of nodes once, as (6.7) is printed: two
        replicas on one node then carry half the stream only.
    scale_service_rate
        Whether the speed of a node multiplies the service rate, instead of dividing the response time.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from dspkit import placement
    >>> problem = replace(placement.example("A"), replication=placement.Replication(max_replicas=2))
    >>> placement.solve(problem, "cost").replicas
    {'s': 1, 'm': 1, 't': 1}
    """

    max_replicas: Any = 1
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
        if self.traffic not in TRAFFIC:
            raise PlacementError(f"traffic {self.traffic!r}", expected=f"one of {TRAFFIC}", fix="choose one")

    def checked(
        self, operators: tuple[str, ...], streams: tuple[tuple[str, str], ...], sources: Collection[str], nodes: int
    ) -> Replication:
        """Return the same with an array per number, checked against the parts of a problem.

        Parameters
        ----------
        operators, streams, sources
            Names of the operators, ends of the streams, and names of the sources.
        nodes
            Number of nodes.

        Examples
        --------
        >>> Replication(max_replicas=2).checked(("a", "b"), (("a", "b"),), ("a",), 3).max_replicas
        array([2., 2.])
        """
        functions: dict[str, Any] = {}
        for name in ("source_rate_per_s", "latency_s"):
            given = dict(getattr(self, name))
            if unknown := [o for o in given if o not in operators]:
                raise PlacementError(
                    f"{name} of {unknown[0]!r}",
                    expected="an operator",
                    fix="use the names of the application's operators",
                )
            functions[name] = FrozenMap(given)
        for operator, rate in self.source_rate_per_s.items():
            if operator not in sources:
                raise PlacementError(f"source_rate_per_s of {operator!r}", expected="a source", fix="leave it out")
            vector(rate, (operator,), "source_rate_per_s", low=0.0)
        values: dict[str, Any] = {
            "max_replicas": vector(self.max_replicas, operators, "max_replicas", low=1.0),
            "service_rate_per_s": vector(
                self.service_rate_per_s, operators, "service_rate_per_s", low=0.0, high=math.inf, open_low=True
            ),
            "latency_factor": vector(self.latency_factor, operators, "latency_factor", low=0.0),
            "price": vector(self.price, operators, "price", low=0.0),
            "bytes_per_record": vector(self.bytes_per_record, streams, "bytes_per_record", low=0.0),
            "link_price": square(self.link_price, nodes, "link_price", loop=0.0, low=0.0, high=1e300),
        }
        if (values["max_replicas"] % 1).any():
            raise PlacementError("max_replicas with a fraction", expected="whole numbers from 1", fix="round them")
        return Replication(**values, **functions, traffic=self.traffic, scale_service_rate=self.scale_service_rate)

    def given_latency_s(self, operator: str, rate: float) -> float:
        """Return the response time, in seconds, of an operator with a function in `latency_s`.

        Parameters
        ----------
        operator
            Its name.
        rate
            Records/s of one replica.

        Examples
        --------
        >>> Replication(latency_s={"a": lambda rate: rate / 100}).given_latency_s("a", 5)
        0.05
        """
        try:
            found = float(self.latency_s[operator](rate))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise PlacementError(
                f"latency_s of {operator!r} at {rate:g} records/s: {error}",
                expected="seconds",
                fix="return a number of seconds for each rate",
            ) from error
        if not found >= 0:
            raise PlacementError(
                f"latency_s of {operator!r} = {found} at {rate:g} records/s",
                expected="seconds from 0, or inf if it cannot keep up",
                fix="return seconds >= 0, or inf, for each rate",
            )
        return found
