"""ODP and ODRP as policies: their plans against exhaustive search, their two steps, failures, and heuristics."""

from dataclasses import replace
from itertools import product

import pytest

from dspkit import Deployment, Simulator, Snapshot, Topology, policies, run, workload
from dspkit.core import ArgumentError, OperatorMetrics
from dspkit.placement import HEURISTICS
from dspkit.policies.edrp import EDRP
from dspkit.policies.hierarchical import Hierarchical
from dspkit.policies.odp import ODP, ODRP
from dspkit.simulator import Link, Node, NodeDown, Plant, Service

GRAPH = Topology(
    ("read", "left", "right", "write"), (("read", "left"), ("read", "right"), ("left", "write"), ("right", "write"))
)
NODES = {"n1": 0.1, "n2": 0.1, "n3": 0.1}
FAR = {("n1", "n2"): 0.02, ("n2", "n3"): 0.03, ("n1", "n3"): 0.06}
PINS = {"read": "n1", "write": "n3"}
TRUE = {"read": 1000.0, "left": 50.0, "right": 200.0, "write": 500.0}
SENDS = {("read", "left"): 0.5, ("read", "right"): 3.0, ("left", "write"): 1.0, ("right", "write"): 0.1}


def seen(t=10.0, rate=40.0, counts=None, placement=None, nodes=NODES, operators=True):
    """A window of ten seconds in which `rate` records/s came."""
    deployment = Deployment(counts or GRAPH.uniform(1), placement=placement or {})
    load = {"read": rate, "left": 0.5 * rate, "right": 3 * rate, "write": 0.8 * rate}
    measured = {
        n: OperatorMetrics(load[n], load[n], load[n], TRUE[n], 0.5, 0.0, k) for n, k in deployment.parallelism.items()
    }
    return Snapshot(
        t=t, window_s=10.0, deployment=deployment, operators=measured if operators else {}, source_rates={"read": rate},
        throughput=rate, latency=None, event_latency=None, lag=0.0,
        edge_rates={(a, b): load[a] * s for (a, b), s in SENDS.items()} if operators else {}, nodes=nodes,
    )  # fmt: skip


def play(policy, *snapshots):
    """Return the decisions; each is carried out before the next window."""
    state, decisions, running = policy.init(GRAPH), [], None
    for snapshot in snapshots:
        if running is not None:
            snapshot = replace(snapshot, deployment=running)
        state, decision = policy.step(state, snapshot)
        decisions.append(decision)
        running = decision.deployment
    return decisions


def response_s(nodes, rate=40.0):
    """The critical path of a placement of one instance each, by hand: times on the nodes and delays between them."""

    def far(a, b):
        return 0.0 if a == b else FAR.get((a, b), FAR.get((b, a)))

    return max(
        sum(1 / TRUE[o] for o in path) + sum(far(nodes[a], nodes[b]) for a, b in zip(path, path[1:], strict=False))
        for path in (("read", "left", "write"), ("read", "right", "write"))
    )


def usage(nodes, rate=40.0):
    load = {"read": rate, "left": 0.5 * rate, "right": 3 * rate}
    return sum(
        load[a] * s * (0.0 if nodes[a] == nodes[b] else FAR.get((nodes[a], nodes[b]), FAR.get((nodes[b], nodes[a]))))
        for (a, b), s in SENDS.items()
    )


MEASURED = ODP(monitor_s=10, two_step=False, delays=FAR, pinned=PINS, slots_per_node=2)


def feasible(slots):
    for left, right in product(NODES, repeat=2):
        nodes = {**PINS, "left": left, "right": right}
        if max([*nodes.values()].count(n) for n in NODES) <= slots:
            yield nodes


@pytest.mark.parametrize(("weights", "of"), [({}, response_s), ({"response": 0.0, "network": 1.0}, usage)])
def test_the_exact_plan_is_the_best_of_all_placements(weights, of):
    (decision,) = play(replace(MEASURED, **weights), seen())
    found = {operator: node for (operator, _), node in decision.deployment.placement.items()}
    assert of(found) == pytest.approx(min(of(nodes) for nodes in feasible(2)))
    assert found["read"] == "n1"
    assert found["write"] == "n3"
    assert decision.why["status"] == "optimal"
    assert decision.why["R"] == pytest.approx(response_s(found))


@pytest.mark.parametrize("method", HEURISTICS)
def test_each_heuristic_places_all_instances_within_the_slots(method):
    policy = replace(MEASURED, method=method, response=0.5, network=0.5)
    (decision,) = play(policy, seen(counts={"read": 1, "left": 2, "right": 2, "write": 1}))
    placement = decision.deployment.placement
    assert len(placement) == 6
    assert max([*placement.values()].count(n) for n in NODES) <= 2
    assert placement["read", 0] == "n1"
    assert decision.why["method"] in {method, "greedy", "exact"}


