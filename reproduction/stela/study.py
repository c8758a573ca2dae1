"""Stela's evaluation on the simulator: `python -m reproduction.stela.study` prints its tables beside the paper's.

Every strategy answers the same request at the same time of the same run, under the settings of Table I
(`dspkit/apps/stela.py`). Throughput is the rate of the sinks in windows of ten seconds. `settings.py` varies the most
influential setting that is not printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from dspkit.apps import App
from dspkit.apps.stela import SCALE_IN, TABLE_ONE, Trial
from dspkit.core import Deployment, History, Policy, Snapshot, Topology
from dspkit.etp import ORDERS, convergence_s, downtime_s, place_without
from dspkit.experiment import run
from dspkit.policies.migrate import Migrate, Rebalance
from dspkit.policies.on_demand import Request, ScaleIn, ScaleOut
from dspkit.policies.stela import Stela
from dspkit.simulator import Simulator

if TYPE_CHECKING:
    import pandas as pd


ASKED, SETTLED, STEPS = 30, 60, 90  # windows: of the request, of the first settled one, number in total
# The paper's gains of Stela over Storm's default, both after scaling, and its convergence compared with Storm's.
PRINTED = {"star": 0.65, "linear": 0.45, "diamond": 1.20, "page_load": 1.25, "processing": 1.25}
PRINTED |= {"network_monitoring": 0.21}
PRINTED_CONVERGENCE = {"star": "longer", "linear": "equal", "diamond": "92 % less", "page_load": "88 % less"}
PRINTED_CONVERGENCE |= {"processing": "75 % less", "network_monitoring": "longer"}


def strategies(*requests: Request) -> dict[str, Policy]:
    """Return Stela and the strategies that it was compared with, with the same requests."""
    moves = {order: Migrate(order=order, requests=requests) for order in ORDERS}
    return {"stela": Stela(requests=requests), "default": Rebalance(requests=requests), **moves}


def throughput(history: History) -> list[float]:
    """Return the application's throughput, window by window."""
    return [sinks(history.topology, s.snapshot) for s in history]


def scale_out_runs(trial: Trial, *, seed: int = 1, only: Sequence[str] = (), noise: float = 0.02) -> dict[str, History]:
    """Run each strategy: machines join after five minutes of fifteen."""
    asked = ScaleOut(trial.after - trial.before, at_s=ASKED * 10.0)
    chosen = {name: p for name, p in strategies(asked).items() if not only or name in only}
    app = trial.app(noise=noise)
    return {name: run(p, app, steps=STEPS, seed=seed) for name, p in chosen.items()}


def scale_out_table(
    seeds: Sequence[int] = (1, 2, 3), *, trials: Sequence[Trial] = TABLE_ONE, only: Sequence[str] = ()
) -> pd.DataFrame:
    """Return scale-out on all topologies by all strategies: gains, convergence, interruption, and printed values."""
    import pandas as pd

    rows = []
    for trial in trials:
        runs = [scale_out_runs(trial, seed=seed, only=only) for seed in seeds]
        base = fmean(fmean(throughput(r["default"])[SETTLED:]) for r in runs) if "default" in runs[0] else None
        for name in runs[0]:
            traces = [throughput(r[name]) for r in runs]
            before = fmean(fmean(x[5:ASKED]) for x in traces)
            after = fmean(fmean(x[SETTLED:]) for x in traces)
            rows.append(
                {
                    "topology": trial.name,
                    "machines": f"{trial.before} → {trial.after}",
                    "strategy": name,
                    "before_per_s": before,
                    "after_per_s": after,
                    "own_gain": after / before - 1,
                    "over_default": after / base - 1 if base else None,
                    "printed_over_default": PRINTED[trial.name] if name == "stela" else None,
                    "convergence_s": median(convergence_s(x[ASKED:]) for x in traces),
                    "downtime_s": median(downtime_s(x[ASKED:]) for x in traces),
                    "stopped_s": fmean(_stopped(r[name]) for r in runs),
                    "printed_convergence": PRINTED_CONVERGENCE[trial.name] if name == "stela" else None,
                }
            )
    return pd.DataFrame(rows)


