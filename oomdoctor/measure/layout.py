"""What lay in the allocator's memory before recorded steps, and where.

Variables and the batch say where they are; handles, constants and the random state do not. But the
allocator fills the smallest hole first: a stretch that no step ever used, between stretches that
were used, was not free. With those the model of the allocator follows the real one through
thousands of allocations, in large models to the byte; without them it packs up to 8 % too well.
"""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.allocator import Region, rounded
from oomdoctor.measure.replay import Event

Held = tuple[int, int]
"""Address and bytes of something that is there before the steps."""


def held_before(
    steps: Sequence[Sequence[Event]], known: Sequence[Held], regions: Sequence[Region]
) -> list[Held]:
    """Return all that lay in memory before steps that follow one another.

    Args:
        steps: For each its events, in order. What only a release shows was there before.
        known: Variables and the batch. What lies elsewhere, as some scalars do, is left out.
        regions: The pool; the last of them is the large one.
    """
    found = {address: size for address, size in known if _is_inside(address, regions)}
    born: set[int] = set()
    spans = []
    for event in (event for step in steps for event in step):
        if not event.is_release:
            born.add(event.address)
            spans.append((event.address, event.address + event.allocated_bytes))
        elif event.address in born:
            born.discard(event.address)
        else:
            found.setdefault(event.address, event.requested_bytes)
    spans += [(address, address + rounded(size)) for address, size in found.items()]
    unknown = _in_use_before(steps) - sum(rounded(size) for size in found.values())
    gaps, tails = _unused(sorted(spans), regions)
    # A hole too odd for any request may be free after all, so what is in use decides.
    for address, size in [*sorted(gaps, key=lambda gap: gap[1]), *tails]:
        taken = min(size, unknown) if (address, size) in tails else size
        if 0 < taken <= unknown:
            # At the end of a tail it is least in the way of what is known.
            found[address + size - taken] = taken
            unknown -= taken
    return sorted(found.items())


def _is_inside(address: int, regions: Sequence[Region]) -> bool:
    return any(start <= address < start + size for start, size in regions)


def _in_use_before(steps: Sequence[Sequence[Event]]) -> int:
    first = next((event for step in steps for event in step), None)
    if first is None:
        return 0
    size = first.allocated_bytes
    return first.in_use_bytes + (size if first.is_release else -size)


def _unused(
    spans: Sequence[tuple[int, int]], regions: Sequence[Region]
) -> tuple[list[Held], list[Held]]:
    """Return the stretches between those that were used, and the ends of all but one region."""
    gaps, tails = [], []
    for start, size in regions:
        reached = start
        for first, end in spans:
            if start <= first < start + size:
                if first > reached:
                    gaps.append((reached, first - reached))
                reached = max(reached, end)
        if (start, size) != tuple(regions[-1]) and reached < start + size:
            tails.append((reached, start + size - reached))
    return gaps, tails
