"""A view as Markdown, ready to paste into an issue. What strangers wrote is fenced or escaped."""

from __future__ import annotations

import html
import re

from oomdoctor.report.escape import cleaned
from oomdoctor.report.view import SYMBOLS, Remedy, Table, View

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~@])")


def render(view: View) -> str:
    """Return the view as Markdown."""
    view = cleaned(view)
    blocks = [f"### {_escape(view.title)}", f"**{SYMBOLS[view.state]} {_escape(view.headline)}**"]
    if view.lines:
        blocks.append(
            "\n".join(f"- **{_escape(line.category)}**: {_code(line.text)}" for line in view.lines)
        )
    blocks += [_table(table) for table in view.tables]
    if view.places:
        drawn = [
            f"- {SYMBOLS[place.state]} {_code(place.where)} {place.rule}: {_escape(place.message)}"
            for place in view.places
        ]
        drawn += [f"- {view.more_places} more"] if view.more_places else []
        blocks.append("\n".join(drawn))
    if view.remedies:
        blocks.append("#### What to change")
        blocks += [_remedy(number, remedy) for number, remedy in enumerate(view.remedies, 1)]
    if view.trade_offs is not None:
        blocks.append(_table(view.trade_offs))
    if view.notes:
        blocks.append("\n".join(f"- {_escape(note)}" for note in view.notes))
    for part in view.details:
        # A blank line after the summary makes what follows Markdown again.
        summary = html.escape(f"{SYMBOLS[part.state]} {part.title}")
        blocks += [f"<details><summary>{summary}</summary>", render(part).rstrip(), "</details>"]
    return "\n\n".join(blocks) + "\n"


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def _code(text: str) -> str:
    """Return text as a span of code, whatever backticks it holds."""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _table(table: Table) -> str:
    rows = [table.headers, tuple("---" for _ in table.headers), *table.rows]
    drawn = "\n".join(
        "| " + " | ".join(cell if cell == "---" else _escape(cell) for cell in row) + " |"
        for row in rows
    )
    return f"**{_escape(table.title)}**\n\n{drawn}"


def _remedy(number: int, remedy: Remedy) -> str:
    gain = f" ({_escape(remedy.gain)})" if remedy.gain else ""
    parts = [
        f"{number}. **{_escape(remedy.title)}**{gain} [{remedy.rule}]",
        _escape(remedy.message),
    ]
    if remedy.code:
        fence = "`" * max(3, 1 + max((len(r) for r in re.findall(r"`+", remedy.code)), default=0))
        parts.append(f"{fence}python\n{remedy.code.rstrip()}\n{fence}")
    return "\n\n".join(parts)
