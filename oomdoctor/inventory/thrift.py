"""Thrift's compact encoding, pulled field by field: what Parquet writes its footer in.

Nothing is built that the caller does not ask for, and a length is never trusted beyond the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_DEPTH_LIMIT = 32


class Reader:
    """Reads one message from its start to its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; the caller reads or skips each."""
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            yield number, head & 15

    def items(self) -> tuple[int, int]:
        """Return the count and the type of what a list holds."""
        head = self.byte()
        count = head >> 4 if head >> 4 != 15 else self._varint()
        # Every item takes a byte at least.
        if count > len(self._data) - self._at:
            raise ValueError("list is longer than its message")
        return count, head & 15

    def byte(self) -> int:
        """Return a byte."""
        value = self._data[self._at]
        self._at += 1
        return value

    def integer(self) -> int:
        """Return a number of 16, 32 or 64 bits."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def binary_length(self) -> int:
        """Pass over some bytes or a text, and return how many they were."""
        length = self._varint()
        self._forward(length)
        return length

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value of a type."""
        if depth > _DEPTH_LIMIT:
            raise ValueError("nested too deep")
        if kind in _INTEGERS:
            self._varint()
        elif kind == BINARY:
            self.binary_length()
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (LIST, SET):
            count, inner = self.items()
            if inner in (TRUE, FALSE, BYTE):
                self._forward(count)
                return
            for _ in range(count):
                self.skip(inner, depth + 1)
        elif kind in (BYTE, DOUBLE):
            self._forward(1 if kind == BYTE else 8)
        elif kind not in (TRUE, FALSE):  # the type of a truth is its value; maps are never written
            raise ValueError("unknown type")

    def _forward(self, count: int) -> None:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("message ends early")

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("number too long")
