"""Profiles of an application, learned from a run or while it runs, and stored in one readable file [elysium].

| paper | here |
|---|---|
| SP, $\\alpha_{AB}$ | `selectivity`: mean and spread over time of each stream |
| OCUP | `cpu`: of each operator, input rate of an instance → its share of a core |
| OP | `overhead`: cores in use by a node's instances → share of the node's cores, the engine's own included |
| ILP | any predictor of `dspkit.forecasting`; the policy keeps the loads |

The paper calls OP's output both the overhead and the node's total; here it is the total, as in four of five places.

`samples` are measurements as in ELYSIUM's metric store: means over a sliding minute without changes. `learn` fits a
profile to them. `OnlineProfile` learns while a job runs, from sums that fit into a policy's state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import (
    ArgumentError,
    Edge,
    FileError,
    FrozenMap,
    History,
    MetricError,
    OperatorMetrics,
    Snapshot,
    Step,
    Topology,
    files,
    untrusted,
)
from ..core.typing import Array
from ..core.validation import is_number, number
from ..etp import rebalance
from .curves import Line, Net, Points, fit_curve, must_be_kind, percentage_error

if TYPE_CHECKING:
    import pandas as pd


FULL = 0.999  # share of a node's cores in use above which the demand is unknown; used only if it is always full
TRACE = 1e-9  # records/s that count as zero


@dataclass(frozen=True)
class Samples:
    """Measurements to learn from, as rows of (x, y).

    Parameters
    ----------
    cpu : mapping
        By operator: input rate of an instance, cores in use by it.
    nodes : sequence
        Cores in use by a node's instances, share of the node's cores in use.
    selectivity : mapping
        By edge: records sent per record that its start processed.
    shares : mapping
        By source: share of the load.

    Examples
    --------
    >>> Samples({"count": [(10.0, 0.1)]}, [], {}, {"count": 1.0}).cpu["count"]
    [(10.0, 0.1)]
    """

    cpu: Mapping[str, Sequence[tuple[float, float]]]
    nodes: Sequence[tuple[float, float]]
    selectivity: Mapping[Edge, Sequence[float]]
    shares: Mapping[str, float]


def samples(history: History, *, metrics_window_s: float = 60.0) -> Samples:
    """Return the measurements of a run, each a mean over `metrics_window_s` or over a shorter stretch without changes.

    Windows with downtime are left out. An instance's input rate is its processing rate, as waiting records cost no CPU.

    Parameters
    ----------
    history : History
        The run.
    metrics_window_s : float
        Length of the sliding mean.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> len(samples(run("static", apps.word_count(), steps=10)).cpu["count"])
    5
    """
    if not isinstance(history, History) or not len(history):
        raise MetricError(f"history {history!r}"[:100], expected="a History with steps", fix="pass what run() returns")
    number(metrics_window_s, "metrics_window_s", 0, above=True, error=MetricError, fix="pass seconds, as in 60")
    topology = history.topology
    cpu: dict[str, list[tuple[float, float]]] = {name: [] for name in topology.order}
    nodes: list[tuple[float, float]] = []
    alpha: dict[Edge, list[float]] = {edge: [] for edge in topology.edges}
    emitted = dict.fromkeys(topology.sources, 0.0)
    for group in _minutes(history.steps, metrics_window_s):
        deployment = group[0].deployment
        for name in topology.order:
            if known := [(m.processing_rate, cores(m)) for s in group if (m := s.operators.get(name))]:
                k = deployment.parallelism[name]
                cpu[name].append((fmean(r for r, _ in known) / k, fmean(c for _, c in known) / k))
        for edge, kept in alpha.items():
            both = [(s.operators[edge[0]].processing_rate, s.edge_rates[edge]) for s in group if _knows(s, edge)]
            if (took := sum(r for r, _ in both)) > TRACE:
                kept.append(sum(e for _, e in both) / took)
        for source in emitted:
            emitted[source] += sum(s.operators[source].processing_rate for s in group if source in s.operators)
        nodes += node_samples(topology, group)
    total = sum(emitted.values())
    shares = {s: rate / total if total > 0 else 1 / len(emitted) for s, rate in emitted.items()}
    return Samples(cpu, [row for row in nodes if row[1] < FULL] or nodes, alpha, shares)


def cores(m: OperatorMetrics) -> float:
    """Return the cores that an operator's instances use; if CPU was not metered, their busy time."""
    return m.cpu if m.cpu is not None else m.utilisation * m.parallelism


