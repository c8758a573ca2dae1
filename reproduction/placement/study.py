"""Table 5.2 of Nardelli's thesis: `python -m reproduction.placement.study` prints it beside ours.

Every heuristic against the optimum, proven by our own solver, on the thesis's three applications, five sizes of network
and four weightings; ranges are computed exactly for each problem. Its speed-ups are against CPLEX; ours are against our
own exact solver, which is itself faster than most of the heuristics that solve smaller programs by it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dspkit import placement
from dspkit.placement import HEURISTICS, Problem, Ranges, Solution, Weights

if TYPE_CHECKING:
    import pandas as pd


SIZES, SHAPES = (36, 49, 64, 81, 100), ("diamond", "sequential", "replicated")
WEIGHTS: Mapping[str, Weights] = {
    "w_a": Weights(0, 1, 0), "w_r": Weights(1, 0, 0), "w_z": Weights(0, 0, 1), "all": Weights(1 / 3, 1 / 3, 1 / 3),
}  # fmt: skip
METHODS = (
    "hierarchical", "pruned", "relaxed", "local_search", "tabu_search", "time_limited", "greedy",
    "greedy_without_penalty",
)  # fmt: skip
LABELS = tuple(HEURISTICS[name].label for name in METHODS)  # as printed
LINKAGES = ("single", "complete", "pairs")  # other readings of ODP-PS's sets; ours is "average"
# Printed: mean degradation in per cent over the sizes; diamond, sequential, replicated, each under w_a, w_r, w_z, all.
PRINTED_PD: Mapping[str, tuple[float, ...]] = {
    "hierarchical ODP": (5, 17, 9, 14, 7, 3, 3, 8, 22, 11, 4, 11),
    "ODP-PS": (0, 7, 2, 4, 0, 0, 0, 3, 0, 2, 2, 2),
    "RES-ODP": (2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0),
    "local search": (2, 0, 0, 1, 0, 1, 1, 2, 0, 4, 2, 3),
    "tabu search": (2, 0, 0, 1, 0, 1, 1, 2, 0, 4, 1, 3),
    "ODP+T": (0, 0, 0, 1, 0, 0, 0, 1, 0, 49, 0, 22),
    "greedy": (29, 0, 0, 2, 29, 7, 7, 12, 29, 5, 7, 8),
    "greedy, no penalty": (29, 34, 9, 15, 29, 7, 7, 10, 29, 24, 15, 16),
}
# Printed: mean speed-up over CPLEX in the same order; the large ones of the greedy rows are printed rounded.
PRINTED_SP: Mapping[str, tuple[float, ...]] = {
    "hierarchical ODP": (17.19, 4.40, 14.46, 6.26, 74.25, 448.39, 170.30, 1425.05, 52.21, 602.77, 110.65, 269.64),
    "ODP-PS": (0.88, 3.45, 10.79, 3.29, 1.28, 127.17, 71.07, 896.99, 1.02, 104.71, 52.44, 180.92),
    "RES-ODP": (0.01, 2.93, 4.95, 1.93, 0.05, 6.77, 9.96, 6.27, 0.03, 73.80, 16.05, 10.51),
    "local search": (0.09, 0.68, 0.45, 1.64, 0.47, 150.54, 72.47, 333.99, 0.38, 353.07, 587.85, 1088.04),
    "tabu search": (0.07, 0.31, 0.21, 0.84, 0.26, 65.91, 30.64, 151.26, 0.16, 64.93, 207.63, 480.08),
    "ODP+T": (1.74, 1.88, 1.79, 2.22, 1.98, 2.32, 0.96, 5.90, 1.42, 40.75, 134.63, 261.35),
    "greedy": (354.60, 454.40, 338.80, 1949.32, 2821.80, 56e4, 19e4, 168e4, 6e4, 12e6, 40e6, 78e6),
    "greedy, no penalty": (354.60, 454.40, 338.80, 1949.32, 2821.80, 56e4, 19e4, 168e4, 6e4, 12e6, 40e6, 78e6),
}
# Printed in Table 5.1: A_min, A_max (%), R_min, R_max (ms), Z_min, Z_max (KB); the labels of diamond and replicated are
# swapped there, which the traffic of 90 streams and the delays of 20 operators in sequence show
PRINTED_RANGES: Mapping[str, tuple[float, ...]] = {
    "replicated": (58.8, 97.2, 74, 410, 132.2, 1409.2), "sequential": (58.8, 97.2, 114, 3098, 8.4, 303.8),
    "diamond": (58.8, 97.2, 49, 247, 52.0, 446.4),
}  # fmt: skip
PRINTED_MEAN_PD = {"hierarchical ODP": 9.50, "ODP-PS": 1.83, "RES-ODP": 0.42, "local search": 1.33}
PRINTED_MEAN_PD |= {"tabu search": 1.25, "ODP+T": 6.08, "greedy": 11.25, "greedy, no penalty": 18.67}


def cells(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = (1, 2, 3), *, shapes: Sequence[str] = SHAPES,
    methods: Sequence[str] = METHODS, linkages: Sequence[str] = LINKAGES, time_limit_s: float = 60.0,
    tell: bool = False,
) -> pd.DataFrame:  # fmt: skip
    """Return one row per heuristic and problem: loss, degradation, seconds, and those of the optimum.

    `ranges` are those of each "problem", computed exactly, and then those of each "application", as in the thesis: the
    least and the greatest of all its problems. Solutions are checked. Heuristics that solve smaller programs use our
    own solver, and so does ODP+T, which never reaches its limit of 300 s.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    for shape in shapes:
        problems = {(n, seed): placement.scenario(shape, n, seed=seed) for n in sizes for seed in seeds}
        own = {at: placement.find_ranges(problem, time_limit_s=time_limit_s) for at, problem in problems.items()}
        widest = [(min(low for low, _ in r), max(high for _, high in r)) for r in zip(*own.values(), strict=True)]
        for (nodes, seed), problem in problems.items():
            for name, ranges in (("problem", own[nodes, seed]), ("application", Ranges(*widest))):
                for kind, weights in WEIGHTS.items():
                    at = {"ranges": name, "shape": shape, "nodes": nodes, "seed": seed, "weights": kind}
                    best = placement.solve(problem, weights, ranges, time_limit_s=time_limit_s)
                    rows += [at | _cell(problem, weights, ranges, best, method) for method in methods]
                    rows += [
                        at | _cell(problem, weights, ranges, best, "pruned", linkage=linkage) for linkage in linkages
                    ]
                    if tell:
                        print(f"{', '.join(map(str, at.values()))}: {best!r}", file=sys.stderr, flush=True)
    return pd.DataFrame(rows)


