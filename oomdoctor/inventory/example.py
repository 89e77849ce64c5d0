"""What one `tf.train.Example` holds, read from its protobuf bytes without protobuf.

An Example is a map from feature names to lists of bytes, floats or 64-bit integers; a
SequenceExample has a second map to lists of such lists. Only lengths are looked at, and the first
bytes of an encoded image. A length is never trusted beyond the message that encloses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomdoctor.units import element_count

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FEATURE_LIMIT = 10_000
_VALUE_LIMIT = 1_000_000
_PICTURE_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF")
_PICTURE_HEAD_BYTES = 256 * 1024
_IMAGE_LIMIT = 1000
"""Images of one example that are looked at: a format that Pillow reads takes 0.1 ms each."""
_PICTURE_RATIO_LIMIT = 10_000
"""Decoded elements for each byte; a PNG of one colour reaches about a thousand."""


class NotAnExample(ValueError):
    """The bytes are something else."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of one example, as it is once decoded."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return element_count(self.shape)


def parse_example(data: bytes, length: int) -> list[Feature]:
    """Return the features of an example.

    Args:
        data: Its first bytes; features that lie wholly beyond them are missing.
        length: Its whole length.
    """
    features: list[Feature] = []
    images = iter(range(_IMAGE_LIMIT))
    for field, kind, start, end in _fields(data, 0, length):
        if field not in (1, 2) or kind != _BYTES:
            raise NotAnExample
        for entry, entry_kind, entry_start, entry_end in _fields(data, start, end):
            if entry != 1 or entry_kind != _BYTES or len(features) > _FEATURE_LIMIT:
                raise NotAnExample
            feature = _entry(data, entry_start, entry_end, images, is_list=field == 2)
            if feature is not None:
                features.append(feature)
    return features


def _entry(
    data: bytes, start: int, end: int, images: Iterator[int], *, is_list: bool
) -> Feature | None:
    """Return one entry of the map: field 1 is its name, field 2 its value.

    Args:
        data: The example.
        start: Where the entry begins.
        end: Where it ends.
        images: Gives one for each image that may still be looked at.
        is_list: Whether the value is a list of features, as a SequenceExample has.
    """
    name, value = "", None
    for field, kind, inner, inner_end in _fields(data, start, end):
        if kind != _BYTES or field not in (1, 2):
            raise NotAnExample
        if field == 1:
            name = data[inner:inner_end].decode("utf-8")
        else:
            value = (inner, inner_end)
    if value is None:
        return None
    if not is_list:
        return _feature(data, *value, name, images)
    steps = 0
    first: Feature | None = None
    elements = 0
    for _, _, inner, inner_end in _fields(data, *value):
        step = _feature(data, inner, inner_end, name, images)
        if step is not None:
            first = first or step
            steps += 1
            elements += step.elements
    if first is None:
        return None
    is_even = elements == steps * first.elements
    return Feature(name, (steps, *first.shape) if is_even else (elements,), first.dtype)


def _feature(data: bytes, start: int, end: int, name: str, images: Iterator[int]) -> Feature | None:
    """Return a feature: field 1 is a list of bytes, 2 of floats, 3 of integers."""
    for field, kind, inner, inner_end in _fields(data, start, end):
        if kind != _BYTES:
            raise NotAnExample
        if field == 1:
            return _of_bytes(data, inner, inner_end, name, images)
        if field == 2:
            return Feature(name, (_count_floats(data, inner, inner_end),), "float32")
        if field == 3:
            return Feature(name, (_count_integers(data, inner, inner_end),), "int64")
        raise NotAnExample
    return None


def _of_bytes(data: bytes, start: int, end: int, name: str, images: Iterator[int]) -> Feature:
    values = 0
    total = 0
    first: Feature | None = None
    for field, kind, inner, inner_end in _fields(data, start, end):
        if field != 1 or kind != _BYTES or values > _VALUE_LIMIT:
            raise NotAnExample
        values += 1
        feature = _image(data, inner, inner_end, name, images)
        total += feature.elements if feature else inner_end - inner
        first = first or feature
    if first is None:
        return Feature(name, (total,), "uint8")
    if values == 1:
        return first
    is_even = total == values * first.elements
    return Feature(name, (values, *first.shape) if is_even else (total,), first.dtype)


def _image(data: bytes, start: int, end: int, name: str, images: Iterator[int]) -> Feature | None:
    if not data.startswith(_PICTURE_MAGIC, start, end):
        return None
    head = data[start : min(end, start + _PICTURE_HEAD_BYTES)]
    # Two letters begin many a text; a bitmap also tells its own length.
    if head[:2] == b"BM" and int.from_bytes(head[2:6], "little") != end - start:
        return None
    if next(images, None) is None:
        return None
    from oomdoctor.inventory.images import shape_from_bytes

    found = shape_from_bytes(head)
    if found is None or element_count(found[0]) > (end - start) * _PICTURE_RATIO_LIMIT:
        return None
    return Feature(name, tuple(found[0]), found[1])


def _count_floats(data: bytes, start: int, end: int) -> int:
    count = 0
    for field, kind, inner, inner_end in _fields(data, start, end):
        if field != 1 or kind not in (_BYTES, _FIXED_32):
            raise NotAnExample
        count += (inner_end - inner) // 4
    return count


def _count_integers(data: bytes, start: int, end: int) -> int:
    count = 0
    for field, kind, inner, inner_end in _fields(data, start, end):
        if field != 1 or kind not in (_BYTES, _VARINT):
            raise NotAnExample
        if kind == _VARINT:
            count += 1
            continue
        # The last byte of a number is the one without its top bit.
        seen = data[inner:inner_end]
        numbers = len(seen.translate(None, _TOP_BIT_BYTES))
        missing = inner_end - inner - len(seen)
        count += numbers + (missing * numbers // len(seen) if seen else 0)
    return count


_TOP_BIT_BYTES = bytes(range(128, 256))


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield number, wire type, start and end of each field whose head lies in the data."""
    at = start
    while at < end and at < len(data):
        tag, at = _varint(data, at)
        field, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            length, inner = _varint(data, at)
        elif kind == _VARINT:
            inner = at
            _, stop = _varint(data, at)
            length = stop - at
        elif kind in (_FIXED_32, _FIXED_64):
            inner, length = at, 4 if kind == _FIXED_32 else 8
        else:
            raise NotAnExample
        at = inner + length
        if not field or at > end:
            raise NotAnExample
        yield field, kind, inner, at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise NotAnExample
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise NotAnExample
