"""Stela and its rivals as policies: requests by people, timetables and triggers, on the simulator."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from dspkit import Decision, Deployment, Operator, Topology, apps, control_loop, etp, policies, run, workload
from dspkit.apps.stela import SCALE_IN, TABLE_ONE, trial
from dspkit.core import ArgumentError, DeploymentError, KnobError, call
from dspkit.policies.ds2 import DS2
from dspkit.policies.guards import Cooldown
from dspkit.policies.migrate import Migrate, Rebalance
from dspkit.policies.on_demand import ScaleIn, ScaleOut, Situation, machines_in_use, placed
from dspkit.policies.static import Static
from dspkit.policies.stela import Stela
from dspkit.simulator import NodeDown

EVERY = [Stela, Rebalance, Migrate]
DIAMOND = trial("diamond")


def _run(policy, steps=12, app=None):
    return run(policy, (app or DIAMOND.app()).simulator(seed=1), steps=steps, seed=1)


def _acted(history):
    return [s for s in history if s.rescaled]


@pytest.mark.parametrize("policy", EVERY)
def test_nothing_happens_until_it_is_asked(policy):
    assert not _acted(_run(policy()))
    history = _run(policy(requests=(ScaleOut(at_s=55.0),)))
    assert [s.snapshot.t for s in _acted(history)] == [60.0]
    assert history[-1].snapshot.deployment.workers == 7


def test_scale_out_moves_nothing_that_runs():
    history = _run(Stela(requests=(ScaleOut(at_s=50.0),)))
    (step,) = _acted(history)
    before, after = step.snapshot.deployment, step.decision.deployment
    was = placed(history.topology, before, machines_in_use(step.snapshot))
    assert all(after.placement[instance] == node for instance, node in was.items())
    new = {i for i in after.placement if i not in was}
    assert {after.placement[i] for i in new} == {"node-7"}
    assert len(new) == etp.slots(before.instances, 6) == 4
    assert {name for name, _ in new} == {"sink"}
    why = step.decision.why
    assert (why["congested"], why["slots"], why["slots go to"]) == (("sink",), "4 of 4", {"sink": 4})


@pytest.mark.parametrize(("asked", "workers"), [(ScaleOut(1, at_s=110.0), 7), (ScaleIn(1, at_s=110.0), 5)])
def test_a_machine_that_is_down_still_belongs_to_the_job(asked, workers):
    """It reports nothing at the time of the request; a scale-out must not release it."""
    app = DIAMOND.app()
    app = replace(app, plant=replace(app.plant, faults=(NodeDown(85.0, 60.0, node="node-5"),)))
    (step,) = _acted(_run(Stela(requests=(asked,)), app=app, steps=14))
    assert step.snapshot.t == 110.0
    assert "node-5" not in step.snapshot.nodes
    assert step.decision.deployment.workers == workers


def test_the_simulator_runs_what_was_decided():
    app = DIAMOND.app()
    with app.simulator(seed=1) as backend:
        first = dict(backend.placement)
        list(control_loop(Stela(requests=(ScaleOut(),)), backend, steps=3))
        assert {i: backend.placement[i] for i in first} == first
        assert set(backend.placement.values()) == set(app.plant.nodes)


@pytest.mark.parametrize("policy", [Rebalance, Migrate])
def test_rivals_make_no_instance(policy):
    (step,) = _acted(_run(policy(requests=(ScaleOut(),))))
    before, after = step.snapshot.deployment, step.decision.deployment
    assert after.parallelism == before.parallelism
    assert "node-7" in after.placement.values()


@pytest.mark.parametrize("order", etp.ORDERS)
def test_rivals_move_as_many_as_a_machine_has(order):
    (step,) = _acted(_run(Migrate(order=order, requests=(ScaleOut(),))))
    was = placed(DIAMOND.app().topology, step.snapshot.deployment, machines_in_use(step.snapshot))
    moved = [i for i, m in step.decision.deployment.placement.items() if was[i] != m]
    assert len(moved) == 4


@pytest.mark.parametrize("policy", EVERY)
def test_scale_in_empties_as_many_machines(policy):
    history = _run(policy(requests=(ScaleIn(2, at_s=20.0),)))
    (step,) = _acted(history)
    after = history[-1].snapshot.deployment
    assert after.parallelism == step.snapshot.deployment.parallelism
    assert len(set(after.placement.values())) == after.workers == 4


def test_scale_in_chooses_by_etp():
    app = SCALE_IN.app(noise=0.0)
    (step,) = _acted(_run(Stela(requests=(ScaleIn(2),)), app=app))
    where = {m: {o for (o, _), n in app.placement.items() if n == m} for m in app.plant.nodes}
    stuck = {o for m in step.decision.why["leave"] for o in where[m]}
    shares = etp.etp(app.topology, step.snapshot)
    assert all(shares[o] == 0 for o in stuck)


def test_several_requests_are_answered_one_a_window():
    asked = (ScaleOut(at_s=30.0), ScaleIn(3, at_s=30.0), ScaleOut(2, at_s=80.0))
    app = replace(DIAMOND.app(pause_kind="migration"), workers=5)
    history = _run(Stela(requests=asked), steps=25, app=app)
    counts = [s.decision.deployment.workers for s in _acted(history)]
    assert counts == [6, 3, 5]
    times = [s.snapshot.t for s in _acted(history)]
    assert all(b - a >= 20 for a, b in pairwise(times))  # a window that stood still is not measured


def test_a_person_asks_in_the_middle_of_a_run():
    app, policy = DIAMOND.app(), Stela()
    with app.simulator(seed=1) as backend:
        first = list(control_loop(policy, backend, steps=5))
        rest = list(control_loop(policy.ask(ScaleOut()), backend, steps=5, after=first[-1]))
    assert rest[0].rescaled
    assert [s.index for s in (*first, *rest)] == list(range(10))


def test_one_answer_without_a_loop():
    app = DIAMOND.app()
    with app.simulator(seed=1) as backend:
        for _ in range(3):
            snapshot = backend.observe()
        target, why = Stela().answer(ScaleOut(2, names=("node-7", "node-8")), app.topology, snapshot)
    assert why["slots"] == "8 of 8"
    assert why["slots go to"]["sink"] == 4  # no more than eight may run
    new = [m for i, m in target.placement.items() if m in ("node-7", "node-8")]
    assert new.count("node-7") == new.count("node-8") == 4
    assert target.workers == 8


@dataclass(frozen=True)
class Wish(Static):
    """Wants some deployment."""

    name = "wish"
    instances: int = 0
    workers: int | None = None

    def step(self, state, snapshot):
        k = dict(snapshot.deployment.parallelism)
        first = next(iter(k))
        k[first] = max(1, k[first] + self.instances - sum(k.values())) if self.instances else k[first]
        workers = self.workers or snapshot.deployment.workers
        return None, Decision(replace(snapshot.deployment.scaled(k), workers=workers))


def test_another_policy_as_a_trigger():
    """Its wish for instances becomes machines of four slots each, as at first; Stela says who gets them."""
    app = replace(DIAMOND.app(), workers=5)
    history = _run(Stela(trigger=Wish(instances=27)), app=app, steps=20)  # 24 on 5 machines: 4 slots each, so 7
    assert [s.decision.deployment.workers for s in _acted(history)] == [7]
    assert "wish wants 27 instances, so 7 machines" in _acted(history)[0].decision.why["trigger"]
    history = _run(Stela(trigger=Wish(workers=3)), app=app, steps=20)
    assert [s.decision.deployment.workers for s in _acted(history)] == [3]


def test_ds2_as_a_trigger_asks_for_machines_under_load_and_gives_them_back():
    app = apps.linear()
    start = dict.fromkeys(app.topology.order, 2)
    history = run(Stela(trigger=DS2(activation=2)), app.simulator(parallelism=start), steps=100)
    counts = [s.snapshot.deployment.workers for s in history]
    assert max(counts) > 4 > min(counts)
    taken = history.application.throughput.iloc[50:70].mean()
    fixed = run(Static(), app.simulator(parallelism=start), steps=100).application.throughput.iloc[50:70].mean()
    assert taken > 1.4 * fixed


def test_a_request_that_a_guard_holds_back_is_carried_out_later():
    policy = Cooldown(Stela(requests=(ScaleIn(1, at_s=20.0), ScaleOut(1, at_s=50.0))), cooldown_s=100.0)
    acted = _acted(_run(policy, steps=25))
    assert [(s.snapshot.t, s.decision.deployment.workers) for s in acted] == [(20.0, 5), (120.0, 6)]


def test_more_machines_than_there_are_change_nothing_and_are_told():
    for policy in EVERY:
        history = _run(policy(requests=(ScaleIn(6),)), steps=5)
        assert not _acted(history)
        refused = [s.decision.why["refused"] for s in history if "refused" in s.decision.why]
        assert refused == ["there are 6, and one must stay"]


def test_more_machines_than_the_backend_has_are_refused_by_it():
    with pytest.raises(DeploymentError, match="workers=8"):
        _run(Stela(requests=(ScaleOut(2),)))


def test_a_machine_that_left_may_come_back():
    asked = (ScaleIn(1, at_s=10.0), ScaleOut(1, at_s=50.0), ScaleOut(1, at_s=100.0))
    history = _run(Stela(requests=asked), steps=20)
    assert len(set(history[-1].snapshot.deployment.placement.values())) == 7


def test_no_congestion_fills_slots_with_sources():
    history = run(
        Stela(requests=(ScaleOut(),)), DIAMOND.app().simulator(workload.Constant(10.0), seed=1), steps=4, seed=1
    )
    why = _acted(history)[0].decision.why
    assert (why["congested"], why["one by one"][0]) == ("none", "source (a source)")
    assert why["slots"] == "4 of 4"


def test_an_operator_at_its_limit_gets_nothing():
    app = DIAMOND.app()
    full = {n: 8 if n == "sink" else 4 for n in app.topology.order}
    history = run(Stela(requests=(ScaleOut(),)), app.simulator(parallelism=full, scale=2.0), steps=4, seed=1)
    assert "sink" not in _acted(history)[0].decision.why["slots go to"]


def test_all_at_their_limits_or_too_few_instances_leave_the_machine_empty_and_it_is_told():
    app = DIAMOND.app()
    for k, slots, said in ((8, "0 of 8", "at its limit"), (1, "1 of 1", None)):
        with app.simulator(parallelism=k, scale=3.0, seed=1) as backend:
            snapshot = backend.observe()
        target, why = Stela().answer(ScaleOut(1), app.topology, snapshot)
        assert (why["slots"], target.workers) == (slots, 7)
        assert (said or "") in why.get("left empty", "")
    linear = replace(trial("linear").app(), start=1)  # four instances on six machines
    with linear.simulator(seed=1) as backend:
        target, why = Stela().answer(ScaleOut(1), linear.topology, backend.observe())
    assert (why["slots"], "fewer instances than machines" in why["left empty"]) == ("0 of 0", True)


def test_nothing_at_all_comes_out_and_machines_join_and_leave_all_the_same():
    app = DIAMOND.app()
    with app.simulator(workload.Constant(0.0), seed=1) as backend:
        snapshot = backend.observe()
    target, why = Stela().answer(ScaleOut(1), app.topology, snapshot)
    assert (why["slots go to"], set(why["ETP"].values())) == ({"source": 4}, {0.0})
    target, why = Stela().answer(ScaleIn(2), app.topology, snapshot)
    assert (set(why["ETP sums"].values()), len(set(target.placement.values()))) == ({0.0}, 4)


def test_rates_are_averaged_since_the_last_change():
    policy = Stela(metrics_windows=3)
    app = DIAMOND.app(pause_kind="migration")
    with app.simulator(seed=1) as backend:
        steps = list(control_loop(policy, backend, steps=5))
        assert len(steps[-1].state.samples) == 3
        assert len(steps[0].state.samples) == 1
        backend.deploy(steps[-1].snapshot.deployment.scaled({"sink": 5}))
        after = list(control_loop(policy, backend, steps=3, after=steps[-1]))
    assert [len(s.state.samples) for s in after] == [0, 0, 1]  # two windows stand still


def test_a_backend_without_places_gets_counts_only():
    """As Spark: workers and parallelism are knobs, places are not."""
    app = apps.linear()
    with app.simulator(parallelism=2) as backend:
        for _ in range(40):
            snapshot = backend.observe()
    snapshot = replace(snapshot, nodes={}, deployment=replace(snapshot.deployment, workers=3))
    target, _ = Stela().answer(ScaleOut(1), app.topology, snapshot)
    assert (target.workers, dict(target.placement)) == (4, {})
    assert target.parallelism["enrich"] > 2
    target, _ = Stela().answer(ScaleIn(1), app.topology, snapshot)
    assert (target.workers, dict(target.placement)) == (2, {})
    unknown = replace(snapshot, deployment=Deployment(snapshot.deployment.parallelism))
    assert "not known" in Stela().answer(ScaleOut(1), app.topology, unknown)[1]["refused"]


def test_random_draws_differ_and_repeat():
    def leave(draw, seed):
        policy = Rebalance(requests=(ScaleIn(3),), draw=draw)
        history = run(policy, DIAMOND.app().simulator(), steps=3, seed=seed)
        return _acted(history)[0].decision.why["leave, at random"]

    assert leave(0, 1) == leave(0, 1)
    assert len({leave(draw, seed) for draw in range(3) for seed in range(3)}) > 4


def test_a_request_is_code_and_is_checked():
    policy = Stela(congestion_rate=1.5, requests=(ScaleOut(2, 60.0), ScaleIn(at_s=90.0)), trigger=DS2())
    assert call(policy) == (
        "Stela(requests=(ScaleOut(machines=2, at_s=60.0), ScaleIn(at_s=90.0)), trigger=DS2(), congestion_rate=1.5)"
    )
    for wrong in ({"requests": ("more",)}, {"trigger": DS2}):
        with pytest.raises(ArgumentError):
            Stela(**wrong)
    for wrong in ({"congestion_rate": 0.5}, {"metrics_windows": 0}):
        with pytest.raises(KnobError):
            Stela(**wrong)
    for wrong in ({"machines": 0}, {"at_s": -1.0}, {"machines": 2, "names": ("one",)}):
        with pytest.raises(ArgumentError):
            ScaleOut(**wrong)


def test_they_are_found():
    assert {"stela", "rebalance", "migrate"} <= set(policies.available())


# The evaluation


@pytest.mark.parametrize("row", TABLE_ONE, ids=lambda row: row.name)
def test_table_one_is_consistent(row):
    """One executor a worker process; every operator can at most double; slots are whole."""
    app = row.app()
    instances = row.executors * len(app.topology.operators)
    assert instances == row.processes
    assert row.tasks == 2 * row.executors
    assert etp.slots(instances, row.before) == row.processes // row.before
    assert len(app.plant.nodes) == row.after


def test_scale_in_starts_with_one_operator_a_machine():
    app = SCALE_IN.app()
    held = {m: {o for (o, _), n in app.placement.items() if n == m} for m in app.plant.nodes}
    assert all(len(operators) == 1 for operators in held.values())
    assert len(app.placement) == 15 * 7


@pytest.mark.parametrize("row", TABLE_ONE, ids=lambda row: row.name)
def test_stela_beats_the_default_and_least_link_load(row):
    """The paper's ordering, on each of its topologies; gains are at least half of what it prints."""
    from reproduction.stela.study import PRINTED, scale_out_table

    table = scale_out_table((1,), trials=(row,), only=("stela", "default", "least link load")).set_index("strategy")
    after = table.after_per_s
    assert after["stela"] > 1.2 * max(after["default"], after["least link load"])
    assert table.over_default["stela"] > 0.5 * PRINTED[row.name]
    assert table.own_gain["default"] < 0.02


