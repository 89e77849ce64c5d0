"""What fragmentation adds to a peak: the least limit under which a step's allocations succeed.

The step's allocations are played through a model of the allocator (`pool.py`) that starts from
the real layout: variables and batch where they lie. With the real limit the model must put every
buffer where the allocator put it; the share of bytes it did is reported: a wrong model shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from oomdoctor.measure.pool import Pool, Region
from oomdoctor.measure.replay import Event
from oomdoctor.units import MIB

Held = tuple[int, int]
"""Address and bytes of something that is there before the step."""


def held_before(events: Sequence[Event], known: Sequence[Held]) -> list[Held]:
    """Return what lay in memory before a step, those that only its releases show included."""
    found = dict(known)
    born: set[int] = set()
    for event in events:
        if not event.is_release:
            born.add(event.address)
        elif event.address in born:
            born.discard(event.address)
        else:
            found.setdefault(event.address, event.requested_bytes)
    return sorted(found.items())


def play(events: Sequence[Event], held: Sequence[Held], regions: Sequence[Region]) -> float | None:
    """Return the share of bytes put where the real allocator put them; None if there was no room.

    By bytes, because constants that nobody lists shift small buffers about and nothing else.

    Args:
        events: The step's, in order.
        held: What is there before; what lies outside the regions is put where there is room.
        regions: The pool.
    """
    pool = Pool(regions)
    places: dict[int, int] = {}
    outside = [item for item in held if not pool.allocate_at(*item)]
    places.update({address: address for address, _ in held})
    for address, size in outside:
        place = pool.allocate(size)
        if place is None:
            return None
        places[address] = place
    same = total = 0
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
        total += event.requested_bytes
        same += event.requested_bytes if place == event.address else 0
    return same / total if total else 1.0


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
