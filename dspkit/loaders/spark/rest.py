"""The REST API of a running Spark application (or of a history server): jobs and stages.

Spark keeps the last 1000 stages (`spark.ui.retainedStages`), and does not report here which stage reads from which:
they are assumed to be a chain in the order of their ids unless `topology` is given. Recorded answers work as well: a
folder with `jobs.json` and `stages.json`, as saved from `/api/v1/applications/<id>/jobs` by curl. stages.py turns them
into windows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import History, Topology
from ...spark.stock.job import Recording
from ...spark.stock.observation import MicroBatch, StageRun
from ..common.base import LIMITS, Limits, LoaderError, Problems
from ..common.files import at, items, read_json
from ..common.http import Server, is_url
from ..common.units import Unusable
from ..common.user_hints import Given, given_names, given_path, given_stages, given_topology, given_window
from . import stages
from .event_log import _id, _metric
from .progress import instant

_BATCH = re.compile(r"id = ([0-9a-fA-F-]{1,64}).{0,200}?batch = (\d{1,15})\b", re.DOTALL)
_LACKS = (
    "The REST API reports jobs only: planning and commits, which lie between them, are missing in the durations, and "
    "the number of slots is not known. The event log has both."
)
_NAMED = re.compile(r"[\w.-]{1,128}")


class SparkRest:
    """Loader for the REST API of a Spark application or a history server.

    Parameters
    ----------
    url : str or Path
        The address, as in "http://localhost:4040", or a folder of recorded answers.
    app : str, optional
        The id of the application, if there are several.
    names : sequence of str, optional
        The operators' names in the order of the stages' ids.
    topology : Topology or sequence of str, optional
        The graph of operators, or their names as a chain.
    query : str, optional
        The id of the query, if there are several.
    window_s : float, optional
        The length of a window, by default one batch.
    headers : mapping of str to str, optional
        HTTP headers, for authentication.
    strict : bool
        Raise the first problem instead of counting it.
    limits : Limits
        Limits of size and time for untrusted input.

    Examples
    --------
    >>> SparkRest("http://localhost:4040", names=["read", "count"]).problems
    no problems
    """

    def __init__(
        self,
        url: str | Path,
        *,
        app: str | None = None,
        names: Sequence[str] | None = None,
        topology: Topology | Sequence[str] | None = None,
        query: str | None = None,
        window_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        strict: bool = False,
        limits: Limits = LIMITS,
    ):
        self.problems = Problems(strict=strict)
        self._url, self._app, self._query = url, app, query
        self._names, self._window_s = given_stages(names), given_window(window_s)
        self._given, self._headers = Given(given_topology(topology)), given_names("headers", headers)
        self._strict, self._limits = strict, limits

    def history(self) -> History:
        """Request all jobs and stages that Spark still keeps."""
        batches = self._read()
        about = {"loader": "SparkRest", "source": str(self._url)}
        return stages.history_of_batches(
            batches, self._given, self._names, self._window_s, self.problems, self._limits, about
        )

    def recording(self, *, window_s: float = 10.0) -> Recording:
        """Request the batches for `dspkit.spark.attach`; the REST API has jobs, and no progress of queries.

        Parameters
        ----------
        window_s : float
            The length of a window.
        """
        found = [batch for batch in self._read() if batch.query]
        for batch in found:
            batch.rows = sum(run.received for run in sorted(batch.stages, key=lambda run: run.id)[:1])
        return stages.recording_of_batches(found, self._names, 0, {}, window_s, note=_LACKS)

    def _read(self) -> list[MicroBatch]:
        self.problems = Problems(strict=self._strict)
        jobs, runs = self._answers()
        found = self._batches(items(jobs), self._stages(items(runs)))
        return stages.of_one_query(found, self._query, self.problems)

    def _answers(self) -> tuple[Any, Any]:
        if not is_url(self._url):
            folder = given_path(self._url)
            return read_json(folder / "jobs.json", self._limits), read_json(folder / "stages.json", self._limits)
        server = Server(str(self._url), self._limits, self._headers)
        there = [name for app in items(server.json("/api/v1/applications")) if isinstance(name := at(app, "id"), str)]
        if self._app is None and len(there) != 1:
            raise LoaderError(
                f"{len(there)} applications: {', '.join(there)!s:.300}", expected="one", fix="choose it with app="
            )
        app = there[0] if self._app is None else self._app
        if app not in there or not _NAMED.fullmatch(app):
            raise LoaderError(f"app={app!r:.200}", expected=f"one of {', '.join(there)!s:.300}", fix="choose one")
        base = f"/api/v1/applications/{app}"
        jobs = server.json(f"{base}/jobs")  # first: then the stages of a job that has ended are there as well
        return jobs, server.json(f"{base}/stages")

    def _stages(self, told: list[Any]) -> dict[int, StageRun]:
        """Return the completed stages, by id."""
        self._limits.check("readings", len(told))
        found: dict[int, StageRun] = {}
        for i, stage in enumerate(told):
            status = at(stage, "status")
            try:
                if status == "FAILED":
                    self.problems.count("stage that failed", f"stage {i} of the answer")
                if status != "COMPLETE":
                    continue
                run = StageRun(
                    id=_id(stage, "stageId"),
                    tasks=_id(stage, "numTasks"),
                    done=_id(stage, "numCompleteTasks"),
                    failed=_id(stage, "numFailedTasks"),
                    run_s=_metric(stage, "executorRunTime") / 1e3,
                    wait_s=_metric(stage, "shuffleFetchWaitTime") / 1e3,
                    cpu_s=_metric(stage, "executorCpuTime") / 1e9,
                    received=_metric(stage, "inputRecords") + _metric(stage, "shuffleReadRecords"),
                    shuffled=_metric(stage, "shuffleWriteRecords"),
                    wrote=_metric(stage, "outputRecords"),
                )
                found[run.id] = run
            except Unusable as reason:
                self.problems.count(str(reason), f"stage {i} of the answer")
        return found

    def _batches(self, told: list[Any], runs: dict[int, StageRun]) -> list[MicroBatch]:
        self._limits.check("readings", len(told))
        found: dict[tuple[str, int], MicroBatch] = {}
        latest: dict[str, tuple[str, int]] = {}  # by job group, which is the run of a query
        for job in reversed(told):  # Spark lists the newest first
            try:
                status, number = at(job, "status"), _id(job, "jobId")
                if status == "FAILED":
                    self.problems.count("job that failed", f"job {number}")
                if status != "SUCCEEDED":
                    continue
                began, ended = _time(job, "submissionTime"), _time(job, "completionTime")
                said = at(job, "description")
                match = _BATCH.search(said[:2000]) if isinstance(said, str) else None
                group = at(job, "jobGroup")
                named = group if isinstance(group, str) else ""
                key = (match[1], int(match[2])) if match else latest.get(named, ("", number))
                if match and named:
                    latest[named[:200]] = key  # jobs that the user's own code describes otherwise belong to it, too
                ids = [i for i in items(at(job, "stageIds")) if isinstance(i, int)]
                self._limits.check("names", len(ids))
                skipped = at(job, "numSkippedStages")
                mine = [runs[i] for i in sorted(set(ids)) if i in runs]
                if len(mine) + (skipped if isinstance(skipped, int) else 0) < len(set(ids)):
                    raise Unusable("job whose stages Spark has forgotten")
                batch = found.setdefault(key, MicroBatch(*key, began, ended))
                batch.began, batch.ended = min(batch.began, began), max(batch.ended, ended)
                batch.stages += mine
            except Unusable as reason:
                self.problems.count(str(reason), "the list of jobs")
        return list(found.values())


def _time(job: Any, field: str) -> float:
    """Return a time of a job, or raise Unusable with the field's name."""
    try:
        return instant(at(job, field))
    except Unusable as reason:
        raise Unusable(f"job without a {field}" if at(job, field) is None else f"{field}: {reason}") from None
