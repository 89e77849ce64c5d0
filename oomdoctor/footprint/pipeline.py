"""What the input side of training keeps in RAM: `fit` on arrays, and each tf.data stage.

The constants were measured by `tests/benchmarks/what_fit_holds.py` with TensorFlow 2.21 and
Keras 3.15 on CPU under Linux and glibc. On a GPU the last copy of an array lies on the device;
that was not measured.

Left out: what functions keep that are called inside `map`, what a generator keeps for itself,
and the model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oomdoctor.facts import Stage
from oomdoctor.units import DTYPE_BYTES

FIT_COPIES_AT_START = 2
"""`fit` and `from_tensor_slices` copy an array in NumPy, then into a tensor: both at once."""

FIT_COPIES_IN_TRAINING = 1
"""The NumPy copy goes as soon as the next op runs; the tensor stays until `fit` ends."""

HELD_BY_FIT = {
    "numpy float32": 3.00,
    "numpy uint8": 3.00,
    "numpy float64": 2.50,
    "numpy float16": 7.00,
    "memmap float32": 3.00,
    "tensor": 1.09,
    "numpy float32, validation_split=0.2": 2.60,
    "frame float32": 3.01,
    "frame float64": 2.51,
    "from_tensor_slices": 3.00,
    "from_tensor_slices, shuffle(all)": 3.00,
    "from_generator": 0.03,
    "PyDataset": 0.07,
    "from_generator, cache() then batch": 1.08,
    "from_generator, batch then cache()": 1.01,
    "from_generator, cache(file)": 0.05,
}
"""Measured: the most RAM held during `fit`, the data included, as multiples of its bytes (512 MiB
in samples of 192 KiB, two epochs). Of a memory-map 1.00 is file pages the kernel can drop."""

BUFFERED_ELEMENT_OVERHEAD_BYTES = 192
"""What one element in a shuffle buffer costs besides its data: 140 to 218 measured for elements
of one tensor, 353 for a pair. Taken for caches too, where it was not measured apart."""

SHUFFLE_GROWTH = 2.8
"""A shuffle buffer over many epochs, at worst: 2.0 to 2.8 of its bytes after eight epochs, with
elements of 3 to 192 KiB. Each epoch fills it from another thread, and glibc keeps what was freed
in the last thread's arena; with MALLOC_ARENA_MAX=1 the same run stayed at 1.0."""

AUTOTUNE_PREFETCH = 2
"""Elements `prefetch(AUTOTUNE)` keeps: 1 measured when steps take equal time, and one in use."""

AUTOTUNE_PREFETCH_HIGH = 16
"""The same when steps come in bursts of ten. tf.data adds such a stage where there is none."""

ASSUMED_CPU_COUNT = 8
"""Calls that run at once under AUTOTUNE where the number of CPUs is not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What all stages keep together."""

    known_bytes: int
    """The stages whose size is known: a lower bound where not all are."""
    high_bytes: int
    """The same at worst: shuffle buffers after many epochs."""
    is_complete: bool


def bill(stages: tuple[Stage, ...], *, cpu_count: int | None = None) -> tuple[Stage, ...]:
    """Return the stages with `held_bytes` filled in; None where it cannot be told.

    Args:
        stages: A pipeline from source to end.
        cpu_count: Calls that run at once where AUTOTUNE decides.

    Example:
        >>> stage = Stage(kind="batch", label="batch(32)", elements=32, element_bytes=100)
        >>> bill((stage,))[0].held_bytes
        3200
    """
    return tuple(replace(stage, held_bytes=_held_bytes(stage, cpu_count)) for stage in stages)


def _held_bytes(stage: Stage, cpu_count: int | None) -> int | None:
    elements = stage.elements
    if elements is None:
        if stage.kind == "prefetch":
            elements = AUTOTUNE_PREFETCH
        elif stage.kind == "map":
            elements = cpu_count or ASSUMED_CPU_COUNT
    if elements == 0:
        return 0
    if elements is None or stage.element_bytes is None:
        return None
    each = stage.element_bytes
    if stage.kind in ("shuffle", "cache"):
        each += BUFFERED_ELEMENT_OVERHEAD_BYTES
    return elements * each


def held(stages: tuple[Stage, ...]) -> Held:
    """Return what billed stages keep together.

    Example:
        >>> held(bill((Stage(kind="cache", label="cache()"),)))
        Held(known_bytes=0, high_bytes=0, is_complete=False)
    """
    known, high = 0, 0
    for stage in stages:
        size = stage.held_bytes or 0
        known += size
        high += int(size * SHUFFLE_GROWTH) if stage.kind == "shuffle" else size
    return Held(
        known_bytes=known,
        high_bytes=high,
        is_complete=all(stage.held_bytes is not None for stage in stages),
    )


def fed_bytes(array_bytes: int, *, dtype: str | None) -> int:
    """Return the bytes of the tensor that `fit` makes of an array.

    Keras turns floats of any other width into float32.

    Example:
        >>> fed_bytes(1000, dtype="float64"), fed_bytes(1000, dtype="uint8")
        (500, 1000)
    """
    if dtype in ("float16", "bfloat16", "float64"):
        return array_bytes * DTYPE_BYTES["float32"] // DTYPE_BYTES[dtype]
    return array_bytes


def fit_peak_bytes(array_bytes: int, *, dtype: str | None, is_mapped: bool = False) -> int:
    """Return the most RAM that `fit(x)` holds for one array, the array included.

    Args:
        array_bytes: The array's own bytes.
        dtype: Its dtype.
        is_mapped: Whether it lies in a memory-mapped file, whose pages need no RAM.

    Example:
        >>> fit_peak_bytes(1000, dtype="float32"), fit_peak_bytes(1000, dtype="float64")
        (3000, 2500)
    """
    fed = fed_bytes(array_bytes, dtype=dtype)
    # Turning floats of another width into float32 first is one more copy.
    copies = FIT_COPIES_AT_START + (dtype in ("float16", "bfloat16", "float64"))
    return (0 if is_mapped else array_bytes) + copies * fed


def streamed_ram_bytes(
    *,
    batch_bytes: int,
    sample_bytes: int,
    prefetch_batches: int = AUTOTUNE_PREFETCH,
    shuffle_elements: int = 0,
    parallel_calls: int = ASSUMED_CPU_COUNT,
) -> int:
    """Return what a plain streamed pipeline keeps: load, shuffle, batch, prefetch.

    Args:
        batch_bytes: One batch.
        sample_bytes: One sample as it is loaded; the largest, to be safe.
        prefetch_batches: Batches that wait.
        shuffle_elements: Samples in the shuffle buffer.
        parallel_calls: Samples that are loaded at once.

    Example:
        >>> streamed_ram_bytes(batch_bytes=3200, sample_bytes=100, parallel_calls=2)
        9800
    """
    shuffled = shuffle_elements * (sample_bytes + BUFFERED_ELEMENT_OVERHEAD_BYTES)
    being_batched = batch_bytes
    return prefetch_batches * batch_bytes + being_batched + shuffled + parallel_calls * sample_bytes
