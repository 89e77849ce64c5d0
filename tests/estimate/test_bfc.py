import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.estimate.bfc import SPLIT_SLACK_BYTES, Bfc, OutOfMemory, replay
from oomdoctor.units import MIB


def test_a_chunk_less_than_twice_the_request_is_taken_whole():
    events = [(1, 3 * MIB), (2, 256), (1, -1), (3, 2 * MIB)]
    peak, in_use = replay(events, growth=False)
    assert in_use == 3 * MIB + 256
    assert peak == in_use


def test_a_chunk_of_twice_the_request_is_split():
    events = [(1, 4 * MIB), (2, 256), (1, -1), (3, 2 * MIB), (4, 2 * MIB)]
    assert replay(events, growth=False)[1] == 4 * MIB + 256


def test_a_large_rest_is_split_off_however_small_its_share():
    size = 3 * SPLIT_SLACK_BYTES
    events = [(1, size), (2, 256), (1, -1), (3, 2 * SPLIT_SLACK_BYTES)]
    assert replay(events, growth=False)[1] == 2 * SPLIT_SLACK_BYTES + 256


def test_the_best_fit_is_the_smallest_chunk_that_holds_the_request():
    allocator = Bfc(growth=False)
    large, guard = allocator.allocate(5 * MIB), allocator.allocate(256)
    small, _ = allocator.allocate(3 * MIB), allocator.allocate(256)
    allocator.release(large)
    allocator.release(small)
    assert allocator.allocate(3 * MIB) == small
    assert guard != small


def test_free_neighbours_are_joined():
    allocator = Bfc(growth=False)
    chunks = [allocator.allocate(MIB) for _ in range(3)]
    allocator.allocate(256)
    for chunk in (chunks[0], chunks[2], chunks[1]):
        allocator.release(chunk)
    assert allocator.allocate(3 * MIB) == chunks[0]


def test_regions_double_and_their_chunks_are_not_joined():
    allocator = Bfc(growth=True)
    first, second = allocator.allocate(2 * MIB), allocator.allocate(2 * MIB)
    allocator.release(first)
    allocator.release(second)
    # 2 MiB and 4 MiB are free, but no 5 MiB in one piece.
    allocator.allocate(5 * MIB)
    assert allocator.in_use_bytes == 8 * MIB


def test_more_than_the_limit_is_refused():
    allocator = Bfc(4 * MIB, growth=False)
    allocator.allocate(3 * MIB)
    with pytest.raises(OutOfMemory, match="bytes"):
        allocator.allocate(2 * MIB)


@given(st.lists(st.tuples(st.integers(1, 9 * MIB), st.booleans()), max_size=60), st.booleans())
def test_what_is_released_can_be_used_again(requests, growth):
    allocator, held = Bfc(growth=growth), []
    for size, release_one in requests:
        held.append(allocator.allocate(size))
        if release_one:
            allocator.release(held.pop(len(held) // 2))
    assert allocator.in_use_bytes == sum(allocator.size_of(address) for address in held)
    assert len(set(held)) == len(held)
    for address in held:
        allocator.release(address)
    assert allocator.in_use_bytes == 0
