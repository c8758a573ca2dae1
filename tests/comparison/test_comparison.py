"""Comparisons: the same rows whoever plays them, sweeps that go on, runs that fail, and honest intervals."""

import functools
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import dspkit
from dspkit import Decision, History, Step, Topology, apps, compare, plots, workload
from dspkit import workload as data
from dspkit.comparison import (
    KEYS,
    Rules,
    difference,
    interval,
    oracle,
    ranking,
    runs,
    standard_loads,
    standard_policies,
    statistics,
    win_tie_loss,
)
from dspkit.comparison.cases import runs_of, seeded
from dspkit.comparison.result_cache import ResultCache, fingerprint
from dspkit.comparison.standard_loads import Recorded
from dspkit.comparison.standard_policies import earlier
from dspkit.core import ArgumentError, DspkitError, MetricError, NotFoundError
from dspkit.policies.ds2 import DS2
from dspkit.policies.hpa import HPA
from dspkit.policies.static import Static
from dspkit.simulator import Plant, Service

APP = apps.rolling_top_words()
SMALL = dict(apps=APP, duration_s=120.0, processes=0)
LOADS = {"square": workload.Square(100, 450, 60), "bursts": workload.Bursts(100, 450, 60, 20)}


@dataclass(frozen=True)
class Breaks:
    """Fails in its third window; or takes its process along."""

    hard: bool = False
    name = "breaks"

    def init(self, topology, seed=0):
        return 0

    def step(self, state, snapshot):
        if state == 2 and self.hard:
            os._exit(7)
        if state == 2:
            raise RuntimeError("no <b>idea</b>")
        return state + 1, Decision(snapshot.deployment)


def test_one_row_a_run_with_every_score():
    table = compare({"ds2": DS2(), "hpa": HPA()}, LOADS, seeds=[0, 3], **SMALL)
    assert table[list(KEYS)].values.tolist() == [
        [p, load, "rolling_top_words", "own", s] for load in LOADS for s in (0, 3) for p in ("ds2", "hpa")
    ]
    assert not table.isna().any(axis=None)
    assert (table.error == "").all()
    assert (table.regret == table.cost - table.oracle).all()
    assert (table.regret >= 0).all()
    share = table.cost - table.instance_seconds
    peak = 10.0  # instances at 450 records/s: 8037/s need 4 filters, 5465/s 2 counters, the others one
    assert np.allclose(share, table.late_s * peak)
    assert np.allclose(table.late_share, table.late_s / 120)


def test_processes_play_what_this_process_plays_bit_for_bit():
    policies = {"ds2": DS2(), "hpa": HPA(), "breaks": Breaks()}
    alone = compare(policies, LOADS, seeds=range(2), **SMALL)
    assert_frame_equal(compare(policies, LOADS, seeds=range(2), **SMALL | {"processes": 2}), alone, check_exact=True)


def test_a_run_that_fails_is_a_row_and_one_that_dies_too():
    policies = {"dies": Breaks(hard=True), "breaks": Breaks(), "ds2": DS2(), "makes none": lambda case: 1 / 0}
    table = compare(policies, LOADS, seeds=range(2), **SMALL | {"processes": 2}).set_index("policy")
    assert table.error["dies"].unique().tolist() == ["its process ended with code 7"]
    said = "RuntimeError: no <b>idea</b> in step() of policy 'breaks'"
    assert table.error["breaks"].str.startswith(said).all()
    assert "ZeroDivisionError" in table.error["makes none"].iloc[0]
    assert (table.error["ds2"] == "").all()
    assert table.cost["ds2"].notna().all()
    assert table.cost[["dies", "breaks", "makes none"]].isna().all()
    order = ranking(table.reset_index())
    assert order.policy.iloc[0] == "ds2"
    assert order.failed.tolist() == [0, 4, 4, 4]
    assert order.runs.tolist() == [4, 0, 0, 0]


