"""Compile a model again with one argument changed."""

from __future__ import annotations

from typing import Any

from oomdoctor.errors import UsageError


def compile_arguments(model: Any) -> dict[str, Any]:
    """Return the arguments that `compile` was given, as live objects.

    The optimizer is the one in use, so its state is carried over.
    """
    if not getattr(model, "compiled", False):
        raise UsageError("The model is not compiled: call model.compile(...) first.")
    given = getattr(model, "_compile_config", None)
    if given is None:
        raise UsageError(
            "The model has a compile() of its own, so it cannot be compiled again with other "
            "arguments: change them in the model's code."
        )
    return {**given.config, "optimizer": model.optimizer}


def recompile(model: Any, **changes: Any) -> Any:
    """Compile a model as before, except for the arguments given.

    Example:
        >>> from oomdoctor.treat.compiling import recompile
        >>> model = recompile(model, jit_compile=False)  # doctest: +SKIP
    """
    model.compile(**{**compile_arguments(model), **changes})
    if model.built and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return model
