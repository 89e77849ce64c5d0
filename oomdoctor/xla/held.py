"""The buffers at a program's peak → bytes by part of training, by layer, and the largest tensors.

A buffer belongs to the layer in whose scope its operation was traced, forward or backward. What
belongs to no layer is given to the optimizer, the inputs, the loss, or the model itself: `x + y`
between two layers, say.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from oomdoctor.estimate.attribution import is_optimizer, layer_of
from oomdoctor.estimate.scopes import OTHER
from oomdoctor.facts import LayerBytes
from oomdoctor.xla.buffers import Assignment, Buffer
from oomdoctor.xla.lowering import Argument, Lowered

PARTS = ("weights", "gradients", "optimizer", "activations", "inputs", "loss", "workspace")
IDLE = "(between buffers)"
"""Where the block of temporaries is not in use at the peak, because its buffers do not line up."""

OWN = "own operations"
"""Of the model, outside its layers."""

LARGEST = 10

_LOSS = frozenset({"compile_loss", "compile_metrics", "loss"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One of the largest tensors at the peak."""

    name: str
    """The operation that computes it, or the variable."""
    owner: str
    part: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the peak consists of. Parts add up to the peak, and so do layers."""

    parts: tuple[tuple[str, int], ...]
    layers: tuple[LayerBytes, ...]
    """The largest first; among them `optimizer`, `inputs` and `loss`."""
    tensors: tuple[Tensor, ...]

    @property
    def named_share(self) -> float:
        """How much of what buffers hold is a layer's, the optimizer's, the inputs' or the loss's.

        What lies between buffers is nobody's; `idle_bytes` of the program tells how much that is.
        """
        held = {layer.name: layer.bytes_at_peak for layer in self.layers if layer.name != IDLE}
        total = sum(held.values())
        return 1 - held.get(OTHER, 0) / total if total else 1.0


def held_at_peak(memory: Assignment, lowered: Lowered) -> Held:
    """Return what a program's peak consists of.

    Args:
        memory: Of the compiled program.
        lowered: What was compiled.
    """
    names = _Names(lowered)
    parts: Counter[str] = Counter()
    layers: Counter[str] = Counter()
    tensors: list[Tensor] = []
    for buffer in memory.buffers:
        if buffer.kind == "constant":
            continue
        part, owner, name = names.of(buffer)
        parts[part] += buffer.bytes
        layers[owner] += buffer.bytes
        if len(tensors) < LARGEST:
            tensors.append(
                Tensor(
                    name=name,
                    owner=owner,
                    part=part,
                    dtype=buffer.dtype,
                    shape=buffer.shape,
                    bytes=buffer.bytes,
                )
            )
    if memory.idle_bytes:
        parts["workspace"] += memory.idle_bytes
        layers[IDLE] += memory.idle_bytes
    ordered = sorted(layers.items(), key=lambda item: (-item[1], item[0]))
    return Held(
        parts=tuple((part, parts[part]) for part in PARTS),
        layers=tuple(LayerBytes(name=name, bytes_at_peak=size) for name, size in ordered),
        tensors=tuple(tensors),
    )


class _Names:
    """What the names in one program mean."""

    def __init__(self, lowered: Lowered) -> None:
        self._arguments = lowered.arguments
        self._scopes = dict(lowered.scopes.layer_of)
        self._layers = set(lowered.scopes.layers)
        self._optimizers = set(lowered.scopes.optimizers)
        self._model = lowered.scopes.model
        self._weights: set[tuple[str, tuple[int, ...]]] = {
            (self._layer(known.name), tuple(sorted(known.shape)))
            for known in lowered.arguments
            if known.is_trainable
        }

    def of(self, buffer: Buffer) -> tuple[str, str, str]:
        """Return a buffer's part, its owner and a name for it."""
        argument = self._argument(buffer)
        if argument is not None:
            owner = self._layer(argument.name) if argument.part == "weights" else argument.part
            # A copy of a weight is one in the layout that a library wants.
            is_copy = buffer.kind != "argument" and argument.part == "weights"
            return "workspace" if is_copy else argument.part, owner, argument.name
        name = buffer.op_name
        scopes = name.split("/")
        owner = self._layer(name)
        if self._is_optimizer(name, scopes):
            return "optimizer", "optimizer", name
        if owner == OTHER and not _LOSS.isdisjoint(scopes[:3]):
            return "loss", "loss", name
        if owner == OTHER and len(scopes) == 2 and scopes[1].startswith("Cast"):
            return "inputs", "inputs", name  # a model casts what it is given before any layer
        if owner == OTHER and any(_is_numbered(part, self._model) for part in scopes[:2]):
            owner = f"{self._model} ({OWN})"
        if buffer.is_scratch:
            return "workspace", owner, name
        if scopes[0] == "gradient_tape" and (owner, tuple(sorted(buffer.shape))) in self._weights:
            return "gradients", owner, name
        return "activations", owner, name

    def _argument(self, buffer: Buffer) -> Argument | None:
        number = buffer.argument
        known = number is not None and number < len(self._arguments)
        return self._arguments[number] if known and number is not None else None

    def _is_optimizer(self, name: str, scopes: list[str]) -> bool:
        return is_optimizer(name) or any(
            scope == known or scope.startswith(f"{known}_")
            for scope in scopes[:2]
            for known in self._optimizers
        )

    def _layer(self, name: str) -> str:
        return layer_of(name, self._scopes, self._layers)


def _is_numbered(scope: str, name: str) -> bool:
    """Return whether a scope is a name, or one that TensorFlow numbered as it traced again."""
    return bool(name) and (
        scope == name or re.fullmatch(rf"{re.escape(name)}_\d+", scope) is not None
    )
