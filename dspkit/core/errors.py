"""The errors that dspkit raises deliberately: one base class, and kinds that are also Python's own.

Each message states the received value, the expected one, and the remedy. An `except` clause for Python's kind catches
these errors too.

| kind | also a | for |
|---|---|---|
| ArgumentError | ValueError | an argument of the wrong type or outside its range; specific errors derive from it |
| NotFoundError | LookupError | a name that does not exist |
| FileError | OSError | a file that is missing, in the way, or of another kind |
| BackendError | RuntimeError | a backend that is closed, or fails |

Texts that a message quotes can come from anywhere: `visible` shows characters that hide or reorder text as escapes.
"""

from __future__ import annotations

import re


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


# Control characters other than tab and line break, soft hyphens, marks and overrides of the direction of writing,
# other separators of lines, spaces without width, tags, and halves of characters. Joiners of letters, the line break of
# Windows and the flags of countries in a country, which are written in tags, are kept.
_HIDDEN = re.compile(
    "(?P<kept>\r(?=\n)|\U0001f3f4[\U000e0061-\U000e007a]{4,6}\U000e007f)|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return a text in which characters that could hide or reorder parts of it, or control a terminal, are escapes.

    Examples
    --------
    >>> print(visible("a\\x1b[31mb"))
    a\\x1b[31mb
    """
    return _HIDDEN.sub(lambda found: found["kept"] or found[0].encode("unicode_escape").decode(), text)


_JSON_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|.)", re.IGNORECASE)


def visible_json(text: str) -> str:
    """Return a JSON text in whose words such characters, raw or escaped, are visible escapes.

    Examples
    --------
    >>> import json
    >>> print(json.loads(visible_json(json.dumps("a\\x1b[31mb"))))
    a\\x1b[31mb
    """

    def shown(found: re.Match[str]) -> str:
        high, low, one = found.groups()
        if high:
            character = bytes.fromhex(high + low).decode("utf-16-be")
        else:
            character = chr(int(one, 16)) if one else {"b": "\b", "f": "\f", "r": "\r"}.get(found[0][1], "")
        escaped = visible(character)
        return found[0] if escaped == character else escaped.replace("\\", "\\\\")

    text = _JSON_ESCAPE.sub(shown, text)
    return _HIDDEN.sub(lambda found: visible(found[0]).replace("\\", "\\\\"), text)
