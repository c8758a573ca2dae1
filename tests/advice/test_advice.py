"""Advice on jobs whose truth is known: the plant says what is needed, and a simulated run what comes of it."""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import dspkit
from dspkit import (
    Deployment,
    History,
    Operator,
    OperatorMetrics,
    Plant,
    Simulator,
    Snapshot,
    Step,
    Topology,
    advise,
    loaders,
    run,
    workload,
)
from dspkit.advice import presentation as tables
from dspkit.advice.evidence import evidence
from dspkit.advice.needs import needs
from dspkit.advice.settings import settings as to_change
from dspkit.core import ArgumentError, DspkitError, MetricError, NotFoundError
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import Service
from dspkit.testing.strategies import histories

TREE = Topology(
    tuple(Operator(n) for n in ("read", "split", "count", "log", "join")),
    (("read", "split"), ("split", "count"), ("read", "log"), ("count", "join"), ("log", "join")),
)


def _tree(seed):
    """A job with random costs, a load, and a deployment that is too small somewhere or nowhere."""
    draw = np.random.default_rng(seed)
    shares = {"read": {"split": 1.0, "log": 0.5}, "split": {"count": draw.uniform(1, 4)}, "count": {"join": 0.3}}
    cost = {n: float(draw.uniform(0.2e-3, 3e-3)) for n in TREE.order}
    plant = Plant({n: Service(cost[n], selectivity=shares.get(n, 1.0)) for n in TREE.order}, pause_s=0)
    rate = float(draw.uniform(500, 2000))
    k = {n: int(draw.integers(1, 8)) for n in TREE.order}
    demand = {}
    for n in TREE.order:
        demand[n] = rate if n == "read" else 0.0
        for p in TREE.upstream(n):
            demand[n] += demand[p] * plant.services[p].toward(n)
    return plant, rate, k, {n: demand[n] * cost[n] for n in TREE.order}


def _recorded(plant, rate, k, steps=24, seed=0, topology=TREE):
    backend = Simulator(topology, plant, workload.Constant(rate), deployment=Deployment(k), seed=seed)
    return run(Static(), backend, steps=steps)


@pytest.mark.parametrize("seed", range(6))
def test_the_bottleneck_and_the_fewest_instances_are_those_of_the_plant(seed):
    plant, rate, k, work = _tree(seed)
    advice = advise(_recorded(plant, rate, k), target_latency_s=5.0)
    load = {n: work[n] / k[n] for n in TREE.order}
    assert advice.bottleneck == max(load, key=load.get)
    for n in TREE.order:
        assert advice.needs.load(n).value == pytest.approx(load[n], rel=0.01)
    least = {n: math.ceil(work[n] - 1e-9) for n in TREE.order}
    for policy in ("ds2", "autrascale", "drs"):
        assert advice[policy].deployment.parallelism == least, policy
    assert advice.after["ds2"].keeps_up


@pytest.mark.parametrize("seed", range(3))
def test_what_is_predicted_is_what_a_run_of_the_recommendation_shows(seed):
    """The true plant plays each deployment that is said to keep up; its meters, not ours, give the utilisation."""
    plant, rate, k, _ = _tree(seed)
    advice = advise(_recorded(plant, rate, k), target_latency_s=5.0)
    played = 0
    for r in advice.recommendations:
        after = advice.after.get(r.policy)
        if after is None:
            continue
        seen = _recorded(plant, rate, r.deployment.parallelism, steps=12)[-1].snapshot
        kept = seen.throughput > 0.99 * rate
        assert after.keeps_up == kept, r.policy
        if not kept:
            continue
        for n in TREE.order:
            assert after.loads[n].value == pytest.approx(seen.operators[n].utilisation, rel=0.02), (r.policy, n)
        if after.latency_s is not None:
            assert after.latency_s == pytest.approx(seen.latency.mean, rel=0.3), r.policy
            played += 1
    assert played


