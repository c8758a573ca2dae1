"""Every registered policy at its live preset, played the snapshots of live jobs that are overloaded.

`recorded/record.py` made the recordings; those jobs were never rescaled, so a policy's wishes do not come true in them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dspkit import History, Topology, policies
from dspkit.core import ArgumentError, Decision, PolicyKnobs, Snapshot, at_pace, knobs_of
from dspkit.core.policy import PolicyError, check_needs, needs_of
from dspkit.policies.autrascale import AuTraScale
from dspkit.policies.dhalion import Dhalion
from dspkit.policies.ds2 import DS2
from dspkit.policies.elastic_storm import ElasticStorm
from dspkit.policies.fission import Fission
from dspkit.policies.flink_autoscaler import FlinkAutoscaler
from dspkit.policies.guards import Cooldown
from dspkit.policies.hierarchical import Hierarchical

RECORDED = Path(__file__).parent / "recorded"
JOBS = {  # what the backend of each recording can change
    "waiting": frozenset({"parallelism"}),
    "burning": frozenset({"parallelism"}),
    "cluster": frozenset({"parallelism", "workers", "placement"}),
    "almost": frozenset({"parallelism"}),
    "yahoo": frozenset({"parallelism"}),
    "tweets": frozenset({"parallelism"}),
}
SLOW = {"yahoo": {"parse", "store"}, "tweets": {"stop_words", "dictionary", "count"}, "almost": {"flat_map", "count"}}
STEP_S = (
    10.0  # the load trebles or more, beyond what one instance of the operators in SLOW, or else flat_map, processes
)
WITHIN_S = 30.0  # 15 windows: the time after it in which a policy has to ask for more
SECONDS = 120.0
NO_SCALER = {  # what policies that do not promise to keep up say instead
    "static": "keeps what runs",
    "batch_sizing": "has no batches",
    "stela": "waits for a request",
    "migrate": "waits for a request",
    "rebalance": "waits for a request",
}

PLACERS = {"distributed_storm", "traffic_aware", "odp", "caps"}  # they decide where instances run, not how many


Recording = tuple[History, frozenset[str], set[str]]  # run, what its backend can change, operators that are too slow


@pytest.fixture(scope="module", params=JOBS)
def job(request: Any) -> Recording:
    name = request.param
    return History.load(RECORDED / f"{name}.parquet"), JOBS[name], SLOW.get(name, {"flat_map"})


class _Able:
    """Stands for the backend of a recording, which a policy is checked against."""

    def __init__(self, knobs: frozenset[str]):
        self.knobs = knobs


def _played(policy: Any, history: History) -> list[tuple[Snapshot, Decision]]:
    state, played = policy.init(history.topology, 0), []
    for step in history:
        state, decision = policy.step(state, step.snapshot)
        played.append((step.snapshot, decision))
    return played


def test_the_recorded_jobs_are_overloaded(job: Recording) -> None:
    """Throughput stays below the load for good, because of these operators, and nothing is changed."""
    history, _, slow = job
    last = [step.snapshot for step in history[-20:]]
    almost = history[0].snapshot.deployment.parallelism.get("flat_map") == 2
    assert sum(s.throughput for s in last) < (0.98 if almost else 0.7) * sum(s.source_rate for s in last)
    assert last[-1].lag > last[0].lag + (500 if almost else 10_000)
    busiest = [max(s.operators, key=lambda n: s.operators[n].utilisation) for s in last]
    assert set(busiest) <= slow
    assert len({step.snapshot.deployment for step in history}) == 1


@pytest.mark.parametrize("name", policies.available())
def test_a_live_job_that_falls_behind_gets_more_instances(name: str, job: Recording) -> None:
    """Within fifteen windows of the step, an operator that is too slow gets more; or `why` has a reason."""
    history, knobs, slow = job
    policy: Any = policies.get(name)().live(SECONDS).suited(knobs)
    if needs_of(policy) - knobs:  # the loop refuses it before the job starts
        with pytest.raises(PolicyError, match=f"cannot change .*{min(needs_of(policy) - knobs)}"):
            check_needs(policy, _Able(knobs))  # type: ignore[arg-type]
        assert needs_of(policy) & {"placement", "workers"}
        return
    played = _played(policy, history)
    if name in NO_SCALER:
        assert all(d.deployment == s.deployment and NO_SCALER[name] in str(d.why["rule"]) for s, d in played)
        return
    if name in PLACERS:
        decided = [(s, d) for s, d in played if d.deployment != s.deployment]
        assert decided
        for s, d in decided:
            assert d.deployment.parallelism == s.deployment.parallelism
            assert len(d.deployment.placement) == d.deployment.instances
            assert set(d.deployment.placement.values()) <= set(s.nodes)
        return
    wishes = [
        s.t
        for s, d in played
        if s.t > STEP_S and any(d.deployment.parallelism[n] > s.deployment.parallelism[n] for n in slow)
    ]
    why = {f"{s.t:g}": dict(d.why) for s, d in played[-3:]}
    assert wishes, f"never; last: {why}"
    assert wishes[0] <= max(STEP_S, history[0].snapshot.t) + WITHIN_S


def test_true_rates_alone_do_not_show_what_is_lost_at_commits() -> None:
    """The papers' reading of DS2 and fission leaves the job as it is, and its log grows by 8,000 lines."""
    history = History.load(RECORDED / "almost.parquet")
    for policy, acts in ((DS2(), True), (Fission().live(SECONDS), True), (DS2(commits="ignored"), False)):
        wishes = [s.t for s, d in _played(policy, history) if d.deployment != s.deployment]
        assert bool(wishes) == acts, (policy.name, wishes)
    assert history[-1].snapshot.lag - history[0].snapshot.lag > 8000


