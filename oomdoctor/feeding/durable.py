"""Files that are there whole or not at all, whenever the process or the machine dies."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any, BinaryIO

from oomdoctor._files import read_small
from oomdoctor.errors import InputError

PART = ".part"
"""Ends the name of a file that is still being written; what is left of one is overwritten."""

_MANIFEST_LIMIT = 256 * 1024 * 1024


def write_durably(path: str, write: Callable[[BinaryIO], None]) -> None:
    """Write a file, wait until it is on the disk, and only then give it its name."""
    part = path + PART
    try:
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        name_durably(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def name_durably(part: str, path: str) -> None:
    """Rename a file that is on the disk, and wait until the new name is, too."""
    os.replace(part, path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: str, value: Any) -> None:
    """Write JSON durably."""
    content = json.dumps(value, indent=1).encode()

    def write(file: BinaryIO) -> None:
        file.write(content)

    write_durably(path, write)


def read_json(path: str) -> dict[str, Any]:
    """Return a JSON object of moderate size."""
    try:
        found = json.loads(read_small(path, most=_MANIFEST_LIMIT))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON, or is damaged.") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} does not hold what oomdoctor writes there.")
    return found
