"""Finds the model that is meant, and gives it another precision, optimizer or input size.

A live model is not changed: what differs is built anew from its configuration, with fresh
weights, since values do not change memory.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from oomdoctor._optional import import_optional
from oomdoctor.errors import InputError, UsageError

PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


def find_model(source: Any, *, precision: str | None = None) -> Any:
    """Return a live model for a model, a `.keras` file or `module:callable`."""
    keras = _keras()
    if isinstance(source, keras.Model):
        return source
    name = str(source)
    if name.endswith(".keras"):
        if not Path(name).is_file():
            raise InputError(f"{name} does not exist: give a .keras file or module:callable.")
        try:
            return keras.saving.load_model(name, safe_mode=True)
        except (TypeError, ValueError, OSError) as error:
            raise InputError(f"{name} cannot be loaded: {error}") from error
    module, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(f"{name!r} names no model: give a .keras file or module:callable.")
    if precision is not None:
        keras.config.set_dtype_policy(precision)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name} cannot be called: {error}") from error


def _keras() -> Any:
    return import_optional("keras", extra="tensorflow", purpose="to estimate a model's memory")


def with_options(
    model: Any,
    *,
    precision: str | None = None,
    optimizer: str | None = None,
    input_size: tuple[int, ...] | None = None,
) -> Any:
    """Return the model with other options, or itself where nothing changes.

    Args:
        model: A live model.
        precision: A Keras dtype policy.
        optimizer: Its name, as `compile` takes it.
        input_size: Height and width of a picture, or the length of a sequence: the leading
            dimensions of every input, without the batch.
    """
    keras = _keras()
    if precision is not None and precision not in PRECISIONS:
        raise UsageError(f"{precision!r} is not a precision: use one of {', '.join(PRECISIONS)}.")
    settings = model.get_compile_config() if model.compiled else None
    if precision is None and optimizer is None and input_size is None:
        return model
    config = keras.saving.serialize_keras_object(model)
    config.pop("compile_config", None)
    config.pop("build_config", None)
    try:
        fresh = keras.saving.deserialize_keras_object(
            _changed(config, precision, input_size), safe_mode=False
        )
    except Exception as error:  # Keras raises many types; all mean "cannot rebuild"
        raise InputError(
            f"The model cannot be built with other options ({error}): change them in its code."
        ) from error
    if settings is not None:
        settings = dict(settings)
        if optimizer is not None:
            settings["optimizer"] = optimizer
        fresh.compile_from_config(settings)
    return fresh


def _changed(config: Any, precision: str | None, size: tuple[int, ...] | None) -> Any:
    if isinstance(config, list):
        return [_changed(item, precision, size) for item in config]
    if not isinstance(config, dict):
        return config
    if precision is not None and config.get("class_name") == "DTypePolicy":
        return {**config, "config": {**config.get("config", {}), "name": precision}}
    found = {
        key: _changed(value, precision, size)
        for key, value in config.items()
        if size is None or key != "build_config"
    }
    shape = found.get("batch_shape")
    if size is not None and isinstance(shape, (list, tuple)):
        found["batch_shape"] = [shape[0], *size, *shape[1 + len(size) :]]
    return found
