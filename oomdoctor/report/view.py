"""What a person is shown, before it becomes text, HTML or Markdown.

A view is the verdict, one line per category, a few tables, the remedies and the notes. The
formats differ in how they draw these, never in what they say. `headline` says how a report
begins, the `of_` modules make the rest of a view; `text`, `html` and `markdown` draw it.
"""

from __future__ import annotations

from dataclasses import dataclass

SYMBOLS = {"fits": "✓", "does_not_fit": "✗", "unknown": "?", "warning": "!", "info": "·"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One category and how it stands."""

    state: str
    category: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under a title."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figure: str | None = None
    """The figure that shows the same; a page that has it leaves the table out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One thing to change."""

    state: str
    title: str
    message: str
    gain: str
    code: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A mistake in source code, and where it is."""

    state: str
    where: str
    """`train.py:12:5`."""
    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """All that is shown of one value."""

    title: str
    state: str
    headline: str
    lines: tuple[Line, ...] = ()
    tables: tuple[Table, ...] = ()
    places: tuple[Place, ...] = ()
    more_places: int = 0
    remedies: tuple[Remedy, ...] = ()
    more_remedies: int = 0
    trade_offs: Table | None = None
    """What each remedy costs, for the person who decides."""
    notes: tuple[str, ...] = ()
    details: tuple[View, ...] = ()
    """Views of the parts, where there are several and all is to be shown."""
