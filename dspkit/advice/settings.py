"""The settings that make an engine run a recommended deployment: Flink, Spark, Storm, or a dspkit backend."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ..core import Deployment, History, Topology
from ..core.validation import choice

ENGINES = ("flink", "spark", "storm", "dspkit")
_VERTEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine, to paste, with notes on their preconditions.

    Parameters
    ----------
    engine : str
        The engine.
    language : str
        Language of the code: "yaml", "sh", "conf" or "python".
    code : str
        The settings.
    notes : tuple of str
        Preconditions and consequences.

    Examples
    --------
    >>> print(EngineSettings("spark", "conf", "spark.executor.cores  4", ("restart the query",)))
    spark.executor.cores  4
    # restart the query
    """

    engine: str
    language: str
    code: str
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the code with the notes as comments; a name with a line break must not leave its comment."""
        return "\n".join([self.code, *(f"# {' '.join(note.splitlines())}" for note in self.notes)])


def engine_of(history: History, engine: str | None = None) -> str:
    """Return the requested engine, or the one the recording names; "dspkit" otherwise."""
    if engine is not None:
        return choice(engine, "engine", ENGINES, fix="choose one, or leave it out")
    for key in ("engine", "loader"):
        told = str(history.about.get(key, "")).lower()
        for name in ENGINES[:3]:
            if name in told:
                return name
    return "dspkit"


def settings(
    topology: Topology,
    current: Deployment,
    target: Deployment,
    engine: str,
    *,
    execution: str = "pipelined",
    vertices: Mapping[str, str] | None = None,
) -> EngineSettings:
    """Return the settings; `vertices` are Flink's ids of the operators, where they differ from their names."""
    if engine == "flink":
        return _flink(topology, target, vertices or {})
    if engine == "storm":
        return _storm(current, target)
    if engine == "spark":
        return _spark(topology, target, execution)
    return _dspkit(current, target)


def _flink(topology: Topology, target: Deployment, vertices: Mapping[str, str]) -> EngineSettings:
    ids = {n: vertices.get(n, n if _VERTEX.fullmatch(n) else "") for n in topology.order}
    keys = {n: ids[n] or f"<id of {n}>" for n in topology.order}
    pairs = ",".join(f"{keys[n]}:{target.parallelism[n]}" for n in topology.order)
    notes = ["restarts the job, or rescales it in place with jobmanager.scheduler: adaptive (Flink 1.18 and later)"]
    if unknown := [n for n in topology.order if not ids[n]]:
        notes.append(f"put the vertex ids of {', '.join(unknown)} in: /jobs/<job> of the REST API has them")
    return EngineSettings(
        "flink", "yaml", f"pipeline.jobvertex-parallelism-overrides: {json.dumps(pairs)}", tuple(notes)
    )


def _storm(now: Deployment, target: Deployment) -> EngineSettings:
    words = ["storm", "rebalance", "TOPOLOGY"]
    if target.workers is not None:
        words += ["-n", str(target.workers)]
    changed = {n: k for n, k in target.parallelism.items() if k != now.parallelism.get(n)}
    for name, k in changed.items():
        words += ["-e", f"{name}={k}"]
    notes = ["executors never outnumber an operator's tasks: to go beyond, submit the topology again with setNumTasks"]
    return EngineSettings("storm", "sh", shlex.join(words), tuple(notes if changed else ["nothing to change"]))


def _spark(topology: Topology, target: Deployment, execution: str) -> EngineSettings:
    k = target.parallelism
    shuffled = {n: k[n] for n in topology.order if topology.upstream(n)}
    read = {n: k[n] for n in topology.sources}
    slots = max(k.values()) if execution == "micro-batch" else sum(k.values())
    lines = []
    notes = []
    if shuffled:
        most = max(shuffled.values())
        lines.append(f"spark.sql.shuffle.partitions  {most}")
        if len(set(shuffled.values())) > 1:
            each = ", ".join(f"{n} {v}" for n, v in shuffled.items())
            notes.append(
                f"one number for all shuffles; a stage of another width needs a repartition(n) before it: {each}"
            )
        notes.append(
            "a stateful query keeps the number of its checkpoint: dspkit.spark.attach(query).tasks(k) runs it in fewer "
            "tasks at once; for another number stop it and repartition the checkpoint (Spark 4.2 and later), or "
            "start from a new one (before 4.2)"
        )
    lines.append(f"spark.executor.instances      {math.ceil(slots / 4)}")
    lines.append("spark.executor.cores          4")
    notes.append(f"{slots} slots are needed: executors times cores, in any split")
    if read:
        each = ", ".join(f"{n} {v}" for n, v in read.items())
        notes.append(f"tasks that read follow the source's partitions (Kafka: option minPartitions): {each}")
    notes.append(f"a dspkit SparkJob: job.deploy(replace(job.deployment, parallelism={dict(k)!r}))")
    return EngineSettings("spark", "conf", "\n".join(lines), tuple(notes))


def _dspkit(now: Deployment, target: Deployment) -> EngineSettings:
    parts = [f"parallelism={dict(target.parallelism)!r}"]
    if target.workers != now.workers:
        parts.append(f"workers={target.workers}")
    note = "and its placement, as advice[...].deployment has it" if target.placement != now.placement else ""
    code = f"backend.deploy(replace(backend.deployment, {', '.join(parts)}))"
    return EngineSettings("dspkit", "python", code, (note,) if note else ())
