"""InfluxDB: InfluxQL over HTTP (1.x), Flux over HTTP (2.x), and files in line protocol.

A line of the protocol: `measurement,tag=value field=1.0,other=2i 1795034648805000000`.
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from ..core import History, Topology
from ..core.validation import choice, is_number
from .common import windows
from .common.base import LIMITS, Limits, LoaderError, Problems
from .common.files import at, items, parse_json, read_lines
from .common.http import Server, is_url
from .common.names import DSPKIT, Names
from .common.series import SampleSeries
from .common.units import QUANTITIES, Unusable
from .common.user_hints import Given, given_names, given_parallelism, given_path, given_topology
from .prometheus import span
from .spark.progress import instant

# Possessive (`++`): what one alternative has taken no other can, and a long word needs no stack to go back on.
_WORD = re.compile(r"(?:[^\\, =]++|\\.)++|\\")  # up to a comma, space or equals sign that is not escaped
_FIELD = re.compile(r'((?:[^\\, =]++|\\.)++)=("(?:[^"\\]++|\\.)*+"|[^", ]++)')


def point(line: bytes) -> tuple[str, dict[str, str], dict[str, Any], float]:
    """Return measurement, tags, fields and time of one line, or raise Unusable.

    >>> point(b'dspkit,operator=work rate=12.5,busy=3i 1000')
    ('dspkit', {'operator': 'work'}, {'rate': 12.5, 'busy': 3}, 1000.0)
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise Unusable("not UTF-8") from None
    head, at_ = _word(text, 0)
    tags: dict[str, str] = {}
    while text[at_ : at_ + 1] == ",":
        name, at_ = _word(text, at_ + 1)
        if text[at_ : at_ + 1] != "=":
            raise Unusable("not line protocol")
        value, at_ = _word(text, at_ + 1)
        tags[_plain(name)] = _plain(value)
    fields: dict[str, Any] = {}
    separator = " "
    while text[at_ : at_ + 1] == separator:
        match = _FIELD.match(text, at_ + 1)
        if match is None:
            break
        fields[_plain(match[1])] = _value(match[2])
        at_, separator = match.end(), ","
    stamp = text[at_:].strip()
    if not fields or not re.fullmatch(r"-?\d{1,20}", stamp, re.ASCII):
        raise Unusable("not line protocol with a time")
    return _plain(head), tags, fields, float(stamp)


def _word(text: str, start: int) -> tuple[str, int]:
    match = _WORD.match(text, start)
    if match is None:
        raise Unusable("not line protocol")
    return match[0], match.end()


def _plain(word: str) -> str:
    return re.sub(r"\\([, =])", r"\1", word)


def _value(text: str) -> Any:
    """Return the value of a field: a number, or the text itself, which is then counted as invalid."""
    if text.startswith('"'):
        return text[1:-1]
    if text in ("t", "T", "true", "True", "TRUE", "f", "F", "false", "False", "FALSE"):
        return text[0] in "tT"
    try:
        return int(text[:-1]) if re.fullmatch(r"-?\d{1,20}[iu]", text, re.ASCII) else float(text.replace("_", "no"))
    except ValueError:
        return text


def lines(history: History, *, run: str = "run") -> Iterator[str]:
    """Yield a run as line protocol, one line per window and operator, in the form that DSPKIT reads."""
    zero = float(history.about.get("began_unix_s", 0.0))
    for step in history:
        stamp = round((zero + step.snapshot.t) * 1e9)
        for name, metrics in step.snapshot.operators.items():
            told = {key: value for key, value in asdict(metrics).items() if key in QUANTITIES and value is not None}
            fields = ",".join(f"{key}={float(value)!r}" for key, value in told.items())
            yield f"dspkit,operator={_escaped(name)},run={_escaped(run)} {fields} {stamp}"


def _escaped(word: str) -> str:
    if "\n" in word or word.endswith("\\"):
        raise LoaderError(f"the name {word!r:.100}", expected="one line that ends in no backslash", fix="rename it")
    return re.sub(r"([, =])", r"\\\1", word)


_PRECISIONS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_PART_S = 3600.0  # requested at once
_MOST_PARTS = 10_000
_FLUX_OWN = ("", "result", "table")  # columns other than tags


