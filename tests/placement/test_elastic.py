"""EDRP: the integer program equals exhaustive search, downtime included; bounds, lost nodes and bad input end well."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dspkit import placement
from dspkit.core import InfeasibleError, PlacementError
from dspkit.placement import Downtime, Limits, Weights, solve
from dspkit.placement.datasets import replica_example
from dspkit.placement.replication.options import options
from dspkit.placement.replication.solve import feasible
from replicas import answer, small

EXAMPLE = replace(replica_example(), downtime=Downtime(state_bytes=(0, 1.25e6, 0)))
RUNS = {"1": "a", "2": "a", "3": "c"}
LIMITS = Limits(0.4, 6, 4)
BALANCED = Weights(0.3, cost=0.3, downtime=0.4)


def drawn(seed):
    """Return a random problem, something that may run on it, weights and limits, some of them tight."""
    problem, random = small(seed, most=800), np.random.default_rng(seed)
    found = answer(options, problem)
    running = next(iter(feasible(found)), None) if found else None
    if running is None:
        return None
    operators, nodes = running.shape
    settings = {"state_bytes": random.choice([0, 1e4, 2e6, 2e7], operators), "spawn_s": random.uniform(0.1, 1, nodes)}
    settings |= {"to_store_s": random.uniform(0, 0.05, nodes), "upload_bytes_per_s": random.uniform(5e6, 2e7, nodes)}
    settings |= {"model": ("general", "storm")[seed % 2], "zero_transfer": ("free", "rtt")[seed // 2 % 2]}
    settings |= {
        "upload_form": ("kept", "printed")[seed // 4 % 2],
        "swap_in_bytes_per_s": random.choice([math.inf, 1e7]),
    }
    problem = replace(problem, downtime=Downtime(**settings))
    moved = placement.metrics(problem, running)
    tight = random.choice([0.9, 1.5, 5.0, 5.0], 2)
    limits = Limits(moved.response_s * tight[0], moved.cost * tight[1], float(random.choice([0.9, 5, 20])))
    if random.random() < 0.2:  # what runs may not fit any more
        running = np.eye(nodes, dtype=int)[random.integers(0, nodes, operators)]
    response, cost, downtime = ((0.5, 0.5, 0), (0.3, 0.3, 0.4), (0.6, 0, 0.4), (0, 0.6, 0.4))[seed % 4]
    return problem, running, Weights(response, cost=cost, downtime=downtime), limits


def agree(seed, **settings):
    """Same status and loss as exhaustive search; what it says of itself is true."""
    if (made := drawn(seed)) is None:
        return ""
    problem, running, weights, limits = made
    near = settings.get("restricted", False)
    referee = answer(solve, problem, weights, limits=limits, running=running, solver="brute", restricted=near)
    found = answer(solve, problem, weights, limits=limits, running=running, **settings)
    assert (found is None) == (referee is None), seed
    if found is None:
        return "nothing can run"
    assert found.status == referee.status, seed
    assert found.loss == pytest.approx(referee.loss, rel=1e-6, abs=1e-6), seed
    assert found.bound <= referee.loss + 1e-6, seed
    metrics, down_s = placement.check(problem, found.deployment), problem.downtime_s(running, found.deployment)
    assert found.loss == pytest.approx(placement.loss(metrics, weights, limits, down_s))
    return found.status + (" moved" if found.downtime_s > 0 else "")


def refereed(count, seed, modes):
    """As many cases with an optimum, and what came of all that were drawn."""
    seen = []
    while sum(s.startswith("optimal") for s in seen) < count:
        seen.append(agree(seed, solver="highs", restricted=modes[seed % len(modes)], thesis=seed % 7 == 0))
        seed += 1
    return set(seen)


def test_program_equals_exhaustive_search():
    assert {"optimal", "optimal moved", "infeasible"} <= refereed(40, 0, (False, False, True, "printed"))


@pytest.mark.slow
@pytest.mark.parametrize("restricted", [False, True])
def test_program_equals_exhaustive_search_on_more(restricted):
    assert "relaxed moved" in refereed(100, 9000, (restricted,))


def test_no_weight_on_downtime_ignores_it_but_keeps_its_bound():
    baseline = Weights(0.5, cost=0.5)
    found = solve(EXAMPLE, baseline, limits=LIMITS, running=RUNS)
    assert found.downtime_s == pytest.approx(0.97)
    assert solve(EXAMPLE, baseline, limits=Limits(0.4, 6, 0.96), running=RUNS).nodes["2"] != ("c",)
    assert solve(EXAMPLE, baseline, limits=Limits(0.4, 6, 0.5), running=RUNS).actions["2"] == "none"


@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
def test_first_deployment_has_no_downtime(solver):
    found = solve(EXAMPLE, BALANCED, limits=LIMITS, solver=solver)
    referee = solve(EXAMPLE, Weights(0.3, cost=0.3), limits=LIMITS, running=RUNS, solver="brute")
    assert found.loss == pytest.approx(referee.loss)
    assert found.downtime_s == 0
    assert set(found.actions.values()) == {"deploy"}


@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
def test_what_gains_nothing_stays(solver):
    """By cost alone {a} and {c} are equal: operators stay on whichever runs."""
    for node in "ac":
        found = solve(EXAMPLE, Weights(0, cost=1), limits=LIMITS, running={**RUNS, "2": node}, solver=solver)
        assert found.actions == dict.fromkeys("123", "none")


@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
def test_limits_that_nothing_keeps(solver):
    kept = solve(EXAMPLE, BALANCED, limits=Limits(0.1, 6, 4), running=RUNS, solver=solver)
    assert (kept.status, kept.actions["2"], kept.downtime_s) == ("infeasible", "none", 0)
    slow = replica_example(service_rate_per_s=(50, 9, 50))  # one replica is too few
    problem = replace(EXAMPLE, replication=slow.replication)
    found = solve(problem, BALANCED, limits=Limits(0.1, 6, 4), running=RUNS, solver=solver)
    assert found.status == "relaxed"
    assert found.actions["2"] == "scale-out"
    assert found.metrics.response_s > 0.1
    with pytest.raises(InfeasibleError):
        solve(problem, BALANCED, limits=Limits(0.1, 1, 4), running=RUNS, solver=solver)
    with pytest.raises(InfeasibleError):
        solve(EXAMPLE, BALANCED, limits=Limits(0.1, 6, 4), solver=solver)


@pytest.mark.parametrize("model", ["general", "storm"])
@pytest.mark.parametrize("solver", ["exact", "highs", "brute"])
@pytest.mark.parametrize("restricted", [False, True])
def test_lost_nodes(model, solver, restricted):
    problem = replace(EXAMPLE, downtime=replace(EXAMPLE.downtime, model=model))
    downtime = problem.downtime
    some = solve(
        problem, BALANCED, limits=LIMITS, running={**RUNS, "2": ("b", "gone")}, solver=solver, restricted=restricted
    )
    assert some.actions["2"] in ("migrate", "scale-out")
    assert some.downtime_s >= downtime.sync_s
    none = solve(problem, BALANCED, limits=LIMITS, running={**RUNS, "2": "gone"}, solver=solver, restricted=restricted)
    assert none.actions["2"] == "scale-out"
    # Code and 1.25 MB of state come from the store, then a replica starts; Storm's code is everywhere but on b.
    assert none.nodes["2"] == ("c",)
    code = 0.0 if model == "storm" else 0.01 + 0.3 / 12.5
    assert none.downtime_s == pytest.approx(downtime.sync_s + code + 0.01 + 0.1 + 0.5)
    assert none.loss == pytest.approx(
        solve(problem, BALANCED, limits=LIMITS, running={**RUNS, "2": "gone"}, solver="brute").loss, abs=1e-6
    )


@pytest.mark.parametrize(
    "change",
    [
        {"state_bytes": -1}, {"code_bytes": math.nan}, {"to_store_s": (1, 2)}, {"upload_bytes_per_s": 0},
        {"spawn_s": "long"}, {"sync_s": math.inf}, {"sync_s": -1}, {"model": "flink"}, {"zero_transfer": None},
        {"upload_form": ""},
    ],
)  # fmt: skip
def test_bad_downtimes(change):
    with pytest.raises(PlacementError):
        replace(EXAMPLE, downtime=replace(EXAMPLE.downtime, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"problem": replace(EXAMPLE, downtime=None)}, {"weights": (1, 0, 0)}, {"limits": (1, 2, 3)},
        {"limits": Limits()},
        {"limits": Limits(0, 6, 4)}, {"limits": Limits(0.4, math.nan, 4)}, {"limits": Limits(0.4, "6", 4)},
        {"restricted": "yes"}, {"solver": "x"}, {"gap": -1}, {"running": {"1": "a"}}, {"running": {**RUNS, "9": "a"}},
        {"running": {**RUNS, "2": 5}}, {"running": {**RUNS, "2": ()}}, {"running": 3}, {"running": [[1, 0, 0]]},
    ],
)  # fmt: skip
def test_bad_calls(change):
    given = {"problem": EXAMPLE, "running": RUNS, "weights": BALANCED, "limits": LIMITS, **change}
    with pytest.raises(PlacementError):
        solve(**given)


def test_weights_that_are_all_zero():
    with pytest.raises(PlacementError):
        Weights(0)
