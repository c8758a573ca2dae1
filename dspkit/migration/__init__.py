"""Migration of tasks with their state: a simulation of the two-barrier protocol, its costs, and placements of tasks."""

from .protocol import Flow, Migration, MigrationCosts, counting_logic, forward
from .tasks import Relocation, StormDowntime, crossing, executor_traffic, groups, least_traffic, relocate

__all__ = [
    "Flow",
    "Migration",
    "MigrationCosts",
    "Relocation",
    "StormDowntime",
    "counting_logic",
    "crossing",
    "executor_traffic",
    "forward",
    "groups",
    "least_traffic",
    "relocate",
]
