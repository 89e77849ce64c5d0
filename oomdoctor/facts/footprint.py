"""The data in memory: bytes by group, by pipeline stage and by the way it is fed."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFootprint:
    """What one group holds in memory once decoded."""

    name: str
    shape: tuple[int, ...] | None
    """Of one sample as it is loaded; None where samples differ."""
    dtype: str | None
    decoded_bytes: int | None
    low_bytes: int | None
    high_bytes: int | None
    native_bytes: int | None
    largest_sample_bytes: int | None
    is_whole: bool
    """Whether this group is loaded whole, or streamed."""
    in_fit: bool
    """Whether `fit` is given it; the test split waits for `evaluate`."""
    split: str | None = None
    is_mapped: bool = False
    """Whether it lies in a memory-mapped file, whose pages need no RAM of their own."""
    can_stack: bool = True
    """False where samples differ in shape, so that they make no array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a tf.data pipeline and what it keeps in RAM."""

    kind: str
    """`tensors`, `generator`, `shuffle`, `cache`, `batch`, `map`, `prefetch`, `interleave` …"""
    label: str
    """The call as a person would write it, such as `shuffle(16283)`."""
    elements: int | None = None
    """Elements it keeps; None when unbounded or unknown."""
    element_bytes: int | None = None
    """One element as it enters this stage; a batch once batched."""
    held_bytes: int | None = None
    """What it keeps in RAM; filled in by `footprint.pipeline`."""
    is_batched: bool = False
    """True when its elements are batches already."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feeding:
    """One way of giving the data to `fit`, and what it needs."""

    way: str
    """`memory` (arrays in RAM, trained on the CPU), `device` (arrays in RAM that `fit` copies
    to the GPU whole), `stream` (batch by batch), or `mixed` where groups are fed differently."""
    ram_bytes: int | None
    vram_bytes: int | None
    """For the data alone: the model comes on top."""
    ram_verdict: str
    """`fits`, `does_not_fit` or `unknown`."""
    vram_verdict: str
    """The same for the GPU; `unknown` where no GPU is known, `fits` where none is needed."""
    detail: str
    """How the bytes come about, in a few words."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Footprint(Readable):
    """Bytes the data takes in memory, by the way it is fed."""

    decoded_bytes: int | None
    """All samples as they are loaded (after --image-size and --dtype)."""
    low_bytes: int | None
    high_bytes: int | None
    """The interval for `decoded_bytes`; both equal to it where it is exact."""
    native_bytes: int | None
    """All samples at their native size, in the same dtype."""
    keras_loader_bytes: int | None
    """Images as `image_dataset_from_directory` gives them by default: 256x256x3 float32.
    None where there are no images."""
    sample_bytes: int | None
    """One sample, on average."""
    largest_sample_bytes: int | None
    batch_bytes: int | None
    """One batch of the largest samples: the largest decides."""
    batch_size: int
    load: str
    """How the data is fed: `memory`, `stream`, or `mixed` where groups differ."""
    groups: tuple[GroupFootprint, ...] = ()
    feedings: tuple[Feeding, ...] = ()
    """The ways compared: memory, device, stream."""
    chosen: Feeding | None = None
    """The way asked for, compared with the machine."""
    recommended: str | None = None
    """The chosen way where it fits, else the fastest that does; None where none of them fits."""
    stages: tuple[Stage, ...] = ()
    """A live tf.data pipeline, stage by stage."""
