"""Waiting times as a job gets busier: theory, the fluid engine, and records one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...core import Deployment, Knobs, Topology, knob
from ...core.queueing import erlang_c
from ...plots import Plot, si
from ...plots.theme import PALETTE, axis, plot
from ...simulator import Node, Plant, Service, Simulator
from ...workload import Constant

LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
SERVICE_S, BATCHES = 0.01, 30


@dataclass(frozen=True)
class Waiting(Knobs):
    """One operator, records that arrive at random: their time in it, waiting and service, against its utilisation.

    Theory is $s + \\frac{C}{k/s-\\lambda}\\cdot\\frac{1+c^2}2$ with Erlang's C: exact for one instance (Pollaczek and
    Khinchine) and for exponential services (Erlang), close for all else.
    """

    utilisation: float = knob(0.8, "share of its time that an instance is busy", low=0.05, high=0.95)
    instances: int = knob(1, "instances that take from one queue", low=1, high=20)
    variation: float = knob(
        1.0, "of service times: 0 always the same, 1 exponential, 2 a few very long ones", low=0.0, high=3.0
    )
    records: int = knob(5000, "records behind each point, at least", low=1000, high=20000)
    seed: int = knob(1, "another seed, other luck", low=0, high=99)

    def theory(self, load: float) -> float:
        """Return the mean seconds in the operator.

        Parameters
        ----------
        load : float
            Its utilisation.

        Examples
        --------
        >>> round(Waiting().theory(0.5), 6)
        0.02
        """
        k = self.instances
        wait = erlang_c(k, load * k) / ((1 - load) * k / SERVICE_S)
        return SERVICE_S + wait * (1 + self.variation**2) / 2

    def simulated(self, load: float, engine: str, records: int) -> tuple[float, float]:
        """Return the mean seconds by an engine, and half the width of its 95 % interval.

        The interval is of means over 30 batches of time.

        Parameters
        ----------
        load : float
            Utilisation of the operator.
        engine : str
            "fluid" or "records".
        records : int
            Number of records, at least.

        Examples
        --------
        >>> mean, _ = Waiting().simulated(0.5, "fluid", 1000)
        >>> 0.015 < mean < 0.025
        True
        """
        kind = {"distribution": "gamma", "cv": self.variation} if self.variation >= 0.01 else {}
        service = Service(SERVICE_S, **(kind or {"distribution": "deterministic"}))  # type: ignore[arg-type]
        rate = load * self.instances / SERVICE_S
        # A batch has to outlast what a queue remembers, the longer the busier, for its mean to stand alone.
        memory = (1 + self.variation**2) / 2 * SERVICE_S / self.instances / (1 - math.sqrt(load)) ** 2
        batches = BATCHES if engine == "records" else 1
        window = max(records / rate / batches, 4 * memory)
        plant = Plant({"operator": service}, {"node": Node(64)})
        job = Simulator(
            Topology.chain("operator"),
            plant,
            Constant(rate),
            deployment=Deployment({"operator": self.instances}),
            window_s=window,
            tick_s=window,
            engine=engine,
            seed=self.seed,
        )
        job.observe()  # from an empty queue to its usual length
        means = [s.event_latency.mean for s in (job.observe() for _ in range(batches)) if s.event_latency]
        mean = sum(means) / len(means)
        spread = math.sqrt(sum((m - mean) ** 2 for m in means) / max(1, len(means) - 1))
        return mean, 2.05 * spread / math.sqrt(len(means))

    def plot(self) -> Plot:
        """Draw the time in the operator over the utilisation, by theory and by both engines."""
        steps = [0.02 * i for i in range(1, 48)]
        here = self.theory(self.utilisation), self.simulated(self.utilisation, "fluid", self.records)[0]
        told, half = self.simulated(self.utilisation, "records", 4 * self.records)
        points = [self.simulated(load, "records", self.records) for load in LOADS]
        fluid = [self.simulated(load, "fluid", self.records)[0] for load in LOADS]
        traces: list[dict[str, Any]] = [
            _line("theory", steps, [self.theory(x) for x in steps], PALETTE[0], "solid"),
            _marks("fluid engine", LOADS, fluid, PALETTE[1], "x-thin-open"),
            _marks(
                "record-level engine", LOADS, [m for m, _ in points], PALETTE[2], "circle-open", [e for _, e in points]
            ),
            _marks("your utilisation", [self.utilisation], [told], PALETTE[3], "diamond", [half]),
        ]
        layout = {
            "xaxis": axis("utilisation", range=[0, 1], tickformat=".0%"),
            "yaxis": axis("mean time in the operator (ms)", rangemode="tozero"),
            "legend": {"x": 0.02, "y": 0.98},
        }
        times = self.theory(self.utilisation) / SERVICE_S
        said = (
            f"At {self.utilisation:.0%} a record takes {times:.3g} times its service: theory {si(1e3 * here[0])} ms, "
            f"fluid {si(1e3 * here[1])} ms, one by one {1e3 * told:.3g} ± {1e3 * half:.2g} ms."
        )
        return plot(traces, layout, said, height=380, title="")


def _line(name: str, x: Any, y: Any, colour: str, dash: str) -> dict[str, Any]:
    line = {"color": colour, "dash": dash, "width": 2}
    return {"type": "scatter", "mode": "lines", "name": name, "x": list(x), "y": [1e3 * v for v in y], "line": line}


def _marks(name: str, x: Any, y: Any, colour: str, symbol: str, error: Any = ()) -> dict[str, Any]:
    marker = {"color": colour, "symbol": symbol, "size": 10, "line": {"width": 2, "color": colour}}
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": list(x),
        "y": [1e3 * v for v in y],
        "marker": marker,
    }
    return trace | ({"error_y": {"array": [1e3 * e for e in error], "color": colour}} if error else {})
