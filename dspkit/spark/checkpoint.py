"""A job's checkpoint: Spark's own folder, our plans and state beside it, whose job it is, and who works on it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write
from .errors import CheckpointError
from .state import Plan, whole

if TYPE_CHECKING:
    import pyarrow as pa


class Checkpoint:
    """A folder that a job can be started again from; one job at a time."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        self._lock: int | None = None

    @property
    def own(self) -> Path:
        """Our part of it."""
        return self.folder / "dspkit"

    def take(self) -> None:
        """Make it ours, or say who has it."""
        try:
            self.own.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.own / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise CheckpointError(str(error), expected="a folder to write in", fix="choose another folder") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            who = os.read(lock, 100).decode(errors="replace") or "another process"
            os.close(lock)
            raise CheckpointError(
                f"checkpoint {self.folder}, on which a job of {who} is at work",
                expected="a checkpoint that no job uses",
                fix="close that job first, or choose another folder",
            ) from None
        os.truncate(lock, 0)
        os.write(lock, f"process {os.getpid()}".encode())
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self._lock = None

    def identify(self, job: Mapping[str, Any]) -> None:
        """Check that it is this job's, or make it so."""
        path = self.own / "job.json"
        if not path.is_file():
            text = json.dumps(job, indent=1)
            write(path, lambda p: p.write_text(text))
            return
        known = json.loads(path.read_text())
        for what, value in json.loads(json.dumps(job)).items():
            if known.get(what) != value:
                raise CheckpointError(
                    f"checkpoint {self.folder} of another job ({what}: {known.get(what)})",
                    expected=f"one of this job ({what}: {value})",
                    fix="choose another folder for the checkpoint, or run the job that it is from",
                )

    @property
    def zero_micros(self) -> int:
        """When the job's logs began; 0 if they have not."""
        path = self.own / "began"
        return int(path.read_text()) if path.is_file() else 0

    @zero_micros.setter
    def zero_micros(self, micros: int) -> None:
        write(self.own / "began", lambda p: p.write_text(str(micros)))

    def committed(self) -> int:
        """The newest epoch of which Spark has said that it is done; -1 before the first."""
        with contextlib.suppress(OSError):
            names = os.listdir(self.folder / "spark" / "commits")
            return max((int(name) for name in names if name.isdigit()), default=-1)
        return -1

    def offsets(self) -> list[list[int]]:
        """How far each partition of each log was read by the newest epoch that is committed."""
        epoch = self.committed()
        if epoch < 0:
            return []
        lines = (self.folder / "spark" / "offsets" / str(epoch)).read_text().splitlines()
        return [_numbers(json.loads(line)) for line in lines[2:]]

    def read(self, source: int) -> list[int]:
        """How far each partition of one log was; nothing before the first epoch."""
        offsets = self.offsets()
        return offsets[source] if offsets else []

    def records(self) -> int:
        """How many records the committed epochs have done."""
        return sum(map(sum, self.offsets()))

    def state(self, operator: str) -> pa.Table:
        """What the operator knew, key by key, at the end of the newest epoch that is committed."""
        known = json.loads((self.own / "job.json").read_text())
        if operator not in known["stateful"]:
            raise CheckpointError(
                f"the state of {operator!r}", expected=f"one of {known['stateful']}", fix="ask for a keyed operator"
            )
        epoch = self.committed()
        if epoch < 0:
            raise CheckpointError("no committed epoch yet", expected="at least one", fix="wait for the first epoch")
        plan = Plan.parse((self.own / "epochs" / f"{epoch}.json").read_text())
        return whole(self.own, plan, known["operators"].index(operator))


def _numbers(offset: Any) -> list[int]:
    return list(offset) if isinstance(offset, list) else list(offset.get("next", []))
