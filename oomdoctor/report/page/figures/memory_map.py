"""The memory of an allocator when it failed: where the free pieces are, and how large."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.facts import Diagnosis, MemoryMap
from oomdoctor.report.page.markup import Safe, join, tag
from oomdoctor.report.page.parts import table
from oomdoctor.units import format_bytes

CELLS = 512
_STEPS = 4
"""How many shades there are between free and used."""


def memory_map(diagnosis: Diagnosis) -> Safe | None:
    """Return the pool by address as a strip of cells, and its chunks by size."""
    found = diagnosis.memory_map
    if found is None or not found.runs:
        return None
    whole = sum(size for size, _ in found.runs)
    used = sum(used for _, used in found.runs)
    free, largest = whole - used, found.largest_free_bytes
    detail = f"{format_bytes(used)} in use, {format_bytes(free)} free of {format_bytes(whole)}"
    detail += f"; the largest free piece is {format_bytes(largest)}"
    if diagnosis.requested_bytes is not None:
        detail += f", {format_bytes(diagnosis.requested_bytes)} was requested in one piece"
    cells = [tag("i", class_=f"u{round(share * _STEPS)}") for share in _shares(found, CELLS)]
    each = format_bytes(-(-whole // CELLS))
    return join(
        tag("p", f"{detail}.", class_="lead"),
        tag("div", *cells, class_="pool", role="img", aria_label=f"Memory by address: {detail}."),
        tag(
            "p",
            tag("span", class_="swatch u4"),
            "in use ",
            tag("span", class_="swatch u0"),
            f"free; by address from the top left, each cell about {each}.",
            class_="hint",
        ),
        _sizes(found),
    )


def _shares(found: MemoryMap, count: int) -> Iterator[float]:
    """Yield which part of each of so many equal stretches is in use."""
    whole = sum(size for size, _ in found.runs)
    runs = iter(found.runs)
    left, part = 0.0, 0.0
    for _ in range(count):
        need, used = whole / count, 0.0
        while need > 1e-6:
            if left <= 1e-6:
                following = next(runs, None)
                if following is None:
                    break
                left, part = float(following[0]), following[1] / max(1, following[0])
            taken = min(left, need)
            used += taken * part
            left, need = left - taken, need - taken
        yield min(1.0, used / (whole / count))


def _sizes(found: MemoryMap) -> Safe:
    most = max((max(used, free) for _, used, free in found.sizes), default=1) or 1
    rows = [
        (
            f"{format_bytes(low)} to {format_bytes(2 * low)}",
            f"{used:,}" if used else "–",
            _bar(used / most, "u4"),
            f"{free:,}" if free else "–",
            _bar(free / most, "u0"),
        )
        for low, used, free in reversed(found.sizes)
    ]
    return table(("chunks of", "in use", "", "free", ""), rows, " n n ")


def _bar(share: float, kind: str) -> Safe:
    return tag("span", tag("span", class_=kind, style=f"width:{100 * share:.1f}%"), class_="bar")
