"""What each way of feeding the data needs, against what the machine has.

Three ways are compared. `memory`: arrays in RAM, trained on the CPU; `fit` makes tensors of
them, which are a second copy. `device`: the same arrays with a GPU; `fit` puts the second copy
on the GPU, whole. `stream`: batch by batch. The model itself is never counted here.
"""

from __future__ import annotations

from dataclasses import replace

from oomdoctor.facts import Feeding, Footprint, GroupFootprint, Machine
from oomdoctor.footprint.pipeline import FRAMEWORK_RAM_BYTES, streamed_ram_bytes
from oomdoctor.units import format_bytes

PREFETCHED_BATCHES = 2
"""A batch in use and one on its way: what a GPU holds of a streamed dataset."""


def compare(footprint: Footprint, machine: Machine) -> Footprint:
    """Return the footprint with the three ways compared and the chosen one judged."""
    has_gpu = bool(machine.gpus)
    feedings = tuple(
        _feed(footprint, machine, way=way, whole=way != "stream", on_gpu=way != "memory")
        for way in ("memory", "device", "stream")
    )
    by_way = {feeding.way: feeding for feeding in feedings}
    if footprint.load == "memory":
        chosen = by_way["device" if has_gpu else "memory"]
    elif footprint.load == "stream":
        chosen = by_way["stream"]
    else:
        chosen = _feed(footprint, machine, way="mixed", whole=None, on_gpu=has_gpu)
    return replace(
        footprint,
        feedings=feedings,
        chosen=chosen,
        recommended=_recommend(by_way, has_gpu=has_gpu),
    )


def verdict_of(feeding: Feeding, *, has_gpu: bool) -> str:
    """Return whether a way fits. Where no GPU is known, training runs on the CPU."""
    verdicts = [feeding.ram_verdict]
    if has_gpu:
        verdicts.append(feeding.vram_verdict)
    for verdict in ("does_not_fit", "unknown"):
        if verdict in verdicts:
            return verdict
    return "fits"


def _recommend(by_way: dict[str, Feeding], *, has_gpu: bool) -> str | None:
    # Arrays are simplest and fastest where they fit; a stream fits nearly everywhere.
    for way in ("device" if has_gpu else "memory", "stream"):
        if verdict_of(by_way[way], has_gpu=has_gpu) == "fits":
            return way
    return None


def _feed(
    footprint: Footprint, machine: Machine, *, way: str, whole: bool | None, on_gpu: bool
) -> Feeding:
    held = [group for group in footprint.groups if (group.is_whole if whole is None else whole)]
    streams = len(held) < len(footprint.groups) or not held
    copied = [group for group in held if group.in_fit]
    buffers = _stream_buffers(footprint, machine) if streams else 0

    def ram(of: str) -> int | None:
        arrays, copies = _sum(held, of), _sum(copied, of)
        if arrays is None or copies is None or buffers is None:
            return None
        return arrays + (0 if on_gpu else copies) + buffers + FRAMEWORK_RAM_BYTES

    def vram(of: str) -> int | None:
        copies = _sum(copied, of)
        batches = 0
        if streams:
            if footprint.batch_bytes is None:
                return None
            batches = PREFETCHED_BATCHES * footprint.batch_bytes
        return None if copies is None else copies + batches

    free_ram = machine.ram.available_bytes
    free_vram = min((gpu.free_bytes or 0 for gpu in machine.gpus), default=0) or None
    return Feeding(
        way=way,
        ram_bytes=ram("decoded_bytes"),
        vram_bytes=vram("decoded_bytes") if on_gpu else 0,
        ram_verdict=_judge(ram("low_bytes"), ram("high_bytes"), free_ram),
        vram_verdict=_judge(vram("low_bytes"), vram("high_bytes"), free_vram) if on_gpu else "fits",
        detail=_explain(way, footprint),
    )


def _stream_buffers(footprint: Footprint, machine: Machine) -> int | None:
    if footprint.batch_bytes is None or footprint.largest_sample_bytes is None:
        return None
    return streamed_ram_bytes(
        batch_bytes=footprint.batch_bytes,
        sample_bytes=footprint.largest_sample_bytes,
        parallel_calls=machine.cpu_count or 1,
    )


def _judge(low: int | None, high: int | None, free: int | None) -> str:
    if low is None or high is None or free is None:
        return "unknown"
    if low > free:
        return "does_not_fit"
    return "fits" if high <= free else "unknown"


def _sum(groups: list[GroupFootprint], of: str) -> int | None:
    sizes = [getattr(group, of) for group in groups]
    return None if None in sizes else sum(sizes)


def _explain(way: str, footprint: Footprint) -> str:
    framework = f"{format_bytes(FRAMEWORK_RAM_BYTES)} for TensorFlow itself"
    if way == "memory":
        return f"the arrays, the tensors `fit` makes of them, {framework}"
    if way == "device":
        return f"the arrays in RAM, their copy on the GPU, {framework}"
    if way == "stream":
        return f"a few batches of {footprint.batch_size}, {framework}"
    return f"what is loaded whole, a few batches of the rest, {framework}"
