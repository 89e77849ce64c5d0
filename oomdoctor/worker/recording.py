"""Runs a step of two small batches and records what it allocates, to check an estimate.

Needs TensorFlow's own allocator on the CPU (`allocator.settings_for_the_cpu`), whose events are
recorded. The model is trained for a few steps on random values, so it must be a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.estimate.nodes import Variable
from oomdoctor.model.batches import make_batch, possible_batches
from oomdoctor.model.fields import specs_of
from oomdoctor.model.messages import first_line
from oomdoctor.model.spec import ModelSpec
from oomdoctor.trace.events import record
from oomdoctor.trace.scaled import Recorded, ScaledStep

SIZES = (2, 4)
"""Small, so that any machine can run them; not 1, where dimensions are easily taken for others."""

_METHODS = {"train": "train_step", "evaluate": "test_step", "predict": "predict_step"}


def record_step(
    model: Any, spec: ModelSpec, kind: str, variables: Sequence[Variable]
) -> ScaledStep:
    """Run and record a step of a compiled model.

    Args:
        model: A copy of the model.
        spec: What is known of it and of its data.
        kind: `train`, `evaluate` or `predict`.
        variables: What the traced step holds before it starts.

    Raises:
        InputError: If no step could be run.
    """
    errors: list[Exception] = []
    for fields in possible_batches(model, spec, kind):
        try:
            return record_fed(model, fields, kind, variables, partial(make_batch, spec, fields))
        except Exception as error:  # any code of the user's runs here
            errors.append(error)
    first = errors[0]
    raise InputError(f"No step could be run: {type(first).__name__}: {first_line(first)}")


def record_fed(
    model: Any,
    fields: Any,
    kind: str,
    variables: Sequence[Variable],
    batch_of: Callable[[int], Any],
) -> ScaledStep:
    """Run and record a step that is fed as `fields` say.

    Args:
        model: As for `record_step`.
        fields: What the step takes.
        kind: As for `record_step`.
        variables: As for `record_step`.
        batch_of: Makes a batch of a size.
    """
    import tensorflow as tf

    step = tf.function(
        getattr(model, _METHODS[kind]), input_signature=[specs_of(fields, None)], autograph=False
    )
    small, large = (_recorded(step, batch_of(size), size) for size in SIZES)
    return ScaledStep(small, large, variables)


def _recorded(step: Any, batch: Any, batch_size: int) -> Recorded:
    import tensorflow as tf

    def run() -> None:
        for output in tf.nest.flatten(step(batch)):
            output.numpy()

    run()  # what only a first step does is no part of the others
    tensors = tf.nest.flatten(batch, expand_composites=True)
    fed = sum(tensor.dtype.size * int(tf.size(tensor)) for tensor in tensors)
    return Recorded(batch_size, record(run, None), fed)
