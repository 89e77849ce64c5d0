"""What the dataset and its pipeline say, by the names of the vocabulary.

Where only one group can stand for the dataset, the largest does.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.advise.flatten_paths import path_values
from oomdoctor.facts import (
    TENSORFLOW_RAM_BYTES,
    FileGroup,
    Footprint,
    GroupFootprint,
    Inventory,
    Stage,
    Workload,
)
from oomdoctor.units import DTYPE_BYTES, element_count

Value = int | float | str | bool | None

Pair = tuple[FileGroup, GroupFootprint | None]

_KERAS_LOADER_SIZE = (256, 256)


def known_sum(terms: Iterable[int | None]) -> int | None:
    """Return a sum, or None as soon as one term is: half a sum would look like a small one."""
    total = 0
    for term in terms:
        if term is None:
            return None
        total += term
    return total


def _pairs(inventory: Inventory, footprint: Footprint | None) -> list[Pair]:
    """Each group as it lies on disk, with what it holds in memory."""
    groups = footprint.groups if footprint else ()
    if [group.name for group in inventory.groups] == [group.name for group in groups]:
        return list(zip(inventory.groups, groups, strict=True))
    by_name = {group.name: group for group in groups}
    return [(group, by_name.get(group.name)) for group in inventory.groups]


def data_values(
    inventory: Inventory | None, footprint: Footprint | None, workload: Workload | None
) -> dict[str, Value]:
    """Return the facts about the data."""
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
        "data.expansion": _expansion(inventory, decoded),
        "data.load": footprint.load if footprint else None,
        "data.is_exact": inventory.is_exact if inventory else None,
        "data.replica_remainder": _remainder(samples, footprint, workload),
    }
    main, held = _main(_pairs(inventory, footprint) if inventory else [])
    flat.update(_groups(inventory, footprint))
    flat.update(path_values(inventory, main))
    flat.update(_sample_shapes(main, held, workload))
    return flat


def _expansion(inventory: Inventory | None, decoded: int | None) -> float | None:
    if inventory is None or decoded is None:
        return None
    # What lies in memory already is as large as it is.
    return decoded / inventory.stored_bytes if inventory.stored_bytes else 1.0


def _main(pairs: list[Pair]) -> Pair | tuple[None, None]:
    """The group that is trained on: of the largest one's kind, the training split if it has one."""
    inputs = [pair for pair in pairs if pair[0].role == "inputs"] or pairs
    largest, _ = _largest(inputs)
    if largest is None:
        return None, None
    alike = [pair for pair in inputs if pair[0].format == largest.format]
    return _largest([pair for pair in alike if pair[0].split == "train"] or alike)


def _sample_shapes(
    main: FileGroup | None, held: GroupFootprint | None, workload: Workload | None
) -> dict[str, Value]:
    """What one sample looks like: as it is loaded, the largest, and as a loader would give it."""
    spread = main.shapes if main else None
    loaded = (held.shape if held else None) or (spread.median if spread else ())
    largest = spread.largest if spread else ()
    is_image = len(loaded) == 3 and main is not None and main.kind in ("image", "record")
    is_audio = main is not None and main.kind == "audio" and bool(largest)
    width = DTYPE_BYTES.get((held.dtype if held else None) or "")
    height, columns = _loader_size(main, held, workload)
    sample = None
    if height is not None and columns is not None and width is not None:
        sample = height * columns * (loaded[2] if len(loaded) == 3 else 3) * width
    return {
        "data.loaded_height": loaded[0] if is_image else None,
        "data.loaded_width": loaded[1] if is_image else None,
        "data.largest_height": largest[0] if is_image and len(largest) == 3 else None,
        "data.largest_width": largest[1] if is_image and len(largest) == 3 else None,
        "data.median_sample_bytes": element_count(loaded) * width if spread and width else None,
        "data.sample_elements": element_count(loaded) if spread else None,
        "data.sequence_length": largest[0] if is_audio else None,
        "data.loader_height": height,
        "data.loader_width": columns,
        "data.loader_sample_bytes": sample,
    }


def _loader_size(
    image: FileGroup | None, held: GroupFootprint | None, workload: Workload | None
) -> tuple[int | None, int | None]:
    """What images are to be resized to: the model's input, the size asked for, or Keras's own."""
    if image is None or image.kind != "image":
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
    largest, memory = _main(pairs)
    arrays = [(group, held) for group, held in pairs if group.kind == "array"]
    _, array_memory = _largest(arrays)
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
        "data.loaded_whole_bytes": known_sum(held.decoded_bytes for held in whole)
        if inventory and footprint
        else None,
        "data.array_bytes": known_sum(held.decoded_bytes if held else None for _, held in arrays)
        if inventory and footprint
        else None,
        "data.largest_array_bytes": array_memory.decoded_bytes
        if array_memory
        else None
        if arrays or not inventory or not inventory.is_complete
        else 0,
        "data.can_memory_map": _can_memory_map(arrays) if inventory and footprint else None,
        "data.image_height": median[0] if len(median) >= 2 else None,
        "data.image_width": median[1] if len(median) >= 2 else None,
        "data.image_channels": median[2] if len(median) == 3 else None,
        "data.is_ragged": any(shape.distinct > 1 for shape in shapes) if shapes else None,
    }


def _largest(pairs: list[Pair]) -> Pair | tuple[None, None]:
    def size(pair: Pair) -> tuple[int, int]:
        group, held = pair
        return (held.decoded_bytes if held else None) or 0, group.stored_bytes

    return max(pairs, key=size) if pairs else (None, None)


def _can_memory_map(arrays: list[Pair]) -> bool:
    whole = [group for group, held in arrays if held is not None and held.is_whole]
    return bool(whole) and all(
        group.format in ("npy", "memmap") and not group.is_compressed and group.dtype is not None
        for group in whole
    )


def feeding_values(footprint: Footprint | None) -> dict[str, Value]:
    """Return what each way of feeding needs."""
    ways = {feeding.way: feeding for feeding in footprint.feedings} if footprint else {}
    memory, device, stream = (ways.get(way) for way in ("memory", "device", "stream"))
    chosen = footprint.chosen if footprint else None
    return {
        "feeding.base_ram_bytes": TENSORFLOW_RAM_BYTES if footprint else None,
        "feeding.chosen_way": chosen.way if chosen else None,
        "feeding.chosen_ram_bytes": chosen.ram_bytes if chosen else None,
        "feeding.chosen_vram_bytes": chosen.vram_bytes if chosen else None,
        "feeding.memory_ram_bytes": memory.ram_bytes if memory else None,
        "feeding.device_ram_bytes": device.ram_bytes if device else None,
        "feeding.device_vram_bytes": device.vram_bytes if device else None,
        "feeding.stream_ram_bytes": stream.ram_bytes if stream else None,
        "feeding.stream_vram_bytes": stream.vram_bytes if stream else None,
    }


def pipeline_values(stages: tuple[Stage, ...]) -> dict[str, Value]:
    """No stages at all means that no pipeline was seen; a stage that is absent holds nothing."""

    def held(chosen: list[Stage]) -> int | None:
        return known_sum(stage.held_bytes for stage in chosen) if stages else None

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
