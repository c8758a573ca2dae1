"""The driver's eye on a log outside of Spark: how far it is filled, told to the sources twenty times a second."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ..errors import DspkitError
from .errors import SourceError
from .source_log import Catalog, LogSource

log = logging.getLogger("dspkit")
_EVERY_S = 0.05
_REMEMBERED = 12_000  # looks: ten minutes
_PATIENCE_S = 15.0  # for a log that does not answer


class Follow:
    """Looks at a log from its beginning, or from where a checkpoint's marks end.

    `done()` says how many records of each partition are committed.
    """

    def __init__(self, source: LogSource, done: Callable[[], Sequence[int]]):
        assert source.folder is not None
        self._source, self._done = source, done
        self._catalog = Catalog(source.folder, source.partitions)
        try:
            if not source.folder.is_dir():
                Catalog.begin(source.folder, source.begin(), round(time.time() * 1e6))
            self._follower = source.follower(self._catalog.mend())
            self.counts = [0] * source.partitions
            self._seen: deque[tuple[float, int]] = deque(maxlen=_REMEMBERED)
            self._look()
        except DspkitError:
            raise
        except Exception as error:
            raise self._failed(error) from error
        self.error: DspkitError | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Go on looking, and tell how many records each partition has."""
        tell(self.counts)
        self._thread = threading.Thread(target=self._run, args=(tell,), daemon=True, name="dspkit-follow")
        self._thread.start()

    def offered(self, at: float) -> float:
        """How many records there were at that time."""
        import numpy as np

        times, totals = zip(*self._seen.copy(), strict=True)
        return float(np.interp(at, times, totals))

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(10)
        self._follower.close()

    def _run(self, tell: Callable[[Sequence[int]], None]) -> None:
        good = time.monotonic()
        while not self._ended.wait(_EVERY_S):
            try:
                self._look()
                good = time.monotonic()
            except Exception as error:
                failed = error if isinstance(error, DspkitError) else self._failed(error)
                if isinstance(error, DspkitError) or time.monotonic() - good > _PATIENCE_S:
                    self.error = failed
                    return
                log.warning("%s", failed)
                self._ended.wait(1.0)
            try:
                tell(self.counts)
            except Exception:  # the query is being started again: the next look tells its successor
                continue

    def _look(self) -> None:
        for p, (count, marks) in enumerate(self._follower.look()):
            if marks:
                self._catalog.add(p, marks)
                self._catalog.trim(p, self._done, self._source.place)
            self.counts[p] = count
        self._seen.append((time.time(), sum(self.counts)))

    def _failed(self, error: Exception) -> SourceError:
        return SourceError(
            f"{type(error).__name__} from {self._source.log}: {error}",
            expected="a log that answers",
            fix="see to its server, and to the name and the address",
        )
