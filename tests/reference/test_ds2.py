"""DS2's own published expectations: parallelism for given true rates, one window, instances at 1."""

import pytest

from dspkit import Deployment, OperatorMetrics, Snapshot, Topology
from dspkit.policies.ds2 import DS2


def _recommend(topology: Topology, rates: dict[str, tuple[float, float]], source_rate: float, policy: DS2):
    """Parallelism for operators with (true processing, true output) rates; sources pass on what they are offered."""
    busy = 0.5  # any share of time: DS2 must not depend on it
    operators = {
        s: OperatorMetrics(source_rate, source_rate, source_rate, 10 * source_rate, 0.1, 0, 1) for s in topology.sources
    }
    for name, (processing, output) in rates.items():
        operators[name] = OperatorMetrics(busy * processing, busy * processing, busy * output, processing, busy, 0, 1)
    edge_rates = {(u, v): operators[u].output_rate for u, v in topology.edges}
    snapshot = Snapshot(
        t=10, window_s=10, deployment=Deployment(topology.uniform()), operators=operators,
        source_rates=dict.fromkeys(topology.sources, source_rate), throughput=source_rate, latency=None,
        event_latency=None, lag=0, edge_rates=edge_rates,
    )  # fmt: skip
    _, decision = policy.step(policy.init(topology), snapshot)
    return [decision.deployment.parallelism[name] for name in rates]


CHAIN = Topology.chain("src", "op1", "op2", max_parallelism=1000)


@pytest.mark.parametrize(
    ("source_rate", "op1", "op2", "expected"),
    [
        (100, (50, 400), (100, 200), [2, 8]),
        (200, (40, 700), (99, 200), [5, 36]),
        (200, (10, 700), (201, 200), [20, 70]),
    ],
)
@pytest.mark.parametrize("scale_sources", [True, False])
def test_the_authors_chains(source_rate, op1, op2, expected, scale_sources):
    policy = DS2(scale_sources=scale_sources)
    assert _recommend(CHAIN, {"op1": op1, "op2": op2}, source_rate, policy) == expected


def test_the_authors_two_sources():
    topology = Topology(("s1", "s2", "op1", "op2"), (("s1", "op1"), ("s2", "op1"), ("op1", "op2")))
    assert _recommend(topology, {"op1": (50, 400), "op2": (100, 200)}, 100, DS2()) == [4, 16]


@pytest.mark.parametrize(
    ("rate", "true_rates", "expected"),
    [
        (1000, (600, 250, 900), [2, 4, 2]),
        (1000, (5000, 250), [1, 4]),
        (350, (120, 100, 30, 36), [3, 4, 12, 10]),
    ],
)
def test_chains_of_the_autrascale_card(rate, true_rates, expected):
    """Example A3, demand column; the first operator is the source itself."""
    names = [f"op{i}" for i in range(len(true_rates))]
    topology = Topology.chain(*names)
    rates = {name: (v, v) for name, v in zip(names, true_rates, strict=True)}
    assert _recommend(topology, rates, rate, DS2()) == expected


def test_branch_and_join_of_the_autrascale_card():
    """Example A4: k' = (1, 5, 2, 8)."""
    topology = Topology(("s", "a", "b", "j"), (("s", "a"), ("s", "b"), ("a", "j"), ("b", "j")))
    rates = {"s": (1000, 1000), "a": (200, 100), "b": (500, 1000), "j": (300, 300)}
    assert _recommend(topology, rates, 900, DS2()) == [1, 5, 2, 8]
