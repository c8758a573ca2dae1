"""Keyed state: a file an instance an epoch, found again through what the epoch's plan says.

The driver gives every try of an epoch a token of its own and writes it down before the try starts (`Job.java`). State
is written at the end of a try under its token, and the next epoch reads that of the epoch before. So a try that came
to nothing leaves files that nobody reads, and state always belongs to the offsets that Spark committed with it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write
from .errors import CheckpointError
from .frames import groups

if TYPE_CHECKING:
    import pyarrow as pa

PROPERTY = "dspkit.plan"
_KEPT = 4  # epochs whose files stay, as in Job.java


@dataclass(frozen=True)
class Plan:
    """What one epoch runs: its number, its token, and how many instances of each operator."""

    epoch: int
    token: str
    k: tuple[int, ...]
    previous: Plan | None = None

    @classmethod
    def parse(cls, text: str) -> Plan:
        return cls._of(json.loads(text))

    @classmethod
    def _of(cls, told: dict[str, Any]) -> Plan:
        previous = told.get("previous")
        return cls(told["epoch"], told["token"], tuple(told["k"]), cls._of(previous) if previous else None)

    def text(self) -> str:
        told: dict[str, Any] = {"epoch": self.epoch, "token": self.token, "k": self.k}
        if self.previous:
            told["previous"] = json.loads(Plan(self.previous.epoch, self.previous.token, self.previous.k).text())
        return json.dumps(told)


def begin(folder: Path, epoch: int, k: tuple[int, ...]) -> Plan:
    """Fix what an epoch runs before it starts, as `Job.java` does where the jar plans epochs."""
    epochs = folder / "epochs"
    epochs.mkdir(parents=True, exist_ok=True)
    before = epochs / f"{epoch - 1}.json"
    previous = Plan.parse(before.read_text()) if before.is_file() else None
    plan = Plan(epoch, f"{epoch}-{secrets.token_hex(4)}", k, previous)
    write(epochs / f"{epoch}.json", lambda p: p.write_text(Plan(epoch, plan.token, k).text()), overwrite=True)
    for old in (*epochs.glob("*.json"), *folder.glob("state/*")):
        number = old.name.partition("-")[0].removesuffix(".json")
        if number.isdigit() and int(number) <= epoch - _KEPT:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    return plan


def read(folder: Path, plan: Plan, operator: int, instance: int, value: pa.DataType) -> dict[Any, Any]:
    """What this instance has to know in this epoch: the keys that are its own, wherever they were before."""
    if plan.epoch == 0:
        return {}
    if plan.previous is None:
        raise _incomplete(folder, f"no plan of epoch {plan.epoch - 1}")
    before, now = plan.previous.k[operator], plan.k[operator]
    known: dict[Any, Any] = {}
    for old in [instance] if before == now else range(before):
        table = _load(folder, plan.previous.token, operator, old)
        if before != now and table.num_rows:
            table = table.filter(groups(table.column("key")) % now == instance)
        known.update(_pairs(table))
    return known


def save(folder: Path, plan: Plan, operator: int, instance: int, known: dict[Any, Any], types: Any) -> None:
    """Write what an instance knows at the end of an epoch, and rename it to where it is looked for."""
    import pyarrow as pa

    key, value = types
    table = pa.table({"key": pa.array(known.keys(), key), "value": pa.array(known.values(), value)})
    path = _path(folder, plan.token, operator, instance)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    with pa.OSFile(str(fresh), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    fresh.replace(path)


def whole(folder: Path, plan: Plan, operator: int) -> pa.Table:
    """All that an operator knew at the end of an epoch."""
    import pyarrow as pa

    return pa.concat_tables([_load(folder, plan.token, operator, i) for i in range(plan.k[operator])])


def _path(folder: Path, token: str, operator: int, instance: int) -> Path:
    return folder / "state" / token / f"{operator}-{instance}.arrow"


def _load(folder: Path, token: str, operator: int, instance: int) -> pa.Table:
    import pyarrow as pa

    path = _path(folder, token, operator, instance)
    try:
        with pa.OSFile(str(path), "rb") as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise _incomplete(folder, f"{path.name} of {token}: {error}") from error


def _pairs(table: pa.Table) -> Iterator[tuple[Any, Any]]:
    return zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True)


def _incomplete(folder: Path, what: str) -> CheckpointError:
    return CheckpointError(
        f"a checkpoint whose state cannot be read ({what})",
        expected=f"the state of the epoch before below {folder}",
        fix="keep a checkpoint's folder whole, on a disk that all workers see",
    )
