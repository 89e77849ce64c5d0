"""The text and tables on what changed between two recorded runs."""

from __future__ import annotations

from oomdoctor.comparison import Change, Comparison
from oomdoctor.report.escape import printable, shorten
from oomdoctor.report.view import Line, Table, View
from oomdoctor.units import format_bytes

MAX_NAME = 60
MAX_CELL = 40
MAX_PHASES = 12

KINDS_IN_WORDS = {
    "leak": "a leak",
    "cache": "a cache",
    "buffer": "a shuffle buffer",
    "first_step": "in the first step",
    "flat": "none",
    "unclear": "unclear",
}


def view_comparison(comparison: Comparison, state: str = "info", *, verbose: bool = False) -> View:
    """Return what changed: the sentence first, then the figures side by side."""
    phases = comparison.phases if verbose else comparison.phases[:MAX_PHASES]
    tables = [
        _table("What changed", "what", comparison.changes),
        _table("Peak RAM by phase", "phase", phases),
        _table(
            "Memory at the peak of the traced step: by part, then by layer",
            "held by",
            comparison.layers,
        ),
    ]
    return View(
        title="oomdoctor profile --compare",
        state=state,
        headline=printable(comparison.summary),
        lines=tuple(
            Line(state="info", category=letter, text=shorten(printable(name), MAX_NAME))
            for letter, name in zip("AB", comparison.names, strict=True)
        ),
        tables=tuple(table for table in tables if table.rows),
    )


def _table(title: str, first: str, changes: tuple[Change, ...]) -> Table:
    return Table(
        title=title,
        headers=(first, "A", "B", "change"),
        rows=tuple(row(change) for change in changes),
    )


def row(change: Change) -> tuple[str, str, str, str]:
    """Return one figure of both runs, and how it changed."""
    return (
        printable(change.label),
        figure(change, change.before),
        figure(change, change.after),
        difference(change),
    )


def figure(change: Change, value: float | str | None) -> str:
    """Return a figure with its unit; a dash where it is not known."""
    if value is None:
        return "–"
    if isinstance(value, str):
        told = KINDS_IN_WORDS.get(value, value) if change.name == "growth" else value
        return shorten(printable(told), MAX_CELL)
    if change.unit == "bytes":
        return format_bytes(value)
    if change.unit == "seconds":
        return f"{1000 * value:.1f} ms" if value < 1 else f"{value:.1f} s"
    return f"{value:,.0f}"


def difference(change: Change) -> str:
    """Return how a figure changed, `same` where it hardly did."""
    if change.before is None and change.after is None:
        return ""
    if change.is_same:
        return "same"
    risen = change.difference
    if risen is None:
        return _appeared(change)
    sign = "+" if risen > 0 else "−"
    told = sign + figure(change, abs(risen))
    if isinstance(change.before, str) or not change.before or change.unit == "count":
        return told
    return f"{told} ({sign}{abs(risen) / change.before:.0%})"


def _appeared(change: Change) -> str:
    """What is missing in one run is a change only where missing means none."""
    if change.before is not None and change.after is not None:
        return ""
    if change.name == "leak_bytes_per_step":
        return "new" if change.before is None else "gone"
    if change.name in ("phase", "part", "layer"):
        return "only in B" if change.before is None else "only in A"
    return ""
