"""What is held is counted in chunks. Where they lie: test_pool.py."""

from hypothesis import given
from hypothesis import strategies as st

from oomdoctor.allocator import ENDLESS, Pool
from oomdoctor.units import MIB


def test_a_chunk_less_than_twice_the_request_counts_whole():
    pool = Pool([ENDLESS])
    first, _ = pool.allocate(3 * MIB), pool.allocate(256)
    pool.release(first)
    assert pool.allocate(2 * MIB) == first
    assert pool.size_of(first) == 3 * MIB
    assert pool.in_use_bytes == 3 * MIB + 256


def test_a_chunk_of_twice_the_request_is_shared():
    pool = Pool([ENDLESS])
    first, _ = pool.allocate(4 * MIB), pool.allocate(256)
    pool.release(first)
    assert [pool.allocate(2 * MIB), pool.allocate(2 * MIB)] == [first, first + 2 * MIB]
    assert pool.in_use_bytes == 4 * MIB + 256


def test_a_given_place_counts_as_well():
    pool = Pool([(0, 4096)])
    assert pool.allocate_at(1024, 500)
    assert pool.in_use_bytes == 512
    pool.release(1024)
    assert pool.in_use_bytes == 0


@given(st.lists(st.tuples(st.integers(1, 9 * MIB), st.booleans()), max_size=60))
def test_what_is_released_can_be_used_again(requests):
    pool, held = Pool([ENDLESS]), []
    for size, release_one in requests:
        held.append(pool.allocate(size))
        if release_one:
            pool.release(held.pop(len(held) // 2))
    assert pool.in_use_bytes == sum(pool.size_of(address) for address in held)
    assert len(set(held)) == len(held)
    for address in held:
        pool.release(address)
    assert pool.in_use_bytes == 0
