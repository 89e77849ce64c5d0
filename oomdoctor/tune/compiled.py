"""Compiles batch sizes for a card until the largest that fits is known. Nothing is run.

A compiled step takes the same every time, so no margin is left for chance, and the search ends with
proof where its compilations suffice: the next size was compiled too and does not fit. The answer is
always a size that was compiled. A size fits if the upper end of its interval does.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from oomdoctor.facts import Estimate, SizeTrial, Tuning
from oomdoctor.tune.rungs import Ladder, bracket, next_size
from oomdoctor.tune.tuner import DEFAULT_CAP, DEFAULT_GUESS, Failed, Wanted, Watch

MOST = 6
"""Compilations of one search."""

FIXED = ("weights", "gradients", "optimizer")


class NotCompiled(Exception):
    """The step would not run as XLA's program, or that could not be compiled."""

    def __init__(self, estimate: Estimate) -> None:
        super().__init__(estimate.reason)
        self.estimate = estimate


def tune_by_compiling(
    compiled: Callable[[int], Estimate],
    wanted: Wanted,
    *,
    compiler: str,
    guess: int | None = None,
    deadline: float | None = None,
    watch: Watch | None = None,
) -> Tuning | Failed:
    """Return the largest batch size whose compiled step fits, or what was compiled if none does.

    Args:
        compiled: Compiles a size.
        wanted: What is looked for. Its margin comes on top of what intervals leave free.
        compiler: Which one, such as `XLA 0.9.0`.
        guess: Where to look first.
        deadline: When the search ends with the largest size so far, by `time.monotonic()`.
        watch: Called with each size that was compiled.

    Raises:
        NotCompiled: If a size is not XLA's program.
    """
    target = int(wanted.budget_bytes * (1 - wanted.margin))
    ladder = Ladder(
        minimum=wanted.minimum,
        maximum=wanted.maximum or max(DEFAULT_CAP, wanted.minimum, wanted.multiple_of),
        multiple_of=wanted.multiple_of,
    )
    found: dict[int, Estimate] = {}
    needed: dict[int, int] = {}
    trials: list[SizeTrial] = []
    is_late, held = False, 0
    while len(found) < MOST and not is_late:
        size = next_size(
            needed,
            ladder,
            target,
            left=MOST - len(found),
            guess=guess or DEFAULT_GUESS,
            held_bytes=held,
        )
        if size is None:
            break
        if len(found) == MOST - 1 and bracket(needed, target)[0] is None:
            size = ladder.first  # the last that may show that one fits
        began = time.monotonic()
        estimate = compiled(size)
        if estimate.program != "xla":
            raise NotCompiled(estimate)
        found[size], needed[size] = estimate, estimate.high_bytes
        held = held or sum(held for part, held in estimate.parts if part in FIXED)
        trials.append(
            SizeTrial(
                batch_size=size,
                outcome="fits" if estimate.high_bytes <= target else "oom",
                peak_bytes=estimate.peak_bytes,
                seconds=time.monotonic() - began,
                upper_bytes=estimate.high_bytes,
            )
        )
        if watch is not None:
            watch(trials[-1])
        is_late = deadline is not None and time.monotonic() >= deadline
    best, above = bracket(needed, target)
    if best is None:
        return Failed(tuple(trials), is_late and min(found, default=0) > wanted.minimum)
    is_proved = above is not None and ladder.after(best) >= above
    return Tuning(
        batch_size=best,
        peak_bytes=found[best].peak_bytes,
        budget_bytes=wanted.budget_bytes,
        target_bytes=found[best].high_bytes,
        trials=tuple(trials),
        limited_by=_limited_by(best, ladder, wanted, is_late=is_late and not is_proved),
        device=found[best].device,
        compiled_by=compiler,
        does_not_fit=above,
        is_proved=is_proved,
        notes=found[best].notes,
    )


def _limited_by(best: int, ladder: Ladder, wanted: Wanted, *, is_late: bool) -> str:
    if best >= ladder.last:
        return "default_cap" if wanted.maximum is None else "max_batch_size"
    return "time" if is_late else "memory"
