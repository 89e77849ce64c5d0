"""TensorFlow's BFC allocator, in Python: where it would put a buffer, and when it has no room.

Memory comes in *regions*; a *chunk* is a piece of one, in use or free. Requests are rounded up to
256 bytes. The smallest free chunk that is large enough is taken, the lowest address first among
equals. It is split if what is left over is at least as large as the request, or 128 MiB; otherwise
the whole chunk is handed out. So a buffer can hold nearly twice what was asked for, and
TensorFlow's counters (`InUse`, `get_memory_info`) count chunks, not requests. Freed neighbours are
joined, within a region.

Ignored: regions that are added later, the wait before an allocation fails, and threads.

On a CPU TensorFlow uses it only when told so: `settings_for_the_cpu`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

CHUNK_BYTES = 256
SPLIT_BYTES = 128 * 1024**2

Region = tuple[int, int]
"""Address and size."""
ENDLESS: Region = (0, 1 << 62)
"""For asking how much is held, not whether it fits."""


def settings_for_the_cpu(limit_bytes: int | None = None) -> dict[str, str]:
    """Return the environment in which TensorFlow uses this allocator on a CPU too.

    It is read while TensorFlow is imported. oneDNN is turned off, as no GPU has it. TensorFlow
    turns it on by itself where the processor has AVX512-VNNI or AMX, and then steps peak elsewhere
    (a small convolutional network 10 % lower), and a kernel that finds no memory ends the process
    instead of raising an error.

    Args:
        limit_bytes: All that it may hand out, in whole MiB (rounded down); None leaves
            TensorFlow's own limit, 64 GiB.
    """
    settings = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    if limit_bytes is not None:
        settings["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(max(1, limit_bytes // 1024**2))
    return settings


class Pool:
    """The chunks of an allocator that may not grow."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.in_use_bytes = 0
        self._size: dict[int, int] = {}
        self._before: dict[int, int | None] = {}
        self._after: dict[int, int | None] = {}
        self._free: list[tuple[int, int]] = []
        self._is_free: set[int] = set()
        for address, size in regions:
            self._size[address] = size
            self._before[address] = self._after[address] = None
            self._add_free(address)

    def allocate(self, requested_bytes: int) -> int | None:
        """Return the address of a new buffer, or None where no free chunk is large enough."""
        size = rounded(requested_bytes)
        index = bisect_left(self._free, (size, 0))
        if index == len(self._free):
            return None
        found, address = self._free.pop(index)
        self._is_free.discard(address)
        if found >= 2 * size or found - size >= SPLIT_BYTES:
            self._split(address, size)
        self.in_use_bytes += self._size[address]
        return address

    def allocate_at(self, address: int, requested_bytes: int) -> bool:
        """Take a given place, with room left on both sides; return whether it was free."""
        size = rounded(requested_bytes)
        for start in self._is_free:
            if start <= address and address + size <= start + self._size[start]:
                break
        else:
            return False
        self._remove_free(start)
        if start < address:
            self._split(start, address - start)
            self._remove_free(address)
            self._add_free(start)
        if self._size[address] > size:
            self._split(address, size)
        self.in_use_bytes += size
        return True

    def size_of(self, address: int) -> int:
        """Return the size of the chunk at an address."""
        return self._size[address]

    def release(self, address: int) -> None:
        """Give a buffer back, and join it with free neighbours."""
        self.in_use_bytes -= self._size[address]
        following = self._after[address]
        if following in self._is_free:
            self._remove_free(following)
            self._join(address, following)
        previous = self._before[address]
        if previous in self._is_free:
            self._remove_free(previous)
            self._join(previous, address)
            address = previous
        self._add_free(address)

    def _split(self, address: int, size: int) -> None:
        rest, following = address + size, self._after[address]
        self._size[rest] = self._size[address] - size
        self._size[address] = size
        self._before[rest], self._after[rest] = address, following
        self._after[address] = rest
        if following is not None:
            self._before[following] = rest
        self._add_free(rest)

    def _join(self, first: int, second: int) -> None:
        following = self._after.pop(second)
        self._size[first] += self._size.pop(second)
        del self._before[second]
        self._after[first] = following
        if following is not None:
            self._before[following] = first

    def _add_free(self, address: int) -> None:
        insort(self._free, (self._size[address], address))
        self._is_free.add(address)

    def _remove_free(self, address: int) -> None:
        del self._free[bisect_left(self._free, (self._size[address], address))]
        self._is_free.discard(address)


def rounded(size_bytes: int) -> int:
    """Return the bytes of the smallest chunk for a request.

    Example:
        >>> rounded(257)
        512
    """
    return max(1, -(-size_bytes // CHUNK_BYTES)) * CHUNK_BYTES
