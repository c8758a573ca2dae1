"""The physical plan of a running query as a graph of operators: what lies between two exchanges is one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ...core import Operator, Topology
from .observation import StageRun

NAMES = {  # an operator is named after these nodes; the others move rows from one to the next
    "StateStoreSave": "aggregate",
    "StreamingSymmetricHashJoin": "join",
    "StreamingDeduplicate": "dedupe",
    "StreamingDeduplicateWithinWatermark": "dedupe",
    "TransformWithStateInPySpark": "transform",
    "TransformWithState": "transform",
    "FlatMapGroupsInPandasWithState": "apply",
    "FlatMapGroupsWithState": "apply",
    "SessionWindowStateStoreSave": "session",
    "StreamingGlobalLimit": "limit",
    "MapInArrow": "map",
    "MapInPandas": "map",
    "PythonMapInArrow": "map",
    "ArrowEvalPython": "udf",
    "BatchEvalPython": "udf",
    "Generate": "explode",
    "MicroBatchScan": "read",
    "RealTimeStreamScan": "read",
}
STATEFUL = frozenset({"aggregate", "join", "dedupe", "transform", "apply", "session", "limit"})


@dataclass
class PlanStage:
    """One stage of the plan, from an exchange (or a source) to the next exchange (or the sink)."""

    name: str = ""
    nodes: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    partitions: int | None = None  # of the exchange that it reads; None: the source decides

    @property
    def stateful(self) -> bool:
        """True if one of its nodes keeps state."""
        return any(NAMES.get(node) in STATEFUL for node in self.nodes)


def plan_stages(executed_plan: Any) -> list[PlanStage]:
    """Return the stages of a physical plan (a Java object, or one with the same methods), from the sources on."""
    found: list[PlanStage] = []
    last = PlanStage()
    _visit(executed_plan, last, found)
    _name(last, found)
    return found


def _children(node: Any) -> list[Any]:
    kids = node.children()
    return [kids.apply(i) for i in range(kids.size())]


def _visit(node: Any, stage: PlanStage, found: list[PlanStage]) -> None:
    name = str(node.nodeName())
    if name == "AdaptiveSparkPlan":
        _visit(node.executedPlan(), stage, found)
        return
    if name.startswith("ShuffleQueryStage"):
        _visit(node.plan(), stage, found)
        return
    if name == "Exchange":
        before = PlanStage()
        stage.partitions = int(node.outputPartitioning().numPartitions())
        _visit(_children(node)[0], before, found)
        _name(before, found)
        stage.inputs.append(before.name)
        return
    stage.nodes.append(name)
    for child in _children(node):
        _visit(child, stage, found)


def _name(stage: PlanStage, found: list[PlanStage]) -> None:
    words = [NAMES[n] for n in reversed(stage.nodes) if n in NAMES]
    called = "+".join(dict.fromkeys(words)) or ("work" if stage.inputs else "read")
    taken = {s.name for s in found}
    stage.name = next(n for i in count(1) if (n := called if i == 1 else f"{called}_{i}") not in taken)
    found.append(stage)


def topology_of(stages: Sequence[PlanStage], most: int) -> Topology:
    """Return the stages as operators of a topology, each with at most `most` instances."""
    edges = tuple(dict.fromkeys((i, s.name) for s in stages for i in s.inputs))
    return Topology(tuple(Operator(s.name, max(1, most), stateful=s.stateful) for s in stages), edges)


def join_stages(stages: Sequence[PlanStage], runs: Sequence[StageRun], drawn: Sequence[Sequence[str]] = ()) -> bool:
    """Write into each run the name of its operator; return False where they do not match.

    Without a branch, stages run in the order of the plan. At joins they do not: there the nodes that Spark draws for
    each stage (`drawn`), with the numbers of their generated code, tell which is which.

    Parameters
    ----------
    stages : sequence of PlanStage
        The plan, from the sources on.
    runs : sequence of StageRun
        The stages that Spark ran, in the order of their ids.
    drawn : sequence of sequences of str
        Nodes that Spark draws for each run.

    Examples
    --------
    >>> plan = [PlanStage("read"), PlanStage("count", inputs=["read"])]
    >>> runs = [StageRun(7, 2), StageRun(8, 4)]
    >>> join_stages(plan, runs), [run.operator for run in runs]
    (True, ['read', 'count'])
    """
    if len(stages) != len(runs):
        return False
    branches = any(len(s.inputs) > 1 for s in stages)
    if not branches:
        for stage, run in zip(stages, runs, strict=True):
            run.operator = stage.name
        return True
    if len(drawn) != len(runs):
        return False
    left = list(stages)
    for run, names in sorted(zip(runs, drawn, strict=True), key=lambda pair: -len(pair[1])):
        marks = set(names)
        fits = [len(marks & set(s.nodes)) / max(1, len(marks | set(s.nodes))) for s in left]
        best = max(range(len(left)), key=lambda i: fits[i])
        if fits.count(fits[best]) > 1 or not fits[best]:
            return False  # two stages that look the same
        run.operator = left.pop(best).name
    return True
