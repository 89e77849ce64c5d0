"""Axes of the figures: powers of two, which batch sizes and memory are counted in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from oomdoctor.report.page.markup import Child, Safe, tag
from oomdoctor.units import format_bytes


@dataclass(frozen=True, slots=True)
class LogScale:
    """Maps a quantity to a place, so that each doubling takes the same room."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value; what is beyond an end is put there."""
        value = min(max(value, self.low), self.high)
        share = math.log2(value / self.low) / (math.log2(self.high / self.low) or 1.0)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> list[int]:
        """Return the powers of two that are shown, at most so many."""
        first, last = math.ceil(math.log2(self.low) - 1e-9), math.floor(math.log2(self.high) + 1e-9)
        step = max(1, -(-(last - first + 1) // most))
        return [2**power for power in range(first, last + 1, step)]


def spread(places: list[float], apart: float, low: float, high: float) -> list[float]:
    """Return places in the same order that are at least so far apart, moved as little as needed.

    Example:
        >>> spread([10.0, 11.0, 50.0], 10.0, 0.0, 100.0)
        [10.0, 20.0, 50.0]
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    floor = low
    for index in order:
        moved[index] = max(moved[index], floor)
        floor = moved[index] + apart
    ceiling = high
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - apart
    return moved


@dataclass(frozen=True, slots=True)
class Plot:
    """Batch sizes across, memory upwards."""

    x: LogScale
    y: LogScale

    @property
    def bottom(self) -> float:
        """Where the memory axis begins."""
        return self.y.start

    def axes(self) -> Safe:
        """Return the lines and figures of both axes."""
        x, y, bottom = self.x, self.y, self.bottom
        drawn: list[Child] = []
        for size in y.ticks(9):
            drawn.append(line(x.start, y(size), x.end, y(size)))
            drawn.append(label(whole(size), x.start - 8, y(size) + 4, "right"))
        drawn += [label(f"{batch:,}", x(batch), bottom + 17, "middle") for batch in x.ticks(12)]
        drawn.append(line(x.start, bottom, x.end, bottom, "base"))
        drawn.append(label("batch size", (x.start + x.end) / 2, bottom + 35, "middle"))
        return tag("g", *drawn, class_="axes")

    def points(self, line: Callable[[float], float]) -> list[str]:
        """Return a curve as points, until it leaves the picture."""
        x, y = self.x, self.y
        points = []
        for number in range(61):
            batch = x.low * (x.high / x.low) ** (number / 60)
            if line(batch) > y.high:
                break
            points.append(f"{short(x(batch))},{short(y(line(batch)))}")
        return points


def whole(size: int) -> str:
    """Return a size without digits that say nothing.

    Example:
        >>> whole(2**30)
        '1 GiB'
    """
    return format_bytes(size).replace(".00 ", " ").replace(".0 ", " ")


def line(x1: float, y1: float, x2: float, y2: float, kind: str | None = None) -> Safe:
    """Return a straight line."""
    return tag("line", x1=short(x1), y1=short(y1), x2=short(x2), y2=short(y2), class_=kind)


def label(text: str, x: float, y: float, kind: str | None = None) -> Safe:
    """Return words in a picture."""
    return tag("text", text, x=short(x), y=short(y), class_=kind)


def circle(x: float, y: float, radius: float) -> Safe:
    """Return a dot."""
    return tag("circle", cx=short(x), cy=short(y), r=short(radius))


def short(value: float) -> str:
    """Return a place in the picture with one digit at most."""
    return f"{value:.1f}".removesuffix(".0")
