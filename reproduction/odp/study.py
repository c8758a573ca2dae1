"""The thesis's resolution times of optimal placement, reproduced: `python -m reproduction.odp.study` [nardelli].

Table of chapter 5: 20 operators, four weightings, CPLEX on 4 virtual CPUs against our exact solver on one. From chapter
4: the difficulty of problems, and the loss by sampling nodes. Every placement passes the certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from dspkit.placement import SHAPES, Problem, Solution, Weights, check, find_ranges, scenario, solve
from dspkit.placement.generators import gaussian_network, sample_candidates

if TYPE_CHECKING:
    import pandas as pd


WEIGHTINGS = {
    "w_a": Weights(0, 1, 0),
    "w_r": Weights(1, 0, 0),
    "w_z": Weights(0, 0, 1),
    "all": Weights(1 / 3, 1 / 3, 1 / 3),
}
WORK_S = 0.001  # R_i of chapter 4. The table says 1.0 s, but a sample could then not make responses three times as long
LIMIT_S = 24 * 3600.0  # the thesis's time limit
PRINTED_S = {  # shape, nodes: seconds in the order of WEIGHTINGS
    ("diamond", 36): (0.1, 0.1, 0.1, 0.7),
    ("sequential", 36): (0.7, 41.4, 25.2, 31.1),
    ("replicated", 36): (8.2, 915.2, 19682.8, 86404.5),
    ("diamond", 100): (0.7, 0.8, 0.7, 2.6),
    ("sequential", 100): (4.9, 2174.8, 388.1, 5225.4),
    ("replicated", 100): (168.6, 32193.9, 86407.0, 86411.6),
}


def resolution_table(
    seeds: Sequence[int] = (0, 1, 2), *, sizes: Sequence[int] = (36, 100), time_limit_s: float = 300.0
) -> pd.DataFrame:
    """Return the seconds to a proven optimum: printed, and ours as median and maximum over random networks."""
    import pandas as pd

    rows = []
    for (shape, nodes), printed in PRINTED_S.items():
        if nodes not in sizes:
            continue
        found: dict[str, list[Solution]] = {name: [] for name in WEIGHTINGS}
        for seed in seeds:
            problem = scenario(shape, nodes, seed=seed)
            ranges = find_ranges(problem, time_limit_s=time_limit_s)
            for name, weights in WEIGHTINGS.items():
                answer = solve(problem, weights, ranges, time_limit_s=time_limit_s)
                check(problem, answer.placement, answer.metrics)
                found[name].append(answer)
        for (name, answers), theirs in zip(found.items(), printed, strict=True):
            ours = median(a.seconds for a in answers)
            rows.append(
                {
                    "application": shape,
                    "nodes": nodes,
                    "weights": name,
                    "printed_s": theirs,
                    "stopped": theirs >= LIMIT_S,
                    "ours_s": ours,
                    "slowest_s": max(a.seconds for a in answers),
                    "faster": theirs / ours,
                    "proven": f"{sum(a.proven for a in answers)}/{len(answers)}",
                }
            )
    return pd.DataFrame(rows)


def scaling_table(seeds: Sequence[int] = (0, 1, 2), *, time_limit_s: float = 60.0) -> pd.DataFrame:
    """Return chapter 4's table: 20 operators on 20 nodes of capacity 4, least response time, with one change each."""
    import pandas as pd

    settings = {
        "20 operators, 20 nodes": (20, 20, 4.0),
        "Sc1: 50 operators": (50, 20, 4.0),
        "Sc2: 50 nodes": (20, 50, 4.0),
    }
    settings |= {f"capacity {c:g}": (20, 20, c) for c in (2.0, 6.0, 10.0)}
    rows = []
    for shape in ("sequential", "diamond"):
        for name, (operators, nodes, capacity) in settings.items():
            answers = []
            for seed in seeds:
                app = SHAPES[shape](operators)
                app = type(app)(app.operators, app.streams, app.demand, WORK_S, app.rate_per_s)
                problem = Problem(app, gaussian_network(nodes, seed=seed, capacity=capacity))
                answers.append(solve(problem, "response_s", time_limit_s=time_limit_s))
                check(problem, answers[-1].placement, answers[-1].metrics)
            seconds = median(a.seconds for a in answers)
            effort = median(int(a.details.get("labels", a.details.get("branches", 0))) for a in answers)
            proven = f"{sum(a.proven for a in answers)}/{len(answers)}"
            rows.append({"application": shape, "setting": name, "ours_s": seconds, "effort": effort, "proven": proven})
    return pd.DataFrame(rows)


def sampling_table(seeds: Sequence[int] = (0, 1, 2), *, time_limit_s: float = 20.0) -> pd.DataFrame:
    """Return chapter 4's first acceleration: 50 operators on random samples of 20 nodes; response over the best."""
    import pandas as pd

    rows = []
    for shape in ("sequential", "diamond"):
        app = SHAPES[shape](50)
        app = type(app)(app.operators, app.streams, app.demand, WORK_S, app.rate_per_s)
        best: dict[int, float] = {}
        for share in (1.0, 0.4, 0.2):
            ratios, seconds, proven = [], [], 0
            for seed in seeds:
                whole = Problem(app, gaussian_network(20, seed=seed))
                problem = sample_candidates(whole, share, seed=seed) if share < 1 else whole
                answer = solve(problem, "response_s", time_limit_s=time_limit_s)
                check(problem, answer.placement, answer.metrics)
                best.setdefault(seed, answer.loss)
                ratios.append(answer.loss / best[seed])
                seconds.append(answer.seconds)
                proven += answer.proven
            row = {"application": shape, "share": share, "ours_s": median(seconds), "response": float(np.mean(ratios))}
            rows.append({**row, "proven": f"{proven}/{len(seeds)}"})
    return pd.DataFrame(rows)


def main() -> None:
    import pandas as pd

    solve(scenario("sequential", 16), "response_s")  # compiles
    solve(scenario("replicated", 16, operators=11), "response_s")
    with pd.option_context("display.width", 200, "display.max_columns", 20, "display.max_rows", 200):
        print("Chapter 5: seconds to the optimum (stopped: CPLEX, after a day)\n")
        print(resolution_table().to_string(index=False, float_format=lambda x: f"{x:.3g}"))
        print("\nChapter 4: difficulty\n")
        print(scaling_table().to_string(index=False, float_format=lambda x: f"{x:.3g}"))
        print("\nChapter 4: a random share of the nodes for each operator; response time over the best\n")
        print(sampling_table().to_string(index=False, float_format=lambda x: f"{x:.3g}"))


if __name__ == "__main__":
    main()
