"""ModelSpec → a compiled Keras model.

A `.keras` file is loaded in Keras's safe mode. A live model's configuration comes from the
user's own process, so its lambdas are allowed.
"""

from __future__ import annotations

import base64
import contextlib
import inspect
import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomdoctor.errors import InputError, OomDoctorError, UsageError
from oomdoctor.model.archive import read_config
from oomdoctor.model.batches import default_loss
from oomdoctor.model.fields import symbols_of
from oomdoctor.model.inputs import input_fields
from oomdoctor.model.messages import first_line, is_out_of_memory
from oomdoctor.model.modules import find_modules_in, load_callable
from oomdoctor.model.spec import ModelSpec
from oomdoctor.units import Sizes

DEFAULT_OPTIMIZER = "adam"

_NO_DOWNLOAD = "URL fetch failure"
"""What Keras says where there is no network."""


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Leave Keras's global policy and the import path as they were."""
    import keras

    policy, path = keras.config.dtype_policy(), list(sys.path)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(policy)
        sys.path[:] = path


def forget_names() -> None:
    """Number layers from the start again, so that a model's names do not depend on others."""
    import keras

    keras.utils.clear_session()


def build_model(spec: ModelSpec) -> tuple[Any, list[str]]:
    """Return the model, compiled, and notes on what was assumed."""
    import keras

    find_modules_in(spec.sys_path)
    if keras.backend.backend() != "tensorflow":
        raise InputError(
            f"Keras runs on {keras.backend.backend()} here: set KERAS_BACKEND=tensorflow."
        )
    if spec.config is not None:
        model = _from_config(json.loads(spec.config), spec, safe_mode=False)
    elif spec.is_file:
        model = _from_config(read_config(Path(spec.source)), spec, safe_mode=True)
    else:
        model = _from_callable(spec)
    if not isinstance(model, keras.Model):
        raise InputError(f"{spec.source} gave a {type(model).__name__}, not a Keras model.")
    with contextlib.suppress(OomDoctorError):  # what is missing is asked for by the step
        build_layers(model, spec)
    _check_parameters(model, spec)
    return model, compile_model(model, spec)


def _from_config(config: dict[str, Any], spec: ModelSpec, *, safe_mode: bool) -> Any:
    import keras

    objects = {} if spec.objects is None else pickle.loads(base64.b64decode(spec.objects))
    if spec.policy is not None:
        keras.config.set_dtype_policy(spec.policy)
    if spec.precision is not None:
        keras.config.set_dtype_policy(spec.precision)
        config = _with_policy(config, spec.precision)
    if spec.input_shape is not None:
        config = _with_input_size(config, spec.input_shape)
    config = _without_unasked(config, objects)
    settings = config.pop("compile_config", None)
    try:
        with keras.saving.custom_object_scope(objects):
            model = keras.saving.deserialize_keras_object(config, safe_mode=safe_mode)
            build_layers(model, spec)
            if spec.trainable is not None:
                _freeze(model, spec.trainable)
            _fill_lookups(model, spec)
            if settings:
                model.compile_from_config(settings)
            return model
    except Exception as error:  # Keras raises many types; all mean "cannot rebuild"
        if is_out_of_memory(error) or isinstance(error, OomDoctorError):
            raise
        raise InputError(
            f"The model {spec.source} cannot be rebuilt from its configuration: "
            f"{type(error).__name__}: {error} "
            "Give module:callable instead, a function that returns the model."
        ) from error


def _without_unasked(config: Any, objects: dict[str, Any]) -> Any:
    """Return a configuration without what a class's constructor does not take.

    Keras adds the name, the dtype and whether it is trainable to every configuration; most
    subclasses in notebooks have an `__init__(self)` that takes none of them.
    """
    if isinstance(config, list):
        return [_without_unasked(item, objects) for item in config]
    if not isinstance(config, dict):
        return config
    config = {key: _without_unasked(value, objects) for key, value in config.items()}
    made = objects.get(str(config.get("registered_name") or config.get("class_name")))
    if isinstance(made, type) and isinstance(config.get("config"), dict):
        taken = inspect.signature(made.__init__).parameters  # type: ignore[misc]
        if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in taken.values()):
            unasked = {"name", "dtype", "trainable"} - set(taken)
            kept = {k: v for k, v in config["config"].items() if k not in unasked}
            config["config"] = kept
    return config


def build_layers(model: Any, spec: ModelSpec) -> None:
    """Create the variables that a configuration left out.

    Keras marks a subclassed model as built without building its layers. An optimizer that is
    compiled then would know of no variable.
    """
    if all(layer.built for layer in model._flatten_layers()):
        return
    inputs = input_fields(model, spec)
    # Where no call works (a model that only has a train_step) tracing the step builds it.
    for batch_size in (None, 2):
        with contextlib.suppress(Exception):
            model(symbols_of(inputs, batch_size))
            return


