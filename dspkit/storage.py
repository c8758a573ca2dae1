"""A History as one Parquet file: a row a step, the nested parts as Arrow structs, nothing pickled.

Fields of Step, Snapshot, OperatorMetrics and Latency that hold one number, word or flag are stored without being
listed here. One that an older file lacks takes its default, so a new field needs a default, and no new format.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from . import files
from .core import Decision, Deployment, Latency, Operator, OperatorMetrics, Snapshot, Step, Topology
from .errors import DspkitError, FileError
from .frozen import plain
from .history import History

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
_ARROW = {float: "float64", int: "int64", str: "string", bool: "bool_"}


def save(history: History, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Write `history`; without a path to runs/<time>-<policy>.parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path is None:
        policy = "".join(c if c.isalnum() else "-" for c in str(history.about.get("policy", "run"))[:24]).strip("-")
        path = files.home("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6:06d}-{policy}.parquet"
    topology = {"operators": [asdict(o) for o in history.topology.operators], "edges": history.topology.edges}
    head = {"format": FORMAT, "topology": topology, "about": history.about, "notes": history.notes}
    try:
        table = pa.Table.from_pylist([_row(s) for s in history], schema=_schema())
        table = table.replace_schema_metadata({"dspkit": json.dumps(head)})
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise FileError(
            f"a run that cannot be stored: {error}",
            expected="names that are text, whole numbers below 2**63",
            fix="correct what the backend or the policy reports",
        ) from error
    return files.write(path, lambda p: pq.write_table(table, p, compression="zstd"), overwrite=overwrite)


def load(path: str | Path) -> History:
    """Read a History, or raise a FileError that says what is wrong with the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fix = "load a file that History.save() wrote"
    try:
        file = Path(path).open("rb")  # noqa: SIM115  (what fails here is the system's, what fails below is the file's)
    except FileNotFoundError as error:
        raise FileError(f"no file {path}", expected="a saved run", fix="check the path") from error
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}", expected="a file to read", fix="check the path") from error
    with file:
        try:
            table = pq.read_table(file)
            head = json.loads(table.schema.metadata[b"dspkit"])
            _can_read(path, table.schema, head)
            operators = tuple(Operator(**o) for o in head["topology"]["operators"])
            topology = Topology(operators, tuple((u, v) for u, v in head["topology"]["edges"]))
            steps = [_step(row) for row in table.to_pylist()]
            return History(topology, steps, head["about"], head.get("notes", ()))
        except FileError:
            raise
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f": {error}" if isinstance(error, DspkitError) else ""
            raise FileError(f"{path}, not a dspkit run{reason}", expected="a saved run", fix=fix) from error


def _can_read(path: str | Path, schema: pa.Schema, head: dict[str, Any]) -> None:
    if head["format"] != FORMAT:
        raise FileError(f"{path} of format {head['format']!r}", expected=f"format {FORMAT}", fix="update dspkit")
    known = set(_columns(_schema())) | {f"topology.operators.{f.name}" for f in fields(Operator)}
    found = [*_columns(schema), *(f"topology.operators.{k}" for o in head["topology"]["operators"] for k in o)]
    if unknown := list(dict.fromkeys(name for name in found if name not in known)):
        raise FileError(
            f"{path} with {', '.join(unknown)}",
            expected="only what this dspkit knows",
            fix="update dspkit, if a newer one wrote the file",
        )


def _columns(parts: Any, prefix: str = "") -> Iterator[str]:
    """The name of each column and of all that is nested in it."""
    import pyarrow.types as pt

    for part in parts:
        name, kind = prefix + part.name, part.type
        yield name
        kind = kind.value_type if pt.is_list(kind) else kind
        if pt.is_struct(kind):
            yield from _columns(kind, f"{name}.")


@lru_cache
def _scalars(cls: type) -> dict[str, pa.DataType]:
    """The Arrow type of each field that holds one number, word or flag, or None instead."""
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
    operator = pa.struct([("name", text), *_scalars(OperatorMetrics).items()])
    place = pa.struct([("operator", text), ("index", whole), ("node", text)])
    deployment = pa.struct(
        [("parallelism", pa.map_(text, whole)), ("workers", whole), ("placement", pa.list_(place)), ("settings", text)]
    )
    return pa.schema(
        [*_scalars(Step).items(), *_scalars(Snapshot).items(), ("deployment", deployment)]
        + [("operators", pa.list_(operator)), ("latency", latency), ("event_latency", latency)]
        + [("source_rates", pa.map_(text, number)), ("nodes", pa.map_(text, number))]
        + [("edge_rates", pa.list_(pa.struct([("start", text), ("end", text), ("rate", number)])))]
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
        "decision": step.decision
        and {"deployment": _pack(step.decision.deployment), "why": json.dumps(step.decision.why)},
    }


def _step(row: dict[str, Any]) -> Step:
    own, decision = {name: row.pop(name) for name in _scalars(Step) if name in row}, row.pop("decision")
    row["deployment"] = _unpack(row["deployment"])
    row["operators"] = {o.pop("name"): OperatorMetrics(**o) for o in row["operators"]}
    for name in ("latency", "event_latency"):
        row[name] = row[name] and Latency(**row[name])
    row["edge_rates"] = {(e["start"], e["end"]): e["rate"] for e in row["edge_rates"]}
    why = decision and Decision(_unpack(decision["deployment"]), json.loads(decision["why"]))
    return Step(snapshot=Snapshot(**row), decision=why, **own)


def _pack(d: Deployment) -> dict[str, Any]:
    return {
        "parallelism": list(d.parallelism.items()),
        "workers": d.workers,
        "placement": [{"operator": n, "index": i, "node": node} for (n, i), node in d.placement.items()],
        "settings": json.dumps(d.settings),
    }


def _unpack(d: dict[str, Any]) -> Deployment:
    placement = {(p["operator"], p["index"]): p["node"] for p in d["placement"]}
    return Deployment(dict(d["parallelism"]), d["workers"], placement, plain(json.loads(d["settings"])))
