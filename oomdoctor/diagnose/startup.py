"""Failures before the first tensor: the card, the driver and CUDA's libraries.

TensorFlow asks for nearly all of the card when it starts, and for less and less until it gets it.
The refusals are logged as `CUDA_ERROR_OUT_OF_MEMORY` and mean little where most of the card was
had in the end. cuDNN and cuBLAS need memory beside that pool, and fail in words that do not speak
of memory.
"""

from __future__ import annotations

from oomdoctor.diagnose.candidate import Candidate
from oomdoctor.diagnose.device import FAR_BELOW, card_total
from oomdoctor.diagnose.events import Event, Log, places
from oomdoctor.diagnose.request import FAILURES
from oomdoctor.units import GIB, format_bytes

_BACK_OFF = 0.9
"""Each time it is refused, TensorFlow asks for this share."""
RECENT_DRIVER = 450
"""From here on a driver runs every CUDA 11, so the doubt about it is a weak one."""
PLENTY_BYTES = 16 * GIB
"""With that much free, a library that does not start has another reason."""


def startup_candidates(log: Log) -> list[Candidate]:
    """Return what failures of the card and its libraries may mean."""
    found = _library(log)
    contexts = log.of("context_failure")
    if contexts:
        why = "No GPU memory was left when the program started: another process holds the GPU."
        found.append(Candidate("gpu_held_by_other_process", 0.9, why, places(contexts)))
    backed_off = [event for event in log.of("device_back_off") if event.bytes]
    if backed_off and not log.has(*FAILURES):
        found.append(_back_off(log, backed_off))
    elif log.has("cuda_out_of_memory") and not log.has(*FAILURES) and not contexts:
        why = "The driver reports that GPU memory ran out: another process may hold the GPU."
        told = places(log.of("cuda_out_of_memory"))
        found.append(Candidate("gpu_held_by_other_process", 0.7, why, told))
    return found


def _back_off(log: Log, refused: list[Event]) -> Candidate:
    evidence = places([*log.of("card_memory")[:2], *log.of("card")[:1], *refused], 5)
    first, last = refused[0].bytes or 0, refused[-1].bytes or 0
    total = card_total(log)
    free = next((e.free_bytes for e in log.of("card_memory") if e.free_bytes is not None), None)
    limit = next((e.limit_bytes for e in log.of("card") if e.limit_bytes), None)
    got = int(last * _BACK_OFF)
    # Which part of the card this run could have; the driver's own word is best.
    share: float | None = None
    if total and free is not None:
        share = free / total
    elif limit and total and limit < FAR_BELOW * total:
        share = limit / total
    elif limit:
        # A refusal far below the planned pool: someone took the card in the meantime.
        share = got / limit
    elif total:
        share = got / total
    if share is None:
        return _back_off_alone(log, first, got, evidence)
    if share < FAR_BELOW:
        had = format_bytes(free if free is not None else got)
        of = f" of {format_bytes(total)}" if total else ""
        why = f"Only {had}{of} of GPU memory was free at start-up: another process holds the GPU."
        return Candidate("gpu_held_by_other_process", 0.88, why, evidence)
    return Candidate("no_failure", 0.7, _HARMLESS, evidence)


_HARMLESS = "Nothing failed: TensorFlow requested nearly the whole GPU, was refused, and took less."


def _back_off_alone(
    log: Log, first: int, got: int, evidence: tuple[tuple[int, str], ...]
) -> Candidate:
    """Judge refusals where neither the card nor its free memory is known."""
    went_on = log.last_progress is not None and log.last_progress > evidence[-1][0]
    if got < FAR_BELOW * first or not went_on:
        size = format_bytes(first)
        why = f"{size} of GPU memory was refused at start-up: another process may hold it."
        return Candidate("gpu_held_by_other_process", 0.68, why, evidence)
    return Candidate("no_failure", 0.6, _HARMLESS, evidence)


def _library(log: Log) -> list[Candidate]:
    handles, states = log.of("library_handle"), log.of("library_status")
    inits = log.of("library_init")
    told = handles + states + inits
    if not told:
        return []
    evidence = places([*handles, *states, *inits], 4)
    names = {event.name or "" for event in handles + states}
    mismatch = log.of("library_mismatch")
    free = [event.free_bytes or 0 for event in log.of("library_memory")]
    refused = any("ALLOC_FAILED" in name.upper() for name in names)
    if mismatch:
        why = "Not a memory problem: a CUDA library of the wrong version did not start."
        return [Candidate("not_memory", 0.9, why, places([*mismatch, *told], 4))]
    confidence = 0.9 if refused else 0.8 if handles else 0.7 if states else 0.64
    if not refused and _has_plenty(log, free):
        why = "Not a memory problem: a CUDA library did not start with plenty of GPU memory free."
        return [Candidate("not_memory", 0.8, why, evidence)]
    if log.has("bfc_failure", "oom_tensor", "xla_failure"):
        confidence *= 0.7
    why = (
        "cuDNN or cuBLAS could not allocate GPU memory: they need some beside what TensorFlow "
        "reserves."
    )
    found = [Candidate("cuda_library_allocation", confidence, why, evidence)]
    if not refused and not log.has("device_back_off"):
        found += _other_than_memory(log, told)
    return found


def _other_than_memory(log: Log, told: list[Event]) -> list[Candidate]:
    """Return what else keeps a library from working, where nothing says that memory was short."""
    doubts, faults = log.of("driver_doubt"), log.of("library_fault")
    is_recent = any((doubt.count or 0) >= RECENT_DRIVER for doubt in doubts)
    if doubts and not (is_recent and log.has("library_init")):
        why = (
            "Not a memory problem, most likely: cuDNN did not start, and the log suspects an old "
            "driver. Update the driver first."
        )
        return [Candidate("not_memory", 0.85, why, places([*doubts, *told], 4))]
    if faults and not log.has("library_handle", "library_status"):
        why = "Not a memory problem: cuBLAS failed after it had started, as on an unsupported GPU."
        return [Candidate("not_memory", 0.7, why, places([*faults, *told], 4))]
    return []


def _has_plenty(log: Log, free: list[int]) -> bool:
    """Whether so much was free that a handle of a few hundred MiB must have found room."""
    if free:
        return max(free) >= GIB
    at_start = [e.free_bytes or 0 for e in log.of("card_memory")]
    limits = [e.limit_bytes or 0 for e in log.of("card")]
    return max([*at_start, *limits, 0]) >= PLENTY_BYTES
