"""Adds up what readers found into groups, in memory that does not grow with the files.

A group is what a person would name in one breath: the images of the training split, the
array `x_train`, the shards `part-*.npy`. Files that differ only in digits are one group.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.facts import FileGroup, Skipped
from oomdoctor.inventory.finish import estimated, finish, mark_targets
from oomdoctor.inventory.group import Group, GroupKey, Shape, plus
from oomdoctor.inventory.parts import Part
from oomdoctor.inventory.sampling import StratumRead
from oomdoctor.units import element_count

MAX_GROUPS = 500
MAX_EXAMPLES = 3


class Tally:
    """Groups that grow as files are read."""

    def __init__(self, *, is_part: bool = False) -> None:
        """Start empty.

        Args:
            is_part: It covers a few files and is merged into another, which bounds the groups.
        """
        self._groups: dict[GroupKey, Group] = {}
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

    def _group(self, key: GroupKey) -> Group:
        most = self._most_groups
        if most is not None and key not in self._groups and len(self._groups) >= most:
            key = GroupKey(key.format, key.kind, key.split, "(other files)", key.dtype)
        return self._groups.setdefault(key, Group())

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
        group.samples = plus(group.samples, part.samples)
        group.elements = plus(group.elements, part.elements)
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
            estimated(finish(key, group), self._strata.get(key, ()))
            for key, group in self._groups.items()
        ]
        groups = mark_targets(groups)
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