def test_a_folder_keeps_rows_and_knows_a_changed_question(tmp_path, monkeypatch):
    played = []
    real = runs.ComparisonRun.row
    monkeypatch.setattr(runs.ComparisonRun, "row", lambda run: played.append(run.names) or real(run))
    ask = dict(SMALL, folder=tmp_path, seeds=[0])
    first = compare({"ds2": DS2(), "breaks": Breaks()}, LOADS, **ask)
    assert len(played) == 6
    again = compare({"ds2": DS2(), "breaks": Breaks()}, LOADS, **ask)
    assert len(played) == 8
    assert {n[0] for n in played[6:]} == {"breaks"}
    assert_frame_equal(first, again, check_exact=True)
    played.clear()
    more = compare({"mine": DS2(), "hpa": HPA()}, LOADS, **ask)  # another name for the same
    assert {n[0] for n in played} == {"hpa"}
    assert (more.set_index("policy").cost["mine"].values == first.cost[first.policy == "ds2"].values).all()
    for change in (dict(target_latency_s=2.0), dict(duration_s=130.0), dict(seeds=[1])):
        played.clear()
        compare({"ds2": DS2()}, LOADS, **{**ask, **change})
        assert "ds2" in {n[0] for n in played}, change
    played.clear()
    compare({"ds2": DS2(warm_up_windows=1)}, LOADS, **ask)
    assert len(played) == 2
    assert len(list(tmp_path.glob("*.parquet"))) == 1
    assert not list(tmp_path.glob(".dspkit-*"))


def test_a_folder_that_two_sweeps_share_loses_no_rows(tmp_path):
    """One ends while the other is under way: what that one has written so far stays."""
    row = {**dict(zip(KEYS, ("p", "l", "j", "own", 0), strict=True)), "cost": 1.0, "error": ""}
    one, other = ResultCache(tmp_path), ResultCache(tmp_path)
    for sweep, keys in ((one, "ab"), (other, "cd")):
        for key in keys:
            sweep.add(key, row)
            sweep.save()
    one.together()
    assert sorted(ResultCache(tmp_path).rows) == ["a", "b", "c", "d"]


SWEEP = """
import sys, time
from dspkit import apps, compare, workload
from dspkit.policies.ds2 import DS2
from dspkit.comparison import result_cache
result_cache.EVERY_S = 0.0
class Slow:
    name = "slow"
    def init(self, topology, seed=0): return DS2().init(topology, seed)
    def step(self, state, snapshot):
        time.sleep(0.01)
        return DS2().step(state, snapshot)
loads = {"square": workload.Square(100, 450, 60)}
print("begins", flush=True)
t = compare({"slow": Slow()}, loads, apps.rolling_top_words(), seeds=range(24), duration_s=240,
            processes=2, folder=sys.argv[1])
print(len(t), t.cost.sum().hex(), t.duplicated(["policy", "seed"]).any(), t.error.unique().tolist(), flush=True)
"""


def _children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(true, limit_s=120.0):
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_is_stopped_leaves_nobody_behind_and_goes_on(tmp_path, how):
    script, folder = tmp_path / "sweep.py", tmp_path / "rows"
    script.write_text(SWEEP)
    command = [sys.executable, str(script), str(folder)]
    hears = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)  # also below a shell's `&`
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=hears)  # noqa: PLW1509
    _until(lambda: len(list(folder.glob("rows-*.parquet"))) >= 3)
    workers = _children(sweep.pid)
    assert len(workers) == 2
    sweep.send_signal(how)
    sweep.wait(120)
    sweep.stdout.close()
    _until(lambda: not any(map(_alive, workers)))
    done = pd.concat([pd.read_parquet(p) for p in folder.glob("rows-*.parquet")])
    assert 0 < len(done) < 25
    assert not done.run.duplicated().any()
    rest = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.split("\n")[1]
    whole = subprocess.run(
        [*command[:2], str(tmp_path / "new")], capture_output=True, text=True, check=True, timeout=300
    )
    assert rest == whole.stdout.split("\n")[1]
    assert rest.startswith("24 ")
    assert rest.endswith("False ['']")
    assert len(pd.read_parquet(folder)) == 48  # the oracle of each seed too


