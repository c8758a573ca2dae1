"""The Spark session of live jobs: started with the settings of our engines, on this machine by default."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import SessionError, java_error
from . import java, spark_log
from .java import ensure_java

log = logging.getLogger("dspkit")

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CORE = {  # fixed once a SparkContext has started
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark keeps finished jobs even without its pages; an epoch has one job, and one stage per operator, for hours.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "60",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.log.level": "WARN",  # into a file: see spark_log
    "spark.driver.memory": "2g",
    # Planning an epoch is much code that runs a few times: compile it once, without further optimisation.
    _JAVA_OPTIONS: "-XX:TieredStopAtLevel=1",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # TCP's buffers would hide back-pressure
    "spark.shuffle.streaming.networkBufferSize": "64",
    "spark.shuffle.streaming.writerMaxMemory": "2048",
    "spark.shuffle.streaming.readerMaxMemory": "65536",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1000",
    "spark.python.udf.pipelined.queueDepth": "1",
    "spark.speculation": "false",
    # Failures are never repaired in part: a task that runs again may send its records to other instances. The
    # query dies instead, and is restarted from its checkpoint.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.python.daemon.module": "dspkit.spark.runtime.daemon",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_SQL = {  # settings of a job's own copy of the session
    "spark.sql.adaptive.enabled": "false",  # it would merge tasks
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",  # a row is a frame, and does not wait for the next
    "spark.sql.execution.pandas.udf.buffer.size": "256",
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",  # Python operators are not on Spark's list yet
    "spark.sql.streaming.realTimeMode.minBatchDuration": "500",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.numRecentProgressUpdates": "100",
    "spark.sql.streaming.stopTimeout": "60s",  # a query that does not stop is an error; Spark would wait for ever
}
_STOP_S = 60.0  # longest wait for Spark to stop, after which its Java is killed
_LONGEST = 50  # characters of a folder for sockets: the system accepts a hundred, Spark adds a name of 43
_use = {"jobs": 0, "ours": False}  # users of the one Spark of this process
STARTING = threading.RLock()  # held by a job that starts or ends this Spark: a cell and a view may do so at once
_log: spark_log.SparkLog | None = None  # of the one Spark of this process, if we started it
_quiet_java = spark_log.QuietJava()
_PATTERN = re.compile(r"[,*?{}\[\]]")
_EXCHANGE, _OURS = "spark.shuffle.manager.incremental", "dspkit.Exchange"
_SEE = f"it was started without {_EXCHANGE}={_OURS} (docs/spark.md, Security)"
_SECRET, _SECRET_VARIABLE = "spark.authenticate.secret", "_SPARK_AUTH_SECRET"  # Spark reads the variable first
_PIPELINED = "spark.python.udf.pipelined.enabled"  # required by real-time mode; micro-batches occasionally fail with it


def without_jar() -> str | None:
    """Return why a job must run without the jar, because of the installed or running Spark; None if it can use it."""
    found = running_session()
    if found is not None and "dspkit.Plugin" not in found.sparkContext.getConf().get("spark.plugins", ""):
        return "a Spark runs that was started without it"
    return java.unusable()


def start_session(
    master: str,
    mode: str,
    settings: dict[str, str] | None = None,
    *,
    with_jar: bool = True,
) -> Any:
    """Return the SparkSession for a job in `mode`: the running one if it fits, otherwise a new one."""
    if (found := running_session()) is not None:
        return _fitting(found, mode) if with_jar else found
    ensure_java()
    from pyspark.sql import SparkSession

    conf = _CORE | (_LOCAL if master.startswith("local") else {}) | {_PIPELINED: str(mode == "realtime").lower()}
    if master == "local" or master.startswith("local["):  # for other masters, Spark wants the secret from the user
        conf["spark.authenticate"] = "true"
    if with_jar:
        conf |= _with_jar(java.JAR.absolute())
    if with_jar and mode == "realtime":
        conf[_EXCHANGE] = _OURS
    conf["spark.sql.warehouse.dir"] = str(Path(tempfile.gettempdir()) / "dspkit-warehouse")
    if len(tempfile.gettempdir()) > _LONGEST:
        conf["spark.python.unix.domain.socket.dir"] = "/tmp"
    conf |= settings or {}
    try:
        conf = _launch(conf)
        builder = SparkSession.builder.master(master).appName("dspkit")
        for name, value in conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    except Exception as error:
        raise _not_started(master, error) from error
    server: Any = spark.sparkContext._accumulatorServer
    server.handle_error = _not_of_a_dead_java
    return spark


def _with_jar(path: Path) -> dict[str, str]:
    """Return the settings that load our jar and its plugin."""
    name = str(path)
    if _PATTERN.search(name) and os.pathsep not in name:  # which Spark reads as a list of files, or as a pattern
        places = dict.fromkeys(("spark.driver.extraClassPath", "spark.executor.extraClassPath"), name)
    else:
        places = {"spark.jars": path.as_uri()}
    return places | {"spark.plugins": "dspkit.Plugin"}


def _launch(conf: dict[str, str]) -> dict[str, str]:
    """Start Java, all of whose output goes to files; return the settings with those of its log.

    A secret goes into its environment: others may read a command line. A Java that runs already, from a Spark that was
    stopped, keeps its own log.
    """
    global _log  # noqa: PLW0603  (one Java per process, and one log of it)
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return conf if _log is not None else conf | {"spark.log.level": "OFF"}
    _end_log()
    _log = spark_log.open_log(conf.get(spark_log.SETTING))
    logging.getLogger().addFilter(_quiet_java)
    options = f"{conf[_JAVA_OPTIONS]} {_log.java_option}"
    conf = conf | {spark_log.SETTING: str(_log.folder), _JAVA_OPTIONS: options}
    with _log.output.open("ab") as output, _environment(conf):
        conf = conf | ({_SECRET: "in the environment"} if _SECRET in conf else {})  # Spark wants to see the setting
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            SparkConf().setAll(list(conf.items())), {"stdout": output, "stderr": output}
        )
    SparkContext._ensure_initialized(gateway=gateway)
    return conf


@contextlib.contextmanager
def _environment(conf: Mapping[str, str]) -> Iterator[None]:
    """Put the secret of these settings into the environment for the processes that are started meanwhile."""
    before = os.environ.get(_SECRET_VARIABLE)
    if _SECRET in conf:
        os.environ[_SECRET_VARIABLE] = conf[_SECRET]
    try:
        yield
    finally:
        os.environ.pop(_SECRET_VARIABLE, None)
        if before is not None:
            os.environ[_SECRET_VARIABLE] = before


def _end_log() -> None:
    global _log  # noqa: PLW0603
    if _log is not None:
        _log.close()
        _log = None
        logging.getLogger().removeFilter(_quiet_java)


def log_advice(known: str = "") -> str:
    """Return where to look for what Spark itself says, and its last reason for a failure if it is not known already."""
    return _log.advice(known) if _log is not None else "see the log of the Spark that ran before the job"


def mark_log() -> None:
    """Let later advice leave out what Spark has written so far."""
    if _log is not None:
        _log.mark()


def _not_started(master: str, error: Exception) -> SessionError:
    """Return the error of a Spark that does not start, with the reason that Java or Spark gave for it."""
    advice = log_advice()
    said = (_log.reason() if _log is not None else None) or str(error).splitlines()[0]
    if "JAVA_GATEWAY_EXITED" in str(error) and _log is not None:
        got = f"a Java that ended before Spark ran in it ({said})"
        fix = f"mend what it says; all that it printed is in {_log.output}"
        return SessionError(got, expected="one that runs Spark", fix=fix)
    said = java_error(str(error.java_exception)) if hasattr(error, "java_exception") else said
    return SessionError(f"no Spark at {master} ({said})", expected="a master that answers", fix=f"check it; {advice}")


def _not_of_a_dead_java(*_: object) -> None:
    """Report nothing where a request of Spark's Java ended with it; queries end with an error that says so."""


