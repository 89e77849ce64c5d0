"""Read CSV and TSV tables: columns and their kinds from the first MiB, rows from `lines`.

In memory a table is what `pandas.read_csv` makes of it: 8 bytes for each number, and for each
text a pointer and a Python string. pandas 3 with PyArrow holds a text in 8 bytes and its length
instead; the larger figure is reported, being the one that every version may reach. Comment lines
and thousands separators are not known.
"""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from oomdoctor.inventory.lines import HEAD_BYTES, Lines, count_lines
from oomdoctor.inventory.parts import Part, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER_BYTES = 8
TEXT_BYTES = 8 + sys.getsizeof("")
"""Above the text itself: 57 bytes up to Python 3.11, 49 since."""

_DELIMITERS = ",\t;|"
_LOOK_ROWS = 1000
_SNIFF_ROWS = 50
_NO_VALUE = frozenset(("", "na", "n/a", "nan", "null", "none", "true", "false", "-", "<na>"))


@dataclass(frozen=True, slots=True)
class _Columns:
    """What the first rows say about each column."""

    count: int
    texts: int
    row_text_bytes: float
    """The mean bytes of all text in a row."""
    has_header: bool


def read_delimited(file: BinaryIO, size_bytes: int, *, is_tab: bool) -> Part:
    """Return the table of a CSV or TSV file that is open at its start."""
    lines = count_lines(file, size_bytes)
    head = lines.head[:HEAD_BYTES].decode("utf-8-sig", "replace")
    delimiter = "\t" if is_tab else delimiter_of(head)
    rows = list(islice(_rows(head, delimiter), _LOOK_ROWS))
    if not rows:
        raise Unreadable("empty file")
    columns = _columns(rows)
    low, samples, high = _row_counts(lines, delimiter, columns)
    numbers = columns.count - columns.texts
    row_bytes = numbers * NUMBER_BYTES + columns.texts * TEXT_BYTES + columns.row_text_bytes
    return Part(
        format="csv",
        kind="table",
        samples=samples,
        shape=(columns.count,),
        elements=samples * columns.count,
        dtype=None if columns.texts else "float64",
        memory_bytes=round(samples * row_bytes) if columns.texts else None,
        is_compressed=True,  # text on disk, numbers in memory
        is_exact=lines.is_exact and not columns.texts,
        low_elements=None if lines.is_exact else low * columns.count,
        high_elements=None if lines.is_exact else high * columns.count,
        note=lines.note,
    )


def _rows(text: str, delimiter: str) -> Iterable[list[str]]:
    """Yield the rows with something in them, as far as they can be told apart."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        for row in reader:
            if row:
                yield row
    except csv.Error:  # a cell of more than 128 KiB, or a quote that never ends
        return


def delimiter_of(head: str) -> str:
    """Return the delimiter that cuts the first rows into the same number of columns most often."""

    def regularity(delimiter: str) -> tuple[float, int]:
        widths = Counter(len(row) for row in islice(_rows(head, delimiter), _SNIFF_ROWS))
        if not widths:
            return 0.0, 0
        width, times = widths.most_common(1)[0]
        return (times / widths.total() if width > 1 else 0.0), width

    return max(_DELIMITERS, key=regularity)


def _columns(rows: list[list[str]]) -> _Columns:
    count = Counter(len(row) for row in rows).most_common(1)[0][0]
    has_header = not all(is_number(cell) for cell in rows[0])
    body = [row for row in rows[has_header:] if len(row) == count]
    texts, text_bytes = 0, 0
    for column in zip(*body, strict=True):
        if not all(map(is_number, column)):
            texts += 1
            text_bytes += sum(map(len, column))
    return _Columns(count, texts, text_bytes / max(len(body), 1), has_header)


def is_number(cell: str) -> bool:
    """Return whether a cell holds a number, or stands for none."""
    cell = cell.strip()
    if cell.lower() in _NO_VALUE:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # float("1_000") is a number to Python alone


def _row_counts(lines: Lines, delimiter: str, columns: _Columns) -> tuple[int, int, int]:
    """Return the lowest, likely and highest count of rows; quoted cells may span lines."""
    text = lines.head
    header = int(columns.has_header)
    if b'"' not in text:
        return tuple(max(0, n - header) for n in (lines.low, lines.count, lines.high))  # type: ignore[return-value]
    rows = sum(1 for _ in _rows(text.decode("utf-8", "replace"), delimiter))
    if lines.is_exact:
        return (max(0, rows - header),) * 3
    share = rows / max(1, sum(1 for line in text.splitlines() if line.strip()))
    return tuple(max(0, round(n * share) - header) for n in (lines.low, lines.count, lines.high))  # type: ignore[return-value]
