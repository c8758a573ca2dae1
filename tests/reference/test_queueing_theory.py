"""The record-level engine against queueing theory, and against SimPy and Ciw.

Means over batches of one long run, each compared with theory by Student's t at 99.99 %: a right engine fails one such
comparison in 10,000 seeds (seeds are fixed, so a test that passes goes on passing). `agree` also holds the interval to
a few percent of the value, so that a test that passes says something.
"""

import math

import numpy as np
import pytest
from scipy import stats

from dspkit import Deployment, Plant, Topology
from dspkit.simulator import Link, Node, Service, Skew, round_robin
from dspkit.simulator.layout import index_topology, layout, places
from dspkit.simulator.records.engine import RecordEngine

INF, CONFIDENCE, BATCHES = math.inf, 0.9999, 64
MANY = {f"n{i}": Node(4096) for i in range(4)}  # cores for all
ONE, CHAIN = Topology(("a",)), Topology.chain("a", "b")


class Run:
    """An engine that is warmed up; `batches` plays on and gives the windows."""

    def __init__(self, topology, services, parallelism=None, nodes=None, arrivals="poisson", seed=1, **plant):
        self.order, self.sources = topology.order, topology.sources
        k = topology.uniform() | (parallelism or {})
        plant = Plant(services, nodes=nodes or MANY, **plant)
        where = places(topology, plant, Deployment(k), round_robin)
        numbers = layout(topology, plant, where, k)
        self.engine = RecordEngine(index_topology(topology), numbers, np.random.default_rng(seed), arrivals)

    def play(self, rates, seconds):
        rates = rates if isinstance(rates, dict) else dict.fromkeys(self.sources, rates)
        line = np.array([[rates.get(name, 0.0) for name in self.order]])
        self.engine.play(line, np.array([seconds]), np.ones(len(self.order)))
        waits = self.engine.waits
        window = self.engine.window()
        window.waits = waits
        return window

    def batches(self, rates, seconds, n=BATCHES):
        self.play(rates, seconds)
        return [self.play(rates, seconds) for _ in range(n)]


def agree(values, expected, within=0.03):
    """The mean of these batches is what theory says, and says it to `within` of its value."""
    values = np.asarray(values, dtype=float)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    assert half <= within * abs(expected), f"half width {half:.3g} for {expected:.4g}: play longer"
    assert abs(values.mean() - expected) <= half, f"{values.mean():.5g} ± {half:.2g}, expected {expected:.5g}"


def erlang_c(c, load):
    """Probability that an arrival waits, from the definition."""
    terms = [load**n / math.factorial(n) for n in range(c)]
    last = load**c / math.factorial(c) / (1 - load / c)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("rho", [0.5, 0.8, 0.9])
def test_mm1(rho):
    windows = Run(ONE, {"a": Service(1.0)}).batches(rho, 40_000 / (1 - rho))
    agree([w.event_latency.mean for w in windows], 1 / (1 - rho))
    agree([w.waited_s[0] for w in windows], rho / (1 - rho))
    agree([w.busy[0] for w in windows], rho * 40_000 / (1 - rho))


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_the_whole_distribution_of_mm1(rho, share):
    """Its sojourn is exponential; bins are at most 1/128 wide and interpolated."""
    name = f"p{round(100 * share)}"
    windows = Run(ONE, {"a": Service(1.0)}).batches(rho, 100_000)
    agree([getattr(w.event_latency, name) for w in windows], -math.log(1 - share) / (1 - rho), 0.05)
    agree([getattr(w.latency, name) for w in windows], -math.log(1 - share))  # service alone: the log is apart


@pytest.mark.parametrize(("c", "rho"), [(2, 0.8), (5, 0.9), (50, 0.95)])
def test_mmc(c, rho):
    windows = Run(ONE, {"a": Service(1.0, queue_records=INF)}, {"a": c}).batches(c * rho, 200_000 / c)
    waits = erlang_c(c, c * rho)
    agree([w.waits[0] / w.arrived[0] for w in windows], waits, 0.03)
    agree([w.waited_s[0] for w in windows], waits / (c * (1 - rho)), 0.1)


