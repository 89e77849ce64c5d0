"""Other ways to store text: gzip, notebooks, and encodings that do not hold ASCII as ASCII."""

from __future__ import annotations

import codecs
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec

MOST_RATIO = 100
"""Logs shrink by ten to fifty times; a gzip bomb by a thousand."""
MOST_BEYOND_RATIO = 256 << 20
"""Bytes that all gzip files together may unpack to beyond that ratio."""
MOST_NOTEBOOK_BYTES = 64 << 20
MOST_OBJECTS = 1_000_000
"""Braces in a notebook: each may become an object, twenty times as large as what is written."""
_PACKED_BLOCK = 4096
"""Small, because a member's rest is copied for each of the members in a block."""

_PIECE = 1 << 16
_QUOTES = re.compile(rb'(?m)^[ \t]*"|(?:\\n)?",?$')


class Stream(Protocol):
    """Anything that bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return some bytes, none at the end."""


class Gunzipped:
    """The text of a gzip file, of one or more members."""

    def __init__(self, stream: Stream, beyond: int = MOST_BEYOND_RATIO) -> None:
        self._stream = stream
        self._beyond = beyond
        self._packed = b""
        self._unzip = zlib.decompressobj(wbits=31)
        self._has_begun = False
        self.packed_bytes = 0
        self.unpacked_bytes = 0
        self.is_damaged = False
        self.is_bomb = False
        """Whether it unpacks to more than is believed, so that the rest was left."""

    @property
    def bytes_beyond_ratio(self) -> int:
        """How much more than the ratio allows was unpacked."""
        return max(0, self.unpacked_bytes - MOST_RATIO * self.packed_bytes)

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; none at the end, or where the file is damaged."""
        most = size if size > 0 else 1 << 19
        while not (self.is_damaged or self.is_bomb):
            if not self._packed:
                self._packed = self._stream.read(_PACKED_BLOCK)
                self.packed_bytes += len(self._packed)
            if not self._packed and not self._has_begun:
                return b""
            is_last = not self._packed
            block = self._unpacked(most)
            self.unpacked_bytes += len(block)
            self.is_bomb = self.bytes_beyond_ratio > self._beyond
            if block:
                return block
            if is_last:  # in the midst of a member
                self.is_damaged = True
        return b""

    def _unpacked(self, most: int) -> bytes:
        self._has_begun = True
        try:
            block = self._unzip.decompress(self._packed, most)
        except zlib.error:
            self.is_damaged = True
            return b""
        self._packed = self._unzip.unconsumed_tail
        if self._unzip.eof:
            self._packed = self._unzip.unused_data.lstrip(b"\0")  # padded to a block of a tape
            self._unzip = zlib.decompressobj(wbits=31)
            self._has_begun = False
        return block


class _Output(msgspec.Struct):
    """One output of a cell; whatever is not text in it is left out."""

    text: msgspec.Raw = msgspec.Raw(b"null")
    data: msgspec.Raw = msgspec.Raw(b"null")
    traceback: msgspec.Raw = msgspec.Raw(b"null")
    ename: msgspec.Raw = msgspec.Raw(b"null")
    evalue: msgspec.Raw = msgspec.Raw(b"null")


class _Data(msgspec.Struct):
    plain: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="text/plain")


class _Cell(msgspec.Struct):
    outputs: list[_Output] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell]


def notebook_texts(raw: bytes) -> Iterator[str] | None:
    """Return the texts of a notebook's outputs, in order; None where it is no notebook."""
    if raw.count(b"{") > MOST_OBJECTS:
        return None
    try:
        cells = msgspec.json.decode(raw, type=_Notebook).cells
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return _texts(cells)


def _texts(cells: list[_Cell]) -> Iterator[str]:
    for cell in cells:
        for output in cell.outputs:
            trace = _text(output.traceback, "\n")
            if trace:
                yield trace
                yield f"{_text(output.ename)}: {_text(output.evalue)}"
            yield _text(output.text) or _text(_plain(output.data))


def _plain(data: msgspec.Raw) -> msgspec.Raw:
    try:
        return msgspec.json.decode(data, type=_Data).plain
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return msgspec.Raw(b"null")


def _text(raw: msgspec.Raw, between: str = "") -> str:
    try:
        found: Any = msgspec.json.decode(raw, type=str | list[str] | None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    return between.join(found) if isinstance(found, list) else found or ""


class Joined:
    """Texts as a stream, each on a line of its own."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._pieces = _pieces(texts)

    def read(self, size: int = -1, /) -> bytes:
        """Return some of the texts, none at the end."""
        parts: list[bytes] = []
        length = 0
        for piece in self._pieces:
            parts.append(piece)
            length += len(piece)
            if length >= size:
                break
        return b"".join(parts)


def _pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """Yield texts as bytes, a long one in several pieces: a copy of it would take memory."""
    for text in texts:
        for start in range(0, len(text), _PIECE):
            yield text[start : start + _PIECE].encode("utf-8", "surrogatepass")
        yield b"\n"


def as_utf8(stream: Stream) -> Stream:
    """Return the stream in an encoding that holds ASCII as ASCII."""
    head = stream.read(4096)
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if head.startswith(mark):
            return _Recoded(head, stream, encoding)
    # PowerShell redirects as UTF-16, sometimes without its mark. Where all bytes are zero it is
    # the hole of a log that was cut off.
    even, odd = head[0:200:2], head[1:200:2]
    if len(head) >= 8 and odd.count(0) > 0.8 * len(odd) and even.count(0) < 0.2 * len(even):
        return _Recoded(head, stream, "utf-16-le")
    if len(head) >= 8 and even.count(0) > 0.8 * len(even) and odd.count(0) < 0.2 * len(odd):
        return _Recoded(head, stream, "utf-16-be")
    return Rejoined(head, stream)


class Rejoined:
    """A stream whose beginning was already taken."""

    def __init__(self, head: bytes, stream: Stream) -> None:
        self._head = io.BytesIO(head)
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        return self._head.read(size) or self._stream.read(size)


class Unquoted(Rejoined):
    """The same of JSON with a string on each line, without the quotes around it."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        block = super().read(size)
        # A block of nothing but quotes must not pass for the end.
        return _QUOTES.sub(b"", block) or block


class _Recoded(Rejoined):
    """The same, turned into UTF-8."""

    def __init__(self, head: bytes, stream: Stream, encoding: str) -> None:
        super().__init__(head, stream)
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        while block := super().read(size):
            text = self._decoder.decode(block)
            if text:
                return text.encode("utf-8", "replace")
        return b""
