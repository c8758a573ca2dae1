"""Storm's UI REST API: the contents of its page of a topology, as JSON.

| quantity | from |
|---|---|
| a bolt's rate | executed / window |
| `true_rate` of an executor | 1000 / execute latency (ms) |
| `utilisation` | executed x execute latency / (window x executors); `capacity` without a latency |
| a spout's rate | emitted / window; Storm does not report the utilisation of spouts, so operators exclude them |
| `output_rate` | emitted / window |

Storm samples one tuple of twenty, so that small counts are rough. `capacity` is that of the busiest executor over ten
minutes, our utilisation the mean of all.

Recorded answers are a folder with `topology.json` (`/api/v1/topology/<id>?window=600`) and one `component-<name>.json`
per component (`.../component/<name>`), or `visualization.json`; or several such folders, one per window.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core import History, Topology
from .common import windows
from .common.base import LIMITS, Limits, LoaderError, Problems
from .common.files import at, in_order, items, read_json, text
from .common.http import Server, is_url
from .common.units import Unusable, number, whole
from .common.user_hints import Given, given_names, given_path, given_topology, sized

_ID = re.compile(r"[\w.-]{1,200}")


class StormUI:
    """Loader for the REST API of Storm's UI, or for a folder of its recorded answers.

    Storm counts over the last ten minutes, three hours or day, so one answer is one window. Its answers have no time:
    the topology's uptime is the clock.

    Parameters
    ----------
    url : str or Path
        The address, as in "http://localhost:8080", or the folder.
    job : str, optional
        The id of the topology, if there are several.
    topology : Topology or sequence of str, optional
        The graph of operators, or their names as a chain.
    window_s : {600, 10800, 86400}
        The period over which Storm counts.
    headers : mapping of str to str, optional
        HTTP headers, for authentication.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> StormUI("http://localhost:8080").problems
    no problems
    """

    def __init__(
        self,
        url: str | Path,
        *,
        job: str | None = None,
        topology: Topology | Sequence[str] | None = None,
        window_s: int = 600,
        headers: Mapping[str, str] | None = None,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        if window_s not in (600, 10800, 86400):
            raise LoaderError(f"window_s={window_s!r}", expected="600, 10800 or 86400", fix="Storm has no others")
        self._url, self._job, self._window_s = url, job, window_s
        self._given, self._headers = Given(given_topology(topology)), given_names("headers", headers)
        self._strict, self._limits = strict, limits

    def history(self) -> History:
        """Request the topology and its components."""
        self.problems = Problems(strict=self._strict)
        found = [self._one(answer, inputs) for answer, inputs in self._answers()]
        topology = self._given.topology
        if topology is None:
            names: dict[str, int] = {}
            for _, window, _ in found:
                for name, k in window.parallelism.items():
                    names[name] = max(k, names.get(name, 1))
            edges = list(dict.fromkeys(edge for _, _, told in found for edge in told))
            if not edges and len(names) > 1:
                raise LoaderError("components without their edges", expected="component pages", fix="pass topology=")
            topology = sized(names, [edge for edge in edges if edge[0] in names and edge[1] in names])
        about = {"loader": "StormUI", "source": str(self._url)}
        return windows.history_of_windows(
            topology, (window for _, window, _ in found), self.problems, self._limits, about
        )

    def _answers(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield, for each answer, the topology's page and the components' pages by name."""
        if is_url(self._url):
            server = Server(str(self._url), self._limits, self._headers)
            job = self._job
            if job is None:
                there = items(at(server.json("/api/v1/topology/summary"), "topologies"))
                if len(there) != 1:
                    told = ", ".join(str(at(one, "id")) for one in there)
                    raise LoaderError(
                        f"{len(there)} topologies: {told:.300}", expected="one", fix="choose it with job="
                    )
                job = at(there[0], "id")
            if not isinstance(job, str) or not _ID.fullmatch(job):
                raise LoaderError(f"job={job!r:.200}", expected="a topology's id", fix="see /api/v1/topology/summary")
            base, query = f"/api/v1/topology/{job}", {"window": self._window_s}
            answer = server.json(base, query)
            pages = {}
            for name in self._names(answer):
                pages[name] = server.json(f"{base}/component/{urllib.parse.quote(name, safe='')}", query)
            yield answer, pages
            return
        folder = given_path(self._url)
        whole_ = (folder / "topology.json").is_file()
        folders = [folder] if whole_ else in_order(p for p in folder.glob("*") if (p / "topology.json").is_file())
        if not folders:
            raise LoaderError(f"{folder}, without topology.json", expected="recorded answers", fix="see StormUI")
        self._limits.check("names", len(folders))
        for each in folders:
            answer, pages = read_json(each / "topology.json", self._limits), {}
            for name in self._names(answer):
                page = each / f"component-{name}.json"
                if _ID.fullmatch(name) and page.is_file():
                    pages[name] = read_json(page, self._limits)
            seen = each / "visualization.json"
            yield answer, pages or _visualized(read_json(seen, self._limits) if seen.is_file() else None)

    def _names(self, answer: Any) -> list[str]:
        told = [at(c, key) for kind, key in _KINDS for c in items(at(answer, kind))]
        names = [name for name in told if isinstance(name, str) and name]
        self._limits.check("names", len(names))
        return names

    def _one(self, answer: Any, pages: Mapping[str, Any]) -> tuple[float, windows.Window, list[tuple[str, str]]]:
        """Return the window of one answer, and the edges in the components' pages."""
        try:
            up = number(at(answer, "uptimeSeconds"), text=True)
        except Unusable as reason:
            raise LoaderError(f"uptimeSeconds: {reason}", expected="Storm's answer", fix="see it") from None
        w = min(float(self._window_s), up)
        if not w > 0:
            raise LoaderError("a topology that has just begun", expected="some uptime", fix="ask again later")
        readings: dict[str, dict[str, float]] = {}
        rates: dict[str, float] = {}
        parallelism: dict[str, int] = {}
        edges: dict[tuple[str, str], float] = {}
        for kind, key in _KINDS:
            for component in items(at(answer, kind)):
                try:
                    name = text(at(component, key), 200)
                except Unusable:
                    self.problems.count("component without a name", kind)
                    continue
                try:
                    k = parallelism[name] = whole(at(component, "executors"), text=True)
                    emitted = _number(component, "emitted") / w
                    if kind == "spouts":
                        rates[name] = emitted
                        self.problems.count("spout: Storm does not measure how busy it is", repr(name)[:80])
                    else:
                        readings[name] = _bolt(component, k, w) | {"output_rate": emitted}
                except Unusable as reason:
                    self.problems.count(str(reason), f"{name!r:.80}")
                for start, rate in _inputs(pages.get(name), w):
                    edges[start, name] = edges.get((start, name), 0.0) + rate
        told = {edge: rate for edge, rate in edges.items() if rate >= 0}
        self._limits.check("names", len(edges))
        where = f"uptime {up:g} s"
        made = windows.Window(
            up - w, up, where, readings, parallelism, told, rates, absence_counted={*parallelism} - {*readings}
        )
        return up, made, list(edges)