@pytest.mark.parametrize(
    ("cv", "service"),
    [
        (0.0, Service(1.0, distribution="deterministic")),
        (0.5, Service(1.0, distribution="gamma", cv=0.5)),
        (2.0, Service(1.0, distribution="gamma", cv=2.0)),
    ],
)
def test_pollaczek_khinchine(cv, service):
    windows = Run(ONE, {"a": service}).batches(0.8, 200_000)
    agree([w.waited_s[0] for w in windows], 0.8 * (1 + cv**2) / (2 * 0.2), 0.05)


def test_evenly_spaced_arrivals_make_dm1():
    """The share of busy moments that arrivals see solves s = exp(-(1-s)/rho); the wait is s/(1-s)."""
    from scipy.optimize import brentq

    sigma = brentq(lambda s: s - math.exp(-(1 - s) / 0.8), 0.01, 0.99)
    windows = Run(ONE, {"a": Service(1.0)}, arrivals="even").batches(0.8, 40_000)
    agree([w.waited_s[0] for w in windows], sigma / (1 - sigma))
    assert all(abs(w.arrived[0] - 32_000) <= 1 for w in windows)


def test_a_jackson_network_of_four_with_a_branch_and_a_join():
    """a feeds c and d, b feeds c too; each station is M/M/k on its own, as all that flows is Poisson."""
    topology = Topology(("a", "b", "c", "d"), (("a", "c"), ("a", "d"), ("b", "c")))
    services = {
        "a": Service(0.5, selectivity={"c": 0.6, "d": 0.3}, queue_records=INF),
        "b": Service(1.0, queue_records=INF),
        "c": Service(1.5, queue_records=INF),
        "d": Service(2.0, queue_records=INF),
    }
    windows = Run(topology, services, {"c": 3}).batches({"a": 1.2, "b": 0.7}, 40_000)
    flows = {"a": 1.2, "b": 0.7, "c": 1.2 * 0.6 + 0.7, "d": 1.2 * 0.3}
    for i, name in enumerate(topology.order):
        k, s = 3 if name == "c" else 1, services[name].seconds_per_record
        wait = erlang_c(k, flows[name] * s) / (k / s - flows[name])
        agree([w.waited_s[i] for w in windows], wait, 0.05)
        agree([w.done[i] for w in windows], flows[name] * 40_000)
    assert sum(w.ended for w in windows) == pytest.approx(1.9 * 40_000 * BATCHES, rel=0.005)  # 10 standard errors


def test_a_chain_of_mm1_has_the_sum_of_their_times_and_its_spread():
    """Sojourns along a chain of M/M/1 are independent exponentials: the sum is gamma distributed."""
    windows = Run(CHAIN, {"a": Service(1.0), "b": Service(1.0, queue_records=INF)}).batches(0.7, 40_000)
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        agree([getattr(w.event_latency, name) for w in windows], stats.gamma.ppf(share, 2) / 0.3, 0.04)


LAWS = [{}, {"distribution": "deterministic"}, {"distribution": "gamma", "cv": 2.0}]


@pytest.mark.parametrize("law", LAWS)
def test_processor_sharing_is_insensitive_to_the_law_of_service(law):
    """150 instances on one core are M/G/1-PS (more are never there): the sojourn is s/(1-rho) whatever the law."""
    run = Run(ONE, {"a": Service(1.0, **law)}, {"a": 150}, nodes={"only": Node(1)})
    windows = run.batches(0.8, 40_000)
    agree([w.event_latency.mean for w in windows], 1 / 0.2, 0.05)
    agree([w.cpu[0] for w in windows], 0.8 * 40_000)
    agree([w.busy[0] for w in windows], 4 * 40_000, 0.05)  # Little: mean number in service
    assert all(w.waited_s[0] < 1e-9 for w in windows)


