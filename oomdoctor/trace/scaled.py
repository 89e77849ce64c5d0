"""Two recorded steps of small batches → the allocations of the same step at any batch.

Each dimension of each buffer is taken to follow the batch in a line of its own, so a tensor of
batch × batch is followed, too. What has no shape follows the batch in bytes. Order, reuse of
buffers, scratch memory and unknown operations are the recorded ones.

Not followed: an algorithm that a kernel chooses by the size of its input.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oomdoctor.estimate.buffers import Origin, Run
from oomdoctor.estimate.nodes import Variable
from oomdoctor.estimate.scopes import INPUTS
from oomdoctor.trace.replay import Event, in_order, scratch_as_temp

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Recorded:
    """The allocations of one step, and what it was fed."""

    batch_size: int
    events: Sequence[Event]
    fed_bytes: int
    """The batch, which is there before the step and after it."""


@dataclass(frozen=True, slots=True)
class _Growth:
    """How many bytes a buffer takes at a batch size."""

    near: int
    """The batch at which it was recorded, and what it took there."""
    bytes: int
    far: int
    far_bytes: int
    dims: tuple[int, ...] = ()
    far_dims: tuple[int, ...] = ()

    def at(self, batch_size: int) -> int:
        reach = (batch_size - self.near) / (self.near - self.far)
        if self.dims and len(self.dims) == len(self.far_dims):
            scaled = float(self.bytes)
            for here, there in zip(self.dims, self.far_dims, strict=True):
                scaled *= max(0.0, here + (here - there) * reach) / here
            return round(scaled)
        return max(0, round(self.bytes + (self.bytes - self.far_bytes) * reach))


class ScaledStep:
    """A recorded step, which can be played at any batch size.

    Args:
        small: The step at one batch.
        large: The same step at a larger one; its order is the one that is played.
        variables: What there is before the step, by number.
    """

    def __init__(self, small: Recorded, large: Recorded, variables: Sequence[Variable]) -> None:
        self._variables = variables
        self._fed = _Growth(large.batch_size, large.fed_bytes, small.batch_size, small.fed_bytes)
        self._events = scratch_as_temp(in_order(large.events))
        self._growth = _growths(small, large, self._events)

    def run(self, batch_size: int, *, scratch: bool = True) -> Run:
        """Return the allocations of the step.

        Args:
            batch_size: Samples in a batch.
            scratch: Whether scratch memory of CPU kernels counts.
        """
        run = Run()
        old = self._before(run, batch_size)
        alive: dict[int, int] = {}
        replaced: list[tuple[int, int, int]] = []
        for place, event in enumerate(self._events):
            if event.is_release:
                number = alive.pop(event.address, None)
                if number is not None:
                    run.events.append((number, -1))
                    continue
                # Not of this step: a variable's old value, which an update replaces.
                waiting = old.get(event.requested_bytes)
                if waiting:
                    variable, number = waiting.pop()
                    replaced.append((variable, event.requested_bytes, len(run.events)))
                    run.events.append((number, -1))
            elif scratch or event.kind != "temp":
                number = len(run.origins)
                dims = tuple(int(size) for size in _NUMBERS.findall(event.shape or ""))
                kind = "temp" if event.kind == "temp" else "output"
                run.origins.append(Origin(event.op or "", "", dims, str(event.dtype), kind))
                run.events.append((number, self._growth[place].at(batch_size)))
                alive[event.address] = number
        self._settle(run, alive, replaced)
        return run

    def _before(self, run: Run, batch_size: int) -> dict[int, list[tuple[int, int]]]:
        """Add variables and the batch; return each variable and its buffer by its size."""
        old: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for number, variable in enumerate(self._variables):
            if variable.bytes:
                origin = Origin(
                    variable.name, "VarHandleOp", variable.shape, variable.dtype, "variable", number
                )
                old[variable.bytes].append((number, len(run.origins)))
                run.before.append((len(run.origins), variable.bytes))
                run.origins.append(origin)
        fed = self._fed.at(batch_size)
        if fed:
            run.before.append((len(run.origins), fed))
            run.origins.append(Origin(INPUTS, "Placeholder", (batch_size,), "", "output"))
        return old

    @staticmethod
    def _settle(
        run: Run, alive: Mapping[int, int], replaced: Sequence[tuple[int, int, int]]
    ) -> None:
        """Say which variables are in which buffers when the step is over; the rest is let go."""
        run.after = {
            variable: buffer
            for buffer, _ in run.before
            if (variable := run.origins[buffer].variable) is not None
        }
        sizes = dict(event for event in run.events if event[1] >= 0)
        left: dict[int, list[int]] = defaultdict(list)
        for number in alive.values():
            left[sizes[number]].append(number)
        kept: set[int] = set()
        spared: set[int] = set()
        for variable, size, place in replaced:
            if left[size]:
                run.after[variable] = left[size].pop()
                kept.add(run.after[variable])
            else:  # what took its place is not seen, so it stays
                spared.add(place)
        run.events = [event for place, event in enumerate(run.events) if place not in spared]
        run.events += [(number, -1) for number in alive.values() if number not in kept]


def _growths(small: Recorded, large: Recorded, ordered: Sequence[Event]) -> dict[int, _Growth]:
    """Return how each allocation grows, by its place; the n-th of an operation stays the n-th."""
    other: dict[str | None, list[Event]] = defaultdict(list)
    for event in in_order(small.events):
        if not event.is_release:
            other[event.op].append(event)
    seen: dict[str | None, int] = defaultdict(int)
    found: dict[int, _Growth] = {}
    for place, event in enumerate(ordered):
        if event.is_release:
            continue
        same = other[event.op]
        nth = seen[event.op]
        seen[event.op] += 1
        twin = same[nth] if nth < len(same) else event
        found[place] = _Growth(
            large.batch_size,
            event.requested_bytes,
            small.batch_size,
            twin.requested_bytes,
            _dims(event),
            _dims(twin),
        )
    return found


def _dims(event: Event) -> tuple[int, ...]:
    """Return the sizes of a buffer's tensor, where its bytes follow from them."""
    dims = tuple(int(size) for size in _NUMBERS.findall(event.shape or ""))
    count = 1
    for size in dims:
        count *= size
    return dims if count and event.requested_bytes % count == 0 else ()
