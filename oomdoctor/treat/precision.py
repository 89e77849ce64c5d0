"""Mixed precision, with the output layers in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomdoctor.treat.compiling import recompile

FLOAT16 = "mixed_float16"


def mixed_precision(
    model: Any, policy: str = FLOAT16, *, keep_float32: Sequence[str] | None = None
) -> Any:
    """Let a model compute in 16 bits; its variables and its outputs stay float32.

    For `mixed_float16` a compiled model's optimizer gets loss scaling, as Keras does by itself
    when a model is compiled under that policy.

    Example:
        >>> from oomdoctor.treat.precision import mixed_precision
        >>> model = mixed_precision(model)  # doctest: +SKIP

    Args:
        model: A Keras model, built or not.
        policy: `mixed_float16` or `mixed_bfloat16`.
        keep_float32: Names of layers that stay in float32. The layers that make the outputs if
            None; in a subclassed model, the last layer.
    """
    import keras

    kept = _output_layers(model) if keep_float32 is None else []
    named = set(keep_float32 or ())
    whole = {id(inner) for layer in kept for inner in layer._flatten_layers()}
    for layer in model._flatten_layers():
        if id(layer) not in whole and layer.name not in named:
            layer.dtype_policy = policy
        elif layer.compute_dtype in ("float16", "bfloat16"):
            layer.dtype_policy = "float32"
    if getattr(model, "compiled", False):
        optimizer = model.optimizer
        is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if policy == FLOAT16 and not is_scaled:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        recompile(model, optimizer=optimizer)
    return model


def _output_layers(model: Any) -> list[Any]:
    """Return the layers that make a model's outputs; those of an inner model if it does."""
    import keras

    outputs = getattr(model, "outputs", None)
    if isinstance(model, keras.Sequential) or not outputs:
        last = list(model.layers)[-1:]
    else:
        last = [tensor._keras_history.operation for tensor in outputs]
    found: list[Any] = []
    for layer in last:
        if isinstance(layer, keras.Model) and layer.layers:
            found += _output_layers(layer)
        elif isinstance(layer, keras.Layer):
            found.append(layer)
    return found
