"""Simulates a traced step at any batch size, and replays its allocations.

The likely figure is the middle of several simulated steps, as a measurement's is: the second and
later steps differ a little because the allocator's chunks lie differently.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Literal

from oomdoctor.allocator import ENDLESS, Pool
from oomdoctor.errors import UsageError
from oomdoctor.estimate._pause import collector_paused
from oomdoctor.estimate.buffers import Run
from oomdoctor.estimate.executor import POOL_TASKS, Executor
from oomdoctor.estimate.keras_model import Traced
from oomdoctor.estimate.plan import Listing, Plans
from oomdoctor.estimate.simplify import simplified
from oomdoctor.estimate.tensors import Tensor

Device = Literal["cpu", "gpu"]
STEPS = 4
OTHER_ORDERS: tuple[Listing, ...] = ("reversed", "shuffled")
MOST_OPS = 60_000
"""A step of more operations is not simulated in other orders, which takes seconds."""


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
        device: Where the step will run. On a GPU the workspaces of CPU kernels do not count.
        recorded: Gives the allocations of a recorded step at any batch size. They take the
            simulation's place, which then only says what another order of operations may change.
    """

    def __init__(
        self,
        traced: Traced,
        *,
        threads: int | None = None,
        order: int = 0,
        device: Device = "cpu",
        recorded: Callable[[int], Run] | None = None,
    ) -> None:
        self.traced = traced
        self.device = device
        self.recorded = recorded
        self.recorded_sizes: tuple[int, ...] = ()
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
            worst = _asked_for(self.simulated(batch_size, self._worst))
            if self.recorded is None:
                return self._with_slack(worst, batch_size)
            likely = _asked_for(self.simulated(batch_size))
        return self.peak(batch_size).bytes * worst // max(1, likely)

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
                run = self.simulated(batch_size, Plans(len(asked), self._ranks))
                ops += len(run.order)
                asked.append(_asked_for(run))
        return asked

    def _with_slack(self, asked_bytes: int, batch_size: int) -> int:
        likely = self.peak(batch_size)
        return asked_bytes * likely.bytes // max(1, _asked_for(likely.run))

    def order_range(self, batch_size: int) -> float:
        """Return how much of the peak other orders of ready operations move, up and down together.

        The order is worked out and not always TensorFlow's, so a model whose peak hangs on it is
        less certain than one that holds the same in any order.
        """
        with collector_paused():
            own = self.simulated(batch_size)
            plans = [self._worst]
            if len(own.order) <= MOST_OPS:
                plans += [Plans(0, self._ranks, listing) for listing in OTHER_ORDERS]
            asked = [_asked_for(self.simulated(batch_size, other)) for other in plans]
        likely = max(1, _asked_for(own))
        return (max(likely, *asked) - min(likely, *asked)) / likely

    def has_luck(self) -> bool:
        """Whether more variables are read at the start than the thread pool's queue holds."""
        reads = sum(node.op == "ReadVariableOp" and not node.controls for node in self.graph.nodes)
        return reads > POOL_TASKS

    def run(self, batch_size: int) -> Run:
        """Return the allocations of one step, recorded or simulated."""
        return self.simulated(batch_size) if self.recorded is None else self.recorded(batch_size)

    def simulated(self, batch_size: int, plans: Plans | None = None) -> Run:
        """Return the allocations of one simulated step."""
        executor = Executor(
            self.traced.variables,
            batch=batch_size,
            threads=self.threads,
            scratch=self.device == "cpu",
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
