"""The one error family of dspkit: what came, what was expected, what to do."""

from __future__ import annotations


class DspkitError(ValueError):
    """Base of every error that dspkit raises on purpose.

    >>> raise DspkitError("-3 records/s", expected="a rate >= 0", fix="check the meter")
    Traceback (most recent call last):
    dspkit.errors.DspkitError: got -3 records/s; expected a rate >= 0; check the meter
    """

    def __init__(self, came: str, *, expected: str, fix: str):
        super().__init__(f"got {came}; expected {expected}; {fix}")
        self.came, self.expected, self.fix = came, expected, fix

    def __reduce__(self) -> tuple[object, ...]:  # the default would lose the keyword-only parts between processes
        return _rebuild, (type(self), self.came, self.expected, self.fix)


def _rebuild(cls: type[DspkitError], came: str, expected: str, fix: str) -> DspkitError:
    return cls(came, expected=expected, fix=fix)


class TopologyError(DspkitError):
    """Not a directed acyclic graph of known names, each once and each on an edge (unless it is the only one)."""


class DeploymentError(DspkitError):
    """A deployment does not fit its topology, or its backend cannot carry it out."""


class MetricError(DspkitError):
    """A measured value that cannot be: negative, not a number, or of an unknown operator."""


class KnobError(DspkitError):
    """A setting outside its range or of the wrong type."""


class WorkloadError(DspkitError):
    """A load that cannot be played: rates below zero, times that run backwards, an unreadable file."""


class NotFoundError(DspkitError):
    """A policy, topology, data set or reference of that name does not exist."""


class FileError(DspkitError):
    """A file that is missing, in the way, or not what its name says."""


class PlacementError(DspkitError):
    """A placement problem that makes no sense, or a placement that breaks its rules."""


class InfeasibleError(PlacementError):
    """No placement can keep all the rules: too little capacity, or a node that cannot be reached."""


class BackendError(DspkitError):
    """A backend that is closed, or that cannot do what it is asked."""
