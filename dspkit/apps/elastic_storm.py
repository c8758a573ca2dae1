"""The application of the thesis that Elastic Storm scales: frequent patterns in tweets [nardelli]."""

from __future__ import annotations

from ..core import Operator, Topology
from ..simulator import Node, Plant, Service
from ..workload import Trace
from .app import App


def detector(*, executors: int = 20, pause_s: float = 10.0) -> App:
    """Return Frequent Pattern Detection over tweets, which Elastic Storm scales: Input, Generator, Detector, Reporter.

    Tasks and phases of the load are those of the thesis. It prints 5 Detectors, and a sequence that begins with 20: 5
    are those of the static run. An executor of the Detector takes 12.5 ms per tweet (any value from 10 to 15.5 gives
    the printed sequence), one of the Generator 0.5 ms; queues of 85 tweets make the static run's latency at the peak
    the printed 1500 ms.

    Parameters
    ----------
    executors
        Executors of the Detector at the start.
    pause_s
        Downtime of a rescale, in seconds.

    Examples
    --------
    >>> detector(executors=5).start["detector"]
    5
    """
    seconds = {"input": 1e-4, "generator": 5e-4, "detector": 12.5e-3, "reporter": 1e-4}
    tasks = {"input": 1, "generator": 2, "detector": 20, "reporter": 1}
    services = {n: Service(s, queue_records=85, state_bytes=16e6 * (n == "detector")) for n, s in seconds.items()}
    topology = Topology(
        tuple(Operator(n, k, stateful=n == "detector") for n, k in tasks.items()),
        tuple(zip(seconds, list(seconds)[1:], strict=False)),
    )
    nodes = {f"node-{i}": Node(cores=4) for i in range(1, 6)}
    load = Trace((0, 900, 1800, 2700, 3600), (120, 350, 900, 250, 120))
    plant = Plant(services, nodes, pause_s=pause_s, pause_kind="rebalance", noise=0.01)
    return App("detector", topology, plant, load, 0.9, "nardelli", start={**tasks, "detector": executors})
