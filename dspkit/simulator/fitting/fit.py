"""The plant behind a recorded run: service times, scalability, selectivities, pause and queues, with intervals.

Only snapshots are used, so that a run may be simulated, live, or loaded from a file. Quantities that it does not
determine stay as in `start`, or at their default, and are listed in the notes together with the kind of run that would
determine them.

`Speeds` converts the cost of operators to a machine of speed 1, for runs on machines of different speeds; `Reading`
estimates each operator (scalability law, cores, results, selectivities, queue), and `fit_job_fields` the whole job
(noise, pauses, execution, cores of the nodes).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from ...core import ArgumentError, Deployment, History, MetricError, OperatorMetrics, Snapshot, Topology
from ...core.typing import Array
from ..system import Node, Plant, Service, round_robin
from .statistics import Interval, Law, Windows, law, mean, ratio, variance

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Estimate:
    """One quantity with its interval; value and interval are None if the run does not determine them.

    Parameters
    ----------
    where
        An operator, "u → v" for an edge, a node, or "job".
    quantity
        Name of the quantity, a field of a Service or Plant.
    value
        The estimate.
    low
        Lower end of the interval.
    high
        Upper end of the interval.
    windows
        Number of windows that it is based on.
    note
        A remark, such as why it is unknown.

    Examples
    --------
    >>> Estimate("count", "contention", None, note="seen at 2 only; run it at another parallelism").value is None
    True
    """

    where: str
    quantity: str
    value: float | None
    low: float | None = None
    high: float | None = None
    windows: int = 0
    note: str = ""


@dataclass(frozen=True)
class Fit:
    """A plant for the simulator, and the accuracy of each of its numbers.

    Parameters
    ----------
    plant
        The estimated plant.
    estimates
        The quantities with their intervals.
    notes
        Remarks for the reader, such as quantities that are unknown.
    confidence
        Confidence level of the intervals.

    Examples
    --------
    >>> from dspkit.simulator import Plant, Service
    >>> found = Fit(Plant({"a": Service(2e-3)}), (Estimate("a", "seconds_per_record", 2e-3, 1.9e-3, 2.1e-3, 30),), ())
    >>> found["a", "seconds_per_record"].high
    0.0021
    """

    plant: Plant
    estimates: tuple[Estimate, ...]
    notes: tuple[str, ...]
    confidence: float = 0.95

    def __getitem__(self, what: tuple[str, str]) -> Estimate:
        """Return the estimate of a quantity, as in `fit["count", "contention"]`."""
        for estimate in self.estimates:
            if (estimate.where, estimate.quantity) == what:
                return estimate
        raise KeyError(what)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per quantity; NaN if unknown."""
        import pandas as pd

        columns = ["where", "quantity", "value", "low", "high", "windows", "note"]
        frame = pd.DataFrame([[getattr(e, c) for c in columns] for e in self.estimates], columns=columns)
        return frame.astype({"value": float, "low": float, "high": float, "windows": int})

    def __repr__(self) -> str:
        lines = [f"Fit, intervals of {self.confidence:.0%}"]
        wide = max((len(e.where) for e in self.estimates), default=0)
        for e in self.estimates:
            value, between = _formatted(e)
            line = f"  {e.where:<{wide}}  {e.quantity:<18} {value:<10} {between:<24} {e.note}"
            lines.append(line.rstrip())
        return "\n".join([*lines, *(f"  * {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        import pandas as pd

        from ...core.html import html_table

        cells = [(e.where, e.quantity, *_formatted(e), e.windows, e.note) for e in self.estimates]
        heads = ["where", "quantity", "value", f"{self.confidence:.0%} interval", "windows", "note"]
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"{html_table(pd.DataFrame(cells, columns=heads), 'fit', left=True)}<ul>{notes}</ul>"


def fit(history: History, *, confidence: float = 0.95, start: Plant | None = None) -> Fit:
    """Estimate the plant that produced this run, by weighted least squares, ratios of sums and stitched pauses.

    An operator's time per record, $1/$`true_rate`, follows $s\\,(1+\\sigma(k-1)+\\kappa k(k-1))$ [gunther2007usl]: one
    parallelism k determines s alone, two contention as well (coherency as in `start`, else 0), three all. If the rate
    of all instances together stops rising while they are busy, and BIC prefers that, an external rate limit takes the
    place of coherency. Windows in which the job was paused or a node was full say little about the law and are left
    out.

    Parameters
    ----------
    history
        The recorded run.
    confidence
        Confidence level of the intervals, between 0 and 1.
    start
        A plant with the values that no snapshot contains: nodes and their speeds, links, distributions, kind of pause.
        Instances that no placement names are assumed to run where `round_robin` assigns them; without `start` all nodes
        have speed 1.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> from dspkit.policies.ds2 import DS2
    >>> app = apps.word_count()
    >>> fitted = fit(run(DS2(), app.simulator(), steps=100), start=app.plant)
    >>> bool(abs(fitted["count", "seconds_per_record"].value * 30e3 - 1) < 0.05)
    True
    """
    from ...core import History

    if not isinstance(history, History):
        raise MetricError(f"history {history!r}", expected="a History", fix="pass what run() or History.load() returns")
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise ArgumentError(f"confidence={confidence!r}", expected="a share between 0 and 1", fix="as in 0.95")
    if start is not None:
        if not isinstance(start, Plant):
            raise ArgumentError(f"start={start!r}", expected="a Plant, or None", fix="as in start=app.plant")
        start.check(history.topology)
    run = Reading(history, confidence, start)
    run.require_metrics()
    services = {name: run.operator(name) for name in history.topology.order}
    plant = replace(start or Plant(services), services=services, **fit_job_fields(run))
    notes = [*_unknown(run.estimates), *run.notes]
    return Fit(plant.check(history.topology), tuple(run.estimates), tuple(notes), confidence)


def _unknown(estimates: Iterable[Estimate]) -> list[str]:
    """Return notes on unknown quantities, one per reason, with the run that would determine them."""
    lacking: dict[str, dict[str, list[str]]] = {}
    for e in estimates:
        if e.value is None:
            lacking.setdefault(e.note, {}).setdefault(e.quantity, []).append(e.where)
    notes = []
    for why, what in lacking.items():
        named = "; ".join(f"{quantity} of {', '.join(places)}" for quantity, places in what.items())
        notes.append(f"Unknown: {named}: {why}.")
    return notes


def _formatted(e: Estimate) -> tuple[str, str]:
    """Return value and interval as text."""
    value = "unknown" if e.value is None else f"{e.value:.4g}"
    ends = ["" if x is None else f"{x:.4g}" for x in (e.low, e.high)]
    return value, f"{ends[0] or '?'} to {ends[1] or '?'}" if any(ends) else ""


_ROUNDS = 40  # iterations of a fixed point, which converges from one side


class Speeds:
    """The nodes of each operator's instances, and their speeds; without `start` all have speed 1."""

    def __init__(self, topology: Topology, start: Plant | None):
        self.topology, self.start = topology, start
        self._same = len({node.speed for node in start.nodes.values()}) == 1 if start else True
        self._known: dict[Deployment, dict[str, tuple[Array, Array]]] = {}

    def at_one(self, name: str, s: Snapshot) -> OperatorMetrics:
        """Return the metrics of an operator in a window, with CPU work as long as on a machine of speed 1.

        Of $y$ seconds per record $c$ take CPU; at the common speed u of its instances that is $y+c(u-1)$ at speed 1.
        """
        m = s.operators[name]
        if self.start is None or not m.true_rate or not m.processing_rate:
            return m
        speed, part = self._of(s.deployment)[name]
        if (speed == 1).all():
            return m
        # In micro-batches each instance gets the same number of records, however fast it is.
        y, even = 1 / m.true_rate, s.execution == "micro-batch"
        if m.cpu is None:
            io = self.start.services[name].io_share
            slow = io + (1 - io) / speed
            return replace(m, true_rate=1 / (y / (part * slow).sum() if even else y * (part / slow).sum()))
        cpu = m.cpu / m.processing_rate
        u = common_speed(speed, part, 0.0 if even else min(1.0, cpu / y))
        return replace(m, true_rate=1 / (y + cpu * (u - 1)), cpu=m.cpu * u)

    def _of(self, deployment: Deployment) -> dict[str, tuple[Array, Array]]:
        """Return the speeds of each operator's nodes, and the share of its instances on each."""
        if deployment not in self._known:
            self._known[deployment] = self._find(deployment)
        return self._known[deployment]

    def _find(self, deployment: Deployment) -> dict[str, tuple[Array, Array]]:
        assert self.start is not None
        nodes = self.start.nodes
        if self._same:
            one = np.array([next(iter(nodes.values())).speed]), np.ones(1)
            return dict.fromkeys(self.topology.order, one)
        names = list(nodes)[: deployment.workers]
        where = {**round_robin(self.topology, deployment.parallelism, names), **deployment.placement}
        if odd := sorted(set(where.values()) - set(nodes)):
            raise ArgumentError(
                f"instances on {', '.join(map(repr, odd))}, and start with {', '.join(map(repr, nodes))}",
                expected="the speed of each node that the run used",
                fix="add it to the nodes of start, as in Node(16, speed=2.0)",
            )
        found = {}
        for name in self.topology.order:
            on = Counter(nodes[node].speed for (operator, _), node in where.items() if operator == name)
            found[name] = np.array(list(on)), np.array(list(on.values())) / on.total()
        return found


def common_speed(speed: Array, part: Array, cpu: float) -> float:
    """Return the one speed that explains instances of which `part` run at each `speed`, with a share `cpu` of CPU work.

    Faster instances take more of the records. With $u$ that speed, those that only do CPU work are $v/u$ times as fast,
    and $\\sum f(u-v)/(cu+(1-c)v)=0$: the arithmetic mean if all is CPU work, the harmonic one if next to none is.

    >>> [round(common_speed(np.array([2.0, 0.5]), np.array([0.5, 0.5]), cpu), 3) for cpu in (1.0, 0.5, 0.0)]
    [1.25, 1.0, 0.8]
    """
    u = float((part * speed).sum())
    for _ in range(_ROUNDS if len(speed) > 1 else 0):
        weight = part / (cpu * u + (1 - cpu) * speed)
        u = float((weight * speed).sum() / weight.sum())
    return u


_FEW = 5  # fewest records in a window that is used
_FULL = 0.9  # share of a node's cores in use from which instances may wait for a core
_EASY = 0.2  # the same, up to which none waits: then a smaller CPU part of the busy time has another cause
_STEADY, _SHAKY = 0.01, 0.06  # bounds of the relative variation of the CPU part of busy time without waits for cores
_MOST = 1.05  # largest CPU part, with some tolerance for the meter
_STILL = 0.02  # relative change from window to window of a queue that is full
_HELD = 0.97  # utilisation below which an operator with a backlog is back-pressured
_ODD = 0.05  # relative distance from the law, or between queue lengths, that is worth a note

Row = tuple[int, Snapshot, OperatorMetrics]


class Reading:
    """The analysis of a run: its windows in order, and the estimates so far."""

    def __init__(self, history: History, confidence: float, start: Plant | None):
        self.topology, self.start, self.confidence = history.topology, start, confidence
        self.seen = [step.snapshot for step in history]
        self._speeds = Speeds(history.topology, start)
        self.estimates: list[Estimate] = []
        self.notes: list[str] = []
        self.laws: list[Law] = []
        self._used = [  # of the most used node, in the time in which the job was not paused
            max(s.nodes.values(), default=0.0) / max(1e-9, 1 - s.downtime_s / s.window_s) for s in self.seen
        ]

    def add(self, where: str, quantity: str, value: Interval, windows: int, note: str = "") -> float:
        """Add an estimate; none of them can be negative."""
        ends = [None if x is None or not math.isfinite(x) else max(0.0, x) for x in value]
        self.estimates.append(Estimate(where, quantity, ends[0], ends[1], ends[2], windows, note))
        return ends[0] or 0.0

    def unknown(self, where: str, quantity: str, why: str) -> None:
        """Add a quantity that the run does not determine, with the reason."""
        self.estimates.append(Estimate(where, quantity, None, note=why))

    def require_metrics(self) -> None:
        """Raise an error if the run determines nothing at all, or nothing of some operator."""
        fix = "record a run under load, with true_rate, at two or more parallelisms"
        if not self.seen:
            raise MetricError("an empty history", expected="at least one window", fix=fix)
        silent = [n for n in self.topology.order if not any(n in s.operators for s in self.seen)]
        if silent and self.start is None:
            raise MetricError(
                f"no metrics of {', '.join(map(repr, silent))} in any window",
                expected="each operator in some window",
                fix="record a run with their metrics, or give their cost in start=Plant(...)",
            )
        if not any(self._rows(name) for name in self.topology.order):
            raise MetricError(
                f"{len(self.seen)} windows without a processed record and its true_rate",
                expected=f"a window with {_FEW} records or more",
                fix=fix,
            )

    def operator(self, name: str) -> Service:
        """Return the service that explains the metrics of this operator."""
        base = self.start.services[name] if self.start else Service()
        known = self._cost(name, base) | self._room(name)
        children = self.topology.downstream(name)
        if children:
            before = {child: base.toward(child) for child in children}
            known["selectivity"] = {child: self._selectivity(name, child, before[child]) for child in children}
            return replace(base, **known)
        rows = [
            (m.output_rate * s.window_s, m.processing_rate * s.window_s)
            for s, m in self._of(name)
            if m.processing_rate > 0
        ]
        if rows:
            made, taken = np.array(rows).T
            known["results"] = self.add(name, "results", ratio(made, taken, self.confidence), len(rows))
        return replace(base, **known)

    def _of(self, name: str) -> list[tuple[Snapshot, OperatorMetrics]]:
        return [(s, s.operators[name]) for s in self.seen if name in s.operators]

    def _rows(self, name: str) -> list[Row]:
        """Return the windows in which this operator processed enough records, with its metrics as on nodes of speed
        1.
        """
        return [
            (i, s, self._speeds.at_one(name, s))
            for i, s in enumerate(self.seen)
            if (m := s.operators.get(name)) and m.true_rate and m.processing_rate * s.window_s >= _FEW
        ]

    def _selectivity(self, name: str, child: str, before: float) -> float:
        rows = [
            (s.edge_rates[name, child] * s.window_s, m.processing_rate * s.window_s)
            for s, m in self._of(name)
            if (name, child) in s.edge_rates and m.processing_rate > 0
        ]
        if not rows:
            self.unknown(f"{name} → {child}", "selectivity", "no window shows both ends; meter the edge")
            return before
        sent, taken = np.array(rows).T
        return self.add(f"{name} → {child}", "selectivity", ratio(sent, taken, self.confidence), len(rows))

    def _cost(self, name: str, base: Service) -> dict[str, Any]:
        rows = self._rows(name)
        if not rows:
            self.unknown(name, "seconds_per_record", "it processed too few records; send it more")
            return {}
        rows, lacked = self._undisturbed(rows)
        rates = np.array([(1 / m.true_rate, m.processing_rate) for _, _, m in rows if m.true_rate])
        cpu = np.array([math.nan if m.cpu is None else m.cpu / m.processing_rate for _, _, m in rows])
        w = Windows(
            k=np.array([m.parallelism for _, _, m in rows]),
            y=rates[:, 0],
            n=rates[:, 1] * np.array([s.window_s for _, s, _ in rows]),
            busy=np.array([m.utilisation for _, _, m in rows]),
        )
        notes = []
        if lacked.all():
            self.notes.append(f"{name}: nodes were full in all its windows; give it more cores, or a lower load.")
            notes.append("contains the wait for cores")
        if lacked.any():
            part = 1 - base.io_share if lacked.all() else float(np.median((cpu / w.y)[~lacked]))
            if part > 0.1 and (cpu[lacked] > 0).all():
                w = w._replace(y=np.where(lacked, cpu / part, w.y))
                at = sorted({int(k) for k in w.k[lacked]})
                notes = [f"from CPU time at {', '.join(map(str, at))}, where nodes were full"]
        found = law(w, base.contention, base.coherency, self.confidence, base.external_rate_limit_per_s)
        self.laws.append(found)
        if found.outliers:
            notes.append(f"{found.outliers} outliers left out")
        known = self._law(name, found, len(rows) - found.outliers, notes)
        if not lacked.all():
            known |= self._io(name, replace(base, **known), w.only(~lacked), cpu[~lacked])
        return known

    def _undisturbed(self, rows: list[Row]) -> tuple[list[Row], Array]:
        """Return the windows without pauses and with free cores; and a mask of those that lacked cores all the same.

        Where CPU is metered, an instance that waits for a core shows by a smaller CPU part of its busy time. Windows
        with a pause or without free cores are kept for parallelisms that no other window shows.
        """
        used = np.array([self._used[i] for i, *_ in rows])
        k = np.array([m.parallelism for *_, m in rows])
        lacked = used >= _FULL
        part = np.array([m.cpu * (m.true_rate or 0) / m.processing_rate if m.cpu else math.nan for *_, m in rows])
        if (sound := part[part <= _MOST]).size:
            # Metrics jitter from window to window; a wait is a step. Within the jitter of the top cores were free.
            jitter = float(np.quantile(np.abs(np.diff(sound)), 0.25)) / 0.45 if sound.size > 1 else 0.0
            free = (used < _EASY) | (part >= sound.max() * (1 - min(_SHAKY, max(_STEADY, 3 * jitter / sound.max()))))
            lacked = ~free if (free & ~lacked).any() else np.ones_like(free)
        known = ~lacked | ~np.isin(k, k[~lacked]) & (np.isfinite(part) | lacked.all())
        stood = np.array([s.downtime_s > 0 for _, s, _ in rows])
        known &= ~stood | ~np.isin(k, k[known & ~stood])
        return [row for row, keep in zip(rows, known, strict=True) if keep], lacked[known]

    def _law(self, name: str, found: Law, used: int, notes: list[str]) -> dict[str, Any]:
        at = ", ".join(map(str, found.seen))
        if len(found.seen) == 1 and found.seen != (1,):
            notes = [*notes, f"per record at {at} instances"]
        known = {"seconds_per_record": self.add(name, "seconds_per_record", found.seconds, used, "; ".join(notes))}
        for quantity in ("contention", "coherency"):
            value: Interval | None = getattr(found, quantity)
            if value is not None:
                two = len(found.seen) == 2 and found.ceiling is None
                note = "if coherency is as in start, or 0" if two else ""
                known[quantity] = self.add(name, quantity, value, used, note)
            elif quantity == "coherency" and found.ceiling is not None:
                known[quantity] = 0.0
                self.unknown(name, quantity, "an external rate limit explains the rates better")
            else:
                self.unknown(name, quantity, f"seen at {at} only; run it at another parallelism")
        if found.ceiling is not None:
            note = "of an external server, or of cores that are not metered"
            known["external_rate_limit_per_s"] = self.add(name, "external_rate_limit_per_s", found.ceiling, used, note)
        if found.misfit > _ODD:
            self.notes.append(f"{name}: the law is up to {found.misfit:.0%} off the mean at a parallelism seen.")
        return known

    def _io(self, name: str, service: Service, w: Windows, cpu: Array) -> dict[str, Any]:
        metered = np.isfinite(cpu)
        if not metered.any():
            self.unknown(name, "io_share", "its CPU is not metered")
            return {}
        y = w.y
        if math.isfinite(service.external_rate_limit_per_s):  # the wait for the server is not part of the service
            y = np.array([service.seconds(int(k)) for k in w.k])
        cores = ratio((cpu * w.n)[metered], (y * w.n)[metered], self.confidence)
        low, high = (None if x is None else min(1.0, max(0.0, 1 - x)) for x in (cores.high, cores.low))
        value = Interval(min(1.0, max(0.0, round(1 - cores.value, 12))), low, high)
        return {"io_share": self.add(name, "io_share", value, int(metered.sum()))}

    def _room(self, name: str) -> dict[str, Any]:
        """Return the records per instance while the queue was full: constant, and blocking or dropping."""
        drops, shown = False, []
        for before, s in pairwise(self.seen):
            a, b = before.operators.get(name), s.operators.get(name)
            if a is None or b is None or before.deployment != s.deployment or before.downtime_s or s.downtime_s:
                continue
            refuses = b.dropped > 1e-3 * b.input_rate > 0
            drops = drops or refuses
            still = abs(b.backlog - a.backlog) <= _STILL * b.backlog and b.backlog > b.parallelism
            if still and (refuses or any(self._held(p, s) for p in self.topology.upstream(name))):
                shown.append(b.backlog / b.parallelism)
        if not shown:
            if self.topology.upstream(name):
                self.unknown(name, "queue_records", "it never blocked its senders; load it beyond its capacity")
            return {"overflow": "drop"} if drops else {}
        value = Interval(float(np.median(shown)), min(shown), max(shown))
        varied = max(shown) - min(shown) > _ODD * value.value
        room = max(1.0, self.add(name, "queue_records", value, len(shown), "varied; median" if varied else ""))
        return {"queue_records": room} | ({"overflow": "drop"} if drops else {})

    @staticmethod
    def _held(name: str, s: Snapshot) -> bool:
        """Return whether back-pressure kept this operator from processing its backlog."""
        m = s.operators.get(name)
        if m is None:
            return False
        held = m.utilisation < _HELD if m.blocked is None else m.blocked > 1 - _HELD
        return held and m.backlog > m.parallelism


_WHOLE = 1 - 1e-9  # share of a window that is all of it
_SURE = 0.5  # half the width of an interval that contains one whole number of cores


def fit_job_fields(run: Reading) -> dict[str, Any]:
    """Estimate the plant's own fields, as far as the run determines them.

    Call it after the estimates of the operators, whose residuals are the noise.
    """
    execution = Counter(s.execution for s in run.seen).most_common()
    if len(execution) > 1:
        modes = " and ".join(f"{n} {name}" for name, n in execution)
        run.notes.append(f"The mode changed during the run ({modes} windows): fit each part by itself.")
    known = {"execution": execution[0][0]} | _noise(run) | _pause(run) | _nodes(run)
    if execution[0][0] == "micro-batch":
        known |= _overhead(run)
    run.notes.append("Not in snapshots, so as in start or by default: distributions, links, state, speeds, faults.")
    return known


def _noise(run: Reading) -> dict[str, Any]:
    """Estimate the spread of whole windows about the law, over all operators: $v = \\ln(1+cv^2)$ of a lognormal."""
    r = np.concatenate([np.zeros(0), *(x.residuals - x.residuals.mean() for x in run.laws)])
    n = np.concatenate([np.zeros(0), *(x.records for x in run.laws)])
    freedom = len(r) - sum(min(3, len(x.seen)) for x in run.laws)
    if freedom < 3:
        run.unknown("job", "noise", "too few windows")
        return {}
    v, c = variance(r, n)
    v, chance = v * len(r) / freedom, c * float((1 / n).mean())
    ends = freedom / stats.chi2.ppf([(1 + run.confidence) / 2, (1 - run.confidence) / 2], freedom)
    low, value, high = (
        min(1.0, math.sqrt(math.expm1(min(1.0, max(0.0, (v + chance) * x - chance))))) for x in (ends[0], 1.0, ends[1])
    )
    return {"noise": run.add("job", "noise", Interval(value, low, high), len(r))}


def _pause(run: Reading) -> dict[str, Any]:
    """Estimate the downtime per change, over as many windows as it lasts; without pauses cut by the next change."""
    whole, cut = _pauses(run)
    state = 0.0
    if run.start and run.start.pause_kind == "savepoint":  # which the plant counts beside its pause
        state = 2 * sum(s.state_bytes for s in run.start.services.values()) / run.start.state_bytes_per_s
    if whole:
        notes = ["one rescale only"] if len(whole) == 1 else []
        notes += [f"{len(cut)} more were cut short"] if cut else []
        value = mean(np.maximum(0.0, np.array(whole) - state), run.confidence)
        return {"pause_s": min(3600.0, run.add("job", "pause_s", value, len(whole), "; ".join(notes)))}
    if cut:
        least = max(0.0, max(cut) - state)
        run.notes.append("Each pause was cut by the next change, so it is longer than this: wait between changes.")
        return {"pause_s": min(3600.0, run.add("job", "pause_s", Interval(least, least), len(cut), "at least"))}
    run.unknown("job", "pause_s", "no rescale was seen; change a parallelism")
    return {}


def _pauses(run: Reading) -> tuple[list[float], list[float]]:
    """Return the lengths of complete pauses, and of those cut by the next change or the end of the run, in seconds."""
    whole: list[float] = []
    cut: list[float] = []
    going: float | None = None
    for before, s in pairwise(run.seen):
        stands = before.downtime_s >= before.window_s * _WHOLE
        if s.deployment != before.deployment:
            if going is not None:
                (cut if stands else whole).append(going)
            going = 0.0
        if going is not None:
            going += s.downtime_s
            if s.downtime_s == 0:
                whole.append(going)
                going = None
    if going is not None:
        last = run.seen[-1]
        (cut if last.downtime_s >= last.window_s * _WHOLE else whole).append(going)
    return whole, cut


def _overhead(run: Reading) -> dict[str, Any]:
    """Estimate the part of a batch's time in which no stage works, while batches follow each other without a gap.

    Then a record stays in its batch for as long as the batch takes, $T$ = mean latency, and the overhead is
    $T\\,(1-\\sum_i u_i)$ with u the utilisation of each stage. It is larger where batches also wait for their trigger,
    so the deployment with the smallest mean is used.
    """
    shown: dict[Any, list[float]] = {}
    for before, s in pairwise(run.seen):
        whole = (
            s.latency is not None and s.latency.mean <= s.window_s / 2 and len(s.operators) == len(run.topology.order)
        )
        if s.latency and whole and min(before.lag, s.lag) > 0 and not s.downtime_s:
            idle = max(0.0, 1 - sum(m.utilisation for m in s.operators.values()))
            shown.setdefault(s.deployment, []).append(s.latency.mean * idle)
    if not shown:
        why = (
            "no window of two batches or more with records waiting; load the job beyond its capacity, in longer windows"
        )
        run.unknown("job", "batch_overhead_s", why)
        return {}
    enough = [v for v in shown.values() if len(v) > 2] or list(shown.values())
    values = np.array(min(enough, key=lambda v: sum(v) / len(v)))
    note = "with the wait for the last instance of a stage"
    found = run.add("job", "batch_overhead_s", mean(values, run.confidence), len(values), note)
    return {"batch_overhead_s": min(60.0, found)}


def _nodes(run: Reading) -> dict[str, Any]:
    """Estimate cores in use over the share of cores in use; per node if their shares differ enough."""
    names = list(dict.fromkeys(name for s in run.seen for name in s.nodes))
    rows = []
    for s in run.seen:
        cpu = [m.cpu for m in s.operators.values() if m.cpu is not None]
        if len(cpu) == len(run.topology.order) and set(s.nodes) == set(names) and sum(cpu) * sum(s.nodes.values()) > 0:
            rows.append((*(s.nodes[n] for n in names), sum(cpu)))
    if not rows:
        for name in names:
            run.unknown(name, "cores", "the CPU of operators is not metered")
        if run.start is None:
            run.notes.append("Cores are not metered: four nodes of 16 were assumed; pass the actual ones in start.")
        return {}
    shares, used = np.array(rows)[:, :-1], np.array(rows)[:, -1]
    found = _by_node(shares, used, run.confidence)
    note = "" if found or len(names) == 1 else "if all nodes are alike"
    alike = ratio(used, shares.sum(axis=1), run.confidence)
    found = found or [alike] * len(names)
    cores = {n: max(1, round(run.add(n, "cores", c, len(rows), note))) for n, c in zip(names, found, strict=True)}
    if run.start is None:
        return {"nodes": {name: Node(min(4096, count)) for name, count in cores.items()}}
    known = run.start.nodes
    if odd := [n for n, count in cores.items() if n not in known or known[n].cores != count]:
        run.notes.append(f"Metrics and start differ in the cores of {', '.join(odd)}; those of start were kept.")
    return {}


def _by_node(shares: Array, used: Array, confidence: float) -> list[Interval] | None:
    """Return the cores of each node by least squares, if each interval contains one whole number."""
    n, m = shares.shape
    if n <= m or np.linalg.matrix_rank(shares, tol=1e-6) < m:
        return None
    cores, *_ = np.linalg.lstsq(shares, used, rcond=None)
    spread = float(((used - shares @ cores) ** 2).sum()) / (n - m)
    errors = np.sqrt(spread * np.diag(np.linalg.inv(shares.T @ shares)))
    errors = np.maximum(errors * float(stats.t.ppf((1 + confidence) / 2, n - m)), 1e-6 * np.abs(cores))
    if (errors > _SURE).any() or (cores < _SURE).any():
        return None
    return [Interval(float(c), float(c - e), float(c + e)) for c, e in zip(cores, errors, strict=True)]
