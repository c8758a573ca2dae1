"""Recorded loads: the traces of `data/`, checked and with their licence, and any (timestamp, count) table as a load.

`load("flights_2013")` is a trace of this repository; `read("my.csv")` any other. Both give `Counts`, whose
`workload(compress=60, mean_per_s=200)` is a load for the simulator and for live jobs.
docs/data.md tells where others are.
"""

from __future__ import annotations

from .catalogue import folder, load, names
from .counts import Counts
from .formats import page_views, read, world_cup_98

__all__ = ["Counts", "folder", "load", "names", "page_views", "read", "world_cup_98"]
