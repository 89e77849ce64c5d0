"""Which batch size to run next, from what was run. Pure: it runs nothing itself.

Memory grows with the batch along a line, nearly: what is held without a batch and one measured peak
give the line, and the next size is where it meets the limit. A size that does not fit is an upper
bound; if the line does not hold (fragmentation is not on it), the bracket is halved.

The same search serves sizes that are run and sizes that are compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FIRST_PART = 0.8
"""The first run takes this part of the size that the estimate expects. The estimate is of ops that
run one after the other; in threads a step takes more, and a size that fits leads on without error.
"""

MAX_JUMP = 16
"""A line is not trusted beyond this many times the largest size that was measured."""

APART = 1.25
"""Two sizes give a line only if one is this many times the other: noise would decide otherwise."""


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
        # Each failure doubles the stride: 1/16 below the first, 1/8 below the second, up to 3/4.
        failures = sum(not run.fits for run in runs)
        below = high - high * min(1 << failures, 24) // 32
        below = below if predicted is None else min(predicted, below)
        return min(max(below, goal.first), high - 1)
    stride = max(1, int(goal.tolerance / 2 * low))
    if low >= goal.last or (high is not None and high - low <= stride):
        return None
    peak = next(run.peak_bytes for run in runs if run.batch_size == low and run.fits)
    if goal.tolerance and peak is not None and peak >= goal.less(goal.tolerance, held_bytes):
        return None
    return _above(runs, goal, low, high, predicted, stride)


def _above(
    runs: Sequence[Run],
    goal: Goal,
    low: int,
    high: int | None,
    predicted: int | None,
    stride: int,
) -> int:
    """Return a size above one that fits: where the line leads, unless it led astray."""
    half = goal.last if high is None else (low + high) // 2
    alike, before = _alike(runs), runs[-2].batch_size if len(runs) > 1 else 0
    if predicted is None:
        return min(2 * low, half)
    if not runs[-1].fits:
        return predicted if alike == 1 and low < predicted < (high or predicted) else half
    if predicted <= low and high is not None:
        # The line says that this is the end, and the next size shows it: once.
        return half if alike > 1 and before == low - stride else low + stride
    step = max(predicted - low, stride)
    if alike > 2:  # the line is too steep here, and would lead on by single samples
        return min(low + max(step, 2 * (low - before)), half)
    return min(low + step, goal.last if high is None else high - 1)


def _alike(runs: Sequence[Run]) -> int:
    """Return how many runs ended alike in a row, up to the last."""
    return next((n for n, run in enumerate(reversed(runs)) if run.fits != runs[-1].fits), len(runs))


def _predicted(runs: Sequence[Run], goal: Goal, held_bytes: int) -> int | None:
    """Return the size at which the line meets the target, with half the tolerance left over."""
    points = {run.batch_size: run.peak_bytes for run in runs if run.peak_bytes is not None}
    if not points:
        return None
    aim = goal.less(goal.tolerance / 2, held_bytes)
    near = min(points, key=lambda unit: abs(points[unit] - aim))
    apart = [unit for unit in points if max(unit, near) >= APART * min(unit, near)]
    other = min(apart, key=lambda unit: abs(points[unit] - aim), default=0)
    slope = (points[near] - points.get(other, held_bytes)) / (near - other)
    if slope <= 0:
        return None
    predicted = near + math.floor((aim - points[near]) / slope)
    return max(1, min(predicted, MAX_JUMP * max(points), goal.last))


def _least_failure(runs: Sequence[Run]) -> int | None:
    failing = [run.batch_size for run in runs if not run.fits]
    return min(failing) if failing else None


def _in_units(run: Run, goal: Goal) -> Run:
    unit = run.batch_size // goal.multiple_of
    return Run(batch_size=unit, fits=run.fits, peak_bytes=run.peak_bytes)
