"""Flattens `Facts` into the two-level names of the vocabulary.

What a command did not produce stays None. A sum is None as soon as one of its terms is: half a
sum would look like a small one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from oomdoctor.facts import (
    Diagnosis,
    Estimate,
    Facts,
    FileGroup,
    Footprint,
    Gpu,
    GroupFootprint,
    Inventory,
    Machine,
    Stage,
    Workload,
)

Value = int | float | str | bool | None

_KERAS_LOADER_SIZE = (256, 256)

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


def values(facts: Facts, *, purpose: str | None = None) -> dict[str, Value]:
    """Return every fact of the vocabulary by name; None where it is not known.

    Args:
        facts: What the stages found.
        purpose: What the run is for: prototype, train or production.
    """
    flat: dict[str, Value] = {}
    flat.update(_machine(facts.machine))
    flat.update(_data(facts.inventory, facts.footprint, facts.workload))
    flat.update(_feeding(facts.footprint))
    flat.update(_pipeline(facts.footprint.stages if facts.footprint else ()))
    flat.update(_model(facts.workload))
    flat.update(_step(facts.estimate))
    flat.update(_crash(facts.diagnosis))
    versions = dict(facts.versions)
    builds = ("tensorflow", "tensorflow-cpu", "tensorflow_cpu", "tf-nightly")
    build = next((versions[name] for name in builds if name in versions), None)
    flat["versions.tensorflow"] = version_number(build)
    flat["versions.keras"] = version_number(versions.get("keras"))
    flat["run.purpose"] = purpose
    return flat


def version_number(text: str | None) -> int | None:
    """Return a version as a number that compares, or None where there is none to read.

    Example:
        >>> version_number("2.21.0rc1")
        22100
    """
    match = _VERSION.match(text or "")
    if match is None:
        return None
    return int(match[1]) * 10000 + int(match[2]) * 100 + int(match[3] or 0)


def _sum(terms: Iterable[int | None]) -> int | None:
    total = 0
    for term in terms:
        if term is None:
            return None
        total += term
    return total


def _least(sizes: list[int | None]) -> int | None:
    """The smallest size, or None: one that is unknown may be smaller still."""
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def _machine(machine: Machine | None) -> dict[str, Value]:
    ram = machine.ram if machine else None
    gpus = machine.gpus if machine else ()
    fullest = _fullest(gpus)
    processes = fullest.processes if fullest else None
    held = [process.used_bytes for process in processes or ()]
    known = [used for used in held if used is not None]
    return {
        "machine.ram_total_bytes": ram.total_bytes if ram else None,
        "machine.ram_available_bytes": ram.available_bytes if ram else None,
        "machine.ram_limit_bytes": ram.limit_bytes if ram else None,
        "machine.ram_limit_source": ram.limit_source if ram else None,
        "machine.ram_usable_bytes": _least([ram.total_bytes, ram.limit_bytes or ram.total_bytes])
        if ram
        else None,
        "machine.swap_total_bytes": ram.swap_total_bytes if ram else None,
        "machine.cpu_count": machine.cpu_count if machine else None,
        # No GPU seen is not "no GPU": the driver may be hidden from us.
        "machine.gpu_count": len(gpus) or None,
        "machine.gpu_name": fullest.name if fullest else None,
        "machine.gpu_total_bytes": _least([gpu.total_bytes for gpu in gpus]),
        "machine.gpu_free_bytes": _least([gpu.free_bytes for gpu in gpus]),
        "machine.gpu_usable_bytes": machine.usable_vram_bytes if machine else None,
        "machine.gpu_used_bytes": fullest.used_bytes if fullest else None,
        "machine.gpu_other_process_bytes": (
            None if processes is None or (held and not known) else sum(known)
        ),
        "machine.gpu_process_count": None if processes is None else len(processes),
        "machine.has_tensor_cores": _tensor_cores(gpus),
    }


def _fullest(gpus: tuple[Gpu, ...]) -> Gpu | None:
    known = [gpu for gpu in gpus if gpu.free_bytes is not None]
    if known:
        return min(known, key=lambda gpu: gpu.free_bytes or 0)
    return gpus[0] if gpus else None


def _tensor_cores(gpus: tuple[Gpu, ...]) -> bool | None:
    if not gpus or any(gpu.compute_capability is None for gpu in gpus):
        return None
    # The GTX 16 series reports 7.5 and has none.
    return all(
        (gpu.compute_capability or (0, 0)) >= (7, 0) and "GTX 16" not in gpu.name for gpu in gpus
    )


def _pairs(
    inventory: Inventory, footprint: Footprint | None
) -> list[tuple[FileGroup, GroupFootprint | None]]:
    """Each group as it lies on disk, with what it holds in memory."""
    groups = footprint.groups if footprint else ()
    if [group.name for group in inventory.groups] == [group.name for group in groups]:
        return list(zip(inventory.groups, groups, strict=True))
    by_name = {group.name: group for group in groups}
    return [(group, by_name.get(group.name)) for group in inventory.groups]


def _data(
    inventory: Inventory | None, footprint: Footprint | None, workload: Workload | None
) -> dict[str, Value]:
    decoded = footprint.decoded_bytes if footprint else None
    stored = inventory.stored_bytes if inventory else None
    samples = inventory.samples if inventory else None
    flat: dict[str, Value] = {
        "data.root": inventory.root if inventory else None,
        "data.samples": samples,
        "data.files": inventory.files if inventory else None,
        "data.stored_bytes": stored,
        "data.decoded_bytes": decoded,
        "data.native_bytes": footprint.native_bytes if footprint else None,
        "data.keras_loader_bytes": footprint.keras_loader_bytes if footprint else None,
        "data.sample_bytes": footprint.sample_bytes if footprint else None,
        "data.largest_sample_bytes": footprint.largest_sample_bytes if footprint else None,
        "data.batch_bytes": footprint.batch_bytes if footprint else None,
        "data.batch_size": footprint.batch_size if footprint else None,
        "data.expansion": decoded / stored if decoded is not None and stored else None,
        "data.load": footprint.load if footprint else None,
        "data.is_exact": inventory.is_exact if inventory else None,
        "data.replica_remainder": _remainder(samples, footprint, workload),
    }
    flat.update(_groups(inventory, footprint))
    height, width = _loader_size(inventory, footprint, workload)
    flat["data.loader_height"] = height
    flat["data.loader_width"] = width
    return flat


def _loader_size(
    inventory: Inventory | None, footprint: Footprint | None, workload: Workload | None
) -> tuple[int | None, int | None]:
    """What images are to be resized to: the model's input, the size asked for, or Keras's own."""
    pairs = _pairs(inventory, footprint) if inventory else []
    image, held = _largest([pair for pair in pairs if pair[0].kind == "image"])
    if image is None:
        return None, None
    if workload is not None and len(workload.input_shape or ()) == 3:
        assert workload.input_shape is not None
        return workload.input_shape[0], workload.input_shape[1]
    if held is not None and held.shape and held.decoded_bytes != held.native_bytes:
        return held.shape[0], held.shape[1]
    return _KERAS_LOADER_SIZE


def _remainder(
    samples: int | None, footprint: Footprint | None, workload: Workload | None
) -> int | None:
    if samples is None or workload is None:
        return None
    batch = workload.batch_size or (footprint.batch_size if footprint else None)
    return samples % batch % workload.replicas if batch else None


def _groups(inventory: Inventory | None, footprint: Footprint | None) -> dict[str, Value]:
    """What the groups say: the largest one stands for the dataset where only one can."""
    pairs = _pairs(inventory, footprint) if inventory else []
    largest, memory = _largest(pairs)
    arrays = [(group, held) for group, held in pairs if group.kind == "array"]
    biggest_array, array_memory = _largest(arrays)
    whole = [held for _, held in pairs if held is not None and held.is_whole]
    image, _ = _largest([pair for pair in pairs if pair[0].kind == "image"])
    median = image.shapes.median if image and image.shapes else ()
    shapes = [group.shapes for group, _ in pairs if group.shapes is not None]
    dtype = memory.dtype if memory else None
    return {
        "data.dtype": dtype or (largest.dtype if largest else None),
        "data.stored_dtype": largest.dtype if largest else None,
        "data.format": largest.format if largest else None,
        "data.kind": largest.kind if largest else None,
        "data.loaded_whole_bytes": _sum(held.decoded_bytes for held in whole)
        if inventory and footprint
        else None,
        "data.array_bytes": _sum(held.decoded_bytes if held else None for _, held in arrays)
        if inventory and footprint
        else None,
        "data.largest_array_bytes": array_memory.decoded_bytes if array_memory else None,
        "data.array_path": _array_path(inventory, biggest_array),
        "data.can_memory_map": _can_memory_map(arrays) if inventory and footprint else None,
        "data.image_height": median[0] if len(median) >= 2 else None,
        "data.image_width": median[1] if len(median) >= 2 else None,
        "data.image_channels": median[2] if len(median) == 3 else None,
        "data.is_ragged": any(shape.distinct > 1 for shape in shapes) if shapes else None,
    }


def _largest(
    pairs: list[tuple[FileGroup, GroupFootprint | None]],
) -> tuple[FileGroup | None, GroupFootprint | None]:
    def size(pair: tuple[FileGroup, GroupFootprint | None]) -> tuple[int, int]:
        group, held = pair
        return (held.decoded_bytes if held else None) or 0, group.stored_bytes

    return max(pairs, key=size) if pairs else (None, None)


def _array_path(inventory: Inventory | None, group: FileGroup | None) -> str | None:
    if inventory is None or group is None or group.format != "npy":
        return None
    if inventory.root.endswith(".npy"):
        return inventory.root
    return os.path.join(inventory.root, group.name) if group.name.endswith(".npy") else None


def _can_memory_map(arrays: list[tuple[FileGroup, GroupFootprint | None]]) -> bool:
    whole = [group for group, held in arrays if held is not None and held.is_whole]
    return bool(whole) and all(
        group.format in ("npy", "memmap") and not group.is_compressed and group.dtype is not None
        for group in whole
    )


def _feeding(footprint: Footprint | None) -> dict[str, Value]:
    ways = {feeding.way: feeding for feeding in footprint.feedings} if footprint else {}
    memory, device, stream = (ways.get(way) for way in ("memory", "device", "stream"))
    chosen = footprint.chosen if footprint else None
    return {
        "feeding.chosen_way": chosen.way if chosen else None,
        "feeding.chosen_ram_bytes": chosen.ram_bytes if chosen else None,
        "feeding.chosen_vram_bytes": chosen.vram_bytes if chosen else None,
        "feeding.memory_ram_bytes": memory.ram_bytes if memory else None,
        "feeding.device_ram_bytes": device.ram_bytes if device else None,
        "feeding.device_vram_bytes": device.vram_bytes if device else None,
        "feeding.stream_ram_bytes": stream.ram_bytes if stream else None,
        "feeding.stream_vram_bytes": stream.vram_bytes if stream else None,
    }


def _pipeline(stages: tuple[Stage, ...]) -> dict[str, Value]:
    """No stages at all means that no pipeline was seen; a stage that is absent holds nothing."""

    def held(chosen: list[Stage]) -> int | None:
        return _sum(stage.held_bytes for stage in chosen) if stages else None

    def most(chosen: list[Stage]) -> int | None:
        counts = [stage.elements for stage in chosen]
        if not stages or None in counts:
            return None
        return max((count for count in counts if count is not None), default=0)

    def after_batch(chosen: list[Stage]) -> bool | None:
        return any(stage.is_batched for stage in chosen) if stages else None

    shuffles, prefetches, tensors = (
        [stage for stage in stages if stage.kind == kind]
        for kind in ("shuffle", "prefetch", "tensors")
    )
    caches = [stage for stage in stages if stage.kind == "cache" and _in_memory(stage)]
    return {
        "pipeline.shuffle_bytes": held(shuffles),
        "pipeline.shuffle_elements": most(shuffles),
        "pipeline.shuffle_after_batch": after_batch(shuffles),
        "pipeline.cache_in_memory": bool(caches) if stages else None,
        "pipeline.cache_bytes": held(caches),
        "pipeline.cache_after_batch": after_batch(caches),
        "pipeline.prefetch_bytes": held(prefetches),
        "pipeline.prefetch_batches": most(prefetches),
        "pipeline.from_tensors_bytes": held(tensors),
        "pipeline.total_bytes": held(list(stages)),
    }


def _in_memory(cache: Stage) -> bool:
    """A cache to a file names it, as in `cache("features")`, and holds nothing in RAM."""
    return cache.label in ("cache", "cache()")


def _model(workload: Workload | None) -> dict[str, Value]:
    shape = (workload.input_shape if workload else None) or ()
    is_image = len(shape) == 3
    return {
        "model.name": workload.model if workload else None,
        "model.weights_bytes": workload.weights_bytes if workload else None,
        "model.trainable_bytes": workload.trainable_bytes if workload else None,
        "model.optimizer": workload.optimizer if workload else None,
        "model.optimizer_bytes": workload.optimizer_bytes if workload else None,
        "model.precision": workload.precision if workload else None,
        "model.input_height": shape[0] if is_image else None,
        "model.input_width": shape[1] if is_image else None,
        "model.has_batch_norm": workload.has_batch_norm if workload else None,
        "model.replicas": workload.replicas if workload else None,
        "model.batch_size": workload.batch_size if workload else None,
    }


def _step(estimate: Estimate | None) -> dict[str, Value]:
    parts = dict(estimate.parts) if estimate else {}
    fixed = _sum(parts.get(part) for part in ("weights", "gradients", "optimizer"))
    return {
        "step.batch_size": estimate.batch_size if estimate else None,
        "step.peak_bytes": estimate.peak_bytes if estimate else None,
        "step.low_bytes": estimate.low_bytes if estimate else None,
        "step.high_bytes": estimate.high_bytes if estimate else None,
        "step.fixed_bytes": fixed,
        "step.activation_bytes": parts.get("activations"),
        "step.largest_tensor_bytes": estimate.largest_tensor_bytes if estimate else None,
        "step.per_sample_bytes": estimate.per_sample_bytes if estimate else None,
    }


def _crash(diagnosis: Diagnosis | None) -> dict[str, Value]:
    shape = (diagnosis.shape if diagnosis else None) or ()
    return {
        "crash.cause": diagnosis.cause if diagnosis else None,
        "crash.requested_bytes": diagnosis.requested_bytes if diagnosis else None,
        "crash.limit_bytes": diagnosis.limit_bytes if diagnosis else None,
        "crash.in_use_bytes": diagnosis.in_use_bytes if diagnosis else None,
        "crash.device": diagnosis.device if diagnosis else None,
        "crash.op": diagnosis.op if diagnosis else None,
        "crash.layer": diagnosis.layer if diagnosis else None,
        "crash.batch_dimension": shape[0] if shape else None,
    }
