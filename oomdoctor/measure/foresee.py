"""Recorded steps of two batch sizes → would another size fit under a limit?

A process that has hardly trained yet runs steps of one size; they are recorded with what lay in
memory before (`layout.py`). A step with another size says how each allocation grows with the batch.
The allocations of any size, in the recorded order, are then played through a model of the allocator
as small as the limit. What this ignores: kernels that change their algorithm with the batch, and
that the order of ops depends on timing. So it says where to look; what it says is then run.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oomdoctor.allocator import Pool, Region, rounded
from oomdoctor.measure.layout import Held, held_before
from oomdoctor.measure.prolong import Played, prolonged
from oomdoctor.measure.replay import Event, in_order
from oomdoctor.measure.spec import MAX_BATCH_SIZE

_Key = tuple[str, int]
FEW_LAYOUTS, MANY_LAYOUTS = 4, 16
"""Steps must pass from so many layouts of the variables, many where these take much of the memory.
A single small variable in the midst of free memory halves it: a recurrent network that passed as
recorded failed in three processes of four."""

MATTERS_PART = 0.1
"""Much is more than this part of the limit."""

COPIED_PART = 0.5
"""So many variables are replaced by a copy on the way to a layout."""

COPIED_IN_A_STEP = 0.1
"""Where variables take much of the memory, such a part of the updates are copies that were none
when the steps were recorded: whether an update is one is chance."""

FIRST_NUMBER = 10**9
"""The number before the first allocation's; variables and the batch have lower ones."""


