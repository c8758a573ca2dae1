"""Predicted beside recorded: Flink jobs of other groups, replayed on the simulator.

The first third of a recording fits two numbers, the records/s of a worker and the seconds that a change of workers
costs. Load and workers of the rest are given as recorded; throughput, lag, latency and catch-up times are predicted.
`python -m reproduction.recordings [FOLDER]` writes docs/recordings.md.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dspkit import Deployment, Operator, Plant, Simulator, Topology
from dspkit.core.typing import Array
from dspkit.simulator import Service
from dspkit.workload import Trace

ROOT = Path(__file__).parents[1]
FOLDER = ROOT.parent / "shared" / "recorded"
PAGE = ROOT / "docs" / "recordings.md"
WINDOW_S, MEAN_S = 10, 60  # windows of the simulation, and those that are compared
LATE = 5.0  # a latency beyond so many times the usual one counts as late


@dataclass(frozen=True)
class Recording:
    """A recorded job, by seconds: what it was offered, what it did, and with how many workers."""

    name: str
    source: str
    offered: Array
    workers: Array
    done: Array
    latency_s: Array
    lag: Array | None  # None if it was not recorded

    @property
    def third(self) -> int:
        """The seconds that are fitted to."""
        return len(self.offered) // 3 // MEAN_S * MEAN_S


class Predicted(NamedTuple):
    """A simulated run by windows of MEAN_S: records/s, records in the log, seconds of latency."""

    done: Array
    lag: Array
    latency_s: Array


def series(path: Path, seconds: Array) -> Array:
    """Return a recorded column at these seconds: each value holds until the next one, the first also before it."""
    rows = [line.split("|") for line in gzip.decompress(path.read_bytes()).decode().split("\n")[1:] if "|" in line]
    known = [(float(t), float(v)) for t, v in rows if v not in ("null", "", "NaN")]
    times, values = np.array(known).T
    found: Array = values[np.clip(np.searchsorted(times, seconds, side="right") - 1, 0, None)]
    return found


def span(path: Path) -> Array:
    """Return the whole seconds of a recording."""
    lines = gzip.decompress(path.read_bytes()).decode().split("\n")[1:]
    times = [int(line.split("|")[0]) for line in lines if "|" in line]
    return np.arange(times[0], times[-1] + 1)


def phoebe(folder: Path) -> Recording:
    """Return the IoT vehicles job under Kubernetes' autoscaler, six hours [Phoebe]."""
    at = folder / "phoebe-cars"
    seconds = span(at / "1_reactive_workRate.out.gz")
    one = {k: series(at / f"1_reactive_{k}.out.gz", seconds) for k in ("workRate", "thrRate", "latency", "numWorkers")}
    return Recording(
        "IoT vehicles under HPA at 35 % CPU, 6 h",
        "github.com/dos-group/phoebe, data/cars, reactive (Apache-2.0)",
        one["workRate"], one["numWorkers"], one["thrRate"], one["latency"] / 1e3, None,
    )  # fmt: skip


def demeter(folder: Path) -> Recording:
    """Return the cars job under Kubernetes' autoscaler, 18 hours; its offered rate is the throughput, smoothed."""
    at = folder / "demeter-cars-reactive35"
    seconds = span(at / "reactive-task_slots-data.csv.gz")
    names = ("throughput", "consumer_lag", "latency", "task_slots")
    done, lag, latency, slots = (series(at / f"reactive-{k}-data.csv.gz", seconds) for k in names)
    return Recording(
        "Vehicles under HPA at 35 % CPU, 18 h",
        "github.com/dos-group/demeter, results/2_reactive35_CARS_24 (Apache-2.0)",
        _arrivals(done), slots, done, latency / 1e3, lag,
    )  # fmt: skip


