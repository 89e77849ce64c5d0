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
from oomdoctor.diagnose.events import Event, Log, places
from oomdoctor.diagnose.request import FAILURES, Request, failing_gpus
from oomdoctor.units import GIB, MIB, format_bytes

FAR_BELOW = 0.5
"""A limit below this share of the card was left by someone else, or set."""
COPIES = ("_EagerConst", "from_tensor_slices", "convert_to_eager_tensor", "constant_op.py")
WHOLE_ARRAY_BYTES = 64 * MIB


def device_candidates(log: Log, request: Request) -> list[Candidate]:
    """Return what may have made a device's allocator fail; nothing where it did not."""
    if not log.has(*FAILURES) or _only_warned(log):
        if log.has("exhausted") and not log.has("disk_full", "quota", "file_failure"):
            why = "TensorFlow reports exhausted memory, without saying where."
            return [Candidate("gpu_exhausted", 0.66, why, places(log.of("exhausted")))]
        return []
    found = [_sum_of_everything(log, request)]
    for judge in (_several_gpus, _xla, _fragmented, _dataset, _someone_else, _leak):
        candidate = judge(log, request)
        if candidate is not None:
            found.append(candidate)
    return found


def _only_warned(log: Log) -> bool:
    """Whether XLA foresaw a shortage, and the run went on."""
    told = log.of(*FAILURES)
    is_warning = all(event.kind == "xla_remat" for event in told)
    return is_warning and (log.last_progress or 0) > told[-1].line and not log.has("exception")


def _evidence(log: Log, request: Request, *more: Event) -> tuple[tuple[int, str], ...]:
    shown = list(more) + ([request.event] if request.event else log.of(*FAILURES)[:1])
    lines = dict(places(shown, 4))
    if request.dump is not None:
        lines.update(dict(request.dump.places[:3]))
    return tuple(sorted(lines.items()))


def _sum_of_everything(log: Log, request: Request) -> Candidate:
    evidence = _evidence(log, request)
    asked, limit = request.bytes, request.limit_bytes
    if request.is_on_host and not (request.dump and request.dump.limit_bytes):
        why = f"system RAM, not the GPU: TensorFlow could not get {format_bytes(asked)} on the CPU."
        return Candidate("gpu_exhausted", 0.8, why, evidence)
    where = f"memory of {request.device or 'the GPU'}"
    if asked and limit and asked > limit:
        why = (
            f"{where}: one tensor of {format_bytes(asked)} is larger than all the allocator may "
            f"use, {format_bytes(limit)}."
        )
        return Candidate("gpu_exhausted", 0.9, why, evidence)
    if request.in_use_bytes and limit:
        why = (
            f"{where}: {format_bytes(request.in_use_bytes)} of {format_bytes(limit)} was in use "
            f"when {format_bytes(asked)} more was asked for."
        )
        is_victim = asked is not None and asked < 0.01 * limit
        if is_victim:
            why += " The tensor that failed is small: it is the victim, not the culprit."
        return Candidate("gpu_exhausted", 0.85, why, evidence)
    size = f" when {format_bytes(asked)} was asked for" if asked else ""
    return Candidate("gpu_exhausted", 0.75, f"{where}{size}.", evidence)


def _several_gpus(log: Log, request: Request) -> Candidate | None:
    gpus = failing_gpus(log)
    if len(gpus) > 1:
        why = f"memory of {len(gpus)} GPUs at once ({', '.join(sorted(gpus))})."
        return Candidate("multi_gpu_exhausted", 0.96, why, places(log.of(*FAILURES), 4))
    in_replica = any(f"{word}_" in (request.op or "") for word in ("replica", "tower"))
    told = [event for event in log.of("replicas") if not _names_one_gpu(event.text)]
    if in_replica or told:
        why = "memory of a GPU while the batch was spread over several of them."
        confidence = 0.92 if in_replica or len(told) > 1 else 0.87
        return Candidate("multi_gpu_exhausted", confidence, why, _evidence(log, request, *told[:2]))
    if len({card.device for card in log.of("card")}) > 1:
        why = "memory of one GPU of several."
        return Candidate("multi_gpu_exhausted", 0.4, why, places(log.of("card"), 3))
    return None


def _names_one_gpu(text: str) -> bool:
    """Whether a line about a strategy lists a single card."""
    return len(set(re.findall(r"GPU:(\d{1,3})", text, re.IGNORECASE))) == 1


