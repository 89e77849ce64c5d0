"""The batch sizes that were run, and the one that was chosen."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """One batch size that was run under the limit."""

    batch_size: int
    outcome: str
    """`fits`, `oom` or `died`."""
    peak_bytes: int | None
    seconds: float | None
    """What the trial took, starting and tracing included."""
    samples_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tuning(Readable):
    """The largest batch that fits, and what was run to find it."""

    batch_size: int
    """Was run, under the budget."""
    peak_bytes: int
    budget_bytes: int
    target_bytes: int
    """The budget less the margin: what it was run with."""
    trials: tuple[SizeTrial, ...]
    """In the order they were run."""
    objective: str = "largest"
    limited_by: str = "memory"
    """`memory`, `max_batch_size`, `default_cap`, `samples`, `host RAM`, `time` or, for the fastest,
    `speed`."""
    replicas: int = 1
    device: str | None = None
    compiled_by: str | None = None
    """The compiler, such as `XLA 0.9.0`, where sizes were compiled for the device and not run.
    `target_bytes` is then the upper end of what the step may take."""
    notes: tuple[str, ...] = ()
