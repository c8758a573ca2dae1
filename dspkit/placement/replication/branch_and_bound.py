"""The exact search for deployments with replicas: short searches, a local search, and branch and bound as the proof.

The compiled branch and bound assigns multisets of nodes to operators one by one, downstream. `completion_bound.py`
prepares its arrays, and bounds the operators that are still open.
"""

from __future__ import annotations

import math
import time
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...core import InfeasibleError, PlacementError
from ...core.jit import allocation_free
from ...core.typing import Array
from ..metrics import Limits, Objective
from ..problem import Application, Network, Problem
from .completion_bound import (
    Branching,
    CompletionBound,
    NetworkArrays,
    OperatorArrays,
    OptionArrays,
    Streams,
    Ways,
    new_nodes,
    onward,
    rest,
)
from .options import Options, neighbours, options
from .problem import Replicas, Replication
from .program import Change


class Goal(NamedTuple):
    """Weights of the loss, limits, and the share of the loss that a better deployment has to save."""

    response: float
    downtime: float
    dearer: float  # what each second above the limit costs in the third bound (Lagrange)
    response_s: float
    price: float
    gap: float


class Prefix(NamedTuple):
    """The operators placed so far; row k holds what is known before the operator of level k is placed."""

    chosen: Array  # [level] option
    done: Array  # [level, :] extra, downtime, response at sinks, price, loss by links and nodes
    reach: Array  # [level, u] seconds after which all results of the operator of this level are on u
    free: Array  # [level, u] capacity
    used: Array  # [level, u] whether a replica is on u
    pairs: Array  # [level, u, v] whether a stream takes the link
    load: Array  # [level, u, v] records/s on the link
    share: Array  # [level, u] share of the operator's records that u processes


class ReplicaTree(NamedTuple):
    """The branches that are open, and the best deployment."""

    state: Array  # 0 level, 1 whether it is to be looked at, 2 branches so far
    child: Array  # [level, :] options by their bound
    child_bound: Array
    children: Array  # [level] their number
    position: Array  # [level] children looked at
    best_rows: Array
    best_loss: Array


class Scratch(NamedTuple):
    """Workspace of each branch; b is a bound: of the loss, of the response time, of the loss with a price
    on each second above the limit."""

    room: Array
    left_over: Array  # capacity of each node with an option placed
    arrive: Array
    stay: Array  # [b, ...] see CompletionBound, as the next three
    away: Array
    here: Array
    best: Array
    no_extra: Array  # zeros
    no_toll: Array  # zeros
    no_part: Array  # zeros
    weights: Array  # [b] of a second
    bars: Array  # [b] that no bound may exceed
    others: Array  # [b] of the paths through operators that are placed
    keys: Array  # of a merge, as the next
    values: Array


@allocation_free
def _sort(keys: Array, values: Array, count: int, spare_keys: Array, spare_values: Array) -> None:
    """Sort the first `count` keys, and the values with them, in place and stably: merges of ever longer runs.

    numpy's sort makes arrays, for which the whole search would have to count references.
    """
    run = 1
    while run < count:
        for start in range(0, count - run, 2 * run):
            middle, end = start + run, min(start + 2 * run, count)
            if keys[middle - 1] <= keys[middle]:
                continue
            for k in range(start, middle):
                spare_keys[k], spare_values[k] = keys[k], values[k]
            left, right, at = start, middle, start
            while left < middle:
                if right < end and keys[right] < spare_keys[left]:
                    keys[at], values[at] = keys[right], values[right]
                    right += 1
                else:
                    keys[at], values[at] = spare_keys[left], spare_values[left]
                    left += 1
                at += 1
        run *= 2


