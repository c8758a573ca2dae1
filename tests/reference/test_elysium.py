"""ELYSIUM's worked examples: printed numbers, and what follows from its formulas by hand."""

import pytest

from dspkit import Decision, Deployment, History, Operator, OperatorMetrics, Plant, Simulator, Snapshot, Step, Topology
from dspkit.comparison.scores import degradation, nodes_saved
from dspkit.policies.elysium import Elysium, Joint
from dspkit.profiling import Estimator, Line, Profile, compute_config, learn_threshold, reward
from dspkit.profiling.profiles import FittedCurve, Ratio
from dspkit.simulator import Node, Service
from dspkit.workload import Constant

exactly = pytest.approx
T1 = ("source", "generator", "filter", "counter", "ranker", "final")
SECONDS = (1 / 2000, 1 / 1000, 1 / 2500, 1 / 4000, 1 / 20000, 1 / 20000)
STREAMS = (1.0, 17.86, 0.68, 0.41, 0.01)


def estimator(names, edges, seconds, most=4, overhead=None, cores=4):
    """Operators that cost so many core-seconds a record, or whose CPU is given as a curve."""
    topology = Topology(tuple(Operator(n, most) for n in names), tuple(edges))
    curves = {n: FittedCurve(c if callable(c) else Line(0.0, c)) for n, c in zip(names, seconds, strict=True)}
    ratios = {edge: Ratio(alpha) for edge, alpha in edges.items()}
    return Estimator(topology, Profile(ratios, curves, overhead and FittedCurve(overhead)), cores)


def t1(overhead=None):
    return estimator(T1, dict(zip(zip(T1, T1[1:], strict=False), STREAMS, strict=True)), SECONDS, overhead=overhead)


def lone(seconds, most=4):
    return estimator(("o",), {}, (seconds,), most)


def p_of(config):
    return tuple(config.parallelism.values())


def test_e1_the_printed_rewards_choose_080():
    thresholds = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90)
    rewards = (0.53, 0.57, 0.62, 0.66, 0.71, 0.65, 0.43)
    lost = dict(zip(thresholds, (0.07, 0.08, 0.08, 0.09, 0.09, 0.20, 0.47), strict=True))
    for thr, r in zip(thresholds, rewards, strict=True):
        assert reward(thr, lost[thr]) == exactly(r, abs=1e-9)
    learned = learn_threshold(lambda thr, _: lost[thr], thresholds, rounds=3)
    assert learned.best == 0.80
    assert list(learned.values.values()) == exactly(list(rewards), abs=1e-9)
    assert learn_threshold(lambda thr, _: thr - 0.5, thresholds).best == 0.90  # all alike: the larger


def test_e2_rates_of_t1():
    rates = t1().input_rates(200)
    assert list(rates.values()) == exactly([200, 200, 3572, 2428.96, 995.8736, 9.958736], abs=1e-9)


def test_e3_rates_of_a_diamond():
    edges = {("A", "B"): 1.0, ("A", "C"): 0.5, ("B", "D"): 2.0, ("C", "D"): 0.4}
    rates = estimator("ABCD", edges, (1e-3,) * 4).input_rates(100)
    assert rates == {"A": 100, "B": 100, "C": 50, "D": exactly(220, abs=1e-9)}


def test_e4_parallelism_and_its_end():
    o = lone(1 / 2500)
    assert [o.instance_cpu_usage("o", 3572 / p) for p in (1, 2, 3)] == exactly([1.4288, 0.7144, 0.476267], abs=1e-6)
    assert p_of(compute_config(o, 3572)) == (3,)
    full = compute_config(o, 7144)
    assert (p_of(full), full.cpu["o"], full.operator_saturated) == ((4,), exactly(0.7144), ("o",))
    assert compute_config(o, 3572).operator_saturated == ()


def test_e5_all_in_one_assessment():
    config = compute_config(lone(1 / 200, most=8), 1000)
    assert (p_of(config), config.workers, config.node_saturated) == ((8,), 2, False)
    assert config.nodes == {"node-1": exactly(0.625), "node-2": exactly(0.625)}
    one = compute_config(lone(1 / 200, most=8), 1000, nodes=1)
    assert (one.workers, one.nodes, one.node_saturated) == (1, {"node-1": exactly(1.25)}, True)


OP = Line(0.027, 1.44 / 4)  # of cores in use by instances, on nodes of four


def test_e6_t1_at_200():
    plain = compute_config(t1(), 200)
    assert (p_of(plain), plain.workers) == ((1, 1, 3, 1, 1, 1), 1)
    assert plain.nodes["node-1"] == exactly(0.5965829042, abs=1e-9)
    assert 4 * plain.nodes["node-1"] == exactly(2.3863316168, abs=1e-9)
    engine = compute_config(t1(OP), 200)
    assert (p_of(engine), engine.workers) == ((1, 1, 3, 1, 1, 1), 2)
    assert list(engine.nodes.values()) == exactly([0.4238, 0.4892], abs=1e-4)
    assert compute_config(t1(OP), 200, nodes=1).nodes["node-1"] == exactly(0.8861, abs=1e-4)


def test_e7_t1_at_400():
    config = compute_config(t1(OP), 400)
    assert (p_of(config), config.workers) == ((1, 1, 4, 2, 1, 1), 3)
    hottest = [max(compute_config(t1(OP), 400, nodes=n).nodes.values()) for n in (1, 2, 3)]
    assert hottest == exactly([1.7452, 0.9043, 0.6468], abs=1e-4)


