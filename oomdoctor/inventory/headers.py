"""Height, width, channels and bit depth of images, from the first bytes of each file.

This file uses the standard library alone, because it is also run by its path as a worker
process (`python -I -S headers.py`): a scan of many files shares them among such workers. A
worker reads one JSON request a line, answers one a line, and ends when its input ends, so it
cannot outlive the scan.

Why not a library: PNG and JPEG are nearly all images there are, and a scan must stay within
twice the time of opening the files at all. Other formats go to Pillow, in `images.py`.
"""

from __future__ import annotations

import json
import os
import struct
import sys

TYPE_CHECKING = False  # `typing` would cost each worker process its import
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Shape = tuple[int, int, int, int]
    Found = tuple[Shape, int] | str | None
    """Height, width, channels and bits, and stored bytes; or why not; or None: ask Pillow."""

FIRST_BYTES = 4096
MAX_SEGMENTS = 2000
"""JPEG segments to step over before giving up: real files have under a hundred."""

MAX_RATIO = {"png": 1100, "other": 10_000}
"""Decoded elements per stored byte that a format can reach. Deflate reaches 1032 to 1; a flat
JPEG, GIF or BMP stays far below the other bound. A header that claims more is lying."""

LIES = "the header claims more pixels than the file can hold"
NOT_AN_IMAGE = "not an image, whatever its name says"
EMPTY = "empty file"
BROKEN = "broken or cut-off image header"

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # palettes decode to RGB
_SOF = frozenset((0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF))
_SIZE = struct.Struct(">II")
_LENGTH = struct.Struct(">H")
_FRAME = struct.Struct(">BHHB")


class HeaderError(Exception):
    """The header cannot be used. The message is one of the reasons above."""


class NeedsPillow(Exception):
    """Not one of the formats read here."""


class NeedsMore(HeaderError):
    """The frame of a JPEG lies beyond the bytes at hand: `at` is where to read on."""

    def __init__(self, at: int) -> None:
        super().__init__(BROKEN)
        self.at = at


def parse_header(
    data: bytes, size_bytes: int, fd: int | None = None, *, at: int = 0
) -> tuple[int, int, int, int]:
    """Return height, width, channels and bits per channel.

    Args:
        data: The first bytes of the file.
        size_bytes: Size of the whole file, against which the header is checked.
        fd: Where to read on when a JPEG's frame lies beyond `data`. Without it `NeedsMore` is
            raised.
        at: Where `data` begins, after `NeedsMore` asked for what lies there.
    """
    if at or data[:3] == b"\xff\xd8\xff":
        shape = _parse_jpeg(data, fd, base=at)
        ratio = MAX_RATIO["other"]
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        if len(data) < 29 or data[12:16] != b"IHDR" or data[25] not in _PNG_CHANNELS:
            raise HeaderError(BROKEN)
        width, height = _SIZE.unpack_from(data, 16)
        shape = (height, width, _PNG_CHANNELS[data[25]], 16 if data[24] == 16 else 8)
        ratio = MAX_RATIO["png"] * 8  # one bit per pixel becomes one byte
    elif data[:4] == b"GIF8":
        if len(data) < 10:
            raise HeaderError(BROKEN)
        width, height = struct.unpack_from("<HH", data, 6)
        shape = (height, width, 3, 8)
        ratio = MAX_RATIO["other"]
    elif data[:2] == b"BM" and len(data) >= 30:
        width, height, _, depth = struct.unpack_from("<iiHH", data, 18)
        # A negative height only says that the rows run from the top.
        shape = (abs(height), abs(width), 4 if depth == 32 else 3, 8)
        ratio = MAX_RATIO["other"]
    else:
        raise HeaderError(EMPTY) if not data else NeedsPillow
    elements = shape[0] * shape[1] * shape[2]
    if not elements:
        raise HeaderError(BROKEN)
    if elements > size_bytes * ratio:
        raise HeaderError(LIES)
    return shape


def _parse_jpeg(data: bytes, fd: int | None, *, base: int) -> tuple[int, int, int, int]:
    at = 0 if base else 2  # `base` is the offset of `data` in the file
    for _ in range(MAX_SEGMENTS):
        if at + 10 > len(data):
            if fd is None:
                raise NeedsMore(base + at)
            base += at
            data = os.pread(fd, FIRST_BYTES, base)
            at = 0
            if len(data) < 10:
                break
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if marker in _SOF:
            bits, height, width, channels = _FRAME.unpack_from(data, at + 4)
            return height, width, channels, 16 if bits > 8 else 8
        if marker == 0xFF:
            at += 1  # fill byte
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2  # these carry no length
        else:
            at += 2 + _LENGTH.unpack_from(data, at + 2)[0]
    raise HeaderError(BROKEN)


def read_headers(folder: str, names: list[str], *, each: bool = False) -> dict[str, object]:
    """Return the shapes of the named files of one folder, added up as `add_up` says."""
    folder_fd = os.open(folder, os.O_RDONLY)
    try:
        return add_up(_each_file(folder_fd, names), each=each)
    finally:
        os.close(folder_fd)


def _each_file(folder_fd: int, names: list[str]) -> Iterator[tuple[str, Found]]:
    open_, read, seek, close = os.open, os.read, os.lseek, os.close
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    for name in names:
        try:
            fd = open_(name, flags, dir_fd=folder_fd)
        except OSError as error:
            yield name, _reason(error)
            continue
        try:
            data = read(fd, FIRST_BYTES)
            size = seek(fd, 0, 2)
            found: Found = parse_header(data, size, fd), size
        except NeedsPillow:
            found = None
        except (HeaderError, OSError) as error:
            found = _reason(error)
        finally:
            close(fd)
        yield name, found


def add_up(found: Iterable[tuple[str, Found]], *, each: bool = False) -> dict[str, object]:
    """Return what was found in files, added up.

    The answer is made of plain values: `shapes` lists height, width, channels, bits, how many
    files have them and the first such name; `stored_bytes` covers all that were sized;
    `other` names the files that need Pillow; `failed` maps a reason to names. With `each` there
    is also what was found in each file, in order.
    """
    shapes: dict[Shape, list[object]] = {}
    stored = 0
    other: list[str] = []
    failed: dict[str, list[str]] = {}
    kept: list[object] = []
    for name, what in found:
        if each:
            kept.append([name, what])
        if isinstance(what, tuple):
            shape, size = what
            stored += size
            seen = shapes.get(shape)
            if seen is None:
                shapes[shape] = [1, name]
            else:
                seen[0] += 1  # type: ignore[operator]
        elif what is None:
            other.append(name)
        else:
            failed.setdefault(what, []).append(name)
    answer: dict[str, object] = {
        "shapes": [[*shape, *seen] for shape, seen in shapes.items()],
        "stored_bytes": stored,
        "other": other,
        "failed": failed,
    }
    return {**answer, "each": kept} if each else answer


def _reason(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError):
        return f"cannot be opened ({error.strerror})"
    return str(error)


def answer(folder: str, names: list[str], each: bool = False) -> dict[str, object]:
    """Return what `read_headers` does, or every name as failed where the folder has gone."""
    try:
        return read_headers(folder, names, each=each)
    except OSError as error:
        return add_up(((name, _reason(error)) for name in names), each=each)


def serve() -> None:
    """Answer requests on standard input until it ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(*json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    import signal

    # Ctrl-C reaches the whole process group; the scan closes our input when it stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve()
