"""The errors that dspkit raises deliberately: one base class, and kinds that are also Python's own.

Each message states the received value, the expected one, and the remedy. An `except` clause for Python's kind catches
these errors too.

| kind | also a | for |
|---|---|---|
| ArgumentError | ValueError | an argument of the wrong type or outside its range; specific errors derive from it |
| NotFoundError | LookupError | a name that does not exist |
| FileError | OSError | a file that is missing, in the way, or of another kind |
| BackendError | RuntimeError | a backend that is closed, or fails |
"""

from __future__ import annotations

from .visible import visible


class DspkitError(Exception):
    """Base class of all errors that dspkit raises deliberately.

    Parameters
    ----------
    got
        The received value.
    expected
        The expected value.
    fix
        The remedy.

    Examples
    --------
    >>> raise DspkitError("-3 records/s", expected="a rate >= 0", fix="check the meter")
    Traceback (most recent call last):
    dspkit.core.errors.DspkitError: got -3 records/s; expected a rate >= 0; check the meter
    """

    def __init__(self, got: str, *, expected: str, fix: str):
        # All three may quote files and servers, whose control characters could rewrite what a terminal shows.
        self.got, self.expected, self.fix = visible(got), visible(expected), visible(fix)
        super().__init__(f"got {self.got}; expected {self.expected}; {self.fix}")

    def __reduce__(self) -> tuple[object, ...]:  # the default loses keyword-only arguments between processes
        return _rebuild, (type(self), self.got, self.expected, self.fix)


def _rebuild(cls: type[DspkitError], got: str, expected: str, fix: str) -> DspkitError:
    return cls(got, expected=expected, fix=fix)


class ArgumentError(DspkitError, ValueError):
    """An argument of the wrong type, outside its range, or in conflict with another one."""


class KnobError(ArgumentError):
    """A knob's value that is of the wrong type, outside its range, or in conflict with another knob."""


class TopologyError(ArgumentError):
    """A topology that is not a directed acyclic graph of known, unique names, or that has an isolated operator."""


class DeploymentError(ArgumentError):
    """A deployment that does not fit its topology, or that its backend cannot carry out."""


class MetricError(ArgumentError):
    """An impossible measurement: negative, not a number, or of an unknown operator."""


class WorkloadError(ArgumentError):
    """An invalid load: negative rates, times that decrease, an unreadable file."""


class PlacementError(ArgumentError):
    """An inconsistent placement problem, or a placement that breaks its rules."""


class InfeasibleError(PlacementError):
    """A placement problem without a feasible placement: too little capacity, or an unreachable node."""


class CapacityError(ArgumentError):
    """A request that exceeds the cluster, or a search space that is too small or too large."""


class NotFoundError(DspkitError, LookupError):
    """A policy, application, data set or reference whose name does not exist."""


class FileError(DspkitError, OSError):
    """A file that is missing, in the way, or not of the expected kind."""


class BackendError(DspkitError, RuntimeError):
    """A backend that is closed, or that cannot carry out a request."""
