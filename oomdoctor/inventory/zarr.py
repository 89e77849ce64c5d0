"""Read Zarr folders, versions 2 and 3: the JSON that describes each array, and no chunk.

A chunk that was never written stands for its fill value, so the files cannot confirm a shape; one
that no machine could hold is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from oomdoctor.foreign_json import decode
from oomdoctor.inventory.described import axes, read_known
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.npy_header import dtype_name, item_bytes
from oomdoctor.inventory.opening import entries_of, exists, join
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.units import DTYPE_BYTES, element_count

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER_LIMIT = 10_000
_DEPTH_LIMIT = 16
_SIZE_LIMIT_BYTES = 2**50
_FIELD_LIMIT_BYTES = 64 * 1024
_NOTHING = msgspec.Raw(b"null")


class Description(msgspec.Struct):
    """What is needed of a description, left as JSON: a field may be anything."""

    zarr_format: msgspec.Raw = _NOTHING
    node_type: msgspec.Raw = _NOTHING
    shape: msgspec.Raw = _NOTHING
    dtype: msgspec.Raw = _NOTHING
    data_type: msgspec.Raw = _NOTHING


def read_folder(path: str) -> Iterator[Part]:
    """Yield each array of a Zarr folder, in the order of their names."""
    with sizing("a Zarr folder"):
        parts = list(_arrays(path))
        if not parts:
            raise Unreadable("a Zarr folder without arrays")
        yield from parts


def _arrays(path: str) -> Iterator[Part]:
    stack = [(path, "", 0)]
    seen = 0
    while stack:
        folder, name, depth = stack.pop()
        seen += 1
        description = _description(folder)
        if description is not None:
            yield _part(description, name)
            continue  # below an array lie its chunks
        if depth >= _DEPTH_LIMIT or seen >= FOLDER_LIMIT:
            continue
        inner = [child for child, is_folder in entries_of(folder) if is_folder]
        stack.extend(
            (join(folder, child), f"{name}/{child}".lstrip("/"), depth + 1)
            for child in sorted(inner, reverse=True)[-FOLDER_LIMIT:]
        )


def _description(folder: str) -> Description | None:
    """Return what describes the array in a folder; None for a group or a plain folder."""
    for name in (".zarray", "zarr.json"):
        if exists(join(folder, name)):
            found = read_known(join(folder, name), Description)
            return found if name == ".zarray" or _field(found.node_type) == "array" else None
    return None


def _field(raw: msgspec.Raw) -> Any:
    if len(raw) > _FIELD_LIMIT_BYTES:
        raise Unreadable("description has a field larger than 64 KiB")
    return decode(raw, Any)


def _part(description: Description, name: str) -> Part:
    is_third = _field(description.zarr_format) == 3
    shape = axes(_field(description.shape))
    if min(shape, default=0) < 0:
        raise Unreadable("description has a size that is no size")
    dtype, width = _element(
        _field(description.data_type if is_third else description.dtype), is_third
    )
    elements = element_count(shape)
    if elements * (width or 1) > _SIZE_LIMIT_BYTES or max(shape, default=0) > _SIZE_LIMIT_BYTES:
        raise Unreadable("header claims more data than any machine holds")
    return Part(
        format="zarr",
        kind="array",
        samples=shape[0] if shape else 1,
        shape=shape[1:],
        elements=None if width is None else elements,
        dtype=dtype,
        name=name,
        memory_bytes=None if dtype or width is None else elements * width,
        is_compressed=True,  # chunks lie in files of their own
        is_exact=width is not None,
        note="objects: cannot be sized safely" if width is None else None,
    )


def _element(dtype: object, is_third: bool) -> tuple[str | None, int | None]:
    """Return the name and the bytes of one element; None for what has none."""
    if not is_third:
        # Structured types are lists of lists here, and of tuples in NumPy.
        fields = [tuple(field) for field in dtype] if isinstance(dtype, list) else dtype
        return dtype_name(fields), item_bytes(fields)
    if isinstance(dtype, str) and dtype in DTYPE_BYTES:
        return dtype, DTYPE_BYTES[dtype]
    if isinstance(dtype, str) and dtype[:1] == "r" and dtype[1:].isdigit() and len(dtype) < 8:
        return None, int(dtype[1:]) // 8
    return None, None
