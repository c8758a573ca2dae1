"""The state of keyed operators: the plans of epochs, by which it is found, and its exact conversion to Arrow.

The driver gives every attempt at an epoch a token of its own and writes it down before the attempt starts (`Job.java`).
The state of each instance is named under the token at the end of the attempt (`store.py`), and the next epoch reads
that of the epoch before. So an attempt that failed leaves files that are never read, and state always belongs to the
offsets that Spark committed with it. Plans and files carry checksums, and are on the disk before the epoch is
committed.

`pa.array(values, type)` cuts in silence: 2.5 becomes 2 as int64, a microsecond is dropped as timestamp[ms], a field
that a struct does not declare is left out. Here each of these is an error that names the value: what is read back
equals what was written.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import write_atomically
from ...core.typing import Array
from ..errors import CheckpointError, FunctionError, SchemaError
from .exchange import keys_of

if TYPE_CHECKING:
    import pyarrow as pa


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


def seal(content: Any, before: int = 0) -> bytes:
    """Return a value as JSON behind its checksum, as in all small files of a checkpoint but Spark's and the plans.

    A checksum that continues the one `before` seals the order of several values, too.
    """
    text = json.dumps(content, separators=(",", ":")).encode()
    return b"%08x %s" % (zlib.crc32(text, before), text)


def unseal(data: bytes, plain: bytes = rb"[\[{].*", before: int = 0) -> Any:
    """Return the value that `seal` wrote, or raise a ValueError.

    `plain` is the regular expression of what needs no checksum: JSON of older versions, and what a person has written.

    >>> unseal(seal([1, "a"]))
    [1, 'a']
    >>> unseal(seal(1500)[:-1])
    Traceback (most recent call last):
    ValueError: it does not have its checksum
    """
    if data[:9] == b"%08x " % zlib.crc32(data[9:], before):
        return json.loads(data[9:])
    if re.fullmatch(plain, data, re.DOTALL):
        return json.loads(data)
    raise ValueError("it does not have its checksum")


def incomplete(what: str) -> CheckpointError:
    """Return the error of a checkpoint whose files are not those that were written."""
    return CheckpointError(
        f"a checkpoint that cannot be read: {what}",
        expected="its files as they were written",
        fix="start the job again: it goes back to the newest epoch that is whole; "
        "and keep a checkpoint's folder whole, on a disk that all workers see",
    )


class InexactError(Exception):
    """A value that an Arrow type does not hold exactly: its position, and the reason."""

    def __init__(self, position: int, reason: str):
        super().__init__(reason)
        self.position, self.reason = position, reason


def check_value(kind: pa.DataType, operator: str) -> None:
    """Raise an error if Arrow cannot convert Python values to this type of state, or not select single ones."""
    import pyarrow as pa

    try:
        one = pa.array([None], kind)
        pa.concat_arrays([one, one.take(pa.array([0]))])
    except pa.ArrowException:
        raise SchemaError(
            f"state of type {kind} at {operator!r}",
            expected="a type to which Arrow converts Python values, and of which it selects single ones",
            fix="as in state='int64', or state=pa.struct({'n': pa.int64()})",
        ) from None


def exact_array(values: Collection[Any], kind: pa.DataType) -> pa.Array:
    """Return the values as an Arrow array that holds them exactly, or raise an InexactError.

    Containers may change their kind (a tuple is read back as a list, a dict of a map as pairs), their contents may not.

    >>> import pyarrow as pa
    >>> exact_array([2.0, None], pa.int64()).to_pylist()
    [2, None]
    >>> exact_array([2.5], pa.int64())
    Traceback (most recent call last):
    dspkit.spark.dataflow.state.InexactError: int64 would make it 2
    """
    import pyarrow as pa

    values = list(values)
    refused = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        made = pa.array(values, kind)
    except refused as error:
        for i, value in enumerate(values):
            try:
                pa.array([value], kind)
            except refused as reason:
                raise InexactError(i, str(reason).partition("\n")[0]) from None
        raise InexactError(0, str(error)) from None
    if not _surely_exact(values, kind):
        for i, (given, read) in enumerate(zip(values, made.to_pylist(), strict=True)):
            if not same(given, read):
                raise InexactError(i, f"{kind} would make it {read!r:.200}")
    return made


def same(given: Any, read: Any) -> bool:
    """Return whether a value that was read back is the one that was given."""
    import numpy as np

    if given is None or read is None:
        return given is read
    if isinstance(read, list):
        if isinstance(given, Mapping):  # a map, which is read as a list of pairs
            given = list(given.items())
        elif isinstance(given, np.ndarray):
            given = given.tolist()
        return isinstance(given, list | tuple) and _all_same(given, read)
    if isinstance(read, tuple):
        return isinstance(given, list | tuple) and _all_same(given, read)
    if isinstance(read, dict):
        return isinstance(given, Mapping) and given.keys() == read.keys() and all(same(given[n], read[n]) for n in read)
    if isinstance(read, datetime) and isinstance(given, datetime) and given.tzinfo and read.tzinfo:
        return given.astimezone(UTC) == read.astimezone(UTC)  # by themselves they differ in an hour that occurs twice
    if isinstance(read, float) and read != read:
        return bool(given != given)
    # What can be changed in place would be stored as it is when the epoch ends, and read back as another type.
    return not isinstance(given, bytearray | memoryview | np.ndarray) and bool(given == read)


def _all_same(given: Collection[Any], read: Collection[Any]) -> bool:
    return len(given) == len(read) and all(map(same, given, read))


def _surely_exact(values: Collection[Any], kind: pa.DataType) -> bool:
    """Return whether Arrow converts Python values of these types exactly, or refuses them by itself: the fast way."""
    from pyarrow import types

    found = set(map(type, values)) - {type(None)}
    if not found:
        return True
    if types.is_integer(kind):
        return found == {int}
    if types.is_float64(kind):
        return found <= {float, int}  # Arrow refuses an int beyond 2 ** 53
    if types.is_boolean(kind):
        return found == {bool}
    if types.is_string(kind) or types.is_large_string(kind):
        return found == {str}
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return found == {bytes}
    if types.is_decimal(kind):
        return found <= {Decimal, int}
    if types.is_struct(kind):
        rows = [row for row in values if row is not None]
        fields = list(kind)
        if found != {dict} or len({field.name for field in fields}) < len(fields) or {*map(len, rows)} != {len(fields)}:
            return False
        try:
            return all(_surely_exact([row[field.name] for row in rows], field.type) for field in fields)
        except KeyError:
            return False
    if (types.is_list(kind) or types.is_large_list(kind)) and found <= {list, tuple}:
        inner = list(chain.from_iterable(each for each in values if each is not None))
        return _surely_exact(inner, kind.value_type)
    return False


@dataclass(frozen=True)
class KeyedState:
    """The state of a keyed operator as it was declared, and its exact conversion to Arrow.

    Parameters
    ----------
    operator
        Name of the operator.
    columns
        Columns of the key.
    kinds
        Their types.
    value
        Type of the state of a key.
    single
        Whether a key is the value of its one column, not a tuple.
    """

    operator: str
    columns: tuple[str, ...]
    kinds: tuple[pa.DataType, ...]
    value: pa.DataType
    single: bool

    @property
    def schema(self) -> pa.Schema:
        """Columns of the state as a table."""
        import pyarrow as pa

        names = ["key"] if self.single else list(self.columns)
        return pa.schema([*zip(names, self.kinds, strict=True), ("value", self.value)])

    @property
    def has_floats(self) -> bool:
        """True if a float is a part of the key."""
        from pyarrow import types

        return any(map(types.is_floating, self.kinds))

    def key_array(self, keys: Sequence[Any]) -> pa.Array:
        """Return keys as an array, of structs for several columns, or raise an error that names one it cannot hold."""
        import pyarrow as pa

        if self.single:
            parts: list[Sequence[Any]] = [keys]
        else:
            for key in keys:
                if type(key) is not tuple or len(key) != len(self.columns):
                    raise self._unlike(key, f"it is no tuple of {len(self.columns)}")
            parts = list(zip(*keys, strict=True)) if keys else [()] * len(self.columns)
        made = []
        for part, kind in zip(parts, self.kinds, strict=True):
            try:
                made.append(exact_array(part, kind))
            except InexactError as error:
                raise self._unlike(keys[error.position], error.reason) from None
        whole = made[0] if self.single else pa.StructArray.from_arrays(made, names=list(self.columns))
        if any(len({*map(type, part)} - {type(None)}) > 1 for part in parts):  # values of two types can read the same
            read: dict[Any, int] = {}
            for i, key in enumerate(keys_of(whole)):
                if read.setdefault(key, i) != i:
                    raise self._unlike(keys[i], f"{keys[read[key]]!r:.200} is the same key")
        return whole

    def batch_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the keys of a batch of records."""
        import pyarrow as pa

        columns = [batch.column(name) for name in self.columns]
        return columns[0] if self.single else pa.StructArray.from_arrays(columns, names=list(self.columns))

    def key_array_of_some(self, keys: Sequence[Any]) -> pa.Array:
        """Return those of the keys as an array that the key's type can hold."""
        try:
            return self.key_array(keys)
        except FunctionError:
            held = []
            for key in keys:
                with contextlib.suppress(FunctionError):
                    self.key_array([key])
                    held.append(key)
            return self.key_array(held)

    def value_array(self, keys: Sequence[Any], values: Sequence[Any]) -> pa.Array:
        """Return the values of keys as an array, or raise an error that names the key whose value it cannot hold."""
        try:
            return exact_array(values, self.value)
        except InexactError as error:
            key, value = keys[error.position], values[error.position]
            raise FunctionError(
                f"known[{key!r:.200}] = {value!r:.200} at operator {self.operator!r}: {error.reason}",
                expected=f"a value that {self.value} holds exactly",
                fix="declare another type in keyed(..., state=), or convert the value before it is stored",
            ) from None

    def _unlike(self, key: Any, reason: str) -> FunctionError:
        columns = ", ".join(f"{name} {kind}" for name, kind in zip(self.columns, self.kinds, strict=True))
        return FunctionError(
            f"known[{key!r:.200}] at operator {self.operator!r}: {reason}",
            expected=f"keys as they are in the records ({columns})",
            fix="use the record's own key",
        )

    def check_owned(self, keys: Sequence[Any], group: Array, low: int, high: int) -> None:
        """Raise an error if a key belongs to another instance, which alone has its state, also behind a rescale."""
        import numpy as np

        foreign = np.flatnonzero((group < low) | (group >= high))
        if len(foreign):
            key = keys[int(foreign[0])]
            raise FunctionError(
                f"known[{key!r:.200}] at operator {self.operator!r}, a key of another instance, as are "
                f"{len(foreign)} of the {len(keys)} keys that were set, deleted or looked up",
                expected="keys of the records that an instance receives, which are the only ones that move with it",
                fix="keep the value with a key of the records, or send it to an operator that is keyed by it",
            )
