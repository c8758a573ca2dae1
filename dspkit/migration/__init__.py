"""Moving tasks with their state: the two-barrier protocol simulated, what it costs, and where tasks should go."""

from .downtime import StormDowntime
from .flow import Flow, Migration, count, forward
from .network import Costs
from .tasks import Relocation, crossing, executor_traffic, groups, least_traffic, relocate

__all__ = [
    "Costs", "Flow", "Migration", "Relocation", "StormDowntime", "count", "crossing",
    "executor_traffic", "forward", "groups", "least_traffic", "relocate",
]  # fmt: skip
