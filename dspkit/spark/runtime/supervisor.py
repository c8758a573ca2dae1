"""A running query: its engine, its restarts, what its sources may take, and tasks that have stopped.

**Engine.** The whole graph is one query, in real-time mode or in micro-batches. Each stage of it hosts one operator
with exactly as many tasks as it has instances. The plan contains a placeholder for their number; the jar's rule
replaces it with the present one whenever Spark plans an epoch. `foreach_batch.py` is the engine without our jar.

**Supervisor.** It starts the query, and restarts it from its checkpoint when it has died.

**Flow control.** Sockets and buffers between operators hold some ten thousand records. Before an operator of 1 ms per
record that is ten seconds of work, which would delay every record and every rescale. So the job sends its sources, five
times per second, the number of records that they may take until the next message; the rest waits in the log:

    | symbol | meaning |
    |---|---|
    | $c$ | capacity of the slowest operator, in source records/s: $\\min_v k_v \\mu_v / s_v$ |
    | $s_v$ | records that arrive at operator $v$ per source record |
    | $T$ | the longest time that any operator needs for its backlog |

They may take $c (h + T^* - T)$, with the time $h$ between two messages and the target $T^*$. A job that keeps up takes
less by itself; a micro-batch is bounded by its own limit. A frame holds no more records than keep the slowest instance
busy for a moment: it is processed as a whole, and its progress cannot be seen before its end. Time for which a busy
instance waited for a core is left out there: smaller frames would only add to the load. Sources start slowly: an
operator that has processed nothing yet is sent a few hundred records, and before one that nothing has reached, the
sources take at most as many again as they have taken until then.

**Stragglers.** Each task sends a reading five times per second, from a thread of its own, also when it waits. One that
is silent while others are not has either been stopped (SIGSTOP), hangs, or holds Python's lock in a long call. Only the
first two are replaced: their process is killed, and the supervisor restarts the query from its checkpoint. A task that
a busy machine lets wait is not stopped for the kernel, and uses some processor time. A process that grows from epoch to
epoch leaks: its task leaves it at the end of the epoch, and the next one has a new process (`task.py`); here it is
reported, and the epoch ended at once if the limit is reached within it.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ...core import DspkitError
from ...core.lazy import load
from ..dataflow.exchange import WIRE, WORK_S
from ..dataflow.plan import register_query
from ..dataflow.task import Stage
from ..errors import FunctionError, QueryError, ServiceThread, readable
from ..metering import EVERY_S, HeavyTask, SilentTask, Totals
from ..sources.log import LogSource
from ..sources.trace import TraceSource
from .session import log_advice, mark_log

_FIRST_PLACE, _STRIDE = 1_000_000, 1_000  # of placeholders, as in Job.java
_LONGEST = "30 days"
_POLL_S = 0.005
_numbers = itertools.count(1)


@dataclass(frozen=True)
class QueryPlan:
    """The graph as a line of stages: the sources side by side first, then one operator after the other."""

    stages: Sequence[Stage]
    sources: Mapping[str, TraceSource | LogSource]
    folder: Path  # the checkpoint
    committed: Callable[[], int]  # its newest committed epoch
    epoch_s: float
    max_batch_records: int  # in a micro-batch
    queries: Mapping[int, Any] = field(default_factory=dict)  # of operators that are expressions, by index
    homes: Callable[[], str] = str  # the executors of all instances, as Job.java reads them; empty: anywhere
    links: str = ""  # those on which frames are held, likewise


class JarEngine:
    """One run of the query; after it has died a new one continues from the checkpoint."""

    def __init__(self, spark: Any, line: QueryPlan, mode: str):
        self._spark, self._line, self._mode = spark, line, mode
        self._number = next(_numbers)
        self._jvm = spark.sparkContext._jvm.dspkit
        self._jvm.Rescale.install(spark._jsparkSession)
        if mode == "realtime":
            self._jvm.Gather.install(spark._jsparkSession)
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", "dspkit.Checkpoints")
        self._query: Any = None
        self._job: Any = None

    def start(self, k: Sequence[int], zero_micros: int) -> None:
        """Run the query; if the logs have not begun (0) they wait for `begin`."""
        folder = str(self._line.folder / "dspkit")
        warm_up = zero_micros == 0 and self._mode == "realtime"
        self._job = self._jvm.Job.open(self._number, folder, _text(k), self._line.homes(), zero_micros, warm_up)
        self._job.links(self._line.links)
        writer = self._frames().writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(self._line.folder / "spark"))
        writer = writer.option("asyncProgressTrackingEnabled", "false")
        if self._mode == "realtime":
            writer = writer.trigger(realTime=_LONGEST)  # our readers end an epoch
        self._query = writer.start()

    def _frames(self) -> Any:
        from pyspark.sql import functions as F

        heads = [stage for stage in self._line.stages if stage.source is not None]
        frames: Any = None
        for stage in heads:
            part = self._log(stage).mapInArrow(self._marked(stage).run, WIRE)
            frames = part if frames is None else frames.unionAll(part)
        for stage in self._line.stages[len(heads) :]:
            place = _FIRST_PLACE + _STRIDE * self._number + stage.index
            frames = frames.repartitionById(place, F.col("_p"))
            if stage.index in self._line.queries:
                frames = frames.withColumn("_frame", F.expr(self._query_of(stage)))
            frames = frames.mapInArrow(self._marked(stage).run, WIRE)
        return frames

    def _marked(self, stage: Stage) -> Stage:
        """Return the stage as it runs in this mode: `Gather` marks the end of its input in real-time mode."""
        return replace(stage, marked=self._mode == "realtime")

    def _query_of(self, stage: Stage) -> str:
        """Return an expression that applies an operator's query to its own frames and leaves others unchanged."""
        name, columns = f"dspkit_query_{stage.index}", next(iter(stage.inputs.values()))[1]
        assert stage.function.schema is not None
        register_query(self._spark, name, stage.name, self._line.queries[stage.index], columns, stage.function.schema)
        return f"if(_to = {stage.index} AND _most >= 0, {name}(_frame), _frame)"  # a watermark is no frame of records

    def _log(self, stage: Stage) -> Any:
        source = self._line.sources[stage.name]
        options: dict[str, Any] = {
            "job": self._number,
            "operator": stage.index,
            "partitions": source.partitions,
            "max_batch_records": self._line.max_batch_records,
            "epoch_ms": round(self._line.epoch_s * 1000),
            "ticks": stage.timed,
        }
        if isinstance(source, TraceSource):  # for another log the driver reports how far it is filled
            options["trace"] = source.points()
        reader = self._spark.readStream.format("dspkit-trace")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""
        self._job.want(_text(k), self._line.homes())

    def rescale(self, k: Sequence[int], timeout_s: float, *, pause: bool = False) -> bool:
        """End the epoch and run the next with `k`; return whether it began within `timeout_s`."""
        version = self._job.rescale(_text(k), self._line.homes(), pause)
        begun = lambda: self._job.applied() >= version or self._idle() or not self.alive()  # noqa: E731
        return until(begun, timeout_s) and self.alive()

    def _idle(self) -> bool:
        """Return whether no micro-batch runs; then none is planned until the logs have records."""
        return self._mode == "microbatch" and self._line.committed() >= self._job.epoch()

    def ready(self, timeout_s: float) -> bool:
        """Return whether the query runs; a micro-batch is planned as soon as the logs have records."""
        planned = lambda: self._mode == "microbatch" or self._job.epoch() >= 0 or not self.alive()  # noqa: E731
        return until(planned, timeout_s) and self.alive()

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""
        self._job.begin(zero_micros)

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until the next call, and so many in one frame."""
        if self._job is not None:
            self._job.allow(records, in_one_frame)

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Report how many records each partition of a source's log has by now."""
        if self._job is not None:
            self._job.filled(operator, _text(counts))

    def alive(self) -> bool:
        return bool(self._query is not None and self._query.isActive)

    def error(self) -> Exception | None:
        """Return the reason why the query died."""
        found = self._query.exception() if self._query is not None else None
        return found if found is None or isinstance(found, Exception) else RuntimeError(str(found))

    def finish(self, k: Sequence[int], timeout_s: float) -> None:
        """End the epoch, so that all that was done is committed, then stop."""
        if self.alive():
            self.rescale(k, timeout_s, pause=True)
        self.stop()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()
        if self._job is not None:
            self._job.close()


