"""What names, scopes and variables of a traced step belong to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomdoctor.estimate.attribution import Owner, owners_of
from oomdoctor.estimate.graph import read_graph
from oomdoctor.estimate.nodes import Variable
from oomdoctor.estimate.scopes import INPUTS, Scopes, variable_rows
from oomdoctor.trace.explain import Holder, StepNames


def names_of(model: Any, function: Any, data: Any, scopes: Scopes) -> StepNames:
    """Return what the names in a traced step stand for.

    Args:
        model: The model.
        function: Its step, traced.
        data: The batch it is fed with.
        scopes: What was noted while it was traced.
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
        owners=_owners(function, scopes, holders, places),
        writes=_writes(function, places),
        holders=tuple(holders),
    )


def _owners(
    function: Any, scopes: Scopes, holders: list[Holder], places: dict[int, int]
) -> dict[str, Owner]:
    """Return whose the outputs of each node are."""
    numbers = {id(v.handle): places[id(v)] for v in function.variables if id(v) in places}
    graph = read_graph(function, numbers)
    variables = [Variable(h.name, h.part, h.size_bytes, h.shape, h.dtype, h.layer) for h in holders]
    return owners_of(graph, scopes, variables)


def _variables(model: Any) -> Iterator[tuple[Holder, Any]]:
    """Yield every variable of a model, its metrics and its optimizer, with what it is."""
    rows = variable_rows(model)
    optimizer = getattr(model, "optimizer", None)
    slots = {id(v) for v in optimizer.variables} if optimizer is not None else set()
    found = [*model.variables, *model.metrics_variables]
    found += list(optimizer.variables) if optimizer is not None else []
    for variable in {id(variable): variable for variable in found}.values():
        is_slot = id(variable) in slots
        value = variable._value
        yield (
            Holder(
                name=variable.path,
                part="optimizer" if is_slot else "weights",
                layer=rows.get(id(variable)),
                shape=tuple(variable.shape),
                dtype=str(variable.dtype),
                size_bytes=value.dtype.size * (value.shape.num_elements() or 0),
                trainable=bool(variable.trainable) and not is_slot,
            ),
            value,
        )


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
