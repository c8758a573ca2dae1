"""Parcels that are scanned and sorted."""

from __future__ import annotations

from dspkit import Operator, Plant, Topology, workload
from dspkit.apps import App
from dspkit.simulator import Service


def parcels() -> App:
    """Return the application: its graph, seconds per record and instance, and a load that jumps."""
    graph = Topology((Operator("scan"), Operator("sort")), (("scan", "sort"),))
    costs = Plant({"scan": Service(1e-4), "sort": Service(1e-3)})
    return App("parcels", graph, costs, workload.Jump(500, 3000, 300), target_latency_s=0.5)
