r"""The oracle: a lower bound of the cost of any policy, from full knowledge of the load.

    | here | meaning |
    |---|---|
    | cost | $\sum_w T\,n_w + p\,T\,L + m\,C$: instance-seconds, late windows, changes |
    | $T$, $n_w$ | length of a window; instances in window w |
    | $L$, $p$ | late windows; `penalty`: cost of a late second, in instances |
    | $C$, $m$ | changes of the deployment; `change_cost`: cost of a change, in instance-seconds |
    | $q_i$, $r_i$ | records that operator i cannot have processed yet; source records per record of it |

A window is late if at its end records wait that arrived more than `target_latency_s` ago. Rates alone show this: the
number of unfinished source records is greater than the arrivals of the last `target_latency_s`. A policy that violates
the SLO may well use fewer instances, so the oracle minimises the cost with its penalty, and the regret of a run is its
own cost, by the same sum, less that of the oracle.

**Model.** The oracle knows the load tick by tick and the service times of each window (the simulator's noise), and
chooses its initial deployment. It changes parallelism between windows, like policies. A record reaches each operator
as soon as it arrives; an operator with k instances then processes at most $k/s(k)$ records/s, on the fastest node and
with a core per instance. A change of an operator's parallelism stops it for the plant's pause (not with the pause
"instances"). Lateness is charged to operators by shares $\lambda_i$ that add up to 1, and so are changes.

**Proof.** A finished record has passed every operator, so the number of unfinished source records is at least
$r_i q_i$ for each i, and a window is late if it is late for one operator: $L \ge \sum_i \lambda_i L_i$. Likewise
$C \ge \sum_i \lambda_i C_i$. Therefore the sum over operators of the least
$\sum_w T k_{iw} + \lambda_i(p\,T\,L_i + m\,C_i)$ of each, found by dynamic programming, is at most the cost of any run.
For one operator it is attained; for several it is a bound, since it lets them stop one by one. Back-pressure, network
links, too few cores, faults, hot keys and random waits only increase the cost of a run; if records can be refused or
lost, a late operator may drop its backlog. All this holds for the *fluid* engine; in *records* chance may help.

**Dynamic programming**, compiled. A state of one operator is its number of instances, the rest of its pause, and its
backlog. Among paths to the same instances and pause only those are kept that no other one beats in both cost and
backlog. Within a window the backlog q becomes $\max(q + x, y)$: x is arrivals less capacity, and y its greatest sum
over the window's last ticks, which is the backlog if the queue was empty in between (Lindley).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..core import ArgumentError, Topology
from ..core.jit import compiled
from ..core.typing import Array
from ..core.validation import is_number, number
from ..simulator import NodeDown, Plant
from ..simulator.simulator import by_source, noises, offered, random_streams
from ..workload import Workload


@compiled
def window(  # noqa: PLR0913  (compiled: one array each)
    first: bool, k: Array, stop: Array, waits: Array, cost: Array, gain: Array, rest: Array, price: Array,
    after: Array, late_cost: float, change_cost: float, allowed: float, to_go: float, last: float, loses: bool,
) -> tuple[Array, Array, Array, Array, Array, Array]:  # fmt: skip
    """Extend all paths by one window, and return the undominated ones: k, stop, waits, cost, parent, late.

    `gain` and `rest` are x and y of this window, [stop, k]; paths whose total cost must exceed `last` are left out.
    """
    n, stops, count = len(price), len(after), len(k)
    nobody = np.zeros(count, dtype=np.int64)
    front = unbeaten(nobody, 1, waits, cost) if not first else nobody[:0]
    most = count + n * len(front)
    a, b, q, c = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most)
    parent, late, group, used = np.empty(most, np.int64), np.empty(most, np.bool_), np.empty(most, np.int64), 0
    for j in range(most):
        if j < count:
            origin, kk, ss, spent = j, k[j], stop[j], cost[j]
        else:
            origin, kk, ss = front[(j - count) % len(front)], (j - count) // len(front), min(1, stops - 1)
            spent = cost[origin] + change_cost
        left = max(waits[origin] + gain[ss, kk], rest[ss, kk])
        missed = left > allowed
        spent += price[kk] + (late_cost if missed else 0.0)
        if spent + to_go <= last:
            a[used], b[used], c[used], parent[used], late[used] = kk, after[ss], spent, origin, missed
            q[used] = 0.0 if missed and loses else left
            group[used] = kk * stops + after[ss]
            used += 1
    kept = unbeaten(group[:used], n * stops, q[:used], c[:used])
    return a[kept], b[kept], q[kept], c[kept], parent[kept], late[kept]


@compiled
def unbeaten(group: Array, groups: int, waits: Array, cost: Array) -> Array:
    """Return the members of each group that no other member beats in both backlog and cost."""
    at = np.zeros(groups + 1, dtype=np.int64)
    for g in group:
        at[g + 1] += 1
    at = np.cumsum(at)
    place, members = at.copy(), np.empty(len(group), dtype=np.int64)
    for j in range(len(group)):
        members[place[group[j]]] = j
        place[group[j]] += 1
    kept, used = np.empty(len(group), dtype=np.int64), 0
    for g in range(groups):
        mine = members[at[g] : at[g + 1]]
        begin = used
        for x in np.argsort(cost[mine]):
            j = mine[x]
            if used == begin or waits[j] < waits[kept[used - 1]]:
                if used > begin and cost[kept[used - 1]] == cost[j]:
                    used -= 1  # the same cost with a greater backlog
                kept[used] = j
                used += 1
    return kept[:used]


FEW = 150  # paths that the first search keeps
MOST = 20_000  # paths of the second search above which backlogs are rounded down, so that the bound still holds


class PathOperator(NamedTuple):
    """The oracle's model of one operator."""

    ks: Array  # allowed numbers of instances
    arrivals: Array  # [window, tick] records
    able: Array  # [window, k] records/s
    ticks: Array  # [tick] s
    allowed: Array  # [window] records that may wait at its end
    pause_s: float
    loses: bool  # a late window may drop the backlog


