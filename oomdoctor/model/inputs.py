"""A model → what it is called with, from its own inputs and from what a person says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.model.fields import Field, fields_of
from oomdoctor.model.spec import ModelSpec, Shape

_INDEX_LAYERS = {"Embedding": "input_dim", "ReversibleEmbedding": "input_dim"}


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
                f"The input {tensor.name} takes samples of shape {_sizes(shape)}, not {given}."
            )
        shape = (shape[0], *wanted)
    elif spec.image_size is not None and len(shape) == len(spec.image_size) + 1:
        sizes = zip(shape[1:], spec.image_size, strict=True)
        shape = (shape[0], *(found if known is None else known for known, found in sizes))
    if None in shape[1:]:
        raise UsageError(
            f"The input {tensor.name} has no fixed size {_sizes(shape)}: say which one is meant "
            f"with {_how_to_say(tensor, shape, flat)}."
        )
    return shape


def _sizes(shape: tuple[int | None, ...]) -> str:
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
