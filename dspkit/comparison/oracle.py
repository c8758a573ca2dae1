r"""The oracle: the least that any policy could have paid, had it known the load.

    | here | meaning |
    |---|---|
    | cost | $\sum_w T\,n_w + p\,T\,L + m\,C$: instance-seconds, late windows, changes |
    | $T$, $n_w$ | length of a window; instances that run in window w |
    | $L$, $p$ | late windows; `penalty`: instances that a second of lateness is worth |
    | $C$, $m$ | changes of what runs; `change_cost`: instance-seconds that each is worth |
    | $q_i$, $r_i$ | records that operator i cannot have processed yet; source records that each stands for |

A window is late if at its end records wait that came more than `slo_s` ago. That can be told from rates alone: more
source records came and have not ended than came in the last `slo_s`. Policies that violate the SLO may well be cheaper,
so what is minimised is the cost with its penalty, and the regret of a run is its own cost, by the same sum, less this.

**What it may do.** It knows the load tick by tick, the service times of each window (the simulator's noise), and
chooses its start. It changes parallelism where policies do, between windows. A record passes each operator at the
earliest when it comes; an operator with k instances then does at most $k/s(k)$ records/s, on the fastest node and with
a core for each instance. A change stops an operator for the plant's pause if its own parallelism changes (not with the
pause "instances"). Lateness is charged to operators by shares $\lambda_i$ that add up to 1, and so are changes.

**Why nobody beats it.** What has ended has passed every operator, so the source records that have not ended are at
least $r_i q_i$ for each i, and a run is late wherever one operator's bound says so: $L \ge \sum_i \lambda_i L_i$;
changes likewise, $C \ge \sum_i \lambda_i C_i$. Therefore the sum over operators of each one's least
$\sum_w T k_{iw} + \lambda_i(p\,T\,L_i + m\,C_i)$, found by dynamic programming, is at most the cost of any run. For one
operator it is attained; for several it is a bound, since it lets them stop one by one. Queues and links that hold back,
nodes whose cores are short, faults, hot keys and random waiting only make runs worse; where records can be refused or
lost, a late operator may forget its backlog. All this holds of the *fluid*; in *tuples* chance may help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..core import Topology
from ..errors import KnobError
from ..plant import NodeDown, Plant
from ..simulator.simulator import all_numbers, by_source, noises, offered, random_streams
from ..workload import Workload
from .paths import Operator, least

Array = np.ndarray[Any, np.dtype[Any]]
ROUNDING = 1e-7  # of all records that came: the oracle is late only beyond it, a run already beyond a hundredth of it
FEWEST = 1e-12  # records for each source record that are as good as none: nobody is late for them


@dataclass(frozen=True)
class Oracle:
    """The bound, and the plan that it is the cost of: instances of each operator, window by window."""

    cost: float
    window_s: float
    parallelism: Mapping[str, tuple[int, ...]]
    late: Mapping[str, tuple[bool, ...]]
    rates: tuple[float, ...]  # records/s that came in each window
    shares: Mapping[str, float]  # lambda of each operator

    @property
    def instances(self) -> list[int]:
        """Instances of all operators together, window by window."""
        return [sum(ks) for ks in zip(*self.parallelism.values(), strict=True)]

    @property
    def instance_seconds(self) -> float:
        return self.window_s * sum(self.instances)


def oracle(
    topology: Topology,
    plant: Plant,
    workload: Workload | Mapping[str, Workload],
    *,
    duration_s: float = 3600.0,
    window_s: float = 10.0,
    tick_s: float = 1.0,
    slo_s: float = 1.0,
    penalty: float | None = None,
    change_cost: float = 0.0,
    seed: int = 0,
    start_s: float = 0.0,
) -> Oracle:
    """The least cost of `duration_s` of this load, as the module says; `penalty` defaults to `peak_instances`.

    Changes that are made at the end of the last window cost nothing.

    >>> from dspkit import topologies, workload
    >>> app = topologies.tweet_words()
    >>> found = oracle(app.topology, app.plant, workload.Constant(100), duration_s=60.0)
    >>> found.cost, found.instances
    (240.0, [4, 4, 4, 4, 4, 4])
    """
    windows = whole_windows(duration_s, window_s)
    if not all_numbers(tick_s, start_s) or not (0 < tick_s <= window_s and abs(start_s) < np.inf):
        raise KnobError(f"tick_s={tick_s!r}, start_s={start_s!r}", expected="0 < tick_s <= window_s", fix="as in 1, 0")
    loads = by_source(topology, workload)
    _must_be_costs(slo_s=slo_s, penalty=penalty, change_cost=change_cost)
    edges = np.linspace(0.0, window_s, max(1, round(window_s / tick_s)) + 1)
    middles = ((edges[1:] + edges[:-1]) / 2 + start_s + window_s * np.arange(windows)[:, None]).ravel()
    ticks = np.diff(edges)
    rates = offered(loads, topology, middles).reshape(windows, len(ticks), -1)
    came = (rates * ticks[:, None]).sum(axis=(1, 2))
    allowed = allowance(came, window_s, slo_s) + ROUNDING * np.cumsum(came)
    price = peak_instances(topology, plant, rates.max(axis=(0, 1))) if penalty is None else penalty
    noise = noises(random_streams(seed)[0], plant.noise, (windows, len(topology.order)))
    arrivals, worth = _flows(topology, plant, rates * ticks[:, None])
    loses = plant.pause_kind == "restart" or any(s.overflow == "drop" for s in plant.services.values())
    loses |= any(isinstance(f, NodeDown) and f.loses for f in plant.faults)
    parts = []
    for i, name in enumerate(topology.order):
        o = topology[name]
        ks = np.arange(o.min_parallelism, o.max_parallelism + 1)
        able = abilities(plant, name, ks, noise[:, i] if plant.noise else None)
        parts.append(Operator(ks, arrivals[:, :, i], np.broadcast_to(able, (windows, len(ks))), ticks,
                              allowed / worth[i] if worth[i] > 0 else np.full(windows, np.inf), pause_s(plant, name),
                              loses))  # fmt: skip
    best: Oracle | None = None
    for shares in _shares(topology, plant, rates):
        found = [least(part, window_s, price * share, change_cost * share)
                 for part, share in zip(parts, shares, strict=True)]  # fmt: skip
        total = float(sum(f.cost for f in found))
        if best is None or total > best.cost:
            names = topology.order
            best = Oracle(total, window_s, dict(zip(names, (f.instances for f in found), strict=True)),
                          dict(zip(names, (f.late for f in found), strict=True)), tuple((came / window_s).tolist()),
                          dict(zip(names, shares, strict=True)))  # fmt: skip
    assert best is not None
    return best


def whole_windows(duration_s: float, window_s: float) -> int:
    """How many windows a run has."""
    told = all_numbers(duration_s, window_s) and window_s > 0 and 0 < duration_s < np.inf
    count = duration_s / window_s if told else 0.0
    if not (1 <= round(count) < 1e7 and abs(count - round(count)) < 1e-6):
        raise KnobError(
            f"duration_s={duration_s!r}, window_s={window_s!r}", expected="whole windows", fix="as in 3600, 10"
        )
    return round(count)


def allowance(came: Array, window_s: float, slo_s: float) -> Array:
    """Records of the last `slo_s` before the end of each window, from what came in each: those may still wait."""
    ends = window_s * np.arange(len(came) + 1)
    total = np.concatenate(([0.0], np.cumsum(came)))
    recent: Array = total[1:] - np.interp(ends[1:] - slo_s, ends, total)
    return recent


def abilities(plant: Plant, name: str, ks: Array, noise: Array | None = None) -> Array:
    """Records/s that each number of instances can do at most, by window [window, k]; one window without noise."""
    service = plant.services[name]
    seconds = np.array([service.seconds(int(k)) for k in ks])
    fastest = max(node.speed for node in plant.nodes.values())
    drawn = np.ones((1, 1)) if noise is None else noise[:, None]
    call = 1 / service.ceiling_per_s
    each = drawn * seconds * ((1 - service.io_share) / fastest + service.io_share) + call
    able: Array = np.minimum(ks / each, service.ceiling_per_s)
    return able


def pause_s(plant: Plant, name: str) -> float:
    """Seconds for which an operator stands still, at least, if its own parallelism changes."""
    if plant.pause_kind == "instances":
        return 0.0  # those that run already go on
    twice = 0.0
    if plant.pause_kind == "savepoint":
        twice = 2 * sum(s.state_bytes for s in plant.services.values()) / plant.state_bytes_per_s
    return plant.pause_s + twice


def needs(topology: Topology, plant: Plant, rates: Array) -> dict[str, float]:
    """Records/s that sources at these rates, in topological order, ask of each operator."""
    asked, _ = _flows(topology, plant, np.asarray(rates, dtype=float)[None, None, :])
    return dict(zip(topology.order, asked[0, 0].tolist(), strict=True))


def peak_instances(topology: Topology, plant: Plant, peak: Array) -> float:
    """Instances that these rates of the sources, the greatest of a load, need together."""
    return float(sum(fewest(topology, plant, n, rate) for n, rate in needs(topology, plant, peak).items()))


def fewest(topology: Topology, plant: Plant, name: str, rate: float) -> int:
    """The fewest instances of an operator that keep up with this rate; if none do, those that do most."""
    o = topology[name]
    ks = np.arange(o.min_parallelism, o.max_parallelism + 1)
    able = abilities(plant, name, ks)[0]
    enough = able >= rate * (1 - 1e-9)
    return int(ks[enough.argmax()] if enough.any() else ks[able.argmax()])


def _flows(topology: Topology, plant: Plant, amounts: Array) -> tuple[Array, Array]:
    """What the sources' amounts ask of each operator, and the source records that one of its records stands for."""
    index = {n: i for i, n in enumerate(topology.order)}
    flows, worth = np.array(amounts, dtype=float), np.zeros(len(index))
    for name, i in index.items():
        parents = topology.upstream(name)
        if not parents:
            worth[i] = 1.0
        stand = []
        for parent in parents:
            share = plant.services[parent].toward(name)
            flows[..., i] += share * flows[..., index[parent]]
            if share > FEWEST and worth[index[parent]] > 0:
                stand.append(worth[index[parent]] / len(topology.downstream(parent)) / share)
        if stand and min(stand) < 1 / FEWEST:
            worth[i] = min(stand)
    return flows, worth


def _shares(topology: Topology, plant: Plant, rates: Array) -> list[tuple[float, ...]]:
    """Ways to share lateness out; any is a bound. By what operators need at the peak, on average, and evenly."""
    ways = []
    for level in (rates.max(axis=(0, 1)), rates.mean(axis=(0, 1))):
        ks = [fewest(topology, plant, n, rate) for n, rate in needs(topology, plant, level).items()]
        ways.append(tuple(k / sum(ks) for k in ks))
    even = (1 / len(topology.order),) * len(topology.order)
    return list(dict.fromkeys([*ways, even]))


def _must_be_costs(**values: float | None) -> None:
    for name, value in values.items():
        good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < np.inf
        if not good and not (value is None and name == "penalty"):
            raise KnobError(f"{name}={value!r}", expected="a finite number >= 0", fix="see dspkit.comparison.oracle")


@lru_cache(maxsize=256)
def known(*question: Any) -> Oracle:
    """The oracle of a question that may come again: topology, plant, load, then numbers in the order of `oracle`."""
    topology, plant, workload, *numbers = question
    names = ("duration_s", "window_s", "tick_s", "slo_s", "penalty", "change_cost", "seed")
    return oracle(topology, plant, workload, **dict(zip(names, numbers, strict=True)))
