"""Hypothesis strategies for topologies, matching plants, deployments and runs; they require hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from ..core import (
    EXECUTIONS,
    Decision,
    Deployment,
    History,
    InstanceMetrics,
    Latency,
    Operator,
    OperatorMetrics,
    Snapshot,
    Step,
    Topology,
)
from ..simulator import Link, Node, NodeDown, NodeSlow, Plant, Service, Skew

NAMES = st.text(min_size=1, max_size=6).filter(str.strip)
RATES = st.floats(0, 1e9, allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def topologies(draw: st.DrawFn, most: int = 7) -> Topology:
    """Random acyclic graphs; each operator has an edge unless it is the only one."""
    names = draw(st.lists(NAMES, min_size=1, max_size=most, unique=True))
    edges: dict[tuple[str, str], None] = {}
    for i in range(1, len(names)):  # each has a parent, so that none is isolated
        for parent in draw(st.sets(st.integers(0, i - 1), min_size=1, max_size=3)):
            edges[names[parent], names[i]] = None
    return Topology(tuple(Operator(n, max_parallelism=draw(st.integers(1, 50))) for n in names), tuple(edges))


@st.composite
def deployments(draw: st.DrawFn, topology: Topology) -> Deployment:
    """Deployments within the bounds of a topology."""
    return Deployment({o.name: draw(st.integers(1, o.max_parallelism)) for o in topology.operators})


@st.composite
def services(draw: st.DrawFn, children: tuple[str, ...], slowest: float = 1e-1) -> Service:
    """Services of all kinds, including refusals, external servers and IO; half of them are plain."""
    plain = draw(st.booleans())
    room = draw(st.sampled_from([1.0, 10.0, 1000.0, float("inf")]))
    return Service(
        draw(st.floats(1e-4, slowest)),
        selectivity={child: draw(st.floats(0, 3)) for child in children},
        contention=draw(st.floats(0, 0.2)),
        queue_records=room,
        distribution="exponential" if plain else draw(st.sampled_from(["deterministic", "gamma"])),
        io_share=0.0 if plain else draw(st.floats(0, 1)),
        overflow="drop" if not plain and room < float("inf") and draw(st.booleans()) else "block",
        external_rate_limit_per_s=float("inf") if plain else draw(st.sampled_from([20.0, 1000.0, float("inf")])),
        grouping="shared" if plain else draw(st.sampled_from(["shared", "split"])),
        state_bytes=0.0 if plain else 1e6,
    )


@st.composite
def plants(draw: st.DrawFn, topology: Topology, slowest: float = 1e-1) -> Plant:
    """Plants of up to three nodes for a topology, with up to two faults."""
    nodes = {f"n{i}": Node(draw(st.integers(1, 4)), draw(st.sampled_from([1.0, 0.5, 2.0]))) for i in range(3)}
    nodes = dict(list(nodes.items())[: draw(st.integers(1, 3))])
    at, lasting = st.sampled_from([3.0, 7.3, 10.0]), st.sampled_from([0.2, 5.0, 8.1, float("inf")])
    node, operator = st.sampled_from(list(nodes)), st.sampled_from([o.name for o in topology.operators])
    fault = (
        st.builds(NodeDown, at, lasting, node, st.booleans())
        | st.builds(NodeSlow, at, lasting, node, st.sampled_from([0.1, 0.5]))
        | st.builds(Skew, at, lasting, operator, st.sampled_from([0.3, 0.9]))
    )
    return Plant(
        {o.name: draw(services(topology.downstream(o.name), slowest)) for o in topology.operators},
        nodes,
        pause_s=draw(st.sampled_from([0.0, 0.7, 10.0, 25.0])),
        noise=draw(st.floats(0, 0.3)),
        pause_kind=draw(st.sampled_from(["rebalance", "restart", "savepoint", "in-place", "migration", "instances"])),
        state_bytes_per_s=1e6,
        network=draw(st.sampled_from([Link(), Link(delay_s=0.1, bandwidth_bytes_per_s=20_000)])),
        faults=tuple(draw(st.lists(fault, max_size=2))),
        execution=draw(st.sampled_from(EXECUTIONS)),
    )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Runs of any content, including gaps, rather than only those that a simulator would produce."""
    topology = draw(topologies(most=4))
    about = draw(st.dictionaries(st.text(max_size=5), JSON, max_size=2))
    history = History(topology, about=about, notes=draw(st.lists(st.tuples(RATES, st.text(max_size=5)), max_size=2)))
    for index in range(draw(st.integers(0, 4))):
        decision = st.builds(Decision, deployments(topology), st.dictionaries(st.text(max_size=5), JSON, max_size=3))
        decided = draw(st.none() | decision)
        rescaled = decided is not None and draw(st.booleans())
        history.append(Step(index, draw(snapshots(topology)), decided, rescaled, draw(st.integers(0, 5))))
    return history


def _with_instances(draw: st.DrawFn, metrics: OperatorMetrics) -> OperatorMetrics:
    if not draw(st.booleans()):
        return metrics
    one = st.builds(InstanceMetrics, RATES, st.floats(0, 1), *[st.none() | RATES] * 3)
    return replace(metrics, instances=tuple(draw(one) for _ in range(metrics.parallelism)))


@st.composite
def snapshots(draw: st.DrawFn, topology: Topology) -> Snapshot:
    """Snapshots of any content for a topology."""
    latency = st.none() | st.builds(Latency, RATES, RATES, RATES, RATES)
    shares, nothing = st.floats(0, 1), st.none()
    metrics = st.builds(
        OperatorMetrics, RATES, RATES, RATES, nothing | RATES, shares, RATES, st.integers(1, 9), nothing | RATES,
        nothing | shares, RATES,
    )  # fmt: skip
    deployment = draw(deployments(topology))
    places = [(n, i) for n, k in deployment.parallelism.items() for i in range(min(k, 2))]
    return Snapshot(
        t=draw(RATES),
        window_s=draw(st.floats(1, 1e6)),
        deployment=Deployment(
            deployment.parallelism,
            draw(st.none() | st.integers(1, 9)),
            draw(st.dictionaries(st.sampled_from(places), NAMES, max_size=3)),
            draw(st.dictionaries(st.text(max_size=4), JSON, max_size=2)),
        ),
        operators={n: _with_instances(draw, draw(metrics)) for n in draw(st.sets(st.sampled_from(topology.order)))},
        source_rates={n: draw(RATES) for n in topology.sources},
        throughput=draw(RATES),
        latency=draw(latency),
        event_latency=draw(latency),
        lag=draw(RATES),
        edge_rates={edge: draw(RATES) for edge in topology.edges},
        nodes=draw(st.dictionaries(NAMES, shares, max_size=2)),
        downtime_s=(down := draw(shares)),
        commit_s=1.0 - down,
        last_selectivities={edge: draw(st.none() | RATES) for edge in topology.edges[:2]},
        delays={pair: draw(RATES) for pair in (("n1", "n2"), ("n2", "n3"))[: draw(st.integers(0, 2))]},
        execution=draw(st.sampled_from(EXECUTIONS)),
    )
