"""A model that no card of the catalogue holds, split over several."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """Weights, gradients and optimizer state split evenly over the largest card there is."""

    card: str
    """Its name in the catalogue."""
    card_bytes: int
    """What TensorFlow gets of one."""
    split_bytes: int
    """Weights, gradients and optimizer state: what is split."""
    whole_bytes: int
    """The rest of the peak: what each card holds at the batch size that was asked about."""
    cards: int | None
    """How many are needed; None if the rest alone exceeds one."""

    @property
    def each_bytes(self) -> int | None:
        """What each of the cards holds."""
        return None if self.cards is None else -(-self.split_bytes // self.cards) + self.whole_bytes
