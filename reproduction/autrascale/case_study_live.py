"""AuTraScale's case study, live: `python -m reproduction.autrascale.case_study_live` (three minutes, two cores).

Word count under overload, with the same parallelism for all operators. In the paper 1, 2 and 3 instances process 150,
250 and about 275 k records/s, and more instances do not help. Here the work of `flat_map` is CPU time of this machine's
cores, so that throughput rises until they are fully used. The live job is compared with the same job simulated on a
node of as many cores, and with a simulation of the paper's job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dspkit import apps, plots
from dspkit.apps import App
from dspkit.core import Deployment, Snapshot
from dspkit.core.files import home, write_atomically
from dspkit.simulator import Node, Plant, Service, Simulator
from dspkit.workload import Constant

PAPER = {1: 150e3, 2: 250e3, 3: 275e3}
COUNTS = (1, 2, 3, 4, 6)
MICROS = 400.0  # of a core per line
WINDOWS = 3

Curve = dict[int, float]


def live(app: App, rate: float, counts: Sequence[int], micros: Mapping[str, float], **settings: Any) -> Curve:
    """Return the job's throughput at each parallelism, without the first window of each."""
    curve: Curve = {}
    with app.spark(Constant(rate), micros=micros, cpu=1.0, **settings) as job:
        for k in counts:
            job.deploy(Deployment(app.topology.uniform(k)))
            job.observe()
            curve[k] = _mean([job.observe() for _ in range(WINDOWS)])
    return curve


def simulated(app: App, rate: float, counts: Sequence[int], micros: Mapping[str, float], cores: int) -> Curve:
    """Return the same for a simulated plant with the costs `micros`, on one node."""
    words = {"flat_map": 10.0}
    services = {n: Service(max(1e-6, micros.get(n, 0.0) * 1e-6), words.get(n, 1.0)) for n in app.topology.order}
    plant = Plant(services, {"this machine": Node(cores)})
    curve: Curve = {}
    for k in counts:
        start = Deployment(app.topology.uniform(k))
        simulator = Simulator(app.topology, plant, Constant(rate), deployment=start, window_s=10)
        curve[k] = _mean([simulator.observe() for _ in range(6)][3:])
    return curve


def paper_simulated(counts: Sequence[int]) -> Curve:
    """Return the same for the paper's application under 300 k records/s, simulated."""
    app = apps.case_study()
    curve: Curve = {}
    for k in counts:
        simulator = app.simulator(Constant(300e3), parallelism=k, window_s=60)
        curve[k] = _mean([simulator.observe() for _ in range(5)][3:])
    return curve


def _mean(seen: Sequence[Snapshot]) -> float:
    return sum(s.throughput * s.window_s for s in seen) / sum(s.window_s for s in seen)


def main(counts: Sequence[int] = COUNTS, **settings: Any) -> dict[str, Curve]:
    """Measure, print one row per parallelism, and write the plot to `reports/case_study_live.html`."""
    app, micros = apps.get("word_count")(), {"flat_map": MICROS, "count": 0.0}  # counting has its own cost only
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rate = 2.0 * cores * 1e6 / MICROS
    curves = {
        "paper": PAPER,
        "paper, simulated": paper_simulated(counts),
        f"live, {cores} cores": live(app, rate, counts, micros, **{"window_s": 4.0, "epoch_s": 30.0} | settings),
        f"simulated, {cores} cores": simulated(app, rate, counts, micros, cores),
    }
    print("instances  " + "  ".join(f"{name:>22}" for name in curves))
    for k in counts:
        cells = [f"{c[k]:>14,.0f} {c[k] / c[min(c)]:6.2f}x" if k in c else f"{'':>22}" for c in curves.values()]
        print(f"{k:9}  " + "  ".join(cells))
    picture = plots.scaling(curves, title="Word count with the same parallelism everywhere")
    path = write_atomically(
        home("reports") / "case_study_live.html",
        lambda p: p.write_text(picture.figure.to_html(include_plotlyjs=True), encoding="utf-8"),
        overwrite=True,
    )
    print(f"{picture.summary}\n{path}", file=sys.stderr)
    return curves


if __name__ == "__main__":
    main()
