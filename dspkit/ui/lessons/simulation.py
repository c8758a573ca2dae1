"""Lessons on the simulator: waiting times, instances that hinder each other, and faults."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ... import plots
from ...apps import word_count
from ...core import Deployment, Knobs, Topology, knob, run
from ...core.queueing import erlang_c
from ...plots import Plot, si
from ...plots.theme import PALETTE, axis, plot
from ...policies.ds2 import DS2
from ...policies.static import Static
from ...simulator import Fault as Fault_
from ...simulator import Node, NodeDown, NodeSlow, Plant, Service, Simulator, Skew, simulate_many
from ...workload import Constant

LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
SERVICE_S, BATCHES = 0.01, 30
MOST = 24
TICKS = [m * 10.0**e for e in range(-1, 6) for m in (1, 2, 5)]
FAULTS = ("node dies", "node is slow", "key runs hot")


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


@dataclass(frozen=True)
class Contention(Knobs):
    """One operator of 100 records/s an instance: throughput and latency against how many instances it has.

    Instances lose time to each other by the universal scalability law, $k/(1+\\sigma(k-1)+\\kappa k(k-1))$ times what
    one does [gunther2007usl], and share the cores of their node.
    """

    load: float = knob(800.0, "records/s offered", low=100.0, high=2000.0, unit="records/s")
    contention: float = knob(0.02, "share of the work that instances queue for", low=0.0, high=0.2)
    coherency: float = knob(0.001, "cost of keeping instances in step", low=0.0, high=0.02)
    cores: int = knob(16, "cores of the node", low=1, high=32)
    io_share: float = knob(0.0, "part of the service time that takes no CPU", low=0.0, high=1.0)

    def plot(self) -> Plot:
        """Draw throughput and latency over the number of instances."""
        counts = list(range(1, MOST + 1))
        service = Service(
            0.01, contention=self.contention, coherency=self.coherency, io_share=self.io_share, queue_records=50
        )
        plant = Plant({"read": Service(1e-6), "work": service}, {"node": Node(self.cores)})
        topology = Topology.chain("read", "work")
        cases = [Deployment({"read": 1, "work": k}) for k in counts]
        frame = simulate_many(topology, plant, Constant(self.load), cases, duration_s=120, tick_s=2)
        rates, times = frame.throughput.tolist(), (1e3 * frame.latency_s).tolist()
        best = int(frame.throughput.round(3).to_numpy().argmax()) if rates else 0
        enough = [k for k, rate in zip(counts, rates, strict=True) if rate >= 0.999 * self.load]
        rate = {"type": "scatter", "mode": "lines+markers", "x": counts, "y": rates, "name": "throughput"}
        time = {**rate, "y": times, "name": "latency", "xaxis": "x2", "yaxis": "y2"}
        marks = {"size": 7}
        ideal = [min(self.load, 100 * k) for k in counts]
        grey = {"color": "#777777", "dash": "dash"}
        traces = [
            {**rate, "line": {"color": PALETTE[0]}, "marker": {**marks, "symbol": "circle"}},
            {**rate, "y": ideal, "mode": "lines", "name": "if instances never met", "line": grey},
            {**time, "line": {"color": PALETTE[1]}, "marker": {**marks, "symbol": "square"}},
        ]
        layout = {
            "xaxis": axis("instances", domain=[0, 0.46]),
            "xaxis2": axis("instances", domain=[0.56, 1.0], anchor="y2"),
            "yaxis": axis("throughput (records/s)", rangemode="tozero"),
            "yaxis2": axis(
                "latency inside the job (ms)", anchor="x2", type="log", tickvals=TICKS, ticktext=[si(t) for t in TICKS]
            ),
            "legend": {"orientation": "h", "y": -0.2},
        }
        times, most = rates[best] / rates[0], f"Most: {si(rates[best])} records/s with"
        said = (
            f"{most} {counts[best]} instances, {times:.1f} times what one does. " if best else f"{most} one instance. "
        )
        if not enough:
            said += f"No number of them keeps up with {si(self.load)} records/s."
        else:
            said += f"{enough[0]} keep up with {si(self.load)} records/s"
            said += f", {enough[-1] + 1} no longer do." if enough[-1] < MOST else "."
        return plot(traces, layout, said, height=400, title="")


@dataclass(frozen=True)
class Fault(Knobs):
    """Word count at 250 k records/s on three nodes, and something that goes wrong after five minutes.

    A node that dies takes its instances with it: the job is paused until they run elsewhere. A hot key binds a fifth
    of the records to one instance, which no other can help.
    """

    kind: str = knob(FAULTS[0], "what goes wrong", choices=FAULTS)
    duration_s: float = knob(300.0, "how long it lasts", low=30.0, high=900.0, unit="s")
    pause_s: float = knob(20.0, "how long a restart stops the job", low=0.0, high=60.0, unit="s")
    cores: int = knob(10, "cores of each node", low=8, high=32)
    policy: str = knob("ds2", "who decides: nobody, or DS2", choices=("static", "ds2"))

    def plot(self) -> Plot:
        """Draw the run as a timeline."""
        app = word_count()
        hit: Fault_ = {
            FAULTS[0]: NodeDown(300, self.duration_s, node="node-1"),
            FAULTS[1]: NodeSlow(300, self.duration_s, node="node-1", factor=0.3),
            FAULTS[2]: Skew(300, self.duration_s, operator="count", share=0.2),
        }[self.kind]
        nodes = {f"node-{i}": Node(self.cores) for i in (1, 2, 3)}
        plant = replace(app.plant, nodes=nodes, pause_s=self.pause_s, faults=(hit,))
        job = replace(app, plant=plant, workload=Constant(250e3)).simulator(
            parallelism={"source": 4, "flat_map": 4, "count": 11, "sink": 10}, window_s=20, tick_s=1
        )
        history = run(DS2() if self.policy == "ds2" else Static(), job, steps=75)
        picture = plots.timeline(history, title=f"Fault: {self.kind} from 300 s to {300 + self.duration_s:g} s")
        lag = history.application.lag
        late = history.application.t[lag > 250e3]
        said = f"{self.kind.capitalize()} for {self.duration_s:g} s: at most {plots.si(lag.max())} records wait, " + (
            f"more than a second's worth until {late.max():g} s." if len(late) else "never more than a second's worth."
        )
        return replace(picture, summary=f"{said} {picture.summary}")
