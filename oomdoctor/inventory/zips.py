"""The list of members of a zip file, and the first bytes of each, in bounded memory.

`zipfile` builds an object for every member before the first can be looked at, and believes the
sizes it is told. Here members stream from the central directory, and a file whose members overlap
or claim more than deflate can hold is refused before anything is unpacked.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from oomdoctor.inventory.parts import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED, DEFLATED = 0, 8
ENCRYPTED = 1

_DAMAGED = "not a zip file, or damaged"
_BOMB = "zip members claim more data than the file can hold"
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_BLOCK_BYTES = 256 * 1024

# The densest deflate stream: one bit each for a length of 258 and its distance.
_DEFLATE_RATIO = 1032


@dataclass(frozen=True, slots=True)
class Member:
    """One file in a zip, as its central directory tells it."""

    name: str
    method: int
    flags: int
    packed_bytes: int
    unpacked_bytes: int
    offset: int
    """Where its local header starts."""

    @property
    def is_folder(self) -> bool:
        """True for entries that only name a folder."""
        return self.name.endswith("/")


def members(file: BinaryIO, size_bytes: int, *, limit: int) -> Iterator[Member]:
    """Yield the members of a zip file, at most `limit`, refusing a file that cannot be true.

    Sizes are checked over the whole directory before the first member is given out.
    """
    start, length, shift = _directory(file, size_bytes)
    packed_bytes = 0
    for seen, member in enumerate(_entries(file, start, length, shift)):
        if seen == limit:
            break
        packed_bytes += member.packed_bytes
        ratio = 1 if member.method == STORED else _DEFLATE_RATIO
        is_encrypted = member.flags & ENCRYPTED
        if member.unpacked_bytes > member.packed_bytes * ratio and not is_encrypted:
            raise Unreadable(_BOMB)
        # Members that share their bytes make a bomb of a small file.
        if packed_bytes > size_bytes or member.offset + member.packed_bytes > size_bytes:
            raise Unreadable(_BOMB)
    for seen, member in enumerate(_entries(file, start, length, shift)):
        if seen == limit:
            break
        yield member


def head(file: BinaryIO, member: Member, limit_bytes: int) -> bytes:
    """Return at most `limit_bytes` of a member, unpacked."""
    if member.flags & ENCRYPTED:
        raise Unreadable("zip member is encrypted")
    file.seek(member.offset)
    local = file.read(_LOCAL.size)
    if len(local) < _LOCAL.size or local[:4] != b"PK\x03\x04":
        raise Unreadable(_DAMAGED)
    name_bytes, extra_bytes = _LOCAL.unpack(local)[9:11]
    file.seek(name_bytes + extra_bytes, 1)
    packed = file.read(min(member.packed_bytes, limit_bytes))
    if member.method == STORED:
        return packed
    if member.method != DEFLATED:
        raise Unreadable("zip member is packed in a way that is not supported")
    return zlib.decompressobj(-15).decompress(packed, limit_bytes)


def _directory(file: BinaryIO, size_bytes: int) -> tuple[int, int, int]:
    """Return where the central directory starts, its length, and the shift of all offsets."""
    tail_bytes = min(size_bytes, _END.size + 0xFFFF)
    file.seek(size_bytes - tail_bytes)
    tail = file.read(tail_bytes)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise Unreadable(_DAMAGED)
    end = size_bytes - tail_bytes + at
    length, offset = _END.unpack_from(tail, at)[5:7]
    if at >= _LOCATOR_64.size:
        signature, _, where, _ = _LOCATOR_64.unpack_from(tail, at - _LOCATOR_64.size)
        if signature == b"PK\x06\x07" and where < end:
            file.seek(where)
            record = file.read(_END_64.size)
            if len(record) == _END_64.size and record[:4] == b"PK\x06\x06":
                length, offset = _END_64.unpack(record)[8:10]
                end = where
    start = end - length
    if start < 0 or start < offset:
        raise Unreadable(_DAMAGED)
    # Bytes put in front of the zip, as self-extracting ones have, shift every offset.
    return start, length, start - offset


def _entries(file: BinaryIO, start: int, length: int, shift: int) -> Iterator[Member]:
    buffer, at, left, position = b"", 0, length, start
    while True:
        if len(buffer) - at < _ENTRY.size + 3 * 0xFFFF and left:
            file.seek(position)
            block = file.read(min(left, _BLOCK_BYTES))
            if not block:
                raise Unreadable(_DAMAGED)
            buffer, at = buffer[at:] + block, 0
            left -= len(block)
            position += len(block)
            continue
        if at == len(buffer):
            return
        if len(buffer) - at < _ENTRY.size or buffer[at : at + 4] != b"PK\x01\x02":
            raise Unreadable(_DAMAGED)
        entry = _ENTRY.unpack_from(buffer, at)
        flags, method, packed, unpacked = entry[3], entry[4], entry[8], entry[9]
        name_bytes, extra_bytes, comment_bytes, offset = *entry[10:13], entry[16]
        body = at + _ENTRY.size
        at = body + name_bytes + extra_bytes + comment_bytes
        if at > len(buffer):
            raise Unreadable(_DAMAGED)
        name = buffer[body : body + name_bytes].decode(
            "utf-8" if flags & 0x800 else "cp437", "replace"
        )
        if 0xFFFFFFFF in (packed, unpacked, offset):
            extra = buffer[body + name_bytes : body + name_bytes + extra_bytes]
            unpacked, packed, offset = _wide(extra, unpacked, packed, offset)
        yield Member(name, method, flags, packed, unpacked, offset + shift)


def _wide(extra: bytes, *sizes: int) -> tuple[int, ...]:
    """Return the sizes with those that did not fit in 32 bits taken from the zip64 field."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<2H", extra, at)
        if tag == 1:
            numbers = struct.iter_unpack("<Q", extra[at + 4 : at + 4 + length // 8 * 8])
            return tuple(next(numbers)[0] if s == 0xFFFFFFFF else s for s in sizes)
        at += 4 + length
    raise Unreadable(_DAMAGED)
