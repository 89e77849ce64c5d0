"""Rows of CSV and Parquet tables, read block by block."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from typing import Any

from oomdoctor._optional import import_optional
from oomdoctor.errors import InputError, UsageError
from oomdoctor.feeding.source import BLOCK_BYTES, Column, Source
from oomdoctor.inventory import tables
from oomdoctor.inventory.delimited import delimiter_of, is_number
from oomdoctor.inventory.parts import Unreadable

LABEL_NAMES = ("label", "labels", "target", "class", "y")
_LOOK_ROWS = 1000
_QUOTE, _NEWLINE, _RETURN = 34, 10, 13


class Table:
    """What both formats have in common: named columns, and blocks of rows as a DataFrame."""

    path: str
    names: list[str]
    texts: set[str]
    """Columns that hold text."""
    integers: set[str]
    sizes: list[int]

    def frame(self, block: int, columns: Sequence[str]) -> Any:
        """Return some columns of a block."""
        raise NotImplementedError


def open_table(
    table: Table, *, inputs: Sequence[str] | None, labels: str | None, as_columns: bool
) -> Source:
    """Return a table as a source: one matrix of numbers, or a dict of columns.

    Args:
        table: The file.
        inputs: Columns to feed; all but the labels if None.
        labels: A column; "auto" looks for one, None is none.
        as_columns: A tensor of shape (batch, 1) for each column, text among them.
    """
    names = ", ".join(table.names)
    label = labels
    if labels == "auto":
        label = next((name for name in table.names if name.lower() in LABEL_NAMES), None)
    chosen = [name for name in table.names if name != label] if inputs is None else list(inputs)
    for name in (*chosen, *([label] if label is not None else [])):
        if name not in table.names:
            raise UsageError(f"{table.path} has no column {name!r}: it has {names}.")
    if label in table.texts:
        raise UsageError(f"The column {label!r} holds text: labels must be numbers.")
    texts = [name for name in chosen if name in table.texts]
    if texts and not as_columns:
        raise UsageError(
            f"The columns {', '.join(texts)} hold text: pass as_columns=True for a dict of "
            "columns, or name the columns of numbers with inputs=[...]."
        )
    if not chosen:
        raise UsageError(f"{table.path} has no columns left to feed: it has {names}.")
    wanted = chosen + ([label] if label is not None else [])

    def read(block: int) -> list[Any]:
        import numpy as np

        frame = table.frame(block, wanted)
        if len(frame) != table.sizes[block]:
            raise InputError(f"{table.path} has rows that cannot be told apart: check its quotes.")
        try:
            if as_columns:
                values = [
                    frame[[name]].to_numpy(object if name in table.texts else np.float32)
                    for name in chosen
                ]
            else:
                values = [frame[chosen].to_numpy(np.float32)]
            if label is not None:
                kind = np.int64 if label in table.integers else np.float32
                values.append(frame[label].to_numpy(kind))
        except (TypeError, ValueError) as error:
            raise InputError(f"{table.path} has text among numbers: {error}") from None
        return values

    if as_columns:
        columns = [
            Column(name, (1,), "string" if name in table.texts else "float32") for name in chosen
        ]
    else:
        columns = [Column("columns", (len(chosen),), "float32")]
    if label is not None:
        columns.append(Column(label, (), "int64" if label in table.integers else "float32"))
    return Source(tuple(columns), table.sizes, read, 4 * len(wanted), label is not None)


class CsvFile(Table):
    """A CSV or TSV file. One pass over it finds where blocks of whole lines begin."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as file:
            head = file.read(BLOCK_BYTES).decode("utf-8-sig", "replace")
        self._delimiter = "\t" if path.lower().endswith(".tsv") else delimiter_of(head)
        lines = head.splitlines(keepends=True)
        whole = lines if len(head) < BLOCK_BYTES else lines[:-1]
        rows = list(csv.reader(whole[: _LOOK_ROWS + 1], delimiter=self._delimiter))
        rows = [row for row in rows if row]
        if len(rows) < 2 or all(map(is_number, rows[0])):
            raise InputError(f"{path} has no header: its first line must name the columns.")
        self.names = rows[0]
        body = [row for row in rows[1:] if len(row) == len(self.names)]
        by_name = dict(zip(self.names, zip(*body, strict=True), strict=True))
        self.texts = {name for name, cells in by_name.items() if not all(map(is_number, cells))}
        self.integers = {
            name for name, cells in by_name.items() if all(_is_whole(cell) for cell in cells)
        }
        self._starts, self.sizes = _blocks_of_lines(path)

    def frame(self, block: int, columns: Sequence[str]) -> Any:
        """Return some columns of a block."""
        import pandas as pd

        start, stop = self._starts[block], self._starts[block + 1]
        with open(self.path, "rb", buffering=0) as file:
            content = os.pread(file.fileno(), stop - start, start)
        try:
            return pd.read_csv(
                io.BytesIO(content),
                sep=self._delimiter,
                header=None,
                names=self.names,
                usecols=list(columns),
                dtype=dict.fromkeys(self.texts, str),
                na_filter=True,
                keep_default_na=True,
            )
        except (ValueError, pd.errors.ParserError) as error:
            raise InputError(f"{self.path} cannot be read as a table: {error}") from None


