r"""ELYSIUM's decision: each operator's parallelism, the number of nodes, and the choice of a threshold [elysium].

Algorithm 1 computes the parallelism of each operator, then the smallest number of nodes with enough CPU.

| paper | here |
|---|---|
| core_min_thr, core_max_thr | `scale_in_below`, `scale_out_above`: of one core, for an instance |
| cpu_max_thr | `node_scale_out_above`: of all cores of a node |
| max_parall[o], $p_i$ | the operator's `max_parallelism`, `parallelism` |
| S.allocate | `scheduler(topology, parallelism, nodes)`; as printed, instances in turn over the nodes |
| stress | use above a maximum; equality is no stress |
| $R(thr) = thr - degradation(thr)$ | `reward` |
| $Q(a) \leftarrow Q(a) + \frac1{n_a}(R - Q(a))$ | each candidate is tried equally often; one state, $\gamma = 0$ |

As printed, the loop over nodes does not terminate if a single instance overloads a node; here it stops at `nodes`, or
when an application has as many nodes as instances, and reports it. The second loop over p, as printed, may return to
stress (`guard=True` prevents it); it starts from one instance (`start` continues from the present parallelism, as the
authors' prototype does).

A threshold is chosen by the bandit form of Q-learning over candidates: a high one uses nodes well, a low one preserves
throughput. The paper states no learning rate and no exploration: the step 1/n makes Q the mean reward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core import ArgumentError, FrozenMap, MetricError, Topology
from ..core.typing import Array
from ..core.validation import is_number, is_whole, number, share
from ..etp import rebalance
from .estimator import Estimator, Load, Places, counted

CANDIDATES = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90)  # thresholds to choose from
Scheduler = Callable[[Topology, Mapping[str, int], Sequence[str]], Places]
_ROUNDING = 1e-9  # tolerance of thresholds
_DEALS = "let it return {(operator, index): node}"


@dataclass(frozen=True)
class Config:
    """A deployment, with its expected use of CPU.

    Parameters
    ----------
    parallelism : mapping
        Number of instances by operator.
    workers : int
        Number of nodes; of several applications, the greatest.
    by_application : mapping
        Number of nodes of each application, which are the first ones.
    cpu : mapping
        Share of a core that one instance of each operator uses.
    nodes : mapping
        Share of each node's cores in use.
    places : mapping
        Node by (operator, index).
    operator_saturated : tuple of str
        Operators in stress at their maximum.
    node_saturated : bool
        Whether a node is in stress and no further node is available, or would help.

    Examples
    --------
    >>> Config({"count": 2}, 1, {"count": 1}, {"count": 0.5}, {"node-1": 0.25}, {}).workers
    1
    """

    parallelism: Mapping[str, int]
    workers: int
    by_application: Mapping[str, int]
    cpu: Mapping[str, float]
    nodes: Mapping[str, float]
    places: Places = field(repr=False)
    operator_saturated: tuple[str, ...] = ()
    node_saturated: bool = False


def compute_config(
    estimator: Estimator,
    load: Load,
    *,
    nodes: int | Sequence[str] = 4,
    scale_in_below: float = 0.25,
    scale_out_above: float = 0.65,
    node_scale_out_above: float = 0.80,
    scheduler: Scheduler = rebalance,
    start: Mapping[str, int] | None = None,
    guard: bool = False,
    each_its_own: bool = False,
    parallelism: Mapping[str, int] | None = None,
) -> Config:
    """Return the deployment for a load, of one application or several, without stress of instances or nodes.

    Parameters
    ----------
    estimator : Estimator
        The profiled application; `Estimator.together` combines several.
    load : float or mapping
        Records/s; of several applications by name.
    nodes : int or sequence of str
        The available nodes, by number or name.
    scale_in_below, scale_out_above : float
        Bounds of the use of one core by an instance.
    node_scale_out_above : float
        Upper bound of the use of a node's cores.
    scheduler : callable
        Assigns instances to nodes.
    start : mapping, optional
        Parallelism to start from; by default one instance each.
    guard : bool
        Whether the second loop over p avoids stress.
    each_its_own : bool
        Whether applications may have different numbers of nodes: each begins with one, and the application with most
        CPU on the hottest node gets another until none is in stress.
    parallelism : mapping, optional
        A fixed parallelism, which replaces the first stage.

    Examples
    --------
    >>> from dspkit import apps, profiling, run
    >>> app = apps.rolling_top_words()
    >>> profile = profiling.learn(run("static", app, steps=100))
    >>> compute_config(Estimator(app.topology, profile), 200).workers
    2
    """
    _checked(estimator, scale_in_below, scale_out_above, node_scale_out_above)
    rates, order = estimator.input_rates(load), estimator.topology.order
    start, parallelism = (k if k is None else counted(k, estimator.topology, order) for k in (start, parallelism))
    p = {} if parallelism is None else {o: parallelism[o] for o in order}
    for o in order if parallelism is None else ():
        p[o] = _instances(
            estimator, o, rates[o], scale_in_below, scale_out_above, None if start is None else start[o], guard
        )
    cpu = {o: estimator.instance_cpu_usage(o, rates[o] / k) for o, k in p.items()}
    stuck = tuple(
        o for o, u in cpu.items() if u > scale_out_above + _ROUNDING and p[o] >= estimator.topology[o].max_parallelism
    )
    names = _named(nodes, sum(p.values()))
    counts, used, full = _nodes(estimator, p, cpu, names, node_scale_out_above, scheduler, each_its_own)
    places = _allocate(estimator, p, names, scheduler, counts)
    return Config(
        FrozenMap(p), max(counts.values()), FrozenMap(counts), FrozenMap(cpu), FrozenMap(used), places, stuck, full
    )


def _instances(
    e: Estimator, o: str, rate: float, scale_in_below: float, scale_out_above: float, start: int | None, guard: bool
) -> int:
    """Return the parallelism of one operator by the two loops over p, as printed."""
    low, high = e.topology[o].min_parallelism, e.topology[o].max_parallelism
    p = low if start is None else min(max(start, low), high)
    while p < high and e.instance_cpu_usage(o, rate / p) > scale_out_above + _ROUNDING:
        p += 1
    while p > low and e.instance_cpu_usage(o, rate / p) < scale_in_below - _ROUNDING:
        if guard and e.instance_cpu_usage(o, rate / (p - 1)) > scale_out_above + _ROUNDING:
            break
        p -= 1
    return p


def _nodes(
    e: Estimator,
    p: Mapping[str, int],
    cpu: Mapping[str, float],
    names: Sequence[str],
    node_scale_out_above: float,
    scheduler: Scheduler,
    each_its_own: bool,
) -> tuple[dict[str, int], dict[str, float], bool]:
    """Return each application's number of nodes, the use of the nodes, and whether one remains in stress."""
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
            raise MetricError("an undefined share of a node", expected="finite overheads", fix="learn them again")
        if shares[hottest] <= node_scale_out_above + _ROUNDING:
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
    """Return the node of each instance; an application with fewer nodes is assigned as if all had as few."""
    assigned: dict[int, Any] = {}
    for n in set(counts.values()):
        try:
            assigned[n] = scheduler(e.topology, p, list(names[:n]))
        except TypeError as error:
            raise ArgumentError(
                f"scheduler {scheduler!r}: {error}"[:150],
                expected="a function of topology, parallelism, nodes",
                fix=_DEALS,
            ) from error
        if not isinstance(assigned[n], Mapping) or {(o, i) for o, k in p.items() for i in range(k)} != set(assigned[n]):
            said = f"{len(assigned[n])} instances" if isinstance(assigned[n], Mapping) else repr(assigned[n])[:50]
            raise ArgumentError(
                f"a scheduler that placed {said}", expected=f"each of {sum(p.values())}, from index 0", fix=_DEALS
            )
    places: dict[tuple[str, int], str] = {}
    for a, n in counts.items():
        members = set(e.apps[a])
        places |= {instance: node for instance, node in assigned[n].items() if instance[0] in members}
    if strange := set(places.values()) - set(names):
        raise ArgumentError(
            f"a scheduler that used {sorted(map(str, strange))}"[:100],
            expected=f"nodes of {list(names)}"[:100],
            fix=_DEALS,
        )
    return places


