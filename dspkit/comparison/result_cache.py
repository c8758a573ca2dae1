"""A cache of finished rows in a folder of Parquet files, from which a later comparison continues.

Each file is written atomically. The key of a row is a hash of all inputs of its run, so that a row is reused only if
none of them has changed. The hash covers the complete contents of each value, not its repr, and the code behind it: of
dspkit the modules that execute a run, and those that a value's class or function may use; of other classes and
functions, such as those of a notebook, their compiled methods, and all of dspkit, since they may use any of it.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ..core import ArgumentError, FileError, files, untrusted
from ..core.caching import module_key, package_key
from ..core.lazy import load
from .runs import KEYS, SCORES, ComparisonRun

if TYPE_CHECKING:
    import pandas as pd


def fingerprint(run: ComparisonRun) -> str:
    """Return a key of 16 characters, equal for equal runs in every process; the names of a run do not count."""
    # without noise the oracle is the same for every seed
    seed = 0 if run.policy is None and run.app.plant.noise == 0 else run.seed
    app = (run.app.topology, run.app.plant, run.app.workers, run.app.placement, run.app.start)
    parts = (run.policy, run.workload, app, run.start, run.target_latency_s, run.rules, seed, run.failed)
    words = "\x1f".join((_home(type(run)), *_words(parts)))
    return hashlib.sha256(words.encode("utf-8", "replace")).hexdigest()[:16]


def _words(value: Any) -> Iterator[str]:
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        yield f"{kind.__name__} {value!r}"
    elif isinstance(value, Enum):
        yield f"enum {kind.__qualname__}.{value.name} {_home(kind)}"
    elif isinstance(value, float):
        yield f"float {float(value).hex() if math.isfinite(value) else value}"
    elif hasattr(value, "dtype") and hasattr(value, "tobytes"):
        yield f"array {value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    elif isinstance(value, (Mapping, set, frozenset, list, tuple)):
        yield from _words_of_container(value)
    elif isinstance(value, type):
        yield f"class {_code_of(value)}"
    elif isinstance(value, (FunctionType, MethodType)):
        yield f"function {_function(value)}"
    elif isinstance(value, partial):
        yield from _words(("partial", value.func, value.args, value.keywords))
    else:
        yield from _words_of_object(value)


def _words_of_container(value: Any) -> Iterator[str]:
    kind = type(value)
    if isinstance(value, Mapping):
        yield f"map {len(value)} {_home(kind)}"
        yield from sorted("\x1e".join((*_words(k), *_words(v))) for k, v in value.items())
    elif isinstance(value, (set, frozenset)):
        yield f"set {len(value)} {_home(kind)}"
        yield from sorted("\x1e".join(_words(v)) for v in value)
    else:
        yield f"{kind.__qualname__} {len(value)} {_home(kind)}"
        for item in value:
            yield from _words(item)


def _words_of_object(value: Any) -> Iterator[str]:
    kind = type(value)
    if is_dataclass(value):
        yield f"object {_code_of(kind)}"
        for f in fields(value):
            yield f.name
            yield from _words(getattr(value, f.name))
    elif isinstance(getattr(value, "__dict__", None), dict):
        yield f"object {_code_of(kind)}"
        yield from _words(vars(value))
    else:
        text = repr(value)
        if " at 0x" in text:
            raise ArgumentError(
                text[:100], expected="plain values and dataclasses", fix="pass values whose contents can be hashed"
            )
        yield f"{text} {_home(kind)}"


def _code_of(kind: type) -> str:
    """Return the name of a class and a hash of its code, wherever it is defined."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    if home := _home(kind):
        return f"{kind.__qualname__} {home}"
    made = [f"{kind.__module__}.{kind.__qualname__}"]
    for base in kind.__mro__:
        if _home(base):
            made.append(_anything())
        elif base.__module__.partition(".")[0] not in ("builtins", "typing", "abc", "numpy"):
            made += [_function(f) for f in _functions(base)]
    return " ".join(made)


def _functions(kind: type) -> Iterator[Any]:
    for name in sorted(vars(kind)):
        value = vars(kind)[name]
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(value, FunctionType):
            yield value


def _function(function: Any) -> str:
    inner = getattr(function, "__func__", function)
    held = [cell.cell_contents for cell in inner.__closure__ or () if not isinstance(cell.cell_contents, type)]
    bound = [function.__self__] if isinstance(function, MethodType) else []
    more = "\x1e".join(_words((inner.__defaults__, inner.__kwdefaults__, held, bound)))
    more += _home(inner) or _anything()
    return hashlib.sha256(f"{inner.__qualname__} {_compiled(inner.__code__)} {more}".encode()).hexdigest()[:16]


