"""The batch sizes that were run, and the one that was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """One batch size that was run."""

    batch_size: int
    outcome: str
    """`fits`, `oom` or `died`; `fits` says that it ran, not that it stayed within the target."""
    peak_bytes: int | None
    seconds: float | None
    """What the trial took, starting and tracing included."""
    samples_per_second: float | None = None
    is_probe: bool = False
    """Whether it was run with memory to spare, to learn how memory grows."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tuning(Readable):
    """The largest batch that fits, and what was run to find it."""

    batch_size: int
    """Was run, under the budget."""
    peak_bytes: int
    budget_bytes: int
    target_bytes: int
    """The budget less the margin: what the peak may reach."""
    trials: tuple[SizeTrial, ...]
    """In the order they were run."""
    objective: str = "largest"
    limited_by: str = "memory"
    """`memory`, `max_batch_size`, `samples`, `host RAM` or, for the fastest, `speed`."""
    is_proved: bool = False
    """Whether the next larger size was run and did not fit."""
    replicas: int = 1
    device: str | None = None
    notes: tuple[str, ...] = ()
