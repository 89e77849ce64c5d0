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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomdoctor.allocator import Region
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


def settle(starts: list[Start], regions: Sequence[Region]) -> None:
    """Put back what variables held, where it lay.

    Args:
        starts: What they held.
        regions: The pool in which everything shall lie.
    """
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
            # TensorFlow keeps scalars. And it copies an array outside of the pool, where it leaves
            # the copy if that is aligned by chance: then a step seems to have that much more.
            if not start.value.ndim or not lies_in(regions, address_of(tensor)):
                tensor = tf.raw_ops.DeepCopy(x=tensor)
        for variable in start.variables:
            put(variable, tensor)
        del tensor


def brought_into(regions: Sequence[Region], starts: list[Start]) -> list[Start]:
    """Return what variables hold, all of it in the pool.

    Weights that were read from a file may lie outside; on a GPU none does.
    """
    arrays = [start for start in starts if start.value.ndim]
    if all(lies_in(regions, start.address) for start in arrays):
        return starts
    settle(starts, regions)
    for start in starts:
        start.address = address_of(start.variables[0].read_value())
    return sorted(starts, key=lambda start: start.address)


def lies_in(regions: Sequence[Region], address: int) -> bool:
    """Return whether an address belongs to one of the regions.

    Example:
        >>> lies_in([(0, 10), (50, 5)], 54), lies_in([(0, 10), (50, 5)], 10)
        (True, False)
    """
    return any(start <= address < start + size for start, size in regions)


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
