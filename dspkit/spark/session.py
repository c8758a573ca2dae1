"""The Spark session of live jobs: started with what our engine needs, on this machine only unless told otherwise."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import jar
from .errors import SessionError
from .java import ensure_java

log = logging.getLogger("dspkit")

_CORE = {  # fixed once a SparkContext has started
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark remembers what ran even without its pages; an epoch has a job and a stage an operator, for hours.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "60",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.log.level": "OFF",
    "spark.driver.memory": "2g",
    # Planning an epoch is much code that runs a few times: compiled at once, and not a second time for more speed.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # TCP's buffers would hide back-pressure
    "spark.shuffle.streaming.networkBufferSize": "4096",
    "spark.shuffle.streaming.writerMaxMemory": "131072",
    "spark.shuffle.streaming.readerMaxMemory": "65536",
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
    "spark.python.udf.pipelined.queueDepth": "1",
    "spark.speculation": "false",
    # What failed is never repaired in part: a task that runs again may deal its records to others than before. The
    # query dies instead, and starts again from its checkpoint.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.python.daemon.module": "dspkit.spark.daemon",
}
_SQL = {  # of the copy of the session that a job works in
    "spark.sql.adaptive.enabled": "false",  # it would merge tasks
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1",  # a row is a frame: none waits for the next
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
}
_LONGEST = 50  # characters of a folder for sockets: the system takes a hundred, Spark adds a name of 43
_use = {"jobs": 0, "ours": False}  # who uses the one Spark of this process
_PIPELINED = "spark.python.udf.pipelined.enabled"  # real-time mode needs it, micro-batches now and then die of it


def without_jar() -> str | None:
    """Why a job must do without the jar: because of the Spark that is installed, or that runs. None if it need not."""
    found = running()
    if found is not None and "dspkit.Plugin" not in found.sparkContext.getConf().get("spark.plugins", ""):
        return "a Spark runs that was started without it"
    return jar.unusable()


def start(
    master: str,
    mode: str,
    settings: dict[str, str] | None = None,
    *,
    with_jar: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """The SparkSession for a job in `mode`: the one that runs, if it fits, else a new one.

    `environment` is for its Java alone.
    """
    if (found := running()) is not None:
        return _fitting(found, mode) if with_jar else found
    ensure_java()
    from pyspark.sql import SparkSession

    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf = _CORE | (local if master.startswith("local") else {}) | {_PIPELINED: str(mode == "realtime").lower()}
    if with_jar:
        conf |= {"spark.jars": str(jar.JAR), "spark.plugins": "dspkit.Plugin"}
    conf["spark.sql.warehouse.dir"] = str(Path(tempfile.gettempdir()) / "dspkit-warehouse")
    if len(tempfile.gettempdir()) > _LONGEST:
        conf["spark.python.unix.domain.socket.dir"] = "/tmp"
    builder = SparkSession.builder.master(master).appName("dspkit")
    for name, value in (conf | (settings or {})).items():
        builder = builder.config(name, value)
    with _Quiet():
        kept = dict(os.environ)
        os.environ.update(environment or {})
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise SessionError(
                f"no Spark at {master} ({str(error).splitlines()[0]})",
                expected="a master that answers",
                fix="check the address, and what Spark said above",
            ) from error
        finally:
            for name in environment or {}:
                os.environ.pop(name)
            os.environ.update({name: kept[name] for name in environment or {} if name in kept})
    return spark


def running() -> Any:
    """The session of the Spark that runs in this process, if one does."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:  # somebody killed its Java: nothing of it can be asked
        with contextlib.suppress(OSError):
            process.stdin.close()
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None
        _use["ours"] = False
        return None
    return SparkSession.getActiveSession() or SparkSession._instantiatedSession


def copy(spark: Any) -> Any:
    """A session for one job: settings of its own, in the same Spark."""
    find_modules(spark)
    own = spark.newSession()
    for name, value in _SQL.items():
        own.conf.set(name, value)
    return own