@allocation_free
def branch_and_bound(  # noqa: C901, PLR0915  (compiled: one loop over branches, whose parts share their arrays)
    steps: int,
    width: int,
    options: OptionArrays,
    graph: Streams,
    operators: OperatorArrays,
    network: NetworkArrays,
    goal: Goal,
    prefix: Prefix,
    tree: ReplicaTree,
    scratch: Scratch,
) -> int:
    """Look at up to `steps` more branches, at most `width` of each; 1 once there are none, else 0.

    Three bounds count: of the loss; below a limit of the response time, that no way takes longer; and of the loss if
    each second above the limit costs `dearer` more (Lagrange).
    """
    first, where, counts, support = options.first, options.where, options.counts, options.support
    size, seconds, price, moved, bound = options.size, options.seconds, options.price, options.moved, options.bound
    tails, pred, heads, succ, via = graph.tails, graph.pred, graph.heads, graph.succ, graph.out_streams
    needs, left_over = network.needs, scratch.left_over
    demand, unit, extra, scale = operators.demand, operators.unit, operators.extra, operators.scale
    cheapest, delay, toll_ahead = operators.cheapest, network.delay, network.toll_ahead
    tolled, linked, narrow = network.tolled, network.linked, network.narrow
    weight, idle, dearer, most_s, most_price = (
        goal.response,
        goal.downtime,
        goal.dearer,
        goal.response_s,
        goal.price,
    )
    done, reach, free, chosen = prefix.done, prefix.reach, prefix.free, prefix.chosen
    state, child, child_bound, children = tree.state, tree.child, tree.child_bound, tree.children
    position, best_rows, best_loss = tree.position, tree.best_rows, tree.best_loss
    room, arrive, stay, away, here, best = (
        scratch.room,
        scratch.arrive,
        scratch.stay,
        scratch.away,
        scratch.here,
        scratch.best,
    )
    no_extra, no_toll, no_part, ways, bars, others = (
        scratch.no_extra,
        scratch.no_toll,
        scratch.no_part,
        scratch.weights,
        scratch.bars,
        scratch.others,
    )
    levels, nodes = len(tails) - 1, delay.shape[0]
    ways[0], ways[1], ways[2] = weight, 1.0, weight + dearer
    kinds = 1 if most_s == np.inf else 3 if dearer > 0.0 else 2
    for _ in range(steps):
        level = state[0]
        bar = best_loss[0] - max(goal.gap, 1e-9) * abs(best_loss[0]) - 1e-12 if best_loss[0] < np.inf else np.inf
        bars[0], bars[1], bars[2] = bar, most_s, bar + dearer * most_s
        if state[1] == 0:  # next child
            while level >= 0:
                at = position[level]
                if at < min(children[level], width) and child_bound[level, at] < bar:
                    break
                level -= 1
            if level < 0:
                return 1
            position[level] += 1
            o = child[level, position[level] - 1]
            _place(level, o, options, graph, operators, network, prefix)
            level += 1
            state[0] = level
        state[1] = 0
        state[2] += 1
        if level == levels:
            loss = weight * done[level, 2] + done[level, 0] + idle * done[level, 1] + done[level, 4]
            if loss < best_loss[0]:
                best_loss[0] = loss
                for k in range(levels):
                    best_rows[k] = chosen[k]
            state[0] = level - 1
            continue
        children[level] = 0
        position[level] = 0
        for v in range(nodes):
            room[v] = min(stay.shape[3] - 1, int(free[level, v] * scale + 1e-6))
            left_over[v] = free[level, v]
        so_far = done[level, 0] + done[level, 4] + idle * done[level, 1]
        ahead = 0.0
        if linked:
            ahead = new_nodes(level, needs[level], free[level], prefix.used[level], where[0], 0, network)
        hopeless = False
        for b in range(kinds):
            if b == 0 and weight == 0.0 and not tolled:
                continue  # no cost ahead: its tables are all 0
            onward(
                level,
                room,
                ways[b],
                no_extra if b == 1 else extra,
                no_toll if b == 1 else toll_ahead,
                no_part if b == 1 else network.part_out,
                no_part if b == 1 else network.part_in,
                graph,
                operators,
                delay,
                network.nearest,
                CompletionBound(stay[b], away[b], here[b], best[b]),
            )
            others[b] = ways[b] * done[level, 2]
            for p in range(level):
                for at in range(heads[p], heads[p + 1]):
                    s, least = succ[at], np.inf
                    if s > level:
                        for u in range(nodes):
                            if reach[p, u] < np.inf:
                                least = min(least, ways[b] * reach[p, u] + best[b, s, u])
                        others[b] = max(others[b], least)
            hopeless = hopeless or others[b] + (0.0 if b == 1 else so_far + ahead) > bars[b]
        if hopeless:
            state[0] = level - 1
            continue
        for u in range(nodes):
            arrive[u] = 0.0
            for at in range(tails[level], tails[level + 1]):
                arrive[u] = max(arrive[u], reach[pred[at], u])
        ended = heads[level] == heads[level + 1]
        found = 0
        for o in range(first[level], first[level + 1]):
            if bound[o] >= bar:
                break
            fits, came = True, 0.0
            for k in range(support[o]):
                u = where[o, k]
                if counts[o, k] * demand[level] > free[level, u] + 1e-12:
                    fits = False
                    break
                came = max(came, arrive[u])
            if not fits:
                continue
            ready = came + seconds[o]
            if not ready < np.inf or ready > most_s:
                continue
            n = size[o]
            more = so_far + extra[level, n] + idle * max(0.0, moved[o] - done[level, 1])
            if more + max(others[0], weight * ready) >= bar:
                continue
            paid = done[level, 3] + price[o] + cheapest[level + 1]
            if tolled or linked or narrow:
                loss_here, fare_here, passes = _links(level, o, options, graph, network, prefix, narrow)
                if not passes:
                    continue
                more += loss_here
                paid += fare_here
                if linked:
                    for k in range(support[o]):
                        left_over[where[o, k]] -= counts[o, k] * demand[level]
                    more += new_nodes(
                        level + 1, needs[level + 1], left_over, prefix.used[level], where[o], support[o], network
                    )
                    for k in range(support[o]):
                        left_over[where[o, k]] = free[level, where[o, k]]
            if paid > most_price:
                continue
            left = room[where[o, 0]] - counts[o, 0] * unit[level] if support[o] == 1 else 0
            low, hopeless = bound[o], False
            for b in range(kinds):
                after = (
                    0.0
                    if ended
                    else rest(level, where[o], counts[o], support[o], left, ways[b], Ways(
                        heads, succ, via, delay, no_toll if b == 1 else toll_ahead,
                        no_part if b == 1 else network.part_out, CompletionBound(stay[b], away[b], here[b], best[b]),
                    ))
                )  # fmt: skip
                least = max(others[b], ways[b] * ready + after) + (0.0 if b == 1 else more)
                if least > bars[b]:
                    hopeless = True
                    break
                if b != 1:
                    low = max(low, least - (dearer * most_s if b == 2 else 0.0))
            if hopeless or low >= bar:
                continue
            child[level, found], child_bound[level, found] = o, low
            found += 1
        if found == 0:
            state[0] = level - 1
            continue
        _sort(child_bound[level], child[level], found, scratch.keys, scratch.values)
        children[level] = found
    return 0