def test_a_law_that_was_seen_is_used():
    """Instances that hinder each other: a run at 1, 2 and 4 shows it, and the prediction for 6 knows it."""
    topology = Topology.chain("src", "work")
    plant = Plant({"src": Service(1e-5), "work": Service(1e-3, contention=0.1)}, pause_s=0)
    history = History(topology)
    for i, k in enumerate((1, 2, 4)):
        for step in _recorded(plant, 2900, {"src": 1, "work": k}, 12, topology=topology):
            t = step.snapshot.t + 120 * i
            history.append(Step(len(history), replace(step.snapshot, t=t), None))
    advice = advise(history, policies={"six": Static(parallelism={"work": 6})})
    seen = _recorded(plant, 2900, {"src": 1, "work": 6}, 12, topology=topology)[-1].snapshot
    linear = 2900 * 1e-3 * (1 + 0.1 * 3) / 6
    assert seen.operators["work"].utilisation > 1.1 * linear
    assert advice.after["six"].loads["work"].value == pytest.approx(seen.operators["work"].utilisation, rel=0.02)
    assert "one parallelism only" not in " ".join(advice.sentences).replace("src ran at one parallelism only", "")


def test_intervals_hold_the_truth_as_often_as_they_say():
    """200 recordings of 24 noisy windows: 95 % intervals miss at most 24 times but for a chance of 0.01 %."""
    topology, missed = Topology.chain("src", "work"), 0
    for seed in range(200):
        draw, windows = np.random.default_rng(seed), []
        for i in range(24):
            v = 1000 * draw.lognormal(0, 0.2)
            windows.append(_snapshot(i, {"src": (500, 5000.0, 1), "work": (500, v, 1)}, 500))
        found = needs(topology, windows).load("work")
        # records are the same in each window: the pooled rate is the harmonic mean, exp(-0.02) below the median
        truth = 500 / (1000 * math.exp(-(0.2**2) / 2))
        missed += not found.low <= truth <= found.high
    assert missed <= 24


def test_who_the_bottleneck_is_may_be_open():
    topology, draw, windows = Topology.chain("a", "b"), np.random.default_rng(1), []
    for i in range(30):
        rates = {n: (500, 1000 * draw.lognormal(0, 0.2), 1) for n in topology.order}
        windows.append(_snapshot(i, rates, 500))
    _, often = needs(topology, windows).bottleneck
    assert 0.3 < often < 0.99
    apart = [
        _snapshot(i, {"a": (500, 1000 * draw.lognormal(0, 0.2), 1), "b": (500, 5000.0, 1)}, 500) for i in range(30)
    ]
    assert needs(topology, apart).bottleneck == ("a", 1.0)


def _snapshot(i, operators, offered, *, window_s=10.0, execution="pipelined", backlog=0.0, edges=None, **more):
    """(records/s, true rate, instances) by operator, in a row."""
    names = list(operators)
    metrics = {
        n: OperatorMetrics(r, r, r, v, min(1.0, r / (v * k)) if v else 0.0, backlog, k)
        for n, (r, v, k) in operators.items()
    }
    rates = {(a, b): operators[a][0] for a, b in zip(names, names[1:], strict=False)} if edges is None else edges
    return Snapshot(
        t=window_s * (i + 1), window_s=window_s, deployment=Deployment({n: k for n, (_, _, k) in operators.items()}),
        operators=metrics, source_rates={names[0]: offered}, throughput=operators[names[0]][0],
        latency=None, event_latency=None, lag=0, edge_rates=rates, execution=execution, **more,
    )  # fmt: skip


def _history(snapshots, topology=None, **about):
    topology = topology or Topology.chain(*snapshots[0].deployment.parallelism)
    return History(topology, [Step(i, s, None) for i, s in enumerate(snapshots)], about)


BUSY = {"src": (500.0, 5000.0, 1), "work": (500.0, 250.0, 2)}


