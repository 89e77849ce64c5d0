"""`fit` that continues after an out-of-memory error with gradient accumulation.

Before each epoch the variables of the model and the optimizer are copied to host memory. When a
step runs out of memory, they are restored, the batch size is halved, the optimizer accumulates
gradients over twice as many batches (`gradient_accumulation_steps`), and the epoch restarts. So
each update still uses gradients over as many samples as before.

Three things differ from a run that never failed: batch normalization sees the smaller batches, an
epoch whose samples do not divide evenly carries gradients over to the next, and the optimizer keeps
one more copy of the trainable weights.
"""

from __future__ import annotations

import gc
import warnings
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.model.messages import is_out_of_memory
from oomdoctor.rescue.feeds import feed_of
from oomdoctor.treat.accumulation import accumulate_gradients


class RescueWarning(UserWarning):
    """Says what changed to continue after an out-of-memory error."""


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
    """Train as `fit` does, and continue after an out-of-memory error."""
    import keras

    if not getattr(model, "compiled", False):
        raise UsageError("The model is not compiled: call model.compile(...) first.")
    feed = feed_of(x, y, batch_size, shuffle=bool(options.get("shuffle", True)))
    size = feed.batch_size
    steps = options.pop("steps_per_epoch", None)
    own_callbacks = options.pop("callbacks", None) or []
    saved = _Saved(model)
    history: dict[str, list[Any]] = {}
    finished: list[int] = []
    done: list[str] = []
    parts = 1
    while True:
        note = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: saved.take(epoch),
            on_epoch_end=lambda epoch, logs: _extend(history, finished, epoch, logs),
        )
        try:
            result = model.fit(
                **feed.in_parts(parts),
                epochs=epochs,
                initial_epoch=finished[-1] + 1 if finished else initial_epoch,
                steps_per_epoch=None if steps is None else steps * parts,
                callbacks=[*own_callbacks, note],
                **options,
            )
        except Exception as error:
            if not is_out_of_memory(error) or size // parts // 2 < min_batch_size:
                raise
        else:
            result.history, result.epoch = history, finished
            result.rescues = tuple(done)
            return result
        # Free what the failed step held before the next try.
        gc.collect()
        parts *= 2
        epoch = saved.epoch
        if epoch in finished:
            epoch += 1  # it ran out before the next epoch's first step: nothing to restore
        else:
            saved.restore()
        accumulate_gradients(model, 2)
        done.append(
            f"Epoch {epoch + 1} ran out of memory with a batch size of {2 * size // parts}. It "
            f"restarted with a batch size of {size // parts} and gradient accumulation over "
            f"{parts} batches, so each update still uses {size // parts * parts} samples."
        )
        warnings.warn(done[-1], RescueWarning, stacklevel=3)


class _Saved:
    """The variables before an epoch, in host memory."""

    def __init__(self, model: Any) -> None:
        self.epoch = 0
        self._model = model
        self._values: list[tuple[Any, Any]] = []

    def take(self, epoch: int) -> None:
        self.epoch = epoch
        model = self._model
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        variables = [*model.variables, *model.optimizer.variables]
        unique = {id(variable): variable for variable in variables}
        self._values = [(variable, variable.numpy()) for variable in unique.values()]

    def restore(self) -> None:
        for variable, value in self._values:
            variable.assign(value)


def _extend(history: dict[str, list[Any]], finished: list[int], epoch: int, logs: Any) -> None:
    finished.append(epoch)
    for name, value in (logs or {}).items():
        history.setdefault(name, []).append(value)
