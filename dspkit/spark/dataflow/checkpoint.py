"""A job's checkpoint: Spark's own folder, beside it our plans and state, the identity of the job, and a lock.

A committed epoch is whole if its commit, its offsets, its plan and its state are as they were written. Of the newest
epochs the files are kept, so that a job can go back to the newest one that is whole (`recover`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import make_folder, write_atomically
from ..errors import CheckpointError
from ..sinks.sink import SinkMark, staged
from . import watermarks
from .runs import verify
from .state import KEPT, incomplete, read_plan, seal, synchronise, unseal
from .store import operator_parts, operator_state

if TYPE_CHECKING:
    import pyarrow as pa


log = logging.getLogger("dspkit")
LATENESS = "lateness"  # in the identity: of each windowed operator, in seconds
RESTORING = "restoring"  # a file that is there while a checkpoint is filled from a savepoint
_SUM_HEAD = b"crc\0"  # of Hadoop's checksums
_BLOCK = 512  # bytes that one of them covers
_MICROS = rb"[1-9]\d{15}\s*"  # of this age: half a number would be another time


class Checkpoint:
    """A folder that a job can be started from again; used by one job at a time."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).absolute()
        self._lock: int | None = None

    @property
    def own(self) -> Path:
        """Our part of the folder."""
        return self.folder / "dspkit"

    def take(self) -> None:
        """Lock the folder, or raise an error that names the process that uses it."""
        try:
            make_folder(self.own / "epochs")
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
        """Unlock the folder."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self._lock = None

    def identify(self, job: Mapping[str, Any]) -> None:
        """Check that the checkpoint is of this job; a new one is marked as such."""
        path = self.own / "job.json"
        if (self.own / RESTORING).exists():
            raise CheckpointError(
                f"checkpoint {self.folder}, which is not yet filled from a savepoint",
                expected="a start from the savepoint that came to its end",
                fix="start again with start_from, or choose another folder",
            )
        if not path.is_file():
            data = seal(job)
            write_atomically(path, lambda p: p.write_bytes(data))
            return
        known, wanted = self._identity(), json.loads(json.dumps(job))
        for what, value in wanted.items():
            if what != LATENESS and known.get(what) != value:
                raise CheckpointError(
                    f"checkpoint {self.folder} of another job ({what}: {known.get(what)})",
                    expected=f"one of this job ({what}: {value})",
                    fix="choose another folder for the checkpoint, or run the job that it is from",
                )
        check_lateness(known, wanted, f"checkpoint {self.folder}")
        if LATENESS in wanted and known.get(LATENESS) != wanted[LATENESS]:  # state is dropped earlier from now on
            data = seal(known | {LATENESS: wanted[LATENESS]})
            write_atomically(path, lambda p: p.write_bytes(data), overwrite=True)

    def _identity(self) -> dict[str, Any]:
        path = self.own / "job.json"
        try:
            known = unseal(path.read_bytes())
            if not (isinstance(known, dict) and {"operators", "stateful", "partitions"} <= known.keys()):
                raise ValueError("it does not name the operators of a job")
            known.setdefault("sinks", [])  # of a job before there were any
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path}, which cannot be read: {error}",
                expected="the identity of the job that wrote the checkpoint",
                fix="delete the file if this is that job, which then writes it again; otherwise choose another folder",
            ) from error
        return known

    @property
    def zero_micros(self) -> int:
        """Time at which the job's logs began; 0 if they have not."""
        path = self.own / "began"
        try:
            return int(unseal(path.read_bytes(), plain=_MICROS))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, TypeError) as error:
            began = (self.own / "job.json").stat().st_mtime if (self.own / "job.json").is_file() else time.time()
            raise CheckpointError(
                f"{path}, which cannot be read: {error}",
                expected="the time at which the job's logs began, in microseconds since 1970",
                fix=f"write it there; the job was first started at about {began * 1e6:.0f}",
            ) from error

    @zero_micros.setter
    def zero_micros(self, micros: int) -> None:
        write_atomically(self.own / "began", lambda p: p.write_bytes(seal(micros)))

    def committed(self) -> int:
        """Return the newest epoch that Spark has committed; -1 before the first."""
        return max(self._epochs("commits"), default=-1)

    def _epochs(self, kind: str) -> list[int]:
        """Return the epochs that Spark has a file of, of one kind."""
        with contextlib.suppress(OSError):
            return sorted(int(name) for name in os.listdir(self.folder / "spark" / kind) if name.isdigit())
        return []

    def recover(self) -> list[int]:
        """Go back to the newest epoch that is whole, and return the committed epochs that are undone by that.

        Spark's offsets and commits of later epochs are removed. The job then repeats their records, from the state as
        it was before them, so that each still counts once. No query may run meanwhile.
        """
        self._identity()  # without it no epoch is whole
        for partial in (self.folder / "spark").glob("*/.*.tmp*"):  # of a Java that was killed (Checkpoints.java)
            partial.unlink(missing_ok=True)
        commits, why = self._epochs("commits"), ""
        newest = commits[-1] if commits else -1
        for epoch in reversed([epoch for epoch in commits if epoch > newest - KEPT]):
            try:
                self._check(epoch)
                break
            except CheckpointError as error:
                why = why or error.got
        else:
            # The files of the first epoch are kept for as long as the marks of logs reach back to their beginning.
            if commits and not (newest < KEPT - 1 and (self.own / "epochs" / "0.json").exists()):
                raise CheckpointError(
                    f"checkpoint {self.folder}, of which no kept epoch can be read (the newest: {why})",
                    expected=f"one of epochs {max(0, newest - KEPT + 1)} to {newest} as it was written",
                    fix="restore the folder from a copy, or choose another folder to start from the beginning",
                )
            epoch = -1
        self._repair_metadata()
        undone = [each for each in commits if each > epoch]
        later = [each for each in self._epochs("offsets") if each > epoch]
        doubtful = later if undone else [each for each in later if each > epoch + 1 or not self._readable(each)]
        # A crash in between leaves commits without offsets, which are not whole, so that the next start comes here too.
        self._remove("offsets", doubtful)
        self._remove("commits", undone)
        if undone:
            back = f"to the end of epoch {epoch}" if epoch >= 0 else "to the beginning"
            log.warning(
                "checkpoint %s is damaged (%s): the job goes back %s and repeats the records of epochs %s",
                *(self.folder, why, back, ", ".join(map(str, undone))),
            )
        elif doubtful:
            log.warning("checkpoint %s: offsets of epochs %s are damaged, and planned anew", self.folder, doubtful)
        return undone

    def _repair_metadata(self) -> None:
        """Give the query a new number if Spark's file with it is damaged: Spark wants one, whichever it is."""
        path = self.folder / "spark" / "metadata"
        if not path.exists() and not self._epochs("offsets"):
            return
        try:
            uuid.UUID(json.loads(_checked(path))["id"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning("checkpoint %s: Spark's metadata is damaged (%s), and written again", self.folder, error)
            path.with_name(".metadata.crc").unlink(missing_ok=True)
            text = json.dumps({"id": str(uuid.uuid4())})
            write_atomically(path, lambda fresh: fresh.write_text(text), overwrite=True)

    def _check(self, epoch: int) -> None:
        """Raise an error if an epoch is not whole."""
        known = self._identity()
        first, _, rest = self._text("commits", epoch).partition("\n")
        if not (first.startswith("v") and _is_json(rest)):
            raise incomplete(f"the commit of epoch {epoch}: {first[:100]!r}")
        self._offsets(epoch)
        plan = read_plan(self.own, epoch)
        if plan is None or len(plan.k) != len(known["operators"]):
            raise incomplete(f"the plan of epoch {epoch}: {plan or 'no such file'}")
        for name in known["stateful"]:
            verify(self.own / "runs", operator_parts(self.own, plan, known["operators"].index(name)))
        for name in (*known.get("event times", ()), *known.get("timers", ())):
            watermarks.load(self.own, plan, known["operators"].index(name))
        for name in known["sinks"]:
            operator = known["operators"].index(name)
            for each in range(SinkMark.read(self.own, operator).published + 1, epoch + 1):
                if (before := read_plan(self.own, each)) is None:
                    raise incomplete(f"the plan of epoch {each}, whose rows are not published: no such file")
                for file in staged(self.own, before, operator):
                    file.check()

    def _readable(self, epoch: int) -> bool:
        with contextlib.suppress(CheckpointError):
            self._offsets(epoch)
            return True
        return False

    def _remove(self, kind: str, epochs: list[int]) -> None:
        folder = self.folder / "spark" / kind
        for epoch in reversed(epochs):
            (folder / str(epoch)).unlink(missing_ok=True)
            (folder / f".{epoch}.crc").unlink(missing_ok=True)
        if epochs and folder.is_dir():
            synchronise(folder)

    def _text(self, kind: str, epoch: int) -> str:
        """Return one of Spark's files of an epoch, which has Hadoop's checksums beside it."""
        try:
            return _checked(self.folder / "spark" / kind / str(epoch))
        except (OSError, ValueError) as error:
            raise incomplete(f"the {kind} of epoch {epoch}: {error}") from error

    def _offsets(self, epoch: int) -> list[list[int]]:
        """Return how far an epoch has read each partition of each log."""
        text = self._text("offsets", epoch)
        try:
            read = [_numbers(line) for line in text.splitlines()[2:]]
            partitions = self._partitions()
            if not text.startswith("v") or len(read) != len(partitions):
                raise ValueError(f"{len(read)} logs instead of {len(partitions)}")
            if any(len(each) not in (0, there) for each, there in zip(read, partitions, strict=True)):
                raise ValueError(f"positions in {[*map(len, read)]} partitions instead of {partitions}")
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise incomplete(f"the offsets of epoch {epoch}, {text!r:.100}: {error}") from error
        return read

    def offsets(self) -> list[list[int]]:
        """Return how far the newest committed epoch has read each partition of each log."""
        epoch = self.committed()
        return self._offsets(epoch) if epoch >= 0 else []

    def read(self, source: int) -> list[int]:
        """Return how far each partition of one log is read; an empty list before the first epoch."""
        offsets = self.offsets()
        return offsets[source] if offsets else []

    def settled(self, source: int) -> list[int]:
        """Return how far each partition of one log is read for good: a job that goes back does not read it again."""
        epoch, read = self.committed() - KEPT + 1, [0] * self._partitions()[source]
        if epoch >= 0:
            with contextlib.suppress(CheckpointError):
                read = self._offsets(epoch)[source] or read
        return read

    def _partitions(self) -> list[int]:
        """Return the number of partitions of each log, in the order of the offsets."""
        known = self._identity()
        return [known["partitions"][name] for name in known["operators"] if name in known["partitions"]]

    def records(self) -> int:
        """Return the number of records of the committed epochs, up to the newest one whose offsets can be read."""
        for epoch in reversed(self._epochs("commits")):
            with contextlib.suppress(CheckpointError):
                return sum(map(sum, self._offsets(epoch)))
        return 0

    def state(self, operator: str) -> pa.Table:
        """Return the operator's state, by key, at the end of the newest committed epoch."""
        known = self._identity()
        if operator not in known["stateful"]:
            raise CheckpointError(
                f"the state of {operator!r}", expected=f"one of {known['stateful']}", fix="ask for a keyed operator"
            )
        epoch = self.committed()
        if epoch < 0:
            raise CheckpointError("no committed epoch yet", expected="at least one", fix="wait for the first epoch")
        if (plan := read_plan(self.own, epoch)) is None:
            raise incomplete(f"no plan of epoch {epoch}")
        return operator_state(self.own, plan, known["operators"].index(operator))


def check_lateness(known: Mapping[str, Any], job: Mapping[str, Any], what: str) -> None:
    """Raise an error if windows of a job wait longer for late records than before: their state is dropped already."""
    for name, seconds in job.get(LATENESS, {}).items():
        if seconds > (before := known.get(LATENESS, {}).get(name, seconds)):
            raise CheckpointError(
                f"{what} of a job with a lateness_s of {before} at the source of {name!r}, and {seconds} now",
                expected=f"at most {before}: windows that were over by then have lost their state",
                fix=f"leave it at {before}; or start in another folder, without the state",
            )


def _numbers(line: str) -> list[int]:
    """Return the positions of one log: of the jar a list, of a Python data source an object, of no batch yet a dash."""
    offset = [] if line == "-" else json.loads(line)
    numbers = offset if isinstance(offset, list) else offset["next"]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"positions {numbers!r:.100}")
    return list(numbers)


def _is_json(text: str) -> bool:
    with contextlib.suppress(ValueError):
        json.loads(text)
        return True
    return False


def _checked(path: Path) -> str:
    """Return the text of a file of Spark, after a look at its checksums."""
    data, sums = path.read_bytes(), path.with_name(f".{path.name}.crc")
    if sums.is_file() and sums.read_bytes() != _sums(data):
        raise ValueError("it does not have its checksum")
    return data.decode()


def _sums(data: bytes) -> bytes:
    """Return Hadoop's checksums of a file."""
    sums = [zlib.crc32(data[low : low + _BLOCK]).to_bytes(4, "big") for low in range(0, len(data), _BLOCK)]
    return _SUM_HEAD + _BLOCK.to_bytes(4, "big") + b"".join(sums)