def test_operators_that_share_a_core_slow_each_other_as_bcmp_says():
    """Two classes at one PS station of load 0.6 + 0.2: each record takes s/(1-0.8); speed 2 halves all times."""
    services = {"a": Service(1.2, queue_records=INF), "b": Service(0.4, queue_records=INF, distribution="gamma", cv=2)}
    run = Run(CHAIN, services, {"a": 150, "b": 150}, nodes={"only": Node(1, speed=2.0)})
    windows = run.batches(1.0, 40_000)
    for i, service_s in enumerate((0.6, 0.2)):
        agree([w.busy[i] / w.done[i] for w in windows], service_s / 0.2, 0.05)
        agree([w.cpu[i] for w in windows], service_s * 40_000)
    agree([w.cores[0] for w in windows], 0.8 * 40_000)


def test_instances_share_two_cores_as_mm2():
    """As many as there are share two cores: the number inside is that of M/M/2, and so is the mean time."""
    windows = Run(ONE, {"a": Service(1.0)}, {"a": 200}, nodes={"only": Node(2)}).batches(1.6, 40_000)
    agree([w.event_latency.mean for w in windows], 1 + erlang_c(2, 1.6) / 0.4, 0.04)


def test_time_without_cpu_is_not_shared():
    """Half of the time takes no core: PS on the other half (load 0.4), a plain delay for the rest."""
    windows = Run(ONE, {"a": Service(1.0, io_share=0.5)}, {"a": 150}, nodes={"only": Node(1)}).batches(0.8, 40_000)
    agree([w.event_latency.mean for w in windows], 0.5 + 0.5 / 0.6)
    agree([w.cpu[0] for w in windows], 0.4 * 40_000)


@pytest.mark.parametrize(("c", "room"), [(1, 4), (3, 2)])
def test_a_source_that_drops_is_mmck(c, room):
    """Birth and death: refused are those that find all instances busy and the queue full."""
    run = Run(ONE, {"a": Service(1.0, queue_records=room, overflow="drop")}, {"a": c})
    rate, most = 1.1 * c, c + c * room
    weights = np.cumprod([1.0, *(rate / min(n, c) for n in range(1, most + 1))])
    full = weights[-1] / weights.sum()
    windows = run.batches(rate, 40_000)
    agree([w.dropped[0] / w.arrived[0] for w in windows], full)
    agree([w.done[0] for w in windows], rate * (1 - full) * 40_000)


def tandem(rate, mu, nu, room_a, room_b):
    """Stationary law of a source that drops before a station that blocks, solved: (na, nb, whether a is held back)."""
    states = [(a, b, 0) for a in range(room_a + 2) for b in range(room_b + 2)]
    states += [(a, room_b + 1, 1) for a in range(1, room_a + 2)]
    index = {state: i for i, state in enumerate(states)}
    q = np.zeros((len(states), len(states)))
    for (a, b, held), i in index.items():
        moves = []
        if a < room_a + 1:
            moves.append(((a + 1, b, held), rate))
        if a and not held:
            moves.append(((a - 1, b + 1, 0) if b < room_b + 1 else (a, b, 1), mu))
        if b:
            moves.append(((a - 1, b, 0) if held else (a, b - 1, 0), nu))
        for state, speed in moves:
            q[i, index[state]] += speed
            q[i, i] -= speed
    law = np.linalg.lstsq(np.vstack([q.T, np.ones(len(states))]), np.r_[np.zeros(len(states)), 1.0], rcond=None)[0]
    return dict(zip(states, law, strict=True))


def test_blocking_in_a_tandem_with_little_room_is_that_of_its_markov_chain():
    law = tandem(0.9, 1.0, 1.1, 3, 2)
    services = {"a": Service(1.0, queue_records=3, overflow="drop"), "b": Service(1 / 1.1, queue_records=2)}
    windows = Run(CHAIN, services).batches(0.9, 40_000)
    full, held = (sum(p for s, p in law.items() if test(s)) for test in (lambda s: s[0] == 4, lambda s: s[2]))
    agree([w.dropped[0] / w.arrived[0] for w in windows], full)
    agree([w.blocked[0] / 40_000 for w in windows], held)
    agree([w.busy[0] / 40_000 for w in windows], sum(p for s, p in law.items() if s[0] and not s[2]))
    agree([w.done[1] for w in windows], 0.9 * (1 - full) * 40_000)


