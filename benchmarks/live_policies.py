"""Every registered policy at its live preset on running PySpark jobs, beside the same on the fitted simulator.

`python -m benchmarks live_policies` takes word count, the Yahoo benchmark and tweets through a load step of three times
the rate, up to the rate that the app is made for, 180 s per policy; it takes about five hours. Policies that choose
places get a cluster of three workers that are as far apart as `FAR` says. A part of it:

    python -m benchmarks.live_policies --apps word_count --policies ds2,drs --seconds 60 --no-simulated

Each row is kept in benchmarks/live_policies.jsonl as soon as it is there, and not measured again while dspkit's code
and the length are the same, unless `--fresh`: an interrupted run continues. Parts add up to one table,
docs/live_policies.md, which has the newest row of each run, and says which are missing; `--table` only writes it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from benchmarks import Claim

if TYPE_CHECKING:
    from dspkit import App, History, Policy
    from dspkit.core import Backend
    from dspkit.workload import Workload

APPS = ("word_count", "yahoo", "tweet_branches")
SECONDS, PRESET_S, STEP_S, WINDOW_S, GROWTH = 180.0, 120.0, 30.0, 2.0, 3.0
LOOK = 5  # windows over which the lag at the end is compared
KEPT = Path(__file__).resolve().with_suffix(".jsonl")
TABLE = KEPT.parent.parent / "docs" / "live_policies.md"
BUSY = 2.0  # load average per core above which a machine is called busy; a job by itself has about one
FAR = {("worker-1", "worker-2"): 0.02, ("worker-2", "worker-3"): 0.03, ("worker-1", "worker-3"): 0.06}  # seconds
CORES = 16  # slots of each worker
AS_PREDICTED = 0.25
ON_DEMAND = ("stela", "migrate", "rebalance")
REQUEST_S = 60.0  # when one more machine is asked for


@dataclass(frozen=True)
class Row:
    """One run: times in seconds since its start, lag in records; None where it did not happen."""

    app: str
    policy: str
    where: str  # "live" or "simulated"
    promise: str  # "keeps up", "on demand", "places" or "none"
    first_decision_s: float | None = None
    decisions: int = 0
    lag_stops_growing_s: float | None = None
    lag_at_end: float | None = None
    falls: bool | None = None  # whether the lag falls at the end, or nothing waits
    runs: str = ""
    note: str = ""
    crossing: float | None = None  # records/s between workers over the last windows, where instances have places
    latency_s: float | None = None  # median over the same windows
    seconds: float = SECONDS  # length of the run
    code: str = ""  # fingerprint of dspkit's code
    day: str = ""  # of the run
    machine_load: float | None = None  # load average per core at its end


def promise_of(name: str) -> str:
    """Return what a policy promises: to keep up, to carry out requests, to choose places, or nothing."""
    from dspkit import policies
    from dspkit.core.policy import needs_of
    from dspkit.policies.on_demand import OnDemand

    cls = policies.get(name)
    if issubclass(cls, OnDemand):
        return "on demand"
    needs = needs_of(cls)
    return "places" if "placement" in needs else "keeps up" if needs else "none"


def policy_for(name: str) -> Policy:
    """Return a policy at its live preset; those on demand are asked for one more machine."""
    from dspkit import policies
    from dspkit.policies import ScaleOut

    policy: Any = policies.get(name)()
    policy = policy.live(PRESET_S) if hasattr(policy, "live") else policy
    return policy.ask(ScaleOut(1, at_s=REQUEST_S)) if promise_of(name) == "on demand" else policy


@cache
def code() -> str:
    """Return a fingerprint of dspkit's code, by which kept rows are valid."""
    from dspkit.core import caching

    return caching.package_key(caching.__file__)[:16]


