"""Live against simulated: `python -m dspkit.reproduce.parity_live` (a minute and a half).

Word count whose `split` waits 2 ms a line, as for an answer from elsewhere. The job runs at four parallelisms, each at
three fifths of what it can do and then with more than it can do. A plant is fitted to what it did with 1 and 3
instances (`plant.fit_live`), and says what it does with 2 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

from .. import plant
from ..apps import LiveApp, available
from ..core import Deployment, Snapshot, Step
from ..history import History
from ..workload import Trace

MICROS = {"split": 2000.0, "count": 20.0}
FITTED, ASKED = (1, 3), (2, 4)
BUSY, FULL = 0.6, 2.0  # offered, of what the instances can do
WINDOW_S, WINDOWS, SETTLING = 2.0, 5, 2  # at each setting; those in which it settles are not counted


class Row(NamedTuple):
    """One setting: what was offered, what came out, in records/s; and the mean latency in seconds."""

    k: int
    offered: float
    throughput: float
    latency_s: float
    predicted_throughput: float
    predicted_latency_s: float

    @property
    def throughput_off(self) -> float:
        return abs(self.predicted_throughput / self.throughput - 1)

    @property
    def latency_off(self) -> float:
        return abs(self.predicted_latency_s / self.latency_s - 1)


def settings() -> list[tuple[int, float]]:
    """Parallelism of `split` and records/s offered, one after the other; what is too much comes last."""
    able = 1e6 / MICROS["split"]
    return [(k, share * k * able) for share in (BUSY, FULL) for k in (*FITTED, *ASKED)]


def live(app: LiveApp, **more: Any) -> History:
    """The job through all settings."""
    history, planned, stretch = History(app.topology), settings(), WINDOW_S * WINDOWS
    warm_up = 2 * stretch  # workers are cold
    times = (0.0, *(warm_up + i * stretch for i in range(len(planned))))
    load = Trace(times, (planned[0][1], *(rate for _, rate in planned)))
    told: dict[str, Any] = {"window_s": WINDOW_S, "epoch_s": 30.0, "deployment": _deployment(app, planned[0][0])}
    with app.job(load, micros=MICROS, **told | more) as job:
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
    """Whether nothing was left from before: the job does what comes, or as much as it can."""
    full = s.operators["split"].utilisation > plant.FULL and s.source_rate > 1.2 * s.throughput
    return plant.keeps_up(s) or (full and not s.downtime_s)


def rows(app: LiveApp, history: History) -> list[Row]:
    """Measured and predicted at the parallelisms that the plant was not fitted to."""
    shown = [s for s in history if s.snapshot.deployment.parallelism["split"] in FITTED]
    made = plant.fit_live(History(app.topology, shown))
    found = []
    for k, rate in settings():
        offered = [s for s in _snapshots(history) if s.deployment.parallelism["split"] == k]
        at = [s for s in offered if abs(s.source_rate / rate - 1) < 0.05 and s.latency]
        if k in ASKED and at:
            said = plant.predict(history, made, at[0].deployment, rate)
            done, age = mean(s.throughput for s in at), mean(s.latency.mean for s in at if s.latency)
            found.append(Row(k, rate, done, age, *said))
    return found


def _snapshots(history: History) -> Sequence[Snapshot]:
    return [step.snapshot for step in history]


def _deployment(app: LiveApp, k: int) -> Deployment:
    return Deployment({**app.topology.uniform(), "split": k})


def main(**more: Any) -> list[Row]:
    """Measure, and print a row a setting."""
    app = available()["word_count"]()
    found = rows(app, live(app, **more))
    print("split  offered   throughput: live  predicted   off   latency ms: live  predicted   off")
    for r in found:
        ms, said = 1000 * r.latency_s, 1000 * r.predicted_latency_s
        print(
            f"{r.k:5}  {r.offered:7,.0f}  {r.throughput:17,.0f}  {r.predicted_throughput:9,.0f}  "
            f"{r.throughput_off:4.0%}  {ms:17,.0f}  {said:9,.0f}  {r.latency_off:4.0%}"
        )
    return found


if __name__ == "__main__":
    main()
