"""Which batch size to run next, from what was run. Pure: it runs nothing itself.

Memory grows with the batch nearly along a line: what is held without a batch and one measured peak
give the line, and the next size is where it meets the limit. A size that does not fit is an upper
bound. If the line leads there, the bracket is halved: fragmentation is not on the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIRST_PART = 0.8
"""The first size is this part of the one that the estimate expects to fit. The estimate is of ops
that run one after the other; in threads a step takes more, and a size that fits leads on without an
error. Of 3,000 simulated searches (`tests/benchmarks/search_simulated.py`) 0.8 needs no more trials
than 1.0, and half as many sizes fail.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of one size showed."""

    batch_size: int
    fits: bool
    peak_bytes: int | None = None
    """None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is looked for."""

    target_bytes: int
    """What a step may take."""
    maximum: int
    minimum: int = 1
    multiple_of: int = 1
    tolerance: float = 0.0
    """Part of what batches can take that may stay unused; 0 searches until the next size does not
    fit."""

    @property
    def first(self) -> int:
        """The smallest size, in units of `multiple_of`."""
        return -(-max(1, self.minimum) // self.multiple_of)

    @property
    def last(self) -> int:
        """The largest size, in units of `multiple_of`."""
        return self.maximum // self.multiple_of

    @property
    def bracket(self) -> float:
        """How far below a size that does not fit the answer may be, as a part of that size.

        Whether a size near the limit fits is partly chance, and each failure costs a process.
        """
        return 1.5 * self.tolerance

    def less(self, part: float, held_bytes: int) -> float:
        """Return the target less a part of what batches can take of it."""
        return self.target_bytes - part * max(0, self.target_bytes - held_bytes)


def next_size(
    runs: Sequence[Run], goal: Goal, *, guess: int = 64, held_bytes: int = 0
) -> int | None:
    """Return the batch size to run next, or None if the search is over.

    Args:
        runs: What was run so far.
        goal: What is looked for.
        guess: Where to look first.
        held_bytes: What is held without a batch: weights and optimizer state.

    Example:
        >>> goal = Goal(target_bytes=1000, maximum=4096, tolerance=0.1)
        >>> next_size([], goal, guess=80)
        64
        >>> next_size([Run(batch_size=64, fits=True, peak_bytes=740)], goal, held_bytes=100)
        85
        >>> next_size([Run(batch_size=85, fits=True, peak_bytes=950)], goal, held_bytes=100) is None
        True
    """
    if goal.last < goal.first:
        return None
    unit: int | None = _next_unit([_in_units(r, goal) for r in runs], goal, guess, held_bytes)
    return None if unit is None else unit * goal.multiple_of


def largest(runs: Sequence[Run]) -> int | None:
    """Return the largest size that fits and is below every size that does not."""
    high = _least_failure(runs)
    fitting = [r.batch_size for r in runs if r.fits and (high is None or r.batch_size < high)]
    return max(fitting) if fitting else None


def _next_unit(runs: Sequence[Run], goal: Goal, guess: int, held_bytes: int) -> int | None:
    if not runs:
        start = int(guess * FIRST_PART) // goal.multiple_of
        return min(max(start, goal.first), goal.last)
    low, high = largest(runs), _least_failure(runs)
    predicted = _predicted(runs, goal, held_bytes)
    if low is None:
        assert high is not None
        if high <= goal.first:
            return None
        # A failure costs a process, so the next size is well below.
        below = high // 2 if predicted is None else min(predicted, high * 3 // 4)
        return min(max(below, goal.first), high - 1)
    if low >= goal.last or (high is not None and high - low <= max(1, goal.bracket * high)):
        return None
    peak = next(run.peak_bytes for run in runs if run.batch_size == low and run.fits)
    if goal.tolerance and peak is not None and peak >= goal.less(goal.tolerance, held_bytes):
        return None
    stride = max(1, int(goal.tolerance / 2 * low))
    if high is None:
        return min(2 * low if predicted is None else max(predicted, low + stride), goal.last)
    if predicted is None or predicted >= high or not runs[-1].fits:
        return (low + high) // 2
    return min(max(predicted, low + stride), high - 1)


def _predicted(runs: Sequence[Run], goal: Goal, held_bytes: int) -> int | None:
    """Return the size at which the line meets the target, with half the tolerance left over."""
    points = {run.batch_size: run.peak_bytes for run in runs if run.peak_bytes is not None}
    if not points:
        return None
    aim = goal.less(goal.tolerance / 2, held_bytes)
    near = min(points, key=lambda unit: abs(points[unit] - aim))
    slope = (points[near] - held_bytes) / near
    return max(1, min(int((aim - held_bytes) / slope), goal.last)) if slope > 0 else None


def _least_failure(runs: Sequence[Run]) -> int | None:
    failing = [run.batch_size for run in runs if not run.fits]
    return min(failing) if failing else None


def _in_units(run: Run, goal: Goal) -> Run:
    unit = run.batch_size // goal.multiple_of
    return Run(batch_size=unit, fits=run.fits, peak_bytes=run.peak_bytes)