def test_a_heuristic_is_named_as_in_the_tables():
    assert policies.get("odp")(method="local search") == ODP(method="local_search")
    with pytest.raises(ArgumentError, match="method"):
        ODP(method="by lot")


def test_it_plans_early_for_availability_and_again_with_rates():
    policy = ODP(monitor_s=20, up={"n1": 0.9, "n2": 0.999, "n3": 0.95}, delays=FAR, slots_per_node=4)
    early, waits, plan, *rest = play(policy, *(seen(t) for t in (10.0, 20.0, 30.0, 40.0, 50.0)))
    assert set(early.deployment.placement.values()) == {"n2"}  # the surest node has room for all
    assert early.why["A"] == pytest.approx(0.999**4)
    assert waits.deployment == early.deployment
    assert plan.why["rule"] == "plan with measured rates"
    assert all(d.why["rule"] == "placed" and d.deployment == plan.deployment for d in rest)


def test_without_rates_it_waits_for_them():
    policy = ODP(monitor_s=10, two_step=False)
    silent, found = play(policy, seen(operators=False), seen(20.0))
    assert "measures" in silent.why["rule"]
    assert found.why["rule"] == "plan with measured rates"
    (unnamed,) = play(policy, seen(nodes={}))
    assert "no nodes" in unnamed.why["rule"]
    assert not unnamed.deployment.placement


@pytest.mark.parametrize("kind", [ODP, ODRP])
def test_a_failed_worker_is_planned_around_and_a_placed_job_stays(kind):
    policy = kind(monitor_s=10, two_step=False, delays=FAR, pinned={"write": "n2"})
    first, stays, failed, after = play(
        policy, seen(), seen(20.0), seen(30.0, nodes={"n1": 0.1, "n3": 0.1}), seen(40.0, nodes={"n1": 0.1, "n3": 0.1})
    )
    assert "n2" in first.deployment.placement.values()
    assert stays.deployment == first.deployment
    assert failed.why["rule"] == "failed: n2"
    assert set(failed.deployment.placement.values()) <= {"n1", "n3"}
    assert after.deployment == failed.deployment


def test_more_instances_from_outside_are_placed_too():
    state, decision = MEASURED.init(GRAPH), None
    for snapshot in (seen(), seen(20.0, counts={"read": 1, "left": 2, "right": 1, "write": 1})):
        state, decision = MEASURED.step(state, snapshot)
    assert decision.why["rule"] == "the instances were changed from outside"
    assert len(decision.deployment.placement) == 5


def test_odrp_chooses_counts_that_keep_up_and_the_least_cost_early():
    policy = ODRP(monitor_s=10, delays=FAR)
    early, plan = play(policy, seen(rate=60.0, counts={"read": 1, "left": 2, "right": 1, "write": 1}), seen(20.0, 60.0))
    assert early.deployment.parallelism == GRAPH.uniform(1)  # the least cost
    counts = plan.deployment.parallelism
    load = {"read": 60.0, "left": 30.0, "right": 180.0, "write": 48.0}
    assert all(load[n] / k < TRUE[n] for n, k in counts.items())
    assert counts["right"] >= 2  # alone it would be busy for 90 %
    cheap = replace(policy, response=0.0, cost=1.0)
    assert play(cheap, seen(rate=60.0), seen(20.0, 60.0))[-1].deployment.parallelism == GRAPH.uniform(1)


def test_without_downtime_edrp_and_odrp_agree_on_the_least_response_time():
    """Chapter 8: EDRP without a weight of downtime is ODRP; with one metric the scales do not matter either."""
    wide = {"max_parallelism": 3, "delays": FAR, "pinned": PINS, "slots_per_node": 4}
    (odrp,) = play(ODRP(monitor_s=10, two_step=False, **wide), seen(rate=60.0))
    free = {"max_cost": 1e6, "target_latency_s": 3600.0, "max_downtime_s": 3600.0, "begin": "weighed"}
    edrp = EDRP(response=1.0, cost=0.0, downtime=0.0, decision_interval_s=10, **wide, **free)
    (found,) = play(edrp, seen(rate=60.0))
    assert odrp.why["R"] == pytest.approx(found.why["R"])