@dataclass(frozen=True)
class Foresight:
    """What two recorded sizes say of all others."""

    batch_size: int
    """The one whose order of allocations is played."""
    held: tuple[Held, ...]
    """What lies in memory before the first step, but for the batch."""
    batch: tuple[tuple[float, float], ...]
    """The tensors of the batch: fixed bytes and bytes for each sample."""
    variables: tuple[int, ...]
    """Which of what is held are variables: those may lie elsewhere in another process."""
    steps: tuple[tuple[Played, ...], ...]
    """For each step its events."""
    regions: tuple[Region, ...]
    further: tuple[tuple[Played, ...], ...] = ()
    """Steps that come after them, in the layout that was recorded."""

    def fits(
        self, batch_size: int, limit_bytes: int, *, batches_ahead: int = 0, excess: float = 1.0
    ) -> bool:
        """Return whether the recorded steps pass with another size, from several layouts.

        Args:
            batch_size: Samples in a batch.
            limit_bytes: What the allocator may hand out.
            batches_ahead: Further batches that lie in memory.
            excess: How many times as much as here a batch takes elsewhere (`luck.py`): in all
                layouts but the recorded one, which stand for other processes.
        """
        variable_bytes = sum(self.held[number][1] for number in self.variables)
        matters = variable_bytes > MATTERS_PART * limit_bytes
        copies = COPIED_IN_A_STEP if matters else 0
        elsewhere = int(variable_bytes + (limit_bytes - variable_bytes) / excess)
        return all(
            self._fits_from(
                layout, copies, batch_size, elsewhere if layout else limit_bytes, batches_ahead
            )
            for layout in range(MANY_LAYOUTS if matters else FEW_LAYOUTS)
        )

    def _fits_from(
        self, layout: int, copies: float, batch_size: int, limit_bytes: int, batches_ahead: int
    ) -> bool:
        *first, (address, _) = self.regions
        taken = sum(size for _, size in first)
        if limit_bytes <= taken:
            return False
        pool = Pool([*first, (address, limit_bytes - taken)])
        places = self._laid_out(pool, layout)
        if None in places.values():
            return False
        tensors = self.batch * (1 + batches_ahead)
        batch = [(FIRST_NUMBER - index, *tensor) for index, tensor in enumerate(tensors)]
        steps = (self._step(index, layout, copies) for index in range(len(self.steps)))
        further = () if layout else self.further
        for number, fixed, each in itertools.chain(batch, *steps, *further):
            if number < 0:
                if (place := places.pop(-number - 1, None)) is not None:
                    pool.release(place)
                continue
            before = places.get(number)
            if before is None and number < len(self.held):
                continue  # the recorded steps have replaced it by now
            places[number] = pool.allocate(max(1, round(fixed + each * batch_size)))
            if places[number] is None:
                return False
            if before is not None:
                pool.release(before)  # a copy that takes its place
        return True

    def _step(self, index: int, layout: int, copies: float) -> Iterator[Played]:
        """Yield the events of a step; in all but the first layout with some variables copied."""
        events = self.steps[index]
        copied_at: dict[int, list[int]] = {}
        if layout and copies:
            rng = random.Random(f"{layout} {index}")
            for number in rng.sample(self.variables, int(copies * len(self.variables))):
                at = rng.randrange(len(events) // 2, len(events))  # updates follow the gradients
                copied_at.setdefault(at, []).append(number)
        for position, event in enumerate(events):
            for number in copied_at.get(position, ()):
                yield number, self.held[number][1], 0
            yield event

    def _laid_out(self, pool: Pool, layout: int) -> dict[int, int | None]:
        """Return where everything lies before the first step: as recorded, or side by side."""
        places: dict[int, int | None] = {}
        moved = set(self.variables) if layout else set()
        for number, (start, size) in enumerate(self.held):
            if number not in moved:
                places[number] = start if pool.allocate_at(start, size) else pool.allocate(size)
        for number in sorted(moved, key=lambda number: -self.held[number][1]):
            places[number] = pool.allocate(self.held[number][1])
        for number in self._copied(layout):
            before, places[number] = places[number], pool.allocate(self.held[number][1])
            if before is not None:
                pool.release(before)
        return places

    def _copied(self, layout: int) -> list[int]:
        """Return which variables are copied on the way to a layout, and in which order."""
        count = int(COPIED_PART * len(self.variables)) if layout else 0
        return random.Random(layout).sample(self.variables, count)

    def largest(
        self,
        limit_bytes: int,
        *,
        lowest: int,
        highest: int,
        batches_ahead: int = 0,
        excess: float = 1.0,
    ) -> int | None:
        """Return the largest size that seems to fit, or None where the lowest does not.

        Args:
            limit_bytes: What the allocator may hand out.
            lowest: The smallest size to consider.
            highest: The largest.
            batches_ahead: Further batches that lie in memory.
            excess: How many times as much as here a batch takes in other processes.
        """

        def fits(batch_size: int) -> bool:
            return self.fits(batch_size, limit_bytes, batches_ahead=batches_ahead, excess=excess)

        # Outwards from the recorded size, which was near: each question plays all events.
        low, high = lowest - 1, highest + 1
        size, stride = min(max(self.batch_size, lowest), highest), 1 + self.batch_size // 16
        while low < size < high:
            if fits(size):
                low, size = size, size + stride
            else:
                high, size = size, size - stride
            stride *= 2
            if low >= lowest and high <= highest:
                break
            size = min(max(size, lowest), highest)
        while high - low > 1:
            middle = (low + high) // 2
            if fits(middle):
                low = middle
            else:
                high = middle
        return low if low >= lowest else None


@dataclass(frozen=True)
class Recorded:
    """Steps of one size that were recorded."""

    batch_size: int
    batch: tuple[Held, ...]
    """The tensors of the batch."""
    held: tuple[Held, ...]
    """Variables before the first of the steps."""
    steps: tuple[tuple[Event, ...], ...]
    peak_bytes: int = 0
    """The lowest of the steps' peaks."""
    elsewhere_bytes: int | None = None
    """The highest peak of steps that were not recorded, in other orders of ops."""

    @property
    def held_bytes(self) -> int:
        """What no batch changes."""
        return sum(size for _, size in self.held)

    def most_elsewhere(self, limit_bytes: int) -> int:
        """Return the largest size with which the highest peak seen stays within a limit.

        Example:
            >>> recorded = Recorded(100, (), ((0, 20),), (), elsewhere_bytes=220)
            >>> recorded.most_elsewhere(120)
            50
        """
        if self.elsewhere_bytes is None:
            return MAX_BATCH_SIZE
        room = max(0, limit_bytes - self.held_bytes)
        # Variables that share a buffer are counted each, so that nothing may be left for a batch.
        return self.batch_size * room // max(1, self.elsewhere_bytes - self.held_bytes)


def foresee(
    main: Recorded, other: Recorded, regions: Sequence[Region], more_steps: int = 0
) -> Foresight:
    """Return what two recorded sizes say of all others.

    Args:
        main: The first steps of a fresh process.
        other: Steps of another size, which tell how allocations grow.
        regions: The pool.
        more_steps: How many steps shall pass after those of `main`.
    """
    sizes = _sizes(other.steps[-1])
    apart = other.batch_size - main.batch_size
    ordered = [in_order(events) for events in main.steps]
    batch = {address for address, _ in main.batch}
    before = held_before(ordered, [*main.held, *main.batch], regions)
    held = [item for item in before if item[0] not in batch]
    variables = {address for address, _ in main.held}
    numbers = {address: number for number, (address, _) in enumerate(held)}
    numbers.update({a: FIRST_NUMBER - index for index, (a, _) in enumerate(main.batch)})
    following = FIRST_NUMBER
    steps = []
    for events in ordered:
        seen: Counter[str] = Counter()
        step: list[Played] = []
        for event in events:
            if event.is_release:
                number = numbers.pop(event.address, None)
                if number is not None:
                    step.append((-number - 1, 0, 0))
                continue
            key = _key(event, seen)
            here, there = event.requested_bytes, sizes.get(key)
            each = 0.0 if there is None else (there - here) / apart
            if there is None and here > rounded(1):
                each = here / main.batch_size
            following += 1
            numbers[event.address] = following
            step.append((following, here - each * main.batch_size, each))
        steps.append(tuple(step))
    pairs = zip(main.batch, other.batch, strict=True)
    slopes = [(here, (there - here) / apart) for (_, here), (_, there) in pairs]
    tensors = [(here - each * main.batch_size, each) for here, each in slopes]
    alive = {number: (float(size), 0.0) for number, (_, size) in enumerate(held)}
    alive.update({FIRST_NUMBER - index: tensor for index, tensor in enumerate(tensors)})
    return Foresight(
        batch_size=main.batch_size,
        held=tuple(held),
        variables=tuple(i for i, (address, _) in enumerate(held) if address in variables),
        batch=tuple(tensors),
        steps=tuple(steps),
        further=prolonged(steps, alive, main.batch_size, more_steps),
        regions=tuple(regions),
    )


def _sizes(events: Sequence[Event]) -> dict[_Key, int]:
    seen: Counter[str] = Counter()
    return {
        _key(event, seen): event.requested_bytes
        for event in in_order(events)
        if not event.is_release
    }


def _key(event: Event, seen: Counter[str]) -> _Key:
    name = f"{event.op}|{event.kind}"
    seen[name] += 1
    return name, seen[name]
