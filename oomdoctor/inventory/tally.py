"""Adds up what readers found into groups, in memory that does not grow with the files.

A group is what a person would name in one breath: the images of the training split, the
array `x_train`, the shards `part-*.npy`. Files that differ only in digits are one group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from oomdoctor.facts import FileGroup, ShapeSpread, Skipped
from oomdoctor.inventory.parts import Part
from oomdoctor.inventory.sampling import StratumRead, interval_of
from oomdoctor.units import element_count

MAX_DISTINCT_SHAPES = 10_000
MAX_CLASSES = 10_000
MAX_GROUPS = 500
MAX_EXAMPLES = 3
MAX_NOTES = 5
MAX_SUFFIX = 8
"""Longer than any format's own suffix: what follows the last dot is then a shard's number."""

ONE_FILE_PER_SAMPLE = 64
"""From this many like arrays of rank three or less, each file is taken to be one sample."""

_SPLITS = {
    "train": "train",
    "training": "train",
    "trn": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "tst": "test",
}
_TARGETS = frozenset(("y", "label", "labels", "target", "targets", "ys"))
_DIGITS = re.compile(r"\d+")
_NOT_LETTERS = re.compile(r"[^a-z]+")

Shape = tuple[int, ...]
_Key = TypeVar("_Key")


def words(name: str) -> list[str]:
    """Return the lower-case words of a file, folder or array name."""
    return [word for word in _NOT_LETTERS.split(name.lower()) if word]


def split_of(name: str) -> str | None:
    """Return the split a name speaks of, if any."""
    return next((_SPLITS[word] for word in words(name) if word in _SPLITS), None)


def place_of(parts: tuple[str, ...]) -> tuple[str | None, str, str | None]:
    """Return the split, the folder down to it, and the class that a folder's path names."""
    for depth, part in enumerate(parts):
        if part.lower() in _SPLITS:
            below = parts[depth + 1 :]
            return _SPLITS[part.lower()], "/".join(parts[: depth + 1]), below[0] if below else None
    return None, ".", parts[0] if parts else None


def shard_name(name: str) -> str:
    """Return a file name with its numbers as `*`, alike for all shards of one set.

    Example:
        >>> shard_name("part-00017.h5"), shard_name("a.tfrecord-00000-of-00010")
        ('part-*.h5', 'a.tfrecord-*-of-*')
    """
    stem, dot, suffix = name.rpartition(".")
    if dot and len(suffix) <= MAX_SUFFIX:
        return _DIGITS.sub("*", stem) + dot + suffix
    return _DIGITS.sub("*", name)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """What files must share to be one group."""

    format: str
    kind: str
    split: str | None
    label: str
    dtype: str | None


@dataclass(slots=True)
class _Group:
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

    def merge(self, other: _Group) -> None:
        """Add what another group of the same key saw after this one."""
        self.files += other.files
        self.samples = _plus(self.samples, other.samples)
        self.stored_bytes += other.stored_bytes
        self.elements = _plus(self.elements, other.elements)
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

    def scaled(self, factor: float) -> _Group:
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
        if note and note not in self.notes and len(self.notes) < MAX_NOTES:
            self.notes.append(note)

    def see_shape(self, shape: Shape, count: int, path: str) -> None:
        size = element_count(shape)
        if self.largest is None or size > self.largest[0]:
            self.largest = (size, shape, path)
        if self.smallest is None or size < self.smallest[0]:
            self.smallest = (size, shape)
        octave = _half_octave(size)
        self.octaves[octave] = self.octaves.get(octave, 0) + count
        self.count_shape(shape, count)

    def count_shape(self, shape: Shape, count: int) -> None:
        if shape in self.shapes or len(self.shapes) < MAX_DISTINCT_SHAPES:
            self.shapes[shape] = self.shapes.get(shape, 0) + count
        else:
            self.shapes_are_all = False

    def count_whole_shape(self, shape: Shape, count: int) -> None:
        if shape in self.whole_shapes or len(self.whole_shapes) < MAX_DISTINCT_SHAPES:
            self.whole_shapes[shape] = self.whole_shapes.get(shape, 0) + count

    def count_class(self, name: str, count: int) -> None:
        if name in self.classes or len(self.classes) < MAX_CLASSES:
            self.classes[name] = self.classes.get(name, 0) + count


def _half_octave(elements: int) -> int:
    """Return which half octave a number of elements is in.

    Example:
        >>> [_half_octave(size) for size in (1, 2, 3, 4, 1024)]
        [0, 2, 3, 4, 20]
    """
    return min(127, int(2 * math.log2(max(1, elements)) + 1e-9))


