"""Chunks of files → a tally: reads their headers, several at a time, and adds up in order.

What is added up is the same, bit for bit, whoever reads: this process, worker processes, other
machines. So everything goes into the tally in the order in which the files are listed.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Protocol

from oomdoctor.inventory import headers, walk
from oomdoctor.inventory.address import is_address
from oomdoctor.inventory.group import GroupKey
from oomdoctor.inventory.images import BITS_OF_DTYPE, DTYPE_OF_BITS, shape_of_file
from oomdoctor.inventory.names import place_of, shard_name, split_of
from oomdoctor.inventory.opening import join, size_of
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.inventory.tally import Tally

MOST_CHUNKS = 16
"""Chunks whose images are read at a time; of any size, they fit in memory."""
MOST_FILES = 1000
"""Other files that are read from a server at a time."""

FAILED = "cannot be sized"
"""The reason where a reader failed in a way it should not."""

Answer = dict[str, Any]


class Headers(Protocol):
    """Reads headers of images, here or in worker processes or from a server."""

    def read(self, chunk: walk.Chunk, names: list[str], *, each: bool = False) -> Future[Answer]:
        """Start reading some images of a chunk."""


class Memory(Protocol):
    """Remembers what was read of files that have not changed since."""

    def images(self, chunk: walk.Chunk) -> dict[str, Any]:
        """Return what is known of a chunk's images, by name."""

    def parts(self, chunk: walk.Chunk, name: str) -> list[tuple[Part | str, int]] | None:
        """Return what is known of another file."""

    def keep_images(self, chunk: walk.Chunk, found: list[tuple[str, Any]]) -> None:
        """Remember images."""

    def keep_parts(self, chunk: walk.Chunk, name: str, parts: list[Any]) -> None:
        """Remember another file."""

    def close(self) -> None:
        """Write what is not written yet."""


class Reader(Protocol):
    """Reads chunks into a tally."""

    def read(self, chunk: walk.Chunk) -> None:
        """Start reading a chunk, and count what nobody reads of it."""

    def count_rest(self, chunk: walk.Chunk) -> None:
        """Count what nobody reads of a chunk."""

    def finish(self) -> None:
        """Wait for what is under way."""


