"""The applications as live jobs: their answers are exact through rescales, in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest

import live
from dspkit.apps import audit, available, store, yahoo
from dspkit.apps.base import LiveApp
from dspkit.workload import Jump

pytestmark = pytest.mark.spark
LOAD = Jump(400, 1200, 3)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in sorted(available()) if name != "nexmark_q5"]


def _exact(app: LiveApp, checkpoint: Path, mode: str = "realtime") -> None:
    """Rescale every operator twice; then each keyed operator knows what plain Python finds in the same records."""
    settings = {"mode": mode, "spark": live.spark(mode), "window_s": 1.0, "epoch_s": 3.0, "checkpoint": checkpoint}
    with app.job(LOAD, micros=20, **settings) as job:
        assert any(job.observe().throughput for _ in range(30))
        for k in (3, 2):
            job.deploy(job.deployment.scaled(dict.fromkeys(app.topology.order, k)))
            job.observe()
        job.observe()
        assert job.restarts == 0
    records, got, want = audit(app, LOAD, checkpoint)
    assert records > 1000
    for operator, answers in want.items():
        assert got[operator] == answers, operator


@pytest.mark.parametrize("name", ["nexmark_q5", *SLOW])
def test_the_answers_are_exact_through_rescales(name: str, tmp_path: Path) -> None:
    _exact(available()[name](), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["microbatch"])
def test_the_answers_are_exact_in_micro_batches(mode: str, tmp_path: Path) -> None:
    _exact(available()["nexmark_q5"](), tmp_path, mode)


@pytest.mark.slow
def test_a_store_behind_the_job_is_what_limits_it() -> None:
    """2000 events/s are 667 lookups/s; the store gives 300, whatever the parallelism."""
    app = yahoo.app(store.Table(yahoo.campaigns(), 300))
    load = Jump(900, 2000, 2)
    settings = {"spark": live.spark("realtime"), "window_s": 3.0, "epoch_s": 30.0}
    done = []
    with app.job(load, micros=0, **settings) as job:
        for k in (2, 6):
            job.deploy(job.deployment.scaled({"join": k}))
            job.observe()
            done.append(sum(job.observe().operators["join"].processing_rate for _ in range(2)) / 2)
    assert done == pytest.approx([300, 300], rel=0.1)
