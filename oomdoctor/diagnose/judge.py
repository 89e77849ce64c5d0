"""Events in, a diagnosis out.

Every cause that the log speaks for becomes a candidate with a confidence; the surest is the
cause, the others are alternatives. Confidence is a judgement, not a frequency: 0.9 means that the
log says so, 0.6 that it is the better of two readings.
"""

from __future__ import annotations

from typing import Any

from oomdoctor.diagnose.candidate import Candidate
from oomdoctor.diagnose.device import device_candidates
from oomdoctor.diagnose.events import Event, Log, places
from oomdoctor.diagnose.figures import Growth, find_growth
from oomdoctor.diagnose.host import KILLS, array_bytes, host_candidates
from oomdoctor.diagnose.layers import is_keras_3, layer_of
from oomdoctor.diagnose.meaning import Meaning, explain
from oomdoctor.diagnose.reported import job_figures, xla_figures
from oomdoctor.diagnose.request import FAILURES, Request, find_request
from oomdoctor.diagnose.stage import is_optimizer_state, stage_of
from oomdoctor.diagnose.startup import startup_candidates
from oomdoctor.facts import Diagnosis, OtherCause

PROTO_LIMIT_BYTES = 2**31
LEAST_LIKELY = 0.3
DEVICE_CAUSES = (
    "gpu_exhausted",
    "gpu_fragmented",
    "gpu_held_by_other_process",
    "cuda_library_allocation",
    "dataset_on_gpu",
    "xla_exhausted",
    "multi_gpu_exhausted",
)
HOST_CAUSES = (
    "host_array_too_large",
    "host_killed",
    "host_exhausted",
    "host_allocation_warning",
    "pipeline_buffer",
    "leak",
)


def judge(log: Log, *, batch_size: int | None = None) -> Diagnosis:
    """Return the diagnosis of a log.

    Args:
        log: What was collected from it.
        batch_size: The batch size of the run, where it is known.
    """
    request = find_request(log)
    growth = find_growth(log.figures)
    candidates = [
        *device_candidates(log, request),
        *startup_candidates(log),
        *host_candidates(log, request, growth),
        *_nothing(log),
    ]
    ranked = sorted(candidates, key=lambda candidate: -candidate.confidence)
    chosen = ranked[0]
    meaning = explain(log, request, batch_size)
    fields = _figures(chosen, log, request, growth)
    return Diagnosis(
        cause=chosen.cause,
        confidence=round(chosen.confidence, 2),
        summary=chosen.why,
        is_fatal=_is_fatal(chosen, log),
        evidence=chosen.evidence,
        alternatives=_alternatives(ranked),
        layer=meaning.layer or layer_of(fields.get("op"), is_numbered=is_keras_3(log)),
        source_line=meaning.source_line,
        batch_dimension=meaning.batch_dimension,
        batch_size=meaning.batch_size,
        fitting_batch=meaning.fitting_batch,
        holders=meaning.holders if chosen.cause in DEVICE_CAUSES else (),
        memory_map=meaning.memory_map if chosen.cause in DEVICE_CAUSES else None,
        stage=stage_of(log, request),
        epochs=log.epochs,
        signs=_signs(log, request),
        notes=(*_notes(chosen, log, request, meaning), *log.notes),
        **fields,
    )


def _signs(log: Log, request: Request) -> tuple[str, ...]:
    """What else the log shows that bears on the advice."""
    told = {
        "shuffle_buffer": log.has("shuffle_filling", "shuffle_filled"),
        "cache": log.has("cache"),
        "gpu": log.has("card", "card_memory") or bool(request.device and not request.is_on_host),
        "optimizer_state": is_optimizer_state(log, request),
        "large_allocations": log.has("host_warning"),
    }
    return tuple(name for name, is_told in told.items() if is_told)


def _is_fatal(chosen: Candidate, log: Log) -> bool:
    """Whether the run ended of it, or will."""
    if chosen.cause in ("no_failure", "host_allocation_warning"):
        return False
    return chosen.cause != "pipeline_buffer" or log.has(*KILLS, *FAILURES, "pinned_failure")


def _alternatives(ranked: list[Candidate]) -> tuple[OtherCause, ...]:
    # What is left for the others: they were weighed each for itself.
    rest = 1.2 - ranked[0].confidence
    best: dict[str, Candidate] = {}
    for candidate in ranked:
        best.setdefault(candidate.cause, candidate)
    return tuple(
        OtherCause(
            cause=other.cause,
            confidence=round(other.confidence * rest, 2),
            why=other.why,
            evidence=other.evidence,
        )
        for other in list(best.values())[1:4]
        if other.confidence >= LEAST_LIKELY
        and other.cause not in ("no_failure", "not_memory", "host_allocation_warning")
    )


