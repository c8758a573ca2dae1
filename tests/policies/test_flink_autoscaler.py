"""The Flink autoscaler against numbers worked by hand from its documented formulas, and in simulated jobs."""

from dataclasses import replace

import pytest

from dspkit import Deployment, Operator, OperatorMetrics, Plant, Simulator, Snapshot, Topology, run, workload
from dspkit.core import ArgumentError, KnobError
from dspkit.policies import flink_autoscaler as rules
from dspkit.policies.flink_autoscaler import FlinkAutoscaler
from dspkit.simulator import Service

CHAIN = Topology.chain("src", "work", max_parallelism=400)
QUICK = FlinkAutoscaler(metrics_window_s=20, warm_up_s=0, scale_in_delay_s=0)


def _snapshot(t, k=2, *, rate=700.0, busy=1.0, offered=None, lag=0.0, ratio=1.0, src=0.5, blocked=None):
    """A source at work on `rate` records/s, and `work`, `k` instances `busy` with `ratio` times as many."""
    operators = {
        "src": OperatorMetrics(rate, rate, rate * ratio, None, src, lag, 1, blocked=blocked),
        "work": OperatorMetrics(rate * ratio, rate * ratio, rate * ratio, None, busy, 0, k),
    }
    return Snapshot(
        t=t, window_s=10, deployment=Deployment({"src": 1, "work": k}), operators=operators,
        source_rates={} if offered is None else {"src": offered}, throughput=rate, latency=None, event_latency=None,
        lag=lag, edge_rates={("src", "work"): rate * ratio},
    )  # fmt: skip


def _last(policy, snapshots, state=None, topology=CHAIN):
    state = policy.init(topology) if state is None else state
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
    return state, decision


def _windows(count=2, start=0, **seen):
    return [_snapshot(start + 10 * (i + 1), **seen) for i in range(count)]


def test_the_defaults_are_those_of_the_operator():
    """Printed in the operator's table of options; durations in seconds."""
    p = FlinkAutoscaler()
    assert (p.target_utilisation, p.boundary, p.metrics_window_s, p.warm_up_s) == (0.7, 0.3, 15 * 60, 5 * 60)
    assert (p.catch_up_s, p.restart_s, p.scale_in_delay_s, p.backlog_s) == (30 * 60, 5 * 60, 60 * 60, 5 * 60)
    assert (p.max_scale_up, p.max_scale_down, p.min_parallelism, p.max_parallelism) == (100_000, 0.6, 1, 200)
    assert (p.block_ineffective, p.effectiveness) == (False, 0.1)
    assert (p.observed_lag_s, p.observed_switch, p.observed_min_windows) == (30, 0.15, 2)
    assert p.band == (pytest.approx(0.4), 1.0)


def test_capacity_by_hand():
    """700/0.7 = 1000; a restart of 300 s caught up within 1800 s asks 700/6 = 116.67 more; a lag of 90,000 asks 50."""
    assert rules.capacity(700, 0, 0.7, catch_up_s=1800) == 1000
    assert rules.capacity(700, 0, 0.7, catch_up_s=1800, restart_s=300) == 1117
    assert rules.capacity(700, 50, 0.7, catch_up_s=1800, restart_s=300) == 1167
    assert rules.capacity(700, 0, 0.7, catch_up_s=0, restart_s=300) == 1000
    assert rules.capacity(700, 0, 0.0, catch_up_s=1800) == float("inf")
    assert rules.capacity(0.3, 0, 0.7, catch_up_s=1800, whole=False) == pytest.approx(0.3 / 0.7)
    assert rules.capacity(0.3, 0, 0.7, catch_up_s=1800) == 0  # the operator's rounding, a fact


def test_a_vertex_outside_the_band_by_hand():
    """v = 700/1; 800 come in, so the band begins at 800; (800/0.7 + 800/6)/700 = 1.823: 2 become ceil(3.65) = 4."""
    _, decision = _last(QUICK, _windows(offered=800.0))
    assert decision.deployment.parallelism["work"] == 4
    assert decision.why["band"]["work"] == "800 to 2,133"  # 800/1.0, and 800/0.4 + 800/6 = 2133.3
    assert decision.why["rule"].startswith("scales")


