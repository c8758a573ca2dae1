"""Query 1 of DEBS 2015: the ten most frequent taxi routes of the last half hour; and two days of such a load.

Service rates and state are those of the thesis' Table 8.2. What it leaves out is ours and said in `taxi`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..core import Operator, Topology
from ..knobs import knob
from ..plant import Link, Node, Plant, Service
from ..workload import Workload
from .app import App

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

HOURS = (  # of a day: trips in each, as a share of the busiest; New York sleeps at five and goes out at seven
    0.55, 0.40, 0.28, 0.19, 0.13, 0.12, 0.28, 0.55, 0.75, 0.78, 0.72, 0.74,
    0.78, 0.77, 0.80, 0.76, 0.67, 0.80, 0.97, 1.00, 0.95, 0.93, 0.90, 0.75,
)  # fmt: skip
RATES = {  # records/s of one instance, and bytes of state
    "data_source": (284.0, 82.0), "parser": (233.0, 0.0), "filter_by_coordinates": (253.0, 0.0),
    "compute_route_id": (253.0, 0.0), "metronome": (300.0, 328.0), "count_by_window": (335.0, 1376.0),
    "partial_rank": (2371.0, 1536.0), "global_rank": (3000.0, 480.0),
}  # fmt: skip
PINNED = ("data_source", "metronome", "global_rank")  # never replicated
EDGES = (
    ("data_source", "parser"), ("parser", "filter_by_coordinates"), ("filter_by_coordinates", "compute_route_id"),
    ("filter_by_coordinates", "metronome"), ("compute_route_id", "count_by_window"), ("metronome", "count_by_window"),
    ("count_by_window", "partial_rank"), ("partial_rank", "global_rank"),
)  # fmt: skip


@dataclass(frozen=True)
class TaxiDays(Workload):
    """Trips over days, replayed faster: two peaks a day, quiet nights, and swings from minute to minute.

    >>> [round(TaxiDays(swing=0.0, start_h=0.0).rate(h / 24 * 2880)) for h in (5.5, 9.5, 19.5)]
    [32, 207, 265]
    """

    peak_per_s: float = knob(
        265.0, "mean of the busiest hour; swings reach the printed 300", low=0.0, high=1e9, unit="records/s"
    )
    speedup: float = knob(30.0, "how many times faster than it happened", low=1.0, high=3600.0)
    start_h: float = knob(
        9.5, "hour at which the replay begins; peaks come at 1140 and 4020 s", low=0.0, high=24.0, unit="h"
    )
    swing: float = knob(0.08, "coefficient of variation of the swings about the day's curve", low=0.0, high=1.0)
    swing_s: float = knob(30.0, "how long a swing lasts, in the replay", low=1.0, high=3600.0, unit="s")
    seed: int = knob(0, "which swings", low=0, high=2**32 - 1)

    @property
    def day_s(self) -> float:
        """Length of a day in the replay."""
        return 86_400.0 / self.speedup

    def rates(self, t: Array) -> Array:
        import numpy as np

        hours = self.start_h + np.asarray(t, dtype=float) / self.day_s * 24
        curve = np.interp(hours % 24, np.arange(-0.5, 25), (HOURS[-1], *HOURS, HOURS[0]))
        if not self.swing:
            return self.peak_per_s * curve
        number: Array = np.maximum(0, np.floor(np.asarray(t) / self.swing_s)).astype(int)
        swings = _swings(self.seed, 1 << int(number.max(initial=1) + 2).bit_length())
        part = np.asarray(t) / self.swing_s - number
        between = swings[number] * (1 - part) + swings[number + 1] * part
        rates: Array = self.peak_per_s * curve * np.maximum(0.0, 1 + self.swing * between)
        return rates


@lru_cache(maxsize=16)
def _swings(seed: int, count: int) -> Any:
    """Standard normal, one after the other; a longer row begins as a shorter one."""
    import numpy as np

    return np.random.default_rng(seed).standard_normal(count)


def taxi(*, upstream_speed: float = 2.0) -> App:
    """DEBS 2015, query 1, in eight operators, on two days of taxi-shaped load replayed 30 times as fast.

    For each source record `partial_rank` gets 21.4 (inferred from the times at which the thesis' runs scale it).
    Chapters 8 and 9 saw 8 to 10 replicas at up to 300 tuples/s, so that only `partial_rank` was short: the other
    operators must have been faster there than in the table, and are taken `upstream_speed` times as fast. Links of 16
    ms between five nodes bring the response time to the printed 90 to 120 ms. 4.2 of each node's eight cores go to the
    engine: a figure fitted to the printed availability of a job that is reconfigured whenever anybody asks. A rescale
    stops the job for 6.5 s, the thesis' own formula.
    """
    services = {}
    for name, (rate, state) in RATES.items():
        faster = 1.0 if name == "partial_rank" else upstream_speed
        selectivity = {"count_by_window": 21.4, "metronome": 0.003, "partial_rank": 0.05}.get(name, 1.0)
        services[name] = Service(
            1 / (rate * faster), selectivity=selectivity, state_bytes=state, queue_records=500, record_bytes=200
        )
    operators = tuple(Operator(n, 1 if n in PINNED else 3, stateful=state > 0) for n, (_, state) in RATES.items())
    nodes = {f"node-{i}": Node(cores=8, overhead_cores=4.2) for i in range(1, 6)}
    plant = Plant(services, nodes, pause_s=6.5, network=Link(delay_s=0.016), noise=0.02)
    return App("taxi", Topology(operators, EDGES), plant, TaxiDays(), 0.2, "nardelli")
