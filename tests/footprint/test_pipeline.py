import pytest

from oomdoctor.facts import Stage
from oomdoctor.footprint import pipeline
from oomdoctor.footprint.pipeline import bill, fit_peak_bytes, held, streamed_ram_bytes
from oomdoctor.units import GIB, MIB


def stage(kind, elements=None, element_bytes=None, label=None):
    return Stage(kind=kind, label=label or kind, elements=elements, element_bytes=element_bytes)


def billed(*args, **more):
    return bill((stage(*args),), **more)[0].held_bytes


def test_tensors_are_held_whole():
    assert billed("tensors", 16_283, 150 * 150 * 3 * 4) == 4_396_410_000


def test_a_shuffle_buffer_costs_its_elements_and_a_little_for_each():
    assert billed("shuffle", 1000, 784) == 1000 * (784 + 192)


def test_a_cache_in_memory_holds_everything_and_one_on_disk_nothing():
    assert billed("cache", 10, 1000) == 10 * 1192
    assert billed("cache", 0, 1000) == 0


def test_a_stage_that_keeps_nothing_is_free_even_if_its_elements_cannot_be_sized():
    assert billed("repeat", 0, None) == 0


def test_autotuned_prefetch_is_assumed_to_keep_two():
    assert billed("prefetch", None, 500) == 1000
    assert billed("prefetch", 5, 500) == 2500


def test_an_autotuned_map_runs_a_call_on_every_cpu():
    assert billed("map", None, 10, cpu_count=4) == 40
    assert billed("map", None, 10) == 10 * pipeline.ASSUMED_CPU_COUNT


@pytest.mark.parametrize("kind", ["cache", "shuffle", "variant", "interleave"])
def test_what_cannot_be_told_stays_unknown(kind):
    assert billed(kind, None, 10) is None
    assert billed(kind, 10, None) is None


def test_billing_leaves_everything_else_alone():
    before = stage("batch", 32, 100, label="batch(32)")
    (after,) = bill((before,))
    assert (after.label, after.elements, after.held_bytes) == ("batch(32)", 32, 3200)


def test_the_total_is_a_lower_bound_where_a_stage_is_unknown():
    total = held(bill((stage("batch", 32, 100), stage("cache", None, 3200))))
    assert (total.known_bytes, total.is_complete) == (3200, False)


def test_at_worst_only_shuffle_buffers_grow():
    total = held(bill((stage("shuffle", 10, 808), stage("batch", 10, 808))))
    assert total.known_bytes == 10_000 + 8_080
    assert total.high_bytes == 28_000 + 8_080
    assert total.is_complete


@pytest.mark.parametrize("dtype", ["float16", "uint8", "float32", "float64"])
def test_the_peak_of_fit_is_what_was_measured(dtype):
    assert fit_peak_bytes(512 * MIB, dtype=dtype) == pytest.approx(
        pipeline.HELD_BY_FIT[f"numpy {dtype}"] * 512 * MIB, rel=0.01
    )


def test_a_memory_map_spares_the_array_and_not_its_copies():
    assert fit_peak_bytes(GIB, dtype="float32", is_mapped=True) == 2 * GIB


def test_a_stream_holds_batches_however_many_samples_there_are():
    size = streamed_ram_bytes(
        batch_bytes=3200, sample_bytes=100, prefetch_batches=1, shuffle_elements=10,
        parallel_calls=4,
    )  # fmt: skip
    assert size == 3200 + 3200 + 10 * 292 + 400
