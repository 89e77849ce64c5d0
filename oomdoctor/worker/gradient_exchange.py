"""What replicas do with their gradients, done by one. Runs inside the worker.

Under `MirroredStrategy` each GPU first puts all its gradients into one flat tensor, NCCL sums
these in place, and each GPU cuts the sum into gradients again (`NcclAllReduce`, the default). One
replica alone skips that, and needs less: it can update a weight, and forget its gradient, before
the next gradient exists. So the replica that is measured packs and unpacks too. What NCCL itself
takes on a card is not seen, and sparse gradients, which are not packed, are left alone.
"""

from __future__ import annotations

from typing import Any


def exchange_gradients(model: Any) -> bool:
    """Let a model's optimizer pack and unpack gradients; return whether it is one that can."""
    optimizer: Any = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # mixed precision wraps it
    if not hasattr(optimizer, "_all_reduce_sum_gradients"):
        return False
    optimizer._all_reduce_sum_gradients = _packed_and_unpacked
    return True


def _packed_and_unpacked(grads_and_vars: Any) -> list[tuple[Any, Any]]:
    import tensorflow as tf

    pairs = list(grads_and_vars)
    for dtype in dict.fromkeys(g.dtype for g, _ in pairs if _is_dense(g)):
        where = [i for i, (g, _) in enumerate(pairs) if _is_dense(g) and g.dtype == dtype]
        dense = [pairs[index][0] for index in where]
        packed = tf.concat([tf.reshape(gradient, [-1]) for gradient in dense], 0)
        parts = tf.split(packed, [tf.size(gradient) for gradient in dense])
        for index, gradient, part in zip(where, dense, parts, strict=True):
            pairs[index] = (tf.reshape(part, tf.shape(gradient)), pairs[index][1])
    return pairs


def _is_dense(gradient: Any) -> bool:
    import tensorflow as tf

    return isinstance(gradient, tf.Tensor)