@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_cluster_plays_the_same_though_a_worker_dies(monkeypatch):
    from dspkit.comparison import executors as engines
    from dspkit.spark import SparkCluster

    # a class of this module would not be known to the workers
    policies, seeds = {"ds2": DS2(), "hpa": HPA(), "breaks": Static(parallelism={"typo": 2})}, range(12)
    alone = compare(policies, LOADS, seeds=seeds, **SMALL)
    assert set(alone.error[alone.policy == "breaks"]) != {""}
    played, killed = engines.over_spark, []
    with SparkCluster.local(2, 1) as cluster:
        spark = cluster.start("batch")

        def counted(open_, session):
            for count, pair in enumerate(played(open_, session)):
                if count == len(open_) // 2:
                    daemon = cluster._workers[cluster.workers[0]]
                    os.kill(daemon.process.pid, signal.SIGKILL)
                    killed.append(daemon.name)
                yield pair

        monkeypatch.setattr(engines, "over_spark", counted)
        table = compare(policies, LOADS, apps=APP, duration_s=120.0, seeds=seeds, spark=spark)
    assert len(killed) == 1
    assert_frame_equal(table, alone, check_exact=True)


def test_fingerprints_tell_all_that_matters_and_nothing_else():
    def of(policy, load=None, app=APP, seed=0, **rules):
        return fingerprint(runs_of({"p": policy}, {"l": load or LOADS["square"]}, app, None, [seed], Rules(**rules))[1])

    base = of(DS2())
    assert base == of(DS2()) == of(lambda case: DS2())
    slower = replace(APP, plant=replace(APP.plant, pause_s=7.0))
    others = [of(DS2(activation=2)), of(DS2(), workload.Square(100, 450, 61)), of(DS2(), app=slower),
              of(DS2(), seed=1), of(DS2(), window_s=5.0), of(DS2(), penalty=3.0), of(Static())]  # fmt: skip
    assert len({base, *others}) == len(others) + 1
    text = "class Mine:\n def init(self, t, seed=0): return None\n def step(self, s, n): return s, {}\n name = 'mine'"
    made = []
    for value in ("1", "1", "2"):
        space = {"__name__": "cell"}
        exec(compile(text.format(value), "cell", "exec"), space)
        made.append(of(space["Mine"]()))
    assert made[0] == made[1] != made[2]  # the code of a notebook's own class counts


def test_seeds_move_every_random_shape_on():
    load = workload.Bursts(seed=3) * 2 + workload.PoissonModulated(seed=1) + 5
    assert seeded(load, APP, 4) == workload.Bursts(seed=7) * 2 + workload.PoissonModulated(seed=5) + 5
    assert seeded(LOADS["square"], APP, 9) is LOADS["square"]
    for name, shape in standard_loads(600.0).items():
        rates = [shape(APP, s).rates(np.arange(0.5, 600)) for s in (0, 0, 1)]
        assert (rates[0] == rates[1]).all()
        assert rates[0].min() >= 0
        assert rates[0].max() <= 480 + 1e-9
        assert (rates[0] == rates[2]).all() == (name not in ("bursts", "poisson", "day"))


def test_recorded_loads_are_compared_by_name():
    """Two days of flights as high as the job's own load: other ones for each seed, by the trace's own clock."""
    loads = standard_loads(120.0, only=["flights_2013"])
    assert loads == {"flights_2013": Recorded("flights_2013", 120.0)}
    table = compare({"ds2": DS2(), "hpa": HPA()}, loads, seeds=[0, 1], **SMALL)
    assert (table.error == "").all()
    assert (table.regret >= 0).all()
    assert table.load.unique().tolist() == ["flights_2013"]
    load, other = (loads["flights_2013"](APP, seed) for seed in (0, 1))
    assert load != other
    assert [max(one.rates_per_s) for one in (load, other)] == pytest.approx([480, 480])
    stretch = data.load("flights_2013").between(2 * 86_400 * 91, 2 * 86_400 * 92)  # the year has 182 of two days
    shares = stretch.resampled(900).counts / stretch.total
    assert np.array(load.rates_per_s) / sum(load.rates_per_s) == pytest.approx(shares)
    with pytest.raises(ArgumentError, match="flights_2013"):
        standard_loads(only=["typo"])


