"""A model → the batches its step can be fed with: inputs and targets.

Custom losses and custom train steps do not say what they take, so there can be several candidates,
the likeliest first; the first that works is used.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from oomdoctor.model.fields import Field, check_batch_size, fields_of, make, symbols_of
from oomdoctor.model.inputs import input_fields
from oomdoctor.model.modules import load_callable
from oomdoctor.model.spec import ModelSpec

_SPARSE = ("sparse_categorical_crossentropy", "SparseCategoricalCrossentropy")


def possible_batches(model: Any, spec: ModelSpec, kind: str) -> Iterator[Any]:
    """Yield what a model may be fed with, the likeliest first."""
    import tensorflow as tf

    if spec.data is None:
        yield from _candidates(model, spec, kind)
        return
    yield tf.nest.map_structure(
        lambda value: Field(
            tf.TensorSpec([None, *tf.convert_to_tensor(value).shape[1:]], value.dtype)
        ),
        load_callable(spec.data)(2),
    )


def make_batch(spec: ModelSpec, fields: Any, batch_size: int) -> Any:
    """Return one batch: the user's, or random values."""
    if spec.data is not None:
        return load_callable(spec.data)(batch_size)
    check_batch_size(fields, batch_size)
    return make(fields, batch_size)


def _candidates(model: Any, spec: ModelSpec, kind: str) -> Iterator[Any]:
    """Yield structures of `Field`, the likeliest first."""
    given = None if spec.samples is None else fields_of(json.loads(spec.samples))
    x = input_fields(model, spec)
    if isinstance(given, tuple) and len(given) > 1 and kind != "predict":
        yield (x, *given[1:])
        return
    if kind == "predict":
        yield (x,)
        return
    targets = list(_targets(model, x))
    alone = [(x,), x] if has_custom_step(model, kind) or not targets else []
    if alone and not _losses(model):
        yield from alone
    yield from ((x, y) for y in targets)
    if alone and _losses(model):
        yield from alone


def default_loss(model: Any, spec: ModelSpec | None = None) -> str:
    """Return a loss that suits the first output of an uncompiled model, and the user's targets."""
    given = None if spec is None or spec.samples is None else json.loads(spec.samples)
    if given and given[0] == "tuple" and len(given) > 2 and not str(given[2][2:3]).count("int"):
        return "mse"
    outputs = getattr(model, "outputs", None) or []
    classes = outputs[0].shape[-1] if outputs and len(outputs[0].shape) > 1 else None
    if len(outputs) == 1 and classes is not None and classes > 1:
        return "sparse_categorical_crossentropy"
    return "mse"


def has_custom_step(model: Any, kind: str) -> bool:
    """Return whether a model trains, or evaluates, in a way of its own."""
    import keras

    name = "train_step" if kind == "train" else "test_step"
    return getattr(type(model), name) is not getattr(keras.Model, name)


def _losses(model: Any) -> Any:
    return getattr(model, "loss", None)


def _targets(model: Any, x: Any) -> Iterator[Any]:
    """Yield structures of targets: what the losses say, dense ones, then sparse ones."""
    import tensorflow as tf

    outputs = _outputs(model, x)
    if outputs is None:
        return
    flat = tf.nest.flatten(outputs)
    sparse = _sparse_flags(model, outputs, len(flat))
    names = _output_names(model, len(flat))
    size = tf.nest.flatten(x)[0].spec.shape[0]
    seen = []
    for flags in (sparse, [False] * len(flat), [True] * len(flat)):
        if flags in seen:
            continue
        seen.append(flags)
        fields = [_target(output, flag, size) for output, flag in zip(flat, flags, strict=True)]
        if isinstance(_losses(model), dict) and not isinstance(outputs, dict) and names:
            yield {
                name: f for name, f in zip(names, fields, strict=True) if _losses(model).get(name)
            }
        else:
            yield tf.nest.pack_sequence_as(outputs, fields)


def _outputs(model: Any, x: Any) -> Any:
    """Return the structure of what the model gives, or None where it has no `call`."""
    struct = getattr(model, "_outputs_struct", None)
    if struct is not None:
        return struct
    for batch_size in (None, 2):
        # A model that only has a train_step has no call; one may need to know the batch size.
        with contextlib.suppress(Exception):
            return model(symbols_of(x, batch_size))
    return None


def _target(output: Any, sparse: bool, batch_size: int | None) -> Field:
    import tensorflow as tf

    shape = (batch_size, *output.shape[1:])
    if sparse and len(shape) > 1:
        return Field(tf.TensorSpec(shape[:-1], tf.int32), below=shape[-1])
    return Field(tf.TensorSpec(shape, tf.float32))


def _sparse_flags(model: Any, outputs: Any, count: int) -> list[bool]:
    losses = _losses(model)
    if isinstance(losses, dict):
        names = list(outputs) if isinstance(outputs, dict) else _output_names(model, count)
        return [_is_sparse(losses.get(name)) for name in names] if names else [False] * count
    if isinstance(losses, (list, tuple)):
        return [_is_sparse(loss) for loss in losses] + [False] * (count - len(losses))
    return [_is_sparse(losses)] * count


def _is_sparse(loss: Any) -> bool:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return name in _SPARSE


def _output_names(model: Any, count: int) -> list[str]:
    names = list(getattr(model, "output_names", None) or [])
    return names if len(names) == count else []
