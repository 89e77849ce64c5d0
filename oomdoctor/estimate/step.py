"""Traced step → `facts.Estimate`: the peak, its interval, what it consists of, and the batch line.

The likely figure is the middle of several simulated steps, as a measurement's is: the second and
later steps differ a little because the allocator's chunks lie differently. How wide the interval
is was set from the calibration models of the benchmark and checked on models kept apart.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from statistics import median

from oomdoctor.allocator import ENDLESS, Pool
from oomdoctor.errors import UsageError
from oomdoctor.estimate import kernels
from oomdoctor.estimate._pause import collector_paused
from oomdoctor.estimate.attribution import OTHER, PARTS, layer_of, part_of, totals
from oomdoctor.estimate.buffers import Run
from oomdoctor.estimate.executor import POOL_TASKS, Executor
from oomdoctor.estimate.keras_model import Traced
from oomdoctor.estimate.plan import Plans
from oomdoctor.estimate.simplify import simplified
from oomdoctor.estimate.tensors import Tensor
from oomdoctor.facts import Estimate, LayerBytes
from oomdoctor.units import DTYPE_BYTES

STEPS = 4
LOW, HIGH = 0.75, 1.25
"""The interval around the likely figure; see tests/benchmarks/estimate_accuracy.py."""
LUCK = 0.2
"""How far the usual peak lies on the way to the worst, where more reads start than the pool holds.

Then some variables are read at once and others last, in a hash set's order. Simulated with the
list of reads turned by eighths, the median lay 0.2 to 0.65 of the way (ResNet50, InceptionV3,
DenseNet121 with Adam); with fewer reads, at the lower end.
"""
LINE_FROM = 8
"""Below this many samples memory rarely follows the line that it follows above."""
SMALL_BYTES = 5 * 1024**2
"""What small models were seen to hold beyond that: buffers and constants not followed here."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of a simulated step at one batch size."""

    bytes: int
    highest_bytes: int
    run: Run
    held: tuple[tuple[int, int], ...]
    """Buffers alive at the peak, with the bytes of their chunks."""


class Simulation:
    """A traced step that can be simulated at any batch size.

    Args:
        traced: The step.
        threads: Threads inside one operation; None takes the machine's.
        order: A seed for what TensorFlow leaves to chance; see `executor.Plans`.
    """

    def __init__(self, traced: Traced, *, threads: int | None = None, order: int = 0) -> None:
        self.traced = traced
        with collector_paused():
            self.graph = simplified(traced.graph)
        self.threads = threads or os.cpu_count() or 1
        self._ranks: dict[int, list[int]] = {}
        self._plans = Plans(order, self._ranks)
        self._worst = Plans(None, self._ranks)
        self._peaks: dict[int, Peak] = {}

    def peak(self, batch_size: int) -> Peak:
        """Return the peak at one batch size."""
        if batch_size < 1:
            raise UsageError(f"A batch holds at least one sample, not {batch_size}.")
        if batch_size not in self._peaks:
            with collector_paused():
                self._peaks[batch_size] = _replayed(self.run(batch_size))
        return self._peaks[batch_size]

    def worst(self, batch_size: int) -> int:
        """Return the peak if chance is against us, so that all gradients wait.

        Slack in chunks is taken to be as much as at the likely peak.
        """
        with collector_paused():
            worst = _asked_for(self.run(batch_size, self._worst))
        return self._with_slack(worst, batch_size)

    def about(self, batch_size: int, near: int) -> int:
        """Return the peak at one batch size, with slack in chunks as at a batch size near it."""
        if batch_size in self._peaks:
            return self._peaks[batch_size].bytes
        return self._with_slack(self.asked_for(batch_size), near)

    def asked_for(self, batch_size: int) -> int:
        """Return the most bytes that a step asks for at once, without slack in chunks."""
        with collector_paused():
            return _asked_for(self.run(batch_size))

    def asked_in_orders(self, batch_size: int, most: int, most_ops: int) -> list[int]:
        """Return `asked_for` for several draws of what TensorFlow leaves to chance.

        Args:
            batch_size: Samples in a batch.
            most: How many draws at most.
            most_ops: How many operations to simulate for them all; there is always one draw.
        """
        asked: list[int] = []
        ops = 0
        with collector_paused():
            while len(asked) < most and ops * (1 + 1 / max(1, len(asked))) <= most_ops:
                run = self.run(batch_size, Plans(len(asked), self._ranks))
                ops += len(run.order)
                asked.append(_asked_for(run))
        return asked

    def _with_slack(self, asked_bytes: int, batch_size: int) -> int:
        likely = self.peak(batch_size)
        return asked_bytes * likely.bytes // max(1, _asked_for(likely.run))

    def has_luck(self) -> bool:
        """Whether more variables are read at the start than the thread pool's queue holds."""
        reads = sum(node.op == "ReadVariableOp" and not node.controls for node in self.graph.nodes)
        return reads > POOL_TASKS

    def run(self, batch_size: int, plans: Plans | None = None) -> Run:
        """Return the allocations of one step."""
        executor = Executor(
            self.traced.variables,
            batch=batch_size,
            threads=self.threads,
            plans=plans or self._plans,
        )
        fed = {}
        rows = dict(enumerate(self.traced.rows))
        for place, number in enumerate(self.graph.arguments):
            node = self.graph.nodes[number]
            kind = node.outputs[0]
            if node.variable is None and kind.dtype != "resource":
                size = batch_size * rows.get(place, 1)
                dims = tuple(size if d is None else d for d in kind.shape or ())
                fed[number] = Tensor(dims, kind.dtype)
        return executor.step(self.graph, fed)


