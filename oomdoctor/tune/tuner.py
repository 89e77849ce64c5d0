"""Trains batch sizes until the largest that fits is known.

The estimate says where to start. That size is trained with `fit`, in a process of its own and with
less than the budget: a *margin* of the memory for batches stays free, because no two processes run
their ops in the same order. The measured peak says which size is next.

The objective `largest` is the largest size that fits. `fastest` is the smallest size within 5 % of
the most samples per second: beyond it a larger batch gains nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from oomdoctor.facts import TENSORFLOW_RAM_BYTES, SizeTrial, Tuning
from oomdoctor.tune.search import Goal, Run, largest, next_size
from oomdoctor.worker.messages import Guessed, Trial

MARGIN = 0.05
"""Fraction of the memory for batches that stays free by default."""

DEFAULT_CAP = 8192
"""Largest batch size to consider, unless `max_batch_size` or the data sets another."""

DEFAULT_GUESS = 64
"""First size if there is no estimate."""

TOLERANCE = 0.08
"""Part of what batches can take that may stay unused when the search ends. With the margin that
leaves 0.95 × 0.92 = 87 % of the line: people give up an eighth of a batch for a quick answer, not
more."""

MAX_TRIALS = 16
"""Bisection needs fewer between 1 and the default cap."""

HOST_COPIES = 4
"""Copies of a batch that a pipeline holds in RAM: the one being made, those prefetched, and the one
being transferred."""

LEAST_PEAKS = 4
"""With fewer steps the highest peak counts."""

SHORT_PART = 0.25
"""If this part of the time is over before anything was trained, small sizes come first. An idle
machine takes a tenth of 60 seconds to start TensorFlow and to trace a small network, and one with a
load of 13 almost half."""

SMALL_PART = 16
"""The small sizes begin with this part of the largest of them, which is half of the size that the
search begins with."""

STEPS_OF_A_TRIAL = 6
"""So many steps of the next size must fit into the time that is left: a brief trial is two whole
batches and a smaller one, its first step takes as long as two, and to make the batch as long as one
more. With 4, a size was begun with a load of 9 that did not end in time."""

NEAR_FASTEST = 0.95
"""A speed this close to the best is as good as the best."""

SPEED_SIZES = 6
"""Most points of the curve of speeds, each at half the size of the one before."""

OBJECTIVES = ("largest", "fastest")

Watch = Callable[[SizeTrial], None]
"""Called with each trial as it ends."""


class Machine(Protocol):
    """What runs the trials."""

    def guess(self, limit_bytes: int) -> Guessed:
        """Return roughly the bytes of any batch and those of each sample near a limit."""

    def run(
        self,
        batch_size: int,
        *,
        limit_bytes: int,
        last: int = 0,
        alone: bool = True,
        brief: bool = False,
        seconds: float | None = None,
    ) -> Trial:
        """Train a size with `fit` under a limit; `tune.trials` says what the rest means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for."""

    budget_bytes: int
    margin: float = MARGIN
    """Part of the memory for batches that stays free; 0 finds the largest size that runs."""
    minimum: int = 1
    maximum: int | None = None
    multiple_of: int = 1
    objective: str = "largest"
    reserved_bytes: int = 0
    """In the same memory beside the step, such as arrays that `fit` was given whole."""
    samples: int | None = None
    """How many there are: no batch is larger, and the last one of an epoch has what is left."""
    host_bytes: int | None = None
    """Free RAM, where batches are prepared before they go to the device."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Not even the smallest size fits, or none was run in time."""

    trials: tuple[SizeTrial, ...]
    out_of_time: bool = False
    is_hopeless: bool = False
    """Whether the model alone does not fit."""


def tune(
    machine: Machine,
    wanted: Wanted,
    *,
    began: float | None = None,
    deadline: float | None = None,
    watch: Watch | None = None,
) -> Tuning | Failed:
    """Return the batch size that suits, or what was run when none fits.

    Args:
        machine: Runs the sizes.
        wanted: What is looked for.
        began: When the clock was started, by `time.monotonic()`; None is now.
        deadline: When the search ends with the largest size run so far.
        watch: Called with each trial as it ends.
    """
    began = time.monotonic() if began is None else began
    return _Tuner(machine, wanted, began, deadline, watch).tune()


