"""Changes of a running query, from outside and without a restart: read limit, trigger, tasks, executors, a clean stop.

They use members of Spark that are private in Scala and public in bytecode, with the names of Spark 4.3. Each is looked
for when a query is attached; what is missing is reported with its reason, and the others work.

| knob | member |
|---|---|
| limit | `StreamExecution.uniqueSources`, a map of sources to read limits |
| trigger, clean stop | `ProcessingTimeExecutor.intervalMs` |
| tasks | `SparkSession.experimental.extraOptimizations` of the query's own session, and our rule `dspkit.Steer` |
| executors | `SparkContext.requestTotalExecutors` and `killExecutors` |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from ..runtime import java, session
from .diagnosis import limit_kind
from .observation import AttachError

KNOBS = ("limit", "trigger", "tasks", "executors")
_NEVER_MS = 10**12
_RULES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by Java gateway: it remembers methods by name of class
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
        self._rule: Any = None
        self._leaving: list[str] = []
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
        setters = [m for m in self.execution.getClass().getMethods() if str(m.getName()) == "uniqueSources_$eq"]
        if not setters:
            return "this Spark has no uniqueSources_$eq"
        return ""

    def _interval_field(self) -> str:
        trigger = self.execution.triggerExecutor()
        if trigger is None:
            return "the query has not begun yet"
        kind = str(trigger.getClass().getSimpleName())
        if kind != "ProcessingTimeExecutor":
            return f"the trigger is a {kind}, which has no interval"
        self._field(trigger, "intervalMs").get(trigger)
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

    def set_limit(self, kind: str, value: int) -> None:
        """Set the records, files or bytes of a batch, from the next batch on."""
        limits = self._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        made = getattr(limits, _LIMITS[kind])(value)
        before = self.execution.uniqueSources()
        keys, sources = before.keys().toList(), before
        for i in range(keys.size()):
            sources = sources.updated(keys.apply(i), made)
        getattr(self.execution, "uniqueSources_$eq")(sources)
        self._undo.setdefault("limit", lambda: getattr(self.execution, "uniqueSources_$eq")(before))

    def set_interval(self, seconds: float) -> None:
        """Set the trigger's interval, from the batch after the next on."""
        before = self.trigger_s() or 0.0
        self._set_interval(round(1e3 * seconds))
        self._undo.setdefault("trigger", lambda: self._set_interval(round(1e3 * before)))

    def _set_interval(self, ms: int) -> None:
        trigger = self.execution.triggerExecutor()
        self._field(trigger, "intervalMs").setLong(trigger, ms)

    def set_tasks(self, tasks: int, shuffle: int = 0) -> None:
        """Set the tasks of the last stage and the partitions of the query's own repartitions; 0 leaves them."""
        if self._rule is None:
            self._rule = self._install()
            self._undo["tasks"] = lambda: self._rule.remove(self.execution.sparkSessionForStream())
        self._rule.set(tasks, shuffle)

    def set_executors(self, count: int) -> None:
        """Ask for so many executors; of too many the newest start no more tasks, until `release` ends them."""
        have = self.executors()
        self._context.requestTotalExecutors(count, 0, self._jvm.scala.collection.immutable.HashMap())
        if gone := have[count:]:
            session.retire(self._spark, gone)
            self._leaving += gone
        self._undo.setdefault("executors", lambda: self.set_executors(len(have)))

    @property
    def leaving(self) -> bool:
        """True while executors wait for their end."""
        return bool(self._leaving)

    def release(self) -> None:
        """End the retired executors, two batches later: their output is no longer fetched."""
        names = self._jvm.java.util.ArrayList()
        for executor in self._leaving:
            names.add(executor)
        if self._leaving:
            self._context.killExecutors(self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(names).toSeq())
        self._leaving = []

    def stop_between_batches(self, timeout_s: float) -> float:
        """Stop the query while it waits for its trigger, so that no batch is half done; return the seconds it took."""
        self.need("trigger")
        began = time.monotonic()
        self._set_interval(_NEVER_MS)
        while self._query.isActive:
            status = self._query.status
            if not status["isTriggerActive"] and status["message"] == "Waiting for next trigger":
                break
            if time.monotonic() - began > timeout_s:
                self.undo("trigger")
                raise AttachError(
                    f"a batch that has not ended within {timeout_s:g} s ({status['message']:.100})",
                    expected="a pause between two batches",
                    fix="wait longer with timeout_s=; the query runs on",
                )
            time.sleep(0.01)
        self._undo.clear()
        self._query.stop()
        return time.monotonic() - began

    def undo(self, knob: str | None = None) -> None:
        """Undo the changes of one knob, or of all."""
        for name in [knob] if knob else list(self._undo):
            back = self._undo.pop(name, None)
            if back is not None and (self._query.isActive or name in ("tasks", "executors")):
                back()
                if name == "tasks":
                    self._rule = None

    def _install(self) -> Any:
        """Load our rule, long after Spark has started, and install it in the query's own session."""
        jvm, gateway = self._jvm, self._gateway
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if gateway not in _RULES:
            urls = gateway.new_array(jvm.java.net.URL, 1)
            urls[0] = jvm.java.io.File(str(java.JAR)).toURI().toURL()
            # the parent is asked first: a Spark that was started with our jar has the class already
            _RULES[gateway] = jvm.java.net.URLClassLoader(urls, loader).loadClass("dspkit.Steer")
        types = gateway.new_array(jvm.java.lang.Class, 1)
        types[0] = jvm.java.lang.Class.forName("org.apache.spark.sql.SparkSession", True, loader)
        given = gateway.new_array(jvm.java.lang.Object, 1)
        given[0] = self.execution.sparkSessionForStream()
        return _RULES[gateway].getMethod("install", types).invoke(None, given)

    @staticmethod
    def _field(thing: Any, ends: str) -> Any:
        fields = [f for f in thing.getClass().getDeclaredFields() if str(f.getName()).endswith(ends)]
        if not fields:
            raise AttachError(f"no field {ends}", expected="that of Spark 4.3", fix="use a Spark 4.3")
        fields[0].setAccessible(True)
        return fields[0]


def type_name(thing: Any) -> str:
    """Return the simple name of a Java object's class."""
    return str(thing.getClass().getSimpleName())


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:120]
