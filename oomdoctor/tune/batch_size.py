"""The result of a search: an `int` for `fit(batch_size=...)` that also explains itself."""

from __future__ import annotations

from typing import Any

from oomdoctor._show import Readable
from oomdoctor.facts import Tuning


class BatchSize(Readable, int):
    """A batch size that fits.

    It is an `int` in every way; its `repr` is the report of the search.

    Attributes:
        tuning: The search.
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
        """Peak memory of a training step."""
        return self.tuning.peak_bytes

    @property
    def budget_bytes(self) -> int:
        """The memory limit."""
        return self.tuning.budget_bytes

    @property
    def limited_by(self) -> str:
        """What limits the batch size."""
        return self.tuning.limited_by

    def accumulation_steps(self, wanted: int) -> int:
        """Return the gradient accumulation steps for an effective batch size of `wanted`.

        Pass it to the Keras optimizer as `gradient_accumulation_steps`. The optimizer then keeps
        one more copy of the trainable weights.
        """
        return -(-wanted // int(self))
