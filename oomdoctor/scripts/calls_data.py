"""What calls give that make or change data: `tf.data` pipelines and arrays."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from oomdoctor.scripts import checks_data
from oomdoctor.scripts.names import (
    BATCHED_LOADERS,
    FLOAT64,
    PICTURE_READERS,
    PICTURE_TO_ARRAY,
    RECORD_READERS,
    SMALL_PICTURES,
    TABULAR,
)
from oomdoctor.scripts.values import (
    Array,
    Dataset,
    Items,
    Length,
    Maker,
    Number,
    Other,
    Picture,
    Ref,
    Sequence,
    Tensor,
    Text,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

FEW = 1000
"""Elements that `take` may leave for a dataset to count as small."""
KERAS_BATCH = 32
"""What Keras's loaders batch by unless told otherwise."""

_SAME = frozenset(
    (
        "concatenate", "enumerate", "filter", "prefetch", "repeat", "shard", "skip",
        "with_options", "as_numpy_iterator", "ignore_errors", "snapshot",
    )
)  # fmt: skip
_BATCHING = frozenset(("batch", "padded_batch", "ragged_batch", "bucket_by_sequence_length"))
_REARRANGING = frozenset(
    ("array", "asarray", "ascontiguousarray", "copy", "expand_dims", "moveaxis", "reshape",
     "squeeze", "swapaxes", "transpose")
)  # fmt: skip
_JOINING = frozenset(("append", "concatenate", "dstack", "hstack", "stack", "vstack"))
_CHANGING = frozenset(("interleave", "flat_map", "map", "parse_example_dataset"))


def dataset_method(
    walker: Walker, node: ast.Call, dataset: Dataset, name: str, given: Arguments
) -> Value:
    """Return the dataset after one more stage."""
    if name in _BATCHING:
        return _batched(node, dataset, given)
    if name == "unbatch":
        return replace(dataset, is_batched=False, batch=None, batch_size=None)
    if name == "cache":
        checks_data.cache(walker, node, dataset, given)
        return dataset
    if name == "shuffle":
        checks_data.shuffle(walker, node, dataset, given)
        return dataset
    if name in _CHANGING:
        known = dataset if name == "map" else replace(dataset, is_batched=None, batch=None)
        return known if dataset.content == "small" else replace(known, content="samples")
    if name == "apply":  # it may batch, unbatch or anything else
        return replace(dataset, is_batched=None, batch=None, batch_size=None)
    if name == "take":
        size = given.get(0, "count")
        is_few = isinstance(size, Number) and size.value is not None and size.value <= FEW
        return replace(dataset, content="small") if is_few else dataset
    if name in ("cardinality", "__len__"):
        return Length()
    if name == "reduce":
        return Tensor()
    return dataset if name in _SAME else None


def _batched(node: ast.Call, dataset: Dataset, given: Arguments) -> Dataset:
    size = given.get(0, "batch_size")
    drop = next((item.value for item in node.keywords if item.arg == "drop_remainder"), None)
    drops = drop is not None and not (isinstance(drop, ast.Constant) and drop.value is False)
    number = size.value if isinstance(size, Number) else None
    return replace(
        dataset,
        is_batched=True,
        batch=node,
        batch_size=number if isinstance(number, int) else None,
        drops=drops,
    )


def make_dataset(walker: Walker, node: ast.Call, name: str, given: Arguments) -> tuple[bool, Value]:
    """Return whether a function makes a dataset, and which."""
    if name in BATCHED_LOADERS:
        batch = given.keywords.get("batch_size", Number(KERAS_BATCH))
        size = batch.value if isinstance(batch, Number) else None
        made = Dataset(is_batched=True, batch=node, content="samples")
        made = replace(made, batch_size=size if isinstance(size, int) else None)
        if "batch_size" in given and batch is None and _is_none(given, "batch_size"):
            made = Dataset(is_batched=False, content="samples")
        both = given.keywords.get("subset") == Text("both")
        return True, Items.of((made, made)) if both else made
    if name == "tensorflow_datasets.load":
        return True, _of_tfds(given)
    if name in RECORD_READERS:
        return True, Dataset(is_batched=False, content="samples")
    if name in (
        "tensorflow.data.Dataset.from_tensor_slices",
        "tensorflow.data.Dataset.from_tensors",
    ):
        checks_data.slices(walker, node, given)
        return True, Dataset(is_batched=False, content=_content(given.get(0, "tensors")))
    if name == "tensorflow.data.Dataset.list_files":
        return True, Dataset(is_batched=False, content="paths")
    if name in ("tensorflow.data.Dataset.range", "tensorflow.data.Dataset.random"):
        return True, Dataset(is_batched=False, content="small")
    if name == "tensorflow.data.TextLineDataset":
        return True, Dataset(is_batched=False)
    if name == "tensorflow.data.Dataset.zip":
        return True, _zipped(given)
    return False, None


