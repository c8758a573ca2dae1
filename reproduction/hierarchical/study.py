"""Hierarchical control on two days of taxis, beside the thesis: `python -m reproduction.hierarchical.study`.

Availability is the share of the run in which the job was not paused; a reconfiguration is one such pause, with any
number of changes. R is the mean response time of an interval of 30 s, as the application manager measures it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dspkit.apps import App, TaxiDays, taxi
from dspkit.core import History, Policy
from dspkit.experiment import run
from dspkit.policies.ds2 import DS2
from dspkit.policies.elastic_storm import ElasticStorm
from dspkit.policies.hierarchical import Hierarchical
from dspkit.policies.static import Static
from dspkit.simulator import Node
from dspkit.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


WINDOW_S = 5.0  # of samples
PRINTED = {"accept all": "93.7 %", "beta 0.5": "not much better", "beta 0.75": "98.3 %"}
POLICIES: Mapping[str, Policy] = {
    "accept all": Hierarchical(grants="all", signal="cpu"),
    "beta 0.5": Hierarchical(beta=0.5, signal="cpu"),
    "beta 0.75": Hierarchical(beta=0.75, signal="cpu"),
}
VARIANTS: Mapping[str, Policy] = {
    "accept all, room by load": Hierarchical(grants="all", room="slots and load", signal="cpu"),
    "beta 0.5, room by load": Hierarchical(beta=0.5, room="slots and load", signal="cpu"),
    "beta 0.5, also on its own node": Hierarchical(beta=0.5, include_self=True, signal="cpu"),
    "beta 0.5, rising rate": Hierarchical(beta=0.5, rule="rising", signal="cpu"),
    "beta 0.5, whole tokens": Hierarchical(beta=0.5, accrual="whole", signal="cpu"),
    "beta 0.5, worst delay": Hierarchical(beta=0.5, hears="worst", signal="cpu"),
    "beta 0.75, worst delay": Hierarchical(beta=0.75, hears="worst", signal="cpu"),
    "beta 0.5, DS2 asks": Hierarchical(beta=0.5, manager=DS2(activation=6), signal="cpu"),
    "no action": Static(),
    "DS2 by itself": DS2(activation=6),
    "Elastic Storm": ElasticStorm(signal="cpu"),
}


def two_days(policy: Policy, *, seed: int = 1, days: float = 2.0, app: App | None = None) -> History:
    """Run a policy on days of taxis, replayed 30 times as fast."""
    app = taxi() if app is None else app
    load: Workload | Mapping[str, Workload] = app.workload
    if isinstance(load, TaxiDays):
        load = replace(load, seed=seed)
        steps = round(days * load.day_s / WINDOW_S)
    else:
        steps = round(days * TaxiDays().day_s / WINDOW_S)
    return run(policy, app, load=load, steps=steps, seed=seed, window_s=WINDOW_S)


def summary(history: History) -> dict[str, Any]:
    """Return the thesis's metrics of a run: availability, changes, replicas and response times."""
    import numpy as np

    snapshots = [step.snapshot for step in history]
    seconds = sum(s.window_s for s in snapshots)
    calm = [s.latency.mean for s in snapshots if s.latency and not s.downtime_s]
    counts = np.array([s.deployment.instances for s in snapshots])
    kinds = dict.fromkeys(("more", "moved", "fewer"), 0)
    for a, b in pairwise(snapshots):
        before, after = a.deployment, b.deployment
        for name, k in before.parallelism.items():
            kinds["more"] += after.parallelism[name] > k
            kinds["fewer"] += after.parallelism[name] < k
            was = _nodes(before, name)  # empty until a placement is known
            kinds["moved"] += bool(was) and after.parallelism[name] == k and was != _nodes(after, name)
    begin = next((i for i, n in enumerate(counts) if n > counts[0]), len(counts))
    return {
        "availability": 1 - sum(s.downtime_s for s in snapshots) / seconds,
        "reconfigurations": sum(step.rescaled for step in history),
        **kinds,
        "replicas_mean": float(counts.mean()),
        "replicas_most": int(counts.max()),
        "replicas_least_later": int(counts[begin:].min(initial=counts[-1])),
        "replica_hours": float(counts.sum() * snapshots[0].window_s / 3600),
        "R_median_ms": float(1000 * np.median(calm)),
        "R_mean_ms": float(1000 * np.mean(calm)),
        "R_p95_ms": float(1000 * np.percentile(calm, 95)),
        "above_R_max": float(np.mean(np.array(calm) > 0.2)),
        "first_action_s": next((step.snapshot.t for step in history if step.rescaled), None),
    }


def _nodes(deployment: Any, name: str) -> list[str]:
    """Return the nodes of an operator's instances, as far as the deployment has them."""
    return sorted(node for (operator, _), node in deployment.placement.items() if operator == name)


def table(
    policies: Mapping[str, Policy] = POLICIES, *, seeds: Sequence[int] = tuple(range(6)), app: App | None = None
) -> pd.DataFrame:
    """Return means over the seeds of load and noise, one row per policy."""
    import pandas as pd

    rows = []
    for name, policy in policies.items():
        found = pd.DataFrame([summary(two_days(policy, seed=seed, app=app)) for seed in seeds])
        row = {"policy": name, "printed": PRINTED.get(name, ""), **found.mean().to_dict()}
        rows.append(
            {**row, "availability_least": found.availability.min(), "availability_most": found.availability.max()}
        )
    return pd.DataFrame(rows).set_index("policy")


def by_engine_share(
    cores: Sequence[float] = (3.0, 3.6, 4.0, 4.2, 4.4, 4.8), seeds: Sequence[int] = (0, 1, 2)
) -> pd.DataFrame:
    """Return the availability under each policy by the cores that the engine takes, the fitted parameter."""
    import pandas as pd

    rows = {}
    for taken in cores:
        app = taxi()
        nodes = {name: Node(cores=8, overhead_cores=taken) for name in app.plant.nodes}
        found = table(seeds=seeds, app=replace(app, plant=replace(app.plant, nodes=nodes)))
        rows[taken] = found.availability
    return pd.DataFrame(rows).T.rename_axis("cores for the engine")


def markdown(frame: pd.DataFrame) -> str:
    """Return the table as Markdown."""
    head = "availability: paper | ours | reconfigurations | more | moved | fewer | replicas: mean | most | least later"
    lines = [f"| policy | {head} | R: median, ms | 95 % | share above 200 ms |", "|---" * 13 + "|"]
    for name, r in frame.iterrows():
        ours = f"{r.availability:.1%} ({r.availability_least:.1%} to {r.availability_most:.1%})"
        done = f"{r.reconfigurations:.0f} | {r.more:.0f} | {r.moved:.0f} | {r.fewer:.0f}"
        replicas = f"{r.replicas_mean:.1f} | {r.replicas_most:.1f} | {r.replicas_least_later:.1f}"
        response = f"{r.R_median_ms:.0f} | {r.R_p95_ms:.0f} | {r.above_R_max:.1%}"
        lines.append(f"| {name} | {r.printed} | {ours} | {done} | {replicas} | {response} |")
    return "\n".join(lines)


def main() -> None:
    sys.stdout.write(markdown(table()) + "\n\nVariants\n\n" + markdown(table(VARIANTS)) + "\n\n")
    shares = by_engine_share().to_string(float_format="{:.1%}".format)
    sys.stdout.write(f"Availability by the cores that the engine takes of each node\n\n{shares}\n")


if __name__ == "__main__":
    main()