def _application(e: Estimator, operator: str) -> str:
    return next(a for a, members in e.apps.items() if operator in members)


def _checked(e: Estimator, scale_in_below: float, scale_out_above: float, node_scale_out_above: float) -> None:
    if not isinstance(e, Estimator):
        raise ArgumentError(f"estimator {e!r}"[:100], expected="an Estimator", fix="as in Estimator(topology, profile)")
    for what, value in (
        ("scale_in_below", scale_in_below),
        ("scale_out_above", scale_out_above),
        ("node_scale_out_above", node_scale_out_above),
    ):
        share(value, what, fix="as in the paper's 0.25, 0.65 and 0.80")
    if scale_in_below >= scale_out_above:
        raise ArgumentError(
            f"scale_in_below={scale_in_below}, scale_out_above={scale_out_above}",
            expected="scale_in_below < scale_out_above",
            fix="swap them",
        )


def _named(nodes: Any, most: int) -> list[str]:
    """Return the nodes by name; of a number of them only as many as could help."""
    if is_whole(nodes):
        nodes = [f"node-{i}" for i in range(1, min(int(nodes), most) + 1)]
    fine = isinstance(nodes, (list, tuple)) and len(nodes) and all(isinstance(name, str) for name in nodes)
    if not fine or len(set(nodes)) != len(nodes):
        raise ArgumentError(f"nodes={nodes!r}"[:100], expected="a number from 1 up, or names", fix="as in nodes=4")
    return list(nodes)


