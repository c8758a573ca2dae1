"""The parts of a proactive policy: the recorded past of a source, and a window as it would look under another load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..core import OperatorMetrics, Snapshot, Topology
from .base import Forecast, Predictor, Series

TRACE, MOST = 1e-9, 1e6  # records/s that count as zero, and the greatest meaningful growth


class SourceForecast(NamedTuple):
    """The last rates of a source, and what a predictor learned from them."""

    rates: tuple[float, ...] = ()
    t: float = 0.0  # end of the last window
    window_s: float = 1.0
    memory: Any = None
    kind: str = ""  # the predictor that learned; another one must learn again
    age: int = 0  # windows since the last learning

    def see(self, rate: float | None, snapshot: Snapshot, max_length: int) -> SourceForecast:
        """Return the past with one more window.

        A source without metrics keeps its last rate, and windows of another length begin a new past.
        """
        if self.rates and abs(snapshot.window_s - self.window_s) > 1e-9:
            return SourceForecast().see(rate, snapshot, max_length)
        if rate is None and not self.rates:
            return self
        rates = (*self.rates, self.rates[-1] if rate is None else rate)[-max_length:]
        return self._replace(rates=rates, t=snapshot.t, window_s=snapshot.window_s, age=self.age + 1)

    def learn(self, predictor: Predictor, min_length: int, every: int) -> SourceForecast:
        """Return the past with a new model, if it is due."""
        due = self.kind != repr(predictor) or self.age >= every
        if len(self.rates) < min_length or not due:
            return self
        return self._replace(memory=predictor.learn(self._series), kind=repr(predictor), age=0)

    def forecast(self, predictor: Predictor, horizon: int) -> Forecast:
        """Return the forecast of the next `horizon` windows."""
        return predictor.forecast(self.memory, self._series, horizon)

    @property
    def _series(self) -> Series:
        return Series(self.rates, self.window_s, self.t - len(self.rates) * self.window_s)


def as_if(topology: Topology, snapshot: Snapshot, expected: Mapping[str, float]) -> Snapshot:
    """Return this window as if the sources had been offered the `expected` rates, with the same true rates.

    An operator's input grows by the same factor as the demand of the sources, its processing rate up to the capacity
    of its instances. Sources without an expected rate keep theirs.
    """
    if not expected:
        return snapshot
    now = snapshot.source_rates
    then = {**now, **{source: rate for source, rate in expected.items() if source in now}}
    ratio = _ratios(topology, snapshot, then)
    operators, did = {}, {}
    for name, m in snapshot.operators.items():
        operators[name], did[name] = _busier(m, ratio[name])
    edges = {(u, v): rate * did.get(u, 1.0) for (u, v), rate in snapshot.edge_rates.items()}
    return replace(snapshot, source_rates=then, operators=operators, edge_rates=edges)


def _busier(m: OperatorMetrics, ratio: float) -> tuple[OperatorMetrics, float]:
    """Return an operator's metrics under `ratio` times the demand, and the growth of its processing rate."""
    most = m.true_rate * m.parallelism if m.true_rate else None
    done = m.processing_rate * ratio if most is None else min(m.processing_rate * ratio, max(most, m.processing_rate))
    did = done / m.processing_rate if m.processing_rate > 0 else 1.0
    busy = min(1.0, m.utilisation * ratio)
    arrived, sent, cpu = m.input_rate * ratio, m.output_rate * did, None if m.cpu is None else m.cpu * did
    each = (
        None
        if m.instances is None
        else tuple(
            replace(
                i,
                processing_rate=i.processing_rate * did,
                utilisation=min(1.0, i.utilisation * ratio),
                cpu=None if i.cpu is None else i.cpu * did,
            )
            for i in m.instances
        )
    )
    rates = replace(m, input_rate=arrived, processing_rate=done, output_rate=sent)
    return replace(rates, utilisation=busy, cpu=cpu, instances=each), did


def _ratios(topology: Topology, snapshot: Snapshot, then: Mapping[str, float]) -> dict[str, float]:
    """Return the growth of the demand on each operator: under `then` relative to now, propagated down the graph."""
    old, new = snapshot.demand, replace(snapshot, source_rates=then).demand
    overall = _growth(sum(snapshot.source_rates.values()), sum(then.values()), 1.0)
    return {
        name: _growth(old[name], new[name], overall) if name in old and name in new else overall
        for name in topology.order
    }


def _growth(old: float, new: float, otherwise: float) -> float:
    return min(new / old, MOST) if old > TRACE else otherwise
