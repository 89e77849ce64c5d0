"""Traced step → `facts.Estimate`: the peak, its interval, what it consists of, and the batch line.

How wide the interval is depends on how much a model's peak hangs on the order of operations. The
constants were set on ten models of the benchmark's first set and five of the second, and are to
be checked on those that were kept apart (`tests/benchmarks/estimate_first_sight.py`).
"""

from __future__ import annotations

from collections import Counter

from oomdoctor.errors import UsageError
from oomdoctor.estimate import kernels
from oomdoctor.estimate.attribution import PARTS, owner_of, owners_of, part_of, totals
from oomdoctor.estimate.buffers import Run
from oomdoctor.estimate.keras_model import Traced
from oomdoctor.estimate.scopes import OPTIMIZER
from oomdoctor.estimate.simulation import Peak, Simulation
from oomdoctor.facts import Estimate, LayerBytes
from oomdoctor.units import DTYPE_BYTES

CERTAIN, CERTAIN_IF_RECORDED = 0.04, 0.05
"""How far a peak lies from the likely one whatever the order of operations: steps differ, and the
allocator's chunks do."""
WEIGHT, WEIGHT_IF_RECORDED = 1.0, 0.25
"""How much of what other orders would change counts. Of a recorded step the order was seen, and
only what TensorFlow leaves to chance is open."""
LUCK = 0.2
"""How far the usual peak lies on the way to the worst, where more reads start than the pool holds.

Then some variables are read at once and others last, in a hash set's order. Simulated with the
list of reads turned by eighths, the median lay 0.2 to 0.65 of the way (ResNet50, InceptionV3,
DenseNet121 with Adam); with fewer reads, at the lower end.
"""
LINE_FROM = 8
"""Below this many samples memory rarely follows the line that it follows above."""
SMALL_BYTES = 1024**2
"""Buffers and constants too small to be followed."""


def estimate(simulation: Simulation, batch_size: int, *, jit: bool | None = False) -> Estimate:
    """Return the estimate at one batch size, with the line for the others.

    Args:
        simulation: Of the traced step.
        batch_size: Samples per batch.
        jit: Whether XLA compiles the step; None where the caller says which program it is.
    """
    fixed_batch = simulation.traced.fixed_batch
    if fixed_batch not in (None, batch_size):
        raise UsageError(
            f"The model takes batches of {fixed_batch} only, not {batch_size}: build it with "
            "Input(shape=...) instead of Input(batch_shape=...)."
        )
    peak = simulation.peak(batch_size)
    traced, run = simulation.traced, peak.run
    fixed, slope, since = batch_line(simulation, batch_size)
    trainable = _gradient_shapes(traced)
    parts = totals((part_of(run.origins[b], traced.variables, trainable), s) for b, s in peak.held)
    layers, backward = _rows(simulation, peak)
    unknown = dict(run.unknown)
    is_recorded = simulation.recorded is not None
    compiled = 0 if is_recorded else _compiled_bytes(traced, batch_size)
    if compiled:
        # Inputs, outputs and as much scratch memory again.
        unknown["functions that XLA compiles"] = 3 * compiled
    worst = max(peak.highest_bytes, simulation.worst(batch_size))
    # What waits are gradients, which do not grow with the batch.
    has_luck = simulation.has_luck() and not is_recorded
    waiting = int(LUCK * (worst - peak.bytes)) if has_luck else 0
    parts["gradients"] += waiting
    layers[OPTIMIZER] += waiting
    backward[OPTIMIZER] += waiting
    likely = peak.bytes + waiting
    allowances = _allowances(simulation, run)
    half = _half_width(simulation, batch_size)
    return Estimate(
        batch_size=batch_size,
        peak_bytes=likely,
        low_bytes=int(peak.bytes * max(0.0, 1 - half)),
        high_bytes=int(likely * (1 + half))
        + SMALL_BYTES
        + sum(unknown.values())
        + sum(size for _, size in allowances),
        parts=tuple((part, parts[part]) for part in PARTS),
        layers=tuple(
            LayerBytes(name=name, bytes_at_peak=size, backward_bytes=backward[name])
            for name, size in layers.most_common()
        ),
        largest_tensor_bytes=max((s for b, s in run.events if s > 0), default=None),
        per_sample_bytes=slope,
        fixed_bytes=fixed + waiting,
        line_from_batch=since,
        kind=traced.kind,
        jit=bool(jit),
        target=simulation.device,
        recorded_sizes=simulation.recorded_sizes,
        allowances=allowances,
        unknown_ops=tuple(sorted(unknown.items())),
        assumptions=_assumptions(simulation, jit),
    )


