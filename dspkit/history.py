"""What happened: a list of Steps, as data frames, in one Parquet file, and readable at a glance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from .core import Deployment, OperatorMetrics, Step, Topology
from .frozen import FrozenMap, plain

if TYPE_CHECKING:  # pandas takes longer to import than the whole rest of dspkit
    import pandas as pd

THEN = ", then "  # between the policies of a run in which a person changed them
_METRICS = [f.name for f in fields(OperatorMetrics)]


class History(Sequence[Step]):
    """The steps of one run, with the topology they ran on and `about`: policy, backend, seed, ..."""

    def __init__(
        self,
        topology: Topology,
        steps: Iterable[Step] = (),
        about: Mapping[str, Any] | None = None,
        notes: Iterable[tuple[float, str]] = (),
    ):
        """`notes` say what was done by hand, and when: (t in seconds, words)."""
        self.topology = topology
        self.steps = list(steps)
        self.notes = [(float(t), str(what)) for t, what in notes]
        self.tell(about or {})

    def tell(self, about: Mapping[str, Any]) -> None:
        """Replace what is told of the run."""
        self.about: FrozenMap[str, Any] = plain(about)

    def append(self, step: Step) -> None:
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

    __hash__ = None  # type: ignore[assignment]  # it grows

    @property
    def application(self) -> pd.DataFrame:
        """One row a window: rates in records/s, latencies in seconds, lag in records."""
        columns = ["t", "window_s", "source_rate", "throughput", "lag", "backlog", "instances", "workers", "downtime_s"]
        columns += [f"{kind}_{part}" for kind in ("latency", "event_latency") for part in ("mean", "p50", "p95", "p99")]
        return _frame(self._application(), [*columns, "decided", "rescaled"]).astype(
            {"decided": bool, "rescaled": bool}
        )

    @property
    def operators(self) -> pd.DataFrame:
        """One row a window and operator."""
        rows = (
            {"t": s.snapshot.t, "operator": name, **asdict(m)}
            for s in self.steps
            for name, m in s.snapshot.operators.items()
        )
        return _frame(rows, ["t", "operator", *_METRICS])

    @property
    def edges(self) -> pd.DataFrame:
        """One row a window and edge: records/s along it."""
        rows = (
            {"t": s.snapshot.t, "start": u, "end": v, "rate": rate}
            for s in self.steps
            for (u, v), rate in s.snapshot.edge_rates.items()
        )
        return _frame(rows, ["t", "start", "end", "rate"])

    @property
    def nodes(self) -> pd.DataFrame:
        """One row a window and node: the share of its cores in use."""
        rows = (
            {"t": s.snapshot.t, "node": node, "cpu": cpu} for s in self.steps for node, cpu in s.snapshot.nodes.items()
        )
        return _frame(rows, ["t", "node", "cpu"])

    @property
    def decisions(self) -> pd.DataFrame:
        """One row a decision: what changed in words, and why."""
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
        """Write one Parquet file that `History.load` reads back without loss; None picks a name under runs/."""
        from . import storage

        return storage.save(self, path, overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read what `save` wrote."""
        from . import storage

        return storage.load(path)

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
        facts = [(key, value) for key, value in about if "\n" not in value]  # code is not for a table
        facts.append(("operators", ", ".join(self.topology.order)))
        if self.steps:
            frame, last = self.application, self.steps[-1].snapshot
            if self.notes:
                facts.append(("done by hand", "; ".join(f"t = {t:g} s: {what}" for t, what in self.notes)))
            facts += [
                ("windows", f"{len(self)} of {last.window_s:g} s, up to t = {last.t:g} s"),
                ("rescalings", f"{int(frame.rescaled.sum())}, standing still {frame.downtime_s.sum():g} s"),
                ("input / throughput", f"{frame.source_rate.mean():,.0f} / {frame.throughput.mean():,.0f} records/s"),
                ("lag at the end", f"{last.lag:,.0f} records"),
                ("runs now", ", ".join(f"{n} {k}" for n, k in last.deployment.parallelism.items())),
            ]
            if frame.latency_mean.notna().any():
                facts.insert(-2, ("latency", f"{frame.latency_mean.mean():.3g} s mean"))
        return facts

    def __repr__(self) -> str:
        return "History\n" + "\n".join(f"  {key:<18} {value}" for key, value in self._facts())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th><td style='text-align:left'>{escape(value)}</td></tr>"
            for key, value in self._facts()
        )
        return f"<table>{rows}</table>"


def changes(before: Deployment, after: Deployment) -> str:
    """What a decision changes, in words: "count 2 → 5, workers 3 → 4", or "" for nothing."""
    parts = [
        f"{n} {before.parallelism.get(n, 0)} → {k}"
        for n, k in after.parallelism.items()
        if k != before.parallelism.get(n)
    ]
    if after.workers != before.workers:
        parts.append(f"workers {before.workers} → {after.workers}")
    parts += [name for name in ("placement", "settings") if getattr(after, name) != getattr(before, name)]
    return ", ".join(parts)


def why_text(why: Mapping[str, Any]) -> str:
    """A decision's `why` as one readable line."""
    return "; ".join(f"{key.replace('_', ' ')}: {_short(value)}" for key, value in why.items())


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 9999.5 else f"{value:,.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_short, value))
    return "unknown" if value is None else str(value)


def _frame(rows: Iterable[dict[str, Any]], columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows), columns=columns)