def _text(k: Sequence[int]) -> str:
    return ",".join(map(str, k))


def until(happened: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition holds; return whether it did in time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


log = logging.getLogger("dspkit")
_LOOK_S = 0.1
_STALL_LOOK_S = 1.0
STALL_S = 30.0  # without a record done although some wait, before a warning
_CLOSE_S = 100.0  # longest wait for a start in progress; one waits for executors for 90 s
_LOST_COUNTS = 0.2  # weight of a lost machine, which says little about the job unless it is repeated


class QueryEngine(Protocol):
    """The interface of one run of a query."""

    def start(self, k: Sequence[int], zero_micros: int) -> None:
        """Start the query; if the logs have not begun (0) they wait for `begin`."""

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""

    def ready(self, timeout_s: float) -> bool:
        """Return whether the first epoch is planned."""

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""

    def rescale(self, k: Sequence[int], timeout_s: float) -> bool:
        """End the epoch and run the next with `k`; return whether it began within `timeout_s`."""

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until the next call, and so many in one frame."""

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Report how many records each partition of a source's log has by now."""

    def alive(self) -> bool:
        """Return whether the query runs."""

    def error(self) -> Exception | None:
        """Return the reason why the query died."""

    def finish(self, k: Sequence[int], timeout_s: float) -> None:
        """Commit what was done, then stop."""

    def stop(self) -> None:
        """Stop the query at once."""


@dataclass(frozen=True)
class Progress:
    """Sums since the job began, from which a stall can be detected: records done, and seconds of tasks by operator."""

    done: float
    waiting: float  # records that have been offered and are not done
    epoch: int  # the newest one, by the readings of its tasks
    tasks: Mapping[str, int]  # running now, by operator
    spent: Mapping[str, tuple[float, float, float]]  # seconds of waiting for input, of work, and blocked, by operator


class StallWatch:
    """A watch over a query that runs but makes no progress although records wait; it speaks once per stall."""

    def __init__(self, progress: Callable[[], Progress], clock: Callable[[], float] = time.monotonic):
        self._progress, self._clock = progress, clock
        self._since, self._first = clock(), progress()
        self._spoken = False

    def look(self) -> str | None:
        """Return what is known of a stall that has just become one, or None."""
        now, seen = self._clock(), self._progress()
        moved = seen.done != self._first.done or seen.epoch != self._first.epoch
        if moved or seen.waiting < 1:
            self._since, self._first, self._spoken = now, seen, False
        if self._spoken or now - self._since < STALL_S:
            return None
        self._spoken = True
        return (
            f"no record was done for {now - self._since:.0f} s although {seen.waiting:,.0f} wait; in epoch "
            f"{seen.epoch}; {'; '.join(self._account(name, seen) for name in seen.tasks) or 'no task runs'}"
        )

    def _account(self, name: str, seen: Progress) -> str:
        """Return the way in which the tasks of one operator have spent their time since the stall began."""
        before = self._first.spent.get(name, (0.0, 0.0, 0.0))
        spent = [max(0.0, b - a) for a, b in zip(before, seen.spent.get(name, before), strict=True)]
        kinds = ("wait for input", "work", "blocked by the next operator")
        said = kinds[spent.index(max(spent))] if sum(spent) else "no reading since"
        return f"{name}: {seen.tasks[name]} tasks, {said}"


class Supervisor:
    """A query that is restarted. `records` returns the records done, to give up a query that makes no progress.

    `blame` returns the operator whose function raised since the last call, and its traceback; `advice` where Spark's
    own log is; `progress` lets it warn of a query that makes no progress.
    """

    def __init__(
        self,
        make: Callable[[], QueryEngine],
        records: Callable[[], int],
        k: Sequence[int],
        zero_micros: int,
        restarts: int,
        blame: Callable[[], tuple[str, str] | None],
        advice: Callable[[str], str] = log_advice,
        progress: Callable[[], Progress] | None = None,
    ):
        self._stall = StallWatch(progress) if progress is not None else None
        self._blame, self._advice = blame, advice
        self._last: DspkitError | None = None
        self._make, self._records, self._k, self._restarts = make, records, list(k), restarts
        self._zero_micros = zero_micros
        self._lock = threading.RLock()
        self._tries = self._next_stall_look = 0.0
        self._mark = records()
        self.restarted = 0
        self.failed: Exception | None = None
        self._engine = make()
        mark_log()
        self._engine.start(self._k, zero_micros)
        self.thread = ServiceThread("dspkit-supervisor", "restarts a query that has died", self._watch)

    def ready(self, timeout_s: float) -> bool:
        """Return whether the first epoch was planned; the query is supervised from now on."""
        there = self._engine.ready(timeout_s)
        if not there and not self._engine.alive():
            self.failed = readable(self._engine.error(), self._blame(), self._advice)
        self.thread.start()
        return there

    def begin(self, zero_micros: int) -> None:
        """Let the logs begin at that time."""
        with self._lock:
            self._zero_micros = zero_micros
            self._engine.begin(zero_micros)

    def want(self, k: Sequence[int]) -> None:
        """Run `k` from the next epoch on, whenever that begins."""
        with self._lock:
            self._k = list(k)
            self._engine.want(k)

    def rescale(self, k: Sequence[int], timeout_s: float) -> bool:
        """End the epoch and run `k` from the next epoch or start on; return whether that began in time."""
        end = time.monotonic() + timeout_s
        with self._lock:
            self._k, engine = list(k), self._engine
        if engine.rescale(k, timeout_s):
            return True
        while self.failed is None and time.monotonic() < end:  # the query died: its next run begins with `k`
            with self._lock:
                if self._engine is not engine:
                    return self._engine.ready(max(0.0, end - time.monotonic()))
            if engine.alive():
                return False
            time.sleep(_LOOK_S)
        return False

    def cut(self) -> None:
        """End the present epoch, without waiting for the next one."""
        with self._lock:
            self._engine.rescale(self._k, 0)

    def allow(self, records: int, in_one_frame: int) -> None:
        """Let the sources take that many records until the next call, and so many in one frame."""
        self._engine.allow(records, in_one_frame)

    def filled(self, operator: int, counts: Sequence[int]) -> None:
        """Report how many records each partition of a source's log has by now."""
        self._engine.filled(operator, counts)

    def close(self, timeout_s: float) -> None:
        """Commit what was done, and stop."""
        self.thread.close(60)
        if not self._lock.acquire(timeout=_CLOSE_S):
            raise QueryError(
                f"a query that has been starting again for more than {_CLOSE_S:g} s",
                expected="one that starts or fails",
                fix=f"stop Spark; what was committed is in the checkpoint; {self._advice('')}",
            )
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            if self.failed is None:
                self._engine.finish(self._k, timeout_s)
            else:
                self._engine.stop()

    def _watch(self) -> None:
        while not self.thread.ended.wait(_LOOK_S):
            self._warn_of_a_stall()
            with self._lock:
                try:
                    if self.failed is None and not self._engine.alive():
                        self._again()
                except Exception as error:  # observe() must report it, whatever it is
                    self.failed = readable(error, advice=self._advice)

    def _warn_of_a_stall(self) -> None:
        if self._stall is None or self.failed is not None or time.monotonic() < self._next_stall_look:
            return
        self._next_stall_look = time.monotonic() + _STALL_LOOK_S
        try:
            if said := self._stall.look():
                log.warning("%s; %s", said, self._advice(""))
        except Exception as error:  # what cannot be measured is no reason to end a job
            log.debug("no progress could be measured: %s", error)

    def _again(self) -> None:
        error = readable(self._engine.error(), self._blame(), self._advice)
        if "streaming shuffle" in str(error) and self._tries and self._last is not None:
            error = self._last  # an operator that failed with another one: the earlier message explains more
        self._last = error
        done = self._records()
        self._tries = 0 if done > self._mark else self._tries + (_LOST_COUNTS if _lost(error) else 1)
        # A function that failed before any progress will fail again; for one that worked the cause may be temporary.
        if self._tries > self._restarts or (isinstance(error, FunctionError) and done == 0):
            self.failed = error
            return
        self._mark = done
        self.restarted += 1
        log.warning("the query died and starts again after %s records: %s", done, str(error).splitlines()[0][:300])
        self._engine.stop()
        self._engine = self._make()
        mark_log()
        self._engine.start(self._k, self._zero_micros)


def _lost(error: Exception) -> bool:
    """Return whether the query died with an executor, or of one that was assumed alive for a moment too long."""
    return any(word in str(error) for word in ("ExecutorLostFailure", "INSUFFICIENT_SLOT", "FetchFailed"))


TARGET_S = 0.5
HEADROOM = 1.1  # rates are measured: a reading that is a little low must not limit the job
_MEMORY = 10  # readings over which rates are averaged
_LEAST = 64  # records: enough for a measurement
_FIRST_RECORDS = 512  # records for an operator that is not measured yet, as in Job.java
_UNLIMITED = 1 << 60
_FASTEST = 1 << 30  # records in a frame: sources have a limit of their own


def allowance(before: Totals, after: Totals, k: Sequence[int], inputs: Mapping[int, Sequence[int]]) -> tuple[int, int]:
    """Return the records that the sources may take until the next message, and in one frame.

    `inputs` are the senders of each operator.
    """
    whole, nothing = after.operators, Counter[str]()
    taken = sum(whole.get(i, nothing)["done"] for i in range(len(k)) if not inputs[i])
    capacity, slowest, longest = float("inf"), float("inf"), 0.0
    most = float("inf")  # while an operator is not measured yet
    for i, senders in inputs.items():
        if not senders:
            continue
        came = sum(whole.get(u, nothing)[f"edge {i}"] for u in senders)
        did = _difference(before.operators.get(i), whole.get(i, nothing))
        d = did if did["done"] > 0 and did["busy"] > 0 else whole.get(i, nothing)
        sent = sum(after.epoch.get(u, nothing)[f"edge {i}"] for u in senders)
        waiting = sent - after.epoch.get(i, nothing)["done"]
        if came <= 0:  # no record has reached it: what it is first sent must not be all that the others can process
            most = min(most, max(_FIRST_RECORDS, taken))
        elif d["done"] <= 0:
            most = min(most, max(0.0, _FIRST_RECORDS - waiting * (taken / came if taken else 1.0)))
            slowest = 0.0
        elif d["busy"] > 0:
            able = k[i] * d["done"] / d["busy"]
            capacity = min(capacity, able * taken / came)
            work = min(d["busy"], max(d["work"], d["cpu"])) or d["busy"]
            slowest = min(slowest, d["done"] / work * taken / came)
            longest = max(longest, waiting / able)
    least = _LEAST if longest < 2 * TARGET_S else 0
    credit = max(least, HEADROOM * capacity * (EVERY_S + TARGET_S - longest))
    in_one_frame = int(min(_FASTEST, slowest * WORK_S)) if 0 < slowest < float("inf") else _LEAST
    return int(min(most, credit, _UNLIMITED)), max(1, in_one_frame)


def _difference(before: Counter[str] | None, after: Counter[str]) -> Counter[str]:
    difference = Counter(after)
    difference.subtract(before or {})
    return difference


class FlowController:
    """A thread that sends the allowance to the sources while the job runs."""

    def __init__(
        self,
        totals: Callable[[], Totals],
        k: Callable[[], Sequence[int]],
        inputs: Mapping[int, Sequence[int]],
        allow: Callable[[int, int], None],
    ):
        self._totals, self._k, self._inputs, self._allow = totals, k, inputs, allow
        self._frame = _LEAST
        self.thread = ServiceThread("dspkit-flow", "controls what the sources take", self._run)
        self.thread.start()

    def close(self) -> None:
        self.thread.close(5)
        self._allow(0, self._frame)  # what is in flight ends with the epoch; the rest stays in the logs

    def _run(self) -> None:
        seen: deque[Totals] = deque(maxlen=_MEMORY)
        while not self.thread.ended.wait(
            EVERY_S - (time.time() - EVERY_S / 4) % EVERY_S
        ):  # a little after the readings
            seen.append(self._totals())
            credit, self._frame = allowance(seen[0], seen[-1], self._k(), self._inputs)
            with contextlib.suppress(Exception):  # the supervisor reports a Spark that does not answer
                self._allow(credit, self._frame)


_TASKS_LOOK_S = 1.0
STOPPED_S = 10.0  # silence of a stopped process, after which it is killed
IDLE_S = 120.0  # silence without any processor time, after which a process is killed
_HELD_S = 30.0  # silence of a process that works, after which that is reported
_COMMAND = "daemon"  # in the command line of Spark's Python workers


class _Seen(NamedTuple):
    """A silent process when its silence was first noticed."""

    cpu_s: float
    seconds: float


class StragglerWatch:
    """A thread that looks for silent tasks, and for heavy ones.

    `silent` returns those without a reading for some seconds, `heavy` those whose processes are to be replaced, and
    `cut` ends the present epoch.
    """

    def __init__(
        self,
        silent: Callable[[float], Sequence[SilentTask]],
        names: Sequence[str],
        heavy: Callable[[], Sequence[HeavyTask]] = tuple,
        cut: Callable[[], object] = lambda: None,
    ):
        self._silent, self._names, self._heavy, self._cut = silent, names, heavy, cut
        self._cut_token = ""  # of the last epoch that was ended
        self._leaks: set[int] = set()  # operators of which that was said
        self._seen: dict[tuple[str, int], _Seen] = {}  # by token and process
        self._said: set[tuple[str, int]] = set()
        self.thread = ServiceThread("dspkit-stragglers", "looks for tasks that have stopped", self._run)
        self.thread.start()

    def close(self) -> None:
        self.thread.close(5)

    def _run(self) -> None:
        while not self.thread.ended.wait(_TASKS_LOOK_S):
            self.look()

    def look(self) -> None:
        """Kill the processes of stopped tasks, and report other silent ones once."""
        silent = self._silent(STOPPED_S)
        keys = {(task.token, task.pid) for task in silent}
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
        self._said &= keys
        for task in silent:
            self._judge(task)
        for heavy in self._heavy():
            self._replace(heavy)

    def _replace(self, task: HeavyTask) -> None:
        if task.operator not in self._leaks:
            self._leaks.add(task.operator)
            log.warning(
                "process %d of %r has %.1f GB, and grows from epoch to epoch: it is replaced between two epochs",
                *(task.pid, self._names[task.operator], task.memory_bytes / 1e9),
            )
        if not task.ended and task.token != self._cut_token:
            self._cut_token = task.token
            self._cut()

    def _judge(self, task: SilentTask) -> None:
        who = f"instance {task.instance} of {self._names[task.operator]!r} has sent no reading for {task.seconds:.0f} s"
        if task.host != socket.gethostname():
            if task.certain:
                self._say(task, f"{who}: look at process {task.pid} on {task.host}")
            return
        psutil, key = load("psutil", "spark"), (task.token, task.pid)
        try:
            process = psutil.Process(task.pid)
            if not any(_COMMAND in word for word in process.cmdline()):  # another process has the number by now
                return
            times, state = process.cpu_times(), process.status()
            first = self._seen.setdefault(key, _Seen(times.user + times.system, task.seconds))
            idle = times.user + times.system == first.cpu_s
            reason = why_replaced(
                stopped=state == psutil.STATUS_STOPPED, idle=idle, since=first.seconds, now=task.seconds
            )
            if reason is not None and (task.certain or state == psutil.STATUS_STOPPED):
                log.warning("%s, as process %d %s: it is killed, and the query starts again", who, task.pid, reason)
                process.kill()
            elif task.seconds >= _HELD_S and not idle and task.certain:
                self._say(task, f"{who}, while process {task.pid} works: its function may hold Python's lock")
        except psutil.Error as error:  # it has ended, or belongs to another user
            if task.certain:
                self._say(task, f"{who}, and process {task.pid} cannot be looked at: {error}")

    def _say(self, task: SilentTask, text: Any) -> None:
        if (key := (task.token, task.pid)) not in self._said:
            self._said.add(key)
            log.warning("%s", text)


def why_replaced(*, stopped: bool, idle: bool, since: float, now: float) -> str | None:
    """Return the reason to kill the process of a task that is silent for `now` seconds, or None.

    Parameters
    ----------
    stopped
        Whether the kernel says that the process is stopped.
    idle
        Whether it has used no processor time since its silence had lasted for `since` seconds.
    since, now
        Seconds of silence when it was first looked at, and at present.

    Examples
    --------
    >>> why_replaced(stopped=True, idle=True, since=10, now=10)
    'is stopped'
    >>> why_replaced(stopped=False, idle=False, since=10, now=1000) is None
    True
    """
    if stopped and now >= STOPPED_S:
        return "is stopped"
    if idle and now - since >= IDLE_S - STOPPED_S:
        return f"has used no processor time for {now - since:.0f} s"
    return None
