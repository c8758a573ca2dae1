"""ELYSIUM's evaluation on the simulator: `python -m reproduction.elysium.study` prints it beside the paper's.

The cluster is the paper's: four nodes of four cores, assessments every 60 s, restarts of 6.5 s, samples of 10 s. The
shapes of the loads are the paper's, too; their levels are not printed, and ours need one to four nodes. Profiles are
learned from a run of half an hour under another load, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dspkit import apps
from dspkit.apps import App
from dspkit.comparison.scores import degradation, latency, nodes_saved, rescales
from dspkit.core import Deployment, History, Policy, Step
from dspkit.experiment import run
from dspkit.forecasting import AutoRegression
from dspkit.policies.elysium import Elysium, Joint
from dspkit.policies.static import Static
from dspkit.profiling import Estimator, LearnedThreshold, Profile, compute_config, learn, learn_threshold
from dspkit.profiling.configuration import CANDIDATES
from dspkit.simulator import Cluster
from dspkit.workload import Sine, Trace, Workload

from .loads import LEVELS, MINUTES, earlier, load

if TYPE_CHECKING:
    import pandas as pd


WINDOW_S, MINUTE, NODES = 10.0, 60.0, 4
PAPER = {  # degradation, nodes saved in %: joint, reactive, proactive
    ("T1", "stair"): ((0.97, 32), (0.81, 43), (0.81, 43)),
    ("T1", "step"): ((0.78, 50), (0.59, 58), None),
    ("T1", "square"): ((1.49, 25), (1.70, 35), (1.20, 35)),
    ("T1", "sine"): ((1.25, 25), (1.01, 47), None),
    ("T1", "recorded"): ((1.25, 24), (0.86, 45), (0.90, 45)),
    ("T2", "square"): ((0.99, 13), (1.03, 33), None),
    ("T2", "sine"): ((0.63, 30), (0.17, 22), None),
    ("T2", "recorded"): ((0.49, 48), (0.48, 50), None),
    ("T2", "stair"): (None, None, None),
    ("T2", "step"): (None, None, None),
}
TOGETHER = {("step", "stair"): (0.80, 17), ("sine", "sine"): (0.46, 21)}


def app(name: str) -> App:
    """Return the application T1 or T2."""
    return apps.rolling_top_words() if name == "T1" else apps.sentiment()


@lru_cache(maxsize=8)
def profiled(name: str) -> Profile:
    """Return the profile of half an hour under a load that sweeps all levels, with all nodes and instances."""
    low, *_, top = LEVELS[name]
    swept = Sine((low + top) / 2, (top - low) / 2, 1200.0)
    return learn(run(Static(), app(name).simulator(swept, parallelism=4, seed=99), steps=180))


def levels_need(name: str) -> dict[float, int]:
    """Return the nodes that each of our levels needs, by Algorithm 1."""
    estimator = Estimator(app(name).topology, profiled(name))
    return {x: compute_config(estimator, x).workers for x in LEVELS[name]}


def policies(name: str, shape: str, seed: int = 0) -> dict[str, Policy]:
    """Return the rivals of Figure 9. The proactive ones learned from earlier replays of the same shape.

    Their predictor is an autoregression of as many loads as the paper's net sees. The net also sees the calendar, which
    an hour of replays cannot teach.
    """
    known, source = profiled(name), app(name).topology.sources[0]
    past = earlier(name, shape, seed)
    reactive = Elysium(learned=known, load="emitted", signal="cpu")
    proactive = replace(
        reactive,
        mode="proactive",
        predictor=AutoRegression(),
        past={source: past},
        began_s=MINUTE * len(past),
        relearn=1000,
    )
    return {
        "joint": Joint(signal="cpu"),
        "reactive": reactive,
        "proactive": proactive,
        "proactive, h = 1": replace(proactive, ahead=1),
    }


def started(name: str, rate: float) -> Deployment:
    """Return the initial deployment of all policies: Algorithm 1's for the initial load."""
    config = compute_config(Estimator(app(name).topology, profiled(name)), rate)
    return Deployment(config.parallelism, config.workers)


def play(
    name: str,
    shape: str | Workload,
    policy: Policy,
    *,
    seed: int = 0,
    start: Deployment | None = None,
    pause_s: float = 6.5,
    minutes: int = 25,
) -> History:
    """Run a policy under one of the loads, or under `minutes` of another."""
    now, trace = app(name), load(name, shape, seed) if isinstance(shape, str) else shape
    minutes = MINUTES[shape] if isinstance(shape, str) else minutes
    now = replace(now, plant=replace(now.plant, pause_s=pause_s))
    begin = start or started(name, trace.rate(0.0))
    now = replace(now, workers=begin.workers)
    steps, k = round(minutes * MINUTE / WINDOW_S), begin.parallelism
    return run(policy, now, load=trace, steps=steps, seed=seed, parallelism=k, window_s=WINDOW_S)


