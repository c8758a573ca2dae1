"""Input rate over time: shapes, recorded loads, and any (timestamp, count) table as a load.

A `Workload` is a pure function from seconds since the start to records/s. `load("flights_2013")` is a recorded load
that comes with dspkit, `read("my.csv")` any other one; both return `Counts`, whose method
`workload(compress=60, mean_per_s=200)` makes a load for the simulator and for live jobs. docs/data.md lists further
sources of recorded loads.
"""

from __future__ import annotations

from .counts import Counts
from .formats import page_views, read, world_cup_98
from .recorded import folder, load, names
from .shapes import Bursts, Constant, Jump, PoissonModulated, Scaled, Sine, Square, Stair, Sum, Trace, Workload

__all__ = [
    "Bursts",
    "Constant",
    "Counts",
    "Jump",
    "PoissonModulated",
    "Scaled",
    "Sine",
    "Square",
    "Stair",
    "Sum",
    "Trace",
    "Workload",
    "folder",
    "load",
    "names",
    "page_views",
    "read",
    "world_cup_98",
]
