"""Why a device's allocator failed: everything together, one tensor, holes, or someone else.

The reasoning, in words. A request larger than the limit can never fit. A request that is smaller
than what is free, and larger than the largest hole, is fragmentation. A limit far below the card
is another process, or a cap. A whole array on its way to the card is a dataset. Several cards that
fail are a matter of all of them. What is left is the sum of everything.
"""

from __future__ import annotations

import re

from oomdoctor.diagnose.candidate import Candidate
from oomdoctor.diagnose.cards import card_bytes
from oomdoctor.diagnose.events import Log, places
from oomdoctor.diagnose.fragmentation import fragmented, scattered
from oomdoctor.diagnose.request import FAILURES, Request, evidence_of, failing_gpus
from oomdoctor.diagnose.stage import creates_weights
from oomdoctor.units import GIB, MIB, format_bytes

FAR_BELOW = 0.5
"""A limit below this share of the card was left by someone else, or set."""
COPIES = ("_EagerConst", "from_tensor_slices", "convert_to_eager_tensor", "constant_op.py")
WHOLE_ARRAY_BYTES = 64 * MIB
FEWEST_SAMPLES = 2000
"""Batches of so many images are rare; datasets of fewer are small."""
NO_CARD_BYTES = 512 * MIB
"""No card has had a pool this small to itself since TensorFlow runs on GPUs."""


def device_candidates(log: Log, request: Request) -> list[Candidate]:
    """Return what may have made a device's allocator fail; nothing where it did not."""
    if not log.has(*FAILURES) or _only_warned(log):
        if log.has("exhausted") and not log.has("disk_full", "quota", "file_failure"):
            why = "TensorFlow reports exhausted memory, and does not say which."
            return [Candidate("gpu_exhausted", 0.66, why, places(log.of("exhausted")))]
        return []
    found = [_sum_of_everything(log, request)]
    for judge in (_several_gpus, _xla, fragmented, scattered, _dataset, _someone_else, _leak):
        candidate = judge(log, request)
        if candidate is not None:
            found.append(candidate)
    return found


def _only_warned(log: Log) -> bool:
    """Whether XLA foresaw a shortage, and the run went on."""
    told = log.of(*FAILURES)
    is_warning = all(event.kind == "xla_remat" for event in told)
    return is_warning and (log.last_progress or 0) > told[-1].line and not log.has("exception")


def _sum_of_everything(log: Log, request: Request) -> Candidate:
    evidence = evidence_of(log, request)
    asked, limit = request.bytes, request.limit_bytes
    if request.is_on_host and not (request.dump and request.dump.limit_bytes):
        size = "" if asked is None else f" {format_bytes(asked)} was requested on the CPU."
        why = f"System RAM ran out, not GPU memory.{size}"
        return Candidate("gpu_exhausted", 0.8, why, evidence)
    where = request.device or "The GPU"
    if asked and limit and asked > limit:
        why = (
            f"{where} ran out of memory: one tensor of {format_bytes(asked)} is larger than the "
            f"limit of {format_bytes(limit)}."
        )
        return Candidate("gpu_exhausted", 0.9, why, evidence)
    if request.in_use_bytes and limit:
        why = (
            f"{where} ran out of memory: {format_bytes(request.in_use_bytes)} of "
            f"{format_bytes(limit)} was in use{_when(asked)}."
        )
        is_victim = asked is not None and asked < 0.01 * limit
        if is_victim:
            why += " The tensor that failed is small: something else fills the memory."
        return Candidate("gpu_exhausted", 0.85, why, evidence)
    return Candidate("gpu_exhausted", 0.75, f"{where} ran out of memory{_when(asked)}.", evidence)


def _when(asked: int | None) -> str:
    return "" if asked is None else f" when {format_bytes(asked)} more was requested"


def _several_gpus(log: Log, request: Request) -> Candidate | None:
    gpus = failing_gpus(log)
    if len(gpus) > 1:
        why = f"{len(gpus)} GPUs ran out of memory at once ({', '.join(sorted(gpus))})."
        return Candidate("multi_gpu_exhausted", 0.96, why, places(log.of(*FAILURES), 4))
    in_replica = any(f"{word}_" in (request.op or "") for word in ("replica", "tower"))
    told = [event for event in log.of("replicas") if not _names_one_gpu(event.text)]
    if in_replica or told:
        why = "A GPU ran out of memory while the batch was split over several GPUs."
        confidence = 0.92 if in_replica or len(told) > 1 else 0.87
        return Candidate(
            "multi_gpu_exhausted", confidence, why, evidence_of(log, request, *told[:2])
        )
    if len({card.device for card in log.of("card")}) > 1:
        why = "One of several GPUs ran out of memory."
        return Candidate("multi_gpu_exhausted", 0.4, why, places(log.of("card"), 3))
    return None


def _names_one_gpu(text: str) -> bool:
    """Whether a line about a strategy lists a single card."""
    return len(set(re.findall(r"GPU:(\d{1,3})", text, re.IGNORECASE))) == 1


def _xla(log: Log, request: Request) -> Candidate | None:
    told = log.of("xla_failure", "xla_hbm", "xla_remat", "xla_client")
    if not told:
        return None
    size = f": it requested {format_bytes(request.bytes)}" if request.bytes else ""
    why = f"A step compiled by XLA ran out of device memory{size}."
    return Candidate("xla_exhausted", 0.95, why, evidence_of(log, request, *told[:2]))


