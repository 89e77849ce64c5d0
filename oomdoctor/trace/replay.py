"""Allocation events of one step → what was alive at the peak.

Pure: no TensorFlow here. An *event* is one line of the allocator's own diary. Addresses tie a
release to its allocation. A release of an address that was never handed out during the step
frees something that was there before it (a variable that an update has just replaced).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

CURVE_POINTS = 400


@dataclass(frozen=True)
class Event:
    """One allocation, or one release (`op` is then None)."""

    at_ps: int
    thread: int
    address: int
    allocated_bytes: int
    requested_bytes: int
    in_use_bytes: int
    """What the allocator had handed out after this event."""
    is_release: bool = False
    op: str | None = None
    kind: str | None = None
    """`output`, `temp` (asked for inside a kernel) or `persist`."""
    dtype: int | None = None
    shape: str | None = None


@dataclass(frozen=True)
class Peak:
    """The replayed step at its highest point."""

    peak_bytes: int
    start_bytes: int
    held: tuple[Event, ...]
    """Allocations of this step that were alive."""
    freed_bytes: int
    """Of what was there before the step, the bytes already released."""
    freed_requested_bytes: int
    curve: tuple[tuple[float, int], ...]


def in_order(events: Iterable[Event]) -> list[Event]:
    """Return events in the order the allocator saw them.

    The clock can give two events of two threads the same picosecond; then the one that continues
    the running total comes first.
    """
    rows = sorted(events, key=lambda event: event.at_ps)
    in_use = None
    for index, event in enumerate(rows):
        if in_use is not None and not _continues(event, in_use):
            for later in range(index + 1, min(index + 8, len(rows))):
                if _continues(rows[later], in_use):
                    rows.insert(index, rows.pop(later))
                    break
        in_use = rows[index].in_use_bytes
    return rows


def _continues(event: Event, in_use_bytes: int) -> bool:
    change = -event.allocated_bytes if event.is_release else event.allocated_bytes
    return in_use_bytes + change == event.in_use_bytes


def find_peak(events: Sequence[Event], start_bytes: int) -> Peak:
    """Return what was alive when the events reached their highest total.

    Args:
        events: In order.
        start_bytes: In use before the first of them.
    """
    in_use = peak_bytes = start_bytes
    peak_index = -1
    totals = []
    for index, event in enumerate(events):
        in_use += -event.allocated_bytes if event.is_release else event.allocated_bytes
        totals.append(in_use)
        if in_use > peak_bytes:
            peak_bytes, peak_index = in_use, index
    held: dict[int, Event] = {}
    freed_bytes = freed_requested = 0
    for event in events[: peak_index + 1]:
        if not event.is_release:
            held[event.address] = event
        elif held.pop(event.address, None) is None:
            freed_bytes += event.allocated_bytes
            freed_requested += event.requested_bytes
    return Peak(
        peak_bytes=peak_bytes,
        start_bytes=start_bytes,
        held=tuple(held.values()),
        freed_bytes=freed_bytes,
        freed_requested_bytes=freed_requested,
        curve=_thin(events, totals, peak_index),
    )


def scratch_as_temp(events: Sequence[Event]) -> list[Event]:
    """Return events where only true scratch is called `temp`.

    Some kernels ask for their output as a temporary and hand it on. Scratch is gone before its
    thread allocates for another op; what lives longer was an output.
    """
    released_at: dict[int, int] = {}
    runs: dict[int, tuple[str | None, int, int]] = {}  # thread → op, its first event, what follows
    changed = list(events)
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.is_release:
            released_at[event.address] = index
            continue
        op, first, following = runs.get(event.thread, (None, len(events), len(events)))
        if op != event.op:
            following = first
        runs[event.thread] = (event.op, index, following)
        if event.kind == "temp" and released_at.pop(event.address, len(events)) > following:
            changed[index] = replace(event, kind="output")
    return changed


def _thin(
    events: Sequence[Event], totals: Sequence[int], peak_index: int
) -> tuple[tuple[float, int], ...]:
    """Return a short curve: the highest point of each slice, so that peaks survive."""
    if not events:
        return ()
    start = events[0].at_ps
    width = max(1, -(-len(events) // CURVE_POINTS))
    points = []
    for first in range(0, len(events), width):
        best = max(range(first, min(first + width, len(events))), key=totals.__getitem__)
        if first <= peak_index < first + width:
            best = peak_index
        points.append((round((events[best].at_ps - start) / 1e9, 4), totals[best]))
    return tuple(points)
