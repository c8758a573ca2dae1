"""Files of metrics: plain and compressed ones line by line, in little memory, and recorded answers as JSON.

Spark compresses its logs with zstd, lz4 or snappy.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from ...core import untrusted
from ...core.files import open_regular
from ...core.lazy import load
from .base import Limits, LoaderError, Problems
from .units import Unusable

_CHUNK = 1 << 20
_LINES = 1 << 18  # that any file may have, beyond one per byte
_PIECE = 1 << 16  # of a packed stream: where it breaks off, no more than this is lost
_BLOCK = 64 << 20  # of Spark's lz4 and snappy streams: they write 32 KiB
_ZSTD, _GZIP, _LZ4, _SNAPPY, _LZF = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"LZ4Block", b"\x82SNAPPY\0", b"ZV"
PACKED = (_ZSTD, _GZIP, _LZ4, _SNAPPY, _LZF)  # what packed files begin with
_LZ4_HEAD, _SNAPPY_HEAD = struct.Struct("<8sBIII"), struct.Struct(">8sii")
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20


def read_lines(path: Path, limits: Limits, problems: Problems) -> Iterator[bytes]:
    """Yield the lines of a file; long lines and a truncated end are dropped and counted."""
    yield from split(unpacked(path, limits, problems), path.name, limits, problems)


def split(chunks: Iterator[bytes], name: str, limits: Limits, problems: Problems) -> Iterator[bytes]:
    """Yield lines from chunks, with at most one chunk and the longest allowed line in memory."""
    kept: list[bytes] = []  # pieces of the line whose end has not come
    size, number = 0, 1

    def ended(piece: bytes, length: int) -> bytes:
        if length > limits.line_bytes:
            problems.count("line too long", f"{name} line {number}: {length:,} bytes")
            return b""
        return piece.strip()

    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        for piece in rest:  # each of them begins after an end
            size += len(first)
            if size and (line := ended(b"".join((*kept, first)), size)):
                yield line
            number += 1
            first, size = piece, 0
            if kept:
                kept = []
        size += len(first)
        if size <= limits.line_bytes:
            kept.append(first)
        else:
            kept = []
    if line := ended(b"".join(kept), size):
        yield line


def unpacked(path: Path, limits: Limits, problems: Problems) -> Iterator[bytes]:
    """The content of a file in chunks; what its first bytes say decides how it is packed."""
    try:
        with open_regular(path, error=LoaderError, expected="a file of metrics") as file:
            packed = path.stat().st_size
            total = lines = 0
            for chunk in _chunks(file, path.name, problems):
                total += len(chunk)
                limits.check("total_bytes", total)
                if (lines := lines + chunk.count(b"\n")) > _LINES + packed:  # a real line packs to over a byte
                    raise LoaderError(
                        f"{path.name}, {packed:,} bytes with more than {lines - 1:,} lines",
                        expected="lines of metrics",
                        fix="unpack the file if you trust it",
                    )
                if total > _CHUNK and total > limits.expansion * max(1, packed):
                    limits.check("expansion", total // max(1, packed))
                yield chunk
    except OSError as error:
        raise LoaderError(
            f"{path}: {error.strerror or error}", expected="a file to read", fix="check the path"
        ) from error


def _chunks(file: IO[bytes], name: str, problems: Problems) -> Iterator[bytes]:
    head = file.read(8)
    file.seek(0)
    if head.startswith(_LZF):
        raise LoaderError(
            f"{name}, compressed with lzf",
            expected="zstd, lz4, snappy, gzip or plain",
            fix="compress it with one of these",
        )
    try:
        if head == _LZ4:
            yield from _lz4(file)
        elif head == _SNAPPY:
            yield from _snappy(file)
        elif head.startswith((_ZSTD, _GZIP)):
            yield from _stream(file, "zstd" if head.startswith(_ZSTD) else "gzip")
        else:
            while chunk := file.read(_CHUNK):
                yield chunk
    except Unusable as reason:
        problems.count("packed file that breaks off", f"{name}: {reason}")


def _stream(file: IO[bytes], codec: str) -> Iterator[bytes]:
    pa = load("pyarrow", "standard")
    try:
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
            while chunk := stream.read(_PIECE):
                yield chunk
    except (pa.ArrowException, OSError) as error:  # a log that is still written to has no end
        raise Unusable(str(error)[:100]) from None


def _lz4(file: IO[bytes]) -> Iterator[bytes]:
    """Blocks as lz4-java's LZ4BlockOutputStream writes them."""
    while head := file.read(_LZ4_HEAD.size):
        if len(head) < _LZ4_HEAD.size:
            raise Unusable("cut off")
        magic, token, packed, size, _ = _LZ4_HEAD.unpack(head)
        if magic != _LZ4 or packed > _BLOCK or size > _BLOCK or token & 0xF0 not in (_LZ4_RAW, _LZ4_PACKED):
            raise Unusable("no lz4 block")
        if size == 0:
            continue  # the end of one stream; another may follow
        data = file.read(packed)
        yield data if token & 0xF0 == _LZ4_RAW else _block("lz4_raw", data, packed, size)


