"""Read Parquet files: the footer, and no column.

The footer gives rows, values and encoded bytes. Numbers are sized exactly by their width; text
is sized from its encoded bytes and, where a dictionary hides them, from the lengths of the
smallest and the largest value in the statistics.

It is read here and not by PyArrow, which ends the whole process on some damaged footers
(an exception of C++ that nothing catches: seen with version 26 when changing bytes at random).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

from oomdoctor.inventory import thrift
from oomdoctor.inventory.delimited import TEXT_BYTES
from oomdoctor.inventory.guard import TOO_MUCH
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.units import DTYPE_BYTES

_DAMAGED = "not a Parquet file, or damaged"
_FOOTER_LIMIT_BYTES = 32 * 1024 * 1024
_COLUMN_LIMIT = 100_000

_FIXED, _OLD_DATE = 7, 3
_NUMBERS = {0: "bool", 1: "int32", 2: "int64", 4: "float32", 5: "float64"}
_OLD_DATE_BYTES = 8
"""A date of 96 bits becomes one of 64."""
_CONVERTED = dict(enumerate(("uint8", "uint16", "uint32", "uint64"), 11))
_CONVERTED |= dict(enumerate(("int8", "int16", "int32", "int64"), 15))
_LOGICAL_INTEGER, _LOGICAL_FLOAT16 = 10, 15

# A column of one repeated value packs to a few bytes a page, and a page holds about 20,000 rows.
_VALUES_PER_BYTE_LIMIT = 100_000


@dataclass(slots=True)
class _Column:
    dtype: str | None
    item_bytes: int | None
    """Of one value; None for text."""
    values: int = 0
    text_bytes: float = 0.0


def read_parquet(file: BinaryIO, size_bytes: int) -> Part:
    """Return the table of a Parquet file."""
    reader = thrift.Reader(_footer(file, size_bytes))
    columns: list[_Column] = []
    rows = 0
    for number, kind in reader.fields():
        if number == 2 and kind == thrift.LIST:
            columns = _schema(reader)
        elif number == 3:
            rows = reader.integer()
        elif number == 4 and kind == thrift.LIST:
            for _ in range(reader.items()[0]):
                _row_group(reader, columns)
        else:
            reader.skip(kind)
    claims = (rows, *(column.values for column in columns))
    if not columns:
        raise Unreadable(_DAMAGED)
    if not 0 <= min(claims) <= max(claims) <= size_bytes * _VALUES_PER_BYTE_LIMIT:
        raise Unreadable(TOO_MUCH)
    return _part(columns, rows)


def _footer(file: BinaryIO, size_bytes: int) -> bytes:
    file.seek(max(0, size_bytes - 8))
    tail = file.read(8)
    if tail[4:] == b"PARE":
        raise Unreadable("Parquet file is encrypted")
    if len(tail) < 8 or tail[4:] != b"PAR1":
        raise Unreadable(_DAMAGED)
    (length,) = struct.unpack_from("<L", tail)
    if length > size_bytes - 12:
        raise Unreadable(_DAMAGED)
    if length > _FOOTER_LIMIT_BYTES:
        raise Unreadable("Parquet footer longer than 32 MiB")
    file.seek(size_bytes - 8 - length)
    return file.read(length)


def _part(columns: list[_Column], rows: int) -> Part:
    elements = sum(column.values for column in columns)
    dtypes = {column.dtype for column in columns}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    memory = sum(
        column.values * (TEXT_BYTES if column.item_bytes is None else column.item_bytes)
        + column.text_bytes
        for column in columns
    )
    return Part(
        format="parquet",
        kind="table",
        samples=rows,
        # A row of lists of one length has as many elements as all its values make.
        shape=(elements // rows,) if rows and elements % rows == 0 else (len(columns),),
        elements=elements,
        dtype=dtype,
        memory_bytes=None if dtype else round(memory),
        is_compressed=True,  # encoded even where it is not compressed
        is_exact=all(column.item_bytes is not None for column in columns),
    )


def _schema(reader: thrift.Reader) -> list[_Column]:
    """Return the columns: the elements of the schema that have no others below them."""
    columns = []
    for _ in range(reader.items()[0]):
        physical, length, children, converted = None, 0, 0, None
        logical: tuple[int, str | None] | None = None
        for number, kind in reader.fields():
            if number == 1:
                physical = reader.integer()
            elif number == 2:
                length = reader.integer()
            elif number == 5:
                children = reader.integer()
            elif number == 6:
                converted = reader.integer()
            elif number == 10 and kind == thrift.STRUCT:
                logical = _logical(reader)
            else:
                reader.skip(kind)
        if physical is not None and not children:
            columns.append(_column(physical, length, converted, logical))
    if len(columns) > _COLUMN_LIMIT:
        raise Unreadable("more than 100,000 columns")
    return columns


def _logical(reader: thrift.Reader) -> tuple[int, str | None] | None:
    """Return which logical type a column has, and its dtype where that is a plain number."""
    found: tuple[int, str | None] | None = None
    for number, kind in reader.fields():
        dtype = "float16" if number == _LOGICAL_FLOAT16 else None
        if number == _LOGICAL_INTEGER and kind == thrift.STRUCT:
            bits, sign = 0, "uint"
            for inner, inner_kind in reader.fields():
                if inner == 1 and inner_kind == thrift.BYTE:
                    bits = reader.byte()
                elif inner == 2:
                    sign = "int" if inner_kind == thrift.TRUE else "uint"
                else:
                    reader.skip(inner_kind)
            dtype = f"{sign}{bits}"
        else:
            reader.skip(kind)
        found = (number, dtype)
    return found


def _column(
    physical: int, length: int, converted: int | None, logical: tuple[int, str | None] | None
) -> _Column:
    dtype = _NUMBERS.get(physical)
    if logical is not None:
        dtype = logical[1]  # dates, decimals and texts are no plain numbers
    elif converted is not None:
        dtype = _CONVERTED.get(converted)
    if dtype is not None and dtype in DTYPE_BYTES:
        return _Column(dtype, DTYPE_BYTES[dtype])
    if physical in _NUMBERS:
        return _Column(None, DTYPE_BYTES[_NUMBERS[physical]])
    if physical == _OLD_DATE:
        return _Column(None, _OLD_DATE_BYTES)
    if physical == _FIXED:
        if not 0 <= length <= _FOOTER_LIMIT_BYTES:
            raise Unreadable(TOO_MUCH)
        return _Column(None, length)
    return _Column(None, None)


def _row_group(reader: thrift.Reader, columns: list[_Column]) -> None:
    for number, kind in reader.fields():
        if number != 1 or kind != thrift.LIST:
            reader.skip(kind)
            continue
        count = reader.items()[0]
        if count != len(columns):
            raise Unreadable(_DAMAGED)
        for column in columns:
            for inner, inner_kind in reader.fields():
                if inner == 3 and inner_kind == thrift.STRUCT:
                    _chunk(reader, column)
                else:
                    reader.skip(inner_kind)


def _chunk(reader: thrift.Reader, column: _Column) -> None:
    """Add what the footer says about one column of one row group."""
    values, encoded_bytes, mean_length = 0, 0, 0.0
    for number, kind in reader.fields():
        if number == 5:
            values = reader.integer()
        elif number == 6:
            encoded_bytes = reader.integer()
        elif number == 12 and kind == thrift.STRUCT:
            mean_length = _mean_length(reader)
        else:
            reader.skip(kind)
    if values < 0 or encoded_bytes < 0:
        raise Unreadable(_DAMAGED)
    column.values += values
    if column.item_bytes is None:
        column.text_bytes += max(float(encoded_bytes), values * mean_length)


def _mean_length(reader: thrift.Reader) -> float:
    """Return the mean length of the smallest and the largest value; 0 where none is told."""
    lengths = []
    for number, kind in reader.fields():
        # 1 and 2 are the deprecated pair, 5 and 6 the one written now; often both are.
        if number in (1, 2, 5, 6) and kind == thrift.BINARY:
            lengths.append(reader.binary_length())
        else:
            reader.skip(kind)
    return sum(lengths) / len(lengths) if lengths else 0.0
