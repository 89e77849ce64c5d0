"""The header of a `.npy` array: its shape and the width of its elements.

The header is a Python literal. It is read by a small parser of its own: `ast.literal_eval` can
overflow the interpreter's stack on hostile text, and importing NumPy costs more than the scan.
Byte order and Fortran order do not matter for size and are ignored.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomdoctor.inventory.guard import MAX_AXES, TOO_MUCH
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.units import DTYPE_BYTES, element_count

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_LIMIT_BYTES = 64 * 1024
"""More than any real header; NumPy itself refuses 10,000 characters unless told otherwise."""

OBJECT_NOTE = "object array: cannot be sized safely"

_DAMAGED = "not a NumPy array, or damaged"
_DEPTH_LIMIT = 32
_TOKEN = re.compile(
    r"""\s*(?:[ub]?'((?:[^'\\]|\\.)*)'|[ub]?"((?:[^"\\]|\\.)*)"|(\d{1,20})L?|(True|False)"""
    r"""|([][(){},:]))"""
)
_DTYPE = re.compile(r"[<>|=]?([?a-zA-Z])(\d{0,9})(?:\[\w*\])?\Z")
_FAMILIES = {"f": "float", "i": "int", "u": "uint", "c": "complex"}


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """What the header of one array says."""

    shape: tuple[int, ...]
    dtype: str | None
    """A name from `units.DTYPE_BYTES`; None for every other element."""
    item_bytes: int | None
    """Bytes of one element; None for Python objects."""
    data_offset: int

    @property
    def data_bytes(self) -> int | None:
        """Bytes that the array itself takes; None for Python objects."""
        return None if self.item_bytes is None else element_count(self.shape) * self.item_bytes


def parse_header(head: bytes) -> ArrayHeader:
    """Return what the first bytes of a `.npy` array say.

    Args:
        head: At least `HEADER_LIMIT_BYTES` + 12 bytes, or all there are.
    """
    if head[:6] != b"\x93NUMPY" or len(head) < 12 or head[6] not in (1, 2, 3):
        raise Unreadable(_DAMAGED)
    start, width = (10, "<H") if head[6] == 1 else (12, "<I")
    (length,) = struct.unpack_from(width, head, 8)
    if length > HEADER_LIMIT_BYTES:
        raise Unreadable("NumPy header longer than 64 KiB")
    if start + length > len(head):
        raise Unreadable(_DAMAGED)
    text = head[start : start + length].decode("utf-8" if head[6] == 3 else "latin-1")
    header = _literal(text)
    if not isinstance(header, dict):
        raise Unreadable(_DAMAGED)
    shape = header.get("shape")
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise Unreadable(_DAMAGED)
    if len(shape) > MAX_AXES:
        raise Unreadable(f"NumPy header with more than {MAX_AXES} axes")
    descr = header.get("descr")
    return ArrayHeader(shape, dtype_name(descr), item_bytes(descr), start + length)


def array_part(
    header: ArrayHeader,
    room_bytes: int,
    *,
    format: str,
    name: str = "",
    is_compressed: bool = False,
) -> Part:
    """Return the part for an array, or refuse a header that claims more than there is room for."""
    elements = element_count(header.shape)
    if header.data_bytes is None:
        return Part(
            format=format,
            kind="array",
            # Each object is at least one pickled byte, so a larger count is a lie.
            samples=header.shape[0] if header.shape and elements <= room_bytes else None,
            shape=None,
            elements=None,
            dtype=None,
            name=name,
            is_compressed=is_compressed,
            is_exact=False,
            note=OBJECT_NOTE,
        )
    if header.data_offset + header.data_bytes > room_bytes:
        raise Unreadable(TOO_MUCH)
    # A shape such as (10**18, 0) fits in any file: without elements there is nothing to count.
    samples = 0 if not header.data_bytes else header.shape[0] if header.shape else 1
    return Part(
        format=format,
        kind="array",
        samples=samples,
        shape=header.shape[1:],
        elements=elements if header.data_bytes else 0,
        dtype=header.dtype,
        name=name,
        memory_bytes=None if header.dtype else header.data_bytes,
        is_compressed=is_compressed,
    )


def dtype_name(descr: object) -> str | None:
    """Return the plain name of an array-protocol dtype, or None where it has none.

    Example:
        >>> dtype_name("<f4"), dtype_name("|b1"), dtype_name("<U10")
        ('float32', 'bool', None)
    """
    match = _DTYPE.match(descr) if isinstance(descr, str) else None
    if match is None:
        return None
    kind, width = match[1], match[2]
    if kind == "?" or (kind == "b" and width == "1"):
        return "bool"
    name = f"{_FAMILIES.get(kind)}{8 * int(width or 0)}"
    return name if name in DTYPE_BYTES else None


def item_bytes(descr: object) -> int | None:
    """Return the bytes of one element; None when there is a Python object in it."""
    if isinstance(descr, str):
        match = _DTYPE.match(descr)
        if match is None:
            raise Unreadable(_DAMAGED)
        kind, width = match[1], int(match[2] or 1)
        if kind == "O":
            return None
        if kind not in "?biufcmMSaUV":
            raise Unreadable(_DAMAGED)
        return width * 4 if kind == "U" else width
    if not isinstance(descr, list):
        raise Unreadable(_DAMAGED)
    total: int | None = 0
    for field in descr:
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise Unreadable(_DAMAGED)
        count = 1
        if len(field) == 3:
            inner = field[2] if isinstance(field[2], tuple) else (field[2],)
            if not all(type(size) is int for size in inner):
                raise Unreadable(_DAMAGED)
            count = element_count(inner)
        width_bytes = item_bytes(field[1])
        total = None if total is None or width_bytes is None else total + count * width_bytes
    return total


def _literal(text: str) -> Any:
    tokens = _tokens(text)
    return _value(next(tokens), tokens, 0)


def _tokens(text: str) -> Iterator[Any]:
    """Yield strings as ("text", s), whole numbers, booleans, and one-letter punctuation."""
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        single, double, number, truth, mark = match.groups()
        if number is not None:
            yield int(number)
        elif truth is not None:
            yield truth == "True"
        elif mark is not None:
            yield mark
        else:
            yield ("text", single if single is not None else double)
    # Anything else, a minus sign among it, is not part of a header; so is its early end.
    raise Unreadable(_DAMAGED)


def _value(token: Any, tokens: Iterator[Any], depth: int) -> Any:
    if depth > _DEPTH_LIMIT:
        raise Unreadable(_DAMAGED)
    if token == "{":
        return dict(_pairs(tokens, depth + 1))
    if token == "(":
        return tuple(_items(tokens, ")", depth + 1))
    if token == "[":
        return list(_items(tokens, "]", depth + 1))
    if isinstance(token, tuple):
        return token[1]
    if isinstance(token, int):
        return token
    raise Unreadable(_DAMAGED)


def _items(tokens: Iterator[Any], close: str, depth: int) -> Iterator[Any]:
    token = next(tokens)
    while token != close:
        yield _value(token, tokens, depth)
        token = next(tokens)
        if token == ",":
            token = next(tokens)
        elif token != close:
            raise Unreadable(_DAMAGED)


def _pairs(tokens: Iterator[Any], depth: int) -> Iterator[tuple[str, Any]]:
    token = next(tokens)
    while token != "}":
        if not isinstance(token, tuple) or next(tokens) != ":":
            raise Unreadable(_DAMAGED)
        yield token[1], _value(next(tokens), tokens, depth)
        token = next(tokens)
        if token == ",":
            token = next(tokens)
        elif token != "}":
            raise Unreadable(_DAMAGED)
