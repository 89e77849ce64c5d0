"""Name scopes of a traced step → the layer that opened them, by its path in the user's model.

TensorFlow makes scopes unique by adding numbers, which cannot be told from Keras's own, so they
are noted while the step is traced. The gradient of an operation has its scope inside its name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

INPUTS = "(inputs)"
LOSS = "(loss and metrics)"
OPTIMIZER = "(optimizer)"
OTHER = "(outside layers)"
ROWS = (INPUTS, LOSS, OPTIMIZER, OTHER)
"""What is not a layer."""


@dataclass(frozen=True, slots=True)
class Scopes:
    """What the name scopes of one traced step belong to."""

    layers: dict[str, str] = field(default_factory=dict)
    """Scope → path of the layer that opened it."""
    optimizers: set[str] = field(default_factory=set)
    """The last part of optimizers' scopes."""
    root: str | None = None
    """The model itself: what it computes between its layers is not a layer's."""

    def row_of(self, name: str) -> str | None:
        """Return the layer, or the row beside the layers, that a node's name tells; else None."""
        steps = name.split("/")
        layer = layer_of(steps, self.layers)
        if layer is not None and layer != self.root:
            return layer
        if not self.optimizers.isdisjoint(steps):
            return OPTIMIZER
        # A loss is computed outside of layers: by the model, or in a scope of its own.
        named = steps if layer is None else steps[-3:]
        return LOSS if any("loss" in step or "metric" in step for step in named) else None


def layer_of(steps: Sequence[str], scopes: Mapping[str, str]) -> str | None:
    """Return the layer of the deepest known scope inside a node's name."""
    for last in range(len(steps), 0, -1):
        for first in range(last):
            layer = scopes.get("/".join(steps[first:last]))
            if layer is not None:
                return layer
    return None


def layer_paths(model: Any) -> dict[int, str]:
    """Return for the `id` of each layer its path in the model, such as `encoder/block_3/attention`.

    A layer that is used in several places has the path of the first.
    """
    found: dict[int, str] = {id(model): str(model.name)}
    waiting = [(model, "")]
    for parent, path in waiting:
        for layer in getattr(parent, "_layers", None) or ():
            if id(layer) not in found:
                found[id(layer)] = f"{path}{layer.name}"
                waiting.append((layer, f"{path}{layer.name}/"))
    return found


def variable_rows(model: Any) -> dict[int, str]:
    """Return for the `id` of each variable the layer it belongs to, or the optimizer."""
    paths = layer_paths(model)
    rows: dict[int, str] = {}
    for layer in [*model._flatten_layers(include_self=False), model]:
        for variable in [*layer._trainable_variables, *layer._non_trainable_variables]:
            path = paths.get(id(layer))
            rows.setdefault(id(variable), OTHER if path is None or layer is model else path)
    optimizer = getattr(model, "optimizer", None)
    for variable in getattr(optimizer, "variables", None) or ():
        rows[id(variable)] = OPTIMIZER
    for variable in model.metrics_variables:
        rows[id(variable)] = LOSS
    return rows


@contextlib.contextmanager
def scopes_noted(model: Any) -> Iterator[Scopes]:
    """Note which name scope each layer opens while a step is traced."""
    import keras
    import tensorflow as tf

    noted = Scopes(root=str(model.name))
    paths = layer_paths(model)
    scope_class = keras.name_scope
    enter = scope_class.__enter__

    def noting_enter(self: Any) -> Any:
        result = enter(self)
        caller = getattr(self, "caller", None)
        scope = tf.get_current_name_scope()
        if isinstance(caller, keras.optimizers.Optimizer):
            noted.optimizers.add(scope.rpartition("/")[2])
        elif isinstance(caller, keras.Layer) and scope:
            noted.layers[scope] = paths.get(id(caller)) or caller.name
        return result

    scope_class.__enter__ = noting_enter
    try:
        yield noted
    finally:
        scope_class.__enter__ = enter
