"""Prometheus: its HTTP API, or recorded answers in files.

The loader queries raw samples (`metric[range]`), not values at steps: a step repeats the last sample for five minutes
if there is no new one, so that an engine that stopped reporting would look idle.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core import History, Topology
from .common import windows
from .common.base import LIMITS, Limits, LoaderError, Problems
from .common.files import at, in_order, items, read_json
from .common.http import Server, is_url
from .common.names import FLINK, Names
from .common.series import SampleSeries
from .common.user_hints import Given, given_names, given_parallelism, given_path, given_topology

_PART_S = 1800.0  # requested at once
_LONGEST = 1000  # characters of a metric's name: yours are matched with regular expressions
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Prometheus:
    """Loader for the HTTP API of Prometheus, or for JSON files of its recorded answers.

    Parameters
    ----------
    url : str or Path
        The address, as in "http://localhost:9090", or a JSON file or a folder of them.
    names : Names
        The names of the metrics: FLINK, SPARK, or your own.
    topology : Topology or sequence of str, optional
        The graph of operators, or their names as a chain.
    start_s, end_s : float, optional
        The period in seconds since 1970, by default the last hour.
    window_s : float
        The length of a window, which should contain at least two scrapes.
    parallelism : int or mapping of str to int, optional
        The expected instances of all operators, or by operator.
    labels : mapping of str to str, optional
        Labels that select series, as in {"job_name": "clicks"}.
    rename : mapping of str to str, optional
        The operators' names in the topology, by their names in Prometheus.
    headers : mapping of str to str, optional
        HTTP headers, for authentication.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> Prometheus("http://localhost:9090", labels={"job_name": "clicks"}).problems
    no problems
    """

    def __init__(
        self,
        url: str | Path,
        names: Names = FLINK,
        *,
        topology: Topology | Sequence[str] | None = None,
        start_s: float | None = None,
        end_s: float | None = None,
        window_s: float = 60.0,
        parallelism: int | Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
        rename: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        if not isinstance(names, Names):
            raise LoaderError(f"names={names!r:.200}", expected="FLINK, SPARK or Names(...)", fix="pass one of them")
        self._url, self._names, self._window_s = url, names, window_s
        self._given = Given(given_topology(topology), given_parallelism(parallelism))
        self._start, self._end = span(start_s, end_s)
        self._labels, self._rename = given_names("labels", labels), given_names("rename", rename)
        self._headers = given_names("headers", headers)
        if wrong := [name for name in self._labels if not _LABEL.fullmatch(str(name))]:
            raise LoaderError(f"label {wrong[0]!r}", expected="the name of a label", fix="correct labels=")
        self._strict, self._limits = strict, limits

    def history(self) -> History:
        """Request the samples and return their windows."""
        self.problems = Problems(strict=self._strict)
        series = SampleSeries(
            self._names, self._window_s, self.problems, self._limits, rename=self._rename, labels=self._labels
        )
        for metric, answer in self._answers():
            self._take(series, metric, answer)
        topology = self._given.topology_for(series.operators)
        parallelism = self._given.parallelism_for(topology)
        about = {"loader": "Prometheus", "source": str(self._url)}
        return windows.history_of_windows(topology, series.windows(parallelism), self.problems, self._limits, about)

    def _take(self, series: SampleSeries, asked: str | None, answer: Any) -> None:
        if at(answer, "status") != "success":
            said = at(answer, "error")
            raise LoaderError(f"an answer that says {said!r:.200}", expected="success", fix="see Prometheus' log")
        for one in items(at(answer, "data", "result")):
            labels = at(one, "metric")
            name = at(labels, "__name__")
            if not isinstance(name, str) or len(name) > _LONGEST:
                self.problems.count("series without a name", f"{labels!r:.100}")
                continue
            for metric in self._names.units if asked is None else (asked,):
                if match := re.fullmatch(metric, name):
                    samples = items(at(one, "values")) or [at(one, "value")]
                    series.take(metric, match.groupdict().get("operator"), labels, samples, words=True)
                    break

    def _answers(self) -> Iterator[tuple[str | None, Any]]:
        if not is_url(self._url):
            path = given_path(self._url)
            files = in_order(path.glob("*.json")) if path.is_dir() else [path]
            self._limits.check("names", len(files))
            yield from ((None, read_json(file, self._limits)) for file in files)
            return
        server = Server(str(self._url), self._limits, self._headers)
        end = time.time() if self._end is None else self._end
        start = (
            end - 3600.0 if self._start is None else self._start
        ) - self._window_s  # the initial values of counters
        self._limits.check("readings", int((end - start) / _PART_S))
        chosen = "".join(f',{name}="{_quoted(value)}"' for name, value in self._labels.items())
        while start < end:
            part = min(_PART_S, end - start)
            for metric in self._names.units:
                ask = f'{{__name__=~"{_quoted(metric)}"{chosen}}}[{max(1, round(part * 1000))}ms]'
                query = {"query": ask, "time": f"{start + part:.3f}", "timeout": f"{self._limits.timeout_s:g}s"}
                yield metric, server.json("/api/v1/query", query)
            start += part


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def span(start_s: float | None, end_s: float | None) -> tuple[float | None, float | None]:
    """Return start and end in seconds since 1970, checked."""
    for name, value in (("start_s", start_s), ("end_s", end_s)):
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value < 1e11):
            raise LoaderError(f"{name}={value!r}", expected="seconds since 1970", fix="as returned by time.time()")
    if start_s is not None and end_s is not None and start_s >= end_s:
        raise LoaderError(f"start_s={start_s}, end_s={end_s}", expected="start_s < end_s", fix="swap them")
    return start_s, end_s
