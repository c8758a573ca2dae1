"""Local search and tabu search from the greedy placement (Algorithms 4 and 5 of [nardelli], 5 repaired).

"The best one is chosen", says the thesis, and leaves open of what: `pick` has the readings. As printed, tabu search
could never leave a local optimum: here it first takes the best neighbour, better or not.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

from ..errors import PlacementError
from .answer import Answer
from .arrays import number, whole
from .costs import Costs
from .greedy import Task, first_fit
from .metrics import Ranges, Weights
from .problem import Array, Placement, Problem

MARGIN = 1e-12  # two losses nearer than this are equal
STRATEGIES, PICKS = ("co-locate", "swap", "move"), ("each", "all", "exhaust")
Step = tuple[str, Placement, float]  # what was done, what came of it, its loss


def local_search(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    penalised: bool = True,
    pick: str = "all",
    start: Placement | None = None,
    time_limit_s: float = math.inf,
) -> Answer:
    """Co-locate, swap, move: the best improvement there is, until there is none.

    `pick` "all" makes the best step of the three kinds; "each" one step of each kind and begins again; "exhaust" steps
    of one kind while they improve, then of the next.
    """
    if pick not in PICKS:
        raise PlacementError(f"pick = {pick!r}", expected=f"one of {', '.join(PICKS)}", fix="see local_search")
    task = Task(problem, weights, ranges, penalised=penalised)
    search = Search(task, time_limit_s, pick)
    x, steps = search.descend(first_fit(task) if start is None else problem.place(start))
    return task.answer(x, "local search", steps=search.told(steps))


def tabu_search(
    problem: Problem,
    weights: Weights,
    ranges: Ranges | None = None,
    *,
    tabu: int = 1000,
    patience: int = 1,
    time_limit_s: float = math.inf,
) -> Answer:
    """Kick the local optimum to its best neighbour that is not tabu, descend from there, and so on while it helps.

    `patience` is how many rounds without a better placement end the search; 1 is as printed.
    """
    for name, value in (("tabu", tabu), ("patience", patience)):
        whole(value, name, 1)
    task = Task(problem, weights, ranges)
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
    return task.answer(x, "tabu search", steps=search.told(steps), rounds=rounds)


class Search:
    """Descents and kicks on the compiled neighbourhoods of one task."""

    def __init__(self, task: Task, time_limit_s: float = math.inf, pick: str = "all"):
        from .kernels_neighbours import best_neighbour, cost  # compiled code is loaded when it is needed

        self._evaluate, self._best_neighbour = cost, best_neighbour
        self.pick, self.task, self.graph = pick, task, arrays(task.problem, task.costs)
        self.movable = np.ones(len(task.problem.application.operators), bool)
        self.movable[list(task.problem.pinned)] = False
        self.nodes = task.nodes.astype(np.int64)
        self.until = task.started + number(time_limit_s, "time_limit_s", infinite=True)

    @property
    def over(self) -> bool:
        return time.perf_counter() >= self.until

    def cost(self, x: Placement) -> float:
        return float(self._evaluate(x, *self.graph))

    def _best(self, x: Placement, strategy: int, limit: float, tabu: Array) -> Step | None:
        found, what, to = self._best_neighbour(x.copy(), strategy, self.nodes, self.movable, tabu, limit, *self.graph)
        if what < 0:
            return None
        y = x.copy()
        y[(x == what) & self.movable if strategy == 1 else what] = to
        return self._words(strategy, what, to), y, float(found)

    def descend(self, x: Placement, tabu: Array | None = None) -> tuple[Placement, list[Step]]:
        """Improve until nothing does, never entering a tabu placement; what was done on the way."""
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
        """The best neighbour of all three kinds that is not tabu, whatever it costs."""
        best = self._steepest(x, math.inf, tabu)
        return best and (f"kick: {best[0]}", best[1], best[2])

    def _steepest(self, x: Placement, limit: float, tabu: Array) -> Step | None:
        """The best neighbour of all three kinds that costs less than `limit`."""
        best = None
        for strategy in range(len(STRATEGIES)):
            if step := self._best(x, strategy, limit, tabu):
                best, limit = step, step[2]
        return best

    def _words(self, strategy: int, what: int, to: int) -> str:
        nodes, operators = self.task.problem.network.nodes, self.task.problem.application.operators
        thing = f"node {nodes[what]}" if strategy == 1 else operators[what]
        return f"{STRATEGIES[strategy]} {thing} to {nodes[to]}"

    def told(self, steps: list[Step]) -> tuple[tuple[str, float], ...]:
        """What was done, with the loss after each."""
        return tuple((words, found + self.task.costs.constant) for words, _, found in steps)


def arrays(problem: Problem, costs: Costs) -> tuple[Any, ...]:
    """What the compiled searches take: the objective, the graph, rates, bandwidths, capacities."""
    app, net = problem.application, problem.network
    into = np.argsort(app.ends[:, 1], kind="stable")
    into_at = np.searchsorted(app.ends[into, 1], np.arange(len(app.operators) + 1))
    tight = bool((net.bandwidth_per_s < app.rate_per_s.sum()).any())
    times, order = problem.times_s, np.array(app.order, np.int64)
    graph = (costs.node, costs.link, costs.kind, app.ends, costs.response, times, net.delay_s, order, into_at, into)
    return (*graph, app.rate_per_s, net.bandwidth_per_s, tight, app.demand, net.capacity)
