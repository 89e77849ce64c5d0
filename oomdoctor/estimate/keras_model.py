"""A Keras model → its traced step as plain nodes, and what is known of it without a framework.

The step is traced with a free batch dimension, as `fit` does, and not run. The model keeps its
weights, its compile state and its random state. An optimizer that has no slots yet is traced
with a throw-away twin, because building it would change the model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import InputError, UsageError
from oomdoctor.estimate._pause import collector_paused
from oomdoctor.estimate.graph import read_graph
from oomdoctor.estimate.listing import places
from oomdoctor.estimate.nodes import Graph, Variable
from oomdoctor.estimate.pushdown import moved_inputs
from oomdoctor.estimate.scopes import OPTIMIZER, Scopes, scopes_noted, variable_rows
from oomdoctor.facts import Workload
from oomdoctor.model.batches import possible_batches
from oomdoctor.model.build import optimizers_of
from oomdoctor.model.fields import rows_of, specs_of
from oomdoctor.model.messages import first_line
from oomdoctor.model.reserve import reserving
from oomdoctor.model.spec import KINDS, ModelSpec

_METHODS = {"train": "train_step", "evaluate": "test_step", "predict": "predict_step"}


@dataclass(frozen=True, slots=True)
class Traced:
    """A step that was traced, ready to be simulated at any batch size."""

    graph: Graph
    variables: list[Variable]
    workload: Workload
    scopes: Scopes
    kind: str
    fixed_batch: int | None = None
    """The batch size the model insists on; None where it is free."""
    rows: tuple[int, ...] = ()
    """Rows of a sample in each argument; more than one where values of all samples are in a row, as
    in a ragged tensor."""


def trace_step(
    model: Any, *, kind: str = "train", spec: ModelSpec | None = None, batch: Any = None
) -> Traced:
    """Trace one step of a compiled Keras model.

    Args:
        model: A live Keras model on the TensorFlow backend; compiled, unless `kind` is `predict`.
        kind: `train`, `evaluate` or `predict`.
        spec: What is known of the model and of its data.
        batch: What the step is fed, as `tf.TensorSpec` with a free first dimension: `(x, y)` or
            `(x, y, sample_weight)`. Inferred from the model's inputs, outputs and loss if None.
    """
    with (
        scopes_noted(model) as scopes,
        traced_function(model, kind=kind, spec=spec, batch=batch) as concrete,
    ):
        return read_traced(model, concrete, kind, scopes)


@contextlib.contextmanager
def traced_function(
    model: Any,
    *,
    kind: str = "train",
    spec: ModelSpec | None = None,
    batch: Any = None,
    jit: bool = False,
) -> Iterator[Any]:
    """Trace one step as a `ConcreteFunction`; the optimizer it updates is there meanwhile.

    Args:
        model: As for `trace_step`.
        kind: As for `trace_step`.
        spec: As for `trace_step`.
        batch: As for `trace_step`.
        jit: Trace it for XLA. Loops differ then.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a kind of step: use one of {', '.join(KINDS)}.")
    if kind != "predict" and not model.compiled:
        raise UsageError("The model is not compiled: call model.compile(...) first.")
    with _built_optimizer(model, kind), collector_paused():
        if batch is not None:
            yield _traced(model, kind, batch, jit)
        else:
            yield _first_that_traces(model, kind, spec or ModelSpec(source=model.name), jit)


def _first_that_traces(model: Any, kind: str, spec: ModelSpec, jit: bool) -> Any:
    """Return the step traced with the likeliest batch that the model takes."""
    errors: list[Exception] = []
    for fields in possible_batches(model, spec, kind):
        try:
            concrete = _traced(model, kind, specs_of(fields, None), jit)
            concrete.rows_of_sample = tuple(rows_of(fields))  # no spec of a ragged tensor says it
            return concrete
        except Exception as error:  # any code of the user's runs here
            errors.append(error)
    first = errors[0]
    raise InputError(
        f"The model's {_METHODS[kind]} cannot be traced: {type(first).__name__}: "
        f"{first_line(first)}"
    ) from first


def _traced(model: Any, kind: str, specs: Any, jit: bool) -> Any:
    import tensorflow as tf

    function = tf.function(
        getattr(model, _METHODS[kind]),
        input_signature=[specs],
        autograph=False,  # Keras traces its own step without it
        jit_compile=jit,
    )
    return function.get_concrete_function()


