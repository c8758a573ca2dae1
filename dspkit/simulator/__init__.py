"""The simulated cluster: a Backend with two engines, many simulations at once, several applications on one cluster.

The four simulations form a 2 x 2: the folder is the level of detail, the module is the execution of the job.

|  | pipelined | micro-batch |
|---|---|---|
| `fluid/`: rates in ticks | `engine` (with `kernel`, `latency`) | `microbatch` |
| `records/`: each record is an event | `engine` (with `loop`, `steps`, `relayout`) | `microbatch` |

`Simulator(engine="fluid" | "records")` chooses the row, `Plant(execution="pipelined" | "micro-batch")` the column; all
four fulfil the protocol `Engine` in `job.py`. `system/` describes the cluster (services, nodes, links, faults, pauses),
and `fitting/` estimates such a description from a recorded run. Everything loads on first use: describing a cluster
needs no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazy_exports

if TYPE_CHECKING:
    from .fitting import FULL, Estimate, Fit, fit, fit_live, keeps_up, predict
    from .simulator import Simulator
    from .sweep import simulate_many
    from .system import (
        VARIANTS,
        Fault,
        Link,
        MetricsOutage,
        Node,
        NodeDown,
        NodeSlow,
        Places,
        Plant,
        ProcessAssignment,
        Scheduler,
        Service,
        Skew,
        arrivals_by_node,
        assign_processes,
        moved_share,
        outages,
        packed,
        pauses,
        round_robin,
        variant,
    )
    from .tenants import Cluster

__all__ = [
    "FULL",
    "VARIANTS",
    "Cluster",
    "Estimate",
    "Fault",
    "Fit",
    "Link",
    "MetricsOutage",
    "Node",
    "NodeDown",
    "NodeSlow",
    "Places",
    "Plant",
    "ProcessAssignment",
    "Scheduler",
    "Service",
    "Simulator",
    "Skew",
    "arrivals_by_node",
    "assign_processes",
    "fit",
    "fit_live",
    "keeps_up",
    "moved_share",
    "outages",
    "packed",
    "pauses",
    "predict",
    "round_robin",
    "simulate_many",
    "variant",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "fitting": "Estimate FULL Fit fit fit_live keeps_up predict",
        "simulator": "Simulator",
        "sweep": "simulate_many",
        "system": (
            "Fault Link MetricsOutage Node NodeDown NodeSlow Places Plant ProcessAssignment Scheduler Service Skew"
            " VARIANTS arrivals_by_node assign_processes moved_share outages packed pauses round_robin variant"
        ),
        "tenants": "Cluster",
    },
)
