"""Elastic Storm on its tweets, beside the thesis: `python -m reproduction.elastic_storm.study`.

Frequent Pattern Detection under five phases of load, of 15 minutes each: scaled by Elastic Storm, with and without its
scheduler's reassignments, and static with five Detectors. Latency is from leaving the log to the sink; the event
latency includes the wait in the log. The cost of moving state is that of the protocol of `protocol.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from dspkit.apps import detector
from dspkit.core import History, Policy, Topology
from dspkit.experiment import run
from dspkit.policies.elastic_storm import ElasticStorm
from dspkit.policies.static import Static
from reproduction.elastic_storm.protocol import Flow, MigrationCosts

if TYPE_CHECKING:
    import pandas as pd


PHASES = (120, 350, 900, 250, 120)  # tweets/s, 900 s each
PHASE_S, WINDOW_S = 900.0, 10.0
SEQUENCE = (20, 10, 5, 10, 20, 10, 5)  # Detectors, as printed
PRINTED_MOVED = {"scale in": 0.375, "scale out": 0.0, "reassigned": 0.65}  # share of the saved state that changes node
RUNS: Mapping[str, tuple[Policy, int]] = {
    "static": (Static(), 5),
    "elastic": (ElasticStorm(signal="cpu"), 20),
    "elastic, from five": (ElasticStorm(signal="cpu"), 5),  # Table 7.1's executors; the printed sequence begins with 20
    "elastic, reassigns": (ElasticStorm(reschedule=True, signal="cpu"), 20),
}


def play(name: str, *, seed: int = 1, engine: str = "fluid") -> History:
    """Run all five phases."""
    policy, executors = RUNS[name]
    app = detector(executors=executors)
    steps = round(len(PHASES) * PHASE_S / WINDOW_S)
    return run(policy, app, steps=steps, seed=seed, engine=engine, window_s=WINDOW_S)


def detectors(history: History) -> tuple[int, ...]:
    """Return the sequence of numbers of Detectors."""
    counts = [step.snapshot.deployment.parallelism["detector"] for step in history]
    return tuple(n for i, n in enumerate(counts) if i == 0 or n != counts[i - 1])


def phases(history: History) -> pd.DataFrame:
    """Return by phase latency in ms, executors, the busiest node's load, lag at its end, and downtime."""
    import pandas as pd

    rows = []
    for i, rate in enumerate(PHASES):
        seen = [s.snapshot for s in history if i * PHASE_S < s.snapshot.t <= (i + 1) * PHASE_S]
        calm = [s for s in seen if not s.downtime_s]
        rows.append(
            {
                "tweets_per_s": rate,
                "latency_ms": 1000 * fmean(s.latency.mean for s in calm if s.latency),
                "worst_ms": 1000 * max(s.latency.mean for s in seen if s.latency),
                "event_latency_ms": 1000 * fmean(s.event_latency.mean for s in seen if s.event_latency),
                "executors": seen[-1].deployment.instances,
                "busiest_node": max(max(s.nodes.values()) for s in calm),
                "waiting": seen[-1].lag,
                "downtime_s": sum(s.downtime_s for s in seen),
            }
        )
    return pd.DataFrame(rows, index=range(1, len(PHASES) + 1)).rename_axis("phase")


def moved(history: History) -> pd.DataFrame:
    """Return the mean share of tasks that changed node, by kind of decision, and the number of decisions."""
    import pandas as pd

    rows = []
    for step in history:
        if not step.rescaled or step.decision is None:
            continue
        before, after = step.snapshot.deployment.instances, step.decision.deployment.instances
        kind = "scale out" if after > before else "scale in" if after < before else "reassigned"
        rows.append((kind, float(step.decision.why["moved share"])))
    frame = pd.DataFrame(rows, columns=["kind", "share"]).groupby("kind").share.agg(["count", "mean"])
    return frame.assign(printed=pd.Series(PRINTED_MOVED))


def overhead(megabytes: Sequence[float] = (0.0, 2.0, 4.0, 8.0, 16.0)) -> pd.DataFrame:
    """Return the seconds of one Detector's migration beyond a restart, by size of its state and protocol.

    Barriers are messages, or, as in the prototype, each task polls a store every second, and a restored one waits up to
    ten seconds before it continues.
    """
    import pandas as pd

    ways = {
        "told": MigrationCosts(),
        "looks each second": MigrationCosts(poll_s=1.0),
        "prototype": MigrationCosts(poll_s=1.0, drain_wait_s=10.0),
    }
    return pd.DataFrame(
        {name: [_move(costs, mb) for mb in megabytes] for name, costs in ways.items()}, index=list(megabytes)
    )


def _move(costs: MigrationCosts, megabytes: float) -> float:
    flow = Flow(
        Topology.chain("generator", "detector", "reporter"), {"detector": 5}, costs=costs, state_bytes=megabytes * 1e6
    )
    flow.feed("generator", [i / 120 for i in range(3600)])  # 120 tweets/s for half a minute
    flow.migrate(5.3, {("detector", 0): "node-2"})
    flow.play()
    (migration,) = flow.migrations
    assert migration.duration_s is not None
    if flow.lost or sum(flow.task("detector", i).state for i in range(5)) != 3600:
        raise RuntimeError("got records lost or counted twice; expected each once")
    return migration.duration_s - costs.start_s


def main() -> None:
    from .section import SECTION

    sys.stdout.write("\n\n".join(SECTION.show(SECTION.found()).values.values()) + "\n")


if __name__ == "__main__":
    main()
