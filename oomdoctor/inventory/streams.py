"""Packed bytes, unpacked block by block and never beyond a bound.

Knows gzip, zlib, bzip2 and xz by their first bytes. A stream that grows out of proportion, or past
its bound, stops: whoever reads it finds `is_cut` set and estimates the rest.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any, BinaryIO

_BLOCK_BYTES = 64 * 1024
_XZ_MEMORY_BYTES = 128 * 1024 * 1024
_STREAM_LIMIT = 100_000
"""Streams in one file, one after the other; an empty one takes time and gives nothing."""
"""The largest dictionary of `xz -9` is 64 MiB; a hostile header asks for 4 GiB."""


def packing_of(head: bytes) -> str | None:
    """Return how bytes are packed, by their first few, or None for plain ones."""
    if head[:2] == b"\x1f\x8b":
        return "gzip"
    if head[:3] == b"BZh":
        return "bzip2"
    if head[:6] == b"\xfd7zXZ\x00":
        return "xz"
    # zlib has no magic, only a checksum over two bytes: true for one text in 31 starting with x.
    if head[:1] == b"\x78" and len(head) > 1 and int.from_bytes(head[:2], "big") % 31 == 0:
        return "zlib"
    return None


def _decoder(packing: str) -> Any:
    if packing == "bzip2":
        return bz2.BZ2Decompressor()
    if packing == "xz":
        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)
    return zlib.decompressobj(31 if packing == "gzip" else 15)


class Unpacked:
    """A packed file as a plain one that can only be read forwards."""

    def __init__(
        self, file: BinaryIO, packing: str, *, limit_bytes: int, ratio_limit: int | None = None
    ) -> None:
        self._file = file
        self._packing = packing
        self._limit_bytes = limit_bytes
        self._ratio_limit = ratio_limit
        self._decoder = _decoder(packing)
        self._pending = b""
        self._is_inside = False  # a stream has begun and not ended
        self._streams = 0
        self._kept = b""  # the bytes from `_kept_from` on that were unpacked already
        self._kept_from = 0
        self._position = 0
        self.packed_bytes = 0
        """Packed bytes taken so far."""
        self.unpacked_bytes = 0
        """Bytes unpacked so far."""
        self.is_cut: str | None = None
        """Why unpacking stopped before the end, once it did."""

    def read(self, size: int) -> bytes:
        """Return the next bytes: fewer than asked for only where the stream ends or stops."""
        end = self._position + size
        while self._kept_from + len(self._kept) < end:
            block = self._next_block()
            if not block:
                break
            # One byte stays behind the position: tarfile steps back by one to probe for the end.
            drop = max(0, min(self._position - 1 - self._kept_from, len(self._kept)))
            self._kept = self._kept[drop:] + block
            self._kept_from += drop
        start = self._position - self._kept_from
        data = self._kept[start : start + size]
        self._position += len(data)
        return data

    def seek(self, position: int) -> int:
        """Go forward to a position, unpacking what lies between and keeping none of it."""
        if position < self._kept_from:
            raise ValueError("cannot go back")
        self._position = min(self._position, position)
        while self._position < position:
            step = min(position - self._position, _BLOCK_BYTES)
            if len(self.read(step)) < step:
                break
        return self._position

    def tell(self) -> int:
        """Return the position among the unpacked bytes."""
        return self._position

    def _next_block(self) -> bytes:
        while self.is_cut is None:
            if self.unpacked_bytes >= self._limit_bytes:
                self.is_cut = "stopped: too large to unpack whole"
                break
            try:
                block = self._unpack()
            except (zlib.error, OSError, lzma.LZMAError, EOFError):
                # Padding behind a finished stream is not a stream.
                if self._is_inside or not self._streams:
                    self.is_cut = "stopped: packed data is damaged"
                break
            if block is None:
                break
            self.unpacked_bytes += len(block)
            used_bytes = self.packed_bytes - len(self._pending)
            # The first MiB is let through: a small file of zeros is no bomb.
            if (
                self._ratio_limit is not None
                and self.unpacked_bytes > 1024 * 1024
                and self.unpacked_bytes > self._ratio_limit * max(used_bytes, 1)
            ):
                self.is_cut = f"stopped: expands more than {self._ratio_limit} times"
                break
            if block:
                return block
        return b""

    def _unpack(self) -> bytes | None:
        """Return some bytes, perhaps none; None at the end of the file."""
        if self._decoder.eof:
            # gzip, bzip2 and xz files may be several streams, one after the other.
            self._pending = self._decoder.unused_data
            self._decoder = _decoder(self._packing)
            self._is_inside = False
            self._streams += 1
            if self._streams > _STREAM_LIMIT:
                self.is_cut = "stopped: packed in too many pieces"
                return None
        is_fed = self._packing in ("bzip2", "xz") and not self._decoder.needs_input
        if not self._pending and not is_fed:
            self._pending = self._file.read(_BLOCK_BYTES)
            self.packed_bytes += len(self._pending)
            if not self._pending:
                if self._is_inside:
                    self.is_cut = "stopped: packed data ends early"
                return None
        block: bytes = self._decoder.decompress(self._pending, _BLOCK_BYTES)
        self._is_inside = self._is_inside or bool(block)
        # zlib gives back what it did not take; the other two keep it.
        self._pending = getattr(self._decoder, "unconsumed_tail", b"")
        return block
