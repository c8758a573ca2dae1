"""The Explorer and its switch: what it takes, what it carries over; a live job started, moved and stopped."""

from __future__ import annotations

import html
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import live
from dspkit import DspkitError, apps, ui, workload
from dspkit.core import ArgumentError, BackendError, NotFoundError
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import variant


def _until(true: Callable[[], object], timeout_s: float = 240) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def test_a_live_run_is_printed_as_code_that_can_be_copied() -> None:
    explorer = ui.Explorer("taxi", Static(), backend="spark", windows=7, mode="microbatch")
    explorer.view.scale.value = 0.5
    explorer._sliders["count_by_window"].value = 3
    code = explorer.settings.code()
    start = dict.fromkeys(apps.get("taxi")().topology.order, 1) | {"count_by_window": 3}
    assert code.splitlines()[-4:] == [
        "app = apps.taxi()",
        f"with app.spark(scale=0.5, parallelism={start}, window_s=2, mode='microbatch') as job:",
        "    history = run(Static(), job, steps=7, settle=1)",
        "plots.timeline(history, target_latency_s=0.5)",
    ]
    compile(code, "code", "exec")
    assert ui.Settings.load(repr(explorer.settings)) == explorer.settings
    assert explorer.view.speed.layout.display == "none"
    assert explorer.error == ""


def test_the_switch_keeps_what_was_set_and_takes_the_other_sides_own_for_the_rest() -> None:
    explorer = ui.Explorer("word_count", DS2(activation=3), windows=20, speed=0)
    explorer._sliders["flat_map"].value = 2
    explorer.view.scale.value = 1.5
    explorer.loads.pick.value = "wave"
    simulated = explorer.settings
    assert [value for _, value in explorer.view.switch.options] == ["simulated", "spark"]
    explorer.view.switch.value = "spark"
    live = explorer.settings
    assert explorer.error == ""
    assert (live.backend, live.policy, live.scale, live.windows) == ("spark", DS2(activation=3), 1.5, 20)
    assert live.parallelism == simulated.parallelism
    assert (live.window_s, live.settle, live.target_latency_s) == (2.0, 1, 0.5)
    assert explorer._sliders["flat_map"].max <= 16 < explorer._app("word_count").topology["flat_map"].max_parallelism
    ends = {name: app.load.rates(np.linspace(0, 40, 50)).mean() for name, app in _both("word_count").items()}
    assert live.workload.mean_per_s / simulated.workload.mean_per_s == pytest.approx(
        ends["live"] / ends["simulated"], rel=0.1
    )
    hidden = [explorer.plants.view, explorer.view.speed]
    assert [widget.layout.display for widget in hidden] == ["none", "none"]
    assert explorer.loads.pick.value == "wave"
    assert "app.spark(" in explorer.view.code.value
    explorer.view.switch.value = "simulated"
    back = explorer.settings
    assert (back.window_s, back.settle, back.target_latency_s) == (10.0, 0, 0.18)
    assert back.workload.mean_per_s == pytest.approx(simulated.workload.mean_per_s, rel=0.05)
    assert [widget.layout.display for widget in hidden] == [None, None]
    explorer.start()
    assert explorer.wait(300)
    assert (explorer.error, len(explorer.history)) == ("", 20)


def _both(name: str) -> dict[str, apps.App]:
    app = apps.get(name)()
    return {"simulated": app, "live": app.as_live()}


def test_the_switch_ends_a_run_and_options_stay_with_their_side() -> None:
    explorer = ui.Explorer("star", "static", windows=10_000, speed=20, engine="records")
    explorer.start()
    _until(lambda: explorer.history)
    run = explorer._live
    explorer.view.switch.value = "spark"
    assert run is not None
    assert run.wait(300)
    assert explorer.history is None
    assert explorer.settings.options == {}
    assert "Synthetic star" in explorer.view.note.value
    explorer.view.app.value = "word_count"
    assert explorer.settings.backend == "spark"
    explorer.view.switch.value = "simulated"
    assert explorer.settings.options == {"engine": "records"}
    explorer.reset()
    assert (explorer.settings.app, explorer.view.switch.value) == ("star", "simulated")


