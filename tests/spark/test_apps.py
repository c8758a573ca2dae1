"""The applications as live jobs: their answers are exact through rescales, in every mode."""

from __future__ import annotations

from pathlib import Path

import pytest

import live
from dspkit import apps
from dspkit.apps import App, audit
from dspkit.apps import autrascale as ads
from dspkit.apps import autrascale as store
from dspkit.workload import Jump

pytestmark = pytest.mark.spark
LOAD = Jump(400, 1200, 3)
REAL = [name for name, make in apps.available().items() if make().live]  # for the others see test_synthetic
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in REAL if name != "nexmark_q5"]


def _exact(app: App, checkpoint: Path, mode: str = "realtime") -> None:
    """Rescale every operator twice; then each keyed operator knows what plain Python finds in the same records."""
    settings = {"mode": mode, "spark": live.spark(mode), "window_s": 1.0, "epoch_s": 3.0, "checkpoint": checkpoint}
    with app.spark(LOAD, micros=20, **settings) as job:
        live.works(job)
        for k in (3, 2):
            job.deploy(job.deployment.scaled(job.topology.clip(app.topology.uniform(k))))
            job.observe()
        job.observe()
        assert job.restarts == 0
    records, got, want = audit(app, LOAD, checkpoint)
    assert records > 1000
    for operator, answers in want.items():
        assert got[operator] == answers, operator


@pytest.mark.parametrize("name", ["nexmark_q5", *SLOW])
def test_the_answers_are_exact_through_rescales(name: str, tmp_path: Path) -> None:
    _exact(apps.get(name)(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["microbatch"])
def test_the_answers_are_exact_in_micro_batches(mode: str, tmp_path: Path) -> None:
    _exact(apps.get("nexmark_q5")(), tmp_path, mode)


@pytest.mark.slow
def test_a_store_behind_the_job_is_what_limits_it() -> None:
    """2000 events/s are 667 lookups/s; the store gives 300, whatever the parallelism."""
    app = apps.get("yahoo")(store=store.Table(ads.campaigns(), 300))
    load = Jump(900, 2000, 2)
    settings = {"spark": live.spark("realtime"), "window_s": 3.0, "epoch_s": 30.0}
    done = []
    with app.spark(load, micros=0, **settings) as job:
        for k in (2, 6):
            job.deploy(job.deployment.scaled({"store": k}))
            job.observe()
            done.append(sum(job.observe().operators["store"].processing_rate for _ in range(3)) / 3)
    assert all(100 < rate < 330 for rate in done), done  # less on a busy machine, never more
