"""The data as it is stored: groups of files or of live objects, read from headers."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeSpread:
    """How the shapes of one group's samples are spread, ordered by number of elements."""

    smallest: tuple[int, ...]
    median: tuple[int, ...]
    largest: tuple[int, ...]
    most_common: tuple[int, ...]
    distinct: int
    is_exact: bool = True
    """False when there were too many distinct shapes to keep them all."""
    sizes: tuple[tuple[int, int], ...] = ()
    """A histogram: pairs of the fewest elements of a half octave and the samples in it. The next
    half octave begins at about 1.41 times as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files of one format, one split and one kind of sample, as they are stored on disk."""

    name: str
    """A path relative to the root, or the array's name inside its file."""
    format: str
    """`image`, `npy`, `npz`, `tfrecord`, `hdf5`, `csv`, `parquet`, `arrow`, `wav`, `text`,
    `jsonl`, `tfds`, `zarr`, or a live object's kind: `array`, `memmap`, `frame`, `dataset`."""
    kind: str
    """What a loader makes of it: `image`, `array`, `table`, `audio`, `text`, `record`."""
    files: int
    samples: int | None
    stored_bytes: int
    elements: int | None
    """Decoded elements of all samples together, at native size."""
    dtype: str | None
    """Of the decoded elements; None where they cannot be sized safely."""
    split: str | None = None
    """`train`, `validation` or `test` where a folder or file name says so."""
    role: str = "inputs"
    """`inputs`, or `targets` for labels that lie beside them and are not counted as samples."""
    classes: tuple[tuple[str, int], ...] = ()
    """Class folders with the samples in each, by name."""
    shapes: ShapeSpread | None = None
    largest_sample: str | None = None
    """Path of the sample with the most elements."""
    is_compressed: bool = False
    """True where the bytes on disk cannot be memory-mapped as they are."""
    is_exact: bool = True
    """False when counted from a sample of the files, or estimated from a part of one."""
    low_elements: int | None = None
    high_elements: int | None = None
    """The interval for `elements` when they are not exact."""
    memory_bytes: int | None = None
    """Bytes in memory where the element width does not give them (text columns, strings)."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Files that were passed over, and why."""

    reason: str
    files: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inventory(Readable):
    """What is stored under the given paths, read from headers."""

    root: str
    groups: tuple[FileGroup, ...]
    files: int
    stored_bytes: int
    skipped: tuple[Skipped, ...] = ()
    is_exact: bool = True
    is_complete: bool = True
    """False when the scan was interrupted: the figures cover what was seen so far."""
    notes: tuple[str, ...] = ()

    @property
    def samples(self) -> int | None:
        """Samples of all groups; labels beside their inputs are not counted again."""
        counts = [group.samples for group in self.groups if group.role == "inputs"]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None
