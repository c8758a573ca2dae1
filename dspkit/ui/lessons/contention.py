"""Contention and coherency: twice the instances are not twice the throughput, and too many slow a job down."""

from __future__ import annotations

from dataclasses import dataclass

from ...core import Deployment, Knobs, Topology, knob
from ...plots import Plot, si
from ...plots.theme import PALETTE, axis, plot
from ...simulator import Node, Plant, Service, simulate_many
from ...workload import Constant

MOST = 24
TICKS = [m * 10.0**e for e in range(-1, 6) for m in (1, 2, 5)]


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
