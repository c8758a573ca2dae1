"""Flink's REST API: the job graph and the metrics of its vertices.

One poll returns the values of Flink's own gauges: records per second (mean of a minute), busy, back-pressured and idle
milliseconds per second (of the last seconds), summed over the subtasks. Between two polls the counters are differenced
instead, where Flink has them (`numRecordsIn`, `accumulateBusyTimeMs`; 1.17 and later).

A legacy source (`SourceFunction`) reports no busy time; its rate is known, its own metrics are not.

Recorded answers are a folder whose files are named by their addresses, such as `jobs/<id>.json` and
`jobs/<id>/vertices/<vertex>/subtasks/metrics.json`; several polls are several such folders.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import DspkitError, History, Operator, Topology
from .common import windows
from .common.base import LIMITS, Limits, LoaderError, Problems
from .common.files import at, in_order, items, read_json, text
from .common.http import Server, is_url
from .common.units import Unusable, number, whole
from .common.user_hints import given_names, given_path

_ID = re.compile(r"[0-9a-zA-Z_-]{1,64}")
_MINUTE_S = 60.0  # the period that Flink's meters cover
_SOURCE = re.compile(r"Source__.{0,500}\.(numRecordsIn|numRecordsInPerSecond|pendingRecords)")
_RATES = {"numRecordsIn": "processing_rate", "numRecordsOut": "output_rate"}
_TIMES = {"BusyTimeMs": "busy", "BackPressuredTimeMs": "held"}
_GAUGES = {"busyTimeMsPerSecond": "busy", "backPressuredTimeMsPerSecond": "held"}
_WANTED = (
    *_RATES,
    "numRecordsInPerSecond",
    "numRecordsOutPerSecond",
    *_GAUGES,
    "idleTimeMsPerSecond",
    *(f"accumulate{name}" for name in _TIMES),
    "pendingRecords",
)


@dataclass
class Poll:
    """The answer of Flink at one moment: the instances of each vertex and the sums of its metrics."""

    t: float
    names: dict[str, str]  # by vertex id
    edges: list[tuple[str, str]]
    parallelism: dict[str, int]
    max_parallelism: dict[str, int]
    sums: dict[str, dict[str, float]]


class FlinkRest:
    """Loader for Flink's REST API, or for a folder of its recorded answers.

    The interval between two polls is a window; a single poll yields the last minute.

    Parameters
    ----------
    url : str or Path
        The address, as in "http://localhost:8081", or the folder.
    job : str, optional
        The id of the job, if there are several.
    polls : int
        The number of polls.
    every_s : float
        Seconds between two polls.
    rename : mapping of str to str, optional
        Names of operators by vertex id or by Flink's name.
    headers : mapping of str to str, optional
        HTTP headers, for authentication.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> FlinkRest("http://localhost:8081", polls=6).problems
    no problems
    """

    def __init__(
        self,
        url: str | Path,
        *,
        job: str | None = None,
        polls: int = 1,
        every_s: float = 10.0,
        rename: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        if not (
            isinstance(polls, int) and isinstance(every_s, (int, float)) and 1 <= polls <= 100_000 and 0 < every_s < 1e6
        ):
            raise LoaderError(
                f"polls={polls!r}, every_s={every_s!r}", expected="1 or more, seconds", fix="as in polls=10, every_s=5"
            )
        self._url, self._job, self._polls, self._every_s = url, job, polls, every_s
        self._rename, self._headers = given_names("rename", rename), given_names("headers", headers)
        self._strict, self._limits = strict, limits

    def history(self) -> History:
        """Poll Flink and return the windows."""
        self.problems = Problems(strict=self._strict)
        polls = list(self._answers())
        first = polls[0]
        called = self._called(first)
        try:
            operators = tuple(
                Operator(called[v], max(k, first.max_parallelism[v])) for v, k in first.parallelism.items()
            )
            topology = Topology(operators, tuple((called[u], called[v]) for u, v in first.edges))
        except DspkitError as error:
            raise LoaderError(f"a job graph: {error.got}", expected=error.expected, fix="see the answer") from error
        about = {"loader": "FlinkRest", "source": str(self._url), "vertices": {called[v]: v for v in called}}
        found = self._windows(polls, called)
        return windows.history_of_windows(topology, found, self.problems, self._limits, about)

    def _answers(self) -> Iterator[Poll]:
        if is_url(self._url):
            for i in range(self._polls):
                if i:
                    time.sleep(self._every_s)
                yield self._poll(Server(str(self._url), self._limits, self._headers).json)  # a deadline each
            return
        folder = given_path(self._url)
        folders = (
            [folder] if (folder / "jobs").is_dir() else in_order(p for p in folder.glob("*") if (p / "jobs").is_dir())
        )
        if not folders:
            raise LoaderError(f"{folder}, without a folder jobs", expected="recorded answers", fix="see FlinkRest")
        self._limits.check("names", len(folders))
        for each in folders:
            yield self._poll(lambda path, _, each=each: read_json(each / f"{path[1:]}.json", self._limits))

    def _poll(self, ask: Any) -> Poll:
        """Poll all metrics once."""
        job = self._job
        if job is None:
            jobs = [j for j in items(at(ask("/jobs/overview", None), "jobs")) if at(j, "state") == "RUNNING"]
            if len(jobs) != 1:
                told = ", ".join(f"{at(j, 'jid')} ({at(j, 'name')})" for j in jobs)
                raise LoaderError(f"{len(jobs)} running jobs: {told:.300}", expected="one", fix="choose it with job=")
            job = at(jobs[0], "jid")
        graph = ask(f"/jobs/{_id(job)}", None)
        poll = Poll(0.0, {}, [], {}, {}, {})
        try:
            poll.t = number(at(graph, "now")) / 1e3
            for vertex in items(at(graph, "vertices")):
                v = _id(at(vertex, "id"))
                poll.names[v], poll.parallelism[v] = text(at(vertex, "name"), 10_000), whole(at(vertex, "parallelism"))
                most = at(vertex, "maxParallelism")
                poll.max_parallelism[v] = whole(most) if isinstance(most, int) and most > 0 else 128
        except Unusable as reason:
            raise LoaderError(f"a job graph with a value that is {reason}", expected="Flink's", fix="see it") from None
        self._limits.check("names", len(poll.names))
        for node in items(at(graph, "plan", "nodes")):
            for start in items(at(node, "inputs")):
                poll.edges.append((_id(at(start, "id")), _id(at(node, "id"))))
        poll.edges = list(dict.fromkeys(poll.edges))
        if not poll.names or any(v not in poll.names for edge in poll.edges for v in edge):
            raise LoaderError("a job graph without its vertices", expected="what Flink answers", fix="see the answer")
        self._limits.check("names", len(poll.edges))
        for v in poll.names:
            path = f"/jobs/{job}/vertices/{v}/subtasks/metrics"
            known = [name for m in items(ask(path, None)) if isinstance(name := at(m, "id"), str)]
            wanted = [n for n in known if n in _WANTED or _SOURCE.fullmatch(n)]
            poll.sums[v] = self._sums(ask(path, {"get": ",".join(wanted), "agg": "sum,avg"}) if wanted else [], v, poll)
        return poll

    def _sums(self, answer: Any, vertex: str, poll: Poll) -> dict[str, float]:
        """Return sums over all subtasks, without metrics that some subtask does not report."""
        found: dict[str, float] = {}
        for metric in items(answer):
            name = at(metric, "id")
            if not isinstance(name, str) or not (name in _WANTED or _SOURCE.fullmatch(name)):
                continue
            try:
                value = number(at(metric, "sum"))
                mean = value / poll.parallelism[vertex] if at(metric, "avg") is None else number(at(metric, "avg"))
                if abs(value - mean * poll.parallelism[vertex]) > 0.01 * value:
                    raise Unusable("not of all subtasks")
            except Unusable as reason:
                if at(metric, "sum") is not None:  # a list of names has no values
                    self.problems.count(f"{name:.60}: {reason}", f"vertex {vertex}")
                continue
            # A source's task counts no input: its operator does, under a longer name.
            short = name.rpartition(".")[2]
            found[short] = (
                max(value, found.get(short, 0.0)) if short != "pendingRecords" else value + found.get(short, 0)
            )
        return found

    def _called(self, poll: Poll) -> dict[str, str]:
        """Return unique names of the vertices."""
        called: dict[str, str] = {}
        for v, name in poll.names.items():
            name = self._rename.get(v, self._rename.get(name, name))[:200]
            called[v] = f"{name} ({v[:8]})" if name in called.values() else name
        return called

    def _windows(self, polls: list[Poll], called: Mapping[str, str]) -> Iterator[windows.Window]:
        if len(polls) == 1:
            yield _window(polls[0].t - _MINUTE_S, polls[0], {v: _gauges(polls[0].sums[v]) for v in called}, called)
        for before, poll in zip(polls, polls[1:], strict=False):
            where = f"poll at {poll.t:.3f}"
            if set(poll.names) != set(called) or set(before.names) != set(called):
                self.problems.count("another job graph", where)
                continue
            w = poll.t - before.t
            if before.parallelism != poll.parallelism:
                self.problems.count("rescaled between two polls", where)
                continue
            readings, told = {}, set()
            for v in called:
                try:
                    readings[v] = _gauges(poll.sums[v]) | (_rates(before.sums[v], poll.sums[v], w) if w > 0 else {})
                except Unusable as reason:
                    self.problems.count(str(reason), f"{where}: {called[v]!r:.80}")
                    told.add(called[v])
            made = _window(before.t, poll, readings, called)
            made.absence_counted |= told
            yield made


def _window(
    start: float, poll: Poll, readings: Mapping[str, Mapping[str, float]], called: Mapping[str, str]
) -> windows.Window:
    """Return the window; a source without busy time, as legacy sources are, is known by its rate alone."""
    fed = {v for _, v in poll.edges}
    rates = {
        called[v]: reading["output_rate"] + reading.get("growth", 0.0)
        for v, reading in readings.items()
        if v not in fed and "busy" not in reading and "output_rate" in reading
    }
    made = windows.Window(
        start,
        poll.t,
        f"poll at {poll.t:.3f}",
        {called[v]: reading for v, reading in readings.items() if called[v] not in rates},
        {called[v]: k for v, k in poll.parallelism.items()},
        source_rates=rates,
    )
    made.absence_counted = set(rates)
    return made


def _gauges(sums: Mapping[str, float]) -> dict[str, float]:
    found = {short: sums[name] / 1e3 for name, short in _GAUGES.items() if name in sums}
    found |= {short: sums[f"{name}PerSecond"] for name, short in _RATES.items() if f"{name}PerSecond" in sums}
    if "pendingRecords" in sums:
        found["backlog"] = sums["pendingRecords"]
    return found


def _rates(before: Mapping[str, float], after: Mapping[str, float], w: float) -> dict[str, float]:
    """Return the rates of the counters between two polls."""
    names = [(name, short, 1.0) for name, short in _RATES.items()]
    names += [(f"accumulate{name}", short, 1e-3) for name, short in _TIMES.items()]
    found = {}
    for name, short, factor in names:
        if name in before and name in after:
            if after[name] < before[name]:
                raise Unusable(f"{name}: counter was reset")
            found[short] = (after[name] - before[name]) * factor / w
    if "pendingRecords" in before and "pendingRecords" in after:
        found["growth"] = (after["pendingRecords"] - before["pendingRecords"]) / w
    return found


def _id(value: Any) -> str:
    """Return an id that is safe as part of an address: Flink's ids are hexadecimal."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise LoaderError(f"the id {value!r:.100}", expected="letters and digits", fix="see the answer")
    return value
