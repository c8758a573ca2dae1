"""The time of simulations: the record-level engine beside general simulators, and the fluid engine.

A visit is one record that passes one operator: it arrives, waits, is served and leaves. Rates are per visit, since the
rivals simulate fewer records to keep the run short. `detail` shows that all of them are right: mean time in the whole
line over its theory, which for a line of stable M/M/c queues is the sum of theirs.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator

import numpy as np

from benchmarks import Claim, side_by_side
from dspkit import Deployment, History, Plant, Policy, Simulator, Topology, apps, run
from dspkit.core.queueing import sojourn
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import Node, Service, round_robin
from dspkit.simulator.fluid.engine import Fluid
from dspkit.simulator.layout import index_topology, layout, places
from dspkit.simulator.records.engine import RecordEngine
from dspkit.workload import Sine

RHO, LINE = 0.8, ("a", "b", "c", "d")


def tuples_vs_simpy() -> Claim:
    """Visits per second of the record-level engine over SimPy's, four operators of one instance at load 0.8."""
    return _against({"simpy": _Simpy(1, 20_000)}, servers=1, target=100)


def tuples_vs_ciw() -> Claim:
    """The same over Ciw's."""
    return _against({"ciw": _Ciw(1, 20_000)}, servers=1, target=250)


def tuples_vs_simpy_50_servers() -> Claim:
    """The same over SimPy's with 50 instances per operator."""
    return _against({"simpy": _Simpy(50, 20_000)}, servers=50, target=50)


def dearest_visit() -> Claim:
    """Time per visit of the most expensive of these shapes over that of a line of four; `detail` in ns."""
    lines = {
        "4 operators": _Ours(1, 500_000),
        "1 operator": _Ours(1, 2_000_000, line=1),
        "16 operators": _Ours(1, 125_000, line=16),
        "64 operators": _Ours(1, 31_000, line=64),
        "10 instances each": _Ours(10, 500_000),
        "100 instances each": _Ours(100, 500_000),
        "1000 instances each": _Ours(1000, 500_000),
        "a core for two of 10 instances": _Ours(10, 500_000, nodes={f"n{j}": Node(5) for j in range(4)}),
        "a core for two of 100 instances": _Ours(100, 500_000, nodes={f"n{j}": Node(50) for j in range(4)}),
        "64 nodes with too few cores": _Ours(100, 500_000, nodes={f"n{j}": Node(4) for j in range(64)}),
    }
    seconds = side_by_side(lines, repeats=3)
    ns = {name: 1e9 * seconds[name] / line.visits for name, line in lines.items()}
    return Claim(max(ns.values()) / ns["4 operators"], "x", target=4, better="lower", detail=ns)


def fluid_day_s() -> Claim:
    """Seconds of 24 hours of stored 1-s ticks, ten operators in a line under DS2, which decides every 60 s."""
    names = [f"o{i}" for i in range(10)]
    services = {n: Service(1e-4 * (1 + i % 3), contention=0.005) for i, n in enumerate(names)}
    plant, load = Plant(services, pause_s=10, noise=0.02), Sine(20e3, 15e3, period_s=86400)

    def day(policy: Policy) -> History:
        backend = Simulator(Topology.chain(*names), plant, load, window_s=60, tick_s=1, keep_ticks=True)
        history = run(policy, backend, steps=1440)
        assert len(backend.ticks) == 86400
        return history

    seconds = side_by_side({"ds2": lambda: day(DS2()), "static": lambda: day(Static())}, repeats=5)
    return Claim(seconds["ds2"], "s", target=1.0, better="lower", detail=seconds)


def slider_ms() -> Claim:
    """A 60-minute run of word count, repeated with another knob: the wait after a move of a slider.

    DS2 decides every 60 s; `detail` has it every 10 s, and the hour without a policy in windows of 10 s.
    """
    app = apps.word_count()
    turned = iter(range(1, 10_000))

    def hour(window_s: float) -> History:
        backend = app.simulator(scale=1 + next(turned) / 10_000, window_s=window_s, tick_s=1)
        return run(DS2(), backend, steps=round(3600 / window_s))

    rivals = {
        "ds2 every 60 s": lambda: hour(60.0),
        "ds2 every 10 s": lambda: hour(10.0),
        "no policy": lambda: app.sweep({"scale": [1 + next(turned) / 10_000]}, parallelism=8, duration_s=3600),
    }
    ms = {name: 1e3 * seconds for name, seconds in side_by_side(rivals, repeats=15).items()}
    return Claim(ms["ds2 every 60 s"], "ms", target=30, better="lower", detail=ms)


def heatmap_s() -> Claim:
    """A heat map of two sliders: 50 x 50 points, each ten minutes of six operators in 1-s ticks."""
    app = apps.diamond()
    axes = {"bolt_3": range(1, 51), "scale": [0.04 * i for i in range(1, 51)]}
    rivals = {
        "two threads": lambda: app.sweep(axes, parallelism=4, duration_s=600),
        "one thread": lambda: app.sweep(axes, parallelism=4, duration_s=600, threads=1),
    }
    seconds = side_by_side(rivals, repeats=3)
    return Claim(seconds["two threads"], "s", target=2.0, better="lower", detail=seconds)


