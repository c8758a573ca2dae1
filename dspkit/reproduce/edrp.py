"""EDRP beside the thesis, chapter 8: `python -m dspkit.reproduce.edrp`.

Table 8.3: the taxi query for an hour at 70 to 220 and back to 70 tuples/s, decided each minute under four objectives.
Table 8.4: one decision on ever more nodes with ever more replicas. `rows` has what docs/reproduction.md shows as data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from ..history import History
from ..loop import run
from ..placement import Downtime, ElasticAnswer, adapt, follow
from ..placement.ansnet import on_the_way
from ..placement.answer import PROVEN
from ..placement.taxi_query import QUERY_LIMITS, SETTINGS, at_rate, taxi_query
from ..policies.edrp import WEIGHTINGS, Edrp
from ..topologies import taxi
from ..workload import Workload

if TYPE_CHECKING:
    import pandas as pd

MINUTES = 61
SEEDS = tuple(range(10))  # networks that are drawn
PRINTED = {  # Table 8.3: mean response time in ms, mean cost in $/h, downtime in s
    "baseline": (120.8, 9.6, 12.0), "balanced": (121.7, 9.9, 2.4), "response time": (121.5, 10.3, 2.4),
    "cost": (136.0, 9.2, 4.9),
}  # fmt: skip
FIRST_OUT = {"baseline": 7, "balanced": 8, "cost": 8}  # min, as told in the text
SECONDS = {(8, 2): 3.7, (12, 2): 30.5, (16, 2): 122.6, (20, 2): 415.2, (24, 2): 593.7, (8, 3): 298.0}  # Table 8.4
SIZES = tuple((nodes, most) for most in (2, 3, 4) for nodes in (8, 12, 16, 20, 24))


class Row(NamedTuple):
    """One line of the page: what the paper prints, ours, their ratio, and why they differ."""

    what: str
    printed: str
    ours: str
    ratio: float | None
    why: str = ""


def ramp(minute: float) -> float:
    """Tuples/s of the source: up for half an hour, and down again.

    >>> ramp(0), ramp(30), ramp(60)
    (70.0, 220.0, 70.0)
    """
    return 220.0 - 5.0 * abs(minute - 30.0)


def hour(
    setting: str, *, seed: int = 0, minutes: int = MINUTES, query: Downtime | None = None, **settings: Any
) -> list[ElasticAnswer]:
    """The decisions of an hour, one a minute, from the first deployment on."""
    query = taxi_query(seed=seed) if query is None else query
    moments = (at_rate(query, ramp(t)) for t in range(minutes))
    settings = {"solver": "own", "time_limit_s": 60, "ties": "stay", **settings}
    return list(follow(moments, SETTINGS[setting], QUERY_LIMITS, **settings))


def summary(found: Sequence[ElasticAnswer]) -> dict[str, Any]:
    """What Table 8.3 and the text around it tell of an hour."""
    actions = [answer.actions for answer in found[1:]]
    outs = [m for m, acts in enumerate(actions, 1) if "scale-out" in acts.values()]
    ins = [m for m, acts in enumerate(actions, 1) if "scale-in" in acts.values()]
    return {
        "R_ms": 1000 * fmean(a.metrics.response_s for a in found),
        "cost": fmean(sum(a.replicas.values()) for a in found),
        "downtime_s": sum(a.downtime_s for a in found),
        "reconfigurations": sum(a.downtime_s > 0 for a in found),
        "outs": len(outs),
        "ins": len(ins),
        "first_out_min": outs[0] if outs else math.nan,
        "last_in_min": ins[-1] if ins else math.nan,
        "above_R_max": sum(a.metrics.response_s > QUERY_LIMITS.response_s * (1 + 1e-6) for a in found),
        "proven": sum(a.proven for a in found) / len(found),
        "slowest_s": max(a.seconds for a in found),
    }


LITERAL = "baseline, ties free"  # a program with w_d = 0 knows nothing of what runs: equal deployments are all the same


def runs(query: Downtime) -> dict[str, list[ElasticAnswer]]:
    """The hour of each objective; the baseline also as a solver gives it that breaks ties as it likes."""
    literal = hour("baseline", query=query, ties="any")
    return {LITERAL: literal, **{name: hour(name, query=query) for name in SETTINGS}}


def table_8_3(seeds: Iterable[int] = SEEDS) -> pd.DataFrame:
    """A row for each objective and drawn network."""
    import pandas as pd

    rows = []
    for seed in seeds:
        query = taxi_query(seed=seed)
        for name, found in runs(query).items():
            rows.append({"objective": name, "seed": seed, "way": free_way(query), **summary(found)})
    return pd.DataFrame(rows).set_index(["objective", "seed"])


def free_way(query: Downtime) -> int:
    """Nodes that lie on a shortest way from source to sink: operators there cost no delay."""
    problem = query.problem.problem
    source, sink = (problem.pinned[problem.application.index[name]] for name in ("data_source", "global_rank"))
    return on_the_way(problem.network, problem.network.nodes[source], problem.network.nodes[sink])


def decide(
    nodes: int, most: int, *, seed: int = 0, rate: float = 220.0, setting: str = "balanced", **settings: Any
) -> ElasticAnswer:
    """One decision of Table 8.4, all operators free: what suits 70 tuples/s runs, and `rate` come."""
    query = taxi_query(nodes, most, seed=seed, pinned="free")
    running = adapt(query, None, SETTINGS["baseline"], QUERY_LIMITS, solver="own", time_limit_s=60).deployment
    settings = {"solver": "own", "time_limit_s": 60, **settings}
    return adapt(at_rate(query, rate), running, SETTINGS[setting], QUERY_LIMITS, **settings)


def table_8_4(seeds: Iterable[int] = (0, 1, 2), *, setting: str = "balanced", **settings: Any) -> pd.DataFrame:
    """Median and longest seconds, worst gap, and what one step alone (rEDRP) loses, over the networks."""
    import pandas as pd

    seeds, rows = tuple(seeds), []
    decide(8, 2)  # compiled
    for nodes, most in SIZES:
        found = [decide(nodes, most, seed=seed, setting=setting, **settings) for seed in seeds]
        near = [decide(nodes, most, seed=seed, setting=setting, restricted=True) for seed in seeds]
        rows.append(
            {
                "nodes": nodes, "k": most, "printed_s": SECONDS.get((nodes, most), math.nan),
                "seconds": median(a.seconds for a in found), "longest_s": max(a.seconds for a in found),
                "gap": max(a.gap for a in found), "loss": fmean(a.loss for a in found),
                "restricted_s": median(a.seconds for a in near),
                "restricted_worse": max(r.loss / a.loss - 1 for r, a in zip(near, found, strict=True)),
            }
        )  # fmt: skip
    return pd.DataFrame(rows).set_index(["nodes", "k"])


def on_cluster(setting: str, *, steps: int = 720, seed: int = 1, load: Workload | None = None, **knobs: Any) -> History:
    """The policy on the prototype's cluster of five nodes under two days of taxis, in windows of ten seconds."""
    app = taxi()
    nodes = list(app.plant.nodes)
    delays = {(a, b): app.plant.network.delay_s for a in nodes for b in nodes if a != b}
    state = {name: service.state_bytes for name, service in app.plant.services.items()}
    cores = min(int(node.cores_for_work) for node in app.plant.nodes.values())  # Res_u is meant to be the cores
    policy = Edrp(
        **WEIGHTINGS[setting], slots=cores, most_s=0.15, most_price=15.0, most_downtime_s=60.0, delays=delays,
        state_bytes=state, **knobs,
    )  # fmt: skip
    with app.simulator(load or app.workload, window_s=10.0, seed=seed) as backend:
        return run(policy, backend, steps=steps, seed=seed)


