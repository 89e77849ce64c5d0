"""Gradient checkpointing: recompute activations in the backward pass instead of keeping them.

`keras.RematScope` wraps single layers as they are built, raises for most models on TensorFlow
(`mode="full"`), and runs what a layer does beside its output twice: dropout draws another mask for
the gradients than for the output, and BatchNormalization updates its averages twice. Here
stretches of a model that is already built are recomputed, and their state is passed through: both
runs read the same values, and the new ones are assigned once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.treat.recompute_plan import Operation, Plan, plan_recompute


def recompute(model: Any, *, batch_size: int = 1, most_bytes: int | None = None) -> Any:
    """Let a model compute parts of its forward pass twice instead of keeping activations.

    Outputs, gradients and updates stay the same. A step takes up to a third longer. The parts of a
    functional or Sequential model are chosen by a planner; of a subclassed model, every layer that
    has layers of its own is recomputed. Call it before the first training step.

    Example:
        >>> from oomdoctor.treat.recompute import recompute
        >>> model = recompute(model)  # doctest: +SKIP
        >>> model.fit(x, y)  # doctest: +SKIP

    Args:
        model: Built. Only how it is called changes: a saved model is the plain one.
        batch_size: Used with `most_bytes` alone.
        most_bytes: Recompute no more than what brings activations down to this.
    """
    changed = 0
    for functional in _functionals(model):
        plan, nodes, _ = plan_of(functional, batch_size=batch_size, most_bytes=most_bytes)
        if plan.stretches:
            functional.call = _Recomputing(functional, plan, nodes)
            changed += 1
    if not _functionals(model):
        for layer in model.layers:
            if layer._layers and layer.built and _can_recompute(layer):
                layer.call = _recomputed_layer(layer)
                changed += 1
    if not changed:
        raise UsageError(
            "Recomputing saves nothing in this model: it is a single stretch, or it adds losses "
            "inside its layers."
        )
    model.train_function = None
    return model


def plan_of(
    functional: Any, *, batch_size: int = 1, most_bytes: int | None = None
) -> tuple[Plan, list[Any], list[Operation]]:
    """Return the plan for a functional model, and the nodes that it counts."""
    nodes = [node for node in _nodes(functional) if not node.is_input]
    numbers: dict[int, int] = {}
    sizes: list[int] = []
    for node in nodes:
        for tensor in (*node.input_tensors, *node.outputs):
            if id(tensor) not in numbers:
                numbers[id(tensor)] = len(sizes)
                sizes.append(_bytes_of(tensor, node.operation, batch_size))
    operations = [
        Operation(
            name=node.operation.name,
            reads=tuple(numbers[id(tensor)] for tensor in node.input_tensors),
            writes=tuple(numbers[id(tensor)] for tensor in node.outputs),
            inside_bytes=_inside_bytes(node, batch_size),
            work=_work(node),
            can_recompute=_can_recompute(node.operation) and _has_float(node.input_tensors),
        )
        for node in nodes
    ]
    outputs = [numbers[id(t)] for t in functional.outputs if id(t) in numbers]
    return plan_recompute(operations, sizes, outputs, most_bytes=most_bytes), nodes, operations


class _Recomputing:
    """The `call` of a functional model that recomputes stretches of it."""

    def __init__(self, functional: Any, plan: Plan, nodes: Sequence[Any]) -> None:
        self._model = functional
        self._plain = functional.call
        self._parts: list[tuple[list[Any], bool]] = []
        at = 0
        for stretch in plan.stretches:
            if at < stretch.start:
                self._parts.append((list(nodes[at : stretch.start]), False))
            self._parts.append((list(nodes[stretch.start : stretch.stop]), True))
            at = stretch.stop
        if at < len(nodes):
            self._parts.append((list(nodes[at:]), False))

    def __call__(self, inputs: Any, training: Any = None, mask: Any = None, **kwargs: Any) -> Any:
        import keras

        given = keras.tree.flatten(inputs)
        if not training or any(isinstance(value, keras.KerasTensor) for value in given):
            return self._plain(inputs, training=training, mask=mask, **kwargs)
        inputs = self._model._standardize_inputs(inputs)
        masks = [None] * len(inputs) if mask is None else keras.tree.flatten(mask)
        for value, its_mask in zip(inputs, masks, strict=True):
            if its_mask is not None:
                value._keras_mask = its_mask
        values = {
            id(reference): value
            for reference, value in zip(self._model.inputs, inputs, strict=True)
        }
        context = {"training": training, **kwargs}
        for nodes, is_recomputed in self._parts:
            if is_recomputed:
                self._run_twice(nodes, values, context)
            else:
                _run(nodes, values, context)
        outputs = [values[id(tensor)] for tensor in self._model.outputs]
        packed = keras.tree.pack_sequence_as(self._model._outputs_struct, outputs)
        return packed[0] if isinstance(packed, (list, tuple)) and len(packed) == 1 else packed

    def _run_twice(self, nodes: list[Any], values: dict[int, Any], context: dict[str, Any]) -> None:
        made = {id(tensor) for node in nodes for tensor in node.outputs}
        taken = {id(t): t for node in nodes for t in node.input_tensors if id(t) not in made}
        later = {id(t) for t in self._model.outputs}
        inside = {id(node) for node in nodes}
        for node in _nodes(self._model):
            if id(node) not in inside:
                later.update(id(tensor) for tensor in node.input_tensors)
        wanted = [key for node in nodes for key in map(id, node.outputs) if key in later]
        keys = list(taken)

        def forward(*tensors: Any) -> list[Any]:
            local = dict(values)
            for key, tensor in zip(keys, tensors, strict=True):
                mask = getattr(values[key], "_keras_mask", None)
                if mask is not None:
                    tensor._keras_mask = mask
                local[key] = tensor
            _run(nodes, local, context)
            return [local[key] for key in wanted]

        state = [v for node in nodes for v in _state_of(node.operation)]
        results = _twice(forward, [values[key] for key in keys], state)
        values.update(zip(wanted, results, strict=True))


def _twice(forward: Callable[..., list[Any]], inputs: list[Any], state: Sequence[Any]) -> list[Any]:
    """Return what a function returns; its backward pass runs it again.

    Variables that it updates are read before, so that the second run starts from the same values,
    and assigned after the first.
    """
    import keras
    import tensorflow as tf

    unique = list({id(variable): variable for variable in state}.values())
    # The value itself: inside a layer of 16 bits `value` would be rounded.
    before = [tf.identity(variable._value) for variable in unique]
    floats = [index for index, value in enumerate(inputs) if _is_float(value)]
    has_mask: list[bool] = []
    changed: list[int] = []

    def pure(*tensors: Any) -> tuple[Any, ...]:
        given = list(inputs)
        for index, tensor in zip(floats, tensors, strict=True):
            given[index] = tensor
        pairs = list(zip(unique, before, strict=True))
        with keras.StatelessScope(state_mapping=pairs) as scope:
            results = forward(*given)
        after = [scope.get_current_value(variable) for variable in unique]
        changed[:] = [i for i, value in enumerate(after) if value is not before[i]]
        masks = [getattr(result, "_keras_mask", None) for result in results]
        has_mask[:] = [mask is not None for mask in masks]
        extra = [tf.cast(mask, tf.float32) for mask in masks if mask is not None]
        extra += [_as_float(after[index]) for index in changed]
        return (*results, *map(tf.stop_gradient, extra))

    answer = list(tf.recompute_grad(pure)(*(inputs[index] for index in floats)))
    results, extra = answer[: len(has_mask)], iter(answer[len(has_mask) :])
    for result, masked in zip(results, has_mask, strict=True):
        if masked:
            result._keras_mask = tf.cast(next(extra), tf.bool)
    for index in changed:
        unique[index].assign(_from_float(next(extra), before[index].dtype))
    return results


def _as_float(value: Any) -> Any:
    """Return the bits of a number as a float's: only floats have gradients, if only zero."""
    import tensorflow as tf

    if value.dtype.is_floating:
        return value
    return tf.bitcast(value, tf.float32 if value.dtype.size == 4 else tf.float64)


