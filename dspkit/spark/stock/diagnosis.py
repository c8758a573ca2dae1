"""The diagnosis of a query: its state, the cause of it, and settings to paste, each with its evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ...core import ArgumentError
from ...core.html import html_table, templates
from .model import BatchTime, ValueInterval, fit_batch_time
from .observation import MicroBatch, whole_batches

STATES = ("idle", "keeps up", "behind", "unhealthy", "stuck", "ended", "unknown")
HEADROOM = 0.85  # of the time, or of the rate, that a query uses if it keeps up
IDLE = 0.3
_MOST_SLOTS = 512
_STUCK = 10.0  # times the median duration
_SURE = 0.9
_ROCKSDB = "rocksdb"


@dataclass(frozen=True)
class Query:
    """All that is known about a query when it is diagnosed.

    Parameters
    ----------
    batches : sequence of MicroBatch
        The batches observed, oldest first.
    slots : int
        Slots of the cluster; 0 if it is not known.
    trigger_s : float, optional
        The trigger's interval; 0 if the next batch begins at once, None if it is not known.
    now : float
        Seconds since 1970.
    lags : sequence of (float, float)
        Times, and records that waited.
    settings : mapping of str to str
        Spark's settings that are known.
    limit : tuple of (str, int), optional
        The read limit: "rows", "files" or "bytes", and its value.
    ended : str
        Why the query has ended; "" if it runs.
    running : tuple of (float, int, int)
        Seconds for which the present batch has run, its active tasks and failed ones.
    live : bool
        Whether the query runs here, so that it can be changed by `job.limit()` and the like.
    note : str
        What the recording lacks.
    repeats : bool
        Whether the sink is a function of the user's, which a repeated batch calls again.

    Examples
    --------
    >>> Query([], slots=4, trigger_s=0.0, now=0.0).live
    False
    """

    batches: Sequence[MicroBatch]
    slots: int
    trigger_s: float | None
    now: float
    lags: Sequence[tuple[float, float]] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    limit: tuple[str, int] | None = None
    ended: str = ""
    running: tuple[float, int, int] = (0.0, 0, 0)
    live: bool = False
    note: str = ""
    repeats: bool = False


@dataclass(frozen=True)
class Finding:
    """One sentence about a query, with its evidence and the settings that change it.

    Parameters
    ----------
    subject : str
        What it is about.
    text : str
        The sentence.
    evidence : mapping
        The numbers behind it.
    settings : tuple of str
        Lines to paste.

    Examples
    --------
    >>> Finding("slots", "3 slots keep up.", {"rate": 100.0}).subject
    'slots'
    """

    subject: str
    text: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """The state of a query, why, and what to change.

    Parameters
    ----------
    state : str
        One of `STATES`.
    why : str
        The evidence for the state, in one sentence.
    findings : tuple of Finding
        The most important one first.
    model : BatchTime
        The duration of its batches.
    figures : mapping
        Rates, busy share and medians.

    Examples
    --------
    >>> diagnose(Query([], slots=4, trigger_s=0.0, now=0.0)).state
    'unknown'
    """

    state: str
    why: str
    findings: tuple[Finding, ...]
    model: BatchTime
    figures: Mapping[str, float]

    @property
    def sentences(self) -> list[str]:
        """The state and all findings, as sentences."""
        return [f"{self.state}: {self.why}", *(f.text for f in self.findings)]

    @property
    def settings(self) -> list[str]:
        """All settings to paste."""
        return list(dict.fromkeys(line for f in self.findings for line in f.settings))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain values, for JSON."""
        model = {
            name: None if i is None else {"value": i.value, "low": i.low, "high": i.high}
            for name, i in (("a_s", self.model.a), ("b_s", self.model.b), ("c_s", self.model.c))
        }
        each = [
            {"subject": f.subject, "text": f.text, "evidence": dict(f.evidence), "settings": list(f.settings)}
            for f in self.findings
        ]
        return {
            "state": self.state,
            "why": self.why,
            "figures": dict(self.figures),
            "model": model | {"batches": self.model.batches, "note": self.model.note},
            "findings": each,
        }

    def to_json(self) -> str:
        """Return the diagnosis as JSON."""
        return json.dumps(self.to_dict(), indent=1, default=str)

    def __str__(self) -> str:
        lines = [*self.sentences, *([""] if self.settings else []), *self.settings]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import pandas as pd

        frame = pd.DataFrame(
            [{"subject": f.subject, "finding": f.text, "settings": "\n".join(f.settings)} for f in self.findings],
            columns=["subject", "finding", "settings"],
        )
        head = templates().from_string("<p><b>{{ state }}</b>: {{ why }}</p>").render(state=self.state, why=self.why)
        return head + (html_table(frame, "Findings", left=True) if len(frame) else "")