def rows(hours: pd.DataFrame | None = None, decisions: pd.DataFrame | None = None) -> list[Row]:
    """All lines of the page."""
    hours = table_8_3() if hours is None else hours
    decisions = table_8_4() if decisions is None else decisions
    mean = hours.groupby(level="objective", sort=False).mean()
    made = []
    for name in (LITERAL, *SETTINGS):
        r_ms, cost, downtime = PRINTED[name.partition(",")[0]]
        mine, all_of = mean.loc[name], hours.loc[name]
        for what, printed, column, why in (
            ("mean response time, ms", r_ms, "R_ms", "delays of ANSNET are not printed: ours are drawn"),
            ("mean cost, $/h", cost, "cost", _WHY_COST.get(name, "")),
            ("downtime, s", downtime, "downtime_s", _WHY_DOWN.get(name, "")),
        ):
            low, high = all_of[column].min(), all_of[column].max()
            ours = f"{mine[column]:.1f} ({low:.1f} to {high:.1f})"
            made.append(Row(f"{name}: {what}", f"{printed:g}", ours, float(mine[column] / printed), why))
        if name in FIRST_OUT:
            minutes = all_of.first_out_min
            ours = f"{minutes.median():.0f} ({minutes.min():.0f} to {minutes.max():.0f})"
            why = "R_max alone forces it, and when depends on the delays" if name == "cost" else ""
            made.append(Row(f"{name}: first scale-out, min", f"{FIRST_OUT[name]}", ours, None, why))
    for baseline in (LITERAL, "baseline"):
        for name in ("balanced", "response time", "cost"):
            ratio = mean.downtime_s[baseline] / mean.downtime_s[name]
            least = (hours.loc[baseline].downtime_s / hours.loc[name].downtime_s).min()
            printed = PRINTED["baseline"][2] / PRINTED[name][2]
            ours = f"{ratio:.1f} (least {least:.1f})"
            made.append(Row(f"downtime of {baseline} over {name}", f"{printed:.1f}", ours, ratio / printed))
    for row in decisions.reset_index().to_dict("records"):
        solved = row["printed_s"] == row["printed_s"]  # not NaN
        proof = "proven" if row["gap"] <= PROVEN else f"gap {row['gap']:.1%}"
        ours = f"{row['seconds']:.2f} s (at most {row['longest_s']:.2f}), {proof}"
        near = f"rEDRP {row['restricted_s']:.2f} s, at most {row['restricted_worse']:.1%} worse"
        what = f"a decision on {row['nodes']} nodes, k = {row['k']}"
        share = row["seconds"] / row["printed_s"] if solved else None
        made.append(Row(what, f"{row['printed_s']:g} s" if solved else "not solved", ours, share, near))
    return made


_WHY_COST = {
    "response time": "replicas are free here: w_c = 0",
    "cost": "fewest replicas that keep R_max",
}
_WHY_DOWN = {
    LITERAL: "equal deployments are many, and each solver wanders among them in its own way",
    "baseline": "ours stays where a change gains nothing",
    "response time": "scales out once and for all, as replicas cost nothing",
    "cost": "how often R_max forces a replica depends on the delays",
}


def markdown(lines: Iterable[Row]) -> str:
    """As it stands in docs/reproduction.md."""
    text = ["| | paper | ours | ratio | why it differs |", "|---" * 5 + "|"]
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2g}"
        text.append(f"| {line.what} | {line.printed} | {line.ours} | {ratio} | {line.why} |")
    return "\n".join(text)


def main() -> None:
    sys.stdout.write(markdown(rows()) + "\n")


if __name__ == "__main__":
    main()
