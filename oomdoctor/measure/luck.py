"""One order of ops was recorded; how much more would a step take in another?

TensorFlow orders the ops of a step anew in every process, and part of that is chance: the order in
which variables are read, and whatever waits for them. Attention showed it best: a step took one of
three amounts, 6 % apart, the same for as long as a process lived. What is recorded in one process
says nothing of the others. The estimate simulates other orders and says which amounts there are;
the recorded one tells which of them was drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIKE_PART = 0.03
"""A simulated step is the recorded one if their peaks are no further apart than this part."""

UNLUCKY = 0.75
"""A size should survive in this part of the orders. The rarest were only seen simulated."""


@dataclass(frozen=True)
class Orders:
    """Simulated steps of one batch size, each with its ops in another order."""

    batch_size: int
    peaks: Sequence[int]

    def excess(self, batch_size: int, peak_bytes: int, held_bytes: int) -> float:
        """Return how many times the bytes of a recorded batch an unlucky process takes for it.

        Args:
            batch_size: The recorded one.
            peak_bytes: What its steps took.
            held_bytes: What no batch changes of that: variables.

        Returns:
            At least 1, which also stands for a recorded step that is like no simulated one.

        Example:
            >>> orders = Orders(100, [500, 500, 530, 530])
            >>> round(orders.excess(100, 501, 20), 3), orders.excess(100, 533, 20)
            (1.062, 1.0)
        """
        scale = batch_size / self.batch_size
        batches = sorted((peak - held_bytes) * scale for peak in self.peaks)
        here = peak_bytes - held_bytes
        nearest = min(batches, key=lambda taken: abs(taken - here), default=0)
        if nearest <= 0 or abs(nearest - here) > ALIKE_PART * peak_bytes:
            return 1.0
        return max(1.0, batches[int(UNLUCKY * len(batches))] / nearest)
