"""Paths → Inventory: walks, reads headers, adds up.

Memory does not grow with the number of files: chunks are read and added up as they come, and
only a few are under way at a time.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from oomdoctor.errors import InputError
from oomdoctor.facts import Inventory
from oomdoctor.inventory import headers, walk
from oomdoctor.inventory.images import DTYPE_OF_BITS, HeaderPool, shape_of_file
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.inventory.sampling import Reservoir
from oomdoctor.inventory.tally import GroupKey, Tally, place_of, shard_name, split_of

WORKERS_AFTER_FILES = 20_000
"""Below this, starting processes costs more than they save."""

MAX_WORKERS = 8

FAILED = "cannot be sized"
"""The reason where a reader failed in a way it should not."""

Progress = Callable[[int], None]
"""Called now and then with the number of files seen so far."""


def scan(
    paths: Sequence[str | os.PathLike[str]],
    *,
    sample: int | None = None,
    progress: Progress | None = None,
    keep_partial: bool = False,
) -> Inventory:
    """Return what lies under the paths.

    Args:
        paths: Folders and files.
        sample: Read this many files of each group, chosen at random; None reads all.
        progress: Told how many files were seen, about once per thousand.
        keep_partial: On Ctrl-C return what was seen so far instead of raising.
    """
    # A path given twice is the same data.
    roots = list({os.path.realpath(path): os.fspath(path) for path in paths}.values())
    for root in roots:
        if not os.path.lexists(root):
            raise InputError(f"{root} does not exist: give a folder or a file with data.")
    scanner = _Scanner(sample=sample, progress=progress)
    is_complete = True
    try:
        for root in roots:
            scanner.scan_root(root, prefix=() if len(roots) == 1 else (_base_name(root),))
        scanner.finish()
    except KeyboardInterrupt:
        if not keep_partial:
            raise
        is_complete = False
    finally:
        scanner.close()
    return scanner.inventory(_common_root(roots), is_complete=is_complete)


class _Scanner:
    def __init__(self, *, sample: int | None, progress: Progress | None) -> None:
        self._tally = Tally()
        self._pool = HeaderPool(
            start_after=WORKERS_AFTER_FILES, workers=min(MAX_WORKERS, os.cpu_count() or 1)
        )
        self._under_way: deque[tuple[walk.Chunk, Future[dict[str, Any]]]] = deque()
        self._sample = sample
        self._strata: dict[str, Reservoir[tuple[walk.Chunk, str]]] = {}
        self._progress = progress
        self._files = 0
        self._keras_ignores = 0
        self._folders_read: set[str] = set()

    def scan_root(self, root: str, *, prefix: tuple[str, ...]) -> None:
        for chunk in _chunks(root):
            chunk.parts = (*prefix, *chunk.parts)
            self._files += len(chunk)
            self._keras_ignores += chunk.keras_ignores
            if self._sample is None:
                self._read(chunk)
            else:
                self._choose(chunk, self._sample)
            self._count_rest(chunk)
            if self._progress is not None:
                self._progress(self._files)

    def finish(self) -> None:
        """Read the chosen sample, and wait for what is under way."""
        for reservoir in self._strata.values():
            for chunk, name in reservoir.items:
                one = walk.Chunk(chunk.folder, chunk.parts)
                walk.sort_file(one, name)
                self._read(one)
        while self._under_way:
            self._collect()

    def close(self) -> None:
        self._pool.close()

    def inventory(self, root: str, *, is_complete: bool) -> Inventory:
        population = None
        if self._sample is not None:
            population = {key: reservoir.seen for key, reservoir in self._strata.items()}
        groups = self._tally.groups(population=population)
        notes = []
        if self._keras_ignores:
            notes.append(
                "keras.utils.image_dataset_from_directory silently ignores "
                f"{self._keras_ignores:,} of the pictures (it reads bmp, gif, jpeg, jpg and png)."
            )
        if not is_complete:
            notes.append("The scan was interrupted: the figures cover what was seen until then.")
        return Inventory(
            root=root,
            groups=groups,
            files=self._files,
            stored_bytes=sum(group.stored_bytes for group in groups),
            skipped=self._tally.skipped(),
            is_exact=all(group.is_exact for group in groups),
            is_complete=is_complete,
            notes=tuple(notes),
        )

    # ------------------------------------------------------------------ choosing

    def _choose(self, chunk: walk.Chunk, size: int) -> None:
        if chunk.special is not None:
            self._read(chunk)  # its own index tells all, without reading any file
            return
        _, label, _ = place_of(chunk.parts)
        names = [(label, name) for name in chunk.images]
        names += [(_label_of_file(chunk, name, "")[1], name) for name, _ in chunk.others]
        bare = walk.Chunk(chunk.folder, chunk.parts)
        for label, name in names:
            self._strata.setdefault(label, Reservoir(size)).add((bare, name))

    # ------------------------------------------------------------------ reading

    def _read(self, chunk: walk.Chunk) -> None:
        if chunk.images:
            self._under_way.append((chunk, self._pool.read(chunk.folder, chunk.images)))
            while len(self._under_way) > 2 * MAX_WORKERS or (
                self._under_way and self._under_way[0][1].done()
            ):
                self._collect()
        if chunk.special is not None:
            self._read_folder(chunk, chunk.special)
            return
        for name, reader in chunk.others:
            self._read_file(chunk, name, reader)

    def _collect(self) -> None:
        chunk, future = self._under_way.popleft()
        answer = future.result()
        split, label, class_name = place_of(chunk.parts)
        by_bits: dict[int, list[tuple[tuple[int, ...], int, str]]] = {}
        for height, width, channels, bits, count, name in answer["shapes"]:
            shape = (height, width, channels)
            by_bits.setdefault(bits, []).append((shape, count, _join(chunk, name)))
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
                self._tally.skip(reason, _join(chunk, name))

    def _read_with_pillow(
        self, chunk: walk.Chunk, name: str, split: str | None, label: str, class_name: str | None
    ) -> None:
        try:
            shape, dtype, size_bytes = shape_of_file(os.path.join(chunk.folder, name))
        except Unreadable as error:
            self._tally.skip(str(error), _join(chunk, name))
            return
        self._tally.add_images(
            GroupKey("image", "image", split, label, dtype),
            [(shape, 1, _join(chunk, name))],
            files=1,
            stored_bytes=size_bytes,
            class_name=class_name,
        )

    def _read_file(self, chunk: walk.Chunk, name: str, reader: str) -> None:
        path = os.path.join(chunk.folder, name)
        try:
            size_bytes = os.stat(path).st_size
            if size_bytes == 0:
                raise Unreadable(headers.EMPTY)
            read = importlib.import_module(reader).read
            for index, part in enumerate(read(path, size_bytes)):
                self._add_part(chunk, name, part, size_bytes if index == 0 else 0, index == 0)
        except OSError as error:
            self._tally.skip(f"cannot be opened ({error.strerror})", _join(chunk, name))
        except Unreadable as error:
            self._tally.skip(str(error), _join(chunk, name))
        # What no reader was written for may fail in any way, and must not end the scan.
        except Exception:  # noqa: BLE001, RUF100
            self._tally.skip(FAILED, _join(chunk, name))

    def _read_folder(self, chunk: walk.Chunk, reader: str) -> None:
        if chunk.folder in self._folders_read:
            return
        self._folders_read.add(chunk.folder)
        files, stored_bytes = _weigh(chunk.folder)
        try:
            for index, part in enumerate(importlib.import_module(reader).read_folder(chunk.folder)):
                first = index == 0
                self._add_part(chunk, "", part, stored_bytes if first else 0, first, files=files)
        except OSError as error:
            self._tally.skip(f"cannot be opened ({error.strerror})", _join(chunk, ""))
        except Unreadable as error:
            self._tally.skip(str(error), _join(chunk, ""))
        except Exception:  # noqa: BLE001, RUF100
            self._tally.skip(FAILED, _join(chunk, ""))

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
            # A picture inside an archive: its folder there names the split and the class.
            inside = tuple(part.name.split("/")[:-1])
            split, _, class_name = place_of((*chunk.parts, *inside))
            label = "/".join((*chunk.parts, shard_name(name)))
            if split is not None and place_of(chunk.parts)[0] is None:
                label += f":{split}"
            self._tally.add_images(
                GroupKey(part.format, "image", split, label, part.dtype),
                [(part.shape, part.samples or 1, f"{_join(chunk, name)}:{part.name}")],
                files=files if is_first else 0,
                stored_bytes=stored_bytes,
                class_name=class_name if inside else None,
                note=part.note,
                is_exact=part.is_exact,
            )
            return
        split, label = _label_of_file(chunk, name, part.name)
        self._tally.add_part(
            GroupKey(part.format, part.kind, split, label, part.dtype),
            part,
            path=_join(chunk, name),
            stored_bytes=stored_bytes,
            files=files if is_first else 0,
        )

    def _count_rest(self, chunk: walk.Chunk) -> None:
        for reason, name in chunk.skipped:
            self._tally.skip(reason, _join(chunk, name))
        if chunk.special is None:
            for name in chunk.unknown:
                self._tally.skip("not a kind of data that is read", _join(chunk, name))


def _chunks(root: str) -> Iterator[walk.Chunk]:
    if os.path.isdir(root):
        yield from walk.walk(root)
        return
    if not os.path.isfile(root):
        raise InputError(f"{root} is not a folder or a regular file: give one of these.")
    chunk = walk.Chunk(os.path.dirname(root) or ".", ())
    walk.sort_file(chunk, os.path.basename(root))
    yield chunk


def _weigh(folder: str) -> tuple[int, int]:
    """Return how many files lie below a folder, and their bytes."""
    files = stored_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                stored_bytes += os.lstat(os.path.join(place, name)).st_size
                files += 1
            except OSError:
                continue  # gone, or not ours to see
    return files, stored_bytes


def _label_of_file(chunk: walk.Chunk, name: str, array: str) -> tuple[str | None, str]:
    split, _, _ = place_of(chunk.parts)
    split = split or split_of(array) or split_of(name)
    label = "/".join((*chunk.parts, shard_name(name))) if name else "/".join(chunk.parts)
    if array:
        label = f"{label}:{array}" if label else array
    return split, label or "."


def _join(chunk: walk.Chunk, name: str) -> str:
    return "/".join((*chunk.parts, name)) if name else "/".join(chunk.parts) or "."


def _base_name(root: str) -> str:
    return os.path.basename(os.path.normpath(root)) or root


def _common_root(roots: list[str]) -> str:
    if len(roots) == 1:
        return roots[0]
    try:
        return os.path.commonpath([os.path.abspath(root) for root in roots])
    except ValueError:
        return roots[0]