def node_samples(
    topology: Topology, group: Sequence[Snapshot], use: Callable[[OperatorMetrics], float] = cores
) -> Iterator[tuple[float, float]]:
    """Yield cores of instances and share of cores in use of each node; nothing if an operator was not measured."""
    deployment, order = group[0].deployment, topology.order
    names = list(group[0].nodes)
    if not names or any(set(s.nodes) != set(names) or set(order) - set(s.operators) for s in group):
        return
    usable = names[: deployment.workers] if deployment.workers else names
    places = {**rebalance(topology, deployment.parallelism, usable), **deployment.placement}
    each = {name: fmean(use(s.operators[name]) for s in group) / deployment.parallelism[name] for name in order}
    for node in names:
        used = sum(each[name] for (name, _), place in places.items() if place == node)
        share = fmean(s.nodes[node] for s in group)
        yield used, share


def _knows(s: Snapshot, edge: Edge) -> bool:
    return edge in s.edge_rates and edge[0] in s.operators


def _minutes(steps: Sequence[Step], metrics_window_s: float) -> Iterator[list[Snapshot]]:
    """Yield neighbouring windows without changes that make up a minute; a shorter stretch is one by itself."""
    for stretch in _stretches(steps):
        count = max(1, round(metrics_window_s / stretch[0].window_s))
        if len(stretch) <= count:
            yield stretch
        for first in range(len(stretch) - count + 1) if len(stretch) > count else ():
            yield stretch[first : first + count]


def _stretches(steps: Sequence[Step]) -> Iterator[list[Snapshot]]:
    """Yield consecutive windows of one deployment without downtime."""
    row: list[Snapshot] = []
    for step in steps:
        s = step.snapshot
        paused = s.downtime_s > 0
        if row and (paused or s.deployment != row[0].deployment):
            yield row
            row = []
        if not paused:
            row.append(s)
    if row:
        yield row


FORMAT, FOLDS = 1, 10
_CURVES = {"line": Line, "points": Points, "net": Net}


@dataclass(frozen=True)
class FittedCurve:
    """A curve, its error on held-out windows, and the range of its measurements."""

    curve: Line | Points | Net
    error: float | None = None  # mean of |error| / value on held-out windows; None if unknown
    count: int = 0  # number of measurements
    seen: tuple[float, float] = (0.0, 0.0)  # least and greatest x

    def __post_init__(self) -> None:
        if not callable(self.curve) or len(self.seen) != 2:
            raise ArgumentError(
                f"{self.curve!r}, seen {self.seen!r}"[:100], expected="a curve, and two ends", fix="fit one"
            )
        _must_be_numbers("a curve's past", self.count, *self.seen)


@dataclass(frozen=True)
class Ratio:
    """A stream's selectivity: mean and standard deviation over time, and the mean relative error of the mean."""

    mean: float
    spread: float = 0.0
    error: float | None = None
    count: int = 0

    def __post_init__(self) -> None:
        _must_be_numbers("a selectivity", self.mean, self.spread, self.count)


