"""Read Parquet files: the footer, through PyArrow, and no column.

The footer gives rows, values and encoded bytes. Numbers are sized exactly by their width; text
is sized from its encoded bytes and, where a dictionary hides them, from the shortest and longest
value that the statistics name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomdoctor._optional import import_optional
from oomdoctor.errors import MissingPackageError
from oomdoctor.inventory.delimited import TEXT_BYTES
from oomdoctor.inventory.guard import TOO_MUCH
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.units import DTYPE_BYTES

_NUMBERS = {"BOOLEAN": "bool", "INT32": "int32", "INT64": "int64", "FLOAT": "float32"}
_NUMBERS["DOUBLE"] = "float64"
_DATE_BYTES = 8
"""INT96, the old date, becomes an 8-byte one."""

_CHUNK_LIMIT = 200_000
_STRING_LIMIT_BYTES = 64 * 1024 * 1024
_CONTAINER_LIMIT = 2_000_000

# A column of one repeated value packs to a few bytes a page, and a page holds about 20,000 rows.
_VALUES_PER_BYTE_LIMIT = 100_000


@dataclass(slots=True)
class _Column:
    dtype: str | None
    item_bytes: int | None
    """Of one value; None for text."""
    values: int = 0
    text_bytes: float = 0.0


def read_parquet(path: str, size_bytes: int) -> Part:
    """Return the table of a Parquet file."""
    try:
        parquet = import_optional(
            "pyarrow.parquet", extra="parquet", purpose="to read Parquet files"
        )
    except MissingPackageError as error:
        raise Unreadable(str(error)) from None
    with open(path, "rb") as file:
        footer = parquet.ParquetFile(
            file,
            thrift_string_size_limit=_STRING_LIMIT_BYTES,
            thrift_container_size_limit=_CONTAINER_LIMIT,
        ).metadata
    columns = [_column(footer.schema.column(i)) for i in range(footer.num_columns)]
    is_whole = footer.num_row_groups * max(1, len(columns)) <= _CHUNK_LIMIT
    groups = footer.num_row_groups if is_whole else _CHUNK_LIMIT // max(1, len(columns))
    looked_rows = 0
    for i in range(groups):
        group = footer.row_group(i)
        looked_rows += group.num_rows
        for j, column in enumerate(columns):
            _add(column, group.column(j), size_bytes)
    rows = footer.num_rows if columns else 0
    if not 0 <= rows <= size_bytes * _VALUES_PER_BYTE_LIMIT or looked_rows > rows:
        raise Unreadable(TOO_MUCH)
    scale = rows / looked_rows if looked_rows else 0.0
    return _part(columns, rows, scale, is_whole=is_whole)


def _part(columns: list[_Column], rows: int, scale: float, *, is_whole: bool) -> Part:
    elements = sum(round(column.values * scale) for column in columns)
    dtypes = {column.dtype for column in columns}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    memory = sum(
        column.values * (column.item_bytes or TEXT_BYTES) + column.text_bytes for column in columns
    )
    return Part(
        format="parquet",
        kind="table",
        samples=rows,
        # A row of lists of one length has as many elements as all its values make.
        shape=(elements // rows,) if rows and elements % rows == 0 else (len(columns),),
        elements=elements,
        dtype=dtype,
        memory_bytes=None if dtype else round(memory * scale),
        is_compressed=True,  # encoded even where it is not compressed
        is_exact=is_whole and all(column.item_bytes for column in columns),
    )


def _column(schema: Any) -> _Column:
    kind, logical = schema.physical_type, str(schema.converted_type)
    dtype = _NUMBERS.get(kind)
    if logical.startswith(("INT_", "UINT_")):
        dtype = logical.replace("_", "").lower()
    elif logical not in ("NONE", "None"):
        dtype = None  # dates, decimals and texts are no plain numbers
    if dtype in DTYPE_BYTES:
        return _Column(dtype, DTYPE_BYTES[dtype])
    if kind in _NUMBERS:
        return _Column(None, DTYPE_BYTES[_NUMBERS[kind]])
    if kind == "INT96":
        return _Column(None, _DATE_BYTES)
    if kind == "FIXED_LEN_BYTE_ARRAY":
        return _Column(None, schema.length)
    return _Column(None, None)


def _add(column: _Column, chunk: Any, size_bytes: int) -> None:
    values, encoded_bytes = chunk.num_values, chunk.total_uncompressed_size
    if not 0 <= values <= size_bytes * _VALUES_PER_BYTE_LIMIT or encoded_bytes < 0:
        raise Unreadable(TOO_MUCH)
    column.values += values
    if column.item_bytes is None:
        column.text_bytes += max(float(encoded_bytes), values * _mean_length(chunk.statistics))


def _mean_length(statistics: Any) -> float:
    if statistics is None or not statistics.has_min_max:
        return 0.0
    return (len(statistics.min) + len(statistics.max)) / 2