# Each knob of a policy reaches what it turns


@pytest.mark.parametrize("knob", ["tree_sum", "cap", "per_instance"])
def test_variants_of_stela_are_those_of_etp(knob):
    """The policy does as `scale_out` does with the same variant, which now and then is another choice."""
    edges = (("s", "x"), ("s", "a"), ("a", "b"), ("a", "c"), ("b", "t"), ("c", "t"), ("x", "u"))
    graph = Topology(tuple(Operator(o, 9) for o in "sxabctu"), edges)
    random, others = np.random.default_rng(1), 0
    for _ in range(60):
        k = dict(zip(graph.order, random.integers(1, 5, 7).tolist(), strict=True))
        now = Deployment(k, 2, etp.rebalance(graph, k, ["m1", "m2"]))
        done = dict(zip(graph.order, random.uniform(10, 60, 7).tolist(), strict=True))
        flow = {edge: random.uniform(40, 90) if edge[0] == "s" else random.uniform(1, 15) for edge in edges}
        rates = etp.Rates(done, flow)
        limits, slots = dict.fromkeys(graph.order, 9), etp.slots(now.instances, 2)
        want = Counter(s.operator for s in etp.scale_out(graph, rates, k, ["m3"], slots, limits=limits, **{knob: True}))
        situation = Situation(graph, now, ("m1", "m2"), now.placement, rates, 0)
        target, _ = Stela(**{knob: True}).scale_out(situation, ["m3"])
        assert dict(target.parallelism) == {o: n + want[o] for o, n in k.items()}
        others += target.parallelism != Stela().scale_out(situation, ["m3"])[0].parallelism
    assert others > 3


def test_rivals_follow_their_order_and_their_way_of_dealing():
    app = DIAMOND.app()
    with app.simulator(seed=1) as backend:
        snapshot = backend.observe()
    was = placed(app.topology, snapshot.deployment, machines_in_use(snapshot))
    for order in etp.ORDERS:
        target, _ = Migrate(order=order).answer(ScaleOut(1), app.topology, snapshot)
        assert target.placement == etp.migrate(app.topology, snapshot, was, ["node-7"], 4, order)
    target, why = Rebalance(deal="moved").answer(ScaleIn(2), app.topology, snapshot)
    gone = why["leave, at random"]
    assert all(target.placement[i] == m for i, m in was.items() if m not in gone)
    assert why["instances moved"] == sum(m in gone for m in was.values()) == 8
