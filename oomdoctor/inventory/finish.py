"""The sums of a group → the facts about it, and which groups are labels of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from oomdoctor.facts import FileGroup, ShapeSpread
from oomdoctor.inventory.group import Group, GroupKey, Shape, half_octave
from oomdoctor.inventory.names import words
from oomdoctor.inventory.sampling import StratumRead, interval_of
from oomdoctor.units import element_count

ONE_FILE_PER_SAMPLE = 64
"""From this many like arrays of rank three or less, each file is taken to be one sample."""

_TARGETS = frozenset(("y", "label", "labels", "target", "targets", "ys"))


def finish(key: GroupKey, group: Group) -> FileGroup:
    """Return the facts about a group of which every file was read."""
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


def estimated(group: FileGroup, strata: Sequence[StratumRead]) -> FileGroup:
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


def _spread(shapes: dict[Shape, int], group: Group) -> ShapeSpread | None:
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
            octave = half_octave(element_count(shape))
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


def mark_targets(groups: list[FileGroup]) -> list[FileGroup]:
    """Mark labels that are beside their inputs, so that samples are counted once."""
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
