"""Finds the largest batch size that fits, in few runs. Pure: it only calls what it is given.

A size *fits* when its run succeeded and its peak stays within the target, the budget less a
margin. Memory grows with the batch along a line, nearly: two small runs give the line, the third
jumps to where the line meets the target, and the next ones refine it. A size that does not fit
becomes an upper bound; where the line does not hold, the bracket is halved instead.

Only sizes that were run are ever returned. With a tolerance of zero the answer is proved: the
next size was run too and did not fit, or there is none. With a tolerance the search stops once
what is left unused is that small a part of the target, or the bracket that narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_PART = 8
"""The first run takes this part of the size the estimate expects: cheap, and safe if it errs."""

SECOND_PART = 2
"""The second run takes this part of it: far enough from the first to give a line."""

MAX_JUMP = 16
"""A line is not trusted beyond this many times the largest size that was measured."""

MIN_DISTANCE = 4
"""The points of a line lie at least this part of the larger apart, where there are such."""

NEAR_PART = 0.8
"""A forecast that survives with less than this part of the target in use was too careful."""

STRIDE = 1.5
"""The first step away from a forecast that failed, in tolerances."""

LEAST_STRIDE = 0.01
"""That step is at least so large a part of the forecast, which is seldom nearer to the truth."""

MAX_RUNS = 40
"""More than halving ever needs, so reaching it means that the runs contradict each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run of one size showed."""

    batch_size: int
    peak_bytes: int | None
    """None where the run did not succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a search ended."""

    batch_size: int | None
    """The largest size that was run and fits; None where even the smallest does not."""
    is_proved: bool
    """Whether the next larger size was run and does not fit, or is not allowed."""
    runs: tuple[Run, ...]


def find_largest(
    try_size: Callable[[int], int | None],
    *,
    target_bytes: int,
    minimum: int = 1,
    maximum: int | None = None,
    multiple_of: int = 1,
    expected: int | None = None,
    tolerance: float = 0.0,
) -> Found:
    """Return the largest batch size whose peak stays within the target.

    Args:
        try_size: Runs a size and returns its peak in bytes, or None when it did not survive.
        target_bytes: What the peak may reach.
        minimum: The smallest size worth having.
        maximum: The largest size allowed.
        multiple_of: Sizes are multiples of this.
        expected: The size an estimate expects; it decides only where to look first.
        tolerance: Part of the target that may stay unused; 0 searches to the end.

    Example:
        >>> found = find_largest(lambda size: 100 + 10 * size, target_bytes=1000, expected=80)
        >>> found.batch_size, [run.batch_size for run in found.runs]
        (90, [10, 40, 90, 91])
    """
    search = _Search(
        target_bytes=target_bytes,
        step=multiple_of,
        first=-(-max(1, minimum) // multiple_of),
        last=None if maximum is None else maximum // multiple_of,
        tolerance=tolerance,
    )
    if search.last is not None and search.last < search.first:
        return Found(batch_size=None, is_proved=True, runs=())
    expected_units = None if expected is None else max(search.first, expected // multiple_of)
    while len(search.runs) < MAX_RUNS:
        unit = search.next_unit(expected_units)
        if unit is None:
            break
        search.record(unit, try_size(unit * multiple_of))
    low = search.low
    return Found(
        batch_size=None if low is None else low * multiple_of,
        is_proved=search.is_closed,
        runs=tuple(search.runs),
    )


def find_near(
    try_size: Callable[[int], int | None],
    *,
    start: int,
    target_bytes: int,
    minimum: int = 1,
    maximum: int | None = None,
    multiple_of: int = 1,
    tolerance: float = 0.0,
) -> Found:
    """Return the largest batch size that survives, where a good forecast says which that is.

    The forecast is run first. If it holds, the next larger sizes are run in growing strides,
    otherwise smaller ones; the bracket that results is halved.

    Args:
        try_size: Runs a size and returns its peak in bytes, or None when it did not survive.
        start: The forecast.
        target_bytes: What a size that survives may take; only judges whether it is far from it.
        minimum: The smallest size worth having.
        maximum: The largest size allowed.
        multiple_of: Sizes are multiples of this.
        tolerance: How far below the largest the answer may be, as a part of it; 0 searches to
            the end.

    Example:
        >>> def survives(size):
        ...     return 10 * size if size <= 90 else None
        >>> found = find_near(survives, start=89, target_bytes=900)
        >>> found.batch_size, [run.batch_size for run in found.runs]
        (90, [89, 90, 92, 91])
    """
    first = -(-max(1, minimum) // multiple_of)
    last = None if maximum is None else maximum // multiple_of
    if last is not None and last < first:
        return Found(batch_size=None, is_proved=True, runs=())
    low, high = first - 1, None if last is None else last + 1
    unit = max(first, start // multiple_of)
    unit = unit if last is None else min(unit, last)
    stride = max(1, math.ceil(STRIDE * tolerance * unit), int(LEAST_STRIDE * unit))
    runs: list[Run] = []
    while len(runs) < MAX_RUNS:
        peak = try_size(unit * multiple_of)
        runs.append(Run(batch_size=unit * multiple_of, peak_bytes=peak))
        if peak is None:
            high = unit
        else:
            low = unit
            # Fragmentation explains this much below the target, a wrong forecast the rest.
            if tolerance and peak >= NEAR_PART * target_bytes:
                break
        if high is not None and high - low <= max(1, int(tolerance * high) if low >= first else 1):
            break
        is_bracket = high is not None and high != (last or 0) + 1 and low >= first
        if is_bracket:
            assert high is not None
            unit = (low + high) // 2
        elif peak is None:
            unit, stride = max(first, unit - stride), 2 * stride
        else:
            unit, stride = unit + stride, 2 * stride
            unit = unit if high is None else min(unit, high - 1)
    return Found(
        batch_size=low * multiple_of if low >= first else None,
        is_proved=high is not None and high - low <= 1,
        runs=tuple(runs),
    )


@dataclass(slots=True)
class _Search:
    """The state of a search. Sizes are counted in units of the step."""

    target_bytes: int
    step: int
    first: int
    last: int | None
    tolerance: float
    low: int | None = None
    """The largest unit that fits."""
    high: int | None = None
    """The smallest unit that does not."""
    points: dict[int, int] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    stride: int = 1
    jumped: bool = False
    width: int | None = None
    """How wide the bracket was before the last run: a jump must do as well as halving."""

    def record(self, unit: int, peak_bytes: int | None) -> None:
        self.width = self._bracket()
        self.runs.append(Run(batch_size=unit * self.step, peak_bytes=peak_bytes))
        if peak_bytes is not None:
            self.points[unit] = peak_bytes
        if peak_bytes is not None and peak_bytes <= self.target_bytes:
            self.low = unit if self.low is None else max(self.low, unit)
        else:
            self.high = unit if self.high is None else min(self.high, unit)
        if self.low is not None and self.high is not None and self.low >= self.high:
            # Runs contradict each other (noise): what fitted once below a failure still counts.
            self.low = max(
                (u for u in self.points if u < self.high and self._fits(u)), default=None
            )

    @property
    def is_closed(self) -> bool:
        """Whether there is no size left between what fits and what does not."""
        if self.low is None:
            return self.high is not None and self.high <= self.first
        return self.low == self.last or (self.high is not None and self.high - self.low <= 1)

    def next_unit(self, expected: int | None) -> int | None:
        """Return the unit to run next; None when the search is over."""
        if self.is_closed or self._is_near_enough():
            return None
        if self.low is None:
            # Nothing fits yet: below a failure only smaller sizes are worth a run.
            if self.high is not None:
                return self._between(self.high // FIRST_PART)
            return self._between((expected or self.first) // FIRST_PART)
        if len(self.points) < 2:
            if self.high is not None:
                # A second point near the first gives the line without risking another failure.
                return self._between(self.low + max(1, self.low // 2))
            guess = expected // SECOND_PART if expected else self.low * FIRST_PART // SECOND_PART
            return self._between(guess)
        return self._between(self._jump())

    def _jump(self) -> int:
        """Return where the line through two points meets the target, or the middle."""
        assert self.low is not None
        middle = self.low * 2 if self.high is None else (self.low + self.high) // 2
        predicted = self._predict()
        if predicted is None or (self.high is not None and predicted >= self.high):
            # No line, or one that promises what has failed already (the allocator's gaps are
            # not on it).
            return middle
        if predicted <= self.low:
            # The line says that this was the last one. Where it errs, strides grow.
            self.stride *= 2
            return min(self.low + self.stride // 2, max(middle, self.low + 1))
        if self.high is not None and self.jumped and not self._last_jump_was_worth_it():
            self.jumped = False
            return middle
        self.jumped = True
        return predicted

    def _predict(self) -> int | None:
        """Return the largest unit that a line through two points near the target lets in."""
        near, *others = sorted(
            self.points, key=lambda unit: abs(self.points[unit] - self.target_bytes)
        )
        # Between neighbours noise is larger than the slope, so the second point keeps away.
        apart = [unit for unit in others if abs(unit - near) * MIN_DISTANCE >= near]
        if not others:
            return None
        other = (apart or others)[0]
        slope = (self.points[other] - self.points[near]) / (other - near)
        if slope <= 0:
            return None
        predicted = near + math.floor((self.target_bytes - self.points[near]) / slope)
        return min(predicted, MAX_JUMP * max(self.points))

    def _between(self, unit: int) -> int:
        """Return the nearest unit that is still open."""
        lowest = self.first if self.low is None else self.low + 1
        highest = self.last if self.high is None else self.high - 1
        unit = max(unit, lowest)
        return unit if highest is None else min(unit, highest)

    def _bracket(self) -> int | None:
        if self.low is None or self.high is None:
            return None
        return self.high - self.low

    def _last_jump_was_worth_it(self) -> bool:
        bracket = self._bracket()
        return self.width is None or bracket is None or bracket <= (self.width + 1) // 2

    def _is_near_enough(self) -> bool:
        if not self.tolerance or self.low is None:
            return False
        if self.high is not None and self.high - self.low <= self.tolerance * self.high:
            return True
        return self.points[self.low] >= (1 - self.tolerance) * self.target_bytes

    def _fits(self, unit: int) -> bool:
        return self.points[unit] <= self.target_bytes