class Tally:
    """Groups that grow as files are read."""

    def __init__(self, *, is_part: bool = False) -> None:
        """Start empty.

        Args:
            is_part: It covers a few files and is merged into another, which bounds the groups.
        """
        self._groups: dict[GroupKey, _Group] = {}
        self._skipped: dict[str, tuple[int, list[str]]] = {}
        self._most_groups = None if is_part else MAX_GROUPS
        self._strata: dict[GroupKey, list[StratumRead]] = {}

    def merge(self, other: Tally) -> None:
        """Add what a tally of the files that come next has seen."""
        for key, group in other._groups.items():
            self._group(key).merge(group)
        for reason, (count, examples) in other._skipped.items():
            known, before = self._skipped.get(reason, (0, []))
            self._skipped[reason] = (known + count, sorted([*before, *examples])[:MAX_EXAMPLES])

    def merge_sample(self, other: Tally, *, seen: int, read: int) -> None:
        """Add a stratum of which only some files were read, as an estimate for all of them.

        Args:
            other: What these files hold.
            seen: Files of the stratum.
            read: Files of it that were read, or tried.
        """
        for key, group in other._groups.items():
            self._group(key).merge(group.scaled(seen / read))
            stratum = StratumRead(seen, read, group.files, group.elements or 0, group.squares)
            self._strata.setdefault(key, []).append(stratum)
        for reason, (count, examples) in other._skipped.items():
            for path in examples:
                self.skip(reason, path, files=0)
            self.skip(reason, "", files=round(count * seen / read))

    def _group(self, key: GroupKey) -> _Group:
        most = self._most_groups
        if most is not None and key not in self._groups and len(self._groups) >= most:
            key = GroupKey(key.format, key.kind, key.split, "(other files)", key.dtype)
        return self._groups.setdefault(key, _Group())

    def add_images(
        self,
        key: GroupKey,
        shapes: Iterable[tuple[Shape, int, str]],
        *,
        files: int,
        stored_bytes: int,
        class_name: str | None,
        note: str | None = None,
        is_exact: bool = True,
    ) -> None:
        """Add images of one folder or archive: shapes, how many have each, and one path."""
        group = self._group(key)
        group.files += files
        group.stored_bytes += stored_bytes
        group.is_exact &= is_exact
        group.see_note(note)
        for shape, count, path in shapes:
            elements = element_count(shape)
            group.samples = (group.samples or 0) + count
            group.elements = (group.elements or 0) + elements * count
            group.squares += elements**2 * count
            group.see_shape(shape, count, path)
            if class_name is not None:
                group.count_class(class_name, count)

    def add_part(
        self, key: GroupKey, part: Part, *, path: str, stored_bytes: int, files: int
    ) -> None:
        """Add one array, table or record file; `files` is 0 for all but a file's first part."""
        group = self._group(key)
        group.files += files
        group.stored_bytes += stored_bytes
        group.samples = _plus(group.samples, part.samples)
        group.elements = _plus(group.elements, part.elements)
        group.low_elements += part.low_elements or part.elements or 0
        group.high_elements += part.high_elements or part.elements or 0
        group.squares += (part.elements or 0) ** 2
        if part.memory_bytes is not None:
            group.memory_bytes = (group.memory_bytes or 0) + part.memory_bytes
        if part.shape is not None and part.samples:
            group.see_shape(part.shape, part.samples, path)
            group.count_whole_shape((part.samples, *part.shape), 1)
        group.is_compressed |= part.is_compressed
        group.is_exact &= part.is_exact
        group.see_note(part.note)

    def skip(self, reason: str, path: str, *, files: int = 1) -> None:
        """Count a file that was passed over; the first few by name are kept as examples."""
        count, examples = self._skipped.get(reason, (0, []))
        if path:
            examples = sorted([*examples, path])[:MAX_EXAMPLES]
        self._skipped[reason] = (count + files, examples)

    def skipped(self) -> tuple[Skipped, ...]:
        """Return what was passed over, by reason."""
        return tuple(
            Skipped(reason=reason, files=count, examples=tuple(examples))
            for reason, (count, examples) in sorted(self._skipped.items())
        )

    def groups(self) -> tuple[FileGroup, ...]:
        """Return the finished groups, the largest first within each split."""
        groups = [
            _estimated(_finish(key, group), self._strata.get(key, ()))
            for key, group in self._groups.items()
        ]
        groups = _mark_targets(groups)
        order = {"train": 0, None: 1, "validation": 2, "test": 3}
        return tuple(
            sorted(
                groups,
                key=lambda g: (
                    *(order[g.split], -(g.elements or 0), g.name),
                    *(g.format, g.kind, g.dtype or ""),
                ),
            )
        )


