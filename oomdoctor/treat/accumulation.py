"""Gradient accumulation that keeps the effective batch and the optimizer's state."""

from __future__ import annotations

from typing import Any

from oomdoctor.errors import UsageError


def split_batch(effective_batch: int, largest: int) -> tuple[int, int]:
    """Return a batch size of at most `largest` and how many of them make an effective batch.

    The product is exactly the effective batch, so that an update sees as many samples as before.

    Example:
        >>> split_batch(128, 48)
        (32, 4)
    """
    if effective_batch < 1 or largest < 1:
        raise UsageError("A batch size is a whole number of at least 1.")
    size = next(s for s in range(min(effective_batch, largest), 0, -1) if not effective_batch % s)
    return size, effective_batch // size


def accumulate_gradients(model: Any, times: int) -> Any:
    """Accumulate gradients over so many times more batches; the optimizer keeps its state.

    Use batches that are as many times smaller, from `split_batch`: the averaged gradient is then
    that of the large batch. Batch normalization sees the smaller batches. An epoch whose batches
    do not divide by `times` leaves gradients for the next one. Keras keeps one more copy of the
    trained weights to add up in.

    Example:
        >>> from oomdoctor.treat.accumulation import accumulate_gradients, split_batch
        >>> batch_size, times = split_batch(128, largest=48)
        >>> model = accumulate_gradients(model, times)  # doctest: +SKIP
        >>> model.fit(x, y, batch_size=batch_size)  # doctest: +SKIP

    Args:
        model: Compiled; its optimizer is replaced by one with the same state.
        times: How many batches are to do what one did.
    """
    import keras

    old = model.optimizer
    base = getattr(old, "inner_optimizer", old)
    rate, slowed = base._learning_rate, 1
    if hasattr(rate, "of_updates"):
        rate, slowed = rate.of_updates, rate.times
        base._learning_rate = rate
    config = keras.optimizers.serialize(old)
    settings = config["config"]
    inner = settings.get("inner_optimizer")
    settings = settings if inner is None else inner["config"]
    settings["gradient_accumulation_steps"] = times * (
        settings.get("gradient_accumulation_steps") or 1
    )
    new = keras.optimizers.deserialize(config)
    new_base = getattr(new, "inner_optimizer", new)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        new_base._learning_rate = _slower(rate, slowed * times)
    new.build(model.trainable_variables)
    values = {_place(variable): variable for variable in old.variables}
    for variable in new.variables:
        place = _place(variable)
        if place not in values or "gradient_accumulator" in place:
            continue
        value = values[place].numpy()
        # Keras counts batches here, and divides by the batches of an update.
        variable.assign(value * times if place.endswith("iteration") else value)
    model.optimizer = new
    model.train_function = None
    return model


def _slower(schedule: Any, times: int) -> Any:
    """Return a schedule that counts updates where Keras counts batches."""
    import keras

    class OfUpdates(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        of_updates = schedule

        def __init__(self) -> None:
            self.times = times

        def __call__(self, step: Any) -> Any:
            return schedule(keras.ops.floor_divide(step, times))

        def get_config(self) -> dict[str, Any]:
            # A saved model is loaded without oomdoctor: it gets the plain schedule.
            return dict(schedule.get_config())

    OfUpdates.__name__ = type(schedule).__name__
    OfUpdates.__module__ = type(schedule).__module__
    return OfUpdates()


def _place(variable: Any) -> str:
    """Return a variable's name without the optimizer's own, which differs."""
    return str(variable.path).partition("/")[2]
