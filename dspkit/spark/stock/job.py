"""A running query of another program, or a recording of one: observed, diagnosed, and changed on request."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlparse

from ...core import (
    BackendBase,
    Deployment,
    DeploymentError,
    History,
    Operator,
    OperatorMetrics,
    Policy,
    Snapshot,
    Step,
    Topology,
    control_loop,
)
from ...core.html import html_table, templates
from ...core.validation import number, whole
from ..runtime import session, workers
from .diagnosis import Diagnosis, Query, WhatIf, diagnose, limit_kind, limit_rows, what_if
from .knobs import KNOBS, PROVIDER, QueryKnobs, Repartitioned, repartitioned, state_partitions
from .model import BatchTime, fit_batch_time
from .observation import (
    AttachError,
    FilesWaiting,
    MicroBatch,
    PlanStage,
    ProgressReader,
    StatusStore,
    batch_latency,
    join_stages,
    plan_stages,
    topology_of,
    whole_batches,
)

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("dspkit")

ONE = "query"  # the only operator of a query whose stages are not known
_KEPT = 10_000  # batches
_PATIENCE = 4  # batches in which a change must show
_LONGEST_S = 300.0  # for a batch that runs at the end of a window
_RELEASE_S = 120.0  # executors that leave end by then, also of a query without batches
_SPREAD_EVERY = 10  # batches whose tasks are compared, which takes longer than their sums
_UNITS = {
    "millisecond": 1e-3,
    "ms": 1e-3,
    "second": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
}
_QUERY = (
    "spark.sql.adaptive.enabled",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
)
_CLUSTER = ("spark.dynamicAllocation.enabled", "spark.executor.cores", "spark.executor.instances", "spark.cores.max")
SETTINGS = (*_QUERY, *_CLUSTER)  # that a diagnosis looks at


class Observed:
    """The batches of a query, and what can be said about them.

    Parameters
    ----------
    window_s : float
        The length of the windows of the history.

    Examples
    --------
    >>> Recording([], slots=4).doctor().state
    'unknown'
    """

    def __init__(self, window_s: float):
        self._window_s = number(window_s, "window_s", 0, above=True)

    @property
    def batches(self) -> tuple[MicroBatch, ...]:
        """The batches with records, oldest first."""
        raise NotImplementedError

    @property
    def topology(self) -> Topology:
        """The stages of the query as operators."""
        raise NotImplementedError

    def _query(self) -> Query:
        raise NotImplementedError

    @property
    def history(self) -> History:
        """The windows observed so far, as of any backend."""
        told = self._query()
        end = max((b.ended for b in told.batches), default=0.0)
        found = windows(told.batches, self.topology, self._window_s, max(1, told.slots), lags=told.lags, end=end)
        about = {"backend": type(self).__name__, "engine": "spark"}
        return History(self.topology, [Step(i, s, None) for i, s in enumerate(found)], about)

    @property
    def model(self) -> BatchTime:
        """The duration of batches, T(n, k) = a + b n / k + c m, with intervals."""
        told = self._query()
        return fit_batch_time(told.batches, max(1, told.slots))

    def doctor(self) -> Diagnosis:
        """Return the state of the query, its cause, and settings to paste.

        Examples
        --------
        >>> batches = [MicroBatch("q", i, 10.0 * i, 10.0 * i + 1.0, rows=100.0) for i in range(12)]
        >>> Recording(batches, slots=4, trigger_s=10.0).doctor().state
        'idle'
        """
        return diagnose(self._query())

    def what_if(
        self,
        *,
        slots: int | None = None,
        executors: int | None = None,
        max_per_batch: float | None = None,
        trigger: str | float | None = None,
        available_now: str | float | None = None,
        rate: float | None = None,
        price_per_slot_hour: float | None = None,
        horizon_s: float = 600.0,
    ) -> WhatIf:
        """Predict batches, the rate sustained, the lag and the costs with other settings.

        Parameters
        ----------
        slots : int, optional
            Slots of the cluster.
        executors : int, optional
            Executors, instead of slots.
        max_per_batch : float, optional
            Records of a batch at most.
        trigger : str or float, optional
            The trigger's interval, as in "5 seconds" or 5.
        available_now : str or float, optional
            The time from one run to the next of a job with `trigger(availableNow=True)`, as in "1 hour": each run does
            all that waits, and its slots are paid for while it runs.
        rate : float, optional
            Records/s that arrive; by default, the present rate.
        price_per_slot_hour : float, optional
            Price of one slot for an hour.
        horizon_s : float
            Seconds over which the lag is predicted.

        Examples
        --------
        >>> batches = [MicroBatch("q", i, 10.0 * i, 10.0 * i + 0.1 + 0.001 * n / 4, rows=n)
        ...            for i, n in enumerate([400, 800, 1600, 3200] * 4)]
        >>> Recording(batches, slots=4, trigger_s=10.0).what_if(slots=2, rate=1000).keeps_up
        True
        """
        if executors is not None:
            slots = whole(executors, "executors", 1) * self._cores
        return what_if(
            self._query(),
            slots=None if slots is None else whole(slots, "slots", 1),
            max_per_batch=None if max_per_batch is None else number(max_per_batch, "max_per_batch", 1),
            trigger_s=None if trigger is None else seconds_of(trigger),
            available_now_s=None if available_now is None else seconds_of(available_now),
            rate=None if rate is None else number(rate, "rate", 0),
            price_per_slot_hour=price_per_slot_hour,
            horizon_s=number(horizon_s, "horizon_s", 0),
        )

    @property
    def _cores(self) -> int:
        return int(self._query().settings.get("spark.executor.cores", "1") or 1)

    def _repr_html_(self) -> str:
        return card(self._query(), self.topology)


class Recording(Observed):
    """The recorded batches of a query, from an event log, the REST API or progress reports.

    Parameters
    ----------
    batches : sequence of MicroBatch
        The batches.
    slots : int
        Slots of the cluster; 0 if they are not known.
    trigger_s : float, optional
        The trigger's interval; None if it is not known.
    topology : Topology, optional
        The stages as operators; by default, one operator.
    settings : mapping of str to str
        Spark's settings.
    window_s : float
        The length of the windows of the history.
    note : str
        What the recording lacks.

    Examples
    --------
    >>> recording = Recording([MicroBatch("q", i, 2.0 * i, 2.0 * i + 1, rows=50.0) for i in range(9)], slots=2)
    >>> round(recording.history[0].snapshot.throughput)
    25
    """

    def __init__(
        self,
        batches: Sequence[MicroBatch],
        *,
        slots: int = 0,
        trigger_s: float | None = None,
        topology: Topology | None = None,
        settings: Mapping[str, str] | None = None,
        window_s: float = 10.0,
        note: str = "",
    ):
        super().__init__(window_s)
        self._note = note
        self._batches = tuple(whole_batches(batches))
        self._slots, self._interval_s, self._settings = slots, trigger_s, dict(settings or {})
        self._topology = topology or Topology((Operator(ONE, max(64, slots)),))

    @property
    def batches(self) -> tuple[MicroBatch, ...]:
        return self._batches

    @property
    def topology(self) -> Topology:
        return self._topology

    def _query(self) -> Query:
        lags = [(b.ended, b.backlog) for b in self._batches if b.backlog is not None]
        now = self._batches[-1].ended if self._batches else 0.0
        return Query(self._batches, self._slots, self._interval_s, now, lags, self._settings, note=self._note)


@dataclass
class QueryChange:
    """A change of a running query, which the next batches must show.

    Parameters
    ----------
    knob : str
        What was changed.
    value : str
        The value asked for.
    asked : float
        Time of the call, in seconds since 1970.
    shown : callable
        Whether a batch shows the change.
    state : {"asked", "confirmed", "unconfirmed"}
        Whether a later batch showed it.
    batch : int, optional
        The first batch that showed it.

    Examples
    --------
    >>> QueryChange("limit", "files=4", 0.0, lambda batch: True).state
    'asked'
    """

    knob: str
    value: str
    asked: float
    shown: Callable[[MicroBatch], bool] = field(repr=False)
    state: str = "asked"
    batch: int | None = None
    _done: threading.Event = field(default_factory=threading.Event, repr=False)

    def look(self, batches: Sequence[MicroBatch]) -> None:
        """Confirm the change by the batches that began after it."""
        after = [b for b in batches if b.began > self.asked]
        for batch in after:
            if self.shown(batch):
                self.state, self.batch = "confirmed", batch.number
                self._done.set()
                return
        if len(after) >= _PATIENCE:
            self.state = "unconfirmed"
            self._done.set()
            log.warning("%s of the query to %s does not show in %d batches", self.knob, self.value, len(after))

    def wait(self, timeout_s: float = 60.0) -> bool:
        """Wait until a batch shows the change; return whether one did."""
        self._done.wait(timeout_s)
        return self.state == "confirmed"


class AttachedQuery(Observed, BackendBase):
    """A running query of classic PySpark or Spark Connect, observed beside its batches.

    It is a Backend without knobs: `observe()` returns the next window. `backend()` is the one that policies control.
    Observation takes at most the share `budget` of the time; stages of batches that it has no time for are taken to be
    like those of the batch before.

    Parameters
    ----------
    query : StreamingQuery
        The running query.
    waiting : callable, optional
        Returns the records that wait in the source, if the source reports no lag.
    window_s : float
        Length of a window.
    budget : float
        Share of the time that observation may take.

    Examples
    --------
    >>> job = AttachedQuery(query)  # doctest: +SKIP
    >>> job.doctor()  # doctest: +SKIP
    """

    knobs: frozenset[str] = frozenset()

    def __init__(
        self,
        query: Any,
        *,
        waiting: Callable[[], float] | None = None,
        window_s: float = 10.0,
        budget: float = 0.01,
    ):
        super().__init__(window_s)
        self._budget = number(budget, "budget", 0, 1, above=True)
        self._user = query
        self._classic = hasattr(query, "_jsq")
        if not query.isActive:
            raise AttachError(
                "a query that has ended" + (f" ({_reason(query)})" if _reason(query) else ""),
                expected="a running query",
                fix="start it again, or read its event log: attach(loaders.SparkEventLog(path))",
            )
        self._spark: Any = session.running_session() if self._classic else None
        self._changer = QueryKnobs(self._spark, query) if self._spark is not None else None
        if self._changer is not None and self._changer.kind == "ContinuousExecution":
            raise AttachError(
                "a query with a continuous trigger",
                expected="one that runs in batches",
                fix="continuous processing has no batches to measure; use a trigger of processing time",
            )
        self._repeats = self._changer is not None and self._changer.repeats()
        self._reader = ProgressReader(query)
        self._store = StatusStore(self._spark, query.runId) if self._spark is not None else None
        self._waiting, self._files = waiting, self._files_waiting()
        self._slots = workers.task_slots(self._spark) if self._spark is not None else 0
        self._settings = self._known_settings()
        self._plan: list[PlanStage] = []
        self._topology: Topology | None = None
        self._batches: deque[MicroBatch] = deque(maxlen=_KEPT)
        self._lags: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._ended = self._trouble = ""
        self._pending: list[QueryChange] = []
        self.changes: list[QueryChange] = []
        self._lock = threading.RLock()
        self._began = self._window_end = time.time()
        self._spent, self._next = {"progress": 0.0, "stages": 0.0}, {"progress": 0.0, "stages": 0.0}
        # A batch, and a time, by which executors that leave end anyway.
        self._release_at: tuple[int, float] | None = None
        self._compared = 0  # batches since the last one whose tasks were compared
        self._observed = False
        self._look(stages=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="dspkit-attached", daemon=True)
        self._thread.start()

    # ---- observation

    @property
    def batches(self) -> tuple[MicroBatch, ...]:
        with self._lock:
            return tuple(self._batches)

    @property
    def topology(self) -> Topology:
        with self._lock:
            return self._topology or Topology((Operator(ONE, max(64, self._slots)),))

    @property
    def deployment(self) -> Deployment:
        """Tasks of each stage, at most as many as there are slots."""
        with self._lock:
            tasks = next(({r.operator: r.tasks for r in b.stages} for b in reversed(self._batches) if b.stages), {})
        k = max(1, self._slots)
        return Deployment({n: max(1, min(tasks.get(n, k), k)) for n in self.topology.order})

    @property
    def lag(self) -> float | None:
        """Records that wait, if the source or `waiting` reports them."""
        with self._lock:
            return self._lags[-1][1] if self._lags else None

    @property
    def cost(self) -> float:
        """The share of the time that observation has taken so far."""
        return sum(self._spent.values()) / max(1e-9, time.time() - self._began)

    @property
    def missing(self) -> dict[str, str]:
        """The knobs that this query or this Spark lacks, with the reason."""
        if self._changer is None:
            return dict.fromkeys(KNOBS, "a query of Spark Connect is only observed")
        return dict(self._changer.missing)

    def observe(self) -> Snapshot | None:
        """Return the next window, once it is over and the batch that runs at its end is reported.

        Windows are even: an idle query gives empty ones, and so does a batch that takes five minutes longer than the
        window. None after the end of the query.
        """
        self._must_be_open()
        if self._ended:
            return None
        if not self._observed:  # the first window begins when it is asked for
            self._observed, self._window_end = True, time.time()
        start, end = self._window_end, self._window_end + self._window_s
        while time.time() < end and not self._stop.wait(min(0.2, max(0.0, end - time.time()))):
            pass
        latest = end + max(_LONGEST_S, self._window_s)
        while time.time() < latest and self._active() and self._works_since(end) and not self._stop.wait(0.25):
            pass
        self._look(stages=True)
        self._window_end = end
        told = self._query()
        found = windows(
            told.batches, self.topology, self._window_s, max(1, told.slots), lags=told.lags, start=start, end=end
        )
        return replace(found[0], t=end - self._began) if found else None

    def deploy(self, deployment: Deployment) -> None:
        """Refuse: an attached query is only observed; `backend()` returns the backend for policies."""
        self._must_be_open()
        raise DeploymentError(
            f"a change of an observed query's deployment to {deployment!r:.200}",
            expected="no change of parallelism, workers, placement or settings",
            fix="use job.backend(executors=(1, 6)), or job.executors(n), job.limit(...)",
        )

    def _active(self) -> bool:
        """Return whether the query runs; it does not once Spark itself has ended."""
        if not self._ended:
            try:
                active = bool(self._user.isActive)
            except Exception as error:  # py4j and Connect have errors of their own
                self._ended = f"Spark itself has ended ({type(error).__name__})."
            else:
                if not active:
                    self._ended = _reason(self._user) or "the query was stopped."
        return not self._ended

    def _works_since(self, end: float) -> bool:
        """Return whether a batch that began before `end` still runs."""
        self._look(stages=False)
        with self._lock:
            if self._batches and self._batches[-1].ended >= end:
                return False
        return bool(self._user.status["isTriggerActive"] and self._user.status["isDataAvailable"])

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            now = time.monotonic()
            if now < self._next["progress"]:
                continue
            try:
                self._look(stages=now >= self._next["stages"] or bool(self._pending))
            except Exception as error:  # the query, or its Java, may end at any time; the diagnosis says so
                self._trouble = f"Observation is incomplete: {type(error).__name__}: {error}"[:300]
            if self._ended:
                with contextlib.suppress(Exception):  # Spark itself may have ended
                    if self._changer is not None:
                        self._changer.release()
                return

    def _look(self, *, stages: bool) -> None:
        """Take what is new, within the budget."""
        with self._lock:
            if self._ended:
                return
            began = time.perf_counter()
            active = self._active()  # first: what it reported before its end is read once more
            try:
                fresh = self._reader.new()
            except Exception:
                if active and self._active():
                    raise
                return  # with Spark, its progress is gone
            for batch in fresh:
                batch.slots = self._slots
                if not self._batches and self._changer is not None:
                    self._changer.probe()
                    self._files = self._files_waiting()
                self._batches.append(batch)
            self._note_lag(fresh)
            self._account("progress", began)
            if stages and self._store is not None and not self._ended:
                began = time.perf_counter()
                self._slots = workers.task_slots(self._spark)
                self._read_stages()
                self._account("stages", began)
            self._confirm()

    def _account(self, what: str, began: float) -> None:
        spent = time.perf_counter() - began
        self._spent[what] += spent
        self._next[what] = time.monotonic() + spent * (2 / self._budget - 1)

    def _read_stages(self) -> None:
        """Read the stages of the newest batch (of all that a pending change waits for), and join them to the plan."""
        assert self._store is not None
        open_ = [b for b in self._batches if not b.stages][-20 if self._pending or self._budget == 1 else -1 :]
        if not open_:
            return
        spread = self._budget == 1 or self._compared >= _SPREAD_EVERY or not self._plan
        found = self._store.batches({b.number for b in open_}, spread=spread)
        self._compared = 0 if spread else self._compared + 1
        for batch in open_:
            batch.stages = found.get(batch.number, [])
        known = [b for b in open_ if b.stages]
        if not known:
            return
        if len(known[-1].stages) != len(self._plan):
            self._read_plan()
        branches = any(len(s.inputs) > 1 for s in self._plan)
        for batch in known:
            drawn = [self._store.operations(r.id) for r in batch.stages] if branches else ()
            join_stages(self._plan, batch.stages, drawn)

    def _read_plan(self) -> None:
        plan = self._changer.last_plan() if self._changer is not None else None
        if plan is not None:
            self._plan = plan_stages(plan)
            if self._topology is None:
                self._topology = topology_of(self._plan, max(64, self._slots))

    def _note_lag(self, fresh: Sequence[MicroBatch]) -> None:
        now = time.time()
        if self._waiting is not None:
            self._lags.append((now, float(self._waiting())))
        elif self._files is not None:
            with contextlib.suppress(OSError, ValueError, KeyError):
                waiting = self._files.records((b.number, b.rows or 0.0) for b in self._batches)
                if waiting is not None:
                    self._lags.append((now, waiting))
        else:
            self._lags.extend((b.ended, b.backlog) for b in fresh if b.backlog is not None)

    def _files_waiting(self) -> FilesWaiting | None:
        """Return the counter of waiting files, if the only source is a local folder."""
        if self._changer is None or self._changer.execution is None:
            return None
        with contextlib.suppress(Exception):
            names = self._changer.sources()
            found = re.fullmatch(r"FileStreamSource\[(file:.*)\]", names[0]) if len(names) == 1 else None
            checkpoint = Path(unquote(urlparse(self._changer.checkpoint()).path))
            folder = None if not found else Path(unquote(urlparse(found[1]).path))
            if folder is not None and folder.is_dir() and (checkpoint / "sources" / "0").is_dir():  # and no pattern
                return FilesWaiting(folder, checkpoint / "sources" / "0")
        return None

    def _known_settings(self) -> dict[str, str]:
        if self._spark is None or self._changer is None:
            return {}
        conf = self._spark.sparkContext.getConf()
        cluster = {name: conf.get(name) for name in _CLUSTER if conf.contains(name)}
        return self._changer.settings(_QUERY) | cluster | {"master": str(self._spark.sparkContext.master)}

    def _query(self) -> Query:
        with self._lock:
            running = (0.0, 0, 0)
            if self._batches and self._active() and self._user.status["isTriggerActive"]:
                active, failed = self._store.running() if self._store is not None else (0, 0)
                running = time.time() - self._batches[-1].ended, active, failed
                if not active:
                    running = 0.0, 0, 0
            interval = self._changer.trigger_s() if self._changer is not None and not self._ended else None
            limit = self._changer.read_limit() if self._changer is not None and not self._ended else None
            return Query(
                tuple(self._batches),
                self._slots,
                interval,
                time.time(),
                tuple(self._lags),
                self._settings,
                limit,
                self._ended,
                running,
                live=self._changer is not None and not self._ended,
                note=self._trouble,
                repeats=self._changer is not None and self._repeats,
            )

    # ---- changes

    def limit(self, *, rows: int | None = None, files: int | None = None, bytes: int | None = None) -> QueryChange:
        """Limit what each batch reads, from the next one on: Kafka's records, or files, or bytes of files.

        Parameters
        ----------
        rows, files, bytes : int, optional
            Exactly one of them.
        """
        changer = self._knob("limit")
        given = {k: v for k, v in (("rows", rows), ("files", files), ("bytes", bytes)) if v is not None}
        accepted = {"rows": ("rows",), "files": ("files", "bytes")}[limit_kind(changer.sources()) or "files"]
        if len(given) != 1 or not set(given) <= set(accepted):
            raise AttachError(
                f"limit({', '.join(f'{k}={v}' for k, v in given.items())})",
                expected=f"one of {', '.join(accepted)}, for {', '.join(changer.sources())[:100]}",
                fix=f"pass {accepted[0]}=",
            )
        ((kind, value),) = given.items()
        value = whole(value, kind, 1)
        changer.set_limit(kind, value)
        counted = self._files

        def shown(batch: MicroBatch) -> bool:
            if kind == "rows":
                return (batch.rows or 0) <= value
            if kind == "files" and counted is not None and batch.number in counted.per_batch:
                return counted.per_batch[batch.number] <= value
            return changer.read_limit() == (kind, value)

        return self._changed("limit", f"{kind}={value}", shown)

    def trigger(self, interval: str | float) -> QueryChange:
        """Set the trigger's interval, as in "2 seconds" or 2; it counts after one more batch.

        Parameters
        ----------
        interval : str or float
            A time as Spark writes it, or seconds.
        """
        changer = self._knob("trigger")
        seconds = seconds_of(interval)
        old = changer.trigger_s()
        changer.set_interval(seconds)

        def shown(batch: MicroBatch) -> bool:
            """Return whether the gap to the batch before is one that the former interval does not explain."""
            before = next((b for b in reversed(self._batches) if b.began < batch.began), None)
            if before is None or old is None or seconds == old:
                return seconds == old
            gap = batch.began - before.began
            return gap >= 0.9 * seconds if seconds > old else gap < 0.9 * old or before.lasted > 0.9 * old

        return self._changed("trigger", f"{seconds:g} s", shown)

    def tasks(self, count: int) -> QueryChange:
        """Run the last stage, with its state partitions, in so many tasks; its state remains unchanged.

        Parameters
        ----------
        count : int
            Tasks, at most as many as there are partitions; 0 restores the query's own number.
        """
        changer = self._knob("tasks")
        count = whole(count, "count", 0)
        partitions = self._plan[-1].partitions if self._plan else None
        if partitions is not None and count > partitions:
            raise AttachError(
                f"{count} tasks for {partitions} partitions",
                expected=f"at most {partitions} while the query runs",
                fix=f"stop it with job.stop(clean=True), then repartition(checkpoint, {count})",
            )
        changer.set_tasks(count)
        wanted = count or partitions
        return self._changed("tasks", str(count), lambda b: any(r.tasks == wanted for r in b.stages))

    def shuffle(self, partitions: int) -> QueryChange:
        """Give the query's own `repartition` another number of partitions, from the next batch on.

        In real-time mode all tasks of a query run at once: a number for which there are too few slots is refused,
        because the query would die of it. There, `cut()` lets the next batch begin now.

        Parameters
        ----------
        partitions : int
            Partitions; 0 restores the query's own number.
        """
        changer = self._running()
        if changer.realtime_s() is None:
            changer = self._knob("tasks")
        partitions = whole(partitions, "partitions", 0)
        wanted = changer.set_shuffle(partitions)

        def shown(batch: MicroBatch) -> bool:
            """Return whether a stage has such tasks, or the plan such partitions: `tasks` may read several in one."""
            if not wanted:
                return not partitions or any(r.tasks == partitions for r in batch.stages)
            return any(r.tasks in wanted for r in batch.stages) or changer.repartitions() == wanted

        return self._changed("shuffle", str(partitions), shown)

    def cut(self) -> None:
        """End the present batch of a query in real-time mode now, on a local master: the next one begins at once.

        Queries share the clock of their Spark: it ends the present batch of all real-time queries there.
        """
        self._running().cut()

    def executors(self, count: int) -> QueryChange:
        """Ask for so many executors: more take part from the next stage on, fewer retire before they end.

        Parameters
        ----------
        count : int
            Executors of the cluster.
        """
        changer = self._knob("executors")
        count = whole(count, "count", 1)
        cores, cap = self._cores, self._settings.get("spark.cores.max")
        if cap is not None and count * cores > int(cap):
            raise AttachError(
                f"{count} executors of {cores} cores",
                expected=f"at most spark.cores.max={cap} cores",
                fix=f"ask for {int(cap) // cores}",
            )
        with self._lock:
            changer.set_executors(count)
            self._release_at = None  # two batches from now
        return self._changed("executors", str(count), lambda _: len(changer.executors()) == count)

    def stop(self, *, clean: bool = True, timeout_s: float = 120.0) -> float:
        """Stop the query; `clean` waits until no batch is half done. Return the seconds that it took.

        Parameters
        ----------
        clean : bool
            Stop between two batches: the next start has nothing to repeat, and the state can be repartitioned.
        timeout_s : float
            Seconds to wait for the end of the present batch.
        """
        began = time.monotonic()
        if clean:
            self._knob("trigger").stop_between_batches(timeout_s)
        else:
            self._user.stop()
            if self._repeats and self._changer is not None and self._changer.half_done():
                log.warning(
                    "The last batch is not committed: the next start calls the foreachBatch function with it again, "
                    "under the same number. A function that does not drop repeated numbers writes it twice."
                )
        self._look(stages=False)
        self.detach()
        return time.monotonic() - began

    def probe(self, batches: int = 8, timeout_s: float = 300.0) -> BatchTime:
        """Vary the read limit on purpose, from a quarter to twice the present size, and return the fitted model.

        No record is lost or read twice; the limit is as before afterwards.

        Parameters
        ----------
        batches : int
            Batches to measure.
        timeout_s : float
            Seconds after which it ends with what it has.
        """
        changer = self._knob("limit")
        kind, usual = changer.read_limit() or self._usual()
        until, sizes = time.monotonic() + timeout_s, (0.25, 0.5, 1.0, 2.0)
        restore = changer.varied_limit()
        try:
            for turn in range(batches):
                known = len(self.batches)
                changer.set_limit(kind, max(1, int(usual * sizes[turn % len(sizes)])))
                while len(self.batches) <= known and time.monotonic() < until and not self._ended:
                    self._look(stages=True)
                    time.sleep(0.05)
        finally:
            if self._active():
                restore()
        return self.model

    def _usual(self) -> tuple[str, int]:
        """Return the kind of limit that the source takes, and the median size of the batches so far in it."""
        with self._lock:
            rows = median([b.rows or 1 for b in self._batches] or [1000.0])
            if limit_kind(self._knob("limit").sources()) == "rows":
                return "rows", int(rows)
            if self._files is not None and self._files.per_batch:
                return "files", max(1, int(median(self._files.per_batch.values())))
        raise AttachError(
            "a source of files without a limit, whose files per batch are not known",
            expected="a limit to vary",
            fix="set one first, of about the present size, as in job.limit(files=20)",
        )

    def _knob(self, name: str) -> QueryKnobs:
        changer = self._running()
        if name in changer.missing:
            changer.probe()  # the query may just have begun
        changer.need(name)
        return changer

    def _at_limit(self) -> bool:
        """Return whether the last batches were as large as the read limit allows."""
        limit = self._running().read_limit()
        with self._lock:
            last = list(self._batches)[-3:]
        if limit is None or not last:
            return False
        kind, value = limit
        if kind == "rows":
            return all((b.rows or 0) >= 0.9 * value for b in last)
        known = self._files.per_batch if self._files is not None else {}
        return kind == "files" and all(known.get(b.number, 0) >= value for b in last)

    def _running(self) -> QueryKnobs:
        self._must_be_open()
        if self._changer is None:
            raise AttachError(
                "a query of Spark Connect, whose driver is out of reach",
                expected="a query of classic PySpark",
                fix="it is only observed: start the session without a remote address to change it",
            )
        if self._ended:
            raise AttachError(
                f"a query that has ended: {self._ended:.200}", expected="a running one", fix="start it again"
            )
        return self._changer

    def _changed(self, knob: str, value: str, shown: Callable[[MicroBatch], bool]) -> QueryChange:
        change = QueryChange(knob, value, time.time(), shown)
        with self._lock:
            self._pending = [c for c in self._pending if c.knob != knob] + [change]
            self.changes.append(change)
        return change

    def _confirm(self) -> None:
        if self._pending:
            for change in self._pending:
                change.look([b for b in self._batches if b.began > change.asked and (b.stages or self._store is None)])
            self._pending = [c for c in self._pending if c.state == "asked"]
        if self._changer is None or not self._changer.leaving:
            self._release_at = None
            return
        last, now = self._batches[-1].number if self._batches else -1, time.monotonic()
        if self._release_at is None:
            self._release_at = last + 2, now + _RELEASE_S
        elif last >= self._release_at[0] or now > self._release_at[1]:
            self._release_at = None
            self._changer.release()

    # ---- policies

    def backend(self, *, executors: tuple[int, int] = (1, 4), window_s: float | None = None) -> SteeredQuery:
        """Return the query as a Backend for policies, as in `dspkit.run("ds2", job.backend(executors=(1, 6)))`.

        Parameters
        ----------
        executors : (int, int)
            Fewest and most executors.
        window_s : float, optional
            Length of a window; by default, that of the observation.
        """
        return SteeredQuery(self, executors, window_s or self._window_s)

    def steer(
        self,
        policy: Policy,
        *,
        executors: tuple[int, int] = (1, 4),
        steps: int | None = None,
        settle: int = 0,
        dry_run: bool = False,
    ) -> Iterator[Step]:
        """Yield the steps of a policy that controls the query, window by window.

        Parameters
        ----------
        policy : Policy
            The policy.
        executors : (int, int)
            Fewest and most executors.
        steps : int, optional
            Number of windows; by default, until the query ends.
        settle : int
            Windows after a change without a decision.
        dry_run : bool
            Record decisions, and change nothing.
        """
        return control_loop(
            policy, self.backend(executors=executors), steps=steps, settle=settle, act=not dry_run, refused="skip"
        )

    # ---- end

    def detach(self) -> None:
        """Undo all changes that are not the query's own, and end the observation; the query runs on."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(10)
        if self._changer is not None:
            try:
                self._changer.undo()
            except Exception:
                if self._active():  # of a Spark that has ended there is nothing left to undo
                    raise
            if self._changer.leaving:
                threading.Thread(target=self._changer.release_later, name="dspkit-release", daemon=True).start()
        BackendBase.close(self)

    def close(self) -> None:
        """Detach; closing twice is allowed."""
        if self._open:
            self.detach()

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        name = getattr(self._user, "name", None) or str(self._user.id)[:8]
        stages = ", ".join(self.topology.order)
        return f"AttachedQuery({name!r}, stages={stages}, batches={len(self._batches)}, slots={self._slots})"