def _is_none(given: Arguments, name: str) -> bool:
    return any(
        word.arg == name and isinstance(word.value, ast.Constant) and word.value.value is None
        for word in given.node.keywords
    )


def _of_tfds(given: Arguments) -> Value:
    split = given.keywords.get("split")
    made = Dataset(is_batched=False, content="samples")
    known: Value = made
    if split is None:
        known = Maker("splits")
    else:
        expression = given.expression(1, "split")
        if isinstance(expression, (ast.List, ast.Tuple)):
            known = Items.of((made,) * len(expression.elts))
    return Items.of((known, Other())) if "with_info" in given else known


def _zipped(given: Arguments) -> Dataset:
    parts = given.args[0].parts if given.args and isinstance(given.args[0], Items) else given.args
    datasets = [part for part in parts if isinstance(part, Dataset)]
    if datasets and len(datasets) == len(parts):
        return datasets[0]
    return Dataset()


def _content(value: Value) -> str | None:
    if isinstance(value, Items):
        return _content(value.parts[0]) if value.parts else None
    if isinstance(value, Array):
        return "samples" if value.size is None else "small"
    if isinstance(value, (Other, Number)):
        return "small"
    return "paths" if isinstance(value, Sequence) and isinstance(value.item, Text) else None


# --------------------------------------------------------------------------- arrays


def make_array(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return what a function of NumPy, or one that reads files, gives."""
    if name in PICTURE_READERS:
        return Picture(PICTURE_READERS[name], node)
    first = given.args[0] if given.args else None
    if name in PICTURE_TO_ARRAY:
        return Picture("float32", node)
    if name.startswith("cv2.") or name.startswith("skimage."):
        return first if isinstance(first, Picture) else Other()
    if name == "h5py.File":
        return Maker("h5file")
    if name.startswith("keras.datasets.") and name.endswith(".load_data"):
        return _builtin_data(name.split(".")[2])
    if not name.startswith("numpy."):
        return None
    if name == "numpy.load":
        mode = given.expression(1, "mmap_mode")
        is_mapped = mode is not None and not (isinstance(mode, ast.Constant) and not mode.value)
        is_packed = isinstance(first, Text) and first.value.endswith(".npz")
        # In a loop, or by a function that is told the file, it is one part of many.
        is_part = bool(walker.loops) or walker.is_argument(given.expression(0, "file"))
        size = "small" if is_part else None
        return Array(load=node, is_mapped=is_mapped, is_packed=is_packed, size=size)
    return _of_numpy(name.rpartition(".")[2], first, given)


def _of_numpy(name: str, first: Value, given: Arguments) -> Value:
    dtype = dtype_name(given.keywords.get("dtype"))
    if isinstance(first, Picture):
        return first if dtype is None else Picture(dtype, first.node)
    if name in _REARRANGING and isinstance(first, Array):
        is_copy = name in ("array", "copy")
        return replace(first, dtype=dtype or first.dtype, is_mapped=first.is_mapped and not is_copy)
    if name in ("array", "asarray", *_JOINING):
        if isinstance(first, Maker) and first.kind == "h5data":
            return Array(dtype=dtype)
        if isinstance(first, Items):
            first = first.parts[0] if first.parts else None
        if isinstance(first, Sequence):
            return _of_list(first, dtype)
        if isinstance(first, Array):
            return replace(first, load=None, is_mapped=False, dtype=dtype or first.dtype)
        return None
    return Other()


def _of_list(items: Sequence, dtype: str | None) -> Value:
    item = items.item
    if items.pictures is not None:
        kept = item.dtype if isinstance(item, Picture) else None
        return Array(dtype=dtype or kept, pictures=items.pictures)
    if isinstance(item, Array):
        return replace(item, load=None, is_mapped=False, dtype=dtype or item.dtype)
    return None


def _builtin_data(name: str) -> Value:
    if name in TABULAR:
        return Items((Items((Other(), Other())), Items((Other(), Other()))))
    size = "small" if name in SMALL_PICTURES else "builtin"
    pair = Items((Array(dtype="uint8", size=size), Other()))
    return Items((pair, pair))


def array_method(
    walker: Walker, node: ast.Call, array: Array, name: str, given: Arguments
) -> Value:
    """Return what a method of an array gives."""
    if name == "astype":
        dtype = dtype_name(given.get(0, "dtype"))
        if dtype == "float64" and array.dtype != "float64" and array.size != "small":
            checks_data.float64(walker, node, array)
        return replace(array, dtype=dtype, is_mapped=False)
    if name in _REARRANGING:
        return array
    return Other()


def dtype_name(value: Value) -> str | None:
    """Return the name of a dtype given as a string, as NumPy's, or as Python's `float`."""
    if isinstance(value, Text):
        name = value.value
    elif isinstance(value, Ref):
        name = value.name.rpartition(".")[2]
    else:
        return None
    return "float64" if name in FLOAT64 else name
