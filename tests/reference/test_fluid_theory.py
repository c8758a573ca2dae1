"""The fluid engine's mean latency against queueing theory, from an idle job to utilisation 0.9: within 15 %."""

import pytest

from dspkit import Deployment, Plant, Simulator, Topology, workload
from dspkit.core.queueing import erlang_c
from dspkit.simulator import Node, Service

ONE, S = Topology(("a",)), 1e-2
LOADS = pytest.mark.parametrize("load", [0.1, 0.5, 0.8, 0.9])


def _time(service, load, k, nodes=None, topology=ONE):
    """Mean time of a record in the job at this share of its capacity, from its arrival in the log."""
    plant = Plant(service if isinstance(service, dict) else {"a": service}, nodes or {"n": Node(4096)})
    job = Simulator(topology, plant, workload.Constant(load), deployment=Deployment(topology.uniform() | k))
    return [job.observe() for _ in range(3)][-1].event_latency.mean


@LOADS
@pytest.mark.parametrize("k", [1, 2, 8, 50])
def test_m_m_c_exactly(load, k):
    rate = load * k / S
    expected = S + erlang_c(k, load * k) / (k / S - rate)
    assert _time(Service(S), rate, {"a": k}) == pytest.approx(expected, rel=1e-6)


@LOADS
@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.0])
def test_m_g_1_exactly(load, cv):
    """Pollaczek and Khinchine."""
    kind = {"distribution": "gamma", "cv": cv} if cv else {"distribution": "deterministic"}
    expected = S + load * S / (1 - load) * (1 + cv**2) / 2
    assert _time(Service(S, **kind), load / S, {"a": 1}) == pytest.approx(expected, rel=1e-6)


@LOADS
@pytest.mark.parametrize(("instances", "cores"), [(60, 1), (60, 4), (4, 1), (2, 1), (17, 16)])
def test_processor_sharing(load, instances, cores):
    """More instances than cores: with exponential services as many are there as in M/M/c, however they share."""
    rate = load * cores / S
    expected = S + erlang_c(cores, load * cores) / (cores / S - rate)
    assert _time(Service(S), rate, {"a": instances}, {"n": Node(cores)}) == pytest.approx(expected, rel=0.15)


@LOADS
def test_own_queues_are_as_many_single_servers(load):
    assert _time(Service(S, grouping="split"), 8 * load / S, {"a": 8}) == pytest.approx(S / (1 - load), rel=1e-6)


@LOADS
def test_a_jackson_network_with_a_branch_and_a_join(load):
    """s sends a third of its records to l, the rest to r; both go on to j, which works with two instances."""
    topology = Topology(("s", "l", "r", "j"), (("s", "l"), ("s", "r"), ("l", "j"), ("r", "j")))
    services = {"s": Service(S, selectivity={"l": 1 / 3, "r": 2 / 3}), "l": Service(S), "r": Service(S / 2)}
    services["j"] = Service(1.5 * S)
    rate = load / S
    each = {"s": S / (1 - load), "l": S / (1 - load / 3), "r": S / 2 / (1 - load / 3)}
    each["j"] = 1.5 * S + erlang_c(2, 1.5 * load) / (2 / (1.5 * S) - rate)
    job = Simulator(
        topology, Plant(services, {"n": Node(64)}), workload.Constant(rate),
        deployment=Deployment({"s": 1, "l": 1, "r": 1, "j": 2}),
    )  # fmt: skip
    waited = {name: m.waited_s + 1 / m.true_rate for name, m in [job.observe() for _ in range(3)][-1].operators.items()}
    assert waited == pytest.approx(each, rel=1e-6)
