"""A tf.data pipeline as a tree of plain nodes, read from its Python objects.

Nothing here runs the pipeline. TensorFlow is never imported: whoever hands in a dataset has
loaded it already. A function inside `map` or `interleave` is not looked into, except to tell
`from_generator` from `flat_map`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oomdoctor.units import DTYPE_BYTES

AUTOTUNE = -1
STRING_BYTES = 24
"""What TensorFlow keeps per string besides its characters (sizeof tstring)."""

_INFINITE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One tensor of an element."""

    shape: tuple[int | None, ...] | None
    dtype: str | None
    """None for strings, ragged and sparse tensors, and datasets inside datasets."""
    path: tuple[str | int, ...] = ()
    """Its place in the element: (0,) is x of (x, y)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One transformation or source, with what it was called with."""

    op: str
    """`shuffle`, `parallel_map`, `tensor_slice` …: the class or op name without its dressing."""
    inputs: tuple[Node, ...] = ()
    spec: tuple[Component, ...] = ()
    """Of the elements it gives."""
    count: int | None = None
    """Elements it gives; None where unknown or without end."""
    is_infinite: bool = False
    numbers: Mapping[str, int | None] = field(default_factory=dict)
    """Its whole-number arguments; None where the value cannot be read."""
    filename: str | None = None
    tensor_bytes: int | None = None
    """Of the tensors a source holds."""
    identity: int | None = None
    """Tells one Python object from another, so that an array used twice is counted once."""


def plain_name(name: str) -> str:
    """Return the bare name of a dataset class or op.

    Example:
        >>> plain_name("_ParallelMapDataset"), plain_name("ShuffleDatasetV3")
        ('parallel_map', 'shuffle')
        >>> plain_name("TFRecordDatasetV2")
        'tf_record'
    """
    bare = re.sub(r"(Dataset)?(V\d+)?(Adapter)?$", "", name.lstrip("_"))
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare)
    return words.lower() or "dataset"


_NUMBERS = {
    "buffer_size": "_buffer_size",
    "batch_size": "_batch_size",
    "num_parallel_calls": "_num_parallel_calls",
    "cycle_length": "_cycle_length",
    "block_length": "_block_length",
    "count": "_count",
    "size": "_size",
    "num_shards": "_num_shards",
}


def from_objects(dataset: Any) -> Node:
    """Return the tree of a `tf.data.Dataset`, following its Python objects."""
    op = plain_name(type(dataset).__name__)
    count, is_infinite = _cardinality(dataset)
    numbers = {
        name: static_int(getattr(dataset, attribute))
        for name, attribute in _NUMBERS.items()
        if getattr(dataset, attribute, None) is not None
    }
    if op == "flat_map" and _makes_generator(dataset):
        op = "generator"
    is_source = op == "generator" or hasattr(dataset, "_filenames")
    inputs = () if is_source else tuple(_inputs(dataset))
    return Node(
        op=op,
        inputs=tuple(from_objects(each) for each in inputs),
        spec=tuple(components(getattr(dataset, "element_spec", None))),
        count=count,
        is_infinite=is_infinite,
        numbers=numbers,
        filename=_static_text(getattr(dataset, "_filename", None)),
        tensor_bytes=_tensors_bytes(getattr(dataset, "_tensors", None)),
        identity=id(dataset),
    )


def _inputs(dataset: Any) -> list[Any]:
    data_inputs = getattr(dataset, "_data_inputs", None)
    if data_inputs is not None:  # sample_from_datasets: leave out what only picks the input
        return list(data_inputs)
    for attribute in ("_original_dataset", "_dataset"):  # distributed, or a TF1 adapter
        inner = getattr(dataset, attribute, None)
        if inner is not None and hasattr(inner, "element_spec"):
            return [inner]
    ask = getattr(dataset, "_inputs", None)
    return list(ask()) if callable(ask) else []


def _makes_generator(dataset: Any) -> bool:
    function = getattr(getattr(dataset, "_map_func", None), "function", None)
    ask = getattr(getattr(function, "graph", None), "get_operations", None)
    operations = ask() if callable(ask) else ()
    return any(operation.type == "GeneratorDataset" for operation in operations)


def _cardinality(dataset: Any) -> tuple[int | None, bool]:
    ask = getattr(dataset, "cardinality", None)
    value = static_int(ask()) if callable(ask) else None
    if value is None or value < 0:
        return None, value == _INFINITE
    return value, False


def static_int(value: Any) -> int | None:
    """Return the whole number a tensor or plain value stands for, if it can be read."""
    try:
        return int(value.numpy() if hasattr(value, "numpy") else value)
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        pass
    tensorflow = sys.modules.get("tensorflow")
    known = tensorflow.get_static_value(value) if tensorflow is not None else None
    return None if known is None else int(known)


def _static_text(value: Any) -> str | None:
    try:
        text = value.numpy()
    except (AttributeError, NotImplementedError):
        return None
    return text.decode(errors="replace") if isinstance(text, bytes) else None


def _tensors_bytes(tensors: Any) -> int | None:
    if tensors is None:
        return None
    total = 0
    for tensor in tensors:
        size = tensor_bytes(tensor)
        if size is None:
            return None
        total += size
    return total


def tensor_bytes(tensor: Any) -> int | None:
    """Return the bytes a tensor holds, its strings included."""
    shape = shape_of(getattr(tensor, "shape", None))
    count = product(shape)
    if count is None:
        return None
    dtype = getattr(getattr(tensor, "dtype", None), "name", None)
    if dtype == "string":
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None:
            return None
        lengths = tensorflow.strings.length(tensor)
        letters = static_int(tensorflow.reduce_sum(tensorflow.cast(lengths, "int64")))
        return None if letters is None else letters + count * STRING_BYTES
    width = DTYPE_BYTES.get(str(dtype))
    return None if width is None else count * width


def components(spec: Any, path: tuple[str | int, ...] = ()) -> list[Component]:
    """Return the tensors of an element spec in order, each with its place."""
    if spec is None:
        return []
    if isinstance(spec, Mapping):
        return [part for key in spec for part in components(spec[key], (*path, key))]
    if isinstance(spec, (tuple, list)):
        return [part for i, each in enumerate(spec) for part in components(each, (*path, i))]
    dtype = None
    if type(spec).__name__ == "TensorSpec":
        name = str(getattr(spec.dtype, "name", spec.dtype))
        dtype = name if name in DTYPE_BYTES else None
    return [Component(shape=shape_of(getattr(spec, "shape", None)), dtype=dtype, path=path)]


def shape_of(shape: Any) -> tuple[int | None, ...] | None:
    """Return a shape as a tuple with None for unknown axes; None when the rank is unknown."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(None if size is None else int(size) for size in shape)


def product(shape: tuple[int | None, ...] | None) -> int | None:
    """Return how many elements a shape holds; None when an axis is unknown."""
    total = 1
    for size in (None,) if shape is None else shape:
        if size is None:
            return None
        total *= size
    return total
