"""What holds the memory at the peak: by part as one bar, by layer as a tree that opens.

A layer's name is a path, such as `encoder/block_3/attention`; each part of it is a level. The
tree is made of `details` elements, so it opens by keyboard, prints, and needs no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oomdoctor.facts import Estimate
from oomdoctor.report.page.markup import Child, Safe, join, tag
from oomdoctor.report.page.parts import bar
from oomdoctor.units import format_bytes

SHOWN = 12
"""Rows of one level before the rest is folded away."""
MAX_ROWS = 3_000
"""Of one tree; what is smaller is summed up."""
MAX_DEPTH = 8
_COLOURS = 6


@dataclass(slots=True)
class _Node:
    name: str
    size_bytes: int = 0
    inside: dict[str, _Node] = field(default_factory=dict)


def parts_bar(estimate: Estimate, budget_bytes: int | None) -> Safe | None:
    """Return the parts of the peak as one bar, as wide as the memory that is compared with."""
    parts = [(name, size) for name, size in estimate.parts if size > 0]
    if not parts or not estimate.peak_bytes:
        return None
    whole = max(estimate.peak_bytes, budget_bytes or 0)
    beside = budget_bytes is not None and budget_bytes > estimate.peak_bytes
    pieces = [
        tag(
            "span",
            class_=f"c{number % _COLOURS}",
            style=f"width:{100 * size / whole:.3f}%",
            title=f"{name}: {format_bytes(size)}",
        )
        for number, (name, size) in enumerate(parts)
    ]
    keys = [
        tag(
            "li",
            tag("span", class_=f"swatch c{number % _COLOURS}"),
            f"{name} ",
            tag("b", format_bytes(size)),
            f" {size / estimate.peak_bytes:.0%}",
        )
        for number, (name, size) in enumerate(parts)
    ]
    if beside:
        free = (budget_bytes or 0) - estimate.peak_bytes
        keys.append(
            tag("li", tag("span", class_="swatch free"), "free ", tag("b", format_bytes(free)))
        )
    detail = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts)
    return join(
        tag("div", *pieces, class_="stack", role="img", aria_label=f"At the peak: {detail}"),
        tag("ul", *keys, class_="keys"),
    )


def layer_tree(layers: Iterable[tuple[str, int]], whole: int) -> Safe | None:
    """Return names that are paths and their bytes as a tree of bars.

    Args:
        layers: Pairs of path and bytes.
        whole: What is 100 %.
    """
    root = _grown(layers)
    if not root.inside:
        return None
    largest = max(node.size_bytes for node in root.inside.values()) or 1
    return tag("div", _level(_ordered(root), largest, whole or 1), class_="tree")


def _grown(layers: Iterable[tuple[str, int]]) -> _Node:
    root = _Node("")
    ordered = sorted(layers, key=lambda layer: -layer[1])
    kept, rest = ordered[:MAX_ROWS], ordered[MAX_ROWS:]
    if rest:
        kept.append((f"{len(rest):,} smaller layers", sum(size for _, size in rest)))
    for path, size in kept:
        names = [name for name in path.split("/", MAX_DEPTH - 1) if name] or [path or "(no name)"]
        node = root
        root.size_bytes += size
        for name in names:
            node = node.inside.setdefault(name, _Node(name))
            node.size_bytes += size
    return root


def _ordered(node: _Node) -> list[_Node]:
    """Return what is inside, the largest first; a lone child is shown with its parent."""
    return sorted((_joined(child) for child in node.inside.values()), key=lambda n: -n.size_bytes)


def _joined(node: _Node) -> _Node:
    while len(node.inside) == 1:
        (only,) = node.inside.values()
        if only.size_bytes != node.size_bytes:
            break
        node = _Node(f"{node.name}/{only.name}", only.size_bytes, only.inside)
    return node


def _level(nodes: Sequence[_Node], largest: int, whole: int) -> Safe:
    rows = [_row(node, largest, whole) for node in nodes]
    shown, more = rows[:SHOWN], rows[SHOWN:]
    if len(more) == 1:
        shown, more = rows, []
    drawn: list[Child] = [tag("ul", *shown)]
    if more:
        rest = sum(node.size_bytes for node in nodes[SHOWN:])
        summary = tag(
            "summary",
            *_cells(f"{len(more):,} more", rest, largest, whole),
            class_="row",
        )
        drawn.append(tag("details", summary, tag("ul", *more), class_="more"))
    return join(*drawn)


def _row(node: _Node, largest: int, whole: int) -> Safe:
    cells = _cells(node.name, node.size_bytes, largest, whole)
    if not node.inside:
        return tag("li", tag("div", *cells, class_="row"))
    inside = _ordered(node)
    own = node.size_bytes - sum(child.size_bytes for child in inside)
    if own > 0:
        inside.append(_Node("(itself)", own))
    summary = tag("summary", *cells, class_="row")
    return tag("li", tag("details", summary, _level(inside, largest, whole)))


def _cells(name: str, size: int, largest: int, whole: int) -> list[Safe]:
    return [
        tag("span", name, class_="name", title=name),
        bar(size / largest),
        tag("span", format_bytes(size), class_="size"),
        tag("span", f"{size / whole:.0%}", class_="share"),
    ]
