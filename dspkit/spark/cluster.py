"""A small Spark cluster on this machine: a standalone master and workers, each a process of its own.

Workers come and go while jobs run, as machines do in a real cluster, and one that dies is replaced. Everything listens
on the loopback address only, and talks only to who knows the cluster's secret.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import KnobError
from . import jar, processes, session
from .errors import ClusterError
from .java import ensure_java

log = logging.getLogger("dspkit")
_START_S = 60.0
_LOOK_S = 0.05
_TEND_S = 0.5
_HOST = "127.0.0.1"
_MASTER, _WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))
_READY = {_MASTER: r"Starting Spark master at (spark://\S+)", _WORKER: r"Successfully registered with master (\S+)"}
_JAVA = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
_OPENS = ("java.nio", "sun.nio.ch", "java.lang", "java.lang.invoke", "java.util")  # of java.base, for Spark's network
_DAEMONS = {
    "spark.authenticate": "true",
    "spark.master.rest.enabled": "false",
    "spark.port.maxRetries": "0",  # the port that was asked for, or an error
}
_MEMORY = re.compile(r"[1-9]\d*[mg]")


@dataclass(frozen=True)
class _Daemon:
    """A running master or worker; it ends when the pipe to its standard input does."""

    name: str
    process: subprocess.Popen[bytes]
    said: Path


class SparkCluster:
    """Make one with `SparkCluster.local(...)`; pass it to jobs as their `master`; close it after them."""

    def __init__(self, cores: int, memory: str, port: int):
        self.cores, self.memory = cores, memory
        self.url = ""
        self._secret = secrets.token_hex(16)
        self._lock = threading.RLock()
        self._workers: dict[str, _Daemon] = {}
        self._count = 0  # of all workers that ever were: names are not used twice
        self._ended = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="dspkit-cluster-"))
        self._java = [str(Path(os.environ["JAVA_HOME"], "bin", "java")), *_JAVA.split()]
        self._java += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
        atexit.register(self.close)
        try:
            with os.fdopen(os.open(self._folder / "spark.conf", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                conf = _DAEMONS | {"spark.authenticate.secret": self._secret}
                file.writelines(f"{name} {value}\n" for name, value in conf.items())
            self._master = self._start("master", _MASTER, ["--port", str(port)])
            self.url = self._ready(self._master, _MASTER)
        except BaseException:
            self.close()
            raise
        self._tender = threading.Thread(target=self._tend, daemon=True, name="dspkit-cluster")
        self._tender.start()

    @classmethod
    def local(cls, workers: int = 2, cores: int = 16, *, memory: str = "1g", port: int = 0) -> SparkCluster:
        """A master and `workers` on this machine, each with slots for `cores` tasks and `memory` for its Java.

        Slots are what Spark counts; all share this machine's real cores. `port=0` takes a free one.
        """
        for name, value, high in (("workers", workers, 64), ("cores", cores, 1024)):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
                raise KnobError(f"{name}={value!r}", expected=f"1 to {high}", fix="as in SparkCluster.local(2, 16)")
        if not isinstance(port, int) or not (port == 0 or 1024 <= port < 1 << 16):
            raise KnobError(f"port={port!r}", expected="0, or 1024 to 65535", fix="0 takes a free one")
        if not isinstance(memory, str) or not _MEMORY.fullmatch(memory):
            raise KnobError(f"memory={memory!r}", expected="as '512m' or '1g'", fix="see SparkCluster.local")
        if (why := jar.unusable()) is not None:
            raise ClusterError(
                f"no use of our jar: {why}", expected="our jar and its Spark", fix="install dspkit[spark]"
            )
        ensure_java()
        made = cls(cores, memory, port)
        try:
            made.add(workers)
        except BaseException:
            made.close()
            raise
        return made

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers, in the order in which they came."""
        with self._lock:
            return tuple(self._workers)

    def add(self, count: int = 1) -> tuple[str, ...]:
        """Start more workers, and wait until the master knows them; a running Spark gets an executor on each."""
        with self._lock:
            self._must_be_open()
            names = [f"worker-{self._count + i + 1}" for i in range(count)]
            self._count += count
            fresh = [self._worker(name) for name in names]
            for daemon in fresh:
                self._workers[daemon.name] = daemon
            try:
                for daemon in fresh:
                    self._ready(daemon, _WORKER)
            except BaseException:
                self.remove(names)
                raise
        return tuple(names)

    def remove(self, names: Sequence[str]) -> None:
        """End these workers and what runs there: a job must have been told before, see `SparkJob.deploy`."""
        with self._lock:
            if unknown := [name for name in names if name not in self._workers]:
                raise KnobError(f"worker {unknown[0]!r}", expected=f"some of {self.workers}", fix="check the name")
            leaving = [self._workers.pop(name) for name in names]
            _end([daemon.process for daemon in leaving])
            for daemon in leaving:
                shutil.rmtree(self._folder / daemon.name, ignore_errors=True)

    def executors(self, application: str) -> dict[str, str]:
        """Where the executors of a Spark application run: worker by executor's number."""
        with self._lock:
            at = {daemon.process.pid: name for name, daemon in self._workers.items()}
        found = {}
        for process in processes.running():
            told = re.search(rf"--executor-id (\d+) .*--app-id {re.escape(application)}\b", process.command)
            if told and process.parent in at:
                found[told[1]] = at[process.parent]
        return found

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds of each worker so far, with all that runs there now; nothing where nobody counts them."""
        with self._lock:
            at = {daemon.process.pid: name for name, daemon in self._workers.items()}
        spent = processes.cpu_s(set(at))
        return {name: spent[pid] for pid, name in at.items() if pid in spent}

    def start(self, mode: str, settings: Mapping[str, str] | None = None, *, with_jar: bool = True) -> Any:
        """The SparkSession of this process, on this cluster, for jobs in `mode`; jobs start one by themselves."""
        here = {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.executor.memory": self.memory,
            "spark.authenticate": "true",
            "spark.authenticate.secret": "in the environment",  # others may read a command line
        }
        own = {"_SPARK_AUTH_SECRET": self._secret}
        return session.start(self.url, mode, here | dict(settings or {}), with_jar=with_jar, environment=own)

    def close(self) -> None:
        """End all of it, and the Spark of this process if it runs here."""
        atexit.unregister(self.close)
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            if self.url and (spark := session.running()) is not None and spark.sparkContext.master == self.url:
                session.stop(spark)
            daemons = [*self._workers.values(), *([self._master] if hasattr(self, "_master") else [])]
            _end([daemon.process for daemon in daemons])
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> SparkCluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SparkCluster({len(self._workers)} workers with {self.cores} slots each at {self.url})"

    def _worker(self, name: str) -> _Daemon:
        (self._folder / name).mkdir()
        words = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self._folder / name), self.url]
        return self._start(name, _WORKER, words)

    def _start(self, name: str, main: str, words: Sequence[str]) -> _Daemon:
        import pyspark

        home = Path(pyspark.__file__).parent
        last = main == _MASTER  # who removes the folder if we cannot
        path = f"{jar.JAR}{os.pathsep}{home / 'jars' / '*'}"
        command = [*self._java, "-cp", path, "dspkit.Leash", str(self._folder) if last else "-", main, "--host", _HOST]
        command += ["--webui-port", "0", "--properties-file", str(self._folder / "spark.conf"), *words]
        scala = next((home / "jars").glob("spark-core_*.jar")).name.split("_")[1].partition("-")[0]
        places = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST, "SPARK_LOCAL_DIRS": str(self._folder / name)}
        said = self._folder / f"{name}.log"
        with said.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **places, "SPARK_SCALA_VERSION": scala},
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _Daemon(name, process, said)

    def _ready(self, daemon: _Daemon, main: str) -> str:
        """Wait until it says so; what it says."""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            text = daemon.said.read_text(errors="replace")
            if found := re.search(_READY[main], text):
                return found[1]
            if daemon.process.poll() is not None:
                raise _failed(daemon.name, text)
            time.sleep(_LOOK_S)
        raise ClusterError(f"a silent {daemon.name}", expected=f"it to start within {_START_S:g} s", fix="try again")

    def _tend(self) -> None:
        """Replace workers that died."""
        while not self._ended.wait(_TEND_S):
            with self._lock:
                if self._ended.is_set():
                    return
                for name, daemon in list(self._workers.items()):
                    if daemon.process.poll() is None:
                        continue
                    log.warning("%s died and is replaced", name)
                    _end([daemon.process])
                    shutil.rmtree(self._folder / name, ignore_errors=True)
                    self._workers[name] = self._worker(name)

    def _must_be_open(self) -> None:
        if self._ended.is_set():
            raise ClusterError("a call after close()", expected="an open cluster", fix="make a new one")


def _failed(name: str, said: str) -> ClusterError:
    if "BindException" in said or "Address already in use" in said:
        return ClusterError("a port that is taken", expected="a free one", fix="leave port out, or choose another")
    lines = [line for line in said.splitlines() if "Exception" in line or "Error" in line] or said.splitlines()
    told = lines[0][:300] if lines else "nothing"
    return ClusterError(f"a {name} that ended and said: {told}", expected="one that starts", fix="see what it said")


def _end(daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask first; what is still there after a while, and everything below it, is killed."""
    below = processes.below({process.pid for process in daemons})
    for process in daemons:
        with contextlib.suppress(OSError):
            process.terminate()
    end = time.monotonic() + 5
    for process in daemons:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    processes.kill(below)
    for process in daemons:
        process.kill()
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
