"""The driver's part of exactly-once sinks: it hands the rows of committed epochs to the sinks, in order."""

from __future__ import annotations

import contextlib
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ...core import DspkitError
from ..dataflow.checkpoint import Checkpoint
from ..dataflow.state import KEPT, read_plan
from ..errors import CheckpointError, ServiceThread, SinkError
from .sink import Sink, SinkMark, staged

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")
log = logging.getLogger("dspkit")
PATIENCE_S = 30.0  # for a target that does not answer
_LOOK_S = 0.05


@dataclass(frozen=True)
class Target:
    """The sink of an operator, by its name, and the columns of the rows."""

    name: str
    sink: Sink
    schema: pa.Schema


class Publisher:
    """A thread that publishes each epoch after its commit; `failed` is the reason why it gave up.

    Sinks and checkpoint can differ after a crash. `recover` makes them agree, before a query starts: epochs that a sink
    has and the checkpoint does not are withdrawn, and those that it lacks are published.
    """

    def __init__(
        self, checkpoint: Checkpoint, targets: Mapping[int, Target], fail: Callable[[Exception], None] = lambda _: None
    ):
        self._checkpoint, self._targets, self._fail = checkpoint, targets, fail
        self._folder = checkpoint.own
        self._marks: dict[int, SinkMark] = {}
        self._lock = threading.RLock()
        self.failed: DspkitError | None = None
        self.thread = ServiceThread("dspkit-publisher", "hands committed rows to sinks", self._watch)

    def recover(self) -> list[int]:
        """Go back to the newest whole epoch, let each sink agree with it, and return the epochs that are undone."""
        with self._lock:
            undone = self._checkpoint.recover()
            committed = self._checkpoint.committed()
            for operator, target in self._targets.items():
                self._marks[operator] = self._agreed(operator, target, committed)
            self.publish()
            return undone

    def _agreed(self, operator: int, target: Target, committed: int) -> SinkMark:
        """Return the mark of a sink that has no epoch which the job has not committed, and no other job's epochs."""
        if committed < 0 and not SinkMark.path(self._folder, operator).exists():
            SinkMark(secrets.token_hex(8), -1, -1).write(self._folder, operator)
        mark = SinkMark.read(self._folder, operator)
        found = self._patiently(target, lambda: dict(target.sink.open(mark.writer, target.schema)))
        for epoch in sorted(epoch for epoch in found if epoch <= committed):
            plan = None
            with contextlib.suppress(CheckpointError):
                plan = read_plan(self._folder, epoch)
            if plan is not None and plan.token != found[epoch]:
                raise SinkError(
                    f"rows in the sink of {target.name!r} from another run of this job (epoch {epoch}: "
                    f"{found[epoch]}, here {plan.token})",
                    expected="one checkpoint that writes to it",
                    fix="continue from the checkpoint of that run, or choose another target and another checkpoint",
                )
        later = sorted(epoch for epoch in found if epoch > committed)
        if later and later[-1] > committed + KEPT and mark.held >= 0:
            raise SinkError(
                f"the sink of {target.name!r} with epochs up to {later[-1]}, a checkpoint with those up to {committed}",
                expected="the checkpoint of the run that wrote them",
                fix="continue from that one; to go back on purpose, start from a savepoint",
            )
        if later:
            log.warning("epochs after %d are withdrawn from the sink of %s: %s", committed, target.name, later)
            self._patiently(target, lambda: target.sink.withdraw(mark.writer, committed))
        held = max((epoch for epoch in found if epoch <= committed), default=-1)
        if held < mark.held <= committed:
            raise SinkError(
                f"the sink of {target.name!r} with epochs up to {held}, although it had got those up to {mark.held}",
                expected="all rows that were published",
                fix="restore the target as it was, or choose another target and another checkpoint",
            )
        made = SinkMark(mark.writer, min(committed, max(mark.published, held)), held)
        if made != mark:
            made.write(self._folder, operator)
        return made

    def publish(self) -> None:
        """Publish all committed epochs that are not yet."""
        with self._lock:
            committed = self._checkpoint.committed() if self._targets else -1
            for operator, target in self._targets.items():
                while self._marks[operator].published < committed:
                    self._publish(operator, target, self._marks[operator].published + 1)

    def _publish(self, operator: int, target: Target, epoch: int) -> None:
        if (plan := read_plan(self._folder, epoch)) is None:
            raise CheckpointError(
                f"no plan of epoch {epoch}, whose rows {target.name!r} has not published",
                expected="the plans of all epochs that are not published",
                fix="restore the checkpoint's folder as it was",
            )
        mark, files = self._marks[operator], staged(self._folder, plan, operator)
        for file in files:
            file.check()
        if files:
            self._patiently(target, lambda: target.sink.publish(mark.writer, epoch, plan.token, files))
        self._marks[operator] = replace(mark, published=epoch, held=epoch if files else mark.held)
        self._marks[operator].write(self._folder, operator)
        for old in self._folder.glob(f"sinks/{operator}/*-*/"):
            if int(old.name.partition("-")[0]) <= epoch:
                shutil.rmtree(old, ignore_errors=True)

    def _patiently(self, target: Target, act: Callable[[], T]) -> T:
        """Act again while it fails, for a while; an error of ours is final."""
        end, pause = time.monotonic() + PATIENCE_S, 0.1
        while True:
            try:
                return act()
            except DspkitError:
                raise
            except Exception as error:
                if time.monotonic() + pause > end:
                    raise SinkError(
                        f"the sink of {target.name!r}: {type(error).__name__}: {error}",
                        expected="one that takes the rows of an epoch",
                        fix="repair it, and start the job again from its checkpoint: nothing is lost",
                    ) from error
                if pause < 0.15:
                    log.warning("the sink of %s does not take its rows, and is asked again: %s", target.name, error)
            if self.thread.ended.wait(pause):
                end = min(end, time.monotonic() + 1.0)  # the job is closing
                time.sleep(pause)
            pause = min(2.0, 2 * pause)

    @contextlib.contextmanager
    def settled(self) -> Iterator[int]:
        """Publish all committed epochs, and yield the newest of them, while no other one is published."""
        with self._lock:
            self.publish()
            yield min((mark.published for mark in self._marks.values()), default=self._checkpoint.committed())

    def newest(self, operator: int, rows: int) -> pa.Table:
        """Return the newest rows that the sink of an operator has."""
        target = self._targets[operator]
        found = target.sink.newest(self._marks[operator].writer, rows)
        return found if found.num_columns else target.schema.empty_table()

    def close(self) -> None:
        """Publish what was committed, and end the thread; `failed` says why, if that was not possible."""
        self.thread.close(PATIENCE_S)
        if self.failed is None and self._marks:
            self._try()

    def _watch(self) -> None:
        while not self.thread.ended.wait(_LOOK_S):
            self._try()
            if self.failed is not None:
                self._fail(self.failed)
                return

    def _try(self) -> None:
        try:
            self.publish()
        except DspkitError as error:
            self.failed = error
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            self.failed = SinkError(said, expected="a sink that works", fix="see the cause")
            self.failed.__cause__ = error
