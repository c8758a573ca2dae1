"""A simulated cluster as a Backend: fluid queues with back-pressure, seeded, with a pause at each rescale.

Queues move as a fluid, in ticks. Latency is what the fluid says (waiting in queues that build up, by Little's law)
plus what theory says of a steady queue (M/M/c at the measured load). Sources read a durable log: what they
cannot take waits there, and counts as lag, not as processing latency.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping

from .. import queueing
from ..core import Deployment, Latency, OperatorMetrics, Snapshot, Topology
from ..errors import BackendError, DeploymentError, KnobError, WorkloadError
from ..plant import Plant
from ..workload import Workload
from . import fluid

_BUSIEST = 0.95  # the waiting term takes no higher load than this; beyond it the fluid's own queue speaks
_ROUNDS = 12  # of sharing cores; where all find a core the first is the last
_SHARES = (0.5, 0.95, 0.99)


class Simulator:
    """Run `topology` on `plant` under `workload`; each `observe()` moves `window_s` seconds on.

    >>> from dspkit import Plant, Topology, workload
    >>> from dspkit.plant import Service
    >>> plant = Plant({"read": Service(1e-4), "count": Service(1e-3)})
    >>> sim = Simulator(Topology.chain("read", "count"), plant, workload.Constant(1500))
    >>> round(sim.observe().throughput), round(sim.observe().operators["count"].true_rate)
    (1000, 1000)
    """

    knobs = frozenset({"parallelism"})

    def __init__(
        self,
        topology: Topology,
        plant: Plant,
        workload: Workload | Mapping[str, Workload],
        *,
        deployment: Deployment | None = None,
        window_s: float = 10.0,
        tick_s: float = 0.5,
        seed: int = 0,
    ):
        """`workload` is shared equally by the sources, or given for each by name."""
        import numpy as np

        if not (0 < tick_s <= window_s < math.inf):
            raise KnobError(
                f"window_s={window_s}, tick_s={tick_s}", expected="0 < tick_s <= window_s", fix="use longer windows"
            )
        self.topology, self.plant = topology, plant.check(topology)
        self.workload, self.window_s, self.seed = workload, float(window_s), seed
        self._loads = _by_source(topology, workload)
        ticks = max(1, round(window_s / tick_s))
        self._tick_s = window_s / ticks
        self._middles = (np.arange(ticks) + 0.5) * self._tick_s
        try:
            self._random = np.random.default_rng(operator.index(seed))
        except (TypeError, ValueError) as error:
            raise KnobError(f"seed={seed!r}", expected="a whole number from 0 up", fix="as in seed=0") from error
        self._deployment = Deployment(topology.uniform())
        self._allow(deployment or self._deployment)
        self._deployment = deployment or self._deployment
        self._order = topology.order
        index = {name: i for i, name in enumerate(self._order)}
        self._graph = fluid.Graph(
            [[(e, index[u]) for e, (u, v) in enumerate(topology.edges) if v == name] for name in self._order],
            [[(e, index[v]) for e, (u, v) in enumerate(topology.edges) if u == name] for name in self._order],
            [plant.services[u].toward(v) for u, v in topology.edges],
        )
        self._queue, self._mass = [0.0] * len(index), [0.0] * len(index)
        self._window, self._pause, self._open = 0, 0.0, True
        self._place()

    @property
    def deployment(self) -> Deployment:
        """What runs."""
        return self._deployment

    def observe(self) -> Snapshot:
        """Play one window and report it."""
        self._must_be_open()
        dt, times = self._tick_s, self._window * self.window_s + self._middles
        nothing = 0 * times
        offered = [self._loads[n].rates(times) * dt if n in self._loads else nothing for n in self._order]
        slow = self._slowness()
        totals = _Totals(len(self._queue), len(self.topology.edges), len(self._nodes))
        for arriving in map(list, zip(*(o.tolist() for o in offered), strict=True)):
            stopped = min(self._pause, dt)
            self._pause -= stopped
            totals.stopped += stopped
            able, most = self._able(slow, dt - stopped, arriving)
            moved = fluid.tick(self._graph, self._queue, self._mass, arriving, most, self._room)
            totals.add(moved, [q * dt for q in self._queue], able, [k * (dt - stopped) for k in self._k])
            for j, used in enumerate(self._cores(moved.done, slow)):
                totals.cores[j] += used
        self._window += 1
        return self._snapshot(totals, slow)

    def deploy(self, deployment: Deployment) -> None:
        """Change the parallelism; the job stands still for `plant.pause_s` seconds and loses nothing."""
        self._must_be_open()
        self._allow(deployment)
        if deployment != self._deployment:
            self._deployment, self._pause = deployment, self.plant.pause_s
            self._place()

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Simulator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Simulator({', '.join(self.topology.order)}; {self.workload}, window_s={self.window_s:g}, "
            f"pause_s={self.plant.pause_s:g}, noise={self.plant.noise:g}, seed={self.seed})"
        )

    def _allow(self, deployment: Deployment) -> None:
        self.topology.check(deployment)
        for name in ("workers", "placement", "settings"):
            if getattr(deployment, name) != getattr(self._deployment, name):
                raise DeploymentError(
                    f"another {name}", expected=f"a change of {', '.join(self.knobs)}", fix="leave the rest as it runs"
                )

    def _must_be_open(self) -> None:
        if not self._open:
            raise BackendError("a call after close()", expected="an open simulator", fix="make a new one")

    def _place(self) -> None:
        """Instances round robin over the nodes, operator by operator, as Storm's default scheduler does."""
        self._k = [self._deployment.parallelism[name] for name in self._order]
        names = list(self.plant.nodes)
        slots = [i for i, k in enumerate(self._k) for _ in range(k)]
        self._nodes = [[slots[j :: len(names)].count(i) for i in range(len(self._k))] for j in range(len(names))]
        self._shares = [[float(n) for n in here] for here in self._nodes]  # cores an operator may use on each node
        limits = [k * self.plant.services[name].queue_records for name, k in zip(self._order, self._k, strict=True)]
        self._room = [limit if up else math.inf for limit, up in zip(limits, self._graph.parents, strict=True)]

    def _slowness(self) -> list[float]:
        """Seconds an instance takes for a record in this window, noise included."""
        times = [self.plant.services[name].seconds(k) for name, k in zip(self._order, self._k, strict=True)]
        spread = math.sqrt(math.log1p(self.plant.noise**2))  # of a lognormal with this coefficient of variation
        draws = self._random.standard_normal(len(times))
        return [s * math.exp(spread * float(z) - spread**2 / 2) for s, z in zip(times, draws, strict=True)]

    def _able(self, slow: list[float], time_s: float, arriving: list[float]) -> tuple[list[float], list[float]]:
        """Records each operator can process in `time_s` once instances share their nodes' cores; and at most may.

        What one asks for depends on what the others get (a source that is held back asks for little), so shares are
        worked out again, in smaller and smaller steps from those of the tick before, until they agree.
        """
        alone = [k * time_s / s for k, s in zip(self._k, slow, strict=True)]
        if time_s <= 0:
            return alone, alone
        able = self._together(slow, time_s)
        for step in range(_ROUNDS):
            _, ask = fluid.plan(self._graph, self._queue, arriving, able, self._room)
            busy = [min(1.0, a / b) for a, b in zip(ask, alone, strict=True)]
            part = 2 / (step + 2)
            for node, here, share in zip(self.plant.nodes.values(), self._nodes, self._shares, strict=True):
                level = fluid.fair_share([(b, n) for b, n in zip(busy, here, strict=True) if n], node.cores)
                share[:] = [s + part * (n * level - s) for s, n in zip(share, here, strict=True)]
            before, able = able, self._together(slow, time_s)
            if all(math.isclose(x, y, rel_tol=1e-6) for x, y in zip(able, before, strict=True)):
                break
        # Where they do not quite agree yet, nobody does more than the cores can.
        done, _ = fluid.plan(self._graph, self._queue, arriving, able, self._room)
        cores = self._cores(done, slow)
        over = [used / (time_s * node.cores) for node, used in zip(self.plant.nodes.values(), cores, strict=True)]
        if max(over) <= 1:
            return able, able
        by_operator = zip(*self._shares, strict=True)
        worst = [max(o for o, s in zip((1.0, *over), (1.0, *column), strict=True) if s) for column in by_operator]
        return able, [d / w for d, w in zip(done, worst, strict=True)]

    def _cores(self, done: list[float], slow: list[float]) -> list[float]:
        """Core-seconds that this work takes on each node: an operator's work goes where it has its cores."""
        whole = [sum(column) for column in zip(*self._shares, strict=True)]
        return [
            sum(d * s * x / y for d, s, x, y in zip(done, slow, share, whole, strict=True)) for share in self._shares
        ]

    def _together(self, slow: list[float], time_s: float) -> list[float]:
        return [sum(share[i] for share in self._shares) * time_s / s for i, s in enumerate(slow)]

    def _snapshot(self, totals: _Totals, slow: list[float]) -> Snapshot:
        w = self.window_s
        operators = {}
        for i, name in enumerate(self._order):
            out = [totals.sent[e] for e, _ in self._graph.children[i]]
            results = sum(out) if out else totals.done[i] * self.plant.services[name].results
            busy = totals.busy[i]
            operators[name] = OperatorMetrics(
                input_rate=totals.arrived[i] / w,
                processing_rate=totals.done[i] / w,
                output_rate=results / w,
                true_rate=totals.done[i] / busy if busy > 0 else None,
                utilisation=min(1.0, busy / (w * self._k[i])),
                backlog=self._queue[i],
                parallelism=self._k[i],
                cpu=totals.done[i] * slow[i] / w,
            )
        latency, event_latency = self._latencies(totals)
        sources, nodes = self.topology.sources, self.plant.nodes.items()
        return Snapshot(
            t=self._window * w,
            window_s=w,
            deployment=self._deployment,
            operators=operators,
            source_rates={name: operators[name].input_rate for name in sources},
            throughput=totals.ended / w,
            latency=latency,
            event_latency=event_latency,
            lag=sum(operators[name].backlog for name in sources),
            edge_rates={edge: sent / w for edge, sent in zip(self.topology.edges, totals.sent, strict=True)},
            nodes={n: used / (w * node.cores) for (n, node), used in zip(nodes, totals.cores, strict=True)},
            downtime_s=totals.stopped,
        )

    def _latencies(self, totals: _Totals) -> tuple[Latency | None, Latency | None]:
        """Source to sink without and with the wait in the logs; paths weigh as the source records that take them."""
        if totals.ended <= 0:
            return None, None
        up = self.window_s - totals.stopped
        share = [0.0] * len(self._k)
        inside = logged = steady = variance = 0.0
        total = sum(totals.arrived[i] for i in range(len(self._k)) if not self._graph.parents[i])
        for i, k in enumerate(self._k):
            children = self._graph.children[i]
            if not self._graph.parents[i]:
                share[i] = totals.arrived[i] / total if total > 0 else 1 / len(self.topology.sources)
            for _, child in children:
                share[child] += share[i] / len(children)
            if totals.busy[i] <= 0:
                continue
            service = totals.busy[i] / totals.done[i]
            mean, spread = queueing.sojourn(k, min(totals.done[i] / up, _BUSIEST * k / service), service)
            steady, variance = steady + share[i] * mean, variance + share[i] * spread
            waited = share[i] * totals.queued[i] / totals.done[i]  # Little: mean queue over throughput
            if self._graph.parents[i]:
                inside += waited
            else:
                logged += waited
        inner = [steady, *queueing.percentiles(steady, variance, _SHARES)]
        return Latency(*(inside + x for x in inner)), Latency(*(inside + logged + x for x in inner))


