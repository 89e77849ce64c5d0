"""The peak of a step compared with a recorded baseline."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGrowth:
    """What one layer holds at the peak, then and now; None where it was not there."""

    name: str
    recorded_bytes: int | None
    bytes_at_peak: int | None

    @property
    def growth_bytes(self) -> int:
        """How much more it holds than it did."""
        return (self.bytes_at_peak or 0) - (self.recorded_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The peak of a step beside the one that a baseline has."""

    recorded_bytes: int
    peak_bytes: int
    tolerance: float
    """The part of the recorded peak that it may grow by: 0.05 is 5 %."""
    layers: tuple[LayerGrowth, ...] = ()
    """Layers that hold more or less than they did, the largest change first."""

    @property
    def growth_bytes(self) -> int:
        """How much higher the peak is; below zero where it is lower."""
        return self.peak_bytes - self.recorded_bytes

    @property
    def allowed_bytes(self) -> int:
        """How much higher it may be."""
        return int(self.recorded_bytes * self.tolerance)

    @property
    def is_over(self) -> bool:
        """Whether the peak grew by more than is allowed."""
        return self.growth_bytes > self.allowed_bytes
