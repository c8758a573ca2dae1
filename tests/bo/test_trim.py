"""Fewer slots than what met all: against exhaustive search, and within the policy."""

import numpy as np
import pytest

from dspkit.bo import Lattice, Sample, Search, resource_score, score
from dspkit.bo.search import trim
from dspkit.core import MetricError
from dspkit.policies.autrascale import AuTraScale
from policies.test_autrascale import QUICK, World

BOX, TARGET = Lattice((2, 3), 20), 0.1


def _run(late, k):
    return Sample(k, score(k, BOX.base, late(k), TARGET), late(k))


@pytest.mark.parametrize(
    "late",
    [
        lambda k: 0.05 + 0.3 / k[0],
        lambda k: 0.04 + 0.1 / k[0] + 0.12 / k[1],
        lambda k: 0.02 + 0.3 / k[1] + 0.002 * sum(k),  # more instances also disturb each other
    ],
)
def test_it_comes_down_to_what_exhaustive_search_finds(late):
    best = max(
        (k for k in map(tuple, BOX.points().tolist()) if late(k) <= TARGET), key=lambda k: resource_score(k, BOX.base)
    )
    samples = [_run(late, k) for k in (BOX.base, (16, 16))]
    kept = (16, 16)
    for _ in range(12):
        found = trim(BOX, samples, kept, TARGET)
        if found is None:
            break
        assert found.k not in {s.k for s in samples}
        assert all(a <= b for a, b in zip(found.k, (16, 16), strict=True))  # no operator above every run that met all
        assert found.saving == pytest.approx(resource_score(found.k, BOX.base) - resource_score(kept, BOX.base))
        samples.append(_run(late, found.k))
        kept = found.k if samples[-1].latency_s <= TARGET else kept
    assert resource_score(kept, BOX.base) >= resource_score(best, BOX.base) - 0.03


def test_what_was_measured_is_believed():
    """Half and twice the target, each ten times: in time for sure there, and late for sure."""
    samples = [Sample(k, 0.9, late) for k, late in (((10, 10), 0.5 * TARGET), ((2, 3), 2 * TARGET)) for _ in range(10)]
    early, late = Search(TARGET).feasible(BOX, samples, np.array([(10, 10), (2, 3)]))
    assert early > 0.99
    assert late < 0.01


def test_runs_without_a_latency_are_left_out_and_below_the_base_is_nothing():
    known = [Sample((2, 3), 0.7, 0.15), Sample((9, 9), 0.95, 0.05)]
    mute = [*known, Sample((4, 4), 0.2), Sample((5, 5), 0.2)]
    points = np.array([(4, 4), (6, 6)])
    assert Search(TARGET).feasible(BOX, mute, points) == pytest.approx(Search(TARGET).feasible(BOX, known, points))
    assert trim(BOX, known, (2, 3), TARGET) is None
    assert trim(BOX, [*known, Sample((2, 4), 0.9, 0.11)], (2, 4), TARGET) is None
    with pytest.raises(MetricError, match="no latencies"):
        trim(BOX, [Sample((9, 9), 0.95)], (9, 9), TARGET)


def _ends(**knobs):
    world = World(latency=lambda k: 0.05 + 0.3 / k[1])  # six of the second operator meet the target
    state, decisions = world.play(AuTraScale(**QUICK, **knobs), 40)
    return world.k, state, [{**d.why, "asked": d.deployment.parallelism} for d in decisions]


def test_the_policy_gives_back_what_nobody_needs_and_holds_the_least_that_met_all():
    (_, first), before, _ = _ends()
    k, state, whys = _ends(trims=8)
    assert first > 6
    assert (k, state.phase, state.met) == ((2, 6), "hold", True)
    assert before.runs < state.runs <= before.runs + 8
    assert state.iterations == before.iterations  # those of Algorithm 1
    tried = [w for w in whys if w["rule"] == "fewer slots"]
    assert tried
    assert all(w["saving"] > 0 and 0 <= w["probability"] <= 1 and w["kept"]["work"] >= 6 for w in tried)


def test_a_run_with_fewer_slots_that_misses_is_taken_back():
    k, state, whys = _ends(trims=2)
    asked = [tuple(w["asked"].values()) for w in whys if w["rule"] == "fewer slots"]
    late = {s.k: s.latency_s for s in state.samples}
    assert asked == [(2, 6), (2, 5)]
    assert late[2, 6] <= 0.1 < late[2, 5]
    assert (k, state.accepted, state.phase, state.met) == ((2, 6), (2, 6), "hold", True)


@pytest.mark.parametrize(
    ("kept", "runs", "end"),
    [
        ((2, 6), (3, 7), (2, 6)),  # more slots than what is kept
        ((2, 10), (2, 7), (2, 7)),  # fewer, though not what was asked for
    ],
)
def test_what_somebody_else_runs_during_a_trim_is_kept_only_if_it_saves_slots(kept, runs, end):
    world, policy = World(latency=lambda k: 0.05 + 0.3 / k[1]), AuTraScale(**QUICK, trims=4)
    state, held = None, 0
    while state is None or state.trims == 0 or state.accepted != kept:
        state, _ = world.play(policy, 1, state)
        assert world.t < 400
    trims, world.k = state.trims, runs
    while state.trims == trims and state.phase == "trim":  # what was asked for is kept back
        state, _ = world.play(policy, 1, state, obey=False)
        held += 1
        assert held < 10
    assert state.accepted == end


@pytest.mark.parametrize(("runs", "most"), [((1, 9), 12), ((2, 9), 8)])
@pytest.mark.parametrize("knobs", [{"bootstrap": "base"}, {"eager": True}])
def test_nothing_is_trimmed_from_what_is_below_the_base_or_above_the_most(runs, most, knobs):
    """A guard holds it whatever is asked, and it meets all: the search holds it too."""
    world = World(rate=50.0)
    world.k = runs
    policy = AuTraScale(**{**QUICK, "max_parallelism": most}, trims=4, base={"read": 2, "work": 3}, **knobs)
    state, _ = world.play(policy, 20, obey=False)
    assert (state.phase, state.met, state.target, state.trims) == ("hold", True, runs, 0)