class Path(NamedTuple):
    """The plan of one operator: its cost, instances and late windows."""

    cost: float
    instances: tuple[int, ...]
    violated: tuple[bool, ...]


class _PartialPaths(NamedTuple):
    k: Array  # index of the instances
    left: Array  # index of the pause that is left; 0: none
    waits: Array
    cost: Array
    parent: Array
    late: Array


def cheapest_path(o: PathOperator, window_s: float, penalty: float, change_cost: float) -> Path:
    r"""Return the least $\sum_w T k_w + penalty\,T\,L + change\,C$, and a path that attains it.

    A first search that keeps few paths finds a good one; the second leaves out only paths that must cost more.
    """
    o = _useful(o)
    stops = _stops(o.pause_s, window_s)
    maps = [_window_maps(o, stop) for stop in stops]
    price, late_cost = window_s * o.ks.astype(float), penalty * window_s
    each = (price + late_cost * (maps[0][1] > o.allowed[:, None])).min(axis=1)  # with an empty queue before
    to_go = np.append(np.cumsum(each[::-1])[::-1][1:], 0.0)
    question = _Question(o, maps, price, late_cost, change_cost, to_go)
    still, windows = _standing(question), len(o.arrivals)
    if still[0] == windows * price[0]:  # the fewest instances suffice
        return Path(float(still[0]), (int(o.ks[0]),) * windows, (False,) * windows)
    found = _search(question, float(still.min()), FEW)
    return _search(question, found.cost, None)


