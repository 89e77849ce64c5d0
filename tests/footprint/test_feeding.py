"""Arithmetic of feeding: what is held, where, and whether that fits."""

import pytest

from oomdoctor.facts import (
    TENSORFLOW_RAM_BYTES,
    FileGroup,
    Gpu,
    Inventory,
    Machine,
    Memory,
    ShapeSpread,
    Stage,
)
from oomdoctor.footprint.dataset import measure
from oomdoctor.footprint.feeding import compare, verdict_of

MIB = 2**20
GIB = 2**30


def array(name="x.npy", *, samples=1024, elements_each=MIB // 4, dtype="float32", **more):
    """A group of arrays; by default 1,024 samples of 1 MiB."""
    shape = (elements_each,)
    return FileGroup(
        name=name,
        format="npy",
        kind="array",
        files=1,
        samples=samples,
        stored_bytes=1,
        elements=samples * elements_each,
        dtype=dtype,
        shapes=ShapeSpread(
            smallest=shape, median=shape, largest=shape, most_common=shape, distinct=1
        ),
        **more,
    )


def inventory(*groups):
    return Inventory(root="data", groups=groups, files=len(groups), stored_bytes=len(groups))


def machine(ram=64 * GIB, vram=None):
    gpus = () if vram is None else (Gpu(index=0, name="T4", total_bytes=vram, free_bytes=vram),)
    return Machine(ram=Memory(total_bytes=ram, available_bytes=ram), gpus=gpus, cpu_count=4)


def ways(*groups, stages=(), on=None, **how):
    footprint = compare(measure(inventory(*groups), stages=stages, **how), on or machine())
    return footprint, {feeding.way: feeding for feeding in footprint.feedings}


def test_arrays_in_ram_are_held_three_times_when_fit_starts():
    _, by_way = ways(array())
    assert by_way["memory"].ram_bytes == 3 * GIB + TENSORFLOW_RAM_BYTES


def test_with_a_gpu_the_last_copy_lies_there():
    _, by_way = ways(array(), on=machine(vram=8 * GIB))
    assert by_way["device"].ram_bytes == 2 * GIB + TENSORFLOW_RAM_BYTES
    assert by_way["device"].vram_bytes == GIB


def test_float64_becomes_float32_on_the_way():
    _, by_way = ways(array(dtype="float64"), on=machine(vram=8 * GIB))
    # The array is 2 GiB; the float32 copy, the NumPy copy and the tensor are 1 GiB each.
    assert by_way["memory"].ram_bytes == 5 * GIB + TENSORFLOW_RAM_BYTES
    assert by_way["device"].vram_bytes == GIB


def test_splits_are_copied_one_after_the_other_and_the_test_split_not_at_all():
    _, by_way = ways(
        array("x_train.npy", split="train"),
        array("x_val.npy", split="validation", samples=512),
        array("x_test.npy", split="test", samples=512),
    )
    arrays, tensors, passing = 2 * GIB, GIB + GIB // 2, GIB
    assert by_way["memory"].ram_bytes == arrays + tensors + passing + TENSORFLOW_RAM_BYTES


def test_a_stream_holds_batches():
    footprint, by_way = ways(array(), on=machine(vram=8 * GIB), batch_size=8)
    assert footprint.batch_bytes == 8 * MIB
    assert by_way["stream"].vram_bytes == 16 * MIB
    # Two batches wait, one is made, and four samples are loaded at once.
    assert by_way["stream"].ram_bytes == (3 * 8 + 4) * MIB + TENSORFLOW_RAM_BYTES


def test_a_live_pipeline_is_billed_as_it_is():
    stages = (
        Stage(kind="tensors", label="from_tensor_slices", elements=1024, element_bytes=MIB),
        Stage(kind="batch", label="batch(8)", elements=8, element_bytes=MIB),
    )
    footprint, by_way = ways(
        array(), stages=stages, load="stream", batch_size=8, on=machine(vram=GIB // 2)
    )
    assert list(by_way) == ["stream"]
    assert by_way["stream"].ram_bytes == GIB + 8 * MIB + TENSORFLOW_RAM_BYTES
    # Its tensors are made on the GPU where there is one.
    assert by_way["stream"].vram_bytes == GIB + 16 * MIB
    assert verdict_of(footprint.chosen, has_gpu=True) == "does_not_fit"


def test_an_interval_that_holds_the_budget_is_not_decided():
    group = array(is_exact=False, low_elements=200 * MIB, high_elements=400 * MIB)
    need = 3 * GIB + TENSORFLOW_RAM_BYTES
    footprint, _ = ways(group, on=machine(ram=need))
    assert footprint.chosen.ram_verdict == "unknown"
    footprint, _ = ways(group, on=machine(ram=2 * need))
    assert footprint.chosen.ram_verdict == "fits"
    footprint, _ = ways(group, on=machine(ram=GIB))
    assert footprint.chosen.ram_verdict == "does_not_fit"


def test_what_cannot_be_sized_is_unknown():
    group = array(dtype=None)
    footprint, by_way = ways(group)
    assert footprint.decoded_bytes is None
    assert by_way["memory"].ram_verdict == "unknown"


@pytest.mark.parametrize(
    ("ram", "vram", "recommended"),
    [
        (64 * GIB, None, "memory"),
        (2 * GIB, None, "stream"),
        (64 * GIB, 8 * GIB, "device"),
        (64 * GIB, GIB // 2, "stream"),
        (100 * MIB, GIB, None),
    ],
)
def test_the_simplest_way_that_fits_is_recommended(ram, vram, recommended):
    footprint, _ = ways(array(), on=machine(ram=ram, vram=vram))
    assert footprint.recommended == recommended


def test_kinds_are_fed_as_is_usual_for_each():
    pictures = FileGroup(
        name="train",
        format="image",
        kind="image",
        files=10,
        samples=10,
        stored_bytes=10,
        elements=10 * 1024 * 1024 * 3,
        dtype="uint8",
        shapes=ShapeSpread(
            smallest=(1024, 1024, 3),
            median=(1024, 1024, 3),
            largest=(1024, 1024, 3),
            most_common=(1024, 1024, 3),
            distinct=1,
        ),
    )
    footprint, _ = ways(array(), pictures)
    assert footprint.load == "mixed"
    assert [group.is_whole for group in footprint.groups] == [True, False]
    assert footprint.groups[1].decoded_bytes == 10 * 12 * MIB
    assert footprint.keras_loader_bytes == 10 * 786_432
    assert footprint.chosen.way == "mixed"
    assert 3 * GIB < footprint.chosen.ram_bytes < 5 * GIB