def _from_float(value: Any, dtype: Any) -> Any:
    import tensorflow as tf

    return value if value.dtype == dtype else tf.bitcast(value, dtype)


def _recomputed_layer(layer: Any) -> Callable[..., Any]:
    """Return a layer's `call` that recomputes all that is inside."""
    import keras

    plain = layer.call
    state = _state_of(layer)

    def call(*args: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        flat = keras.tree.flatten((args, kwargs))
        if any(isinstance(value, keras.KerasTensor) for value in flat):
            return plain(*args, **kwargs)
        places = [index for index, value in enumerate(flat) if tf.is_tensor(value)]
        structure: list[Any] = []

        def forward(*tensors: Any) -> list[Any]:
            values = list(flat)
            for place, tensor in zip(places, tensors, strict=True):
                values[place] = tensor
            inner_args, inner_kwargs = keras.tree.pack_sequence_as((args, kwargs), values)
            result = plain(*inner_args, **inner_kwargs)
            structure[:] = [result]
            return list(keras.tree.flatten(result))

        found = _twice(forward, [flat[place] for place in places], state)
        return keras.tree.pack_sequence_as(structure[0], found)

    return call


def _run(nodes: Sequence[Any], values: dict[int, Any], context: dict[str, Any]) -> None:
    """Run nodes of a functional model as Keras does, from and into values by tensor."""
    import keras

    for node in nodes:
        args, kwargs = node.arguments.fill_in(values)
        for name, value in context.items():
            if value is not None and name in getattr(node.operation, "_call_context_args", {}):
                kwargs[name] = value
        results = node.operation(*args, **kwargs)
        for reference, result in zip(node.outputs, keras.tree.flatten(results), strict=True):
            values[id(reference)] = result


def _functionals(model: Any) -> list[Any]:
    """Return every functional model in a model, the model itself included."""
    found: list[Any] = []
    for layer in model._flatten_layers():
        inner = getattr(layer, "_functional", None) or layer
        if hasattr(inner, "_nodes_by_depth") and all(inner is not other for other in found):
            found.append(inner)
    return found


def _nodes(functional: Any) -> list[Any]:
    by_depth = functional._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def _can_recompute(operation: Any) -> bool:
    """Return False for models, which are planned by themselves, and layers that add losses."""
    if hasattr(operation, "_nodes_by_depth") or getattr(operation, "_functional", None):
        return False
    for layer in operation._flatten_layers() if hasattr(operation, "_flatten_layers") else ():
        if getattr(layer, "activity_regularizer", None) is not None:
            return False
        if type(layer).__name__ == "ActivityRegularization" or layer._losses:
            return False
    return True


def _state_of(operation: Any) -> list[Any]:
    """Return the variables that running an operation may change."""
    if not hasattr(operation, "variables"):
        return []
    trained = {id(variable) for variable in operation.trainable_variables}
    return [variable for variable in operation.variables if id(variable) not in trained]


def _has_float(tensors: Sequence[Any]) -> bool:
    return any("float" in str(tensor.dtype) for tensor in tensors)


def _is_float(value: Any) -> bool:
    return bool(getattr(getattr(value, "dtype", None), "is_floating", False))


def _elements(shape: Sequence[int | None], batch_size: int) -> int:
    sizes = [batch_size if index == 0 else 1 for index in range(len(shape))]
    return math.prod(given or free for given, free in zip(shape, sizes, strict=True))


def _bytes_of(tensor: Any, operation: Any, batch_size: int) -> int:
    widths = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "bool": 1, "uint8": 1}
    return _elements(tensor.shape, batch_size) * widths.get(str(tensor.dtype), 4)


