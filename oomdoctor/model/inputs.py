"""A model → what it is called with, and random batches of that.

Values do not change memory, except that indices must be valid and should be as varied as real ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.model.samples import LEAVES
from oomdoctor.model.spec import ModelSpec, Shape

_INDEX_LAYERS = {"Embedding": "input_dim", "ReversibleEmbedding": "input_dim"}


@dataclass(frozen=True)
class Field:
    """One tensor of a batch: its spec, and the values below which it must stay."""

    spec: Any
    """With every dimension, however it is laid out; a ragged one is as long as its longest rows."""
    below: int | None = None
    ragged_rank: int = 0
    entries: int | None = None
    """Of one sample of a sparse tensor; None for one that is not sparse."""


def fields_of(tree: Any) -> Any:
    """Return the structure of `Field` that `samples.read_samples` describes."""
    import tensorflow as tf

    kind, *parts = tree
    if kind in LEAVES:
        shape, dtype, below, *more = parts
        spec = tf.TensorSpec([None, *shape], dtype)
        if kind == "ragged":
            return Field(spec, below, ragged_rank=more[0])
        return Field(spec, below, entries=more[0] if more else None)
    if kind == "dict":
        return {name: fields_of(part) for name, part in parts[0].items()}
    fields = [fields_of(part) for part in parts]
    return tuple(fields) if kind == "tuple" else fields


def specs_of(fields: Any, batch_size: int | None) -> Any:
    """Return the structure of `TensorSpec`, for one batch size or for any."""
    import tensorflow as tf

    def spec_of(field: Field) -> Any:
        shape, dtype = field.spec.shape.as_list(), field.spec.dtype
        shape[0] = batch_size if shape[0] is None else shape[0]
        if field.entries is not None:
            return tf.SparseTensorSpec(shape, dtype)
        if field.ragged_rank:
            rank = field.ragged_rank
            shape[1 : rank + 1] = [None] * rank
            return tf.RaggedTensorSpec(shape, dtype, ragged_rank=rank)
        return tf.TensorSpec(shape, dtype)

    return tf.nest.map_structure(spec_of, fields)


def rows_of(fields: Any) -> list[int]:
    """Return how many rows a sample has in each tensor that a batch is made of.

    It is one for a dense tensor. A ragged or sparse one has the values of all samples in a row.
    """
    import tensorflow as tf

    rows: list[int] = []
    for field in tf.nest.flatten(fields):
        if field.entries is not None:
            rows += [field.entries, field.entries, 1]  # indices, values, the dense shape
        else:
            lengths = field.spec.shape.as_list()[1 : field.ragged_rank + 1]
            splits = [prod(lengths[:depth]) for depth in range(field.ragged_rank)]
            rows += [prod(lengths), *splits]
    return rows


def symbols_of(fields: Any, batch_size: int | None) -> Any:
    """Return the structure of Keras's symbolic tensors, to call a model without running it."""
    import keras
    import tensorflow as tf

    def symbol(field: Field) -> Any:
        spec = specs_of(field, batch_size)
        dtype = keras.backend.standardize_dtype(field.spec.dtype)
        if field.entries is not None:
            return keras.KerasTensor(tuple(spec.shape), dtype, sparse=True)
        if field.ragged_rank:
            rank = field.ragged_rank
            return keras.KerasTensor(tuple(spec.shape), dtype, ragged=True, ragged_rank=rank)
        return keras.KerasTensor(tuple(spec.shape), dtype)

    return tf.nest.map_structure(symbol, fields)


def make(fields: Any, batch_size: int) -> Any:
    """Return one batch with random values."""
    import tensorflow as tf

    return tf.nest.map_structure(lambda field: _random(field, batch_size), fields)


def check_batch_size(fields: Any, batch_size: int) -> None:
    """Raise if the model was built for one batch size only, and it is another."""
    import tensorflow as tf

    for field in tf.nest.flatten(fields):
        fixed = field.spec.shape[0]
        if fixed is not None and fixed != batch_size:
            raise UsageError(
                f"The model takes batches of {fixed} only, not {batch_size}: build it with "
                "Input(shape=...) instead of Input(batch_shape=...)."
            )


def _random(field: Field, batch_size: int) -> Any:
    import tensorflow as tf

    if field.entries is not None:
        return _random_sparse(field, batch_size)
    if field.ragged_rank:
        dense = _random(replace(field, ragged_rank=0), batch_size)
        return tf.RaggedTensor.from_tensor(dense, ragged_rank=field.ragged_rank)
    shape = [batch_size, *field.spec.shape[1:]]
    dtype = field.spec.dtype
    if dtype == tf.string:
        return tf.fill(shape, "a")
    if dtype.is_floating and field.below is None:
        # A raw op: one allocation, where tf.random.uniform would leave its temporaries' holes.
        return tf.raw_ops.RandomUniform(shape=shape, dtype=dtype)
    below = field.below or (2 if dtype == tf.bool else 256 if dtype == tf.uint8 else 2)
    whole = dtype if dtype in (tf.int32, tf.int64) else tf.int32
    values = tf.raw_ops.RandomUniformInt(
        shape=shape, minval=tf.constant(0, whole), maxval=tf.constant(below, whole)
    )
    return values if whole == dtype else tf.cast(values, dtype)


