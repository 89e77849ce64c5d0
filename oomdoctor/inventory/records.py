"""Read TFRecord files without TensorFlow: the framing of all records, the features of a few.

A record is its length (8 bytes), a checksum of the length (4), the data, and a checksum of the
data (4). Only lengths are walked; the data of at most 32 records, spread over the file, is looked
at. The part describes the largest feature; `memory_bytes` covers all features where there are
several. Checksums of data are not verified.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from oomdoctor.inventory.example import Feature, NotAnExample, parse_example
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.opening import is_nearly_spent, open_data, read_at
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.inventory.streams import Unpacked, packing_of
from oomdoctor.units import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_EXAMPLES_NOTE = "records are not tf.train.Example: sized by their stored bytes"
CUT_NOTE = "file ends inside a record"

LOOK_RECORDS = 32
_LOOK_BYTES = 1024 * 1024
_RECORD_LIMIT = 5_000_000
_UNPACK_LIMIT_BYTES = 256 * 1024 * 1024
_FRAME_BYTES = 16
_NEAR_BYTES = 64 * 1024
_SMALL_RECORD_BYTES = 16 * 1024
"""Below this, reading data along with the lengths is faster than a system call for each."""


@dataclass(slots=True)
class _Walked:
    """What the framing says."""

    records: int = 0
    data_bytes: int = 0
    looked: list[tuple[bytes, int]] = field(default_factory=list)
    """Of some records: the first bytes, and the whole length."""
    scale: float = 1.0
    """By how much to multiply, when only a part was walked."""
    note: str | None = None


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield one part for the records of a file."""
    with sizing("a TFRecord file"), open_data(path, size_bytes, buffered=False) as file:
        head = file.read(12)
        if is_frame(head):
            walked = _walk(file, size_bytes)
            yield _part(walked, is_compressed=False)
            return
        packing = packing_of(head)
        if packing not in ("gzip", "zlib"):
            raise Unreadable("not a TFRecord file, or damaged")
        file.seek(0)
        yield _part(_walk_packed(file, size_bytes, packing), is_compressed=True)


def _walk(file: BinaryIO, size_bytes: int) -> _Walked:
    walked = _Walked()
    chosen: list[tuple[int, int]] = []
    stride, position = 1, 0
    near, near_from = b"", 0
    is_cut_short = False
    while position + 12 <= size_bytes and walked.records < _RECORD_LIMIT:
        if is_nearly_spent(file):
            is_cut_short = True
            break
        at = position - near_from
        if at + 8 > len(near):
            is_small = walked.data_bytes < _SMALL_RECORD_BYTES * max(1, walked.records)
            near = read_at(file, _NEAR_BYTES if is_small else 8, position)
            near_from, at = position, 0
        (length,) = struct.unpack_from("<Q", near, at)
        if position + _FRAME_BYTES + length > size_bytes:
            break
        # Every stride-th record is kept; twice as many as needed, then every other one.
        if walked.records % stride == 0:
            chosen.append((position + 12, length))
            if len(chosen) >= 2 * LOOK_RECORDS:
                del chosen[1::2]
                stride *= 2
        walked.records += 1
        walked.data_bytes += length
        position += _FRAME_BYTES + length
    if walked.records >= _RECORD_LIMIT or is_cut_short:
        walked.scale = size_bytes / position
    elif position < size_bytes:
        walked.note = CUT_NOTE
    for start, length in _thin(chosen):
        walked.looked.append((read_at(file, min(length, _LOOK_BYTES), start), length))
    return walked


