"""The dependence of Figure 9 on its loads: `python -m reproduction.elysium.waves`.

The paper prints neither levels nor periods, nor its tweets. This study runs joint and reactive scaling on sines of many
levels and periods and on bursts of different lengths, and the proactive scaler on square waves that are long compared
with its horizon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from dspkit.comparison.scores import degradation, nodes_saved, rescales
from dspkit.core import Policy
from dspkit.forecasting import AutoRegression
from dspkit.policies.elysium import Elysium, Joint
from dspkit.workload import Sine, Square

from .loads import LEAST, LEVELS, MINUTES, bursty
from .recorded import RESERVE
from .study import MINUTE, NODES, app, play, profiled

if TYPE_CHECKING:
    import pandas as pd


PERIODS_S = (375.0, 500.0, 750.0, 1500.0)
BURSTS = (  # seconds that they last, seconds in which they fade, number per day
    (0.0, 60.0, 5), (0.0, 150.0, 5), (0.0, 150.0, 2), (0.0, 300.0, 2), (180.0, 150.0, 2), (300.0, 60.0, 2),
    (600.0, 30.0, 1),
)  # fmt: skip


def sines(pause_s: float = 6.5) -> pd.DataFrame:
    """Return degradation, nodes saved in % and changes of three rivals, one row per application, range and period."""
    import pandas as pd

    rows = []
    for name, (low, mid, high, top) in LEVELS.items():
        reactive = Elysium(learned=profiled(name), load="emitted", signal="cpu")
        rivals: dict[str, Policy] = {
            "joint": Joint(signal="cpu"),
            "reactive": reactive,
            "reserve": replace(reactive, **RESERVE),
        }
        for least, most in ((LEAST, mid), (LEAST, high), (LEAST, top), (low, mid), (low, high), (low, top)):
            for period in PERIODS_S:
                wave = Sine((least + most) / 2, (most - least) / 2, period, phase_s=period / 4)
                row = {"app": name, "from_per_s": least, "to_per_s": most, "period_s": period}
                for rival, policy in rivals.items():
                    history = play(name, wave, policy, pause_s=pause_s)
                    row[rival] = degradation(history).mean
                    row[f"{rival}_saved"] = 100 * nodes_saved(history, NODES, every_s=MINUTE)
                    row[f"{rival}_changes"] = rescales(history)
                rows.append(row)
    return pd.DataFrame(rows)


def bursts(pause_s: float = 6.5, seeds: Sequence[int] = (0, 1)) -> pd.DataFrame:
    """Return joint, reactive, and reactive from the running deployment, by application, peak and kind of burst.

    Bursts end after a minute or two, or last for minutes before they fade; of the longer ones there are fewer per day.
    """
    import pandas as pd

    rows = []
    for name, (_, *tops) in LEVELS.items():
        reactive = Elysium(learned=profiled(name), load="emitted", signal="cpu")
        rivals: dict[str, Policy] = {
            "joint": Joint(signal="cpu"),
            "reactive": reactive,
            "current": replace(reactive, from_current=True),
        }
        for top in tops:
            for hold_s, fade_s, count in BURSTS:
                row = {"app": name, "to_per_s": top, "hold_s": hold_s, "fade_s": fade_s, "a_day": count}
                for rival, policy in rivals.items():
                    runs = [
                        play(name, bursty(LEAST, top, s, bursts=count, hold_s=hold_s, fade_s=fade_s), policy, seed=s,
                             pause_s=pause_s, minutes=MINUTES["recorded"])
                        for s in seeds
                    ]  # fmt: skip
                    row[rival] = fmean(degradation(h).mean for h in runs)
                    row[f"{rival}_saved"] = 100 * fmean(nodes_saved(h, NODES, every_s=MINUTE) for h in runs)
                    row[f"{rival}_changes"] = fmean(map(rescales, runs))
                rows.append(row)
    return pd.DataFrame(rows)


def squares(period_s: float = 1200.0) -> pd.DataFrame:
    """Return joint, reactive, and proactive scaling with three horizons on 25 minutes of square waves of 20 minutes."""
    import numpy as np
    import pandas as pd

    rows = []
    for name, (low, _, high, _) in LEVELS.items():
        wave, reactive = Square(low, high, period_s), Elysium(learned=profiled(name), load="emitted", signal="cpu")
        past = wave.rates(np.arange(0.0, 240 * MINUTE, 5.0) + 2.5).reshape(-1, 12).mean(axis=1)
        proactive = replace(
            reactive,
            mode="proactive",
            predictor=AutoRegression(lags=round(period_s / MINUTE) + 4),
            past={app(name).topology.sources[0]: tuple(past.tolist())},
            relearn=1000,
        )
        rivals: dict[str, Policy] = {"joint": Joint(signal="cpu"), "reactive": reactive}
        rivals |= {f"proactive, h = {h}": replace(proactive, ahead=h) for h in (1, 2, 5)}
        for rival, policy in rivals.items():
            history = play(name, wave, policy)
            saved = 100 * nodes_saved(history, NODES, every_s=MINUTE)
            rows.append((name, rival, degradation(history).mean, saved, rescales(history)))
    return pd.DataFrame(rows, columns=["app", "policy", "degradation", "saved", "changes"])


def counts(table: pd.DataFrame, rival: str = "reactive") -> dict[str, int]:
    """Return the number of rows in which ELYSIUM saves at least as many nodes, and degrades throughput no more."""
    return {
        "settings": len(table),
        "saves at least as many nodes": int((table[f"{rival}_saved"] >= table.joint_saved).sum()),
        "degrades no more": int((table[rival] <= table.joint).sum()),
        "changes no more often": int((table[f"{rival}_changes"] <= table.joint_changes).sum()),
    }


def main() -> None:
    print("square waves of 20 minutes\n" + squares().to_string(index=False, float_format=lambda x: f"{x:.3f}"), "\n")
    for pause_s in (6.5, 19.2):
        table = sines(pause_s)
        print(f"restart of {pause_s} s: {counts(table)}")
        print(table.to_string(index=False, float_format=lambda x: f"{x:.2f}"), "\n")
    for pause_s in (6.5, 19.2):
        table = bursts(pause_s)
        print(f"bursts, restart of {pause_s} s")
        for stay, rows in table.groupby(table.hold_s > 0):
            for rival in ("reactive", "current"):
                print(f"{'that stay' if stay else 'that fade at once'}, {rival}: {counts(rows, rival)}")
        print(table.to_string(index=False, float_format=lambda x: f"{x:.2f}"), "\n")


if __name__ == "__main__":
    main()
