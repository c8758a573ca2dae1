"""A live PySpark job as a Backend: any policy watches it and rescales its operators while it runs."""

from __future__ import annotations

import atexit
import logging
import math
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import Deployment, Snapshot, Topology
from ..errors import BackendError, KnobError
from . import line, nodes, session
from .checkpoint import Checkpoint
from .cluster import SparkCluster
from .collector import Collector
from .engine import JarEngine, Line
from .errors import QueryError, SessionError
from .flow import Flow
from .functions import Function
from .logs import Logs
from .meter import EVERY_S
from .snapshots import Window, snapshot
from .source import TraceSource
from .supervisor import Engine, Supervisor
from .workers import Workers

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("dspkit")
ENGINES = ("auto", "plain")
LAWS = {"realtime": "pipeline", "microbatch": "sequential"}
_START_S = 60.0  # until the first epoch
_RESCALE_S = 60.0  # until an epoch with another parallelism
_GRACE_S = 0.05  # for the last readings of a window
_WARM_S = 10.0  # at most, until the first epoch's workers are there


class SparkJob:
    """Run `topology` on Spark: `functions` say what its operators do, `sources` what they read.

    `master="local[64]"` has 64 slots on this machine; a `SparkCluster`'s workers are a second knob of the job. In
    `mode="realtime"` operators work at the same time, in "microbatch" they take turns. `checkpoint` is a folder to go
    on from; without one nothing stays. An epoch ends after `epoch_s`, or by a rescale. `engine="plain"`: no jar.
    """

    def __init__(
        self,
        topology: Topology,
        functions: Mapping[str, Function],
        sources: Any,
        *,
        master: str | SparkCluster = "local[64]",
        mode: str = "realtime",
        deployment: Deployment | None = None,
        checkpoint: str | Path | None = None,
        window_s: float = 5.0,
        epoch_s: float = 10.0,
        most_records: int = 20_000,
        restarts: int = 3,
        settings: Mapping[str, str] | None = None,
        engine: str = "auto",
        spark: Any = None,
    ):
        if engine not in ENGINES:
            raise KnobError(f"engine={engine!r}", expected=" or ".join(map(repr, ENGINES)), fix="see SparkJob")
        if mode not in LAWS:
            raise KnobError(f"mode={mode!r}", expected=" or ".join(map(repr, LAWS)), fix="see SparkJob")
        if not (EVERY_S <= window_s < math.inf and 0.5 <= epoch_s < math.inf and most_records >= 1):
            raise KnobError(
                f"window_s={window_s}, epoch_s={epoch_s}, most_records={most_records}",
                expected=f"window_s from {EVERY_S} up, epoch_s from 0.5 up, most_records from 1 up",
                fix="the defaults will do for most",
            )
        self.topology, self.mode, self.engine = topology, mode, engine
        self.window_s, self.epoch_s = math.ceil(window_s / EVERY_S - 1e-9) * EVERY_S, float(epoch_s)
        self._cluster = master if isinstance(master, SparkCluster) else None
        self.knobs = frozenset({"parallelism"} | ({"workers"} if self._cluster else set()))
        self.master = self._cluster.url if self._cluster else str(master)
        self._names = line.order(topology)
        self._sources = line.logs(topology, sources)
        self._functions = line.functions(topology, functions, self._sources)
        self._open = False
        self._owned: list[Any] = []  # what close() undoes, last first
        try:
            self._begin(deployment, checkpoint, most_records, restarts, dict(settings or {}), spark)
        except BaseException:
            self._undo()
            raise

    def _begin(
        self,
        deployment: Deployment | None,
        checkpoint: str | Path | None,
        most_records: int,
        restarts: int,
        settings: dict[str, str],
        spark: Any,
    ) -> None:
        deployment = self.topology.check(deployment or Deployment(self.topology.uniform()))
        if temporary := checkpoint is None:
            checkpoint = tempfile.mkdtemp(prefix="dspkit-")
            self._owned.append(lambda: shutil.rmtree(checkpoint, ignore_errors=True))
        self._checkpoint = Checkpoint(checkpoint)
        self._checkpoint.take()
        self._owned.append(self._checkpoint.release)
        running = session.running()
        self._choose()
        start = self._cluster.start if self._cluster else partial(session.start, self.master)
        base = spark or start(self.mode, settings, with_jar=self.engine == "jar")
        session.join(started=running is None and spark is None)
        self._owned.append(lambda: session.leave(base))
        if temporary:
            session.remove_at_end(base, self._checkpoint.folder)
        self.master, self._workers = base.sparkContext.master, Workers(base, self._cluster)
        self._workers.wait_at_first(self._needs(deployment))
        self._deployment = self._check(deployment)
        self._workers.come(self._deployment.workers)
        told = line.identity(self.topology, self._functions, self._sources)
        self._checkpoint.identify(told | {"engine": self.engine})
        self._logs = Logs(self._sources, self.topology.sources, self._checkpoint)
        self._owned.append(self._logs.close)
        self._collector = Collector(session.host(base))
        self._owned.append(self._collector.close)
        kept, meter = self._checkpoint, self._collector
        stages = line.stages(self.topology, self._functions, self._sources, meter.name, kept.own, meter.address)
        queries = {i: q for i, name in enumerate(self._names) if (q := self._functions[name].query) is not None}
        plan = Line(stages, self._sources, kept.folder, kept.committed, self.epoch_s, most_records, queries)
        zero = self._checkpoint.zero_micros
        make = partial(self._engine, base, plan)
        self._supervisor = Supervisor(make, kept.records, self._k(), zero, restarts, meter.blame)
        self._owned.append(lambda: self._supervisor.close(_RESCALE_S))
        self._logs.start(self._supervisor, self._names)
        if not self._supervisor.ready(_START_S):
            raise self._supervisor.failed or QueryError(
                f"no epoch within {_START_S:g} s", expected="a query that starts", fix="see Spark's own log"
            )
        if not zero:
            zero = self._let_begin()
        if self.engine == "jar":
            inputs = {stage.index: tuple(stage.inputs) for stage in stages}
            self._owned.append(Flow(meter.totals, self._k, inputs, self._supervisor.allow).close)
        self._open, self._logs.zero_s = True, zero * 1e-6
        atexit.register(self.close)
        self._began = self._end = _aligned(time.time())
        self._before, self._cores = self._collector.totals(), self._workers.reading()

    def _choose(self) -> None:
        """The engine with the jar, unless there is something against it."""
        why = "asked for" if self.engine == "plain" else session.without_jar()
        if why is not None and self.mode == "realtime":
            log.warning("micro-batches without dspkit's jar, instead of real-time mode: %s", why)
            self.mode = "microbatch"
        self.engine = "jar" if why is None else "plain"
        if why is not None and any(function.query for function in self._functions.values()):
            raise SessionError(
                f"an operator that is a query, without dspkit's jar: {why}",
                expected="the jar, which runs it",
                fix="use arrow() or frame() instead, or the default engine",
            )

    def _let_begin(self) -> int:
        """Start new logs once the workers are there, so that nothing waits for them; when that is."""
        end = time.monotonic() + _WARM_S
        while self.law == "pipeline" and time.monotonic() < end:
            if sum(self._collector.totals().tasks.values()) >= self._deployment.instances:
                break
            time.sleep(EVERY_S / 4)
        zero = round(math.ceil(time.time() / EVERY_S + 1) * EVERY_S * 1e6)
        self._checkpoint.zero_micros = zero
        self._supervisor.begin(zero)
        time.sleep(max(0.0, zero * 1e-6 - time.time()))
        return zero

    @property
    def deployment(self) -> Deployment:
        """What runs, or will from the next epoch on."""
        return replace(self._deployment, workers=self._workers.count)

    @property
    def restarts(self) -> int:
        """How often the query died and was started again."""
        return self._supervisor.restarted

    def observe(self) -> Snapshot:
        """Wait for the end of the present window, and report it."""
        self._must_be_open()
        end = max(self._end + self.window_s, _aligned(time.time()))
        while (left := end + _GRACE_S - time.time()) > 0:
            time.sleep(min(left, EVERY_S))
            self._must_run()
        after, cores = self._collector.totals(), self._workers.reading()
        offered, before = self._logs.offered(end), self._logs.offered(self._end)
        window = Window(
            start=self._end - self._began,
            end=end - self._began,
            deployment=self.deployment,
            law=self.law,
            offered={n: offered[n] - before[n] for n in offered},
            lag=self._logs.lag(offered, after, self._names),
            gaps=tuple((a - self._began, b - self._began) for a, b in after.gaps) if self.law == "pipeline" else (),
            nodes=nodes.shares(self._cores, cores),
        )
        made = snapshot(self.topology, self._names, window, self._before, after)
        self._before, self._end, self._cores = after, end, cores
        return made

    def deploy(self, deployment: Deployment) -> None:
        """Change parallelism and workers from the next epoch on, which begins at once; the query goes on."""
        self._must_be_open()
        self._must_run()
        deployment = self._check(deployment)
        if deployment == self.deployment:
            return
        self._workers.come(deployment.workers)
        self._deployment = deployment
        self._supervisor.want(self._k())  # before slots go: an epoch may end by itself
        self._workers.leave(deployment.workers)
        if not self._supervisor.rescale(self._k(), _RESCALE_S):
            self._must_run()
            log.warning("the present epoch still drains after %g s; the next one runs as decided", _RESCALE_S)
        self._workers.gone()

    def state(self, operator: str) -> pa.Table:
        """What a keyed operator knows, key by key, as of the newest epoch that is committed."""
        return self._checkpoint.state(operator)

    def close(self) -> None:
        """Commit what was done, stop, and leave nothing behind but a checkpoint that was asked for."""
        self._open = False
        atexit.unregister(self.close)
        self._undo()

    def __enter__(self) -> SparkJob:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        loads = ", ".join(repr(s.workload) if isinstance(s, TraceSource) else s.log for s in self._sources.values())
        return (
            f"SparkJob({', '.join(self.topology.order)}; {loads}, mode={self.mode!r}, master={self.master!r}, "
            f"window_s={self.window_s:g}, epoch_s={self.epoch_s:g})"
        )

    def _undo(self) -> None:
        while self._owned:
            try:
                self._owned.pop()()
            except Exception as error:  # the rest must be undone all the same
                log.warning("while closing: %s", error)

    @property
    def law(self) -> str:
        """How operators share the job's capacity: see Snapshot."""
        return LAWS[self.mode]

    def _engine(self, spark: Any, plan: Line) -> Engine:
        self._workers.wait(self._needs(self._deployment))
        if self.engine == "jar":
            return JarEngine(session.copy(spark), plan, self.mode)
        from .plain import PlainEngine

        return PlainEngine(session.copy(spark), plan)

    def _needs(self, deployment: Deployment) -> int:
        """Slots without which nothing runs."""
        return deployment.instances if self.law == "pipeline" else 1

    def _k(self) -> list[int]:
        return [self._deployment.parallelism[name] for name in self._names]

    def _check(self, deployment: Deployment) -> Deployment:
        """`deployment` as it would run, if it can: where it does not say how many workers, they stay as they are."""
        if self._cluster and isinstance(deployment, Deployment) and deployment.workers is None:
            deployment = replace(deployment, workers=self._workers.count)
        slots = self._workers.slots(getattr(deployment, "workers", None))
        return line.check(self.topology, self._functions, self._sources, deployment, slots, self.law, self.knobs)

    def _must_be_open(self) -> None:
        if not self._open:
            raise BackendError("a call after close()", expected="an open job", fix="make a new one")

    def _must_run(self) -> None:
        if failed := self._supervisor.failed or self._logs.failed:
            raise failed


def _aligned(seconds: float) -> float:
    """The last moment at which all meters were read."""
    return math.floor(seconds / EVERY_S + 1e-6) * EVERY_S
