"""Small JSON files that describe a folder of data, read within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from oomdoctor.foreign_json import decode
from oomdoctor.inventory.guard import MAX_AXES
from oomdoctor.inventory.opening import open_data
from oomdoctor.inventory.parts import Unreadable

JSON_LIMIT_BYTES = 16 * 1024 * 1024
Kind = TypeVar("Kind")


def read_json(path: str, *, limit_bytes: int) -> dict[str, Any]:
    """Return the object in a JSON file, or refuse a file that is large or something else.

    It can take thirty times its size in memory, so the limit should be near to what is usual.
    """
    found = json.loads(_content(path, limit_bytes))
    if not isinstance(found, dict):
        raise Unreadable("description is not a JSON object")
    return found


def read_known(path: str, kind: type[Kind], *, limit_bytes: int = JSON_LIMIT_BYTES) -> Kind:
    """Return the fields of a `msgspec.Struct` from a JSON file; no others are built."""
    return decode(_content(path, limit_bytes), kind)


def _content(path: str, limit_bytes: int) -> bytes:
    with open_data(path) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise Unreadable(f"description larger than {limit_bytes // 2**20} MiB")
    return data


def whole_number(value: object) -> int:
    """Return a count or an axis from JSON, which may write large numbers as text."""
    if isinstance(value, str) and len(value) <= 20:
        value = int(value)
    if type(value) is not int or not -1 <= value < 2**63:
        raise Unreadable("description has a size that is no size")
    return value


def axes(values: Iterable[object]) -> tuple[int, ...]:
    """Return a shape from JSON; arrays of more axes than NumPy's do not exist."""
    shape = tuple(whole_number(value) for value in islice(values, MAX_AXES + 1))
    if len(shape) > MAX_AXES:
        raise Unreadable(f"description has more than {MAX_AXES} axes")
    return shape