@dataclass(frozen=True)
class Profile:
    """The costs of an application, from which the demand of a load is estimated.

    Parameters
    ----------
    selectivity : mapping
        Ratio by edge.
    cpu : mapping
        Fitted curve by operator: input rate of an instance → share of a core.
    overhead : FittedCurve, optional
        Cores in use by instances → share of a node's cores; None if nodes were not metered.
    shares : mapping
        Share of the load by source.

    Examples
    --------
    >>> profile = Profile({("a", "b"): Ratio(2.0)}, dict.fromkeys("ab", FittedCurve(Line(0.0, 0.01))))
    >>> profile.table["of"].tolist()
    ['a → b', 'a', 'b']
    """

    selectivity: Mapping[Edge, Ratio]
    cpu: Mapping[str, FittedCurve]
    overhead: FittedCurve | None = None
    shares: Mapping[str, float] = field(default_factory=FrozenMap)

    def __post_init__(self) -> None:
        for name, kind in (("selectivity", Ratio), ("cpu", FittedCurve), ("shares", (int, float))):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(v, kind) for v in given.values()):
                raise ArgumentError(
                    f"{name}={given!r}"[:100], expected="a mapping, as `learn` makes it", fix="use `learn`"
                )
        if not isinstance(self.overhead, FittedCurve | None):
            raise ArgumentError(
                f"overhead={self.overhead!r}"[:100], expected="a FittedCurve or None", fix="use `learn`"
            )
        _must_be_numbers("the sources' shares", *self.shares.values())
        for name in ("selectivity", "cpu", "shares"):
            object.__setattr__(self, name, FrozenMap(getattr(self, name)))

    @property
    def summed(self) -> str:
        """A summary for printed settings, in which a profile has no short form."""
        return f"profile of {', '.join(self.cpu)}"

    @property
    def table(self) -> pd.DataFrame:
        """One row per profiler; errors are means of |error| / value on held-out windows."""
        import pandas as pd

        rows: list[tuple[Any, ...]] = [
            (
                "selectivity",
                f"{u} → {v}",
                f"{r.mean:.4g} ± {r.spread if r.spread > 1e-9 * r.mean else 0.0:.2g}",
                r.error,
                r.count,
            )
            for (u, v), r in self.selectivity.items()
        ]
        rows += [("CPU", name, _said(f), f.error, f.count) for name, f in self.cpu.items()]
        if self.overhead:
            rows.append(("overhead", "node", _said(self.overhead), self.overhead.error, self.overhead.count))
        return pd.DataFrame(rows, columns=["profiler", "of", "learned", "error", "samples"]).astype({"error": float})

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one JSON file, which `profiling.load_profile` reads, and return its path.

        Parameters
        ----------
        path : str or Path
            The file.
        overwrite : bool
            Whether to replace an existing file.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     load_profile(Profile({}, {"a": FittedCurve(Line(0.0, 0.01))}).save(f"{folder}/profile.json")).summed
        'profile of a'
        """
        return files.write_atomically(
            path, lambda p: p.write_text(json.dumps(_packed(self), indent=1)), overwrite=overwrite
        )

    def _repr_html_(self) -> str:
        from ..core.html import html_table

        shares = ["" if error != error else f"{error:.2%}" for error in self.table.error]
        shown = self.table.assign(error=shares).rename(columns={"error": "error on held-out windows"})
        return html_table(shown, "profile", left=True)


def learn(history: History, *, kind: str = "linear", metrics_window_s: float = 60.0, seed: int = 0) -> Profile:
    """Return the profile of an application from a run with a varying load, of which half an hour suffices.

    Errors are those of tenfold cross-validation over stretches of time.

    Parameters
    ----------
    history : History
        The run.
    kind : {"linear", "isotonic", "network", "rprop"}
        Kind of the curves; "rprop" is the paper's network, trained as in the paper.
    metrics_window_s : float
        As for `samples`.
    seed : int
        Seed of a network's initial weights.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> sorted(learn(run("static", apps.word_count(), steps=30)).cpu)
    ['count', 'flat_map', 'sink', 'source']
    """
    must_be_kind(kind, seed)
    measured = samples(history, metrics_window_s=metrics_window_s)
    silent = [name for name, rows in measured.cpu.items() if not rows]
    silent += [f"{u} → {v}" for (u, v), rows in measured.selectivity.items() if not rows]
    if silent:
        raise MetricError(
            f"a run without data of {', '.join(silent)}", expected="windows in which all work", fix="run longer"
        )
    return Profile(
        {edge: _ratio(rows) for edge, rows in measured.selectivity.items()},
        {name: _fitted(rows, kind, seed) for name, rows in measured.cpu.items()},
        _fitted(measured.nodes, kind, seed) if measured.nodes else None,
        measured.shares,
    )


def errors(profile: Profile, history: History, *, metrics_window_s: float = 60.0) -> dict[str, float]:
    """Return the mean of |error| / value of a profile on another run, by stream, operator, and for the nodes.

    Parameters
    ----------
    profile : Profile
        The profile.
    history : History
        A run that it was not learned from.
    metrics_window_s : float
        As for `samples`.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> history = run("static", apps.star(), steps=30)
    >>> max(errors(learn(history), history).values()) < 0.1
    True
    """
    if not isinstance(profile, Profile):
        raise ArgumentError(f"profile {profile!r}"[:100], expected="a Profile", fix="pass what `learn` returns")
    seen: Samples = samples(history, metrics_window_s=metrics_window_s)
    found: dict[str, float] = {}
    for (u, v), r in profile.selectivity.items():
        if rows := seen.selectivity.get((u, v)):
            found[f"{u} → {v}"] = percentage_error(Line(r.mean, 0.0), *_columns([(0.0, y) for y in rows])) or 0.0
    fits = dict(profile.cpu) | ({"node": profile.overhead} if profile.overhead else {})
    measured = {**seen.cpu, "node": seen.nodes}
    for name, fitted in fits.items():
        if measured.get(name):
            found[name] = percentage_error(fitted.curve, *_columns(measured[name])) or 0.0
    return found


def load_profile(path: str | Path) -> Profile:
    """Read a profile, or raise a FileError that states the problem of the file.

    Parameters
    ----------
    path : str or Path
        A file that `Profile.save` wrote.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     load_profile(Profile({}, {"a": FittedCurve(Line(0.0, 0.01))}).save(f"{folder}/profile.json")).summed
    'profile of a'
    """
    fix = "load a file that Profile.save() wrote"
    text = untrusted.read_text(path, expected="a saved profile")
    try:
        found = untrusted.parse_json(text)
        if found["format"] != FORMAT:
            raise FileError(f"{path} of format {found['format']!r}", expected=f"format {FORMAT}", fix="update dspkit")
        return _unpacked(found)
    except FileError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise FileError(f"{path}, not a dspkit profile: {error!r}", expected="a saved profile", fix=fix) from error


def _columns(rows: Any) -> tuple[Array, Array]:
    import numpy as np

    x, y = np.array(rows, dtype=float).reshape(-1, 2).T
    return x, y


def _ratio(rows: Any) -> Ratio:
    mean = fmean(rows)
    off = fmean(abs(r - mean) for r in rows) / mean if mean > 0 else None
    return Ratio(mean, stdev(rows) if len(rows) > 1 else 0.0, off, len(rows))


def _fitted(rows: Any, kind: str, seed: int) -> FittedCurve:
    x, y = _columns(rows)
    return FittedCurve(
        fit_curve(x, y, kind, seed=seed), _held_out(x, y, kind, seed), len(x), (float(x.min()), float(x.max()))
    )


def _held_out(x: Array, y: Array, kind: str, seed: int) -> float | None:
    """Return the cross-validated error; each part is a stretch of time, as neighbouring samples share windows."""
    import numpy as np

    if len(x) < 2 * FOLDS:
        return None
    found = []
    for part in np.array_split(np.arange(len(x)), FOLDS):
        others = np.setdiff1d(np.arange(len(x)), part)
        error = percentage_error(fit_curve(x[others], y[others], kind, seed=seed), x[part], y[part])
        found += [] if error is None else [error]
    return fmean(found) if found else None


def _said(f: FittedCurve) -> str:
    c = f.curve
    if isinstance(c, Line):
        return f"{c.intercept:.3g} + {c.slope:.4g} x"
    return f"{'isotonic' if isinstance(c, Points) else 'net'}, {c(f.seen[0]):.3g} to {c(f.seen[1]):.3g}"


def _packed(p: Profile) -> dict[str, Any]:
    names = {cls: name for name, cls in _CURVES.items()}

    def pack(f: FittedCurve | None) -> Any:
        return f and {**asdict(f), "curve": {"kind": names[type(f.curve)], **asdict(f.curve)}}

    return {
        "format": FORMAT,
        "selectivity": [{"start": u, "end": v, **asdict(r)} for (u, v), r in p.selectivity.items()],
        "cpu": {name: pack(f) for name, f in p.cpu.items()},
        "overhead": pack(p.overhead),
        "shares": dict(p.shares),
    }


def _unpacked(found: Mapping[str, Any]) -> Profile:
    def unpack(f: Mapping[str, Any]) -> FittedCurve:
        curve = dict(f["curve"])
        made = _CURVES[curve.pop("kind")](**{k: _tuples(v) for k, v in curve.items()})
        if (
            not all(0 <= y < math.inf for y in (made(0.0), made(1e9))) or made.slope < 0
        ):  # such as a net of another shape
            raise ValueError(f"{made!r} is not a curve of CPU")
        return FittedCurve(made, _number(f["error"]), int(f["count"]), tuple(map(float, f["seen"])))  # type: ignore[arg-type]

    ratios = {
        (str(r["start"]), str(r["end"])): Ratio(
            float(r["mean"]), float(r["spread"]), _number(r["error"]), int(r["count"])
        )
        for r in found["selectivity"]
    }
    overhead = None if found["overhead"] is None else unpack(found["overhead"])
    shares = {str(s): float(share) for s, share in found["shares"].items()}
    return Profile(ratios, {str(n): unpack(f) for n, f in found["cpu"].items()}, overhead, shares)


def _tuples(value: Any) -> Any:
    """Return nested lists as tuples; values other than finite numbers are rejected, as they determine deployments."""
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    if not is_number(value) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _number(value: Any) -> float | None:
    return None if value is None else float(_tuples(value))


def _must_be_numbers(what: str, *values: Any) -> None:
    if not all(is_number(x) and 0 <= float(x) < math.inf for x in values):
        raise MetricError(f"{what} {values!r}"[:100], expected="finite numbers >= 0", fix="learn the profile again")


Pair = tuple[float, float]


class OnlineProfile(NamedTuple):
    """Sums over the windows so far; CPU is taken as proportional to the rate, and a node's share as a line."""

    cpu: Mapping[str, Pair] = FrozenMap()  # records processed, core-seconds
    streams: Mapping[Edge, Pair] = FrozenMap()  # records processed by its start, sent along it
    nodes: tuple[float, float, float, float, float] = (0.0,) * 5  # 1, u, y, uu, uy: cores of instances, share of node
    full: Pair = (0.0, 0.0)  # u and y of full nodes, which determine little
    sources: Mapping[str, float] = FrozenMap()  # records emitted

    def see(
        self, topology: Topology, snapshot: Snapshot, use: Callable[[OperatorMetrics], float] | None = None
    ) -> OnlineProfile:
        """Return the sums with one more window; windows with downtime are ignored.

        `use` returns the cores that an operator's instances use; by default `cores`.
        """
        use = use or cores
        if snapshot.downtime_s > 0 or not snapshot.operators:
            return self
        s, seconds = snapshot, snapshot.window_s
        cpu = dict(self.cpu)
        for name, m in s.operators.items():
            if m.processing_rate > TRACE:
                cpu[name] = _add(cpu.get(name), m.processing_rate * seconds, use(m) * seconds)
        streams = dict(self.streams)
        for (u, v), rate in s.edge_rates.items():
            if u in s.operators and s.operators[u].processing_rate > TRACE:
                streams[u, v] = _add(streams.get((u, v)), s.operators[u].processing_rate * seconds, rate * seconds)
        nodes, full = self.nodes, self.full
        for used, share in node_samples(topology, [s], use):
            if share >= FULL:
                full = _add(full, used, share)
                continue
            row = (1.0, used, share, used * used, used * share)
            nodes = tuple(a + b for a, b in zip(nodes, row, strict=True))  # type: ignore[assignment]
        emitted = {
            n: self.sources.get(n, 0.0) + (s.operators[n].processing_rate * seconds if n in s.operators else 0.0)
            for n in topology.sources
        }
        return OnlineProfile(FrozenMap(cpu), FrozenMap(streams), nodes, full, FrozenMap(emitted))

    def missing(self, topology: Topology) -> list[str]:
        """Return the operators and streams without data."""
        return [n for n in topology.order if n not in self.cpu] + [
            f"{u} → {v}" for u, v in topology.edges if (u, v) not in self.streams
        ]

    def profile(self) -> Profile:
        """Return the profile so far."""
        total = sum(self.sources.values())
        return Profile(
            {edge: Ratio(sent / took) for edge, (took, sent) in self.streams.items()},
            {name: FittedCurve(Line(0.0, used / took)) for name, (took, used) in self.cpu.items()},
            self._overhead(),
            {n: x / total for n, x in self.sources.items()} if total > 0 else {},
        )

    def _overhead(self) -> FittedCurve | None:
        n, u, y, uu, uy = self.nodes
        if u <= 0 or y <= 0:
            return FittedCurve(Line(0.0, self.full[1] / self.full[0])) if self.full[0] > 0 else None
        spread = n * uu - u * u
        slope = (n * uy - u * y) / spread if spread > 1e-9 * n * uu else y / u
        slope = min(slope, uy / uu) if slope > 0 else y / u  # the intercept is not negative
        return FittedCurve(Line(max(0.0, (y - slope * u) / n), slope), None, round(n))


def _add(pair: Pair | None, a: float, b: float) -> Pair:
    return (a, b) if pair is None else (pair[0] + a, pair[1] + b)
