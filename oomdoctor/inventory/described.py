"""Small JSON files that describe a folder of data, read within bounds."""

from __future__ import annotations

import json
from typing import Any

from oomdoctor.inventory.parts import Unreadable

JSON_LIMIT_BYTES = 16 * 1024 * 1024


def read_json(path: str) -> dict[str, Any]:
    """Return the object in a JSON file, or refuse a file that is large or something else."""
    with open(path, "rb") as file:
        data = file.read(JSON_LIMIT_BYTES + 1)
    if len(data) > JSON_LIMIT_BYTES:
        raise Unreadable("description larger than 16 MiB")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise Unreadable("description is not a JSON object")
    return found


def whole_number(value: object) -> int:
    """Return a count or an axis from JSON, which may write large numbers as text."""
    if isinstance(value, str) and len(value) <= 20:
        value = int(value)
    if type(value) is not int or not -1 <= value < 2**63:
        raise Unreadable("description has a size that is no size")
    return value
