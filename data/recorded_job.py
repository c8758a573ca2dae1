"""Create recorded_job.csv: `python data/recorded_job.py`. A simulated job, as an engine's metrics would show it.

Readings of a page are parsed; some are enriched and scored, all are counted by session, and both are stored. The job
runs 40 minutes in windows of 30 s. After ten minutes `enrich` gets one more instance, after twenty the load nearly
doubles, which exceeds the capacity of `score`. Metrics fluctuate by 8 % and fail as real
ones do: gaps, invalid values.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from dspkit import Deployment, History, Operator, Plant, Simulator, Topology, run, workload
from dspkit.policies.static import Static
from dspkit.simulator import Service

PATH = Path(__file__).with_name("recorded_job.csv")
TOPOLOGY = Topology(
    tuple(map(Operator, ("read", "parse", "enrich", "score", "sessions", "store"))),
    (
        ("read", "parse"), ("parse", "enrich"), ("enrich", "score"), ("parse", "sessions"), ("score", "store"),
        ("sessions", "store"),
    ),
)  # fmt: skip
PLANT = Plant(
    {
        "read": Service(0.1e-3),
        "parse": Service(0.8e-3, selectivity={"enrich": 0.4, "sessions": 1.0}),
        "enrich": Service(4e-3, contention=0.02),
        "score": Service(3.2e-3),
        "sessions": Service(0.45e-3, selectivity=0.1),
        "store": Service(0.9e-3),
    },
    noise=0.08,
    pause_s=20,
)
COLUMNS = (
    "time",
    "task",
    "subtasks",
    "records_in_per_s",
    "processed_per_s",
    "records_out_per_s",
    "busy_ms_per_s",
    "pending",
)


def make(seed: int = 11) -> History:
    """The run itself, before meters spoil it."""
    load = workload.Trace((0, 1200, 1260), (900, 920, 1750))
    first = Deployment({"read": 1, "parse": 2, "enrich": 2, "score": 2, "sessions": 1, "store": 1})
    backend = Simulator(TOPOLOGY, PLANT, load, deployment=first, window_s=30, seed=seed)
    head = run(Static(), backend, steps=20)
    return History(TOPOLOGY, [*head, *run(Static(parallelism={"enrich": 3}), backend, steps=60)])


def rows(history: History, seed: int = 11) -> list[list[str]]:
    """One row per window and operator, with the faults of real metrics."""
    draw, made = np.random.default_rng(seed), []
    for i, step in enumerate(history):
        s = step.snapshot
        if i in (33, 34, 57):  # no collection
            continue
        for name in TOPOLOGY.order:
            if name == "store" and i in (45, 46):  # its meters fell silent
                continue
            m = s.operators[name]
            swing = float(draw.normal(1, 0.01))  # rates and clocks are not read in the same moment
            rates = [m.input_rate * swing, m.processing_rate * swing, m.output_rate * swing]
            cells = [f"{x:.1f}" for x in rates] + [f"{1000 * m.utilisation:.0f}", f"{m.backlog:.0f}"]
            if (i, name) == (50, "parse"):
                cells[1] = "NaN"
            if (i, name) == (61, "sessions"):
                cells[0] = cells[1] = "-1"
            made.append([f"{s.t:.0f}", name, str(m.parallelism), *cells])
            if (i, name) == (65, "read"):
                made.append(made[-1])  # sent twice
    return made


def write(path: Path = PATH) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(rows(make()))
    return path


if __name__ == "__main__":
    print(write())
