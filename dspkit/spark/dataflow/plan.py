"""The plan of a job: the line of stages that Spark runs, from a topology and its functions, checked before the start.

Operators that are SQL or DataFrame expressions are evaluated by Spark on whole frames, in Java (`Select.java`). The
task's Python gets a frame of the results, sends them on and keeps the meter, as for any operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import Topology, TopologyError, WorkloadError
from ...workload import Workload
from ..dead_letters import with_error
from ..errors import SchemaError
from ..event_time import EventTime, check_time
from ..functions import GROUPS, Function, arrow, same
from ..metering import MeterAddress
from ..sinks.sink import Sink, check_schema
from ..sources.log import LogSource
from ..sources.trace import TraceSource
from .checkpoint import LATENESS
from .exchange import check_key
from .state import check_value
from .task import GROWTH_BYTES, Output, Stage
from .watermarks import TIMERS

if TYPE_CHECKING:
    import pyarrow as pa

Source = TraceSource | LogSource


def order(topology: Topology) -> tuple[str, ...]:
    """Return the sources, which run side by side, then each operator after all that it reads from."""
    return (*topology.sources, *(name for name in topology.order if name not in topology.sources))


def logs(topology: Topology, sources: Any) -> dict[str, Source]:
    """Return a log for each source; one load for all is shared equally."""
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


def functions(
    topology: Topology,
    given: Mapping[str, Any],
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink] | None = None,
) -> dict[str, Function]:
    """Return a function for each operator; a source without one forwards its log, an operator with a sink its input."""
    sinks = sinks or {}
    whole: dict[str, Any] = {name: arrow(same, source.schema) for name, source in sources.items()} | dict(given)
    for name, source in sources.items():
        if isinstance(time := whole.get(name), EventTime):
            whole[name] = arrow(same, time.sends(source.schema), event_time=time)
    for name in (name for name in sinks if name not in whole and name in topology.order):
        known = {each for each, function in whole.items() if isinstance(function, Function)}
        sent = [
            _sent(topology, whole, sources, sender, name) if {sender, *topology.upstream(sender)} <= known else None
            for sender in topology.upstream(name)
        ]
        if any(schema != sent[0] for schema in sent[1:]):
            raise SchemaError(
                f"different columns from {', '.join(topology.upstream(name))} to {name!r}, which forwards its input",
                expected="the same from each sender",
                fix=f"pass a function for {name!r}, or give each sender a sink of its own",
            )
        whole[name] = arrow(same, sent[0])
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
        if function.on_error and (name in sources or function.on_error not in topology.downstream(name)):
            raise TopologyError(
                f"dead letters of {name!r} for {function.on_error!r}",
                expected=f"an operator behind a source, and one of its receivers, {topology.downstream(name)}",
                fix=f"add the edge ({name!r}, {function.on_error!r}), and let sources only forward",
            )
        if _receivers(topology, function, name) and function.schema is None:
            raise SchemaError(
                f"no schema for {name!r}, which sends to {', '.join(topology.downstream(name))}",
                expected="the columns it sends",
                fix=f"as in {name!r}: arrow(my_function, 'word string')",
            )
    sends = {edge: _sent(topology, whole, sources, *edge) for edge in topology.edges}
    for name, function in whole.items():
        _keyed(topology, name, function, sends)
        _queried(topology, name, function, sends)
        _timed(topology, name, whole, sources, sends)
    _check_sinks(topology, sinks, whole)
    return whole


def _check_sinks(topology: Topology, sinks: Mapping[str, Sink], whole: Mapping[str, Function]) -> None:
    for name, sink in sinks.items():
        if not isinstance(sink, Sink) or name not in topology.order or _receivers(topology, whole[name], name):
            raise TopologyError(
                f"{sink!r} as the sink of {name!r}",
                expected="a ParquetSink, SqlSink, TableSink or another Sink, for an operator at the end of the graph: "
                + ", ".join(repr(each) for each in topology.order if not topology.downstream(each)),
                fix="as in sinks={'count': ParquetSink('counts')}",
            )
        if (schema := whole[name].schema) is None:
            raise SchemaError(
                f"no schema for {name!r}, whose rows go to a sink",
                expected="the columns it sends",
                fix=f"as in {name!r}: arrow(my_function, 'word string')",
            )
        check_schema(schema, name)
        sink.check_schema(schema)


def _receivers(topology: Topology, function: Function, name: str) -> list[str]:
    """Return the receivers of what the function yields, without those of late records and dead letters."""
    return [each for each in topology.downstream(name) if each not in (function.late, function.on_error)]


def _sent(
    topology: Topology, whole: Mapping[str, Function], sources: Mapping[str, Source], sender: str, receiver: str
) -> pa.Schema | None:
    """Return the columns that one operator sends to another: its output, or its input with late or dead records."""
    function = whole[sender]
    if receiver not in (function.late, function.on_error):
        return function.schema
    if sender in sources:
        return sources[sender].schema
    columns = [_sent(topology, whole, sources, each, sender) for each in topology.upstream(sender)]
    if any(each != columns[0] for each in columns):
        raise SchemaError(
            f"late or dead records of {sender!r} for {receiver!r}, with different columns from "
            f"{', '.join(topology.upstream(sender))}",
            expected="the same columns from each sender",
            fix="leave their receiver out, or send the same columns",
        )
    if receiver == function.late or columns[0] is None:
        return columns[0]
    return with_error(columns[0], sender)


def event_timed(topology: Topology, whole: Mapping[str, Function]) -> frozenset[str]:
    """Return the operators that know the event time: all of the sources before them have one."""
    found: set[str] = set()
    for name in order(topology):
        upstream = topology.upstream(name)
        if whole[name].event_time is not None if not upstream else found.issuperset(upstream):
            found.add(name)
    return frozenset(found)


def lateness_s(topology: Topology, whole: Mapping[str, Function], name: str) -> float:
    """Return how late records may be that reach an operator and still count."""
    if (time := whole[name].event_time) is not None:
        return time.lateness_s
    return max((lateness_s(topology, whole, sender) for sender in topology.upstream(name)), default=0.0)


def _results_of(topology: Topology, whole: Mapping[str, Function], name: str) -> list[str]:
    """Return the windowed operators whose results reach an operator."""
    senders = [each for each in topology.upstream(name) if name in _receivers(topology, whole[each], each)]
    found = dict.fromkeys(each for sender in senders for each in _results_of(topology, whole, sender))
    return [*found, *(each for each in senders if whole[each].windows and each not in found)]


def _timed(
    topology: Topology,
    name: str,
    whole: Mapping[str, Function],
    sources: Mapping[str, Source],
    sends: Mapping[tuple[str, str], pa.Schema | None],
) -> None:
    function = whole[name]
    if (time := function.event_time) is not None:
        if name not in sources:
            raise TopologyError(
                f"the event time of {name!r}", expected="that of a source", fix=f"give it to {topology.sources}"
            )
        columns = sources[name].schema
        time.sends(columns)
        if isinstance(time.time, str):
            _check_column(time.time, columns, f"the log of {name!r}")
    if function.late and function.late not in topology.downstream(name):
        raise TopologyError(
            f"late records of {name!r} for {function.late!r}",
            expected=f"one of its receivers, {topology.downstream(name)}",
            fix=f"add the edge ({name!r}, {function.late!r})",
        )
    if not function.timer:
        return
    if name not in event_timed(topology, whole):
        without = [source for source in topology.sources if whole[source].event_time is None]
        raise TopologyError(
            f"{name!r}, which works by event time, behind sources without one ({', '.join(without)})",
            expected="an event time of each source before it",
            fix=f"as in functions={{{without[0]!r}: EventTime('at_s', delay_s=2.0)}}",
        )
    if TIMERS in topology.upstream(name):
        raise TopologyError(
            f"an operator {TIMERS!r} before {name!r}", expected="another name", fix="rename it: so timers are called"
        )
    earlier = _results_of(topology, whole, name) if function.windows else []
    if earlier and lateness_s(topology, whole, name) > 0:
        raise TopologyError(
            f"{name!r}, whose windows are of results of {', '.join(map(repr, earlier))}, with a lateness_s of "
            f"{lateness_s(topology, whole, name)} at a source",
            expected="no lateness_s: results would be corrected, and a correction counts beside what it corrects",
            fix="leave lateness_s out and raise delay_s; or use keyed(), and keep the last result of each window",
        )
    for sender in topology.upstream(name):
        for column in function.times:
            _check_column(column, sends[sender, name], f"the records from {sender!r} to {name!r}")


def _check_column(column: str, columns: pa.Schema | None, what: str) -> None:
    if columns is None or column not in columns.names:
        raise SchemaError(
            f"the event time {column!r} in {what}",
            expected=f"one of its columns, {columns.names if columns else []}",
            fix="send it, or name another",
        )
    check_time(columns.field(column).type, what)


def _queried(
    topology: Topology, name: str, function: Function, sends: Mapping[tuple[str, str], pa.Schema | None]
) -> None:
    if function.query is None:
        return
    if not topology.upstream(name):
        raise TopologyError(f"a query for the source {name!r}", expected="a function", fix="add an operator behind it")
    if len({sends[sender, name] for sender in topology.upstream(name)}) > 1:
        raise SchemaError(
            f"different columns from {', '.join(topology.upstream(name))} to the query of {name!r}",
            expected="the same from each sender",
            fix="give each sender a query of its own, or use arrow()",
        )


def _keyed(
    topology: Topology, name: str, function: Function, sends: Mapping[tuple[str, str], pa.Schema | None]
) -> None:
    if not function.key:
        return
    if not topology.upstream(name):
        raise TopologyError(
            f"a keyed function for the source {name!r}", expected="one without state", fix="add an operator behind it"
        )
    assert function.value is not None
    check_value(function.value, name)
    for key in function.keys:
        kinds = {}
        for sender in topology.upstream(name):
            schema = sends[sender, name]
            if schema is None or key not in schema.names:
                raise SchemaError(
                    f"{sender!r} sends {schema.names if schema else 'nothing'} to {name!r}",
                    expected=f"the key {key!r} among them",
                    fix="send it as well, or choose another key",
                )
            kinds[sender] = schema.field(key).type
            check_key(key, kinds[sender], name)
            _check_parted(schema, name)
        if len(set(kinds.values())) > 1:
            named = {sender: str(kind) for sender, kind in kinds.items()}
            raise SchemaError(
                f"key {key!r} of types {named} at {name!r}", expected="one type", fix="cast the key before it is sent"
            )


def _check_parted(columns: pa.Schema, name: str) -> None:
    """Raise an error if Arrow cannot select the records of single keys, as an edge to a keyed operator does."""
    import pyarrow as pa

    for field in columns:
        try:
            pa.array([], field.type).take(pa.array([], pa.int64()))
        except pa.ArrowException:
            raise SchemaError(
                f"column {field.name!r} of {field.type} for the keyed operator {name!r}",
                expected="a type of which Arrow selects single values",
                fix="cast it before it is sent, as string_view to string",
            ) from None


def stages(
    topology: Topology,
    code: Mapping[str, Function],
    sources: Mapping[str, Source],
    folder: Path,
    meter: MeterAddress,
    sinks: Mapping[str, Sink] | None = None,
) -> list[Stage]:
    """Return the stages of the job, in the order of `order`."""
    names = order(topology)
    at = {name: i for i, name in enumerate(names)}
    timed = event_timed(topology, code)
    made = []
    for i, name in enumerate(names):
        inputs = {at[u]: (u, _sent(topology, code, sources, u, name)) for u in topology.upstream(name)}
        outputs = tuple(
            Output(
                at[v],
                v,
                code[v].key,
                timed=v in timed,
                late=_sent(topology, code, sources, name, v) if v in (code[name].late, code[name].on_error) else None,
            )
            for v in topology.downstream(name)
        )
        passes = name not in topology.sources and any(at[u] < i < at[v] for u, v in topology.edges)
        function = replace(code[name], query=True) if code[name].query else code[name]  # the driver keeps the query
        sink = sinks[name].for_tasks() if sinks and name in sinks else None
        made.append(
            Stage(
                *(i, name, function, inputs, outputs, sources.get(name), folder, meter, passes, sink),
                growth_bytes=GROWTH_BYTES,
                timed=name in timed,
                lateness=round(lateness_s(topology, code, name) * 1e6),
            )
        )
    return made


def identity(
    topology: Topology,
    code: Mapping[str, Function],
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink] | None = None,
) -> dict[str, Any]:
    """Return the properties that must be equal for a checkpoint to fit, and the lateness, which must not grow."""
    names = order(topology)
    times = {name: time.described for name in names if (time := code[name].event_time) is not None}
    timers = [name for name in names if code[name].timer]
    windows = {name: code[name].windows for name in timers if code[name].windows}
    more: dict[str, Any] = {"event times": times, "timers": timers, "windows": windows} if times else {}
    if windows:
        more[LATENESS] = {name: lateness_s(topology, code, name) for name in windows}
    return more | {
        "operators": list(names),
        "edges": sorted(map(list, topology.edges)),
        "sends": {
            name: ", ".join(f"{column.name} {column.type}" for column in code[name].schema or ()) for name in names
        },
        "stateful": [name for name in names if code[name].stateful],
        "keys": {name: [code[name].key, str(code[name].value)] for name in names if code[name].stateful},
        "sinks": [name for name in names if name in (sinks or {})],
        "partitions": {name: source.partitions for name, source in sources.items()},
        "logs": {name: source.log for name, source in sources.items() if isinstance(source, LogSource)},
        "key groups": GROUPS,
    }


def register_query(
    spark: Any, name: str, operator: str, query: Any, input_schema: pa.Schema, output_schema: pa.Schema
) -> None:
    """Register the query in this session as a function `name` of a frame with records of `input_schema`."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    for field in (*input_schema, *output_schema):
        _check_query_column(field, operator)
    columns = from_arrow_schema(input_schema)
    try:
        rows = spark.createDataFrame(spark.sparkContext.emptyRDD(), columns)
        if callable(query):
            made = query(rows)
        else:
            rows.createOrReplaceTempView("input")
            made = spark.sql(query)
        if not isinstance(made, DataFrame):
            raise SchemaError(f"{made!r} from the query of {operator!r}", expected="a DataFrame", fix="return one")
        given = to_arrow_schema(made.schema, timezone="UTC")
        if [(f.name, f.type) for f in given] != [(f.name, f.type) for f in output_schema]:
            declared = ", ".join(f"{field.name} {field.type}" for field in output_schema)
            raise SchemaError(
                f"a query of {operator!r} that gives {made.schema.simpleString()}",
                expected=f"its schema: {declared}",
                fix="change the query or the schema; CAST(x AS BIGINT) gives int64, TIMESTAMP timestamp[us, tz=UTC]",
            )
        jvm = spark.sparkContext._jvm
        jvm.dspkit.Select.register(spark._jsparkSession, name, operator, rows._jdf.schema(), made._jdf)
    except PySparkException as error:
        raise _refused_query(operator, str(error)) from error
    except Py4JJavaError as error:
        raise _refused_query(operator, str(error.java_exception.getMessage())) from error


def _check_query_column(field: pa.Field, operator: str) -> None:
    """Raise an error if Java takes the values of a column for something else, as milliseconds for microseconds."""
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    zone = getattr(field.type, "tz", None) or "UTC"
    try:
        read = None if pa.types.is_time(field.type) else to_arrow_type(from_arrow_type(field.type), timezone=zone)
    except PySparkException:
        read = None
    if read != field.type:
        raise SchemaError(
            f"column {field.name!r} of {field.type} in the query of {operator!r}",
            expected="a type that Spark's SQL holds as it is: bool, int8 to int64, float32, float64, decimal128, "
            "string, binary, date32, timestamp[us], duration[us], or lists, structs and maps of these",
            fix="cast it in an arrow() operator in front of the query, or behind it",
        )


def _refused_query(operator: str, what: str) -> SchemaError:
    return SchemaError(
        f"the query of {operator!r}: {what.splitlines()[0]:.300}",
        expected="SELECT ... FROM input WHERE ..., of one record at a time, over the columns of the input",
        fix="do the rest in a keyed() or arrow() operator behind it",
    )