RIVALS = ("joint", "reactive", "proactive", "proactive, h = 1")


def summary(
    seeds: Sequence[int] = (0, 1, 2), *, only: Sequence[tuple[str, str]] = tuple(PAPER), pause_s: float = 6.5
) -> pd.DataFrame:
    """Return Figure 9: degradation, nodes saved in % and changes, means over seeds, one row per load and policy."""
    import pandas as pd

    rows = []
    for name, shape in only:
        for i, rival in enumerate(RIVALS):
            runs = [play(name, shape, policies(name, shape, s)[rival], seed=s, pause_s=pause_s) for s in seeds]
            printed = PAPER[name, shape][i] if i < 3 else None
            rows.append(
                {
                    "app": name,
                    "load": shape,
                    "policy": rival,
                    "degradation": fmean(degradation(h).mean for h in runs),
                    "saved": 100 * fmean(nodes_saved(h, NODES, every_s=MINUTE) for h in runs),
                    "changes": fmean(map(rescales, runs)),
                    "latency_s": fmean(latency(h, "event_latency") or 0.0 for h in runs),
                    "paper": "" if printed is None else f"{printed[0]:.2f} / {printed[1]}",
                }
            )
    return pd.DataFrame(rows)


def beside(table: pd.DataFrame) -> pd.DataFrame:
    """Return a summary as in Figure 9: one row per load, one column per rival; degradation / nodes saved in %."""
    lost, saved = table.degradation.map("{:.2f}".format), table.saved.map("{:.0f}".format)
    told = table.assign(run=table.app + " " + table.load, ours=lost + " / " + saved)
    columns = [("paper", "joint"), ("paper", "reactive"), *(("ours", rival) for rival in RIVALS)]
    wide = told.pivot(index="run", columns="policy", values=["paper", "ours"])[columns].loc[told.run.unique()]
    return wide.set_axis([f"{whose}: {rival}" for whose, rival in columns], axis=1).rename_axis(None)


def partial_scalers(pause_s: float = 6.5) -> pd.DataFrame:
    """Return T1 on the stair, scaled by operators only, by nodes only, not at all, and by both."""
    import pandas as pd

    both = policies("T1", "stair")["reactive"]
    assert isinstance(both, Elysium)
    order, rows = app("T1").topology.order, []
    for title, scale, p, workers, printed in (
        ("static, 4 nodes, p = 4", None, 4, 4, "0.05 / 0"),
        ("operators only, 2 nodes", "operators", 1, 2, "1.47 / 50"),
        ("operators only, 4 nodes", "operators", 1, 4, "0.98 / 0"),
        ("nodes only, p = 2", "nodes", 2, 1, "1.43 / 19"),
        ("nodes only, p = 4", "nodes", 4, 1, "0.97 / 33"),
        ("both", "both", 1, 1, "0.81 / 43"),
    ):
        policy: Policy = Static() if scale is None else replace(both, scale=scale)
        h = play("T1", "stair", policy, start=Deployment(dict.fromkeys(order, p), workers), pause_s=pause_s)
        rows.append((title, degradation(h).mean, 100 * nodes_saved(h, NODES, every_s=MINUTE), rescales(h), printed))
    return pd.DataFrame(rows, columns=["scaler", "degradation", "saved", "changes", "paper"])


SHAPES_OF_BOTH = ("stair", "step", "square", "sine")


def both_or_one(pauses: Sequence[float] = (6.5, 19.2), seeds: Sequence[int] = (0, 1)) -> pd.DataFrame:
    """Return ELYSIUM beside itself without one of its dimensions, on both applications and four shapes.

    Nodes only has four instances of each operator, operators only all four nodes, and joint scaling is the paper's
    rival. One row per application, shape and pause; means over seeds.
    """
    import pandas as pd

    rows = []
    for name in LEVELS:
        order = app(name).topology.order
        for shape in SHAPES_OF_BOTH:
            for pause_s in pauses:
                row: dict[str, Any] = {"app": name, "load": shape, "pause_s": pause_s}
                each = policies(name, shape)
                both = each["reactive"]
                assert isinstance(both, Elysium)
                ways: dict[str, tuple[Policy, Deployment | None]] = {
                    "both": (both, None),
                    "nodes": (replace(both, scale="nodes"), Deployment(dict.fromkeys(order, 4), 1)),
                    "operators": (replace(both, scale="operators"), Deployment(dict.fromkeys(order, 1), NODES)),
                    "joint": (each["joint"], None),
                }
                for way, (policy, start) in ways.items():
                    runs = [play(name, shape, policy, seed=s, start=start, pause_s=pause_s) for s in seeds]
                    row[way] = fmean(degradation(h).mean for h in runs)
                    row[f"{way} saved"] = 100 * fmean(nodes_saved(h, NODES, every_s=MINUTE) for h in runs)
                rows.append(row)
    return pd.DataFrame(rows)


