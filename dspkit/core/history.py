"""The recorded run: a list of Steps, with data frames, a readable summary, and a Parquet file.

The file has one row per step, with nested parts as Arrow structs; nothing is pickled. Fields of Step, Snapshot,
OperatorMetrics and Latency that hold one number, word or flag are stored without being listed here. A field that an
older file lacks takes its default, so a new field needs a default but no new file format.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints, overload

from . import files, untrusted
from .errors import ArgumentError, DspkitError, FileError, visible
from .lazy import load
from .metrics import InstanceMetrics, Latency, OperatorMetrics, Snapshot
from .policy import Decision, Step, changes, why_text
from .recovery import Recovery, recoveries
from .topology import Deployment, Operator, Topology
from .validation import FrozenMap, mapping, plain

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


THEN = ", then "  # joins the policies of a run in which a person changed the policy
_METRICS = [f.name for f in fields(OperatorMetrics) if f.name != "instances"]
_BATCH = 256  # rows of a file that are read at a time


class History(Sequence[Step]):
    """The steps of one run, with the topology and with metadata: policy, backend, seed and others.

    Parameters
    ----------
    topology : Topology
        The operators of the job.
    steps : iterable of Step
        The steps recorded so far.
    about : mapping, optional
        Metadata of the run.
    notes : iterable of (float, str)
        Manual changes: time in seconds, and a description.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> history = run("static", apps.star(), steps=3)
    >>> len(history), history.application.t.tolist()
    (3, [10.0, 20.0, 30.0])
    """

    def __init__(
        self,
        topology: Topology,
        steps: Iterable[Step] = (),
        about: Mapping[str, Any] | None = None,
        notes: Iterable[tuple[float, str]] = (),
    ):

        self.topology = topology
        self.steps = list(steps)
        self.notes = [(float(t), str(what)) for t, what in notes]
        self.set_metadata(about or {})

    def set_metadata(self, about: Mapping[str, Any]) -> None:
        """Replace the metadata of the run.

        Parameters
        ----------
        about : mapping
            Metadata by name.

        Examples
        --------
        >>> history = History(Topology.chain("read", "count"))
        >>> history.set_metadata({"policy": "mine"})
        >>> history.about["policy"]
        'mine'
        """
        self.about: FrozenMap[str, Any] = plain(
            mapping(about, "about", "a mapping of names to values", fix="as in about={'policy': 'ds2'}")
        )

    def append(self, step: Step) -> None:
        """Add a step at the end.

        Parameters
        ----------
        step : Step
            The step that follows the last one.

        Examples
        --------
        >>> from dspkit import apps, run
        >>> history = History(apps.star().topology)
        >>> history.append(run("static", apps.star(), steps=1)[0])
        >>> len(history)
        1
        """
        self.steps.append(step)

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> History: ...
    def __getitem__(self, index: int | slice) -> Step | History:
        if isinstance(index, slice):
            return History(self.topology, self.steps[index], self.about, self.notes)
        return self.steps[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        mine, others = ((h.topology, h.steps, h.about, h.notes) for h in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]  # a history is mutable

    @property
    def application(self) -> pd.DataFrame:
        """One row per window: rates in records/s, latencies in seconds, lag in records."""
        columns = ["t", "window_s", "source_rate", "throughput", "lag", "backlog", "instances", "workers", "downtime_s"]
        columns += [f"{kind}_{part}" for kind in ("latency", "event_latency") for part in ("mean", "p50", "p95", "p99")]
        return _frame(self._application(), [*columns, "decided", "rescaled"]).astype(
            {"decided": bool, "rescaled": bool}
        )

    @property
    def operators(self) -> pd.DataFrame:
        """One row per window and operator: its metrics, the skew of its instances, and its `Snapshot.demand`."""
        rows = (
            {"t": s.snapshot.t, "operator": name, **_numbers(m), "skew": m.skew, "demand": demand.get(name)}
            for s, demand in ((s, s.snapshot.demand) for s in self.steps)
            for name, m in s.snapshot.operators.items()
        )
        return _frame(rows, ["t", "operator", *_METRICS, "skew", "demand"])

    @property
    def instances(self) -> pd.DataFrame:
        """One row per window and instance, of operators whose instances are measured."""
        rows = (
            {"t": s.snapshot.t, "operator": name, "instance": i, **asdict(instance)}
            for s in self.steps
            for name, m in s.snapshot.operators.items()
            for i, instance in enumerate(m.instances or ())
        )
        return _frame(rows, ["t", "operator", "instance", *(f.name for f in fields(InstanceMetrics))])

    @property
    def edges(self) -> pd.DataFrame:
        """One row per window and edge: records/s along it."""
        rows = (
            {"t": s.snapshot.t, "start": u, "end": v, "rate": rate}
            for s in self.steps
            for (u, v), rate in s.snapshot.edge_rates.items()
        )
        return _frame(rows, ["t", "start", "end", "rate"])

    @property
    def recoveries(self) -> pd.DataFrame:
        """One row per change or failure: its downtime, and the time until the former throughput was back."""
        found = (r._asdict() for r in recoveries(s.snapshot for s in self.steps))
        return _frame(found, list(Recovery._fields))

    @property
    def nodes(self) -> pd.DataFrame:
        """One row per window and node: the share of its cores in use."""
        rows = (
            {"t": s.snapshot.t, "node": node, "cpu": cpu} for s in self.steps for node, cpu in s.snapshot.nodes.items()
        )
        return _frame(rows, ["t", "node", "cpu"])

    @property
    def decisions(self) -> pd.DataFrame:
        """One row per decision: a description of the change, and the reasons."""
        rows = (
            {
                "t": s.snapshot.t,
                "rescaled": s.rescaled,
                "changes": changes(s.snapshot.deployment, s.decision.deployment),
                "instances": s.decision.deployment.instances,
                "why": why_text(s.decision.why),
            }
            for s in self.steps
            if s.decision is not None
        )
        return _frame(rows, ["t", "rescaled", "changes", "instances", "why"]).astype({"rescaled": bool})

    def save(self, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
        """Write one Parquet file, which `History.load` reads without loss, and return its path.

        Parameters
        ----------
        path : str or Path, optional
            The file; by default a new one in runs/.
        overwrite : bool
            Whether to replace an existing file.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from dspkit import apps, run
        >>> with TemporaryDirectory() as folder:
        ...     len(History.load(run("static", apps.star(), steps=3).save(f"{folder}/run.parquet")))
        3
        """

        return save_history(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path, *, trusted: bool = False) -> History:
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : str or Path
            The file.
        trusted : bool
            As of `load_history`.

        Examples
        --------
        >>> History.load("no_such_run.parquet")
        Traceback (most recent call last):
        dspkit.core.errors.FileError: got no file no_such_run.parquet; expected a saved run; check the path
        """

        return load_history(path, trusted=trusted)

    def _application(self) -> Iterator[dict[str, Any]]:
        for step in self.steps:
            s = step.snapshot
            row = {name: getattr(s, name) for name in ("t", "window_s", "throughput", "lag", "downtime_s")}
            row |= {"source_rate": s.source_rate, "backlog": sum(m.backlog for m in s.operators.values())}
            row |= {"instances": s.deployment.instances, "workers": s.deployment.workers}
            row |= {"decided": step.decision is not None, "rescaled": step.rescaled}
            for kind in ("latency", "event_latency"):
                if (latency := getattr(s, kind)) is not None:
                    row |= {f"{kind}_{part}": value for part, value in asdict(latency).items()}
            yield row

    def _facts(self) -> list[tuple[str, str]]:
        about = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in self.about.items())
        facts = [(key, value) for key, value in about if "\n" not in value]  # a table has no room for code
        facts.append(("operators", ", ".join(self.topology.order)))
        if self.steps:
            frame, last = self.application, self.steps[-1].snapshot
            if self.notes:
                facts.append(("manual changes", "; ".join(f"t = {t:g} s: {what}" for t, what in self.notes)))
            facts += [
                ("windows", f"{len(self)} of {last.window_s:g} s, up to t = {last.t:g} s"),
                ("rescalings", f"{int(frame.rescaled.sum())}, downtime {frame.downtime_s.sum():g} s"),
                ("input / throughput", f"{frame.source_rate.mean():,.0f} / {frame.throughput.mean():,.0f} records/s"),
                ("lag at the end", f"{last.lag:,.0f} records"),
                ("runs now", ", ".join(f"{n} {k}" for n, k in last.deployment.parallelism.items())),
            ]
            if frame.latency_mean.notna().any():
                facts.insert(-2, ("latency", f"{frame.latency_mean.mean():.3g} s mean"))
        return [(visible(key), visible(value)) for key, value in facts]

    def __repr__(self) -> str:
        return "History\n" + "\n".join(f"  {key:<18} {value}" for key, value in self._facts())

    def _repr_html_(self) -> str:
        from .html import facts

        return facts(self._facts(), left=True)


