"""What can go wrong with a live job, each as one readable error."""

from __future__ import annotations

import json

from ..errors import BackendError, DspkitError, TopologyError

FAILED = "dspkit-operator-failed "  # marks our report in the text that Spark makes of an error


class FunctionError(BackendError):
    """An operator's function raised, or gave something else than it said; the user's own traceback comes first."""

    def __str__(self) -> str:
        return f"{self.came}\n\nexpected {self.expected}; {self.fix}"


class QueryError(BackendError):
    """Spark ended the query, and starting it again did not help."""


class CheckpointError(DspkitError):
    """A checkpoint of another job, in use by another job, or incomplete."""


class SchemaError(TopologyError):
    """What one operator sends is not what the next one needs."""


class SessionError(BackendError):
    """Spark does not start, or runs already with settings that this job cannot work with."""


def readable(error: Exception | None) -> BackendError:
    """What ended a query, as one error: the user's own if it was the user's function, else Spark's first line."""
    text = str(error) if error is not None else "no reason given"
    _, found, rest = text.partition(FAILED)
    if found:
        told, _ = json.JSONDecoder().raw_decode(rest)
        return FunctionError(
            told["error"],
            expected=f"a function of operator {told['operator']!r} that does not raise",
            fix="mend it, and start the job again from its checkpoint if it has one",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return QueryError(
        f"the end of the query ({' '.join(lines[:3]):.600})", expected="one that goes on", fix="see Spark's own log"
    )
