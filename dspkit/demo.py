"""`make demo`: an application on local Spark through a load step, one line per decision, a report at the end."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from typing import cast

from . import policies, report
from .apps import Live, audit, available
from .core import DspkitError, History, PolicyKnobs, Step, changes, record, why_text
from .workload import Sum, Workload


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo.

    Examples
    --------
    >>> main(["--app", "word_count", "--seconds", "60"])  # doctest: +SKIP
    """
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--app", default="word_count", choices=sorted(available()), help="application (word_count)")
    parser.add_argument("--seconds", type=float, default=120.0, help="duration in seconds (120)")
    parser.add_argument("--policy", default="ds2", choices=sorted(policies.available()), help="scaling policy (ds2)")
    parser.add_argument("--mode", default="realtime", choices=("realtime", "microbatch"))
    args = parser.parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    app, policy = available()[args.app]().as_live(), policies.get(args.policy)()
    policy = policy.live(args.seconds) if isinstance(policy, PolicyKnobs) else policy
    live = cast(Live, app.live)
    load = live.load(args.seconds / 3)
    total = load if isinstance(load, Workload) else Sum(tuple(load.values()))
    before, after = total.rate(0.0), total.rate(args.seconds)
    title, unit = app.name.replace("_", " ").capitalize(), f"{live.records}/s"
    print(f"{title} on local Spark: {before:,.0f} {unit}, and {after:,.0f} from second {args.seconds / 3:.0f} on.")
    slowest = max(live.micros, key=lambda name: live.micros[name])
    print(f"{slowest} takes {live.micros[slowest] / 1000:g} ms per record, so one instance processes", end=" ")
    print(f"{1e6 / live.micros[slowest]:,.0f} records/s. {live.note}".rstrip(), flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dspkit-") as folder:
        settings = {"spark.dspkit.log": ""}  # the usual place instead of the checkpoint, which is removed
        with app.spark(load, mode=args.mode, checkpoint=folder, settings=settings) as job:
            print(f"Spark is up after {time.monotonic() - began:.0f} s.\n\n{head(live.records)}", flush=True)
            history = History(job.topology)
            for step in record(history, policy, job, steps=max(1, round(args.seconds / job.window_s)), settle=1):
                print(row(step), flush=True)
        records, got, want = audit(app, load, folder)
    right = all(got[operator] == answers for operator, answers in want.items())
    verdict = "each once: the results equal those of plain Python" if right else "AND THE RESULTS ARE WRONG"
    print(f"\n{records:,} {live.records} processed, {verdict}. The report: {report.from_history(history)}")


def head(records: str) -> str:
    """Return the heading of the table of windows."""
    return f"{'t':>5} {records + '/s in':>11} {'done':>7} {'waiting':>8} {'p50':>8} {'p99':>8}  decision"


def row(step: Step) -> str:
    """Return one window as a line: load, throughput, backlog, latency, and the decision."""
    s = step.snapshot
    waiting = sum(m.backlog for m in s.operators.values())
    ages = [f"{1000 * x:,.0f} ms" for x in (s.latency.p50, s.latency.p99)] if s.latency else ["-", "-"]
    if step.decision is None:
        action = "settling"
    elif step.rescaled:
        why = {k: v for k, v in step.decision.why.items() if k in ("demand", "true rate")} or step.decision.why
        reason = textwrap.shorten(why_text(why), 200, placeholder=" …")
        action = changes(s.deployment, step.decision.deployment) + (f"   because {reason}" if reason else "")
    else:
        action = "stays: " + ", ".join(f"{name} {k}" for name, k in s.deployment.parallelism.items())
    numbers = f"{s.t:5.0f} {s.source_rate:11,.0f} {s.throughput:7,.0f} {waiting:8,.0f}"
    return f"{numbers} {ages[0]:>8} {ages[1]:>8}  {action}"


if __name__ == "__main__":
    try:
        main()
    except DspkitError as error:
        sys.exit(f"demo: {error}")
