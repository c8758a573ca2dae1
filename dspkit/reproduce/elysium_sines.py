"""How much of Figure 9's sine rows is a matter of the sine: `python -m dspkit.reproduce.elysium_sines`.

The paper prints neither levels nor periods. Here are joint and reactive scaling on sines of many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core import Policy
from ..policies.elysium import Elysium
from ..policies.joint import Joint
from ..scores import degradation, nodes_saved, rescales
from ..workload import Sine
from .elysium import MINUTE, NODES, play, profiled
from .elysium_loads import LEAST, LEVELS

if TYPE_CHECKING:
    import pandas as pd

PERIODS_S = (375.0, 500.0, 750.0, 1500.0)


def sines(pause_s: float = 6.5) -> pd.DataFrame:
    """A row each application, range and period: degradation, nodes saved in % and changes of joint and reactive."""
    import pandas as pd

    rows = []
    for name, (low, mid, high, top) in LEVELS.items():
        rivals: dict[str, Policy] = {"joint": Joint(), "reactive": Elysium(learned=profiled(name))}
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


def counts(table: pd.DataFrame) -> dict[str, int]:
    """In how many rows reactive ELYSIUM saves at least as many nodes, and degrades throughput no more."""
    return {
        "settings": len(table),
        "saves at least as many nodes": int((table.reactive_saved >= table.joint_saved).sum()),
        "degrades no more": int((table.reactive <= table.joint).sum()),
        "changes no more often": int((table.reactive_changes <= table.joint_changes).sum()),
    }


def main() -> None:
    for pause_s in (6.5, 19.2):
        table = sines(pause_s)
        print(f"restart of {pause_s} s: {counts(table)}")
        print(table.to_string(index=False, float_format=lambda x: f"{x:.2f}"), "\n")


if __name__ == "__main__":
    main()