def test_inside_the_band_nobody_is_touched():
    """Fully busy with just what comes: v = 700 is not below 700/1.0, though 4 instances would be the target."""
    _, decision = _last(QUICK, _windows(offered=700.0, src=0.7))
    assert decision.deployment.parallelism == {"src": 1, "work": 2}
    assert decision.why["rule"] == "every change lies within the band"
    _, narrow = _last(replace(QUICK, scale_out_above=0.9), _windows(offered=700.0, src=0.7))
    assert narrow.deployment.parallelism["work"] == 4


def test_once_one_is_outside_all_changes_are_made():
    """The source (v = 1000 of 800 offered) lies within 800 to 2133, yet changes with the vertex that does not."""
    _, decision = _last(QUICK, _windows(offered=800.0, src=0.7))
    assert decision.deployment.parallelism == {"src": 2, "work": 4}


def test_rates_go_down_the_graph_by_output_ratios():
    """3 records each: 2400 must be done; v = 2100; (2400/0.7 + 400)/2100 = 1.823 again."""
    _, decision = _last(QUICK, _windows(offered=800.0, ratio=3.0))
    assert decision.why["target rate"]["work"] == pytest.approx(2400)
    assert decision.deployment.parallelism["work"] == 4


def test_a_lag_asks_for_more_and_a_long_one_opens_the_band():
    """90,000 records in 1800 s: 50/s. (1000 + 116.67 + 50)/700 = 1.667: 4. Work and 129 s of lag: the band stays."""
    _, decision = _last(QUICK, _windows(offered=700.0, lag=90_000.0, busy=1.0))
    assert decision.deployment.parallelism["work"] == 4  # the band begins at 750
    _, calm = _last(QUICK, _windows(offered=100.0, lag=0.0, busy=1.0))
    assert calm.deployment.parallelism["work"] == 1  # 100 of 700: far too many
    _, behind = _last(QUICK, _windows(offered=100.0, lag=700 * 301.0, busy=1.0))
    assert behind.why["working off the lag of"] == ("src",)
    assert behind.deployment.parallelism["work"] == 2


def test_without_the_offered_rate_it_is_what_was_done_and_the_growth_of_the_lag():
    windows = [_snapshot(10, lag=0.0), _snapshot(20, lag=1000.0)]
    _, decision = _last(QUICK, windows)
    assert decision.why["target rate"]["src"] == pytest.approx(800)


def test_a_source_that_catches_up_shows_its_rate_itself():
    """Busy 0.5 says 1400; working off 60 s of lag, blocked 0.2, it does 700/0.8 = 875, and 1400 > 875 * 1.15."""
    _, decision = _last(QUICK, _windows(offered=700.0, lag=42_000.0, blocked=0.2))
    assert decision.why["true rate"]["src"] == pytest.approx(875)
    _, blind = _last(QUICK, _windows(offered=700.0, lag=42_000.0, blocked=None))
    assert blind.why["true rate"]["src"] == pytest.approx(1400)
    _, calm = _last(QUICK, _windows(offered=700.0, lag=100.0, blocked=0.2))
    assert calm.why["true rate"]["src"] == pytest.approx(1400)


def test_windows_before_it_is_stable_and_full_do_not_count():
    policy = FlinkAutoscaler(metrics_window_s=30, warm_up_s=20)
    state, rules_seen = policy.init(CHAIN), []
    for snapshot in _windows(6, offered=800.0):
        state, decision = policy.step(state, snapshot)
        rules_seen.append(decision.why["rule"].split(" of ")[0])
    assert rules_seen == ["stabilises"] * 2 + ["collected 10", "collected 20", "scales work", "scales work"]
    assert len(state.windows) == 3
    state, decision = policy.step(state, _snapshot(70, k=3, offered=800.0))
    assert decision.why["rule"] == "stabilises"
    assert state.windows == ()


