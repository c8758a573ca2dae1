"""What a solver answers: the placement, what it is worth, how sure that is, how long it took."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import PlacementError
from ..frozen import FrozenMap
from .arrays import number
from .metrics import Metrics, metrics
from .problem import Placement, Problem

PROVEN = 1e-6  # relative gap below which an answer counts as the optimum; HiGHS and CBC are asked for the same


class Progress(NamedTuple):
    """What a solver knows on its way."""

    seconds: float
    loss: float  # of the best placement so far, inf if none
    bound: float  # no placement can be better than this
    placement: Placement | None


Watch = Callable[[Progress], object]
Longer = Callable[[], tuple[Placement, float]]  # a longer local search: a placement and its loss


@dataclass(frozen=True)
class Clock:
    """When a search began and must end, how good is good enough, and who is told."""

    started: float
    deadline: float
    gap: float
    constant: float
    watch: Watch | None

    @property
    def over(self) -> bool:
        return time.perf_counter() > self.deadline

    def slack(self, loss: float) -> float:
        """What is less than this below the best placement is not looked for."""
        return max(self.gap * abs(loss), 1e-9 * abs(loss) + 1e-13) if math.isfinite(loss) else 0.0

    def tell(self, loss: float, bound: float, placement: Placement) -> None:
        if self.watch is not None:
            seconds = time.perf_counter() - self.started
            self.watch(Progress(seconds, loss + self.constant, bound + self.constant, placement.copy()))


def limits_allowed(solver: str, solvers: Sequence[str], time_limit_s: float, gap: float) -> None:
    """An error for a solver that does not exist, or limits that are no numbers."""
    if solver not in solvers:
        raise PlacementError(f"solver {solver!r}", expected=f"one of {', '.join(solvers)}", fix="correct the name")
    for name, value in (("time_limit_s", time_limit_s), ("gap", gap)):
        number(value, name, infinite=True)


class Proof:
    """How sure an answer is: its `loss` lies at most `gap` (a share) above the least there is."""

    loss: float
    bound: float
    seconds: float
    solver: str

    @property
    def gap(self) -> float:
        """How far the answer may be from the optimum, as a share of its loss."""
        distance = max(0.0, self.loss - self.bound)
        return 0.0 if distance <= 1e-9 else distance / max(abs(self.loss), 1e-12)

    @property
    def proven(self) -> bool:
        return self.gap <= PROVEN

    def __repr__(self) -> str:
        proof = "proven optimum" if self.proven else f"gap {self.gap:.1%}" if self.gap < math.inf else "no bound"
        return f"<{type(self).__name__} of {self.solver}: loss {self.loss:.6g}, {proof}, {self.seconds:.3g} s>"


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Proof):
    """A placement and its proof."""

    problem: Problem
    placement: Placement
    loss: float
    bound: float
    seconds: float
    solver: str
    details: Mapping[str, Any] = field(default_factory=FrozenMap)

    @property
    def metrics(self) -> Metrics:
        """Computed anew from the placement."""
        return metrics(self.problem, self.placement)

    @property
    def named(self) -> dict[str, str]:
        return self.problem.named(self.placement)
