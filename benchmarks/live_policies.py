"""Every registered policy at its live preset on running PySpark jobs, beside the same on the fitted simulator.

`python -m benchmarks live_policies` takes word count, the Yahoo benchmark and tweets through a load step of three times
the rate, 180 s per policy, and writes the table to build/live_policies.md; it takes about three hours. A part of it:

    python -m benchmarks.live_policies --apps word_count --policies ds2,drs --seconds 60 --no-simulated
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import Claim

if TYPE_CHECKING:
    from dspkit import App, History, Policy
    from dspkit.core import Backend
    from dspkit.workload import Workload

APPS = ("word_count", "yahoo", "tweet_branches")
SECONDS, PRESET_S, STEP_S, WINDOW_S, GROWTH = 180.0, 120.0, 30.0, 2.0, 3.0
LOOK = 5  # windows over which the lag at the end is compared
TABLE = Path(__file__).resolve().parent.parent / "build" / "live_policies.md"
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


def load_of(app: App) -> Workload | dict[str, Workload]:
    """Return the live load of an app: its lower rate, and from the step on three times as much."""
    from dspkit.workload import Jump

    rates = app.live.rates
    if isinstance(rates, Mapping):
        return {name: Jump(low, GROWTH * low, STEP_S) for name, (low, _) in rates.items()}
    return Jump(rates[0], GROWTH * rates[0], STEP_S)


def row(app: str, name: str, where: str, history: History, note: str = "") -> Row:
    """Return the row of a run."""
    seen = [step.snapshot for step in history]
    acted = [step for step in history if step.rescaled]
    lags = [s.lag for s in seen]
    last = sum(lags[-LOOK:]) / LOOK
    falls = last < sum(lags[-2 * LOOK : -LOOK]) / LOOK or last < seen[-1].source_rate
    top = seen[lags.index(max(lags))].t
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
    """Return the row of a live run; policies that add machines get a cluster of two workers."""
    from dspkit.spark.runtime import session

    settings: dict[str, Any] = {"window_s": WINDOW_S}
    if promise_of(name) == "on demand":
        if _spark.cache_info().currsize:
            session.stop(_spark())
            _spark.cache_clear()
        settings["workers"] = 2
    else:
        settings["spark"] = _spark()
    with app.spark(load_of(app), **settings) as job:
        return ran(app, name, "live", job, seconds)


def rows(
    apps: Sequence[str], policies: Sequence[str], seconds: float = SECONDS, simulated: bool = True
) -> Iterator[Row]:
    """Yield the rows of these apps and policies; the simulator of an app is fitted to its live run of DS2."""
    from dspkit.apps import get

    for app_name in apps:
        app, plan = get(app_name)().as_live(), list(policies)
        if simulated:  # the fit needs this run
            plan = ["ds2", *(name for name in plan if name != "ds2")]
        fitted: App | None = None
        for name in plan:
            found, history = live(app, name, seconds)
            if name in policies:
                yield found
            if simulated and fitted is None:
                fitted = app.fitted(history[3:])
            if simulated and fitted is not None and name in policies:
                with fitted.simulator(load_of(app), window_s=WINDOW_S) as backend:
                    yield ran(app, name, "simulated", backend, seconds)[0]


def table(found: Iterable[Row]) -> str:
    """Return the rows as a Markdown table."""
    head = ("app", "policy", "where", "first decision", "decisions", "lag stops growing", "lag at the end", "runs")
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    for r in found:
        first, top = (("-" if x is None else f"{x:.0f} s") for x in (r.first_decision_s, r.lag_stops_growing_s))
        lag = "-" if r.lag_at_end is None else f"{r.lag_at_end:,.0f}{'' if r.falls else ', grows'}"
        cells = (r.app, r.policy, r.where, first, str(r.decisions), top, lag, r.runs or r.note)
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines) + "\n"


@cache
def _everything() -> tuple[Row, ...]:
    from dspkit import policies

    found = tuple(rows(APPS, sorted(policies.available())))
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(table(found), encoding="utf-8")
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


def main() -> None:
    """Measure a part, and print it row by row."""
    from dspkit import policies

    asks = argparse.ArgumentParser(prog="python -m benchmarks.live_policies", description=__doc__)
    asks.add_argument("--apps", default=",".join(APPS))
    asks.add_argument("--policies", default=",".join(sorted(policies.available())))
    asks.add_argument("--seconds", type=float, default=SECONDS)
    asks.add_argument("--no-simulated", dest="simulated", action="store_false")
    told = asks.parse_args()
    found = []
    for made in rows(told.apps.split(","), told.policies.split(","), told.seconds, told.simulated):
        found.append(made)
        print(json.dumps(asdict(made)), flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
