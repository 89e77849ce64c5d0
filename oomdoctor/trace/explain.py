"""The allocations of one step → what holds the peak, by part and by Keras layer.

The worker notes, while it traces the step, which name scope belongs to which layer and which
node writes which variable; the allocator's events name the node. Whose a buffer is follows the same
rules as in an estimate (`estimate/attribution.py`).

Not seen: kernels of libraries that allocate past TensorFlow's allocator (oneDNN, cuDNN handles).
Under XLA the whole step is one op, so nothing can be told apart by layer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oomdoctor.allocator import CHUNK_BYTES
from oomdoctor.estimate.attribution import Owner
from oomdoctor.estimate.scopes import OPTIMIZER, OTHER, Scopes
from oomdoctor.model.spec import Shape
from oomdoctor.trace.held import PARTS, AllocationTrace, HeldTensor
from oomdoctor.trace.replay import Event, find_peak, in_order, scratch_as_temp

TOP_TENSORS = 20

_DTYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "string",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    19: "float16",
    20: "resource",
    21: "variant",
    22: "uint32",
    23: "uint64",
}
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Holder:
    """Something that is held from step to step: a variable, or a tensor of the batch."""

    name: str
    part: str
    layer: str | None
    shape: Shape
    dtype: str
    size_bytes: int
    trainable: bool = False

    @property
    def chunk_bytes(self) -> int:
        """The least the allocator gives for it."""
        return -(-self.size_bytes // CHUNK_BYTES) * CHUNK_BYTES


@dataclass(frozen=True)
class StepNames:
    """What the names in a traced step stand for."""

    scopes: Scopes = field(default_factory=Scopes)
    owners: Mapping[str, Owner] = field(default_factory=dict)
    """Node → whose its outputs are."""
    writes: Mapping[str, int] = field(default_factory=dict)
    """Node that writes a variable → the variable's place in `holders`."""
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where an op's output belongs."""

    part: str
    layer: str | None


def explain(
    events: Sequence[Event],
    names: StepNames,
    *,
    start_bytes: int,
    allocator_peak_bytes: int,
) -> AllocationTrace:
    """Return the breakdown of one step at its peak.

    Args:
        events: Every allocation and release of the step, in any order.
        names: What the names of its nodes stand for.
        start_bytes: In use when the step began.
        allocator_peak_bytes: The allocator's own figure for the step.
    """
    ordered = scratch_as_temp(in_order(events))
    peak = find_peak(ordered, start_bytes)
    gradient_shapes = _gradient_shapes(names.holders)
    places = [place_of(event, names, gradient_shapes) for event in peak.held]
    tensors = [_held(event, place) for event, place in zip(peak.held, places, strict=True)]
    tensors += _from_before(names, peak.held, peak.start_bytes - peak.freed_bytes)
    tensors.sort(key=lambda tensor: (-tensor.allocated_bytes, tensor.op))
    parts = dict.fromkeys(PARTS, 0)
    layers: Counter[str] = Counter()
    for tensor in tensors:
        parts[tensor.part] += tensor.allocated_bytes
        layers[tensor.layer or OTHER] += tensor.allocated_bytes
    return AllocationTrace(
        peak_bytes=peak.peak_bytes,
        allocator_peak_bytes=allocator_peak_bytes,
        start_bytes=start_bytes,
        requested_bytes=sum(tensor.requested_bytes for tensor in tensors),
        parts=parts,
        layers=dict(sorted(layers.items(), key=lambda item: (-item[1], item[0]))),
        tensors=tuple(tensors[:TOP_TENSORS]),
        curve=peak.curve,
        events=len(events),
    )


def place_of(
    event: Event, names: StepNames, gradient_shapes: Mapping[str | None, frozenset[Shape]]
) -> Place:
    """Return the part and the layer an allocation belongs to."""
    op = event.op or ""
    written = names.writes.get(op)
    if written is not None:
        return Place(names.holders[written].part, names.holders[written].layer)
    if not op:
        return Place("workspace", None)
    known = names.owners.get(op)
    layer = known.row if known is not None else names.scopes.row_of(op) or OTHER
    if event.kind == "temp":
        return Place("workspace", layer)
    if layer == OPTIMIZER:
        return Place("optimizer", layer)
    if "gradient_tape" in op.split("/"):
        shapes = gradient_shapes.get(layer, gradient_shapes[None])
        if shape_of(event.shape) in shapes:
            return Place("gradients", layer)
    return Place("activations", layer)


def shape_of(text: str | None) -> Shape | None:
    """Return the sizes in the profiler's notation, or None where it gave none.

    Example:
        >>> shape_of("[64,30,30,16]")
        (64, 30, 30, 16)
    """
    return None if text is None else tuple(int(size) for size in _NUMBERS.findall(text))


def _gradient_shapes(holders: Sequence[Holder]) -> dict[str | None, frozenset[Shape]]:
    """Return the shapes of trainable variables by layer; None holds those of all layers."""
    by_layer: dict[str | None, set[Shape]] = {None: set()}
    for holder in holders:
        if holder.trainable:
            by_layer.setdefault(holder.layer, set()).add(holder.shape)
            by_layer[None].add(holder.shape)
    return {layer: frozenset(shapes) for layer, shapes in by_layer.items()}


def _held(event: Event, place: Place) -> HeldTensor:
    return HeldTensor(
        op=event.op or "(unnamed)",
        layer=place.layer,
        part=place.part,
        shape=shape_of(event.shape),
        dtype=_DTYPES.get(event.dtype or 0),
        requested_bytes=event.requested_bytes,
        allocated_bytes=event.allocated_bytes,
    )


def _from_before(names: StepNames, held: Sequence[Event], left_bytes: int) -> list[HeldTensor]:
    """Return what was there before the step and still is; it adds up to `left_bytes`.

    A variable that an update replaced is among the step's own allocations. What the known
    holders do not explain (constants, chunk slack of variables) becomes one entry.
    """
    replaced = {names.writes.get(event.op or "") for event in held}
    tensors = []
    for index, holder in enumerate(names.holders):
        size = min(holder.chunk_bytes, left_bytes)
        if index in replaced or size == 0:
            continue
        left_bytes -= size
        tensors.append(
            HeldTensor(
                op=holder.name,
                layer=holder.layer,
                part=holder.part,
                shape=holder.shape,
                dtype=holder.dtype,
                requested_bytes=min(holder.size_bytes, size),
                allocated_bytes=size,
            )
        )
    if left_bytes > 0:
        tensors.append(
            HeldTensor("(held before the step)", OTHER, "workspace", None, None, 0, left_bytes)
        )
    return tensors
