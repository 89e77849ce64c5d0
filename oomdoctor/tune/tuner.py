"""Runs batch sizes until the largest that fits is known, and says what was run.

Two sizes are recorded with memory to spare, which tells how every allocation grows with the
batch; the allocator is simulated for other sizes, and the largest that should fit is run under
the limit. Where nothing can be recorded (a GPU) a line through measured peaks takes its place.

A size is run under the budget less a quarter of the margin, of that part of it which batches can
take: weights and slots do not change from run to run. The forecast aims lower, at the budget less
three quarters, because no two runs order their ops alike. The rest is what the search need not
fight for.

The objective `largest` is the largest size that survives under the limit. `fastest` is the smallest
size within 5 % of the most samples per second: beyond it a larger batch gains nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from oomdoctor.facts import SizeTrial, Tuning
from oomdoctor.measure.spec import MAX_BATCH_SIZE, Trial
from oomdoctor.tune.search import Found, find_largest, find_near
from oomdoctor.units import MIB

EXPECTED = 64
"""Where to look first when nothing is known."""

OTHER_PART = 16
"""The first size recorded is the one expected to fit. The second, this part of it, only tells how
allocations grow."""

SMALLER_PART = 4
"""Where a size cannot be recorded, this part of it is."""

FORECAST_REACH = 2
"""A forecast beyond this many times the size it comes from is made again from a larger one."""

MAX_GROWTH = 16
"""A forecast is not trusted further than this."""

HOST_BASE_BYTES = 600 * MIB
HOST_COPIES = 4
"""In RAM TensorFlow itself takes about the first, and a pipeline holds a batch about so often: the
one that is made, those that wait, and the one that is copied."""

BATCHES_AHEAD = 3
"""Where batches are prepared in the memory that trains, so many more lie there: `fit` prepares the
next ones, and holds the arrays it was given."""

NEAR_FASTEST = 0.95
"""A size this close to the best is as good as the best."""

SPEED_SIZES = 6
"""How many sizes the curve of speeds has at most: each half of the one before."""

OBJECTIVES = ("largest", "fastest")

Watch = Callable[[SizeTrial], None]
"""Told of each trial as it ends."""


class Machine(Protocol):
    """What runs the trials."""

    def prior(self, limit_bytes: int) -> dict[str, int] | None:
        """Return roughly the bytes of any batch and those of each sample near a limit."""

    def record(self, batch_size: int, *, once: bool = False) -> Trial:
        """Run a size with memory to spare and remember its allocations, or those of one step."""

    def foresee(
        self, *, limit_bytes: int, lowest: int, highest: int, batches_ahead: int
    ) -> int | None:
        """Return the largest size that should fit."""

    def run(
        self,
        batch_size: int,
        *,
        limit_bytes: int,
        batches_ahead: int = 0,
        last: int = 0,
    ) -> Trial:
        """Run a size under a limit, and a last batch of fewer samples after it."""

    def measure(self, batch_size: int) -> Trial:
        """Run a size again, for its speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for."""

    budget_bytes: int
    margin: float = 0.05
    """Part of the memory for batches that may stay unused; 0 searches for the exact maximum."""
    minimum: int = 1
    maximum: int | None = None
    multiple_of: int = 1
    objective: str = "largest"
    shares_memory: bool = False
    """Whether batches are prepared in the memory that trains: where a CPU does."""
    reserved_bytes: int = 0
    """Lies in the same memory beside the step, such as arrays that `fit` was given whole."""
    samples: int | None = None
    """How many there are: no batch is larger, and the last one of an epoch has what is left."""
    host_bytes: int | None = None
    """Free RAM, where batches are prepared before they go to the device."""
    expected: int | None = None
    """The size to look at first, where something is known."""


def tune(machine: Machine, wanted: Wanted, watch: Watch | None = None) -> Tuning | Failed:
    """Return the batch size that suits, or what was run when none fits.

    Args:
        machine: Runs the sizes.
        wanted: What is looked for.
        watch: Told of each trial as it ends.
    """
    return _Tuner(machine, wanted, watch).tune()


@dataclass(frozen=True, slots=True)
class Failed:
    """Not even the smallest size fits."""

    trials: tuple[SizeTrial, ...]


@dataclass
class _Tuner:
    machine: Machine
    wanted: Wanted
    watch: Watch | None
    trials: list[SizeTrial] = field(default_factory=list)
    judged: dict[int, SizeTrial] = field(default_factory=dict)
    """Sizes that were run under the limit."""
    held_bytes: int = 0
    """Variables and slots: what no batch changes."""
    sample_bytes: float = 0
    """One sample of the batch, as it is fed."""
    was_killed: bool = False
    device: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def maximum(self) -> int | None:
        """The largest size that is allowed, that the data has, and that RAM can prepare."""
        return min((size for size, _ in self._maxima()), default=None)

    def _maxima(self) -> list[tuple[int, str]]:
        wanted = self.wanted
        found = []
        if wanted.maximum is not None:
            found.append((wanted.maximum, "max_batch_size"))
        if wanted.samples is not None:
            found.append((max(wanted.samples, wanted.minimum, wanted.multiple_of), "samples"))
        if wanted.host_bytes is not None and self.sample_bytes:
            room = wanted.host_bytes - HOST_BASE_BYTES
            size = int(room / (HOST_COPIES * self.sample_bytes))
            found.append((max(size, wanted.minimum, wanted.multiple_of), "host RAM"))
        return found

    def tune(self) -> Tuning | Failed:
        wanted = self.wanted
        first = -(-wanted.minimum // wanted.multiple_of) * wanted.multiple_of
        if wanted.maximum is not None and first > wanted.maximum:
            return Failed(())
        forecast = self._forecast(first)
        found = self._search(forecast)
        if found.batch_size is None:
            return Failed(tuple(self.trials))
        batch_size, limited_by = found.batch_size, "host RAM" if self.was_killed else "memory"
        largest = min(self._maxima(), default=None)
        if largest is not None and batch_size + wanted.multiple_of > largest[0]:
            limited_by = largest[1]
        if wanted.objective == "fastest":
            batch_size, limited_by = self._fastest(batch_size, limited_by)
        chosen = self.judged[batch_size]
        assert chosen.peak_bytes is not None
        return Tuning(
            batch_size=batch_size,
            peak_bytes=chosen.peak_bytes,
            budget_bytes=wanted.budget_bytes,
            target_bytes=self._target(),
            trials=tuple(self.trials),
            objective=wanted.objective,
            limited_by=limited_by,
            is_proved=found.is_proved,
            device=self.device,
            notes=self.notes,
        )

    def _target(self) -> int:
        """Return what a step may take when it is run."""
        return self._without(0.25 * self.wanted.margin)

    def _aim(self) -> int:
        """Return what a step should take by the forecast."""
        return self._without(0.75 * self.wanted.margin)

    def _without(self, part: float) -> int:
        """Return the budget less a part of what batches can take."""
        room = self.wanted.budget_bytes - self.wanted.reserved_bytes
        return int(room - max(0, room - self.held_bytes) * part)

    @property
    def _batches_ahead(self) -> int:
        return BATCHES_AHEAD if self.wanted.shares_memory and self.wanted.margin else 0

    def _search(self, forecast: int | None) -> Found:
        wanted = self.wanted
        if forecast is None:
            # The smallest is then run first if nothing was recorded, and in steps that grow.
            return find_largest(
                self._judge,
                target_bytes=self._target(),
                minimum=wanted.minimum,
                maximum=self.maximum,
                multiple_of=wanted.multiple_of,
                expected=wanted.expected or EXPECTED,
                tolerance=wanted.margin / 2,
            )
        return find_near(
            self._judge,
            start=forecast,
            target_bytes=self._target(),
            minimum=wanted.minimum,
            maximum=self.maximum,
            multiple_of=wanted.multiple_of,
            tolerance=wanted.margin / 2,
        )

    def _forecast(self, first: int) -> int | None:
        """Return the largest size that should fit, from two or three recorded ones."""
        wanted = self.wanted
        size = self._multiple(self._expected())
        main = self._record(size)
        while main.outcome != "fits" and size > first:
            size = self._multiple(size // SMALLER_PART)
            main = self._record(size)
        if main.outcome != "fits" or not main.device or "GPU" in main.device:
            return None
        other = self._multiple(size // OTHER_PART)
        other = other if other != size else self._multiple(size + wanted.multiple_of)
        if other != size:
            self._record(other, once=other < size)
        forecast = self._foreseen(first)
        if forecast is not None and forecast > FORECAST_REACH * size:
            self._record(self._multiple(min(forecast, MAX_GROWTH * size)))
            forecast = self._foreseen(first)
        return forecast or first

    def _expected(self) -> int:
        wanted = self.wanted
        if wanted.expected is not None:
            return wanted.expected
        prior = self.machine.prior(self._aim())
        if not prior:
            return EXPECTED
        room = self._aim() - prior["fixed_bytes"]
        size = min(MAX_BATCH_SIZE, max(1, room // prior["sample_bytes"]))
        # Where the machine's own RAM trains, a probe must not be what fills it.
        return size // 2 or 1 if wanted.shares_memory else size

    def _multiple(self, size: int) -> int:
        """Return the nearest size that is allowed, at or below one."""
        wanted = self.wanted
        step = wanted.multiple_of
        size = max(size // step, -(-wanted.minimum // step), 1)
        return step * (size if self.maximum is None else min(size, self.maximum // step))

    def _foreseen(self, first: int) -> int | None:
        return self.machine.foresee(
            limit_bytes=self._aim(),
            lowest=first,
            highest=self.maximum or MAX_BATCH_SIZE,
            batches_ahead=self._batches_ahead,
        )

    def _record(self, batch_size: int, *, once: bool = False) -> Trial:
        trial, _ = self._told(lambda: self.machine.record(batch_size, once=once), is_probe=True)
        if trial.outcome == "fits":
            assert trial.current_bytes is not None
            held = trial.current_bytes - (trial.batch_bytes or 0)
            self.held_bytes = min(held, self.held_bytes or held)
            self.sample_bytes = (trial.batch_bytes or 0) / batch_size
        return trial

    def _judge(self, batch_size: int) -> int | None:
        limit = self._target()
        trial, told = self._told(
            lambda: self.machine.run(
                batch_size,
                limit_bytes=limit,
                batches_ahead=self._batches_ahead,
                last=(self.wanted.samples or 0) % batch_size,
            )
        )
        if trial.outcome != "fits":
            # The kernel ends what takes all of the machine's memory.
            self.was_killed = trial.outcome == "died" and "SIGKILL" in (trial.message or "")
            return None
        self.judged[batch_size] = told
        return trial.peak_bytes

    def _told(self, run: Callable[[], Trial], is_probe: bool = False) -> tuple[Trial, SizeTrial]:
        began = time.monotonic()
        trial = run()
        speed = trial.batch_size / trial.step_seconds if trial.step_seconds else None
        told = SizeTrial(
            batch_size=trial.batch_size,
            outcome=trial.outcome,
            peak_bytes=trial.peak_bytes,
            seconds=time.monotonic() - began,
            samples_per_second=speed,
            is_probe=is_probe,
        )
        self.device, self.notes = trial.device or self.device, trial.notes or self.notes
        self.trials.append(told)
        if self.watch is not None:
            self.watch(told)
        return trial, told

    def _fastest(self, largest: int, limited_by: str) -> tuple[int, str]:
        """Return the smallest size that is as fast as any, from a curve of halves."""
        size = largest
        for _ in range(SPEED_SIZES):
            size = self._multiple(size // 2)
            if size in self.judged:
                break
            trial, told = self._told(lambda size=size: self.machine.measure(size))  # type: ignore[misc]
            if trial.outcome == "fits":
                self.judged[size] = told
        fitting = {n: t.samples_per_second for n, t in self.judged.items() if t.samples_per_second}
        if not fitting:
            return largest, limited_by
        best = max(fitting.values())
        smallest = min(n for n, speed in fitting.items() if speed >= NEAR_FASTEST * best)
        return smallest, limited_by if smallest == largest else "speed"
