"""A live PySpark job as a Backend: any policy observes it and rescales its operators while it runs.

`Logs` keeps account of the job's sources: how many records each log has been offered, how many of them were read, and
the lag between the two.
"""

from __future__ import annotations

import atexit
import logging
import math
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import ArgumentError, BackendBase, Deployment, DspkitError, Snapshot, Topology
from ..core.files import given_path
from ..core.validation import choice
from .dataflow import plan as line
from .dataflow import savepoint
from .dataflow.checkpoint import Checkpoint
from .dataflow.state import KEPT
from .dataflow.task import Stage
from .errors import CheckpointError, QueryError, SessionError, SinkError, readable
from .functions import Function, as_pandas
from .metering import EVERY_S, Collector, MeterAddress, ObservedWindow, SourceShares, Totals, snapshot
from .runtime import session, spark_log
from .runtime.cluster import SparkCluster
from .runtime.supervisor import (
    FlowController,
    JarEngine,
    Progress,
    QueryEngine,
    QueryPlan,
    StragglerWatch,
    Supervisor,
    until,
)
from .runtime.workers import Workers, places, reserve, reserving, runnable, shares
from .sinks.publisher import Publisher, Target
from .sinks.sink import Sink
from .sources.log import LogSource, LogTailer
from .sources.trace import TraceSource

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Logs:
    """The logs of a job, by source. Sources outside of Spark are given the folder of their marks."""

    def __init__(self, sources: dict[str, Any], names: Sequence[str], checkpoint: Checkpoint):
        self._follows: dict[str, LogTailer] = {}
        for i, name in enumerate(names):
            if isinstance(source := sources[name], LogSource):
                sources[name] = source = source.at(checkpoint.own / "logs" / str(i))
                self._follows[name] = LogTailer(source, partial(checkpoint.settled, i), known=any(checkpoint.read(i)))
        self._sources, self._names, self._checkpoint, self.zero_s = sources, names, checkpoint, 0.0
        self.go_back()

    def began(self, zero_s: float) -> None:
        """Note when the sources began to read, in seconds."""
        self.zero_s = zero_s
        for name, followed in self._follows.items():
            followed.began(zero_s, list(self._read[name].values()))

    def go_back(self) -> None:
        """Count what is committed as read, and nothing else: a query starts."""
        offsets = self._checkpoint.offsets() or [[] for _ in self._names]
        self._read = {n: dict(enumerate(read)) for n, read in zip(self._names, offsets, strict=True)}

    def start(self, supervisor: Supervisor, names: Sequence[str]) -> None:
        """Report from now on how far logs outside of Spark are filled."""
        for name, followed in self._follows.items():
            followed.start(partial(supervisor.filled, names.index(name)))

    def offered(self, at: float) -> dict[str, float]:
        """Return the records that each log had at that time, since the job first began."""
        return {
            n: s.offered(at - self.zero_s) if isinstance(s, TraceSource) else self._follows[n].offered(at)
            for n, s in self._sources.items()
        }

    def lag(self, offered: Mapping[str, float], totals: Totals, names: Sequence[str]) -> dict[str, float]:
        """Return the records of each log that have not been read yet."""
        read = {n: committed | totals.read_to.get(names.index(n), {}) for n, committed in self._read.items()}
        return {n: max(0.0, math.floor(offered[n]) - sum(read[n].values())) for n in offered}

    @property
    def failed(self) -> DspkitError | None:
        """The reason why a log does not answer any more, or None."""
        errors = (f.error or (f.thread.failure if f.thread else None) for f in self._follows.values())
        return next((error for error in errors if error is not None), None)

    def close(self) -> None:
        for followed in self._follows.values():
            followed.close()


log = logging.getLogger("dspkit")
ENGINES = ("auto", "plain")
EXECUTION = {"realtime": "pipelined", "microbatch": "micro-batch"}
_START_S = 60.0  # timeout of the first epoch, and of the workers' start
_RESCALE_S = 60.0  # timeout of an epoch with another parallelism
_PROMPT_S = 10.0  # longest wait of `deploy`; what takes longer continues beside the windows
_UNCLEAR = 2  # windows without latencies when the clock is set: records of before are still in flight in the second
_GRACE_S = 0.05  # wait for the last readings of a window


