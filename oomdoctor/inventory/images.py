"""Images: headers by the fast parser, by worker processes when there are many, else by Pillow.

Shapes are (height, width, channels) as stored, before any EXIF rotation: rotation changes the
order of the sides, not the bytes.
"""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from oomdoctor.inventory import headers
from oomdoctor.inventory.opening import open_data, size_of
from oomdoctor.inventory.parts import Unreadable
from oomdoctor.inventory.walk import Chunk

DTYPE_OF_BITS = {8: "uint8", 16: "uint16", 32: "float32"}
BITS_OF_DTYPE = {dtype: bits for bits, dtype in DTYPE_OF_BITS.items()}

_CHANNELS = {
    "1": 1,
    "L": 1,
    "P": 3,
    "RGB": 3,
    "RGBA": 4,
    "CMYK": 4,
    "YCbCr": 3,
    "LAB": 3,
    "HSV": 3,
    "LA": 2,
    "La": 2,
    "PA": 4,
    "RGBa": 4,
    "RGBX": 4,
    "I": 1,
    "F": 1,
}
# Only what a image folder holds. Pillow's other plug-ins may start programs (EPS) or are
# rarely maintained; none of them is ever given a stranger's file.
_PILLOW_FORMATS = (
    "AVIF",
    "BMP",
    "GIF",
    "JPEG",
    "JPEG2000",
    "PNG",
    "PPM",
    "TGA",
    "TIFF",
    "WEBP",
)

_PILLOW_LIMIT_BYTES = 128 * 1024 * 1024

# What Pillow logs about a file would reach the terminal where nobody set logging up.
logging.getLogger("PIL").addHandler(logging.NullHandler())

Shape = tuple[int, int, int]


def shape_from_bytes(data: bytes) -> tuple[Shape, str] | None:
    """Return shape and dtype of an encoded image from its first bytes; None if it is none.

    Example:
        >>> shape_from_bytes(b"GIF89a" + bytes([4, 0, 2, 0]))
        ((2, 4, 3), 'uint8')
    """
    try:
        # The size of the whole is not known here, so the header is not checked against it.
        height, width, channels, bits = headers.parse_header(data, sys.maxsize)
        return (height, width, channels), DTYPE_OF_BITS[bits]
    except headers.HeaderError:
        return None
    except headers.NeedsPillow:
        try:
            return _open_with_pillow(io.BytesIO(data), sys.maxsize)
        except Unreadable:
            return None


def shape_of_file(path: str) -> tuple[Shape, str, int]:
    """Return shape, dtype and stored bytes of a image in a format that Pillow knows."""
    try:
        size_bytes = size_of(path)
        with open_data(path, size_bytes) as file:
            shape, dtype = _open_with_pillow(file, size_bytes)
    except PermissionError:
        raise Unreadable("permission denied") from None
    except OSError as error:
        raise Unreadable(f"cannot be opened ({error.strerror})") from None
    return shape, dtype, size_bytes


class _Bounded:
    """A file that Pillow can read no more of than an image has: some formats are read whole."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left_bytes = _PILLOW_LIMIT_BYTES
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        left = self._left_bytes
        data: bytes = self._file.read(min(size, left) if size >= 0 else left)
        self._left_bytes -= len(data)
        if self._left_bytes <= 0:
            raise OSError("more than an image has")
        return data


def _open_with_pillow(file: Any, size_bytes: int) -> tuple[Shape, str]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # Pillow warns of images that would be large if decoded; nothing is decoded here.
            warnings.simplefilter("ignore")
            Image.init()
            known = [name for name in _PILLOW_FORMATS if name in Image.OPEN]
            bounded: Any = _Bounded(file)
            with Image.open(bounded, formats=known) as image:
                width, height = image.size
                mode = image.mode
    except Image.DecompressionBombError:
        raise Unreadable(headers.LIES) from None
    except Exception:
        # Pillow's parsers raise nearly anything on a broken file; whatever it is, the file
        # cannot be sized.
        raise Unreadable(headers.NOT_AN_IMAGE) from None
    bits = 16 if mode.startswith("I;16") else 32 if mode in ("I", "F") else 8
    shape = (height, width, _CHANNELS.get(mode, 1))
    elements = height * width * shape[2]
    if not elements:
        raise Unreadable(headers.BROKEN)
    if elements > size_bytes * headers.MAX_RATIO["other"]:
        raise Unreadable(headers.LIES)
    return shape, DTYPE_OF_BITS[bits]


class HeaderPool:
    """Reads headers here while files are few, and in worker processes once they are many."""

    def __init__(self, *, start_after: int, workers: int) -> None:
        self._start_after = start_after
        self._workers = workers
        self._seen = 0
        self._threads: ThreadPoolExecutor | None = None
        self._free: SimpleQueue[subprocess.Popen[str] | None] = SimpleQueue()
        self._processes: list[subprocess.Popen[str]] = []

    def read(self, chunk: Chunk, names: list[str], *, each: bool = False) -> Future[dict[str, Any]]:
        """Start reading some images of a chunk."""
        self._seen += len(names)
        if self._seen < self._start_after or self._workers < 2:
            done: Future[dict[str, Any]] = Future()
            done.set_result(headers.answer(chunk.folder, names, each))
            return done
        if self._threads is None:
            self._start()
        assert self._threads is not None
        return self._threads.submit(self._ask, chunk.folder, names, each)

    def _start(self) -> None:
        for _ in range(self._workers):
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", headers.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="ascii",
            )
            self._processes.append(process)
            self._free.put(process)
        self._threads = ThreadPoolExecutor(self._workers)

    def _ask(self, folder: str, names: list[str], each: bool) -> dict[str, Any]:
        process = self._free.get()
        try:
            if process is None or process.stdin is None or process.stdout is None:
                raise BrokenPipeError
            process.stdin.write(json.dumps([folder, names, each]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            answer: dict[str, Any] = json.loads(line)
        except (OSError, ValueError):
            # A worker died (killed, or no memory left): this process can do the work as well.
            # None keeps its place, so that nobody waits for a worker that never comes back.
            self._free.put(None)
            return headers.answer(folder, names, each)
        self._free.put(process)
        return answer

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        for process in self._processes:
            process.kill()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()
