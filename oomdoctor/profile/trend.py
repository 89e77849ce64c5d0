"""Whether a series of sizes only grows, told from its floors. Pure.

Memory of a program that is well goes up too: while it warms up, in steps when an allocator takes
another region, and in teeth between two garbage collections. What tells a leak is that the
*floor* keeps rising, in small pieces, to the very end:

- the series is cut into stretches and the lowest point of each is its floor, below the teeth;
- nearly every floor lies above every earlier one (a tooth longer than a stretch does not do that);
- the rise is spread: no single stretch has half of it (an allocator's step does);
- and it does not fade: the later half has its share (warm-up and caches come to rest).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from oomdoctor.units import MIB

WARM_UP_STEPS = 5
WARM_UP_SHARE = 1 / 6
LEAST_POINTS = 24
LEAST_GROWTH_BYTES = 8 * MIB
LEAST_GROWTH_SHARE = 0.004
"""Of the level: less is not told from noise."""
STRETCHES = (12, 6)
"""Short stretches find a steady leak soon, long ones one below high teeth."""


@dataclass(frozen=True, slots=True)
class Trend:
    """What a series does."""

    is_rising: bool
    slope: float
    """Bytes per unit of the first coordinate, along the floors."""
    first: tuple[float, int]
    """The floor of the first stretch and of the last."""
    last: tuple[float, int]
    why: str
    """In a few words."""

    @property
    def grown_bytes(self) -> int:
        """From the first floor to the last."""
        return self.last[1] - self.first[1]


def trend_of(points: Sequence[tuple[float, int]], *, warm_up: bool = True) -> Trend | None:
    """Return what a series does; None where there is too little of it.

    Args:
        points: Pairs of place (a step, a second) and bytes, in order.
        warm_up: Whether the series begins with a start that does not count.
    """
    if warm_up:
        points = points[max(WARM_UP_STEPS, int(len(points) * WARM_UP_SHARE)) :]
    if len(points) < LEAST_POINTS:
        return None
    best: Trend | None = None
    for stretches in STRETCHES:
        if len(points) < 3 * stretches:
            continue
        trend = rise_of(floors_of(points, stretches))
        if trend.is_rising and _is_fine_grained(points):
            return trend
        if trend.is_rising:
            why = "it rose in a few large steps, as an allocator does that takes a new region"
            trend = Trend(False, trend.slope, trend.first, trend.last, why)
        best = best or trend
    return best


def floors_of(points: Sequence[tuple[float, int]], stretches: int) -> list[tuple[float, int]]:
    """Return the lowest point of each stretch."""
    count = len(points)
    return [
        min(
            points[number * count // stretches : (number + 1) * count // stretches],
            key=lambda point: point[1],
        )
        for number in range(stretches)
    ]


def rise_of(floors: Sequence[tuple[float, int]]) -> Trend:
    """Return whether floors rise steadily; four of them at least."""
    first, last = floors[0], floors[-1]
    slope = _slope(floors)
    total = last[1] - first[1]

    def trend(is_rising: bool, why: str) -> Trend:
        return Trend(is_rising, slope, first, last, why)

    level = max(first[1], 1)
    if total < max(LEAST_GROWTH_BYTES, LEAST_GROWTH_SHARE * level):
        return trend(False, "it stayed at one level")
    pairs = [later[1] > earlier[1] for earlier, later in combinations(floors, 2)]
    if sum(pairs) < 0.9 * len(pairs):
        return trend(False, "it went down again in between, as after a garbage collection")
    rises = [later[1] - earlier[1] for earlier, later in pairwise(floors)]
    mean = total / len(rises)
    if max(rises) > 0.5 * total or sum(rise > 0.2 * mean for rise in rises) < 0.7 * len(rises):
        return trend(False, "it rose in a few large steps, then stayed")
    half = floors[len(floors) // 2]
    expected = (last[0] - half[0]) / max(last[0] - first[0], 1e-9)
    quarter = floors[-max(2, len(floors) // 4)]
    if last[1] - half[1] < 0.7 * expected * total or last[1] - quarter[1] < 0.3 * mean:
        return trend(False, "it rose and came to rest")
    return trend(True, "its floor rose from stretch to stretch, to the end")


def _is_fine_grained(points: Sequence[tuple[float, int]]) -> bool:
    """Whether the floor rises in many pieces: the three largest are not most of it.

    The floor at a point is the lowest size from there on, so that teeth do not count.
    """
    floor: list[int] = []
    lowest = points[-1][1]
    for _, size in reversed(points):
        lowest = min(lowest, size)
        floor.append(lowest)
    floor.reverse()
    rises = sorted((later - earlier for earlier, later in pairwise(floor)), reverse=True)
    total = floor[-1] - floor[0]
    return total > 0 and sum(rises[:3]) <= 0.6 * total


def _slope(floors: Sequence[tuple[float, int]]) -> float:
    """The median slope between all pairs, which a few odd floors do not move."""
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for earlier, later in combinations(floors, 2)
        if later[0] > earlier[0]
    ]
    return median(slopes) if slopes else 0.0
