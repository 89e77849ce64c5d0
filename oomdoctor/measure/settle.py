"""Makes memory look as in a process that has hardly trained. Runs inside the worker.

What a variable is updated with is often a new tensor, which takes its place: variables wander
through memory, and where they come to lie decides what fits between them. `fit` starts with all of
them side by side, so a size is judged from there. A process of its own for each size would show
the same, but takes seconds to start and trace.
"""

from __future__ import annotations

from typing import Any

UNMOVABLE = ("string", "resource", "variant")
"""Kinds of values that are no plain bytes."""


def settle(function: Any) -> None:
    """Move the variables of a traced step side by side, with their values.

    They are kept outside of TensorFlow's memory meanwhile.

    Args:
        function: The traced step.
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


def _put(variable: Any, value: Any) -> None:
    """Let a variable hold a value of any shape: `assign` would insist on its own."""
    import tensorflow as tf

    tf.raw_ops.AssignVariableOp(resource=variable.handle, value=value)