def _snappy(file: IO[bytes]) -> Iterator[bytes]:
    """Blocks as snappy-java's SnappyOutputStream writes them."""
    while head := file.read(4):
        if head == _SNAPPY[:4]:  # of this stream or another one behind it
            file.read(_SNAPPY_HEAD.size - 4)
            continue
        packed = int.from_bytes(head, "big")
        if len(head) < 4 or packed > _BLOCK:
            raise Unusable("no snappy block")
        data = file.read(packed)
        size = 0
        for i, byte in enumerate(data[:5]):
            size |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                break
        if size > _BLOCK:
            raise Unusable("no snappy block")
        yield _block("snappy", data, packed, size)


def _block(codec: str, data: bytes, packed: int, size: int) -> bytes:
    import pyarrow as pa

    if len(data) < packed:
        raise Unusable("cut off")
    try:
        return bytes(pa.Codec(codec).decompress(data, size, asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unusable(str(error)[:100]) from None


def parse_json(data: bytes | str) -> Any:
    """Return parsed JSON or raise Unusable; the caller has limited its length."""
    try:
        return untrusted.parse_json(data)
    except untrusted.TooLarge as error:
        raise Unusable(str(error)) from None
    except ValueError:
        raise Unusable("not JSON") from None


def at(value: Any, *path: str) -> Any:
    """Return the JSON value at a path of names, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def items(value: Any) -> list[Any]:
    """Return a JSON list, or an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any, max_length: int = 1000) -> str:
    """Return JSON text that can be a name, or raise Unusable: lone surrogates cannot be encoded."""
    if not isinstance(value, str) or not value.strip() or len(value) > max_length:
        raise Unusable("not a name")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unusable("not a name") from None
    return value


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Return the paths by name, with numbers in numeric order."""
    return sorted(paths, key=lambda p: [(part.zfill(40), part) for part in re.split(r"(\d+)", p.name)])


def read_some(file: IO[bytes], path: Path, size: int) -> bytes:
    """Return up to `size` bytes, or raise an error by type: a disk may fail, and the machine of a network folder."""
    try:
        return file.read(size)
    except OSError as error:
        raise LoaderError(f"{path}: {error.strerror}", expected="a file to read", fix="check the disk") from error


def read_json(path: Path, limits: Limits) -> Any:
    """Return the contents of a JSON file, up to the limit of one answer."""
    with open_regular(path, error=LoaderError, expected="a recorded answer") as file:
        data = read_some(file, path, limits.answer_bytes + 1)
    limits.check("answer_bytes", len(data))
    try:
        return parse_json(data)
    except Unusable as reason:
        raise LoaderError(f"{path}: {reason}", expected="a recorded answer", fix="record it again") from None
