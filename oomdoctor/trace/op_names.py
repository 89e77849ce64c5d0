"""What names, scopes and variables of a traced step belong to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from oomdoctor.trace.explain import INPUTS, Holder, StepNames


def names_of(
    model: Any, function: Any, data: Any, scopes: dict[str, str], optimizers: set[str]
) -> StepNames:
    """Return what the names in a traced step stand for.

    Args:
        model: The model.
        function: Its step, traced.
        data: The batch it is fed with.
        scopes: Name scope → layer, from `scopes_noted`.
        optimizers: Name scopes of optimizers, from there too.
    """
    import tensorflow as tf

    variables = list(_variables(model))
    holders = [holder for holder, _ in variables]
    places = {id(variable): index for index, (_, variable) in enumerate(variables)}
    for tensor in tf.nest.flatten(data):
        size = tensor.dtype.size * int(tf.size(tensor))
        shape = tuple(tensor.shape)
        holders.append(Holder("batch", "activations", INPUTS, shape, tensor.dtype.name, size))
    return StepNames(
        scopes=scopes,
        optimizers=frozenset(optimizers),
        writes=_writes(function, places),
        holders=tuple(holders),
    )


def _variables(model: Any) -> Iterator[tuple[Holder, Any]]:
    """Yield every variable of a model, its metrics and its optimizer, with what it is."""
    owners: dict[int, str] = {}
    for layer in [model, *model._flatten_layers(include_self=False)]:
        for variable in [*layer._trainable_variables, *layer._non_trainable_variables]:
            owners.setdefault(id(variable), _layer_name(layer, model))
    by_slot_name = {v.path.replace("/", "_"): owners.get(id(v)) for v in model.variables}
    optimizer = getattr(model, "optimizer", None)
    slots = {id(v) for v in optimizer.variables} if optimizer is not None else set()
    found = [*model.variables, *model.metrics_variables]
    found += list(optimizer.variables) if optimizer is not None else []
    seen = set()
    for variable in found:
        if id(variable) in seen:
            continue
        seen.add(id(variable))
        is_slot = id(variable) in slots
        layer = _layer_of_slot(variable, by_slot_name) if is_slot else owners.get(id(variable))
        value = variable._value
        yield (
            Holder(
                name=variable.path,
                part="optimizer" if is_slot else "weights",
                layer=layer,
                shape=tuple(variable.shape),
                dtype=str(variable.dtype),
                size_bytes=value.dtype.size * (value.shape.num_elements() or 0),
                trainable=bool(variable.trainable) and not is_slot,
            ),
            value,
        )


def _layer_of_slot(slot: Any, by_slot_name: dict[str, str | None]) -> str | None:
    name = slot.path.rpartition("/")[2]
    fitting = [known for known in by_slot_name if name.startswith(known)]
    return by_slot_name[max(fitting, key=len)] if fitting else None


def _writes(function: Any, places: dict[int, int]) -> dict[str, int]:
    """Return which nodes write which variable; only such nodes replace its buffer."""
    handles = {id(v.handle): places[id(v)] for v in function.variables if id(v) in places}
    inputs = {
        inner.op.name: handles[id(outer)]
        for outer, inner in function.graph.captures
        if id(outer) in handles
    }
    return {
        op.name: inputs[op.inputs[0].op.name]
        for op in function.graph.get_operations()
        if op.type.startswith("Assign") and op.inputs and op.inputs[0].op.name in inputs
    }


def _layer_name(layer: Any, model: Any) -> str:
    path = str(getattr(layer, "path", None) or layer.name)
    return path.removeprefix(f"{model.name}/")


@contextlib.contextmanager
def scopes_noted(model: Any, scopes: dict[str, str], optimizers: set[str]) -> Iterator[None]:
    """Note which name scope each layer opens while a step is traced.

    TensorFlow makes scopes unique by adding numbers, which cannot be told from Keras's own.
    """
    import keras
    import tensorflow as tf

    scope_class = keras.name_scope
    enter = scope_class.__enter__

    def noting_enter(self: Any) -> Any:
        result = enter(self)
        caller = getattr(self, "caller", None)
        scope = tf.get_current_name_scope()
        if isinstance(caller, keras.optimizers.Optimizer):
            optimizers.add(scope.rpartition("/")[2])
        elif isinstance(caller, keras.Layer) and scope:
            scopes[scope] = _layer_name(caller, model)
        return result

    scope_class.__enter__ = noting_enter
    try:
        yield
    finally:
        scope_class.__enter__ = enter