@pytest.mark.parametrize("kind", [ODP, ODRP])
def test_without_given_delays_it_plans_with_those_of_pings(kind):
    """Pings in the windows say the same as `delays`; pairs that the last window did not ping keep theirs."""
    policy = kind(monitor_s=20, two_step=False, pinned=PINS, slots_per_node=2)
    pings = [dict(list(FAR.items())[:2]), dict(list(FAR.items())[2:])]
    windows = [replace(seen(10.0 * i), delays=d) for i, d in enumerate(pings, 1)]
    *_, found = play(policy, *windows)
    *_, given = play(replace(policy, delays=FAR), seen(10.0), seen(20.0))
    assert found.deployment == given.deployment
    assert found.why["R"] == given.why["R"] > 0.05  # from n1 to n3 by n2


def test_edrp_and_hierarchical_control_take_the_delays_of_pings():
    apart = {("read", 0): "n1", ("left", 0): "n2", ("right", 0): "n1", ("write", 0): "n3"}
    edrp = EDRP(decision_interval_s=10, pinned=PINS, target_latency_s=3600.0, max_cost=1e6, begin="weighed")
    (near,) = play(edrp, seen(placement=apart))
    (far,) = play(edrp, replace(seen(placement=apart), delays=FAR))
    (given,) = play(replace(edrp, delays=FAR), seen(placement=apart))
    assert far.why["R"] == given.why["R"] > near.why["R"] + 0.045  # 50 ms by n2, instead of two hops of 1 ms
    hot = replace(seen(rate=99.0, placement=apart), delays={("n1", "n2"): 100.0, ("n2", "n3"): 1e-3, ("n1", "n3"): 1.0})
    rule = Hierarchical(decision_interval_s=1, grant_interval_s=1, grants="all", include_self=False, signal="busy")
    hot = replace(hot, operators={n: replace(m, utilisation=float(n == "left")) for n, m in hot.operators.items()})
    targets = [
        decision.deployment.placement["left", 1]
        for seed in range(20)
        for _, decision in [rule.step(rule.init(GRAPH, seed), hot)]
    ]
    assert targets == ["n3"] * 20  # 1 ms away, and the other one 100 s


def test_no_room_is_a_reason_and_no_error():
    (decision,) = play(replace(MEASURED, slots_per_node=1), seen())
    assert decision.why["rule"] == "nothing can run"
    assert decision.deployment == seen().deployment


@pytest.mark.parametrize(
    "bad",
    [
        {"response": 0.0}, {"up": {"n1": 0.0}}, {"up": {"n1": 2}}, {"up": 3}, {"delays": {("a", "b"): -1}},
        {"pinned": {"read": 5}}, {"slots_per_node": 0}, {"metric": "hops"},
    ],
)  # fmt: skip
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=r"got .*expected"):
        ODP(**bad)
    with pytest.raises(ArgumentError, match="'typo' pinned"):
        ODP(pinned={"typo": "n1"}).init(GRAPH)


def test_on_the_simulator_the_latency_is_the_planned_one_and_a_dead_node_is_left():
    """At a tenth of the load that an instance can take, the model's response time is the plant's latency."""
    graph = Topology.chain("read", "work", "write")
    services = {"read": Service(1e-5), "work": Service(1e-3), "write": Service(1e-5)}
    links = {pair: Link(delay_s=s) for pair, s in FAR.items()}
    nodes = {n: Node(2) for n in NODES}
    plant = Plant(services, nodes=nodes, links=links, faults=(NodeDown(at_s=200.0, node="n2"),))
    pinned = {"read": "n1", "write": "n3"}
    with Simulator(graph, plant, workload.Constant(100)) as job:
        before = job.observe()
        history = run(ODP(monitor_s=20, delays=FAR, pinned=pinned, slots_per_node=1), job, steps=40)
    planned = [s.decision for s in history if s.decision.why["rule"] == "plan with measured rates"][-1]
    assert planned.deployment.placement["work", 0] == "n2"  # the only one with a slot left
    assert history[15].snapshot.latency.mean == pytest.approx(planned.why["R"], rel=0.05)
    assert planned.why["R"] == pytest.approx(0.02 + 0.03 + 1e-3 + 2e-5)
    assert before.nodes.keys() == NODES.keys()
    failed = [s for s in history if s.decision.why["rule"] == "nothing can run"]
    assert failed[0].snapshot.t == pytest.approx(220.0, abs=10.0)  # two nodes of one slot do not hold three operators
    with Simulator(graph, plant, workload.Constant(100)) as job:
        history = run(ODP(monitor_s=20, delays=FAR, pinned=pinned, slots_per_node=2), job, steps=40)
    assert "n2" not in history[-1].deployment.placement.values()
