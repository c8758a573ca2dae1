"""Changes of a running query, from outside and without a restart: read limit, trigger, tasks, executors, a clean stop.

They use members of Spark that are private in Scala and public in bytecode, with the names of Spark 4.3. Each is looked
for when a query is attached; what is missing is reported with its reason, and the others work.

| knob | member |
|---|---|
| limit | `StreamExecution.uniqueSources`, a map of sources to read limits |
| trigger, clean stop | `ProcessingTimeExecutor.intervalMs`, and its clock, for which ours stands in: `dspkit.Pace` |
| tasks | `SparkSession.experimental.extraOptimizations` of the query's own session, and our rule `dspkit.Steer` |
| executors | `SparkContext.requestTotalExecutors`, `killExecutors` of its scheduler backend |

Only one attachment at a time changes a query: each would take the other's values for the query's own, and leave them.
The newest that asks for a change takes over, after the changes of the former one are undone: its handle may be lost.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..runtime import java, session, workers
from .diagnosis import limit_kind
from .observation import AttachError

log = logging.getLogger("dspkit")
KNOBS = ("limit", "trigger", "tasks", "executors")
_NO_MORE = 1 << 20  # executors: a standalone master starts as many as it has cores for
_HOLD_S = 30.0  # a hold ends so long after its timeout, should this process not release it
_LOADERS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by Java gateway: it remembers methods by name of class
_CHANGED: WeakValueDictionary[str, QueryKnobs] = WeakValueDictionary()  # by run id: who has changed the query
_CHANGING = threading.Lock()
_OWN_NUMBERS: dict[str, list[int]] = {}  # by run id: the partitions of the query's own repartitions, before any change
_OWN = re.compile(r"Exchange .*?(\d+)\), REPARTITION_BY_NUM")  # as the query itself asks for
_LIMITS = {"rows": "maxRows", "files": "maxFiles", "bytes": "maxBytes"}


class QueryKnobs:
    """The changes that are possible on one query.

    Parameters
    ----------
    spark : SparkSession
        The classic session of the query.
    query : StreamingQuery
        The running query.

    Examples
    --------
    >>> QueryKnobs(spark, query).missing  # doctest: +SKIP
    {'executors': 'local[4] has no executors to change'}
    """

    def __init__(self, spark: Any, query: Any):
        self._spark, self._query = spark, query
        self._jvm, self._gateway = spark.sparkContext._jvm, spark.sparkContext._gateway
        self._context = spark.sparkContext._jsc.sc()
        self._arrays = self._jvm.java.util.Arrays  # whose text is one call, where each element would be one
        self._rule: Any = None
        self._pace: Any = None
        self._steered = 0, 0  # tasks and partitions that were asked for last
        self._leaving: list[str] = []
        self._wanted = 0  # executors that were asked for last
        self._retiring = threading.RLock()  # of the two: a batch's end releases what a caller retires
        self._successor: QueryKnobs | None = None
        self._undo: dict[str, Callable[[], None]] = {}
        self.missing: dict[str, str] = {}
        try:
            self.execution = query._jsq.streamingQuery()
            self.kind = str(self.execution.getClass().getSimpleName())
        except Exception as error:
            self.execution, self.kind = None, ""
            self.missing = dict.fromkeys(KNOBS, f"Spark's StreamExecution is not reachable ({_short(error)})")
            return
        self.probe()

    def probe(self) -> None:
        """Look for all members again: a query that just began has its sources and its trigger a moment later."""
        if self.execution is None:
            return
        self.missing = {}
        if self.realtime_s() is not None:
            self.missing = dict.fromkeys(KNOBS, "in real-time mode only job.shuffle() and job.cut() can change a query")
            return
        for name, probe in (("limit", self._sources), ("trigger", self._interval_field), ("tasks", self._own_session)):
            try:
                if why := probe():
                    self.missing[name] = why
            except Exception as error:  # py4j's errors are of many kinds, and none must reach the user's query
                self.missing[name] = f"this Spark has no such member ({_short(error)})"
        if why := self._no_executors():
            self.missing["executors"] = why

    def need(self, knob: str) -> None:
        """Raise an error if a knob is missing."""
        if knob in self.missing:
            raise AttachError(
                f"{knob}: {self.missing[knob]}",
                expected="a query whose " + knob + " can be changed while it runs",
                fix="observation, job.doctor() and the other knobs work",
            )

    # ---- probes: "" or the reason why the knob is missing

    def _sources(self) -> str:
        names = self.sources()
        if limit_kind(names) is None:
            return f"the source {', '.join(names)[:80] or '(none yet)'} takes no limit while it runs"
        self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(1)
        kind = self._gateway.new_array(self._jvm.java.lang.Class, 1)
        kind[0] = self._jvm.java.lang.Class.forName("scala.collection.immutable.Map")
        self.execution.getClass().getMethod("uniqueSources_$eq", kind)
        return ""

    def _interval_field(self) -> str:
        trigger = self.execution.triggerExecutor()
        if trigger is None:
            return "the query has not begun yet"
        kind = str(trigger.getClass().getSimpleName())
        if kind != "ProcessingTimeExecutor":
            return f"the trigger is a {kind}, which has no interval"
        self._field(trigger, "intervalMs").get(trigger)
        self._field(trigger, "clock")
        if wrong := java.unusable():
            return f"our clock cannot be loaded: {wrong}"
        return ""

    def _own_session(self) -> str:
        if wrong := java.unusable():
            return f"our rule cannot be loaded: {wrong}"
        if self.kind != "MicroBatchExecution":
            return f"it runs as {self.kind or 'nothing known'}"
        self.execution.sparkSessionForStream().experimental().extraOptimizations()
        return ""

    def _no_executors(self) -> str:
        master = str(self._spark.sparkContext.master)
        if master.startswith("local[") or master == "local":
            return f"{master} has no executors to change"
        conf = self._spark.sparkContext.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
            return "dynamic allocation is on, and would undo it: switch one of the two off"
        return ""

    # ---- what is

    def sources(self) -> list[str]:
        """Return the descriptions of the query's sources."""
        keys = self.execution.uniqueSources().keys().toList()
        return [str(keys.apply(i).toString()) for i in range(keys.size())]

    def trigger_s(self) -> float | None:
        """Return the trigger's interval: 0 if the next batch begins at once, None if the trigger has none."""
        if "trigger" in self.missing:
            return None
        trigger = self.execution.triggerExecutor()
        return float(self._field(trigger, "intervalMs").get(trigger)) / 1e3

    def realtime_s(self) -> float | None:
        """Return the duration of a real-time query's batches, or None for other queries."""
        if self.execution is None:
            return None
        trigger = self.execution.trigger()
        return float(trigger.batchDurationMs()) / 1e3 if type_name(trigger) == "RealTimeTrigger" else None

    def set_shuffle(self, partitions: int) -> list[int]:
        """Set the partitions of the query's own repartitions, from the next batch on; 0 restores its own number.

        Return the numbers that the next plan has, as far as they are known.
        """
        now = self.repartitions()
        own = _OWN_NUMBERS.setdefault(str(self._query.runId), now) if now else []
        wanted = [partitions or n for n in own]
        if self.realtime_s() is not None:
            self._fits(now, wanted)
        self._steer(self._steered[0], partitions)
        return wanted

    def repartitions(self) -> list[int]:
        """Return the partitions of each of the query's own repartitions in the last plan."""
        plan = self.last_plan()
        return [] if plan is None else [int(n) for n in _OWN.findall(str(plan.treeString()))]

    def _fits(self, now: list[int], wanted: list[int]) -> None:
        """Raise an error if a real-time query would die of too few slots: all of its tasks run at once."""
        if self.last_plan() is None:
            raise AttachError(
                "a query without a batch so far", expected="one that runs", fix="wait for its first batch"
            )
        if wrong := java.unusable():
            raise AttachError(f"a rule of ours that cannot be loaded: {wrong}", expected="Spark 4.3", fix="use that")
        tasks, free = self._tasks(), workers.task_slots(self._spark) - workers.running_tasks(self._spark)
        more = sum(wanted) - sum(now)
        if not now:
            raise AttachError(
                "a plan without a repartition of its own", expected="df.repartition(k)", fix="write one into the query"
            )
        if more > free:
            raise AttachError(
                f"{tasks + more} tasks at once, where {tasks} run",
                expected=f"at most {tasks + free}: {free} slots are free",
                fix=f"ask for at most {max(1, (sum(now) + free) // len(now))} partitions, or add slots first",
            )

    def _tasks(self) -> int:
        """Return the tasks of the query that run now."""
        store, total = self._context.statusStore(), 0
        ids = self._context.statusTracker().getJobIdsForGroup(str(self._query.runId))
        for number in sorted(int(i) for i in re.findall(r"\d+", str(self._arrays.toString(ids))))[-4:]:
            job = store.job(number)
            if str(job.status().toString()) == "RUNNING":
                total += int(job.numActiveTasks())
        return total

    def cut(self) -> None:
        """End the present batch now, as if its time were over; so does that of all real-time queries of this Spark."""
        seconds = self.realtime_s()
        if seconds is None:
            raise AttachError(
                "a cut of a query in micro-batches",
                expected="a query in real-time mode",
                fix="a micro-batch always runs to its end; job.limit(...) makes the next ones smaller",
            )
        master = str(self._spark.sparkContext.master)
        if not master.startswith("local[") and master != "local":
            raise AttachError(
                f"a cut on the executors of {master:.100}",
                expected="a local master, whose tasks have the clock of this process",
                fix="wait for the end of the batch; shorter batches make changes faster",
            )
        if wrong := java.unusable():
            raise AttachError(f"our clock cannot be loaded: {wrong}", expected="Spark 4.3", fix="use that")
        clock = self._static("dspkit.Cut", "install")
        clock.jump(round(1e3 * seconds))

    def read_limit(self) -> tuple[str, int] | None:
        """Return the present limit of the first source, or None without one."""
        if self.execution is None:
            return None
        limits = self.execution.uniqueSources().values().toList()
        for i in range(limits.size()):
            one = limits.apply(i)
            for kind, name in _LIMITS.items():
                if type_name(one) == f"ReadM{name[1:]}":
                    return kind, int(getattr(one, name)())
        return None

    def settings(self, names: Mapping[str, str] | tuple[str, ...]) -> dict[str, str]:
        """Return the settings with these names, as the query's own session has them."""
        if self.execution is None:
            return {}
        conf, found = self.execution.sparkSessionForStream().conf(), {}
        for name in names:
            value = conf.getOption(name)
            if value.isDefined():
                found[name] = str(value.get())
        return found

    def last_plan(self) -> Any:
        """Return the physical plan of the last batch, or None before the first."""
        last = None if self.execution is None else self.execution.lastExecution()
        return None if last is None else last.executedPlan()

    def checkpoint(self) -> str:
        """Return the query's checkpoint folder."""
        return str(self.execution.resolvedCheckpointRoot())

    def executors(self) -> list[str]:
        """Return the ids of the present executors, without those that leave."""
        ids = self._context.schedulerBackend().getExecutorIds()
        return sorted({str(ids.apply(i)) for i in range(ids.size())} - set(self._leaving), key=int)

    # ---- changes

    def _claim(self) -> None:
        """Undo what another attachment has changed; raise an error if it took over since, and has changes itself."""
        with _CHANGING:
            newer = self._successor
            while newer is not None and not newer._undo:
                newer = newer._successor
            if newer is not None:
                raise AttachError(
                    "an attachment from which a newer one has taken over",
                    expected="the one that changed the query last",
                    fix="use the newer one, or detach it first: that undoes its changes",
                )
            other = _CHANGED.get(str(self._query.runId))
            if other is not None and other is not self and (other._undo or other._leaving):
                log.warning("the changes of a former attachment to this query are undone: this one takes over")
                other._successor = self
                other.undo()
                with other._retiring, self._retiring:
                    self._leaving, other._leaving = [*self._leaving, *other._leaving], []
                    self._wanted = other._wanted
            self._successor = None
            _CHANGED[str(self._query.runId)] = self

    def set_limit(self, kind: str, value: int) -> None:
        """Set the records, files or bytes of a batch, from the next batch on."""
        limits = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        self._set_sources(getattr(limits, _LIMITS[kind])(value))

    def _set_sources(self, made: Any) -> None:
        self._claim()
        before = self.execution.uniqueSources()
        keys, sources = before.keys().toList(), before
        for i in range(keys.size()):
            sources = sources.updated(keys.apply(i), made)
        self._restore_sources(sources)
        self._undo.setdefault("limit", lambda: self._restore_sources(before))

    def _restore_sources(self, sources: Any) -> None:
        getattr(self.execution, "uniqueSources_$eq")(sources)

    def varied_limit(self) -> Callable[[], None]:
        """Return a function that sets the present limits again, whether the query or a caller has set them."""
        before, changed = self.execution.uniqueSources(), "limit" in self._undo

        def restore() -> None:
            if self._successor is not None:
                return
            self._restore_sources(before)
            if not changed:
                self._undo.pop("limit", None)

        return restore

    def set_interval(self, seconds: float) -> None:
        """Set the trigger's interval, from the batch after the next on; a wait that is longer ends sooner."""
        self._claim()
        before = self.trigger_s() or 0.0
        pace = self._paced()
        self._set_interval(round(1e3 * seconds))
        self._undo.setdefault("trigger", lambda: self._restore_interval(before, pace))

    def _set_interval(self, ms: int) -> None:
        trigger = self.execution.triggerExecutor()
        self._field(trigger, "intervalMs").setLong(trigger, ms)
        if self._pace is not None:
            now = int(self._pace.getTimeMillis())
            self._pace.sooner(now if ms == 0 else now // ms * ms + ms)

    def _restore_interval(self, seconds: float, pace: Any) -> None:
        self._set_interval(round(1e3 * seconds))
        pace.remove()
        self._pace = None

    def _paced(self) -> Any:
        """Return our clock in the query's trigger, in which waits can be held and made shorter."""
        if self._pace is None:
            self._pace = self._static("dspkit.Pace", "install", "java.lang.Object", self.execution.triggerExecutor())
        return self._pace

    def set_tasks(self, tasks: int) -> None:
        """Set the tasks of the last stage; 0 leaves them."""
        if tasks and self.sorts():
            raise AttachError(
                "tasks for a query whose plan sorts",
                expected="a query whose rows may arrive in any order",
                fix="leave it: rows of several sorted partitions in one task would be out of order",
            )
        self._steer(tasks, self._steered[1])

    def _steer(self, tasks: int, shuffle: int) -> None:
        """Set both numbers of our rule, which is installed when it is first needed."""
        self._claim()
        if self._rule is None:
            own = self.execution.sparkSessionForStream()
            self._rule = self._static("dspkit.Steer", "install", "org.apache.spark.sql.SparkSession", own)
            self._undo["tasks"] = self._remove_rule
        self._rule.set(tasks, shuffle)
        self._steered = tasks, shuffle

    def _remove_rule(self) -> None:
        self._rule.remove(self.execution.sparkSessionForStream())
        self._rule, self._steered = None, (0, 0)

    def sorts(self) -> bool:
        """Return whether the last batch sorted: for its user, or because its sink requires it."""
        last = None if self.execution is None else self.execution.lastExecution()
        lines = "" if last is None else str(last.optimizedPlan().treeString())
        return any(line.lstrip(" :+-~").startswith("Sort [") for line in lines.splitlines())

    def set_executors(self, count: int) -> None:
        """Ask for so many executors; of too many the newest start no more tasks, until `release` ends them."""
        self._claim()
        with self._retiring:
            have = self.executors()
            if "executors" not in self._undo:
                total = self._total(len(have))
                self._undo["executors"] = lambda: self._restore_executors(total)
            self._request(count)
            self._retire(have[count:])

    def _total(self, present: int) -> int:
        """Return the executors that Spark asks its cluster for, which include those that are still starting."""
        asked = self._context.schedulerBackend().getRequestedTotalExecutors()
        configured = int(self._spark.sparkContext.getConf().get("spark.executor.instances", "0") or 0)
        if not asked.isEmpty():
            numbers = asked.values().toList()
            total = sum(int(numbers.apply(i)) for i in range(numbers.size()))
            return max(configured, total - len(self._leaving))
        if str(self._spark.sparkContext.master).startswith(("yarn", "k8s")):
            return max(configured, present)
        return _NO_MORE

    def _restore_executors(self, total: int) -> None:
        with self._retiring:
            self._request(total)
            if self._query.isActive:  # of another query's executors none is taken
                self._retire(self.executors()[total:])

    def _retire(self, executors: list[str]) -> None:
        if executors:
            session.retire(self._spark, executors)
            self._leaving += executors

    def _request(self, count: int) -> None:
        """Ask for executors besides those that leave, which count until they have ended."""
        self._wanted = count
        total = count + len(self._leaving)
        self._context.requestTotalExecutors(total, 0, self._jvm.scala.collection.immutable.HashMap())

    @property
    def leaving(self) -> bool:
        """True while executors wait for their end."""
        return bool(self._leaving)

    def release(self) -> None:
        """End the retired executors, two batches later: their output is no longer fetched."""
        with self._retiring:
            if not self._leaving:
                return
            names = self._jvm.java.util.ArrayList()
            for executor in self._leaving:
                names.add(executor)
            self._leaving = []
            self._request(self._wanted)  # first, or new ones would take their places
            gone = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(names).toSeq()
            # SparkContext.killExecutors would take them off the number asked for once more
            self._context.schedulerBackend().killExecutors(gone, False, False, True)

    def release_later(self, timeout_s: float = 120.0) -> None:
        """End the retired executors after two more batches, or after the query, or when the time is over."""
        end, target = time.monotonic() + timeout_s, self._batch() + 3
        with contextlib.suppress(Exception):  # Spark itself may end meanwhile, and its executors with it
            while self._query.isActive and self._batch() < target and time.monotonic() < end:
                time.sleep(0.5)
            self.release()

    def _batch(self) -> int:
        last = self._query._jsq.lastProgress()
        return -1 if last is None else int(last.batchId())

    def half_done(self) -> bool:
        """Return whether the last batch has begun and is not committed."""
        logs = self.execution.offsetLog().getLatestBatchId(), self.execution.commitLog().getLatestBatchId()
        begun, done = (int(n.get()) if n.isDefined() else -1 for n in logs)
        return begun != done

    def repeats(self) -> bool:
        """Return whether the sink is the user's own function, which a repeated batch calls again."""
        return self.execution is not None and "ForeachBatch" in str(self.execution.sink().getClass().getSimpleName())

    def stop_between_batches(self, timeout_s: float) -> float:
        """Stop the query while it waits for its trigger, so that no batch is half done; return the seconds it took.

        If no such moment comes in time, the query runs on with its own interval.
        """
        self.need("trigger")
        self._claim()
        began, before = time.monotonic(), self.trigger_s() or 0.0
        pace = self._paced()
        pace.hold(round(1e3 * (timeout_s + _HOLD_S)))
        if not before:
            self._set_interval(1)  # only a trigger with an interval waits
        try:
            while self._query.isActive and not pace.parked():
                if time.monotonic() - began > timeout_s:
                    raise AttachError(
                        f"a batch that has not ended within {timeout_s:g} s ({self._query.status['message']:.100})",
                        expected="a pause between two batches",
                        fix="wait longer with timeout_s=; the query runs on",
                    )
                if self._waits_by_itself(before) and not pace.parked():
                    time.sleep(0.05)  # a batch that was about to begin has begun by now
                    if self._waits_by_itself(before):
                        break
                time.sleep(0.01)
            self._query.stop()
        finally:
            if self._query.isActive:
                if not before:
                    self._set_interval(0)
                pace.release()
                if "trigger" not in self._undo:
                    self._restore_interval(before, pace)
        self._undo = {name: back for name, back in self._undo.items() if name == "executors"}
        if self._query.exception() is None and self.half_done():
            raise AttachError(
                "a query that was stopped within a batch after all",
                expected="a stop between two batches",
                fix="start it again, which repeats that batch, and stop it once more",
            )
        return time.monotonic() - began

    def _waits_by_itself(self, interval_s: float) -> bool:
        """Return whether the query waits in Spark's own clock, for a trigger that is some seconds away."""
        if "trigger" in self._undo or not interval_s:  # an earlier interval may still be the one it waits for
            return False
        status = self._query.status
        ms = round(1e3 * interval_s)
        left = ms - int(self._pace.getTimeMillis()) % ms
        return not status["isTriggerActive"] and status["message"] == "Waiting for next trigger" and left > 2_000

    def undo(self, knob: str | None = None) -> None:
        """Undo the changes of one knob, or of all."""
        for name in [knob] if knob else list(self._undo):
            back = self._undo.pop(name, None)
            if back is not None and (self._query.isActive or name in ("tasks", "executors")):
                back()

    def _static(self, name: str, method: str, kind: str = "", value: Any = None) -> Any:
        """Call a static method, of at most one argument, of a class of our jar, which is loaded while Spark runs."""
        jvm, gateway = self._jvm, self._gateway
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if gateway not in _LOADERS:
            urls = gateway.new_array(jvm.java.net.URL, 1)
            urls[0] = jvm.java.io.File(str(java.JAR)).toURI().toURL()
            # the parent is asked first: a Spark that was started with our jar has the class already
            _LOADERS[gateway] = jvm.java.net.URLClassLoader(urls, loader)
        count = 1 if kind else 0
        types, given = gateway.new_array(jvm.java.lang.Class, count), gateway.new_array(jvm.java.lang.Object, count)
        if kind:
            types[0], given[0] = jvm.java.lang.Class.forName(kind, True, loader), value
        return _LOADERS[gateway].loadClass(name).getMethod(method, types).invoke(None, given)

    @staticmethod
    def _field(thing: Any, name: str) -> Any:
        field = thing.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field


def type_name(thing: Any) -> str:
    """Return the simple name of a Java object's class."""
    return str(thing.getClass().getSimpleName())


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]


