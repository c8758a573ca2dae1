"""Live against simulated: `python -m reproduction.live.study` (a minute and a half).

The `flat_map` of word count waits 2 ms per line, as for an external server. The job runs at four parallelisms, each at
three fifths of its capacity and then under overload. A plant is fitted to the runs with 1 and 3 instances
(`simulator.fit_live`), and predicts those with 2 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

from dspkit import apps, simulator
from dspkit.apps import App
from dspkit.core import Deployment, History, Snapshot, Step
from dspkit.workload import Trace

MICROS = {"flat_map": 2000.0, "count": 20.0}
FITTED, ASKED = (1, 3), (2, 4)
BUSY, FULL = 0.6, 2.0  # load over the capacity of the instances
WINDOW_S, WINDOWS, SETTLING = 2.0, 5, 2  # at each setting; windows in which it settles do not count


class ParityRow(NamedTuple):
    """One setting: load and throughput in records/s, and the mean latency in seconds, measured and predicted."""

    k: int
    offered: float
    throughput: float
    latency_s: float
    predicted_throughput: float
    predicted_latency_s: float

    @property
    def throughput_off(self) -> float:
        """Relative error of the predicted throughput."""
        return abs(self.predicted_throughput / self.throughput - 1)

    @property
    def latency_off(self) -> float:
        """Relative error of the predicted latency."""
        return abs(self.predicted_latency_s / self.latency_s - 1)


def settings() -> list[tuple[int, float]]:
    """Return the sequence of parallelisms of `flat_map` and loads in records/s; overload is last."""
    able = 1e6 / MICROS["flat_map"]
    return [(k, share * k * able) for share in (BUSY, FULL) for k in (*FITTED, *ASKED)]


def live(app: App, **more: Any) -> History:
    """Run the job through all settings."""
    history, planned, stretch = History(app.topology), settings(), WINDOW_S * WINDOWS
    warm_up = 2 * stretch  # workers start up
    times = (0.0, *(warm_up + i * stretch for i in range(len(planned))))
    load = Trace(times, (planned[0][1], *(rate for _, rate in planned)))
    told: dict[str, Any] = {"window_s": WINDOW_S, "epoch_s": 30.0, "deployment": _deployment(app, planned[0][0])}
    with app.spark(load, micros=MICROS, **told | more) as job:
        for _ in range(2 * WINDOWS):
            job.observe()
        for k, _ in planned:
            job.deploy(_deployment(app, k))
            for window in range(WINDOWS):
                snapshot = job.observe()
                if window >= SETTLING and _steady(snapshot):
                    history.append(Step(len(history), snapshot, None))
    return history


def _steady(s: Snapshot) -> bool:
    """Return whether the window is without a former backlog: the job keeps up, or is fully used."""
    full = s.operators["flat_map"].utilisation > simulator.FULL and s.source_rate > 1.2 * s.throughput
    return simulator.keeps_up(s) or (full and not s.downtime_s)


def rows(app: App, history: History) -> list[ParityRow]:
    """Return measured and predicted values at the parallelisms that the plant was not fitted to."""
    shown = [s for s in history if s.snapshot.deployment.parallelism["flat_map"] in FITTED]
    made = simulator.fit_live(History(app.topology, shown))
    found = []
    for k, rate in settings():
        offered = [s for s in _snapshots(history) if s.deployment.parallelism["flat_map"] == k]
        at = [s for s in offered if abs(s.source_rate / rate - 1) < 0.05 and s.latency]
        if k in ASKED and at:
            said = simulator.predict(history, made, at[0].deployment, rate)
            done, age = mean(s.throughput for s in at), mean(s.latency.mean for s in at if s.latency)
            found.append(ParityRow(k, rate, done, age, *said))
    return found


def _snapshots(history: History) -> Sequence[Snapshot]:
    return [step.snapshot for step in history]


def _deployment(app: App, k: int) -> Deployment:
    return Deployment({**app.topology.uniform(), "flat_map": k})


def main(**more: Any) -> list[ParityRow]:
    """Measure, and print one row per setting."""
    app = apps.get("word_count")()
    found = rows(app, live(app, **more))
    print("flat_map  offered   throughput: live  predicted   off   latency ms: live  predicted   off")
    for r in found:
        ms, said = 1000 * r.latency_s, 1000 * r.predicted_latency_s
        print(
            f"{r.k:8}  {r.offered:7,.0f}  {r.throughput:17,.0f}  {r.predicted_throughput:9,.0f}  "
            f"{r.throughput_off:4.0%}  {ms:17,.0f}  {said:9,.0f}  {r.latency_off:4.0%}"
        )
    return found


if __name__ == "__main__":
    main()