def fluid_ns_per_tick() -> Claim:
    """Nanoseconds per tick of six operators without back-pressure; `detail` has the other cases."""
    cases = {
        "easy, 6 operators": _Ticks(6, 900),
        "easy, 24 operators": _Ticks(24, 900),
        "easy, 6 operators of 50 instances": _Ticks(6, 900, instances=50),
        "overloaded, 6 operators": _Ticks(6, 9000),
        "overloaded, 24 operators": _Ticks(24, 9000),
        "overloaded, too few cores, 6 operators": _Ticks(6, 20_000, instances=4, cores=2),
    }
    seconds = side_by_side(cases, repeats=5)
    detail = {name: 1e9 * seconds[name] / _Ticks.count for name in cases}
    return Claim(detail["easy, 6 operators"], "ns", target=200, better="lower", detail=detail)


class _Ticks:
    count = 20_000

    def __init__(self, operators: int, load: float, instances: int = 1, cores: int = 64):
        topology = Topology.chain(*(f"o{i}" for i in range(operators)))
        slow = {f"o{operators // 2}": Service(2.5e-4)}
        services = {name: Service(2e-4) for name in topology.order} | slow
        plant = Plant(services, {f"n{j}": Node(cores) for j in range(4)})
        k = topology.uniform(instances)
        where = places(topology, plant, Deployment(k), round_robin)
        self.engine = Fluid(index_topology(topology), layout(topology, plant, where, k))
        self.rates = np.zeros((self.count, operators))
        self.rates[:, 0] = load

    def __call__(self) -> None:
        self.engine.play(self.rates, np.full(self.count, 0.5), np.ones(self.rates.shape[1]))
        self.engine.window()


def _against(rivals: dict[str, _Rival], servers: int, target: float) -> Claim:
    """Return medians over turns; ours has 25 times the records, so that both take long enough to be timed."""
    (name,) = rivals
    ours = _Ours(servers, 25 * rivals[name].records)
    seconds = side_by_side({"records": ours, **rivals}, repeats=5)
    theory = 4 * sojourn(servers, RHO * servers, 1.0)[0]
    ns = {"records": 1e9 * seconds["records"] / ours.visits, name: 1e9 * seconds[name] / rivals[name].visits}
    detail = {f"{who} ns per visit": value for who, value in ns.items()}
    for who, rival in (("records", ours), *rivals.items()):
        detail[f"{who} mean over theory"] = statistics.fmean(rival.means) / theory
    return Claim(ns[name] / ns["records"], "x", target=target, detail=detail)


class _Rival:
    """A simulator of the line; each call is a run with other random numbers, whose mean time `means` collects."""

    def __init__(self, servers: int, records: int, line: int = 4):
        self.servers, self.records, self.visits = servers, records, records * line
        self.means: list[float] = []
        self.seeds = iter(range(1, 1000))

    def __call__(self) -> None:
        raise NotImplementedError


class _Ours(_Rival):
    def __init__(self, servers: int, records: int, line: int = 4, nodes: dict[str, Node] | None = None):
        super().__init__(servers, records, line)
        topology = Topology.chain(*(f"o{i}" for i in range(line)))
        k = dict.fromkeys(topology.order, servers)
        service = Service(1.0, queue_records=math.inf)
        plant = Plant(dict.fromkeys(topology.order, service), nodes or {f"n{j}": Node(4096) for j in range(4)})
        where = places(topology, plant, Deployment(k), round_robin)
        self.graph, self.layout = index_topology(topology), layout(topology, plant, where, k)
        self.rates = np.zeros((1, line))
        self.rates[0, 0] = RHO * servers

    def __call__(self) -> None:
        engine = RecordEngine(self.graph, self.layout, np.random.default_rng(next(self.seeds)))
        engine.play(self.rates, np.array([self.records / self.rates[0, 0]]), np.ones(self.rates.shape[1]))
        latency = engine.window().event_latency
        assert latency is not None
        self.means.append(float(latency.mean))


class _Simpy(_Rival):
    def __call__(self) -> None:
        import simpy

        random.seed(next(self.seeds))
        env = simpy.Environment()
        servers = [simpy.Resource(env, self.servers) for _ in LINE]
        times: list[float] = []

        def record() -> Iterator[object]:
            start = env.now
            for server in servers:
                with server.request() as turn:
                    yield turn
                    yield env.timeout(random.expovariate(1.0))
            times.append(env.now - start)

        def source() -> Iterator[object]:
            for _ in range(self.records):
                yield env.timeout(random.expovariate(RHO * self.servers))
                env.process(record())  # type: ignore[arg-type]

        env.process(source())  # type: ignore[arg-type]
        env.run()
        self.means.append(statistics.fmean(times))


class _Ciw(_Rival):
    def __call__(self) -> None:
        import ciw

        ciw.seed(next(self.seeds))
        network = ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(RHO * self.servers), None, None, None],
            service_distributions=[ciw.dists.Exponential(1.0) for _ in LINE],
            routing=[[float(j == i + 1) for j in range(4)] for i in range(4)],
            number_of_servers=[self.servers] * 4,
        )
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_customers(self.records, method="Finish")
        times: dict[int, float] = {}
        for visit in simulation.get_all_records():
            times[visit.id_number] = times.get(visit.id_number, 0.0) + visit.exit_date - visit.arrival_date
        self.means.append(statistics.fmean(times.values()))