_GRADIENT_OF_OUTPUT = ("linear", "relu", "sigmoid", "softmax", "tanh")
"""Activations whose gradient TensorFlow computes from the output alone."""


def _inside_bytes(node: Any, batch_size: int) -> int:
    """Return what a node keeps beside its output, as far as its kind tells.

    An activation inside a layer keeps what goes into it, unless its gradient needs only what comes
    out; normalization keeps two copies. Of a layer with layers of its own, an operation graph is
    traced and its outputs are added up.
    """
    operation = node.operation
    out = sum(_bytes_of(tensor, operation, batch_size) for tensor in node.outputs)
    if getattr(operation, "_layers", None):
        return _traced_bytes(node, batch_size)
    kind = type(operation).__name__
    if "Normalization" in kind:
        return 2 * out
    activation = getattr(operation, "activation", None)
    name = getattr(activation, "__name__", "linear")
    return 0 if activation is None or name in _GRADIENT_OF_OUTPUT else out


def _traced_bytes(node: Any, batch_size: int) -> int:
    """Return the bytes of all float tensors that a composite layer makes, traced and not run."""
    import tensorflow as tf

    operation = node.operation
    values: dict[int, Any] = {}

    def forward(*tensors: Any) -> Any:
        values.update(zip(map(id, node.input_tensors), tensors, strict=True))
        args, kwargs = node.arguments.fill_in(values)
        return operation(*args, **kwargs)

    specs = [
        tf.TensorSpec([batch_size if i == 0 else size for i, size in enumerate(t.shape)], t.dtype)
        for t in node.input_tensors
    ]
    try:
        graph = tf.function(forward, autograph=False).get_concrete_function(*specs).graph
    except Exception:  # any layer's own code: then nothing is known of its inside
        return 0
    total = 0
    for op in graph.get_operations():
        if op.type in ("ReadVariableOp", "Const", "Placeholder", "Identity", "Reshape"):
            continue
        for tensor in op.outputs:
            if tensor.dtype.is_floating and tensor.shape.is_fully_defined():
                total += tensor.shape.num_elements() * tensor.dtype.size
    return total


def _work(node: Any) -> float:
    """Return the multiplications and elements of a node's forward pass, for one sample."""
    operation = node.operation
    elements = sum(_elements(tensor.shape, 1) for tensor in node.outputs)
    weights = sum(math.prod(v.shape) for v in getattr(operation, "trainable_variables", ()))
    channels = node.outputs[0].shape[-1] if len(node.outputs[0].shape) > 1 else 1
    return float(elements + weights * max(1.0, elements / (channels or 1)))
