"""A live model → a ModelSpec, without touching the model.

Keras's own configuration of the model is taken: layers, build shapes, compile arguments. Values
of weights stay where they are: they do not change memory, and copying them would cost as much as
the model. Classes and functions of the user's go along (see `objects.py`), those of a notebook or
of the running script included, so nothing has to be put into a module first.

What a configuration cannot say: a `compile()` of the model's own without `get_compile_config`,
and constructor arguments that Keras cannot serialise. Then the user is asked for
`module:callable`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import types
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.model.objects import pack
from oomdoctor.model.spec import ModelSpec


def spec_of_model(model: Any, **overrides: Any) -> ModelSpec:
    """Return how to rebuild a live Keras model in another process.

    Args:
        model: The model; it is only read.
        **overrides: Fields of `ModelSpec`, such as `input_shape` or `precision`.
    """
    import keras

    if not isinstance(model, keras.Model):
        raise InputError(f"A {type(model).__name__} is not a Keras model.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = keras.saving.serialize_keras_object(model)
        text = json.dumps(config)
    except Exception as error:  # any code of the user's runs here
        raise InputError(
            f"The model {model.name} cannot be described ({type(error).__name__}: {error}): give "
            "its classes a get_config(), or give module:callable, a function that returns it."
        ) from error
    objects = dict(_objects(json.loads(text), list(_live_parts(model))))
    spec = ModelSpec(
        source=model.name,
        sys_path=tuple(entry or os.getcwd() for entry in sys.path),
        config=text,
        objects=base64.b64encode(pack(objects)).decode() if objects else None,
        trainable=tuple(bool(layer.trainable) for layer in model._flatten_layers()),
        vocabularies=tuple(_words(layer) for layer in model._flatten_layers()),
        policy=keras.config.dtype_policy().name,
        parameters=_count(model.variables) if model.built else None,
        trainable_parameters=_count(model.trainable_variables) if model.built else None,
    )
    return replace(spec, **overrides)


def _words(layer: Any) -> int | None:
    """Return how many words a lookup layer knows; its configuration does not say."""
    if not hasattr(layer, "set_vocabulary") or not hasattr(layer, "get_vocabulary"):
        return None
    return len(layer.get_vocabulary(include_special_tokens=False))


def _count(variables: Any) -> int:
    return sum(int(variable.value.shape.num_elements()) for variable in variables)


def _objects(config: Any, live: list[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what the configuration names and Keras does not bring, under Keras's names."""
    if isinstance(config, list):
        for item in config:
            yield from _objects(item, live)
    elif isinstance(config, dict):
        found = _named(config, live)
        if found is not None:
            yield found.__name__, found
            if config.get("registered_name"):
                yield config["registered_name"], found
        for value in config.values():
            yield from _objects(value, live)


def _named(config: dict[str, Any], live: list[Any]) -> Any:
    """Return the user's class or function that one entry of a configuration stands for."""
    import keras

    module, name = config.get("module"), config.get("class_name")
    if name == "function":
        name = config.get("config")
    elif str(module).partition(".")[0] in ("keras", "builtins"):
        return None
    if not isinstance(name, str):
        return None
    registered = config.get("registered_name") or name
    found = keras.saving.get_registered_object(registered)
    for value in live if found is None else ():
        if value.__name__ == name:
            found = value
            break
    if found is None and module in sys.modules:
        found = getattr(sys.modules[module], str(name), None)
    if not isinstance(found, (type, types.FunctionType)) or _is_of_keras(found):
        return None
    return found


def _is_of_keras(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] in ("keras", "tensorflow")


def _live_parts(model: Any) -> Iterator[Any]:
    """Yield the user's classes and functions that a model uses, wherever they were defined."""
    values: list[Any] = [model.__dict__.get("_optimizer"), getattr(model, "loss", None)]
    values += _flat(getattr(getattr(model, "_compile_config", None), "config", {}))
    for layer in model._flatten_layers():
        yield from _own(type(layer))
        values += _flat(list(vars(layer).values()))
    for value in values:
        if isinstance(value, types.FunctionType):
            yield from _own(value)
        elif value is not None:
            yield from _own(type(value))


def _own(value: Any) -> Iterator[Any]:
    if not _is_of_keras(value) and value.__module__ != "builtins":
        yield value


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [inner for item in value for inner in _flat(item)]
    return [value]