def _search(question: _Question, bound: float, few: int | None) -> Path:
    """Return the best path among the undominated ones that may cost at most `bound`, or among the best few."""
    o, maps, price, late_cost, change_cost, to_go = question
    n, stops, last = len(o.ks), len(maps), bound * (1 + 1e-12) + 1e-9
    after = np.array([0, *range(2, stops), 0][:stops])  # the pause that is left after a window
    effort = float((o.ks / o.able.max(axis=0)).min())  # instance-seconds per record
    ways = _PartialPaths(np.arange(n), np.zeros(n, int), np.zeros(n), np.zeros(n), np.full(n, -1), np.zeros(n, bool))
    past: list[_PartialPaths] = []
    for w in range(len(o.arrivals)):
        gain, rest = (np.stack([m[i][w] for m in maps]) for i in (0, 1))
        ways = _PartialPaths(*window(
            w == 0, ways.k, ways.left, ways.waits, ways.cost, gain, rest, price, after, late_cost, change_cost,
            o.allowed[w], to_go[w], last, o.loses,
        ))  # fmt: skip
        if few is not None and len(ways.k) > few:
            best = np.argsort(ways.cost + effort * ways.waits, kind="stable")[:few]
            ways = _PartialPaths(*(part[best] for part in ways))
        elif len(ways.k) > MOST:
            ways = ways._replace(waits=_rounded(ways.waits))
            ways = _PartialPaths(
                *(part[unbeaten(ways.k * stops + ways.left, n * stops, ways.waits, ways.cost)] for part in ways)
            )
        past.append(ways)
    if not len(ways.cost):  # none of the few paths is left
        return Path(bound, (), ())
    at = int(ways.cost.argmin())
    total, path, missed = float(ways.cost[at]), [], []
    for ways in reversed(past):
        path.append(int(o.ks[ways.k[at]]))
        missed.append(bool(ways.late[at]))
        at = int(ways.parent[at])
    return Path(total, tuple(reversed(path)), tuple(reversed(missed)))


class _Question(NamedTuple):
    """The input of both searches."""

    o: PathOperator
    maps: list[tuple[Array, Array]]  # by the pause in the window: x and y, [window, k] each
    price: Array  # [k] per window
    late_cost: float  # per window
    change_cost: float
    to_go: Array  # [window] least cost of the windows after it, for any backlog


def _stops(pause_s: float, window_s: float) -> list[float]:
    """Return the possible pauses at the start of a window, in seconds: none, the whole pause, and its rests."""
    stops, left = [0.0], pause_s
    while left > 1e-9:
        stops.append(min(left, window_s))
        left -= window_s
    return stops


def _useful(o: PathOperator) -> PathOperator:
    """Return the operator without numbers of instances that never process more than fewer would."""
    before = np.maximum.accumulate(o.able, axis=1)
    useful = np.concatenate(([True], (o.able[:, 1:] > before[:, :-1]).any(axis=0)))
    return o._replace(ks=o.ks[useful], able=o.able[:, useful])


def _window_maps(o: PathOperator, stop_s: float) -> tuple[Array, Array]:
    """Return x and y of each window and number of instances, if the operator is paused for its first `stop_s`."""
    ends = np.cumsum(o.ticks)
    works = np.clip(ends - stop_s, 0.0, o.ticks)
    net = o.arrivals[:, None, :] - o.able[:, :, None] * works
    tails = np.cumsum(net[:, :, ::-1], axis=2)
    return tails[:, :, -1], np.maximum(tails.max(axis=2), 0.0)


def _standing(question: _Question) -> Array:
    """Return the cost of each constant number of instances."""
    o, (gain, rest) = question.o, question.maps[0]
    waits, missed = np.zeros(len(o.ks)), np.zeros(len(o.ks), int)
    for x, y, allowed in zip(gain, rest, o.allowed, strict=True):
        waits = np.maximum(waits + x, y)
        late = waits > allowed
        missed += late
        if o.loses:
            waits = np.where(late, 0.0, waits)
    return len(gain) * question.price + question.late_cost * missed


def _rounded(waits: Array) -> Array:
    """Return the backlogs rounded down to few distinct values."""
    step = float(waits.max()) / 256
    return np.floor(waits / step) * step if step > 0 else waits


ROUNDING = 1e-7  # tolerance of lateness, as a share of all arrivals; a hundredth of it for a run
FEWEST = 1e-12  # records per source record that are negligible


