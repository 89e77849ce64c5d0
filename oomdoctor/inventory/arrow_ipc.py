"""Read Arrow files and streams (`.arrow`, `.feather`): their messages, never their columns.

An Arrow file is a stream of messages between two marks, so one walk reads both. Each message has
a FlatBuffers header: a table is a list of offsets to its fields, of which only those that give
rows, types and buffer lengths are looked up. Feather version 1 is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from oomdoctor.inventory.guard import TOO_MUCH
from oomdoctor.inventory.parts import Part, Unreadable

_DAMAGED = "not an Arrow file, or damaged"
_MARK = b"ARROW1\0\0"
_HEADER_LIMIT_BYTES = 16 * 1024 * 1024
_MESSAGE_LIMIT = 1_000_000
_COLUMN_LIMIT = 100_000
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_INT, _FLOAT, _BOOL, _FIXED_LIST = 2, 3, 6, 16
_FLOATS = {0: "float16", 1: "float32", 2: "float64"}

# zstd packs zeros about 16,000 to one; a buffer that claims to grow more than this lies.
_RATIO_LIMIT = 100_000


@dataclass(slots=True)
class _Seen:
    """What the messages said so far."""

    columns: list[tuple[str | None, int]] = field(default_factory=list)
    """For each: dtype, None where it has no plain one, and elements in a row."""
    rows: int = 0
    memory_bytes: int = 0
    is_compressed: bool = False


def read_arrow(file: BinaryIO, size_bytes: int) -> Part:
    """Return the table of an Arrow file or stream that is open at its start."""
    seen = _Seen()
    position = 8 if file.read(8) == _MARK else 0
    is_cut = True
    for _ in range(_MESSAGE_LIMIT):
        file.seek(position)
        head = file.read(8)
        is_old = head[:4] != b"\xff\xff\xff\xff"  # before 0.15 there was only a length
        header_at = position + (4 if is_old else 8)
        if header_at > size_bytes:
            break
        (length,) = struct.unpack_from("<i", head, 0 if is_old else 4)
        if length == 0:
            is_cut = False
            break
        if not 0 < length <= _HEADER_LIMIT_BYTES or header_at + length > size_bytes:
            raise Unreadable(_DAMAGED)
        file.seek(header_at)
        message = _root(file.read(length))
        body_at, body_bytes = header_at + length, message.number(3, "<q")
        if body_bytes < 0 or body_at + body_bytes > size_bytes:
            raise Unreadable(TOO_MUCH)
        _look(message, file, body_at, body_bytes, seen)
        position = body_at + body_bytes
    if not seen.columns:
        raise Unreadable(_DAMAGED)
    return _part(seen, "file ends before its data does" if is_cut else None)


def _look(message: _Table, file: BinaryIO, body_at: int, body_bytes: int, seen: _Seen) -> None:
    kind, header = message.number(1, "<B"), message.table(2)
    if header is None:
        raise Unreadable(_DAMAGED)
    if kind == _SCHEMA:
        seen.columns = [_column(table) for table in header.tables(1, limit=_COLUMN_LIMIT)]
        if not seen.columns:
            raise Unreadable(_DAMAGED)
        return
    batch = header.table(1) if kind == _DICTIONARY else header if kind == _BATCH else None
    if batch is None:
        return
    is_compressed = batch.table(3) is not None
    memory_bytes = 0
    for offset, length in batch.pairs(2):
        if not 0 <= offset <= offset + length <= body_bytes:
            raise Unreadable(TOO_MUCH)
        if is_compressed and length > 8:
            file.seek(body_at + offset)
            (claim,) = struct.unpack("<q", file.read(8))
            if claim > length * _RATIO_LIMIT:
                raise Unreadable(TOO_MUCH)
            memory_bytes += claim if claim >= 0 else length - 8
        else:
            memory_bytes += length
    seen.is_compressed = seen.is_compressed or is_compressed
    seen.memory_bytes += memory_bytes
    if kind == _BATCH:
        rows = batch.number(0, "<q")
        # The narrowest column takes a bit in each row.
        if not 0 <= rows <= 8 * memory_bytes:
            raise Unreadable(TOO_MUCH)
        seen.rows += rows


def _part(seen: _Seen, note: str | None) -> Part:
    width = sum(elements for _, elements in seen.columns)
    dtypes = {dtype for dtype, _ in seen.columns}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    columns = width if dtype else len(seen.columns)
    # Rows were bounded by what the buffers hold; a fixed list may still claim any width.
    if dtype and seen.rows * width > 8 * seen.memory_bytes:
        raise Unreadable(TOO_MUCH)
    return Part(
        format="arrow",
        kind="table",
        samples=seen.rows,
        shape=(columns,),
        elements=seen.rows * columns,
        dtype=dtype,
        memory_bytes=None if dtype else seen.memory_bytes,
        is_compressed=seen.is_compressed,
        note=note,
    )


def _column(table: _Table, depth: int = 0) -> tuple[str | None, int]:
    kind, details = table.number(2, "<B"), table.table(3)
    if details is None or table.table(4) is not None:  # values that lie in a dictionary
        return None, 1
    if kind == _INT:
        sign = "int" if details.number(1, "<?") else "uint"
        return f"{sign}{details.number(0, '<i')}", 1
    if kind == _FLOAT:
        return _FLOATS.get(details.number(0, "<h")), 1
    if kind == _BOOL:
        return "bool", 1
    if kind == _FIXED_LIST and depth < 8:
        inner = table.tables(5, limit=1)
        if len(inner) == 1:
            dtype, elements = _column(inner[0], depth + 1)
            return dtype, elements * max(0, details.number(0, "<i"))
    return None, 1


@dataclass(frozen=True, slots=True)
class _Table:
    """A FlatBuffers table: `slot` counts its fields in the order of the schema."""

    data: bytes
    at: int

    def _field(self, slot: int) -> int | None:
        """Return where a field lies, or None where it is left out."""
        (back,) = struct.unpack_from("<i", self.data, self.at)
        fields_at = self.at - back
        if fields_at < 0:
            raise Unreadable(_DAMAGED)
        (size,) = struct.unpack_from("<H", self.data, fields_at)
        if 4 + 2 * slot + 2 > size:
            return None
        (offset,) = struct.unpack_from("<H", self.data, fields_at + 4 + 2 * slot)
        return self.at + offset if offset else None

    def number(self, slot: int, form: str) -> int:
        """Return a number; one left out is 0."""
        where = self._field(slot)
        return 0 if where is None else int(struct.unpack_from(form, self.data, where)[0])

    def table(self, slot: int) -> _Table | None:
        """Return a table inside this one."""
        where = self._field(slot)
        return None if where is None else _Table(self.data, _follow(self.data, where))

    def tables(self, slot: int, limit: int) -> list[_Table]:
        """Return a list of tables inside this one; none at all where there are more than so many.

        Tables may be shared, so that a list of lists can be far longer than the data.
        """
        start, count = self._list(slot, 4)
        if count > limit:
            return []
        return [_Table(self.data, _follow(self.data, start + 4 * i)) for i in range(count)]

    def pairs(self, slot: int) -> Iterator[tuple[int, int]]:
        """Return two 64-bit numbers each."""
        start, count = self._list(slot, 16)
        return (struct.unpack_from("<2q", self.data, start + 16 * i) for i in range(count))

    def _list(self, slot: int, item_bytes: int) -> tuple[int, int]:
        where = self._field(slot)
        if where is None:
            return 0, 0
        start = _follow(self.data, where)
        (count,) = struct.unpack_from("<I", self.data, start)
        if start + 4 + count * item_bytes > len(self.data):
            raise Unreadable(_DAMAGED)
        return start + 4, count


def _follow(data: bytes, where: int) -> int:
    (offset,) = struct.unpack_from("<I", data, where)
    return where + int(offset)


def _root(data: bytes) -> _Table:
    return _Table(data, _follow(data, 0))