def _plus(total: int | None, more: int | None) -> int | None:
    # One unknown part makes the sum unknown: a partial sum would look like an answer.
    return None if total is None or more is None else total + more


def _finish(key: GroupKey, group: _Group) -> FileGroup:
    notes = list(group.notes)
    samples, shapes = group.samples, group.shapes
    if (
        key.format == "npy"
        and group.files >= ONE_FILE_PER_SAMPLE
        and all(len(shape) <= 3 for shape in group.whole_shapes)
    ):
        samples, shapes = group.files, group.whole_shapes
        notes.append("Each file is taken to be one sample, because there are many alike.")
    return FileGroup(
        name=key.label,
        format=key.format,
        kind=key.kind,
        files=group.files,
        samples=samples,
        stored_bytes=group.stored_bytes,
        elements=group.elements,
        dtype=key.dtype,
        split=key.split,
        classes=tuple(sorted(group.classes.items())),
        shapes=_spread(shapes, group),
        largest_sample=group.largest[2] if group.largest else None,
        is_compressed=group.is_compressed,
        is_exact=group.is_exact,
        low_elements=None if group.is_exact else group.low_elements,
        high_elements=None if group.is_exact else group.high_elements,
        memory_bytes=group.memory_bytes,
        notes=tuple(notes),
    )


def _estimated(group: FileGroup, strata: Sequence[StratumRead]) -> FileGroup:
    """Return a group as an estimate, if only some of its files were read."""
    if all(one.read >= one.seen for one in strata):
        return group
    found = sum(one.found for one in strata)
    note = f"Estimated from {found:,} of {group.files:,} files."
    shapes = group.shapes and replace(group.shapes, is_exact=False)
    estimated = replace(group, is_exact=False, shapes=shapes, notes=(*group.notes, note))
    if group.elements is None:
        return estimated
    total, margin = interval_of(strata)
    # What was read is there for certain, so the low end never falls below it.
    low = max(sum(one.elements for one in strata), math.floor(total - margin))
    return replace(
        estimated,
        elements=round(total),
        low_elements=low,
        high_elements=max(low, math.ceil(total + margin)),
    )


def _spread(shapes: dict[Shape, int], group: _Group) -> ShapeSpread | None:
    if not shapes or group.smallest is None or group.largest is None:
        return None
    ordered = sorted(shapes, key=lambda shape: (element_count(shape), shape))
    middle = sum(shapes.values()) / 2
    median, seen = ordered[0], 0
    for shape in ordered:
        seen += shapes[shape]
        if seen >= middle:
            median = shape
            break
    whole = shapes is group.shapes
    octaves = group.octaves if whole else {}
    if not whole:
        for shape, count in shapes.items():
            octave = _half_octave(element_count(shape))
            octaves[octave] = octaves.get(octave, 0) + count
    return ShapeSpread(
        smallest=group.smallest[1] if whole else ordered[0],
        median=median,
        largest=group.largest[1] if whole else ordered[-1],
        most_common=max(ordered, key=lambda shape: shapes[shape]),
        distinct=len(shapes),
        is_exact=group.shapes_are_all,
        sizes=tuple((math.ceil(2 ** (key / 2) - 1e-9), octaves[key]) for key in sorted(octaves)),
    )


def _mark_targets(groups: list[FileGroup]) -> list[FileGroup]:
    """Mark labels that lie beside their inputs, so that samples are counted once."""
    arrays = [group for group in groups if group.kind == "array" and group.samples]

    def is_target(group: FileGroup) -> bool:
        if group not in arrays:
            return False
        beside = [
            other
            for other in arrays
            if other is not group
            and other.samples == group.samples
            and other.split == group.split
            and _folder(other) == _folder(group)
            and (other.elements or 0) >= (group.elements or 0)
            and not _named_target(other)
        ]
        flat = group.shapes is None or len(group.shapes.most_common) <= 1
        return bool(beside) and (
            _named_target(group) or (flat and any(_rank(o) > 1 for o in beside))
        )

    return [replace(group, role="targets") if is_target(group) else group for group in groups]


def _folder(group: FileGroup) -> str:
    path = group.name.partition(":")[0]
    # Arrays of one .npz share the file, .npy files share the folder.
    return path if ":" in group.name else path.rpartition("/")[0]


def _rank(group: FileGroup) -> int:
    return len(group.shapes.most_common) if group.shapes else 0


def _named_target(group: FileGroup) -> bool:
    name = group.name.rpartition(":")[2] if ":" in group.name else group.name.rpartition("/")[2]
    return any(word in _TARGETS for word in words(name))
