"""A view as text for 80 columns. Tables by tabulate; colour only where asked for."""

from __future__ import annotations

import textwrap

from oomdoctor.report.escape import cleaned, shorten
from oomdoctor.report.view import SYMBOLS, Line, Place, Remedy, Table, View

WIDTH = 80
MIN_COLUMN = 12

NUMBERS = frozenset(
    (
        "samples",
        "on disk",
        "in memory",
        "saves",
        "elements",
        "bytes each",
        "total",
        "size",
        "pid",
        "RAM",
        "batch",
        "peak",
        "samples/s",
        "took",
        "share",
        "VRAM",
        "baseline",
        "recorded",
        "memory",
        "left",
        "max batch",
        "RAM used",
        "GPU used",
        "bytes",
        "now",
        "change",
    )
)
"""Columns that hold numbers, which line up on the right."""

_COLOURS = {"fits": "32", "does_not_fit": "31", "unknown": "33", "warning": "33", "info": "36"}


def render(view: View, *, colour: bool = False) -> str:
    """Return the view as text: the verdict first, then why, then what to do."""
    view = cleaned(view)
    blocks = [_headline(view, colour=colour)]
    if view.lines:
        width = max(8, *(len(line.category) for line in view.lines))
        blocks.append("\n".join(_line(line, width, colour) for line in view.lines))
    blocks += [_table(table) for table in view.tables]
    if view.places:
        drawn = [_place(place, colour) for place in view.places]
        drawn += [f"{view.more_places} more with -v."] if view.more_places else []
        blocks.append("\n".join(drawn))
    if view.remedies:
        blocks.append(_bold("What to change", colour))
        blocks += [
            _remedy(number, remedy, colour) for number, remedy in enumerate(view.remedies, 1)
        ]
    if view.trade_offs is not None:
        blocks.append(_table(view.trade_offs))
    if view.more_remedies:
        blocks.append(f"{view.more_remedies} more with -v.")
    if view.notes:
        blocks.append("\n".join(_fill(f"note: {note}", "      ") for note in view.notes))
    for part in view.details:
        title = shorten(part.title, WIDTH - 8)
        blocks.append(_bold(f"--- {title} ".ljust(WIDTH, "-"), colour))
        blocks.append(render(part, colour=colour).rstrip("\n"))
    return "\n\n".join(blocks) + "\n"


def _headline(view: View, *, colour: bool) -> str:
    symbol = SYMBOLS[view.state]
    text = _fill(f"{symbol} {view.headline}", "  ")
    return _paint(text, f"1;{_COLOURS[view.state]}", colour)


def _line(line: Line, width: int, colour: bool) -> str:
    filled = _fill(f"{SYMBOLS[line.state]} {line.category:<{width}} {line.text}", " " * (width + 3))
    return _paint(filled[0], _COLOURS[line.state], colour) + filled[1:]


def _place(place: Place, colour: bool) -> str:
    head = _paint(f"{SYMBOLS[place.state]} {place.where}", _COLOURS[place.state], colour)
    return f"{head} {place.rule}\n{_fill('    ' + place.message, '    ')}"


def _table(table: Table) -> str:
    from tabulate import tabulate

    widths = _widths(table)
    rows = [
        ["\n".join(textwrap.wrap(cell, width)) for cell, width in zip(row, widths, strict=True)]
        for row in table.rows
    ]
    drawn = tabulate(
        rows,
        headers=table.headers,
        tablefmt="simple",
        colalign=["right" if header in NUMBERS else "left" for header in table.headers],
        disable_numparse=True,
    )
    lines = "\n".join("  " + line.rstrip() for line in drawn.splitlines())
    return f"{table.title}\n{lines}"


def _widths(table: Table) -> list[int]:
    """Return how wide each column may be; the widest give way where a row would be too long."""
    # tabulate keeps two columns more than a header needs.
    widths = [
        max(len(header) + 2, *map(len, column))
        for header, *column in zip(table.headers, *table.rows, strict=True)
    ]
    while sum(widths) + 2 * len(widths) > WIDTH and max(widths) > MIN_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _remedy(number: int, remedy: Remedy, colour: bool) -> str:
    gain = f" ({remedy.gain})" if remedy.gain else ""
    head = _bold(_fill(f"{number}. {remedy.title}{gain} [{remedy.rule}]", "   "), colour)
    message = _fill(f"   {remedy.message}", "   ")
    code = textwrap.indent(remedy.code.rstrip(), "     ")
    return "\n".join(part for part in (head, message, code and f"\n{code}") if part)


def _fill(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def _bold(text: str, colour: bool) -> str:
    return _paint(text, "1", colour)