def scale_in_table(*, draws: int = 70, seed: int = 1) -> pd.DataFrame:
    """Return scale-in: Stela's choice of machines against `draws` of all choices, evenly spread over them.

    A random choice is executed in both readings: all instances are reassigned, or only those whose machine left.
    """
    import pandas as pd

    app, asked = SCALE_IN.app(), ScaleIn(SCALE_IN.before - SCALE_IN.after, ASKED * 10.0)
    stela = run(Stela(requests=(asked,)), app, steps=STEPS, seed=seed)
    acted = next(s for s in stela if s.rescaled and s.decision is not None)
    assert acted.decision is not None
    rows = [_scaled_in("stela", acted.decision.why["leave"], throughput(stela))]
    for deal in ("all", "moved"):
        for leaving, target in by_lot(app, draws, deal).items():
            rows.append(_scaled_in(f"random, deal {deal}", leaving, carried_out(app.simulator(seed=seed), target)))
    return pd.DataFrame(rows)


def _scaled_in(strategy: str, leaving: Sequence[str], x: Sequence[float]) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "leave": ", ".join(leaving),
        "kept": kept(x),
        "convergence_s": convergence_s(x[ASKED:]),
        "downtime_s": downtime_s(x[ASKED:]),
    }


def by_lot(app: App, draws: int, deal: str = "moved") -> dict[tuple[str, ...], Deployment]:
    """Return `draws` of all choices of leaving machines, evenly spread over them, with the resulting deployments."""
    count, machines = SCALE_IN.before - SCALE_IN.after, list(app.plant.nodes)
    choices = list(combinations(machines, count))
    found = {}
    for i in range(min(draws, len(choices))):
        leave = choices[i * len(choices) // min(draws, len(choices))]
        places = place_without(app.topology, app.placement, leave, machines, deal=deal)
        found[leave] = replace(app.deployment(), workers=SCALE_IN.after, placement=places)
    return found


def kept(x: Sequence[float]) -> float:
    """Return the settled throughput as a share of that before the change of machines."""
    return fmean(x[SETTLED:]) / fmean(x[5:ASKED])


def carried_out(backend: Simulator, target: Deployment, at: int = ASKED, steps: int = STEPS) -> list[float]:
    """Return the throughput, window by window, of a run without a policy that deploys `target` in window `at`."""
    found = []
    with backend:
        for window in range(steps):
            if window == at:
                backend.deploy(target)
            found.append(sinks(backend.topology, backend.observe()))
    return found


def sinks(topology: Topology, snapshot: Snapshot) -> float:
    """Return the records/s that the sinks processed: the paper's application throughput."""
    return sum(snapshot.operators[n].processing_rate for n in topology.sinks)


def _stopped(history: History) -> float:
    """Return the seconds for which the change stopped operators, averaged over operators."""
    before, after = history[ASKED - 1].snapshot, history[ASKED:]
    lost = 0.0
    for name, m in before.operators.items():
        usual = m.processing_rate or 1.0
        windows = [s.snapshot.operators[name].processing_rate for s in after[:10]]
        lost += sum(10.0 for rate in windows if rate < 0.02 * usual)
    return lost / len(before.operators)


def main() -> None:
    import pandas as pd

    from .settings import cores_table, scale_in_by_cores

    with pd.option_context("display.width", 200, "display.max_columns", 20, "display.max_rows", 200):
        table = scale_out_table()
        print("Scale-out: gains as shares; means over three seeds\n")
        print(table.to_string(index=False, float_format=lambda x: f"{x:.2f}", na_rep=""))
        found = scale_in_table()
        shown = found.groupby("strategy").kept.describe()[["count", "min", "50%", "max"]]
        shown["downtime_s"] = found.groupby("strategy").downtime_s.mean()
        print(f"\nScale-in, Page Load, {SCALE_IN.before} to {SCALE_IN.after} machines: share of throughput kept\n")
        print(shown.to_string(float_format=lambda x: f"{x:.2f}"))
        print("\nScale-out by the part of a core that a busy instance of any operator takes: Stela over default\n")
        swept = cores_table().pivot(index="topology", columns="cores", values="over_default").loc[list(PRINTED)]
        print(swept.assign(printed=list(PRINTED.values())).to_string(float_format=lambda x: f"{x:+.2f}"))
        print("\nScale-in by the same, the third operator congested and all others alike: share kept\n")
        print(scale_in_by_cores().to_string(index=False, float_format=lambda x: f"{x:.2f}"))


if __name__ == "__main__":
    main()