def threshold_curve(
    thresholds: Sequence[float] = (0.5, 0.6, 0.7, 0.8, 0.9), seeds: Sequence[int] = (0, 1)
) -> pd.DataFrame:
    """Return Figure 6a and 6b: degradation and nodes saved of T1 on the sine, by the threshold of a node's CPU."""
    import pandas as pd

    base, rows = policies("T1", "sine")["reactive"], []
    assert isinstance(base, Elysium)
    for threshold in thresholds:
        runs = [play("T1", "sine", replace(base, node_scale_out_above=threshold), seed=s) for s in seeds]
        lost = fmean(degradation(h).mean for h in runs)
        rows.append((threshold, lost, 100 * fmean(nodes_saved(h, NODES, every_s=MINUTE) for h in runs)))
    return pd.DataFrame(rows, columns=["threshold", "degradation", "saved"])


def latencies(shapes: Sequence[str] = ("square", "sine", "dense"), seeds: Sequence[int] = (0, 1)) -> pd.DataFrame:
    """Return Figure 11: mean latency, with the wait in the queue, of joint scaling and ELYSIUM, in seconds."""
    import pandas as pd

    rows = []
    for name in LEVELS:
        for shape in shapes:
            row: dict[str, Any] = {"app": name, "load": shape}
            for rival in ("joint", "reactive"):
                runs = [play(name, shape, policies(name, shape, s)[rival], seed=s) for s in seeds]
                row[rival] = fmean(latency(h, "event_latency") or 0.0 for h in runs)
                row[f"{rival} worst"] = max(
                    s.snapshot.event_latency.mean for h in runs for s in h if s.snapshot.event_latency is not None
                )
            rows.append(row)
    return pd.DataFrame(rows)


def static_or_operators() -> pd.DataFrame:
    """Return Figure 10a: T1 with two nodes on a step, static with one instance each, and with operators scaled.

    The load rises at 180 s beyond what one instance can process, and falls at 600 s.
    """
    import pandas as pd

    both = policies("T1", "step")["reactive"]
    assert isinstance(both, Elysium)
    low, mid, *_ = LEVELS["T1"]
    trace = Trace((0.0, 180.0, 600.0), (low, mid, low))
    start = Deployment(dict.fromkeys(app("T1").topology.order, 1), 2)
    rows = []
    for title, policy in (("static", Static()), ("operators only", replace(both, scale="operators"))):
        h = play("T1", trace, policy, start=start, minutes=15)
        late = [s.snapshot for s in h if 400 < s.snapshot.t <= 600]
        rows.append(
            {
                "scaler": title,
                "kept up": fmean(s.throughput / s.source_rate for s in late),
                "changes": rescales(h),
                "most of an operator": max(max(s.snapshot.deployment.parallelism.values()) for s in h),
                "last of an operator": max(h[-1].snapshot.deployment.parallelism.values()),
            }
        )
    return pd.DataFrame(rows)


def period_study(periods_min: Sequence[float] = (1, 2, 4.5), pause_s: float = 6.5) -> pd.DataFrame:
    """Return the degradation of an over-provisioned T1 with a forced change per period, beside the theory's 2d/T."""
    import pandas as pd

    printed = {1: "0.64", 2: "0.43"}
    rows: list[tuple[Any, ...]] = []
    low, mid, *_ = LEVELS["T1"]
    trace = Sine((low + mid) / 2, (mid - low) / 2, 540.0)
    now = app("T1")
    now = replace(now, plant=replace(now.plant, pause_s=pause_s))
    for period in (*periods_min, None):
        backend = now.simulator(trace, parallelism=3, window_s=1.0)  # longer windows hide what drains within them
        history, changes = History(now.topology), 0
        for i in range(540):
            if period and i and i % round(MINUTE * period) == 0:  # another instance of an operator without cost
                k = 7 - backend.deployment.parallelism["final_ranker"]
                backend.deploy(backend.deployment.scaled({"final_ranker": k}))
                changes += 1
            history.append(Step(i, backend.observe(), None))
        theory = 2 * pause_s * changes / 540
        rows.append(
            (period, degradation(history).mean, theory, printed.get(int(period or 0), "" if period else "0.05"))
        )
    return pd.DataFrame(rows, columns=["period_min", "degradation", "theory", "paper"])