class _Totals:
    """Sums over the ticks of a window: records, busy instance-seconds, record-seconds in queues, core-seconds."""

    def __init__(self, operators: int, edges: int, nodes: int):
        self.arrived, self.done, self.busy, self.queued = ([0.0] * operators for _ in range(4))
        self.sent, self.cores = [0.0] * edges, [0.0] * nodes
        self.ended = self.stopped = 0.0

    def add(self, moved: fluid.Tick, waiting: list[float], able: list[float], time_s: list[float]) -> None:
        """`waiting` in records x seconds; `time_s` that all instances of an operator had together."""
        for i, done in enumerate(moved.done):
            self.arrived[i] += moved.arrived[i]
            self.done[i] += done
            self.queued[i] += waiting[i]
            if done > 0:
                self.busy[i] += time_s[i] * done / able[i]
        for e, sent in enumerate(moved.sent):
            self.sent[e] += sent
        self.ended += moved.ended


def _by_source(topology: Topology, workload: Workload | Mapping[str, Workload]) -> dict[str, Workload]:
    if isinstance(workload, Workload):
        return {name: workload * (1 / len(topology.sources)) for name in topology.sources}
    if not isinstance(workload, Mapping) or not all(isinstance(load, Workload) for load in workload.values()):
        raise WorkloadError(
            f"workload {workload!r}", expected="a Workload, or one for each source by name", fix="as in Constant(500)"
        )
    if set(workload) != set(topology.sources):
        raise WorkloadError(
            f"loads for {sorted(workload)}", expected=f"one for each of {sorted(topology.sources)}", fix="name sources"
        )
    return dict(workload)