def running_session() -> Any:
    """Return the session of the Spark that runs in this process, or None."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    if java_ended():  # it was killed and does not answer any more
        with contextlib.suppress(OSError):
            gateway: Any = SparkContext._gateway
            gateway.proc.stdin.close()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        _use["ours"] = False
        return None
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession


def java_ended() -> bool:
    """Return whether the Java of this process's Spark has ended before it was stopped."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def job_session(spark: Any) -> Any:
    """Return a session for one job: settings of its own, in the same Spark."""
    find_modules(spark)
    own = spark.newSession()
    for name, value in _SQL.items():
        own.conf.set(name, value)
    return own


def retire(spark: Any, executors: Iterable[str]) -> None:
    """Start no more tasks on these executors; running ones continue, and their output can still be fetched."""
    context, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("its worker leaves", jvm.scala.Option.empty())
    for executor in executors:  # as if triggered by the executor, which then does not end by itself
        context.schedulerBackend().decommissionExecutor(executor, why, False, True)


def machines(spark: Any) -> dict[str, float]:
    """Return seconds of full load per machine with executors, as our plugin counts them; empty without our jar."""
    if without_jar() is not None:
        return {}
    return {str(host): float(seconds) for host, seconds in spark.sparkContext._jvm.dspkit.Plugin.busy().items()}


