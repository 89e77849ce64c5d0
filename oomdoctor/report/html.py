"""A view as a fragment of HTML, for notebooks. Everything shown is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from oomdoctor.report.escape import cleaned
from oomdoctor.report.page.figures import Figure
from oomdoctor.report.page.frame import figure_style
from oomdoctor.report.view import SYMBOLS, Remedy, Table, View

_NOTEBOOK = (
    "--ink:currentColor;--soft:color-mix(in srgb,currentColor 70%,transparent);"
    "--line:color-mix(in srgb,currentColor 18%,transparent);--back:transparent;"
    "--panel:transparent;--free:color-mix(in srgb,currentColor 15%,transparent);"
    "--link:#2f7de1;--s0:#2f7de1;--s1:#159a8c;--s2:#8f63d8;--s3:#c9750f;--s4:#c44a8b;--s5:#7b8390;"
    "--good:#2f9a4a;--bad:#d64545;--warn:#b87a12"
)
"""Colours that can be read on the light and the dark ground of a notebook, which gives the ink."""


def render(view: View, figures: Sequence[Figure] = ()) -> str:
    """Return the view as HTML that stands alone inside any page.

    Args:
        view: What is said.
        figures: What is drawn besides, in place of the tables that say the same.
    """
    view = cleaned(view)
    drawn = {figure.kind for figure in figures}
    parts = [f"<p><strong>{SYMBOLS[view.state]} {escape(view.headline)}</strong></p>"]
    if view.lines:
        items = "".join(
            f"<tr><td>{SYMBOLS[line.state]}</td><th>{escape(line.category)}</th>"
            f'<td style="text-align:left">{escape(line.text)}</td></tr>'
            for line in view.lines
        )
        parts.append(f"<table>{items}</table>")
    parts += [f"<h4>{escape(figure.title)}</h4>{figure.drawn}" for figure in figures]
    parts += [_table(table) for table in view.tables if table.figure not in drawn]
    if view.places:
        items = "".join(
            f"<li>{SYMBOLS[place.state]} <code>{escape(place.where)}</code> {place.rule}: "
            f"{escape(place.message)}</li>"
            for place in view.places
        )
        parts.append(f"<ul>{items}</ul>")
    parts += [_remedy(remedy) for remedy in view.remedies]
    if view.trade_offs is not None:
        parts.append(_table(view.trade_offs))
    if view.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in view.notes)
        parts.append(f"<ul>{notes}</ul>")
    style = f"<style>{figure_style()}</style>" if figures else ""
    return f'<div class="oomdoctor" style="{_NOTEBOOK}">{style}{"".join(parts)}</div>'


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(header)}</th>" for header in table.headers)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f"<table><caption>{escape(table.title)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _remedy(remedy: Remedy) -> str:
    gain = f" ({escape(remedy.gain)})" if remedy.gain else ""
    code = f"<pre><code>{escape(remedy.code)}</code></pre>" if remedy.code else ""
    return f"<p><strong>{escape(remedy.title)}</strong>{gain}<br>{escape(remedy.message)}</p>{code}"