def test_by_hand():
    """700 offered, 250 each: work needs 2.8, so 3; Flink's (700/0.7 + 700/6)/500 * 2 = 4.47, so 5; load 1.4."""
    advice = advise(_history([_snapshot(i, BUSY, 700.0) for i in range(12)]), policies=["ds2", "flink_autoscaler"])
    assert advice.bottleneck == "work"
    assert advice["ds2"].says == "work 2 → 3"
    assert advice["flink_autoscaler"].deployment.parallelism == {"src": 1, "work": 5}
    assert advice.needs.load("work").value == pytest.approx(1.4)
    assert advice.after["ds2"].whole.value == pytest.approx(2.8 / 3)
    row = advice.parallelism.set_index("operator").loc["work"]
    assert (row.now, row.least, row.most, row.who) == (2, 3, 5, "3: ds2; 5: flink_autoscaler")
    assert advice.parallelism.set_index("operator").loc["src"].who == "all 1"
    assert advice.choice == "ds2"
    assert "work is the bottleneck, for sure" in advice.sentences[0]
    assert "3: ds2; 5: flink_autoscaler" in advice.told
    assert advice["ds2"].agree == 1.0
    etp = advice.operators.set_index("operator").etp
    assert (etp.src, etp.work) == (0.0, 1.0)  # the source feeds a congested operator


def test_stages_that_take_turns_share_the_time():
    """Each alone could do it; together they need 0.5 + 0.7 of the time."""
    stages = {"map": (500.0, 1000.0, 1), "reduce": (500.0, 500 / 0.7, 1)}
    told = [_snapshot(i, stages, 500.0, execution="micro-batch") for i in range(12)]
    advice = advise(_history(told), policies=["static", "ds2"])
    assert advice.needs.whole().value == pytest.approx(1.2)
    assert advice.after["static"].keeps_up is False
    assert "takes most of the time" in advice.sentences[0]


def test_only_windows_of_the_last_deployment_and_load_count():
    old = [_snapshot(i, {"src": (100.0, 5000.0, 1), "work": (100.0, 250.0, 1)}, 100.0) for i in range(5)]
    low = [_snapshot(5 + i, {"src": (100.0, 5000.0, 1), "work": (100.0, 250.0, 2)}, 100.0) for i in range(6)]
    now = [_snapshot(11 + i, BUSY, 700.0 + 20 * (i % 3)) for i in range(8)]
    still = replace(_snapshot(19, BUSY, 700.0), downtime_s=3.0)
    mute = replace(_snapshot(20, BUSY, 700.0), operators={})
    found = evidence(_history([*old, *low, *now, still, mute]))
    assert found.windows == tuple(now)
    assert dict(found.left_out) == {
        "paused": 1, "without metrics": 1, "at another deployment": 5, "at another load": 6,
    }  # fmt: skip
    assert "8 windows, 80 s together" in found.sentence


def test_latencies_that_the_plant_cannot_explain_are_not_predicted():
    late = dspkit.Latency(3.0, 3.0, 4.0, 5.0)
    fine = {"src": (500.0, 5000.0, 1), "work": (500.0, 1000.0, 2)}
    windows = [replace(_snapshot(i, fine, 500.0), latency=late if i < 30 else None) for i in range(30)]
    advice = advise(_history(windows), policies=["ds2"])
    if advice.outlook.believed:  # what is unexplained may be the way between operators
        assert advice.outlook.after(windows[-1].deployment).latency_s == pytest.approx(3.0, rel=0.5)
    silent = advise(_history([_snapshot(i, fine, 500.0) for i in range(30)]), policies=["ds2"])
    assert silent.after["ds2"].latency_s > 1 / 5000 + 1 / 1000  # service alone, and some waiting
    assert "no latency was measured" in silent.outlook.note


def test_what_a_policy_lacks_stands_in_its_row():
    advice = advise(_history([_snapshot(i, BUSY, 700.0) for i in range(12)]))
    rows = advice.policies.set_index("policy")
    assert "latency to meet" in rows.note.drs
    assert "CPU" in rows.note.elysium
    assert "machines" in rows.note.stela
    assert advice["drs"].says == "no recommendation"
    assert "No recommendation from drs, elysium, stela" in " ".join(advice.sentences)


