"""Bytes the data holds once decoded: samples × elements × width of the dtype.

Images decode to whole numbers of one byte, but training code makes floats of them, so they
count as float32 unless told otherwise; so do encoded images inside records. Arrays and tables
keep their own dtype. The images' native size is right for people who load everything into one
array; Keras's own loader resizes to 256×256×3 float32 whatever the files hold, so both are given.
"""

from __future__ import annotations

from collections.abc import Iterable

from oomdoctor.facts import FileGroup, Footprint, GroupFootprint, Inventory, Stage
from oomdoctor.units import dtype_bytes, element_count

KERAS_LOADER_SHAPE = (256, 256, 3)
"""The defaults of keras.utils.image_dataset_from_directory, as float32."""

WHOLE_BY_DEFAULT = frozenset(("array", "table"))
"""Kinds that people load whole; images, records, audio and text are streamed by loaders."""


def measure(
    inventory: Inventory,
    *,
    image_size: tuple[int, ...] | None = None,
    dtype: str | None = None,
    batch_size: int = 32,
    load: str = "auto",
    stages: tuple[Stage, ...] = (),
) -> Footprint:
    """Return what the data takes in memory, before it is compared with any machine.

    Args:
        inventory: What there is.
        image_size: Height, width and perhaps channels that images are resized to.
        dtype: What the loading code makes of the elements; None keeps the usual.
        batch_size: Samples per batch.
        load: `memory`, `stream`, or `auto`: arrays and tables whole, the rest streamed.
        stages: The live pipeline that feeds it, if there is one.
    """
    groups = tuple(
        _measure_group(group, image_size=image_size, dtype=dtype, load=load)
        for group in inventory.groups
    )
    inputs = [
        (group, held)
        for group, held in zip(inventory.groups, groups, strict=True)
        if group.role == "inputs"
    ]
    decoded = _total(group.decoded_bytes for group in groups)
    samples = inventory.samples
    largest = max((held.largest_sample_bytes or 0 for _, held in inputs), default=0) or None
    images = sum(group.samples or 0 for group, _ in inputs if group.kind == "image")
    return Footprint(
        decoded_bytes=decoded,
        low_bytes=_total(group.low_bytes for group in groups),
        high_bytes=_total(group.high_bytes for group in groups),
        native_bytes=_total(group.native_bytes for group in groups),
        keras_loader_bytes=images * element_count(KERAS_LOADER_SHAPE) * 4 if images else None,
        sample_bytes=-(-decoded // samples) if decoded is not None and samples else None,
        largest_sample_bytes=largest,
        batch_bytes=None if largest is None else largest * min(batch_size, samples or batch_size),
        batch_size=batch_size,
        load=_how_loaded(groups),
        groups=groups,
        stages=stages,
    )


def _measure_group(
    group: FileGroup, *, image_size: tuple[int, ...] | None, dtype: str | None, load: str
) -> GroupFootprint:
    loaded_dtype = (dtype if group.role == "inputs" else None) or (
        "float32" if _is_image(group) else group.dtype
    )
    width = dtype_bytes(loaded_dtype) if loaded_dtype else None
    shape = _uniform_shape(group)
    elements, low, high = group.elements, group.low_elements, group.high_elements
    largest = element_count(group.shapes.largest) if group.shapes else None
    native_bytes = _in_memory(group, elements, width, converted=dtype is not None)
    if image_size is not None and _is_image(group) and group.samples is not None:
        shape = image_size if len(image_size) == 3 else (*image_size, _usual_channels(group))
        largest = element_count(shape)
        elements, low, high = largest * group.samples, None, None
    decoded_bytes = _in_memory(group, elements, width, converted=dtype is not None)
    return GroupFootprint(
        name=group.name,
        shape=shape,
        dtype=loaded_dtype,
        decoded_bytes=decoded_bytes,
        low_bytes=decoded_bytes if low is None or width is None else low * width,
        high_bytes=decoded_bytes if high is None or width is None else high * width,
        native_bytes=native_bytes,
        largest_sample_bytes=_largest_bytes(group, largest, width, decoded_bytes),
        is_whole=load == "memory" or (load == "auto" and group.kind in WHOLE_BY_DEFAULT),
        in_fit=group.split != "test",
        split=group.split,
        is_mapped=group.format == "memmap",
        can_stack=shape is not None or group.shapes is None,
    )


def _in_memory(
    group: FileGroup, elements: int | None, width: int | None, *, converted: bool
) -> int | None:
    if group.memory_bytes is not None and not (converted and elements is not None):
        return group.memory_bytes
    return None if elements is None or width is None else elements * width


def _largest_bytes(
    group: FileGroup, largest: int | None, width: int | None, decoded_bytes: int | None
) -> int | None:
    if largest is not None and width is not None:
        return largest * width
    if decoded_bytes is None or not group.samples:
        return None
    return -(-decoded_bytes // group.samples)  # the mean is all there is to go by


def _is_image(group: FileGroup) -> bool:
    if group.kind == "image":
        return True
    if group.format == "dataset":
        return False  # a live pipeline says what it makes of its images
    shape = group.shapes.most_common if group.shapes else ()
    return group.kind == "record" and len(shape) == 3 and group.dtype in ("uint8", "uint16")


def _usual_channels(group: FileGroup) -> int:
    return group.shapes.most_common[2] if group.shapes else 3


def _uniform_shape(group: FileGroup) -> tuple[int, ...] | None:
    if group.shapes is None or group.shapes.distinct != 1:
        return None
    return group.shapes.most_common


def _how_loaded(groups: tuple[GroupFootprint, ...]) -> str:
    ways = {"memory" if group.is_whole else "stream" for group in groups}
    return ways.pop() if len(ways) == 1 else "mixed"


def _total(sizes: Iterable[int | None]) -> int | None:
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total
