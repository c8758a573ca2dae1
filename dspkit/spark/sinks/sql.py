"""A table of an SQL database: the rows of an epoch and its number are written in one transaction.

<table>          "_writer", "_epoch", and a column per column of the rows
dspkit_epochs    writer, epoch, token: the newest epochs of each writer
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from ...core import ArgumentError
from ..errors import SchemaError, SinkError
from .sink import Sink, StagedFile

if TYPE_CHECKING:
    import pyarrow as pa


_KEPT = 100  # epochs of which the token is kept
_DRIVERS = {"sqlite": "sqlite3", "postgresql": "psycopg"}
_EPOCHS = "writer TEXT NOT NULL, epoch BIGINT NOT NULL, token TEXT NOT NULL, PRIMARY KEY (writer, epoch)"
_OWN = '"_writer" TEXT NOT NULL, "_epoch" BIGINT NOT NULL'
_LOGIN = re.compile(r"^([^:]*:/*[^:@/]*:)(.*)@", re.DOTALL)  # a password may have an @ itself
_OPTION = re.compile(r"(\w*(?:password|secret)\w*\s*=)([^&]*)", re.IGNORECASE)
_BUSY_S = 10.0  # for other programs that write to the same SQLite file


@dataclass(frozen=True)
class SqlSink(Sink):
    """A table of a database, to which the rows of each epoch are appended in one transaction.

    The table is created if it does not exist. Beside the columns of the rows it has `_writer`, the name of this
    operator of this job, and `_epoch`. SQLite holds times, dates and decimals as text.

    Parameters
    ----------
    url
        The database: "sqlite:///path/to/file.db", or "postgresql://user:password@host/database", which needs psycopg.
    table
        The name of the table; in PostgreSQL also "schema.table".

    Examples
    --------
    >>> SqlSink("sqlite:////tmp/counts.db", "counts")
    SqlSink(url='sqlite:////tmp/counts.db', table='counts')
    """

    url: str = field(repr=False)
    table: str

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise ArgumentError(
                f"url of type {type(self.url).__name__}", expected="text", fix="as in 'sqlite:////a.db'"
            )
        if self._kind not in _DRIVERS:
            raise ArgumentError(
                f"url {self._shown!r}",
                expected=f"one that begins with {' or '.join(f'{kind}://' for kind in _DRIVERS)}",
                fix="as in 'sqlite:////tmp/rows.db'; for another database derive a class from dspkit.spark.Sink",
            )
        if self._kind == "sqlite":
            place = self.url.partition(":")[2]
            if not place.startswith("///") or self._file in ("", ":memory:") or "?" in place or "\0" in self._file:
                raise ArgumentError(
                    f"url {self._shown!r}",
                    expected="sqlite:/// and the path of a file, without options",
                    fix="as in 'sqlite:////tmp/rows.db', or 'sqlite:///rows.db' in the working directory",
                )
            if not self._file.startswith("/"):  # at once: later the program may be in another working directory
                object.__setattr__(self, "url", f"sqlite:///{quote(str(Path(self._file).absolute()))}")
        parts = self.table.split(".") if isinstance(self.table, str) else []
        if not all(parts) or not 1 <= len(parts) <= 2 or parts[-1].lower() == "dspkit_epochs":
            raise ArgumentError(f"table {self.table!r}", expected="the name of a table", fix="as in 'counts'")
        if len(parts) > 1 and self._kind == "sqlite":
            raise ArgumentError(
                f"table {self.table!r} in SQLite, which has no schemas",
                expected="a name without a dot",
                fix=f"as in {parts[-1]!r}; for another database name its file in the url",
            )
        self._driver()

    def __repr__(self) -> str:
        return f"SqlSink(url={self._shown!r}, table={self.table!r})"

    @property
    def _kind(self) -> str:
        return urlsplit(self.url).scheme

    @property
    def _shown(self) -> str:
        """The URL without its passwords."""
        return _OPTION.sub(r"\1***", _LOGIN.sub(r"\1***@", self.url))

    def _without_secrets(self, text: str) -> str:
        """Return a driver's message without passwords, plain and unquoted."""
        logins = [match[2] for match in _LOGIN.finditer(self.url)]
        if any({*login} & {*"/@?"} for login in logins):  # the driver takes parts of it for a host or a database
            return "(left out, as it may quote the password, in which / is to be written %2F, @ %40, and ? %3F)"
        found = logins + [match[2] for match in _OPTION.finditer(self.url)]
        for secret in sorted({*found, *map(unquote, found)} - {""}, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    @property
    def _file(self) -> str:
        return unquote(self.url.partition("://")[2])[1:]

    def _driver(self) -> Any:
        name = _DRIVERS[self._kind]
        try:
            return import_module(name)
        except ImportError as error:
            raise SinkError(
                f"a {self._kind} database without the package {name!r}",
                expected="it to be installed",
                fix=f"pip install '{name}[binary]'",
            ) from error

    @contextlib.contextmanager
    def _transaction(self, *, writes: bool = True) -> Iterator[Any]:
        """Yield a cursor of a new connection, and commit what it did unless that failed.

        Failures that may pass, as a lost connection, are raised as they are, so that the epoch is published again.
        """
        driver = self._driver()
        try:
            if self._kind == "sqlite":
                connection = sqlite3.connect(self._file, timeout=_BUSY_S, isolation_level=None)
            else:
                connection = driver.connect(self.url, autocommit=True)
            with contextlib.closing(connection):
                cursor = connection.cursor()
                cursor.execute("BEGIN IMMEDIATE" if self._kind == "sqlite" and writes else "BEGIN")
                try:
                    yield cursor
                    cursor.execute("COMMIT")
                except BaseException:  # closing alone would keep SQLite's locks for as long as a cursor lives
                    with contextlib.suppress(driver.Error):
                        connection.rollback()
                    raise
        except driver.Error as error:
            said = self._without_secrets(str(error))
            cause = error if said == str(error) else None
            if isinstance(error, driver.OperationalError):
                if cause is None:
                    raise type(error)(said) from None
                raise
            raise SinkError(
                f"table {self.table!r} of {self._shown}: {type(error).__name__}: {said.strip()}",
                expected="a table that takes the rows",
                fix="change the table, and start the job again from its checkpoint: nothing is lost",
            ) from cause

    @property
    def _mark(self) -> str:
        """Placeholder of a value in a statement."""
        return "?" if self._kind == "sqlite" else "%s"

    def _quoted(self, name: str) -> str:
        name = name.replace('"', '""')
        return f'"{name}"' if self._kind == "sqlite" else f'"{name}"'.replace("%", "%%")

    @property
    def _table(self) -> str:
        return ".".join(map(self._quoted, self.table.split(".")))

    def for_tasks(self) -> SqlSink:
        return replace(self, url=f"{self._kind}:////tasks")

    def check_schema(self, schema: pa.Schema) -> None:
        for column in schema:
            _sql_type(column, self._kind)

    def check_rows(self, batch: pa.RecordBatch) -> None:
        # NaN in SQLite and a zero byte in PostgreSQL's text would be stored as something else.
        import pyarrow as pa
        import pyarrow.compute as pc

        for column in batch.schema:
            values = batch.column(column.name)
            if self._kind == "sqlite" and pa.types.is_floating(column.type) and pc.any(pc.is_nan(values)).as_py():
                raise ValueError(f"NaN in column {column.name!r}, which SQLite would store as NULL")
            if (
                self._kind == "postgresql"
                and _is_text(column.type)
                and pc.any(pc.match_substring(values, "\0")).as_py()
            ):
                raise ValueError(f"a zero byte in column {column.name!r}, which PostgreSQL does not hold in text")

    def open(self, writer: str, schema: pa.Schema) -> dict[int, str]:
        columns = ", ".join(f"{self._quoted(column.name)} {_sql_type(column, self._kind)}" for column in schema)
        index = self._quoted(f"dspkit_{self.table.replace('.', '_')}")
        m = self._mark
        with self._transaction() as cursor:
            # with values, even none, the drivers read placeholders alike
            cursor.execute(f"CREATE TABLE IF NOT EXISTS dspkit_epochs ({_EPOCHS})", ())
            cursor.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({_OWN}, {columns})", ())
            self._check_columns(cursor, schema)  # of a table that was there before
            cursor.execute(f'CREATE INDEX IF NOT EXISTS {index} ON {self._table} ("_writer", "_epoch")', ())
            cursor.execute(f"SELECT epoch, token FROM dspkit_epochs WHERE writer = {m}", (writer,))
            return dict(cursor.fetchall())

    def _check_columns(self, cursor: Any, schema: pa.Schema) -> None:
        """Raise a SchemaError unless the table has these columns, and in SQLite with types that keep their values."""
        wanted = {"_writer": "TEXT", "_epoch": "BIGINT"} | {c.name: _sql_type(c, self._kind) for c in schema}
        if self._kind == "sqlite":  # where a quoted name that no column has is read as text
            cursor.execute(f"PRAGMA table_info({self._table})")
            found = {row[1]: row[2] for row in cursor.fetchall()}
            known = {name.lower(): kind for name, kind in found.items()}
            wrong = [n for n, kind in wanted.items() if _affinity(known.get(n.lower())) != _affinity(kind)]
        else:
            cursor.execute(f"SELECT * FROM {self._table} WHERE 1 = 0", ())
            found = {column.name: "" for column in cursor.description}
            wrong = [name for name in wanted if name not in found]
        if wrong:
            there = ", ".join(f"{name} {kind}".strip() for name, kind in found.items())
            raise SchemaError(
                f"table {self.table!r} with the columns {there}",
                expected=f"among them {', '.join(f'{name} {wanted[name]}' for name in wrong)}",
                fix="choose another table, which is then created, or change this one",
            )

    def publish(self, writer: str, epoch: int, token: str, files: Sequence[StagedFile]) -> None:
        m = self._mark
        with self._transaction() as cursor:
            cursor.execute(
                f"SELECT epoch, token FROM dspkit_epochs WHERE writer = {m} AND epoch >= {m}", (writer, epoch)
            )
            if found := [tuple(row) for row in cursor.fetchall()]:
                if found == [(epoch, token)]:
                    return
                raise SinkError(
                    f"epochs {found} in table {self.table!r}, where epoch {epoch} ({token}) is to be written",
                    expected="one job that writes from a checkpoint",
                    fix="close the other job; start this one again with another table and another checkpoint",
                )
            cursor.execute(f"INSERT INTO dspkit_epochs VALUES ({m}, {m}, {m})", (writer, epoch, token))
            cursor.execute(f"DELETE FROM dspkit_epochs WHERE writer = {m} AND epoch < {m}", (writer, epoch - _KEPT))
            for batch in (batch for file in files for batch in file.batches()):
                names = ", ".join(map(self._quoted, ["_writer", "_epoch", *batch.schema.names]))
                marks = ", ".join([m] * (2 + batch.num_columns))
                rows = zip(*(self._values(column) for column in batch.columns), strict=True)
                cursor.executemany(
                    f"INSERT INTO {self._table} ({names}) VALUES ({marks})", [(writer, epoch, *row) for row in rows]
                )

    def _values(self, column: pa.Array) -> list[Any]:
        """Return a column as values of the driver."""
        import pyarrow as pa

        values: list[Any] = column.to_pylist()
        if self._kind == "sqlite" and pa.types.is_temporal(column.type) | pa.types.is_decimal(column.type):
            return [None if value is None else str(value) for value in values]
        return values

    def withdraw(self, writer: str, epoch: int) -> None:
        m = self._mark
        with self._transaction() as cursor:
            cursor.execute(f'DELETE FROM {self._table} WHERE "_writer" = {m} AND "_epoch" > {m}', (writer, epoch))
            cursor.execute(f"DELETE FROM dspkit_epochs WHERE writer = {m} AND epoch > {m}", (writer, epoch))

    def newest(self, writer: str, rows: int) -> pa.Table:
        import pyarrow as pa

        m = self._mark
        order = f'SELECT * FROM {self._table} WHERE "_writer" = {m} ORDER BY "_epoch" DESC LIMIT {m}'
        with self._transaction(writes=False) as cursor:
            cursor.execute(order, (writer, rows))
            names = [column[0] for column in cursor.description]
            found = cursor.fetchall()[::-1]
        columns = list(zip(*found, strict=True)) or [()] * len(names)
        return pa.table({n: list(c) for n, c in zip(names, columns, strict=True) if n not in ("_writer", "_epoch")})


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _affinity(kind: str | None) -> str | None:
    """Return what SQLite makes of values in a column with this declared type: section 3.1 of its "Datatypes"."""
    if kind is None:
        return None
    rules = {"INTEGER": ("INT",), "TEXT": ("CHAR", "CLOB", "TEXT"), "BLOB": ("BLOB",), "REAL": ("REAL", "FLOA", "DOUB")}
    found = (name for name, words in rules.items() if any(word in kind.upper() for word in words))
    return next(found, "NUMERIC" if kind else "BLOB")


def _sql_type(column: pa.Field, kind: str) -> str:
    """Return the type of a column in the database, which holds its values exactly."""
    from pyarrow import types

    lite, it = kind == "sqlite", column.type
    if types.is_boolean(it):
        return "BOOLEAN"
    if types.is_uint64(it):
        found = "" if lite else "NUMERIC(20)"
    elif types.is_integer(it):
        found = "BIGINT"
    elif types.is_floating(it):
        found = "DOUBLE PRECISION"
    elif _is_text(it):
        found = "TEXT"
    elif types.is_binary(it) or types.is_large_binary(it) or types.is_fixed_size_binary(it):
        found = "BLOB" if lite else "BYTEA"
    elif types.is_decimal(it) and 0 <= it.scale <= it.precision:
        found = "TEXT" if lite else f"NUMERIC({it.precision}, {it.scale})"
    elif types.is_date32(it):
        found = "TEXT" if lite else "DATE"
    elif types.is_timestamp(it) and it.unit in ("ms", "us"):
        found = "TEXT" if lite else "TIMESTAMPTZ" if it.tz else "TIMESTAMP"
    else:
        found = ""
    if not found:
        raise SchemaError(
            f"column {column.name!r} of {it} for an SQL table",
            expected="bool, an integer (int64 in SQLite at most), a float, string, binary, a decimal, date32, or a "
            "timestamp in milliseconds or microseconds",
            fix="send another type, as text for a list or a struct",
        )
    return found
