"""A batch size search: its trials and its result."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeTrial:
    """One batch size, trained under the limit or compiled."""

    batch_size: int
    outcome: str
    """`fits`, `oom` or `died`."""
    peak_bytes: int | None
    seconds: float | None
    """Including the start of the process and tracing."""
    samples_per_second: float | None = None
    upper_bytes: int | None = None
    """Of a size that was compiled: what the step may take with what a compiler does not see. It
    decides whether the size fits."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tuning(Readable):
    """The largest batch size that fits, and the trials that found it."""

    batch_size: int
    """Trained, or compiled."""
    peak_bytes: int
    budget_bytes: int
    target_bytes: int
    """The budget less the margin: the limit of the trials."""
    trials: tuple[SizeTrial, ...]
    """In order."""
    objective: str = "largest"
    limited_by: str = "memory"
    """`memory`, `max_batch_size`, `default_cap`, `samples`, `host RAM`, `time` or, for the fastest,
    `speed`."""
    replicas: int = 1
    device: str | None = None
    compiled_by: str | None = None
    """The compiler, such as `XLA 0.9.0`, where sizes were compiled for the device and not run.
    `target_bytes` is then the upper end of what the step may take."""
    does_not_fit: int | None = None
    """The smallest size that was compiled and does not fit."""
    is_proved: bool = False
    """Whether that is the next size that the search could have taken."""
    comparison: str | None = None
    """What was measured on a GPU and what XLA's compiler says of the same step, in one line."""
    notes: tuple[str, ...] = ()