@pytest.mark.parametrize("name", ["day", "bursts", "flights_2013"])
def test_what_a_policy_learns_from_is_never_the_load_it_is_judged_by(name):
    cases = []
    maker = standard_loads(600.0, only=[name])
    runs_of({"p": lambda case: cases.append(case) or Static()}, maker, APP, None, [0, 7], Rules(600.0))
    for case in cases:
        (past,) = earlier(case).values()
        own = case.workload.rates(np.arange(2.5, 600, 5.0)).reshape(-1, 12).mean(axis=1)
        days = np.array(past).reshape(-1, 10)
        assert len(days) == 4
        assert all(np.abs(day - own).max() > 1 for day in days)


STEADY = {
    "trace": lambda: workload.Trace(range(0, 600, 30), np.random.default_rng(1).uniform(50, 400, 20)),
    "function": lambda: lambda app, seed: workload.Trace(range(0, 540, 30), range(50, 410, 20)),
    "louder with the seed": lambda: (
        lambda app, seed: workload.Trace(range(0, 540, 30), range(50, 410, 20)) * (1 + seed / 1e6)
    ),
    "sine": lambda: workload.Sine(200, 100, 300.0),
    "sources": lambda: {"source": workload.Stair(100.0, 50.0, 120.0)},
}


@pytest.mark.parametrize("load", STEADY)
def test_a_load_without_other_days_teaches_nothing(load):
    cases = []
    runs_of({"p": lambda case: cases.append(case) or Static()}, {"l": STEADY[load]()}, APP, None, [0, 3], Rules(600.0))
    assert [earlier(case) for case in cases] == [{}, {}]


def _noted(made, name, maker, case):
    made[name] = maker(case) if callable(maker) else maker
    return Static()


def test_no_policy_knows_the_future_of_its_run():
    """Loads that are alike for half of the run and different then: all policies and their starts are the same.

    Whatever they decide, they decide by what they observe. Only the static yardsticks know the run's peak.
    """
    calm, wild = ((120.0, 150.0, 90.0, *rest) for rest in ((100.0, 110.0, 100.0), (400.0, 40.0, 390.0)))
    for shape in (
        lambda r: workload.Trace(range(0, 600, 100), r),
        lambda r: lambda app, seed: workload.Trace(range(0, 600, 100), r),
    ):
        seen = {calm: {}, wild: {}}
        for future, made in seen.items():
            makers = {
                name: lambda case, name=name, maker=maker, made=made: _noted(made, name, maker, case)
                for name, maker in standard_policies().items()
            }
            runs_of(makers, {"l": shape(future)}, APP, None, [1], Rules(600.0))
        for name in standard_policies():
            same = seen[calm][name] == seen[wild][name]
            assert same or name.startswith("static"), name