def test_e8_on_a_threshold_is_no_stress():
    assert p_of(compute_config(lone(0.65 / 100), 100)) == (1,)
    assert compute_config(lone(0.65 / 100), 100, node_scale_out_above=0.65 / 4).workers == 1
    assert p_of(compute_config(lone(0.65 / 100), 100.001)) == (2,)
    four = estimator(("a", "b", "c", "d"), {("a", "b"): 1, ("b", "c"): 1, ("c", "d"): 1}, (0.8 / 100,) * 4)
    assert compute_config(four, 100, scale_out_above=0.9).workers == 1
    assert compute_config(four, 100.001, scale_out_above=0.9).workers == 2


def test_e9_the_second_loop_steps_back_into_stress_unless_guarded():
    def steep(rate):
        return 0.9 if rate > 60 else 0.1

    assert p_of(compute_config(lone(steep), 100)) == (1,)
    assert p_of(compute_config(lone(steep), 100, guard=True)) == (2,)


def test_the_second_loop_never_fires_where_cpu_is_linear():
    """Whenever scale_in_below <= scale_out_above / 2: one instance fewer would have been in stress."""
    o = lone(1 / 1000, most=64)
    for rate in range(1, 40_000, 37):
        for guard in (False, True):
            config = compute_config(o, rate, guard=guard, nodes=1)
            assert config.cpu["o"] <= 0.65 + 1e-9 or config.operator_saturated
            assert config.parallelism["o"] == 1 or rate / 1000 / (config.parallelism["o"] - 1) > 0.65


def e5_snapshot(p, n, t):
    """E5's load as meters would see it: an instance that is asked for more than a core uses all of it."""
    use = min(1.0, 1000 / 200 / p)
    nodes = [sum(use for i in range(p) if i % n == j) / 4 for j in range(n)]
    m = OperatorMetrics(1000.0, p * use * 200, 0.0, 200.0, use, 0.0, p, cpu=p * use)
    shares = {f"node-{j + 1}": u for j, u in enumerate(nodes)}
    return Snapshot(t, 60.0, Deployment({"o": p}, n), {"o": m}, {"o": 1000.0}, m.processing_rate, None, None, 0.0, {},
                    shares)  # fmt: skip


def e5_path(policy, rounds=10):
    """(p, nodes) after each assessment, from one instance on one node."""
    topology, p, n, path = Topology((Operator("o", 8),)), 1, 1, []
    state = policy.init(topology)
    for i in range(rounds):
        state, decision = policy.step(state, e5_snapshot(p, n, 60.0 * (i + 1)))
        p, n = decision.deployment.parallelism["o"], decision.deployment.workers
        path.append((p, n))
    return path


def test_e13_the_joint_scaler_takes_eight_changes_where_elysium_takes_one():
    end = [(8, 3)] * 3
    assert e5_path(Joint()) == [(2, 2), (3, 3), (4, 4), (5, 4), (6, 4), (7, 4), (8, 4), *end]
    assert e5_path(Joint(node_scale_in_below=0.30))[-1] == (8, 4)
    profile = lone(1 / 200, most=8).profile
    assert e5_path(Elysium(learned=profile, load="arrivals")) == [(8, 2)] * 10


def run_of(inputs, throughputs, workers=None):
    """A history of 60-second windows with these loads, throughputs and numbers of nodes chosen."""
    chain, history = Topology((Operator("o"),)), History(Topology((Operator("o"),)))
    for i, (came, done) in enumerate(zip(inputs, throughputs, strict=True)):
        m = OperatorMetrics(came, done, 0.0, None, 0.0, 0.0, 1)
        now = Deployment(chain.uniform(), workers[i] if workers else None)
        s = Snapshot(60.0 * (i + 1), 60.0, now, {"o": m}, {"o": came}, done, None, None, 0.0, {})
        history.append(Step(i, s, Decision(now)))
    return history


def test_e10_nodes_saved():
    for chosen, saved in (([1, 2, 3, 4], 0.375), ([2, 2, 2, 2], 0.5), ([4, 4, 4, 4], 0.0)):
        assert nodes_saved(run_of([1.0] * 4, [1.0] * 4, chosen), 4) == exactly(saved, abs=1e-9)


def test_e11_degradation():
    assert degradation(run_of([100.0], [250.0])).mean == exactly(1.5, abs=1e-9)
    assert degradation(run_of([100.0], [0.0])).mean == exactly(1.0, abs=1e-9)
    assert degradation(run_of([0.0], [0.0])).mean == 0.0
    lost = degradation(run_of([100.0, 0.0], [50.0, 7.0]))
    assert (lost.mean, lost.windows, lost.dropped) == (0.5, (0.5,), 1)


@pytest.mark.parametrize(("d", "expected"), [(6.5, 0.216667), (19.2, 0.64)])
def test_e12_a_restart_each_minute_costs_2d_over_t(d, expected):
    """In the fluid, by windows of half a second, at constant load with three times its capacity."""
    plant = Plant({"o": Service(1e-3)}, {"n": Node(4)}, pause_s=d)
    one = Topology((Operator("o", 4),))
    backend = Simulator(one, plant, Constant(1000), deployment=Deployment({"o": 3}), window_s=0.5, tick_s=0.05)
    history = History(one)
    for i in range(720):
        if i % 120 == 0:
            backend.deploy(Deployment({"o": 7 - backend.deployment.parallelism["o"]}))
        history.append(Step(i, backend.observe(), None))
    assert degradation(history).mean == exactly(expected, rel=0.02)
    assert 2 * d / 60 == exactly(expected, abs=1e-6)
