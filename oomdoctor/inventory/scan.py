"""Paths and addresses → Inventory: lists, reads headers, adds up.

Memory does not grow with the number of files: chunks are read and added up as they come, and
only a few are under way at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from oomdoctor.errors import InputError
from oomdoctor.facts import Inventory
from oomdoctor.inventory import walk
from oomdoctor.inventory.address import is_address, shown
from oomdoctor.inventory.names import place_of
from oomdoctor.inventory.reading import Reader, label_of_file
from oomdoctor.inventory.sampling import GroupSample
from oomdoctor.inventory.sources import LocalSources, Sources
from oomdoctor.inventory.tally import Tally

Progress = Callable[[int], None]
"""Called now and then with the number of files seen so far."""


def scan(
    paths: Sequence[str | os.PathLike[str]],
    *,
    sample: int | None = None,
    progress: Progress | None = None,
    keep_partial: bool = False,
    sources: Sources | None = None,
) -> Inventory:
    """Return what lies under the paths.

    Args:
        paths: Folders, files and addresses.
        sample: Read this many files of each group, chosen at random; None reads all.
        progress: Called with the files seen so far, about once per thousand.
        keep_partial: On Ctrl-C return what was seen so far instead of raising.
        sources: Who reads the chunks: this process and its workers if nothing else is given.
    """
    # A path given twice is the same data.
    roots = list({_identity(os.fspath(path)): os.fspath(path) for path in paths}.values())
    for root in roots:
        if not is_address(root) and not os.path.lexists(root):
            raise InputError(f"{root} does not exist: give a folder or a file with data.")
    with sources or LocalSources() as sources:
        scanner = _Scanner(sources, sample=sample, progress=progress)
        is_complete = True
        try:
            for root in roots:
                scanner.scan_root(root, prefix=() if len(roots) == 1 else (_base_name(root),))
            scanner.finish()
        except KeyboardInterrupt:
            if not keep_partial:
                raise
            is_complete = False
        return scanner.inventory(
            _common_root(roots), is_complete=is_complete, notes=sources.notes()
        )


class _Scanner:
    def __init__(self, sources: Sources, *, sample: int | None, progress: Progress | None) -> None:
        self._tally = Tally()
        self._sources = sources
        self._reader = sources.reader(self._tally)
        self._sample = sample
        self._samples: dict[str, GroupSample[tuple[walk.Chunk, str]]] = {}
        self._progress = progress
        self._files = 0
        self._keras_ignores = 0

    def scan_root(self, root: str, *, prefix: tuple[str, ...]) -> None:
        for chunk in _chunks(root):
            chunk.parts = (*prefix, *chunk.parts)
            self._files += len(chunk)
            self._keras_ignores += chunk.keras_ignores
            # A folder that is described as a whole has its own index, which reads no other file.
            if self._sample is None or chunk.special is not None:
                self._reader.read(chunk)
            else:
                self._choose(chunk, self._sample)
                self._reader.count_rest(chunk)
            if self._progress is not None:
                self._progress(self._files)

    def finish(self) -> None:
        """Wait for what is under way, and read the chosen sample."""
        self._reader.finish()
        for group in self._samples.values():
            for stratum, items in group.chosen().items():
                part = Tally(is_part=True)
                reader: Reader = self._sources.reader(part)
                for chunk, name in items:
                    one = walk.Chunk(chunk.folder, chunk.parts, sizes=chunk.sizes)
                    walk.sort_file(one, name)
                    reader.read(one)
                reader.finish()
                self._tally.merge_sample(part, seen=group.strata[stratum].seen, read=len(items))

    def inventory(self, root: str, *, is_complete: bool, notes: tuple[str, ...]) -> Inventory:
        groups = self._tally.groups()
        if self._keras_ignores:
            notes = (
                "keras.utils.image_dataset_from_directory silently ignores "
                f"{self._keras_ignores:,} of the images (it reads bmp, gif, jpeg, jpg and png).",
                *notes,
            )
        if not is_complete:
            notes = (
                *notes,
                "The scan was interrupted: the figures cover what was seen until then.",
            )
        return Inventory(
            root=root,
            groups=groups,
            files=self._files,
            stored_bytes=sum(group.stored_bytes for group in groups),
            skipped=self._tally.skipped(),
            is_exact=all(group.is_exact for group in groups),
            is_complete=is_complete,
            notes=notes,
        )

    def _choose(self, chunk: walk.Chunk, size: int) -> None:
        _, label, _ = place_of(chunk.parts)
        names = [(label, name) for name in chunk.images]
        names += [(label_of_file(chunk, name, "")[1], name) for name, _ in chunk.others]
        bare = walk.Chunk(chunk.folder, chunk.parts)
        folder = "/".join(chunk.parts)
        sizes = chunk.sizes or _sizes(chunk.folder, [name for _, name in names])
        for label, name in names:
            size_bytes = sizes.get(name)
            if chunk.sizes and size_bytes is not None:
                bare.sizes[name] = size_bytes
            group = self._samples.setdefault(label, GroupSample(size))
            group.add(folder, size_bytes, (bare, name))


def _sizes(folder: str, names: list[str]) -> dict[str, int]:
    sizes = {}
    for name in names if not is_address(folder) else ():
        try:
            sizes[name] = os.stat(os.path.join(folder, name)).st_size
        except OSError:
            continue  # it is counted where it is read
    return sizes


def _chunks(root: str) -> Iterator[walk.Chunk]:
    if is_address(root):
        from oomdoctor.inventory.remote.walk import walk_remote

        yield from walk_remote(root)
        return
    if os.path.isdir(root):
        yield from walk.walk(root)
        return
    if not os.path.isfile(root):
        raise InputError(f"{root} is not a folder or a regular file: give one of these.")
    chunk = walk.Chunk(os.path.dirname(root) or ".", ())
    walk.sort_file(chunk, os.path.basename(root))
    yield chunk


def _identity(root: str) -> str:
    return root.rstrip("/") if is_address(root) else os.path.realpath(root)


def _base_name(root: str) -> str:
    if is_address(root):
        return shown(root).rstrip("/").rpartition("/")[2] or shown(root)
    return os.path.basename(os.path.normpath(root)) or root


def _common_root(roots: list[str]) -> str:
    if any(map(is_address, roots)):
        return shown(roots[0]) if len(roots) == 1 else ", ".join(map(shown, roots[:3]))
    if len(roots) == 1:
        return roots[0]
    try:
        return os.path.commonpath([os.path.abspath(root) for root in roots])
    except ValueError:
        return roots[0]
