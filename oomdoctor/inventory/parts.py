"""What a reader hands to the scan: one `Part` per array, table or image in a file.

A reader is a module with `read(path, size_bytes)`, a generator of parts. It reads headers, never
data; it never unpickles, never trusts a count from a header without bounding it, and never
allocates by one. A file it cannot size raises `Unreadable`, which the scan counts as skipped.
"""

from __future__ import annotations

from dataclasses import dataclass


class Unreadable(Exception):
    """A file cannot be sized. The message is a short reason, the same for like files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one file, or one array, table or image inside it, holds."""

    format: str
    """As in `FileGroup.format`."""
    kind: str
    """As in `FileGroup.kind`: image, array, table, audio, text or record."""
    samples: int | None
    shape: tuple[int, ...] | None
    """Of one sample; None where samples differ or cannot be told."""
    elements: int | None
    """Decoded elements of all samples together; None where they cannot be sized."""
    dtype: str | None
    """A name from `units.DTYPE_BYTES`, or None (object arrays, strings)."""
    name: str = ""
    """The array's name inside the file; empty when the file is one thing."""
    memory_bytes: int | None = None
    """Decoded bytes where elements × width does not give them: text columns, strings."""
    is_compressed: bool = False
    is_exact: bool = True
    low_elements: int | None = None
    high_elements: int | None = None
    note: str | None = None
    """A sentence for the report, the same for like files."""
