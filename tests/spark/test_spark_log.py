"""The files of Spark's own log: their place, their bounds, and the reason that an error quotes from them."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dspkit.spark import FunctionError
from dspkit.spark.errors import java_error, python_error, readable
from dspkit.spark.runtime import spark_log
from dspkit.spark.runtime.spark_log import QuietJava, SparkLog, open_log, printed_reason

PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "task.py", line 148, in run
    yield from Task(self)
ValueError: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "state.py", line 97, in save_state
pyarrow.lib.ArrowInvalid: Could not convert 'n' with type str:
tried to convert to int64
 SQLSTATE: 38000
=== Streaming Query ===
Identifier: [id = 2755d5f8]
"""
LOST = (
    "Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 2.0 (TID 2) (127.0.0.1 executor 1): "
)
RECORDS = """2026-11-19 14:12:33.471 WARN  Some: unimportant
2026-11-19 14:12:46.338 ERROR Executor: Exception in task 0.0 in stage 14.0 (TID 14)
java.lang.RuntimeException: could not write
	at org.apache.spark.a.b(C.scala:219)
Caused by: java.io.IOException: No space left on device
	at java.base/java.lang.Thread.run(Thread.java:840)
	... 12 more
2026-11-19 14:12:46.339 ERROR ErrorNotifier: A fatal error has occurred.
org.apache.spark.SparkException: Connection to streaming shuffle writer 7 closed before termination
	at org.apache.spark.shuffle.streaming.StreamingShuffleClientHandler.channelInactive(S.scala:219)
2026-11-19 14:12:46.341 ERROR TaskSetManager: [queryId = 87d4e] Task 0 in stage 14.0 failed 1 times; aborting job
"""


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SparkLog]:
    made = SparkLog(tmp_path / "log")
    yield made
    made.close()


def test_the_last_exception_of_a_python_traceback_is_the_cause_and_javas_text_is_left_out() -> None:
    cause, trace = python_error(PYTHON)
    assert cause == "pyarrow.lib.ArrowInvalid: Could not convert 'n' with type str:"
    assert trace.splitlines()[0] == "Traceback (most recent call last):"
    assert trace.splitlines()[-1] == "tried to convert to int64"
    assert "ValueError: first" in trace
    said = str(readable(RuntimeError(PYTHON)))
    assert said.splitlines()[0].startswith("got the end of the query (pyarrow.lib.ArrowInvalid: Could not convert 'n'")
    assert said.index("Could not convert") < said.index("Traceback")
    assert "save_state" in said
    assert "Streaming Query" not in said


@pytest.mark.parametrize(
    "name", ["SystemExit: 3", "KeyboardInterrupt", "my.own.Trouble: [x] it broke", "StopIteration"]
)
def test_an_exception_of_any_name_is_found(name: str) -> None:
    frames = '  File "a.py", line 1, in f\n    f()\n    ^^^\n'
    text = f"Lost task: Traceback (most recent call last):\n{frames}{name}\n\tat a.b.C"
    assert python_error(text)[0] == name
    assert name in str(readable(RuntimeError(text))).splitlines()[0]


def test_a_long_cause_is_not_cut_off() -> None:
    text = f"Traceback (most recent call last):\n  File 'x'\nValueError: {'x' * 5000} the end"
    assert "the end);" in str(readable(RuntimeError(text)))


CLOSED = "java.nio.channels.ClosedChannelException"
KILLED = "ExecutorLostFailure (executor 1 exited) Reason: code 137"
FULL = "java.io.IOException: No space left"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LOST}{KILLED}\nDriver stacktrace:", KILLED),
        (f"{LOST}{CLOSED}\n\tat java.base/x.Y.z(Y.java:3)", CLOSED),
        (f"a.B: x\n\tat c.d(E)\nCaused by: f.G: y\n\t... 3 more\nCaused by: {FULL}", f"a.B: x; caused by {FULL}"),
        ("[SOME_CLASS] a message\nof two lines. SQLSTATE: 1", "[SOME_CLASS] a message of two lines. SQLSTATE: 1"),
        ("", ""),
    ],
)
def test_javas_message_is_kept_without_its_stack(text: str, said: str) -> None:
    assert java_error(text) == said


def test_the_users_exception_comes_before_its_traceback() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nZeroDivisionError: mine'
    error = readable(RuntimeError("anything"), ("work", trace))
    assert isinstance(error, FunctionError)
    lines = str(error).splitlines()
    assert lines[:3] == ["ZeroDivisionError: mine", "", "Traceback (most recent call last):"]
    assert str(readable(RuntimeError(""), ("work", "TypeError: it gave 3"))).startswith(
        "TypeError: it gave 3\n\nexpected"
    )


