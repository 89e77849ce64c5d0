"""Any input as lines: files, folders, notebooks, gzip, any encoding.

Long logs are skimmed. The beginning and the end are read line by line; between them only the
surroundings of trigger words are, which are looked for in raw bytes. So a log of a gigabyte takes
little more time than counting its lines, and constant memory. Lines are counted by newline;
what a progress bar redraws with carriage returns is one line.

Everything has a bound, and a note says when one is met: the bytes read of all files together, how
much more than its own size a gzip file unpacks to, the size of a notebook, and how long nothing
but zeros is read.
"""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from oomdoctor.diagnose.clean import records
from oomdoctor.diagnose.sources import Endless, Regular, Source, find_logs, open_log
from oomdoctor.diagnose.unpack import (
    MOST_BEYOND_RATIO,
    MOST_NOTEBOOK_BYTES,
    MOST_RATIO,
    Gunzipped,
    Joined,
    Rejoined,
    Stream,
    Unquoted,
    as_utf8,
    notebook_texts,
)
from oomdoctor.errors import InputError
from oomdoctor.units import format_bytes

CHUNK = 1 << 19
LONGEST_LINE = 1 << 16
"""Of a longer line the beginning and the end are read: nobody prints a message between."""
BUDGET = 8 << 20
"""Bytes read line by line between the beginning and the end of a long log."""
MOST_BYTES = 64 << 30
"""Bytes read of all sources together; a minute's work for a fast disk."""
TRIGGERS = (
    b"emory",
    b"lloc",
    b"OF_MEMORY",
    b"_STATUS_",
    b"illed",
    b"shuffle buffer",
    b"EXHAUSTED",
    b"Traceback",
    b"initialized",
    b" RSS",
)
"""Words of which one is in every message that matters, or close to it."""
BEFORE, AFTER = 4096, 16384
"""Bytes around a trigger word that are read line by line."""