def test_a_policy_that_breaks_costs_nobody_elses_advice():
    class Broken:
        name = "broken"

        def init(self, topology, seed=0):
            return None

        def step(self, state, snapshot):
            return 1 / 0

    advice = advise(_history([_snapshot(i, BUSY, 700.0) for i in range(12)]), policies=[DS2(), Broken()])
    assert advice["broken"].note == "ZeroDivisionError: division by zero"
    assert advice.choice == "ds2"


def test_one_window_is_not_enough_to_be_sure():
    advice = advise(_history([_snapshot(0, BUSY, 700.0)]), policies=["ds2"])
    assert advice.bottleneck == "work"
    assert advice.needs.load("work").low is None
    assert advice["ds2"].agree is None
    assert "too little to estimate its certainty" in " ".join(advice.sentences)


def test_an_operator_without_meters_is_told_and_nothing_is_claimed_of_the_job():
    chain = Topology.chain("src", "work", "end")
    windows = []
    for i in range(12):
        seen = _snapshot(i, {**BUSY, "end": (500.0, 900.0, 1)}, 700.0)
        windows.append(replace(seen, operators={n: m for n, m in seen.operators.items() if n != "end"}))
    advice = advise(_history(windows, chain), policies=["ds2"])
    assert advice.needs.unknown == ["end"]
    assert "Cannot estimate the parallelism of end" in " ".join(advice.sentences)
    assert advice.choice is None
    assert advice.after["ds2"].keeps_up is None
    assert advice["ds2"].deployment.parallelism == {"src": 1, "work": 3, "end": 1}
    assert "unknown" in advice._repr_html_()


def test_an_idle_job_and_one_that_does_nothing():
    idle = {"src": (0.0, None, 1), "work": (0.0, None, 3)}
    advice = advise(_history([_snapshot(i, idle, 0.0) for i in range(12)]))
    assert advice.bottleneck is None
    assert advice.choice is None
    assert advice.sentences[0].startswith("There is no input")
    stuck = advise(_history([_snapshot(i, idle, 500.0) for i in range(12)]), policies=["ds2"])
    assert stuck.sentences[0] == "The bottleneck is unknown."
    assert stuck["ds2"].deployment is None
    assert stuck["ds2"].note.startswith("lacks: no data")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (lambda: advise("metrics.csv"), MetricError),
        (lambda: advise(History(TREE)), MetricError),
        (lambda: advise(_history([replace(_snapshot(0, BUSY, 1.0), operators={})])), MetricError),
        (lambda: advise(_history([replace(_snapshot(0, BUSY, 1.0), downtime_s=10.0)])), MetricError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), target_latency_s=0), ArgumentError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), target_latency_s="fast"), ArgumentError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), engine="heron"), ArgumentError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), policies=[DS2]), ArgumentError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), policies=[]), ArgumentError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), policies=["ds3"]), NotFoundError),
        (lambda: advise(_history([_snapshot(0, BUSY, 1.0)]), policies="ds2")["drs"], NotFoundError),
    ],
)
def test_what_makes_no_sense_is_refused(given, expected):
    with pytest.raises(expected):
        given()