def _arrivals(done: Array) -> Array:
    """Return the rate that the log received: where the job stops and catches up, the mean over ten minutes."""
    width = 601
    padded = np.pad(done, width // 2, mode="edge")
    found: Array = np.convolve(padded, np.ones(width) / width, mode="valid")
    return found


def means(values: Array, step: int = MEAN_S) -> Array:
    """Return the means of whole minutes."""
    found: Array = values[: len(values) // step * step].reshape(-1, step).mean(axis=1)
    return found


JOB = Topology((Operator("job", max_parallelism=64),), ())


def simulate(recording: Recording, per_worker: float, pause_s: float, floor_s: float, seconds: int) -> Predicted:
    """Return what the simulator does with the recorded load and the recorded numbers of workers."""
    rates = means(recording.offered[:seconds], WINDOW_S)
    plant = Plant({"job": Service(1 / per_worker)}, pause_s=pause_s)
    count = np.maximum(1, recording.workers[: len(rates) * WINDOW_S : WINDOW_S]).astype(int)
    load = Trace(tuple(float(WINDOW_S * i) for i in range(len(rates))), tuple(rates.tolist()))
    sim = Simulator(
        JOB, plant, load, window_s=WINDOW_S, tick_s=WINDOW_S / 2, deployment=Deployment({"job": int(count[0])})
    )
    rows = []
    for k in count.tolist():
        sim.deploy(sim.deployment.scaled({"job": k}))
        seen = sim.observe()
        late = seen.event_latency.mean if seen.event_latency else np.nan
        rows.append((seen.throughput, seen.lag, late))
    done, lag, late = np.array(rows).T
    waits = np.isnan(late)  # nothing came out: the oldest record waits on
    late[waits] = lag[waits] / np.maximum(rates[waits], 1.0)
    each = MEAN_S // WINDOW_S
    return Predicted(means(done, each), means(lag, each), floor_s + means(late, each))


def backlog(rates: Sequence[float], workers: Sequence[float], per_worker: float, pause_s: float) -> tuple[Array, Array]:
    """Return records/s and records in the log by window: the fluid of one operator, fast enough for a grid."""
    done, lag, waiting, stopped, before = [], [], 0.0, 0.0, workers[0]
    for rate, k in zip(rates, workers, strict=True):
        stopped = pause_s if k != before else stopped
        open_s = max(0.0, WINDOW_S - stopped)
        stopped, before = max(0.0, stopped - WINDOW_S), k
        served = min(waiting + rate * WINDOW_S, k * per_worker * open_s)
        waiting += rate * WINDOW_S - served
        done.append(served / WINDOW_S)
        lag.append(waiting)
    return np.array(done), np.array(lag)


def fitted(recording: Recording) -> tuple[float, float, float]:
    """Return records/s of a worker, seconds of a change, and the usual latency: all of the first third alone."""
    end, each = recording.third, MEAN_S // WINDOW_S
    done, late = means(recording.done[:end]), means(recording.latency_s[:end])
    floor = float(np.median(late))
    rates = means(recording.offered[:end], WINDOW_S)
    workers = np.maximum(1, recording.workers[:end:WINDOW_S]).tolist()
    top = float(np.percentile(done / np.maximum(1.0, means(recording.workers[:end])), 99))
    best: tuple[float, tuple[float, float]] | None = None
    for per_worker in top * np.geomspace(0.4, 2.0, 25):
        for pause_s in (0.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0):
            ours, lag = backlog(rates.tolist(), workers, float(per_worker), pause_s)
            waited = floor + means(lag, each) / np.maximum(1.0, means(rates, each))
            wrong = float(np.abs(np.log(waited / np.maximum(late, 1e-3))).mean())
            wrong += float(np.abs(means(ours, each) - done).mean() / done.mean())
            if best is None or wrong < best[0]:
                best = wrong, (float(per_worker), pause_s)
    assert best is not None
    return *best[1], floor


def catch_ups(latency_s: Array, workers: Array, usual_s: float) -> list[tuple[int, int]]:
    """Return for each change of the workers its minute, and the minutes up to the last late one before the next change.

    Workers are those at the begin of each minute: a change that they show was made in the minute before.
    """
    changes = [i for i in range(len(workers) - 1) if workers[i + 1] != workers[i]]
    found = []
    for here, following in zip(changes, [*changes[1:], len(workers)], strict=True):
        (late,) = np.nonzero(latency_s[here:following] > LATE * usual_s)
        found.append((here, int(late[-1]) + 1 if len(late) else 0))
    return found


def compared(recording: Recording, seen: Predicted, usual_s: float, part: slice) -> dict[str, float]:
    """Return the errors in a part of the run, given in minutes."""
    done, late = means(recording.done)[part], means(recording.latency_s)[part]
    offered = means(recording.offered)[part]
    workers = recording.workers[::MEAN_S][: len(means(recording.done))][part]
    errors = {
        "throughput, mean error": np.abs(seen.done[part] - done).mean() / done.mean(),
        "the same if it always kept up": np.abs(offered - done).mean() / done.mean(),
        "throughput, correlation": np.corrcoef(seen.done[part], done)[0, 1],
        "latency, median factor": np.exp(np.median(np.abs(np.log(seen.latency_s[part] / np.maximum(late, 1e-3))))),
        "minutes late, recorded": (late > LATE * usual_s).sum(),
        "minutes late, predicted": (seen.latency_s[part] > LATE * usual_s).sum(),
        "minutes late in both": ((late > LATE * usual_s) & (seen.latency_s[part] > LATE * usual_s)).sum(),
    }
    ours, theirs = (np.array(catch_ups(x, workers, usual_s)) for x in (seen.latency_s[part], late))
    if len(theirs):
        errors["changes of the workers"] = len(theirs)
        errors["minutes to catch up, mean recorded"] = theirs[:, 1].mean()
        errors["minutes to catch up, mean predicted"] = ours[:, 1].mean()
        errors["minutes to catch up, mean error"] = np.abs(ours[:, 1] - theirs[:, 1]).mean()
    if recording.lag is not None:
        lag = means(recording.lag)[part]
        errors["lag, mean recorded"] = lag.mean()
        errors["lag, mean predicted"] = seen.lag[part].mean()
        errors["lag, correlation"] = np.corrcoef(seen.lag[part], lag)[0, 1]
    return {name: float(value) for name, value in errors.items()}


def chart(recorded: Array, predicted: Array, fit_until: int, what: str) -> str:
    """Return an SVG of two curves by minute: recorded in grey, predicted in blue, the fitted part shaded."""
    wide, high = 720, 160
    top = float(np.percentile(np.concatenate([recorded, predicted]), 99.5)) * 1.05
    legend = f"recorded grey, predicted blue, fitted shaded; up to {top:,.4g}"

    def line(values: Array, style: str) -> str:
        points = (f"{i / len(values) * wide:.1f},{high - min(v, top) / top * high:.1f}" for i, v in enumerate(values))
        return f'<polyline fill="none" {style} points="{" ".join(points)}"/>'

    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 -18 {wide + 8} {high + 24}" role="img">',
            f"<title>{what}</title>",
            f'<rect x="-4" y="-18" width="{wide + 8}" height="{high + 24}" fill="#ffffff"/>',
            f'<rect x="0" y="0" width="{fit_until / len(recorded) * wide:.1f}" height="{high}" fill="#eef1f5"/>',
            line(recorded, 'stroke="#8a8f98" stroke-width="2.2"'),
            line(predicted, 'stroke="#0b62c4" stroke-width="1.1"'),
            f'<text x="4" y="-5" font-family="sans-serif" font-size="10" fill="#333">{what}; {legend}</text>',
            "</svg>",
        ]
    )