class ChunkReader:
    """Reads what chunks hold into a tally."""

    def __init__(
        self,
        tally: Tally,
        images: Headers,
        *,
        remote_files: Executor,
        memory: Memory | None = None,
    ) -> None:
        """Set up a reader.

        Args:
            tally: Receives what is read.
            images: Reads headers of images.
            remote_files: Reads other files from servers, several at a time.
            memory: What is known from earlier scans.
        """
        self._tally = tally
        self._images = images
        self._files = remote_files
        self._memory = memory
        self._under_way: deque[tuple[Future[Any], Callable[[Any], None]]] = deque()
        self._folders_read: set[str] = set()

    def read(self, chunk: walk.Chunk) -> None:
        """Start reading a chunk, and add up what is ready of those before it."""
        if chunk.images:
            self._read_images(chunk)
        if chunk.special is not None:
            if chunk.folder not in self._folders_read:
                self._folders_read.add(chunk.folder)
                self._add_folder(chunk, chunk.special)
        else:
            for name, reader in chunk.others:
                self._read_file(chunk, name, reader)
        self.count_rest(chunk)

    def count_rest(self, chunk: walk.Chunk) -> None:
        """Count what nobody reads of a chunk."""
        for reason, name in chunk.skipped:
            self._tally.skip(reason, in_chunk(chunk, name))
        if chunk.special is None:
            for name in chunk.unknown:
                self._tally.skip("not a kind of data that is read", in_chunk(chunk, name))

    def finish(self) -> None:
        """Wait for what is under way."""
        while self._under_way:
            self._collect()

    def _later(self, found: Future[Any], add: Callable[[Any], None], *, most: int) -> None:
        self._under_way.append((found, add))
        while len(self._under_way) > most or (self._under_way and self._under_way[0][0].done()):
            self._collect()

    def _collect(self) -> None:
        found, add = self._under_way.popleft()
        add(found.result())

    # ------------------------------------------------------------------ images

    def _read_images(self, chunk: walk.Chunk) -> None:
        memory = self._memory
        if memory is None:
            found = self._images.read(chunk, chunk.images)
            self._later(found, partial(self._add_images, chunk), most=MOST_CHUNKS)
            return
        known = memory.images(chunk)
        fresh = [name for name in chunk.images if name not in known]

        def add(answer: Answer) -> None:
            seen = [
                (name, what if what is not None else with_pillow(join(chunk.folder, name)))
                for name, what in answer["each"]
            ]
            memory.keep_images(chunk, seen)
            found = {**known, **dict(seen)}
            # In the order of the names, whoever read them: so the sum is always the same.
            self._add_images(chunk, headers.add_up((name, found[name]) for name in chunk.images))

        self._later(self._images.read(chunk, fresh, each=True), add, most=MOST_CHUNKS)

    def _add_images(self, chunk: walk.Chunk, answer: Answer) -> None:
        split, label, class_name = place_of(chunk.parts)
        by_bits: dict[int, list[tuple[tuple[int, ...], int, str]]] = {}
        for height, width, channels, bits, count, name in answer["shapes"]:
            shape = (height, width, channels)
            by_bits.setdefault(bits, []).append((shape, count, in_chunk(chunk, name)))
        stored_bytes = answer["stored_bytes"]
        for bits, shapes in by_bits.items():
            key = GroupKey("image", "image", split, label, DTYPE_OF_BITS[bits])
            files = sum(count for _, count, _ in shapes)
            self._tally.add_images(
                key, shapes, files=files, stored_bytes=stored_bytes, class_name=class_name
            )
            stored_bytes = 0  # counted once per chunk; a chunk of mixed depths is rare
        for name in answer["other"]:
            self._read_with_pillow(chunk, name, split, label, class_name)
        for reason, names in answer["failed"].items():
            for name in names:
                self._tally.skip(reason, in_chunk(chunk, name))

    def _read_with_pillow(
        self, chunk: walk.Chunk, name: str, split: str | None, label: str, class_name: str | None
    ) -> None:
        found = with_pillow(join(chunk.folder, name))
        if isinstance(found, str):
            self._tally.skip(found, in_chunk(chunk, name))
            return
        (*shape, bits), size_bytes = found
        self._tally.add_images(
            GroupKey("image", "image", split, label, DTYPE_OF_BITS[bits]),
            [(tuple(shape), 1, in_chunk(chunk, name))],
            files=1,
            stored_bytes=size_bytes,
            class_name=class_name,
        )

    # ------------------------------------------------------------------ other files

    def _read_file(self, chunk: walk.Chunk, name: str, reader: str) -> None:
        path, size = join(chunk.folder, name), chunk.sizes.get(name)
        memory = self._memory
        known = memory.parts(chunk, name) if memory is not None else None
        if known is not None:
            self._add_file(chunk, name, known)
        elif not is_address(path) and memory is None:
            # One by one: an archive may have millions of parts.
            self._add_file(chunk, name, parts_of(path, reader, size))
        elif not is_address(path):
            self._add_and_keep(chunk, name, list(parts_of(path, reader, size)))
        else:
            found = self._files.submit(lambda: list(parts_of(path, reader, size)))
            self._later(found, partial(self._add_and_keep, chunk, name), most=MOST_FILES)

    def _add_and_keep(self, chunk: walk.Chunk, name: str, parts: list[Any]) -> None:
        if self._memory is not None:
            self._memory.keep_parts(chunk, name, parts)
        self._add_file(chunk, name, parts)

    def _add_file(self, chunk: walk.Chunk, name: str, parts: Any) -> None:
        for index, (part, size_bytes) in enumerate(parts):
            if isinstance(part, str):
                self._tally.skip(part, in_chunk(chunk, name))
            else:
                self._add_part(chunk, name, part, 0 if index else size_bytes, not index)

    def _add_folder(self, chunk: walk.Chunk, reader: str) -> None:
        try:
            files, stored_bytes = weigh(chunk.folder)
            for index, part in enumerate(importlib.import_module(reader).read_folder(chunk.folder)):
                first = index == 0
                self._add_part(chunk, "", part, stored_bytes if first else 0, first, files=files)
        except OSError as error:
            self._tally.skip(f"cannot be opened ({error.strerror})", in_chunk(chunk, ""))
        except Unreadable as error:
            self._tally.skip(str(error), in_chunk(chunk, ""))
        except Exception:  # noqa: BLE001, RUF100
            self._tally.skip(FAILED, in_chunk(chunk, ""))

    def _add_part(
        self,
        chunk: walk.Chunk,
        name: str,
        part: Part,
        stored_bytes: int,
        is_first: bool,
        *,
        files: int = 1,
    ) -> None:
        if part.kind == "image" and part.shape is not None:
            # An image inside an archive: its folder there names the split and the class.
            inside = tuple(part.name.split("/")[:-1])
            split, _, class_name = place_of((*chunk.parts, *inside))
            label = "/".join((*chunk.parts, shard_name(name)))
            if split is not None and place_of(chunk.parts)[0] is None:
                label += f":{split}"
            self._tally.add_images(
                GroupKey(part.format, "image", split, label, part.dtype),
                [(part.shape, part.samples or 1, f"{in_chunk(chunk, name)}:{part.name}")],
                files=files if is_first else 0,
                stored_bytes=stored_bytes,
                class_name=class_name if inside else None,
                note=part.note,
                is_exact=part.is_exact,
            )
            return
        split, label = label_of_file(chunk, name, part.name)
        self._tally.add_part(
            GroupKey(part.format, part.kind, split, label, part.dtype),
            part,
            path=in_chunk(chunk, name),
            stored_bytes=stored_bytes,
            files=files if is_first else 0,
        )


