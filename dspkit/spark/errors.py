"""What can go wrong with a live job, each as one readable error."""

from __future__ import annotations

import json
import re

from ..errors import BackendError, DspkitError, TopologyError

FAILED = "dspkit-operator-failed "  # marks our report in the text that Spark makes of an error
SOURCE_FAILED = "dspkit-source-failed "


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


class SourceError(BackendError):
    """A log that does not answer, or that lost what was not read yet."""


class SessionError(BackendError):
    """Spark does not start, or runs already with settings that this job cannot work with."""


class ClusterError(BackendError):
    """A master or a worker of ours does not start, or a worker does not come."""


def readable(error: Exception | None, failed: tuple[str, str] | None = None) -> BackendError:
    """What ended a query, as one error: the user's own if it was the user's function, else what Spark says.

    `failed` is the operator whose function raised and its traceback, if that is known.
    """
    if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JNetworkError", "Py4JError"):
        fix = "start the job again, from its checkpoint if it has one"
        return QueryError("the end of the Java that Spark runs in", expected="one that goes on", fix=fix)
    text = str(error) if error is not None else "no reason given"
    _, found, rest = text.partition(SOURCE_FAILED)
    if found:
        came, expected, fix = json.JSONDecoder().raw_decode(rest)[0]
        return SourceError(came, expected=expected, fix=fix)
    _, found, rest = text.partition(FAILED)
    if found and not failed:
        failed = tuple(json.JSONDecoder().raw_decode(rest)[0])
    if failed:
        return FunctionError(
            failed[1],
            expected=f"a function of operator {failed[0]!r} that does not raise",
            fix="mend it, and start the job again from its checkpoint if it has one",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt): ", line)]
    came = f"the end of the query ({' '.join(told[-1:] or lines[:2]):.600})"
    return QueryError(came, expected="one that goes on", fix="see Spark's own log")