def test_a_scale_down_waits_and_the_largest_wish_of_the_interval_counts():
    """100 of 700 for 2 of 20 instances' worth: factor (100/0.7 + 100/6)/7000; never below 0.4 of what runs."""
    policy = replace(QUICK, metrics_window_s=0, scale_in_delay_s=30)
    state = policy.init(CHAIN)
    seen = []
    for t, offered in ((10, 1000.0), (20, 2000.0), (30, 1000.0), (40, 1000.0), (50, 1000.0)):
        busy = offered / 10_000
        state, decision = policy.step(state, _snapshot(t, 20, rate=offered, busy=busy, offered=offered, src=0.5))
        seen.append(decision.deployment.parallelism["work"])
    # 1000: 20 * (1428.6 + 166.7)/10000 = 3.19, at least 8. 2000: 6.4, at least 8. So 8 after 30 s.
    assert seen == [20, 20, 20, 8, 8]
    policy = replace(policy, max_scale_down=1.0)
    state, seen = policy.init(CHAIN), []
    for t, offered in ((10, 1000.0), (20, 2000.0), (30, 1000.0), (40, 1000.0), (60, 1000.0)):
        state, decision = policy.step(
            state, _snapshot(t, 20, rate=offered, busy=offered / 10_000, offered=offered, src=0.5)
        )
        seen.append(decision.deployment.parallelism["work"])
    assert seen == [20, 20, 20, 7, 4]  # 7 wished at 20 s counts until 50 s


def test_a_wish_to_grow_forgets_the_scale_down():
    policy = replace(QUICK, metrics_window_s=0, scale_in_delay_s=30)
    low = dict(rate=1000.0, busy=0.1, offered=1000.0)
    high = dict(rate=9000.0, busy=0.9, offered=12_000.0)
    state, _ = _last(policy, [_snapshot(10, 20, **low), _snapshot(20, 20, **low)])
    assert "work" in state.waiting
    state, _ = policy.step(state, _snapshot(30, 20, **high))
    assert "work" not in state.waiting


@pytest.mark.parametrize("block", [False, True])
def test_a_scale_up_that_brought_nothing_is_told_and_blocked_if_asked(block):
    """2 → 4 expected 700 * 1.824; 720 came of it: 3 % of the increase, below 10 %."""
    policy = replace(QUICK, block_ineffective=block)
    state, first = _last(policy, _windows(offered=800.0))
    assert first.deployment.parallelism["work"] == 4
    state, second = _last(policy, _windows(2, 20, k=4, rate=720.0, offered=800.0), state)
    assert "2 → 4 achieved 3%" in second.why["ineffective"]["work"]
    assert (second.deployment.parallelism["work"] > 4) is not block
    state, fine = _last(
        policy, _windows(2, 60, k=4, rate=770.0, offered=800.0), _last(policy, _windows(offered=800.0))[0]
    )
    assert "ineffective" not in fine.why  # 70 of 577: 12 %
    _, other = _last(policy, _windows(2, 90, k=3, rate=720.0, offered=800.0), state)
    assert "ineffective" not in other.why  # somebody else changed it since


def test_parallelism_keeps_to_its_bounds():
    _, up = _last(replace(QUICK, max_parallelism=3), _windows(offered=800.0))
    assert up.deployment.parallelism["work"] == 3
    _, once = _last(replace(QUICK, max_scale_up=0.5), _windows(offered=8000.0))
    assert once.deployment.parallelism["work"] == 3
    assert (
        _last(replace(QUICK, max_parallelism=1), _windows(offered=8000.0))[1].deployment.parallelism["work"] == 2
    )  # as it runs


ALIGNED = [  # new, now, groups, highest, evenly, maximising
    (5, 2, 24, 24, 6, 6),
    (5, 2, 13, 13, 13, 7),  # 13 // 5 = 2 a piece; 7 is the first with 13 // 7 = 1
    (13, 4, 24, 20, 12, 12),
    (5, 7, 24, 24, 6, 6),
    (5, 6, 14, 14, 5, 5),  # 7 divides and is more than runs; downward, 5 is the fewest with 14 // 5 = 2
    (7, 20, 720, 200, 8, 8),
    (1, 4, 24, 24, 1, 1),
]