def with_pillow(path: str) -> tuple[tuple[int, int, int, int], int] | str:
    """Return height, width, channels, bits and stored bytes of an image, or why there are none."""
    try:
        shape, dtype, size_bytes = shape_of_file(path)
    except Unreadable as error:
        return str(error)
    return (*shape, BITS_OF_DTYPE[dtype]), size_bytes


def parts_of(path: str, reader: str, size_bytes: int | None) -> Any:
    """Yield each part of a file with the file's size; a text in its place says why it ends."""
    size = size_bytes or 0
    try:
        size = size_of(path) if size_bytes is None else size_bytes
        if size == 0:
            raise Unreadable(headers.EMPTY)
        for part in importlib.import_module(reader).read(path, size):
            yield part, size
    except OSError as error:
        yield f"cannot be opened ({error.strerror})", size
    except Unreadable as error:
        yield str(error), size
    # What no reader was written for may fail in any way, and must not end the scan.
    except Exception:  # noqa: BLE001, RUF100
        yield FAILED, size


WEIGHED_FILES = 1_000_000
"""Of a folder on a server that is read as a whole, so many files are counted."""


def weigh(folder: str) -> tuple[int, int]:
    """Return how many files lie below a folder, and their bytes."""
    if is_address(folder):
        from oomdoctor.inventory.remote.listing import weigh_remote

        return weigh_remote(folder, most=WEIGHED_FILES)
    files = stored_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                stored_bytes += os.lstat(os.path.join(place, name)).st_size
                files += 1
            except OSError:
                continue  # gone, or not ours to see
    return files, stored_bytes


def label_of_file(chunk: walk.Chunk, name: str, array: str) -> tuple[str | None, str]:
    """Return the split and the label that a file's place, name and array give it."""
    split, _, _ = place_of(chunk.parts)
    split = split or split_of(array) or split_of(name)
    label = "/".join((*chunk.parts, shard_name(name))) if name else "/".join(chunk.parts)
    if array:
        label = f"{label}:{array}" if label else array
    return split, label or "."


def in_chunk(chunk: walk.Chunk, name: str) -> str:
    """Return a name as seen from the root."""
    return "/".join((*chunk.parts, name)) if name else "/".join(chunk.parts) or "."