def _with_input_size(config: Any, size: Sizes) -> Any:
    """Return a configuration whose inputs have other leading dimensions, after the batch.

    Sizes by name are for the inputs of that name.
    """
    if isinstance(config, list):
        return [_with_input_size(item, size) for item in config]
    if not isinstance(config, dict):
        return config
    # What a layer was built for is found anew from the inputs.
    kept = {k: _with_input_size(v, size) for k, v in config.items() if k != "build_config"}
    shape = kept.get("batch_shape")
    wanted = size.get(str(kept.get("name")), ()) if isinstance(size, dict) else size
    if isinstance(shape, (list, tuple)) and wanted:
        kept["batch_shape"] = [shape[0], *wanted, *shape[1 + len(wanted) :]]
    return kept


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
    try:
        model = load_callable(spec.source)()
    except Exception as error:
        if _NO_DOWNLOAD not in str(error):
            raise
        raise InputError(
            f"{spec.source} cannot download what it wants ({first_line(error)}): build the "
            "model with weights=None, the values of weights do not change what it takes."
        ) from error
    policy = getattr(getattr(model, "dtype_policy", None), "name", None)
    if spec.precision is not None and policy not in (spec.precision, None):
        raise UsageError(
            f"--precision {spec.precision} has no effect: {spec.source} sets the policy {policy} "
            "itself."
        )
    return model


def _fill_lookups(model: Any, spec: ModelSpec) -> None:
    """Give lookup layers a vocabulary as large as the real one, which is no part of a config."""
    layers = list(model._flatten_layers())
    sizes = spec.vocabularies or [None] * len(layers)
    if len(sizes) != len(layers):
        return
    for layer, size in zip(layers, sizes, strict=True):
        if not hasattr(layer, "set_vocabulary") or not hasattr(layer, "get_vocabulary"):
            continue
        if not layer.get_vocabulary(include_special_tokens=False):
            is_whole = str(getattr(layer, "vocabulary_dtype", "string")).startswith("int")
            words = range(1, (size or 1) + 1)
            layer.set_vocabulary(list(words) if is_whole else [f"word{word}" for word in words])


def _freeze(model: Any, trainable: tuple[bool, ...]) -> None:
    """Give each layer the trainable flag it had; configurations of subclasses drop it."""
    layers = list(model._flatten_layers())
    if len(layers) == len(trainable):
        for layer, flag in zip(layers, trainable, strict=True):
            # The public setter would reach down and undo what was set for inner layers.
            if layer.trainable != flag and not layer._layers:
                layer.trainable = flag


def _check_parameters(model: Any, spec: ModelSpec) -> None:
    """Raise if a live model came back as something else: its figures would be another's."""
    wanted = (spec.parameters, spec.trainable_parameters)
    if not model.built or None in wanted:
        return
    counts = tuple(
        sum(int(variable.value.shape.num_elements()) for variable in variables)
        for variables in (model.variables, model.trainable_variables)
    )
    if counts != wanted:
        raise InputError(
            f"The model {spec.source} has {wanted[0]} parameters ({wanted[1]} trainable), but "
            f"{counts[0]} ({counts[1]}) when it is rebuilt from its configuration. "
            "Give module:callable instead, a function that returns the model."
        )


def compile_model(model: Any, spec: ModelSpec) -> list[str]:
    """Compile what is not compiled, and apply what the spec overrides."""
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
        notes.append(
            f"The model was not compiled: the optimizer is taken to be {DEFAULT_OPTIMIZER}."
        )
    if loss is None and not custom_step:
        loss = default_loss(model, spec)
        notes.append(f"The model was not compiled: the loss is taken to be {loss}.")
    settings = {"optimizer": DEFAULT_OPTIMIZER, "loss": loss, **_overrides(spec)}
    try:
        model.compile(**settings)
    except TypeError as error:
        raise InputError(
            f"The model has a compile() of its own ({error}): give module:callable, a function "
            "that returns the compiled model."
        ) from error
    return notes


def optimizers_of(model: Any) -> list[Any]:
    """Return the optimizers of a model: the compiled one, and those that it keeps beside it."""
    import keras

    values = [getattr(model, "optimizer", None), *vars(model).values()]
    for value in list(values):
        if isinstance(value, (list, tuple, dict)):
            values.extend(value.values() if isinstance(value, dict) else value)
    found = {id(v): v for v in values if isinstance(v, keras.optimizers.Optimizer)}
    return list(found.values())


def _overrides(spec: ModelSpec) -> dict[str, Any]:
    found = {"optimizer": spec.optimizer, "loss": spec.loss, "jit_compile": spec.jit_compile}
    return {key: value for key, value in found.items() if value is not None}


def _base_model() -> Any:
    import keras

    return keras.Model
