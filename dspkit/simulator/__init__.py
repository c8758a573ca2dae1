"""The simulated cluster: a Backend with two engines, many simulations at once, several applications on one cluster."""

from .many import simulate_many
from .shared import Cluster
from .simulator import Simulator

__all__ = ["Cluster", "Simulator", "simulate_many"]