def _random_sparse(field: Field, batch_size: int) -> Any:
    import tensorflow as tf

    shape = field.spec.shape.as_list()[1:]
    entries = min(field.entries or 1, prod(shape))
    inner = tf.transpose(tf.unravel_index(tf.range(entries), shape))
    rows = tf.repeat(tf.range(batch_size), entries)
    indices = tf.concat([rows[:, None], tf.tile(inner, [batch_size, 1])], axis=1)
    values = _random(Field(tf.TensorSpec([None], field.spec.dtype), field.below), len(rows))
    return tf.SparseTensor(tf.cast(indices, tf.int64), values, [batch_size, *shape])


def input_fields(model: Any, spec: ModelSpec) -> Any:
    """Return the structure the model is called with."""
    import keras
    import tensorflow as tf

    if spec.samples is not None:
        x = fields_of(json.loads(spec.samples))
        x = x[0] if isinstance(x, tuple) else x
        return _with_vocabulary(model, _as_declared(model, x))
    struct = _declared(model)
    if struct is None:
        struct = _struct_of_build(model, spec)
    flat = tf.nest.flatten(struct)
    _check_names(spec, flat)
    below = [_below(model, tensor, len(flat)) for tensor in flat]
    shapes = [_resolve(tensor, spec, flat) for tensor in flat]
    fields = [
        Field(
            tf.TensorSpec(shape, spec.input_dtype or keras.backend.standardize_dtype(t.dtype)),
            b,
            ragged_rank=_ragged_rank(t),
        )
        for t, shape, b in zip(flat, shapes, below, strict=True)
    ]
    return tf.nest.pack_sequence_as(struct, fields)


def _declared(model: Any) -> Any:
    """Return the inputs that a model names itself, or None."""
    struct = getattr(model, "_inputs_struct", None)
    if struct is None and getattr(model, "inputs", None):
        struct = model.inputs[0] if len(model.inputs) == 1 else list(model.inputs)
    return struct


def _ragged_rank(tensor: Any) -> int:
    if not getattr(tensor, "ragged", False):
        return 0
    return int(getattr(tensor, "ragged_rank", None) or 1)


def _as_declared(model: Any, fields: Any) -> Any:
    """Pad ragged data for a model that takes dense inputs."""
    import tensorflow as tf

    struct = _declared(model)
    flat = [] if struct is None else tf.nest.flatten(struct)
    given = tf.nest.flatten(fields)
    if len(flat) != len(given):
        return fields
    padded = [
        replace(field, ragged_rank=min(field.ragged_rank, _ragged_rank(tensor)))
        for field, tensor in zip(given, flat, strict=True)
    ]
    return tf.nest.pack_sequence_as(fields, padded)


def _check_names(spec: ModelSpec, flat: list[Any]) -> None:
    """Refuse sizes that are for no input: they would have no effect."""
    names = [tensor.name for tensor in flat]
    if isinstance(spec.input_shape, dict):
        unknown = [name for name in spec.input_shape if name not in names]
        if unknown:
            raise UsageError(
                f"The model has no input {unknown[0]}: its inputs are {', '.join(names)}."
            )
    elif spec.input_shape is not None and len(flat) > 1:
        each = " ".join(f"--input-size {name}=SIZE" for name in names[:2])
        raise UsageError(
            f"The model has {len(flat)} inputs ({', '.join(names)}): give the size of each that is "
            f"open by its name, as a dict for input_shape= (on the command line: {each})."
        )


def _with_vocabulary(model: Any, fields: Any) -> Any:
    """Keep whole numbers that nothing is known of within the model's embeddings."""
    import tensorflow as tf

    sizes = [getattr(layer, _INDEX_LAYERS[type(layer).__name__]) for layer in _index_layers(model)]
    least = min(sizes, default=None)
    return tf.nest.map_structure(
        lambda field: (
            replace(field, below=least)
            if field.below is None and field.spec.dtype.is_integer
            else field
        ),
        fields,
    )


def _struct_of_build(model: Any, spec: ModelSpec) -> Any:
    """Return the inputs of a subclassed model: from its build shapes, or from the spec."""
    import keras

    dtype = spec.input_dtype or _likely_dtype(model)
    if isinstance(spec.input_shape, dict):
        return {
            # An image beside words is no word.
            name: keras.KerasTensor(
                (None, *shape), dtype if len(shape) == 1 else "float32", name=name
            )
            for name, shape in spec.input_shape.items()
        }
    if spec.input_shape is not None:
        return keras.KerasTensor((None, *spec.input_shape), dtype)
    shapes = getattr(model, "_build_shapes_dict", None)
    if not shapes and spec.image_size is not None:
        return keras.KerasTensor((None, *spec.image_size), dtype)
    if not shapes:
        raise InputError(
            "The model does not say what it takes: give input_shape=, batch= or data= (on the "
            "command line: --input-size or --data)."
        )
    struct = next(iter(shapes.values())) if len(shapes) == 1 else dict(shapes)
    return _tensors_of(struct, dtype)