def _numbers(metrics: OperatorMetrics) -> dict[str, Any]:
    return {name: getattr(metrics, name) for name in _METRICS}


def _frame(rows: Iterable[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=columns)


FORMAT = 1
_LAWS = {"pipeline": "pipelined", "sequential": "micro-batch"}  # values of the column `law` in files from before 0.1
_ARROW = {float: "float64", int: "int64", str: "string", bool: "bool_"}


def save_history(history: History, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Write a History as one Parquet file, and return its path.

    Parameters
    ----------
    history : History
        The run.
    path : str or Path, optional
        The file; by default runs/<time>-<policy>.parquet.
    overwrite : bool
        Whether to replace an existing file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_history(History(Topology.chain("read", "count")), f"{folder}/run.parquet").name
    'run.parquet'
    """
    pa = load("pyarrow", "standard")
    if path is None:
        policy = "".join(c if c.isalnum() else "-" for c in str(history.about.get("policy", "run"))[:24]).strip("-")
        path = files.home("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6:06d}-{policy}.parquet"
    topology = {"operators": [asdict(o) for o in history.topology.operators], "edges": history.topology.edges}
    head = {"format": FORMAT, "topology": topology, "about": history.about, "notes": history.notes}
    try:
        untrusted.check_levels([head, *(step.decision.why for step in history if step.decision)])
        rows = [_row(s) for s in history]
        table = pa.Table.from_pylist(rows, schema=_schema())
        table = table.replace_schema_metadata({"dspkit": json.dumps(head)})
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise FileError(
            f"a run that cannot be stored: {error}",
            expected="names that are text, whole numbers below 2**63",
            fix="correct what the backend or the policy reports",
        ) from error
    parsed = sum(map(_parsed_bytes, rows))
    return files.write_atomically(path, lambda p: untrusted.write_parquet(table, p, parsed), overwrite=overwrite)


def _parsed_bytes(row: dict[str, Any]) -> int:
    """Return an upper estimate of the memory that the JSON of a row takes when it is read."""
    texts = [row["deployment"]["settings"]]
    if decision := row["decision"]:
        texts += [decision["deployment"]["settings"], decision["why"]]
    return sum(map(untrusted.json_memory, texts))


def load_history(path: str | Path, *, trusted: bool = False) -> History:
    """Read a History, or raise a FileError that states the problem of the file.

    Parameters
    ----------
    path : str or Path
        A file that `save_history` wrote.
    trusted : bool
        Whether the file may take any amount of memory; by default it must be in proportion to the size of the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     load_history(save_history(History(Topology.chain("read", "count")), f"{folder}/run.parquet")).topology.order
    ('read', 'count')
    """
    pa = load("pyarrow", "standard")
    fix = "load a file that History.save() wrote"
    head: dict[str, Any] = {}

    def choose(schema: Any, rows: int) -> None:
        head.update(_head(schema))
        _can_read(path, schema, head)

    try:
        with untrusted.parquet(path, expected="a saved run", choose=choose, trusted=trusted) as (file, allowance):
            topology = _topology(head)
            history = History(topology, (), head["about"], head.get("notes", ()))
            for batch in file.iter_batches(min(_BATCH, allowance.rows)):
                allowance.take(untrusted.word_bytes(batch))
                for row in _current(pa.Table.from_batches([batch])).to_pylist():
                    history.append(_step(row, allowance))
            return history
    except untrusted.TooLarge as error:
        raise FileError(
            str(error),
            expected="a run of a size in proportion to its file's",
            fix="pass trusted=True if it comes from a source that you trust",
        ) from None
    except FileError:
        raise
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # Messages of Python and pyarrow may quote the file's bytes.
        reason = f": {visible(str(error))!s:.300}" if isinstance(error, DspkitError) else ""
        raise FileError(f"{path}, not a dspkit run{reason}", expected="a saved run", fix=fix) from error


def _head(schema: pa.Schema) -> dict[str, Any]:
    """Return the metadata of a file, or raise a ValueError, KeyError or TypeError."""
    head = untrusted.parse_json(schema.metadata[b"dspkit"]) if schema.metadata else None
    if not isinstance(head, dict):
        raise TypeError("no mapping")
    return head


def _topology(head: Mapping[str, Any]) -> Topology:
    operators = tuple(Operator(**o) for o in head["topology"]["operators"])
    return Topology(operators, tuple((u, v) for u, v in head["topology"]["edges"]))


def _current(table: pa.Table) -> pa.Table:
    """Return the table with a column `execution` in the place of an older file's `law`."""
    import pyarrow as pa

    at = table.schema.get_field_index("law")
    if at < 0 or "execution" in table.column_names:
        return table
    values = [_LAWS.get(law, law) for law in table.column(at).to_pylist()]
    return table.set_column(at, "execution", pa.array(values, pa.string()))


def _can_read(path: str | Path, schema: pa.Schema, head: dict[str, Any]) -> None:
    if head["format"] != FORMAT:
        raise FileError(f"{path} of format {head['format']!r:.80}", expected=f"format {FORMAT}", fix="update dspkit")
    ours = _schema()
    known = {*_columns(ours), "law", *(f"topology.operators.{f.name}" for f in fields(Operator))}
    found = [*_columns(schema), *(f"topology.operators.{k}" for o in head["topology"]["operators"] for k in o)]
    if unknown := list(dict.fromkeys(visible(name) for name in found if name not in known)):
        raise FileError(
            f"{path} with {', '.join(unknown)!s:.300}",
            expected="only fields that this version of dspkit knows",
            fix="update dspkit, if a newer version wrote the file",
        )
    for field in schema:
        if not _same_kind(field.type, ours.field("execution" if field.name == "law" else field.name).type):
            raise FileError(
                f"{path} with {field.name} of another type",
                expected="a saved run",
                fix="load a file that History.save() wrote",
            )


def _same_kind(found: pa.DataType, ours: pa.DataType) -> bool:
    """Return whether a type is ours, or ours without some fields that an older file lacks."""
    import pyarrow.types as pt

    if pt.is_struct(ours):
        inner = [found.field(i) for i in range(found.num_fields)] if pt.is_struct(found) else []
        once = len({f.name for f in inner}) == len(inner) > 0
        return once and all(_same_kind(f.type, ours.field(f.name).type) for f in inner)
    for is_kind, parts in ((pt.is_map, ("key_type", "item_type")), (pt.is_list, ("value_type",))):
        if is_kind(ours):
            return bool(is_kind(found)) and all(_same_kind(getattr(found, p), getattr(ours, p)) for p in parts)
    return bool(found == ours)


def _columns(parts: Any, prefix: str = "") -> Iterator[str]:
    """Yield the name of each column and of all fields nested in it."""
    import pyarrow.types as pt

    for part in parts:
        name, kind = prefix + part.name, part.type
        yield name
        kind = kind.value_type if pt.is_list(kind) else kind
        if pt.is_struct(kind):
            yield from _columns(kind, f"{name}.")


@lru_cache
def _scalars(cls: type) -> dict[str, pa.DataType]:
    """Return the Arrow type of each field that holds one number, word or flag, optional or not."""
    import pyarrow as pa

    found = {}
    for name, hint in get_type_hints(cls).items():
        kinds = [k for k in (get_args(hint) if isinstance(hint, UnionType) else (hint,)) if k is not NoneType]
        if len(kinds) == 1 and kinds[0] in _ARROW:
            found[name] = getattr(pa, _ARROW[kinds[0]])()
    return found


def _schema() -> pa.Schema:
    import pyarrow as pa

    number, whole, text = pa.float64(), pa.int64(), pa.string()
    latency = pa.struct(_scalars(Latency).items())
    instances = pa.list_(pa.struct(_scalars(InstanceMetrics).items()))
    operator = pa.struct([("name", text), *_scalars(OperatorMetrics).items(), ("instances", instances)])
    place = pa.struct([("operator", text), ("index", whole), ("node", text)])
    deployment = pa.struct(
        [("parallelism", pa.map_(text, whole)), ("workers", whole), ("placement", pa.list_(place)), ("settings", text)]
    )
    return pa.schema(
        [*_scalars(Step).items(), *_scalars(Snapshot).items(), ("deployment", deployment)]
        + [("operators", pa.list_(operator)), ("latency", latency), ("event_latency", latency)]
        + [("source_rates", pa.map_(text, number)), ("nodes", pa.map_(text, number))]
        + [("edge_rates", pa.list_(pa.struct([("start", text), ("end", text), ("rate", number)])))]
        + [("last_selectivities", pa.list_(pa.struct([("start", text), ("end", text), ("selectivity", number)])))]
        + [("delays", pa.list_(pa.struct([("start", text), ("end", text), ("delay_s", number)])))]
        + [("decision", pa.struct([("deployment", deployment), ("why", text)]))]
    )


def _row(step: Step) -> dict[str, Any]:
    s = step.snapshot
    return {
        **{name: getattr(step, name) for name in _scalars(Step)},
        **{name: getattr(s, name) for name in _scalars(Snapshot)},
        "deployment": _pack(s.deployment),
        "operators": [{"name": n, **asdict(m)} for n, m in s.operators.items()],
        "latency": s.latency and asdict(s.latency),
        "event_latency": s.event_latency and asdict(s.event_latency),
        "source_rates": list(s.source_rates.items()),
        "nodes": list(s.nodes.items()),
        "edge_rates": [{"start": u, "end": v, "rate": rate} for (u, v), rate in s.edge_rates.items()],
        "last_selectivities": [
            {"start": u, "end": v, "selectivity": value} for (u, v), value in s.last_selectivities.items()
        ],
        "delays": [{"start": u, "end": v, "delay_s": seconds} for (u, v), seconds in s.delays.items()],
        "decision": step.decision
        and {"deployment": _pack(step.decision.deployment), "why": json.dumps(step.decision.why)},
    }


def _step(row: dict[str, Any], allowance: untrusted.Allowance) -> Step:
    own, decision = {name: row.pop(name) for name in _scalars(Step) if name in row}, row.pop("decision")
    row["deployment"] = _unpack(row["deployment"], allowance)
    row["operators"] = {o.pop("name"): _operator(o) for o in row["operators"]}
    for name in ("latency", "event_latency"):
        row[name] = row[name] and Latency(**row[name])
    row["edge_rates"] = {(e["start"], e["end"]): e["rate"] for e in row["edge_rates"]}
    for name, value in (("last_selectivities", "selectivity"), ("delays", "delay_s")):  # older files have none
        if (given := row.get(name)) is not None:
            row[name] = {(e["start"], e["end"]): e[value] for e in given}
    why = decision and Decision(_unpack(decision["deployment"], allowance), _mapping(decision["why"], "why", allowance))
    return Step(snapshot=Snapshot(**row), decision=why, **own)


def _operator(metrics: dict[str, Any]) -> OperatorMetrics:
    if (instances := metrics.get("instances")) is not None:
        metrics["instances"] = tuple(InstanceMetrics(**each) for each in instances)
    return OperatorMetrics(**metrics)


def _pack(d: Deployment) -> dict[str, Any]:
    return {
        "parallelism": list(d.parallelism.items()),
        "workers": d.workers,
        "placement": [{"operator": n, "index": i, "node": node} for (n, i), node in d.placement.items()],
        "settings": json.dumps(d.settings),
    }


def _mapping(text: str, name: str, allowance: untrusted.Allowance) -> dict[str, Any]:
    """Return the mapping that a JSON text stands for, or raise an error."""
    allowance.take(untrusted.json_memory(text))
    made = untrusted.parse_json(text)
    if not isinstance(made, dict):
        raise ArgumentError(f"{name} = {made!r:.80}", expected="a mapping", fix="correct the file")
    return made


def _unpack(d: dict[str, Any], allowance: untrusted.Allowance) -> Deployment:
    placement = {(p["operator"], p["index"]): p["node"] for p in d["placement"]}
    settings = plain(_mapping(d["settings"], "settings", allowance))
    return Deployment(dict(d["parallelism"]), d["workers"], placement, settings)
