"""A notebook → the source of its cells. Outputs, which are nearly all of it, are never built."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from oomdoctor.foreign_json import NotJson, decode
from oomdoctor.scripts.source import NotPython

MAX_CELLS = 10_000

_NOTHING = msgspec.Raw(b"null")
_SOURCE: Any = str | list[str] | None


class Cell(msgspec.Struct, gc=False):
    """A cell, its source left as JSON: it may be anything."""

    cell_type: str
    source: msgspec.Raw = _NOTHING
    input: msgspec.Raw = _NOTHING
    """What it was called before 2014."""


class Sheet(msgspec.Struct):
    """What held cells before 2014."""

    cells: list[Cell]


class Notebook(msgspec.Struct):
    """What is needed of a notebook."""

    cells: list[Cell] | None = None
    worksheets: list[Sheet] | None = None


def code_cells(content: bytes) -> Iterator[tuple[int, msgspec.Raw]]:
    """Yield the number and the source, as JSON, of each cell with code."""
    if content.count(b'"cell_type"') > MAX_CELLS:
        raise NotPython(f"it has more than {MAX_CELLS:,} cells")
    try:
        notebook = decode(content, Notebook)
    except NotJson:
        raise NotPython("it is not a notebook") from None
    cells = notebook.cells
    if cells is None and notebook.worksheets:
        cells = notebook.worksheets[0].cells
    if cells is None:
        raise NotPython("it is not a notebook")
    for number, cell in enumerate(islice(cells, MAX_CELLS), 1):
        if cell.cell_type == "code":
            yield number, cell.input if cell.source is _NOTHING else cell.source


def text_of_cell(source: msgspec.Raw) -> str:
    """Return the source of a cell as text, or raise `NotJson`."""
    lines: str | list[str] | None = decode(source, _SOURCE)
    return lines if isinstance(lines, str) else "".join(lines or ())