def test_topologies_with_plants_of_their_own():
    chain = Topology.chain("a", "b")
    slow = Plant({"a": Service(1e-3), "b": Service(5e-3)}, pause_s=5)
    table = compare([Static(), "ds2"], workload.Constant(300), {"x": chain}, {"x": {"slow": slow, "fast": replace(
        slow, pause_s=0.0)}}, [0], target_latency_s=1.0, duration_s=60, processes=0)  # fmt: skip
    assert table[["policy", "load", "job", "plant"]].values.tolist() == [
        [p, "constant", "x", v] for v in ("slow", "fast") for p in ("static", "ds2")
    ]
    assert (table.late_share == 0).all()
    assert (table.instance_seconds == 60 * 3).all()


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (dict(policies={}), "policy"), (dict(policies=["typo"]), "one of"), (dict(policies={"a": DS2}), "made"),
        (dict(policies={"oracle": DS2()}), "oracle"), (dict(policies=[DS2(), DS2()]), "one name"),
        (dict(apps=None), "App"), (dict(apps=Topology.chain("a", "b")), "plant"),
        (dict(seeds=[]), "seeds"), (dict(seeds=[-1]), "seeds"), (dict(workloads={"x": 3}), "load"),
        (dict(duration_s=0), "duration_s=0"), (dict(window_s=500.0), "window_s"), (dict(penalty=-1), "penalty"),
        (dict(duration=60), "rule 'duration'.*duration_s"), (dict(duration_s=125.0), "whole windows"),
        (dict(seeds=None), "seeds"), (dict(seeds=3.5), "seeds"), (dict(folder=3), "a path"),
        (dict(processes=-1), "processes"), (dict(spark=3), "SparkSession"), (dict(change_cost=None), "change_cost"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_before_anything_runs(bad, says):
    with pytest.raises(DspkitError, match=says):
        compare(**{"policies": [DS2()], "workloads": LOADS, "seeds": [0], **SMALL, **bad})


def test_lateness_is_told_from_curves_and_from_measured_latency():
    """120 records/s come, 100/s are done: after t seconds the oldest waits t/6."""
    sim = dspkit.Simulator(Topology.chain("a"), Plant({"a": Service(0.01)}), workload.Constant(120))
    history = dspkit.run(Static(), sim, steps=6)
    late, delays = runs.lateness(history, 5.5)
    assert delays == pytest.approx([10 * w / 6 for w in range(1, 7)], rel=1e-3)
    assert late == [False] * 3 + [True] * 3
    calm = History(history.topology, [replace_step(s) for s in history])
    assert runs.lateness(calm, 5.5)[0] == [True] * 6  # nothing came out


def replace_step(step):
    return Step(step.index, replace(step.snapshot, throughput=0.0, latency=None, event_latency=None), None)


def test_oscillations_count_turns_back():
    counts = [1, 2, 3, 2, 2, 4, 4, 1]
    steps = []
    sim = dspkit.Simulator(Topology.chain("a", max_parallelism=9), Plant({"a": Service(0.001)}), workload.Constant(1))
    for i, k in enumerate(counts):
        sim.deploy(sim.deployment.scaled({"a": k}))
        steps.append(Step(i, sim.observe(), None))
    assert runs.turns(History(sim.topology, steps)) == 3


def _table(values, names=("a", "b", "c")):
    """values[load][seed][policy]"""
    rows = [
        (p, f"load {i}", "job", "own", s, float(x), "")
        for i, load in enumerate(values)
        for s, seed in enumerate(load)
        for p, x in zip(names, seed, strict=True)
    ]
    return pd.DataFrame(rows, columns=[*KEYS, "cost", "error"])


DRAWN = {
    "normal": lambda random, shape: random.normal(size=shape),
    "exponential": lambda random, shape: random.exponential(size=shape) - 1,
    "lognormal": lambda random, shape: random.lognormal(size=shape) - np.exp(0.5),
}


@pytest.mark.parametrize("shape", DRAWN)
@pytest.mark.parametrize("n", [8, *(pytest.param(n, marks=pytest.mark.slow) for n in (9, 10, 12, 15, 20, 30, 40))])
def test_intervals_cover_a_known_mean_at_their_rate(n, shape):
    """95 %, give or take 2 % and three standard deviations of the count, 0.9 %. Fewer than 8 values have none."""
    samples, parts = 5000, 5
    drawn = DRAWN[shape](np.random.default_rng(n), (n, samples))
    covered = []
    for i, values in enumerate(np.split(drawn, parts, axis=1)):
        low, high = statistics._Resample(np.zeros(n, dtype=int), 0.95, 2000, i).interval(values)
        covered.append((low <= 0) & (high >= 0))
    assert abs(np.mean(covered) - 0.95) <= 0.02 + 3 * math.sqrt(0.95 * 0.05 / samples)


def test_an_interval_is_that_of_a_table_with_one_policy():
    values = np.random.default_rng(3).lognormal(size=9)
    low, high = statistics._Resample(np.zeros(9, dtype=int), 0.95, 2000, 0).interval(values[:, None])
    assert interval(values) == (low[0], high[0])


@pytest.mark.parametrize(("loads", "seeds"), [(2, 5), (3, 8), (8, 2), (8, 20)])
def test_paired_differences_of_a_few_loads_cover_at_their_rate(loads, seeds):
    random, samples, covered = np.random.default_rng([loads, seeds]), 250, 0
    for i in range(samples):
        cells = random.normal(0, 30, (loads, 1, 1)) + random.normal(size=(loads, seeds, 2)) * [0.0, 1.0]
        _, low, high = difference(_table(cells, names="ab"), "b", "a", resamples=600, seed=i)
        covered += low <= 0 <= high
    assert abs(covered / samples - 0.95) <= 0.02 + 3 * math.sqrt(0.95 * 0.05 / samples)


@pytest.mark.parametrize("n", range(1, 8))
def test_fewer_values_than_eight_have_no_interval(n):
    assert np.isnan(interval(np.arange(n) + 0.5)).all()
    order = ranking(_table(np.random.default_rng(n).normal(size=(1, n, 3)) + [0.0, 50.0, 100.0]))
    assert order[["low", "high", "over_low", "over_high"]].isna().all(axis=None)
    assert order[["rank_low", "rank_high"]].to_numpy().tolist() == [[1, 3]] * 3  # nothing is known of ranks


def test_ranks_of_equal_policies_err_together_no_more_often_than_stated():
    """Six policies of one mean: any rank away from 1 to 6 is an error; 5 % of tables may have one."""
    random, samples = np.random.default_rng(6), 200
    wrong = 0
    for i in range(samples):
        order = ranking(_table(random.exponential(size=(1, 12, 6)), names="abcdef"), resamples=500, seed=i)
        wrong += not ((order.rank_low == 1) & (order.rank_high == 6)).all()
    assert wrong / samples <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / samples)