def kept(*, of_any_code: bool = False) -> dict[tuple[str, str, str, float], Row]:
    """Return the newest rows that are known, by app, policy, place and length; those of the present code only."""
    found = {}
    for line in KEPT.read_text("utf-8").splitlines() if KEPT.exists() else ():
        row = Row(**json.loads(line))
        if of_any_code or row.code == code():
            found[row.app, row.policy, row.where, row.seconds] = row
    return found


def keep(found: Row) -> Row:
    """Write a row to the others at once, and return it, with the day and how busy the machine is."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    found = replace(found, code=code(), day=time.strftime("%Y-%m-%d"), machine_load=round(busy, 1))
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(found)) + "\n")
    return found


def load_of(app: App) -> Workload | dict[str, Workload]:
    """Return the live load of an app: a third of its greatest rate, and from the step on all of it."""
    from dspkit.workload import Jump

    rates = app.live.rates
    if isinstance(rates, Mapping):
        return {name: Jump(top / GROWTH, top, STEP_S) for name, (_, top) in rates.items()}
    return Jump(rates[1] / GROWTH, rates[1], STEP_S)


def row(app: str, name: str, where: str, history: History, note: str = "") -> Row:
    """Return the row of a run."""
    seen = [step.snapshot for step in history]
    acted = [step for step in history if step.rescaled]
    lags = [s.lag for s in seen]
    last = sum(lags[-LOOK:]) / LOOK
    falls = last < sum(lags[-2 * LOOK : -LOOK]) / LOOK or last < seen[-1].source_rate
    top = seen[lags.index(max(lags))].t
    crossing, calm = _crossing(history), [s.latency.p50 for s in seen[-LOOK:] if s.latency]
    return Row(
        app,
        name,
        where,
        promise_of(name),
        acted[0].snapshot.t if acted else None,
        len(acted),
        top if falls else None,
        lags[-1],
        falls,
        " ".join(f"{n} {k}" for n, k in seen[-1].deployment.parallelism.items()),
        note,
        crossing,
        median(calm) if crossing is not None and calm else None,
    )


def _crossing(history: History) -> float | None:
    """Return the records/s between workers over the last windows, by the places that the deployment names."""
    from dspkit.placement.distributed_storm import traffic

    last = [s.snapshot for s in history[-LOOK:]]
    if not all(len(s.deployment.placement) == s.deployment.instances for s in last):
        return None
    return fmean(
        traffic(history.topology, s.deployment.parallelism, s.edge_rates, s.deployment.placement) for s in last
    )


def ran(app: App, name: str, where: str, backend: Backend, seconds: float) -> tuple[Row, History]:
    """Run a policy on a backend, and return its row; a refused policy has its reason there."""
    from dspkit import run
    from dspkit.core import DspkitError, History

    history = History(backend.topology)
    try:
        policy, steps = policy_for(name), round(seconds / WINDOW_S)
        run(policy, backend, steps=steps, settle=1, refused="skip", history=history)
    except DspkitError as error:
        if not len(history):
            return Row(app.name, name, where, promise_of(name), note=str(error)), history
        return row(app.name, name, where, history, note=str(error)), history
    return row(app.name, name, where, history), history


@cache
def _spark() -> Any:
    """Return the Spark that all jobs share: its start takes longer than that of a job."""
    from dspkit.spark.runtime import session

    return session.start_session("local[64]", "realtime", with_jar=True)


def live(app: App, name: str, seconds: float) -> tuple[Row, History]:
    """Return the row of a live run; policies that add machines or choose places get a cluster of their own."""
    from dspkit.spark import SparkCluster
    from dspkit.spark.runtime import session

    settings: dict[str, Any] = {"window_s": WINDOW_S}
    if promise_of(name) in ("on demand", "places"):
        if _spark.cache_info().currsize:
            session.stop(_spark())
            _spark.cache_clear()
    else:
        settings["spark"] = _spark()
    with ExitStack() as stack:
        if promise_of(name) == "on demand":
            settings["workers"] = 2
        elif promise_of(name) == "places":
            settings["master"] = stack.enter_context(SparkCluster.local(3, CORES, memory="512m", delays=FAR))
        job = stack.enter_context(app.spark(load_of(app), **settings))
        return ran(app, name, "live", job, seconds)


def simulated(app: App, name: str, fitted: App, seconds: float) -> Row:
    """Return the row of the same run on the fitted simulator, whose nodes are as far apart as the workers."""
    from dspkit.simulator import Link, Node

    if promise_of(name) == "places":
        nodes = {f"worker-{i}": Node(cores=CORES) for i in (1, 2, 3)}
        links = {pair: Link(delay_s=seconds) for pair, seconds in FAR.items()}
        fitted = replace(fitted, plant=replace(fitted.plant, nodes=nodes, links=links))
    with fitted.simulator(load_of(app), window_s=WINDOW_S) as backend:
        return ran(app, name, "simulated", backend, seconds)[0]


def rows(
    apps: Sequence[str],
    policies: Sequence[str],
    seconds: float = SECONDS,
    *,
    beside: bool = True,
    fresh: bool = False,
) -> Iterator[Row]:
    """Yield the rows of these apps and policies, `beside` those of the simulator, fitted to the app's run of DS2.

    Rows that are kept are not measured again, unless `fresh`.
    """
    from dspkit.apps import get

    known = {} if fresh else kept()
    for app_name in apps:
        app, fitted = get(app_name)().as_live(), None
        for name in policies:
            at = (app.name, name)
            if (found := known.get((*at, "live", seconds))) is None:
                found, history = live(app, name, seconds)
                found = keep(replace(found, seconds=seconds))
                if name == "ds2" and beside:
                    fitted = app.fitted(history[3:])
            yield found
            if not beside:
                continue
            if (found := known.get((*at, "simulated", seconds))) is None:
                if fitted is None:
                    fitted = app.fitted(live(app, "ds2", seconds)[1][3:])
                found = keep(replace(simulated(app, name, fitted, seconds), seconds=seconds))
            yield found


_HEAD = (
    "app", "policy", "where", "first decision", "decisions", "lag stops growing", "lag at the end",
    "between workers", "latency", "runs at the end", "machine",
)  # fmt: skip


def table(found: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [" | ".join(_HEAD), " | ".join("---" for _ in _HEAD)]
    for r in found:
        first, top = (("-" if x is None else f"{x:.0f} s") for x in (r.first_decision_s, r.lag_stops_growing_s))
        lag = "-" if r.lag_at_end is None else f"{r.lag_at_end:,.0f}{'' if r.falls else ', grows'}"
        crossing = "-" if r.crossing is None else f"{r.crossing:,.0f}/s"
        latency = "-" if r.latency_s is None else f"{1e3 * r.latency_s:.0f} ms"
        cells = (r.app, r.policy, r.where, first, str(r.decisions), top, lag, crossing, latency, r.runs or r.note)
        lines.append(" | ".join((*cells, _machine(r))))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def _machine(row: Row) -> str:
    """Return when a row was measured, and whether other programs ran."""
    if row.where == "simulated" or row.machine_load is None:
        return row.day
    return f"{row.day}, {'busy' if row.machine_load > BUSY else 'quiet'} ({row.machine_load:g} per core)"


_PAGE = """# Every policy on running PySpark jobs

