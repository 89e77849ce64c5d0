"""What the methods and the attributes of a value give."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomdoctor.scripts import (
    checks_copies,
    checks_data,
    checks_loops,
    checks_pictures,
    checks_sizes,
)
from oomdoctor.scripts.calls_arrays import array_method
from oomdoctor.scripts.calls_data import dataset_method
from oomdoctor.scripts.calls_model import model_method, old_generator, strategy_method
from oomdoctor.scripts.calls_pictures import picture_method
from oomdoctor.scripts.layout import Layout
from oomdoctor.scripts.names import canonical
from oomdoctor.scripts.values import (
    Array,
    Dataset,
    Instance,
    Items,
    Length,
    Listing,
    Maker,
    Model,
    Number,
    Other,
    Picture,
    Ref,
    Sequence,
    Strategy,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from oomdoctor.scripts.calls import Arguments
    from oomdoctor.scripts.walker import Walker

_DATASET_METHODS = frozenset(
    ("as_numpy_iterator", "batch", "interleave", "padded_batch", "prefetch")
)
"""Methods that only a `tf.data.Dataset` has, in a file that imports TensorFlow."""
_LISTING_METHODS = frozenset(("glob", "rglob", "iterdir"))
_TABLE_METHODS = frozenset(("dropna", "drop", "reset_index", "copy", "merge", "query", "fillna"))
_NETWORK = re.compile(
    r"(.*_)?(actor|autoencoder|critic|decoder|discriminator|encoder|generator|net|network|predictor)",
    re.IGNORECASE,
)
MAX_NAME = 200
"""Characters of a full name: none of a package's is longer, and each `a = a.b` lengthens it."""


def method(walker: Walker, node: ast.Call, holder: Value, name: str, given: Arguments) -> Value:
    """Return what a method gives, by what it is a method of."""
    handler = _METHODS.get(type(holder))
    if handler is not None:
        return handler(walker, node, holder, name, given)
    if holder is None:
        return _unknown_method(walker, node, name, given)
    if isinstance(holder, Other) and name in ("fit_transform", "transform") and given.args:
        first = given.args[0]  # a scaler or an encoder of scikit-learn
        if isinstance(first, Array):
            checks_copies.made(walker, node, given.expression(0, "X"), first)
            return replace(first, dtype=None, load=None)
    return holder if isinstance(holder, Other) else None


def _unknown_method(walker: Walker, node: ast.Call, name: str, given: Arguments) -> Value:
    """Return what a method gives whose name alone tells what it belongs to."""
    if not walker.knows_framework:
        return None
    if name in _LISTING_METHODS:
        return Listing()
    if name in _DATASET_METHODS or (name == "map" and "num_parallel_calls" in given):
        return dataset_method(walker, node, Dataset(), name, given)
    if name == "take" and given.args and isinstance(given.args[0], Number):
        return Dataset(content="small")
    if old_generator(walker, node, name):
        return Other()
    if name == "fit" and given.keywords.keys() & {"epochs", "validation_data", "steps_per_epoch"}:
        return model_method(walker, node, Model(), name, given)
    if name == "apply_gradients":
        walker.training(node, steps=True)
    if name == "predict" and given.args and _is_called_model(node):
        return model_method(walker, node, Model(), name, given)
    return None


def _is_called_model(node: ast.Call) -> bool:
    """Return whether `predict` is called on what people call a network."""
    holder = node.func.value if isinstance(node.func, ast.Attribute) else None
    name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
    return _NETWORK.fullmatch(name) is not None


def _list_method(walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments) -> Value:
    if name == "append" and given.args:
        value = given.args[0]
        if isinstance(value, Model) and value.loop is not None and holder.depth == 0:
            value.loop.keeps_models = True
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        label = owner.id if isinstance(owner, ast.Name) else None
        checks_pictures.appended(walker, node, holder, value, label)
        checks_loops.kept(walker, node, holder, value, node.args[0])
    elif name in ("extend", "insert", "clear", "pop"):
        holder.parts = ()
    return None


def _tensor_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    if holder.is_numpy:
        return Other()
    if name != "numpy":
        return Tensor()
    if not holder.is_input:
        return Other()
    return Tensor(of_dataset=holder.of_dataset, is_input=True, is_numpy=True)


def _maker_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    if holder.kind == "video":
        frame = Picture(Layout(dtype="uint8"), node)
        return Items((Other(), frame)) if name == "read" else frame if name == "get_frame" else None
    if holder.kind == "volume" and name in ("get_fdata", "get_data"):
        return Picture(Layout(dtype="float64"), node)
    if holder.kind == "folds" and name == "split":
        return Maker("folds", holder.item)
    if holder.kind == "deque" and name == "append":
        checks_sizes.remembered(walker, node, holder, given)
        return None
    if name == "apply_gradients":
        walker.training(node, steps=True)
    if holder.kind == "tape" and name == "gradient":
        return Tensor()
    if holder.kind == "datagen" and name == "flow":
        checks_data.handed_over(walker, given.get(0, "x"))
    return None


def _listing_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    if name in ("head", "sample"):
        return None
    return Listing("table" if name in _TABLE_METHODS else "rows")


def _number_method(
    walker: Walker, node: ast.Call, holder: Any, name: str, given: Arguments
) -> Value:
    return Length() if name == "numpy" else None


def attribute(holder: Value, name: str) -> Value:
    """Return what an attribute of a value is, where that matters."""
    if isinstance(holder, Ref):
        is_known = len(holder.name) <= MAX_NAME
        return Ref(canonical(f"{holder.name}.{name}")) if is_known else Other()
    if isinstance(holder, Instance):
        if name in holder.attributes:
            return holder.attributes[name]
        return holder.of.methods.get(name)
    if isinstance(holder, Strategy):
        return Number(holder.replicas) if name == "num_replicas_in_sync" else None
    if isinstance(holder, (Array, Picture)):
        return Maker("shape", source=holder) if name == "shape" else None
    if isinstance(holder, Maker) and holder.kind == "volume":
        is_dicom = name == "pixel_array"
        return Picture(Layout(dtype="uint16"), ast.Pass()) if is_dicom else None
    if isinstance(holder, Listing):
        return Maker("shape", source=holder) if name == "shape" else Listing("rows")
    return holder if isinstance(holder, Other) else None


_METHODS: dict[type, Callable[[Any, ast.Call, Any, str, Arguments], Value]] = {
    Dataset: dataset_method,
    Array: array_method,
    Model: model_method,
    Strategy: strategy_method,
    Sequence: _list_method,
    Tensor: _tensor_method,
    Maker: _maker_method,
    Length: _number_method,
    Picture: picture_method,
    Listing: _listing_method,
}
