"""ModelSpec → a compiled Keras model. Runs inside the worker.

A `.keras` file is loaded in Keras's safe mode. A live model's configuration comes from the
user's own process, so its lambdas are allowed.
"""

from __future__ import annotations

import base64
import importlib
import json
import pickle
import sys
import zipfile
from pathlib import Path
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.measure.spec import ModelSpec

DEFAULT_OPTIMIZER = "adam"


def build_model(spec: ModelSpec) -> tuple[Any, list[str]]:
    """Return the model, compiled, and notes on what was assumed."""
    import keras

    sys.path[:0] = [entry for entry in spec.sys_path if entry not in sys.path]
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            f"Keras runs on {keras.backend.backend()} here: set KERAS_BACKEND=tensorflow."
        )
    if spec.config is not None:
        model = _from_config(json.loads(spec.config), spec, safe_mode=False)
    elif spec.source.endswith(".keras"):
        model = _from_file(spec)
    else:
        model = _from_callable(spec)
    if not isinstance(model, keras.Model):
        raise InputError(f"{spec.source} gave a {type(model).__name__}, not a Keras model.")
    if spec.trainable is not None:
        _freeze(model, spec.trainable)
    return model, _compile(model, spec)


def _from_file(spec: ModelSpec) -> Any:
    """Return a saved model without its weights' values, which do not change its memory."""
    path = Path(spec.source)
    if not path.is_file():
        raise InputError(f"{path} does not exist: give a .keras file or module:callable.")
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise InputError(
            f"{path} is not a .keras archive ({error}): save the model again."
        ) from error
    return _from_config(config, spec, safe_mode=True)


def _from_config(config: dict[str, Any], spec: ModelSpec, *, safe_mode: bool) -> Any:
    import keras

    objects = {} if spec.objects is None else pickle.loads(base64.b64decode(spec.objects))
    if spec.precision is not None:
        keras.config.set_dtype_policy(spec.precision)
        config = _with_policy(config, spec.precision)
    try:
        return keras.saving.deserialize_keras_object(
            config, custom_objects=objects, safe_mode=safe_mode
        )
    except Exception as error:  # Keras raises many types; all mean "cannot rebuild"
        raise InputError(
            f"The model {spec.source} cannot be rebuilt from its configuration: "
            f"{type(error).__name__}: {error} "
            "Give module:callable instead, a function that returns the model."
        ) from error


def _with_policy(config: Any, policy: str) -> Any:
    """Return a configuration whose layers all have another dtype policy."""
    if isinstance(config, list):
        return [_with_policy(item, policy) for item in config]
    if not isinstance(config, dict):
        return config
    if config.get("class_name") == "DTypePolicy":
        return {**config, "config": {**config.get("config", {}), "name": policy}}
    return {key: _with_policy(value, policy) for key, value in config.items()}


def _from_callable(spec: ModelSpec) -> Any:
    import keras

    if spec.precision is not None:
        keras.config.set_dtype_policy(spec.precision)
    return load_callable(spec.source)()


def load_callable(name: str) -> Any:
    """Return what `module:callable` names."""
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(f"{name!r} names no model: give a .keras file or module:callable.")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise InputError(f"Importing {module_name} failed: {error}.") from error
        raise InputError(
            f"There is no module {module_name}: run from the folder that holds it."
        ) from error
    for step in attribute.split("."):
        if not hasattr(found, step):
            raise InputError(f"The module {module_name} has no {attribute}.")
        found = getattr(found, step)
    return found


def _freeze(model: Any, trainable: tuple[bool, ...]) -> None:
    """Give each layer the trainable flag it had; configurations of subclasses drop it."""
    layers = list(model._flatten_layers())
    if len(layers) == len(trainable):
        for layer, flag in zip(layers, trainable, strict=True):
            # The public setter would reach down and undo what was set for inner layers.
            if layer.trainable != flag and not layer._layers:
                layer.trainable = flag


def _compile(model: Any, spec: ModelSpec) -> list[str]:
    """Compile what is not compiled, and apply what the spec overrides."""
    from oomdoctor.measure.batch import default_loss

    notes: list[str] = []
    custom_step = type(model).train_step is not _base_model().train_step
    if model.compiled:
        if spec.optimizer or spec.loss or spec.jit_compile is not None:
            config = dict(model.get_compile_config())
            if not config:
                raise InputError(
                    "The model has a compile() of its own, so its optimizer, loss and "
                    "jit_compile cannot be replaced: change them in the model's code."
                )
            config.update(_overrides(spec))
            model.compile_from_config(config)
        return notes
    loss = spec.loss
    if spec.optimizer is None:
        notes.append(f"The model was not compiled: measured with {DEFAULT_OPTIMIZER}.")
    if loss is None and not custom_step:
        loss = default_loss(model)
        notes.append(f"The model was not compiled: measured with the loss {loss}.")
    settings = {"optimizer": DEFAULT_OPTIMIZER, "loss": loss, **_overrides(spec)}
    model.compile(**settings)
    return notes


def _overrides(spec: ModelSpec) -> dict[str, Any]:
    found = {"optimizer": spec.optimizer, "loss": spec.loss, "jit_compile": spec.jit_compile}
    return {key: value for key, value in found.items() if value is not None}


def _base_model() -> Any:
    import keras

    return keras.Model
