"""What all loaders share: the protocol, the list of what was dropped, and the limits that hostile input runs into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..errors import DspkitError
from ..history import History
from ..knobs import Knobs, knob

_SHOWN = 3  # examples kept of each reason
_LONGEST = 200  # characters of an example: it may hold what a stranger wrote
_REASONS = 1000  # kinds of problems that are told apart


class LoaderError(DspkitError):
    """Metrics that cannot be loaded: nothing usable in them, unknown columns, a server that does not answer."""


@runtime_checkable
class Loader(Protocol):
    """Turns what somebody else's engine reports into a History without decisions."""

    @property
    def problems(self) -> Problems:
        """What `history()` dropped, and how often, by reason; empty before it was called."""
        ...

    def history(self) -> History:
        """Read all there is: the topology, and a Step without a decision for each window."""
        ...


class Problems(Mapping[str, int]):
    """How often something was dropped or doubted, by reason; `examples` say where it was first seen.

    >>> problems = Problems()
    >>> problems.count("negative", "row 3: backlog = -1")
    >>> problems.count("negative", "row 9: backlog = -2")
    >>> problems
    2 x negative (row 3: backlog = -1; row 9: backlog = -2)
    """

    def __init__(self, *, strict: bool = False):
        """`strict`: the first problem is raised as a LoaderError that names its place."""
        self.strict = strict
        self.examples: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def count(self, reason: str, where: str, n: int = 1) -> None:
        where = where if len(where) <= _LONGEST else where[:_LONGEST] + "..."
        if self.strict:
            raise LoaderError(f"{where}: {reason}", expected="nothing to drop, with strict=True", fix="mend the input")
        if reason not in self._counts and len(self._counts) >= _REASONS:
            reason = "more kinds of problems"
        self._counts[reason] = self._counts.get(reason, 0) + n
        known = self.examples.setdefault(reason, [])
        if len(known) < _SHOWN:
            known.append(where)

    def __getitem__(self, reason: str) -> int:
        return self._counts[reason]

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __repr__(self) -> str:
        told = (f"{n} x {reason} ({'; '.join(self.examples[reason])})" for reason, n in self.items())
        return "\n".join(told) or "no problems"


@dataclass(frozen=True)
class Limits(Knobs):
    """How much a loader takes before it refuses: raise one for input that you trust."""

    total_bytes: int = knob(1 << 36, "of one input, unpacked", low=1, high=1 << 50)
    expansion: int = knob(1000, "times that a packed file may grow", low=1, high=1 << 30)
    line_bytes: int = knob(8 << 20, "of one line of a file; longer ones are dropped", low=16, high=1 << 30)
    answer_bytes: int = knob(32 << 20, "of one HTTP answer or JSON file", low=16, high=1 << 32)
    readings: int = knob(1_000_000, "rows, stages that ran, or windows of a series", low=1, high=1 << 40)
    samples: int = knob(100_000_000, "of all series together", low=1, high=1 << 50)
    names: int = knob(2000, "operators, stages of a batch, files of a folder", low=1, high=1 << 30)
    timeout_s: float = knob(30.0, "that a server may be silent", low=0.01, high=3600.0, unit="s")
    deadline_s: float = knob(300.0, "for all answers of a server together", low=0.01, high=1e6, unit="s")

    def check(self, name: str, value: int) -> None:
        """Refuse what is beyond the limit of that name."""
        if value > (most := getattr(self, name)):
            raise LoaderError(
                f"more than {most:,} ({name})",
                expected="input within the loader's limits",
                fix=f"pass limits=Limits({name}=...) if you trust it",
            )


LIMITS = Limits()
