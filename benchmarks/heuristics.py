"""Time and losses of placement heuristics beside the optimum and rivals, on the thesis's problems."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks import Claim, side_by_side

SEEDS = (1, 2, 3)
SIZES = (36, 64, 100)


def local_search_degradation_percent() -> Claim:
    """Mean degradation of local search over three applications, three sizes, four weightings, three networks.

    With one range for each application, as the thesis has it; the detail has it with the ranges of each problem too.
    """
    detail = _degradations("local_search")
    return Claim(detail["mean"], "%", target=1.4, better="lower", detail=detail)


def hierarchical_degradation_percent() -> Claim:
    """The same of hierarchical ODP."""
    detail = _degradations("hierarchical")
    return Claim(detail["mean"], "%", target=10, better="lower", detail=detail)


def local_search_over_python() -> Claim:
    """The speed-up of local search over the same search in plain Python with networkx's longest path."""
    from dspkit import placement

    problem, weights, ranges = _problem("replicated", 36, 1)
    search = placement.heuristic("local_search")
    plain = _PlainSearch(problem, weights, ranges)
    assert abs(search(problem, weights, ranges).loss - plain.run()) < 1e-9  # both searches are the same
    times = side_by_side({"ours": lambda: search(problem, weights, ranges), "plain": plain.run}, repeats=1)
    return Claim(times["plain"] / times["ours"], "x", target=20, detail=times)


def greedy_ms() -> Claim:
    """Milliseconds of greedy first-fit on 100 nodes, the paper's 1 ms."""
    from dspkit import placement

    problem, weights, ranges = _problem("replicated", 100, 1)
    greedy = placement.heuristic("greedy")
    times = side_by_side({"greedy": lambda: greedy(problem, weights, ranges)}, repeats=15)
    return Claim(1e3 * times["greedy"], "ms", target=5, better="lower", detail=times)


def relaxation_of_equal_operators_as_one() -> Claim:
    """Time of RES-ODP's relaxation, replicated application on 36 nodes: equal operators separate over merged."""
    from dspkit.placement.heuristics.decomposition import shared_relaxation
    from dspkit.placement.objective import weighted_costs
    from dspkit.placement.solvers.integer_program import relaxation

    problem, weights, ranges = _problem("replicated", 36, 1)
    costs = weighted_costs(problem, weights, ranges)
    assert abs(relaxation(problem, costs)[1] - shared_relaxation(problem, costs)[1]) < 1e-6
    rivals = {"as one": lambda: shared_relaxation(problem, costs), "all": lambda: relaxation(problem, costs)}
    times = side_by_side(rivals, repeats=1)
    return Claim(times["all"] / times["as one"], "x", target=10, detail=times)


def lesson_ms() -> Claim:
    """Milliseconds from a new weight to the plot in notebook 08: the optimum of 11 operators on 25 nodes."""
    from dataclasses import replace

    from dspkit.ui import lessons

    lesson = lessons.Placement()
    moves = iter(range(1, 10_000))
    times = side_by_side({"plot": lambda: replace(lesson, response=next(moves) / 10_000 + 0.3).plot()}, repeats=9)
    return Claim(1e3 * times["plot"], "ms", target=100, better="lower", detail=times)


def _problem(shape: str, nodes: int, seed: int) -> tuple[Any, Any, Any]:
    from dspkit import placement

    problem = placement.scenario(shape, nodes, seed=seed)
    return problem, placement.Weights(1 / 3, 1 / 3, 1 / 3), placement.find_ranges(problem, time_limit_s=60)


def _degradations(method: str) -> dict[str, float]:
    from reproduction.placement.study import cells

    frame = cells(SIZES, SEEDS, methods=(method,), time_limit_s=60)
    means = frame.groupby("ranges").degradation.mean()
    return {"mean": float(means["application"]), "mean with ranges of each problem": float(means["problem"]),
            "worst": float(frame.degradation.max()), "problems": len(frame),
            "proven": int((frame.gap <= 1e-6).sum())}  # fmt: skip


class _PlainSearch:
    """Local search as in a prototype: neighbours are copied and evaluated one by one."""

    def __init__(self, problem: Any, weights: Any, ranges: Any):
        from dspkit.placement.heuristics.greedy import PinnedProblem, first_fit

        self.problem, self.task = problem, PinnedProblem(problem, weights, ranges)
        self.start = first_fit(self.task)
        self.app, self.net = problem.application, problem.network
        self.free = [i for i in range(len(self.start)) if i not in problem.pinned]

    def loss(self, x: list[int]) -> float:
        from dspkit.placement import loss, metrics

        return loss(metrics(self.problem, x), self.task.weights, self.task.ranges)

    def fits(self, x: list[int]) -> bool:
        asked = [0.0] * len(self.net.nodes)
        for i, u in enumerate(x):
            asked[u] += self.app.demand[i]
        return all(a <= c + 1e-9 for a, c in zip(asked, self.net.capacity, strict=True))

    def neighbours(self, x: list[int], strategy: int) -> Iterator[list[int]]:
        return (self._colocated, self._swapped, self._moved)[strategy](x)

    def _colocated(self, x: list[int]) -> Iterator[list[int]]:
        for a, b in self.app.ends.tolist():
            for i, j in ((a, b), (b, a)):
                if i in self.free and x[i] != x[j]:
                    yield [*x[:i], x[j], *x[i + 1 :]]

    def _swapped(self, x: list[int]) -> Iterator[list[int]]:
        nodes = self.task.nodes.tolist()
        for u in range(len(nodes)):
            if any(x[i] == u for i in self.free):
                for v in nodes:
                    if v not in x:
                        yield [v if x[i] == u and i in self.free else x[i] for i in range(len(x))]

    def _moved(self, x: list[int]) -> Iterator[list[int]]:
        for i in self.free:
            for v in self.task.nodes.tolist():
                if v != x[i]:
                    yield [*x[:i], v, *x[i + 1 :]]

    def run(self) -> float:
        x = [int(u) for u in self.start]
        least = self.loss(x)
        while True:
            before = least
            for strategy in range(3):
                best = None
                for y in self.neighbours(x, strategy):
                    if self.fits(y) and (found := self.loss(y)) < least - 1e-12:
                        best, least = y, found
                x = best or x
            if not least < before:
                return least


def local_search_over_optimum() -> Claim:
    """Seconds of our exact solver over those of local search: median of problems of 36 nodes (paper: mean 216)."""
    from reproduction.placement.study import cells

    frame = cells((36,), SEEDS, methods=("local_search",), time_limit_s=60)
    ratios = sorted(frame.speed_up)
    detail = {"least": ratios[0], "greatest": ratios[-1]}
    return Claim(statistics.median(ratios), "x", target=10, detail=detail)