def test_drops_inside_are_those_of_mm1k():
    """b gets the Poisson output of a, and refuses what does not fit."""
    services = {"a": Service(0.5), "b": Service(1.0, queue_records=3, overflow="drop")}
    windows = Run(CHAIN, services).batches(0.9, 60_000)
    agree([w.dropped[1] / w.arrived[1] for w in windows], 0.9**4 * (1 - 0.9) / (1 - 0.9**5))
    agree([w.ended for w in windows], 60_000 * 0.9 * (1 - 0.9**4 * (1 - 0.9) / (1 - 0.9**5)))


def test_an_external_server_is_a_queue_behind_its_callers():
    """Enough instances are M/G/inf, whose output is Poisson: the server is M/D/1; all of them wait for it."""
    windows = Run(ONE, {"a": Service(2.0, external_rate_limit_per_s=10.0)}, {"a": 300}).batches(8.0, 4_000)
    agree([w.event_latency.mean for w in windows], 2.0 + 0.1 + 0.1 * 0.8 / (2 * 0.2))
    agree([w.cpu[0] for w in windows], 2.0 * 8.0 * 4_000)  # waiting takes none


def test_an_external_server_saturates_at_its_ceiling():
    for k in (4, 40):
        last = Run(ONE, {"a": Service(0.001, external_rate_limit_per_s=100.0)}, {"a": k}).batches(1000.0, 100, n=2)[-1]
        assert last.done[0] == pytest.approx(100 * 100, abs=2)
        assert last.busy[0] == pytest.approx(k * 100, rel=1e-6)


def test_a_link_delays_and_transmits_one_record_after_the_other():
    """The link gets Poisson input: 0.25 s each at load 0.5 is M/D/1, then comes the delay."""
    services = {"a": Service(0.1, record_bytes=100), "b": Service(1e-6)}
    nodes, link = {"x": Node(), "y": Node()}, Link(delay_s=3.0, bandwidth_bytes_per_s=400)
    windows = Run(CHAIN, services, nodes=nodes, network=link).batches(2.0, 20_000)
    agree([w.event_latency.mean for w in windows], 0.1 / 0.8 + 0.25 + 0.25 * 0.5 / (2 * 0.5) + 3.0 + 1e-6)
    near = Run(CHAIN, services, nodes={"x": Node()}, network=link).batches(2.0, 20_000)
    agree([w.event_latency.mean for w in near], 0.1 / 0.8 + 1e-6)


def test_bandwidth_is_a_ceiling():
    services = {"a": Service(0.001, record_bytes=100), "b": Service(1e-6, queue_records=10)}
    run = Run(CHAIN, services, nodes={"x": Node(), "y": Node()}, network=Link(bandwidth_bytes_per_s=400))
    windows = run.batches(50.0, 1000, n=2)
    assert windows[-1].done[1] == pytest.approx(4 * 1000, abs=2)
    assert windows[-1].blocked[0] > 990  # the room at the other end is reserved for what is on the link


@pytest.mark.parametrize("hot", [0.0, 0.5])
def test_instances_with_queues_of_their_own_are_mm1_each(hot):
    """Random routing thins a Poisson stream: four M/M/1, the hottest with its share of all."""
    if hot:
        faults, service, rate = (Skew(operator="b", share=hot),), Service(1.0, queue_records=INF), 1.6
    else:
        faults, service, rate = (), Service(1.0, queue_records=INF, grouping="split"), 2.4
    run = Run(CHAIN, {"a": Service(0.01, queue_records=INF), "b": service}, {"b": 4}, faults=faults)
    windows = run.batches(rate, 30_000)
    shares = [hot, *[(1 - hot) / 3] * 3] if hot else [0.25] * 4
    expected = sum(p * (rate * p / (1 - rate * p)) for p in shares)
    agree([w.waited_s[1] for w in windows], expected, 0.05)


def test_latency_of_branches_weighs_them_as_the_source_records_that_take_them():
    """A branch that keeps one in ten counts as much as one that keeps all; what a branch drops has ended there."""
    topology = Topology(("s", "l", "r"), (("s", "l"), ("s", "r")))
    services = {"s": Service(0.01, selectivity={"l": 0.1, "r": 1.0}), "l": Service(1.0), "r": Service(0.3)}
    windows = Run(topology, services).batches(2.0, 20_000)
    sojourn = 0.01 + (1 / (1 - 0.2) + 1 / (1 / 0.3 - 2)) / 2
    agree([w.latency.mean for w in windows], sojourn)
    agree([w.ended for w in windows], 2.0 * 20_000)


