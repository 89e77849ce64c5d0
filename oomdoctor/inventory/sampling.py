"""Read some of the files, chosen at random by folder and size, and estimate the rest.

Files of a group are put into strata: by folder where there are few folders, and by the power of
two of their stored size. Each stratum is sampled on its own, more where files are many and large,
since that is where the sum can vary. The interval is that of a stratified mean: Student's t with
the degrees of freedom of Welch and Satterthwaite, and the correction for finite populations. It
speaks of the total; the largest sample of all may well be outside the files that were read.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

LEAST_IN_STRATUM = 4
"""Files to read of each stratum, so that their spread can be seen."""

Item = TypeVar("Item")
Stratum = tuple[str, int]
"""A folder, and the power of two of the stored bytes."""


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

    def some(self, count: int) -> list[Item]:
        """Return a uniform random part of the sample."""
        if count >= len(self.items):
            return list(self.items)
        return random.Random(len(self.items)).sample(self.items, count)


@dataclass(slots=True)
class GroupSample(Generic[Item]):
    """A sample of one group's files, by stratum."""

    size: int
    """Files to read."""
    strata: dict[Stratum, Reservoir[Item]] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """Files of the group."""
        return sum(reservoir.seen for reservoir in self.strata.values())

    def add(self, folder: str, size_bytes: int | None, item: Item) -> None:
        """Offer a file."""
        power = (size_bytes or 0).bit_length()
        stratum = (folder, power)
        if stratum not in self.strata and 2 * LEAST_IN_STRATUM * len(self.strata) >= self.size:
            stratum = ("", power)  # folders are too many to be sampled one by one
        if stratum not in self.strata:
            self.strata[stratum] = Reservoir(self.size, seed=len(self.strata))
        self.strata[stratum].add(item)

    def chosen(self) -> dict[Stratum, list[Item]]:
        """Return the files to read of each stratum."""
        counts = allocate({key: one.seen for key, one in self.strata.items()}, self.size)
        return {key: one.some(counts[key]) for key, one in self.strata.items()}


def allocate(seen: dict[Stratum, int], size: int) -> dict[Stratum, int]:
    """Return how many files to read of each stratum.

    In proportion to their number times their size, since the spread within a stratum grows with the
    size of its files; at least a few of each, so that their spread can be seen.

    Example:
        >>> allocate({("a", 10): 1000, ("a", 12): 1000}, 100)
        {('a', 10): 20, ('a', 12): 80}
    """
    weights = {key: count * 2.0 ** key[1] for key, count in seen.items()}
    whole = sum(weights.values()) or 1.0
    return {
        key: min(count, max(LEAST_IN_STRATUM, round(size * weights[key] / whole)))
        for key, count in seen.items()
    }


@dataclass(frozen=True, slots=True)
class StratumRead:
    """What reading a part of a stratum gave."""

    seen: int
    """Files of the stratum."""
    read: int
    """Files of it that were read, or tried."""
    found: int
    """Files among these that belong to the group; the others count as nothing."""
    elements: int
    squares: int


def interval_of(strata: Sequence[StratumRead]) -> tuple[float, float]:
    """Return the estimated total over all strata, and the half-width of its 95 % interval."""
    total = variance = freedom_below = 0.0
    for one in strata:
        mean = one.elements / one.read
        total += mean * one.seen
        if one.read < 2 or one.read >= one.seen:
            continue
        spread = max(0.0, (one.squares - one.read * mean**2) / (one.read - 1))
        part = one.seen**2 * (1 - one.read / one.seen) * spread / one.read
        variance += part
        freedom_below += part**2 / (one.read - 1)
    if not variance:
        return total, 0.0
    return total, student(variance**2 / freedom_below) * math.sqrt(variance)


def student(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, by the series of Cornish and Fisher.

    Example:
        >>> round(student(10), 2), round(student(1e9), 2)
        (2.23, 1.96)
    """
    z, n = 1.959964, max(1.0, freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
