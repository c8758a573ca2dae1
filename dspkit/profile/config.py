r"""Algorithm 1: first the parallelism of each operator, then the least number of nodes that carries them [elysium].

    | paper | here |
    |---|---|
    | core_min_thr, core_max_thr | `core_min`, `core_max`: of one core, for an instance |
    | cpu_max_thr | `cpu_max`: of all cores of a node |
    | max_parall[o], $p_i$ | the operator's `max_parallelism`, `parallelism` |
    | S.allocate | `scheduler(topology, parallelism, nodes)`; as printed, instances in turn over the nodes |
    | stress | above a maximum; equality is none |

As printed the loop over nodes has no end if one instance alone is too much for a node: ours stops at `nodes`, or where
an application has as many nodes as instances, and says so. The second loop over p, as printed, may step back into
stress (`guard=True` forbids it); it starts from one instance (`start` makes it go on from what runs, as the authors'
prototype does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from ..core import Topology
from ..errors import KnobError, MetricError
from ..etp import rebalance
from ..frozen import FrozenMap
from .curves import Array
from .estimator import Estimator, Load, Places, counted

Scheduler = Callable[[Topology, Mapping[str, int], Sequence[str]], Places]
_ROUNDING = 1e-9  # beyond a threshold that is no stress yet
_DEALS = "let it return {(operator, index): node}"


@dataclass(frozen=True)
class Config:
    """What to run, and what that is expected to use."""

    parallelism: Mapping[str, int]
    workers: int  # nodes; of several applications that differ, the most that one has
    by_application: Mapping[str, int]  # nodes of each, the first ones
    cpu: Mapping[str, float]  # of one instance of each operator, as a share of its core
    nodes: Mapping[str, float]  # share of each node's cores in use
    places: Places = field(repr=False)
    operator_saturated: tuple[str, ...] = ()  # in stress at their maximum
    node_saturated: bool = False  # a node is in stress, and no more nodes are to be had, or help


def compute_config(
    estimator: Estimator,
    load: Load,
    *,
    nodes: int | Sequence[str] = 4,
    core_min: float = 0.25,
    core_max: float = 0.65,
    cpu_max: float = 0.80,
    scheduler: Scheduler = rebalance,
    start: Mapping[str, int] | None = None,
    guard: bool = False,
    each_its_own: bool = False,
    parallelism: Mapping[str, int] | None = None,
) -> Config:
    """What carries this load, of one application or of all on a cluster, with no instance and no node in stress.

    `Estimator.together` puts several applications together; the load is then one for each, by name.
    `nodes` are those there are, by number or name. With `each_its_own` applications differ in their number of nodes:
    all begin with one, and whoever puts most CPU on the hottest node gets another, until none is in stress.
    `parallelism` fixes the first stage's answer.
    """
    _checked(estimator, core_min, core_max, cpu_max)
    rates, order = estimator.input_rates(load), estimator.topology.order
    start, parallelism = (k if k is None else counted(k, estimator.topology, order) for k in (start, parallelism))
    p = {} if parallelism is None else {o: parallelism[o] for o in order}
    for o in order if parallelism is None else ():
        p[o] = _instances(estimator, o, rates[o], core_min, core_max, None if start is None else start[o], guard)
    cpu = {o: estimator.instance_cpu_usage(o, rates[o] / k) for o, k in p.items()}
    stuck = tuple(
        o for o, u in cpu.items() if u > core_max + _ROUNDING and p[o] >= estimator.topology[o].max_parallelism
    )
    names = _named(nodes, sum(p.values()))
    counts, used, full = _nodes(estimator, p, cpu, names, cpu_max, scheduler, each_its_own)
    places = _allocate(estimator, p, names, scheduler, counts)
    return Config(
        FrozenMap(p), max(counts.values()), FrozenMap(counts), FrozenMap(cpu), FrozenMap(used), places, stuck, full
    )


def _instances(
    e: Estimator, o: str, rate: float, core_min: float, core_max: float, start: int | None, guard: bool
) -> int:
    """The two loops over p, as printed."""
    low, high = e.topology[o].min_parallelism, e.topology[o].max_parallelism
    p = low if start is None else min(max(start, low), high)
    while p < high and e.instance_cpu_usage(o, rate / p) > core_max + _ROUNDING:
        p += 1
    while p > low and e.instance_cpu_usage(o, rate / p) < core_min - _ROUNDING:
        if guard and e.instance_cpu_usage(o, rate / (p - 1)) > core_max + _ROUNDING:
            break
        p -= 1
    return p


def _nodes(
    e: Estimator,
    p: Mapping[str, int],
    cpu: Mapping[str, float],
    names: Sequence[str],
    cpu_max: float,
    scheduler: Scheduler,
    each_its_own: bool,
) -> tuple[dict[str, int], dict[str, float], bool]:
    """The loop over nodes: how many each application has, what the nodes use, whether one is in stress all the same."""
    most = {a: min(len(names), sum(p[o] for o in members)) for a, members in e.apps.items()}
    if not each_its_own:
        most = dict.fromkeys(most, max(most.values()))
    counts = dict.fromkeys(most, 1)
    fast = scheduler is rebalance and not each_its_own
    row = np.repeat([cpu[o] for o in e.topology.order], [p[o] for o in e.topology.order]) if fast else np.zeros(0)
    while True:
        n = max(counts.values())
        cores: Array = np.zeros(n)
        if fast:
            cores = np.bincount(np.arange(len(row)) % n, weights=row, minlength=n)
        else:
            for (o, _), node in (places := _allocate(e, p, names, scheduler, counts)).items():
                cores[names.index(node)] += cpu[o]
        shares = np.broadcast_to(e.node_share(cores), n)
        used = dict(zip(names, shares.tolist(), strict=False))
        hottest = int(shares.argmax())
        if not np.isfinite(shares).all():
            raise MetricError("a node's share that is no number", expected="finite overheads", fix="learn them again")
        if shares[hottest] <= cpu_max + _ROUNDING:
            return counts, used, False
        grow = [a for a in counts if counts[a] < most[a]]
        if not grow:
            return counts, used, True
        if each_its_own:
            on = dict.fromkeys(grow, 0.0)
            for (o, _), node in places.items():
                if node == names[hottest] and (a := _application(e, o)) in on:
                    on[a] += cpu[o]
            grow = [max(on, key=on.__getitem__)]
        for a in grow:
            counts[a] += 1


def _allocate(
    e: Estimator, p: Mapping[str, int], names: Sequence[str], scheduler: Scheduler, counts: Mapping[str, int]
) -> dict[tuple[str, int], str]:
    """All instances as the scheduler deals them; an application with fewer nodes as if all had as few."""
    dealt: dict[int, Any] = {}
    for n in set(counts.values()):
        try:
            dealt[n] = scheduler(e.topology, p, list(names[:n]))
        except TypeError as error:
            raise KnobError(
                f"scheduler {scheduler!r}: {error}"[:150],
                expected="a function of topology, parallelism, nodes",
                fix=_DEALS,
            ) from error
        if not isinstance(dealt[n], Mapping) or {(o, i) for o, k in p.items() for i in range(k)} != set(dealt[n]):
            said = f"{len(dealt[n])} instances" if isinstance(dealt[n], Mapping) else repr(dealt[n])[:50]
            raise KnobError(
                f"a scheduler that placed {said}", expected=f"each of {sum(p.values())}, from index 0", fix=_DEALS
            )
    places: dict[tuple[str, int], str] = {}
    for a, n in counts.items():
        members = set(e.apps[a])
        places |= {instance: node for instance, node in dealt[n].items() if instance[0] in members}
    if strange := set(places.values()) - set(names):
        raise KnobError(
            f"a scheduler that used {sorted(map(str, strange))}"[:100],
            expected=f"nodes of {list(names)}"[:100],
            fix=_DEALS,
        )
    return places


def _application(e: Estimator, operator: str) -> str:
    return next(a for a, members in e.apps.items() if operator in members)


def _checked(e: Estimator, core_min: float, core_max: float, cpu_max: float) -> None:
    if not isinstance(e, Estimator):
        raise KnobError(f"estimator {e!r}"[:100], expected="an Estimator", fix="as in Estimator(topology, profile)")
    for what, value in (("core_min", core_min), ("core_max", core_max), ("cpu_max", cpu_max)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise KnobError(
                f"{what}={value!r}", expected="a share from 0 to 1", fix="the paper has 0.25, 0.65 and 0.80"
            )
    if core_min >= core_max:
        raise KnobError(f"core_min={core_min}, core_max={core_max}", expected="core_min < core_max", fix="swap them")


def _named(nodes: Any, most: int) -> list[str]:
    """The nodes by name; of a number of them only as many as could help."""
    if isinstance(nodes, Integral) and not isinstance(nodes, bool):
        nodes = [f"node-{i}" for i in range(1, min(int(nodes), most) + 1)]
    fine = isinstance(nodes, (list, tuple)) and len(nodes) and all(isinstance(name, str) for name in nodes)
    if not fine or len(set(nodes)) != len(nodes):
        raise KnobError(f"nodes={nodes!r}"[:100], expected="a number from 1 up, or names", fix="as in nodes=4")
    return list(nodes)
