"""The control loop of Distributed Storm, its gossip, its first placements, and T-Storm."""

import numpy as np
import pytest

from dspkit import Deployment, Simulator, Topology, apps, run, workload
from dspkit.apps.nardelli import ends
from dspkit.core import ArgumentError, DeploymentError, InfeasibleError
from dspkit.placement.coordinates import Coordinate, embed, median, springs, update
from dspkit.placement.distributed_storm import (
    Died,
    StormCluster,
    Stressed,
    Unreliable,
    Worker,
    bootstrap,
    known_points,
    least_traffic,
    monitored,
    round_robin,
    start,
    streams,
    thesis_cluster,
    traffic,
)
from dspkit.placement.distributed_storm.schedulers import AxisWeights, distances, load, relative_distance, worth_moving
from dspkit.policies.distributed_storm import DistributedStorm
from dspkit.policies.traffic_aware import TrafficAware
from dspkit.simulator import Node, NodeDown, Plant, Service

CHAIN = Topology.chain("source", "a", "b", "sink")
PLANE = np.array([(0, 0, 1, 0), (6, 0, 1, 0), (20, 0, 1, 0), (14, 0, 1, 0)], float)


def play(policy, app, steps=60, seed=0):
    return run(policy, app.simulator(window_s=30, tick_s=5, seed=seed), steps=steps, seed=seed)


def test_round_robin_deals_over_different_nodes_first():
    slots = round_robin(CHAIN, CHAIN.uniform(2), (2, 2), 3)
    assert list(slots.values()) == [(0, 0), (1, 0), (0, 1), (0, 0), (1, 0), (0, 1), (0, 0), (1, 0)]


