"""The peak memory of one training step, and what holds it."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable

FIXED_PARTS = frozenset(("weights", "gradients", "optimizer"))
"""Parts of a step's peak that no batch changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer holds at the peak of a step."""

    name: str
    """Its path in the model; a name in brackets is not a layer."""
    bytes_at_peak: int
    backward_bytes: int | None = None
    """Of these, what the backward pass made; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherProgram:
    """The peak of the same step, run by the program that was not chosen."""

    program: str
    peak_bytes: int
    low_bytes: int
    high_bytes: int


def verdict_of(low_bytes: int, high_bytes: int, budget_bytes: int | None) -> str:
    """Return whether an interval fits a budget.

    Example:
        >>> verdict_of(2, 4, 8), verdict_of(7, 9, 8), verdict_of(9, 10, 8)
        ('fits', 'unknown', 'does_not_fit')
    """
    if budget_bytes is None:
        return "unknown"
    if low_bytes > budget_bytes:
        return "does_not_fit"
    return "fits" if high_bytes <= budget_bytes else "unknown"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Estimate(Readable):
    """The peak memory of one training step."""

    batch_size: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    parts: tuple[tuple[str, int], ...] = ()
    """Pairs of part and bytes: weights, gradients, optimizer, activations, workspace. A compiled
    step has `inputs` and `loss` besides."""
    layers: tuple[LayerBytes, ...] = ()
    largest_tensor_bytes: int | None = None
    per_sample_bytes: int | None = None
    origin: str = "estimated"
    """`compiled` by XLA for a card, or `estimated` by simulating the executor."""
    recorded_sizes: tuple[int, ...] = ()
    """The batches of the steps that were run and recorded; none where the step was simulated."""
    fixed_bytes: int | None = None
    """The peak at any batch is about `fixed_bytes + batch * per_sample_bytes`."""
    line_from_batch: int | None = None
    """The smallest batch at which that line was checked and holds."""
    kind: str = "train"
    """`train`, `evaluate` or `predict`."""
    jit: bool = False
    """Whether the step is one that XLA compiles."""
    unknown_ops: tuple[tuple[str, int], ...] = ()
    """Operations that are not understood, with the bytes at stake."""
    assumptions: tuple[str, ...] = ()
    program: str = "executor"
    """`xla` or `executor`, TensorFlow's own."""
    target: str | None = None
    """`cpu` or `gpu`, where the executor is meant: on a GPU the scratch memory of CPU kernels does
    not count."""
    device: str | None = None
    """The card it was compiled for; the executor's estimate is for none in particular."""
    reason: str | None = None
    """Why it is this program, in one sentence; None where no card is known."""
    allowances: tuple[tuple[str, int], ...] = ()
    """What may come on top of the peak, in the upper end of the interval."""
    without_recomputation_bytes: int | None = None
    """The peak without recomputation; None if XLA recomputes nothing, or if it is not known."""
    other: OtherProgram | None = None
    notes: tuple[str, ...] = ()

    def line(self) -> tuple[int, int] | None:
        """Return bytes at any batch, and bytes for each sample, as far as they can be predicted.

        Where only one batch was compiled, weights, gradients and optimizer state are taken to stay
        and the rest to grow with the batch. None where nothing grows, or nothing is known.
        """
        if self.fixed_bytes is not None and self.per_sample_bytes:
            return self.fixed_bytes, self.per_sample_bytes
        fixed = sum(size for part, size in self.parts if part in FIXED_PARTS)
        each = (self.peak_bytes - fixed) // max(1, self.batch_size)
        if not self.parts or self.fixed_bytes is not None or each <= 0:
            return None
        return self.peak_bytes - each * self.batch_size, each

    def predicted_batch(self, budget_bytes: int) -> int | None:
        """Return the largest batch whose upper bound stays within a budget, along `line`."""
        line = self.line()
        if line is None or not self.peak_bytes:
            return None
        within = budget_bytes * self.peak_bytes // max(self.high_bytes, 1)
        return max(0, (within - line[0]) // line[1])

    def largest_batch(self, budget_bytes: int) -> int | None:
        """Return the largest batch whose upper bound stays within a budget, along the line.

        None where the line is unknown or no batch changes the peak; 0 where none fits.
        """
        if self.fixed_bytes is None or not self.per_sample_bytes or not self.peak_bytes:
            return None
        within = budget_bytes * self.peak_bytes // max(self.high_bytes, 1)
        return max(0, (within - self.fixed_bytes) // self.per_sample_bytes)