def together(seed: int = 0, *, each_its_own: bool = False) -> pd.DataFrame:
    """Return both applications on one cluster under one ELYSIUM, under the loads that each has alone."""
    import pandas as pd

    rows = []
    for (first, second), printed in TOGETHER.items():
        history, parts = play_together(first, second, seed=seed, each_its_own=each_its_own)
        lost = {a: degradation(h).mean for a, h in parts.items()}
        saved = 100 * nodes_saved(history, NODES, every_s=MINUTE)
        rows.append((f"T1 {first} + T2 {second}", lost["T1"], lost["T2"], fmean(lost.values()), saved,
                     rescales(history), f"{printed[0]:.2f} / {printed[1]}"))  # fmt: skip
    return pd.DataFrame(
        rows, columns=["loads", "T1_degradation", "T2_degradation", "degradation", "saved", "changes", "paper"]
    )


def play_together(
    first: str, second: str, *, seed: int = 0, each_its_own: bool = False
) -> tuple[History, dict[str, History]]:
    """Run both applications; return the history of the job, and of each application."""
    tenants = {"T1": replace(app("T1"), workload=load("T1", first)), "T2": app("T2")}
    tenants["T2"] = replace(tenants["T2"], workload=load("T2", second))
    cluster = Cluster(tenants, seed=seed, nodes=tenants["T1"].plant.nodes, window_s=WINDOW_S)
    alone = {a: Estimator(now.topology, profiled(a)) for a, now in tenants.items()}
    known = Estimator.together(alone).profile
    policy = Elysium(learned=known, load="emitted", signal="cpu", each_its_own=each_its_own)
    history = run(policy, cluster, steps=180, seed=seed)
    parts = {a: History(now.topology, (Step(i, s, None) for i, s in enumerate(cluster.seen[a])))
             for a, now in tenants.items()}  # fmt: skip
    return history, parts


def threshold(candidates: Sequence[float] = CANDIDATES, *, name: str = "T1", shape: str = "sine") -> LearnedThreshold:
    """Return the result of Table 1's bandit: the value of each node threshold, by runs of the reactive scaler."""
    base = policies(name, shape)["reactive"]
    assert isinstance(base, Elysium)
    return learn_threshold(
        lambda thr, n: degradation(play(name, shape, replace(base, node_scale_out_above=thr), seed=n)).mean, candidates
    )


def step_response() -> dict[str, float]:
    """Return the seconds from the step's rise until throughput keeps up permanently."""
    found = {}
    for rival in ("joint", "reactive"):
        history = play("T1", "step", policies("T1", "step")[rival])
        rising = [s.snapshot for s in history if 120 < s.snapshot.t <= 360]
        late = [s.t - 120 for s in rising if s.throughput < 0.98 * s.source_rate]
        found[rival] = max(late, default=0.0)
    return found


def _text(table: pd.DataFrame) -> str:
    return str(table.to_string(index=False, float_format=lambda x: f"{x:.2f}", na_rep=""))


def main() -> None:
    import pandas as pd

    with pd.option_context("display.width", 200, "display.max_columns", 20, "display.max_rows", 200):
        for name in LEVELS:
            need = ", ".join(f"{x:g} records/s: {n}" for x, n in levels_need(name).items())
            print(f"{name}: nodes that our levels need: {need}")
        print("\nFigure 9: degradation / nodes saved in %, three seeds\n")
        print(_text(summary()))
        print("\nThe same with restarts of 19.2 s, what the paper's 0.64 for a restart each minute says\n")
        print(_text(summary(pause_s=19.2)))
        print("\nT1 on the stair, scaling less than both\n")
        print(_text(partial_scalers()))
        print("\nA change each period, T1 with room to spare\n")
        for pause_s in (6.5, 19.2):
            print(f"restart of {pause_s} s\n{_text(period_study(pause_s=pause_s))}\n")
        print("Two applications on one cluster\n")
        print(_text(together()))
        print("\nSeconds after the step until T1 keeps up again (paper: joint about 150, ELYSIUM 80 to 90):")
        print(step_response())
        learned = threshold()
        print("\nThreshold of nodes:", {k: round(v, 3) for k, v in learned.values.items()}, "best:", learned.best)


if __name__ == "__main__":
    main()