@given(history=histories())
@settings(max_examples=30, phases=[Phase.reuse, Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
def test_any_recording_is_answered_or_refused_in_words(history):
    try:
        advice = advise(history, policies=["ds2", "flink_autoscaler"])
    except DspkitError:
        return
    assert advice._repr_html_()
    assert all(len(frame) for frame in (advice.operators, advice.parallelism, advice.policies))


class Loader:
    """As the loaders are: an object with .history() and .problems."""

    @property
    def problems(self):
        return {"clock stepped back": 2}

    def history(self):
        return _history([_snapshot(i, BUSY, 700.0) for i in range(12)], loader="FlinkRest", source="job")


def test_a_target_that_nobody_meets_is_no_want_of_capacity():
    data = [
        {"t": 10.0 * i, "operator": n, "processing_rate": 90.0, "utilisation": 0.5, "parallelism": 1}
        for i in range(1, 7) for n in ("read", "work")
    ]  # fmt: skip
    advice = advise(
        loaders.Table(pd.DataFrame(data), topology=["read", "work"]), policies=["ds2"], target_latency_s=1e-6
    )
    assert advice.after["ds2"].keeps_up
    assert advice.choice is None
    told = " ".join(advice.sentences)
    assert "No recommendation that keeps up is predicted to meet the target: the lowest is " in told
    assert "is known to keep up" not in told


def test_a_backlog_that_nobody_measured_is_no_empty_queue():
    data = [
        {"t": 10.0 * i, "operator": n, "processing_rate": 90.0, "utilisation": 0.5, "parallelism": 1, "backlog": queue}
        for i in range(1, 7) for n, queue in (("read", 40.0), ("work", None))
    ]  # fmt: skip
    frame = pd.DataFrame(data)
    for loaded, waiting, said in (
        (frame, ["40", "unknown"], "measured at work: policies"),
        (frame.drop(columns="backlog"), ["unknown", "unknown"], "measured: policies"),
        (frame.fillna(0.0), ["40", "0"], None),
    ):
        advice = advise(loaders.Table(loaded, topology=["read", "work"]), policies=["ds2"])
        assert list(tables.read_operators(advice)["waiting"]) == waiting
        told = [s for s in advice.sentences if "The backlog was not measured" in s]
        assert len(told) == (said is not None)
        assert all(said in s for s in told)


def test_a_loader_is_read_and_its_problems_are_told():
    advice = advise(Loader(), policies="ds2")
    assert advice.engine == "flink"
    assert "Dropped while loading: 2 x clock stepped back." in advice.sentences


def test_settings_name_what_the_engine_calls_it():
    chain = Topology.chain("src", "work")
    now, then = Deployment({"src": 1, "work": 2}), Deployment({"src": 1, "work": 5}, workers=3)
    ids = {"src": "a" * 32, "work": "b" * 32}
    flink = to_change(chain, now, then, "flink", vertices=ids)
    assert flink.code == f'pipeline.jobvertex-parallelism-overrides: "{"a" * 32}:1,{"b" * 32}:5"'
    assert "<id of work>:5" in to_change(chain, now, then, "flink").code
    assert to_change(chain, now, then, "storm").code == "storm rebalance TOPOLOGY -n 3 -e work=5"
    spark = str(to_change(chain, now, then, "spark"))
    assert "spark.sql.shuffle.partitions  5" in spark
    assert "6 slots" in spark
    assert "5 slots" in str(to_change(chain, now, then, "spark", execution="micro-batch"))
    assert "parallelism={'src': 1, 'work': 5}, workers=3" in to_change(chain, now, then, "dspkit").code


HOSTILE = "<script>alert(1)</script>"


def test_names_from_data_run_nowhere(tmp_path):
    evil = "x'; rm -rf /\nreboot"
    operators = {evil: (500.0, 600.0, 1), HOSTILE: (500.0, 250.0, 2)}
    history = _history([_snapshot(i, operators, 700.0) for i in range(12)], source=HOSTILE)
    for engine in ("flink", "spark", "storm", "dspkit"):
        advice = advise(history, policies=["ds2"], engine=engine)
        assert HOSTILE in advice.sentences[0]
        assert HOSTILE not in advice._repr_html_()
        for plot in advice.figures:
            drawn = {k: v for k, v in plot.spec["layout"].items() if k != "meta"}
            assert HOSTILE not in f"{plot.spec['data']}{drawn}"
        if engine != "storm":  # where it stands within quotes
            assert not any(line.startswith("reboot") for line in str(advice.settings()).splitlines())
        page = advice.report(tmp_path / f"{engine}.html").read_text("utf-8")
        assert HOSTILE not in page
    storm = advise(history, policies=["ds2"], engine="storm").settings().code
    assert shlex.split(storm) == ["storm", "rebalance", "TOPOLOGY", "-e", f"{evil}=2", "-e", f"{HOSTILE}=3"]


def test_the_report_holds_the_answer_the_tables_and_the_references(tmp_path):
    advice = advise(Loader(), target_latency_s=1.0)
    text = advice.report(tmp_path / "advice.html").read_text("utf-8")
    for part in ("The answer", "Recommendations", "Reasons", "What to change", "pipeline.jobvertex",
                 "clock stepped back", "Flink Kubernetes Operator", "Three steps is all you need"):  # fmt: skip
        assert part in text, part
    with pytest.raises(DspkitError, match="exists"):
        advice.report(tmp_path / "advice.html")


def test_figures_show_what_the_tables_say():
    advice = advise(_history([_snapshot(i, BUSY, 700.0) for i in range(12)]), policies=["ds2", "flink_autoscaler"])
    loads, recommended = advice.figures
    assert loads.spec["data"][0]["x"] == pytest.approx([0.14, 1.4])
    assert loads.summary == advice.sentences[0]
    said = {t["name"]: t["x"] for t in recommended.spec["data"] if t.get("mode") == "markers"}
    assert said == {"now": [1, 2], "ds2": [1, 3], "flink_autoscaler": [1, 5]}
    assert recommended.summary == advice.told
    recommended.figure, loads.figure  # noqa: B018  (plotly accepts both)


def test_recorded_answers_of_engines_are_advised_in_the_engines_own_words():
    """Flink: `work` is asked for 80 % of what four can do (tests/data/loaders); Storm: its spout is not metered."""
    data = Path(__file__).parents[1] / "data" / "loaders"
    flink = advise(loaders.FlinkRest(data / "flink"))
    assert flink.bottleneck == "work"
    assert flink.needs.load("work").value == pytest.approx(0.8, rel=0.02)
    assert re.search(r'overrides: "[0-9a-f]{32}:1,[0-9a-f]{32}:4,[0-9a-f]{32}:1"', flink.settings("ds2").code)
    storm = advise(loaders.StormUI(data / "storm"))
    assert storm.needs.unmetered == ("spout",)
    assert storm.bottleneck in ("split", "count")
    said = storm["ds2"].deployment.parallelism
    assert said["spout"] == storm.needs.parallelism["spout"]
    work = {n: storm.needs.draws[n][0] for n in ("split", "count")}
    assert {n: said[n] for n in work} == {n: max(1, math.ceil(w - 1e-9)) for n, w in work.items()}
    assert "The utilisation of spout is not measured" in " ".join(storm.sentences)
    assert storm.settings("ds2").code.startswith("storm rebalance TOPOLOGY -e ")


def test_an_external_server_that_takes_less_than_is_asked_for_is_told():
    """It takes 1,000 calls/s of the 1,500 that come, as four runs show, and no number of instances helps."""
    topology = Topology.chain("src", "call")
    plant = Plant({"src": Service(1e-5), "call": Service(1e-3, external_rate_limit_per_s=1000)}, pause_s=0)
    history = History(topology)
    for i, k in enumerate((1, 2, 3, 6)):
        for step in _recorded(plant, 1500, {"src": 1, "call": k}, 12, topology=topology):
            history.append(Step(len(history), replace(step.snapshot, t=step.snapshot.t + 120 * i), None))
    advice = advise(history, policies=["ds2", "flink_autoscaler"])
    assert advice.bottleneck == "call"
    assert all(after.keeps_up is False for after in advice.after.values())
    assert "call calls a server that is limited to" in advice.policies.note[0]
    assert advice.choice is None
    assert "No recommendation is known to keep up with the load: call calls a server" in " ".join(advice.sentences)
