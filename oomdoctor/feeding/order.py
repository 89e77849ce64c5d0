"""In which order the rows of a dataset are read: a function of the seed and the epoch alone.

Data is read in blocks of neighbouring rows, because disks are fast at that. An epoch visits all
blocks in a random order. As many as fit in the buffer make a window, and the rows of a window are
mixed. So a training run that was stopped is resumed at any row of any epoch, and only what is still
needed is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """Blocks that are in memory together."""

    blocks: tuple[int, ...]
    rows: int
    """Rows of all of them."""
    drop: int
    """Rows at its start, in the order below, that were read before."""
    key: tuple[int, ...] | None
    """Seeds the order of its rows; None leaves them as they are."""

    def order(self) -> Any:
        """Return the rows that are still to be read, in order."""
        import numpy as np

        if self.key is None:
            return np.arange(self.drop, self.rows)
        return np.random.default_rng(self.key).permutation(self.rows)[self.drop :]


def windows(
    sizes: Sequence[int],
    *,
    buffer_rows: int,
    seed: int | None,
    epoch: int = 0,
    skip_rows: int = 0,
) -> Iterator[Window]:
    """Yield the windows of an epoch that are not wholly skipped.

    Args:
        sizes: Rows of each block.
        buffer_rows: A window is closed once it holds as many. It holds one block at least.
        seed: None reads everything in the order in which it is stored.
        epoch: Each has an order of its own.
        skip_rows: Leave out so many rows, counted in this order.

    Example:
        >>> [w.blocks for w in windows([4, 4, 4, 2], buffer_rows=8, seed=None)]
        [(0, 1), (2, 3)]
        >>> [(w.blocks, w.drop) for w in windows([4, 4, 4], buffer_rows=4, seed=None, skip_rows=5)]
        [((1,), 1), ((2,), 0)]
    """
    order: Any = range(len(sizes))
    if seed is not None:
        import numpy as np

        order = np.random.default_rng((seed, epoch)).permutation(len(sizes))
    passed = number = rows = 0
    blocks: list[int] = []
    for index, block in enumerate(order):
        blocks.append(int(block))
        rows += sizes[block]
        if rows < buffer_rows and index < len(sizes) - 1:
            continue
        if passed + rows > skip_rows:
            key = None if seed is None else (seed, epoch, number)
            yield Window(tuple(blocks), rows, max(0, skip_rows - passed), key)
        passed, number = passed + rows, number + 1
        blocks, rows = [], 0