@pytest.mark.parametrize("name", ["waiting", "burning"])  # the cluster's workers still start then
def test_nothing_is_asked_for_while_one_instance_is_enough(name: str) -> None:
    """Before the step the policies that follow the load leave the operators as they are."""
    history = History.load(RECORDED / f"{name}.parquet")
    calm = [step.snapshot for step in history if 4.0 < step.snapshot.t <= STEP_S]
    assert len(calm) == 3
    for policy in (DS2(), Fission().live(SECONDS), Dhalion().live(SECONDS)):
        state: Any = policy.init(history.topology, 0)
        for snapshot in calm:
            state, decision = policy.step(state, snapshot)
            assert set(decision.deployment.parallelism.values()) == {1}, (policy.name, decision.why)


# The preset


def test_durations_become_shorter_and_nothing_else_changes() -> None:
    paper, live = AuTraScale(), AuTraScale().live(120.0)
    assert (live.running_s, live.warm_up_s) == (6.0, 3.0)
    assert replace(live, running_s=paper.running_s, warm_up_s=paper.warm_up_s) == paper
    assert paper.live(600.0).running_s == 30.0
    assert paper.live(86_400.0) == paper  # a long run needs no other periods
    tokens = Hierarchical().live(120.0)
    assert (tokens.grant_interval_s, tokens.tokens_per_min, tokens.token_capacity) == (3.0, 10.0, 1.0)
    assert FlinkAutoscaler().live(120.0).metrics_window_s == 15.0
    assert ElasticStorm().live(120.0) == ElasticStorm()  # it counts windows


def test_the_policy_within_a_policy_is_shortened_too() -> None:
    live = Cooldown(Fission(), cooldown_s=60.0).live(120.0)
    assert (live.cooldown_s, live.policy.decision_interval_s) == (6.0, 1.0)
    assert Hierarchical(manager=Fission()).live(120.0).manager == Fission().live(120.0)


@pytest.mark.parametrize("name", policies.available())
def test_all_durations_of_a_policy_have_a_pace(name: str) -> None:
    """A knob that is a time is either shortened, or one of those that belong to the job and not to the policy."""
    of_the_job = {
        "target_latency_s", "max_downtime_s", "sync_s", "spawn_s", "idle_s", "began_s", "response_s", "time_limit_s",
        "batch_interval_s", "rescale_s", "move_s", "shortest_s", "longest_s",
    }  # fmt: skip
    policy: Any = policies.get(name)
    for k in knobs_of(policy):
        if k.unit == "s":
            assert (k.pace == "duration") == (k.name not in of_the_job), k.name
    paced = any(k.pace and k.value for k in knobs_of(policy))
    assert bool(policy.paper_run_s) == paced or name == "ds2"  # whose interval is 0


def test_the_preset_keeps_to_the_bounds_of_knobs() -> None:
    assert Fission().live(1.0).mid_term_interval_s == 10.0  # the least that the knob accepts
    assert Fission().live(1.0).decision_interval_s == 1.0
    for bad in (0, -5, float("nan"), "long"):
        with pytest.raises(ArgumentError, match="seconds"):
            Fission().live(bad)  # type: ignore[arg-type]


def test_a_rate_grows_as_durations_shrink() -> None:
    live = at_pace(Hierarchical(), 0.5)
    assert (live.tokens_per_min, live.decision_interval_s) == (2.0, 15.0)
    assert at_pace(Hierarchical(), 1e-6).tokens_per_min == 60.0  # its bound


def test_a_policy_without_durations_is_unchanged() -> None:
    @dataclass(frozen=True)
    class Mine(PolicyKnobs):
        """Keep what runs."""

        name: ClassVar[str] = "mine"

        def init(self, topology: Topology, seed: int = 0) -> None:
            return None

        def step(self, state: None, snapshot: Snapshot) -> tuple[None, Decision]:
            return None, Decision(snapshot.deployment)

    assert Mine().live(10.0) == Mine()
    assert Mine().suited(frozenset()) == Mine()
