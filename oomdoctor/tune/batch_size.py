"""The answer: an `int` for `fit(batch_size=...)` that also explains itself."""

from __future__ import annotations

from typing import Any

from oomdoctor._show import Readable
from oomdoctor.facts import Tuning


class BatchSize(Readable, int):
    """A batch size that was run and fits.

    It is an `int` in every way; its `repr` is the table of what was run.

    Attributes:
        tuning: The search that found it.
    """

    tuning: Tuning

    def __new__(cls, tuning: Tuning) -> BatchSize:
        """Return the size that a search found."""
        size = super().__new__(cls, tuning.batch_size)
        size.tuning = tuning
        return size

    def __repr__(self) -> str:
        return Readable.__repr__(self)

    def __str__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self) -> Any:
        return (BatchSize, (self.tuning,))

    @property
    def peak_bytes(self) -> int:
        """What a training step of this size held at its peak."""
        return self.tuning.peak_bytes

    @property
    def budget_bytes(self) -> int:
        """What it was given."""
        return self.tuning.budget_bytes

    @property
    def limited_by(self) -> str:
        """What keeps it from being larger."""
        return self.tuning.limited_by

    def accumulation_steps(self, wanted: int) -> int:
        """Return over how many batches to sum gradients for a batch of `wanted` samples.

        Keras takes it as `gradient_accumulation_steps` of the optimizer, which keeps one more
        copy of the trained weights.
        """
        return -(-wanted // int(self))