def test_the_reason_is_that_of_the_task_that_failed_first_and_only_since_the_mark(log: SparkLog) -> None:
    assert log.reason() is None
    log.spark.write_text(RECORDS)
    reason = "java.lang.RuntimeException: could not write; caused by java.io.IOException: No space left on device"
    assert log.reason() == f"Exception in task 0.0 in stage 14.0 (TID 14) {reason}" or log.reason() == reason
    assert str(log.spark) in log.advice()
    assert "No space left" in log.advice()
    assert "No space left" not in log.advice(known=log.reason() or "")
    log.mark()
    assert log.reason() is None
    assert log.advice() == f"see Spark's own log, {log.spark}"
    log.spark.write_text("")  # rotated
    assert log.reason() is None
    log.spark.write_text(RECORDS.replace("No space left", "rotated"))
    assert "rotated" in str(log.reason())


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("Error: Could not find or load main class a.B\nCaused by: java.lang.ClassNotFoundException: a.B\n", "a.B"),
        ("WARNING: incubator\nError occurred during initialization of VM\nToo small maximum heap\n", "maximum heap"),
        ('Exception in thread "main" java.io.IOException: Too many open files\n\tat a.b(C)\n', "Too many open files"),
        ("spark-class: line 12: /nowhere/java: No such file or directory\n", "No such file"),
        ("a function printed this\nand that\n", None),
        ("", None),
    ],
)
def test_what_java_or_a_shell_printed_at_its_end_is_the_reason(printed: str, reason: str | None, log: SparkLog) -> None:
    log.output.write_text(printed)
    found = log.reason()
    assert found == printed_reason(printed)
    assert found is None if reason is None else reason in str(found)


def test_output_is_bounded_and_its_newest_part_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_log, "_SIZE", 10_000)
    monkeypatch.setattr(spark_log, "_TRIM_S", 0.01)
    log = SparkLog(tmp_path)
    with log.output.open("a") as writer:  # as Java has it open
        for i in range(5000):
            print(f"line {i}", file=writer, flush=True)
        end = time.monotonic() + 30
        while log.output.stat().st_size > 10_000 and time.monotonic() < end:
            time.sleep(0.01)
        log.close()
        print("the last line", file=writer, flush=True)
    lines = log.output.read_text().splitlines()
    assert sum(map(len, lines)) <= 20_000
    assert "... older output was dropped" in lines  # after what was written at that moment
    assert lines[-1] == "the last line"


def test_logs_lie_where_they_can_be_written_and_only_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(spark_log.tempfile, "gettempdir", lambda: str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for i in range(15):
        (tmp_path / "home" / "logs" / f"spark-20200101-0000{i:02}-{ended.pid}").mkdir(parents=True)
    mine = tmp_path / "home" / "logs" / f"spark-20190101-000000-{os.getppid()}"  # of a process that still runs
    mine.mkdir()
    made = [open_log(None), open_log(str(tmp_path / "asked"))]
    assert made[0].folder.parent == tmp_path / "home" / "logs"
    assert made[1].folder == tmp_path / "asked"
    assert len(list((tmp_path / "home" / "logs").iterdir())) == spark_log._KEPT + 1
    assert mine.is_dir()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path / "file"))  # nothing fits below it
    made.append(open_log(str(tmp_path / "file" / "too")))
    private = tmp_path / f"dspkit-logs-{os.getuid()}"
    assert made[2].folder.parent == private
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    private.chmod(0o777)  # or another user made it
    made.append(open_log(None))
    assert made[3].folder.parent == tmp_path
    assert made[3].folder != private
    monkeypatch.setenv("DSPKIT_HOME", str(tmp_path / "home"))
    made.append(open_log(str(tmp_path / "${sys:user.home}")))  # which log4j would read as its own
    assert made[4].folder.parent == tmp_path / "home" / "logs"
    for log in made:
        log.close()


def test_pyspark_and_py4j_do_not_speak_before_the_error(caplog: pytest.LogCaptureFixture) -> None:
    quiet = QuietJava()
    about = dict(name="root", level=logging.ERROR, lineno=1, args=(), exc_info=None)
    theirs = logging.LogRecord(pathname="/x/py4j/java_gateway.py", msg="Exception while sending command.", **about)  # type: ignore[arg-type]
    others = logging.LogRecord(pathname="/x/mine.py", msg="Exception while sending command.", **about)  # type: ignore[arg-type]
    assert not quiet.filter(theirs)
    assert quiet.filter(others)


FAILS = """
import json, sys
from dspkit import Topology, workload
from dspkit.spark import SparkJob, arrow
from dspkit.core.errors import DspkitError
settings = json.loads(sys.argv[1])
try:
    SparkJob(Topology.chain("a", "b"), {"b": arrow(print)}, workload.Constant(1), settings=settings)
except DspkitError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.spark
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"spark.driver.extraJavaOptions": "-agentlib:nosuch"}, "agent library nosuch"),
        ({"spark.driver.memory": "1k"}, "heap"),
        ({"spark.plugins": "no.such.Plugin"}, "no.such.Plugin"),
    ],
)
def test_what_java_said_when_it_did_not_start_is_quoted_and_kept(
    settings: dict[str, str], reason: str, tmp_path: Path
) -> None:
    env = os.environ | {"DSPKIT_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", FAILS, json.dumps(settings)], env=env, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("SessionError got "), ran.stdout + ran.stderr
    assert reason in ran.stdout.partition("; expected")[0]
    assert ran.stderr == ""
    (kept,) = (tmp_path / "logs").iterdir()
    assert str(kept) in ran.stdout
    assert any(reason in path.read_text() for path in kept.glob("*.log"))