@dataclass(frozen=True)
class Oracle:
    """The oracle's bound, and the plan that has this cost.

    Parameters
    ----------
    cost : float
        Cost of the plan: no policy has a smaller one.
    window_s : float
        Length of a window in seconds.
    parallelism : mapping
        Instances of each operator, window by window.
    violated : mapping
        Late windows of each operator.
    rates : tuple of float
        Arrivals in records/s, window by window.
    shares : mapping
        Share of the lateness that each operator is charged.

    Examples
    --------
    >>> found = Oracle(40.0, 10.0, {"a": (1, 1), "b": (1, 1)}, {}, (50.0, 50.0), {"a": 0.5, "b": 0.5})
    >>> found.instances, found.instance_seconds
    ([2, 2], 40.0)
    """

    cost: float
    window_s: float
    parallelism: Mapping[str, tuple[int, ...]]
    violated: Mapping[str, tuple[bool, ...]]
    rates: tuple[float, ...]
    shares: Mapping[str, float]

    @property
    def instances(self) -> list[int]:
        """Instances of all operators together, window by window."""
        return [sum(ks) for ks in zip(*self.parallelism.values(), strict=True)]

    @property
    def instance_seconds(self) -> float:
        """Instances summed over time."""
        return self.window_s * sum(self.instances)


def oracle(
    topology: Topology,
    plant: Plant,
    workload: Workload | Mapping[str, Workload],
    *,
    duration_s: float = 3600.0,
    window_s: float = 10.0,
    tick_s: float = 1.0,
    target_latency_s: float = 1.0,
    penalty: float | None = None,
    change_cost: float = 0.0,
    seed: int = 0,
    start_s: float = 0.0,
) -> Oracle:
    r"""Return the least cost of any policy: $\sum_w T\,n_w + p\,T\,L + m\,C$.

    The sum is over windows of length T with n instances; L windows are late, and C changes are made. Changes at the end
    of the last window cost nothing.

    Parameters
    ----------
    topology : Topology
        The job.
    plant : Plant
        Its cluster.
    workload : Workload or mapping
        Its load, or a load by source.
    duration_s, window_s, tick_s : float
        Seconds of the run, of a window and of a step of the load.
    target_latency_s : float
        The latency to meet, in seconds.
    penalty : float, optional
        Cost p of a late second, in instances; by default the instances that the peak needs.
    change_cost : float
        Cost m of a change, in instance-seconds.
    seed : int
        Seed of the plant's noise.
    start_s : float
        Time of the load at which the run starts.

    Examples
    --------
    >>> from dspkit import apps, workload
    >>> app = apps.tweet_words()
    >>> found = oracle(app.topology, app.plant, workload.Constant(100), duration_s=60.0)
    >>> found.cost, found.instances
    (240.0, [4, 4, 4, 4, 4, 4])
    """
    windows = whole_windows(duration_s, window_s)
    if not is_number(tick_s, start_s) or not (0 < tick_s <= window_s and abs(start_s) < np.inf):
        raise ArgumentError(
            f"tick_s={tick_s!r}, start_s={start_s!r}", expected="0 < tick_s <= window_s", fix="as in 1, 0"
        )
    loads = by_source(topology, workload)
    _must_be_costs(target_latency_s=target_latency_s, penalty=penalty, change_cost=change_cost)
    edges = np.linspace(0.0, window_s, max(1, round(window_s / tick_s)) + 1)
    middles = ((edges[1:] + edges[:-1]) / 2 + start_s + window_s * np.arange(windows)[:, None]).ravel()
    ticks = np.diff(edges)
    rates = offered(loads, topology, middles).reshape(windows, len(ticks), -1)
    came = (rates * ticks[:, None]).sum(axis=(1, 2))
    allowed = allowance(came, window_s, target_latency_s) + ROUNDING * np.cumsum(came)
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
        parts.append(
            PathOperator(
                ks,
                arrivals[:, :, i],
                np.broadcast_to(able, (windows, len(ks))),
                ticks,
                allowed / worth[i] if worth[i] > 0 else np.full(windows, np.inf),
                pause_s(plant, name),
                loses,
            )
        )
    best: Oracle | None = None
    for shares in _shares(topology, plant, rates):
        found = [
            cheapest_path(part, window_s, price * share, change_cost * share)
            for part, share in zip(parts, shares, strict=True)
        ]
        total = float(sum(f.cost for f in found))
        if best is None or total > best.cost:
            names = topology.order
            best = Oracle(
                total,
                window_s,
                dict(zip(names, (f.instances for f in found), strict=True)),
                dict(zip(names, (f.violated for f in found), strict=True)),
                tuple((came / window_s).tolist()),
                dict(zip(names, shares, strict=True)),
            )
    assert best is not None
    return best