@pytest.mark.parametrize(
    "given",
    ["star", apps.star, apps.star(), apps.star().under(workload.Constant(100.0))],
    ids=["name", "function", "made", "made under a load"],
)
def test_an_application_is_taken_by_name_as_a_function_and_made(given: Any) -> None:
    explorer = ui.Explorer(given, Static, windows=3, speed=0)
    assert explorer.settings.app == "star"
    explorer.start()
    assert explorer.wait(300)
    assert explorer.error == ""
    rate = explorer.history.application.source_rate.iloc[0]
    assert (rate == pytest.approx(100.0)) == (explorer.settings.workload is not None)
    names: dict[str, Any] = {}
    exec(explorer.settings.code().rsplit("\n", 1)[0], names)
    assert names["history"].application.throughput.tolist() == explorer.history.application.throughput.tolist()


def test_an_application_of_ones_own_is_found_in_this_view() -> None:
    own = apps.star().under(plant=variant(apps.star().plant, "half the cores"))
    explorer = ui.Explorer(own, "ds2", windows=3, speed=0)
    assert explorer.settings.app == "star: your own"
    assert "star: your own" in explorer.view.app.options
    explorer.start()
    assert explorer.wait(300)
    assert explorer.error == ""
    assert "app is the application that was given" in explorer.settings.code()
    with pytest.raises(DspkitError, match="star: your own"):
        ui.Explorer("star").use(repr(explorer.settings))
    live = apps.App("only_live", own.topology, live=apps.star().synthetic().live)
    explorer = ui.Explorer(live)
    assert explorer.settings.backend == "spark"
    assert explorer.view.switch.layout.display == "none"


def test_a_ready_backend_runs_on_and_stays_open() -> None:
    with apps.star().simulator(parallelism=2) as backend:
        explorer = ui.Explorer(backend, "static", windows=4, speed=0)
        assert explorer.view.switch.layout.display == "none"
        assert {s.value for s in explorer._sliders.values()} == {2}
        explorer._sliders["bolt"].value = 3
        for began_s in (0, 40):
            explorer.start()
            assert explorer.wait(300)
            assert (explorer.error, explorer.history[0].snapshot.t) == ("", began_s + 10)
            assert explorer.history[0].deployment.parallelism["bolt"] == 3
        assert "history = run(Static(), backend, steps=4)" in explorer.settings.code()
        both = ui.Explorer("star", "static", backend=backend, windows=2, speed=0)
        assert [value for _, value in both.view.switch.options] == ["simulated", "spark", "given"]
        assert both.settings.backend == "given"
        both.view.app.value = "word_count"
        assert both.settings.backend == "simulated"
        both.view.app.value = "star"
        both.view.switch.value = "given"
        assert both.error == ""
        assert backend.observe() is not None


WRONG = [
    ({"app": 7}, ArgumentError, "an application, its name"),
    ({"app": apps.App}, ArgumentError, "the class App"),
    ({"app": "typo"}, NotFoundError, "one of .*word_count"),
    ({"app": lambda name: apps.get(name)()}, ArgumentError, "which needs an argument"),
    ({"app": lambda: 3}, ArgumentError, "got int 3"),
    ({"policy": 7}, DspkitError, "a policy, its class or its name"),
    ({"policy": "typo"}, NotFoundError, "one of .*ds2"),
    ({"backend": "flink"}, BackendError, "'simulated' or 'spark', or a backend that is ready"),
    ({"backend": lambda app: app.simulator()}, BackendError, "the function <lambda>"),
    ({"backend": apps.word_count().simulator(), "app": "star"}, BackendError, "one that runs star"),
    ({"backend": "spark", "app": apps.star().simulator()}, ArgumentError, "expected one backend"),
    ({"tick": 3}, ArgumentError, "some of .*tick_s"),
    ({"backend": "spark", "tick_s": 3}, ArgumentError, "some of .*epoch_s"),
    ({"windows": "x"}, ArgumentError, "a whole number"),
]


