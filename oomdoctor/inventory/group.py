"""What the files of one group add up to, in memory that does not grow with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeVar

from oomdoctor.units import element_count

MAX_DISTINCT_SHAPES = 10_000
MAX_CLASSES = 10_000
MAX_NOTES = 5

Shape = tuple[int, ...]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What files must share to be one group."""

    format: str
    kind: str
    split: str | None
    label: str
    dtype: str | None


@dataclass(slots=True)
class Group:
    """The sums of one group's files."""

    files: int = 0
    samples: int | None = 0
    stored_bytes: int = 0
    elements: int | None = 0
    low_elements: int = 0
    high_elements: int = 0
    squares: int = 0
    """Sum of squared elements per file, for the interval when files are sampled. Whole, so that
    it is the same in whatever order parts are added up."""
    memory_bytes: int | None = None
    shapes: dict[Shape, int] = field(default_factory=dict)
    whole_shapes: dict[Shape, int] = field(default_factory=dict)
    shapes_are_all: bool = True
    octaves: dict[int, int] = field(default_factory=dict)
    """Half octaves of the number of elements → samples; at most 128, whatever is read."""
    largest: tuple[int, Shape, str] | None = None
    smallest: tuple[int, Shape] | None = None
    classes: dict[str, int] = field(default_factory=dict)
    is_compressed: bool = False
    is_exact: bool = True
    notes: list[str] = field(default_factory=list)

    def merge(self, other: Group) -> None:
        """Add what another group of the same key saw after this one."""
        self.files += other.files
        self.samples = plus(self.samples, other.samples)
        self.stored_bytes += other.stored_bytes
        self.elements = plus(self.elements, other.elements)
        self.low_elements += other.low_elements
        self.high_elements += other.high_elements
        self.squares += other.squares
        if other.memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + other.memory_bytes
        if other.largest and (self.largest is None or other.largest[0] > self.largest[0]):
            self.largest = other.largest
        if other.smallest and (self.smallest is None or other.smallest[0] < self.smallest[0]):
            self.smallest = other.smallest
        self.shapes_are_all &= other.shapes_are_all
        for shape, count in other.shapes.items():
            self.count_shape(shape, count)
        for shape, count in other.whole_shapes.items():
            self.count_whole_shape(shape, count)
        for octave, count in other.octaves.items():
            self.octaves[octave] = self.octaves.get(octave, 0) + count
        for name, count in other.classes.items():
            self.count_class(name, count)
        self.is_compressed |= other.is_compressed
        self.is_exact &= other.is_exact
        for note in other.notes:
            self.see_note(note)

    def scaled(self, factor: float) -> Group:
        """Return the group that many like this would make, for what was read of a sample."""

        def times(count: int | None) -> int | None:
            return None if count is None else round(count * factor)

        def each(counts: dict[_Key, int]) -> dict[_Key, int]:
            return {key: max(1, round(count * factor)) for key, count in counts.items()}

        return replace(
            self,
            files=round(self.files * factor),
            samples=times(self.samples),
            stored_bytes=round(self.stored_bytes * factor),
            elements=times(self.elements),
            low_elements=round(self.low_elements * factor),
            high_elements=round(self.high_elements * factor),
            memory_bytes=times(self.memory_bytes),
            shapes=each(self.shapes),
            whole_shapes=each(self.whole_shapes),
            classes=each(self.classes),
            octaves=each(self.octaves),
        )

    def see_note(self, note: str | None) -> None:
        """Keep a sentence for the report, if it is new."""
        if note and note not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(note)

    def see_shape(self, shape: Shape, count: int, path: str) -> None:
        """Count samples of a shape, one of which is at a path."""
        size = element_count(shape)
        if self.largest is None or size > self.largest[0]:
            self.largest = (size, shape, path)
        if self.smallest is None or size < self.smallest[0]:
            self.smallest = (size, shape)
        octave = half_octave(size)
        self.octaves[octave] = self.octaves.get(octave, 0) + count
        self.count_shape(shape, count)

    def count_shape(self, shape: Shape, count: int) -> None:
        """Count samples of a shape, of so many shapes at most."""
        if shape in self.shapes or len(self.shapes) < MAX_DISTINCT_SHAPES:
            self.shapes[shape] = self.shapes.get(shape, 0) + count
        else:
            self.shapes_are_all = False

    def count_whole_shape(self, shape: Shape, count: int) -> None:
        """Count files by the whole shape of their array."""
        if shape in self.whole_shapes or len(self.whole_shapes) < MAX_DISTINCT_SHAPES:
            self.whole_shapes[shape] = self.whole_shapes.get(shape, 0) + count

    def count_class(self, name: str, count: int) -> None:
        """Count samples of a class, of so many classes at most."""
        if name in self.classes or len(self.classes) < MAX_CLASSES:
            self.classes[name] = self.classes.get(name, 0) + count


def half_octave(elements: int) -> int:
    """Return which half octave a number of elements is in.

    Example:
        >>> [half_octave(size) for size in (1, 2, 3, 4, 1024)]
        [0, 2, 3, 4, 20]
    """
    return min(127, int(2 * math.log2(max(1, elements)) + 1e-9))


def plus(total: int | None, more: int | None) -> int | None:
    """Return a sum; one unknown part makes it unknown."""
    # A partial sum would look like an answer.
    return None if total is None or more is None else total + more
