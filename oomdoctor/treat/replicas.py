"""Several GPUs: one replica of the model on each, every batch split among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from oomdoctor.errors import UsageError


def divisible_batch(batch_size: int, replicas: int) -> int:
    """Return the largest batch size up to this one that divides by the number of replicas.

    Example:
        >>> divisible_batch(33, 2)
        32
    """
    if batch_size < replicas:
        raise UsageError(f"A batch of {batch_size} cannot be split over {replicas} replicas.")
    return batch_size // replicas * replicas


def replicated(build: Callable[[], Any], devices: Sequence[str] | None = None) -> Any:
    """Return a model that `tf.distribute.MirroredStrategy` trains on several devices at once.

    Each device holds all weights and the whole optimizer state, and its share of every batch. So
    more devices help activations that do not fit, not weights that do not fit.

    Example:
        >>> from oomdoctor.treat.replicas import divisible_batch, replicated
        >>> model = replicated(build_model)  # doctest: +SKIP
        >>> model.fit(x, y, batch_size=divisible_batch(100, 4))  # doctest: +SKIP

    Args:
        build: Makes and compiles the model: variables have to be created for all devices.
        devices: Such as `["GPU:0", "GPU:1"]`; every GPU if None.
    """
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(None if devices is None else list(devices))
    with strategy.scope():
        return build()