def test_many_records_from_one_are_a_batch_queue():
    """Three at a time to a fast core each: M^[3]/M/1 waits rho/(1-rho) + (b-1)/2 services on average, by theory."""
    services = {"a": Service(1e-6, selectivity=3.0), "b": Service(1.0, queue_records=INF)}
    windows = Run(CHAIN, services).batches(0.2, 200_000)
    agree([w.waited_s[1] for w in windows], (0.6 + 1.0) / (1 - 0.6), 0.04)
    agree([w.ended for w in windows], 0.2 * 200_000)  # each source record once


def test_simpy_agrees_on_a_network_with_general_service():
    """A split and a join with gamma service, for which no formula is known: 20 replications of each."""
    import simpy

    def model(seed):
        random, env, seen = np.random.default_rng(seed), simpy.Environment(), []
        servers = {"s": simpy.Resource(env, 1), "l": simpy.Resource(env, 2), "r": simpy.Resource(env, 1)}
        servers["j"] = simpy.Resource(env, 3)
        gamma = {"s": (4.0, 0.5), "l": (0.25, 1.6), "r": (1.0, 0.7), "j": (0.25, 1.2)}

        def visit(name):
            with servers[name].request() as turn:
                yield turn
                shape, mean = gamma[name]
                yield env.timeout(random.gamma(shape, mean / shape))

        def record(start):
            yield from visit("s")
            for branch in ("l", "r"):
                env.process(rest(start, branch))

        def rest(start, branch):
            yield from visit(branch)
            yield from visit("j")
            if start > 500:
                seen.append(env.now - start)

        def source():
            while env.now < 2500:
                yield env.timeout(random.exponential(1.0))
                env.process(record(env.now))

        env.process(source())
        env.run()
        return np.mean(seen)

    topology = Topology(("s", "l", "r", "j"), (("s", "l"), ("s", "r"), ("l", "j"), ("r", "j")))
    law = {"distribution": "gamma", "queue_records": INF}
    services = {"s": Service(0.5, cv=0.5, **law), "l": Service(1.6, cv=2.0, **law)}
    services |= {"r": Service(0.7, cv=1.0, **law), "j": Service(1.2, cv=2.0, **law)}
    windows = Run(topology, services, {"l": 2, "j": 3}).batches(1.0, 20_000)
    ours, theirs = [w.event_latency.mean for w in windows], [model(seed) for seed in range(20)]
    assert stats.ttest_ind(ours, theirs, equal_var=False).pvalue > 1 - CONFIDENCE
    agree(ours, np.mean(ours), 0.05)
    agree(theirs, np.mean(theirs), 0.25)


def test_ciw_agrees_on_blocking():
    """Three servers before two with room for two more, blocked after service, in 30 replications."""
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(1.5), None],
        service_distributions=[ciw.dists.Exponential(1.0), ciw.dists.Exponential(1.0)],
        routing=[[0.0, 1.0], [0.0, 0.0]],
        number_of_servers=[3, 2],
        queue_capacities=[INF, 2],
    )
    theirs = []
    for seed in range(30):
        ciw.seed(seed)
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(1200)
        records = [r for r in simulation.get_all_records() if r.node == 1 and r.arrival_date > 200]
        theirs.append([np.mean([getattr(r, f) for r in records]) for f in ("waiting_time", "time_blocked")])
    services = {"a": Service(1.0), "b": Service(1.0, queue_records=1)}
    windows = Run(CHAIN, services, {"a": 3, "b": 2}).batches(1.5, 10_000)
    ours = [[w.waited_s[0], w.blocked[0] / w.done[0]] for w in windows]
    for mine, other in zip(np.transpose(ours), np.transpose(theirs), strict=True):
        assert stats.ttest_ind(mine, other, equal_var=False).pvalue > 1 - CONFIDENCE
        agree(mine, np.mean(mine), 0.1)
