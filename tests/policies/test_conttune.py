"""ContTune: the authors' example, the rules of Algorithms 1 and 2, and jobs that end with the fewest instances."""

import dataclasses

import pytest

import dspkit
from dspkit import Deployment, Operator, OperatorMetrics, Plant, Simulator, Snapshot, Topology, workload
from dspkit.policies.conttune import ContTune, acquired, chosen, fitted, linear
from dspkit.simulator import Service

# README of the authors' program: records/s of "Mapper" of Nexmark Q1, means of five measurements.
MAPPER = {
    1: 529_573.16752, 2: 966_817.36242, 4: 1_829_695.58, 6: 2_535_502.7616, 7: 2_936_888.579, 8: 3_118_477.8826,
    10: 3_721_099.1836, 13: 4_624_714.165666, 15: 4_967_828.2586, 20: 6_350_677.0454, 21: 6_465_249.805,
    25: 7_089_387.3074, 26: 7_476_391.84,
}  # fmt: skip
CHAIN = Topology((Operator("src"), Operator("work"), Operator("end")), (("src", "work"), ("work", "end")))


def test_the_authors_example():
    """For 4,000,000 records/s: 11 instances, at distance 1 from 10, so for each alpha of 1 or more; otherwise DS2."""
    assert acquired(MAPPER, 4e6, 26) == 11
    assert min(abs(11 - p) for p in MAPPER) == 1
    for alpha in (1, 2, 3):
        assert chosen(MAPPER, 13, 4e6, 26, alpha) == (11, "process")
    assert chosen(MAPPER, 13, 4e6, 26, 0) == (12, "linear")  # 4e6 / (4,624,714 / 13) = 11.2


def test_the_process_is_that_of_an_independent_library():
    """scikit-learn with the kernel found: the same means; and none of our grid is likelier than its optimum."""
    gaussian_process = pytest.importorskip("sklearn.gaussian_process")
    import numpy as np

    x, y = np.array(list(MAPPER), dtype=float)[:, None], np.array(list(MAPPER.values())) / 1e6
    ours = np.array(fitted(tuple(MAPPER.items()), 26)) / 1e6
    kernels = gaussian_process.kernels
    kernel = kernels.ConstantKernel(10.0, (1e-3, 1e9)) * kernels.RBF(20.0, (0.5, 52.0)) + kernels.WhiteKernel(
        1e-2, (1e-8, 1e2)
    )
    with np.errstate(all="ignore"):
        theirs = gaussian_process.GaussianProcessRegressor(kernel, n_restarts_optimizer=1, random_state=0).fit(x, y)
    means = theirs.predict(np.arange(1, 27)[:, None])
    assert np.abs(ours - means).max() < 0.02 * means.max()


def test_exact_lines_are_found_exactly():
    line = {p: 100.0 * p for p in (1, 3, 4, 8)}
    assert [acquired(line, rate, 8) for rate in (90.0, 480.0, 790.0)] == [1, 5, 8]
    assert acquired(line, 900.0, 8) is None
    assert linear(line, 4, 900.0) == 9
    assert linear(line, 6, 900.0) == 9  # by the nearest parallelism that was seen


def _snapshot(k, *, rate=100.0, one=40.0, blocked=0.0, t=10.0, **more):
    """`work` can do `one` records/s per instance; the others 1000."""
    done = min(rate, k["work"] * one)
    operators = {
        n: OperatorMetrics(done, done, done, c, done / c / k[n], 0, k[n], blocked=b)
        for n, c, b in (("src", 1000.0, blocked), ("work", one, 0.0), ("end", 1000.0, 0.0))
    }
    return Snapshot(
        t=t, window_s=10.0, deployment=Deployment(k), operators=operators, source_rates={"src": rate}, throughput=done,
        latency=None, event_latency=None, lag=0, edge_rates=dict.fromkeys(CHAIN.edges, done), **more,
    )  # fmt: skip


def _numbers(deployment):
    return tuple(deployment.parallelism[n] for n in CHAIN.order)


def test_the_big_phase_gives_all_the_most_and_doubles_it_then_the_small_phase_what_is_needed():
    policy = ContTune(warm_up_windows=0)
    state, k, seen = policy.init(CHAIN), {"src": 1, "work": 1, "end": 2}, []
    for i in range(6):
        short = k["work"] * 40 < 300
        state, decision = policy.step(state, _snapshot(k, rate=300.0, blocked=0.8 if short else 0.0, t=10.0 * i))
        k = dict(decision.deployment.parallelism)
        seen.append(_numbers(decision.deployment))
    # 2 is the most that runs; all have it: 4, 8. Then each by its own rate, 300 / 40 = 7.5 and 300 / 1000.
    assert seen == [(2, 2, 2), (4, 4, 4), (8, 8, 8), (1, 8, 1), (1, 8, 1), (1, 8, 1)]


