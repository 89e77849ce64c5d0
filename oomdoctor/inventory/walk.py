"""Every regular file under a folder, in chunks, without ever holding them all.

Links to folders are followed once; a link back to a folder already seen is passed over, so
cycles end. FIFOs, sockets and devices are never opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from oomdoctor.inventory import formats

CHUNK_FILES = 1000
"""Files handed on at once: large enough to share among processes, small enough to hold."""

IMAGE_SUFFIXES = frozenset(
    ("bmp", "gif", "jpeg", "jpg", "png")  # what keras.utils.image_dataset_from_directory reads
)
OTHER_IMAGE_SUFFIXES = frozenset(
    ("avif", "jfif", "jp2", "pbm", "pgm", "ppm", "tga", "tif", "tiff", "webp")
)
CODE_SUFFIXES = frozenset(("ipynb", "py"))
"""Code is no data, and is checked as code."""


@dataclass(slots=True)
class Chunk:
    """Some files of one folder, sorted by who reads them."""

    folder: str
    parts: tuple[str, ...]
    """The folder's names below the root."""
    images: list[str] = field(default_factory=list)
    keras_ignores: int = 0
    """How many of the images Keras's own loader would pass over."""
    others: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of file name and reader module."""
    special: str | None = None
    """The module that reads this folder as a whole, such as a TFDS or Zarr folder."""
    unknown: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of reason and name."""

    def __len__(self) -> int:
        return len(self.images) + len(self.others) + len(self.unknown) + len(self.skipped)


def walk(root: str) -> Iterator[Chunk]:
    """Yield the files below a folder, chunk by chunk, folders in the order of their names."""
    seen = {_identity(os.stat(root))}
    stack: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    while stack:
        folder, parts = stack.pop()
        subfolders: list[str] = []
        yield from _walk_folder(folder, parts, subfolders, seen)
        # Popped from the end, so the first name goes last.
        stack.extend(
            (os.path.join(folder, name), (*parts, name)) for name in sorted(subfolders)[::-1]
        )


def _walk_folder(
    folder: str, parts: tuple[str, ...], subfolders: list[str], seen: set[tuple[int, int]]
) -> Iterator[Chunk]:
    special = formats.folder_reader_for(folder)
    chunk = Chunk(folder, parts, special=special)
    try:
        entries = os.scandir(folder)
    except OSError as error:
        chunk.skipped.append((f"folder cannot be read ({error.strerror})", ""))
        yield chunk
        return
    with entries:
        for entry in _until_error(entries, chunk):
            name = entry.name
            try:
                if entry.is_file():
                    sort_file(chunk, name)
                elif not entry.is_dir():
                    chunk.skipped.append((_why_not_a_file(entry), name))
                elif (identity := _identity(entry.stat())) in seen:
                    if entry.is_symlink():
                        chunk.skipped.append(("link to a folder already seen", name))
                elif not name.startswith("."):
                    seen.add(identity)
                    subfolders.append(name)
            except OSError as error:
                chunk.skipped.append((f"cannot be examined ({error.strerror})", name))
            if len(chunk) >= CHUNK_FILES:
                yield chunk
                chunk = Chunk(folder, parts, special=special)
    if special == formats.ZARR:
        subfolders.clear()  # its chunks are not files of their own
    if len(chunk):
        yield chunk


def _until_error(entries: Iterator[os.DirEntry[str]], chunk: Chunk) -> Iterator[os.DirEntry[str]]:
    """Yield entries as long as the folder can be read."""
    try:
        yield from entries
    except OSError as error:
        chunk.skipped.append((f"folder cannot be read ({error.strerror})", ""))


def sort_file(chunk: Chunk, name: str) -> None:
    """Put a regular file where its reader will find it, by its name alone."""
    suffix = name[name.rfind(".") + 1 :].lower()
    if suffix in IMAGE_SUFFIXES:
        if name[0] == ".":
            chunk.skipped.append(("hidden file", name))
        else:
            chunk.images.append(name)
    elif suffix in OTHER_IMAGE_SUFFIXES:
        chunk.images.append(name)
        chunk.keras_ignores += 1
    elif reader := formats.reader_for(name):
        chunk.others.append((name, reader))
    elif suffix not in CODE_SUFFIXES:
        chunk.unknown.append(name)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return (status.st_dev, status.st_ino)


def _why_not_a_file(entry: os.DirEntry[str]) -> str:
    try:
        mode = entry.stat().st_mode
    except OSError:
        return "link to nothing"
    if stat.S_ISFIFO(mode):
        return "a FIFO, not a file"
    if stat.S_ISSOCK(mode):
        return "a socket, not a file"
    return "a device, not a file"