class Reader:
    """Reads sources one after another; `notes` says what was skipped."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self.notes: list[str] = []
        self.starts: list[tuple[int, str]] = []
        """How many lines lie before each file, and its name."""
        self._budget = BUDGET
        self._left = most_bytes
        self._beyond_ratio = MOST_BEYOND_RATIO

    def lines(
        self, paths: Iterable[str | os.PathLike[str]], stdin: IO[bytes] | None
    ) -> Iterator[tuple[int, str]]:
        """Yield line numbers and records of all the paths; `-` is standard input.

        Raises:
            InputError: A path cannot be read, or a folder holds no logs.
        """
        offset = unread = 0
        for source in find_logs(paths, self.notes):
            if self._left <= 0:
                unread += 1
                continue
            last = 0
            name = "standard input" if source.path == "-" else Path(source.path).name
            self.starts.append((offset, name))
            for number, text in self._one(source, stdin):
                last = number
                yield offset + number, text
            offset += last
        if unread:
            self.notes.append(f"{unread:,} more logs were not read: there is too much data.")

    def text(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield line numbers and records of a text at hand."""
        return self._stream(io.BytesIO(text.encode("utf-8", "surrogateescape")))

    def _one(self, source: Source, stdin: IO[bytes] | None) -> Iterator[tuple[int, str]]:
        path = source.path
        try:
            if path == "-":
                if stdin is None:
                    raise InputError("Standard input is closed: give a log file.")
                yield from self._piped(stdin, "Standard input")
                return
            file = open_log(path)
            try:
                yield from self._opened(path, file)
            finally:
                os.close(file)
        except (OSError, ValueError, InputError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if not source.is_named:
                self.notes.append(f"{path} could not be read ({reason}).")
                return
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path} cannot be read ({reason}): give a log file.") from error

    def _opened(self, path: str, file: int) -> Iterator[tuple[int, str]]:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            with open(file, "rb", closefd=False) as pipe:
                yield from self._piped(pipe, path)
            return
        regular = Regular(file, self._left)
        yield from self._content(path, regular)
        self._left -= regular.taken
        if regular.is_cut:
            self.notes.append(
                f"{path} holds {format_bytes(os.fstat(file).st_size)}: only the beginning and the "
                "end were read, and lines are counted as if there were nothing between."
            )

    def _piped(self, stream: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
        bounded = Endless(stream, self._left)
        yield from self._content(name, bounded)
        self._left -= bounded.taken
        if bounded.is_cut:
            self.notes.append(
                f"{name} does not end: only its first {format_bytes(bounded.taken)} were read."
            )

    def _content(self, path: str, stream: Stream) -> Iterator[tuple[int, str]]:
        head = stream.read(CHUNK)
        whole = Rejoined(head, stream)
        if head.startswith(b"\x1f\x8b"):
            yield from self._unzipped(path, whole)
        elif path.endswith(".ipynb"):
            yield from self._notebook(path, whole)
        else:
            yield from self._stream(whole)

    def _unzipped(self, path: str, stream: Stream) -> Iterator[tuple[int, str]]:
        unpacked = Gunzipped(stream, self._beyond_ratio)
        yield from self._stream(unpacked)
        self._beyond_ratio -= unpacked.bytes_beyond_ratio
        if unpacked.is_damaged:
            self.notes.append(f"{path} is a damaged gzip file: read as far as it goes.")
        if unpacked.is_bomb:
            self.notes.append(
                f"{path} unpacks to over {MOST_RATIO} times its size, as no log does: only the "
                f"first {format_bytes(unpacked.unpacked_bytes)} were read."
            )

    def _notebook(self, path: str, stream: Stream) -> Iterator[tuple[int, str]]:
        blocks: list[bytes] = []
        length = 0
        while length <= MOST_NOTEBOOK_BYTES and (block := stream.read(CHUNK)):
            blocks.append(block)
            length += len(block)
        raw = b"".join(blocks)
        blocks.clear()
        texts = notebook_texts(raw) if len(raw) <= MOST_NOTEBOOK_BYTES else None
        if texts is not None:
            yield from self._stream(Joined(texts))
            return
        is_large = len(raw) > MOST_NOTEBOOK_BYTES
        what = "too large for a notebook" if is_large else "not a notebook"
        self.notes.append(f"{path} is {what}: read as text.")
        yield from self._stream(Unquoted(raw, stream) if is_large else Rejoined(raw, stream))

    def _stream(self, stream: Stream) -> Iterator[tuple[int, str]]:
        """Yield the records of a stream of bytes, skimming its middle."""
        number = 1
        is_first = True
        # Two, because the last may be short, and what ends a run is at the end.
        held: deque[bytes] = deque()
        for chunk in _chunks(as_utf8(stream)):
            held.append(chunk)
            if len(held) > 2:
                oldest = held.popleft()
                yield from _parse(oldest, number) if is_first else self._skim(oldest, number)
                is_first = False
                number += oldest.count(b"\n")
        for chunk in held:
            yield from _parse(chunk, number)
            number += chunk.count(b"\n")

    def _skim(self, chunk: bytes, number: int) -> Iterator[tuple[int, str]]:
        """Yield the records around trigger words."""
        if self._budget <= 0:
            return
        places = {word: chunk.find(word) for word in TRIGGERS}
        done = 0
        while self._budget > 0:
            hits = [place for place in places.values() if place >= 0]
            if not hits:
                return
            hit = min(hits)
            start = max(done, _line_start(chunk, max(done, hit - BEFORE), hit))
            end = chunk.find(b"\n", min(hit + AFTER, len(chunk)))
            end = len(chunk) if end < 0 else end + 1
            number += chunk.count(b"\n", done, start)
            yield from _parse(chunk[start:end], number)
            number += chunk.count(b"\n", start, end)
            self._budget -= end - start
            if self._budget <= 0:
                self.notes.append(
                    "The log is long and full of messages: its middle was passed over."
                )
            done = end
            for word, place in places.items():
                if 0 <= place < end:
                    places[word] = chunk.find(word, end)


def _line_start(chunk: bytes, earliest: int, hit: int) -> int:
    """Return where a line begins between two places, the first one that does."""
    if earliest == 0:
        return 0
    newline = chunk.find(b"\n", earliest, hit)
    return earliest if newline < 0 else newline + 1


def _parse(block: bytes, number: int) -> Iterator[tuple[int, str]]:
    for line in block.split(b"\n"):
        if line:
            if len(line) > LONGEST_LINE:
                line = line[: LONGEST_LINE // 2] + b"\r" + line[-LONGEST_LINE // 2 :]
            for record in records(line):
                yield number, record
        number += 1


def _blocks(stream: Stream) -> Iterator[bytes]:
    """Yield what a stream gives in blocks of about one size, however much it gives at once."""
    parts: list[bytes] = []
    length = 0
    while part := stream.read(CHUNK):
        parts.append(part)
        length += len(part)
        if length >= CHUNK:
            whole = part if len(parts) == 1 else b"".join(parts)
            yield from (whole[at : at + CHUNK] for at in range(0, length, CHUNK))
            parts, length = [], 0
    yield b"".join(parts)


def _chunks(stream: Stream) -> Iterator[bytes]:
    """Yield blocks that end with a line, where lines are not absurdly long."""
    rest = b""
    for block in _blocks(stream):
        block = rest + block
        cut = block.rfind(b"\n") + 1
        if not cut:
            if len(block) < 4 * CHUNK:
                rest = block
                continue
            # One line of megabytes: its beginning is all that is read of it.
            cut = len(block)
        rest = block[cut:]
        yield block[:cut]
    if rest:
        yield rest
