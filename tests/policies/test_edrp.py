"""EDRP as a policy: what it decides, when, and what it leaves as it is."""

from dataclasses import replace

import pytest

from dspkit import Deployment, Snapshot, Topology, apps, run, workload
from dspkit.core import ArgumentError, OperatorMetrics
from dspkit.policies.edrp import EDRP, WEIGHTINGS
from reproduction.edrp import study as edrp

CHAIN = Topology.chain("source", "work", "sink", max_parallelism=4)
NODES = {"n1": 0.1, "n2": 0.1, "n3": 0.1}
FAR = {("n1", "n2"): 0.02, ("n1", "n3"): 0.03, ("n2", "n3"): 0.01}
TOGETHER = {("source", 0): "n1", ("work", 0): "n1", ("sink", 0): "n1"}
MU = 100.0


def seen(rate, parallelism=None, placement=TOGETHER, t=60.0, **more):
    """A window of a minute in which `rate` records/s came."""
    deployment = Deployment(parallelism or {"source": 1, "work": 1, "sink": 1}, placement=placement)
    operators = {
        n: OperatorMetrics(rate, rate, rate, 10 * MU if n == "source" else MU, 0.5, 0.0, k)
        for n, k in deployment.parallelism.items()
    }
    edges = {("source", "work"): rate, ("work", "sink"): 0.1 * rate}
    given = {"operators": operators, "edge_rates": edges, "nodes": NODES, **more}
    return Snapshot(
        t=t, window_s=60.0, deployment=deployment, source_rates={"source": rate}, throughput=rate, latency=None,
        event_latency=None, lag=0.0, **given,
    )  # fmt: skip


def decide(policy, *snapshots):
    state, decision = policy.init(CHAIN), None
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
    return decision


POLICY = EDRP(**WEIGHTINGS["balanced"], slots_per_node=4, delays=FAR)


def test_what_does_well_stays():
    decision = decide(POLICY, seen(20.0))
    assert decision.deployment == seen(20.0).deployment
    assert decision.why["status"] == "optimal"


def test_who_cannot_keep_up_is_replicated_and_the_others_keep_their_numbers():
    decision = decide(POLICY, seen(150.0))
    assert decision.deployment.parallelism["work"] >= 2
    assert decision.deployment.placement["source", 0] == "n1"
    assert decision.deployment.placement["work", 0] == "n1"
    assert decision.why["actions"]["work"] == "scale-out"


def test_slots_and_pins_are_kept():
    decision = decide(replace(POLICY, slots_per_node=2, pinned={"sink": "n3"}), seen(20.0))
    placement = decision.deployment.placement
    assert placement["sink", 0] == "n3"
    assert max([*placement.values()].count(n) for n in NODES) <= 2


def test_it_decides_once_a_period():
    windows = [replace(seen(150.0, t=10.0 * i), window_s=10.0) for i in range(1, 7)]
    for some in range(1, 6):
        assert decide(POLICY, *windows[:some]).why["rule"] == "measures"
    assert "status" in decide(POLICY, *windows).why


def test_downtime_is_weighed_after_the_first_decision():
    """A node away saves 20 ms twice: moved to at first, and by who ignores downtime; not by who weighs it."""
    apart = {("source", 0): "n1", ("work", 0): "n2", ("sink", 0): "n1"}
    first = decide(POLICY, seen(20.0, placement=apart))
    assert first.why["actions"]
    weighed = decide(replace(POLICY, begin="weighed"), seen(20.0, placement=apart))
    assert weighed.deployment == seen(20.0, placement=apart).deployment
    baseline = EDRP(**WEIGHTINGS["baseline"], slots_per_node=4, delays=FAR, begin="weighed")
    assert decide(baseline, seen(20.0, placement=apart)).why["actions"]


def test_one_step_at_a_time():
    decision = decide(replace(POLICY, restricted=True, max_parallelism=4), seen(150.0))
    assert decision.deployment.parallelism["work"] == 2


def test_nothing_can_run():
    decision = decide(POLICY, seen(1e6))
    assert decision.deployment == seen(1e6).deployment
    assert decision.why["rule"] == "nothing can run"


def test_without_places_it_says_counts_alone():
    decision = decide(POLICY, seen(150.0, placement={}, nodes={}))
    assert decision.deployment.parallelism["work"] >= 2
    assert not decision.deployment.placement


@pytest.mark.parametrize(
    "change",
    [
        {"response": 0, "cost": 0, "downtime": 0}, {"delays": {("a", "b"): -1}}, {"state_bytes": 3},
        {"pinned": {"sink": 5}}, {"max_parallelism": 0}, {"begin": "never"},
    ],
)  # fmt: skip
def test_bad_knobs(change):
    with pytest.raises(ArgumentError):
        replace(POLICY, **change)


@pytest.mark.slow
def test_on_the_cluster_who_weighs_downtime_stands_still_less():
    down = {}
    for name in ("baseline", "balanced"):
        down[name] = sum(s.snapshot.downtime_s for s in edrp.on_cluster(name, steps=576))
    assert 0 < down["balanced"] < down["baseline"]


@pytest.mark.parametrize("settle", [0, 1])
def test_the_cost_of_a_change_is_learned_from_what_changes_have_cost(settle):
    """Each change stops the plant for four seconds, and the policy believes in one; windows that settle count, too."""
    app = apps.word_count()
    plant = replace(app.plant, pause_s=4.0, pause_kind="rebalance")
    policy = EDRP(
        decision_interval_s=20, sync_s=1.0, spawn_s=0.0, target_latency_s=10.0, max_cost=100.0, max_parallelism=6,
        change_cost="measured", max_downtime_s=60.0, response=1.0, cost=0.0, downtime=0.01,
    )  # fmt: skip
    load = workload.Jump(500, 1500, 200)
    history = run(policy, app.under(load, plant), steps=60, settle=settle)
    told = [s.decision.why["any change, s"] for s in history if s.decision and "any change, s" in s.decision.why]
    assert told[0] == 1.0
    assert history[-1].snapshot.last_change_s == pytest.approx(4.0, abs=0.5)
    assert told[-1] == pytest.approx(4.0, abs=0.5)
    given = run(replace(policy, change_cost="model"), app.under(load, plant), steps=60, settle=settle)
    assert not any("any change, s" in s.decision.why for s in given if s.decision)


def test_a_change_by_hand_teaches_nothing():
    """Its cost is known, but not what the policy would have predicted."""
    policy = EDRP(change_cost="measured", sync_s=1.0, decision_interval_s=60)
    windows = [
        seen(20.0, t=60.0),
        replace(seen(20.0, t=120.0), last_change_t=60.0, last_change_s=9.0),
        seen(20.0, t=180.0),
    ]
    assert decide(policy, *windows).why["any change, s"] == 1.0
