"""Reads protocol buffers without their schema: the fields of a message, one by one.

XLA writes what it compiled in this format. Only a few fields of it matter here, so they are read
by their number; the rest is passed over. Fields keep their numbers for good, unlike the text that
XLA writes for people, which differs between versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.errors import InputError

Field = tuple[int, int, memoryview]
"""A field's number, its value if it is a number, its bytes if it is not."""

_EMPTY = memoryview(b"")


class Torn(InputError):
    """The message ends in the middle of a field."""

    def __init__(self) -> None:
        super().__init__("A file that XLA wrote ends in the middle of a field.")


def fields(message: memoryview) -> Iterator[Field]:
    """Return the fields of a message, in the order in which they were written."""
    place, end = 0, len(message)
    while place < end:
        key, place = varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, place = varint(message, place)
            yield number, value, _EMPTY
            continue
        if kind == 2:
            size, place = varint(message, place)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise Torn
        if place + size > end:
            raise Torn
        yield number, 0, message[place : place + size]
        place += size


def varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the number that starts at a place, and the place after it."""
    value = shift = 0
    try:
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, place
            shift += 7
            if shift > 63:
                raise Torn
    except IndexError:
        raise Torn from None


def numbers(value: int, packed: memoryview) -> list[int]:
    """Return the numbers of a repeated field, written one by one or packed."""
    if not packed:
        return [value]
    found, place = [], 0
    while place < len(packed):
        number, place = varint(packed, place)
        found.append(number)
    return found


def text(value: memoryview) -> str:
    """Return a string field."""
    return bytes(value).decode(errors="replace")
