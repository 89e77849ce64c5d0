"""TensorFlow's BFC allocator, simulated: best fit with coalescing.

Memory comes in *regions*. With growth, as on a CPU and with `set_memory_growth` on a GPU, the
first region is 2 MiB and each further one twice the last; without, one region is the limit. A
*chunk* is a piece of a region, in use or free. An allocation takes the smallest free chunk
that holds it; the rest is split off only when the chunk is at least twice the request or when
128 MiB or more would be left. So an allocation can hold nearly twice what was asked for, and the
counters of TensorFlow (`InUse`, `MaxInUse`, `get_memory_info`) count chunks, not requests.

Ignored: the wait before an allocation fails, garbage collection of regions, and thread
interleaving.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

ROUNDING_BYTES = 256
SPLIT_SLACK_BYTES = 128 * 1024**2
BIN_COUNT = 21
LIMIT_BYTES = 64 * 1024**3
"""What TensorFlow takes on a CPU where no limit is set."""
FIRST_REGION_BYTES = 2 * 1024**2

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
    """Regions and their chunks.

    Args:
        limit_bytes: The most all regions may hold.
        growth: Whether regions are added as they are needed.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, *, growth: bool = True) -> None:
        self.in_use_bytes = 0
        self.peak_bytes = 0
        self._left = limit_bytes - limit_bytes % ROUNDING_BYTES
        self._region = min(self._left, FIRST_REGION_BYTES) if growth else self._left
        self._end = 0
        self._size: dict[int, int] = {}
        self._next: dict[int, int | None] = {}
        self._before: dict[int, int | None] = {}
        self._used: set[int] = set()
        self._bins: list[list[tuple[int, int]]] = [[] for _ in range(BIN_COUNT)]

    def allocate(self, size_bytes: int) -> int:
        """Take a chunk and return its address."""
        need = rounded(size_bytes)
        found = self._find(need)
        if found is None:
            self._extend(need)
            found = self._find(need)
            assert found is not None  # the new region holds it
        size, address = found
        if size >= 2 * need or size - need >= SPLIT_SLACK_BYTES:
            self._split(address, need)
            size = need
        self._used.add(address)
        self.in_use_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.in_use_bytes)
        return address

    def _find(self, need: int) -> tuple[int, int] | None:
        for free in self._bins[_bin_of(need) :]:
            at = bisect_left(free, (need, -1))
            if at < len(free):
                return free.pop(at)
        return None

    def _extend(self, need: int) -> None:
        """Add a region that holds a request."""
        if need > self._left:
            raise OutOfMemory(f"{need} bytes are asked for and {self._left} left")
        doubled = False
        while need > self._region:
            self._region *= 2
            doubled = True
        size = min(self._region, self._left)
        if not doubled:
            self._region *= 2
        self._left -= size
        # Regions never touch, so that chunks of two of them are not joined.
        address, self._end = self._end, self._end + size + ROUNDING_BYTES
        self._size[address] = size
        self._next[address] = self._before[address] = None
        insort(self._bins[_bin_of(size)], (size, address))

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


def replay(
    events: Iterable[Event], *, limit_bytes: int = LIMIT_BYTES, growth: bool = True
) -> tuple[int, int]:
    """Return the peak of a stream of allocations and releases, and what is in use after it.

    Example:
        >>> replay([(1, 1000), (2, 5000), (1, -1), (3, 600)])
        (6144, 6144)
    """
    allocator = Bfc(limit_bytes, growth=growth)
    where: dict[int, int] = {}
    for buffer, size_bytes in events:
        if size_bytes < 0:
            allocator.release(where.pop(buffer))
        else:
            where[buffer] = allocator.allocate(size_bytes)
    return allocator.peak_bytes, allocator.in_use_bytes
