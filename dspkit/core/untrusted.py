"""Bounds for files and answers that others made: what they unpack to is estimated before they are parsed.

A few bytes can stand for gigabytes: a page of a Parquet file is compressed, and one word of its dictionary may be the
value of all rows; three characters of JSON make a list of 56 bytes. The footer of a Parquet file says how large its
pages are, but need not be true, so the header of each page is read, according to which pyarrow unpacks it.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .errors import DspkitError, FileError
from .files import given_path, open_regular
from .lazy import load

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq


_ALLOWED = 32 << 20  # bytes of memory that any input may take
_PER_BYTE_OF_TABLE, _PER_BYTE_OF_JSON = 64, 16  # and more for each of its own bytes
_PER_VALUE, _PER_CELL = 100, 32  # bytes of a number of a table among Python objects, and in a data frame
_LIST, _OBJECT, _ITEM = 60, 240, 40  # bytes of a JSON list, object, and of each further item
_MOST_LEVELS = 64  # of nested JSON: of ours none has more than ten
_MOST_PARTS = 10_000  # columns, parts and pages of a Parquet file
_BYTES_PER_PAGE = 100


class TooLarge(ValueError):
    """An input that unpacks to more than its size allows; the text is the reason."""


def parse_json(data: bytes | str) -> Any:
    """Return the value of a JSON text, or raise a ValueError, before memory or stack are exhausted.

    Examples
    --------
    >>> parse_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json("[" * 1000 + "]" * 1000)
    Traceback (most recent call last):
    ValueError: JSON of more than 64 levels
    """
    if json_memory(data) > _ALLOWED + _PER_BYTE_OF_JSON * len(data):
        raise TooLarge(f"{len(data):,} characters of JSON that become too many lists and objects")
    try:
        made = json.loads(data)
    except RecursionError:
        raise ValueError(f"JSON of more than {_MOST_LEVELS} levels") from None
    check_levels(made)
    return made


def json_memory(data: bytes | str) -> int:
    """Return an upper estimate of the memory, in bytes, that the value of a JSON text takes beside its words.

    Examples
    --------
    >>> json_memory("[1, {}]")
    340
    """
    bracket, brace, comma = ("[", "{", ",") if isinstance(data, str) else (b"[", b"{", b",")
    return _LIST * data.count(bracket) + _OBJECT * data.count(brace) + _ITEM * data.count(comma)  # type: ignore[arg-type]


def check_levels(value: Any) -> None:
    """Raise a ValueError if lists and mappings are nested more deeply than recursive functions can follow.

    Examples
    --------
    >>> check_levels([[1], {"a": []}])
    """
    level = [value]
    for _ in range(_MOST_LEVELS + 1):
        level = [one for one in level if isinstance(one, (dict, list, tuple)) and one]
        if not level:
            return
        level = [inner for one in level for inner in (one.values() if isinstance(one, dict) else one)]
    raise ValueError(f"JSON of more than {_MOST_LEVELS} levels")


def read_text(path: str | Path, *, expected: str, most_bytes: int = 64 << 20) -> str:
    """Return the text of a file, or raise a FileError.

    Examples
    --------
    >>> read_text("no_such_file.json", expected="a saved library")
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got no file no_such_file.json; expected a saved library; check the path
    """
    with open_regular(path, expected=expected) as file:
        try:
            data = file.read(most_bytes + 1)
            if len(data) > most_bytes:
                raise FileError(f"{path} of more than {most_bytes:,} bytes", expected=expected, fix="check the path")
            return data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            if isinstance(error, DspkitError):
                raise
            raise FileError(f"{path}: {error}", expected=expected, fix="check the path") from error


@contextmanager
def parquet(
    path: str | Path,
    *,
    error: type[DspkitError] = FileError,
    expected: str,
    choose: Callable[[pa.Schema, int], Iterable[str] | None] | None = None,
    trusted: bool = False,
    per_value: int = _PER_VALUE,
) -> Iterator[tuple[pq.ParquetFile, Allowance]]:
    """Open a Parquet file whose contents, by the headers of its pages, are not out of proportion to its size.

    Yield the file and what is left of its allowance for words, most of which are read as dictionaries, in which each is
    stored once. Other errors than those of the file system are pyarrow's.

    Parameters
    ----------
    path : str or Path
        The file.
    error : type
        The kind of error to raise.
    expected : str
        Description of the file.
    choose : callable, optional
        Checks the schema and the number of rows, and returns the names of the columns that will be read, or None for
        all of them.
    trusted : bool
        Whether the file may unpack to any size.
    per_value : int
        Bytes that a number takes in what is made of it, with its share of rows and names.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from dspkit import History, Topology
    >>> with TemporaryDirectory() as folder:
    ...     with parquet(History(Topology.chain("a")).save(f"{folder}/run"), expected="a run") as (file, _):
    ...         file.metadata.num_rows
    0
    """
    pq = load("pyarrow.parquet", "standard")
    limits = {} if trusted else dict(thrift_container_size_limit=_MOST_PARTS, thrift_string_size_limit=16 << 20)
    with open_regular(path, error=error, expected=expected) as raw:
        with pq.ParquetFile(raw, **limits) as file:
            chosen = choose(file.schema_arrow, file.metadata.num_rows) if choose else None
            wanted = None if chosen is None else set(chosen)
            parts = [file.metadata.schema.column(i) for i in range(file.metadata.num_columns)]
            here = [i for i, part in enumerate(parts) if wanted is None or part.path.partition(".")[0] in wanted]
            allowance = Allowance(path, math.inf if trusted else _allowed(raw.seek(0, 2)))
            delta = _take_pages(raw, file.metadata, here, allowance, per_value)
        # Words of delta-encoded pages cannot be read as dictionaries.
        words = [parts[i].path for i in here if parts[i].physical_type == "BYTE_ARRAY" and i not in delta]
        with pq.ParquetFile(raw, read_dictionary=words, **limits) as file:
            yield file, allowance


def word_bytes(data: Any) -> int:
    """Return the bytes of all words of a record batch or array as `parquet` reads it, each as often as it occurs.

    Examples
    --------
    >>> import pyarrow as pa
    >>> word_bytes(pa.array(["abc", "abc", None]).dictionary_encode())
    6
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    if isinstance(data, pa.RecordBatch):
        return sum(map(word_bytes, data.columns))
    if isinstance(data, pa.DictionaryArray):
        lengths = pc.binary_length(data.dictionary).cast(pa.int64())
        return pc.sum(pc.take(lengths, data.indices)).as_py() or 0
    if pt.is_string(data.type) or pt.is_binary(data.type) or pt.is_large_string(data.type):
        return pc.sum(pc.binary_length(data)).as_py() or 0
    if pt.is_struct(data.type):
        return sum(map(word_bytes, data.flatten()))
    if pt.is_map(data.type):
        return word_bytes(data.keys) + word_bytes(data.items)
    return word_bytes(data.flatten()) if pt.is_list(data.type) or pt.is_large_list(data.type) else 0