Made by `python -m benchmarks.live_policies --table` from benchmarks/live_policies.jsonl; do not edit.

Each registered policy at its live preset, `policy.live({preset:g})`, on jobs whose load trebles after {step:g} s, for
{seconds:g} s: when it first acted, how often, when the lag (records that wait in the log) was greatest, what it was
at the end and whether it still grew, and what ran then. *simulated* is the same on the simulator that is fitted to
the live run of DS2. *machine* is the load average per core at the end of the run: above {busy:g} other programs had the
cores, and a job that needs them falls behind whatever its policy does. {have} of {all} rows are there.

{rows}"""


def page() -> str:
    """Return the page of docs/: the newest row of each run, and the rows that are still missing."""
    from dspkit import policies
    from dspkit.apps import get

    newest = kept(of_any_code=True)
    apps = [get(name)().name for name in APPS]
    wanted = [(a, p, w, SECONDS) for a in apps for p in sorted(policies.available()) for w in ("live", "simulated")]
    found = [newest[at] for at in wanted if at in newest]
    missing = {
        (a, w): [p for a2, p, w2, _ in wanted if (a2, w2) == (a, w) and (a, p, w2, SECONDS) not in newest]
        for a in apps
        for w in ("live", "simulated")
    }
    left = "".join(f"* {a}, {w}: {', '.join(names)}\n" for (a, w), names in missing.items() if names)
    numbers = {"preset": PRESET_S, "step": STEP_S, "seconds": SECONDS, "busy": BUSY}
    have = {"have": len(found), "all": len(wanted)}
    return _PAGE.format(**numbers, **have, rows=table(found)) + (f"\nNot run yet:\n\n{left}" if left else "")


@cache
def _everything() -> tuple[Row, ...]:
    from dspkit import policies

    found = tuple(rows(APPS, sorted(policies.available())))
    TABLE.write_text(page(), encoding="utf-8")
    return found


def _share(found: Sequence[Row], holds: Sequence[Row]) -> Claim:
    missed = {f"{r.app}, {r.policy}, {r.where}": asdict(r) for r in found if r not in holds}
    return Claim(len(holds) / len(found) if found else 0.0, "share", 1.0, detail={"runs": len(found), "missed": missed})


def share_that_keeps_up() -> Claim:
    """The share of live runs, of policies that promise to keep up, that end with the lag falling."""
    found = [r for r in _everything() if r.where == "live" and r.promise == "keeps up"]
    return _share(found, [r for r in found if r.falls])


def share_of_requests_carried_out() -> Claim:
    """The share of live runs on demand, of policies that a cluster suits, that carried out their request."""
    found = [r for r in _everything() if r.where == "live" and r.promise == "on demand" and not r.note]
    return _share(found, [r for r in found if r.decisions])


def share_of_places_as_predicted() -> Claim:
    """The share of live runs of policies that choose places that end with the simulator's traffic or latency."""
    found = [r for r in _everything() if r.promise == "places" and not r.note]
    there = {(r.app, r.policy): r for r in found if r.where == "simulated"}
    runs = [r for r in found if r.where == "live" and (r.app, r.policy) in there]
    return _share(runs, [r for r in runs if as_predicted(r, there[r.app, r.policy])])