def _reason(query: Any) -> str:
    """Return the error that ended a query, or ""."""
    with contextlib.suppress(Exception):
        error = query.exception()
        return "" if error is None else f"it failed: {cause_of(str(error))[:300]}"
    return ""


def cause_of(text: str) -> str:
    """Return the line that names the cause in the text of an error of Spark: that of Python, if a traceback is in it.

    Examples
    --------
    >>> cause_of("[X] ended\\nTraceback (most recent call last):\\n  File 'a'\\nValueError: no such key\\n\\tat org.x")
    'ValueError: no such key'
    """
    found = re.findall(
        r"^(?!org\.|java\.|py4j\.|scala\.)[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt): .*", text, re.M
    )
    return " ".join((found[-1] if found and "Traceback (most" in text else text).split())


class SteeredQuery(BackendBase):
    """An attached query as policies see it: each stage has instances, which together are the slots of the executors.

    Stages take turns on shared slots. Stage i has $t_i / v_i$ seconds of work for one slot in each second, whether
    stages run side by side or in turn; so a policy that asks for $p_i$ instances of each is right if there are
    $\\sum p_i$ slots. The fixed part of each batch is left out of the true rates: $v_i (1 - a / T)$.

    Parameters
    ----------
    job : AttachedQuery
        The attached query.
    executors : (int, int)
        Fewest and most executors.
    window_s : float
        Length of a window.

    Examples
    --------
    >>> run("ds2", job.backend(executors=(1, 6)), steps=20)  # doctest: +SKIP
    """

    def __init__(self, job: AttachedQuery, executors: tuple[int, int], window_s: float):
        self._job = job
        low, high = (whole(e, "executors", 1) for e in executors)
        if low > high:
            raise AttachError(f"executors={executors}", expected="(fewest, most)", fix="as in (1, 6)")
        self._low, self._high = low, high
        job._window_s, job._observed = number(window_s, "window_s", 0, above=True), False
        able = [("parallelism", "executors"), ("settings", "limit"), ("settings", "trigger")]
        self.knobs = frozenset(name for name, knob in able if knob not in job.missing)
        if not self.knobs:
            raise AttachError(
                "; ".join(f"{k}: {v}" for k, v in job.missing.items()),
                expected="executors, a read limit or a trigger that can be changed",
                fix="use job.observe(), or run the policy on the recording: advise(job.history)",
            )
        most = self._high * job._cores
        graph = job.topology
        self.topology = Topology(tuple(replace(o, max_parallelism=most) for o in graph.operators), graph.edges)
        self._deployment = Deployment(self._shared(max(1, job._slots)))
        self._asked = 0  # executors

    @property
    def deployment(self) -> Deployment:
        """Instances of each stage; their sum is the number of slots."""
        return self._deployment

    def _shared(self, slots: int) -> dict[str, int]:
        """Share slots among stages by their work, one each at least."""
        order = self.topology.order
        known = next((b.stages for b in reversed(self._job.batches) if b.stages), [])
        busy = {name: sum(r.busy_s for r in known if r.operator == name) for name in order}
        total = sum(busy.values()) or 1.0
        shares = {n: max(1.0, slots * busy[n] / total) for n in order}
        made = {n: int(shares[n]) for n in order}
        for name in sorted(order, key=lambda n: made[n] - shares[n])[: max(0, slots - sum(made.values()))]:
            made[name] += 1
        return made

    def observe(self) -> Snapshot | None:
        """Return the next window, seen as instances of stages."""
        self._must_be_open()
        seen = self._job.observe()
        if seen is None:
            return None
        share, operators = self._fixed_share(seen), {}
        for name, m in seen.operators.items():
            k = self._deployment.parallelism[name]
            rate = None if m.true_rate is None else m.true_rate * (1 - share)
            busy = min(1.0, m.utilisation * m.parallelism / k / (1 - share))
            operators[name] = replace(m, true_rate=rate, utilisation=busy, parallelism=k)
        return replace(seen, deployment=self._deployment, operators=operators)

    def _fixed_share(self, seen: Snapshot) -> float:
        """Return the share of the time that goes into the fixed parts of batches when the query is busy.

        Small batches consist of little else, but grow with the load: up to the interval of the trigger, or the read
        limit. Without either, a batch four times as long as its fixed part is thought acceptable.
        """
        told, model = self._job._query(), self._job.model
        if seen.latency is None or not model.known or model.a is None:
            return 0.0
        fixed, limit = model.a.value, limit_rows(told, whole_batches(told.batches))
        if told.trigger_s:
            largest = told.trigger_s
        elif math.isfinite(limit):
            largest = float(model.drawn(limit, max(1, told.slots))[0])
        else:
            largest = max(1.0, 4 * fixed)
        return min(0.9, fixed / max(1e-9, largest, seen.latency.mean))

    def deploy(self, deployment: Deployment) -> None:
        """Ask for as many executors as the instances of all stages need, and set the limit and the trigger.

        Of instances beyond the slots of the most executors, the stages with most of them go without.
        """
        self._must_be_open()
        self.topology.check(deployment)
        if "parallelism" in self.knobs and deployment.parallelism != self._deployment.parallelism:
            made, most = dict(deployment.parallelism), self._high * self._job._cores
            while sum(made.values()) > max(most, len(made)):
                made[max(made, key=lambda name: made[name])] -= 1
            deployment = replace(deployment, parallelism=made)
            wanted = math.ceil(sum(made.values()) / self._job._cores)
            self._executors(min(self._high, max(self._low, wanted)))
        settings = deployment.settings
        if "max_per_batch" in settings and settings != self._deployment.settings:
            kind = limit_kind(self._job._knob("limit").sources()) or "rows"
            self._job.limit(**{kind: int(settings["max_per_batch"])})
        if "trigger_s" in settings and settings != self._deployment.settings:
            seconds = float(settings["trigger_s"])
            if self._job._at_limit():  # a longer interval would not make batches larger, but fewer
                seconds = 0.0
                deployment = replace(deployment, settings={**settings, "trigger_s": seconds})
            self._job.trigger(seconds)
        self._deployment = deployment

    def _executors(self, count: int) -> None:
        if count != self._asked:
            self._job.executors(count)
            self._asked = count

    def close(self) -> None:
        """Reject further calls; the query stays attached."""
        super().close()


