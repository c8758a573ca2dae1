"""Failures of a live job: errors in one readable sentence, and threads of the driver whose end is noticed."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable

from ..core import BackendError, DspkitError, FileError, TopologyError

FAILED = "dspkit-operator-failed "  # marks our report in the text of Spark's error
SOURCE_FAILED = "dspkit-source-failed "
CHECKPOINT_FAILED = "dspkit-checkpoint-failed "
_LOOK = "see Spark's own log"
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"(Caused by: )?[\w.$]+(Error|Exception|Exit|Interrupt|Invalid)\b")  # names an exception
_STACK = re.compile(r"\s+at [\w.$/]+|\s*\.\.\. \d+ more|Driver stacktrace:")
_AFTER = re.compile(r"\s+at [\w.$/]+|\s*SQLSTATE: |=== Streaming Query|Driver stacktrace:|Caused by: ")
_LOST_TASK = re.compile(r"^Job aborted due to stage failure: .*? most recent failure: Lost task [^:]*?: (?=\S)")


class FunctionError(BackendError):
    """An operator's function raised, or returned something else than declared.

    The exception comes first, then the user's own traceback.
    """

    def __str__(self) -> str:
        return f"{self.got}\n\nexpected {self.expected}; {self.fix}"


class QueryError(BackendError):
    """Spark ended the query, and restarting it did not help."""


class CheckpointError(FileError):
    """A checkpoint of another job, in use by another job, or incomplete."""


class SchemaError(TopologyError):
    """The output of one operator does not fit the next one."""


class SourceError(BackendError):
    """A log that does not answer, or that lost records before they were read."""


class SinkError(BackendError):
    """A sink that does not take the rows of an epoch, or that holds others than the job has published."""


class SessionError(BackendError):
    """Spark does not start, or runs already with settings that do not fit this job."""


class ClusterError(BackendError):
    """A master or a worker of a local cluster does not start."""


class ThreadError(BackendError):
    """A thread of the driver ended although the job runs, so that the job is not measured or controlled any more."""


def readable(
    error: Exception | None, failed: tuple[str, str] | None = None, advice: Callable[[str], str] = lambda _: _LOOK
) -> DspkitError:
    """Return the reason for the end of a query as one error: the user's own exception, or else Spark's message.

    `failed` is the operator whose function raised and its traceback, if that is known; `advice` returns where to look
    further, for errors that are not the user's, beyond the cause that it is called with.
    """
    if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JNetworkError", "Py4JError"):
        fix = f"start the job again, from its checkpoint if it has one; {advice('')}"
        return QueryError("the end of the Java that Spark runs in", expected="a running one", fix=fix)
    text = str(error) if error is not None else "no reason given"
    if isinstance(error, CheckpointError | SinkError):
        return error
    _, found, rest = text.partition(CHECKPOINT_FAILED)
    if found:
        got, expected, fix = json.JSONDecoder().raw_decode(rest)[0]
        return CheckpointError(got, expected=expected, fix=fix)
    _, found, rest = text.partition(SOURCE_FAILED)
    if found:
        got, expected, fix = json.JSONDecoder().raw_decode(rest)[0]
        return SourceError(got, expected=expected, fix=fix)
    _, found, rest = text.partition(FAILED)
    if found and not failed:
        failed = tuple(json.JSONDecoder().raw_decode(rest)[0])
    if failed:
        operator, trace = failed
        cause = python_error(trace)[0]
        return FunctionError(
            trace if trace.startswith(cause) else f"{cause}\n\n{trace}",
            expected=f"a function of operator {operator!r} that does not raise",
            fix="fix it, and start the job again from its checkpoint if it has one",
        )
    cause, trace = python_error(text) if _TRACEBACK in text else (java_error(text), "")
    fix = advice(cause) + f"\n\n{trace}" * bool(trace)
    return QueryError(f"the end of the query ({cause})", expected="a running query", fix=fix)


def python_error(text: str) -> tuple[str, str]:
    """Return the exception at the end of the last Python traceback in a text, and all of its tracebacks.

    What Java adds before and after them is left out.

    Examples
    --------
    >>> text = "Traceback (most recent call last):\\n  File 'a.py', line 1\\nSystemExit: 3\\n\\tat org.apache.spark"
    >>> python_error(text)[0]
    'SystemExit: 3'
    """
    lines = text.rstrip().splitlines()
    if _TRACEBACK not in text:
        return (next((line for line in reversed(lines) if _RAISED.match(line)), lines[-1] if lines else text), text)
    begins = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    at = next((i for i in range(begins[-1] + 1, len(lines)) if lines[i][:1].strip()), len(lines) - 1)
    end = next((i for i in range(at + 1, len(lines)) if _AFTER.match(lines[i])), len(lines))
    whole = lines[begins[0] : end]
    whole[0] = whole[0][whole[0].index(_TRACEBACK) :]
    return lines[at], "\n".join(whole).rstrip()


def java_error(text: str) -> str:
    """Return Java's message without its stack, and the deepest cause.

    Examples
    --------
    >>> java_error("java.lang.RuntimeException: a\\n\\tat b.c(d)\\nCaused by: java.io.IOException: No space left")
    'java.lang.RuntimeException: a; caused by java.io.IOException: No space left'
    """
    text = text.partition("\n=== Streaming Query ===")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _STACK.match(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = list(itertools.takewhile(lambda line: not line.startswith("Caused by: "), lines))
    raised = [line for line in first if _RAISED.match(line)]
    # "Job aborted due to stage failure: ... Lost task 0.0 in stage 3.0 (TID 3) (host executor 1): the reason itself"
    said = _LOST_TASK.sub("", raised[-1] if raised else " ".join(first) or text)
    return f"{said}; caused by {causes[-1]}" if causes and causes[-1] not in said else said


class ServiceThread:
    """A daemon thread that runs until it is asked to end; `failure` is the reason why it ended before.

    Parameters
    ----------
    name
        Name of the thread.
    task
        The work that it does, for the error: "collects the meters' readings".
    run
        The function that it runs, which returns soon after `ended` is set.

    Examples
    --------
    >>> thread = ServiceThread("example", "waits", lambda: thread.ended.wait() and None)
    >>> thread.start()
    >>> thread.close(5)
    >>> thread.failure is None
    True
    """

    def __init__(self, name: str, task: str, run: Callable[[], None]):
        self._task, self._run = task, run
        self._started = False
        self.failure: ThreadError | None = None
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name=name)

    def start(self) -> None:
        """Start the thread.

        Examples
        --------
        >>> ServiceThread("example", "ends at once", lambda: None).start()
        """
        self._started = True
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Ask the thread to end, and wait for it.

        Parameters
        ----------
        timeout_s
            The longest wait.

        Examples
        --------
        >>> ServiceThread("example", "never starts", lambda: None).close(1)
        """
        self.ended.set()
        if self._started and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _work(self) -> None:
        why = ""
        try:
            self._run()
        except BaseException as error:  # reported by `failure`: an exception here would end on stderr, unseen
            why = f" ({type(error).__name__}: {error})"
        if not self.ended.is_set():
            self.failure = ThreadError(
                f"the end of the thread that {self._task}{why:.300}",
                expected="one that runs as long as the job",
                fix="start the job again, from its checkpoint if it has one; report it, this is an error of dspkit",
            )
