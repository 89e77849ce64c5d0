"""Every regular file under a folder, in chunks, without ever holding them all.

Links to folders are followed once; a link back to a folder already seen is passed over, so
cycles end. A link may lead out of the root, to data that is kept elsewhere, but not to a folder
that holds the root (`/` for one), not out of what it led to, and not to more folders than
`MAX_LINKED_FOLDERS`. FIFOs, sockets and devices are never opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field

from oomdoctor.inventory import formats

CHUNK_FILES = 1000
"""Files handed on at once: large enough to share among processes, small enough to hold."""

MAX_LINKED_FOLDERS = 100_000
"""Folders outside of the root that links may lead to, all together."""

_SYSTEM_FOLDERS = ("/dev", "/proc", "/sys")

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
    sizes: dict[str, int] = field(default_factory=dict)
    """Stored bytes by name, where the listing says them."""
    stamps: dict[str, str] = field(default_factory=dict)
    """What changes by name when the content does, where the listing says it."""

    def __len__(self) -> int:
        return len(self.images) + len(self.others) + len(self.unknown) + len(self.skipped)


def walk(root: str) -> Iterator[Chunk]:
    """Yield the files below a folder, chunk by chunk, folders in the order of their names."""
    seen = {_identity(os.stat(root))}
    home = os.path.realpath(root)
    linked = 0
    stack: list[tuple[str, tuple[str, ...], str]] = [(root, (), home)]
    while stack:
        folder, parts, top = stack.pop()
        if top != home:
            linked += 1
            if linked > MAX_LINKED_FOLDERS:
                skipped = [(f"link that leads to more than {MAX_LINKED_FOLDERS:,} folders", "")]
                yield Chunk(folder, parts, skipped=skipped)
                continue
        subfolders: dict[str, str] = {}
        yield from _walk_folder(folder, parts, subfolders, seen, (home, top))
        # Popped from the end, so the first name goes last.
        stack.extend(
            (os.path.join(folder, name), (*parts, name), subfolders[name])
            for name in sorted(subfolders)[::-1]
        )


def _walk_folder(
    folder: str,
    parts: tuple[str, ...],
    subfolders: dict[str, str],
    seen: set[tuple[int, int]],
    tops: tuple[str, str],
) -> Iterator[Chunk]:
    """Yield the files of one folder, and put the names of those in it where they are asked for.

    Args:
        folder: The folder.
        parts: Its names below the root.
        subfolders: Receives each folder in it, and the top of what that is part of.
        seen: The identities of all folders so far.
        tops: The root, and the top of what the folder is part of.
    """
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
                    top = _top_of_link(entry.path, *tops) if entry.is_symlink() else tops[1]
                    seen.add(identity)
                    subfolders[name] = top
            except _NotFollowed as error:
                chunk.skipped.append((str(error), name))
            except OSError as error:
                chunk.skipped.append((f"cannot be examined ({error.strerror})", name))
            if len(chunk) >= CHUNK_FILES:
                yield chunk
                chunk = Chunk(folder, parts, special=special)
    if special == formats.ZARR:
        subfolders.clear()  # its chunks are not files of their own
    if len(chunk):
        yield chunk


class _NotFollowed(Exception):
    """A link that is passed over; the message says why."""


def _top_of_link(path: str, home: str, top: str) -> str:
    """Return the top of what a link leads to: the root, or a folder elsewhere."""
    target = os.path.realpath(path)
    for known in (home, top):
        if _is_inside(target, known):
            return known
    if _is_inside(home, target):
        raise _NotFollowed("link to a folder that holds this one")
    if top != home:
        raise _NotFollowed("link out of a folder that a link led to")
    if any(_is_inside(target, folder) for folder in _SYSTEM_FOLDERS):
        raise _NotFollowed("link to a folder of the system")
    return target


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


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
