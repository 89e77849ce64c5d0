"""Failures of system memory: arrays, kills, warnings, pipelines and leaks."""

from __future__ import annotations

from oomdoctor.diagnose.candidate import Candidate
from oomdoctor.diagnose.events import Event, Log, places
from oomdoctor.diagnose.figures import LEFT, Growth
from oomdoctor.diagnose.request import Request
from oomdoctor.diagnose.sizes import tensor_bytes
from oomdoctor.units import MIB, format_bytes

SMALL_ARRAY_BYTES = 128 * MIB
"""An array below this is not what fills the RAM."""
KILLS = ("kernel_kill", "memory_kill", "killed", "kernel_died")


def host_candidates(log: Log, request: Request, growth: Growth | None) -> list[Candidate]:
    """Return what may have happened to system memory."""
    found = [*_arrays(log), *_kills(log, growth), *_warnings(log), *_pipeline(log)]
    found += _pipeline_failure(log, request)
    if growth is not None:
        found.append(_leak(log, growth))
    return found


def array_bytes(event: Event) -> int | None:
    """Return the size of a NumPy array: exactly, if its shape and dtype are known."""
    return tensor_bytes(event.shape, event.dtype) or event.bytes


def _arrays(log: Log) -> list[Candidate]:
    found = []
    arrays = log.of("numpy_failure")
    if arrays:
        size = array_bytes(arrays[0])
        why = f"System RAM ran out: NumPy could not allocate {format_bytes(size)} for one array."
        if size is not None and size < SMALL_ARRAY_BYTES:
            why += " The array is small: something else fills the RAM."
            found.append(Candidate("host_exhausted", 0.95, why, places(arrays)))
        else:
            found.append(Candidate("host_array_too_large", 0.95, why, places(arrays)))
    errors = log.of("memory_error", "allocation_failure")
    if errors:
        why = "System RAM ran out: an allocation on the host failed."
        found.append(Candidate("host_exhausted", 0.85, why, places(errors)))
    pinned = log.of("pinned_failure")
    if pinned:
        why = "Pinned system RAM ran out, which copies to the GPU go through."
        found.append(Candidate("host_exhausted", 0.5, why, places(pinned)))
    if log.has("proto_limit"):
        why = "A graph exceeds its 2 GB limit: data is stored in it as constants."
        found.append(Candidate("tensor_proto_too_large", 0.96, why, places(log.of("proto_limit"))))
    return found


def _kills(log: Log, growth: Growth | None) -> list[Candidate]:
    kills = log.of(*KILLS)
    if not kills:
        return []
    kinds = {event.kind for event in kills}
    confidence = 0.55
    why = "The notebook's kernel died without an error: it may have run out of system RAM."
    if log.has("host_warning"):
        confidence = 0.7
        why = "After large allocations the notebook's kernel died: most likely it ran out of RAM."
    if "killed" in kinds:
        confidence = 0.75
        why = "The process was killed without a traceback: most likely it ran out of system RAM."
    if "kernel_kill" in kinds or "memory_kill" in kinds:
        confidence = 0.97
        why = "The run ran out of system RAM, or of the job's share of it, and was killed."
    if confidence < 0.97 and log.has("stopped"):
        why_else = "No memory failure: the run was stopped from outside."
        return [
            Candidate("not_memory", 0.8, why_else, places(log.of("stopped"))),
            Candidate("host_killed", 0.4, why, places(kills)),
        ]
    if growth is not None:
        confidence = min(confidence, 0.8)
    evidence = places([*kills, *log.of("host_warning")[-1:]], 4)
    found = [Candidate("host_killed", confidence, why, evidence)]
    if _is_filling(log, kills[0].line):
        filling = log.of("shuffle_filling")
        why = "System RAM ran out while a shuffle buffer was being filled."
        found.append(Candidate("pipeline_buffer", 0.98, why, places([*filling[-2:], *kills], 4)))
    elif log.has("shuffle_filling"):
        why = "A shuffle buffer stays in system RAM and may have filled it."
        found.append(Candidate("pipeline_buffer", 0.45, why, places(log.of("shuffle_filling"))))
    if log.has("retracing"):
        why = "Functions are retraced again and again, and every trace stays in memory."
        found.append(Candidate("leak", 0.4, why, places(log.of("retracing"))))
    return found


def _is_filling(log: Log, before: int) -> bool:
    """Whether nothing came between a buffer, full or not, and a line."""
    told = [e for e in log.of("shuffle_filling", "shuffle_filled") if e.line <= before]
    progress = log.last_progress or 0
    return bool(told) and progress <= told[-1].line


def _warnings(log: Log) -> list[Candidate]:
    warnings = log.of("host_warning")
    if not warnings:
        return []
    largest = max(warnings, key=lambda event: event.bytes or 0)
    why = (
        "Nothing failed: TensorFlow warned of an allocation that takes more than 10 % of free "
        f"system RAM ({format_bytes(largest.bytes)}), and the run went on."
    )
    return [Candidate("host_allocation_warning", 0.6, why, places([largest, *warnings]))]


def _pipeline(log: Log) -> list[Candidate]:
    filling = log.of("shuffle_filling")
    if not filling:
        return []
    size = max(event.count or 0 for event in filling)
    why = (
        f"Nothing failed: a shuffle buffer of {size:,} elements takes long to fill, and stays in "
        "system RAM."
    )
    confidence = 0.61 if len(filling) > 1 else 0.55
    return [Candidate("pipeline_buffer", confidence, why, places(filling))]


def _pipeline_failure(log: Log, request: Request) -> list[Candidate]:
    """A buffer or a cache that leaves no RAM to the next allocation on the host."""
    pinned = log.of("pinned_failure")
    failed = [request.event] if request.event and request.is_on_host else pinned[:1]
    if not failed:
        return []
    told = log.of("shuffle_filling", "shuffle_filled", "cache")
    is_near = log.has("cache") or _is_filling(log, failed[0].line)
    before = [event for event in told if event.line <= failed[0].line + 3]
    if not before:
        return []
    kept = "cache" if before[-1].kind == "cache" else "shuffle buffer"
    why = f"System RAM ran out: a {kept} keeps its elements there, and an allocation then failed."
    evidence = places([*before[-2:], *failed], 4)
    return [Candidate("pipeline_buffer", 0.93 if is_near else 0.5, why, evidence)]


def _leak(log: Log, growth: Growth) -> Candidate:
    first, last = growth.figures[0], growth.figures[-1]
    change = f"{format_bytes(first.bytes)} at first, {format_bytes(last.bytes)} at the end"
    why = f"Memory keeps growing: {change}."
    if first.label.endswith(LEFT):
        why = f"Memory keeps growing: {change} was free."
    elif first.label.endswith("%"):
        why = "Memory keeps growing, from line to line of the log."
    shown = [first, *sorted(growth.figures, key=lambda f: f.bytes)[-2:]]
    evidence = tuple(sorted({(figure.line, figure.text) for figure in shown}))
    confidence = 0.9 if growth.steps >= 3 else 0.8
    if not first.label or first.label.endswith(LEFT):
        confidence = 0.65
    return Candidate("leak", confidence, why, evidence)
