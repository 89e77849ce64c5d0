"""Read TensorFlow Datasets folders: `dataset_info.json` and `features.json`.

The first file gives the samples of each split, shard by shard; the second the shape and dtype of
each feature. The part describes the largest feature; where there are several, `memory_bytes` covers
them all. Where shapes have an open axis, as of images of many sizes, or a feature is text, the
records of the split's first shard stand for all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from oomdoctor.inventory import records
from oomdoctor.inventory.described import axes, read_json, read_known, whole_number
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.opening import entries_of, join, size_of
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.units import DTYPE_BYTES, element_count

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN_NOTE = "features.json leaves shapes open, and no shard tells them"

_INFO_LIMIT_BYTES = 4 * 1024 * 1024
_FEATURES_LIMIT_BYTES = 1024 * 1024
_SPLIT_LIMIT = 1000
_DEPTH_LIMIT = 16
_FEATURE_LIMIT = 10_000
_SHARD_LIMIT = 1_000_000
_SIZE_LIMIT_BYTES = 2**50
# In JSON a feature names its kind by the key of its details.
_SHAPED = ("image", "tensor", "video", "audio", "boundingBox")
_DEFAULT_DTYPE = {"image": "uint8", "video": "uint8", "audio": "int64", "boundingBox": "float32"}


class Split(msgspec.Struct, rename="camel"):
    """What is needed of a split."""

    name: str = ""
    shard_lengths: list[str | int] = []


class Info(msgspec.Struct):
    """What is needed of `dataset_info.json`."""

    splits: list[Split] = []


@dataclass(frozen=True, slots=True)
class _Feature:
    shape: tuple[int, ...] | None
    """None where an axis is open, and for text."""
    dtype: str | None

    @property
    def size_bytes(self) -> int | None:
        if self.shape is None or self.dtype is None:
            return None
        return element_count(self.shape) * DTYPE_BYTES[self.dtype]


def read_folder(path: str) -> Iterator[Part]:
    """Yield one part for each split, named by it."""
    with sizing("a TFDS folder"):
        info = read_known(join(path, "dataset_info.json"), Info, limit_bytes=_INFO_LIMIT_BYTES)
        description = read_json(join(path, "features.json"), limit_bytes=_FEATURES_LIMIT_BYTES)
        if len(info.splits) > _SPLIT_LIMIT:
            raise Unreadable(f"description has more than {_SPLIT_LIMIT:,} splits")
        features = list(islice(_features(description, (), 0), _FEATURE_LIMIT))
        is_open = any(feature.size_bytes is None for feature in features)
        shards = _first_shards(path) if is_open or not features else None
        parts = []
        for split in {split.name: split for split in info.splits}.values():
            samples = _samples(split)
            if shards is not None:
                parts.append(_part_like(shards.get(split.name), split.name, samples))
            else:
                parts.append(_part(features, split.name, samples))
        if not parts:
            raise Unreadable("a TFDS folder without splits")
        yield from parts


def _samples(split: Split) -> int:
    counts = [whole_number(length) for length in split.shard_lengths]
    if min(counts, default=0) < 0:
        raise Unreadable("description has a size that is no size")
    return sum(counts)


def _part(features: list[_Feature], name: str, samples: int) -> Part:
    largest = max(features, key=lambda feature: feature.size_bytes or 0)
    sample_bytes = sum(feature.size_bytes or 0 for feature in features)
    if samples * max(1, sample_bytes) > _SIZE_LIMIT_BYTES:
        raise Unreadable("header claims more data than any machine holds")
    return Part(
        format="tfds",
        kind="record",
        samples=samples,
        shape=largest.shape,
        elements=samples * element_count(largest.shape or ()),
        dtype=largest.dtype,
        name=name,
        memory_bytes=samples * sample_bytes if len(features) > 1 else None,
        is_compressed=True,  # framed, and images encoded
    )


def _part_like(shard: str | None, name: str, samples: int) -> Part:
    """Return the part of a split, every sample sized as those of its first shard."""
    if samples > _SIZE_LIMIT_BYTES:
        raise Unreadable("header claims more data than any machine holds")
    unknown = Part(
        format="tfds",
        kind="record",
        samples=samples,
        shape=None,
        elements=None,
        dtype=None,
        name=name,
        is_compressed=True,
        is_exact=False,
        note=OPEN_NOTE,
    )
    if shard is None:
        return unknown
    try:
        (seen,) = records.read(shard, size_of(shard))
    except Unreadable:
        return unknown

    def scaled(count: int | None) -> int | None:
        return None if count is None or not seen.samples else count * samples // seen.samples

    is_sized = seen.elements is not None
    return replace(
        unknown,
        shape=seen.shape,
        elements=scaled(seen.elements),
        dtype=seen.dtype,
        memory_bytes=scaled(seen.memory_bytes),
        low_elements=scaled(seen.low_elements),
        high_elements=scaled(seen.high_elements),
        note=None if is_sized else OPEN_NOTE,
    )


def _first_shards(path: str) -> dict[str, str]:
    """Return each split's first shard by name, as in `mnist-train.tfrecord-00000-of-00010`."""
    first: dict[str, str] = {}
    for name, is_folder in islice(entries_of(path), _SHARD_LIMIT):
        dataset_and_split, mark, _ = name.partition(".tfrecord")
        split = dataset_and_split.rpartition("-")[2]
        if mark and not is_folder:
            shard = join(path, name)
            first[split] = min(first.get(split, shard), shard)
    return first


def _features(description: object, outer: tuple[int, ...], depth: int) -> Iterator[_Feature]:
    """Yield the features in a description; `outer` are the axes of the sequences around it."""
    if depth > _DEPTH_LIMIT or not isinstance(description, dict):
        raise Unreadable("features.json is not a description of features")
    if "content" in description:  # written before TFDS 4.5
        yield from _features(_older(description), outer, depth + 1)
        return
    inner = description.get("featuresDict") or description.get("features")
    if isinstance(inner, dict):
        for child in inner.get("features", inner).values():
            yield from _features(child, outer, depth + 1)
    elif isinstance(sequence := description.get("sequence"), dict):
        length = whole_number(sequence.get("length", -1))
        yield from _features(sequence.get("feature"), (*outer, length), depth + 1)
    elif "classLabel" in description:
        yield _feature(outer, "int64")
    else:
        for kind in _SHAPED:
            if isinstance(details := description.get(kind), dict):
                sizes = (details.get("shape") or {}).get("dimensions") or ()
                shape = (*outer, *axes(sizes))
                yield _feature(shape, details.get("dtype") or _DEFAULT_DTYPE.get(kind))
                return
        yield _Feature(None, None)


def _older(description: dict[str, Any]) -> dict[str, Any]:
    """Return the description inside the older form, which wrapped it once more."""
    content = description["content"]
    if isinstance(content, str):
        content = json.loads(content)
    return content if isinstance(content, dict) else {}


def _feature(shape: tuple[int, ...], dtype: object) -> _Feature:
    name = dtype if isinstance(dtype, str) and dtype in DTYPE_BYTES else None
    return _Feature(None if -1 in shape else shape, name)
