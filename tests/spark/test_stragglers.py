"""Tasks whose process has stopped: a real process, and readings that the test makes up."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from dspkit.spark.metering import HeavyTask, SilentTask
from dspkit.spark.runtime.supervisor import IDLE_S, STOPPED_S, StragglerWatch, why_replaced


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that works, called as Spark calls its workers."""
    code = "import time\nwhile True: sum(range(1000)); time.sleep(0.001)"
    made = subprocess.Popen([sys.executable, "-c", code, "daemon"])
    yield made
    made.kill()
    made.wait()


def _task(process: subprocess.Popen[bytes], seconds: float, **changed: object) -> SilentTask:
    values = dict(operator=1, instance=2, token="0-a", pid=process.pid, host=socket.gethostname(), seconds=seconds)
    return SilentTask(**{**values, **changed})  # type: ignore[arg-type]


@pytest.fixture
def watch() -> tuple[StragglerWatch, list[SilentTask]]:
    silent: list[SilentTask] = []
    made = StragglerWatch(lambda seconds: [task for task in silent if task.seconds >= seconds], ("read", "count"))
    made.close()  # the test looks itself
    return made, silent


def _stopped(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    os.waitpid(process.pid, os.WUNTRACED)


def test_a_stopped_process_is_killed_and_that_is_said(
    process: subprocess.Popen[bytes], watch: tuple[StragglerWatch, list[SilentTask]], caplog: pytest.LogCaptureFixture
) -> None:
    look, silent = watch
    _stopped(process)
    silent.append(_task(process, STOPPED_S - 0.1))
    look.look()
    assert process.poll() is None  # not for long enough
    silent[:] = [_task(process, STOPPED_S)]
    with caplog.at_level(logging.WARNING, "dspkit"):
        look.look()
    assert process.wait(60) == -signal.SIGKILL
    assert "instance 2 of 'count' has sent no reading for 10 s, as process" in caplog.text
    assert "is stopped" in caplog.text


def test_a_process_that_works_or_waits_for_a_core_is_left_alone(
    process: subprocess.Popen[bytes], watch: tuple[StragglerWatch, list[SilentTask]], caplog: pytest.LogCaptureFixture
) -> None:
    look, silent = watch
    for seconds in (STOPPED_S, 60.0, 10 * IDLE_S):
        silent[:] = [_task(process, seconds)]
        look.look()
        before, end = psutil.Process(process.pid).cpu_times(), time.monotonic() + 60
        while psutil.Process(process.pid).cpu_times() == before:  # it works between two looks, if ever so little
            assert time.monotonic() < end
            time.sleep(0.01)
    assert process.poll() is None
    assert caplog.text.count("may hold Python's lock") <= 1


def test_nothing_but_a_worker_of_this_machine_is_killed(
    process: subprocess.Popen[bytes], watch: tuple[StragglerWatch, list[SilentTask]], caplog: pytest.LogCaptureFixture
) -> None:
    look, silent = watch
    _stopped(process)
    silent.append(_task(process, 100.0, host="elsewhere"))
    look.look()
    look.look()
    assert process.poll() is None
    assert caplog.text.count("on elsewhere") == 1
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        _stopped(other)
        silent[:] = [_task(process, 100.0, pid=other.pid)]
        look.look()
        assert other.poll() is None
        other.kill()
        other.wait()
        look.look()  # gone
    finally:
        other.kill()
        other.wait()


def test_a_process_that_leaks_is_reported_once_and_each_of_its_epochs_is_ended_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heavy: list[HeavyTask] = []
    cuts: list[str] = []
    watch = StragglerWatch(lambda _: [], ("read", "count"), lambda: heavy, lambda: cuts.append(heavy[0].token))
    watch.close()
    with caplog.at_level(logging.WARNING, "dspkit"):
        for token, ended in (("0-a", True), ("1-b", False), ("1-b", False), ("1-b", True), ("2-c", False)):
            heavy[:] = [HeavyTask(1, 0, token, 7, 3_000_000_000, ended)]
            watch.look()
    assert cuts == ["1-b", "2-c"]
    (said,) = caplog.messages
    assert said.startswith("process 7 of 'count' has 3.0 GB")


def test_the_limits_of_silence() -> None:
    assert why_replaced(stopped=True, idle=False, since=10, now=STOPPED_S) == "is stopped"
    assert why_replaced(stopped=False, idle=True, since=10, now=IDLE_S - 1) is None
    assert why_replaced(stopped=False, idle=True, since=10, now=IDLE_S) is not None
    assert why_replaced(stopped=False, idle=False, since=10, now=100 * IDLE_S) is None