@pytest.mark.parametrize(("new", "now", "groups", "highest", "evenly", "most"), ALIGNED)
def test_alignment_by_hand(new, now, groups, highest, evenly, most):
    blocking = {"lowest": 1, "highest": highest}
    assert rules.aligned(new, now, groups, **blocking, mode="evenly spread or none") == evenly
    assert rules.aligned(new, now, groups, **blocking, mode="maximise utilisation or none") == most
    assert rules.aligned(new, now, groups, lowest=1, highest=highest, mode="off") == new


@pytest.mark.parametrize(
    ("now", "target", "groups", "highest", "balanced", "evenly"),
    [  # release 1.16: the first in reach that divides, or lowers the greatest share; else the target
        (22, 25, 35, 30, 25, 25),
        (5, 7, 12, 8, 7, 7),
        (2, 5, 13, 13, 7, 13),
        (4, 13, 24, 20, 13, 13),
        (20, 7, 720, 200, 8, 8),
        (7, 5, 24, 24, 6, 6),
    ],
)
def test_alignment_of_1_16_never_blocks(now, target, groups, highest, balanced, evenly):
    bounds = {"lowest": 1, "highest": highest}
    assert rules.aligned(target, now, groups, **bounds) == balanced
    assert rules.aligned(target, now, groups, **bounds, mode="evenly spread") == evenly


def test_the_rate_expected_of_a_scale_up_is_that_of_the_instances_it_got():
    """1.16: v / k * k' after rounding and alignment. 2 to 4 at v = 100 expects 200; 107 came: 7 %, ineffective."""
    assert rules.effect(100, 100 / 2 * 4, 107) == pytest.approx(0.07)
    state, _ = _last(QUICK, _windows(offered=800.0))
    record = state.last["work"]
    assert record.expected == pytest.approx(record.true_rate / record.before * record.after)


def test_a_band_beyond_full_counts_as_full():
    """As upstream, where utilisation.max = 1.2 is legal."""
    assert FlinkAutoscaler(scale_out_above=1.2).band == FlinkAutoscaler(scale_out_above=1.0).band


def test_alignment_never_turns_round_and_takes_the_nearest_divisor_above():
    for groups in (1, 2, 7, 12, 24, 128):
        for now in range(1, groups + 1):
            for new in range(1, groups + 1):
                got = rules.aligned(new, now, groups, lowest=1, highest=groups, mode="evenly spread or none")
                assert (got - now) * (new - now) >= 0
                if new > now:
                    assert got == min(p for p in range(new, groups + 1) if groups % p == 0)
                elif divisors := [p for p in range(new, now + 1) if groups % p == 0]:
                    assert got == min(divisors)


def test_only_stateful_operators_have_key_groups():
    keyed = Topology((Operator("src"), Operator("work", 128, stateful=True)), (("src", "work"),))
    plain = Topology((Operator("src"), Operator("work", 128)), (("src", "work"),))
    windows = _windows(offered=1200.0)  # (1714 + 200)/700 * 2 = 5.47: 6
    assert _last(QUICK, windows, topology=plain)[1].deployment.parallelism["work"] == 6
    assert _last(QUICK, windows, topology=keyed)[1].deployment.parallelism["work"] == 7  # 128 // 7 = 18 groups, not 21


def test_a_load_step_ends_in_a_deployment_that_sustains_it():
    """Utilisation ends between the band's ends, and near the target by as much as whole instances allow."""
    topology = Topology.chain("src", "work", "sink", max_parallelism=64)
    plant = Plant({"src": Service(1e-4), "work": Service(2e-3), "sink": Service(5e-4)}, pause_s=20)
    policy = FlinkAutoscaler(metrics_window_s=120, warm_up_s=60, scale_in_delay_s=300, restart_s=20, catch_up_s=600)
    backend = Simulator(topology, plant, workload.Jump(300, 3000, 600), window_s=10)
    history = run(policy, backend, steps=300)
    end = history[-1].snapshot
    assert end.lag < 3000
    assert end.throughput == pytest.approx(3000, rel=0.01)
    need = 3000 * 2e-3  # six instances always busy
    assert 0.4 <= end.operators["work"].utilisation <= 1.0
    assert need / 0.7 <= end.deployment.parallelism["work"] <= 1.5 * need / 0.7
    assert sum(s.rescaled for s in history) <= 4


