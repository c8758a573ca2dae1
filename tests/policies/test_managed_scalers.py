"""The scalers that clouds run today: worked cases of their own texts, and what they do to a job that falls behind."""

import math

import pytest

from dspkit import Deployment, Operator, OperatorMetrics, Plant, Simulator, Snapshot, Topology, run, workload
from dspkit.policies.dstreams import DStreams, change
from dspkit.policies.keda import KEDA, replicas
from dspkit.policies.managed_flink import ManagedFlink
from dspkit.policies.numaflow import Numaflow, of_buffer, of_time
from dspkit.simulator import Service

CHAIN = Topology.chain("source", "work", "sink")


def _snapshot(t, k=(1, 1, 1), *, lag=(0, 0, 0), rate=100.0, busy=0.5, window_s=10.0, topology=CHAIN, **more):
    operators = {
        n: OperatorMetrics(rate, rate, rate, rate / busy / i, busy, b, i, cpu=busy * i)
        for n, i, b in zip(topology.order, k, lag, strict=True)
    }
    return Snapshot(
        t=t, window_s=window_s, deployment=Deployment(dict(zip(topology.order, k, strict=True))), operators=operators,
        source_rates={"source": rate}, throughput=rate, latency=None, event_latency=None, lag=lag[0],
        edge_rates=dict.fromkeys(topology.edges, rate), **more,
    )  # fmt: skip


def _decided(policy, snapshots):
    state, found = policy.init(snapshots[0].deployment and CHAIN), []
    for snapshot in snapshots:
        state, decision = policy.step(state, snapshot)
        found.append(tuple(decision.deployment.parallelism[n] for n in CHAIN.order))
    return found


# The formula of each text, by hand.


@pytest.mark.parametrize(
    ("lag", "threshold", "partitions", "expected"),
    [(50, 10, 10, 5), (51, 10, 10, 6), (5000, 10, 10, 10), (0, 10, 10, 1), (100, 50, 12, 2)],
)
def test_keda_gives_one_replica_per_threshold_and_at_most_one_per_partition(lag, threshold, partitions, expected):
    assert replicas(lag, threshold, partitions) == expected


def test_keda_scales_up_at_once_within_kubernetes_limits_and_down_after_five_minutes():
    """lagThreshold 10: a lag of 45 wants 5, of which 4 pods may come per 15 s from 1; down after 300 s."""
    few = [_snapshot(15.0 * i, (1, 1, 1), lag=(45, 0, 0)) for i in (1,)]
    assert _decided(KEDA(), few) == [(5, 1, 1)]
    gone = [_snapshot(15.0, (5, 1, 1), lag=(45, 0, 0))]
    gone += [_snapshot(15.0 * i, (5, 1, 1), lag=(0, 0, 0)) for i in range(2, 24)]
    went = [k[0] for k in _decided(KEDA(), gone)]
    assert went[:20] == [5] * 20  # until 15 + 300 s
    assert went[-1] == 1


def test_keda_holds_within_ten_percent_of_the_threshold():
    assert _decided(KEDA(), [_snapshot(15.0, (4, 1, 1), lag=(43, 0, 0))]) == [(4, 1, 1)]
    assert _decided(KEDA(), [_snapshot(15.0, (4, 1, 1), lag=(45, 0, 0))])[0][0] == 5


NUMAFLOW = [  # scaling_test.go: rates and pending messages of three partitions, ready replicas, replicas wanted
    ("source", (0, 0), (0, 0), 2, 1),
    ("source", (250, 500, 750), (10_010, 800, 1200), 2, 16),
    ("source", (450, 500, 750), (10_010, 800, 1200), 2, 9),
    ("source", (450, 20, 750), (10_010, 800, 1200), 2, 16),
    ("source", (450, 20, 750), (18_932, 800, 1200), 2, 17),
    ("source", (800, 200, 750), (18_932, 800, 24_988), 2, 13),
    ("source", (800, 21, 750), (18_932, 800, 24_988), 2, 15),
    ("work", (0, 0), (0, 0), 2, 1),
    ("work", (250, 500, 750), (2789, 800, 1200), 2, 4),
    ("work", (250, 500, 750), (2999, 800, 1200), 2, 5),
    ("work", (250, 500, 750), (3001, 800, 1200), 5, 6),
    ("work", (250, 500, 750), (8001, 800, 1200), 6, 10),
    ("work", (250, 500, 750), (8001, 3882, 4002), 9, 15),
    ("work", (250, 500, 750), (6000, 3882, 4002), 9, 14),
    ("work", (650, 570, 790), (6000, 3882, 4002), 9, 14),
    ("work", (650, 570, 790), (3100, 3001, 3223), 11, 14),
    ("work", (650, 570, 790), (2998, 2998, 2998), 13, 14),
    ("work", (650, 570, 790), (2501, 1283, 2044), 14, 11),
]


@pytest.mark.parametrize(("vertex", "rates", "pending", "ready", "wanted"), NUMAFLOW)
def test_numaflow_wants_what_its_own_tests_say(vertex, rates, pending, ready, wanted):
    """Partitions are scaled by the one that wants most; here each is an operator of its own."""
    policy = Numaflow(target_processing_s=5.0, target_free=0.9)
    each = [policy._desired(CHAIN, vertex, p, r, ready) for r, p in zip(rates, pending, strict=True)]
    assert max(each) == wanted


