"""The common part of all loaders: the protocol, the count of problems, and limits for hostile input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ...core import DspkitError, History, Knobs, knob

_SHOWN = 3  # examples kept of each reason
_LONGEST = 200  # characters of an example: it may contain untrusted text
_REASONS = 1000  # kinds of problems that are counted separately


class LoaderError(DspkitError):
    """Metrics that cannot be loaded: nothing usable in them, unknown columns, a server that does not answer."""


@runtime_checkable
class Loader(Protocol):
    """The protocol of loaders: metrics of an engine become a History without decisions.

    >>> from dspkit.loaders import FlinkRest
    >>> isinstance(FlinkRest("http://localhost:8081"), Loader)
    True
    """

    @property
    def problems(self) -> Problems:
        """The number of readings that `history()` dropped, by reason; empty before its call."""
        ...

    def history(self) -> History:
        """Read everything: the topology, and one Step without a decision per window.

        Examples
        --------
        >>> import pandas as pd
        >>> from dspkit.loaders import Table
        >>> rows = [(t, "work", 90.0, 0.5) for t in (10, 20)]
        >>> frame = pd.DataFrame(rows, columns=["t", "operator", "processing_rate", "utilisation"])
        >>> len(Table(frame, topology=["work"], parallelism=2).history())
        2
        """
        ...


class Problems(Mapping[str, int]):
    """Counts of dropped or doubtful readings, by reason; `examples` has the first places.

    Parameters
    ----------
    strict : bool
        Raise the first problem as a LoaderError that names its place.

    Examples
    --------
    >>> problems = Problems()
    >>> problems.count("negative", "row 3: backlog = -1")
    >>> problems.count("negative", "row 9: backlog = -2")
    >>> problems
    2 x negative (row 3: backlog = -1; row 9: backlog = -2)
    """

    def __init__(self, *, strict: bool = False):
        self.strict = strict
        self.examples: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def count(self, reason: str, where: str, n: int = 1) -> None:
        """Count a problem.

        Parameters
        ----------
        reason : str
            The kind of problem.
        where : str
            The place, of which the first few are kept.
        n : int
            The number of readings concerned.

        Examples
        --------
        >>> problems = Problems()
        >>> problems.count("line too long", "log line 3")
        >>> dict(problems)
        {'line too long': 1}
        """
        where = where if len(where) <= _LONGEST else where[:_LONGEST] + "..."
        if self.strict:
            raise LoaderError(
                f"{where}: {reason}", expected="nothing to drop, with strict=True", fix="repair the input"
            )
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
    """The limits of a loader for untrusted input: raise one for input that you trust.

    >>> Limits(names=5000).names
    5000
    """

    total_bytes: int = knob(1 << 36, "of one input, decompressed", low=1, high=1 << 50)
    expansion: int = knob(1000, "maximal ratio of decompressed to compressed size", low=1, high=1 << 30)
    line_bytes: int = knob(8 << 20, "of one line of a file; longer ones are dropped", low=16, high=1 << 30)
    answer_bytes: int = knob(32 << 20, "of one HTTP answer or JSON file", low=16, high=1 << 32)
    readings: int = knob(1_000_000, "rows, executed stages, or windows of a series", low=1, high=1 << 40)
    samples: int = knob(100_000_000, "of all series together", low=1, high=1 << 50)
    names: int = knob(2000, "operators, stages of a batch, files of a folder", low=1, high=1 << 30)
    timeout_s: float = knob(30.0, "that a server may be silent", low=0.01, high=3600.0, unit="s")
    deadline_s: float = knob(300.0, "for all answers of a server together", low=0.01, high=1e6, unit="s")

    def check(self, name: str, value: int) -> None:
        """Raise a LoaderError if a value exceeds the limit of that name.

        Parameters
        ----------
        name : str
            The limit, as in "names".
        value : int
            The value to check.

        Examples
        --------
        >>> Limits().check("names", 3)
        """
        if value > (most := getattr(self, name)):
            raise LoaderError(
                f"more than {most:,} ({name})",
                expected="input within the loader's limits",
                fix=f"pass limits=Limits({name}=...) if you trust it",
            )


LIMITS = Limits()
