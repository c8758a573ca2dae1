"""What makes a policy proactive: the past of one source, and a window as it would look under another load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..core import OperatorMetrics, Snapshot, Topology
from .base import Forecast, Predictor, Series

TRACE, MOST = 1e-9, 1e6  # records/s that are none, and the growth beyond which a ratio tells nothing


class Outlook(NamedTuple):
    """The last rates of a source, and what a predictor learned from them."""

    rates: tuple[float, ...] = ()
    t: float = 0.0  # end of the last window
    window_s: float = 1.0
    memory: Any = None
    kind: str = ""  # of the predictor that learned: another one must learn anew
    age: int = 0  # windows since it learned

    def see(self, rate: float | None, snapshot: Snapshot, most: int) -> Outlook:
        """One window more; a source whose meter is silent is taken to go on, and other windows begin a new past."""
        if self.rates and abs(snapshot.window_s - self.window_s) > 1e-9:
            return Outlook().see(rate, snapshot, most)
        if rate is None and not self.rates:
            return self
        rates = (*self.rates, self.rates[-1] if rate is None else rate)[-most:]
        return self._replace(rates=rates, t=snapshot.t, window_s=snapshot.window_s, age=self.age + 1)

    def learn(self, predictor: Predictor, least: int, every: int) -> Outlook:
        """Learn now, if it is time."""
        due = self.kind != repr(predictor) or self.age >= every
        if len(self.rates) < least or not due:
            return self
        return self._replace(memory=predictor.learn(self._series), kind=repr(predictor), age=0)

    def forecast(self, predictor: Predictor, horizon: int) -> Forecast:
        return predictor.forecast(self.memory, self._series, horizon)

    @property
    def _series(self) -> Series:
        return Series(self.rates, self.window_s, self.t - len(self.rates) * self.window_s)


def as_if(topology: Topology, snapshot: Snapshot, expected: Mapping[str, float]) -> Snapshot:
    """This window, had the sources been offered the `expected` rates: true rates and selectivities stay.

    What an operator gets grows by the same factor as what the sources ask of it, what it does only up to what its
    instances can do. A source that is not named stays as it is.
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
    """An operator that is asked for `ratio` times as much, and by how much more it then does."""
    most = m.true_rate * m.parallelism if m.true_rate else None
    done = m.processing_rate * ratio if most is None else min(m.processing_rate * ratio, max(most, m.processing_rate))
    did = done / m.processing_rate if m.processing_rate > 0 else 1.0
    busy = min(1.0, m.utilisation * ratio)
    came, sent, cpu = m.input_rate * ratio, m.output_rate * did, None if m.cpu is None else m.cpu * did
    return replace(m, input_rate=came, processing_rate=done, output_rate=sent, utilisation=busy, cpu=cpu), did


def _ratios(topology: Topology, snapshot: Snapshot, then: Mapping[str, float]) -> dict[str, float]:
    """By how much more the sources ask of each operator: demand under `then` over demand now, down the graph."""
    old: dict[str, float] = {}
    new: dict[str, float] = {}
    ratio: dict[str, float] = {}
    whole = sum(snapshot.source_rates.values())
    overall = _growth(whole, sum(then.values()), 1.0)
    for name in topology.order:
        if not topology.upstream(name):
            old[name], new[name] = snapshot.source_rates.get(name, 0.0), then.get(name, 0.0)
        else:
            shares = [(u, snapshot.selectivity((u, name)) or 0.0) for u in topology.upstream(name)]
            old[name], new[name] = (sum(s * demand[u] for u, s in shares) for demand in (old, new))
        ratio[name] = _growth(old[name], new[name], overall)
    return ratio


def _growth(old: float, new: float, otherwise: float) -> float:
    return min(new / old, MOST) if old > TRACE else otherwise
