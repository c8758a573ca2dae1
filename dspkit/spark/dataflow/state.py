"""The plans of epochs, by which state is found.

The driver gives every attempt at an epoch a token of its own and writes it down before the attempt starts (`Job.java`).
The state of each instance is named under the token at the end of the attempt (`store.py`), and the next epoch reads
that of the epoch before. So an attempt that failed leaves files that are never read, and state always belongs to the
offsets that Spark committed with it. Plans and files carry checksums, and are on the disk before the epoch is
committed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.files import write_atomically
from ..errors import CheckpointError

PROPERTY = "dspkit.plan"
KEPT = 4  # epochs whose files are kept, as in Job.java: that which runs, and three to go back to


@dataclass(frozen=True)
class Plan:
    """The plan of one epoch: its number, its token, and the number of instances of each operator."""

    epoch: int
    token: str
    k: tuple[int, ...]
    previous: Plan | None = None

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read a plan from its text; raise an error if the text is not what was written."""
        try:
            return cls._of(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise incomplete(f"the plan of an epoch, {text!r:.100}: {error}") from None

    @classmethod
    def _of(cls, plan: dict[str, Any]) -> Plan:
        previous = plan.get("previous")
        made = cls(plan["epoch"], plan["token"], tuple(plan["k"]), cls._of(previous) if previous else None)
        if plan["sum"] != made.sum:
            raise ValueError(f"its checksum is {plan['sum']}, not {made.sum}")
        return made

    @cached_property
    def sum(self) -> int:
        """Checksum of the plan without that of the previous epoch, as in Job.java."""
        return zlib.crc32(f"{self.epoch} {self.token} {','.join(map(str, self.k))}".encode())

    def text(self) -> str:
        """Return the plan as JSON, with the plan of the previous epoch."""
        plan: dict[str, Any] = {"epoch": self.epoch, "token": self.token, "k": self.k, "sum": self.sum}
        if self.previous:
            plan["previous"] = json.loads(Plan(self.previous.epoch, self.previous.token, self.previous.k).text())
        return json.dumps(plan)


def read_plan(folder: Path, epoch: int) -> Plan | None:
    """Return the plan of an epoch; None if there is none."""
    try:
        text = (folder / "epochs" / f"{epoch}.json").read_text()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise incomplete(f"the plan of epoch {epoch}: {error}") from error
    if (plan := Plan.parse(text)).epoch != epoch:
        raise incomplete(f"the plan of epoch {epoch}, which says {plan.epoch}")
    return plan


def begin_epoch(folder: Path, epoch: int, k: tuple[int, ...]) -> Plan:
    """Fix the plan of an epoch before it starts, as `Job.java` does if the jar plans epochs."""
    epochs = folder / "epochs"
    epochs.mkdir(parents=True, exist_ok=True)
    plan = Plan(epoch, f"{epoch}-{secrets.token_hex(4)}", k, read_plan(folder, epoch - 1))
    alone = Plan(epoch, plan.token, k).text()
    write_atomically(epochs / f"{epoch}.json", lambda path: path.write_text(alone), overwrite=True)
    for old in (*epochs.glob("*.json"), *folder.glob("state/*")):
        number = old.name.partition("-")[0].removesuffix(".json")
        if number.isdigit() and int(number) <= epoch - KEPT:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    return plan


def synchronise(folder: Path) -> None:
    """Write the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link(path: Path, to: Path) -> None:
    """Give a file another name, or copy it to another disk, unless that was done before."""
    try:
        os.link(path, to)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        write_atomically(to, lambda fresh: shutil.copyfile(path, fresh), overwrite=True)


def incomplete(what: str) -> CheckpointError:
    """Return the error of a checkpoint whose files are not those that were written."""
    return CheckpointError(
        f"a checkpoint that cannot be read: {what}",
        expected="its files as they were written",
        fix="start the job again: it goes back to the newest epoch that is whole; "
        "and keep a checkpoint's folder whole, on a disk that all workers see",
    )