def _dataset(log: Log, request: Request) -> Candidate | None:
    copies = log.of("copy_failure", "dst_failure")
    headers = [event for event in log.of("bfc_failure") if event.op == "_EagerConst"]
    from_arrays = [frame for frame in log.frames if _makes_a_constant(frame.file, frame.function)]
    if not copies and not headers:
        return _whole_array(log, request) or _resident(log, request)
    if creates_weights(log, request):
        return None  # weights that were loaded, not data
    is_const = bool(headers) or any(event.op == "_EagerConst" for event in copies)
    is_large = request.bytes is None or request.bytes >= WHOLE_ARRAY_BYTES
    confidence = 0.78
    if is_const:
        confidence = 0.9
    if from_arrays:
        confidence = 0.94
    if not is_large:
        confidence = 0.6 if not from_arrays else 0.7
    size = f" of {format_bytes(request.bytes)}" if request.bytes else ""
    why = f"The GPU ran out of memory while a whole array{size} was copied to it."
    return Candidate("dataset_on_gpu", confidence, why, evidence_of(log, request, *copies[:1]))


def _whole_array(log: Log, request: Request) -> Candidate | None:
    """A tensor with the shape of a dataset: thousands of images, and no layer that made it."""
    shape, size = request.shape, request.bytes
    if not shape or size is None or request.is_on_host or creates_weights(log, request):
        return None
    is_images = len(shape) == 4 and shape[-1] in (1, 3, 4) and min(shape[1:3]) >= 8
    if not is_images or shape[0] < FEWEST_SAMPLES or size < 4 * WHOLE_ARRAY_BYTES:
        return None
    if "/" in (request.op or ""):
        return None
    why = (
        f"The GPU ran out of memory while {shape[0]:,} samples ({format_bytes(size)}) were placed "
        "on it as one tensor."
    )
    return Candidate("dataset_on_gpu", 0.93, why, evidence_of(log, request))


def _makes_a_constant(file: str, function: str | None) -> bool:
    return any(word in file or word == function for word in COPIES)


def _resident(log: Log, request: Request) -> Candidate | None:
    """Chunks far larger than what a step asks for are arrays that were put there."""
    dump, limit, asked = request.dump, request.limit_bytes, request.bytes
    if dump is None or not limit or not asked:
        return None
    arrays = [(size, n) for size, n in dump.chunks if size >= 0.1 * limit and size >= 4 * asked]
    held = sum(size * count for size, count in arrays)
    if held < 0.3 * limit:
        return None
    why = (
        f"The GPU ran out of memory: {format_bytes(held)} of it is in "
        f"{sum(n for _, n in arrays)} chunks as large as whole arrays."
    )
    return Candidate("dataset_on_gpu", 0.6, why, evidence_of(log, request))


def card_total(log: Log, device: str | None = None) -> int | None:
    """Return what the card holds: as the driver told, or by its name."""
    told = [e.total_bytes for e in log.of("card_memory", "context_failure") if e.total_bytes]
    told += [e.total_bytes for e in log.of("async_free", "card_usage") if e.total_bytes]
    cards = [card for card in log.of("card") if device in (None, card.device)]
    named = [size for card in cards if (size := card_bytes(card.name)) is not None]
    return next(iter(told or named), None)


def _someone_else(log: Log, request: Request) -> Candidate | None:
    if request.is_on_host:
        return None
    total, limit = card_total(log, request.device), request.limit_bytes
    free = [event for event in log.of("async_free") if event.free_bytes is not None]
    told = log.of("card", "card_memory", "context_failure", "device_back_off")
    if total and limit and limit < FAR_BELOW * total:
        why = (
            f"This process got only {format_bytes(limit)} of the GPU's {format_bytes(total)}: "
            "another process holds the rest, or a memory limit was set."
        )
        return Candidate(
            "gpu_held_by_other_process", 0.94, why, evidence_of(log, request, *told[:2])
        )
    backed_off = [e for e in log.of("device_back_off") if e.bytes]
    reached = request.in_use_bytes
    if backed_off and total and reached is not None and reached < FAR_BELOW * total:
        why = (
            f"This process got only {format_bytes(reached)} of the GPU's {format_bytes(total)}: "
            "another process holds the rest."
        )
        evidence = evidence_of(log, request, *backed_off[:2])
        return Candidate("gpu_held_by_other_process", 0.92, why, evidence)
    if free and total and request.in_use_bytes is not None:
        others = total - (free[0].free_bytes or 0) - request.in_use_bytes
        if others > FAR_BELOW * total:
            why = f"Other processes hold about {format_bytes(others)} of the GPU's memory."
            return Candidate("gpu_held_by_other_process", 0.9, why, evidence_of(log, request))
    if limit and limit < GIB and not total:
        why = (
            f"This process got only {format_bytes(limit)} of GPU memory: another process holds the "
            "rest, or a memory limit was set."
        )
        confidence = 0.87 if limit < NO_CARD_BYTES else 0.5
        return Candidate("gpu_held_by_other_process", confidence, why, evidence_of(log, request))
    if backed_off:
        why = "The driver refused GPU memory that TensorFlow had counted as free."
        return Candidate("gpu_held_by_other_process", 0.5, why, places(backed_off))
    if creates_weights(log, request) and not total:
        why = "It failed before the first batch: another process may hold part of the GPU."
        return Candidate("gpu_held_by_other_process", 0.4, why, evidence_of(log, request))
    return None


def _leak(log: Log, request: Request) -> Candidate | None:
    dump, limit = request.dump, request.limit_bytes
    if dump and limit and dump.largest_bytes and dump.largest_bytes < 0.01 * limit:
        why = (
            f"Small tensors fill the GPU: none was ever larger than "
            f"{format_bytes(dump.largest_bytes)}, so they may be piling up."
        )
        return Candidate("leak", 0.5, why, evidence_of(log, request))
    if log.epochs >= 3:
        why = f"It ran out of memory only after {log.epochs} epochs: something may be piling up."
        return Candidate("leak", 0.35, why, evidence_of(log, request))
    return None