def _compiled_bytes(traced: Traced, batch_size: int) -> int:
    """Return the bytes that go in and out of functions XLA compiles inside the step.

    Convolutions in groups are left out: what XLA takes for them is known (`kernels.py`).
    """
    total = 0
    for node in traced.graph.nodes:
        inside = {part.op for body in node.bodies.values() for part in body.nodes}
        if node.attrs.get("_XlaMustCompile") and not inside & kernels.CONVOLUTIONS:
            given = [traced.graph.nodes[source].outputs[port] for source, port in node.inputs]
            for kind in (*given, *node.outputs):
                size = DTYPE_BYTES.get(kind.dtype, 0)
                for dim in kind.shape or ():
                    size *= batch_size if dim is None else dim
                total += size
    return total


def _half_width(simulation: Simulation, batch_size: int) -> float:
    """Return half of the interval around the likely peak, as a share of it."""
    moved = simulation.order_range(batch_size)
    if simulation.recorded is not None:
        return CERTAIN_IF_RECORDED + WEIGHT_IF_RECORDED * moved
    return CERTAIN + WEIGHT * moved


def _allowances(simulation: Simulation, run: Run) -> tuple[tuple[str, int], ...]:
    """Return what a GPU's libraries may take on top of the peak, at most."""
    size = min(int(kernels.CUDNN_SHARE * run.convolved_bytes), kernels.CUDNN_MOST)
    return ((kernels.CUDNN, size),) if size and simulation.device == "gpu" else ()


def _rows(simulation: Simulation, peak: Peak) -> tuple[Counter[str], Counter[str]]:
    """Return the bytes at the peak by layer, and those of them that the backward pass made."""
    traced = simulation.traced
    owners = owners_of(simulation.graph, traced.scopes, traced.variables)
    rows: Counter[str] = Counter()
    backward: Counter[str] = Counter()
    for buffer, size in peak.held:
        origin = peak.run.origins[buffer]
        owner = owner_of(origin, owners, traced.scopes, traced.variables)
        rows[owner.row] += size
        if owner.is_backward:
            backward[owner.row] += size
    return rows, backward


def _gradient_shapes(traced: Traced) -> set[tuple[int, ...]]:
    return {v.shape for v in traced.variables if v.part == "weights" and v.shape}


def _assumptions(simulation: Simulation, jit: bool | None) -> tuple[str, ...]:
    said = [
        "one inter-op thread; with more, operations overlap and the peak differs by some percent"
    ]
    if simulation.device == "cpu":
        said.append(
            f"for a CPU, with the scratch memory of its kernels on {simulation.threads} threads; "
            "name a machine with a GPU for the figure there"
        )
    else:
        said.append("for a GPU, without the scratch memory of CPU kernels")
    if jit:
        said.append("XLA is not simulated: the figure is that of the same step without it")
    elif jit is False:
        said.append("without XLA; on a GPU Keras compiles with it unless jit_compile=False")
    return tuple(said)


def batch_line(simulation: Simulation, batch_size: int) -> tuple[int, int, int]:
    """Return fixed bytes, bytes per sample, and the smallest batch from which the line holds.

    The line goes through the batch asked for and twice that. Where batches are small, workspaces
    and optimizer temporaries outweigh activations: the line begins at `LINE_FROM` at least, and is
    checked at one smaller batch.
    """
    near = max(batch_size, LINE_FROM)
    here, twice = (simulation.about(size, batch_size) for size in (near, 2 * near))
    slope = max(0, (twice - here) // near)
    fixed = here - slope * near
    smaller = batch_size if batch_size < near else max(1, near // 4)
    there = simulation.about(smaller, batch_size)
    holds = abs(fixed + slope * smaller - there) <= 0.05 * there
    return fixed, slope, smaller if holds else near
