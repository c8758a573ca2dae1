"""Threads of the driver whose end is noticed: a job that has lost one says so instead of measuring nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from .errors import ThreadError


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
        self._error: BaseException | None = None
        self._started = False
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

    @property
    def failure(self) -> ThreadError | None:
        """The error of a thread that ended before it was asked to, or None."""
        if not self._started or self.ended.is_set() or self._thread.is_alive():
            return None
        reason = f" ({type(self._error).__name__}: {self._error})" if self._error is not None else ""
        return ThreadError(
            f"the end of the thread that {self._task}{reason:.300}",
            expected="one that runs as long as the job",
            fix="start the job again, from its checkpoint if it has one; this is an error of dspkit, please report it",
        )

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:  # reported by `failure`: an exception here would end on stderr, unseen
            self._error = error
