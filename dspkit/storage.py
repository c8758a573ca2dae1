"""A History as one Parquet file: a row a step, the nested parts as Arrow structs, nothing pickled."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import files
from .core import Decision, Deployment, Latency, Operator, OperatorMetrics, Snapshot, Step, Topology
from .errors import DspkitError, FileError
from .frozen import plain
from .history import History

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
_PLAIN = ("t", "window_s", "throughput", "lag", "downtime_s")


def save(history: History, path: str | Path | None = None, *, overwrite: bool = False) -> Path:
    """Write `history`; without a path to runs/<time>-<policy>.parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path is None:
        policy = "".join(c if c.isalnum() else "-" for c in str(history.about.get("policy", "run"))[:24]).strip("-")
        path = files.home("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6:06d}-{policy}.parquet"
    topology = {"operators": [asdict(o) for o in history.topology.operators], "edges": history.topology.edges}
    head = json.dumps({"format": FORMAT, "topology": topology, "about": history.about})
    table = pa.Table.from_pylist([_row(s) for s in history], schema=_schema())
    table = table.replace_schema_metadata({"dspkit": head})
    return files.write(path, lambda p: pq.write_table(table, p, compression="zstd"), overwrite=overwrite)


def load(path: str | Path) -> History:
    """Read a History, or raise a FileError that says what is wrong with the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fix = "load a file that History.save() wrote"
    try:
        table = pq.read_table(path)
        head = json.loads(table.schema.metadata[b"dspkit"])
        if head["format"] != FORMAT:
            raise FileError(f"{path} of format {head['format']}", expected=f"format {FORMAT}", fix="update dspkit")
        operators = tuple(Operator(**o) for o in head["topology"]["operators"])
        topology = Topology(operators, tuple((u, v) for u, v in head["topology"]["edges"]))
        return History(topology, [_step(row) for row in table.to_pylist()], head["about"])
    except FileError:
        raise
    except FileNotFoundError as error:
        raise FileError(f"no file {path}", expected="a saved run", fix="check the path") from error
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f": {error}" if isinstance(error, DspkitError) else ""
        raise FileError(f"{path}, not a dspkit run{reason}", expected="a saved run", fix=fix) from error


def _schema() -> pa.Schema:
    import pyarrow as pa

    number, whole, text = pa.float64(), pa.int64(), pa.string()
    latency = pa.struct([(f.name, number) for f in fields(Latency)])
    operator = pa.struct(
        [("name", text)] + [(f.name, whole if f.name == "parallelism" else number) for f in fields(OperatorMetrics)]
    )
    place = pa.struct([("operator", text), ("index", whole), ("node", text)])
    deployment = pa.struct(
        [("parallelism", pa.map_(text, whole)), ("workers", whole), ("placement", pa.list_(place)), ("settings", text)]
    )
    return pa.schema(
        [("index", whole), *((name, number) for name in _PLAIN), ("deployment", deployment)]
        + [("operators", pa.list_(operator)), ("latency", latency), ("event_latency", latency)]
        + [("source_rates", pa.map_(text, number)), ("nodes", pa.map_(text, number))]
        + [("edge_rates", pa.list_(pa.struct([("start", text), ("end", text), ("rate", number)])))]
        + [("decision", pa.struct([("deployment", deployment), ("why", text)]))]
    )


def _row(step: Step) -> dict[str, Any]:
    s = step.snapshot
    return {name: getattr(s, name) for name in _PLAIN} | {
        "index": step.index,
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
    decision = row["decision"]
    snapshot = Snapshot(
        **{name: row[name] for name in _PLAIN},
        deployment=_unpack(row["deployment"]),
        operators={o.pop("name"): OperatorMetrics(**o) for o in row["operators"]},
        latency=row["latency"] and Latency(**row["latency"]),
        event_latency=row["event_latency"] and Latency(**row["event_latency"]),
        source_rates=dict(row["source_rates"]),
        nodes=dict(row["nodes"]),
        edge_rates={(e["start"], e["end"]): e["rate"] for e in row["edge_rates"]},
    )
    return Step(
        row["index"],
        snapshot,
        decision and Decision(_unpack(decision["deployment"]), json.loads(decision["why"])),
    )


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
