"""How many lines a text file has: counted when it is small, estimated from samples when it is not.

A line here is a line with something in it. Packed files (gzip and others) are unpacked in
bounded memory, up to a bound; past it the rest is assumed to go on as it began.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomdoctor.inventory.opening import is_remote
from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.streams import Unpacked, packing_of

if TYPE_CHECKING:
    from typing import BinaryIO

MIB = 1024 * 1024
HEAD_BYTES = MIB
EXACT_LIMIT_BYTES = 8 * MIB
"""A file up to this size is read whole: that takes about 20 ms."""
_SAMPLES = 32
_SAMPLE_BYTES = 64 * 1024
_UNPACK_LIMIT_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The lines of one text file."""

    head: bytes
    """The first MiB, cut after its last whole line; all of a file that was read whole."""
    count: int
    low: int
    high: int
    is_exact: bool
    text_bytes: int
    """Of the whole text, unpacked."""
    is_packed: bool
    note: str | None = None


def count_lines(file: BinaryIO, size_bytes: int) -> Lines:
    """Return the lines of a text file that is open at its start."""
    packing = packing_of(file.read(6))
    file.seek(0)
    # zlib cannot be told from text by two bytes, and nobody packs tables with it.
    if packing and packing != "zlib":
        return _packed(file, size_bytes, packing)
    # From a server no file is read whole, unless that is all there is to look at.
    most_bytes = HEAD_BYTES + _SAMPLE_BYTES if is_remote(file) else EXACT_LIMIT_BYTES
    if size_bytes <= most_bytes:
        return _whole(_text(file.read(EXACT_LIMIT_BYTES)), is_packed=False)
    head = _head(_text(file.read(HEAD_BYTES)))
    blocks = [head]
    for i in range(_SAMPLES):
        file.seek(HEAD_BYTES + (size_bytes - HEAD_BYTES - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
        blocks.append(_text(file.read(_SAMPLE_BYTES)))
    return _estimate(blocks, head, size_bytes, is_packed=False)


def _packed(file: BinaryIO, size_bytes: int, packing: str) -> Lines:
    stream = Unpacked(file, packing, limit_bytes=_UNPACK_LIMIT_BYTES)
    head = _text(stream.read(EXACT_LIMIT_BYTES))
    if stream.is_cut is None and len(head) < EXACT_LIMIT_BYTES:
        return _whole(head, is_packed=True)
    if not head:
        raise Unreadable("packed data is damaged")
    blocks = [head]
    while block := stream.read(MIB):
        blocks.append(_text(block)[:_SAMPLE_BYTES])
    grown = stream.unpacked_bytes
    if stream.is_cut is not None and stream.packed_bytes:
        grown = max(grown, grown * size_bytes // stream.packed_bytes)
    note = stream.is_cut if stream.is_cut and "too large" not in stream.is_cut else None
    return _estimate(blocks, _head(head[:HEAD_BYTES]), grown, is_packed=True, note=note)


def _whole(text: bytes, *, is_packed: bool) -> Lines:
    count = sum(1 for line in text.splitlines() if line.strip())
    return Lines(
        head=text,
        count=count,
        low=count,
        high=count,
        is_exact=True,
        text_bytes=len(text),
        is_packed=is_packed,
    )


def _estimate(
    blocks: list[bytes], head: bytes, size_bytes: int, *, is_packed: bool, note: str | None = None
) -> Lines:
    """Return the count by the mean density of lines, with the 95 % interval of that mean."""
    mark = b"\n" if b"\n" in head else b"\r"
    densities = [block.count(mark) / len(block) for block in blocks if block]
    mean = sum(densities) / len(densities)
    spread = sum((density - mean) ** 2 for density in densities) / max(len(densities) - 1, 1)
    error = 2 * math.sqrt(spread / len(densities))
    count = round(size_bytes * mean)
    return Lines(
        head=head,
        count=count,
        low=max(0, min(count, math.floor(size_bytes * (mean - error)))),
        high=max(count, math.ceil(size_bytes * (mean + error))),
        is_exact=False,
        text_bytes=size_bytes,
        is_packed=is_packed,
        note=note,
    )


def _head(text: bytes) -> bytes:
    end = max(text.rfind(b"\n"), text.rfind(b"\r"))
    if end < 0:
        raise Unreadable("a line is longer than 1 MiB")
    return text[: end + 1]


def _text(data: bytes) -> bytes:
    if b"\0" in data:
        raise Unreadable("not text")
    return data