# ---- state in another number of partitions: Spark 4.2 and later rewrite it, in one pass over all keys

PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class Repartitioned:
    """The result of a repartition of state, with the seconds of its parts.

    Parameters
    ----------
    checkpoint : str
        The checkpoint that has the new number of partitions.
    before, after : int
        State partitions.
    rows : int or None
        Rows of state, which are the same before and after; None where Spark cannot read them (transformWithState).
    stop_s, copy_s, seconds : float
        Seconds of the clean stop, of the copy, and of the repartition itself.

    Examples
    --------
    >>> Repartitioned("/c", 8, 16, 1000, 0.1, 0.0, 0.9).downtime_s
    1.0
    """

    checkpoint: str
    before: int
    after: int
    rows: int | None
    stop_s: float
    copy_s: float
    seconds: float

    @property
    def downtime_s(self) -> float:
        """Seconds from the request to stop until the query can be started again."""
        return self.stop_s + self.copy_s + self.seconds


def repartitioned(spark: Any, path: str, partitions: int, copy: Path | None, stop_s: float) -> Repartitioned:
    """Give the state of a checkpoint, or of a copy of it, another number of partitions; compare the rows of state."""
    copy_s = 0.0
    before = state_partitions(spark, path, partitions)
    if copy is not None:
        began = time.perf_counter()
        path = str(_copied(path, copy))
        copy_s = time.perf_counter() - began
    rows = state_rows(spark, path)
    began = time.perf_counter()
    try:
        spark._streamingCheckpointManager.repartition(path, partitions)
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise AttachError(
            f"a checkpoint that Spark does not repartition ({said})",
            expected="one whose last batch is committed, with RocksDB as its state store",
            fix="start the query again, end it with attach(query).stop(clean=True), and repeat",
        ) from error
    seconds = time.perf_counter() - began
    kept = state_rows(spark, path)
    if kept != rows:
        raise AttachError(
            f"{kept} rows of state after the repartition, {rows} before",
            expected="the same rows",
            fix="do not start the query from this checkpoint; use a copy of the former one",
        )
    return Repartitioned(path, before, partitions, rows, stop_s, copy_s, seconds)


