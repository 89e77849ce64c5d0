"""Read NumPy's `.npy` and `.npz` files: headers only, never the arrays, never a pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomdoctor.inventory import zips
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.npy_header import HEADER_LIMIT_BYTES, array_part, parse_header
from oomdoctor.inventory.opening import open_data
from oomdoctor.inventory.parts import Part, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD_BYTES = HEADER_LIMIT_BYTES + 12
_FIRST_READ_BYTES = 512
"""NumPy pads a plain header to 128 bytes, so one small read is nearly always enough."""
_MEMBER_LIMIT = 100_000


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield the array of a `.npy` file, or each array of a `.npz` file."""
    with sizing("a NumPy file"), open_data(path, size_bytes, buffered=False) as file:
        head = file.read(_FIRST_READ_BYTES)
        if head[:2] == b"PK":
            yield from _members(path, size_bytes)
            return
        if len(head) == _FIRST_READ_BYTES:
            try:
                header = parse_header(head)
            except Unreadable:
                header = parse_header(head + (file.read(_HEAD_BYTES - len(head)) or b""))
        else:
            header = parse_header(head)
        yield array_part(header, size_bytes, format="npy")


def _members(path: str, size_bytes: int) -> Iterator[Part]:
    # Given out only when the whole file was found sound, so that a bomb counts for nothing.
    parts = []
    with open_data(path, size_bytes) as file:
        for member in list(zips.members(file, size_bytes, limit=_MEMBER_LIMIT)):
            if not member.name.endswith(".npy"):
                continue
            header = parse_header(zips.head(file, member, _HEAD_BYTES))
            name = member.name.removesuffix(".npy")
            parts.append(
                array_part(
                    header, member.unpacked_bytes, format="npz", name=name, is_compressed=True
                )
            )
    if not parts:
        raise Unreadable("a zip file without arrays")
    yield from parts
