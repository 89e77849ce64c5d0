"""What `fit` will be given → the shapes of its largest samples.

Memory is what the worst batch takes, not the first one: where sizes differ (padded sequences,
images of several sizes, ragged tensors) batches are read, for a few seconds, and each dimension
is taken at its largest. Values stay here; only shapes, dtypes and the largest index go on.

Arrays are not read, and neither is a pipeline whose shapes are all known. A generator is refused:
what is read of it would be missing from training.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from oomdoctor.errors import InputError, UsageError

READ_SECONDS = 10
"""How long batches are read for."""

READ_BATCHES = 1000

Tree = Any
"""Nested lists: ["leaf", shape, dtype, below], ["tuple", ...], ["list", ...], ["dict", {...}].

Ragged tensors are ["ragged", shape, dtype, below, ragged rank], with their longest rows, and sparse
ones ["sparse", shape, dtype, below, entries of a sample]."""

LEAVES = ("leaf", "ragged", "sparse")


@dataclass(frozen=True)
class Samples:
    """What the data says of its batches."""

    tree: Tree
    """One sample; a shape lacks the batch. None for images, which are resized."""
    count: int | None = None
    """How many samples there are, where that is known."""
    held_bytes: int = 0
    """Arrays that `fit` is given whole: it puts them into the same memory."""
    notes: tuple[str, ...] = ()
    image_size: tuple[int, ...] | None = None
    """Of the largest image; a model or an argument may say another."""


def read_samples(data: Any, *, seconds: float = READ_SECONDS) -> Samples:
    """Return the shapes of the largest samples.

    Args:
        data: Arrays as `(x, y)`, a batched `tf.data.Dataset`, a `PyDataset`, or a function that
            returns a generator of batches.
        seconds: How long to read where shapes are not known.
    """
    if isinstance(data, (types.GeneratorType, Iterator)):
        raise UsageError(
            "A generator can be read only once, and training would miss what is read here: give "
            "the function that makes it (data=batches, not data=batches()), or input_shape=."
        )
    if hasattr(data, "element_spec"):
        return _of_dataset(data, seconds)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and _is_py_dataset(data):
        return _of_batches(lambda: (data[i] for i in _spread(len(data))), seconds, len(data))
    if callable(data):
        return _of_batches(data, seconds, None)
    tree = _map(data, _sample_of_array)
    counts = {int(array.shape[0]) for array in _leaves(data)}
    if len(counts) != 1:
        raise UsageError(f"The arrays of data= differ in length: {sorted(counts)}.")
    held = sum(_bytes_of_array(array) for array in _leaves(data))
    return Samples(tree, count=counts.pop(), held_bytes=held)


def samples_of_specs(batch: Any) -> Samples:
    """Return what `batch=` says: `tf.TensorSpec`s as `fit` would be fed, such as `(x, y)`.

    Args:
        batch: The specs, nested as the model takes them. The first dimension is the batch's.
    """
    tree = _map(batch, _leaf_of_spec)
    if _is_open(tree):
        raise UsageError(
            "batch= leaves more than the batch size open: give every dimension but the first, such "
            "as tf.TensorSpec((None, 224, 224, 3))."
        )
    return Samples(tree)


def _leaf_of_spec(spec: Any) -> Tree:
    if type(spec).__name__ in ("RaggedTensorSpec", "SparseTensorSpec"):
        raise UsageError(
            "batch= takes tf.TensorSpec only: give ragged and sparse tensors as data=, which shows "
            "how full they are."
        )
    if not hasattr(spec, "shape") or not hasattr(spec, "dtype"):
        raise UsageError(
            f"batch= holds a {type(spec).__name__}: give tf.TensorSpec, as (x, y) for example."
        )
    if spec.shape is None or len(spec.shape) == 0:
        raise UsageError("batch= holds a single number: give batches, whose first size is None.")
    shape = [None if size is None else int(size) for size in spec.shape]
    if shape[0] is not None:
        raise UsageError(
            f"batch= fixes the batch size to {shape[0]}: write None there, batch_size= says it."
        )
    return ["leaf", shape[1:], _dtype(spec), None]


def _is_py_dataset(data: Any) -> bool:
    return not isinstance(data, (tuple, list, dict)) and not hasattr(data, "shape")


def _of_dataset(dataset: Any, seconds: float) -> Samples:
    tree = _map(dataset.element_spec, _sample_of_spec)
    batch = next(iter(_leaves(dataset.element_spec)), None)
    size = batch.shape[0] if batch is not None and batch.shape.rank else None
    batches = int(dataset.cardinality())
    count = None if size is None or batches < 0 else size * batches
    if not _is_open(tree):
        return Samples(tree, count=count)
    found = _of_batches(lambda: iter(dataset), seconds, batches if batches >= 0 else None)
    return replace(found, count=count)


def _of_batches(batches: Callable[[], Iterable[Any]], seconds: float, count: int | None) -> Samples:
    """Return the largest of every dimension over the batches that can be read in time."""
    deadline = time.monotonic() + seconds
    tree: Tree = None
    read = 0
    for batch in batches():
        tree = _largest(tree, _map(batch, _sample_of_array))
        read += 1
        if read >= READ_BATCHES or time.monotonic() > deadline:
            break
    if tree is None:
        raise InputError("data= holds no batch: give data that is not empty, or input_shape=.")
    if count == read:
        return Samples(tree)
    return Samples(tree, notes=(f"The largest samples of {read} batches were taken.",))


def _spread(count: int) -> Iterator[int]:
    """Yield every index once, the first and the last early, then the middles between them."""
    seen: set[int] = set()
    parts = 1
    while len(seen) < count:
        for part in range(parts + 1):
            index = part * (count - 1) // parts
            if index not in seen:
                seen.add(index)
                yield index
        parts *= 2


def _sample_of_array(array: Any) -> Tree:
    shape = getattr(array, "shape", None)
    if hasattr(array, "bounding_shape"):  # a ragged tensor: as large as its longest rows
        shape = [int(size) for size in array.bounding_shape()]
        return ["ragged", shape[1:], _dtype(array), _below(array), int(array.ragged_rank)]
    if hasattr(array, "dense_shape"):
        return _sample_of_sparse(array)
    if shape is None:
        raise UsageError(
            f"data= holds a {type(array).__name__}: give arrays as (x, y), a tf.data.Dataset, a "
            "PyDataset, or a function that returns a generator of batches."
        )
    shape = [None if size is None else int(size) for size in shape]
    if not shape:
        raise UsageError(
            "data= holds a single number: give batches, whose first size is the batch."
        )
    return ["leaf", shape[1:], _dtype(array), _below(array)]


def _sample_of_sparse(tensor: Any) -> Tree:
    """Return a sparse tensor, as full as its fullest sample."""
    import numpy as np

    rows = np.bincount(tensor.indices.numpy()[:, 0]) if len(tensor.values) else [0]
    shape = [int(size) for size in tensor.dense_shape][1:]
    return ["sparse", shape, _dtype(tensor), None, max(1, int(max(rows)))]


def _sample_of_spec(spec: Any) -> Tree:
    shape = spec.shape
    if type(spec).__name__ in ("RaggedTensorSpec", "SparseTensorSpec"):
        return ["leaf", [None], _dtype(spec), None]  # how full it is, only batches tell
    if shape.rank is None:
        return ["leaf", [None], _dtype(spec), None]
    if shape.rank == 0:
        raise UsageError(
            "The dataset of data= is not batched, as fit wants it: give dataset.batch(1), the size "
            "does not matter here."
        )
    return ["leaf", list(shape.as_list()[1:]), _dtype(spec), None]


def _dtype(array: Any) -> str:
    """Return the dtype that Keras hands to the model: floats become float32."""
    dtype = getattr(array, "dtype", None)
    name = str(getattr(dtype, "name", None) or dtype)
    if dtype is None or name in ("float64", "float128"):
        return "float32"
    return "string" if name == "object" or name.startswith(("str", "bytes", "<U", "|S")) else name


def _below(array: Any) -> int | None:
    """Return the bound of whole numbers, which may be indices."""
    name = _dtype(array)
    if not name.startswith(("int", "uint")) or name == "uint8":
        return None
    values = getattr(array, "flat_values", array)  # of a ragged tensor
    values = values.numpy() if hasattr(values, "numpy") else values
    if not hasattr(values, "max") or not getattr(values, "size", 0):
        return None
    return max(1, int(values.max()) + 1)


def _bytes_of_array(array: Any) -> int:
    size = 1
    for count in array.shape:
        size *= int(count)
    width = {"string": 8, "bool": 1}.get(_dtype(array))
    if width is None:
        digits = "".join(c for c in _dtype(array) if c.isdigit())
        width = int(digits or 32) // 8
    return size * width


def _largest(one: Tree | None, other: Tree) -> Tree:
    if one is None:
        return other
    if one[0] != other[0] or len(one) != len(other):
        raise UsageError("The batches of data= differ in structure: each must be like the first.")
    if one[0] == "dict":
        return ["dict", {name: _largest(one[1].get(name), other[1][name]) for name in other[1]}]
    if one[0] not in LEAVES:
        return [one[0], *(_largest(a, b) for a, b in zip(one[1:], other[1:], strict=True))]
    if len(one[1]) != len(other[1]):
        raise UsageError("The batches of data= differ in rank: each must be like the first.")
    shape = [max(a or 0, b or 0) for a, b in zip(one[1], other[1], strict=True)]
    below = max((bound for bound in (one[3], other[3]) if bound), default=None)
    most = [max(a, b) for a, b in zip(one[4:], other[4:], strict=True)]
    return [one[0], shape, one[2], below, *most]


def _map(data: Any, leaf: Callable[[Any], Tree]) -> Tree:
    if isinstance(data, dict):
        return ["dict", {name: _map(value, leaf) for name, value in data.items()}]
    if isinstance(data, (tuple, list)):
        kind = "tuple" if isinstance(data, tuple) else "list"
        return [kind, *(_map(value, leaf) for value in data if value is not None)]
    return leaf(data)


def _leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, (tuple, list)):
        for value in data:
            yield from _leaves(value)
    elif data is not None:
        yield data


def _is_open(tree: Tree) -> bool:
    if tree[0] in LEAVES:
        return None in tree[1]
    inner = tree[1].values() if tree[0] == "dict" else tree[1:]
    return any(_is_open(part) for part in inner)
