"""The simulated cluster: one Backend, two engines."""

from .simulator import Simulator

__all__ = ["Simulator"]