def test_a_load_that_was_seen_takes_one_change_and_a_job_that_falls_behind_after_it_is_tuned_with_known_rates():
    policy = ContTune(warm_up_windows=0)
    state = policy.init(CHAIN)
    for k in (8, 6, 4, 3):
        state, _ = policy.step(state, _snapshot({"src": 1, "work": k, "end": 1}, rate=160.0))
    state, decision = policy.step(state, _snapshot({"src": 8, "work": 8, "end": 8}, rate=190.0))
    assert _numbers(decision.deployment) == (1, 5, 1)
    assert decision.why["by"]["work"] == "process"
    # five can do less than thought: 30 each. The rates are known, so it is not doubled.
    behind = _snapshot({"src": 1, "work": 5, "end": 1}, rate=190.0, one=30.0, blocked=0.5)
    _, decision = policy.step(state, behind)
    assert decision.why["rule"] == "tunes again: the rates are known"
    assert _numbers(decision.deployment)[1] > 5
    # at another load they are not
    more = _snapshot({"src": 1, "work": 5, "end": 1}, rate=400.0, one=30.0, blocked=0.5)
    assert _numbers(policy.step(state, more)[1].deployment) == (8, 8, 8)


def test_back_pressure_without_a_full_operator_adds_nothing():
    """Skew, an external store: the paper's controller wants both, back-pressure and use."""
    calm = _snapshot({"src": 1, "work": 5, "end": 1}, rate=120.0, blocked=0.9)  # work is used to 60 %
    _, decision = ContTune().step(ContTune().init(CHAIN), calm)
    assert _numbers(decision.deployment) == (1, 5, 1)


def test_small_changes_are_not_made():
    k = {"src": 5, "work": 10, "end": 5}
    for threshold, expected in ((0.0, (1, 4, 1)), (2.0, (1, 4, 1)), (3.0, (5, 10, 5))):  # 20 / 6 = 3.3
        policy = ContTune(decision_threshold=threshold)
        _, decision = policy.step(policy.init(CHAIN), _snapshot(k, rate=150.0))
        assert _numbers(decision.deployment) == expected


def test_windows_with_downtime_and_warm_up_teach_nothing():
    policy = ContTune(warm_up_windows=1)
    state, _ = policy.step(policy.init(CHAIN), _snapshot({"src": 1, "work": 3, "end": 1}, downtime_s=5.0))
    assert not state.history
    state, _ = policy.step(state, _snapshot({"src": 1, "work": 3, "end": 1}))
    assert state.history["work"] == {3: (120.0,)}
    state, decision = policy.step(state, _snapshot({"src": 1, "work": 4, "end": 1}))
    assert decision.why == {"warm up": 1}
    assert list(state.history["work"]) == [3]


def test_only_the_latest_values_count():
    policy = ContTune(recent=2)
    state = policy.init(CHAIN)
    for one in (50.0, 40.0, 30.0):
        state, _ = policy.step(state, _snapshot({"src": 1, "work": 3, "end": 1}, one=one))
    assert state.history["work"][3] == (120.0, 90.0)


@pytest.mark.parametrize("rate", [300.0, 750.0])
def test_a_simulated_job_ends_with_the_fewest_instances_that_keep_up(rate):
    plant = Plant({"src": Service(1e-4), "work": Service(0.01), "end": Service(1e-3)}, pause_s=2.0)
    job = Simulator(CHAIN, plant, workload.Constant(rate), window_s=10.0)
    history = dspkit.run(ContTune(), job, steps=40)
    last = history[-1].snapshot
    assert last.deployment.parallelism["work"] in (int(rate * 0.01) + 1, int(rate * 0.01) + 2)
    assert last.deployment.parallelism["end"] <= 2
    assert last.throughput == pytest.approx(rate, rel=0.02)
    assert sum(step.rescaled for step in history) <= 8


def test_alpha_zero_applies_only_what_was_seen_or_what_ds2_says():
    one = dataclasses.replace(ContTune(), alpha=0, warm_up_windows=0)
    state = one.init(CHAIN)
    for k in (8, 3):
        state, _ = one.step(state, _snapshot({"src": 1, "work": k, "end": 1}, rate=100.0))
    _, decision = one.step(state, _snapshot({"src": 1, "work": 8, "end": 1}, rate=150.0))
    assert decision.why["by"]["work"] == "linear"