def test_ranks_err_no_more_often_where_some_policies_are_equal_and_still_separate_the_others():
    """Three of mean 0 and three of mean 3: none may be placed among the others, and most are separated."""
    random, samples = np.random.default_rng(7), 100
    wrong = apart = 0
    for i in range(samples):
        values = random.exponential(size=(1, 12, 6)) + [0.0, 0.0, 0.0, 3.0, 3.0, 3.0]
        order = ranking(_table(values, names="abcdef"), resamples=500, seed=i).set_index("policy")
        few, many = order.loc[list("abc")], order.loc[list("def")]
        right = (few.rank_low <= 1) & (few.rank_high >= 3)
        wrong += not (right.all() and (many.rank_low <= 4).all() and (many.rank_high >= 6).all())
        apart += int((few.rank_high <= 3).sum())
    assert wrong / samples <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / samples)
    assert apart > 2 * samples  # of three in each


def test_pairs_tell_apart_what_means_do_not():
    """b costs 1 more than a in every case; between cases costs differ by hundreds."""
    random = np.random.default_rng(0)
    base = random.normal(500, 200, (3, 10, 1))
    table = _table(base + np.array([0.0, 1.0, 5.0]) + random.normal(0, 0.2, (3, 10, 3)))
    mean, low, high = difference(table, "b", "a")
    assert low < 1 < high
    assert high - low < 0.6
    order = ranking(table)
    assert order.policy.tolist() == ["a", "b", "c"]
    assert (order["rank"] == order.rank_low).all()
    assert (order.high - order.low).min() > 50  # means alone say nothing
    assert order.over_best[1] == pytest.approx(mean)
    assert order.over_low[1] == pytest.approx(low)
    assert order.over_low[0] == order.over_high[0] == 0.0
    one = _table(base[:, :1] + np.array([0.0, 1.0, 5.0]))
    assert ranking(one).low.isna().all()  # a single seed tells nothing of others


def test_wins_ties_and_losses_add_up_and_mirror():
    table = _table(np.random.default_rng(1).normal(100, 2, (2, 25, 3)))
    duels = win_tie_loss(table, tie=0.01)
    assert (duels.wins + duels.ties + duels.losses == duels.cases).all()
    assert (duels.cases == 50).all()
    by = duels.set_index(["policy", "against"])
    for one, other in by.index:
        assert by.wins[one, other] == by.losses[other, one]
        assert by.ties[one, other] == by.ties[other, one]
    wide = table.pivot(index=["load", "seed"], columns="policy", values="cost")
    apart = wide.a / wide.b
    clear = int((apart < 0.99).sum()), int((apart > 1 / 0.99).sum())
    assert (by.wins["a", "b"], by.losses["a", "b"]) == clear
    assert min(*clear, by.ties["a", "b"]) > 3
    same = _table(np.zeros((1, 4, 2)), names="ab")
    assert win_tie_loss(same, tie=0.0).ties.tolist() == [4, 4]