class SparkJob(BackendBase):
    """Run `topology` on Spark, as a Backend; close it, or use it in a `with` statement.

    Parameters
    ----------
    topology
        The graph of operators.
    functions
        The function of each operator, by name; a source without one forwards its log.
    sources
        The log of each source, by name: a TraceSource, FileSource, KafkaSource or RedisSource, or a Workload; one
        Workload for all is shared equally.
    sinks
        The sink of the rows of operators at the end of the graph, by name: a ParquetSink, SqlSink, TableSink or another
        Sink. An operator with a sink and without a function forwards its input.
    master
        "local[64]" has 64 slots in this process; the workers of a `SparkCluster` are a second knob of the job.
    mode
        "realtime" for pipelined operators, "microbatch" for operators that take turns.
    deployment
        The deployment at the start; one instance per operator if left out.
    checkpoint
        A folder to continue from, and to write to; without one nothing is kept.
    start_from
        A folder that `save` wrote, of this job or of one with other operators, to start a new checkpoint from.
    convert
        For operators whose type of state has changed since then, by name: a function that returns the new value for an
        old one; None gives the state up.
    window_s
        Length of the windows, in seconds.
    epoch_s
        How long the sources read from one commit to the next, in seconds; a rescale also ends an epoch.
    max_batch_records
        Most records of a micro-batch.
    restarts
        Restarts from the checkpoint without progress, after which the job fails.
    settings
        Further settings of Spark, for a session that the job starts.
    engine
        "auto" uses dspkit's jar if it fits the installed Spark; "plain" does without it, in micro-batches.
    spark
        A SparkSession to use; if left out, the running one or a new one.
    owns_master
        Whether to close the cluster with the job.
    on_progress
        Called with a few words at each stage of the start, which takes some ten seconds.

    Examples
    --------
    >>> from dspkit import Topology, workload
    >>> functions = {"upper": arrow(upper, "word string"), "print": arrow(show)}  # doctest: +SKIP
    >>> chain = Topology.chain("read", "upper", "print")
    >>> with SparkJob(chain, functions, workload.Constant(500)) as job:  # doctest: +SKIP
    ...     print(job.observe().throughput)
    """

    def __init__(  # noqa: PLR0913  (keyword-only settings of a job)
        self,
        topology: Topology,
        functions: Mapping[str, Function],
        sources: Any,
        *,
        sinks: Mapping[str, Sink] | None = None,
        master: str | SparkCluster = "local[64]",
        mode: str = "realtime",
        deployment: Deployment | None = None,
        checkpoint: str | Path | None = None,
        start_from: str | Path | None = None,
        convert: Mapping[str, Callable[[Any], Any] | None] | None = None,
        window_s: float = 5.0,
        epoch_s: float = 10.0,
        max_batch_records: int = 20_000,
        restarts: int = 3,
        settings: Mapping[str, str] | None = None,
        engine: str = "auto",
        spark: Any = None,
        owns_master: bool = False,
        on_progress: Callable[[str], None] = lambda stage: None,
    ):
        choice(engine, "engine", ENGINES)
        choice(mode, "mode", EXECUTION)
        if not (EVERY_S <= window_s < math.inf and 0.5 <= epoch_s < math.inf and max_batch_records >= 1):
            raise ArgumentError(
                f"window_s={window_s}, epoch_s={epoch_s}, max_batch_records={max_batch_records}",
                expected=f"window_s from {EVERY_S} up, epoch_s from 0.5 up, max_batch_records from 1 up",
                fix="use the defaults",
            )
        self.topology, self.mode, self.engine = topology, mode, engine
        self.window_s, self.epoch_s = math.ceil(window_s / EVERY_S - 1e-9) * EVERY_S, float(epoch_s)
        self._cluster = master if isinstance(master, SparkCluster) else None
        self.master = self._cluster.url if self._cluster else str(master)
        self._names = line.order(topology)
        self._sources = line.logs(topology, sources)
        self._sinks = dict(sinks or {})
        self._functions = line.functions(topology, functions, self._sources, self._sinks)
        self._open = False
        self._on_progress = on_progress
        self._owned: list[Any] = []  # clean-up functions for close(), called in reverse order
        self._changing = threading.Lock()  # of workers and parallelism: one change after the other
        self._refused: Exception | None = None  # the error of a change that continued after `deploy` had returned
        # From the end of reading to the next epoch, if windows ended within.
        self._drains: list[tuple[float, float]] = []
        self._draining = math.inf  # since when the sources do not read, for a change
        self._unpublished: SinkError | None = None
        if owns_master and self._cluster:
            self._owned.append(self._cluster.close)
        try:
            self._savepoint = None if start_from is None else Path(start_from), dict(convert or {})
            self._begin(deployment, checkpoint, max_batch_records, restarts, dict(settings or {}), spark)
        except BaseException:
            self._undo()
            raise

    def _begin(
        self,
        deployment: Deployment | None,
        checkpoint: str | Path | None,
        max_batch_records: int,
        restarts: int,
        settings: dict[str, str],
        spark: Any,
    ) -> None:
        deployment = self.topology.check(deployment or Deployment(self.topology.uniform()))
        if temporary := checkpoint is None:
            checkpoint = tempfile.mkdtemp(prefix="dspkit-")
            self._owned.append(self._remove_temporary)
        self._checkpoint = Checkpoint(checkpoint)
        self._checkpoint.take()
        if not temporary:  # a Spark that the job starts keeps its log there
            settings = {spark_log.SETTING: str(self._checkpoint.own / "log")} | settings
        self._owned.append(self._checkpoint.release)
        base = self._session(spark, settings)
        if temporary:
            session.remove_at_end(base, self._checkpoint.folder)
        self.master, self._workers = base.sparkContext.master, Workers(base, self._cluster)
        self._take_slots(deployment)
        identity = line.identity(self.topology, self._functions, self._sources, self._sinks)
        self._identify(identity | {"engine": self.engine})
        self._publisher = Publisher(self._checkpoint, self._targets(), self._fail)
        self._undone = len(self._publisher.recover())
        self._owned.append(partial(self._publish_rest, base if temporary else None))
        self._logs = Logs(self._sources, self.topology.sources, self._checkpoint)
        self._owned.append(self._logs.close)
        self._collector = Collector(session.host(base))
        self._owned.append(self._collector.close)
        kept, meter = self._checkpoint, self._collector
        stages = line.stages(self.topology, self._functions, self._sources, kept.own, meter.address, self._sinks)
        plan = self._plan(stages, max_batch_records)
        zero = self._checkpoint.zero_micros
        make = partial(self._engine, base, plan)
        self._on_progress("the query starts, 3 of 4")
        warm_up = not zero or self.execution == "pipelined"
        self._supervisor = Supervisor(
            make,
            kept.records,
            self._k(),
            0 if warm_up else zero,
            restarts,
            meter.blame,
            progress=self._progress,
        )
        meter.restarts = lambda: self._supervisor.restarted
        self._owned.append(self._end_query)
        if self._sinks:
            self._publisher.thread.start()
        self._logs.start(self._supervisor, self._names)
        if not self._supervisor.ready(_START_S):
            raise self._supervisor.failed or QueryError(
                f"no epoch within {_START_S:g} s", expected="a query that starts", fix=session.log_advice()
            )
        if warm_up:
            zero = self._let_begin(zero)
        self._logs.began(zero * 1e-6)
        watch = StragglerWatch(meter.silent, self._names, meter.heavy, self._supervisor.cut)
        self._owned.append(watch.close)
        self._threads = [meter.thread, self._supervisor.thread, watch.thread, self._publisher.thread]
        if self.engine == "jar":
            inputs = {stage.index: tuple(stage.inputs) for stage in stages}
            flow = FlowController(meter.totals, self._k, inputs, self._supervisor.allow)
            self._threads.append(flow.thread)
            self._owned.append(flow.close)
        self._open = True
        atexit.register(self.close)
        self._began = self._end = _aligned(time.time())
        self._before, self._cores = self._collector.totals(), self._workers.reading()
        self._shares = SourceShares(self.topology, {name: i for i, name in enumerate(self._names)}, self._before)
        self._last: Snapshot | None = None
        self._moved_s, self._unclear = self._collector.moved_s, 0  # of the clock; windows in which it was set
        self._offered = self._logs.offered(self._end)  # at the end of the last window, by the clock as it was then
        self._until_token = ""  # the epoch before the present deployment's first, or the last one that was reported

    def _session(self, spark: Any, settings: dict[str, str]) -> Any:
        """Return the Spark session of the job, which is started if there is none."""
        self._on_progress("Spark starts, 1 of 4")
        with session.STARTING:  # another job may be starting, or ending the Spark that this one is about to use
            running = session.running_session()
            self._choose()
            start = self._cluster.start if self._cluster else partial(session.start_session, self.master)
            base = spark or start(self.mode, settings, with_jar=self.engine == "jar")
            session.join(started=running is None and spark is None)
        self._owned.append(lambda: session.leave_session(base))
        return base

    def _plan(self, stages: Sequence[Stage], max_batch_records: int) -> QueryPlan:
        kept = self._checkpoint
        queries = {i: q for i, name in enumerate(self._names) if (q := self._functions[name].query) is not None}
        plan = QueryPlan(stages, self._sources, kept.folder, kept.committed, self.epoch_s, max_batch_records, queries)
        return replace(plan, homes=self._homes, links=self._workers.links())

    def _take_slots(self, deployment: Deployment) -> None:
        """Wait for the workers, and reserve the slots that the first deployment needs."""
        self._on_progress("workers start, 2 of 4")
        self._workers.wait_at_first(self._needs(deployment))
        self._wanted = self._present = deployment
        with reserving():
            self._deployment = self._wanted = self._present = self._check(deployment)
            self._reserve(self._deployment)
        self._owned.append(lambda: reserve(self._workers, 0))
        self._workers.scale_up(self._workers.names(self._deployment))

    def _identify(self, identity: dict[str, Any]) -> None:
        """Mark the checkpoint as this job's, filled from the savepoint if there is one."""
        path, convert = self._savepoint
        if path is not None:
            nowhere = MeterAddress("", 0, b"")
            stages = line.stages(self.topology, self._functions, self._sources, self._checkpoint.own, nowhere)
            declared = {stage.name: state for stage in stages if (state := stage.declared()) is not None}
            savepoint.restore(path, self._checkpoint, identity, declared, convert)
        elif convert:
            raise ArgumentError("convert without start_from", expected="a savepoint", fix="name one: start_from=path")
        self._checkpoint.identify(identity)

    def _targets(self) -> dict[int, Target]:
        """Return the sinks with their rows' columns, by operator."""
        tables, at = self._checkpoint.own / "tables", self._names.index
        return {
            at(name): Target(name, sink.at(tables / str(at(name))), self._functions[name].schema)
            for name, sink in self._sinks.items()
        }

    def _fail(self, error: Exception) -> None:
        """End the job with an error of a sink: nothing can be committed any more."""
        self._supervisor.failed = self._supervisor.failed or error

    def _end_query(self) -> None:
        """Commit what was done, and stop; after an error of a log only stop, as what was read since may be wrong."""
        self._supervisor.failed = self._supervisor.failed or self._logs.failed
        self._supervisor.close(_RESCALE_S)

    def _publish_rest(self, temporary: Any) -> None:
        """Publish what was committed; if that fails, a temporary checkpoint stays, as it has these rows."""
        self._publisher.close()
        if (failed := self._publisher.failed) is None:
            return
        if temporary is None:
            log.error("rows that the job has committed are not in their sink, but in its checkpoint: %s", failed)
            return
        with suppress(Exception):  # a Java that has ended has removed it already
            session.keep_at_end(temporary, self._checkpoint.folder)
        kept = f"start the job again with checkpoint={str(self._checkpoint.folder)!r}, which is kept and has them"
        lost = "start the job anew, with checkpoint=: its temporary one ended with Java"
        self._unpublished = SinkError(
            f"rows that the job has committed and that are not in their sink ({failed})",
            expected="a sink that takes them",
            fix=f"repair it, and {kept if self._checkpoint.folder.exists() else lost}",
        )
        self._unpublished.__cause__ = failed
        log.error("%s", self._unpublished)

    def _remove_temporary(self) -> None:
        if self._unpublished is None:
            shutil.rmtree(self._checkpoint.folder, ignore_errors=True)

    def _choose(self) -> None:
        """Use the engine with the jar unless something prevents it."""
        why = "asked for" if self.engine == "plain" else session.without_jar()
        if why is not None and self.mode == "realtime":
            log.warning("micro-batches without dspkit's jar, instead of real-time mode: %s", why)
            self.mode = "microbatch"
        self.engine = "jar" if why is None else "plain"
        self.knobs = frozenset({"parallelism", *(("workers",) if self._cluster else ())})
        if self._cluster and self.execution == "pipelined":  # in micro-batches operators take turns
            self.knobs |= {"placement"}
        if why is not None and any(function.query for function in self._functions.values()):
            raise SessionError(
                f"an operator that is a query, without dspkit's jar: {why}",
                expected="the jar, which runs it",
                fix="use arrow() or frame() instead, or the default engine",
            )

    def _let_begin(self, zero: int) -> int:
        """Let the sources read once the workers are ready, so that no record waits for them; return when logs began.

        `zero` is when the logs of a former run began, in microseconds; 0 for new logs, which begin now.
        """
        end, wanted = time.monotonic() + _START_S, self._deployment.instances
        while self.execution == "pipelined" and time.monotonic() < end:
            ready = sum(self._collector.totals().tasks.values())
            self._on_progress(f"{min(ready, wanted)} of {wanted} instances are ready, 4 of 4")
            if ready >= wanted:
                break
            if self._supervisor.failed is not None:
                raise self._supervisor.failed
            time.sleep(EVERY_S / 4)
        if zero:
            self._supervisor.begin(zero)
            return zero
        zero = round(math.ceil(time.time() / EVERY_S + 1) * EVERY_S * 1e6)
        self._checkpoint.zero_micros = zero
        self._supervisor.begin(zero)
        time.sleep(max(0.0, zero * 1e-6 - time.time()))
        return zero

    @property
    def deployment(self) -> Deployment:
        """The deployment that runs, or will as soon as the change to it is carried out."""
        return self._with_workers(self._wanted)

    def _with_workers(self, deployment: Deployment) -> Deployment:
        """Return the deployment with the workers that there are, unless a change is being carried out."""
        changing = self._wanted is not self._present
        return deployment if changing else replace(deployment, workers=self._workers.count)

    @property
    def restarts(self) -> int:
        """Number of times that the query died and was restarted."""
        return self._supervisor.restarted

    @property
    def undone_epochs(self) -> int:
        """Number of committed epochs that the job repeated because their files in the checkpoint were damaged."""
        return self._undone

    def observe(self) -> Snapshot:
        """Wait for the end of the present window, and return its snapshot.

        Examples
        --------
        >>> job.observe().throughput  # doctest: +SKIP
        """
        self._must_be_open()
        self._follow_clock()
        end = max(self._end + self.window_s, _aligned(time.time()))
        while (left := end + _GRACE_S - time.time()) > 0:
            time.sleep(min(left, EVERY_S))
            self._must_run()
            end += self._follow_clock()
        after, cores = self._collector.totals(), self._workers.reading()
        if self._draining < end and (self._draining, math.inf) not in self._drains:
            self._drains.append((self._draining, math.inf))
        before = self._offered
        # A reader whose clock was set back rests until it is there again, so that no more is offered until then.
        offered = {n: max(before[n], total) for n, total in self._logs.offered(end).items()}
        window = ObservedWindow(
            start=self._end - self._began,
            end=end - self._began,
            deployment=self._with_workers(self._present),
            execution=self.execution,
            offered={n: offered[n] - before[n] for n in offered},
            lag=self._logs.lag(offered, after, self._names),
            gaps=self._own_clock([*after.gaps, *self._drains]),
            nodes=shares(self._cores, cores),
            delays=self._workers.delays(),
            commits=self._own_clock(after.commits),
        )
        made = snapshot(self.topology, self._names, window, self._before, after, self._shares)
        self._warn_of_places(after)
        self._before, self._end, self._cores, self._offered = after, end, cores, offered
        if self._unclear:
            made, self._unclear = replace(made, latency=None, event_latency=None), self._unclear - 1
        self._last = made.following(self._last, self.topology.edges)
        return self._last

    def _follow_clock(self) -> float:
        """Move the job's times with the system's clock if it was set; return by how many seconds."""
        step = self._collector.moved_s - self._moved_s
        if step:
            self._moved_s += step
            self._end, self._began, self._draining = self._end + step, self._began + step, self._draining + step
            self._drains[:] = [(a + step, b + step) for a, b in self._drains]
            self._unclear = _UNCLEAR
            log.warning(
                "the system's clock was set by %+.1f s: the present window and the next have no latencies", step
            )
        return step

    def _own_clock(self, intervals: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        """Return intervals without tasks on the job's own clock; in micro-batches such intervals mean nothing."""
        if self.execution != "pipelined":
            return ()
        return tuple((a - self._began, b - self._began) for a, b in intervals)

    def deploy(self, deployment: Deployment) -> None:
        """Change parallelism, workers and places from the next epoch on, which begins at once; the query continues.

        If that takes longer than ten seconds, as where records in flight drain slowly or workers start, it
        continues beside `observe`, whose snapshots have the former deployment until the new one runs.

        Parameters
        ----------
        deployment
            The deployment to run from now on.

        Examples
        --------
        >>> job.deploy(job.deployment.scaled({"upper": 2}))  # doctest: +SKIP
        """
        self._must_be_open()
        self._must_run()
        with reserving():
            deployment = self._check(deployment)
            if deployment == self.deployment:
                return
            self._reserve(self._present, self._deployment, deployment)
            self._wanted = deployment
        change = threading.Thread(target=self._change, args=(deployment,), daemon=True, name="dspkit-change")
        change.start()
        change.join(max(_PROMPT_S, self.window_s))
        self._must_run()

    def _change(self, wanted: Deployment) -> None:
        """Carry a change out, unless another one has replaced it meanwhile."""
        with self._changing:
            if wanted is not self._wanted or not self._runs():
                return
            try:
                workers = self._workers.names(wanted)
                self._workers.scale_up(workers)
                self._deployment, self._until_token = wanted, self._collector.totals().token
                self._collector.disturb()
                self._supervisor.want(self._k())  # before slots are removed, as an epoch may end by itself
                self._workers.drain(workers)
                self._draining = time.time()
                if not self._supervisor.rescale(self._k(), _RESCALE_S) and self._runs():
                    log.warning("the present epoch still drains after %g s; the next one runs as decided", _RESCALE_S)
                    until(lambda: self._collector.parallelism == self._k() or not self._runs(), math.inf)
                if self._runs():
                    self._present = wanted
                    self._workers.terminate()
            except Exception as error:  # `deploy` raises it, or the next call
                self._refused = error if isinstance(error, DspkitError) else readable(error, advice=session.log_advice)
                self._take_back(wanted)
            if self._drains and self._drains[-1] == (self._draining, math.inf):
                self._drains[-1] = self._draining, time.time()
            self._draining = math.inf
            with reserving():
                if self._runs():  # a job that was closed meanwhile has given its slots back
                    self._reserve(self._present, self._wanted)

    def _take_back(self, wanted: Deployment) -> None:
        """Let the job run on as before a change that has failed, unless it runs with it already."""
        if self._present is wanted:
            return
        changed = self._deployment is wanted
        self._deployment = self._present
        if self._wanted is wanted:  # otherwise another change waits
            self._wanted = self._present
        if changed:  # the next epoch would run as was wanted, and snapshots would say otherwise
            with suppress(Exception):  # it runs so when it starts again
                self._supervisor.rescale(self._k(), _RESCALE_S)

    def state(self, operator: str) -> pa.Table:
        """Return the state of a keyed operator, by key, as of the newest committed epoch.

        Parameters
        ----------
        operator
            Its name.

        Examples
        --------
        >>> job.state("count").to_pandas()  # doctest: +SKIP
        """
        return self._checkpoint.state(operator)

    def save(self, path: str | Path) -> int:
        """Write a savepoint, from which another job can start with `start_from`, and return its epoch.

        The present epoch ends first, so that all records that were read are in it; the job continues.

        Parameters
        ----------
        path
            A new folder.

        Examples
        --------
        >>> job.save("savepoints/monday")  # doctest: +SKIP
        """
        self._must_be_open()
        self._must_run()
        if not self._supervisor.rescale(self._k(), _RESCALE_S):
            self._must_run()
            log.warning("the present epoch still drains after %g s; the savepoint is of the one before", _RESCALE_S)
        while True:
            with self._publisher.settled() as epoch:
                try:
                    savepoint.save(self._checkpoint, given_path(path), epoch)
                    return epoch
                except CheckpointError:
                    if self._checkpoint.committed() < epoch + KEPT - 1:  # else its files were removed meanwhile
                        raise

    def table(self, operator: str, rows: int = 1000) -> pd.DataFrame:
        """Return the newest rows that the sink of an operator has, in the order of their epochs.

        Parameters
        ----------
        operator
            Its name.
        rows
            How many rows, at most.

        Examples
        --------
        >>> job.table("print", rows=10)  # doctest: +SKIP
        """
        if operator not in self._sinks or rows < 1:
            raise ArgumentError(
                f"the newest {rows} rows of {operator!r}",
                expected=f"at least one row, of an operator with a sink: {', '.join(self._sinks) or 'there is none'}",
                fix="start the job with sinks={'print': TableSink()}",
            )
        return as_pandas(self._publisher.newest(self._names.index(operator), rows))

    def close(self) -> None:
        """Commit what was done, and stop; only a checkpoint that was asked for is kept.

        If a sink does not take its rows, a temporary checkpoint is kept as well, and a SinkError names it.

        Examples
        --------
        >>> job.close()  # doctest: +SKIP
        """
        super().close()
        atexit.unregister(self.close)
        self._undo()
        failed, self._unpublished = self._unpublished, None  # another call does nothing
        if failed is not None:
            raise failed

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
            except Exception as error:  # continue with the rest of the clean-up
                if not session.java_ended():  # which the job has reported
                    log.warning("while closing: %s", error)

    @property
    def execution(self) -> str:
        """The execution of the operators, pipelined or micro-batch: see Snapshot."""
        return EXECUTION[self.mode]

    def _engine(self, spark: Any, plan: QueryPlan) -> QueryEngine:
        if self._open:  # after a failure, with no query at work
            self._undone += len(self._publisher.recover())
        self._logs.go_back()
        meter = self._collector.begin_run()
        plan = replace(plan, stages=[replace(stage, meter=meter) for stage in plan.stages])
        self._workers.wait(self._needs(self._deployment) + self._workers.taken)
        if self.engine == "jar":
            return JarEngine(session.job_session(spark), plan, self.mode)
        from .runtime.foreach_batch import PlainEngine

        return PlainEngine(session.job_session(spark), plan)

    def _progress(self) -> Progress:
        """Return the sums by which the supervisor detects a stall."""
        totals = self._collector.totals()
        offered = self._logs.offered(time.time()) if self._open else {}
        counts: dict[str, Counter[str]] = {
            name: totals.operators.get(i, Counter()) for i, name in enumerate(self._names)
        }
        epoch: dict[str, Counter[str]] = {name: totals.epoch.get(i, Counter()) for i, name in enumerate(self._names)}
        sent = sum(epoch[u].get(f"edge {self._names.index(v)}", 0.0) for u, v in self.topology.edges)
        taken = sum(epoch[name].get("done", 0.0) for name in self._names if name not in self.topology.sources)
        return Progress(
            done=sum(count.get("done", 0.0) for count in counts.values()),
            waiting=max(0.0, sent - taken) + sum(self._logs.lag(offered, totals, self._names).values()),
            epoch=totals.number,
            tasks={name: tasks for i, name in enumerate(self._names) if (tasks := totals.tasks[i])},
            spent={n: (c.get("wait", 0.0), c.get("busy", 0.0), c.get("blocked", 0.0)) for n, c in counts.items()},
        )

    def places(self) -> dict[tuple[str, int], str]:
        """Return the worker on which each instance runs, as its own task says; empty without a SparkCluster.

        Examples
        --------
        >>> job.places()  # doctest: +SKIP
        {('read', 0): 'worker-1', ('upper', 0): 'worker-2', ('print', 0): 'worker-1'}
        """
        return self._worker_by_instance(self._collector.totals())

    def _worker_by_instance(self, totals: Totals) -> dict[tuple[str, int], str]:
        return {(self._names[i], j): worker for (i, j), worker in sorted(totals.workers.items())}

    def _warn_of_places(self, totals: Totals) -> None:
        """Report instances that Spark has put elsewhere, once per epoch: it prefers a slot to waiting for long."""
        if totals.token == self._until_token:
            return
        runs, asked = self._worker_by_instance(totals), self._deployment.placement
        if wrong := [f"{o}[{i}]" for (o, i), worker in asked.items() if runs.get((o, i), worker) != worker]:
            log.warning("not on the worker that the deployment names: %s; see places()", ", ".join(wrong))
            self._until_token = totals.token

    def _homes(self) -> str:
        """Return the executors on which the instances are to run now, as Java reads them."""
        return self._workers.homes(self._places(self._deployment))

    def _places(self, deployment: Deployment) -> tuple[tuple[str, ...], ...]:
        return places(self._names, deployment, self._workers.names(deployment), self._workers.cores)

    def _needs(self, deployment: Deployment) -> int:
        """Return the slots without which nothing runs."""
        return deployment.instances if self.execution == "pipelined" else 1

    def _reserve(self, *deployments: Deployment) -> None:
        """Reserve the slots without which one of these does not run; in micro-batches jobs take turns."""
        pipelined = self.execution == "pipelined"
        reserve(self._workers, max(map(self._needs, deployments)) if pipelined else 0)

    def _k(self) -> list[int]:
        return [self._deployment.parallelism[name] for name in self._names]

    def _check(self, deployment: Deployment) -> Deployment:
        """Return `deployment` as it would run, if it can; without a number of workers the present one is kept."""
        if self._cluster and isinstance(deployment, Deployment) and deployment.workers is None:
            deployment = replace(deployment, workers=self.deployment.workers)
        slots = self._workers.slots(getattr(deployment, "workers", None))
        checked = runnable(
            *(self.topology, self._functions, self._sources, deployment),
            *(slots, self.execution, self.knobs, self._workers.taken),
        )
        self._places(checked)
        return checked

    def _runs(self) -> bool:
        return self._open and self._supervisor.failed is None

    def _must_run(self) -> None:
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused
        ended = (thread.failure for thread in self._threads)
        if self._supervisor.failed is not None:  # another job may have the slots, whether this one is closed or not
            reserve(self._workers, 0)
        if failed := self._supervisor.failed or self._logs.failed or next(filter(None, ended), None):
            raise failed


def _aligned(seconds: float) -> float:
    """Return the last time at which all meters were read."""
    return math.floor(seconds / EVERY_S + 1e-6) * EVERY_S
