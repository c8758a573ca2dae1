"""Spark's stages as operators: the common part of the event log and the REST API.

A stage of a micro-batch is an operator, its tasks are the operator's instances. They take turns:
`execution="micro-batch"`.

| symbol | is | from |
|---|---|---|
| R | records that a stage read | input records + shuffle records read |
| T | total seconds of its tasks | executor run time |
| W | of these, seconds waiting for the stage before | shuffle fetch wait time |
| k | tasks | number of tasks |
| w | seconds from the end of the previous batch to the end of this one | |

$$\\text{true rate} = R / (T - W), \\quad \\text{utilisation} = (T - W) / (w k), \\quad \\text{rate} = R / w$$

Executor run time is the time of a task from its start on the executor to its end: reading, computing (also in Python),
writing shuffle files, garbage collection. It excludes scheduling and deserialisation of the task. A source that waits
for its log within a task counts as busy, as Spark measures nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...core import History, Topology
from ...spark.stock.job import Recording
from ...spark.stock.observation import MicroBatch, batch_latency
from ..common import windows
from ..common.base import Limits, LoaderError, Problems
from ..common.user_hints import Given, sized


def of_one_query(batches: Iterable[MicroBatch], query: str | None, problems: Problems) -> list[MicroBatch]:
    """Return the batches of the selected query, in order."""
    every = list(batches)
    names = list(dict.fromkeys(batch.query for batch in every if batch.query))
    if query is None and len(names) > 1:
        raise LoaderError(
            f"{len(names)} queries: {', '.join(names)!s:.300}", expected="one", fix="choose it with query="
        )
    chosen = query if query is not None else names[0] if names else ""
    if names and (chosen not in names):
        raise LoaderError(f"query={query!r}", expected=f"one of {', '.join(names)!s:.300}", fix="choose one")
    found = [batch for batch in every if batch.query == chosen]
    if others := sum(not batch.query for batch in every) if chosen else 0:
        problems.count("job of no micro-batch", "left out", others)
    return sorted(found, key=lambda batch: batch.number)


def history_of_batches(
    batches: Sequence[MicroBatch],
    given: Given,
    names: Sequence[str] | None,
    window_s: float | None,
    problems: Problems,
    limits: Limits,
    about: Mapping[str, object],
) -> History:
    """Return batches of the most common shape as windows; `window_s` combines several."""
    whole = [batch for batch in batches if _whole(batch, problems)]
    if not whole:
        raise LoaderError(
            f"no batch that can be used ({problems!r})" if problems else "neither jobs nor tasks",
            expected="a batch that was worked on",
            fix="see .problems" if problems else "record while the query processes records",
        )
    (shape, _), *_ = Counter(batch.shape for batch in whole).most_common(1)
    alike = []
    for batch in whole:
        if batch.shape == shape:
            alike.append(batch)
        else:
            problems.count("batch with other stages than most", f"{batch.where}: {len(batch.stages)} stages")
    called = _names(given, names, len(shape))
    most = {name: max(batch.stages[i].tasks for batch in alike) for i, name in enumerate(called)}
    edges = [(called[p], called[i]) for i, parents in enumerate(shape) for p in parents]
    topology = given.topology or sized(most, edges)
    found = _windows(alike, called, topology, window_s, problems)
    if not any(batch.query for batch in alike):
        about = {**about, "application": "batch"}  # which advice must not take for a stream
    return windows.history_of_windows(topology, found, problems, limits, about, execution="micro-batch")


def recording_of_batches(
    batches: Sequence[MicroBatch],
    names: Sequence[str] | None,
    slots: int,
    settings: Mapping[str, str],
    window_s: float,
    note: str = "",
) -> Recording:
    """Return the batches whose progress was reported, with the stages of the most common shape as operators."""
    told = [batch for batch in batches if batch.rows]
    if not told:
        raise LoaderError(
            "no progress of a streaming query",
            expected="the log of an application that runs one",
            fix="a batch application has jobs that end: nothing arrives that it could fall behind",
        )
    for batch in told:
        batch.stages.sort(key=lambda stage: stage.id)
        if any(stage.done < stage.tasks for stage in batch.stages):
            batch.stages = []  # in part only
    shapes = Counter(batch.shape for batch in told if batch.stages)
    if not shapes:
        return Recording(told, slots=slots, settings=settings, window_s=window_s, note=note)
    shape = shapes.most_common(1)[0][0]
    called = _names(Given(None), names, len(shape))
    for batch in told:
        if batch.shape != shape:
            batch.stages = []
        for name, run in zip(called, batch.stages, strict=False):
            run.operator = name
    most = {name: max(b.stages[i].tasks for b in told if b.stages) for i, name in enumerate(called)}
    edges = [(called[p], called[i]) for i, parents in enumerate(shape) for p in parents]
    return Recording(told, slots=slots, settings=settings, topology=sized(most, edges), window_s=window_s, note=note)


def _names(given: Given, names: Sequence[str] | None, count: int) -> list[str]:
    called = list(names or (given.topology.order if given.topology else [f"stage_{i}" for i in range(count)]))
    if len(called) != count or len(set(called)) != count:
        raise LoaderError(
            f"{len(called)} names, {', '.join(map(str, called))!s:.300}",
            expected=f"one for each of {count} stages",
            fix="pass names=[...] in the order of the stages' ids",
        )
    return called


def _whole(batch: MicroBatch, problems: Problems) -> bool:
    """Return True if the batch is complete, and sort its stages."""
    batch.stages.sort(key=lambda stage: stage.id)
    if not batch.stages:
        problems.count("batch without stages", batch.where)
    elif any(stage.done < stage.tasks for stage in batch.stages):
        problems.count("batch with tasks that are missing or failed", batch.where)
    elif not batch.began < batch.ended:
        problems.count("clock stepped back", batch.where)
    elif any(stage.wait_s > stage.run_s for stage in batch.stages):
        problems.count("waited longer than it ran", batch.where)
    else:
        if failed := sum(stage.failed for stage in batch.stages):
            problems.count("task that failed and was run again", batch.where, failed)
        return True
    return False


def _windows(
    batches: Sequence[MicroBatch], names: Sequence[str], topology: Topology, window_s: float | None, problems: Problems
) -> Iterator[windows.Window]:
    group: list[MicroBatch] = []
    start, before = 0.0, None
    for batch in batches:
        follows = before is not None and batch.number == before.number + 1
        if group and (not follows or batch.sizes != group[0].sizes):
            yield _window(group, start, names, topology)
            group = []
        if before is None or not follows:
            start = batch.began  # the time since the last batch is unknown
        elif not group:
            start = before.ended
        if before is not None and batch.number == before.number:
            problems.count("second run of a batch", batch.where)
        group.append(batch)
        if window_s is None or batch.ended - start >= window_s:
            yield _window(group, start, names, topology)
            group = []
        before = batch
    if group:
        yield _window(group, start, names, topology)


def _window(group: list[MicroBatch], start: float, names: Sequence[str], topology: Topology) -> windows.Window:
    w = group[-1].ended - start
    made = windows.Window(start, group[-1].ended, group[-1].where)
    readings: dict[str, dict[str, float]] = {}
    if not w > 0:
        return made
    for i, name in enumerate(names):
        runs = [batch.stages[i] for batch in group]
        reading = {
            "processing_rate": sum(run.received for run in runs) / w,
            "busy": sum(run.run_s - run.wait_s for run in runs) / w,
            "cpu": sum(run.cpu_s for run in runs) / w,
        }
        sent = sum(run.shuffled if topology.downstream(name) else run.wrote for run in runs) / w
        if sent > 0 or topology.downstream(name):
            reading["output_rate"] = sent
        if name in topology.sources and len(topology.sources) == 1 and group[-1].backlog is not None:
            reading["backlog"] = group[-1].backlog
        readings[name] = reading
    weights = [sum(stage.received + stage.shuffled for stage in batch.stages[:1]) for batch in group]
    made.readings, made.parallelism = readings, dict(zip(names, group[0].sizes, strict=True))
    made.commit_s = sum(max(0.0, b.lasted - b.phases.get("addBatch", b.lasted)) for b in group)
    made.latency = batch_latency([batch.lasted for batch in group], weights)
    return made