def test_bootstrap_pools_neighbours_and_pulls_the_middle_between_the_ends():
    k = {"source": 1, "a": 1, "b": 1, "sink": 1}
    where = bootstrap(CHAIN, k, (1, 1, 1, 1), PLANE, processes=4, pinned={"source": 0, "sink": 2})
    assert where == {("source", 0): (0, 0), ("sink", 0): (2, 0), ("a", 0): (1, 0), ("b", 0): (3, 0)}
    two = bootstrap(CHAIN, CHAIN.uniform(2), (2, 2, 2, 2), PLANE, processes=2)
    assert {e[0] for e, slot in two.items() if slot == (0, 0)} == {"source", "a"}
    assert {e[0] for e, slot in two.items() if slot == (0, 1)} == {"b", "sink"}
    unknown = bootstrap(CHAIN, k, (2, 2), np.full((2, 4), np.nan), processes=4)
    assert sorted(unknown.values()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    with pytest.raises(DeploymentError, match="no free slot"):
        bootstrap(CHAIN, k, (1,), PLANE[:1], processes=4, kept={("a", 0): (0, 0)})


def test_gossip_spreads_what_is_published_and_the_newest_wins():
    cluster, random = thesis_cluster(), np.random.default_rng(2)
    watch = start(8)
    assert np.isnan(known_points(watch, 0)).all()
    for _ in range(60):
        watch = monitored(watch, cluster, (1.0,) * 8, (0.0,) * 8, random)
    assert not any(np.isnan(known_points(watch, here)).any() for here in range(8))
    watch = monitored(watch, cluster, (1.0, 0.5, *(1.0,) * 6), (0.9,) * 8, random)
    heard = [known_points(watch, here)[1, 2] for here in range(8)]
    assert heard[1] == 0.5
    assert 1 <= heard.count(0.5) < 8  # one round of gossip does not reach all
    for _ in range(12):
        watch = monitored(watch, cluster, (1.0, 0.5, *(1.0,) * 6), (0.9,) * 8, random)
    assert all(known_points(watch, here)[1, 2] == 0.5 for here in range(8))


def test_who_believes_less_of_a_ping_stands_still():
    """How far coordinates go in a round once all nodes know each other."""

    def swing(gain):
        watch, random, steps = start(8), np.random.default_rng(5), []
        for number in range(160):
            before = np.array([c.x for c in watch.coordinates])
            watch = monitored(watch, thesis_cluster(), (1.0,) * 8, (0.0,) * 8, random, gain)
            if number >= 60:
                steps.append(np.linalg.norm(np.array([c.x for c in watch.coordinates]) - before, axis=1).mean())
        return np.mean(steps)

    assert swing(0.25) < 0.65 * swing(0.5)
    assert swing(0.05) < 0.25 * swing(0.5)


@pytest.mark.parametrize("virtual", ["springs", "median"])
def test_it_cuts_traffic_and_never_overfills_a_slot(virtual):
    app, cluster = apps.tag_and_count(2), thesis_cluster()
    policy = DistributedStorm(cluster=cluster, pinned=ends(app.topology), virtual=virtual)
    history = play(policy, app, 100)
    now = history[-1]
    rates = dict.fromkeys(app.topology.edges, 10.0)
    k, places = now.snapshot.deployment.parallelism, now.snapshot.deployment.placement
    assert traffic(app.topology, k, rates, places) < 0.6 * traffic(app.topology, k, rates, app.placement)
    assert places["source", 0] == "node-1"
    assert places["consumer", 0] == "node-5"
    moved = [
        e for s in history[1:] for e, n in s.deployment.placement.items() if s.snapshot.deployment.placement[e] != n
    ]
    assert moved
    assert not {"source", "consumer"} & {e[0] for e in moved}
    assert max(load(now.state.where.values()).values()) <= 4
    assert {e: cluster.names[node] for e, (node, _) in now.state.where.items()} == now.deployment.placement


def test_one_round_moves_no_two_neighbours_and_each_node_one():
    app = apps.tag_and_count(2)
    policy = DistributedStorm(cluster=thesis_cluster(), pinned=ends(app.topology), cooldown_rounds=0, threshold=0.0)
    history = play(policy, app, 40)
    for step in history[2:]:
        told = step.decision.why["moves"]
        names = [move.split("[")[0] for move in told] if isinstance(told, tuple) else []
        starts = [move.split()[1] for move in told] if names else []
        assert len(set(starts)) == len(starts)
        assert not any((a, b) in app.topology.edges for a in names for b in names)


def test_it_leaves_an_unreliable_and_a_stressed_node():
    app = apps.tag_and_count()
    for event, weights in ((Unreliable, (1, 10, 0)), (Stressed, (1, 0, 1))):
        before = DistributedStorm(
            thesis_weights := weights[0], *weights[1:], cluster=thesis_cluster(), pinned=ends(app.topology)
        )
        assert thesis_weights == 1
        places = play(before, app, 22)[-1].deployment.placement
        node = next(n for e, n in places.items() if n not in ("node-1", "node-5"))
        policy = DistributedStorm(*weights, cluster=thesis_cluster(event(660, node)), pinned=ends(app.topology))
        assert node not in play(policy, app, 70)[-1].deployment.placement.values()


def test_executors_of_a_dead_process_begin_elsewhere():
    app = apps.tag_and_count()
    policy = DistributedStorm(cluster=thesis_cluster(), pinned=ends(app.topology), threshold=1.0)  # nobody moves
    first = play(policy, app, 3)[-1].state
    executor, (node, slot) = next((e, s) for e, s in first.where.items() if e[0] == "operator_3")
    died = thesis_cluster(Died(100, thesis_cluster().names[node], slot))
    after = play(DistributedStorm(cluster=died, pinned=ends(app.topology), threshold=1.0), app, 6)
    assert after[-1].state.where[executor] != (node, slot)
    assert any("bootstrap" in s.decision.why for s in after[3:])
    same = [e for e in first.where if first.where[e] == after[-1].state.where[e]]
    assert len(same) == 6


def test_executors_that_come_are_placed_and_those_that_others_move_are_found():
    app = apps.tag_and_count()
    policy = DistributedStorm(cluster=thesis_cluster(), pinned=ends(app.topology), threshold=1.0)
    with app.simulator(window_s=30, tick_s=5) as job:
        state = policy.init(app.topology)
        for parallelism in (1, 3):
            job.deploy(Deployment({**job.deployment.parallelism, "operator_2": parallelism}, placement={}))
            state, decision = policy.step(state, job.observe())
            job.deploy(decision.deployment)
        assert {e for e in decision.deployment.placement if e[0] == "operator_2"} == {
            ("operator_2", i) for i in range(3)
        }
        elsewhere = {**decision.deployment.placement, ("operator_2", 1): "node-8"}
        job.deploy(Deployment(decision.deployment.parallelism, placement=elsewhere))
        state, decision = policy.step(state, job.observe())
        assert decision.deployment.placement["operator_2", 1] == "node-8"


def test_t_storm_by_hand():
    """a and b talk 9/s, source and a 1/s: b comes beside a once a is placed beside the source."""
    talk = streams(CHAIN, CHAIN.uniform(), {("source", "a"): 1, ("a", "b"): 9, ("b", "sink"): 2})
    fixed = {("source", 0): (0, 0), ("sink", 0): (1, 0)}
    where = least_traffic(talk, {(0, 0): 4, (1, 0): 4}, fixed)
    assert where[("b", 0)] == (1, 0)  # first, for it talks most, 11/s: 2 of them to the sink
    assert where[("a", 0)] == (1, 0)
    assert least_traffic(talk, {(0, 0): 2, (1, 0): 2}, fixed)[("a", 0)] == (0, 0)  # slots of two: beside the source
    with pytest.raises(InfeasibleError, match="room for all"):
        least_traffic(talk, {(0, 0): 1, (1, 0): 1}, fixed)


def test_t_storm_reaches_the_least_traffic():
    app, cluster = apps.tag_and_count(2), thesis_cluster()
    policy = TrafficAware(cluster=cluster, pinned=ends(app.topology))
    last = play(policy, app, 5)[-1]
    assert last.decision.why["traffic between nodes"] == pytest.approx(10, rel=0.01)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ArgumentError, match="at least one"):
        StormCluster({})
    with pytest.raises(ArgumentError):
        Worker(delay_ms=-1)
    with pytest.raises(ArgumentError):
        DistributedStorm(threshold=float("nan"))
    for pinned in ({"source": "zzz"}, "source", None):
        for policy in (DistributedStorm, TrafficAware):
            with pytest.raises(ArgumentError, match="pinned"):
                policy(cluster=thesis_cluster(), pinned=pinned)
    for policy in (DistributedStorm, TrafficAware):
        with pytest.raises(ArgumentError, match="operator's name"):
            policy(pinned={"zzz": "node-1"}).init(CHAIN)
        with pytest.raises(ArgumentError, match="a StormCluster"):
            policy(cluster="node-1")
    with pytest.raises(DeploymentError, match="no slots"):
        round_robin(CHAIN, CHAIN.uniform(1), (), 2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: springs([[0, 0], [20, 0]], [1500, 1500], [5, 0], strict=True),  # they fly apart
        lambda: springs([[0, 0]], [1], [1, 1], gamma=np.nan),
        lambda: springs([[0, 0]], [1], [1, 1], force_limit=-1),
        lambda: springs("a", [1], [0]),
        lambda: median([[0, 0]], ["x"], [1, 1]),
        lambda: update(Coordinate(), Coordinate(), 1.0, alpha=np.nan),
        lambda: update(Coordinate(), Coordinate(), 1.0, beta=-1),
        lambda: update(Coordinate(), Coordinate(), None),
        lambda: Coordinate((np.nan, 0)),
        lambda: Coordinate((0, 0), -1),
        lambda: embed(np.ones((3, 3)), rounds=-1),
        lambda: embed(np.ones((3, 3)), dimensions=0),
        lambda: embed(np.ones((3, 3)), seed=None),
        lambda: embed([[0, np.inf], [1, 0]]),
        lambda: embed("x"),
        lambda: distances([np.nan, 0, 1, 0], [[0, 0, 1, 0]], AxisWeights(), 10),
        lambda: distances([0, 0, 1, 0], [[0, 0, 1]], AxisWeights(), 10),
        lambda: distances([0, 0, 1, 0], [[0, 0, 1, 0]], AxisWeights("much"), 10),
        lambda: distances([0, 0, 1, 0], [[0, 0, 1, 0]], AxisWeights(), np.nan),
        lambda: worth_moving(0.2, np.nan),
        lambda: relative_distance(-1, 0.1),
    ],
)
def test_points_and_distances_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ArgumentError):
        wrong()


@pytest.mark.parametrize("policy", [TrafficAware(), DistributedStorm(warm_up_rounds=1)], ids=lambda p: p.name)
def test_a_node_that_is_down_is_not_placed_on_and_without_nodes_it_waits(policy):
    """The plant's only node goes down, and later comes back: nothing is placed on a made-up one."""
    services = {o: Service(1e-4) for o in CHAIN.order}
    for nodes, down in ((("n0",), "n0"), (("n0", "n1"), "n1")):
        plant = Plant(services, nodes={n: Node(2) for n in nodes}, faults=(NodeDown(0.0, 25.0, node=down),))
        with Simulator(CHAIN, plant, workload.Constant(50)) as job:
            history = run(policy, job, steps=8)
        during = [s for s in history if s.snapshot.t <= 20]
        assert all(down not in s.snapshot.nodes for s in during)
        assert all(down not in s.decision.deployment.placement.values() for s in during if s.decision)
        if len(nodes) == 1:
            assert [s.decision.why.get("waits", "") for s in during] == ["no nodes are known"] * 2
        assert history[-1].decision.deployment.placement