def as_predicted(live: Row, simulated: Row) -> bool:
    """Return whether traffic or latency of a live run is within a quarter of the simulator's."""
    pairs = ((live.crossing, simulated.crossing), (live.latency_s, simulated.latency_s))
    return any(a is not None and b is not None and abs(a - b) <= AS_PREDICTED * b for a, b in pairs)


def main() -> None:
    """Measure a part, and print it row by row."""
    from dspkit import policies

    asks = argparse.ArgumentParser(prog="python -m benchmarks.live_policies", description=__doc__)
    asks.add_argument("--apps", default=",".join(APPS))
    asks.add_argument("--policies", default=",".join(sorted(policies.available())))
    asks.add_argument("--seconds", type=float, default=SECONDS)
    asks.add_argument("--no-simulated", dest="simulated", action="store_false")
    asks.add_argument("--fresh", action="store_true", help="measure again what is kept")
    asks.add_argument("--table", action="store_true", help="measure nothing, and write the page of docs/")
    told = asks.parse_args()
    for made in rows(
        told.apps.split(","),
        [] if told.table else told.policies.split(","),
        told.seconds,
        beside=told.simulated,
        fresh=told.fresh,
    ):
        print(json.dumps(asdict(made)), flush=True)
    TABLE.write_text(page(), encoding="utf-8")
    print(f"{TABLE}: see there")


if __name__ == "__main__":
    main()
