"""Elastic Storm on its tweets, beside the thesis: `python -m dspkit.reproduce.elastic_storm`.

Frequent Pattern Detection through five phases of load, each of 15 minutes: as Elastic Storm scales it, with its
scheduler's reassignments and without, and static with five Detectors. Latency is from leaving the log to the sink; the
event latency has the wait in the log too. The cost of moving state is that of the protocol of `dspkit.migration`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from ..core import Policy, Topology
from ..history import History
from ..loop import run
from ..migration import Costs, Flow
from ..policies.elastic_storm import ElasticStorm
from ..policies.static import Static
from ..topologies import detector

if TYPE_CHECKING:
    import pandas as pd

PHASES = (120, 350, 900, 250, 120)  # tweets/s, 900 s each
PHASE_S, WINDOW_S = 900.0, 10.0
SEQUENCE = (20, 10, 5, 10, 20, 10, 5)  # Detectors, as printed
PRINTED_MOVED = {"scale in": 0.375, "scale out": 0.0, "reassigned": 0.65}  # share of the saved state that changes node
RUNS: Mapping[str, tuple[Policy, int]] = {
    "static": (Static(), 5),
    "elastic": (ElasticStorm(), 20),
    "elastic, reassigns": (ElasticStorm(reschedule=True), 20),
}


def play(name: str, *, seed: int = 1, engine: str = "fluid") -> History:
    """One run of all five phases."""
    policy, executors = RUNS[name]
    app = detector(executors=executors)
    steps = round(len(PHASES) * PHASE_S / WINDOW_S)
    with app.simulator(seed=seed, engine=engine, window_s=WINDOW_S) as backend:
        return run(policy, backend, steps=steps, seed=seed)


def detectors(history: History) -> tuple[int, ...]:
    """Detectors that ran, one after the other."""
    counts = [step.snapshot.deployment.parallelism["detector"] for step in history]
    return tuple(n for i, n in enumerate(counts) if i == 0 or n != counts[i - 1])


def phases(history: History) -> pd.DataFrame:
    """By phase: latency in ms, executors, the busiest node's load, what waits at its end, and stops."""
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
    """Share of the tasks of the operators concerned that changed node, by kind of decision: its mean and how many."""
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
    """Seconds that one Detector's move takes beyond a restart, by its state: told of barriers, and as the prototype.

    The prototype looks at its store each second, and a restored task waits up to ten seconds before it goes on.
    """
    import pandas as pd

    ways = {"told": Costs(), "looks each second": Costs(poll_s=1.0), "prototype": Costs(poll_s=1.0, drain_wait_s=10.0)}
    return pd.DataFrame(
        {name: [_move(costs, mb) for mb in megabytes] for name, costs in ways.items()}, index=list(megabytes)
    )


def _move(costs: Costs, megabytes: float) -> float:
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
    from .sections.elastic_storm import SECTION

    sys.stdout.write("\n\n".join(SECTION.show(SECTION.found()).values.values()) + "\n")


if __name__ == "__main__":
    main()
