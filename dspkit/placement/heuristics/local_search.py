"""Local search and tabu search from the greedy placement (5.4, and Algorithms 4 and 5, of [nardelli]).

The neighbours of a placement, which compiled functions evaluate, are made by co-locating, swapping and moving
operators. The thesis says "the best one is chosen" without saying of which set: `pick` has the readings. Algorithm 5 is
repaired: as printed, tabu search could never leave a local optimum; here it first takes the best neighbour, even a
worse one.
"""

from __future__ import annotations

import math
import time

import numpy as np

from ...core import PlacementError
from ...core.jit import compiled, inlined
from ...core.typing import Array
from ...core.validation import number, whole
from ..arrays import TINY
from ..metrics import Ranges, Weights
from ..problem import Placement, Problem
from ..solution import Solution
from ..solvers.climb import ProblemArrays, problem_arrays, value
from .greedy import PinnedProblem, first_fit

_GAIN_MARGIN = 1e-12


@inlined
def _is_tabu(x: Array, tabu: Array) -> bool:
    for row in range(len(tabu)):
        same = True
        for i in range(len(x)):
            if tabu[row, i] != x[i]:
                same = False
                break
        if same:
            return True
    return False


@compiled
def cost(x: Array, arrays: ProblemArrays) -> float:
    """Return the loss of a placement without its constant."""
    return float(value(x, np.zeros(len(x)), arrays))