@allocation_free
def _links(  # noqa: C901  (compiled: sums over nested loops)
    level: int,
    o: int,
    options: OptionArrays,
    graph: Streams,
    network: NetworkArrays,
    prefix: Prefix,
    narrow: bool,
) -> tuple[float, float, bool]:
    """Return loss and price that an option adds by links and new nodes, and whether the bandwidth suffices.

    The bandwidth is checked only if `narrow`.
    """
    where, counts, support, size = options.where, options.counts, options.support, options.size
    tails, pred, come = graph.tails, graph.pred, graph.into_streams
    used, pairs, load, share = prefix.used, prefix.pairs, prefix.load, prefix.share
    toll, fare, rate, linked = network.toll, network.fare, network.rate, network.linked
    nodes, loss, paid = len(network.delay), 0.0, 0.0
    if linked:
        for k in range(support[o]):
            if used[level, where[o, k]] == 0:
                loss += network.node_loss[where[o, k]]
    for at in range(tails[level], tails[level + 1]):
        p, e = pred[at], come[at]
        for k in range(support[o]):
            v = where[o, k]
            mine = (1.0 if network.support_only else counts[o, k]) / size[o]
            for u in range(nodes):
                part = share[p, u] * mine
                if part > 0.0:
                    loss += part * toll[e, u, v]
                    paid += part * fare[e, u, v]
                    if narrow and u != v:
                        sent = load[level, u, v] + part * rate[e]
                        for before in range(tails[level], at):  # two streams into the same operator share the link
                            sent += share[pred[before], u] * mine * rate[come[before]]
                        if sent > network.width_per_s[u, v]:
                            return loss, paid, False
                    if linked and pairs[level, u, v] == 0:
                        new = True
                        for before in range(tails[level], at):
                            if share[pred[before], u] > 0.0:
                                new = False
                        if new:
                            loss += network.link_loss[u, v]
    return loss, paid, True