def round_trips(spark: Any, last_s: float) -> dict[tuple[int, int], float]:
    """Return the least round trip of the last seconds, by the numbers of the worker that pinged and the other one."""
    if without_jar() is not None:
        return {}
    found = spark.sparkContext._jvm.dspkit.Plugin.pings(last_s)
    return {(int(a), int(b)): float(s) for pair, s in found.items() for a, _, b in [str(pair).partition(",")]}


def remove_at_end(spark: Any, folder: Path) -> None:
    """Let Java remove this folder when it ends, a moment after a Python that is terminated or killed."""
    jvm = spark.sparkContext._jvm
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def keep_at_end(spark: Any, folder: Path) -> None:
    """Let Java not remove this folder when it ends, after all."""
    jvm = spark.sparkContext._jvm
    jvm.org.apache.spark.util.ShutdownHookManager.removeShutdownDeleteDir(jvm.java.io.File(str(folder)))


def host(spark: Any) -> str:
    """Return the address at which workers reach this process: the loopback address unless they run elsewhere."""
    if spark.sparkContext.master.startswith("local"):
        return "127.0.0.1"
    return str(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))


def join(*, started: bool) -> None:
    """Count one more job that uses Spark; `started` if the job started it."""
    _use["jobs"] += 1
    _use["ours"] |= started


def leave_session(spark: Any) -> None:
    """Count one job less; the last one ends Spark if a job started it."""
    with STARTING:
        _use["jobs"] -= 1
        if not _use["jobs"] and _use["ours"]:
            _use["ours"] = False
            stop(spark)


def stop(spark: Any) -> None:
    """End Spark and its Java."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    killed = threading.Event()

    def kill() -> None:
        if process is not None and process.poll() is None:
            process.kill()
            killed.set()

    try:
        with alarm(_STOP_S, kill) as late:
            running_session()  # clears a session whose Java was killed
            if ended := gateway is None or SparkContext._gateway is None:
                _end_log()
            else:
                spark.stop()
                gateway.shutdown()
    except Exception:
        if not late.is_set():
            raise
    if late.is_set():
        if process is not None:
            process.wait(20)
        how = "its Java was killed" if killed.is_set() else "its Java had ended, or is not this process's to end"
        log.warning("Spark has not stopped within %g s: %s; %s", _STOP_S, how, log_advice())
        running_session()  # clears what is known of it
    elif ended:
        return
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None:
        process.stdin.close()  # the signal for Java to end
        try:
            process.wait(20)
        except Exception:
            process.kill()
            process.wait(20)
    _end_log()


@contextlib.contextmanager
def alarm(seconds: float, act: Callable[[], object]) -> Iterator[threading.Event]:
    """Do something after so many seconds, unless the block has ended by then; the event says whether it was done.

    Where the interpreter is ending, and starts no more threads (Python 3.12), the block has no such limit.

    Parameters
    ----------
    seconds
        How long the block may take.
    act
        What ends the wait of a block that takes longer.

    Examples
    --------
    >>> with alarm(5, print) as late:
    ...     print("in time")
    in time
    >>> late.is_set()
    False
    """
    late = threading.Event()

    def ring() -> None:
        late.set()
        act()

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):
        timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def _fitting(spark: Any, mode: str) -> Any:
    pipelined = spark.sparkContext.getConf().get(_PIPELINED, "false") == "true"
    if pipelined != (mode == "realtime"):
        other = "realtime" if pipelined else "microbatch"
        raise SessionError(
            f"a Spark that runs already in this process, started for mode={other!r}",
            expected="no Spark, or one that fits the job",
            fix="stop it first: SparkSession.getActiveSession().stop()",
        )
    if pipelined and spark.sparkContext.getConf().get(_EXCHANGE, "") != _OURS:
        log.warning("the streaming shuffle of this Spark listens on all interfaces, without a login: %s", _SEE)
    return spark


def find_modules(spark: Any) -> None:
    """Let workers find the modules that this process finds: dspkit's and the user's."""
    folders = [str(Path(__file__).parents[3]), *(p or os.getcwd() for p in sys.path)]
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))