def _is_whole(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdecimal()


def _blocks_of_lines(path: str) -> tuple[list[int], list[int]]:
    """Return where blocks of lines begin, and their rows; the header is left out.

    A line ends at a newline that is not between quotes. Empty lines are no rows.
    """
    import numpy as np

    starts: list[int] = []
    sizes: list[int] = []
    position = rows = quotes = 0
    before = bytes([_NEWLINE, _NEWLINE])
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(BLOCK_BYTES):
            values = np.frombuffer(before + piece, np.uint8)
            inside = (np.cumsum(values[2:] == _QUOTE, dtype=np.int64) + quotes) & 1
            ends = np.flatnonzero((values[2:] == _NEWLINE) & (inside == 0))
            last, second = values[1:-1][ends], values[:-2][ends]
            is_empty = (last == _NEWLINE) | ((last == _RETURN) & (second == _NEWLINE))
            rows += len(ends) - int(is_empty.sum())
            if not starts and len(ends):  # the header is the first line
                starts.append(position + int(ends[0]) + 1)
                rows -= 1
            if len(ends) and rows > 0:
                starts.append(position + int(ends[-1]) + 1)
                sizes.append(rows)
                rows = 0
            quotes = (quotes + int((values[2:] == _QUOTE).sum())) & 1
            before = (before + piece)[-2:]
            position += len(piece)
    if starts and position > starts[-1] and before[-1:] not in (b"\n", b"\r"):
        starts.append(position)
        sizes.append(rows + 1)
    if not sizes:
        raise InputError(f"{path} has a header and no rows.")
    return starts, sizes


class ParquetFile(Table):
    """A Parquet file; its row groups are the blocks."""

    def __init__(self, path: str) -> None:
        parquet = _pyarrow_parquet()
        try:
            list(tables.read(path, os.path.getsize(path)))
        except Unreadable as error:
            raise InputError(f"{path} cannot be read: {error}.") from None
        self.path = path
        with parquet.ParquetFile(path) as file:
            schema, data = file.schema_arrow, file.metadata
            self.names = list(schema.names)
            kinds = {name: str(schema.field(name).type) for name in self.names}
            self.sizes = [data.row_group(i).num_rows for i in range(data.num_row_groups)]
        numbers = ("int", "uint", "float", "double", "bool", "halffloat")
        self.texts = {name for name, kind in kinds.items() if not kind.startswith(numbers)}
        self.integers = {name for name, kind in kinds.items() if "int" in kind}

    def frame(self, block: int, columns: Sequence[str]) -> Any:
        """Return some columns of a block."""
        with _pyarrow_parquet().ParquetFile(self.path) as file:
            return file.read_row_group(block, columns=list(columns)).to_pandas()


def _pyarrow_parquet() -> Any:
    return import_optional("pyarrow.parquet", extra="parquet", purpose="to read Parquet files")
