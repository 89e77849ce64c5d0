"""Optimizers that keep less state than Adam."""

from __future__ import annotations

from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.treat.compiling import recompile

RATES = {"rmsprop": 1.0, "lion": 0.1, "sgd": 10.0}
"""Where to start with each learning rate, as a multiple of Adam's. RMSprop and SGD: the ratio of
Keras's defaults. Lion: its paper (Chen et al. 2023) advises 3 to 10 times less than AdamW.
State: Adam two copies of the trained weights, RMSprop and Lion one, SGD none."""

_KEPT = (
    "weight_decay",
    "clipnorm",
    "clipvalue",
    "global_clipnorm",
    "use_ema",
    "ema_momentum",
    "ema_overwrite_frequency",
    "loss_scale_factor",
    "gradient_accumulation_steps",
)


def lighter_optimizer(model: Any, name: str = "lion", *, learning_rate: Any = None) -> Any:
    """Train on with an optimizer that keeps less state; its options are carried over.

    What the old optimizer had learnt about the gradients is dropped, and the learning rate has to
    be found again: see `RATES` for where to start.

    Example:
        >>> from oomdoctor.treat.optimizers import lighter_optimizer
        >>> model = lighter_optimizer(model, "lion", learning_rate=1e-4)  # doctest: +SKIP

    Args:
        model: Compiled.
        name: `lion`, `rmsprop` or `sgd`.
        learning_rate: A number or a schedule; by `RATES` from the old one if None.
    """
    import keras

    if name not in RATES:
        raise UsageError(f"{name!r} is not a lighter optimizer: use one of {', '.join(RATES)}.")
    old = getattr(model, "optimizer", None)
    if old is None:
        raise UsageError("The model is not compiled: call model.compile(...) first.")
    is_scaled = isinstance(old, keras.optimizers.LossScaleOptimizer)
    base = old.inner_optimizer if is_scaled else old
    if learning_rate is None:
        if isinstance(base._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            raise UsageError(
                "The optimizer follows a schedule, which does not suit another optimizer: pass "
                "learning_rate=."
            )
        learning_rate = float(base.learning_rate.numpy()) * RATES[name]
    config = base.get_config()
    kept = {key: config[key] for key in _KEPT if config.get(key) is not None}
    new = keras.optimizers.get(
        {"class_name": name, "config": {"learning_rate": learning_rate, **kept}}
    )
    if is_scaled:
        new = keras.optimizers.LossScaleOptimizer(new)
    return recompile(model, optimizer=new)
