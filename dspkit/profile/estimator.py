r"""The estimator: what a load will ask of operators, of their instances and of nodes [elysium].

    | paper | here |
    |---|---|
    | getOperatorInputRate(x, o), $ir(o)$ | `operator_input_rate`: $ir(B)=\sum_A\alpha_{AB}\,ir(A)$, $ir(s) = w_s x$ |
    | getOperatorInstanceCpuUsage(o, ir/p) | `instance_cpu_usage`: share of one core |
    | getCpuUsages(allocation, x) | `node_cpu_usages`: $OP(\sum OCUP(ir/p))$ of each node |
    | predictInputLoad() | `predicted_input_load`: the greatest of the next h values |
    | $\alpha_{AB}$, $w_s$ | `profile.selectivity`, `profile.shares` of an application's load |

A source takes in the load itself, so its stream carries $\alpha$ times that; the paper's $\alpha$ of a source would be
x over 0. Load splits evenly over an operator's instances.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from ..applications import applications, merge, named, prefixed
from ..core import Topology
from ..errors import KnobError, MetricError
from ..predict import Predictor, Series
from .profile import Profile

Load = float | Mapping[str, float]
Places = Mapping[tuple[str, int], str]


@dataclass(frozen=True)
class Estimator:
    """A topology, of one application or of several that share a cluster, and its profile.

    Where a profile knows no overhead, a node does what its instances do and has `cores` cores.
    """

    topology: Topology
    profile: Profile
    cores: float = 4.0
    apps: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topology, Topology) or not isinstance(self.profile, Profile):
            raise KnobError(
                f"an estimator of {self.topology!r} and {self.profile!r}"[:120],
                expected="a Topology and a Profile",
                fix="as in Estimator(topology, profile.learn(history))",
            )
        for what, known, needed in (
            ("the selectivity of", self.profile.selectivity, self.topology.edges),
            ("the CPU of", self.profile.cpu, self.topology.order),
        ):
            if missing := [n for n in needed if n not in known]:
                raise KnobError(
                    f"a profile without {what} {missing[0]!r}",
                    expected="all of the topology",
                    fix="learn it from a run",
                )
        if isinstance(self.cores, bool) or not isinstance(self.cores, Real) or not 0 < self.cores < math.inf:
            raise KnobError(f"cores={self.cores!r}", expected="a number above 0", fix="cores of one node")
        object.__setattr__(self, "apps", applications(self.topology))

    @classmethod
    def together(cls, estimators: Mapping[str, Estimator]) -> Estimator:
        """Applications that share a cluster as one; nodes are as the first one's profile knows them."""
        alike = isinstance(estimators, Mapping) and all(isinstance(e, Estimator) for e in estimators.values())
        if not alike or not estimators:
            raise KnobError(
                f"{estimators!r}"[:100], expected="an Estimator of each application, by name", fix="name them"
            )
        first = next(iter(estimators.values()))
        p = {a: e.profile for a, e in estimators.items()}
        together = Profile(
            {(named(a, u), named(a, v)): r for a, q in p.items() for (u, v), r in q.selectivity.items()},
            {name: f for a, q in p.items() for name, f in prefixed(a, q.cpu).items()},
            first.profile.overhead,
            {name: share for a, q in p.items() for name, share in prefixed(a, q.shares).items()},
        )
        return cls(merge({a: e.topology for a, e in estimators.items()}), together, first.cores)

    def loads(self, load: Load) -> dict[str, float]:
        """The load of each source; `load` is that of the application, or of each by name, or of each source."""
        given: Mapping[str, Any] = load if isinstance(load, Mapping) else {}
        if isinstance(load, Real) and not isinstance(load, bool) and len(self.apps) == 1:
            given = {next(iter(self.apps)): load}
        sources, found = self.topology.sources, dict[str, float]()
        if set(given) == set(sources):
            found = dict(given)
        elif set(given) == set(self.apps):
            for a, members in self.apps.items():
                mine = [s for s in sources if s in members]
                known = {s: self.profile.shares.get(s, 0.0) for s in mine}
                total = sum(known.values())
                found |= {s: given[a] * (known[s] / total if total > 0 else 1 / len(mine)) for s in mine}
        if not found or not all(
            isinstance(x, Real) and not isinstance(x, bool) and 0 <= x < math.inf for x in found.values()
        ):
            raise MetricError(
                f"a load of {load!r}", expected=f"records/s of {list(self.apps)} or {list(sources)}", fix="name them so"
            )
        return found

    def input_rates(self, load: Load) -> dict[str, float]:
        """What every operator takes in under this load, records/s."""
        rates: dict[str, float] = self.loads(load)
        for name in self.topology.order:
            if name not in rates:
                parents = self.topology.upstream(name)
                rates[name] = sum(self.profile.selectivity[p, name].mean * rates[p] for p in parents)
        return rates

    def operator_input_rate(self, load: Load, operator: str) -> float:
        """What one operator takes in under this load, records/s."""
        return self.input_rates(load)[self.topology[operator].name]

    def instance_cpu_usage(self, operator: str, rate: float) -> float:
        """The share of a core that an instance uses at this input rate; above 1 it would need more than there is."""
        if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= rate < math.inf:
            raise MetricError(f"{operator!r} at {rate!r} records/s", expected="a number >= 0", fix="mend the load")
        used = float(self.profile.cpu[self.topology[operator].name].curve(rate))
        if not used < math.inf:  # nor no number
            raise MetricError(
                f"{used} cores for {operator!r} at {rate:g} records/s",
                expected="a number",
                fix="learn the profile again",
            )
        return max(0.0, used)

    def node_cpu_usages(self, allocation: Places, parallelism: Mapping[str, int], load: Load) -> dict[str, float]:
        """The share of its cores that each node in the allocation uses under this load."""
        rates, used = self.input_rates(load), dict[str, float]()
        parallelism = counted(parallelism, self.topology, {name for name, _ in allocation})
        each = {n: self.instance_cpu_usage(n, rates[n] / k) for n, k in parallelism.items()}
        for (name, _), node in allocation.items():
            used[node] = used.get(node, 0.0) + each[name]
        return {node: float(self.node_share(cores)) for node, cores in used.items()}

    def node_share(self, cores: Any) -> Any:
        """OP: the share of a node's cores in use, the engine's own included, if its instances use so many cores."""
        overhead = self.profile.overhead
        return cores / self.cores if overhead is None else overhead.curve(cores)

    def predicted_input_load(
        self, predictor: Predictor, past: Series, horizon: int = 5, *, memory: Any = None
    ) -> float:
        """The greatest load that is expected in the next `horizon` values; `memory` is what the predictor learned."""
        if isinstance(predictor, type) or not isinstance(predictor, Predictor) or not isinstance(past, Series):
            raise KnobError(
                f"{predictor!r} and {past!r}"[:120],
                expected="a Predictor and a Series",
                fix="as in LastValue(), Series(…)",
            )
        learned = predictor.learn(past) if memory is None else memory
        return predictor.forecast(learned, past, horizon).peak


def counted(parallelism: Any, topology: Topology, of: Collection[str]) -> dict[str, int]:
    """Numbers of instances, whole and above 0, of at least these operators; anything else is refused."""
    fine = isinstance(parallelism, Mapping) and set(of) <= set(parallelism) <= set(topology.order)
    counts = list(parallelism.values()) if fine else []
    if not fine or not all(isinstance(k, Integral) and not isinstance(k, bool) and int(k) > 0 for k in counts):
        raise KnobError(
            f"instances {parallelism!r}"[:120],
            expected=f"a whole number above 0 for each of {', '.join(map(str, of))}"[:150],
            fix="as in {'count': 2}",
        )
    return {name: int(k) for name, k in parallelism.items()}
