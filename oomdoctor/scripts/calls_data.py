"""What calls give that make or change data: `tf.data` pipelines and arrays."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from oomdoctor.scripts import checks_data
from oomdoctor.scripts.calls_pictures import numbers
from oomdoctor.scripts.known_data import TFDS, TFDS_NOT_IMAGES
from oomdoctor.scripts.layout import Dims, Layout
from oomdoctor.scripts.names import BATCHED_LOADERS, RECORD_READERS
from oomdoctor.scripts.values import (
    Array,
    Dataset,
    Function,
    Items,
    Length,
    Maker,
    Number,
    Other,
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
_CHANGING = frozenset(("interleave", "flat_map", "parse_example_dataset"))


def dataset_method(
    walker: Walker, node: ast.Call, dataset: Dataset, name: str, given: Arguments
) -> Value:
    """Return the dataset after one more stage."""
    if name in _BATCHING:
        return _batched(node, dataset, given)
    if name == "unbatch":
        return replace(dataset, is_batched=False, batch=None, batch_size=None)
    if name == "map":
        return _mapped(walker, node, dataset, given)
    if name == "cache":
        checks_data.cache(walker, node, dataset, given)
        return dataset
    if name == "shuffle":
        checks_data.shuffle(walker, node, dataset, given.get(0, "buffer_size"))
        return dataset
    if name in _CHANGING:
        known = replace(dataset, is_batched=None, batch=None, layout=None, count=None)
        return known if dataset.content == "small" else replace(known, content="samples")
    if name == "apply":  # it may batch, unbatch or anything else
        stage = given.get(0, "transformation_func")
        if isinstance(stage, Maker) and stage.kind == "shuffle":
            checks_data.shuffle(walker, node, dataset, stage.item)
        return replace(dataset, is_batched=None, batch=None, batch_size=None)
    if name == "take":
        size = given.get(0, "count")
        number = size.value if isinstance(size, Number) else None
        if not isinstance(number, int) or number < 0:
            return replace(dataset, count=None)
        taken = number * (dataset.batch_size or 1) if dataset.is_batched else number
        count = taken if dataset.count is None else min(taken, dataset.count)
        is_few = number <= FEW and (number == 1 or not dataset.is_pictures)
        content = "small" if is_few else dataset.content
        return replace(dataset, content=content, count=count, elements=number)
    if name == "skip":
        return replace(dataset, count=None)
    if name == "repeat" and not node.args and not node.keywords:
        return replace(dataset, drops=True, elements=None)  # there is no last batch
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
        drops=drops or (dataset.drops and not dataset.is_batched),
        elements=None,
    )


def make_dataset(walker: Walker, node: ast.Call, name: str, given: Arguments) -> tuple[bool, Value]:
    """Return whether a function makes a dataset, and which."""
    if name in BATCHED_LOADERS:
        batch = given.keywords.get("batch_size", Number(KERAS_BATCH))
        size = batch.value if isinstance(batch, Number) else None
        is_pictures = "image_dataset" in name
        made = Dataset(
            is_batched=True,
            batch=node,
            batch_size=size if isinstance(size, int) else None,
            content="samples",
            layout=_of_loader(given) if is_pictures else None,
            is_pictures=is_pictures,
        )
        if "batch_size" in given and batch is None and _is_none(given, "batch_size"):
            made = replace(made, is_batched=False, batch=None, batch_size=None)
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
        tensors = given.get(0, "tensors")
        layout, count = _of_slices(tensors)
        content = _content(tensors)
        return True, Dataset(is_batched=False, content=content, layout=layout, count=count)
    if name == "tensorflow.data.Dataset.list_files":
        return True, Dataset(is_batched=False, content="paths")
    if name in ("tensorflow.data.Dataset.range", "tensorflow.data.Dataset.random"):
        return True, Dataset(is_batched=False, content="small")
    if name == "tensorflow.data.TextLineDataset":
        return True, Dataset(is_batched=False)
    if name == "tensorflow.data.Dataset.zip":
        return True, _zipped(given)
    return False, None


def _of_loader(given: Arguments) -> Layout:
    """Return how large the images are that Keras's loader gives."""
    size: Dims = (256, 256)
    if "image_size" in given:
        size = numbers(None, given.keywords["image_size"]) or (None, None)
    mode = given.keywords.get("color_mode")
    channels = {"grayscale": 1, "rgba": 4}.get(mode.value if isinstance(mode, Text) else "", 3)
    return Layout((*size, channels), "float32")


def _of_slices(value: Value) -> tuple[Layout | None, int | None]:
    if isinstance(value, Items):
        return _of_slices(value.parts[0]) if value.parts else (None, None)
    if isinstance(value, Array):
        return Layout(value.dims, value.dtype), value.count
    return None, None


def _mapped(walker: Walker, node: ast.Call, dataset: Dataset, given: Arguments) -> Dataset:
    """Return a dataset of what a function makes of its samples."""
    function = given.get(0, "map_func")
    known = (
        dataset if dataset.content in ("small", "table") else replace(dataset, content="samples")
    )
    if not isinstance(function, Function):
        return replace(known, layout=None)
    result = function.result
    if walker.will_run(function):
        element = Tensor(of_dataset=dataset, is_input=True, layout=dataset.layout,
                         is_picture=dataset.is_pictures)  # fmt: skip
        names: dict[str, Value] = {
            argument.arg: Tensor() if place else element
            for place, argument in enumerate(function.node.args.args)
        }
        result = walker.run(function, names, node)
    made = first_tensor(result)
    if made is None:
        return replace(known, layout=None, is_pictures=False)
    layout = made.layout if not dataset.is_batched else dataset.layout
    return replace(known, layout=layout, is_pictures=made.is_picture)


def first_tensor(value: Value) -> Tensor | None:
    """Return the tensor that a function of samples gives first."""
    for _ in range(4):
        if isinstance(value, Tensor):
            return value
        value = value.parts[0] if isinstance(value, Items) and value.parts else None
    return None


def _is_none(given: Arguments, name: str) -> bool:
    return any(
        word.arg == name and isinstance(word.value, ast.Constant) and word.value.value is None
        for word in given.node.keywords
    )


def _of_tfds(given: Arguments) -> Value:
    split = given.keywords.get("split")
    made = _published(given)
    known: Value = made
    if split is None:
        known = Maker("splits")
    else:
        expression = given.expression(1, "split")
        if isinstance(expression, (ast.List, ast.Tuple)):
            known = Items.of((made,) * len(expression.elts))
    return Items.of((known, Other())) if "with_info" in given else known


def _published(given: Arguments) -> Dataset:
    """Return a dataset of TensorFlow Datasets, as large as its page says."""
    name = given.get(0, "name")
    plain = name.value.split("/")[0].split(":")[0] if isinstance(name, Text) else ""
    if plain in TFDS_NOT_IMAGES:
        return Dataset(is_batched=False, content="table")
    made = Dataset(is_batched=False, content="samples")
    if plain not in TFDS:
        return made
    count, dims = TFDS[plain]
    split = given.keywords.get("split")
    is_plain = isinstance(split, Text) and split.value == "train"
    layout = Layout(dims, "uint8") if dims else None
    known = count if is_plain or layout is not None else None
    return replace(made, layout=layout, count=known, is_pictures=True)


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
        return "samples" if value.size in (None, "builtin") else "small"
    if isinstance(value, (Other, Number)):
        return "small"
    if isinstance(value, Maker) and value.kind == "dict":
        return "table"
    return "paths" if isinstance(value, Sequence) and isinstance(value.item, Text) else None
