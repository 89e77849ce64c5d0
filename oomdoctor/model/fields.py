"""What one tensor of a batch is like: its spec, symbols to trace with, and random values.

Values do not change memory, except that indices must be valid and should be as varied as real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.model.samples import LEAVES


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
