"""From a topology and its functions to the line of stages that Spark runs; what does not fit is said before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core import Topology
from ..errors import DeploymentError, TopologyError, WorkloadError
from ..structure import Deployment
from ..workload import Workload
from .errors import SchemaError
from .functions import GROUPS, Function, arrow, same
from .source import TraceSource
from .source_log import LogSource
from .task import Output, Stage

Source = TraceSource | LogSource

_UNTOUCHED = {
    "workers": "start the job on a SparkCluster, whose workers come and go",
    "placement": "Spark places tasks itself; of a policy that names machines: places='no'",
    "settings": "leave them as they are",
}


def order(topology: Topology) -> tuple[str, ...]:
    """The sources, which run beside each other, then each operator after all it reads from."""
    return (*topology.sources, *(name for name in topology.order if name not in topology.sources))


def logs(topology: Topology, sources: Any) -> dict[str, Source]:
    """A log for each source; one load for all is shared equally."""
    names = topology.sources
    if isinstance(sources, Workload):
        sources = {name: TraceSource(sources * (1 / len(names)) if len(names) > 1 else sources) for name in names}
    elif not isinstance(sources, Mapping):
        sources = dict.fromkeys(names, sources) if len(names) == 1 else {}
    made = {name: TraceSource(s) if isinstance(s, Workload) else s for name, s in sources.items()}
    wrong = [s for s in made.values() if not isinstance(s, (TraceSource, LogSource))]
    if set(made) != set(names) or wrong:
        raise WorkloadError(
            f"sources for {sorted(made)}{f' with {wrong[0]!r}' if wrong else ''}",
            expected=f"a source or a Workload for each of {sorted(names)}",
            fix="name each source, as in {'read': TraceSource(Constant(500))}",
        )
    return made


def functions(topology: Topology, given: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Function]:
    """A function for each operator; a source without one hands on what its log says."""
    whole: dict[str, Any] = {name: arrow(same, source.schema) for name, source in sources.items()} | dict(given)
    if set(whole) != set(topology.order):
        missing, unknown = sorted(set(topology.order) - set(whole)), sorted(set(whole) - set(topology.order))
        raise TopologyError(
            f"functions that miss {missing} and add {unknown}",
            expected=f"one for each of {sorted(set(topology.order) - set(topology.sources))}",
            fix="pass functions={'split': arrow(split, 'word string'), ...}",
        )
    for name, function in whole.items():
        if not isinstance(function, Function):
            raise TopologyError(
                f"{function!r} as the function of {name!r}",
                expected="one made with arrow(), frame(), keyed(), sql() or dataframe()",
                fix=f"as in {name!r}: arrow(my_function, 'word string')",
            )
        if topology.downstream(name) and function.schema is None:
            raise SchemaError(
                f"no schema for {name!r}, which sends to {', '.join(topology.downstream(name))}",
                expected="the columns it sends",
                fix=f"as in {name!r}: arrow(my_function, 'word string')",
            )
        _keyed(topology, name, function, whole)
        _queried(topology, name, function, whole)
    return whole


def _queried(topology: Topology, name: str, function: Function, whole: Mapping[str, Function]) -> None:
    if function.query is None:
        return
    if not topology.upstream(name):
        raise TopologyError(f"a query for the source {name!r}", expected="a function", fix="add an operator behind it")
    if len({whole[sender].schema for sender in topology.upstream(name)}) > 1:
        raise SchemaError(
            f"different columns from {', '.join(topology.upstream(name))} to the query of {name!r}",
            expected="the same from each sender",
            fix="give each sender a query of its own, or use arrow()",
        )


def _keyed(topology: Topology, name: str, function: Function, whole: Mapping[str, Function]) -> None:
    if not function.key:
        return
    if not topology.upstream(name):
        raise TopologyError(
            f"a keyed function for the source {name!r}", expected="one without state", fix="add an operator behind it"
        )
    types = {}
    for sender in topology.upstream(name):
        schema = whole[sender].schema
        if schema is None or function.key not in schema.names:
            raise SchemaError(
                f"{sender!r} sends {schema.names if schema else 'nothing'} to {name!r}",
                expected=f"the key {function.key!r} among them",
                fix="send it as well, or choose another key",
            )
        types[sender] = schema.field(function.key).type
    if len(set(types.values())) > 1:
        raise SchemaError(f"keys {types} at {name!r}", expected="one type", fix="cast the key before it is sent")


def stages(
    topology: Topology,
    code: Mapping[str, Function],
    sources: Mapping[str, Source],
    job: str,
    folder: Path,
    meter: tuple[str, int],
) -> list[Stage]:
    names = order(topology)
    at = {name: i for i, name in enumerate(names)}
    made = []
    for i, name in enumerate(names):
        inputs = {at[u]: (u, code[u].schema) for u in topology.upstream(name)}
        outputs = tuple(Output(at[v], v, code[v].key) for v in topology.downstream(name))
        passes = name not in topology.sources and any(at[u] < i < at[v] for u, v in topology.edges)
        function = (
            replace(code[name], query=True) if code[name].query else code[name]
        )  # the query stays with the driver
        made.append(Stage(job, i, name, function, inputs, outputs, sources.get(name), folder, meter, passes))
    return made


def identity(topology: Topology, code: Mapping[str, Function], sources: Mapping[str, Source]) -> dict[str, Any]:
    """What must be the same for a checkpoint to fit."""
    names = order(topology)
    return {
        "operators": list(names),
        "edges": sorted(map(list, topology.edges)),
        "sends": {
            name: ", ".join(f"{column.name} {column.type}" for column in code[name].schema or ()) for name in names
        },
        "stateful": [name for name in names if code[name].stateful],
        "keys": {name: [code[name].key, str(code[name].value)] for name in names if code[name].stateful},
        "partitions": {name: source.partitions for name, source in sources.items()},
        "logs": {name: source.log for name, source in sources.items() if isinstance(source, LogSource)},
        "key groups": GROUPS,
    }


def check(
    topology: Topology,
    code: Mapping[str, Function],
    sources: Mapping[str, Source],
    deployment: Deployment,
    slots: int,
    law: str,
    knobs: frozenset[str],
) -> Deployment:
    """`deployment`, if Spark can run it, or what stands in the way."""
    k = topology.check(deployment).parallelism
    for name in {"workers", "placement", "settings"} - knobs:
        if getattr(deployment, name) != getattr(Deployment(k), name):
            raise DeploymentError(
                f"another {name}", expected=f"a change of {' or '.join(sorted(knobs))}", fix=_UNTOUCHED[name]
            )
    for name, source in sources.items():
        if k[name] > source.partitions:
            raise DeploymentError(
                f"{k[name]} instances of source {name!r}",
                expected=f"at most its log's {source.partitions} partitions",
                fix="give the source more partitions, or the operator a lower max_parallelism",
            )
    for name, function in code.items():
        if function.stateful and k[name] > GROUPS:
            raise DeploymentError(
                f"{k[name]} instances of {name!r}", expected=f"at most {GROUPS} key groups", fix="lower it"
            )
    needed = sum(k.values()) if law == "pipeline" else max(k.values())
    if needed > slots:
        raise DeploymentError(
            f"parallelism {dict(k)}, which needs {needed} slots at once",
            expected=f"at most the {slots} that there are",
            fix=f"lower it, or have more: master='local[{needed}]', or more workers",
        )
    return deployment
