"""Continue training after an out-of-memory error."""

from __future__ import annotations

from typing import Any

from oomdoctor._optional import require
from oomdoctor.api.conclude import must_be_positive


def fit_with_rescue(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    epochs: int = 1,
    initial_epoch: int = 0,
    min_batch_size: int = 1,
    **options: Any,
) -> Any:
    """Train as `model.fit` does, and continue with smaller batches after an out-of-memory error.

    The epoch that failed restarts: weights and optimizer state are restored, the batch size is
    halved, and gradients are accumulated over twice as many batches, so each update still uses as
    many samples. A `RescueWarning` says what changed.

    Example:
        >>> import oomdoctor
        >>> history = oomdoctor.fit_with_rescue(model, x, y, batch_size=256)  # doctest: +SKIP
        >>> history.rescues  # doctest: +SKIP

    Args:
        model: A compiled Keras model.
        x: Arrays, a batched `tf.data.Dataset`, or a `PyDataset`.
        y: Targets, where `x` is arrays.
        batch_size: Samples per update; 32 by default, as in `fit`.
        epochs: As in `fit`.
        initial_epoch: As in `fit`.
        min_batch_size: Smallest batch size to try. Below it the error is raised.
        **options: Further arguments of `fit`.

    Returns:
        The `History` of all epochs. Its attribute `rescues` lists what changed, in sentences.
    """
    must_be_positive(batch_size=batch_size, epochs=epochs, min_batch_size=min_batch_size)
    require("tensorflow", extra="tensorflow", purpose="to train")
    from oomdoctor.rescue.fit import fit_with_rescue as fit

    return fit(
        model,
        x,
        y,
        batch_size=batch_size,
        epochs=epochs,
        initial_epoch=initial_epoch,
        min_batch_size=min_batch_size,
        **options,
    )
