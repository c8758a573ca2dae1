"""A small Spark cluster on this machine: a standalone master and workers, each a process of its own.

Workers can be added and removed while jobs run, like machines of a real cluster. By default one that dies is replaced.
All processes listen on the loopback address only. Spark's connections between them begin with a proof of the cluster's
secret, those of the streaming shuffle included (`Exchange.java`); the pages of master and workers are refused.

`running`, `below`, `kill` and `cpu_s` list processes of this machine, end them, and read their processor time (psutil).
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core import ArgumentError, BackendBase, FrozenMap
from ...core.lazy import load
from ...core.validation import number, whole
from ..errors import ClusterError
from ..metering import WORKER
from . import java, session
from .java import ensure_java
from .spark_log import printed_reason

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
    # A master that takes the place of one that died knows its workers and applications, and calls them to itself.
    "spark.deploy.recoveryMode": "FILESYSTEM",
    "spark.ui.filters": "dspkit.NoPages",  # its pages have no login
    "spark.port.maxRetries": "0",  # the requested port, or an error
}
_MEMORY = re.compile(r"[1-9]\d*[mg]")


@dataclass(frozen=True)
class _Daemon:
    """A running master or worker; it ends when the pipe to its standard input does."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class SparkCluster(BackendBase):
    """A local cluster for jobs, to be passed as their `master`; make one with `SparkCluster.local(...)`.

    Close it at the end.

    Parameters
    ----------
    cores
        Slots per worker.
    memory
        Memory of the Java of each worker, as "512m" or "1g".
    port
        Port of the master; 0 for a free one.
    delays
        Delay in seconds by pair of workers, of which the names need not run yet: see `SparkCluster.local`.
    rates
        Bytes/s by pair of workers.

    Examples
    --------
    >>> with SparkCluster.local(workers=2) as cluster:  # doctest: +SKIP
    ...     job = SparkJob(topology, functions, sources, master=cluster)
    """

    def __init__(
        self,
        cores: int,
        memory: str,
        port: int,
        delays: Mapping[tuple[str, str], float] | None = None,
        rates: Mapping[tuple[str, str], float] | None = None,
        *,
        replace_lost: bool = True,
    ):
        self.cores, self.memory, self._replace_lost = cores, memory, replace_lost
        self.delays, self.rates = _by_pair(delays, "delays", zero=True), _by_pair(rates, "rates", zero=False)
        self.url = ""
        self._secret = secrets.token_hex(16)
        self._lock = threading.RLock()
        self._workers: dict[str, _Daemon] = {}
        self._count = 0  # greatest number of a worker so far
        self._ended = threading.Event()
        self._folder = Path(tempfile.mkdtemp(prefix="dspkit-cluster-"))
        self._java = [str(Path(os.environ["JAVA_HOME"], "bin", "java")), *_JAVA.split()]
        self._java += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS]
        atexit.register(self.close)
        try:
            with os.fdopen(os.open(self._folder / "spark.conf", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                conf = _DAEMONS | {"spark.authenticate.secret": self._secret}
                conf["spark.deploy.recoveryDirectory"] = str(self._folder / "recovery")
                file.writelines(f"{name} {value}\n" for name, value in conf.items())
            self._master = self._start("master", _MASTER, ["--port", str(port)])
            self.url = self._ready(self._master, _MASTER)
        except BaseException:
            self.close()
            raise
        self._tender = threading.Thread(target=self._tend, daemon=True, name="dspkit-cluster")
        self._tender.start()

    @classmethod
    def local(
        cls,
        workers: int = 2,
        cores: int = 16,
        *,
        memory: str = "1g",
        port: int = 0,
        delays: Mapping[tuple[str, str], float] | None = None,
        rates: Mapping[tuple[str, str], float] | None = None,
        replace_lost: bool = True,
    ) -> SparkCluster:
        """Start a master and `workers` on this machine, each with slots for `cores` tasks.

        Slots are what Spark counts; all workers share this machine's real cores. With `delays` and `rates` the workers
        are as far from each other as machines of a real network: jobs in real-time mode hold the frames between
        operators on their way that long.

        Parameters
        ----------
        workers
            Number of workers at the start.
        cores
            Slots per worker.
        memory
            Memory of the Java of each worker, as "512m" or "1g".
        port
            Port of the master; 0 for a free one.
        delays
            Delay in seconds by pair of workers, in both directions unless both are listed; none by default.
        rates
            Bytes/s by pair of workers, likewise; all tasks of the receiving worker share it. No limit by default.
        replace_lost
            Whether a worker that dies is replaced by one of the same name; otherwise it is gone, like a machine that
            failed, and a policy that chooses places moves its instances.

        Examples
        --------
        >>> cluster = SparkCluster.local(2, 16, memory="512m")  # doctest: +SKIP
        >>> far = SparkCluster.local(2, delays={("worker-1", "worker-2"): 0.05})  # doctest: +SKIP
        """
        for name, value, high in (("workers", workers, 64), ("cores", cores, 1024)):
            whole(value, name, 1, high, fix="as in SparkCluster.local(2, 16)")
        if not isinstance(port, int) or not (port == 0 or 1024 <= port < 1 << 16):
            raise ArgumentError(f"port={port!r}", expected="0, or 1024 to 65535", fix="use 0 for a free one")
        if not isinstance(memory, str) or not _MEMORY.fullmatch(memory):
            raise ArgumentError(f"memory={memory!r}", expected="as '512m' or '1g'", fix="see SparkCluster.local")
        if (why := java.unusable()) is not None:
            raise ClusterError(
                f"a jar that cannot be used: {why}", expected="dspkit's jar and its Spark", fix="install dspkit[spark]"
            )
        ensure_java()
        made = cls(cores, memory, port, delays, rates, replace_lost=replace_lost)
        try:
            made.add(workers)
        except BaseException:
            made.close()
            raise
        return made

    @property
    def workers(self) -> tuple[str, ...]:
        """The names of the workers, in the order in which they were added."""
        with self._lock:
            return tuple(self._workers)

    def add(self, count: int = 1, *, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """Start more workers, and wait until the master knows them; a running Spark gets an executor on each.

        Parameters
        ----------
        count
            Number of new workers.
        names
            Their names, as "worker-3", instead of their number.

        Examples
        --------
        >>> cluster.add(1)  # doctest: +SKIP
        ('worker-3',)
        """
        with self._lock:
            self._must_be_open()
            names = self.next_names(count) if names is None else tuple(names)
            if wrong := [name for name in names if not is_name(name) or name in self._workers]:
                raise ArgumentError(
                    f"worker {wrong[0]!r}", expected="another name than the workers have", fix="as in 'worker-3'"
                )
            self._count = max(self._count, *(int(name.rpartition("-")[2]) for name in names), 0)
            fresh = [self._worker(name) for name in names]
            for daemon in fresh:
                self._workers[daemon.name] = daemon
            try:
                for daemon in fresh:
                    self._ready(daemon, _WORKER)
            except BaseException:
                self.remove(names)
                raise
        return names

    def next_names(self, count: int) -> tuple[str, ...]:
        """Return the names of the next workers to add.

        Parameters
        ----------
        count
            How many; none if it is not positive.

        Examples
        --------
        >>> cluster.next_names(1)  # doctest: +SKIP
        ('worker-3',)
        """
        return tuple(f"worker-{self._count + i + 1}" for i in range(count))

    def remove(self, names: Sequence[str]) -> None:
        """End these workers and their executors; a job must have drained them before, see `SparkJob.deploy`.

        Parameters
        ----------
        names
            Names of the workers.

        Examples
        --------
        >>> cluster.remove(["worker-3"])  # doctest: +SKIP
        """
        with self._lock:
            if unknown := [name for name in names if name not in self._workers]:
                raise ArgumentError(f"worker {unknown[0]!r}", expected=f"some of {self.workers}", fix="choose one")
            leaving = [self._workers.pop(name) for name in names]
            _end([daemon.process for daemon in leaving])
            for daemon in leaving:
                shutil.rmtree(self._folder / daemon.name, ignore_errors=True)

    @property
    def links(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Delay in seconds and bytes/s from a worker to another, of the pairs between which frames are held."""
        named = dict.fromkeys(
            pair for table in (self.delays, self.rates) for a, b in table for pair in ((a, b), (b, a))
        )
        return {pair: (_of_pair(self.delays, pair, 0.0), _of_pair(self.rates, pair, math.inf)) for pair in named}

    def executors(self, application: str) -> dict[str, str]:
        """Return the worker of each executor of a Spark application, by the executor's number.

        Parameters
        ----------
        application
            Id of the application.

        Examples
        --------
        >>> cluster.executors(spark.sparkContext.applicationId)  # doctest: +SKIP
        {'0': 'worker-1', '1': 'worker-2'}
        """
        with self._lock:
            at = {daemon.process.pid: name for name, daemon in self._workers.items()}
        found = {}
        for process in running():
            match = re.search(rf"--executor-id (\d+) .*--app-id {re.escape(application)}\b", process.command)
            if match and process.parent in at:
                found[match[1]] = at[process.parent]
        return found

    def reason(self) -> str | None:
        """Return the newest reason for the end of an executor or worker in their output, or None.

        Examples
        --------
        >>> cluster.reason()  # doctest: +SKIP
        """
        written: list[tuple[float, Path]] = []
        for path in (*self._folder.glob("worker-*/app-*/*/stderr"), *self._folder.glob("worker-*.log")):
            with contextlib.suppress(OSError):
                written.append((path.stat().st_mtime, path))
        for _, path in sorted(written, reverse=True):
            with contextlib.suppress(OSError):
                if said := printed_reason(path.read_text(errors="replace")):
                    return f"{said} ({path})"
        return None

    def cpu_s(self) -> dict[str, float]:
        """Return the processor seconds of each worker so far, with its executors; empty if they cannot be measured.

        Examples
        --------
        >>> cluster.cpu_s()  # doctest: +SKIP
        {'worker-1': 12.3, 'worker-2': 11.8}
        """
        with self._lock:
            at = {daemon.process.pid: name for name, daemon in self._workers.items()}
        spent = cpu_s(set(at))
        return {name: spent[pid] for pid, name in at.items() if pid in spent}

    def start(self, mode: str, settings: Mapping[str, str] | None = None, *, with_jar: bool = True) -> Any:
        """Return the SparkSession of this process, on this cluster; jobs start one by themselves.

        Parameters
        ----------
        mode
            "realtime" or "microbatch".
        settings
            Further settings of Spark.
        with_jar
            Whether to load dspkit's jar.

        Examples
        --------
        >>> spark = cluster.start("realtime")  # doctest: +SKIP
        """
        here = {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.executor.memory": self.memory,
            # Executors write to files beside their worker, bounded as all that Spark writes.
            "spark.executor.logs.rolling.strategy": "size",
            "spark.executor.logs.rolling.maxSize": str(1 << 22),
            "spark.executor.logs.rolling.maxRetainedFiles": "2",
        }
        own = {"spark.authenticate": "true", "spark.authenticate.secret": self._secret}
        return session.start_session(self.url, mode, here | dict(settings or {}) | own, with_jar=with_jar)

    def close(self) -> None:
        """End the cluster, and the Spark of this process if it runs on it.

        Examples
        --------
        >>> cluster.close()  # doctest: +SKIP
        """
        atexit.unregister(self.close)
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            super().close()
            if self.url and (spark := session.running_session()) is not None and spark.sparkContext.master == self.url:
                session.stop(spark)
            daemons = [*self._workers.values(), *([self._master] if hasattr(self, "_master") else [])]
            _end([daemon.process for daemon in daemons])
            shutil.rmtree(self._folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"SparkCluster({len(self._workers)} workers with {self.cores} slots each at {self.url})"

    def _worker(self, name: str) -> _Daemon:
        (self._folder / name).mkdir()
        words = ["--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(self._folder / name), self.url]
        return self._start(name, _WORKER, words)

    def _start(self, name: str, main: str, words: Sequence[str]) -> _Daemon:
        import pyspark

        home = Path(pyspark.__file__).parent
        last = main == _MASTER  # the master removes the folder if this process cannot
        path = f"{java.JAR}{os.pathsep}{home / 'jars' / '*'}"
        command = [*self._java, "-cp", path, "dspkit.Leash", str(self._folder) if last else "-", main, "--host", _HOST]
        command += ["--webui-port", "0", "--properties-file", str(self._folder / "spark.conf"), *words]
        scala = next((home / "jars").glob("spark-core_*.jar")).name.split("_")[1].partition("-")[0]
        places = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST, "SPARK_LOCAL_DIRS": str(self._folder / name)}
        places[WORKER] = name  # which executors and their Python inherit
        output_file = self._folder / f"{name}.log"
        with output_file.open("wb") as output:
            process = subprocess.Popen(
                command,
                env={**os.environ, **places, "SPARK_SCALA_VERSION": scala},
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return _Daemon(name, process, output_file)

    def _ready(self, daemon: _Daemon, main: str) -> str:
        """Wait until the daemon's output says that it is ready; return the address in it."""
        end = time.monotonic() + _START_S
        while time.monotonic() < end:
            text = daemon.log.read_text(errors="replace")
            if found := re.search(_READY[main], text):
                return found[1]
            if daemon.process.poll() is not None:
                raise _failed(daemon.name, text)
            time.sleep(_LOOK_S)
        last = (text.strip().splitlines() or ["nothing"])[-1]
        got = f"no answer of {daemon.name}, which said last: {last:.300}"
        raise ClusterError(got, expected=f"a start within {_START_S:g} s", fix="try again")

    def _tend(self) -> None:
        """Replace workers that died, unless they are to be gone then, and the master."""
        while not self._ended.wait(_TEND_S):
            with self._lock:
                if self._ended.is_set():
                    return
                if self._master.process.poll() is not None:
                    log.warning("the master died and is replaced; jobs continue meanwhile")
                    _end([self._master.process])
                    self._master = self._start("master", _MASTER, ["--port", self.url.rpartition(":")[2]])
                for name, daemon in list(self._workers.items()):
                    if daemon.process.poll() is None:
                        continue
                    log.warning("%s died and is %s", name, "replaced" if self._replace_lost else "gone")
                    _end([daemon.process])
                    shutil.rmtree(self._folder / name, ignore_errors=True)
                    if self._replace_lost:
                        self._workers[name] = self._worker(name)
                    else:
                        del self._workers[name]


def is_name(name: Any) -> bool:
    """Return whether a worker can have this name; frames carry its number, in 19 bits."""
    return isinstance(name, str) and re.fullmatch(r"worker-[1-9]\d{0,4}", name) is not None


def _by_pair(
    table: Mapping[tuple[str, str], float] | None, name: str, *, zero: bool
) -> FrozenMap[tuple[str, str], float]:
    """Return a table of numbers by pair of workers, once it is checked."""
    fix = f"as in {name}={{('worker-1', 'worker-2'): {0.05 if zero else 1e6:g}}}"
    for pair, value in (table or {}).items():
        workers = pair if isinstance(pair, tuple) else ()
        if len(set(workers)) != 2 or not all(map(is_name, workers)):
            raise ArgumentError(f"{name} with {pair!r}", expected="pairs of different workers", fix=fix)
        number(value, f"{name}[{pair!r}]", 0, above=not zero, fix=fix)
    return FrozenMap(table or {})


def _of_pair(table: Mapping[tuple[str, str], float], pair: tuple[str, str], otherwise: float) -> float:
    return table.get(pair, table.get(pair[::-1], otherwise))


def _failed(name: str, output: str) -> ClusterError:
    if "BindException" in output or "Address already in use" in output:
        return ClusterError("a port that is taken", expected="a free one", fix="leave port out, or choose another")
    reason = printed_reason(output) or (output.strip().splitlines() or ["no output"])[-1]
    return ClusterError(f"a {name} that ended: {reason}", expected="one that starts", fix="see its message")


def _end(daemons: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate the processes; after a while kill those that are left, and all their descendants."""
    descendants = below({process.pid for process in daemons})
    for process in daemons:
        with contextlib.suppress(OSError):
            process.terminate()
    end = time.monotonic() + 5
    for process in daemons:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, end - time.monotonic()))
    kill(descendants)
    for process in daemons:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()


@dataclass(frozen=True)
class Process:
    """A process as it was when it was listed; `handle` is psutil's, which is not misled by a reused number."""

    pid: int
    parent: int
    resident_bytes: int
    command: str
    handle: Any = field(repr=False, compare=False)


def running() -> list[Process]:
    """Return all processes of this machine that we may see.

    Examples
    --------
    >>> any(p.pid == os.getpid() for p in running())
    True
    """
    return _listed(_psutil().process_iter())


def below(pids: Iterable[int]) -> list[Process]:
    """Return the descendants of some processes.

    Parameters
    ----------
    pids : iterable of int
        Numbers of the processes at the top, which are not returned; one that has ended has no descendants.

    Examples
    --------
    >>> below([])
    []
    """
    psutil = _psutil()
    found: list[Any] = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found += psutil.Process(pid).children(recursive=True)
    return _listed(found)


def kill(processes: Iterable[Process], grace_s: float = 1.0) -> None:
    """Kill the processes that have not ended by themselves after a moment.

    Parameters
    ----------
    processes : iterable of Process
        As `running` or `below` returned them.
    grace_s : float
        How long they may take to end by themselves, s.

    Examples
    --------
    >>> kill([])
    """
    left, end = list(processes), time.monotonic() + grace_s
    while left := [process for process in left if _alive(process.handle)]:
        if time.monotonic() > end:
            for process in left:
                with contextlib.suppress(_psutil().Error):
                    process.handle.kill()
            return
        time.sleep(0.1)


def cpu_s(sessions: set[int]) -> dict[int, float]:
    """Return the processor seconds of all running processes of some sessions, by session.

    Parameters
    ----------
    sessions : set of int
        Numbers of sessions; one in which nothing runs is left out.

    Examples
    --------
    >>> cpu_s({os.getsid(0)})[os.getsid(0)] > 0
    True
    """
    psutil = _psutil()
    spent: Counter[int] = Counter()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if (session := os.getsid(process.pid)) in sessions:
                times = process.cpu_times()
                spent[session] += times.user + times.system
    return dict(spent)


def _psutil() -> Any:
    return load("psutil", "spark")


def _listed(handles: Iterable[Any]) -> list[Process]:
    psutil, found = _psutil(), []
    for handle in handles:
        with contextlib.suppress(psutil.NoSuchProcess):
            info = handle.as_dict(["pid", "ppid", "memory_info", "cmdline"])  # None without permission
            resident = info["memory_info"].rss if info["memory_info"] else 0
            found.append(Process(info["pid"], info["ppid"], resident, " ".join(info["cmdline"] or ()), handle))
    return found


def _alive(handle: Any) -> bool:
    """Return whether the process runs; a zombie, whose end its parent has not read yet, does not."""
    psutil = _psutil()
    try:
        return bool(handle.is_running() and handle.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