def _xla(log: Log, request: Request) -> Candidate | None:
    told = log.of("xla_failure", "xla_hbm", "xla_remat", "xla_client")
    if not told:
        return None
    size = f" when a compiled step asked for {format_bytes(request.bytes)}" if request.bytes else ""
    why = f"device memory under XLA{size}."
    return Candidate("xla_exhausted", 0.95, why, _evidence(log, request, *told[:2]))


def largest_hole(request: Request) -> int | None:
    """Return the largest free piece as far as a dump tells; None where it does not."""
    dump = request.dump
    if dump is None:
        return None
    if dump.free_largest_bytes is not None:
        return dump.free_largest_bytes
    if dump.bar and request.limit_bytes:
        longest = max(len(run) for run in dump.bar.replace("x", "*").split("*"))
        return (longest + 1) * request.limit_bytes // len(dump.bar)
    return None


def _fragmented(log: Log, request: Request) -> Candidate | None:
    asked, limit, used = request.bytes, request.limit_bytes, request.in_use_bytes
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
    pieces = f"; the largest piece is about {format_bytes(hole)}" if hole else ""
    why = (
        f"memory of {request.device or 'the GPU'} in one piece: {format_bytes(free)} of "
        f"{format_bytes(limit)} was free, in pieces too small for {format_bytes(asked)}{pieces}."
    )
    return Candidate("gpu_fragmented", confidence, why, _evidence(log, request))


def _dataset(log: Log, request: Request) -> Candidate | None:
    copies = log.of("copy_failure", "dst_failure")
    headers = [event for event in log.of("bfc_failure") if event.op == "_EagerConst"]
    from_arrays = [frame for frame in log.frames if _makes_a_constant(frame.file, frame.function)]
    if not copies and not headers:
        return _resident(log, request)
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
    why = f"GPU memory, while an array{size} was copied to the card as a whole."
    return Candidate("dataset_on_gpu", confidence, why, _evidence(log, request, *copies[:1]))


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
        f"GPU memory, of which {format_bytes(held)} is held by {sum(n for _, n in arrays)} "
        "chunks as large as whole arrays."
    )
    return Candidate("dataset_on_gpu", 0.6, why, _evidence(log, request))


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
            f"GPU memory, of which this process was given {format_bytes(limit)} of "
            f"{format_bytes(total)}: another process holds the rest, or a cap was set."
        )
        return Candidate("gpu_held_by_other_process", 0.94, why, _evidence(log, request, *told[:2]))
    backed_off = [e for e in log.of("device_back_off") if e.bytes]
    reached = request.in_use_bytes
    if backed_off and total and reached is not None and reached < FAR_BELOW * total:
        why = (
            f"GPU memory: the card gave {format_bytes(reached)} of {format_bytes(total)} and no "
            "more, so another process holds the rest."
        )
        evidence = _evidence(log, request, *backed_off[:2])
        return Candidate("gpu_held_by_other_process", 0.92, why, evidence)
    if free and total and request.in_use_bytes is not None:
        others = total - (free[0].free_bytes or 0) - request.in_use_bytes
        if others > FAR_BELOW * total:
            why = f"GPU memory, of which others hold about {format_bytes(others)}."
            return Candidate("gpu_held_by_other_process", 0.9, why, _evidence(log, request))
    if limit and limit < GIB and not total:
        why = f"GPU memory: a limit of {format_bytes(limit)} is far below any card of today."
        return Candidate("gpu_held_by_other_process", 0.5, why, _evidence(log, request))
    if backed_off:
        why = "GPU memory: the card refused to give what TensorFlow had reckoned with."
        return Candidate("gpu_held_by_other_process", 0.5, why, places(backed_off))
    return None


def _leak(log: Log, request: Request) -> Candidate | None:
    dump, limit = request.dump, request.limit_bytes
    if dump and limit and dump.largest_bytes and dump.largest_bytes < 0.01 * limit:
        why = (
            f"GPU memory, filled by small tensors: none was ever larger than "
            f"{format_bytes(dump.largest_bytes)}, so they may pile up."
        )
        return Candidate("leak", 0.5, why, _evidence(log, request))
    if log.epochs >= 3:
        why = f"GPU memory, only after {log.epochs} epochs: something may pile up."
        return Candidate("leak", 0.35, why, _evidence(log, request))
    return None
