"""A Keras model's step → the program that XLA compiles, from shapes alone.

TensorFlow translates the step into HLO without running it or allocating a batch. The step is
traced once with a free batch size, as `fit` does, and translated for each size. The same step
gives the same bytes in every process, so that they can name an answer in a cache.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomdoctor.errors import UsageError
from oomdoctor.model.spec import ModelSpec
from oomdoctor.xla.errors import NotCompilable

PROGRAM = "step"
"""What the program is called; TensorFlow numbers its functions, so its own name varies."""

_UNSUPPORTED = re.compile(r"unsupported operations[^:]*: *(?P<ops>[^\n]*?)(?: *\.?\n|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """What the program is given: a batch, or a variable."""

    name: str
    part: str
    """`inputs`, `weights` or `optimizer`."""
    shape: tuple[int, ...]
    is_trainable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """Which layer a scope in the name of an operation belongs to."""

    layer_of: tuple[tuple[str, str], ...]
    """Scopes in which a layer reads its variables; TensorFlow numbers them as it traces."""
    layers: tuple[str, ...]
    """Layers whose name is theirs alone. A part of each attention layer is called `query`."""
    optimizers: tuple[str, ...]
    model: str = ""
    """The model's own name: the scope of what it computes outside its layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lowered:
    """A step as XLA is given it, and what its names mean."""

    hlo: bytes
    batch_size: int
    arguments: tuple[Argument, ...]
    scopes: Scopes


class Lowering:
    """A traced step that can be translated for any batch size.

    Args:
        model: The model.
        concrete: Its step, a `ConcreteFunction` traced with `jit_compile=True`.
    """

    def __init__(self, model: Any, concrete: Any) -> None:
        import tensorflow as tf

        self._concrete = concrete
        self._specs = tf.nest.flatten(concrete.structured_input_signature)
        variables = _variables(model)
        self._captured = tuple(
            variables.get(id(captured)) or _unlisted(captured)
            for captured in concrete.captured_inputs
        )
        self._scopes = _scopes(model, concrete)

    def at(self, batch_size: int) -> Lowered:
        """Return the program for one batch size.

        Raises:
            NotCompilable: If the step holds an operation that XLA does not know.
        """
        import tensorflow as tf
        from tensorflow.python.eager.polymorphic_function import compiler_ir

        if not all(isinstance(spec, tf.TensorSpec) for spec in self._specs):
            raise NotCompilable("XLA cannot compile this step: it is fed ragged or sparse tensors.")
        specs = [_at_size(spec, batch_size) for spec in self._specs]
        try:
            translate = compiler_ir.from_concrete_function(self._concrete, specs)
            hlo = translate(stage="hlo_serialized")
        except (tf.errors.OpError, ValueError, TypeError) as error:
            raise NotCompilable(f"XLA cannot compile this step: {_reason(error)}") from error
        inputs = tuple(
            Argument(name=spec.name or f"input {n}", part="inputs", shape=tuple(spec.shape))
            for n, spec in enumerate(specs)
        )
        return Lowered(
            hlo=_canonical(hlo),
            batch_size=batch_size,
            arguments=inputs + self._captured,
            scopes=self._scopes,
        )


@contextlib.contextmanager
def lowering(
    model: Any, *, kind: str = "train", spec: ModelSpec | None = None, batch: Any = None
) -> Iterator[Lowering]:
    """Trace a model's step for XLA.

    Args:
        model: A live Keras model on the TensorFlow backend; compiled, unless `kind` is `predict`.
        kind: `train`, `evaluate` or `predict`.
        spec: What is known of the model and of its data.
        batch: What the step is fed, as `tf.TensorSpec` with a free first dimension. Derived from
            the model where None.
    """
    from oomdoctor.estimate.keras_model import traced_function

    with traced_function(model, kind=kind, spec=spec, batch=batch, jit=True) as concrete:
        yield Lowering(model, concrete)


def _at_size(spec: Any, batch_size: int) -> Any:
    import tensorflow as tf

    shape = spec.shape.as_list()
    if shape and shape[0] is None:
        shape[0] = batch_size
    if None in shape:
        raise UsageError(
            f"XLA needs a fixed shape, and {spec.name or 'an input'} has {tuple(spec.shape)}: "
            "give batch=(x, y) as tf.TensorSpec with every dimension but the first."
        )
    return tf.TensorSpec(shape, spec.dtype, name=spec.name)


def _variables(model: Any) -> dict[int, Argument]:
    """Return what each variable is, by its handle."""
    trainable = {id(variable) for variable in model.trainable_variables}
    groups = [("weights", model.variables), ("weights", model.metrics_variables)]
    if getattr(model, "optimizer", None) is not None:
        groups.append(("optimizer", model.optimizer.variables))
    found: dict[int, Argument] = {}
    for part, members in groups:
        for variable in members:
            known = Argument(
                name=variable.path,
                part=part,
                shape=tuple(variable.shape),
                is_trainable=id(variable) in trainable,
            )
            found.setdefault(id(variable.value.handle), known)
    return found


def _unlisted(captured: Any) -> Argument:
    """Return a variable or tensor that neither the model nor the optimizer lists."""
    shape = () if captured.dtype.name == "resource" else tuple(captured.shape)
    return Argument(name=getattr(captured, "name", None) or "", part="weights", shape=shape)


def _scopes(model: Any, concrete: Any) -> Scopes:
    names = Counter(layer.name for layer in model._flatten_layers(include_self=False))
    known = {name for name, count in names.items() if count == 1}
    variables = _variables(model)
    paths = {
        id(inner): variables[id(outer)].name
        for outer, inner in concrete.graph.captures
        if id(outer) in variables
    }
    found: dict[str, str] = {}
    for operation in concrete.graph.get_operations():
        if operation.type != "ReadVariableOp" or operation.name.startswith("gradient_tape"):
            continue
        path = paths.get(id(operation.inputs[0]), "").split("/")
        owner = next((part for part in reversed(path[:-1]) if part in known), None)
        for part in operation.name.split("/"):
            if owner and (part == owner or part.startswith(f"{owner}_")):
                found.setdefault(part, owner)
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", None)
    return Scopes(
        layer_of=tuple(sorted(found.items())),
        layers=tuple(sorted(known)),
        optimizers=tuple(known.name for known in (optimizer, inner) if known is not None),
        model=model.name,
    )


def _canonical(hlo: bytes) -> bytes:
    """Return the same program without what differs between two traces of it."""
    try:
        from tensorflow.compiler.xla.service import hlo_pb2
    except ImportError:  # no public part of TensorFlow; without it only the cache is of no use
        return hlo

    module = hlo_pb2.HloModuleProto.FromString(hlo)
    for computation in module.computations:
        if computation.name == module.entry_computation_name:
            computation.name = PROGRAM
    module.name = module.entry_computation_name = PROGRAM
    module.id = 0
    return bytes(module.SerializeToString(deterministic=True))


def _reason(error: Exception) -> str:
    """Return what TensorFlow says about an operation that XLA does not know, in one line."""
    text = getattr(error, "message", None) or str(error)
    found = _UNSUPPORTED.search(text)
    if found:
        return f"it holds operations that XLA does not know ({found['ops'][:200]})."
    return text.strip().split("\n")[0][:300]