def whole_windows(duration_s: float, window_s: float) -> int:
    """Return the number of windows of a run."""
    valid = is_number(duration_s, window_s) and window_s > 0 and 0 < duration_s < np.inf
    count = duration_s / window_s if valid else 0.0
    if not (1 <= round(count) < 1e7 and abs(count - round(count)) < 1e-6):
        raise ArgumentError(
            f"duration_s={duration_s!r}, window_s={window_s!r}", expected="whole windows", fix="as in 3600, 10"
        )
    return round(count)


def allowance(arrivals: Array, window_s: float, target_latency_s: float) -> Array:
    """Return the arrivals of the last `target_latency_s` before the end of each window, which may still wait."""
    ends = window_s * np.arange(len(arrivals) + 1)
    total = np.concatenate(([0.0], np.cumsum(arrivals)))
    recent: Array = total[1:] - np.interp(ends[1:] - target_latency_s, ends, total)
    return recent


def abilities(plant: Plant, name: str, ks: Array, noise: Array | None = None) -> Array:
    """Return the capacity of each number of instances, records/s [window, k]; one window without noise."""
    service = plant.services[name]
    seconds = np.array([service.seconds(int(k)) for k in ks])
    fastest = max(node.speed for node in plant.nodes.values())
    drawn = np.ones((1, 1)) if noise is None else noise[:, None]
    call = 1 / service.external_rate_limit_per_s
    each = drawn * seconds * ((1 - service.io_share) / fastest + service.io_share) + call
    able: Array = np.minimum(ks / each, service.external_rate_limit_per_s)
    return able


def pause_s(plant: Plant, name: str) -> float:
    """Return the least pause of an operator, in seconds, if its own parallelism changes."""
    if plant.pause_kind == "instances":
        return 0.0  # running instances continue
    twice = 0.0
    if plant.pause_kind == "savepoint":
        twice = 2 * sum(s.state_bytes for s in plant.services.values()) / plant.state_bytes_per_s
    return plant.pause_s + twice


def required_rates(topology: Topology, plant: Plant, rates: Array) -> dict[str, float]:
    """Return the records/s that reach each operator, given the rates of the sources in topological order."""
    asked, _ = _flows(topology, plant, np.asarray(rates, dtype=float)[None, None, :])
    return dict(zip(topology.order, asked[0, 0].tolist(), strict=True))


def peak_instances(topology: Topology, plant: Plant, peak: Array) -> float:
    """Return the number of instances that the peak rates of the sources need together."""
    return float(sum(fewest(topology, plant, n, rate) for n, rate in required_rates(topology, plant, peak).items()))


def fewest(topology: Topology, plant: Plant, name: str, rate: float) -> int:
    """Return the fewest instances of an operator that keep up with a rate; else those with the highest capacity."""
    o = topology[name]
    ks = np.arange(o.min_parallelism, o.max_parallelism + 1)
    able = abilities(plant, name, ks)[0]
    enough = able >= rate * (1 - 1e-9)
    return int(ks[enough.argmax()] if enough.any() else ks[able.argmax()])


def _flows(topology: Topology, plant: Plant, amounts: Array) -> tuple[Array, Array]:
    """Return the input of each operator, given that of the sources, and the source records per record of it."""
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
    """Return shares of lateness, each of which gives a bound: by instances at the peak, on average, and equal ones."""
    ways = []
    for level in (rates.max(axis=(0, 1)), rates.mean(axis=(0, 1))):
        ks = [fewest(topology, plant, n, rate) for n, rate in required_rates(topology, plant, level).items()]
        ways.append(tuple(k / sum(ks) for k in ks))
    even = (1 / len(topology.order),) * len(topology.order)
    return list(dict.fromkeys([*ways, even]))


def _must_be_costs(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None or name != "penalty":
            number(value, name, 0)


@lru_cache(maxsize=256)
def cached_oracle(*question: Any) -> Oracle:
    """Return a cached oracle; arguments: topology, plant, load, then numbers in the order of `oracle`."""
    topology, plant, workload, *numbers = question
    names = ("duration_s", "window_s", "tick_s", "target_latency_s", "penalty", "change_cost", "seed")
    return oracle(topology, plant, workload, **dict(zip(names, numbers, strict=True)))
