"""Read text: a `.txt` file is one sample, a JSON Lines file one sample per line.

In memory a text is counted as its bytes: that is what a string tensor holds, less 24 bytes of
handle for each. Tokens, which a model sees, depend on the tokenizer and are not guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.lines import count_lines
from oomdoctor.inventory.opening import open_data
from oomdoctor.inventory.parts import Part, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLE_BYTES = 24
"""`sizeof(tensorflow::tstring)`; the text itself lies elsewhere once it is longer than 22 bytes."""

_LOOK_BYTES = 1024


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield the text of a `.txt` file, or the lines of a JSON Lines file."""
    with sizing("a text file"), open_data(path, size_bytes, buffered=False) as file:
        if path.lower().endswith(".txt"):
            if b"\0" in file.read(_LOOK_BYTES):
                raise Unreadable("not text")
            yield _part("text", 1, size_bytes)
            return
        lines = count_lines(file, size_bytes)
        is_json = lines.head[:256].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in b'{["'
        if lines.count and not is_json:
            raise Unreadable("not JSON Lines, or damaged")
        yield _part(
            "jsonl",
            lines.count,
            lines.text_bytes,
            is_compressed=lines.is_packed,
            is_exact=lines.is_exact,
            note=lines.note,
        )


def _part(
    format: str,
    samples: int,
    text_bytes: int,
    *,
    is_compressed: bool = False,
    is_exact: bool = True,
    note: str | None = None,
) -> Part:
    return Part(
        format=format,
        kind="text",
        samples=samples,
        shape=None,
        elements=None,
        dtype=None,
        memory_bytes=text_bytes + HANDLE_BYTES * samples,
        is_compressed=is_compressed,
        is_exact=is_exact,
        note=note,
    )
