"""GPU memory that is free, but not in one piece.

`LargestFreeBlock` in a dump cannot be trusted up to TensorFlow 2.21. The holes are in the lines
of chunks, and in the map that ends a dump.
"""

from __future__ import annotations

from oomdoctor.diagnose.candidate import Candidate
from oomdoctor.diagnose.events import Log
from oomdoctor.diagnose.request import Request, evidence_of
from oomdoctor.units import format_bytes


def largest_hole(request: Request) -> int | None:
    """Return the largest free piece as far as a dump shows it; None if it does not."""
    dump = request.dump
    if dump is None:
        return None
    if dump.free_largest_bytes is not None:
        return dump.free_largest_bytes
    if dump.bar and request.limit_bytes:
        longest = max(len(run) for run in dump.bar.replace("x", "*").split("*"))
        return (longest + 1) * request.limit_bytes // len(dump.bar)
    return None


def _used(request: Request) -> int | None:
    """What was in use; where no figure says so, by the map of memory that ends a dump."""
    if request.in_use_bytes is not None or request.dump is None:
        return request.in_use_bytes
    bar, limit = request.dump.bar, request.limit_bytes
    return limit * (len(bar) - bar.count("_")) // len(bar) if bar and limit else None


def scattered(log: Log, request: Request) -> Candidate | None:
    """Holes that a dump shows without saying how large the pool is."""
    dump, asked = request.dump, request.bytes
    if dump is None or (_used(request) is not None and request.limit_bytes is not None):
        return None
    free, hole = dump.free_total_bytes, dump.free_largest_bytes
    if asked is not None and free is not None and hole is not None:
        if not hole < asked <= free:
            return None
        why = (
            f"GPU memory is fragmented: {format_bytes(free)} was free in all, and the largest free "
            f"piece is {format_bytes(hole)}, too small for {format_bytes(asked)}."
        )
        return Candidate("gpu_fragmented", 0.87, why, evidence_of(log, request))
    runs = [len(run) for run in (dump.bar or "").replace("x", "*").split("*") if run]
    if len(runs) > 1 and sum(runs) >= 0.25 * len(dump.bar or "") and max(runs) < 0.7 * sum(runs):
        share = sum(runs) / len(dump.bar or "")
        why = f"GPU memory may be fragmented: about {share:.0%} was free, in {len(runs)} pieces."
        return Candidate("gpu_fragmented", 0.5, why, evidence_of(log, request))
    return None


def fragmented(log: Log, request: Request) -> Candidate | None:
    """Return whether enough was free for the request, and no piece of it large enough."""
    asked, limit, used = request.bytes, request.limit_bytes, _used(request)
    if asked is None or limit is None or used is None or request.dump is None:
        return None
    free = limit - used
    hole = largest_hole(request)
    if asked > free or (hole is not None and hole >= asked and log.has("device_back_off")):
        return None
    share = free / limit
    confidence = 0.88 if share >= 0.1 else 0.7
    if share >= 0.5:
        confidence = 0.91
    if hole is not None and hole >= 1.1 * asked:
        confidence = 0.5
    largest = f" (the largest is about {format_bytes(hole)})" if hole else ""
    why = (
        f"{request.device or 'GPU'} memory is fragmented: {format_bytes(free)} of "
        f"{format_bytes(limit)} was free, in pieces too small for {format_bytes(asked)}{largest}."
    )
    return Candidate("gpu_fragmented", confidence, why, evidence_of(log, request))
