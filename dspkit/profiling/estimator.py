r"""The estimator: the demand of a load on operators, instances and nodes [elysium].

| paper | here |
|---|---|
| getOperatorInputRate(x, o), $ir(o)$ | `input_rates`: $ir(B)=\sum_A\alpha_{AB}\,ir(A)$, $ir(s) = w_s x$ |
| getOperatorInstanceCpuUsage(o, ir/p) | `instance_cpu_usage`: share of one core |
| getCpuUsages(allocation, x) | `node_cpu_usages`: $OP(\sum OCUP(ir/p))$ of each node |
| predictInputLoad() | `peak` of a forecast: the greatest of the next h values |
| $\alpha_{AB}$, $w_s$ | `profiling.selectivity`, `profiling.shares` of an application's load |

A source takes in the load itself, so that its stream carries $\alpha$ times the load; the paper's $\alpha$ of a source
would be x over 0. Load is divided evenly among an operator's instances.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core import ArgumentError, MetricError, Topology, applications, merge, named, prefixed
from ..core.validation import is_number, is_whole, number
from .profiles import Profile

Load = float | Mapping[str, float]
Places = Mapping[tuple[str, int], str]


@dataclass(frozen=True)
class Estimator:
    """A profiled topology, of one application or of several that share a cluster.

    Without a profile of the overhead, a node's use of CPU is that of its instances.

    Parameters
    ----------
    topology : Topology
        The operators.
    profile : Profile
        Their costs.
    cores : float
        Cores of a node, used without a profile of the overhead.

    Examples
    --------
    >>> from dspkit.profiling import Line
    >>> from dspkit.profiling.profiles import FittedCurve, Ratio
    >>> profile = Profile({("a", "b"): Ratio(2.0)}, dict.fromkeys("ab", FittedCurve(Line(0.0, 0.01))))
    >>> estimator = Estimator(Topology.chain("a", "b"), profile)
    >>> estimator.loads(10), estimator.input_rates(10), estimator.instance_cpu_usage("b", 50)
    ({'a': 10}, {'a': 10, 'b': 20.0}, 0.5)
    >>> estimator.node_share(2.0), estimator.node_cpu_usages({("b", 0): "n1"}, {"a": 1, "b": 1}, 50)
    (0.5, {'n1': 0.25})
    >>> Estimator.together({"x": estimator, "y": estimator}).input_rates({"x": 1, "y": 2})["y/b"]
    4.0
    """

    topology: Topology
    profile: Profile
    cores: float = 4.0
    apps: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topology, Topology) or not isinstance(self.profile, Profile):
            raise ArgumentError(
                f"an estimator of {self.topology!r} and {self.profile!r}"[:120],
                expected="a Topology and a Profile",
                fix="as in Estimator(topology, profile.learn(history))",
            )
        for what, known, needed in (
            ("the selectivity of", self.profile.selectivity, self.topology.edges),
            ("the CPU of", self.profile.cpu, self.topology.order),
        ):
            if missing := [n for n in needed if n not in known]:
                raise ArgumentError(
                    f"a profile without {what} {missing[0]!r}",
                    expected="all operators and edges of the topology",
                    fix="learn it from a run",
                )
        number(self.cores, "cores", 0, above=True, fix="pass the cores of one node")
        object.__setattr__(self, "apps", applications(self.topology))

    @classmethod
    def together(cls, estimators: Mapping[str, Estimator]) -> Estimator:
        """Return one estimator of several applications on a cluster, with the node overhead of the first.

        Parameters
        ----------
        estimators : mapping
            Estimator by name of the application.
        """
        alike = isinstance(estimators, Mapping) and all(isinstance(e, Estimator) for e in estimators.values())
        if not alike or not estimators:
            raise ArgumentError(
                f"{estimators!r}"[:100], expected="an Estimator of each application, by name", fix="pass {name: …}"
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
        """Return the load of each source.

        Parameters
        ----------
        load : float or mapping
            Load of the application, of each application by name, or of each source.
        """
        given: Mapping[str, Any] = load if isinstance(load, Mapping) else {}
        if is_number(load) and len(self.apps) == 1:
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
        if not found or not all(is_number(x) and 0 <= x < math.inf for x in found.values()):
            raise MetricError(
                f"a load of {load!r}",
                expected=f"records/s of {list(self.apps)} or {list(sources)}",
                fix="use these names",
            )
        return found

    def input_rates(self, load: Load) -> dict[str, float]:
        """Return the input rate of each operator under this load, in records/s.

        Parameters
        ----------
        load : float or mapping
            As for `loads`.
        """
        rates: dict[str, float] = self.loads(load)
        for name in self.topology.order:
            if name not in rates:
                parents = self.topology.upstream(name)
                rates[name] = sum(self.profile.selectivity[p, name].mean * rates[p] for p in parents)
        return rates

    def instance_cpu_usage(self, operator: str, rate: float) -> float:
        """Return the share of a core that an instance uses at this input rate; it may exceed 1.

        Parameters
        ----------
        operator : str
            The operator.
        rate : float
            Records/s of one instance.
        """
        number(rate, f"records/s of {operator!r}", 0, error=MetricError, fix="pass a load of such rates")
        used = float(self.profile.cpu[self.topology[operator].name].curve(rate))
        if not used < math.inf:  # NaN fails this test too
            raise MetricError(
                f"{used} cores for {operator!r} at {rate:g} records/s",
                expected="a number",
                fix="learn the profile again",
            )
        return max(0.0, used)

    def node_cpu_usages(self, allocation: Places, parallelism: Mapping[str, int], load: Load) -> dict[str, float]:
        """Return the share of its cores that each node in the allocation uses under this load.

        Parameters
        ----------
        allocation : mapping
            Node by (operator, index).
        parallelism : mapping
            Number of instances by operator.
        load : float or mapping
            As for `loads`.
        """
        rates, used = self.input_rates(load), dict[str, float]()
        parallelism = counted(parallelism, self.topology, {name for name, _ in allocation})
        each = {n: self.instance_cpu_usage(n, rates[n] / k) for n, k in parallelism.items()}
        for (name, _), node in allocation.items():
            used[node] = used.get(node, 0.0) + each[name]
        return {node: float(self.node_share(cores)) for node, cores in used.items()}

    def node_share(self, cores: Any) -> Any:
        """Return OP: the share of a node's cores in use, overhead included, given the cores that its instances use.

        Parameters
        ----------
        cores : float or array
            Cores in use by instances.
        """
        overhead = self.profile.overhead
        return cores / self.cores if overhead is None else overhead.curve(cores)


def counted(parallelism: Any, topology: Topology, of: Collection[str]) -> dict[str, int]:
    """Return the number of instances, from 1 up, of at least these operators, or raise an error."""
    fine = isinstance(parallelism, Mapping) and set(of) <= set(parallelism) <= set(topology.order)
    counts = list(parallelism.values()) if fine else []
    if not fine or not all(is_whole(k) and k > 0 for k in counts):
        raise ArgumentError(
            f"instances {parallelism!r}"[:120],
            expected=f"a whole number above 0 for each of {', '.join(map(str, of))}"[:150],
            fix="as in {'count': 2}",
        )
    return {name: int(k) for name, k in parallelism.items()}
