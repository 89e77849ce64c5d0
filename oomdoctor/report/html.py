"""A view as a fragment of HTML, for notebooks. Everything shown is escaped."""

from __future__ import annotations

from html import escape

from oomdoctor.report.escape import cleaned
from oomdoctor.report.view import SYMBOLS, Remedy, Table, View


def render(view: View) -> str:
    """Return the view as HTML that stands alone inside any page."""
    view = cleaned(view)
    parts = [f"<p><strong>{SYMBOLS[view.state]} {escape(view.headline)}</strong></p>"]
    if view.lines:
        items = "".join(
            f"<tr><td>{SYMBOLS[line.state]}</td><th>{escape(line.category)}</th>"
            f'<td style="text-align:left">{escape(line.text)}</td></tr>'
            for line in view.lines
        )
        parts.append(f"<table>{items}</table>")
    parts += [_table(table) for table in view.tables]
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
    return f'<div class="oomdoctor">{"".join(parts)}</div>'


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
