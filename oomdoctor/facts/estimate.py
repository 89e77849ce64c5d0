"""The peak memory of one training step, and what holds it."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer holds at the peak of a step."""

    name: str
    bytes_at_peak: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Estimate(Readable):
    """The peak memory of one training step."""

    batch_size: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    parts: tuple[tuple[str, int], ...] = ()
    """Pairs of part and bytes: weights, gradients, optimizer, activations, workspace."""
    layers: tuple[LayerBytes, ...] = ()
    largest_tensor_bytes: int | None = None
    per_sample_bytes: int | None = None
    origin: str = "estimated"
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

    def largest_batch(self, budget_bytes: int) -> int | None:
        """Return the largest batch whose upper bound stays within a budget, along the line.

        None where the line is unknown or no batch changes the peak; 0 where none fits.
        """
        if self.fixed_bytes is None or not self.per_sample_bytes or not self.peak_bytes:
            return None
        within = budget_bytes * self.peak_bytes // max(self.high_bytes, 1)
        return max(0, (within - self.fixed_bytes) // self.per_sample_bytes)
