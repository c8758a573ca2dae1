"""Stela's evaluation again, on the simulator: `python -m dspkit.reproduce.stela` prints its tables beside the paper's.

Every strategy answers the same request at the same moment of the same run, under the settings of Table I
(`topologies/table_one.py`). Throughput is what the sinks process in windows of ten seconds. `stela_settings.py`
turns the setting that decides most and is not printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ..core import Deployment, Policy, Snapshot, Topology
from ..etp import ORDERS, convergence_s, downtime_s, without
from ..history import History
from ..loop import run
from ..policies.migrate import Migrate
from ..policies.on_demand import Request, ScaleIn, ScaleOut
from ..policies.rebalance import Rebalance
from ..policies.stela import Stela
from ..simulator import Simulator
from ..topologies.app import App
from ..topologies.table_one import SCALE_IN, TABLE_ONE, Trial

if TYPE_CHECKING:
    import pandas as pd

ASKED, SETTLED, STEPS = 30, 60, 90  # windows: when machines are asked for, from when on all is calm, the end
# What the paper says of Stela against Storm's default, both after scaling, and of convergence against Storm's.
PRINTED = {"star": 0.65, "linear": 0.45, "diamond": 1.20, "page_load": 1.25, "processing": 1.25}
PRINTED |= {"network_monitoring": 0.21}
PRINTED_CONVERGENCE = {"star": "longer", "linear": "equal", "diamond": "92 % less", "page_load": "88 % less"}
PRINTED_CONVERGENCE |= {"processing": "75 % less", "network_monitoring": "longer"}


def strategies(*requests: Request) -> dict[str, Policy]:
    """Stela and all that it was compared with, asked for the same."""
    moves = {order: Migrate(order=order, requests=requests) for order in ORDERS}
    return {"stela": Stela(requests=requests), "default": Rebalance(requests=requests), **moves}


def throughput(history: History) -> list[float]:
    """The application's throughput, window by window."""
    return [sinks(history.topology, s.snapshot) for s in history]


def scale_out_runs(trial: Trial, *, seed: int = 1, only: Sequence[str] = (), noise: float = 0.02) -> dict[str, History]:
    """One run of each strategy: machines join after five minutes of fifteen."""
    asked = ScaleOut(trial.after - trial.before, at_s=ASKED * 10.0)
    chosen = {name: p for name, p in strategies(asked).items() if not only or name in only}
    app = trial.app(noise=noise)
    return {name: run(p, app.simulator(seed=seed), steps=STEPS, seed=seed) for name, p in chosen.items()}


def scale_out_table(
    seeds: Sequence[int] = (1, 2, 3), *, trials: Sequence[Trial] = TABLE_ONE, only: Sequence[str] = ()
) -> pd.DataFrame:
    """Scale-out on all topologies by all strategies: gains, convergence, interruption, and what the paper prints."""
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
    """Scale-in: Stela's choice of machines against `draws` of all choices, evenly spread over them.

    A random choice is carried out in both readings: all instances dealt anew, or only those whose machine left.
    """
    import pandas as pd

    app, asked = SCALE_IN.app(), ScaleIn(SCALE_IN.before - SCALE_IN.after, ASKED * 10.0)
    stela = run(Stela(requests=(asked,)), app.simulator(seed=seed), steps=STEPS, seed=seed)
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
    """`draws` of all choices of the machines that leave in scale-in, evenly spread over them, and what runs then."""
    count, machines = SCALE_IN.before - SCALE_IN.after, list(app.plant.nodes)
    choices = list(combinations(machines, count))
    found = {}
    for i in range(min(draws, len(choices))):
        leave = choices[i * len(choices) // min(draws, len(choices))]
        places = without(app.topology, app.placement, leave, machines, deal=deal)
        found[leave] = replace(app.deployment(), workers=SCALE_IN.after, placement=places)
    return found


def kept(x: Sequence[float]) -> float:
    """Of the throughput before machines came or left, the share that there is once all is calm."""
    return fmean(x[SETTLED:]) / fmean(x[5:ASKED])


def carried_out(backend: Simulator, target: Deployment, at: int = ASKED, steps: int = STEPS) -> list[float]:
    """Throughput, window by window, of a run without a policy in which `target` is deployed in window `at`."""
    found = []
    with backend:
        for window in range(steps):
            if window == at:
                backend.deploy(target)
            found.append(sinks(backend.topology, backend.observe()))
    return found


def sinks(topology: Topology, snapshot: Snapshot) -> float:
    """Records/s that the sinks processed: the paper's application throughput."""
    return sum(snapshot.operators[n].processing_rate for n in topology.sinks)


def _stopped(history: History) -> float:
    """Seconds that the change stopped operators, on average over operators: their share of a window without work."""
    before, after = history[ASKED - 1].snapshot, history[ASKED:]
    lost = 0.0
    for name, m in before.operators.items():
        usual = m.processing_rate or 1.0
        windows = [s.snapshot.operators[name].processing_rate for s in after[:10]]
        lost += sum(10.0 for rate in windows if rate < 0.02 * usual)
    return lost / len(before.operators)


def main() -> None:
    import pandas as pd

    from .stela_settings import cores_table, scale_in_by_cores

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