class Allowance:
    """The bytes of memory that the contents of one Parquet file may still take.

    `rows` is how many rows may be read at once: of a delta-encoded page each word may repeat most of the former one.

    Parameters
    ----------
    path : str or Path
        The file, for the error.
    left : float
        Bytes.

    Examples
    --------
    >>> allowance = Allowance("run.parquet", 1000)
    >>> allowance.take(600)
    >>> allowance.take(600)
    Traceback (most recent call last):
    dspkit.core.untrusted.TooLarge: run.parquet, which unpacks to more than its size allows
    """

    def __init__(self, path: str | Path, left: float):
        self._path, self._left, self.rows = path, left, 1 << 16

    def take(self, size: int) -> None:
        """Count bytes, or raise TooLarge if no more are left.

        Examples
        --------
        >>> Allowance("run.parquet", 1000).take(1000)
        """
        self._left -= size
        if self._left < 0:
            raise TooLarge(f"{self._path}, which unpacks to more than its size allows")


def read_table(path: str | Path, *, error: type[DspkitError] = FileError, expected: str) -> pa.Table:
    """Return a Parquet file of flat columns, or a folder of them, without the metadata of other libraries.

    Examples
    --------
    >>> read_table("no_such_table.parquet", expected="a table")
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got no file no_such_table.parquet; expected a table; check the path
    """
    pa, pt = load("pyarrow", "standard"), load("pyarrow.types", "standard")
    place = given_path(path, error=error)
    try:
        if place.is_dir():  # as Spark writes a table
            parts = sorted(part for part in place.iterdir() if not part.name.startswith(("_", ".")))
            if len(parts) > _MOST_PARTS:
                raise error(f"{path} with {len(parts):,} files", expected=expected, fix="write it in fewer")
            if not parts or any(part.suffix != ".parquet" or part.is_dir() for part in parts):
                fix = "write it without partitions, or name one file of it"
                raise error(f"{path}, a folder", expected=f"{expected}: Parquet files and no folders", fix=fix)
            return pa.concat_tables([read_table(part, error=error, expected=expected) for part in parts])
        with parquet(path, error=error, expected=expected, per_value=_PER_CELL) as (file, allowance):
            batches = []
            for batch in file.iter_batches(allowance.rows):
                allowance.take(word_bytes(batch))
                batches.append(batch)
            table = pa.Table.from_batches(batches, schema=file.schema_arrow)
        kinds = [f.with_type(f.type.value_type) if pt.is_dictionary(f.type) else f for f in table.schema]
        return table.cast(pa.schema(kinds))
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as reason:
        if isinstance(reason, DspkitError):
            raise
        raise error(f"{path}: {reason!s:.200}", expected=expected, fix="check the file") from reason