@pytest.mark.parametrize(("given", "kind", "words"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_argument_is_one_sentence(given: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        ui.Explorer(**given)
    assert "\n" not in str(caught.value)


def test_pasted_settings_choose_the_side_and_refuse_one_that_is_not_there() -> None:
    explorer = ui.Explorer("star", "static", windows=3, speed=0)
    explorer.view.settings.value = "Settings('word_count', DS2(), backend='spark', options={'mode': 'microbatch'})"
    assert (explorer.error, explorer.view.switch.value) == ("", "spark")
    for wrong in ("backend='given'", "backend='typo'", "backend=3", "backend='spark', options={'tick_s': 1}"):
        explorer.view.settings.value = f"Settings('star', DS2(), {wrong})"
        assert "expected" in explorer.error
        assert explorer.settings.app == "word_count"


def test_a_live_run_is_begun_with_what_the_view_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a simulator in the place of Spark, which records how it was asked for."""
    asked: list[tuple[apps.App, dict[str, Any]]] = []

    def spark(app: apps.App, *load: Any, parallelism: Any, window_s: float, scale: Any, **more: Any) -> Any:
        more.pop("on_progress", None)
        factor = scale() if callable(scale) else scale  # a view's can be turned while it runs
        asked.append((app, {"load": load, "window_s": window_s, "scale": factor, **more}))
        return apps.word_count().simulator(parallelism=parallelism, window_s=window_s)

    monkeypatch.setattr(apps.App, "spark", spark)
    explorer = ui.Explorer("word_count", Static, backend="spark", windows=3, mode="microbatch", scale=0.5)
    explorer._sliders["count"].value = 4
    explorer.loads.pick.value = "constant"
    explorer.start()
    assert explorer.wait(300)
    assert (explorer.error, len(explorer.history)) == ("", 3)
    assert asked[0][0].load == explorer.settings.workload
    assert asked[0][1] == {"load": (), "window_s": 2.0, "scale": 0.5, "mode": "microbatch"}
    assert explorer.history[0].deployment.parallelism["count"] == 4
    names: dict[str, Any] = {}
    exec(explorer.settings.code().rsplit("\n", 1)[0], names)
    assert names["history"][-1].deployment == explorer.history[-1].deployment
    assert asked[1][1] == asked[0][1] | {"load": (explorer.settings.workload,)}


def test_a_job_that_cannot_start_is_a_line_and_the_next_one_can(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(app: apps.App, **_: Any) -> Any:
        raise BackendError("no <Java>", expected="one", fix="install it")

    explorer = ui.Explorer("star", "static", backend="spark", windows=3)
    with monkeypatch.context() as patched:
        patched.setattr(apps.App, "spark", broken)
        explorer.view.buttons["Start"].click()
        assert explorer.wait(300)
    assert 'class="dspkit-error"' in explorer.error
    assert "no &lt;Java&gt;" in explorer.error
    assert "Failed" in explorer.view.status
    explorer.view.switch.value = "simulated"
    explorer.view.buttons["Start"].click()
    assert explorer.wait(300)
    assert (explorer.error, len(explorer.history)) == ("", 3)


def test_machines_for_a_job_on_this_one_are_refused_with_what_to_do() -> None:
    explorer = ui.Explorer("word_count", "ds2", backend="spark")
    assert explorer.view.workers.value == 0
    explorer.view.policy.value = "stela"  # which is nothing without workers
    assert explorer.settings.options["workers"] == explorer.view.workers.value == 2
    assert "workers=2" in explorer.settings.code()
    explorer.view.workers.value = 0
    explorer._panel.asking[1].click()
    assert "slider of workers" in explorer.error
    explorer = ui.Explorer("word_count", "stela", backend="spark", workers=3)
    explorer._panel.asking[1].click()
    assert explorer.error == ""
    assert [r.machines for r in explorer.settings.policy.requests] == [1]
    assert explorer.view.workers.value == 3
    explorer.view.switch.value = "simulated"
    assert explorer.view.workers.layout.display == "none"


def test_the_slider_of_workers_moves_an_active_job_and_follows_what_a_policy_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def spark(app: apps.App, *, parallelism: Any, window_s: float, workers: int, **_: Any) -> Any:
        started.append(workers)
        linear = apps.linear()
        return linear.simulator(parallelism=dict.fromkeys(linear.topology.order, 2), window_s=window_s)

    started: list[int] = []
    monkeypatch.setattr(apps.App, "spark", spark)
    explorer = ui.Explorer("linear", "stela", backend="spark", windows=30, workers=2)
    monkeypatch.setattr(explorer, "_pace", lambda: 4.0)
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 2)
    nodes = explorer.history[-1].snapshot.deployment.workers
    explorer.view.workers.value = nodes - 1
    _until(lambda: explorer.history[-1].snapshot.deployment.workers == nodes - 1)
    explorer._panel.asking[1].click()
    _until(lambda: explorer.history[-1].snapshot.deployment.workers == nodes)
    _until(lambda: explorer.view.workers.value == nodes)
    explorer.stop()
    assert explorer.wait(60)
    assert explorer.error == ""
    assert started == [2]
    assert explorer.settings.options["workers"] == explorer.view.workers.value == nodes - 1  # of the next start
    assert [what for _, what in explorer.history.notes if "by hand" in what]


def test_an_active_run_can_be_made_longer() -> None:
    explorer = ui.Explorer("star", "static", windows=12, speed=20)
    explorer.start()
    _until(lambda: explorer.history and len(explorer.history) >= 2)
    explorer.view.windows.value = 15
    assert explorer.wait(60)
    assert len(explorer.history) == 15
    assert (explorer.settings.windows, explorer.view.cockpit.head["windows"]) == (15, 15)


@pytest.mark.spark
@pytest.mark.slow
def test_start_move_and_stop_of_a_real_job() -> None:
    live.end()  # so that the job starts a Spark of its own, and must take it along
    explorer = ui.Explorer("word_count", Static(), backend="spark", windows=500, window_s=1.0)
    explorer.start()
    _until(lambda: explorer.error or (explorer.history and len(explorer.history) >= 2))
    assert explorer.error == ""
    explorer._sliders["flat_map"].value = 3
    _until(lambda: explorer.history and explorer.history[-1].snapshot.deployment.parallelism["flat_map"] == 3)
    rate = explorer.history[-1].snapshot.source_rate
    explorer.view.scale.value = 2.0  # the load of the active job follows
    _until(lambda: explorer.history[-1].snapshot.source_rate == pytest.approx(2 * rate, rel=0.02))
    explorer.pause()
    _until(lambda: "Paused" in explorer.view.status)
    held = len(explorer.history)
    explorer.pause()
    _until(lambda: len(explorer.history) > held)
    explorer.stop()
    assert explorer.wait(300)
    assert explorer.error == ""
    assert explorer.history
    assert "backend='spark'" in html.unescape(explorer.export().read_text())
    assert [what for _, what in explorer.history.notes] == ["flat_map 1 → 3, by hand", "load × 2"]
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
    """As by the menu of JupyterLab: the kernel is killed before it can end Spark."""
    from jupyter_client import KernelManager

    manager = KernelManager()
    manager.start_kernel(env={**os.environ, "DSPKIT_HOME": str(tmp_path)})
    try:
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        source = (
            "from dspkit import ui\ne = ui.Explorer('word_count', 'static', backend='spark', windows=500)\ne.start()"
        )
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
