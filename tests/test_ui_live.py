"""The Explorer on a live job: started, moved by hand, stopped; nothing stays behind."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import live
from dspkit import ui
from dspkit.plots import PLOTLY_MIME
from dspkit.policies.static import Static


def _until(true: Callable[[], object], timeout_s: float = 90) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def test_a_live_run_is_told_as_code_that_can_be_copied() -> None:
    explorer = ui.LiveExplorer("taxi", Static(), windows=7, mode="microbatch")
    explorer.view.scale.value = 0.5
    explorer._sliders["count"].value = 3
    code = explorer.settings.code()
    assert code.splitlines()[-5:] == [
        "app = apps.available()['taxi']()",
        "start = Deployment({'read': 1, 'parse': 1, 'in_area': 1, 'route': 1, 'count': 3, 'rank': 1})",
        "with app.job(app.load * 0.5, deployment=start, window_s=2, mode='microbatch') as job:",
        "    history = run(Static(), job, steps=7, settle=1)",
        "plots.timeline(history, target_latency_s=0.5)",
    ]
    compile(code, "code", "exec")
    assert explorer.view.speed.layout.display == "none"
    assert explorer.error == ""


@pytest.mark.spark
@pytest.mark.slow
def test_start_move_and_stop_of_a_real_job() -> None:
    live.end()  # so that the job starts a Spark of its own, and must take it along
    explorer = ui.LiveExplorer("word_count", Static(), windows=500, window_s=1.0)
    explorer.start()
    _until(lambda: explorer.error or (explorer.history and len(explorer.history) >= 2))
    assert explorer.error == ""
    explorer._sliders["split"].value = 3
    _until(lambda: explorer.history and explorer.history[-1].snapshot.deployment.parallelism["split"] == 3)
    explorer.stop()
    assert explorer.wait(90)
    assert explorer.error == ""
    assert explorer.history
    assert [what for _, what in explorer.history.notes] == ["split 1 → 3, by hand"]
    assert PLOTLY_MIME in explorer.view.chart.outputs[0]["data"]
    command = ["ps", "--ppid", str(os.getpid()), "-o", "args="]
    below = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "java" not in below


def _java_of(home: str) -> list[str]:
    """Java processes that came from a kernel with this home."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/environ", errors="replace") as env, open(f"/proc/{entry}/cmdline") as line:
                if f"DSPKIT_HOME={home}\0" in env.read() and "java" in (command := line.read()):
                    found.append(f"{entry} {command[:60]}")
        except (OSError, ValueError):
            continue
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks at processes as Linux tells them")
def test_a_kernel_restarted_while_a_job_runs_leaves_no_spark(tmp_path: Path) -> None:
    """As by the menu of JupyterLab: the kernel is killed, and nobody tells Spark to end."""
    from jupyter_client import KernelManager

    manager = KernelManager()
    manager.start_kernel(env={**os.environ, "DSPKIT_HOME": str(tmp_path)})
    try:
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        source = "from dspkit import ui\ne = ui.LiveExplorer('word_count', 'static', windows=500)\ne.start()"
        reply = client.execute_interactive(source, timeout=120, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok"
        _until(lambda: _java_of(str(tmp_path)), 120)
        manager.restart_kernel(now=True)
        _until(lambda: not _java_of(str(tmp_path)), 120)
        client.wait_for_ready(timeout=120)
        client.stop_channels()
    finally:
        manager.shutdown_kernel(now=True)
    _until(lambda: not _java_of(str(tmp_path)), 120)
