"""TensorFlow's BFC allocator, simulated: best fit with coalescing over one region.

A *chunk* is a piece of the region, in use or free. An allocation takes the smallest free chunk
that holds it; the rest is split off only when the chunk is at least twice the request or when
128 MiB or more would be left. So an allocation can hold nearly twice what was asked for, and the
counters of TensorFlow (`InUse`, `MaxInUse`, `get_memory_info`) count chunks, not requests.

Ignored: growth in several regions, the wait before an allocation fails, and thread interleaving.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

ROUNDING_BYTES = 256
SPLIT_SLACK_BYTES = 128 * 1024**2
BIN_COUNT = 21
REGION_BYTES = 64 * 1024**3
"""The region TensorFlow takes on a CPU where no limit is set."""

Event = tuple[int, int]
"""An allocation is (buffer, bytes), a release is (buffer, -1)."""


class OutOfMemory(Exception):
    """No free chunk holds the request."""


def rounded(size_bytes: int) -> int:
    """Return the bytes the allocator sets aside at least.

    Example:
        >>> rounded(1), rounded(256), rounded(257)
        (256, 256, 512)
    """
    return max(ROUNDING_BYTES, -(-size_bytes // ROUNDING_BYTES) * ROUNDING_BYTES)


def _bin_of(size_bytes: int) -> int:
    return min(BIN_COUNT - 1, (size_bytes >> 8).bit_length() - 1)


class Bfc:
    """One region and its chunks.

    Args:
        region_bytes: Size of the region: the allocator's limit.
    """

    def __init__(self, region_bytes: int = REGION_BYTES) -> None:
        region_bytes -= region_bytes % ROUNDING_BYTES
        self.in_use_bytes = 0
        self.peak_bytes = 0
        self._size = {0: region_bytes}
        self._next: dict[int, int | None] = {0: None}
        self._before: dict[int, int | None] = {0: None}
        self._used: set[int] = set()
        self._bins: list[list[tuple[int, int]]] = [[] for _ in range(BIN_COUNT)]
        self._bins[_bin_of(region_bytes)].append((region_bytes, 0))

    def allocate(self, size_bytes: int) -> int:
        """Take a chunk and return its address."""
        need = rounded(size_bytes)
        for free in self._bins[_bin_of(need) :]:
            at = bisect_left(free, (need, -1))
            if at == len(free):
                continue
            size, address = free.pop(at)
            if size >= 2 * need or size - need >= SPLIT_SLACK_BYTES:
                self._split(address, need)
                size = need
            self._used.add(address)
            self.in_use_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.in_use_bytes)
            return address
        raise OutOfMemory(f"no free chunk of {need} bytes")

    def release(self, address: int) -> None:
        """Give a chunk back and join it with its free neighbours."""
        self._used.remove(address)
        self.in_use_bytes -= self._size[address]
        following = self._next[address]
        if following is not None and following not in self._used:
            self._drop(following)
            self._join(address, following)
        before = self._before[address]
        if before is not None and before not in self._used:
            self._drop(before)
            self._join(before, address)
            address = before
        size = self._size[address]
        insort(self._bins[_bin_of(size)], (size, address))

    def size_of(self, address: int) -> int:
        """Return the size of the chunk at an address."""
        return self._size[address]

    def _split(self, address: int, keep: int) -> None:
        rest, following = address + keep, self._next[address]
        self._size[rest] = self._size[address] - keep
        self._size[address] = keep
        self._next[address], self._before[rest], self._next[rest] = rest, address, following
        if following is not None:
            self._before[following] = rest
        insort(self._bins[_bin_of(self._size[rest])], (self._size[rest], rest))

    def _drop(self, address: int) -> None:
        size = self._size[address]
        free = self._bins[_bin_of(size)]
        del free[bisect_left(free, (size, address))]

    def _join(self, first: int, second: int) -> None:
        self._size[first] += self._size.pop(second)
        following = self._next.pop(second)
        del self._before[second]
        self._next[first] = following
        if following is not None:
            self._before[following] = first


def replay(events: Iterable[Event], *, region_bytes: int = REGION_BYTES) -> tuple[int, int]:
    """Return the peak of a stream of allocations and releases, and what is in use after it.

    Example:
        >>> replay([(1, 1000), (2, 5000), (1, -1), (3, 600)])
        (6144, 6144)
    """
    allocator, where = Bfc(region_bytes), {}
    for buffer, size_bytes in events:
        if size_bytes < 0:
            allocator.release(where.pop(buffer))
        else:
            where[buffer] = allocator.allocate(size_bytes)
    return allocator.peak_bytes, allocator.in_use_bytes
