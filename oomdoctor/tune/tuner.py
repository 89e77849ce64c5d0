"""Runs batch sizes until the largest that fits is known, and says what was run.

The objective `largest` is the largest size whose peak stays within the budget less a margin.
`fastest` is the smallest size within 5 % of the most samples per second that were seen: beyond
it a larger batch costs memory and gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.measure.spec import Trial
from oomdoctor.tune.search import find_largest

TOLERANCE = 0.03
"""Part of the target that may stay unused where a margin is wanted anyway."""

EXPECTED = 64
"""Where to look first when nothing is known: 8 and 32 are then run, which are cheap for most
models and far enough apart for a line. Below 8 memory does not follow it."""

NEAR_FASTEST = 0.95
"""A size this close to the best is as good as the best."""

OBJECTIVES = ("largest", "fastest")

Watch = Callable[[SizeTrial], None]
"""Told of each trial as it ends."""


def tune(
    run: Callable[[int], Trial],
    *,
    budget_bytes: int,
    margin: float = 0.05,
    minimum: int = 1,
    maximum: int | None = None,
    multiple_of: int = 1,
    expected: int | None = None,
    objective: str = "largest",
    watch: Watch | None = None,
) -> Tuning | tuple[SizeTrial, ...]:
    """Return the batch size that suits the objective, or the trials when none fits.

    Args:
        run: Runs one batch size under the budget.
        budget_bytes: What the device gives.
        margin: Part of the budget that stays free; 0 searches for the exact maximum.
        minimum: The smallest size worth having.
        maximum: The largest size allowed.
        multiple_of: Sizes are multiples of this.
        expected: The size an estimate expects.
        objective: `largest` or `fastest`.
        watch: Told of each trial as it ends.
    """
    trials: list[SizeTrial] = []
    target = int(budget_bytes * (1 - margin))

    def try_size(batch_size: int) -> int | None:
        trial = _summary(run(batch_size))
        trials.append(trial)
        if watch is not None:
            watch(trial)
        return trial.peak_bytes if trial.outcome == "fits" else None

    found = find_largest(
        try_size,
        target_bytes=target,
        minimum=minimum,
        maximum=maximum,
        multiple_of=multiple_of,
        expected=expected or EXPECTED,
        tolerance=TOLERANCE if margin else 0.0,
    )
    if found.batch_size is None:
        return tuple(trials)
    batch_size, limited_by = found.batch_size, "memory"
    if maximum is not None and batch_size + multiple_of > maximum:
        limited_by = "max_batch_size"
    if objective == "fastest":
        batch_size, limited_by = _fastest(trials, batch_size, limited_by)
    chosen = next(trial for trial in trials if trial.batch_size == batch_size)
    assert chosen.peak_bytes is not None
    return Tuning(
        batch_size=batch_size,
        peak_bytes=chosen.peak_bytes,
        budget_bytes=budget_bytes,
        target_bytes=target,
        trials=tuple(trials),
        objective=objective,
        limited_by=limited_by,
        is_proved=found.is_proved,
    )


def _summary(trial: Trial) -> SizeTrial:
    speed = trial.batch_size / trial.step_seconds if trial.step_seconds else None
    return SizeTrial(
        batch_size=trial.batch_size,
        outcome=trial.outcome,
        peak_bytes=trial.peak_bytes,
        seconds=trial.seconds,
        samples_per_second=speed,
    )


def _fastest(trials: list[SizeTrial], largest: int, limited_by: str) -> tuple[int, str]:
    """Return the smallest size that was run and is as fast as any that fits."""
    fitting = [
        trial
        for trial in trials
        if trial.outcome == "fits" and trial.batch_size <= largest and trial.samples_per_second
    ]
    if not fitting:
        return largest, limited_by
    best = max(trial.samples_per_second or 0 for trial in fitting)
    near = [t for t in fitting if (t.samples_per_second or 0) >= NEAR_FASTEST * best]
    smallest = min(trial.batch_size for trial in near)
    return smallest, limited_by if smallest == largest else "speed"
