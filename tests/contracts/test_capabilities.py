"""Every policy on backends that can change less: an error before the start, or a run that asks for nothing else."""

from itertools import combinations

import pytest

from dspkit import Deployment, DspkitError, Simulator, Topology, control_loop, policies, workload
from dspkit.core.policy import PolicyError, needs_of
from dspkit.simulator import Node, Plant, Service

CHAIN = Topology.chain("source", "work", "sink", max_parallelism=6)
SETS = [frozenset(c) for n in (1, 2, 3) for c in combinations(("parallelism", "workers", "placement"), n)]
EAGER = [  # those that act on request, asked; and some that ask for all there is
    policies.Stela((policies.ScaleOut(1, 30.0), policies.ScaleIn(1, 90.0))),
    policies.Migrate((policies.ScaleOut(1, 30.0), policies.ScaleIn(1, 90.0)), places="yes"),
    policies.Rebalance((policies.ScaleOut(1, 30.0), policies.ScaleIn(1, 90.0)), places="yes"),
    policies.Hierarchical(grants="all", scale_out_above=0.3, places="yes"),
    policies.ElasticStorm(places="yes", cooldown_windows=1, reschedule=True),
    policies.Elysium(decision_interval_s=10, metrics_window_s=10),
    policies.Elysium(decision_interval_s=10, metrics_window_s=10, scale="nodes"),
    policies.Joint(decision_interval_s=10, metrics_window_s=10),
    policies.Static(parallelism={"work": 3}),
]
ALL = [*(cls() for cls in policies.available().values()), *EAGER]


class Strict(Simulator):
    """A simulator that can change some fields, and refuses the others as live backends do."""

    def deploy(self, deployment):
        for name in {"parallelism", "workers", "settings"} - self.knobs:
            if getattr(deployment, name) != getattr(self.deployment, name):
                raise DspkitError(f"another {name}", expected="it as it is", fix="ask for less")
        if "placement" not in self.knobs:
            kept = self.deployment.scaled(deployment.parallelism).placement
            if deployment.placement != kept:
                raise DspkitError("another placement", expected="it as it is", fix="ask for less")
        super().deploy(deployment)


def _strict(knobs):
    services = {"source": Service(1e-4), "work": Service(1e-3), "sink": Service(5e-4)}
    plant = Plant(services, {f"n{i}": Node(2) for i in range(4)}, pause_s=2)
    start = Deployment({"source": 1, "work": 2, "sink": 1}, workers=2)
    backend = Strict(CHAIN, plant, workload.Square(200, 4000, 80), deployment=start)
    backend.knobs = knobs
    return backend


@pytest.mark.parametrize("knobs", SETS, ids=lambda knobs: "+".join(sorted(knobs)))
@pytest.mark.parametrize("policy", ALL, ids=lambda policy: policy.name)
def test_no_policy_ends_a_job_by_asking_for_what_the_backend_cannot_change(policy, knobs):
    backend = _strict(knobs)
    if needs_of(policy) <= knobs:
        steps = list(control_loop(policy, backend, steps=20))
        assert len(steps) == 20
        for step in steps:
            before, after = step.snapshot.deployment, step.decision.deployment
            assert after.workers == before.workers or "workers" in knobs
            assert after.parallelism == before.parallelism or "parallelism" in knobs
    else:
        with pytest.raises(PolicyError, match=f"policy '{policy.name}' on Strict, which cannot change"):
            control_loop(policy, backend, steps=20)


def test_some_policies_ask_for_more_than_a_backend_can_change_and_say_so():
    """Else the test above says little: these decisions were cut."""
    cut = set()
    for policy in ALL:
        backend = _strict(needs_of(policy) or frozenset({"settings"}))
        told = [
            s.decision.why["left out"] for s in control_loop(policy, backend, steps=20) if "left out" in s.decision.why
        ]
        cut |= {policy.name} if told else set()
    assert cut >= {"rebalance", "hierarchical", "elastic_storm", "elysium", "joint"}


@pytest.mark.parametrize("name", ["edrp", "elastic_storm", "hierarchical"])
def test_a_policy_runs_in_its_mode_without_places_where_they_cannot_be_changed(name):
    """On nodes with names: with places it would ask for them, and plan for a cluster that it cannot fill."""
    larger = {"max_parallelism": 6, "max_downtime_s": 60.0} if name == "edrp" else {}  # the load needs four more
    policy = policies.get(name)(**larger).live(60.0)
    assert needs_of(policy) == {"parallelism"}
    backend = _strict(frozenset({"parallelism"}))
    steps = list(control_loop(policy, backend, steps=20))
    assert any(step.rescaled for step in steps)
    assert not any("left out" in step.decision.why for step in steps)
    free = _strict(frozenset({"parallelism", "placement"}))
    assert any(step.decision.deployment.placement for step in control_loop(policy, free, steps=20))


def test_edrp_needs_places_only_if_it_is_to_choose_them():
    assert needs_of(policies.EDRP) == needs_of(policies.EDRP(places="no")) == {"parallelism"}
    assert needs_of(policies.EDRP(places="yes")) == {"parallelism", "placement"}
    assert policies.EDRP(places="yes").suited(frozenset({"parallelism"})).places == "yes"  # refused, not weakened
    guarded = policies.Cooldown(policies.EDRP()).suited(frozenset({"parallelism"}))
    assert guarded.policy.places == "no"
