"""What each way of feeding the data needs, against what the machine has.

Three ways are compared. `memory`: arrays in RAM, trained on the CPU. `device`: the same arrays
with a GPU. `stream`: batch by batch. Given arrays, `fit` copies each of them twice when it
starts, once in NumPy and once as a tensor; the NumPy copy goes when training begins, the tensor
stays until it ends, and with a GPU it lies there, whole. The model itself is never counted here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oomdoctor.facts import TENSORFLOW_RAM_BYTES, Feeding, Footprint, GroupFootprint, Machine
from oomdoctor.footprint import pipeline
from oomdoctor.units import format_bytes

BATCHES_ON_DEVICE = 2
"""A batch in use and one on its way: what a GPU holds of a streamed dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Need:
    """Bytes of one memory, with their interval."""

    likely: int | None
    low: int | None
    high: int | None

    def against(self, free_bytes: int | None) -> str:
        if self.low is None or self.high is None or free_bytes is None:
            return "unknown"
        if self.low > free_bytes:
            return "does_not_fit"
        return "fits" if self.high <= free_bytes else "unknown"


def compare(footprint: Footprint, machine: Machine, *, held_bytes: int = 0) -> Footprint:
    """Return the footprint with the three ways compared and the chosen one judged.

    Args:
        footprint: What the data takes.
        machine: What there is.
        held_bytes: What this process holds of it already, beside what is available.
    """
    has_gpu = bool(machine.gpus)
    if held_bytes and machine.ram.available_bytes is not None:
        more = machine.ram.available_bytes + held_bytes
        machine = replace(machine, ram=replace(machine.ram, available_bytes=more))
    footprint = replace(
        footprint, stages=pipeline.bill(footprint.stages, cpu_count=machine.cpu_count)
    )
    every = footprint.groups
    ways = {
        "memory": _feed(footprint, machine, "memory", whole=every, on_gpu=False),
        "device": _feed(footprint, machine, "device", whole=every, on_gpu=True),
        "stream": _feed(footprint, machine, "stream", whole=(), on_gpu=has_gpu),
    }
    if footprint.load == "memory":
        chosen = ways["device" if has_gpu else "memory"]
    elif footprint.load == "stream":
        chosen = ways["stream"]
    else:
        whole = tuple(group for group in every if group.is_whole)
        chosen = _feed(footprint, machine, "mixed", whole=whole, on_gpu=has_gpu)
    if footprint.stages:
        # A pipeline is there already, so the other ways are not a question.
        ways = {"stream": ways["stream"]}
    can_stack = all(group.can_stack for group in every)
    candidates = ways if can_stack else {"stream": ways["stream"]}
    return replace(
        footprint,
        feedings=tuple(ways.values()),
        chosen=chosen,
        recommended=_recommend(candidates, chosen, has_gpu=has_gpu),
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


def _recommend(ways: dict[str, Feeding], chosen: Feeding, *, has_gpu: bool) -> str | None:
    # What fits as it is needs no change.
    if verdict_of(chosen, has_gpu=has_gpu) == "fits":
        return chosen.way
    # Arrays are simplest and fastest where they fit; a stream fits nearly everywhere.
    for way in ("device" if has_gpu else "memory", "stream"):
        if way in ways and verdict_of(ways[way], has_gpu=has_gpu) == "fits":
            return way
    return None


def _feed(
    footprint: Footprint,
    machine: Machine,
    way: str,
    *,
    whole: tuple[GroupFootprint, ...],
    on_gpu: bool,
) -> Feeding:
    is_streaming = len(whole) < len(footprint.groups)
    buffers = _buffers(footprint, machine) if is_streaming else _Need(likely=0, low=0, high=0)
    batches = BATCHES_ON_DEVICE * (footprint.batch_bytes or 0) if is_streaming else 0
    knows_batches = not is_streaming or footprint.batch_bytes is not None

    def ram(of: str, buffered: int | None) -> int | None:
        arrays = _arrays_in_ram(whole, of, on_gpu=on_gpu)
        if arrays is None or buffered is None:
            return None
        return arrays + buffered + TENSORFLOW_RAM_BYTES

    # `from_tensor_slices` makes its tensors on the GPU where there is one.
    embedded = sum(stage.held_bytes or 0 for stage in footprint.stages if stage.kind == "tensors")

    def vram(of: str) -> int | None:
        tensors = _tensors(whole, of)
        if tensors is None or not knows_batches:
            return None
        return sum(tensors.values()) + batches + embedded

    ram_need = _Need(
        likely=ram("decoded_bytes", buffers.likely),
        low=ram("low_bytes", buffers.low),
        high=ram("high_bytes", buffers.high),
    )
    vram_need = _Need(likely=vram("decoded_bytes"), low=vram("low_bytes"), high=vram("high_bytes"))
    return Feeding(
        way=way,
        ram_bytes=ram_need.likely,
        vram_bytes=vram_need.likely if on_gpu else 0,
        ram_verdict=ram_need.against(machine.ram.available_bytes),
        vram_verdict=vram_need.against(machine.usable_vram_bytes) if on_gpu else "fits",
        detail=_explain(way, footprint),
    )


def _tensors(groups: tuple[GroupFootprint, ...], of: str) -> dict[str | None, int] | None:
    """Return the bytes of the tensors that `fit` makes, by split."""
    by_split: dict[str | None, int] = {}
    for group in groups:
        size = getattr(group, of)
        if size is None:
            return None
        if group.in_fit:
            fed = pipeline.fed_bytes(size, dtype=group.dtype)
            by_split[group.split] = by_split.get(group.split, 0) + fed
    return by_split


def _arrays_in_ram(groups: tuple[GroupFootprint, ...], of: str, *, on_gpu: bool) -> int | None:
    tensors = _tensors(groups, of)
    if tensors is None:
        return None
    arrays = sum(getattr(group, of) for group in groups if not group.is_mapped)
    passing = dict.fromkeys(tensors, 0)
    for group in groups:
        if group.in_fit:
            size = getattr(group, of)
            at_start = pipeline.fit_peak_bytes(size, dtype=group.dtype, is_mapped=True)
            passing[group.split] += at_start - pipeline.fed_bytes(size, dtype=group.dtype)
    # Splits are copied one after the other: what passes for one is gone before the next.
    most = max(passing.values(), default=0)
    return int(arrays) + most + (0 if on_gpu else sum(tensors.values()))


def _buffers(footprint: Footprint, machine: Machine) -> _Need:
    if footprint.stages:
        held = pipeline.held(footprint.stages)
        if not held.is_complete:
            return _Need(likely=None, low=None, high=None)
        return _Need(likely=held.known_bytes, low=held.known_bytes, high=held.high_bytes)
    if footprint.batch_bytes is None or footprint.largest_sample_bytes is None:
        return _Need(likely=None, low=None, high=None)
    size = pipeline.streamed_ram_bytes(
        batch_bytes=footprint.batch_bytes,
        sample_bytes=footprint.largest_sample_bytes,
        parallel_calls=machine.cpu_count or pipeline.ASSUMED_CPU_COUNT,
    )
    return _Need(likely=size, low=size, high=size)


def _explain(way: str, footprint: Footprint) -> str:
    framework = f"{format_bytes(TENSORFLOW_RAM_BYTES)} for TensorFlow itself"
    if way == "memory":
        return f"the arrays, the two copies `fit` makes when it starts, {framework}"
    if way == "device":
        return f"the arrays, the copy `fit` makes on its way to the GPU, {framework}"
    if way == "stream" and footprint.stages:
        return f"what the pipeline's stages keep, {framework}"
    if way == "stream":
        return f"a few batches of {footprint.batch_size}, {framework}"
    return f"what is loaded whole, a few batches of the rest, {framework}"