@compiled
def best_neighbour(  # noqa: C901  (compiled: three kinds of moves in one loop)
    x: Array, strategy: int, nodes: Array, movable: Array, tabu: Array, limit: float, arrays: ProblemArrays
) -> tuple[float, int, int]:
    """Return the best neighbour that costs less than `limit`, the first of equal ones: (cost, what, to).

    Strategy 0 co-locates an operator with a neighbour, 1 moves all movable operators of a node to an empty one, 2 moves
    an operator. `what` is the index of the operator (the node with strategy 1), -1 without such a neighbour; `to` is
    the index of the new node. x is restored.
    """
    kind, ends, demand, n = arrays.kind, arrays.ends, arrays.demand, len(x)
    ready, left = np.zeros(n), arrays.capacity.copy()
    hosts, group = np.zeros(len(left), np.int64), np.zeros(n, np.int64)
    for i in range(n):
        left[x[i]] -= demand[i]
        hosts[x[i]] += 1
    best, what, to = limit, -1, -1
    things = 2 * len(kind) if strategy == 0 else len(left) if strategy == 1 else n
    for thing in range(things):
        u, size, asked = 0, 0, 0.0
        if strategy == 1:
            u = thing
            for i in range(n):
                if x[i] == u and movable[i]:
                    group[size] = i
                    size += 1
                    asked += demand[i]
        else:
            i = ends[thing // 2, thing % 2] if strategy == 0 else thing
            u = x[i]
            if movable[i]:
                group[0] = i
                size, asked = 1, demand[i]
        if size == 0:
            continue
        for place in range(1 if strategy == 0 else len(nodes)):
            v = x[ends[thing // 2, 1 - thing % 2]] if strategy == 0 else nodes[place]
            if u == v or left[v] < asked - TINY or (strategy == 1 and hosts[v] > 0):
                continue
            for k in range(size):
                x[group[k]] = v
            found = value(x, ready, arrays)
            if found < best - _GAIN_MARGIN and not _is_tabu(x, tabu):
                best, to = found, v
                what = u if strategy == 1 else group[0]
            for k in range(size):
                x[group[k]] = u
    return best, what, to


MARGIN = 1e-12  # two losses nearer than this are equal
STRATEGIES, PICKS = ("co-locate", "swap", "move"), ("each", "all", "exhaust")
Step = tuple[str, Placement, float]  # description, resulting placement, its loss


def local_search(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    penalised: bool = True,
    pick: str = "all",
    start: Placement | None = None,
    time_limit_s: float = math.inf,
) -> Solution:
    """Co-locate, swap and move operators while that improves the placement.

    Parameters
    ----------
    problem, weights, ranges
        As of `placement.solve`, without replication.
    penalised
        Whether the initial greedy placement orders nodes by their penalty.
    pick
        "all": the best step of the three kinds; "each": one step of each kind in turn; "exhaust": steps of one kind
        while they improve, then of the next.
    start
        Placement to start from, instead of the greedy one.
    time_limit_s
        Seconds after which the search stops.

    Examples
    --------
    >>> from dspkit import placement
    >>> local_search(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    if pick not in PICKS:
        raise PlacementError(f"pick = {pick!r}", expected=f"one of {', '.join(PICKS)}", fix="see local_search")
    task = PinnedProblem(problem, weights, ranges, penalised=penalised)
    search = Search(task, time_limit_s, pick)
    x, steps = search.descend(first_fit(task) if start is None else problem.place(start))
    return task.solution(x, "local_search", steps=search.described(steps))


def tabu_search(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    tabu: int = 1000,
    patience: int = 1,
    time_limit_s: float = math.inf,
) -> Solution:
    """Descend repeatedly, each time from the best neighbour of the local optimum that is not tabu.

    Parameters
    ----------
    problem, weights, ranges
        As of `placement.solve`, without replication.
    tabu
        Number of placements that are remembered as tabu.
    patience
        Number of rounds without a better placement that end the search; 1 is as printed.
    time_limit_s
        Seconds after which the search stops.

    Examples
    --------
    >>> from dspkit import placement
    >>> tabu_search(placement.example("B"), Weights(1, 0, 0)).status
    'feasible'
    """
    for name, given in (("tabu", tabu), ("patience", patience)):
        whole(given, name, 1, error=PlacementError)
    task = PinnedProblem(problem, weights, ranges)
    search = Search(task, time_limit_s)
    first, steps = search.descend(first_fit(task))
    x, known, best, least = first, [first], None, math.inf
    rounds = left = 0
    while left < patience and not search.over:
        rounds += 1
        forbidden = np.array(known[-tabu:])
        kick = search.kick(x, forbidden)
        if kick is None:
            break
        descended, more = search.descend(kick[1], forbidden)
        steps += [kick, *more]
        if patience > 1:
            known.append(kick[1])
        x, found = descended, search.cost(descended)
        if not any((x == t).all() for t in known[-tabu:]):
            if found < least - MARGIN:
                best, least, left = x, found, -1
                known.append(x)
            elif found <= least + MARGIN:
                known.append(x)
        left += 1
    x = first if best is None or search.cost(first) < least else best
    return task.solution(x, "tabu_search", steps=search.described(steps), rounds=rounds)


class Search:
    """Descents and kicks on the compiled neighbourhoods of one task."""

    def __init__(self, task: PinnedProblem, time_limit_s: float = math.inf, pick: str = "all"):
        self._evaluate, self._best_neighbour = cost, best_neighbour
        self.pick, self.task, self.arrays = pick, task, problem_arrays(task.problem, task.costs)
        self.movable = np.ones(len(task.problem.application.operators), bool)
        self.movable[list(task.problem.pinned)] = False
        self.nodes = task.nodes.astype(np.int64)
        self.until = task.started + number(time_limit_s, "time_limit_s", 0, infinite=True, error=PlacementError)

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self.until

    def cost(self, x: Placement) -> float:
        return float(self._evaluate(x, self.arrays))

    def _best(self, x: Placement, strategy: int, limit: float, tabu: Array) -> Step | None:
        found, what, to = self._best_neighbour(x.copy(), strategy, self.nodes, self.movable, tabu, limit, self.arrays)
        if what < 0:
            return None
        y = x.copy()
        y[(x == what) & self.movable if strategy == 1 else what] = to
        return self._words(strategy, what, to), y, float(found)

    def descend(self, x: Placement, tabu: Array | None = None) -> tuple[Placement, list[Step]]:
        """Return the local optimum below x, and the steps to it; tabu placements are not entered."""
        forbidden = np.empty((0, len(x)), np.int64) if tabu is None else tabu
        steps: list[Step] = []
        least = self.cost(x)
        while True:
            before = least
            if self.pick == "all":
                if step := self._steepest(x, least, forbidden):
                    steps.append(step)
                    x, least = step[1], step[2]
            else:
                for strategy in range(len(STRATEGIES)):
                    while (step := self._best(x, strategy, least, forbidden)) and not self.over:
                        steps.append(step)
                        x, least = step[1], step[2]
                        if self.pick == "each":
                            break
            if not least < before or self.over:
                return x, steps

    def kick(self, x: Placement, tabu: Array) -> Step | None:
        """Return the best neighbour of all three kinds that is not tabu, even if it is worse."""
        best = self._steepest(x, math.inf, tabu)
        return best and (f"kick: {best[0]}", best[1], best[2])

    def _steepest(self, x: Placement, limit: float, tabu: Array) -> Step | None:
        """Return the best neighbour of all three kinds that costs less than `limit`."""
        best = None
        for strategy in range(len(STRATEGIES)):
            if step := self._best(x, strategy, limit, tabu):
                best, limit = step, step[2]
        return best

    def _words(self, strategy: int, what: int, to: int) -> str:
        nodes, operators = self.task.problem.network.nodes, self.task.problem.application.operators
        thing = f"node {nodes[what]}" if strategy == 1 else operators[what]
        return f"{STRATEGIES[strategy]} {thing} to {nodes[to]}"

    def described(self, steps: list[Step]) -> tuple[tuple[str, float], ...]:
        """Return the steps in words, with the loss after each."""
        return tuple((words, found + self.task.costs.constant) for words, _, found in steps)
