"""A model → what it is called with, and random batches of that.

Values do not change memory, except that indices must be valid and should be as varied as real ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.model.spec import ModelSpec, Shape

_INDEX_LAYERS = {"Embedding": "input_dim", "ReversibleEmbedding": "input_dim"}


@dataclass(frozen=True)
class Field:
    """One tensor of a batch: its spec, and the values below which it must stay."""

    spec: Any
    below: int | None = None


def fields_of(tree: Any) -> Any:
    """Return the structure of `Field` that `samples.read_samples` describes."""
    import tensorflow as tf

    kind, *parts = tree
    if kind == "leaf":
        shape, dtype, below = parts
        return Field(tf.TensorSpec([None, *shape], dtype), below)
    if kind == "dict":
        return {name: fields_of(part) for name, part in parts[0].items()}
    fields = [fields_of(part) for part in parts]
    return tuple(fields) if kind == "tuple" else fields


def specs_of(fields: Any, batch_size: int | None) -> Any:
    """Return the structure of `TensorSpec`, for one batch size or for any."""
    import tensorflow as tf

    return tf.nest.map_structure(
        lambda field: (
            tf.TensorSpec([batch_size, *field.spec.shape[1:]], field.spec.dtype)
            if field.spec.shape[0] is None
            else field.spec
        ),
        fields,
    )


def symbols_of(fields: Any, batch_size: int | None) -> Any:
    """Return the structure of Keras's symbolic tensors, to call a model without running it."""
    import keras
    import tensorflow as tf

    return tf.nest.map_structure(
        lambda spec: keras.KerasTensor(
            tuple(spec.shape), keras.backend.standardize_dtype(spec.dtype)
        ),
        specs_of(fields, batch_size),
    )


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


def input_fields(model: Any, spec: ModelSpec) -> Any:
    """Return the structure the model is called with."""
    import keras
    import tensorflow as tf

    if spec.samples is not None:
        x = fields_of(json.loads(spec.samples))
        return _with_vocabulary(model, x[0] if isinstance(x, tuple) else x)
    struct = getattr(model, "_inputs_struct", None)
    if struct is None and getattr(model, "inputs", None):
        struct = model.inputs[0] if len(model.inputs) == 1 else list(model.inputs)
    if struct is None:
        struct = _struct_of_build(model, spec)
    flat = tf.nest.flatten(struct)
    below = [_below(model, tensor, len(flat)) for tensor in flat]
    shapes = [_resolve(tensor, spec, flat) for tensor in flat]
    fields = [
        Field(tf.TensorSpec(shape, spec.input_dtype or keras.backend.standardize_dtype(t.dtype)), b)
        for t, shape, b in zip(flat, shapes, below, strict=True)
    ]
    return tf.nest.pack_sequence_as(struct, fields)


def _with_vocabulary(model: Any, fields: Any) -> Any:
    """Keep whole numbers that nothing is known of within the model's embeddings."""
    import tensorflow as tf

    sizes = [getattr(layer, _INDEX_LAYERS[type(layer).__name__]) for layer in _index_layers(model)]
    least = min(sizes, default=None)
    return tf.nest.map_structure(
        lambda field: (
            Field(field.spec, least)
            if field.below is None and field.spec.dtype.is_integer
            else field
        ),
        fields,
    )


def _struct_of_build(model: Any, spec: ModelSpec) -> Any:
    """Return the inputs of a subclassed model: from its build shapes, or from the spec."""
    import keras

    dtype = spec.input_dtype or ("int32" if _index_layers(model) else "float32")
    if isinstance(spec.input_shape, dict):
        return {
            name: keras.KerasTensor((None, *shape), dtype, name=name)
            for name, shape in spec.input_shape.items()
        }
    if spec.input_shape is not None:
        return keras.KerasTensor((None, *spec.input_shape), dtype)
    shapes = getattr(model, "_build_shapes_dict", None)
    if not shapes:
        raise InputError(
            "The model does not say what it takes: give input_shape= or data= (on the "
            "command line: --input-size), or build the model."
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
    wanted: Shape | None
    if isinstance(spec.input_shape, dict):
        wanted = spec.input_shape.get(tensor.name)
    else:
        wanted = spec.input_shape if len(flat) == 1 else None
    if wanted is not None:
        if len(wanted) != len(shape) - 1 or any(
            known not in (None, size) for known, size in zip(shape[1:], wanted, strict=False)
        ):
            raise UsageError(
                f"The input {tensor.name} takes samples of shape {shape[1:]}, not {wanted}."
            )
        return (shape[0], *wanted)
    if None in shape[1:]:
        raise UsageError(
            f"The input {tensor.name} has no fixed size {shape[1:]}: say which one to measure "
            f"with {_how_to_say(tensor, shape, flat)}."
        )
    return shape


def _how_to_say(tensor: Any, shape: tuple[int | None, ...], flat: list[Any]) -> str:
    sizes = "(" + ", ".join(str(size or "...") for size in shape[1:]) + ",)"
    sizes = sizes.replace(",)", ")") if len(shape) > 2 else sizes
    one = sizes if len(flat) == 1 else f"{{{tensor.name!r}: {sizes}, ...}}"
    in_a_shell = " (on the command line: --input-size)" if len(flat) == 1 else ""
    return f"input_shape={one}, or with data={in_a_shell}"


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