def test_a_run_without_a_number_has_not_failed():
    """Nothing came out in one case, so that it has no latency; in another the run failed."""
    table = _table(np.ones((1, 4, 2)), names="ab")
    table.loc[(table.policy == "a") & (table.seed == 0), "cost"] = np.nan
    table.loc[(table.policy == "b") & (table.seed == 1), ["cost", "error"]] = [np.nan, "no"]
    order = ranking(table).set_index("policy")
    assert order.runs.tolist() == [2, 2]
    assert order.failed[["a", "b"]].tolist() == [0, 1]


def test_statistics_refuse_nonsense():
    table = _table(np.ones((1, 3, 3)))
    for wrong in (lambda: ranking(table, "typo"), lambda: ranking(table.assign(cost=np.nan)),
                  lambda: ranking(pd.concat([table, table])), lambda: difference(table, "a", "nobody"),
                  lambda: interval([]), lambda: interval(None), lambda: interval(["a"]), lambda: ranking(3),
                  lambda: ranking(table, "policy"), lambda: difference(3, "a", "b"),
                  lambda: interval([1.0, float("nan")])):  # fmt: skip
        with pytest.raises(MetricError):
            wrong()
    for bad in (dict(level=1.0), dict(level=0.1), dict(resamples=1), dict(seed="x")):
        with pytest.raises(ArgumentError):
            ranking(table, **bad)
    for tie in (-1, "x", float("nan")):
        with pytest.raises(ArgumentError):
            win_tie_loss(table, tie=tie)


def test_pictures_say_what_they_show_and_escape_names():
    names = ("<i>cheap</i>", "dear", "silly")
    random = np.random.default_rng(0)
    values = random.normal(0, 1, (2, 6, 3)) + np.array([100.0, 200.0, 250.0])
    table = _table(values, names).rename(columns={"cost": "instance_seconds"})
    table["late_share"] = table.policy.map({"<i>cheap</i>": 0.5, "dear": 0.0, "silly": 0.2})
    picture = plots.pareto(table)
    assert "<i>" not in str(picture.spec["data"])
    assert "&lt;i&gt;" in str(picture.spec["data"])
    front = picture.spec["data"][0]
    assert front["y"] == [50.0, 0.0]  # silly is beaten in both
    picture.figure  # noqa: B018  (plotly takes it)
    duels = plots.contest(win_tie_loss(table, "instance_seconds"))
    assert "<i>" not in str(duels.spec["data"])
    assert duels.figure
    assert "&lt;i&gt;cheap&lt;/i&gt;" in duels.spec["data"][0]["y"]
    found = oracle(APP.topology, APP.plant, LOADS["square"], duration_s=120)
    history = dspkit.run(Static(), APP.simulator(LOADS["square"]), steps=12)
    both = plots.oracle_instances(found, {"<b>": history})
    assert both.spec["data"][1]["y"] == found.instances
    assert "<b>" not in both.spec["data"][2]["name"]
    assert both.figure
    for wrong in (table, 3, None):
        with pytest.raises(MetricError):
            plots.contest(wrong)


def test_standard_policies_are_made_for_every_standard_load():
    assert list(standard_policies()) == [
        "static, under", "static, right", "static, over", "ds2", "drs", "autrascale", "autrascale, transfer", "stela",
        "fission", "elysium", "elysium, proactive", "joint", "elastic_storm", "hierarchical", "dhalion", "hpa",
        "flink_autoscaler", "edrp",
    ]  # fmt: skip
    assert len(standard_loads()) == 8
    with pytest.raises(NotFoundError, match="ds2"):
        standard_policies(["typo"])
    for nonsense in (3, [[]]):
        with pytest.raises(NotFoundError):
            standard_policies(nonsense)
        with pytest.raises(ArgumentError):
            standard_loads(only=nonsense)
    with pytest.raises(ArgumentError):
        standard_loads(True)
    with pytest.raises(ArgumentError, match="sine"):
        standard_loads(only=["typo"])
    chosen = ["static, under", "static, right", "static, over", "stela", "elysium", "hpa"]
    table = compare(standard_policies(chosen), standard_loads(120.0, only=["sine"]), seeds=[0], **SMALL)
    assert (table.error == "").all()
    spent = table.set_index("policy").instance_seconds
    assert spent["static, under"] < spent["static, right"] < spent["static, over"]
