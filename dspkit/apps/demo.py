"""`make demo`: an application on local Spark through a load step, a line a decision, a report at the end."""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Sequence

from .. import policies, report
from ..core import Step
from ..history import History, changes, why_text
from ..loop import describe, mape
from ..workload import Jump
from . import audit, available


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--app", default="word_count", choices=sorted(available()), help="what runs (word_count)")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long it runs (120)")
    parser.add_argument("--policy", default="ds2", choices=sorted(policies.available()), help="who decides (ds2)")
    parser.add_argument("--mode", default="realtime", choices=("realtime", "microbatch"))
    args = parser.parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    app, policy = available()[args.app](), policies.get(args.policy)()
    before, after = app.rates
    load = Jump(before, after, args.seconds / 3)
    title, unit = app.name.replace("_", " ").capitalize(), f"{app.records}/s"
    print(f"{title} on local Spark: {before:,.0f} {unit}, and {after:,.0f} from second {args.seconds / 3:.0f} on.")
    slowest = max(app.micros, key=lambda name: app.micros[name])
    print(f"A record takes {slowest} {app.micros[slowest] / 1000:g} ms, so an instance does", end=" ")
    print(f"{1e6 / app.micros[slowest]:,.0f} a second.", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dspkit-") as folder:
        with app.job(load, mode=args.mode, checkpoint=folder) as job:
            print(f"Spark is up after {time.monotonic() - began:.0f} s.\n\n{head(app.records)}", flush=True)
            history = History(job.topology)
            history.tell(describe(policy, job, settle=1))
            for step in mape(policy, job, steps=max(1, round(args.seconds / job.window_s)), settle=1):
                history.append(step)
                print(row(step), flush=True)
        records, got, want = audit(app, load, folder)
    right = all(got[operator] == answers for operator, answers in want.items())
    said = "each once: the answers are those of plain Python" if right else "AND THE ANSWERS ARE WRONG"
    print(f"\n{records:,} {app.records} worked on, {said}. The report: {report.from_history(history)}")


def head(records: str) -> str:
    return f"{'t':>5} {records + '/s in':>11} {'done':>7} {'waiting':>8} {'p50':>8} {'p99':>8}  decision"


def row(step: Step) -> str:
    """One window: what came, what was done, how old it was, and what was decided."""
    s = step.snapshot
    waiting = sum(m.backlog for m in s.operators.values())
    ages = [f"{1000 * x:,.0f} ms" for x in (s.latency.p50, s.latency.p99)] if s.latency else ["-", "-"]
    if step.decision is None:
        said = "settling"
    elif step.rescaled:
        why = {k: v for k, v in step.decision.why.items() if k in ("demand", "true rate")}
        said = f"{changes(s.deployment, step.decision.deployment)}   because {why_text(why)}"
    else:
        said = "stays: " + ", ".join(f"{name} {k}" for name, k in s.deployment.parallelism.items())
    numbers = f"{s.t:5.0f} {s.source_rate:11,.0f} {s.throughput:7,.0f} {waiting:8,.0f}"
    return f"{numbers} {ages[0]:>8} {ages[1]:>8}  {said}"


if __name__ == "__main__":
    main()