def slots(spark: Any) -> int:
    """Tasks that can run at once, on the executors there are now."""
    master = spark.sparkContext.master
    if local := re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master):
        return int(local[1])
    if master.startswith("local"):
        return 1 if master == "local" else os.cpu_count() or 1
    context = spark.sparkContext._jsc.sc()
    return int(
        context.schedulerBackend().maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    )


def retire(spark: Any, executors: Iterable[str]) -> None:
    """Start no more tasks on these executors; those that run go on, and what they have made stays to be fetched."""
    context, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("its worker leaves", jvm.scala.Option.empty())
    for executor in executors:  # "triggered by the executor": so it is not told to end by itself
        context.schedulerBackend().decommissionExecutor(executor, why, False, True)


def machines(spark: Any) -> dict[str, float]:
    """Seconds of full load of each machine with executors, as our plugin counts them; nothing without our jar."""
    if without_jar() is not None:
        return {}
    return {str(host): float(seconds) for host, seconds in spark.sparkContext._jvm.dspkit.Plugin.busy().items()}


def remove_at_end(spark: Any, folder: Path) -> None:
    """Let Java remove this folder when it ends: it outlives a Python that is terminated or killed, by a moment."""
    jvm = spark.sparkContext._jvm
    jvm.org.apache.spark.util.ShutdownHookManager.registerShutdownDeleteDir(jvm.java.io.File(str(folder)))


def warm(spark: Any) -> None:
    """Let each executor start its Python before a job needs it: an epoch would wait for the imports."""
    executors = spark.sparkContext._jsc.sc().schedulerBackend().getExecutorIds().size()
    each = copy(spark).range(0, 2 * executors, 1, 2 * executors)
    each.mapInArrow(_same, "id bigint").write.format("noop").mode("append").save()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def host(spark: Any) -> str:
    """The address at which the workers reach this process: this machine only, unless they run elsewhere."""
    if spark.sparkContext.master.startswith("local"):
        return "127.0.0.1"
    return str(spark.sparkContext.getConf().get("spark.driver.host", "127.0.0.1"))


def join(*, started: bool) -> None:
    """One more job uses Spark; `started` says that it was the job who started it."""
    _use["jobs"] += 1
    _use["ours"] |= started


def leave(spark: Any) -> None:
    """One job less; the last one ends Spark if it was a job that started it."""
    _use["jobs"] -= 1
    if not _use["jobs"] and _use["ours"]:
        _use["ours"] = False
        stop(spark)


def stop(spark: Any) -> None:
    """End Spark and the Java that it runs in."""
    from pyspark import SparkContext

    running()  # which forgets one whose Java was killed
    gateway = SparkContext._gateway
    if gateway is None:
        return
    with _Quiet():
        spark.stop()
        process = getattr(gateway, "proc", None)
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        if process is not None:
            process.stdin.close()  # Java ends when we are gone, and takes this for it
            try:
                process.wait(20)
            except Exception:
                process.kill()
                process.wait(20)


def _fitting(spark: Any, mode: str) -> Any:
    pipelined = spark.sparkContext.getConf().get(_PIPELINED, "false") == "true"
    if pipelined != (mode == "realtime"):
        other = "realtime" if pipelined else "microbatch"
        raise SessionError(
            f"a Spark that runs already in this process, started for mode={other!r}",
            expected="no Spark, or one that fits the job",
            fix="stop it first: SparkSession.getActiveSession().stop()",
        )
    return spark


def find_modules(spark: Any) -> None:
    """Workers find the modules that this process finds: dspkit's and the user's."""
    folders = [str(Path(__file__).parents[2]), *(p or os.getcwd() for p in sys.path)]
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(folders))


class _Quiet:
    """Java's own chatter while it starts and stops goes nowhere."""

    def __enter__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_: object) -> None:
        os.dup2(self._kept, 2)
        os.close(self._kept)
