"""Makes memory look as in a process that has hardly trained. Runs inside the worker.

What a variable is updated with is often a new tensor, which takes its place: variables wander
through memory, and where they come to lie decides what fits between them. `fit` starts with all of
them side by side, so a size is judged from there. A process of its own for each size would show
the same, but takes seconds to start and trace.

Which updates are copies is a matter of timing, and no two processes are alike. Where variables are
a large part of memory, a size that trains in one process can fail in the next: there it is judged
from several layouts, each reached as updates reach it.
"""

from __future__ import annotations

import random
from typing import Any

LAYOUTS = 4
"""From so many layouts a size is judged where they matter."""

MATTERS_PART = 0.1
"""They matter where variables take more than this part of the limit."""

COPIED_PART = 0.5
"""So many variables are replaced by a copy in a step that updates all of them."""

UNMOVABLE = ("string", "resource", "variant")
"""Kinds of values that are no plain bytes."""


def layouts_matter(variable_bytes: int, limit_bytes: int | None) -> bool:
    """Return whether a size is to be judged from several layouts."""
    return limit_bytes is not None and variable_bytes > MATTERS_PART * limit_bytes


def copied(items: list[Any], layout: int) -> list[Any]:
    """Return which of the variables are copied on the way to a layout, and in which order."""
    return random.Random(layout).sample(items, int(COPIED_PART * len(items))) if layout else []


def settle(function: Any, layout: int = 0) -> None:
    """Move the variables of a traced step side by side, with their values.

    They are kept outside of TensorFlow's memory meanwhile.

    Args:
        function: The traced step.
        layout: 0 leaves them so. Any other number replaces some of them by copies, as a step does
            that updates them: always the same ones for the same number.
    """
    import tensorflow as tf

    variables = [v for v in function.graph.variables if v.dtype.name not in UNMOVABLE]
    values = [variable.numpy().copy() for variable in variables]  # its own may be shared
    nothing = {dtype: tf.zeros([], dtype) for dtype in {v.dtype for v in variables}}
    for variable in variables:
        _put(variable, nothing[variable.dtype])  # one for all: many would lie in the way
    # Large ones first: what wraps a value then always finds the hole that the one before left.
    pairs = zip(values, variables, strict=True)
    for value, variable in sorted(pairs, key=lambda pair: -pair[0].nbytes):
        # The tensor that wraps the value may lie in its memory; a copy of it never does.
        with tf.device(variable.device):
            _put(variable, tf.raw_ops.DeepCopy(x=tf.constant(value, variable.dtype)))
    for variable in copied(variables, layout):
        with tf.device(variable.device):
            _put(variable, tf.raw_ops.DeepCopy(x=variable.read_value()))


def _put(variable: Any, value: Any) -> None:
    """Let a variable hold a value of any shape: `assign` would insist on its own."""
    import tensorflow as tf

    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