def diagnose(query: Query) -> Diagnosis:
    """Return the diagnosis of a query.

    Examples
    --------
    >>> batches = [MicroBatch("q", i, 10.0 * i, 10.0 * i + 1.0, rows=100.0) for i in range(12)]
    >>> diagnose(Query(batches, slots=4, trigger_s=10.0, now=120.0)).state
    'idle'
    """
    whole = whole_batches(query.batches)
    model = fit_batch_time(whole, max(1, query.slots))
    figures = _figures(query, whole)
    state, why = _state(query, whole, model, figures)
    findings = [f for rule in _RULES for f in rule(query, whole, model, {**figures, "state": state})]
    return Diagnosis(state, why, tuple(findings), model, figures)


def _figures(query: Query, batches: Sequence[MicroBatch]) -> dict[str, float]:
    """Return rates and shares over the time observed."""
    if not batches:
        return {}
    end = max(batches[-1].ended, query.now if query.live else 0.0)
    wall = max(1e-3, end - batches[0].began)
    rows = sum(b.rows or 0 for b in batches)
    figures = {
        "batches": float(len(batches)),
        "wall_s": wall,
        "rate": rows / wall,
        "busy": min(1.0, sum(b.lasted for b in batches) / wall),
        "median_rows": median(b.rows or 0 for b in batches),
        "median_s": median(b.lasted for b in batches),
    }
    if len(query.lags) > 1 and query.lags[-1][0] > query.lags[0][0]:
        figures |= {"lag": query.lags[-1][1], "lag_per_s": slope(query.lags)}
        figures["offered"] = max(0.0, figures["rate"] + figures["lag_per_s"])
    elif query.lags:
        figures["lag"] = query.lags[-1][1]
    return figures


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope between points of the first half and those of the second, which outliers do not move.

    Examples
    --------
    >>> slope([(0.0, 0.0), (1.0, 2.0), (2.0, 4.0), (3.0, 400.0), (4.0, 8.0), (5.0, 10.0)])
    2.0
    """
    half = len(points) // 2
    pairs = zip(points[:half], points[len(points) - half :], strict=True)
    each = [(y1 - y0) / (t1 - t0) for (t0, y0), (t1, y1) in pairs if t1 > t0]
    return median(each) if each else 0.0


def _state(
    query: Query, batches: Sequence[MicroBatch], model: BatchTime, figures: Mapping[str, float]
) -> tuple[str, str]:
    """Return one of STATES, and the reason."""
    if query.ended:
        return "ended", query.ended
    ran, active, failed = query.running
    if batches and query.live and ran > max(10.0, _STUCK * figures["median_s"]):
        more = f", {failed} tasks have failed in it" if failed else ""
        return "stuck", (
            f"the present batch has run for {ran:.0f} s with {active} active tasks, where batches take "
            f"{figures['median_s']:.2g} s{more}."
        )
    if not batches:
        return "unknown", "no batch with records was seen."
    if len(batches) < 3:
        return "unknown", f"{len(batches)} batches were seen; at least 3 are needed to tell."
    busy, interval = figures["busy"], query.trigger_s or 0.0
    rate, took = figures["rate"], figures["median_s"]
    growing = _grows(query, figures)
    saturated = _saturated(query, batches, figures)
    late = interval > 0 and took > interval
    if growing or late or saturated:
        reason = growing or (f"batches take {took:.3g} s where the trigger is {interval:g} s" if late else saturated)
        fixed = _fixed_share(model, interval)
        if fixed is not None and fixed > 0.7:
            return "unhealthy", (
                f"{reason}, and {fixed:.0%} of a batch is spent whatever the slots: more executors do not help."
            )
        return "behind", f"{reason}."
    said = f"{rate:,.4g} records/s in batches of {took:.3g} s; the loop is busy for {busy:.0%} of the time"
    if busy < IDLE:
        return "idle", f"{said}."
    if interval == 0 and busy > 0.95:
        known = "its lag does not grow" if "lag" in figures else "its lag is not known, so that it may be behind"
        return "keeps up", f"{said}, as it must be without an interval, and {known}."
    return "keeps up", f"{said}."


def _grows(query: Query, figures: Mapping[str, float]) -> str:
    """Return the sentence on a lag that grows by more than noise, or ""."""
    if "lag_per_s" not in figures or len(query.lags) < 4:
        return ""
    per_s, rate, lag = figures["lag_per_s"], figures["rate"], figures["lag"]
    if per_s > 0.03 * max(rate, 1e-9) and lag > figures["median_rows"]:
        return f"{rate + per_s:,.4g} records/s arrive, {rate:,.4g} are done, and {lag:,.0f} wait"
    return ""


def _saturated(query: Query, batches: Sequence[MicroBatch], figures: Mapping[str, float]) -> str:
    """Return the sentence on a loop without rest whose batches grow, where the lag is not known; or ""."""
    if figures["busy"] < 0.95 or "lag" in figures or len(batches) < 8:
        return ""
    sizes = [(b.began, float(b.rows or 0)) for b in batches]
    half = len(sizes) // 2
    before, after = median(n for _, n in sizes[:half]), median(n for _, n in sizes[half:])
    pairs = [(x < y) - (x > y) for i, (_, x) in enumerate(sizes) for _, y in sizes[i + 1 :]]
    tau = sum(pairs) / len(pairs)
    # Kendall's tau of n independent sizes has the variance 2 (2n + 5) / (9 n (n - 1))
    n = len(sizes)
    limit = 2.6 * math.sqrt(2 * (2 * n + 5) / (9 * n * (n - 1)))
    if tau > limit and after > 1.2 * before:
        return f"the loop never rests and its batches grow, from {before:,.0f} to {after:,.0f} records"
    return ""


def _fixed_share(model: BatchTime, trigger_s: float) -> float | None:
    """Return the share of a batch (of its interval, if there is one) that more slots do not shorten."""
    if not model.known or model.a is None:
        return None
    return model.a.value / (trigger_s or max(1e-9, model.median_s))


# ---- findings ------------------------------------------------------------------------------------------------------

Batches = Sequence[MicroBatch]
Figures = Mapping[str, Any]
Rule = Callable[[Query, Batches, BatchTime, Figures], Iterator[Finding]]


def _model(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if not batches:
        return
    if not model.known or model.a is None or model.b is None:
        probe = " job.probe() varies the size on purpose." if query.live else ""
        yield Finding("model", f"The duration of other batches cannot be predicted: {model.note}.{probe}")
        return
    a, b = model.a, model.b
    terms = f"T(n, k) = {a} s + {_ms(b)} ms n/k" + (f" + {_ms(model.c)} ms per task" if model.c else "")
    text = f"{terms}, from {model.batches} batches on {model.slots} slots" + (f"; {model.note}." if model.note else ".")
    share = a.value / max(1e-9, model.median_s)
    if b.low <= 0 and share > 0.5:
        text += f" b cannot be told from 0: the fixed part is about {min(1.0, share):.0%} of a batch, so more slots"
        text += " cannot help."
    elif model.c is None:
        text += " What a task costs cannot be told from batches in one number of tasks."
    yield Finding("model", text, {"a_s": a.value, "b_s": b.value, "fixed": share})


def _note(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if query.note:
        yield Finding("recording", query.note)


def _ms(interval: ValueInterval) -> str:
    return str(ValueInterval(1e3 * interval.value, 1e3 * interval.low, 1e3 * interval.high))


def slots_needed(model: BatchTime, rate: float, trigger_s: float, limit: float = math.inf) -> tuple[int | None, float]:
    """Return the fewest slots that keep up with `rate`, and the share of redrawn recordings in which they do.

    With an interval, a batch of all that arrives in it must end within 85 % of it. Without one, the largest batch that
    the read limit allows must be done at `rate` over 85 %; without a limit, that is a batch as long as ten fixed parts.

    Parameters
    ----------
    model : BatchTime
        The duration of batches.
    rate : float
        Records/s that arrive.
    trigger_s : float
        The trigger's interval, or 0.
    limit : float
        Records of a batch at most.
    """
    for k in range(1, _MOST_SLOTS + 1):
        share = share_that_keeps_up(model, rate, trigger_s, limit, k)
        if share >= _SURE:
            return k, share
        if model.slots_used(k) == model.slots_used(_MOST_SLOTS):
            break
    return None, 0.0


def share_that_keeps_up(
    model: BatchTime,
    rate: float,
    trigger_s: float,
    limit: float,
    slots: float,
    tasks: Sequence[int] | None = None,
) -> float:
    """Return the share of redrawn fits in which so many slots keep up with `rate`; see `slots_needed`."""
    if trigger_s > 0:
        n = rate * trigger_s
        ok = model.drawn(n, slots, tasks) <= HEADROOM * trigger_s
        return float(ok.mean()) if n <= limit else 0.0
    a = max(1e-3, float(model.drawn(0, slots, tasks)[0]))
    n = min(limit, 10 * a * max(rate, 1.0))
    return float((n / model.drawn(n, slots, tasks) >= rate / HEADROOM).mean())


def _slots(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if not model.known or not query.slots or figures["state"] in ("ended", "stuck"):
        return
    rate, interval = figures.get("offered", figures["rate"]), query.trigger_s or 0.0
    limit = limit_rows(query, batches)
    k, share = slots_needed(model, rate, interval, limit)
    if k is None:
        yield Finding("slots", _no_slots(model, rate, interval, limit), {"offered": rate})
        return
    fewer = share_that_keeps_up(model, rate, interval, limit, k - 1) if k > 1 else 0.0
    less = f" ({k - 1} do in {fewer:.0%} of redrawn recordings)" if k > 1 else ""
    have = f"; the cluster has {query.slots}" if k != query.slots else ", which it has"
    text = f"{k} slots keep up with {rate:,.4g} records/s in {share:.0%} of redrawn recordings{less}{have}."
    lines: tuple[str, ...] = ()
    if k != query.slots:
        cores = int(query.settings.get("spark.executor.cores", "1") or 1)
        lines = (f"spark.executor.instances  {math.ceil(k / cores)}",)
        master = query.settings.get("master", "local")
        if query.live and master != "local" and not master.startswith("local["):
            lines += (f"job.executors({math.ceil(k / cores)})",)
    yield Finding("slots", text, {"offered": rate, "slots": k, "share": share}, lines)


def _no_slots(model: BatchTime, rate: float, trigger_s: float, limit: float) -> str:
    """Return why slots alone do not keep up, and what would."""
    most = max((k for _, k in model.work), default=0)
    head = f"No number of slots alone keeps up with {rate:,.4g} records/s"
    for k in (2 * most, 4 * most, 8 * most):
        wide = [k] * len(model.work)
        if most and share_that_keeps_up(model, rate, trigger_s, limit, k, wide) >= _SURE:
            return f"{head}, because its stages have at most {most} tasks: {k} slots with {k} tasks per stage do."
    if math.isfinite(limit) and share_that_keeps_up(model, rate, trigger_s, 16 * limit, _MOST_SLOTS) >= _SURE:
        return f"{head} in batches of {limit:,.0f} records: larger batches divide the fixed part among more records."
    ways = "a longer trigger" if trigger_s else "a smaller fixed part of the batches"
    return f"{head}: {ways}, fewer state stores, or cheaper operators."


def limit_rows(query: Query, batches: Sequence[MicroBatch]) -> float:
    """Return the most records that the read limit lets into a batch; infinity without one."""
    if query.limit is None:
        return math.inf
    kind, value = query.limit
    return float(value) if kind == "rows" else max((b.rows or 0.0 for b in batches[-5:]), default=math.inf)


def _read_limit(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    kind = limit_kind([name for name, _ in batches[-1].sources]) if batches else None
    if kind is None or not model.known or not query.slots:
        return
    option, unit = {"rows": ("maxOffsetsPerTrigger", "records"), "files": ("maxFilesPerTrigger", "files")}[kind]
    target = HEADROOM * query.trigger_s if query.trigger_s else max(1.0, 4 * float(model.drawn(0, query.slots)[0]))
    rows = rows_within(model, target, query.slots)
    if rows is None or rows < 1:
        return
    each = _rows_per_file(query, batches) if kind == "files" else 1.0
    value = None if each is None else max(1, int(rows / each))
    largest = max(b.rows or 0 for b in batches)
    if query.limit is not None and query.limit[0] == kind and value and 0.5 < value / query.limit[1] < 2:
        return
    if query.limit is None and largest < 2 * figures["median_rows"] and figures.get("lag", 0.0) < rows:
        reason = "without a limit, the first batch after a stop reads all that waits"
    elif query.limit is None:
        reason = f"without a limit, a batch of {largest:,.0f} records was read"
    else:
        reason = f"the present limit is {query.limit[1]:,} {query.limit[0]}"
    lines = [f'.option("{option}", {value})'] if value else []
    lines += [f"job.limit({kind}={value})"] if value and query.live else []
    shown = f"{value:,} {unit}" if value else f"{rows:,.0f} records"
    shown = shown.removesuffix("s") if value == 1 else shown
    text = f"A batch of {shown} lasts {target:.3g} s on {query.slots} slots; {reason}."
    yield Finding("read limit", text, {"rows": rows, "target_s": target}, tuple(lines))


def rows_within(model: BatchTime, seconds: float, slots: float) -> float | None:
    """Return the records that a batch of so many seconds has; None if that is not known."""
    if not model.known or model.b is None or model.b.value <= 0:
        return None
    fixed = float(model.drawn(0, slots)[0])
    return max(0.0, (seconds - fixed) * model.slots_used(slots) / model.b.value)


def limit_kind(sources: Sequence[str]) -> str | None:
    """Return the kind of limit that the sources accept: "rows" (Kafka), "files", or None.

    Examples
    --------
    >>> limit_kind(["KafkaV2[Subscribe[words]]"]), limit_kind(["RateStreamV2[rowsPerSecond=1]"])
    ('rows', None)
    """
    if sources and all("kafka" in name.lower() for name in sources):
        return "rows"
    return "files" if sources and all(name.startswith("FileStreamSource") for name in sources) else None


def _rows_per_file(query: Query, batches: Sequence[MicroBatch]) -> float | None:
    if query.limit is None or query.limit[0] != "files":
        return None
    return max(b.rows or 0 for b in batches[-5:]) / query.limit[1]


def _trigger(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if not model.known or model.a is None or query.trigger_s is None:
        return
    share = model.a.value / max(1e-9, figures["median_s"])
    if query.trigger_s > 0 and figures["median_s"] > query.trigger_s:
        longer = 2.0 ** math.ceil(math.log2(figures["median_s"] / HEADROOM))
        text = f"A trigger of {query.trigger_s:g} s has no effect, because batches take {figures['median_s']:.3g} s."
        yield Finding("trigger", text, {"median_s": figures["median_s"]}, _trigger_lines(query, longer))
    elif query.trigger_s == 0 and share > 0.5 and figures["busy"] > 0.5 and figures["state"] == "keeps up":
        longer = max(1.0, round(4 * figures["median_s"]))
        text = (
            f"Batches follow each other at once, and {min(1.0, share):.0%} of each is its fixed part: a trigger of "
            f"{longer:g} s does the same work in a quarter of the batches, for up to {longer:g} s more latency."
        )
        yield Finding("trigger", text, {"fixed": share}, _trigger_lines(query, longer))


def _trigger_lines(query: Query, seconds: float) -> tuple[str, ...]:
    lines = (f'.trigger(processingTime="{seconds:g} seconds")',)
    return lines + ((f'job.trigger("{seconds:g} seconds")',) if query.live and query.trigger_s else ())


def _state_partitions(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    recent = [b for b in batches[-20:] if b.stores]
    if not recent or not query.slots:
        return
    stores = max(b.stores for b in recent)
    commit = median(sum(s.commit_s for s in b.state) for b in recent)
    wall = commit / min(query.slots, stores)
    enough = 4 * query.slots * len(recent[-1].state)
    if stores > enough and wall > 0.1 * figures["median_s"]:
        saved = wall * (1 - enough / stores)
        n = 4 * query.slots
        text = (
            f"{stores} state stores on {query.slots} slots: their commits take {wall:.3g} s of a batch of "
            f"{figures['median_s']:.3g} s; with {n} partitions up to {saved:.2g} s less."
        )
        lines = (f"spark.sql.shuffle.partitions  {n}  # a new query, or after repartition(checkpoint, {n}), Spark 4.2",)
        yield Finding("state partitions", text, {"stores": stores, "commit_s": commit, "wall_s": wall}, lines)
    snapshots = median(
        sum(
            s.custom.get("rocksdbSaveZipFilesLatencyMs", 0.0) + s.custom.get("rocksdbCommitFileSyncLatencyMs", 0.0)
            for s in b.state
        )
        / 1e3
        for b in recent
    )
    changelog = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    rocksdb = any(k.startswith(_ROCKSDB) for s in recent[-1].state for k in s.custom)
    if rocksdb and query.settings.get(changelog, "false") != "true" and snapshots > 0.1 * figures["median_s"]:
        text = (
            f"RocksDB writes whole snapshots with each batch: {snapshots:.3g} s of task time. Changelog checkpoints "
            "write what has changed."
        )
        yield Finding("changelog checkpoints", text, {"snapshot_s": snapshots}, (f"{changelog}  true",))
    rows = [(b.began, sum(s.rows for s in b.state)) for b in batches if b.state]
    if not rocksdb and rows[-1][1] > 1e6:
        provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        text = f"{rows[-1][1]:,.0f} rows of state are kept in the memory of executors: RocksDB keeps them on disk."
        line = f"spark.sql.streaming.stateStore.providerClass  {provider}"
        yield Finding("state store", text, {"rows": rows[-1][1]}, (line,))
    never_less = all(y >= x for (_, x), (_, y) in zip(rows, rows[1:], strict=False))
    if len(rows) >= FEW_GROWING and rows[0][1] > 0 and never_less:
        added = slope(rows)
        if added * 86400 > 10 * rows[-1][1]:
            text = (
                f"The state only grows: {rows[-1][1]:,.0f} rows, {added:,.3g} more per second. Without a watermark "
                "that removes old ones it has no bound."
            )
            yield Finding("state size", text, {"rows": rows[-1][1], "per_s": added})
    if dropped := sum(s.dropped for b in batches for s in b.state):
        total = sum(b.rows or 0 for b in batches)
        share = dropped / max(1.0, total)
        text = f"{dropped:,.0f} rows came after the watermark and were dropped, {share:.1%} of the input."
        yield Finding("late rows", text, {"dropped": dropped})


FEW_GROWING = 20  # batches over which a state that never shrinks is remarkable


def _phases(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if len(batches) < 3:
        return
    took = figures["median_s"]
    phase = {name: median(b.phases.get(name, 0.0) for b in batches) for name in batches[-1].phases}
    logs = phase.get("walCommit", 0.0) + phase.get("commitOffsets", 0.0)
    if logs > 0.2 * took:
        key = "spark.sql.streaming.checkpointFileManagerClass"
        text = (
            f"Writing the logs of offsets and commits takes {logs:.3g} s of {took:.3g} s. On a local disk Hadoop "
            "starts a chmod for each file; on object stores, use the file manager made for them, or a longer trigger."
        )
        yield Finding("checkpoint files", text, {"logs_s": logs, "share": logs / took}, (f"# see {key}",))
    planning = phase.get("queryPlanning", 0.0)
    if planning > 0.3 * took:
        text = f"Planning takes {planning:.3g} s of {took:.3g} s, whatever the size: make batches larger."
        yield Finding("planning", text, {"planning_s": planning})
    listing = phase.get("latestOffset", 0.0)
    if listing > 0.3 * took:
        text = f"Asking the sources for new records takes {listing:.3g} s of {took:.3g} s: fewer files help."
        yield Finding("sources", text, {"latestOffset_s": listing})


def _skew(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    known = [b for b in batches if any(r.longest_s is not None for r in b.stages)][-10:]
    worst: dict[str, list[tuple[float, float, float]]] = {}
    for batch in known:
        for i, run in enumerate(batch.stages):
            if run.longest_s is not None and run.median_s is not None and run.tasks > 1:
                told = run.longest_s / max(1e-3, run.median_s), run.longest_s, batch.lasted
                worst.setdefault(run.operator or f"stage {i}", []).append(told)
    for name, each in worst.items():
        ratio, longest, lasted = (median(column) for column in zip(*each, strict=True))
        if ratio > 3 and longest > 0.2 * lasted and longest > 0.05:
            text = (
                f"The longest task of {name} takes {longest:.3g} s, {ratio:.1f} times the median, in batches of "
                f"{lasted:.3g} s: more slots do not shorten it. Spread its keys, or add a salt to the largest."
            )
            yield Finding("skew", text, {"longest_s": longest, "ratio": ratio})
    failed = sum(r.failed for b in batches for r in b.stages)
    if failed:
        text = f"{failed} tasks failed and ran again; the log of the executors says why."
        yield Finding("failed tasks", text, {"failed": failed})
    spilled = median([sum(r.spilled for r in b.stages) for b in known] or [0.0])
    if spilled > 0:
        text = f"{spilled / 1e6:,.0f} MB per batch are spilled to disk: more memory per slot, or smaller batches."
        yield Finding("spill", text, {"bytes": spilled})


def _cluster(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if query.settings.get("spark.dynamicAllocation.enabled") == "true":
        text = (
            "Dynamic allocation is on. It removes executors that are idle between batches and adds some in each "
            "backlog of tasks; a query with a steady load is better off with a fixed number."
        )
        yield Finding("dynamic allocation", text, {}, ("spark.dynamicAllocation.enabled  false",))
    stateful = any(b.state for b in batches)
    known = [b for b in batches if b.stages]
    narrow = min((s.tasks for b in known[-5:] for s in b.stages[1:] or b.stages), default=0)
    adaptive = query.settings.get("spark.sql.adaptive.enabled") == "true"
    if adaptive and not stateful and known and len(known[-1].stages) > 1 and narrow == 1 and query.slots > 1:
        text = (
            "Adaptive execution merged a shuffle into a single task, and runs each shuffle as a job of its own. For "
            "small batches whose work is per record it leaves slots idle."
        )
        yield Finding("adaptive execution", text, {"tasks": narrow}, ("spark.sql.adaptive.enabled  false",))
    if known and query.slots > 1:
        heavy = max(((share, k) for share, k in model.work), default=(0.0, 0))
        if heavy[0] > 0.6 and heavy[1] < query.slots:
            text = (
                f"The stage that does {heavy[0]:.0%} of the work has {heavy[1]} tasks, so that "
                f"{query.slots - heavy[1]} of {query.slots} slots do not take part in it."
            )
            more = (f'.repartition({query.slots})  # or, for Kafka, .option("minPartitions", {query.slots})',)
            yield Finding("tasks", text, {"share": heavy[0], "tasks": heavy[1]}, more)


def _sink(query: Query, batches: Batches, model: BatchTime, figures: Figures) -> Iterator[Finding]:
    if query.repeats:
        text = (
            "The sink is foreachBatch: after a failure, or a stop within a batch, Spark calls it with the same batch "
            "again. It must drop batch numbers that it has written, or each of those batches is written twice."
        )
        stop = ("job.stop(clean=True)  # between two batches: nothing is repeated",) if query.live else ()
        yield Finding("sink", text, {}, stop)


_RULES: tuple[Rule, ...] = (
    _note,
    _slots,
    _model,
    _read_limit,
    _trigger,
    _state_partitions,
    _skew,
    _phases,
    _cluster,
    _sink,
)


@dataclass(frozen=True)
class WhatIf:
    """The predicted behaviour of a query with other settings.

    Parameters
    ----------
    slots : int
        Slots of the cluster.
    rows : float
        Records of a batch at the present rate.
    seconds : ValueInterval
        Duration of such a batch.
    sustained : ValueInterval
        Records/s that the query can do at most.
    offered : float
        Records/s that arrive.
    lag : tuple of (float, float)
        Seconds from now, and records that wait.
    cost_per_hour : float, optional
        Price of the slots.
    note : str
        What the prediction assumes.

    Examples
    --------
    >>> WhatIf(4, 100.0, ValueInterval(1.0, 0.9, 1.1), ValueInterval(400.0, 350.0, 420.0), 100.0, ()).keeps_up
    True
    """

    slots: int
    rows: float
    seconds: ValueInterval
    sustained: ValueInterval
    offered: float
    lag: tuple[tuple[float, float], ...]
    cost_per_hour: float | None = None
    note: str = ""

    @property
    def keeps_up(self) -> bool:
        """True if the low end of the sustained rate is above the offered one."""
        return self.sustained.low >= self.offered

    def __str__(self) -> str:
        words = (
            f"{self.slots} slots: batches of {self.rows:,.0f} records take {self.seconds} s; at most {self.sustained} "
            f"records/s, where {self.offered:,.4g} arrive"
        )
        money = "" if self.cost_per_hour is None else f"; {self.cost_per_hour:,.4g} per hour"
        return words + money + ("" if not self.note else f". {self.note}")


def what_if(
    query: Query,
    *,
    slots: int | None = None,
    max_per_batch: float | None = None,
    trigger_s: float | None = None,
    available_now_s: float | None = None,
    rate: float | None = None,
    price_per_slot_hour: float | None = None,
    horizon_s: float = 600.0,
) -> WhatIf:
    """Predict the batches of a query with other settings; `Observed.what_if` explains them.

    Examples
    --------
    >>> batches = [MicroBatch("q", i, 10.0 * i, 10.0 * i + 0.1 + 0.001 * n / 4, rows=n)
    ...            for i, n in enumerate([400, 800, 1600, 3200] * 4)]
    >>> told = what_if(Query(batches, slots=4, trigger_s=10.0, now=160.0), slots=8, rate=1000)
    >>> round(told.seconds.value, 2), told.keeps_up
    (1.35, True)
    """
    import numpy as np

    whole = whole_batches(query.batches)
    model = fit_batch_time(whole, max(1, query.slots))
    if not model.known:
        raise ArgumentError(
            f"a query whose batches tell no more: {model.note}",
            expected="batches of several sizes, or the sums of their stages",
            fix="wait for more batches, or run job.probe()",
        )
    figures = _figures(query, whole)
    k = query.slots if slots is None else slots
    interval = (query.trigger_s or 0.0) if trigger_s is None else trigger_s
    limit = limit_rows(query, whole) if max_per_batch is None else float(max_per_batch)
    offered = figures.get("offered", figures["rate"]) if rate is None else float(rate)
    if available_now_s is not None:
        lag = figures.get("lag", 0.0)
        return _runs(model, k, available_now_s, limit, offered, lag, price_per_slot_hour, horizon_s)
    fixed = float(model.drawn(0, k)[0])
    biggest = limit if math.isfinite(limit) else offered * max(interval, 1.0, 20 * fixed)
    each = np.maximum(model.drawn(biggest, k), interval)
    low, high = np.quantile(biggest / each, [0.05, 0.95])
    sustained = ValueInterval(float(biggest / each[0]), float(low), float(high))
    lag = figures.get("lag", 0.0)
    series, t, rows, lasts = [(0.0, lag)], 0.0, 0.0, interval
    waiting = max(lag, offered * max(interval, 0.1))
    while t < horizon_s and len(series) < 10_000:
        rows = min(limit, waiting)
        lasts = max(float(model.drawn(rows, k)[0]), interval, 0.01)
        t, waiting = t + lasts, waiting - rows + offered * lasts
        series.append((t, waiting))
    b = 0.0 if model.b is None else model.b.value / model.slots_used(k)
    steady = offered * (interval or fixed / (1 - offered * b)) if interval or offered * b < 1 else biggest
    steady = min(limit, steady)
    cost = None if price_per_slot_hour is None else k * price_per_slot_hour
    beyond = model.slots_used(k) < 0.99 * k
    note = f"The stages have too few tasks to use all slots: {model.slots_used(k):.1f} of {k} work." if beyond else ""
    return WhatIf(k, steady, model.seconds(steady, k), sustained, offered, tuple(series), cost, note)


def _runs(
    model: BatchTime,
    slots: int,
    every_s: float,
    limit: float,
    offered: float,
    lag: float,
    price: float | None,
    horizon_s: float,
) -> WhatIf:
    """Predict a job that is started every so many seconds, does all that waits then, and ends."""
    import numpy as np

    if not every_s > 0:
        raise ArgumentError(f"available_now={every_s:g}", expected="a time between runs", fix='as in "1 hour"')

    def run_s(rows: float) -> Any:
        whole, rest = divmod(rows, limit) if math.isfinite(limit) else (0.0, rows)
        full = whole * model.drawn(limit, slots) if whole else 0.0
        return full + (model.drawn(rest, slots) if rest or not whole else 0.0)

    rows = offered * every_s
    each = run_s(rows)
    spread = (each[:, None] * model.residuals[None, :]).ravel()
    took = ValueInterval(float(each[0]), *(float(x) for x in np.quantile(spread, [0.05, 0.95])))
    if math.isfinite(limit):
        rates = limit / model.drawn(limit, slots)
    else:  # the largest batch that ends before the next run
        fixed = model.drawn(0, slots)
        slope = (model.drawn(1e6, slots) - fixed) / 1e6
        rates = (every_s - fixed).clip(0) / slope.clip(1e-12) / every_s
    low, high = np.quantile(rates, [0.05, 0.95])
    series, t, waiting = [(0.0, lag)], 0.0, lag
    while t < max(horizon_s, every_s) and len(series) < 10_000:
        lasts = float(run_s(waiting)[0]) if waiting else 0.0
        after = offered * lasts
        rest = max(0.0, every_s - lasts)
        series += [(t + lasts, after), (t + lasts + rest, after + offered * rest)]
        t, waiting = t + lasts + rest, after + offered * rest
    share = min(1.0, took.value / every_s)
    cost = None if price is None else slots * price * share
    note = f"Runs every {every_s:g} s that take {share:.1%} of the time; the start of Spark is not included."
    sustained = ValueInterval(float(rates[0]), float(low), float(high))
    return WhatIf(slots, rows, took, sustained, offered, tuple(series), cost, note)
