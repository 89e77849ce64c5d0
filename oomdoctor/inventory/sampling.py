"""Scale up from a random sample of files, with an interval.

The interval is the mean's 95 % normal interval with the finite-population correction. It speaks
of the total; the largest sample of all may well lie outside the files that were read.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Generic, TypeVar

from oomdoctor.facts import FileGroup

Z_95 = 1.96

Item = TypeVar("Item")


class Reservoir(Generic[Item]):
    """A uniform random sample of fixed size from a stream of unknown length."""

    def __init__(self, size: int, *, seed: int = 0) -> None:
        self.items: list[Item] = []
        self.seen = 0
        self._size = size
        # Seeded, so that two scans of an unchanged folder agree.
        self._random = random.Random(seed)

    def add(self, item: Item) -> None:
        """Offer one item."""
        self.seen += 1
        if len(self.items) < self._size:
            self.items.append(item)
            return
        place = self._random.randrange(self.seen)
        if place < self._size:
            self.items[place] = item


def scale_up(group: FileGroup, *, total_files: int, squares: float) -> FileGroup:
    """Return a group that was read from some files as an estimate for all of them.

    Args:
        group: What the files that were read add up to.
        total_files: How many files there are.
        squares: Sum of the squared elements of each file read.
    """
    read = group.files
    if read == 0 or total_files <= read:
        return group
    factor = total_files / read
    low = high = None
    if group.elements is not None:
        mean = group.elements / read
        variance = max(0.0, squares / read - mean**2) * (read / max(1, read - 1))
        correction = math.sqrt((total_files - read) / max(1, total_files - 1))
        margin = Z_95 * math.sqrt(variance / read) * correction * total_files
        # What was read is there for certain, so the low end never falls below it.
        low = max(group.elements, math.floor(mean * total_files - margin))
        high = math.ceil(mean * total_files + margin)
    return replace(
        group,
        files=total_files,
        samples=None if group.samples is None else round(group.samples * factor),
        stored_bytes=round(group.stored_bytes * factor),
        elements=None if group.elements is None else round(group.elements * factor),
        memory_bytes=None if group.memory_bytes is None else round(group.memory_bytes * factor),
        classes=tuple((name, round(count * factor)) for name, count in group.classes),
        is_exact=False,
        low_elements=low,
        high_elements=high,
        notes=(*group.notes, f"Told from {read:,} of {total_files:,} files."),
    )
