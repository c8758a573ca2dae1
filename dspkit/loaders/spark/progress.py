"""Spark's `StreamingQueryProgress`, one JSON line per micro-batch, as from `query.lastProgress` and listeners.

It describes the query as a whole, which becomes one operator: input rows over the working time of the batch
(`addBatch`; the whole batch except planning and commits). Spark does not report how many tasks shared the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...core import History, MetricError, Operator, Topology
from ...spark.stock.job import Recording
from ...spark.stock.observation import MicroBatch, batch_latency, batch_of
from ..common import windows
from ..common.base import LIMITS, Limits, LoaderError, Problems
from ..common.files import at, items, parse_json, read_lines, text
from ..common.units import Unusable, number
from ..common.user_hints import given_parallelism, given_path
from . import stages


class SparkProgress:
    """Loader for progress lines of Spark's streaming queries.

    Parameters
    ----------
    lines : str, Path or iterable
        A file, or the lines themselves, as text or as elements of `query.recentProgress`.
    query : str, optional
        The id of the query, if there are several.
    name : str
        The name of the one operator.
    parallelism : int
        The number of tasks that share the work of a batch.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> SparkProgress([], parallelism=4).problems
    no problems
    """

    def __init__(
        self,
        lines: str | Path | Iterable[Any],
        *,
        query: str | None = None,
        name: str = "query",
        parallelism: int = 1,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        self._k = given_parallelism(parallelism)[""] if isinstance(parallelism, int) else 0
        if not self._k:
            raise LoaderError(
                f"parallelism={parallelism!r}",
                expected="a whole number from 1 up",
                fix="pass the number of tasks, as in 4",
            )
        self._lines, self._query, self._name = lines, query, name
        self._strict, self._limits = strict, limits

    def history(self) -> History:
        """Read the lines and return one window per batch.

        Examples
        --------
        >>> progress = [
        ...     {"id": "1", "batchId": n, "timestamp": f"2026-01-01T00:00:{10 * n:02}.000Z", "numInputRows": 500,
        ...      "durationMs": {"addBatch": 4000, "triggerExecution": 5000}}
        ...     for n in range(3)
        ... ]
        >>> len(SparkProgress(progress, parallelism=4).history()) > 0
        True
        """
        self.problems = Problems(strict=self._strict)
        made = list(self._parsed(progress))
        runs = list(dict.fromkeys(p["query"] for p in made))
        if self._query is None and len(runs) > 1:
            raise LoaderError(
                f"{len(runs)} queries: {', '.join(runs)!s:.300}", expected="one", fix="choose it with query="
            )
        stateful = any(p["stateful"] for p in made)
        topology = Topology((Operator(self._name, max(64, self._k), stateful=stateful),))
        about = {"loader": "SparkProgress", "source": self._source}
        found = self._windows(p for p in made if self._query in (None, p["query"]))
        return windows.history_of_windows(topology, found, self.problems, self._limits, about, execution="micro-batch")

    def recording(self, *, window_s: float = 10.0) -> Recording:
        """Read the lines for `dspkit.spark.attach`, with phases and state.

        Parameters
        ----------
        window_s : float
            The length of a window.

        Examples
        --------
        >>> SparkProgress([], parallelism=4).recording().doctor().state
        'unknown'
        """
        self.problems = Problems(strict=self._strict)
        found = stages.of_one_query(self._parsed(batch_told), self._query, self.problems)
        return Recording(found, slots=self._k, window_s=window_s)

    @property
    def _source(self) -> str:
        return Path(self._lines).name if isinstance(self._lines, (str, Path)) else "lines"

    def _raw(self) -> Iterator[Any]:
        if isinstance(self._lines, (str, Path)):
            lines: Iterable[Any] = read_lines(given_path(self._lines), self._limits, self.problems)
        elif isinstance(self._lines, Iterable) and not isinstance(self._lines, Mapping):
            lines = self._lines
        else:
            raise LoaderError(f"{type(self._lines).__name__}", expected="a path or lines", fix="pass a list of them")
        for count, line in enumerate(lines, 1):
            self._limits.check("readings", count)
            yield line

    def _parsed(self, parse: Callable[[Any], Any]) -> Iterator[Any]:
        for count, line in enumerate(self._raw(), 1):
            try:
                yield parse(_read(line, self._limits))
            except Unusable as reason:
                self.problems.count(str(reason), f"line {count}")

    def _windows(self, made: Iterable[dict[str, Any]]) -> Iterator[windows.Window]:
        before: dict[str, Any] | None = None
        for p in made:
            where = f"batch {p['batch']}"
            if before is not None and p["batch"] <= before["batch"] and p["rows"] == 0:
                continue  # an idle query repeats the progress of its next batch
            start = p["began"]
            if before is not None and p["batch"] == before["batch"] + 1 and p["began"] >= before["began"]:
                start = min(before["began"] + before["lasted"], p["began"])  # idle time belongs to the window
            window = windows.Window(start, p["began"] + p["lasted"], where)
            w = window.end - window.start
            if w > 0:
                reading = {"processing_rate": p["rows"] / w, "busy": p["worked"] / w * self._k}
                if p["backlog"] is not None:
                    reading["backlog"] = p["backlog"]
                if p["wrote"] is not None:
                    reading["output_rate"] = p["wrote"] / w
                window.readings, window.parallelism = {self._name: reading}, {self._name: self._k}
                window.latency = batch_latency([p["lasted"]], [p["rows"]])
            yield window
            if before is None or window.end > before["began"] + before["lasted"]:
                before = p


def _read(line: Any, limits: Limits) -> Any:
    if isinstance(line, (bytes, str)):
        if len(line) > limits.line_bytes:
            raise Unusable("line too long")
        return parse_json(line)
    if isinstance(line, Mapping):
        return dict(line)
    told = getattr(line, "json", None)  # pyspark's StreamingQueryProgress
    if isinstance(told, str):
        return parse_json(told)
    raise Unusable("not JSON")


def progress(report: Any) -> dict[str, Any]:
    """Return rows, seconds and remaining records of one progress, or raise Unusable."""
    report = at(report, "progress") or report
    try:
        batch, rows = number(at(report, "batchId")), _rows(report)
        lasted = number(at(report, "durationMs", "triggerExecution")) / 1000
        worked = number(at(report, "durationMs", "addBatch") or 0) / 1000
    except Unusable as reason:
        raise Unusable(f"progress: {reason}") from None
    if worked > lasted:
        raise Unusable("progress: worked longer than the batch took")
    if rows and not worked:
        raise Unusable("progress: rows without any time")
    wrote = at(report, "sink", "numOutputRows")
    return {
        "query": str(at(report, "name") or at(report, "id") or "")[:1000],
        "batch": int(batch),
        "began": instant(at(report, "timestamp")),
        "rows": rows,
        "lasted": lasted,
        "worked": worked,
        "wrote": wrote if isinstance(wrote, (int, float)) and 0 <= wrote < math.inf else None,  # -1: not known
        "backlog": backlog(report),
        "stateful": bool(items(at(report, "stateOperators"))),
    }


def batch_told(report: Any) -> MicroBatch:
    """Return the batch that one progress describes, with its phases, or raise Unusable."""
    try:
        return batch_of(report)
    except MetricError as error:
        raise Unusable(f"progress: {error.got:.100}") from None


def _rows(told: Any) -> float:
    """Return the input rows: the sum over the sources, the only value in event logs."""
    if (whole := at(told, "numInputRows")) is not None:
        return number(whole)
    if not (sources := items(at(told, "sources"))):
        raise Unusable("missing")
    return sum(number(at(source, "numInputRows")) for source in sources)


def instant(value: Any) -> float:
    """Return seconds since 1970 of "2026-11-18T20:31:11.000Z", or with "GMT" as Spark's REST says it."""
    try:
        return datetime.fromisoformat(text(value, 40).replace("GMT", "+00:00").replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        raise Unusable("not a time") from None


def backlog(report: Any) -> float | None:
    """Return the records left in the sources' logs, if all of them report it, as Kafka's does."""
    left = 0.0
    sources = items(at(report, "sources"))
    for source in sources:
        end, latest = (_offsets(at(source, name)) for name in ("endOffset", "latestOffset"))
        if end is None or latest is None or end.keys() != latest.keys():
            return None
        left += sum(max(0.0, latest[key] - end[key]) for key in end)
    return left if sources else None


def _offsets(value: Any) -> dict[tuple[str, str], float] | None:
    """Return offsets by topic and partition."""
    try:
        value = parse_json(value) if isinstance(value, str) else value
        found = {(t, p): number(n) for t, of in value.items() for p, n in of.items()}
    except (Unusable, AttributeError):
        return None
    return found or None