def _nothing(log: Log) -> list[Candidate]:
    """What remains where memory is not the matter: another failure, or none."""
    found = []
    if log.has("disk_full"):
        why = "The disk is full, not memory."
        found.append(Candidate("not_memory", 0.95, why, places(log.of("disk_full"))))
    if log.has("file_failure"):
        why = "A file could not be written (disk, quota, or open files): not a memory problem."
        found.append(Candidate("not_memory", 0.9, why, places(log.of("file_failure"))))
    if log.has("quota"):
        why = "A quota or a service limit was exceeded: not a memory problem."
        found.append(Candidate("not_memory", 0.85, why, places(log.of("quota"))))
    errors = [e for e in log.of("exception") if e.name not in ("KeyboardInterrupt", "MemoryError")]
    if errors:
        name = errors[-1].name
        why = f"Not a memory problem: the run ended with {name}."
        found.append(Candidate("not_memory", 0.62, why, places(errors[-2:])))
    elif log.has("cuda_fault"):
        why = "Not a memory shortage: a GPU kernel made an illegal memory access."
        found.append(Candidate("not_memory", 0.62, why, places(log.of("cuda_fault"))))
    elif log.has("driver_fault"):
        why = "Not a memory problem: the GPU driver does not match CUDA, so no GPU was used."
        found.append(Candidate("not_memory", 0.52, why, places(log.of("driver_fault"))))
    elif log.has("crash"):
        why = "Not a memory problem, as far as the log shows: the program crashed."
        found.append(Candidate("not_memory", 0.58, why, places(log.of("crash"))))
    if not found and log.has("stopped"):
        why = "No memory failure: the run was stopped from outside."
        found.append(Candidate("not_memory", 0.5, why, places(log.of("stopped"))))
    found.append(_healthy(log))
    return found


def _healthy(log: Log) -> Candidate:
    benign = log.of("bfc_not_failure")
    if benign:
        why = (
            "Nothing failed: an op requested more workspace, did not get it, and used a slower "
            "algorithm. TensorFlow itself says that this is not a failure."
        )
        return Candidate("no_failure", 0.55, why, places(benign))
    if not log.has_text:
        return Candidate("no_failure", 0.2, "The log is empty.")
    return Candidate("no_failure", 0.5, "The log shows no failure.")


def _figures(
    chosen: Candidate, log: Log, request: Request, growth: Growth | None
) -> dict[str, Any]:
    """Return the figures that belong to the cause: those of another would mislead."""
    cause = chosen.cause
    if cause in DEVICE_CAUSES and request.event is not None:
        fields = {
            "requested_bytes": request.bytes,
            "shape": request.shape,
            "dtype": request.dtype,
            "device": request.device,
            "allocator": request.allocator,
            "limit_bytes": request.limit_bytes,
            "in_use_bytes": request.in_use_bytes,
            "op": request.op,
        }
        return fields | xla_figures(log, request)
    if cause == "tensor_proto_too_large":
        size = next((e.bytes for e in log.of("proto_limit") if e.bytes), None)
        return {"requested_bytes": size, "limit_bytes": PROTO_LIMIT_BYTES}
    if cause in HOST_CAUSES:
        return _host_figures(cause, log, growth)
    asked = _asked_in_vain(log)
    cards = [card for card in log.of("card") if card.device]
    limits = [card.limit_bytes for card in cards if card.limit_bytes is not None]
    device = cards[0].device if cards else None
    if device is None and (asked is not None or cause == "gpu_held_by_other_process"):
        device = "GPU:0"
    return {
        "requested_bytes": asked.bytes if asked else None,
        "allocator": asked.allocator if asked else None,
        "device": device if cause in DEVICE_CAUSES or asked else None,
        "limit_bytes": limits[-1] if limits and cause in DEVICE_CAUSES else None,
    }


def _asked_in_vain(log: Log) -> Event | None:
    """The largest request that was refused without a failure."""
    refused = [e for e in log.of("device_back_off", "bfc_not_failure") if e.bytes is not None]
    return max(refused, key=lambda event: event.bytes or 0, default=None)


def _host_figures(cause: str, log: Log, growth: Growth | None) -> dict[str, Any]:
    fields: dict[str, Any] = {"device": "CPU"}
    arrays = log.of("numpy_failure")
    if arrays and cause in ("host_array_too_large", "host_exhausted"):
        array = arrays[0]
        fields |= {
            "requested_bytes": array_bytes(array),
            "shape": array.shape,
            "dtype": array.dtype,
        }
    elif cause in ("host_exhausted", "host_allocation_warning"):
        kinds = ("allocation_failure", "pinned_failure", "host_warning")
        sizes = [event.bytes for event in log.of(*kinds) if event.bytes is not None]
        fields["requested_bytes"] = max(sizes, default=None)
    if cause in ("host_killed", "pipeline_buffer", "leak"):
        fields |= job_figures(log)
    if cause == "host_killed" and log.has("host_warning"):
        sizes = [event.bytes for event in log.of("host_warning") if event.bytes is not None]
        fields["requested_bytes"] = max(sizes, default=None)
    if cause == "leak" and growth is not None and "gpu" in growth.figures[-1].text.lower():
        fields["device"] = "GPU:0"
    if cause == "leak" and growth is not None and growth.is_in_bytes:
        fields["in_use_bytes"] = growth.figures[-1].bytes
    return fields


def _notes(chosen: Candidate, log: Log, request: Request, meaning: Meaning) -> tuple[str, ...]:
    notes = list(meaning.notes) if chosen.cause in DEVICE_CAUSES else []
    if request.is_rounded and request.bytes is not None and chosen.cause in DEVICE_CAUSES:
        notes.append("The log prints the requested size rounded, or without a dtype.")
    if chosen.cause in DEVICE_CAUSES and request.is_on_host:
        notes.append(
            "The CPU's allocator failed: system RAM, not GPU memory."
            if request.limit_bytes is None
            else "The CPU's allocator failed, under a limit that was set for it."
        )
    if (
        chosen.cause in DEVICE_CAUSES
        and request.event is not None
        and (log.last_progress or 0) > request.event.line
        and not any(e.line > request.event.line for e in log.of("exception", "exhausted", *KILLS))
    ):
        notes.append("The run went on after that: the failure was caught.")
    return tuple(notes)
