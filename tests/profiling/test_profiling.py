"""Profiles learned from runs: what the plant is, within the paper's 3 %; curves against scikit-learn and by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import Deployment, DspkitError, History, Operator, Simulator, Topology, apps, run, workload
from dspkit.etp import rebalance
from dspkit.policies.elysium import Elysium
from dspkit.policies.static import Static
from dspkit.profiling import (
    Estimator,
    Line,
    Points,
    Profile,
    compute_config,
    errors,
    fit_curve,
    learn,
    learn_threshold,
    load_profile,
    samples,
)
from dspkit.profiling.curves import _loss, percentage_error
from dspkit.profiling.profiles import FittedCurve, OnlineProfile, Ratio
from dspkit.simulator import Node, Plant, Service

TOP = apps.rolling_top_words()
EMPTY = {"format": 1, "selectivity": [], "shares": {}, "overhead": None}
NET = {"kind": "net", "hidden": [[1, 2]], "out": [1, 2, 3], "low": [0, 0], "span": [1, 1], "slope": 0}
POINTS = {"kind": "points", "x": [1, 0], "y": [1, 2], "slope": 1}
LINE = {"kind": "line", "intercept": 0, "slope": 1}
RATIO = {"mean": 1, "spread": 0, "error": None, "count": 1}
SEEN = {"error": None, "count": 1, "seen": [0, 1]}
NOISY = replace(TOP, plant=replace(TOP.plant, noise=0.05))


@pytest.fixture(scope="module")
def half_an_hour() -> History:
    """The paper's profiling run: 30 minutes of a load that varies, here with noise of 5 % from window to window."""
    return run(Static(), NOISY.simulator(workload.Sine(250, 150, 900), parallelism=4, seed=1), steps=180)


@pytest.fixture(scope="module")
def another() -> History:
    """Another load and other noise."""
    square = workload.Square(120, 350, 400)
    return run(Static(), NOISY.simulator(square, parallelism=4, seed=2), steps=120)


@pytest.mark.parametrize("kind", ["linear", "isotonic"])
def test_profilers_err_by_less_than_3_percent_on_load_they_did_not_see(kind, half_an_hour, another):
    profile = learn(half_an_hour, kind=kind)
    assert profile.table.error.max() < 0.03  # held-out tenths of the same run
    assert max(errors(profile, another).values()) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "most"), [("network", 0.03), ("rprop", 0.04)])
def test_the_papers_net_is_as_good_as_the_paper_says_if_it_is_trained_well(half_an_hour, another, kind, most):
    profile = learn(half_an_hour, kind=kind)
    assert profile.table.error.max() < most
    assert max(errors(profile, another).values()) < most


def test_a_profile_is_what_the_plant_is(half_an_hour):
    profile = learn(half_an_hour)
    for name, service in TOP.plant.services.items():
        usual = sum(profile.cpu[name].seen) / 2
        assert profile.cpu[name].curve(usual) == pytest.approx(usual * service.seconds_per_record, rel=0.02)
    for (u, v), ratio in profile.selectivity.items():
        assert ratio.mean == pytest.approx(TOP.plant.services[u].toward(v))
    overhead = profile.overhead.curve
    assert (overhead.intercept, 4 * overhead.slope) == (pytest.approx(0.027), pytest.approx(1.44))
    assert profile.shares == {"source": 1.0}


def test_a_run_learned_from_as_it_goes_tells_the_same(half_an_hour):
    running = OnlineProfile()
    for step in half_an_hour:
        running = running.see(TOP.topology, step.snapshot)
    profile = running.profile()
    for name, service in TOP.plant.services.items():
        assert profile.cpu[name].curve(1000.0) == pytest.approx(1000 * service.seconds_per_record, rel=0.02)
    assert profile.overhead.curve(4.0) == pytest.approx(1.467, rel=0.01)
    assert not running.missing(TOP.topology)
    assert OnlineProfile().missing(TOP.topology)[:2] == ["source", "word_generator"]


