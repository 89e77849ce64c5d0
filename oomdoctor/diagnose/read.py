"""Any input as lines: files, folders, notebooks, gzip, any encoding.

Long logs are skimmed. The beginning and the end are read line by line; between them only the
surroundings of trigger words are, which are looked for in raw bytes. So a log of a gigabyte takes
little more time than counting its lines, and constant memory. Lines are counted by newline;
what a progress bar redraws with carriage returns is one line.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from oomdoctor.diagnose.clean import records
from oomdoctor.errors import InputError

CHUNK = 1 << 19
LONGEST_LINE = 1 << 16
"""What is beyond that in one line is cut: nobody prints a message there."""
BUDGET = 8 << 20
"""Bytes read line by line between the beginning and the end of a long log."""
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
LOG_SUFFIXES = (".log", ".txt", ".out", ".err", ".stdout", ".stderr", ".gz", ".ipynb", "")
MOST_FILES = 2000


class Stream(Protocol):
    """Anything that bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return some bytes, none at the end."""


class Reader:
    """Reads sources one after another; `notes` tells what was passed over."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.starts: list[tuple[int, str]] = []
        """How many lines lie before each file, and its name."""
        self._budget = BUDGET

    def lines(
        self, paths: Iterable[str | os.PathLike[str]], stdin: IO[bytes]
    ) -> Iterator[tuple[int, str]]:
        """Yield line numbers and records of all the paths; `-` is standard input.

        Raises:
            InputError: A path cannot be read, or a folder holds no logs.
        """
        offset = 0
        for path in _files(paths):
            last = 0
            self.starts.append((offset, "standard input" if path == "-" else Path(path).name))
            for number, text in self._one(path, stdin):
                last = number
                yield offset + number, text
            offset += last

    def text(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield line numbers and records of a text at hand."""
        return self._stream(io.BytesIO(text.encode("utf-8", "surrogateescape")))

    def _one(self, path: str, stdin: IO[bytes]) -> Iterator[tuple[int, str]]:
        try:
            if path == "-":
                yield from self._stream(stdin)
                return
            with open(path, "rb") as file:
                yield from self._opened(path, file)
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"{path} cannot be read ({reason}): give a log file.") from error

    def _opened(self, path: str, file: IO[bytes]) -> Iterator[tuple[int, str]]:
        magic = file.read(2)
        file.seek(0)
        if magic == b"\x1f\x8b":
            yield from self._damaged_gzip(path, file)
        elif path.endswith(".ipynb"):
            yield from self._notebook(path, file)
        else:
            yield from self._stream(file)

    def _damaged_gzip(self, path: str, file: IO[bytes]) -> Iterator[tuple[int, str]]:
        import zlib

        try:
            with gzip.open(file) as unpacked:
                yield from self._stream(unpacked)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.notes.append(f"{path} is a damaged gzip file: read as far as it goes.")

    def _notebook(self, path: str, file: IO[bytes]) -> Iterator[tuple[int, str]]:
        raw = file.read(256 << 20)
        try:
            cells = json.loads(raw)["cells"]
            text = "\n".join(_outputs(cells))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.notes.append(f"{path} is not a notebook: read as text.")
            yield from self._stream(io.BytesIO(raw))
            return
        yield from self.text(text)

    def _stream(self, stream: Stream) -> Iterator[tuple[int, str]]:
        """Yield the records of a stream of bytes, skimming its middle."""
        number = 1
        held: bytes | None = None
        is_first = True
        for chunk in _chunks(_as_utf8(stream)):
            if held is not None:
                if is_first:
                    yield from _parse(held, number)
                    is_first = False
                else:
                    yield from self._skim(held, number)
                number += held.count(b"\n")
            held = chunk
        if held is not None:
            yield from _parse(held, number)

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
            for record in records(line[:LONGEST_LINE]):
                yield number, record
        number += 1


def _chunks(stream: Stream) -> Iterator[bytes]:
    """Yield blocks that end with a line, where lines are not absurdly long."""
    rest = b""
    while block := stream.read(CHUNK):
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


def _as_utf8(stream: Stream) -> Stream:
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
    # PowerShell redirects as UTF-16, sometimes without its mark.
    if len(head) >= 8 and head[1:200:2].count(0) > 0.8 * len(head[1:200:2]):
        return _Recoded(head, stream, "utf-16-le")
    if len(head) >= 8 and head[0:200:2].count(0) > 0.8 * len(head[0:200:2]):
        return _Recoded(head, stream, "utf-16-be")
    return _Rejoined(head, stream)


class _Rejoined:
    """A stream whose beginning was already taken."""

    def __init__(self, head: bytes, stream: Stream) -> None:
        self._head = head
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        head, self._head = self._head, b""
        return head or self._stream.read(size)


class _Recoded(_Rejoined):
    """The same, turned into UTF-8."""

    def __init__(self, head: bytes, stream: Stream, encoding: str) -> None:
        super().__init__(head, stream)
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def read(self, size: int = -1, /) -> bytes:
        while block := super().read(size):
            text = self._decoder.decode(block)
            if text:
                return text.encode("utf-8", "replace")
        return b""


def _files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[str]:
    for path in [os.fspath(path) for path in paths]:
        if path == "-" or not os.path.isdir(path):
            yield path
            continue
        found = sorted((file for file in Path(path).rglob("*") if _is_log(file)), key=str)
        if not found:
            raise InputError(f"{path} holds no logs: they end in .log, .out, .err, .txt or .gz.")
        yield from map(str, found[:MOST_FILES])


def _is_log(path: Path) -> bool:
    name = path.name
    suffix = path.suffix.lower()
    # Slurm and LSF name logs job.o1234 and job.e1234.
    is_job = suffix[:2] in (".o", ".e") and suffix[2:].isdigit()
    return (suffix in LOG_SUFFIXES or is_job) and not name.startswith(".") and path.is_file()


def _outputs(cells: Any) -> Iterator[str]:
    """Yield the text of a notebook's outputs, in order."""
    for cell in cells:
        for output in cell.get("outputs", ()):
            if "traceback" in output:
                yield "\n".join(map(str, output["traceback"]))
                yield f"{output.get('ename', '')}: {output.get('evalue', '')}"
            text = output.get("text", output.get("data", {}).get("text/plain", ""))
            yield "".join(map(str, text)) if isinstance(text, list) else str(text)
