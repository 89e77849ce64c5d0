"""The allocator in Python puts buffers where TensorFlow's puts them."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.allocator import SPLIT_BYTES, Pool, rounded
from oomdoctor.measure.fragments import least_limit, play, real_extent
from oomdoctor.measure.replay import Event
from oomdoctor.units import MIB

EVENT = Event(0, 1, 0, 0, 0, 0)


def steps(*changes):
    """Return events from (address, bytes); bytes below zero release the address."""
    return [
        replace(EVENT, address=address, requested_bytes=abs(size), is_release=size < 0)
        for address, size in changes
    ]


def test_the_smallest_chunk_that_fits_is_taken_and_the_lowest_among_equals():
    pool = Pool([(0, 4096), (10_000, 512), (20_000, 512)])

    assert [pool.allocate(300), pool.allocate(512), pool.allocate(1)] == [10_000, 20_000, 0]


def test_a_chunk_is_split_only_if_as_much_again_is_left():
    pool = Pool([(0, 1024)])
    assert pool.allocate(512) == 0
    assert pool.allocate(512) == 512

    pool = Pool([(0, 1024)])
    assert pool.allocate(600) == 0
    assert pool.allocate(1) is None


def test_a_large_rest_is_split_off_however_large_the_request():
    pool = Pool([(0, 3 * SPLIT_BYTES)])

    assert pool.allocate(2 * SPLIT_BYTES) == 0
    assert pool.allocate(SPLIT_BYTES) == 2 * SPLIT_BYTES


def test_freed_neighbours_are_joined_but_not_across_regions():
    pool = Pool([(0, 512), (512, 512)])
    first, second = pool.allocate(512), pool.allocate(512)
    pool.release(first)
    pool.release(second)
    assert pool.allocate(1024) is None

    pool = Pool([(0, 1024)])
    first, second = pool.allocate(512), pool.allocate(512)
    pool.release(first)
    pool.release(second)
    assert pool.allocate(1024) == 0


def test_a_given_place_can_be_taken_once():
    pool = Pool([(0, 4096)])

    assert pool.allocate_at(1024, 300)
    assert not pool.allocate_at(1280, 10)
    assert not pool.allocate_at(5000, 10)
    assert pool.allocate(2048) == 1536
    assert pool.allocate(1024) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3000)), max_size=80))
def test_buffers_never_overlap_and_all_memory_comes_back(choices):
    pool = Pool([(0, 16_384), (100_000, 8192)])
    alive = {}
    for release, size in choices:
        if release and alive:
            address = sorted(alive)[size % len(alive)]
            del alive[address]
            pool.release(address)
            continue
        address = pool.allocate(size)
        if address is not None:
            alive[address] = rounded(size)
    spans = sorted(alive.items())
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
    for address in alive:
        pool.release(address)
    assert (pool.allocate(16_384), pool.allocate(8192)) == (0, 100_000)


def test_fragmentation_raises_what_is_needed_above_the_peak():
    a, b, c, d = (n * MIB for n in (0, 4, 8, 12))
    events = steps((a, 4 * MIB), (b, 4 * MIB), (c, 4 * MIB), (a, -4 * MIB), (d, 8 * MIB))
    regions = [(10**9, 2 * MIB), (0, 1024 * MIB)]

    needed = least_limit(events, [], regions, peak_bytes=16 * MIB)

    # 12 MiB in a row, 8 MiB behind them because the hole of 4 MiB is too small, and the first
    # region of 2 MiB that is of no use to them.
    assert needed == 22 * MIB
    assert play(events, [], regions) == real_extent(events, regions) == 20 * MIB


def test_what_lies_beyond_a_shortened_region_is_put_where_there_is_room():
    regions = [(10**9, 2 * MIB), (0, 64 * MIB)]

    needed = least_limit(steps((8 * MIB, MIB)), [(50 * MIB, 4 * MIB)], regions, 5 * MIB)

    assert needed == 6 * MIB  # 4 MiB, and the other in the first region of 2 MiB


def test_nothing_helps_where_even_the_whole_pool_is_too_small():
    events = steps((0, 100 * MIB))

    assert least_limit(events, [], [(10**9, 2 * MIB), (0, 64 * MIB)], 100 * MIB) is None


@pytest.mark.tensorflow
def test_the_simulated_allocator_puts_a_real_step_where_tensorflow_put_it(run_once):
    trace = run_once("conv", 256, limit_bytes=64 * MIB, trace=True).trace

    assert trace.simulated_extent_bytes == pytest.approx(trace.extent_bytes, rel=0.01)
    assert trace.peak_bytes <= trace.needed_bytes <= 64 * MIB


@pytest.mark.tensorflow
def test_the_real_error_comes_where_the_needed_memory_says(run_once):
    needed = run_once("conv", 2048, trace=True).trace.needed_bytes
    assert needed > 40 * MIB  # so that 6 % are more than the limit's grain of 1 MiB

    below, above = (
        run_once("conv", 2048, limit_bytes=int(needed * f)).outcome for f in (0.94, 1.06)
    )

    assert (below, above) == ("oom", "fits")
