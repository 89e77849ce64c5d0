"""Reads the dump that the BFC allocator prints when it fails, line by line.

All wordings are read: `Chunk at 0x…` up to 1.13, `InUse at 0x… next 1 of size` up to 2.0, the
present one, `total_region_allocated_bytes_` and `Total bytes in pool`, statistics as integers (up
to 2.20) and for people (2.21), and the summary line of XLA main. `LargestFreeBlock` is not read:
it prints 0 whatever is free, up to 2.21. Bins are passed over: chunks say the same exactly.
"""

from __future__ import annotations

import re
from collections import Counter

from oomdoctor.diagnose.events import Dump, Place
from oomdoctor.diagnose.sizes import printed_bytes

_VALUE = r"(\d{1,20}(?:\.\d{0,6})?[KMGTPE]?i?B?)"
_START = re.compile(r"BFCAllocator dump for (\S{1,80})")
_CHUNKS = re.compile(r"(\d{1,9}) Chunks of size (\d{1,20}) totalling")
_ONE_CHUNK = re.compile(
    r"(Chunk|InUse|Free) {1,2}at (?:0x)?[0-9a-f]{1,16} (?:next \d{1,20} )?of size (\d{1,20})"
)
_LIMIT = re.compile(rf"memory_limit_: ?{_VALUE}")
_SUMMARY = re.compile(
    rf"total free in pool {_VALUE}, largest free chunk[^,]{{0,40}} {_VALUE}, [^,]{{0,60}}, "
    rf"pool size {_VALUE}, pool limit {_VALUE}"
)
_STATS = re.compile(rf"\b(Limit|InUse|MaxInUse|NumAllocs|MaxAllocSize):\s{{1,40}}{_VALUE}(?=\s|$)")
_SUM = re.compile(rf"Sum Total of in-use chunks: {_VALUE}")
_BAR = re.compile(r"[*_x]{50,100}\s*$")
_PASSED_OVER = ("Bin (", "Next region of size", "Chunk State:", "| Requested Size:")
_MOST_SIZES = 4096
_MOST_PLACES = 6
_MOST_RUNS = 2048


class DumpReader:
    """Gathers dumps; `dumps` holds those that are complete, `close` ends the last one."""

    def __init__(self) -> None:
        self.dumps: list[Dump] = []
        self._clear(0)

    def _clear(self, line: int, allocator: str | None = None) -> None:
        self._line = line
        self._allocator = allocator
        self._stats: dict[str, int] = {}
        self._summed: Counter[int] = Counter()
        self._single: Counter[int] = Counter()
        self._runs: list[tuple[int, int]] = []
        self._used_sizes: Counter[int] = Counter()
        self._free_sizes: Counter[int] = Counter()
        self._free_total: int | None = None
        self._free_largest: int | None = None
        self._sum: int | None = None
        self._bar: str | None = None
        self._places: list[Place] = []

    def close(self) -> None:
        """End the dump at hand."""
        chunks = self._summed or self._single
        dump = Dump(
            line=self._line,
            allocator=self._allocator,
            # CUDA's own allocator has no limit, and prints 0.
            limit_bytes=self._stats.get("Limit", self._stats.get("memory_limit_")) or None,
            in_use_bytes=self._stats.get("InUse"),
            peak_bytes=self._stats.get("MaxInUse"),
            largest_bytes=self._stats.get("MaxAllocSize"),
            allocations=self._stats.get("NumAllocs"),
            chunks=tuple(sorted(chunks.items(), reverse=True)),
            free_total_bytes=self._free_total,
            free_largest_bytes=self._free_largest,
            runs=tuple(self._runs),
            sizes=tuple(
                (2**power, self._used_sizes[power], self._free_sizes[power])
                for power in sorted(self._used_sizes | self._free_sizes)
            ),
            sum_bytes=self._sum,
            bar=self._bar,
            places=tuple(self._places),
        )
        if dump.is_telling:
            # Keep the first dumps and the latest; those between say the same.
            if len(self.dumps) >= 8:
                del self.dumps[4]
            self.dumps.append(dump)
        self._clear(0)

    def failed(self, line: int, allocator: str | None) -> None:
        """Tell that a failure was announced, whose dump may follow."""
        if self._stats or self._summed or self._single:
            self.close()
        self._clear(line, allocator)

    def feed(self, line: int, text: str) -> bool:
        """Take a line; return whether it belongs to a dump and has no other meaning."""
        if " of size " in text:
            return self._chunk(text)
        if "dump for" in text:
            start = _START.search(text)
            if start:
                if self._stats:
                    self.close()
                self._line = self._line or line
                self._allocator = start[1]
                return True
        if "memory_limit_:" in text:
            limit = _LIMIT.search(text)
            if limit:
                self._keep("memory_limit_", limit[1], (line, text))
                return True
        if "Limit:" in text or "InUse:" in text or "NumAllocs:" in text or "AllocSize:" in text:
            return self._statistics(line, text)
        if "Sum Total" in text:
            total = _SUM.search(text)
            if total:
                self._sum = printed_bytes(total[1])
                return True
        if "free in pool" in text:
            return self._summary(line, text)
        if "***" in text or "___" in text or "xxx" in text:
            bar = _BAR.search(text)
            if bar and (self._stats or self._line):
                self._bar = bar[0].strip()
                return True
        return "bfc_allocator" in text and any(word in text for word in _PASSED_OVER)

    def _chunk(self, text: str) -> bool:
        summed = _CHUNKS.search(text)
        if summed:
            if len(self._summed) < _MOST_SIZES:
                self._summed[int(summed[2])] += int(summed[1])
            return True
        one = _ONE_CHUNK.search(text)
        if one is None:
            return "Next region" in text
        size = int(one[2])
        is_free = one[1] == "Free"
        self._place(size, is_free=is_free)
        if is_free:
            self._free_total = (self._free_total or 0) + size
            self._free_largest = max(self._free_largest or 0, size)
        elif len(self._single) < _MOST_SIZES:
            self._single[size] += 1
        return True

    def _place(self, size: int, *, is_free: bool) -> None:
        """Put a chunk behind those before it; of very many, neighbours become one."""
        (self._free_sizes if is_free else self._used_sizes)[max(0, size.bit_length() - 1)] += 1
        self._runs.append((size, 0 if is_free else size))
        if len(self._runs) > _MOST_RUNS:
            pairs = zip(self._runs[::2], [*self._runs[1::2], (0, 0)], strict=False)
            self._runs = [(one + other, used + more) for (one, used), (other, more) in pairs]

    def _statistics(self, line: int, text: str) -> bool:
        found = _STATS.findall(text)
        for name, value in found:
            if name == "Limit" and "InUse" in self._stats:
                self.close()
            self._keep(name, value, (line, text) if name in ("Limit", "InUse") else None)
        return bool(found)

    def _summary(self, line: int, text: str) -> bool:
        summary = _SUMMARY.search(text)
        if summary is None:
            return False
        free, largest = printed_bytes(summary[1]), printed_bytes(summary[2])
        if free is not None:
            self._free_total = free
        if largest is not None:
            self._free_largest = largest
        self._keep("memory_limit_", summary[4], (line, text))
        return True

    def _keep(self, name: str, value: str, place: Place | None) -> None:
        size = printed_bytes(value)
        if size is None:
            return
        self._line = self._line or (place[0] if place else 0)
        self._stats[name] = size
        if place and len(self._places) < _MOST_PLACES:
            self._places.append(place)
