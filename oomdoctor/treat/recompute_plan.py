"""Which stretches of a model to compute twice: arithmetic over the bytes between its operations.

A model is a list of operations in the order in which they run. A stretch of them that is recomputed
keeps only the tensors that come into it and go out of it; what is inside is there only while the
backward pass is in that stretch. So the peak is what is kept plus the inside of the largest
stretch, and the planner looks for the cuts that make this smallest.

The bytes are those of outputs, as forward passes make them: good enough to choose cuts, not to
promise a peak. `estimate_memory` and a run say what a plan is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

THRESHOLDS = 24
"""Sizes of stretches that are tried, from one operation's to the whole model's."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a model, as the planner sees it."""

    name: str
    reads: tuple[int, ...]
    """Tensors it takes, by number."""
    writes: tuple[int, ...]
    """Tensors it makes, by number."""
    inside_bytes: int = 0
    """What the backward pass needs of it beside its inputs and outputs."""
    work: float = 0.0
    """Multiplications and elements of its forward pass."""
    can_recompute: bool = True
    """False for what must run once, such as a loss added inside a layer."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Operations `start` to `stop` (not included), to be computed twice."""

    start: int
    stop: int
    saved_bytes: int
    work: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What to recompute, and what that is expected to do."""

    stretches: tuple[Stretch, ...]
    peak_bytes: int
    """Activations that are held at once with this plan."""
    plain_bytes: int
    """Without it."""
    extra_work: float
    """The share of the forward pass that is done twice."""


def plan_recompute(
    operations: Sequence[Operation],
    tensor_bytes: Sequence[int],
    outputs: Sequence[int] = (),
    *,
    most_bytes: int | None = None,
) -> Plan:
    """Return the plan with the smallest peak.

    Args:
        operations: In the order in which they run.
        tensor_bytes: Bytes of each tensor.
        outputs: Tensors that the model returns.
        most_bytes: Activations may hold this much: then the stretches that save the fewest bytes
            for their work are computed once after all, as long as it still fits.

    Example:
        >>> chain = [Operation(str(i), (i,), (i + 1,), work=1.0) for i in range(16)]
        >>> plan = plan_recompute(chain, [100] * 17, [16])
        >>> plan.plain_bytes, plan.peak_bytes, len(plan.stretches)
        (1600, 800, 5)
    """
    readers = _last_readers(operations, len(tensor_bytes), outputs)
    total = sum(operation.work for operation in operations) or 1.0
    plain = _peak(operations, tensor_bytes, readers, ())
    best = Plan((), plain, plain, 0.0)
    for threshold in _thresholds(operations, tensor_bytes):
        found = tuple(_stretches(operations, tensor_bytes, readers, threshold))
        peak = _peak(operations, tensor_bytes, readers, found)
        if peak < best.peak_bytes:
            best = Plan(found, peak, plain, sum(s.work for s in found) / total)
    if most_bytes is None:
        return best
    return _relaxed(best, operations, tensor_bytes, readers, most_bytes, total)


def _relaxed(
    plan: Plan,
    operations: Sequence[Operation],
    tensor_bytes: Sequence[int],
    readers: Sequence[int],
    most_bytes: int,
    total: float,
) -> Plan:
    """Return the plan without the stretches that are worth least and can be spared."""
    kept = list(plan.stretches)
    for stretch in sorted(kept, key=lambda s: s.saved_bytes / max(s.work, 1e-9)):
        fewer = [other for other in kept if other is not stretch]
        if _peak(operations, tensor_bytes, readers, fewer) <= most_bytes:
            kept = fewer
    peak = _peak(operations, tensor_bytes, readers, kept)
    return Plan(tuple(kept), peak, plan.plain_bytes, sum(s.work for s in kept) / total)


def _last_readers(
    operations: Sequence[Operation], tensors: int, outputs: Sequence[int]
) -> list[int]:
    """Return the last operation that reads each tensor; one beyond the end for an output."""
    last = [-1] * tensors
    for index, operation in enumerate(operations):
        for tensor in operation.reads:
            last[tensor] = index
    for tensor in outputs:
        last[tensor] = len(operations)
    return last


def _thresholds(operations: Sequence[Operation], tensor_bytes: Sequence[int]) -> Iterator[int]:
    sizes = [_own_bytes(operation, tensor_bytes) for operation in operations]
    low, high = max(1, min(filter(None, sizes), default=1)), max(2, sum(sizes))
    for step in range(THRESHOLDS):
        yield int(low * (high / low) ** (step / (THRESHOLDS - 1)))


def _own_bytes(operation: Operation, tensor_bytes: Sequence[int]) -> int:
    return operation.inside_bytes + sum(tensor_bytes[tensor] for tensor in operation.writes)


def _stretches(
    operations: Sequence[Operation],
    tensor_bytes: Sequence[int],
    readers: Sequence[int],
    threshold: int,
) -> Iterator[Stretch]:
    """Cut where the fewest bytes cross, once a stretch holds half of the threshold."""
    crossing = _crossing(operations, tensor_bytes, readers)
    start = 0
    while start < len(operations):
        if not operations[start].can_recompute:
            start += 1
            continue
        held, stop, cut = 0, start, start + 1
        while stop < len(operations) and operations[stop].can_recompute:
            held += _own_bytes(operations[stop], tensor_bytes)
            if held > threshold and stop > start:
                break
            stop += 1
            if 2 * held <= threshold or crossing[stop] <= crossing[cut]:
                cut = stop
        stretch = _stretch(operations, tensor_bytes, readers, start, cut)
        # The last operations are run backward first: computing them again at once saves nothing.
        if stretch.saved_bytes > 0 and cut < len(operations):
            yield stretch
        start = cut


def _crossing(
    operations: Sequence[Operation], tensor_bytes: Sequence[int], readers: Sequence[int]
) -> list[int]:
    """Return the bytes alive before each operation, and after the last."""
    changes = [0] * (len(operations) + 2)
    for index, operation in enumerate(operations):
        for tensor in operation.writes:
            changes[index + 1] += tensor_bytes[tensor]
            changes[max(readers[tensor], index) + 1] -= tensor_bytes[tensor]
    found, alive = [], 0
    for change in changes[:-1]:
        alive += change
        found.append(alive)
    return found


def _stretch(
    operations: Sequence[Operation],
    tensor_bytes: Sequence[int],
    readers: Sequence[int],
    start: int,
    stop: int,
) -> Stretch:
    saved = sum(operations[index].inside_bytes for index in range(start, stop))
    for index in range(start, stop):
        saved += sum(tensor_bytes[t] for t in operations[index].writes if readers[t] < stop)
    return Stretch(start, stop, saved, sum(op.work for op in operations[start:stop]))


def _peak(
    operations: Sequence[Operation],
    tensor_bytes: Sequence[int],
    readers: Sequence[int],
    stretches: Sequence[Stretch],
) -> int:
    """Return what is kept plus the inside of the largest stretch."""
    kept = sum(_own_bytes(operation, tensor_bytes) for operation in operations)
    return (
        kept
        - sum(s.saved_bytes for s in stretches)
        + max((s.saved_bytes for s in stretches), default=0)
    )