@dataclass
class _Tuner:
    machine: Machine
    wanted: Wanted
    began: float
    deadline: float | None
    watch: Watch | None
    trials: list[SizeTrial] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    small: list[Run] = field(default_factory=list)
    """What was run in case time ends. The search goes by `runs` alone."""
    peaks: dict[int, int] = field(default_factory=dict)
    speeds: dict[int, float] = field(default_factory=dict)
    fixed_bytes: int = 0
    """What no batch changes, by the estimate: the margin is not taken of that."""
    held_bytes: int = 0
    """Weights and optimizer state, as measured between steps."""
    sample_bytes: float = 0
    """One sample of the batch, as it is fed."""
    was_killed: bool = False
    out_of_time: bool = False
    is_hopeless: bool = False
    device: str | None = None
    notes: tuple[str, ...] = ()

    def tune(self) -> Tuning | Failed:
        found = self._search(self._guess())
        if found is None:
            return Failed(tuple(self.trials), self.out_of_time, self.is_hopeless)
        limited_by = self._limited_by(found)
        if self.wanted.objective == "fastest":
            found, limited_by = self._fastest(found, limited_by)
        return Tuning(
            batch_size=found,
            peak_bytes=self.peaks[found],
            budget_bytes=self.wanted.budget_bytes,
            target_bytes=self._goal().target_bytes,
            trials=tuple(self.trials),
            objective=self.wanted.objective,
            limited_by=limited_by,
            device=self.device,
            notes=self.notes,
        )

    def _search(self, guess: int) -> int | None:
        """Return the largest size that fits, of those that were run."""
        first = next_size([], self._goal(), guess=guess)
        if first is not None and self._is_short_of_time():
            self._run_small_ones(first // 2)
        while len(self.trials) < MAX_TRIALS and not self._is_late():
            held = self.held_bytes or self.fixed_bytes
            size = next_size(self.runs, self._goal(), guess=guess, held_bytes=held)
            if size is None:
                break
            # As long as nothing fits, half of the time is kept for a smaller size.
            part = 0.5 if self._fitting() is None else 1.0
            alone = bool(self.runs) or not self.small  # there is no time for another process
            trial = self._run(size, alone=alone, seconds=self._left(part))
            if trial.is_hopeless:
                self.is_hopeless = True
                return None
            if trial.timed_out:
                if self._fitting() is None:
                    self._run_small_ones(size // 2)
                self.out_of_time = True
        return self._fitting()

    def _run_small_ones(self, most: int) -> None:
        """Train small sizes in the process that is there, each as large as time allows.

        One of them is the answer if no larger size finishes in time.
        """
        goal = self._goal()
        size, last = most // SMALL_PART, 0
        while True:
            size = max(size // goal.multiple_of, goal.first) * goal.multiple_of
            if not last < size <= most or self._is_late():
                return
            trial = self._run(size, alone=False, brief=True, seconds=self._left())
            if trial.outcome != "fits" or not trial.step_seconds:
                return
            self.small, self.runs = [*self.small, *self.runs], []
            steps = (self._left() or 0.0) / trial.step_seconds
            if steps < 2 * STEPS_OF_A_TRIAL:
                self.out_of_time = True
                return
            size, last = int(min(most, size * steps / STEPS_OF_A_TRIAL)), size

    def _fitting(self) -> int | None:
        return largest([*self.small, *self.runs])

    def _left(self, part: float = 1.0) -> float | None:
        """Return a part of the seconds that are left, or None if there is no end."""
        if self.deadline is None:
            return None
        return part * max(0.0, self.deadline - time.monotonic())

    def _is_short_of_time(self) -> bool:
        left = self._left()
        if self.deadline is None or left is None:
            return False
        return left < (1 - SHORT_PART) * (self.deadline - self.began)

    def _guess(self) -> int:
        target = self._goal().target_bytes
        guessed = self.machine.guess(target)
        fixed, each = guessed.fixed_bytes, guessed.sample_bytes
        if fixed is None or not each:
            return DEFAULT_GUESS
        if fixed >= target:
            return 1
        self.fixed_bytes = max(0, fixed)
        return max(1, (self._goal().target_bytes - fixed) // each)

    def _run(
        self, size: int, *, alone: bool, brief: bool = False, seconds: float | None = None
    ) -> Trial:
        """Run a size and keep what it showed."""
        began, limit = time.monotonic(), self._goal().target_bytes
        last = (self.wanted.samples or 0) % size
        trial = self.machine.run(
            size, limit_bytes=limit, last=last, alone=alone, brief=brief, seconds=seconds
        )
        fits = trial.outcome == "fits"
        if trial.timed_out:
            return trial
        self.runs.append(Run(batch_size=size, fits=fits, peak_bytes=_leading_peak(trial)))
        if fits and trial.peak_bytes is not None:
            self.peaks[size] = trial.peak_bytes
        if trial.step_seconds and fits:
            self.speeds[size] = size / trial.step_seconds
        if fits and trial.held_bytes is not None:
            self.held_bytes = min(trial.held_bytes, self.held_bytes or trial.held_bytes)
        if trial.batch_bytes is not None:
            self.sample_bytes = trial.batch_bytes / size
        if not fits:
            self.was_killed = trial.was_killed  # the last that failed is the smallest that did
        self.device, self.notes = trial.device or self.device, trial.notes or self.notes
        told = SizeTrial(
            batch_size=size,
            outcome=trial.outcome,
            peak_bytes=trial.peak_bytes,
            seconds=time.monotonic() - began,
            samples_per_second=self.speeds.get(size) if fits else None,
        )
        self.trials.append(told)
        if self.watch is not None:
            self.watch(told)
        return trial

    def _goal(self) -> Goal:
        wanted = self.wanted
        room = wanted.budget_bytes - wanted.reserved_bytes
        free = int(wanted.margin * max(0, room - self.fixed_bytes))
        return Goal(
            target_bytes=max(0, room - free),
            minimum=wanted.minimum,
            maximum=min(size for size, _ in self._maxima()),
            multiple_of=wanted.multiple_of,
            tolerance=TOLERANCE if wanted.margin else 0.0,
        )

    def _maxima(self) -> list[tuple[int, str]]:
        """Return the sizes that are allowed at most, each with what allows no more."""
        wanted = self.wanted
        least = max(wanted.minimum, wanted.multiple_of)
        found = []
        if wanted.maximum is not None:
            found.append((wanted.maximum, "max_batch_size"))
        if wanted.samples is not None:
            found.append((max(wanted.samples, least), "samples"))
        if not found:
            found.append((max(DEFAULT_CAP, least), "default_cap"))
        if wanted.host_bytes is not None and self.sample_bytes:
            room = wanted.host_bytes - TENSORFLOW_RAM_BYTES
            size = int(room / (HOST_COPIES * self.sample_bytes))
            found.append((max(size, least), "host RAM"))
        return found

    def _limited_by(self, found: int) -> str:
        size, why = min(self._maxima())
        if found + self.wanted.multiple_of > size:
            return why
        if self.out_of_time:
            return "time"
        return "host RAM" if self.was_killed else "memory"

    def _is_late(self) -> bool:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.out_of_time = True
        return self.out_of_time

    def _fastest(self, found: int, limited_by: str) -> tuple[int, str]:
        """Return the smallest size that is as fast as any, from a curve of halves."""
        size, goal = found, self._goal()
        for _ in range(SPEED_SIZES):
            size = max(size // 2 // goal.multiple_of, goal.first) * goal.multiple_of
            if size in self.speeds or self._is_late():
                break
            # It is smaller than one that fits, so it needs no process of its own.
            if self._run(size, alone=False, seconds=self._left()).timed_out:
                break
        speeds = {size: speed for size, speed in self.speeds.items() if size <= found}
        if not speeds:
            return found, limited_by
        best = max(speeds.values())
        smallest = min(size for size, speed in speeds.items() if speed >= NEAR_FASTEST * best)
        return smallest, limited_by if smallest == found else "speed"


def _leading_peak(trial: Trial) -> int | None:
    """Return the peak that says which size is next: of a size that fits, the highest but one.

    On a busy machine single steps take a fifth more than all others, and would end the search.
    """
    if trial.outcome == "fits" and len(trial.step_peaks) >= LEAST_PEAKS:
        return sorted(trial.step_peaks)[-2]
    return trial.peak_bytes