_KINDS = (("spouts", "spoutId"), ("bolts", "boltId"))


def _bolt(bolt: Any, k: int, w: float) -> dict[str, float]:
    executed, latency_s = _number(bolt, "executed"), _number(bolt, "executeLatency") / 1e3
    found = {"processing_rate": executed / w}
    if latency_s > 0:
        found |= {"true_rate": 1 / latency_s, "utilisation": executed * latency_s / (w * k)}
    elif executed:
        found["utilisation"] = _number(bolt, "capacity")
    else:
        found["utilisation"] = 0.0
    return found


def _inputs(page: Any, w: float) -> Iterator[tuple[str, float]]:
    """Return the senders of a bolt with their tuples/s; -1 where unknown."""
    for told in items(at(page, "inputStats")):
        start = at(told, "component")
        if isinstance(start, str) and 0 < len(start) <= 200 and not start.startswith("__"):
            try:
                yield start, _number(told, "executed") / w
            except Unusable:
                yield start, -1.0


def _visualized(answer: Any) -> dict[str, Any]:
    """Return the edges of `/api/v1/topology/<id>/visualization`, in the form of the components' pages."""
    pages = {}
    for name, component in answer.items() if isinstance(answer, dict) else ():
        pages[name] = {"inputStats": [{"component": at(one, ":component")} for one in items(at(component, ":inputs"))]}
    return pages


def _number(component: Any, name: str) -> float:
    """Return a number; Storm writes some as text."""
    try:
        return number(at(component, name), text=True)
    except Unusable as reason:
        raise Unusable(f"{name}: {reason}") from None
