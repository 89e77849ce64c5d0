"""Which batch size to compile next, from what was compiled. Pure: it compiles nothing itself.

A compiled step always needs the same, so a search can end with proof: one size fits, and the next
does not. Sizes are *rungs*, 16 between a size and its double: up to 32 every size, then even ones
up to 64, then multiples of 4, and so on. So six compilations nearly always suffice if the answer is
between half the first size and its double, wherever the line bends.

Memory follows a line over sizes until XLA recomputes activations; then it hardly grows for a while,
and later grows steeply. So the next size is where a line through the two nearest sizes meets the
limit, but never so near one end that the compilations that are left could not settle the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_JUMP = 16
"""A line is not trusted beyond this many times the largest size that was compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The sizes that a search may take."""

    minimum: int = 1
    maximum: int
    multiple_of: int = 1

    @property
    def first(self) -> int:
        """The smallest size."""
        return -(-max(1, self.minimum) // self.multiple_of) * self.multiple_of

    @property
    def last(self) -> int:
        """The largest size; below `first` where there is none at all."""
        return self.maximum // self.multiple_of * self.multiple_of

    def at_most(self, size: int) -> int:
        """Return the largest rung up to a size, and at least the first.

        Example:
            >>> ladder = Ladder(maximum=1001)
            >>> [ladder.at_most(size) for size in (31, 33, 199, 1000, 1001)]
            [31, 32, 192, 992, 1001]
        """
        if size >= self.last:
            return self.last
        units = size // self.multiple_of
        step = _step(units)
        return max(self.first, units // step * step * self.multiple_of)

    def after(self, size: int) -> int:
        """Return the rung above one."""
        units = size // self.multiple_of
        step = _step(units)
        return min(self.last, (units // step + 1) * step * self.multiple_of)

    def before(self, size: int) -> int:
        """Return the rung below one."""
        return self.at_most(size - 1)

    def between(self, low: int, high: int) -> list[int]:
        """Return the rungs between two, without both."""
        found = []
        while (low := self.after(low)) < high:
            found.append(low)
        return found


def _step(units: int) -> int:
    return 1 << max(0, units.bit_length() - 5)


def next_size(
    found: Mapping[int, int],
    ladder: Ladder,
    target_bytes: int,
    *,
    left: int,
    guess: int = 64,
    held_bytes: int = 0,
) -> int | None:
    """Return the batch size to compile next, or None if the search is over.

    Args:
        found: The memory that each size takes, in the order they were compiled.
        ladder: The sizes that may be taken.
        target_bytes: What a step may take.
        left: How many compilations are left.
        guess: Where to look first.
        held_bytes: What is held without a batch: weights and optimizer state.

    Example:
        >>> ladder = Ladder(maximum=4096)
        >>> next_size({50: 600}, ladder, 1000, left=5, held_bytes=100)
        88
        >>> next_size({50: 600, 88: 980}, ladder, 1000, left=4)
        92
        >>> next_size({50: 600, 88: 980, 92: 1020}, ladder, 1000, left=3) is None
        True
    """
    if ladder.last < ladder.first:
        return None
    if not found:
        return ladder.at_most(guess)
    low, high = bracket(found, target_bytes)
    predicted = _predicted(found, low, high, target_bytes, held_bytes)
    settled = 2 ** (left - 1)  # rungs of which the compilations after this one find the right one
    if high is None:
        assert low is not None
        return None if low >= ladder.last else _above(low, ladder, predicted, settled, len(found))
    if low is None:
        return (
            None if high <= ladder.first else _below(high, ladder, predicted, settled, len(found))
        )
    rungs = ladder.between(low, high)
    if not rungs:
        return None
    place = sum(size <= predicted for size in rungs) - 1 if predicted else len(rungs) // 2
    place = min(max(place, len(rungs) - settled, 0), settled - 1, len(rungs) - 1)
    if len(rungs) > 2 * settled - 1:
        place = len(rungs) // 2
    return rungs[place]


def _above(low: int, ladder: Ladder, predicted: int | None, settled: int, tried: int) -> int:
    """Return a size above all that were compiled, which all fit."""
    if tried == 1:
        # None means that memory does not grow with the batch.
        further = MAX_JUMP * low if predicted is None else predicted
        return ladder.at_most(max(further, ladder.after(low)))
    if predicted is not None and ladder.at_most(predicted) <= ladder.after(low):
        return ladder.after(low)
    size = low  # the line was too steep: look for a size that does not fit
    for _ in range(settled):
        size = ladder.after(size)
    return size if predicted is not None else ladder.at_most(max(size, 2 * low))


def _below(high: int, ladder: Ladder, predicted: int | None, settled: int, tried: int) -> int:
    """Return a size below all that were compiled, none of which fits."""
    below = ladder.before(high)
    if predicted is None:
        return min(below, ladder.at_most(high // 2))
    if tried == 1 or ladder.at_most(predicted) >= below:
        return min(below, ladder.at_most(predicted))
    size = high
    for _ in range(settled):
        size = ladder.before(size)
    return min(size, ladder.at_most(predicted))


def bracket(found: Mapping[int, int], target_bytes: int) -> tuple[int | None, int | None]:
    """Return the largest size below every failure that fits, and the smallest that does not."""
    failing = [size for size, needed in found.items() if needed > target_bytes]
    high = min(failing, default=None)
    fitting = [size for size in found if size not in failing and (high is None or size < high)]
    return max(fitting, default=None), high


def _predicted(
    found: Mapping[int, int], low: int | None, high: int | None, target_bytes: int, held_bytes: int
) -> int | None:
    """Return the size at which the line through the two nearest sizes meets the target."""
    nearest = sorted(found, key=lambda size: abs(found[size] - target_bytes))
    if low is not None and high is not None:
        nearest = [low, high]
    start = nearest[0]
    other, there = (nearest[1], found[nearest[1]]) if len(nearest) > 1 else (0, held_bytes)
    slope = (found[start] - there) / (start - other)
    if slope <= 0:
        return None
    return max(1, min(int(start + (target_bytes - found[start]) / slope), MAX_JUMP * max(found)))
