"""Small experiments with sliders: each is a frozen dataclass of knobs with a `plot()`.

`ui.Lesson(lessons.Waiting())` shows one with its controls; `lessons.Waiting(utilisation=0.9).plot()` is the same as a
plain call.
"""

from .placement import Elasticity, Placement
from .search import Scorer, Transfer
from .simulation import Contention, Fault, Waiting
from .symbiosis import Symbiosis

__all__ = ["Contention", "Elasticity", "Fault", "Placement", "Scorer", "Symbiosis", "Transfer", "Waiting"]
