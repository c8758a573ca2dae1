"""The simulated cluster: one Backend, two engines, and many simulations at once."""

from .many import simulate_many
from .simulator import Simulator

__all__ = ["Simulator", "simulate_many"]