def read_csv(path: str | Path, *, error: type[DspkitError] = FileError, expected: str, **options: Any) -> pd.DataFrame:
    """Return a CSV file, which may be packed with gzip.

    Examples
    --------
    >>> read_csv("no_such_table.csv", expected="a table")
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got no file no_such_table.csv; expected a table; check the path
    """
    import pandas as pd

    data = read_bytes(path, error=error, expected=expected)
    columns = data[: data.find(b"\n") % (len(data) + 1)].count(b",") + 1
    if columns > _MOST_PARTS:
        raise error(f"{path} with {columns:,} columns", expected=expected, fix="leave out what is not needed")
    try:
        found: pd.DataFrame = pd.read_csv(io.BytesIO(data), **options)
        return found
    except ValueError as reason:
        raise error(f"{path}: {reason!s:.300}", expected=expected, fix="check the file") from reason


def read_bytes(path: str | Path, *, error: type[DspkitError] = FileError, expected: str) -> bytes:
    """Return the contents of a file, unpacked if it is a gzip file.

    Examples
    --------
    >>> read_bytes("no_such_table.csv", expected="a table")
    Traceback (most recent call last):
    dspkit.core.errors.FileError: got no file no_such_table.csv; expected a table; check the path
    """
    with open_regular(path, error=error, expected=expected) as raw:
        try:
            if raw.read(2) != b"\x1f\x8b":
                raw.seek(0)
                return raw.read()
            most = _allowed(raw.seek(0, 2))
            raw.seek(0)
            with gzip.open(raw) as packed:
                data = packed.read(most + 1)
        except (OSError, EOFError, zlib.error) as reason:
            raise error(f"{path}: {reason!s:.200}", expected=expected, fix="fetch it again") from reason
    if len(data) > most:
        raise error(f"{path}, which unpacks to more than {most:,} bytes", expected=expected, fix="unpack it yourself")
    return data


def write_parquet(table: pa.Table, path: str | Path, parsed: int = 0) -> None:
    """Write a Parquet file that `parquet` accepts.

    Hardly any table packs so well that its file would be taken for a hostile one; such a table is not packed.

    Parameters
    ----------
    table : pyarrow.Table
        The data.
    path : str or Path
        The file, which is replaced.
    parsed : int
        Bytes of memory that is made of its words, beside these.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import pyarrow as pa
    >>> with TemporaryDirectory() as folder:
    ...     write_parquet(pa.table({"a": [1]}), f"{folder}/a.parquet")
    ...     with parquet(f"{folder}/a.parquet", expected="a table") as (file, _):
    ...         file.read().to_pydict()
    {'a': [1]}
    """
    pq = load("pyarrow.parquet", "standard")
    pq.write_table(table, path, compression="zstd")
    try:
        with parquet(path, expected="a table") as (file, allowance):
            allowance.take(parsed)
            for batch in file.iter_batches(allowance.rows):
                allowance.take(word_bytes(batch))
    except TooLarge:
        pq.write_table(table, path, compression="none", use_dictionary=False)


def _allowed(size: int) -> int:
    """Return the bytes of memory that a Parquet file of this size may take."""
    return _ALLOWED + _PER_BYTE_OF_TABLE * size


