"""Record the overloaded live jobs that `tests/policies/test_live_presets.py` plays to every policy.

    PYTHONPATH=$PWD .venv/bin/python tests/policies/recorded/record.py [NAME ...]

Word count on local Spark, one instance per operator, never rescaled: 600 lines/s, from second 10 on three times as
many, of which one instance of `flat_map` can do 1,000. In `waiting` its millisecond per line is a wait, as for an
external server; in `burning` it is work on a core; `cluster` is `waiting` on two workers of a standalone cluster, which
the job names and counts. Windows of two seconds, commits every ten.

The files were recorded on 2026-11-19 with two cores, shared with other programs (load average 3 to 8), before snapshots
had `commit_s` and metrics of instances. As nothing changed or failed in these runs, all that they reported as downtime
were routine commits; it stands as `commit_s` in the files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from dspkit import apps, run
from dspkit.workload import Jump

HERE = Path(__file__).resolve().parent
LOAD = Jump(600.0, 1800.0, 10.0)
STEPS = 60
JOBS: dict[str, dict[str, Any]] = {
    "waiting": {},
    "burning": {"cpu": {"flat_map": 1.0}},
    "cluster": {"workers": 2},
}


def record(name: str) -> Path:
    """Run one of the jobs, and save its history."""
    with apps.word_count().spark(LOAD, window_s=2.0, epoch_s=10.0, **JOBS[name]) as job:
        history = run("static", job, steps=STEPS)
    if sum(step.snapshot.throughput for step in history[STEPS // 2 :]) < STEPS / 2 * 500:
        sys.exit("the machine is too busy: one instance does less than half of its 1,000 lines/s")
    return history.save(HERE / f"{name}.parquet", overwrite=True)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or JOBS:
        print(record(wanted), flush=True)
