"""Read WAV files: frames and channels from the RIFF header.

A decoded file is what TensorFlow's `decode_wav` and Keras's audio loader give: float32, one
number per frame and channel, whatever the width on disk. Other audio formats are not read.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.opening import open_data
from oomdoctor.inventory.parts import Part, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

NOT_16_BIT_NOTE = "not 16-bit PCM: TensorFlow's decode_wav cannot read it"

_DAMAGED = "not a WAV file, or damaged"
_CHUNK_LIMIT = 1000
_PCM, _EXTENSIBLE = 1, 0xFFFE
_UNTOLD = 0xFFFFFFFF
"""Written by streaming encoders, and in RF64, in place of a length."""


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield the one recording of a WAV file."""
    with sizing("a WAV file"), open_data(path, size_bytes) as file:
        start = file.read(12)
        if start[:4] not in (b"RIFF", b"RF64") or start[8:12] != b"WAVE":
            raise Unreadable(_DAMAGED)
        tag, channels, block_bytes, bits, data_bytes, is_cut = _chunks(file, size_bytes)
        if not channels or not block_bytes:
            raise Unreadable(_DAMAGED)
        if tag not in (_PCM, 3, 6, 7, _EXTENSIBLE):
            raise Unreadable("WAV file with compressed sound")
        frames = data_bytes // block_bytes
        note = "file ends before its data does" if is_cut else None
        if note is None and (tag not in (_PCM, _EXTENSIBLE) or bits != 16):
            note = NOT_16_BIT_NOTE
        yield Part(
            format="wav",
            kind="audio",
            samples=1,
            shape=(frames, channels),
            elements=frames * channels,
            dtype="float32",
            is_compressed=True,  # the integers on disk are not the floats in memory
            note=note,
        )


def _chunks(file: BinaryIO, size_bytes: int) -> tuple[int, int, int, int, int, bool]:
    """Return format tag, channels, frame bytes, bits, data bytes, and whether data is missing."""
    layout: tuple[int, int, int, int] | None = None
    position = 12
    for _ in range(_CHUNK_LIMIT):
        file.seek(position)
        head = file.read(8)
        if len(head) < 8:
            break
        name, length = struct.unpack("<4sL", head)
        position += 8
        if name == b"fmt ":
            tag, channels, _, _, block_bytes, bits = struct.unpack("<2H2L2H", file.read(16))
            layout = (tag, channels, block_bytes, bits)
        elif name == b"data" and layout is not None:
            held_bytes = size_bytes - position
            is_cut = length > held_bytes and length != _UNTOLD
            return (*layout, min(length, held_bytes), is_cut)
        position += length + length % 2
    raise Unreadable(_DAMAGED)
