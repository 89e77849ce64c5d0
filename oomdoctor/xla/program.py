"""Which program Keras would run on a card, XLA's or TensorFlow's own, and why.

It is decided as `keras.Trainer.compile` decides on a machine with a GPU, which need not be this
one: `jit_compile="auto"` means XLA there, unless the model is distributed, or a layer has no
support for it. On a machine without a GPU Keras makes "auto" False at once, and nothing in the
model says whether it was so, so False is taken for "auto" unless `keeping_auto` saw the model
compiled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Jit = Literal["auto", "on", "off"]

_compiled: weakref.WeakKeyDictionary[Any, bool | str] = weakref.WeakKeyDictionary()
"""Models that were compiled under `keeping_auto`, and their `jit_compile`. Keras keeps less: "auto"
becomes True or False, and True becomes False if a layer does not support XLA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program a training step runs as."""

    name: Literal["xla", "executor"]
    reason: str
    """One sentence."""
    is_assumed: bool = False
    """Whether it rests on `jit_compile` being "auto", which the model does not say."""
    has_choice: bool = False
    """Whether the executor's is the user's decision, and XLA could compile the step as well."""

    @property
    def is_xla(self) -> bool:
        """Whether XLA compiles the step."""
        return self.name == "xla"


def choose_program(model: Any, *, jit: Jit = "auto") -> Program:
    """Return the program that Keras would run on a machine with a GPU.

    Args:
        model: A compiled Keras model.
        jit: `auto` decides as Keras would; `on` and `off` are the user's decision.
    """
    if jit == "on":
        return Program(name="xla", reason="XLA was asked for with --jit on.")
    asked = _jit_compile(model)
    decided = None
    if jit == "off":
        decided = "XLA was turned off with --jit off."
    elif getattr(model, "run_eagerly", False):
        decided = "The model was compiled with run_eagerly=True."
    elif asked is False:
        decided = "The model was compiled with jit_compile=False."
    if decided is not None:
        is_alone = not getattr(model, "_distribute_strategy", None)
        has_choice = is_alone and _obstacle(model) is None
        return Program(name="executor", reason=decided, has_choice=has_choice)
    if asked is not True and getattr(model, "_distribute_strategy", None):
        return Program(
            name="executor", reason="Keras does not use XLA for a model under tf.distribute."
        )
    obstacle = _obstacle(model)
    if obstacle is not None:
        return Program(name="executor", reason=obstacle)
    if asked is True:
        return Program(name="xla", reason="The model was compiled with jit_compile=True.")
    return Program(
        name="xla",
        reason='On a GPU Keras compiles the step with XLA (jit_compile="auto").',
        is_assumed=asked is None,
    )


@contextlib.contextmanager
def keeping_auto() -> Iterator[None]:
    """Remember for models that are compiled meanwhile whether `jit_compile` was "auto".

    A model that is loaded from a file is compiled with what "auto" became where it was saved, so
    False from a file is not remembered.
    """
    from keras import Model

    # Where the method is defined: elsewhere Keras would take it for one that a user overrides.
    owner = next(kind for kind in Model.__mro__ if "compile" in vars(kind))
    original = owner.compile
    place = list(inspect.signature(original).parameters).index("jit_compile") - 1

    @functools.wraps(original)
    def compile_and_note(self: Any, *args: Any, **options: Any) -> Any:
        asked = args[place] if len(args) > place else options.get("jit_compile", "auto")
        is_loaded = sys._getframe(1).f_code.co_name == "compile_from_config"
        if asked == "auto" or not is_loaded:
            _compiled[self] = asked if asked == "auto" else bool(asked)
        return original(self, *args, **options)

    owner.compile = compile_and_note
    try:
        yield
    finally:
        owner.compile = original


def _jit_compile(model: Any) -> bool | str | None:
    """Return `jit_compile` as the model was compiled; None where "auto" and False look alike."""
    value = getattr(model, "_jit_compile", None)
    if model in _compiled:
        return _compiled[model]
    if value:
        return True
    return False if value is False and _has_gpu() else None


def _has_gpu() -> bool:
    import tensorflow as tf

    return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())


def _obstacle(model: Any) -> str | None:
    """Return why Keras would not use XLA for this model on a machine with a GPU."""
    from tensorflow.python.framework.config import is_op_determinism_enabled

    for layer in model._flatten_layers():
        if _uses_cudnn(layer):
            return f"The layer {layer.name} runs on cuDNN on a GPU, which XLA cannot compile."
        if not getattr(layer, "supports_jit", True):
            return f"The layer {layer.name} ({type(layer).__name__}) does not support XLA."
    if is_op_determinism_enabled():
        return "Keras does not use XLA while TensorFlow's op determinism is enabled."
    return None


def _uses_cudnn(layer: Any) -> bool:
    """Return whether a recurrent layer would run on cuDNN if there were a GPU."""
    from keras import activations, layers

    if not isinstance(layer, (layers.LSTM, layers.GRU)):
        return False
    if getattr(layer, "use_cudnn", "auto") not in (True, "auto"):
        return False
    cell = layer.cell
    return (
        cell.activation is activations.tanh
        and cell.recurrent_activation is activations.sigmoid
        and not layer.unroll
        and cell.use_bias
        and getattr(cell, "reset_after", True)
    )