def state_partitions(spark: Any, checkpoint: Any, partitions: int) -> int:
    """Return the present number of state partitions; the same number again, or no state, is an error."""
    try:
        told = spark.read.format("state-metadata").load(str(checkpoint)).select("numPartitions").distinct().collect()
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise AttachError(
            f"{str(checkpoint)[:200]} ({said})", expected="the checkpoint of a stateful query", fix="check the folder"
        ) from error
    numbers = sorted(int(row[0]) for row in told)
    if not numbers:
        raise AttachError(
            "a query without state",
            expected="a stateful query",
            fix="a stateless one takes spark.sql.shuffle.partitions at its next start",
        )
    if numbers == [partitions]:
        raise AttachError(
            f"{partitions} partitions", expected="another number than it has", fix="nothing is to be done"
        )
    return numbers[-1]


def state_rows(spark: Any, checkpoint: str) -> int | None:
    """Return the rows of state of all operators and stores; None if Spark cannot read one without its variables."""
    found = spark.read.format("state-metadata").load(checkpoint).select("operatorId", "stateStoreName").distinct()
    total = 0
    for operator, store in found.collect():
        reader = spark.read.format("statestore").option("operatorId", operator).option("storeName", store)
        try:
            total += int(reader.load(checkpoint).count())
        except Exception:  # Spark has no class of errors for the stores that want more options
            return None
    return total


def _copied(checkpoint: str, target: Path) -> Path:
    place = urlparse(checkpoint)
    if place.scheme not in ("", "file"):
        raise AttachError(
            f"a copy of {checkpoint:.200}", expected="a local checkpoint", fix="copy it with your own tools"
        )
    if target.exists():
        raise AttachError(f"copy={str(target)!r:.200}, which exists", expected="a new folder", fix="name another one")
    shutil.copytree(unquote(place.path), target)
    return target.absolute()
