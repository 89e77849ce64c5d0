"""Opens what a reader asks for: a local file, or an object that is read by ranges.

A reader works the same on both. What differs is what a read costs, so a reader that would walk a
whole file asks `is_remote` and stops earlier.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from oomdoctor.inventory.address import is_address
from oomdoctor.inventory.parts import Unreadable


def is_remote(file: BinaryIO) -> bool:
    """Return whether each read of a file is a request to a server."""
    return bool(getattr(file, "is_remote", False))


def is_nearly_spent(file: BinaryIO) -> bool:
    """Return whether a file took so many requests that a reader should estimate the rest."""
    return bool(getattr(file, "is_nearly_spent", False))


@contextmanager
def open_data(
    path: str, size_bytes: int | None = None, *, buffered: bool = True
) -> Iterator[BinaryIO]:
    """Open a file or an object for reading.

    Args:
        path: A path, or an address such as `s3://bucket/x.npy`.
        size_bytes: Its size if it is known, which saves a request.
        buffered: False reads exactly what is asked for, from a local file.
    """
    if is_address(path):
        from oomdoctor.inventory.remote.ranges import open_remote

        yield open_remote(path, size_bytes)
        return
    with open(path, "rb", buffering=-1 if buffered else 0) as file:
        yield file


def read_at(file: BinaryIO, count: int, position: int) -> bytes:
    """Return bytes from a position of an unbuffered file, as `os.pread` does."""
    if is_remote(file):
        file.seek(position)
        return file.read(count)
    return os.pread(file.fileno(), count, position)


def size_of(path: str) -> int:
    """Return the stored bytes of a file or an object."""
    if is_address(path):
        from oomdoctor.inventory.remote.ranges import size_of_object

        return size_of_object(path)
    return os.stat(path).st_size


def exists(path: str) -> bool:
    """Return whether there is a regular file, or an object."""
    if is_address(path):
        try:
            return size_of(path) >= 0
        except Unreadable:
            return False
    return os.path.isfile(path)


def entries_of(folder: str) -> Iterator[tuple[str, bool]]:
    """Yield the names in a folder, and for each whether it is a folder itself; no links."""
    if is_address(folder):
        from oomdoctor.inventory.remote.listing import pages_of

        for page in pages_of(folder):
            yield from ((entry.name, entry.is_folder) for entry in page)
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry.name, entry.is_dir(follow_symlinks=False)


def join(folder: str, name: str) -> str:
    """Return the path of a name in a folder, or its address."""
    if is_address(folder):
        return f"{folder.rstrip('/')}/{name}"
    return os.path.join(folder, name)
