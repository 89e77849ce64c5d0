"""The pieces that every section of the page is built from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oomdoctor.report.page.markup import Child, Safe, join, tag, with_code
from oomdoctor.report.view import SYMBOLS
from oomdoctor.units import format_bytes


def section(identity: str, title: str, *children: Child) -> Safe:
    """Return a part of the page under a heading."""
    return tag("section", tag("h2", title), *children, id=identity)


def banner(state: str, kicker: str, said: str, beside: Child = None) -> Safe:
    """Return what is seen first: a sentence large, what it says further below it."""
    first, _, rest = said.partition("; ")
    first = first[:1].upper() + first[1:]
    first = first if first.endswith((".", "!")) or not rest else first + "."
    rest = rest[:1].upper() + rest[1:]
    return tag(
        "section",
        tag(
            "div",
            tag("p", tag("span", SYMBOLS[state], class_="symbol"), kicker, class_="kicker"),
            tag("h1", with_code(first)),
            tag("p", with_code(rest), class_="rest") if rest else None,
        ),
        beside,
        class_=f"hero {state}",
    )


def table(headers: Sequence[str], rows: Iterable[Sequence[Child]], numbers: str = "") -> Safe:
    """Return a table that scrolls by itself where the screen is narrow.

    Args:
        headers: One for each column.
        rows: Cells.
        numbers: A letter for each column: `n` lines up on the right.
    """
    kinds = [("n" if kind == "n" else None) for kind in numbers.ljust(len(headers))]
    head = tag(
        "tr", *(tag("th", one, class_=kind) for one, kind in zip(headers, kinds, strict=True))
    )
    body = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)))
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll")


def code_block(code: str, label: str = "Copy") -> Safe:
    """Return code with a button that copies it."""
    button = tag("button", label, type="button", class_="copy", title="Copy to the clipboard")
    return tag("div", button, tag("pre", tag("code", code)), class_="code")


def bar(share: float, kind: str = "") -> Safe:
    """Return a bar of that share of the width, from 0 to 1."""
    width = f"width:{100 * min(1.0, max(0.0, share)):.2f}%"
    return tag("span", tag("span", style=width), class_=f"bar {kind}".strip())


def bars(rows: Sequence[tuple[str, int]], whole: int) -> Safe:
    """Return names, sizes and bars, each as a share of the whole."""
    largest = max((size for _, size in rows), default=0) or 1
    drawn = [
        tag(
            "li",
            tag("span", name, class_="name", title=name),
            bar(size / largest),
            tag("span", format_bytes(size), class_="size"),
            tag("span", f"{size / whole:.0%}" if whole else "", class_="share"),
        )
        for name, size in rows
    ]
    return tag("ul", *drawn, class_="bars")


def folded(title: str, *children: Child) -> Safe:
    """Return what is shown on a click."""
    return tag("details", tag("summary", title), join(*children))


def tile(label: str, value: str, detail: str, extra: Safe | None = None) -> Safe:
    """Return one figure that matters, with what it is and what to compare it with."""
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("strong", value),
        extra,
        tag("span", detail, class_="detail"),
        class_="tile",
    )
