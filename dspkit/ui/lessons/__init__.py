"""Small experiments with sliders: each is a frozen dataclass of knobs with a `plot()`.

`ui.Lesson(lessons.Waiting())` shows one with its controls; `lessons.Waiting(utilisation=0.9).plot()` is the same as a
plain call.
"""

from .contention import Contention
from .elasticity import Elasticity
from .fault import Fault
from .placement import Placement
from .scorer import Scorer
from .symbiosis import Symbiosis
from .transfer import Transfer
from .waiting import Waiting

__all__ = ["Contention", "Elasticity", "Fault", "Placement", "Scorer", "Symbiosis", "Transfer", "Waiting"]
