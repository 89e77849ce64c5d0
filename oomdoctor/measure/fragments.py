"""What fragmentation adds to a peak: the least limit under which a step's allocations succeed.

The step's allocations are played through a model of the allocator that starts from the real layout
(`layout.py`). How far the model goes into memory under the real limit is reported beside how far
the allocator went: if they differ, the model is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.allocator import Pool, Region, rounded
from oomdoctor.measure.layout import Held
from oomdoctor.measure.replay import Event
from oomdoctor.units import MIB


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
