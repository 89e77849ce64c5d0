"""Which batch size to compile next, from what was compiled. Pure: it compiles nothing itself.

A compiled step always needs the same, so a search can end with proof: one size fits, and the next
does not. Sizes are *rungs*, 32 to 64 between a size and its double, so that the proof takes few
compilations: up to 64 every size, then even ones up to 128, then multiples of 4, and so on.

Memory follows a line over sizes until XLA recomputes activations, and then bends. So the next size
is where a line through the two nearest sizes meets the limit, and the middle of the bracket where
that line misled.
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
            >>> [ladder.at_most(size) for size in (63, 65, 199, 1000, 1001)]
            [63, 64, 196, 992, 1001]
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


def _step(units: int) -> int:
    return 1 << max(0, units.bit_length() - 6)


def next_size(
    found: Mapping[int, int],
    ladder: Ladder,
    target_bytes: int,
    *,
    guess: int = 64,
    held_bytes: int = 0,
) -> int | None:
    """Return the batch size to compile next, or None if the search is over.

    Args:
        found: The memory that each size takes, in the order they were compiled.
        ladder: The sizes that may be taken.
        target_bytes: What a step may take.
        guess: Where to look first.
        held_bytes: What is held without a batch: weights and optimizer state.

    Example:
        >>> ladder = Ladder(maximum=4096)
        >>> next_size({50: 600}, ladder, 1000, held_bytes=100)
        90
        >>> next_size({50: 600, 90: 1000}, ladder, 1000)
        92
        >>> next_size({50: 600, 90: 1000, 92: 1020}, ladder, 1000) is None
        True
    """
    if ladder.last < ladder.first:
        return None
    if not found:
        return ladder.at_most(guess)
    low, high = bracket(found, target_bytes)
    predicted = _predicted(found, low, high, target_bytes, held_bytes)
    if high is None:
        assert low is not None
        if low >= ladder.last:
            return None
        # None means that memory does not grow with the batch.
        further = MAX_JUMP * low if predicted is None else predicted
        # A line that was too flat once is so again: strides double.
        stride = (ladder.after(low) - low) << min(len(found) - 1, 20)
        return ladder.at_most(max(further, low + stride if len(found) > 1 else ladder.after(low)))
    if low is None:
        if high <= ladder.first:
            return None
        below = ladder.before(high)
        if predicted is not None:
            below = min(below, ladder.at_most(predicted))
        return below if len(found) < 3 and predicted is not None else ladder.at_most(high // 2)
    if ladder.after(low) >= high:
        return None
    *_, before, last = found.values()
    was_misled = len(found) > 2 and (before <= target_bytes) == (last <= target_bytes)
    if predicted is None or was_misled:
        predicted = (low + high) // 2
    return min(max(ladder.at_most(predicted), ladder.after(low)), ladder.before(high))


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