def _take_pages(
    raw: IO[bytes], metadata: pq.FileMetaData, columns: list[int], allowance: Allowance, per_value: int
) -> set[int]:
    """Count the contents of the pages of these columns, by their own headers; return which are delta-encoded."""
    size = raw.seek(0, 2)
    pages, delta = 0, set()
    for chunks in _chunks(raw, metadata.num_columns):
        for at in columns:
            values, packed_size, start, dictionary = chunks[at]
            if not values:
                continue  # an empty part has no page, and pyarrow looks for none
            if 0 < dictionary < start:
                start = dictionary
            if start < 0 or packed_size < 0:
                raise TooLarge("a Parquet file with pages outside of it")
            end = min(start + packed_size, size)
            while start < end:
                (count, packed, full, encoding), start = _page(raw, start)
                pages += 1
                if packed < 0 or full < 0 or count < 0 or pages > _MOST_PARTS + size // _BYTES_PER_PAGE:
                    raise TooLarge(f"a Parquet file with broken pages, or {pages:,} of them")
                allowance.take(count * per_value + full)
                if encoding == _DELTA_BYTE_ARRAY:
                    delta.add(at)
                    allowance.rows = min(allowance.rows, max(1, _MOST_REPEATED // max(1, full)))
                start += packed
    return delta


def _chunks(raw: IO[bytes], columns: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """Yield for each part of a file its columns: values, packed size, and where data and dictionary begin.

    pyarrow says the same, but ends the process where the rest of a column's description is broken.
    """
    end = raw.seek(-8, 2)
    raw.seek(end - int.from_bytes(raw.read(4), "little"))
    try:
        footer, _ = _struct(raw.read(end - raw.tell()), 0)
        for group in footer.get(4, []):
            chunks = [tuple(chunk[3].get(field, 0) for field in (5, 7, 9, 11)) for chunk in group[1]]
            if len(chunks) != columns or not all(isinstance(n, int) for chunk in chunks for n in chunk):
                raise TooLarge("a Parquet file with a broken footer")
            yield chunks
    except (IndexError, KeyError, TypeError, AttributeError):
        raise TooLarge("a Parquet file with a broken footer") from None


_DELTA_BYTE_ARRAY = 7
_MOST_REPEATED = 4 << 20  # bytes of the words of one batch, or those of one word
_HEADERS = (5, 7, 8)  # of a page of data, of a dictionary, of a page of data of the second version
_ENCODINGS = {5: 2, 7: 2, 8: 4}


def _page(raw: IO[bytes], start: int) -> tuple[tuple[int, int, int, int], int]:
    """Return (values, packed size, full size, encoding) of the page that begins here, and where its contents begin."""
    for length in (1 << 8, 1 << 14, 1 << 24):
        raw.seek(start)
        data = raw.read(length)
        try:
            found, end = _struct(data, 0)
        except IndexError:
            if len(data) < length:
                break
            continue
        inner: dict[int, int] = next((found[key] for key in _HEADERS if isinstance(found.get(key), dict)), {})
        kind = next((key for key in _HEADERS if key in found), 5)
        count = 0 if kind == 7 else inner.get(1, 0)  # the words of a dictionary are not values of rows
        page = (count, found.get(3, 0), found.get(2, 0), inner.get(_ENCODINGS[kind], 0))
        if not all(isinstance(number, int) for number in page):
            break
        return page, start + end
    raise TooLarge("a Parquet file with a broken page")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return what `_value` keeps of a struct in Thrift's compact protocol, by field, and where it ends."""
    found: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head >> 4:
            field += head >> 4
        else:
            field, at = _zigzag(data, at)
        if kind not in (1, 2):  # a truth value is in the field's head
            value, at = _value(data, at, kind, depth)
            if value is not None:
                found[field] = value
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a whole number, struct or list of structs, None for anything else, and where it ends."""
    if kind in (4, 5, 6):
        return _zigzag(data, at)
    if kind in (1, 2, 3):
        return None, at + 1
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind == 12 and depth < 12:
        return _struct(data, at, depth + 1)
    if kind in (9, 10) and depth < 12:
        head, at = data[at], at + 1
        length, inner = head >> 4, head & 15
        if length == 15:
            length, at = _varint(data, at)
        values = []
        for _ in range(length):
            if at >= len(data):
                raise IndexError
            value, at = _value(data, at, inner, depth + 1)
            if inner == 12:
                values.append(value)
        return values, at
    raise TooLarge("a Parquet file with a broken page or footer")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise TooLarge("a Parquet file with a broken page")


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