def test_ineffective_scaling_is_found_at_an_external_ceiling():
    """Instances wait for a server that takes 500 calls/s: more of them do not more."""
    plant = Plant({"src": Service(1e-4), "work": Service(1e-3, external_rate_limit_per_s=500)}, pause_s=0)
    policy = FlinkAutoscaler(metrics_window_s=60, warm_up_s=0, block_ineffective=True, catch_up_s=600, restart_s=0)
    history = run(policy, Simulator(CHAIN, plant, workload.Constant(900), window_s=10), steps=60)
    said = [s.decision.why["ineffective"] for s in history if "ineffective" in s.decision.why]
    assert said
    assert "so no more" in said[-1]["work"]
    stuck = history[-1].snapshot.deployment.parallelism["work"]
    free = run(replace(policy, block_ineffective=False), Simulator(CHAIN, plant, workload.Constant(900)), steps=60)
    assert stuck < free[-1].snapshot.deployment.parallelism["work"]


def test_knobs_that_contradict_each_other_are_refused():
    with pytest.raises(KnobError, match="min <= target <= max"):
        FlinkAutoscaler(scale_in_below=0.8)
    with pytest.raises(ArgumentError, match="a share"):
        FlinkAutoscaler(scale_out_above="high")
    with pytest.raises(KnobError, match="min_parallelism <= max_parallelism"):
        FlinkAutoscaler(min_parallelism=9, max_parallelism=3)


def test_windows_of_uneven_length_fill_the_metric_window():
    """Windows of a live job are not multiples of it; the oldest counts as long as its end lies in the window."""
    policy = FlinkAutoscaler(metrics_window_s=15, warm_up_s=5, scale_in_delay_s=0)
    state, t, collected = policy.init(CHAIN), 0.0, []
    for i in range(40):
        w = (2.0, 2.5, 3.1)[i % 3]
        t += w
        state, decision = policy.step(state, replace(_snapshot(t, rate=700.0, offered=1400.0), window_s=w))
        span = state.windows[-1].t - state.windows[0].t + state.windows[0].window_s if state.windows else 0.0
        collected.append(span)
        if decision.deployment.parallelism["work"] > 2:
            break
    assert decision.deployment.parallelism["work"] > 2
    assert 20 <= t <= 27  # warm-up and metric window, and less than two windows more
    assert collected[-1] < 15 + 2 * 3.1


def test_routine_commits_do_not_begin_the_metric_window_again():
    """Every window has a pause of a tenth of a second, as epochs of a live job end; a change is something else."""

    def after(windows):
        return _last(QUICK, windows)[1].deployment.parallelism["work"]

    overloaded = _windows(rate=700.0, offered=1400.0)
    assert after([replace(s, commit_s=0.1) for s in overloaded]) > 2
    assert after([replace(s, downtime_s=0.1) for s in overloaded]) == 2


def test_a_source_that_flow_control_stops_is_not_scaled():
    """It takes half of what it is offered, and idles, as `work` is full: it could take 70,000 records/s."""
    windows = _windows(4, rate=700.0, offered=1400.0, busy=0.99, src=0.01, lag=100_000.0, blocked=0.01)
    assert rules.observed_rate(windows, "src", 30.0, 2) is None
    _, decision = _last(QUICK, windows)
    assert decision.deployment.parallelism["src"] == 1
    assert decision.deployment.parallelism["work"] > 2
    slow = _windows(4, rate=700.0, offered=1400.0, busy=0.3, src=0.4, lag=100_000.0, blocked=0.0)
    assert rules.observed_rate(slow, "src", 30.0, 2) == pytest.approx(700.0)  # nothing stops it: it is too slow