def _replayed(run: Run) -> Peak:
    """Replay a step several times through the allocator and take the middle."""
    pool, where = Pool([ENDLESS]), {}
    for buffer, size in run.before:
        # An initial value is made beside the number it is made from, which leaves a gap.
        beside = _placed(pool, size)
        where[buffer] = _placed(pool, size)
        pool.release(beside)
    start = {
        run.origins[b].variable: b for b, _ in run.before if run.origins[b].variable is not None
    }
    peaks: list[int] = []
    held: list[tuple[tuple[int, int], ...]] = []
    for _ in range(STEPS):
        best, at_best = _one_step(run, pool, where)
        peaks.append(best)
        held.append(at_best)
        moved = {start[v]: where.pop(b) for v, b in run.after.items() if v in start}
        where.update(moved)
    later = peaks[1:]
    middle = int(median(later))
    nearest = min(range(len(later)), key=lambda i: abs(later[i] - middle)) + 1
    return Peak(peaks[nearest], max(later), run, held[nearest])


def _asked_for(run: Run) -> int:
    """Return the most bytes a step asks for at once, whatever the allocator makes of it."""
    sizes = dict(run.before)
    current = highest = sum(sizes.values())
    for buffer, size in run.events:
        if size < 0:
            current -= sizes[buffer]
        else:
            sizes[buffer] = size
            current += size
            highest = max(highest, current)
    return highest


def _placed(pool: Pool, size_bytes: int) -> int:
    address = pool.allocate(size_bytes)
    assert address is not None  # the pool has no end
    return address


def _one_step(
    run: Run, pool: Pool, where: dict[int, int]
) -> tuple[int, tuple[tuple[int, int], ...]]:
    highest, at = pool.in_use_bytes, -1
    log: list[tuple[int, int]] = [(b, pool.size_of(a)) for b, a in where.items()]
    first = len(log)
    for place, (buffer, size) in enumerate(run.events):
        if size < 0:
            pool.release(where.pop(buffer))
            log.append((buffer, -1))
        else:
            where[buffer] = address = _placed(pool, size)
            log.append((buffer, pool.size_of(address)))
            if pool.in_use_bytes > highest:
                highest, at = pool.in_use_bytes, place
    live: dict[int, int] = {}
    for buffer, size in log[: first + at + 1]:
        if size < 0:
            del live[buffer]
        else:
            live[buffer] = size
    return highest, tuple(live.items())


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
    known = set(traced.layer_of.values())
    parts = totals((part_of(run.origins[b], traced.variables, trainable), s) for b, s in peak.held)
    layers = totals(
        (layer_of(_owner(run, b, traced), traced.layer_of, known), s) for b, s in peak.held
    )
    unknown = dict(run.unknown)
    compiled = _compiled_bytes(traced, batch_size)
    if compiled:
        # Inputs, outputs and as much scratch memory again.
        unknown["functions that XLA compiles"] = 3 * compiled
    worst = max(peak.highest_bytes, simulation.worst(batch_size))
    # What waits are gradients, which do not grow with the batch.
    waiting = int(LUCK * (worst - peak.bytes)) if simulation.has_luck() else 0
    parts["gradients"] += waiting
    layers[OTHER] += waiting
    likely = peak.bytes + waiting
    return Estimate(
        batch_size=batch_size,
        peak_bytes=likely,
        low_bytes=int(peak.bytes * LOW),
        high_bytes=int(max(likely * HIGH, worst * 1.05)) + SMALL_BYTES + sum(unknown.values()),
        parts=tuple((part, parts[part]) for part in PARTS),
        layers=tuple(LayerBytes(name=n, bytes_at_peak=s) for n, s in layers.most_common()),
        largest_tensor_bytes=max((s for b, s in run.events if s > 0), default=None),
        per_sample_bytes=slope,
        fixed_bytes=fixed + waiting,
        line_from_batch=since,
        kind=traced.kind,
        jit=bool(jit),
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


def _owner(run: Run, buffer: int, traced: Traced) -> str:
    origin = run.origins[buffer]
    if origin.variable is not None:
        return f"{traced.variables[origin.variable].name}"
    return origin.node


def _gradient_shapes(traced: Traced) -> set[tuple[int, ...]]:
    return {v.shape for v in traced.variables if v.part == "weights" and v.shape}


def _assumptions(simulation: Simulation, jit: bool | None) -> tuple[str, ...]:
    said = [
        "one inter-op thread; with more, operations overlap and the peak differs by some percent",
        f"{simulation.threads} threads inside an operation; " + kernels.GPU_WORKSPACE_NOTE,
    ]
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