def test_a_line_is_the_least_squares_of_relative_errors():
    """Against numpy, where neither end is at zero."""
    random = np.random.default_rng(0)
    x = random.uniform(50, 500, 80)
    y = (0.2 + 0.003 * x) * random.normal(1, 0.05, 80)
    a, b = np.linalg.lstsq(np.column_stack((1 / y, x / y)), np.ones(80), rcond=None)[0]
    assert fit_curve(x, y) == Line(pytest.approx(a), pytest.approx(b))
    falling = fit_curve([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    assert falling.slope == 0.0  # CPU never falls as the rate rises


def test_an_isotonic_curve_is_scikit_learns_inside_and_goes_on_outside():
    from sklearn.isotonic import IsotonicRegression

    random = np.random.default_rng(1)
    x = np.sort(random.uniform(1, 100, 60))
    y = np.sqrt(x) * random.normal(1, 0.1, 60)
    curve = fit_curve(x, y, "isotonic")
    assert isinstance(curve, Points)
    model = IsotonicRegression().fit(x, y, sample_weight=1 / np.maximum(y, 0.05 * y.max()))
    assert curve(x) == pytest.approx(model.predict(x))
    assert curve(2 * x[-1]) == pytest.approx(curve(x[-1]) + x[-1] * fit_curve(x, y).slope)


def test_the_net_learns_a_curve_that_is_no_line():
    x = np.linspace(1, 100, 60)
    y = 0.2 + x**2 / 1e4
    assert percentage_error(fit_curve(x, y), x, y) > 0.1
    for kind in ("network", "rprop"):
        assert percentage_error(fit_curve(x, y, kind), x, y) < 0.05


def test_the_nets_slope_is_that_of_its_loss():
    from scipy.optimize import check_grad

    random = np.random.default_rng(0)
    t, y, matter = random.uniform(0, 1, 20), random.uniform(0, 0.9, 20), random.uniform(0, 1, 20)
    at = random.uniform(-1, 1, 10)
    assert check_grad(lambda w: _loss(t, y, matter, w)[0], lambda w: _loss(t, y, matter, w)[1], at) < 1e-6


@given(st.sampled_from(["linear", "isotonic"]), st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1))
def test_curves_never_fall_nor_go_below_zero(kind, rows):
    x, y = zip(*rows, strict=True)
    curve = fit_curve(x, y, kind)
    told = curve(np.linspace(0, 2e6, 50))
    assert (told >= 0).all()
    assert (np.diff(told) >= -1e-9 * max(1.0, told.max())).all()


def test_samples_are_means_over_a_minute_without_change():
    plant = Plant({"a": Service(1e-4), "b": Service(1e-3)}, {"n1": Node(4), "n2": Node(4)}, pause_s=5)
    backend = Simulator(Topology.chain("a", "b"), plant, workload.Jump(100, 300, 60))
    history = run(Static(), backend, steps=12)
    rates = [round(r) for r, _ in samples(history).cpu["b"]]
    assert rates == [100, 133, 167, 200, 233, 267, 300]
    backend.deploy(Deployment({"a": 1, "b": 2}))
    more = run(Static(), backend, steps=7)
    both = History(history.topology, [*history, *more])
    assert len(samples(both).cpu["b"]) == 7 + 1  # the window of the pause is left out, six follow
    used, share = samples(both).nodes[-1]
    assert share == pytest.approx(used / 4)


def test_a_window_in_which_the_job_stood_still_parts_the_minutes():
    plant = Plant({"a": Service(1e-4), "b": Service(1e-3)}, {"n1": Node(4)})
    history = run(Static(), Simulator(Topology.chain("a", "b"), plant, workload.Constant(100)), steps=15)
    steps = list(history)
    steps[7] = replace(steps[7], snapshot=replace(steps[7].snapshot, downtime_s=3.0))
    told = samples(History(history.topology, steps))
    assert len(told.cpu["b"]) == 2 + 2  # seven windows on either side of it, six to a minute


def test_without_cpu_meters_busy_time_stands_for_it(half_an_hour):
    steps = []
    for s in half_an_hour[:30]:
        operators = {n: replace(m, cpu=None) for n, m in s.snapshot.operators.items()}
        steps.append(replace(s, snapshot=replace(s.snapshot, operators=operators, nodes={})))
    profile = learn(History(TOP.topology, steps))
    assert profile.overhead is None
    assert profile.cpu["counter"].curve(4000.0) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("kind", ["linear", "isotonic", "network"])
def test_a_profile_is_saved_as_text_and_read_back_whole(kind, tmp_path, half_an_hour):
    profile = learn(half_an_hour[:12], kind=kind)
    path = profile.save(tmp_path / "top.json")
    assert load_profile(path) == profile
    assert json.loads(path.read_text())["cpu"]["counter"]["curve"]["kind"] in ("line", "points", "net")
    with pytest.raises(DspkitError, match="which exists"):
        profile.save(path)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"format": 1}', '{"format": 9, "cpu": {}}', '{"format": 1, "cpu": {"a": 3}, "selectivity": []}',
        json.dumps({**EMPTY, "cpu": {"a": {"curve": {"kind": "os"}, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": POINTS, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": NET, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": {"kind": "line", "intercept": math.nan, "slope": 1}, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": {"kind": "line", "intercept": 1, "slope": -1}, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": {"kind": "line", "intercept": 1, "slope": [1, 2]}, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": {**NET, "hidden": [[1, 2]] * 2, "low": [0]}, **SEEN}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": LINE, **SEEN, "count": math.inf}}}),
        json.dumps({**EMPTY, "cpu": {"a": {"curve": LINE, **SEEN, "seen": [1]}}}),
        json.dumps({**EMPTY, "cpu": {}, "overhead": 0}), json.dumps({**EMPTY, "cpu": {}, "overhead": []}),
        json.dumps({**EMPTY, "cpu": {}, "shares": {"a": -1}}),
        json.dumps({**EMPTY, "cpu": {}, "shares": {"a": math.nan}}),
        json.dumps({**EMPTY, "cpu": {}, "selectivity": [{"start": "a", "end": "b", **RATIO, "spread": math.nan}]}),
        json.dumps({**EMPTY, "cpu": {}, "selectivity": [{"start": "a", "end": "b", **RATIO, "mean": -1}]}),
        "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused_in_words(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DspkitError, match=r"x\.json"):
        load_profile(tmp_path / "x.json")
    with pytest.raises(DspkitError, match="no file"):
        load_profile(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: learn(History(TOP.topology)), "a History with steps"),
        (lambda: learn("x"), "a History with steps"),
        (lambda: learn(run(Static(), TOP.simulator(), steps=1), metrics_window_s=math.nan), "metrics_window_s=nan"),
        (lambda: fit_curve([1, 2], [1]), "expected equal numbers"),
        (lambda: fit_curve([], []), "expected equal numbers"),
        (lambda: fit_curve([1, np.nan], [1, 2]), "numbers >= 0"),
        (lambda: fit_curve([1, 2], [1, -2]), "numbers >= 0"),
        (lambda: fit_curve([1, 2], [1, 2], "cubic"), "one of linear, isotonic, network"),
        (lambda: Estimator(TOP.topology, Profile({}, {})), "without the selectivity of"),
        (lambda: learn_threshold(lambda *_: 0.1, ()), "at least one"),
        (lambda: learn_threshold(lambda *_: 0.1, (math.nan, 0.5)), "at least one"),
        (lambda: learn_threshold(lambda *_: 0.1, rounds="x"), "at least one"),
        (lambda: learn_threshold(None), "a function of threshold"),
        (lambda: Estimator(None, Profile({}, {})), "a Topology and a Profile"),
        (lambda: Estimator(TOP.topology, "x"), "a Topology and a Profile"),
        (lambda: Estimator.together({}), "of each application"),
        (lambda: Estimator.together({"a": 3}), "of each application"),
        (lambda: _chain(1e-3).instance_cpu_usage("typo", 1), "operator 'typo'"),
        (lambda: _chain(1e-3).instance_cpu_usage("o0", math.nan), "a finite number from 0 up"),
        (lambda: _chain(lambda _: math.nan).instance_cpu_usage("o0", 1), "learn the profile again"),
        (lambda: compute_config(_chain(1e-3, overhead=FittedCurve(lambda x: x * math.nan)), 1), "finite overheads"),
        (lambda: _chain(1e-3).node_cpu_usages({("o0", 0): "n"}, {"o0": 0}, 1), "a whole number above 0"),
        (lambda: _chain(1e-3).node_cpu_usages({("o0", 0): "n"}, {}, 1), "a whole number above 0"),
        (lambda: Profile("x", {}), "as `learn` makes it"),
        (lambda: Ratio(math.nan), "finite numbers >= 0"),
        (lambda: errors("x", None), "a Profile"),
        (lambda: load_profile(None), "a path"),
        (lambda: fit_curve("ab", [1, 2]), "rows of numbers"),
        (lambda: fit_curve([1, 2], [1, 2], []), "one of linear, isotonic, network"),
        (lambda: fit_curve([1, 2], [1, 2], "network", seed="x"), "whole number from 0"),
        (lambda: learn_threshold(lambda *_: float("nan")), "a finite number from 0 up"),
    ],
)
def test_bad_input_is_refused_in_words(call, said):
    with pytest.raises(DspkitError, match=said):
        call()


def _chain(*seconds, most=4, overhead=None, cores=4.0):
    names = [f"o{i}" for i in range(len(seconds))]
    topology = Topology.chain(*names, max_parallelism=most)
    ratios = {edge: Ratio(1.0) for edge in topology.edges}
    curves = {n: FittedCurve(s if callable(s) else Line(0.0, s)) for n, s in zip(names, seconds, strict=True)}
    return Estimator(topology, Profile(ratios, curves, overhead), cores)


def test_the_estimators_methods():
    e = _chain(1e-3, 2e-3)
    assert e.input_rates(100)["o1"] == 100
    assert e.instance_cpu_usage("o1", 50) == pytest.approx(0.1)
    places = {("o0", 0): "a", ("o1", 0): "a", ("o1", 1): "b"}
    assert e.node_cpu_usages(places, {"o0": 1, "o1": 2}, 400) == {"a": pytest.approx(0.2), "b": pytest.approx(0.1)}


@pytest.mark.parametrize("bad", [-1, float("nan"), "x", True, {"o1": 3}, {}, {"o0": -3}])
def test_a_load_that_is_none_is_refused(bad):
    with pytest.raises(DspkitError, match="a load of"):
        _chain(1e-3, 1e-3).input_rates(bad)


def test_shares_split_a_load_over_sources():
    topology = Topology((Operator("a"), Operator("b"), Operator("c")), (("a", "c"), ("b", "c")))
    curves = {n: FittedCurve(Line(0.0, 1e-3)) for n in "abc"}
    ratios = {("a", "c"): Ratio(1.0), ("b", "c"): Ratio(2.0)}
    equal = Estimator(topology, Profile(ratios, curves))
    assert equal.input_rates(100) == {"a": 50, "b": 50, "c": 150}
    known = Estimator(topology, Profile(ratios, curves, None, {"a": 0.2, "b": 0.8}))
    assert known.input_rates(100) == {"a": 20, "b": 80, "c": 180}
    assert known.input_rates({"a": 1, "b": 2}) == {"a": 1, "b": 2, "c": 5}


@given(st.lists(st.floats(1e-4, 5e-3), min_size=2, max_size=5), st.floats(0, 500), st.integers(1, 6))
def test_the_configuration_is_correct_and_has_no_node_too_many(seconds, rate, nodes):
    """Against the definition: nobody in stress, or told so; and with one node fewer somebody would be."""
    e = _chain(*seconds)
    config = compute_config(e, rate, nodes=nodes)
    stressed = [o for o, u in config.cpu.items() if u > 0.65 + 1e-9]
    assert set(stressed) == set(config.operator_saturated)
    usages = e.node_cpu_usages(config.places, config.parallelism, rate)
    assert usages == pytest.approx(dict(config.nodes))
    assert (max(usages.values()) > 0.8 + 1e-9) == config.node_saturated
    if config.node_saturated:
        assert config.workers == min(nodes, sum(config.parallelism.values()))
    for fewer in range(1, config.workers):
        dealt = compute_config(e, rate, nodes=fewer)
        assert dealt.node_saturated
    for o, p in config.parallelism.items():
        assert p == 1 or e.instance_cpu_usage(o, rate / (p - 1)) > 0.65


def packed(topology, parallelism, nodes):
    """Another scheduler: node by node, four instances each, what is left on the last."""
    order = [(o, i) for o in topology.order for i in range(parallelism[o])]
    return {instance: nodes[min(j // 4, len(nodes) - 1)] for j, instance in enumerate(order)}


def test_another_scheduler_is_asked_and_heeded():
    e = _chain(1e-3, 1e-3, 1e-3, 6e-3)
    even, other = (compute_config(e, 300, node_scale_out_above=0.5, scheduler=s) for s in (rebalance, packed))
    assert set(other.places.values()) == {f"node-{i}" for i in range(1, other.workers + 1)}
    assert other.places == packed(e.topology, other.parallelism, list(other.nodes))
    assert even.parallelism == other.parallelism
    assert even.nodes != other.nodes
    with pytest.raises(DspkitError, match="a scheduler that placed 0 instances"):
        compute_config(e, 300, scheduler=lambda *_: {})


def test_as_many_nodes_as_one_likes_cost_nothing():
    assert compute_config(_chain(1e-3, 1e-3), 900, nodes=10**12) == compute_config(_chain(1e-3, 1e-3), 900, nodes=8)


def test_zero_load_needs_one_of_each():
    config = compute_config(_chain(1e-3, 1e-3), 0)
    assert (config.parallelism, config.workers) == ({"o0": 1, "o1": 1}, 1)


def test_it_may_go_on_from_what_runs():
    """At three instances 0.3 of a core each is neither stress nor idle: there is nothing to change."""
    e = _chain(0.9 / 300, 0.9 / 300)
    assert compute_config(e, 300).parallelism["o1"] == 2
    assert compute_config(e, 300, start={"o0": 3, "o1": 3}).parallelism["o1"] == 3
    assert compute_config(e, 200, start={"o0": 3, "o1": 3}).parallelism["o1"] == 2


def test_two_applications_share_a_count_or_have_their_own():
    light, heavy = _chain(1e-4, 1e-4), _chain(1e-3, 10e-3, most=16)
    both = Estimator.together({"light": light, "heavy": heavy})
    loads = {"light": 100, "heavy": 800}
    shared = compute_config(both, loads, nodes=6)
    assert shared.by_application == dict.fromkeys(("light", "heavy"), shared.workers)
    own = compute_config(both, loads, nodes=6, each_its_own=True)
    assert own.by_application == {"light": 1, "heavy": 3}
    assert max(own.nodes.values()) <= 0.8
    assert {n for (o, _), n in own.places.items() if o.startswith("light")} == {"node-1"}
    assert compute_config(both, {"light/o0": 100, "heavy/o0": 800}, nodes=6) == shared
    alone = compute_config(heavy, 800, nodes=6)
    assert {o.removeprefix("heavy/"): p for o, p in shared.parallelism.items() if "heavy" in o} == alone.parallelism


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"nodes": 0}, "a number from 1 up"),
        ({"nodes": ["a", "a"]}, "a number from 1 up"),
        ({"scale_in_below": 0.7}, "scale_in_below < scale_out_above"),
        ({"node_scale_out_above": 2}, "a share from 0 to 1"),
        ({"nodes": 3.5}, "a number from 1 up"),
        ({"nodes": [1, 2]}, "a number from 1 up"),
        ({"start": {}}, "a whole number above 0"),
        ({"start": {"o0": math.nan}}, "a whole number above 0"),
        ({"parallelism": {"o0": 0}}, "a whole number above 0"),
        ({"parallelism": {"o0": 1, "typo": 1}}, "a whole number above 0"),
        ({"scheduler": None}, "a function of topology"),
        ({"scheduler": lambda *_: None}, "a scheduler that placed None"),
        ({"scheduler": lambda *_: {("o0", 0): "mars"}}, "a scheduler that used"),
        ({"scheduler": lambda t, p, n: {("o0", 1): n[0]}}, "from index 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(more, said):
    with pytest.raises(DspkitError, match=said):
        compute_config(_chain(1e-3), 1, **more)


def test_a_profile_of_another_application_is_refused_before_the_run(half_an_hour):
    with pytest.raises(DspkitError, match="without the selectivity"):
        Elysium(learned=learn(half_an_hour[:20])).init(apps.sentiment().topology)
    assert "<profile of source, word_generator" in repr(
        dict(run(Elysium(learned=learn(half_an_hour[:20])), TOP.simulator(), steps=1).about)["policy"]
    )