def _thin(chosen: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return at most `LOOK_RECORDS` of them, evenly spread."""
    step = max(1, -(-len(chosen) // LOOK_RECORDS))
    return chosen[::step]


def _walk_packed(file: BinaryIO, size_bytes: int, packing: str) -> _Walked:
    stream = Unpacked(file, packing, limit_bytes=_UNPACK_LIMIT_BYTES)
    walked = _Walked()
    while walked.records < _RECORD_LIMIT:
        frame = stream.read(12)
        if not walked.records and not is_frame(frame):
            raise Unreadable("not a TFRecord file, or damaged")
        if len(frame) < 12:
            walked.note = CUT_NOTE if frame else None
            break
        (length,) = struct.unpack_from("<Q", frame)
        end = stream.tell() + length + 4
        head = b""
        if len(walked.looked) < LOOK_RECORDS:
            head = stream.read(min(length, _LOOK_BYTES))
        if stream.seek(end) < end:
            walked.note = CUT_NOTE
            break
        if len(walked.looked) < LOOK_RECORDS:
            walked.looked.append((head, length))
        walked.records += 1
        walked.data_bytes += length
    if stream.is_cut is not None:
        walked.note = stream.is_cut
        if "too large" in stream.is_cut:
            walked.note = None
            walked.scale = max(1.0, size_bytes / max(1, stream.packed_bytes))
    elif walked.records >= _RECORD_LIMIT:
        walked.scale = max(1.0, size_bytes / max(1, stream.packed_bytes))
    return walked


def _part(walked: _Walked, *, is_compressed: bool) -> Part:
    if not walked.records:
        raise Unreadable("no whole record in what can be read of it")
    records = round(walked.records * walked.scale)
    try:
        examples = [parse_example(data, length) for data, length in walked.looked]
        is_whole = all(len(data) == length for data, length in walked.looked)
    except (NotAnExample, UnicodeDecodeError):
        examples, is_whole = [], False
    if not any(examples):
        return Part(
            format="tfrecord",
            kind="record",
            samples=records,
            shape=None,
            elements=None,
            dtype=None,
            memory_bytes=round(walked.data_bytes * walked.scale),
            is_compressed=is_compressed,
            is_exact=walked.scale == 1.0,
            note=walked.note or NOT_EXAMPLES_NOTE,
        )
    return _example_part(
        examples,
        records,
        is_compressed=is_compressed,
        is_whole=is_whole and walked.scale == 1.0,
        note=walked.note,
    )


def _example_part(
    examples: list[list[Feature]],
    records: int,
    *,
    is_compressed: bool,
    is_whole: bool,
    note: str | None,
) -> Part:
    largest = _largest(examples)
    # An example may lack the feature; it then holds none of its elements.
    shapes = [next((f.shape for f in e if f.name == largest.name), (0,)) for e in examples]
    counts = [sum(f.elements for f in e if f.name == largest.name) for e in examples]
    total_bytes = sum(_bytes(f) for e in examples for f in e)
    is_even = len(set(shapes)) == 1
    return Part(
        format="tfrecord",
        kind="record",
        samples=records,
        shape=shapes[0] if is_even else None,
        elements=round(sum(counts) * records / len(counts)),
        dtype=largest.dtype,
        memory_bytes=(
            round(total_bytes * records / len(examples)) if max(map(len, examples)) > 1 else None
        ),
        is_compressed=is_compressed,
        is_exact=is_whole and len({tuple(e) for e in map(_sorted, examples)}) == 1,
        low_elements=None if is_even and is_whole else min(counts) * records,
        high_elements=None if is_even and is_whole else max(counts) * records,
        note=note,
    )


def _largest(examples: list[list[Feature]]) -> Feature:
    by_name: dict[str, int] = {}
    for feature in (f for example in examples for f in example):
        by_name[feature.name] = by_name.get(feature.name, 0) + _bytes(feature)
    name = max(by_name, key=lambda key: by_name[key])
    return next(f for example in examples for f in example if f.name == name)


def _sorted(features: list[Feature]) -> list[Feature]:
    return sorted(features, key=lambda feature: feature.name)


def _bytes(feature: Feature) -> int:
    return feature.elements * DTYPE_BYTES[feature.dtype]


def is_frame(head: bytes) -> bool:
    """Return whether 12 bytes are a length and its checksum: chance passes one file in 2**32."""
    return len(head) >= 12 and _masked_crc(head[:8]) == struct.unpack_from("<L", head, 8)[0]


def _masked_crc(data: bytes) -> int:
    """Return the CRC-32C of some bytes, rotated and shifted as TFRecord wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