def _tensors_of(struct: Any, dtype: str) -> Any:
    import keras

    if isinstance(struct, dict):
        return {name: _tensors_of(inner, dtype) for name, inner in struct.items()}
    if all(size is None or isinstance(size, int) for size in struct):
        return keras.KerasTensor((None, *struct[1:]), dtype)
    return [_tensors_of(inner, dtype) for inner in struct]


def _resolve(tensor: Any, spec: ModelSpec, flat: list[Any]) -> tuple[int | None, ...]:
    """Return an input's shape with its unknown sizes filled in from the spec."""
    shape = tuple(tensor.shape)
    if getattr(tensor, "sparse", False):
        raise UsageError(
            f"The input {tensor.name} is sparse, and how many entries a sample has is not known: "
            "give data= (on the command line: --data)."
        )
    wanted: Shape | None
    if isinstance(spec.input_shape, dict):
        wanted = spec.input_shape.get(tensor.name)
    else:
        wanted = spec.input_shape
    if wanted is not None:
        given = wanted
        wanted = (*wanted, *shape[1 + len(wanted) :])  # 224x224 leaves the channels as they are
        if len(wanted) != len(shape) - 1 or any(
            known not in (None, size) for known, size in zip(shape[1:], wanted, strict=False)
        ):
            given = (
                wanted[: len(spec.input_shape)] if isinstance(spec.input_shape, tuple) else wanted
            )
            raise UsageError(
                f"The input {tensor.name} takes samples of shape {_told(shape)}, not {given}."
            )
        shape = (shape[0], *wanted)
    elif spec.image_size is not None and len(shape) == len(spec.image_size) + 1:
        sizes = zip(shape[1:], spec.image_size, strict=True)
        shape = (shape[0], *(found if known is None else known for known, found in sizes))
    if None in shape[1:]:
        raise UsageError(
            f"The input {tensor.name} has no fixed size {_told(shape)}: say which one is meant "
            f"with {_how_to_say(tensor, shape, flat)}."
        )
    return shape


def _told(shape: tuple[int | None, ...]) -> str:
    return str(tuple(shape[1:]))


def _how_to_say(tensor: Any, shape: tuple[int | None, ...], flat: list[Any]) -> str:
    sizes = "(" + ", ".join(str(size or "...") for size in shape[1:]) + ",)"
    sizes = sizes.replace(",)", ")") if len(shape) > 2 else sizes
    one = sizes if len(flat) == 1 else f"{{{tensor.name!r}: {sizes}, ...}}"
    name = "" if len(flat) == 1 else f"{tensor.name}="
    open_ = "x".join(str(size or "N") for size in shape[1:])
    return f"input_shape={one} or data= (on the command line: --input-size {name}{open_})"


def _likely_dtype(model: Any) -> str:
    """Return what a model that does not say it is probably fed with."""
    kinds = {type(layer).__name__ for layer in _all_layers(model)}
    if kinds & {"StringLookup", "TextVectorization"}:
        return "string"
    return "int32" if _index_layers(model) else "float32"


def _index_layers(model: Any) -> list[Any]:
    return [layer for layer in _all_layers(model) if type(layer).__name__ in _INDEX_LAYERS]


def _all_layers(layer: Any) -> list[Any]:
    flatten = getattr(layer, "_flatten_layers", None)
    return list(flatten()) if flatten is not None else []


def _below(model: Any, tensor: Any, inputs: int) -> int | None:
    """Return the least vocabulary of the embeddings that an input feeds."""
    reached = _reached_from(model, tensor) if inputs > 1 else None
    layers = [
        layer
        for layer in _index_layers(model)
        if reached is None or any(layer in _all_layers(op) for op in reached)
    ]
    sizes = [getattr(layer, _INDEX_LAYERS[type(layer).__name__]) for layer in layers]
    return min(sizes, default=None)


def _reached_from(model: Any, tensor: Any) -> list[Any] | None:
    """Return the operations of a functional model that take an input, directly or not."""
    operations = getattr(model, "_operations", None) or getattr(model, "operations", None)
    if operations is None:
        return None
    known = {id(tensor)}
    reached = []
    for _ in range(2):  # operations are sorted by depth, mostly: a second look finds the rest
        for operation in operations:
            for node in getattr(operation, "_inbound_nodes", []):
                if any(id(source) in known for source in node.input_tensors):
                    known.update(id(output) for output in node.output_tensors)
                    reached.append(operation)
    return reached