@allocation_free
def _place(  # noqa: C901  (compiled: sums over nested loops)
    level: int,
    o: int,
    options: OptionArrays,
    graph: Streams,
    operators: OperatorArrays,
    network: NetworkArrays,
    prefix: Prefix,
) -> None:
    """Descend one level by option o."""
    where, counts, support, size = options.where, options.counts, options.support, options.size
    tails, pred, come, heads = graph.tails, graph.pred, graph.into_streams, graph.heads
    done, reach, free, used = prefix.done, prefix.reach, prefix.free, prefix.used
    pairs, load, share = prefix.pairs, prefix.load, prefix.share
    delay, nodes = network.delay, len(network.delay)
    prefix.chosen[level] = o
    for k in range(5):
        done[level + 1, k] = done[level, k]
    came = 0.0
    for k in range(support[o]):
        for at in range(tails[level], tails[level + 1]):
            came = max(came, reach[pred[at], where[o, k]])
    ready = came + options.seconds[o]
    for u in range(nodes):
        far = 0.0
        for k in range(support[o]):
            far = max(far, delay[where[o, k], u])
        reach[level, u] = ready + far
        free[level + 1, u] = free[level, u]
        used[level + 1, u] = used[level, u]
    if heads[level] == heads[level + 1]:
        done[level + 1, 2] = max(done[level, 2], ready)
    done[level + 1, 0] += operators.extra[level, size[o]]
    done[level + 1, 1] = max(done[level, 1], options.moved[o])
    done[level + 1, 3] += options.price[o]
    for k in range(support[o]):
        free[level + 1, where[o, k]] -= counts[o, k] * operators.demand[level]
    if not (network.tolled or network.linked or network.narrow):
        return
    loss, paid, _ = _links(level, o, options, graph, network, prefix, False)
    done[level + 1, 4] += loss
    done[level + 1, 3] += paid
    for u in range(nodes):
        share[level, u] = 0.0
        for v in range(nodes):
            pairs[level + 1, u, v] = pairs[level, u, v]
            load[level + 1, u, v] = load[level, u, v]
    for k in range(support[o]):
        v = where[o, k]
        used[level + 1, v] = 1
        mine = (1.0 if network.support_only else counts[o, k]) / size[o]
        share[level, v] = mine
        for at in range(tails[level], tails[level + 1]):
            for u in range(nodes):
                part = share[pred[at], u] * mine
                if part > 0.0:
                    pairs[level + 1, u, v] = 1
                    load[level + 1, u, v] += part * network.rate[come[at]]


STEPS = 400  # branches between two readings of the clock
WIDTHS = (1, 2, 3, 5, 8)  # children per branch in the short searches for a first deployment
SHORT = 2_000  # branches of each short search
LARGE = 300  # options of an operator above which a local search precedes
STEPS_FEW, STEPS_NEAR = (
    40_000,
    10_000,
)  # branches of the searches with few replicas, and of each step of the local search


class _Search:
    """A search over the options of `made` that can be continued."""

    def __init__(self, made: Branching, best: float):
        self.made = made
        levels, nodes = made.levels, made.nodes
        shape = (levels, nodes, made.units)
        self.many = int(np.diff(made.first).max())
        done, free = np.zeros((levels + 1, 5)), np.zeros((levels + 1, nodes))
        done[0, 0], free[0] = made.constant, made.free0
        wide = (levels + 1, nodes, nodes) if made.tolled or made.linked or made.narrow else (levels + 1, 1, 1)
        prefix = Prefix(
            np.zeros(levels, np.int64),
            done,
            np.zeros((levels, nodes)),
            free,
            np.zeros((levels + 1, nodes), np.int64),
            np.zeros(wide, np.int64),
            np.zeros(wide),
            np.zeros((levels, nodes)),
        )
        self.tree = ReplicaTree(
            np.array([0, 1, 0], np.int64),
            np.zeros((levels, self.many), np.int64),
            np.zeros((levels, self.many)),
            np.zeros(levels, np.int64),
            np.zeros(levels, np.int64),
            np.full(levels, -1, np.int64),
            np.array([best]),
        )
        scratch = Scratch(
            np.zeros(nodes, np.int64),
            np.zeros(nodes),
            np.zeros(nodes),
            np.zeros((3, *shape)),
            np.zeros((3, levels, 2 * nodes)),
            np.zeros((3, levels, nodes)),
            np.zeros((3, levels, nodes)),
            np.zeros_like(made.extra),
            np.zeros_like(made.toll),
            np.zeros_like(made.part_out),
            np.zeros(3),
            np.zeros(3),
            np.zeros(3),
            np.zeros(self.many),
            np.zeros(self.many, np.int64),
        )
        limits, objective = made.limits, made.objective
        self.goal = Goal(
            objective.response,
            objective.downtime,
            made.dearer,
            limits.response_s * (1 + 1e-9),
            limits.cost * (1 + 1e-9) + 1e-9,
            0.0,
        )
        self.arrays = (made.option_arrays(made.bound), made.graph, made.operator_arrays, made.network_arrays)
        self.work = (prefix, self.tree, scratch)

    def resume(self, deadline: float, *, width: int = 0, most: float = math.inf, gap: float = 0.0) -> bool:
        """Continue the search; return True once it is complete, False at the limit of time or branches."""
        goal = self.goal._replace(gap=gap)
        while self.tree.state[2] < most:
            if branch_and_bound(int(min(STEPS, most)), width or self.many, *self.arrays, goal, *self.work):
                return True
            if time.perf_counter() > deadline:
                break
        return False

    def again(self) -> None:
        """Restart the search; the best deployment so far is kept."""
        self.tree.state[:] = 0, 1, 0

    @property
    def found(self) -> Replicas | None:
        """The best deployment so far."""
        if self.tree.best_rows[0] < 0:
            return None
        made = np.zeros((self.made.levels, self.made.nodes), np.int64)
        made[self.made.order] = self.made.rows[self.tree.best_rows]
        return made

    @property
    def open(self) -> float:
        """The least bound of the branches that were not searched."""
        tree = self.tree
        level, look = int(tree.state[0]), int(tree.state[1])
        left = [math.inf]
        for k in range(level + 1 - look):
            at = tree.position[k] - (1 if look and k == level - 1 else 0)
            if at < tree.children[k]:
                left.append(float(tree.child_bound[k, at]))
        return min(left)