def test_numaflow_wants_no_more_than_wait_and_two_more_if_full():
    assert of_time(3, 0.01, 5) == 3
    assert of_buffer(24_000, 3, 30_000, 24_000) == 5
    assert Numaflow()._desired(CHAIN, "work", 24_000.0, 10.0, 3) == 5
    assert Numaflow()._desired(CHAIN, "work", 15_000.0, 750.0, 3) == 3  # half full: 20 s are needed and allowed
    assert Numaflow()._desired(CHAIN, "work", 15_001.0, 750.0, 3) == 5  # 15,000 free are to be; 3,000 each are


def test_numaflow_steps_by_two_after_its_cooldown_and_yields_to_back_pressure():
    policy = Numaflow(look_back_s=10.0)
    behind = dict(lag=(40_000, 0, 0), rate=250.0)
    assert _decided(policy, [_snapshot(10, (2, 1, 1), **behind)]) == [(4, 1, 1)]  # 16 wanted, two at once
    twice = [_snapshot(10, (2, 1, 1), **behind), *(_snapshot(t, (4, 1, 1), **behind) for t in (20, 60, 100, 110))]
    assert [k[0] for k in _decided(policy, twice)] == [4, 4, 4, 6, 6]  # 90 s after the change at 10 s
    direct = _snapshot(10, (2, 1, 1), lag=(40_000, 23_000, 0), rate=250.0)
    assert _decided(policy, [direct])[0][0] == 1  # its successor is full: one back
    further = _snapshot(10, (2, 1, 1), lag=(40_000, 0, 23_000), rate=250.0)
    assert _decided(policy, [further])[0][:2] == (2, 1)  # one further on is full: hold


def test_managed_flink_doubles_after_15_minutes_at_75_percent_and_no_sooner():
    busy = [_snapshot(60.0 * i, (2, 3, 1), busy=0.8, window_s=60.0) for i in range(1, 16)]
    assert _decided(ManagedFlink(), busy) == [(2, 3, 1)] * 14 + [(4, 6, 2)]
    broken = [*busy[:10], _snapshot(660.0, (2, 3, 1), busy=0.7, window_s=60.0), *busy[11:]]
    assert _decided(ManagedFlink(), broken)[-1] == (2, 3, 1)


def test_managed_flink_halves_after_six_hours_but_not_below_its_start():
    start = _snapshot(60.0, (2, 2, 1), busy=0.5, window_s=60.0)
    idle = [_snapshot(600.0 * i, (8, 5, 4), busy=0.05, window_s=600.0) for i in range(1, 38)]
    assert _decided(ManagedFlink(), [start, *idle])[-1] == (4, 2, 2)
    assert _decided(ManagedFlink(), [start, *idle[:35]])[-1] == (8, 5, 4)
    assert _decided(ManagedFlink(), [_snapshot(60.0, (2, 2, 1), window_s=60.0),
                                     *(_snapshot(600.0 * i, (2, 2, 1), busy=0.05, window_s=600.0)
                                       for i in range(1, 38))])[-1] == (2, 2, 1)  # fmt: skip


@pytest.mark.parametrize(("ratio", "by"), [(0.3, -1), (0.31, 0), (0.89, 0), (0.9, 1), (1.49, 1), (1.5, 2), (2.6, 3)])
def test_dstreams_adds_the_rounded_ratio_and_removes_one(ratio, by):
    assert change(ratio) == by


def test_dstreams_looks_once_a_minute_at_the_mean():
    ratios = (0.5, 0.5, 0.5, 1.5, 1.5, 1.5)  # 1.0 on average
    seen = [_snapshot(10.0 * i, (2, 2, 2)) for i in range(1, 7)]
    assert _decided(DStreams(), [_busy(s, r) for s, r in zip(seen, ratios, strict=True)]) == [(2, 2, 2)] * 5 + [
        (3, 3, 3)
    ]


def _busy(snapshot, ratio):
    """The same window with true rates at which the load takes `ratio` of the capacity."""
    from dataclasses import replace

    operators = {n: replace(m, true_rate=100.0 / ratio / m.parallelism) for n, m in snapshot.operators.items()}
    return replace(snapshot, operators=operators)


@pytest.mark.parametrize("policy", [KEDA(lag_threshold=500.0), Numaflow(buffer_records=800.0), DStreams(),
                                    ManagedFlink(scale_out_after_s=120.0)], ids=lambda p: p.name)  # fmt: skip
def test_a_job_that_falls_behind_ends_up_keeping_up(policy):
    """Four times the capacity of one instance: each of them gets there in an hour, in its own way."""
    topology = Topology((Operator("source", 16), Operator("work", 16)), (("source", "work"),))
    plant = Plant({"source": Service(1e-4), "work": Service(1e-2, queue_records=1000)}, pause_s=5.0)
    sim = Simulator(topology, plant, workload.Jump(80, 390, 300.0), window_s=15)
    end = [s.snapshot for s in run(policy, sim, steps=240)][-20:]
    assert sum(s.throughput for s in end) == pytest.approx(20 * 390, rel=0.1)
    assert all(math.isfinite(s.lag) for s in end)