class InfluxDB:
    """Loader for InfluxDB 1.x and 2.x, or for a file of line protocol.

    Parameters
    ----------
    url : str or Path
        The address, or the file, which is read as a whole.
    names : Names
        The names of the metrics: DSPKIT (the output of `line_protocol.lines`), FLINK_INFLUX, or your own with metrics
        named "measurement.field".
    database : str, optional
        The database (InfluxDB 1.x).
    bucket, org, token : str, optional
        Bucket, organisation and token (InfluxDB 2.x).
    topology : Topology or sequence of str, optional
        The graph of operators, or their names as a chain.
    start_s, end_s : float, optional
        The period in seconds since 1970, by default the last hour.
    window_s : float
        The length of a window, which should contain at least two samples.
    precision : {"ns", "us", "ms", "s"}
        The unit of the times in a file.
    parallelism : int or mapping of str to int, optional
        The expected instances of all operators, or by operator.
    labels : mapping of str to str, optional
        Tags that select series.
    rename : mapping of str to str, optional
        The operators' names in the topology, by their names in InfluxDB.
    headers : mapping of str to str, optional
        HTTP headers, for authentication.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> InfluxDB("http://localhost:8086", database="metrics").problems
    no problems
    """

    def __init__(  # noqa: PLR0913  (keyword-only settings of a query)
        self,
        url: str | Path,
        names: Names = DSPKIT,
        *,
        database: str | None = None,
        bucket: str | None = None,
        org: str | None = None,
        token: str | None = None,
        topology: Topology | Sequence[str] | None = None,
        start_s: float | None = None,
        end_s: float | None = None,
        window_s: float = 60.0,
        precision: str = "ns",
        parallelism: int | Mapping[str, int] | None = None,
        labels: Mapping[str, str] | None = None,
        rename: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        if not isinstance(names, Names) or any(
            not all(name.rpartition(".")[::2]) or name.strip() != name for name in names.metrics
        ):
            raise LoaderError(f"names={names!r:.200}", expected='Names of "measurement.field"', fix="see DSPKIT")
        choice(precision, "precision", _PRECISIONS, error=LoaderError, fix="choose one; ns is the usual one")
        if is_url(url) and (database is None) == (bucket is None):
            raise LoaderError("no database, no bucket", expected="database= (1.x), or bucket= (2.x)", fix="pass one")
        self._url, self._names, self._window_s = url, names, window_s
        self._database, self._bucket, self._org = database, bucket, org
        self._given = Given(given_topology(topology), given_parallelism(parallelism))
        self._start, self._end = span(start_s, end_s)
        self._factor = _PRECISIONS[precision]
        self._labels, self._rename = given_names("labels", labels), given_names("rename", rename)
        self._headers = {**({"Authorization": f"Token {token}"} if token else {}), **given_names("headers", headers)}
        self._strict, self._limits = strict, limits

    def history(self) -> History:
        """Read the points and return their windows."""
        self.problems = Problems(strict=self._strict)
        series = SampleSeries(
            self._names, self._window_s, self.problems, self._limits, rename=self._rename, labels=self._labels
        )
        if not is_url(self._url):
            self._file(series, given_path(self._url))
        else:
            self._ask(series)
        topology = self._given.topology_for(series.operators)
        parallelism = self._given.parallelism_for(topology)
        about = {"loader": "InfluxDB", "source": Path(self._url).name if not is_url(self._url) else str(self._url)}
        return windows.history_of_windows(topology, series.windows(parallelism), self.problems, self._limits, about)

    def _file(self, series: SampleSeries, path: Path) -> None:
        for count, line in enumerate(read_lines(path, self._limits, self.problems), 1):
            if line.startswith(b"#"):
                continue
            try:
                measurement, tags, fields, stamp = point(line)
            except Unusable as reason:
                self.problems.count(str(reason), f"{path.name} line {count}")
                continue
            t = stamp * self._factor
            if (self._start is not None and t <= self._start - self._window_s) or (
                self._end is not None and t > self._end
            ):
                continue
            for name, value in fields.items():
                if (metric := f"{measurement}.{name}") in self._names.units:
                    series.take(metric, None, tags, [(t, value)], words=False)

    def _ask(self, series: SampleSeries) -> None:
        server = Server(str(self._url), self._limits, self._headers)
        end = time.time() if self._end is None else self._end
        start = (end - 3600.0 if self._start is None else self._start) - self._window_s
        if (end - start) / _PART_S > _MOST_PARTS:
            raise LoaderError(f"{end - start:.0f} s", expected=f"{_PART_S * _MOST_PARTS:.0f} s at most", fix="ask less")
        wanted = sorted(name.rpartition(".")[::2] for name in self._names.units)
        while start < end:
            part = min(_PART_S, end - start)
            for measurement, pairs in groupby(wanted, key=lambda pair: pair[0]):
                fields = [name for _, name in pairs]
                ask = self._influxql if self._database is not None else self._flux
                for name, tags, samples in ask(server, measurement, fields, start, start + part):
                    if (metric := f"{measurement}.{name}") in self._names.units:
                        series.take(metric, None, tags, samples, words=False)
            start += part

    def _influxql(
        self, server: Server, measurement: str, fields: list[str], start: float, end: float
    ) -> Iterator[tuple[str, dict[str, Any], list[Any]]]:
        chosen = ", ".join(map(_quoted, fields))
        ask = (
            f"SELECT {chosen} FROM {_quoted(measurement)} "
            f"WHERE time > {round(start * 1e9)} AND time <= {round(end * 1e9)} GROUP BY *"
        )
        answer = server.json("/query", {"db": self._database, "q": ask, "epoch": "u"})
        for result in items(at(answer, "results")):
            if (error := at(result, "error")) is not None:
                raise LoaderError(f"the answer {error!r:.200}", expected="a result", fix="check database and names")
            for one in items(at(result, "series")):
                columns, tags = items(at(one, "columns")), at(one, "tags")
                rows = [row for row in items(at(one, "values")) if isinstance(row, list) and len(row) == len(columns)]
                for i, column in enumerate(columns[1:], 1):
                    samples = [(_scaled(row[0], 1e-6), row[i]) for row in rows if row[i] is not None]
                    if samples:
                        yield str(column), tags if isinstance(tags, dict) else {}, samples

    def _flux(
        self, server: Server, measurement: str, fields: list[str], start: float, end: float
    ) -> Iterator[tuple[str, dict[str, Any], list[Any]]]:
        chosen = " or ".join(f"r._field == {_flux_text(name)}" for name in fields)
        ask = (
            f"from(bucket: {_flux_text(str(self._bucket))}) "
            f"|> range(start: time(v: {round(start * 1e9) + 1}), stop: time(v: {round(end * 1e9) + 1})) "
            f"|> filter(fn: (r) => r._measurement == {_flux_text(measurement)} and ({chosen}))"
        )
        headers = {"Content-Type": "application/vnd.flux", "Accept": "application/csv"}
        query = {"org": self._org} if self._org is not None else None
        answer = server.answer("/api/v2/query", query, ask.encode(), headers)
        for row in _tables(answer):
            tags = {n: value for n, value in row.items() if not n.startswith("_") and n not in _FLUX_OWN}
            try:
                sample = (instant(_micros(row.get("_time", ""))), parse_json(row.get("_value", "")))
            except Unusable as reason:
                self.problems.count(f"a row of Flux: {reason}", f"{row!r:.100}")
                continue
            yield row.get("_field", ""), tags, [sample]


def _tables(answer: bytes) -> Iterator[dict[str, str]]:
    """Rows of annotated CSV: tables come one after the other, each with a header of its own after an empty line."""
    head: list[str] | None = None
    try:
        for row in csv.reader(answer.decode().splitlines(), strict=True):
            if not any(row):
                head = None
            elif row[0].startswith("#"):
                continue
            elif head is None:
                head = row
            elif "error" in head:
                raise LoaderError(f"the answer {','.join(row)!r:.200}", expected="tables", fix="check bucket and names")
            elif len(row) == len(head):
                yield dict(zip(head, row, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise LoaderError(f"an answer that is no CSV: {error!s:.100}", expected="tables", fix="check the url") from None


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _flux_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("${", "\\${")


def _scaled(value: Any, factor: float) -> Any:
    return value * factor if is_number(value) else value


def _micros(stamp: str) -> str:
    """Digits beyond microseconds are beyond what a float of today's seconds holds."""
    return re.sub(r"(\.\d{6})\d+", r"\1", stamp[:60])