@dataclass(frozen=True)
class LearnedThreshold:
    """The result of `learn_threshold`.

    Parameters
    ----------
    best : float
        The threshold of the highest value.
    values : dict
        Mean reward by candidate.
    tries : int
        Number of all tries.

    Examples
    --------
    >>> LearnedThreshold(0.8, {0.8: 0.7}, 1).best
    0.8
    """

    best: float
    values: dict[float, float]
    tries: int


def reward(threshold: float, degradation: float) -> float:
    """$R = thr - degradation$.

    Parameters
    ----------
    threshold : float
        The threshold.
    degradation : float
        Lost share of the throughput.

    Examples
    --------
    >>> reward(0.75, 0.25)
    0.5
    """
    return threshold - degradation


def learn_threshold(
    play: Callable[[float, int], float], candidates: Sequence[float] = CANDIDATES, *, rounds: int = 1
) -> LearnedThreshold:
    """Return the candidate of the highest mean reward; the larger one in a tie.

    Parameters
    ----------
    play : callable
        Returns the throughput degradation of (threshold, round).
    candidates : sequence of float
        The thresholds to try.
    rounds : int
        Tries of each.

    Examples
    --------
    >>> printed = {0.75: 0.09, 0.80: 0.09, 0.85: 0.20}
    >>> learn_threshold(lambda thr, _: printed[thr], tuple(printed)).best
    0.8
    """
    shares = isinstance(candidates, Sequence) and all(is_number(c) and 0 <= c <= 1 for c in candidates)
    if not shares or not candidates or not is_whole(rounds) or rounds < 1:
        raise ArgumentError(
            f"candidates {candidates!r}, {rounds!r} rounds"[:120], expected="at least one, shares", fix="see CANDIDATES"
        )
    if not callable(play):
        raise ArgumentError(
            f"play={play!r}"[:100], expected="a function of threshold and round", fix="let it run a policy"
        )
    values = dict.fromkeys(map(float, candidates), 0.0)
    for n in range(1, rounds + 1):
        for threshold in values:
            lost = number(
                play(threshold, n - 1), "degradation", 0, fix="return one of dspkit.comparison.scores from play()"
            )
            values[threshold] += (reward(threshold, lost) - values[threshold]) / n
    best = max(values, key=lambda thr: (round(values[thr], 12), thr))
    return LearnedThreshold(best, values, rounds * len(values))