def read_traced(
    model: Any, concrete: Any, kind: str = "train", scopes: Scopes | None = None
) -> Traced:
    """Return a step that somebody has traced already.

    Args:
        model: The model whose step it is.
        concrete: The traced step, a `ConcreteFunction`.
        kind: `train`, `evaluate` or `predict`.
        scopes: What was noted while it was traced; without them no layer has a name.
    """
    with collector_paused():
        optimizers = _optimizers(model, concrete)
        variables, numbers = _variables(model, concrete, kind, optimizers)
        graph = read_graph(concrete, numbers)
        graph.listed.update(places(concrete, moved_inputs(graph)))
        workload = _workload(model, optimizers)
    rows = getattr(concrete, "rows_of_sample", ())
    noted = scopes or Scopes()
    return Traced(graph, variables, workload, noted, kind, _fixed_batch(concrete), rows)


def _fixed_batch(concrete: Any) -> int | None:
    """Return the batch size that a step was traced for, if it takes no other."""
    import tensorflow as tf

    for spec in tf.nest.flatten(concrete.structured_input_signature):
        shape = getattr(spec, "shape", None)
        if shape is not None and shape.rank and shape[0] is not None:
            return int(shape[0])
    return None


@contextlib.contextmanager
def _built_optimizer(model: Any, kind: str) -> Iterator[None]:
    optimizer = getattr(model, "optimizer", None)
    if kind != "train" or optimizer is None or optimizer.built:
        yield
        return
    twin = type(optimizer).from_config(optimizer.get_config())
    twin.is_twin = True
    if all(layer.built for layer in model._flatten_layers()):
        with reserving():
            twin.build(model.trainable_variables)
    # Otherwise the step builds it, as in fit: the variables are not all there yet.
    model.optimizer = twin
    try:
        yield
    finally:
        model.optimizer = optimizer


def _optimizers(model: Any, concrete: Any) -> list[Any]:
    """Return the optimizers that hold memory: there can be several, as in a GAN.

    Keras compiles one by default, whose state is never made if a train_step does not use it.
    """
    captured = {id(outer) for outer, _ in concrete.graph.captures}
    return [
        optimizer
        for optimizer in optimizers_of(model)
        if not hasattr(optimizer, "is_twin")
        or any(id(variable.value.handle) in captured for variable in optimizer.variables)
    ]


def _variables(
    model: Any, concrete: Any, kind: str, optimizers: list[Any]
) -> tuple[list[Variable], dict[int, int]]:
    groups = [("weights", model.variables), ("weights", model.metrics_variables)]
    if kind == "train":
        groups += [("optimizer", known.variables) for known in optimizers]
    rows = variable_rows(model)
    for known in optimizers:
        rows.update((id(variable), OPTIMIZER) for variable in known.variables)
    found: dict[int, tuple[str, Any]] = {}
    for part, members in groups:
        for variable in members:
            found.setdefault(id(variable.value.handle), (part, variable))
    variables: list[Variable] = []
    numbers: dict[int, int] = {}
    for handle, (part, variable) in found.items():
        numbers[handle] = len(variables)
        row = rows.get(id(variable))
        variables.append(_variable(variable.path, part, variable.value, row))
    for outer, _ in concrete.graph.captures:
        if outer.dtype.name == "resource" and id(outer) not in numbers:
            numbers[id(outer)] = len(variables)
            variables.append(_captured(outer, concrete))
    return variables, numbers


def _variable(name: str, part: str, value: Any, row: str | None = None) -> Variable:
    shape = tuple(value.shape.as_list())
    size = value.dtype.size
    for dim in shape:
        size *= dim
    return Variable(name, part, size, shape, value.dtype.name, row)


def _captured(handle: Any, concrete: Any) -> Variable:
    """Return a variable that neither the model nor the optimizer lists."""
    for value in concrete.graph.variables:
        if value.handle is handle:
            return _variable(value.name.partition(":")[0], "weights", value)
    # A table of words, for example, whose memory is not the device's.
    return Variable("(resource)", "weights", 0, (), "resource")


def _workload(model: Any, optimizers: list[Any]) -> Workload:
    def total(variables: Any) -> int:
        return sum(_variable("", "", v.value).bytes for v in variables)

    optimizer = getattr(model, "optimizer", None)
    shape = getattr(model, "input_shape", None)
    kinds = {type(layer).__name__ for layer in model._flatten_layers()}
    return Workload(
        model=model.name,
        weights_bytes=total(model.variables),
        trainable_bytes=total(model.trainable_variables),
        optimizer=None if optimizer is None else optimizer.name,
        optimizer_bytes=None if optimizer is None else sum(total(o.variables) for o in optimizers),
        precision=model.dtype_policy.name,
        input_shape=tuple(shape[1:])
        if isinstance(shape, tuple) and all(isinstance(d, int) for d in shape[1:])
        else None,
        has_batch_norm="BatchNormalization" in kinds,
    )
