"""From what TensorFlow wrote to the words that a failed test shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from oomdoctor.units import format_bytes

if TYPE_CHECKING:
    from oomdoctor.testing.plugin import Limit

READ_BYTES = 2 * 1024**2
"""Of a log: an allocator's dump can be larger, and its end says what matters."""


def explained(told: Any, limit: Limit, batch_size: int | None = None) -> str:
    """Return why a test did not fit, and what to change.

    Args:
        told: An exception, or the text of a log.
        limit: What the test was allowed.
        batch_size: The batch it was trained with, where that is known.
    """
    from oomdoctor.api import explain_error

    report = explain_error(told, vram=limit.limit_bytes, batch_size=batch_size)
    return f"The test does not fit in {format_bytes(limit.limit_bytes)}.\n\n{report!r}"


def read_end(path: str) -> str:
    """Return the end of a log; nothing where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - READ_BYTES))
            return file.read(READ_BYTES).decode(errors="replace")
    except OSError:
        return ""
