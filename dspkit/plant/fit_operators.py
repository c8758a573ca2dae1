"""What a recorded run shows of each operator: its law, cores, results, selectivities, and room."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ..core import OperatorMetrics, Snapshot
from ..errors import MetricError
from ..history import History
from .fit import Estimate
from .fit_numbers import Array, Interval, Law, Windows, law, ratio
from .fit_speeds import Speeds
from .plant import Plant
from .service import Service

_FEW = 5  # records in a window: fewer say little
_FULL = 0.9  # share of a node's cores in use from which instances may wait for one
_EASY = 0.2  # share, of a whole window, up to which none waits; a shorter part of their time is for something else
_STEADY, _SHAKY = 0.01, 0.06  # relative: how far the CPU part of busy time may vary where nobody waits for cores
_MOST = 1.05  # what it can be at most, with a meter that is a little off
_STILL = 0.02  # relative change from window to window of a queue that is full
_HELD = 0.97  # utilisation below which an operator with records before it is held back
_ODD = 0.05  # relative distance from the law, or between rooms, that is worth a note

Row = tuple[int, Snapshot, OperatorMetrics]


class Reading:
    """A run as it is read: windows in order, and what was found so far."""

    def __init__(self, history: History, confidence: float, start: Plant | None):
        self.topology, self.start, self.confidence = history.topology, start, confidence
        self.seen = [step.snapshot for step in history]
        self._speeds = Speeds(history.topology, start)
        self.estimates: list[Estimate] = []
        self.notes: list[str] = []
        self.laws: list[Law] = []
        self._used = [  # the most used node, in the time that the job did not stand still
            max(s.nodes.values(), default=0.0) / max(1e-9, 1 - s.downtime_s / s.window_s) for s in self.seen
        ]

    def add(self, where: str, quantity: str, value: Interval, windows: int, note: str = "") -> float:
        """Keep an estimate; none of them can be negative."""
        ends = [None if x is None or not math.isfinite(x) else max(0.0, x) for x in value]
        self.estimates.append(Estimate(where, quantity, ends[0], ends[1], ends[2], windows, note))
        return ends[0] or 0.0

    def unknown(self, where: str, quantity: str, why: str) -> None:
        self.estimates.append(Estimate(where, quantity, None, note=why))

    def must_tell(self) -> None:
        """An error if nothing can be known at all, or of some operator."""
        fix = "record a run under load, with meters of true_rate, at two or more parallelisms"
        if not self.seen:
            raise MetricError("an empty history", expected="at least one window", fix=fix)
        silent = [n for n in self.topology.order if not any(n in s.operators for s in self.seen)]
        if silent and self.start is None:
            raise MetricError(
                f"no metrics of {', '.join(map(repr, silent))} in any window",
                expected="each operator in some window",
                fix="record with their meters on, or say what they cost in start=Plant(...)",
            )
        if not any(self._rows(name) for name in self.topology.order):
            raise MetricError(
                f"{len(self.seen)} windows without a processed record and its true_rate",
                expected=f"a window with {_FEW} records or more",
                fix=fix,
            )

    def operator(self, name: str) -> Service:
        """The service that explains what this operator did."""
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
        """Windows in which this operator did enough to tell its speed, as on nodes of speed 1."""
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
            self.unknown(name, "seconds_per_record", "it processed next to nothing; send it more")
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
        found = law(w, base.contention, base.coherency, self.confidence, base.ceiling_per_s)
        self.laws.append(found)
        if found.outliers:
            notes.append(f"{found.outliers} outliers left out")
        known = self._law(name, found, len(rows) - found.outliers, notes)
        if not lacked.all():
            known |= self._io(name, replace(base, **known), w.only(~lacked), cpu[~lacked])
        return known

    def _undisturbed(self, rows: list[Row]) -> tuple[list[Row], Array]:
        """Windows in which the job did not stand still and cores were free; and which of them had too few all the same.

        Where CPU is metered, an instance that waits for a core shows by a smaller part of its busy time that is CPU
        time. Parallelisms that only windows with a pause or without cores showed keep those.
        """
        used = np.array([self._used[i] for i, *_ in rows])
        k = np.array([m.parallelism for *_, m in rows])
        lacked = used >= _FULL
        part = np.array([m.cpu * (m.true_rate or 0) / m.processing_rate if m.cpu else math.nan for *_, m in rows])
        if (sound := part[part <= _MOST]).size:
            # Meters jitter from window to window; a wait makes a step. What lies within the jitter of the top is free.
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
                self.unknown(name, quantity, "a ceiling explains the rates better")
            else:
                self.unknown(name, quantity, f"seen at {at} only; run it at another parallelism")
        if found.ceiling is not None:
            note = "of an external server, or of cores that are not metered"
            known["ceiling_per_s"] = self.add(name, "ceiling_per_s", found.ceiling, used, note)
        if found.misfit > _ODD:
            self.notes.append(f"{name}: the law is up to {found.misfit:.0%} off the mean at a parallelism seen.")
        return known

    def _io(self, name: str, service: Service, w: Windows, cpu: Array) -> dict[str, Any]:
        metered = np.isfinite(cpu)
        if not metered.any():
            self.unknown(name, "io_share", "its CPU is not metered")
            return {}
        y = w.y
        if math.isfinite(service.ceiling_per_s):  # the wait for the external server is no part of the service
            y = np.array([service.seconds(int(k)) for k in w.k])
        cores = ratio((cpu * w.n)[metered], (y * w.n)[metered], self.confidence)
        low, high = (None if x is None else min(1.0, max(0.0, 1 - x)) for x in (cores.high, cores.low))
        value = Interval(min(1.0, max(0.0, round(1 - cores.value, 12))), low, high)
        return {"io_share": self.add(name, "io_share", value, int(metered.sum()))}

    def _room(self, name: str) -> dict[str, Any]:
        """Records before one instance while the queue was full: it stayed as it was, and held back or refused."""
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
                self.unknown(name, "queue_records", "it never held back what feeds it; load it beyond its capacity")
            return {"overflow": "drop"} if drops else {}
        value = Interval(float(np.median(shown)), min(shown), max(shown))
        varied = max(shown) - min(shown) > _ODD * value.value
        room = max(1.0, self.add(name, "queue_records", value, len(shown), "varied; median" if varied else ""))
        return {"queue_records": room} | ({"overflow": "drop"} if drops else {})

    @staticmethod
    def _held(name: str, s: Snapshot) -> bool:
        """Whether something kept this operator from the records before it."""
        m = s.operators.get(name)
        if m is None:
            return False
        held = m.utilisation < _HELD if m.blocked is None else m.blocked > 1 - _HELD
        return held and m.backlog > m.parallelism
