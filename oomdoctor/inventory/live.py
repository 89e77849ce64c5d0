"""Arrays, frames and datasets that live in this process, told as an inventory.

Nothing is read, copied or converted: shapes, dtypes and sizes come from the objects themselves.
Objects are known by where their type comes from, so no framework is imported for them. A
`Sequence` or `PyDataset` is only asked for its length, because its first item may load anything.

Of a tuple `(x, y)` or `(x, y, sample_weight)` the first is the inputs, as in Keras. What lies
beside it with the same first axis has the role `targets`: it takes memory and adds no samples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.facts import FileGroup, Inventory, Stage
from oomdoctor.inventory.dataset import read_pipeline
from oomdoctor.inventory.live_groups import (
    array_group,
    array_list_group,
    dataset_groups,
    frame_group,
    sequence_group,
    series_group,
    sparse_group,
)
from oomdoctor.units import DTYPE_BYTES

ACCEPTED = (
    "a path, a NumPy array, a numpy.memmap, a tuple, list or dict of arrays, a pandas DataFrame "
    "or Series, a tf.Tensor, a scipy.sparse matrix, a tf.data.Dataset or a keras.utils.PyDataset"
)

_TARGET_NAMES = frozenset(
    ("y", "label", "labels", "target", "targets", "sample_weight", "sample_weights")
)
_PLACES = ("x", "y", "sample_weight")
_FEW = len(_PLACES)


def is_live(target: object) -> bool:
    """Return whether something is an object to describe rather than a path to scan.

    Example:
        >>> is_live("data/")
        False
    """
    return not isinstance(target, (str, bytes, os.PathLike))


def describe_live(target: object, *, name: str = "data") -> tuple[Inventory, tuple[Stage, ...]]:
    """Return what a live object holds, and the stages of its pipeline if it is one.

    Args:
        target: An array, frame, dataset, or a tuple, list or dict of them.
        name: What to call it in the report.

    Raises:
        UsageError: The object is none of those.
    """
    if not is_live(target):
        raise UsageError(f"{target!r} is a path, not a live object: scan it instead.")
    stages: tuple[Stage, ...] = ()
    if is_dataset(target):
        pipeline = read_pipeline(target)
        stages = pipeline.stages
        groups = dataset_groups(pipeline, name=name)
    else:
        groups = tuple(_groups(target, name=name))
    return (
        Inventory(
            root=name,
            groups=groups,
            files=sum(group.files for group in groups),
            stored_bytes=sum(group.stored_bytes for group in groups),
            is_exact=all(group.is_exact for group in groups),
        ),
        stages,
    )


def is_dataset(target: object) -> bool:
    """Return whether something is a `tf.data.Dataset`, or a distributed one."""
    return _comes_from(target, "tensorflow", "tf_keras") and hasattr(target, "element_spec")


def _groups(target: Any, *, name: str) -> Iterable[FileGroup]:
    if isinstance(target, Mapping):
        return _beside([(str(key), value, _is_target(key)) for key, value in target.items()])
    if isinstance(target, (tuple, list)):
        return _from_sequence(target, name=name)
    return (_group(target, name=name),)


def _group(target: Any, *, name: str) -> FileGroup:
    if _comes_from(target, "scipy") and hasattr(target, "nnz"):
        return sparse_group(target, name=name)
    if _comes_from(target, "pandas") and hasattr(target, "memory_usage"):
        if hasattr(target, "columns"):
            return frame_group(target, name=name)
        if hasattr(target, "index"):
            return series_group(target, name=name)
    if _is_array(target):
        return array_group(target, name=name)
    if _is_item_source(target):
        return sequence_group(target, name=name)
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    raise UsageError(f"Cannot tell the size of a {kind}: hand over {ACCEPTED}.")


def _from_sequence(items: Sequence[Any], *, name: str) -> Iterable[FileGroup]:
    if not items:
        raise UsageError(f"The {type(items).__name__} is empty: hand over {ACCEPTED}.")
    if _is_train_and_test(items):
        return [
            replace(group, name=f"{group.name}_{split}", split=split)
            for split, pair in zip(("train", "test"), items, strict=True)
            for group in _from_sequence(pair, name=name)
        ]
    if isinstance(items, list) and len(items) > _FEW and all(map(_is_array, items)):
        return (array_list_group(items, name=name),)
    if len(items) <= _FEW and (isinstance(items, tuple) or _looks_like_pair(items)):
        named = zip(_PLACES, items, strict=False)
        return _beside([(place, item, place != "x") for place, item in named if item is not None])
    return _beside([(f"{name}[{i}]", item, False) for i, item in enumerate(items)])


def _beside(parts: list[tuple[str, Any, bool]]) -> Iterable[FileGroup]:
    """Yield a group per array; all but the first with the same first axis add no samples."""
    counted: set[int | None] = set()
    # Inputs come first, so that of `{"y": …, "x": …}` it is x that counts.
    for part_name, item, is_target in sorted(parts, key=lambda part: part[2]):
        for group in _groups(item, name=part_name):
            if group.samples is None or group.samples not in counted:
                counted.add(group.samples)
                yield group
                continue
            more = () if is_target else ("one more input beside the first: adds no samples",)
            yield replace(group, role="targets", notes=(*group.notes, *more))


def _is_train_and_test(items: Sequence[Any]) -> bool:
    """Tell `((x_train, y_train), (x_test, y_test))`, what Keras's own `load_data` returns."""
    return len(items) == 2 and all(
        isinstance(pair, (tuple, list)) and len(pair) == 2 and all(map(_is_array, pair))
        for pair in items
    )


def _looks_like_pair(items: Sequence[Any]) -> bool:
    """Tell `[x, y]` from a list of inputs: labels are a column or a few."""
    if len(items) != 2 or not all(map(_is_array, items)) or not _share_first_axis(items):
        return False
    first, second = (tuple(item.shape) for item in items)
    return len(second) <= 2 and len(second) < max(len(first), 2)


def _share_first_axis(items: Sequence[Any]) -> bool:
    return len({int(item.shape[0]) if len(item.shape) else None for item in items}) == 1


def _is_target(key: object) -> bool:
    return str(key).lower() in _TARGET_NAMES


def _is_array(target: Any) -> bool:
    shape = getattr(target, "shape", None)
    return hasattr(target, "dtype") and shape is not None and hasattr(shape, "__iter__")


def _is_item_source(target: Any) -> bool:
    known = (str, bytes, Mapping, tuple, list, set, frozenset, range)
    has_both = hasattr(target, "__len__") and hasattr(target, "__getitem__")
    return has_both and not isinstance(target, known) and not isinstance(target, type)


def _comes_from(target: object, *packages: str) -> bool:
    roots = {base.__module__.partition(".")[0] for base in type(target).__mro__}
    return not roots.isdisjoint(packages)


def bytes_held(inventory: Inventory) -> int:
    """Return the RAM that live objects take already; files and memory-maps take none."""
    return sum(
        group.memory_bytes
        if group.memory_bytes is not None
        else (group.elements or 0) * DTYPE_BYTES.get(group.dtype or "", 0)
        for group in inventory.groups
        if group.format in ("array", "frame")
    )
