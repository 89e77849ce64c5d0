"""An optimizer's slots, created as `fit` creates them, but in a tenth of the time.

Keras creates them inside the first trace of a step. There all that start with one value and have
one shape are one constant, and share its buffer until the first update gives each its own: where
they come to lie is decided then. A trace that creates variables takes long, though: seven seconds
for MobileNetV2, as long as its whole step. So they are created outside of one, and then share.
Runs inside the worker.
"""

from __future__ import annotations

from typing import Any

from oomdoctor.measure.settle import put


def build_slots(optimizer: Any, trained: list[Any]) -> None:
    """Create the slots of an optimizer that has none yet.

    Args:
        optimizer: A Keras optimizer.
        trained: The variables that it will update.
    """
    before = {id(variable) for variable in optimizer.variables}
    optimizer.build(trained)
    share_equal([v.value for v in optimizer.variables if id(v) not in before])


def share_equal(variables: list[Any]) -> None:
    """Let variables of one shape that hold one and the same value everywhere share a buffer."""
    import tensorflow as tf

    alike: dict[tuple[Any, ...], list[Any]] = {}
    nothing: dict[tuple[Any, ...], Any] = {}
    for variable in variables:
        value = _only_value(variable)
        if value is None:
            continue
        kind = (variable.device, variable.dtype)
        alike.setdefault((*kind, tuple(variable.shape), value), []).append(variable)
        if kind not in nothing:
            with tf.device(variable.device):
                nothing[kind] = tf.zeros([], variable.dtype)
        # All are emptied before the first is filled: otherwise holes are left that no trace leaves.
        put(variable, nothing[kind])
    for (device, dtype, shape, value), group in alike.items():
        with tf.device(device):
            filled = tf.fill(shape, tf.constant(value, dtype))
        for variable in group:
            put(variable, filled)


def _only_value(variable: Any) -> Any:
    """Return what every element is, or None where they differ or nothing could be shared."""
    if not variable.shape.rank or not variable.dtype.is_floating:
        return None
    values = variable.numpy()
    if not values.size:
        return None
    first = values.flat[0]
    return first if (values == first).all() else None
