"""What fragmentation adds to a peak: the least limit under which a step's allocations succeed.

The step's allocations are played through a model of the allocator (`pool.py`) that starts from
the real layout: variables and batch where they lie. How far the model goes into memory under the
real limit is reported beside how far the allocator went: if they differ, the model is wrong.
Small constants that nobody lists are missing from the layout; they shift others by some bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.allocator import CHUNK_BYTES, Pool, Region, rounded
from oomdoctor.measure.replay import Event
from oomdoctor.units import MIB

Held = tuple[int, int]
"""Address and bytes of something that is there before the step."""


def held_before(
    events: Sequence[Event], known: Sequence[Held], start_bytes: int | None = None
) -> list[Held]:
    """Return what lay in memory before a step.

    Args:
        events: The step's, in order; what only its releases show was there too.
        known: Variables and the batch.
        start_bytes: In use when the step began. What that has more than the known is taken to be
            handles of variables, each the size of the least chunk, in holes of that size.
    """
    found = dict(known)
    born: set[int] = set()
    for event in events:
        if not event.is_release:
            born.add(event.address)
        elif event.address in born:
            born.discard(event.address)
        else:
            found.setdefault(event.address, event.requested_bytes)
    held = sorted(found.items())
    if start_bytes is None:
        return held
    unknown = (start_bytes - sum(rounded(size) for _, size in held)) // CHUNK_BYTES
    ends = [address + rounded(size) for address, size in held]
    holes = [
        end
        for end, (following, _) in zip(ends, held[1:], strict=False)
        if following - end == CHUNK_BYTES
    ]
    return sorted([*held, *((hole, CHUNK_BYTES) for hole in holes[: max(0, unknown)])])


def play(events: Sequence[Event], held: Sequence[Held], regions: Sequence[Region]) -> int | None:
    """Return how far into the last region the step goes, or None where there was no room.

    Args:
        events: The step's, in order.
        held: What is there before; what lies outside the regions is put where there is room.
        regions: The pool.
    """
    pool = Pool(regions)
    extent = 0
    places: dict[int, int] = {}
    outside = [item for item in held if not pool.allocate_at(*item)]
    places.update({address: address for address, _ in held})
    for address, size in outside:
        place = pool.allocate(size)
        if place is None:
            return None
        places[address] = place
    for event in events:
        if event.is_release:
            place = places.pop(event.address, None)
            if place is not None:
                pool.release(place)
            continue
        place = pool.allocate(event.requested_bytes)
        if place is None:
            return None
        places[event.address] = place
        extent = max(extent, _end_in(regions[-1], place, event.requested_bytes))
    return extent


def real_extent(events: Sequence[Event], regions: Sequence[Region]) -> int:
    """Return how far into the last region the real allocator went in a step."""
    ends = (
        _end_in(regions[-1], event.address, event.requested_bytes)
        for event in events
        if not event.is_release
    )
    return max(ends, default=0)


def _end_in(region: Region, address: int, size_bytes: int) -> int:
    start, size = region
    return address - start + rounded(size_bytes) if start <= address < start + size else 0


def least_limit(
    events: Sequence[Event], held: Sequence[Held], regions: Sequence[Region], peak_bytes: int
) -> int | None:
    """Return the least limit, in whole MiB, under which the step passes.

    Args:
        events: The step's, in order.
        held: What is there before.
        regions: The real pool; the last of them is the one a limit shortens.
        peak_bytes: What is in use at the peak: no limit below it can do.
    """
    *first, (address, size) = regions
    taken = sum(region_size for _, region_size in first)

    def passes(limit_mib: int) -> bool:
        shortened = [*first, (address, limit_mib * MIB - taken)]
        return play(events, held, shortened) is not None

    fails, works = max(peak_bytes // MIB, taken // MIB), (taken + size) // MIB
    step = 1
    while fails + step < works and not passes(fails + step):
        fails, step = fails + step, 2 * step
    if fails + step >= works and not passes(works):
        return None
    works = min(works, fails + step)
    while works - fails > 1:
        middle = (fails + works) // 2
        if passes(middle):
            works = middle
        else:
            fails = middle
    return works * MIB