HEAD = """# Predicted beside recorded

Two Flink jobs that other groups ran on clusters and published, replayed on the simulator. One operator stands for the
job. Its two numbers, what a worker does and what a change of the workers costs, are fitted to the first third
(throughput and latency, on a grid). For the rest the simulator is given the recorded load and numbers of workers, and
nothing else. Values are means of a minute; a minute is late if its latency is more than {late:g} times the usual one.
A job has caught up after the last late minute before the next change of its workers.
Made by `python -m reproduction.recordings`; the recordings stay outside this repository.

How to read it: "the same if it always kept up" is the error of a model without capacity or downtime, which ours must
beat to be of use. A job of one operator with one number for every change knows no checkpoint that is replayed, no state
that grows and no warm-up, so that times to catch up are expected to come out too short where the load is higher than in
the fitted part. The offered rate of the second job was not recorded: it is the throughput's mean over ten minutes, so
that only what happens within minutes is a prediction there.
"""


def page(recordings: Sequence[Recording], images: Path) -> str:
    """Return the page, and write its charts."""
    parts = [HEAD.format(late=LATE)]
    for number, recording in enumerate(recordings):
        per_worker, pause_s, usual = fitted(recording)
        seen = simulate(recording, per_worker, pause_s, usual, len(recording.offered))
        minutes, cut = len(seen.done), recording.third // MEAN_S
        both: list[dict[str, Any]] = [
            compared(recording, seen, usual, part) for part in (slice(0, cut), slice(cut, minutes))
        ]
        rows = "\n".join(f"| {name} | {both[0].get(name, np.nan):,.3g} | {both[1][name]:,.3g} |" for name in both[1])
        parts.append(
            f"## {recording.name}\n\n{recording.source}. Fitted: {per_worker:,.0f} records/s per worker, "
            f"{pause_s:g} s for a change; usual latency {usual:.2f} s.\n\n"
            f"| | first third (fitted) | the rest (predicted) |\n|---|---|---|\n{rows}\n"
        )
        for what, theirs, ours in (
            ("records per second", means(recording.done), seen.done),
            ("latency in seconds", means(recording.latency_s), seen.latency_s),
        ):
            file = f"recorded_{number}_{what.split()[0]}.svg"
            (images / file).write_text(chart(theirs[:minutes], ours, cut, f"{recording.name}, {what}") + "\n")
            parts.append(f"![{recording.name}: {what}, recorded and predicted](images/{file})\n")
    return "\n".join(parts)


def main(folder: Path = FOLDER) -> None:
    """Write the page."""
    PAGE.write_text(page([phoebe(folder), demeter(folder)], PAGE.parent / "images"))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