@lru_cache(maxsize=1)
def _compile() -> None:
    """Compile the search, which would otherwise use up the limit of time of its first problem in a process."""
    app, network = Application(("a", "b"), (("a", "b"),)), Network(("u", "v"), 0.01, 1.0)
    tiny = options(Problem(app, network, replication=Replication()))
    made = Branching(tiny, Objective(response=1.0), Limits(), None)
    made.bound_options()
    _Search(made, math.inf).resume(math.inf)


def branch_replicas(
    found: Options,
    objective: Objective,
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    *,
    change: Change | None = None,
    start: tuple[Replicas, float] | None = None,
    time_limit_s: float = math.inf,
    gap: float = 0.0,
    branches: float = math.inf,
) -> tuple[Replicas, float, dict[str, Any]]:
    """Return the best deployment, a lower bound, and statistics; `start` is a feasible deployment and its loss."""
    _compile()
    deadline = time.perf_counter() + time_limit_s
    made = Branching(found, objective, limits, change)
    made.bound_options()
    search = _Search(made, math.inf if start is None else start[1])
    for width in WIDTHS:
        if width < search.many and time.perf_counter() < deadline:
            search.again()
            search.resume(deadline, width=width, most=SHORT, gap=gap)
    best, least = start if start is not None else (None, math.inf)
    if search.found is not None:
        best, least = search.found, float(search.tree.best_loss[0])
    if best is not None and search.many > LARGE:
        best, least = climb(found, objective, limits, change, best, least, deadline, branches)
        if least < search.tree.best_loss[0]:
            search.tree.best_loss[0], search.tree.best_rows[:] = least, -1
    search.again()
    ended = time.perf_counter() < deadline and search.resume(deadline, most=branches, gap=gap)
    if search.found is not None:
        best, least = search.found, float(search.tree.best_loss[0])
    if best is None:
        if not ended:
            raise PlacementError("no deployment in time", expected="one within the limits", fix="give it longer")
        raise InfeasibleError(
            "a problem without any feasible deployment", expected="room for all operators", fix="add capacity or links"
        )
    bound = least - max(gap, 1e-9) * abs(least)
    if not ended:
        bound = min(bound, max(made.floor, search.open if search.tree.state[2] else -math.inf))
    return best, bound, {"branches": int(search.tree.state[2]), "options": int(made.first[-1]), "floor": made.floor}


def climb(
    found: Options,
    objective: Objective,
    limits: Limits,
    change: Change | None,
    best: Replicas,
    least: float,
    deadline: float,
    branches: float = math.inf,
) -> tuple[Replicas, float]:
    """Return a better deployment: among those with few replicas, then more; then among the best one's neighbours."""

    def among(keep: list[Array], most: int) -> bool:
        nonlocal best, least
        near, changed = found.only(keep), None if change is None else change.only(keep)
        try:
            made = Branching(near, objective, limits, changed)
        except InfeasibleError:  # none of these within the limit of downtime
            return False
        made.bound_options()
        search = _Search(made, least)
        search.resume(deadline, most=min(most, branches))
        better = search.found is not None and search.tree.best_loss[0] < least - 1e-9 * abs(least)
        if better and search.found is not None:
            best, least = search.found, float(search.tree.best_loss[0])
        return better

    fewest = [int(rows.sum(axis=1).min()) for rows in found.counts]
    for more in range(1, max(int(rows.sum(axis=1).max()) for rows in found.counts) - 1):
        if time.perf_counter() < deadline:
            among([rows.sum(axis=1) <= few + more for rows, few in zip(found.counts, fewest, strict=True)], STEPS_FEW)
    while time.perf_counter() < deadline:
        if not among([neighbours(rows, best[i]) for i, rows in enumerate(found.counts)], STEPS_NEAR):
            break
    return best, least