def _compiled(code: CodeType) -> str:
    inner = [_compiled(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {inner}"


def _home(made: Any) -> str:
    """Return a hash of the code that a class or function of dspkit may run: its module and imports; "" for others."""
    module = made.__module__ or ""
    return _module(module) if module.partition(".")[0] == __name__.partition(".")[0] else ""


@cache
def _module(name: str) -> str:
    return module_key(str(sys.modules[name].__file__), nested=True)


@cache
def _anything() -> str:
    """Return a hash of the code of all of dspkit."""
    return package_key(__file__)


EVERY_S, AT_MOST = 2.0, 200  # seconds and rows after which a file is written


class ResultCache:
    """The rows of a folder by the fingerprints of their runs; without a folder, those of this comparison."""

    def __init__(self, folder: str | Path | None):
        self.folder = None if folder is None else files.given_path(folder).absolute()
        self.rows: dict[str, dict[str, Any]] = {}
        self._new: dict[str, dict[str, Any]] = {}
        self._known: set[Path] = set()  # files that were read or written: another comparison may write more
        self._saved = time.monotonic()
        if self.folder is not None:
            if self.folder.exists() and not self.folder.is_dir():
                raise FileError(f"{folder}, a file", expected="a folder to keep rows in", fix="choose another name")
            files.remove_stale(self.folder)
            for path in self._files():
                self._read(path)

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Add a row; failed runs are not written, so that they are repeated."""
        self.rows[key] = dict(row)
        if self.folder is None or row["error"]:
            return
        self._new[key] = dict(row)
        if len(self._new) >= AT_MOST or time.monotonic() - self._saved > EVERY_S:
            self.save()

    def save(self) -> None:
        """Write the new rows as one more file."""
        self._saved = time.monotonic()
        if self._new and self.folder is not None:
            self._write(self._new)
            self._new = {}

    def together(self) -> None:
        """Merge all files into one, except those that another comparison has written meanwhile."""
        self.save()
        if len(former := sorted(self._known)) < 2:
            return
        self._write({key: row for key, row in self.rows.items() if not row["error"]})
        for path in former:
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("rows-*.parquet")) if self.folder is not None else []

    def _write(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        pa = load("pyarrow", "standard")
        assert self.folder is not None
        table = results_frame(rows.values())
        table.insert(0, "run", list(rows))
        path = self.folder / f"rows-{secrets.token_hex(8)}.parquet"
        packed = pa.Table.from_pandas(table, preserve_index=False).replace_schema_metadata()
        files.write_atomically(path, lambda partial: untrusted.write_parquet(packed, partial))
        self._known.add(path)

    def _read(self, path: Path) -> None:
        import pyarrow as pa

        expected, names = "rows of a comparison", ["run", *KEYS, *SCORES, "error"]

        def choose(schema: pa.Schema, _: int) -> list[str]:
            if missing := [c for c in ("run", *KEYS, "error") if schema.names.count(c) != 1]:
                raise FileError(f"{path} without {missing}", expected=expected, fix="choose another folder")
            columns.extend(name for name in names if name in schema.names)
            if wrong := [name for name in columns if not _of_kind(name, schema.field(name).type)]:
                raise FileError(f"{path} with {wrong[0]} of another type", expected=expected, fix="delete the file")
            return columns

        columns: list[str] = []
        found: dict[str, dict[str, Any]] = {}
        try:
            with untrusted.parquet(path, expected=expected, choose=choose) as (file, allowance):
                for batch in file.iter_batches(allowance.rows, columns=columns):
                    allowance.take(untrusted.word_bytes(batch))
                    for row in batch.to_pylist():
                        found[row.pop("run")] = {k: None if v != v else v for k, v in row.items()}
        except FileError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return  # another comparison has just merged it
            raise
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            raise FileError(f"{path}: {error!s:.200}", expected=expected, fix="delete the file") from error
        self.rows.update(found)
        self._known.add(path)


def _of_kind(column: str, kind: Any) -> bool:
    """Return whether a column of a file has the type that we write."""
    import pyarrow.types as pt

    if column == "seed":
        return bool(pt.is_integer(kind))
    return bool(pt.is_floating(kind) if column in SCORES else pt.is_string(kind) or pt.is_large_string(kind))


def results_frame(rows: Any) -> pd.DataFrame:
    """Return rows as a table with all columns, each of a fixed type."""
    import pandas as pd

    table = pd.DataFrame(list(rows), columns=[*KEYS, *SCORES, "error"])
    words = [k for k in KEYS if k != "seed"]
    kinds = dict.fromkeys(words, "object") | {"seed": "int64"} | dict.fromkeys(SCORES, "float64") | {"error": "object"}
    return table.astype(kinds)
