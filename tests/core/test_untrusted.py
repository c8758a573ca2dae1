"""Tables of others: those in proportion to their file are read exactly; others are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dspkit.core.errors import FileError
from dspkit.core.untrusted import parse_json, read_table
from dspkit.loaders import Table

TABLE = pa.table({"a": [1, 2], "w": ["x", "y"]})


def test_a_table_without_rows_and_one_with_an_empty_part_are_read(tmp_path: Path) -> None:
    pq.write_table(TABLE.slice(0, 0), path := tmp_path / "none.parquet")
    assert read_table(path, expected="a table").equals(TABLE.slice(0, 0))
    with pq.ParquetWriter(path := tmp_path / "parts.parquet", TABLE.schema) as writer:
        for part in (TABLE, TABLE.slice(0, 0), TABLE):
            writer.write_table(part)
    assert read_table(path, expected="a table").equals(pa.concat_tables([TABLE, TABLE]))


def test_a_part_that_only_says_that_it_is_empty_is_not_unpacked(tmp_path: Path) -> None:
    """The number of values in the footer set to 0, wherever it may stand; pages hold a word of 200 MB."""
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"w": ["x" * (200 << 20)]}), path, compression="zstd")
    whole = path.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    places = [footer + found.end() - 1 for found in re.finditer(b"\x16\x02", whole[footer:])]
    assert len(places) >= 2  # of values of the column, of rows of the part or of all
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    for chosen in range(1 << len(places)):
        changed = bytearray(whole)
        for bit, place in enumerate(places):
            if chosen >> bit & 1:
                changed[place] = 0
        path.write_bytes(changed)
        try:
            found = read_table(path, expected="a table")
        except FileError:
            continue
        assert found.num_rows == 0 or found.nbytes < 1 << 20
        assert pool.bytes_allocated() - before < 1 << 20


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}"), ('[0, {"a": ', "}]")])
def test_json_is_read_to_64_levels_and_refused_beyond_however_deep(opening: str, closing: str) -> None:
    per_level = opening.count("[") + opening.count("{")

    def nested(levels: int) -> str:
        return opening * (levels // per_level) + "0" + closing * (levels // per_level)

    value, levels = parse_json(nested(64)), 0
    while value != 0:
        value, levels = (value["a"] if isinstance(value, dict) else value[-1]), levels + 1
    assert levels == 64
    for more in (66, 1_000, 200_000):
        with pytest.raises(ValueError, match="JSON of more than 64 levels"):
            parse_json(nested(more))


@pytest.mark.parametrize("prefix", ["", "operator of a long name "])
def test_words_that_repeat_most_of_the_former_one_are_read(tmp_path: Path, prefix: str) -> None:
    words = [f"{prefix}{i}" for i in range(20_000)]
    table = pa.table({"t": range(20_000), "operator": words, "processing_rate": [90.0] * 20_000})
    path = tmp_path / "delta.parquet"
    pq.write_table(table, path, use_dictionary=False, column_encoding={"operator": "DELTA_BYTE_ARRAY"})
    assert read_table(path, expected="a table").equals(table)


def test_a_loaded_table_is_the_same_whatever_its_encoding(tmp_path: Path) -> None:
    rows = {"t": [10, 20], "operator": ["work"] * 2, "processing_rate": [90.0] * 2, "utilisation": [0.5] * 2}
    histories = []
    for i, options in enumerate([{}, {"use_dictionary": False, "column_encoding": {"operator": "DELTA_BYTE_ARRAY"}}]):
        pq.write_table(pa.table(rows), path := tmp_path / f"{i}.parquet", **options)
        histories.append(Table(path, topology=["work"], parallelism=2).history())
    assert [step.snapshot for step in histories[0]] == [step.snapshot for step in histories[1]]
    assert len(histories[0]) == 2


def test_a_folder_of_parts_is_one_table_and_another_folder_is_refused(tmp_path: Path) -> None:
    for i in (1, 0):
        pq.write_table(TABLE.slice(i, 1), tmp_path / f"part-{i}.snappy.parquet")
    for name in ("_SUCCESS", ".part-0.snappy.parquet.crc"):
        (tmp_path / name).touch()
    assert read_table(tmp_path, expected="a table").equals(TABLE)
    (tmp_path / "day=1").mkdir()
    for folder in (tmp_path, tmp_path / "day=1"):
        with pytest.raises(FileError, match="a folder; expected a table: Parquet files and no folders; write it"):
            read_table(folder, expected="a table")


def test_a_footer_with_any_byte_changed_is_read_or_refused(tmp_path: Path) -> None:
    """By some of them a C++ exception ended the process inside of pyarrow."""
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"a": [1, 2], "w": ["x", None]}), path)
    whole = path.read_bytes()
    read = 0
    for place in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole)):
        for value in (1, whole[place] ^ 2):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                read += read_table(path, expected="a table").num_rows
            except FileError:
                continue
    assert read  # most of a footer is not needed to read a table