def windows(
    batches: Sequence[MicroBatch],
    topology: Topology,
    window_s: float,
    slots: int,
    *,
    lags: Sequence[tuple[float, float]] = (),
    start: float | None = None,
    end: float | None = None,
) -> list[Snapshot]:
    """Return even windows of batches: each batch is spread over the time that it took.

    Parameters
    ----------
    batches : sequence of MicroBatch
        The batches, oldest first.
    topology : Topology
        Operators of the stages, or a single operator.
    window_s : float
        Length of a window.
    slots : int
        Slots of the cluster.
    lags : sequence of (float, float)
        Times, and records that waited.
    start, end : float, optional
        Seconds since 1970; by default, from the first batch to the last.

    Examples
    --------
    >>> batches = [MicroBatch("q", i, 5.0 * i, 5.0 * i + 4, rows=80.0) for i in range(4)]
    >>> [s.throughput for s in windows(batches, Topology((Operator("query"),)), 10.0, slots=1)]
    [16.0, 16.0]
    """
    if start is None:
        start = batches[0].began if batches else 0.0
    end = (batches[-1].ended if batches else start) if end is None else end
    count = max(0, math.ceil((end - start) / window_s - 1e-9))
    sums = [_Sums(topology) for _ in range(count)]
    pattern: MicroBatch | None = next((b for b in batches if _joined(b, topology)), None)
    for batch in batches:
        pattern = batch if _joined(batch, topology) else pattern
        first = max(0, int((batch.began - start) // window_s))
        lasted = max(1e-9, batch.ended - batch.began)
        for i in range(first, min(count, int((batch.ended - start) // window_s) + 1)):
            left = start + i * window_s
            part = (min(batch.ended, left + window_s) - max(batch.began, left)) / lasted
            if part > 0:
                sums[i].add(batch, pattern, part, slots)
    return [
        made.snapshot((i + 1) * window_s, window_s, slots, lags, start + i * window_s) for i, made in enumerate(sums)
    ]


def _joined(batch: MicroBatch, topology: Topology) -> bool:
    return bool(batch.stages) and {r.operator for r in batch.stages} == set(topology.order)


class _Sums:
    """The sums of one window."""

    def __init__(self, topology: Topology):
        self.topology, self.rows = topology, 0.0
        self.took: list[float] = []
        self.weights: list[float] = []
        self.by: dict[str, list[float]] = {name: [0.0] * 4 for name in topology.order}  # received, sent, busy, cpu
        self.tasks: dict[str, int] = {}
        self.commit_s = 0.0

    def add(self, batch: MicroBatch, pattern: MicroBatch | None, part: float, slots: int) -> None:
        rows = batch.rows or 0.0
        self.rows += part * rows
        self.took.append(batch.lasted)
        self.weights.append(part * rows)
        if pattern is None:
            work = batch.phases.get("addBatch", batch.lasted)
            name = self.topology.order[0]
            if len(self.by) == 1:
                self._take(name, part, (rows, rows, work * slots, 0.0), slots)
            return
        scale = part * (rows / pattern.rows if pattern is not batch and pattern.rows else 1.0)
        for run in pattern.stages:
            self._take(run.operator, scale, (run.received, run.shuffled + run.wrote, run.busy_s, run.cpu_s), run.tasks)

    def _take(self, name: str, part: float, values: tuple[float, ...], tasks: int) -> None:
        self.by[name] = [total + part * value for total, value in zip(self.by[name], values, strict=True)]
        self.tasks[name] = tasks

    def snapshot(self, t: float, w: float, slots: int, lags: Sequence[tuple[float, float]], began: float) -> Snapshot:
        k = {n: max(1, min(self.tasks.get(n, slots), slots)) for n in self.topology.order}
        before, after = _at(lags, began), _at(lags, began + w)
        done = self.rows / w
        offered = done if before is None or after is None else max(0.0, done + (after - before) / w)
        sources = self.topology.sources
        read = {n: self.by[n][0] for n in sources}
        total = sum(read.values())
        part = {n: read[n] / total if total else 1 / len(sources) for n in sources}
        operators = {}
        for name, (received, sent, busy, cpu) in self.by.items():
            if self.took and name not in self.tasks:
                continue  # its metrics did not arrive
            speed = received / busy if busy > 0 and received > 0 else None
            share = min(1.0, busy / (w * k[name]))
            waiting = part.get(name, 0.0) * (after or 0.0)
            operators[name] = OperatorMetrics(
                received / w, received / w, sent / w, speed, share, waiting, k[name], cpu=cpu / w if cpu else None
            )
        rates = {n: offered * part[n] for n in sources}
        edges = {(u, v): self.by[u][1] / w for u, v in self.topology.edges if u in operators}
        return Snapshot(
            t,
            w,
            Deployment(k),
            operators,
            rates,
            done,
            batch_latency(self.took, self.weights),
            None,
            after or 0.0,
            edges,
            execution="micro-batch",
        )


def _at(points: Sequence[tuple[float, float]], t: float) -> float | None:
    """Return the value at a time, between the points around it; None before the first."""
    before = after = None
    for point in points:
        if point[0] <= t:
            before = point
        else:
            after = point
            break
    if before is None or after is None:
        return before[1] if before is not None else None
    return before[1] + (after[1] - before[1]) * (t - before[0]) / (after[0] - before[0])


def seconds_of(interval: str | float) -> float:
    """Return the seconds of an interval as Spark writes it.

    Examples
    --------
    >>> seconds_of("500 milliseconds"), seconds_of("2 minutes"), seconds_of(3)
    (0.5, 120.0, 3.0)
    """
    if isinstance(interval, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+?)s?\s*", interval.lower())
        unit = found and (_UNITS.get(found[2]) or (1.0 if found[2] == "" else None))
        if not found or not unit:
            raise AttachError(f"interval {interval!r}", expected='"5 seconds"', fix="name a number and a unit")
        return float(found[1]) * unit
    return number(interval, "interval", 0)


_PAGE = """<p>{{ head }}</p>
<svg role="img" aria-label="Stages: {{ names }}" width="{{ width }}" height="74" style="max-width:100%">
{% for box in boxes %}<g><rect x="{{ box.x }}" y="26" width="{{ box.w }}" height="40" rx="4" fill="none"
 stroke="currentColor"{% if box.stateful %} stroke-width="2.5"{% endif %}/><text x="{{ box.x + box.w / 2 }}" y="43"
 text-anchor="middle" font-size="12" fill="currentColor">{{ box.name }}</text><text x="{{ box.x + box.w / 2 }}" y="59"
 text-anchor="middle" font-size="10" fill="currentColor">{{ box.note }}</text></g>{% endfor %}
{% for line in lines %}<path d="{{ line }}" fill="none" stroke="currentColor"/>{% endfor %}</svg>"""
_TITLE = "<p><small>{{ title }}</small></p>"


def card(query: Query, topology: Topology) -> str:
    """Return the present state of a query as HTML: its stages, and tables of rates, phases and state; all escaped."""
    import pandas as pd

    told = diagnose(query)
    batches = whole_batches(query.batches)
    recent = batches[-20:]
    boxes: list[dict[str, Any]] = []
    x = 4
    last = next((b for b in reversed(batches) if b.stages), None)
    runs = {r.operator: r for r in last.stages} if last else {}
    for name in topology.order:
        w = 24 + 8 * len(name)
        note = f"{runs[name].tasks} tasks" if name in runs else ""
        boxes.append({"x": x, "w": w, "name": name, "note": note, "stateful": topology[name].stateful})
        x += w + 24
    at = {str(box["name"]): (int(box["x"]), int(box["w"])) for box in boxes}
    lines = []
    for start, end in topology.edges:
        (x0, w0), (x1, w1) = at[start], at[end]
        if x0 + w0 + 24 == x1:
            lines.append(f"M {x0 + w0} 46 H {x1}")
        else:  # over the stages between
            lines.append(f"M {x0 + w0 / 2} 26 Q {(x0 + w0 / 2 + x1 + w1 / 2) / 2} -12 {x1 + w1 / 2} 26")
    head = f"{told.state}: {told.why} {query.slots} slots."
    if "lag" in told.figures and told.state != "behind":
        head += f" {told.figures['lag']:,.0f} records wait."
    page = templates().from_string(_PAGE)
    made = page.render(head=head, names=", ".join(topology.order), width=x, boxes=boxes, lines=lines)
    if runs and last is not None:
        rows = [
            {
                "stage": name,
                "reads from": ", ".join(topology.upstream(name)),
                "tasks": r.tasks,
                "records in": r.received,
                "records out": r.shuffled + r.wrote,
                "records/s per slot": r.received / r.busy_s if r.busy_s else None,
                "busy s": r.busy_s,
                "longest / median task": (r.longest_s or 0) / r.median_s if r.median_s else None,
            }
            for name, r in runs.items()
        ]
        made += _titled(f"Stages of batch {last.number}", pd.DataFrame(rows))
    if recent:
        phases = {n: 1e3 * median(b.phases.get(n, 0.0) for b in recent) for n in recent[-1].phases}
        made += _titled("Median milliseconds of each phase", pd.DataFrame([phases]).round(1))
        state = [
            {
                "state of": s.name,
                "rows": s.rows,
                "stores": s.stores,
                "MB in memory": s.memory_bytes / 1e6,
                "commit s of tasks": s.commit_s,
            }
            for s in recent[-1].state
        ]
        if state:
            made += _titled("State stores", pd.DataFrame(state))
    return made


def _titled(title: str, frame: pd.DataFrame) -> str:
    return templates().from_string(_TITLE).render(title=title) + html_table(frame, title, left=True)


def attach(
    query: Any, *, waiting: Callable[[], float] | None = None, window_s: float = 10.0, budget: float = 0.01
) -> Any:
    """Observe a Structured Streaming query that runs already, without changing it.

    Parameters
    ----------
    query : StreamingQuery, sequence of them, or loader
        A running query, as `df.writeStream.start()` returns it; `spark.streams.active`, if one query runs; or a loader
        of recordings, such as `loaders.SparkEventLog(path)` or `loaders.SparkRest(url)`.
    waiting : callable, optional
        Returns the records that wait in the source, for sources that report no lag. Local folders are counted.
    window_s : float
        Length of a window of the history.
    budget : float
        Share of the time that observation may take.

    Examples
    --------
    >>> job = attach(query)  # doctest: +SKIP
    >>> job.doctor()  # doctest: +SKIP
    >>> attach("query")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dspkit.spark.stock.observation.AttachError: got 'query'; expected a running StreamingQuery, or a loader of one; ...
    """
    if isinstance(query, (list, tuple)):
        if len(query) != 1:
            names = ", ".join(str(getattr(q, "name", None) or q.id) for q in query)
            fix = "choose one, as in attach(spark.streams.active[0])"
            raise AttachError(f"{len(query)} queries ({names[:200]})", expected="one", fix=fix)
        query = query[0]
    if hasattr(query, "recording"):
        return query.recording(window_s=window_s)
    if not (hasattr(query, "recentProgress") and hasattr(query, "isActive")):
        raise AttachError(
            f"{query!r:.100}",
            expected="a running StreamingQuery, or a loader of one",
            fix="for an address or a file: attach(loaders.SparkRest(url)), attach(loaders.SparkEventLog(path))",
        )
    return AttachedQuery(query, waiting=waiting, window_s=window_s, budget=budget)


def repartition(query: Any, partitions: int, *, copy: str | Path | None = None, spark: Any = None) -> Repartitioned:
    """Give the state of a query another number of partitions; the query is stopped, and not started again.

    Parameters
    ----------
    query : AttachedQuery, StreamingQuery, str or Path
        A running query, which is stopped between two batches, or the checkpoint of a stopped one.
    partitions : int
        State partitions.
    copy : str or Path, optional
        A new folder for a copy of the checkpoint, which is changed instead of the original; for local checkpoints.
    spark : SparkSession, optional
        The session; by default, the running one.

    Examples
    --------
    >>> repartition(query, 16, copy="state-16")  # doctest: +SKIP
    """
    partitions = whole(partitions, "partitions", 1)
    spark = spark or session.running_session()
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None:
        raise AttachError(
            "no Spark session that can repartition state" if spark is None else f"Spark {spark.version}",
            expected="a running session of classic PySpark 4.2 or newer",
            fix="start one; before Spark 4.2, start the query from a new checkpoint",
        )
    stop_s, checkpoint = 0.0, query
    if not isinstance(query, (str, Path)):
        job = query if isinstance(query, AttachedQuery) else attach(query)
        changer = job._knob("trigger")
        checkpoint = changer.checkpoint()
        state_partitions(spark, checkpoint, partitions)  # refused before the query is stopped
        provider = changer.settings((PROVIDER,)).get(PROVIDER, "")
        if "RocksDB" not in provider:
            raise AttachError(
                f"state in {provider.rpartition('.')[2] or 'a store that is not known'}",
                expected="RocksDBStateStoreProvider, the only one that Spark repartitions",
                fix=f"set {PROVIDER} for a new checkpoint; job.tasks(k) changes the tasks of this one",
            )
        stop_s = job.stop(clean=True)
    return repartitioned(spark, str(checkpoint), partitions, None if copy is None else Path(copy), stop_s)
