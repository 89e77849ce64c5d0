"""Makes memory look as in a process that has not trained yet. Runs inside the worker.

What a variable is updated with is often a new tensor, which takes its place: variables wander
through memory, and where they come to lie decides what fits between them. A process of its own for
each size would start afresh, but takes seconds to start and trace. So what variables held before
the first step is put back, where it lay.

Some share a buffer then: Keras creates the optimizer's slots inside the first trace, where all
zeros of one shape are one constant. Each of them comes to lie elsewhere in the first step. A dense
network whose slots had buffers of their own seemed to train a batch a tenth larger than in `fit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomdoctor.measure.names import address_of
from oomdoctor.units import MIB

UNMOVABLE = ("string", "resource", "variant")
"""Kinds of values that are no plain bytes."""

LEAST_HOLE_BYTES, MOST_HOLE_BYTES = MIB, 64 * MIB
"""Holes between variables are left again that are as large as this; what is further apart lies in
another region."""


@dataclass
class Start:
    """What one buffer held before the first step."""

    address: int
    value: Any
    variables: list[Any]
    """Several may share it."""


def start_of(function: Any) -> list[Start]:
    """Return what the variables of a traced step hold, in the order they lie in."""
    found: dict[int, Start] = {}
    for variable in function.graph.variables:
        if variable.dtype.name not in UNMOVABLE:
            address = address_of(variable.read_value())
            if address not in found:
                found[address] = Start(address, variable.numpy().copy(), [])
            found[address].variables.append(variable)
    return [found[address] for address in sorted(found)]


def settle(starts: list[Start]) -> None:
    """Put back what variables held, where it lay."""
    import tensorflow as tf

    dtypes = {start.variables[0].dtype for start in starts}
    nothing = {dtype: tf.zeros([], dtype) for dtype in dtypes}
    for start in starts:
        for variable in start.variables:
            put(variable, nothing[variable.dtype])  # one for all: many would lie in the way
    holes = []
    for start in starts:
        holes.append(_hole(start))
        first = start.variables[0]
        with tf.device(first.device):
            tensor = tf.constant(start.value, first.dtype)
            # TensorFlow keeps scalars, and may wrap a value where it lies; a copy is never shared.
            if not start.value.ndim or address_of(tensor) == start.value.ctypes.data:
                tensor = tf.raw_ops.DeepCopy(x=tensor)
        for variable in start.variables:
            put(variable, tensor)
        del tensor


def _hole(start: Start) -> Any:
    """Return a tensor that takes what was free before a variable, or None."""
    import tensorflow as tf

    size = max(1, start.value.nbytes)
    gap = start.address - address_of(tf.raw_ops.Empty(shape=[size], dtype=tf.uint8))
    if LEAST_HOLE_BYTES <= gap <= MOST_HOLE_BYTES:
        return tf.raw_ops.Empty(shape=[gap], dtype=tf.uint8)
    return None


def put(variable: Any, value: Any) -> None:
    """Let a variable hold a value of any shape: `assign` would insist on its own."""
    import tensorflow as tf

    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
