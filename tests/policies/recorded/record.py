"""Record the overloaded live jobs that `tests/policies/test_live_presets.py` plays to every policy.

    PYTHONPATH=$PWD .venv/bin/python tests/policies/recorded/record.py [NAME ...]

Word count on local Spark, one instance per operator, never rescaled: 600 lines/s, from second 10 on three times as
many, of which one instance of `flat_map` can do 1,000. In `waiting` its millisecond per line is a wait, as for an
external server; in `burning` it is work on a core; `cluster` is `waiting` on two workers of a standalone cluster, which
the job names and counts. `almost` is `waiting` after DS2, without regard to commits, has given `flat_map` a second
instance: the two would do 1,940 lines/s of 1,800, were it not for the end of each epoch, at which they wait (in the
file the step came after 30 s). Windows of two seconds, commits every ten.

`yahoo` and `tweets` are the same for Yahoo's benchmark (1,000 events/s, then 4,500) and the tweet pipeline with
branches (300 tweets/s, then 1,600), recorded on 2026-11-20 with two cores, shared with others (load average 10 to 25).

The other files were recorded on 2026-11-19 with two cores, shared with other programs (load average 3 to 8), before
snapshots had `commit_s` and metrics of instances. As nothing changed or failed in these runs, all that they reported as
downtime were routine commits; it stands as `commit_s` in the files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dspkit import apps, run
from dspkit.policies.ds2 import DS2
from dspkit.workload import Jump

HERE = Path(__file__).resolve().parent
STEPS = 60
WORDS = ("word_count", 600.0, 1800.0, 1000.0)
Job = tuple[str, float, float, float]  # app, rates before and after the step, and what one instance of each can do
JOBS: dict[str, tuple[Job, dict[str, Any]]] = {
    "waiting": (WORDS, {}),
    "burning": (WORDS, {"cpu": {"flat_map": 1.0}}),
    "cluster": (WORDS, {"workers": 2}),
    "yahoo": (("yahoo", 1000.0, 4500.0, 3000.0), {}),
    "almost": (("word_count", 600.0, 1800.0, 1700.0), {}),
    "tweets": (("tweet_branches", 300.0, 1600.0, 700.0), {}),
}


def record(name: str) -> Path:
    """Run one of the jobs, and save its history."""
    (app, low, high, able), options = JOBS[name]
    with apps.get(app)().spark(Jump(low, high, 10.0), window_s=2.0, epoch_s=10.0, **options) as job:
        policy = DS2(commits="ignored") if name == "almost" else "static"
        history = run(policy, job, steps=STEPS, settle=1)
    changes = [i for i, step in enumerate(history) if step.rescaled]
    history = history[changes[-1] + 2 :] if changes else history
    if sum(step.snapshot.throughput for step in history[-STEPS // 2 :]) < STEPS / 2 * able / 2:
        sys.exit(f"the machine is too busy: one instance per operator does less than half of its {able:g} records/s")
    return history.save(HERE / f"{name}.parquet", overwrite=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or JOBS:
        print(record(wanted), flush=True)