def widest(
    sizes: Sequence[int] = SIZES, seeds: Sequence[int] = (1, 2, 3), *, time_limit_s: float = 60.0
) -> list[dict[str, Any]]:
    """Return Table 5.1: the least and the greatest value of each metric over all networks, by application."""
    rows = []
    for shape in SHAPES:
        found = [
            placement.find_ranges(placement.scenario(shape, n, seed=seed), time_limit_s=time_limit_s)
            for n in sizes
            for seed in seeds
        ]
        ends = [(min(low for low, _ in r), max(high for _, high in r)) for r in zip(*found, strict=True)]
        (r_min, r_max), (a_min, a_max), (z_min, z_max), _ = ends
        rows.append({"shape": shape, "A_min": 100 * math.exp(a_min), "A_max": 100 * math.exp(a_max),
                     "R_min": 1000 * r_min, "R_max": 1000 * r_max, "Z_min": z_min, "Z_max": z_max})  # fmt: skip
    return rows


def _cell(
    problem: Problem, weights: Weights, ranges: Ranges, best: Solution, method: str, **settings: Any
) -> dict[str, Any]:
    started = time.perf_counter()
    found = HEURISTICS[method](problem, weights, ranges, **settings)
    seconds = time.perf_counter() - started
    placement.check(problem, found.placement, found.metrics)
    return {
        "method": ", ".join((HEURISTICS[method].label, *settings.values())),
        "loss": found.loss, "best": best.loss, "gap": best.gap,
        "degradation": 100 * placement.degradation(found.loss, best.loss),
        "seconds": seconds, "exact_s": best.seconds, "speed_up": best.seconds / seconds,
    }  # fmt: skip


def table(frame: pd.DataFrame, column: str = "degradation") -> pd.DataFrame:
    """Return Table 5.2: means over sizes and seeds in the thesis's order, ours above the printed row, and the mean."""
    import pandas as pd

    means = frame.groupby(["method", "shape", "weights"])[column].mean()
    printed = PRINTED_PD if column == "degradation" else PRINTED_SP
    frame = frame[frame.method.isin(printed)]
    columns = [(shape, kind) for shape in SHAPES for kind in WEIGHTS if (frame["shape"] == shape).any()]
    rows = {}
    for method in frame.method.unique():
        ours = [float(means[method, shape, kind]) for shape, kind in columns]
        theirs = [printed[method][4 * SHAPES.index(s) + list(WEIGHTS).index(k)] for s, k in columns]
        rows[method, "ours"] = [*ours, sum(ours) / len(ours)]
        rows[method, "printed"] = [*theirs, sum(theirs) / len(theirs)]
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*(f"{s[:3]} {k}" for s, k in columns), "mean"])


def main() -> None:
    import pandas as pd

    frame = cells(tell=True)
    with pd.option_context("display.width", 200, "display.max_columns", 20):
        for name, part in frame.groupby("ranges", sort=False):
            print(f"Table 5.2, performance degradation in per cent; ranges of each {name}\n")
            print(table(part).to_string(float_format=lambda x: f"{x:.1f}"), end="\n\n")
        part = frame[frame.ranges == "problem"]
        print("Speed-up: ours over our own exact solver, printed over CPLEX\n")
        print(table(part, "speed_up").to_string(float_format=lambda x: f"{x:.3g}"))
        spread = part.groupby("method")[["degradation", "seconds"]].agg(["median", "max"])
        print(f"\nMedians and worst cases of {len(part) // part.method.nunique()} problems\n")
        print(spread.to_string(float_format=lambda x: f"{x:.3g}"))
        proven = part.drop_duplicates(["shape", "nodes", "seed", "weights"])
        print(f"\nOptimum proven on {(proven.gap <= 1e-6).sum()} of {len(proven)}; exact solver: median ", end="")
        print(f"{proven.exact_s.median():.3g} s, worst {proven.exact_s.max():.3g} s")


if __name__ == "__main__":
    main()
