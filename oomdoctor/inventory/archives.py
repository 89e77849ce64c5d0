"""Read zip and tar files in place: images and arrays inside them, by their first bytes.

Nothing is extracted and no name inside is ever used as a path. At most 64 KiB of a member are
unpacked to look at it. A packed tar must be unpacked to be walked at all; that stops at 2 GiB, or
when it grows more than 200 times, and what was seen so far is reported with a note. Archives
inside archives are not opened; links and encrypted members are passed over.

Each image is a part of its own, named by its member. Arrays are counted together by what
follows the first dot of their names, as WebDataset names the fields of a sample.
"""

from __future__ import annotations

import os
import tarfile
import zlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from oomdoctor.inventory import zips
from oomdoctor.inventory.guard import sizing
from oomdoctor.inventory.npy_header import HEADER_LIMIT_BYTES, array_part, parse_header
from oomdoctor.inventory.opening import open_data
from oomdoctor.inventory.parts import Part, Unreadable
from oomdoctor.inventory.streams import Unpacked, packing_of
from oomdoctor.units import element_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Look = Callable[[int], bytes]  # gives at most so many of a member's first bytes

NESTED_NOTE = "archives inside archives are not opened"

MEMBER_LIMIT = 2_000_000
UNPACK_LIMIT_BYTES = 2 * 1024**3
RATIO_LIMIT = 200
_LOOK_BYTES = 64 * 1024
_FIRST_LOOK_BYTES = 4 * 1024
"""Enough for the header of most images; a JPEG with a preview inside needs more."""
_TAR_HEADER_LIMIT_BYTES = 1024 * 1024
"""All that is read for one member."""
_TAR_GLOBAL_LIMIT = 1000
_FIELD_LIMIT = 100
_PICTURE_RATIO_LIMIT = 10_000

_PICTURES = frozenset(
    ("bmp", "gif", "jpeg", "jpg", "jfif", "png", "ppm", "pgm", "pbm", "tif", "tiff", "webp")
)
_ARCHIVES = frozenset(("zip", "tar", "gz", "tgz", "bz2", "xz", "7z", "rar", "npz"))


def read(path: str, size_bytes: int) -> Iterator[Part]:
    """Yield each image of an archive, the last with a note if there is one, then its arrays."""
    with sizing("an archive"), open_data(path, size_bytes) as file:
        is_zip = file.read(2) == b"PK"
        seen = _Seen("zip" if is_zip else "tar")
        members = _zip_members(file, size_bytes) if is_zip else _tar_members(file, seen)
        # One image is held back: only at the end is it known whether a note belongs to them.
        last: Part | None = None
        for name, member_bytes, look in members:
            part = seen.look(name, member_bytes, look)
            if part is not None:
                if last is not None:
                    yield last
                last = part
        if seen.members >= MEMBER_LIMIT:
            seen.stopped = "stopped: more than 2,000,000 members"
        if last is not None:
            yield replace(last, note=seen.note(), is_exact=seen.stopped is None)
        yield from seen.arrays()


@dataclass(slots=True)
class _Field:
    """Arrays under one field name."""

    files: int = 0
    elements: int | None = 0
    memory_bytes: int | None = None
    shapes: set[tuple[int, ...] | None] = field(default_factory=set)
    note: str | None = None

    def add(self, part: Part, shape: tuple[int, ...]) -> None:
        self.files += 1
        known = self.elements is not None and part.elements is not None
        self.elements = self.elements + part.elements if known else None  # type: ignore[operator]
        if part.memory_bytes is not None:
            self.memory_bytes = (self.memory_bytes or 0) + part.memory_bytes
        if len(self.shapes) < 2:
            self.shapes.add(None if part.shape is None else shape)
        self.note = self.note or part.note


@dataclass(slots=True)
class _Seen:
    """What was found in one archive so far."""

    format: str
    images: int = 0
    damaged: int = 0
    members: int = 0
    has_nested: bool = False
    stopped: str | None = None
    fields: dict[tuple[str, str | None], _Field] = field(default_factory=dict)

    def look(self, name: str, member_bytes: int, look: Look) -> Part | None:
        """Return the part of a image; count everything else."""
        self.members += 1
        base = name.rpartition("/")[2].lower()
        suffix = base.rpartition(".")[2]
        # "__MACOSX/._cat.jpg" is what macOS adds for each file; it holds no image.
        if base.startswith("."):
            return None
        if suffix in _PICTURES:
            part = self._image(name, member_bytes, look)
            self.images += part is not None
            self.damaged += part is None
            return part
        if suffix == "npy":
            self._array(base, member_bytes, look)
        self.has_nested = self.has_nested or suffix in _ARCHIVES
        return None

    def _image(self, name: str, member_bytes: int, look: Look) -> Part | None:
        from oomdoctor.inventory.images import shape_from_bytes

        try:
            found = shape_from_bytes(look(_FIRST_LOOK_BYTES))
            if found is None and member_bytes > _FIRST_LOOK_BYTES:
                found = shape_from_bytes(look(_LOOK_BYTES))
        except Unreadable:
            return None
        if found is None:
            return None
        shape, dtype = found
        elements = element_count(shape)
        if elements > member_bytes * _PICTURE_RATIO_LIMIT:
            return None
        return Part(
            format=self.format,
            kind="image",
            samples=1,
            shape=shape,
            elements=elements,
            dtype=dtype,
            name=name,
            is_compressed=True,
        )

    def _array(self, base: str, member_bytes: int, look: Look) -> None:
        try:
            try:
                header = parse_header(look(_FIRST_LOOK_BYTES))
            except Unreadable:
                header = parse_header(look(HEADER_LIMIT_BYTES + 12))
            part = array_part(header, member_bytes, format=self.format)
        except (Unreadable, UnicodeDecodeError):
            self.damaged += 1
            return
        key = (base.partition(".")[2] if len(self.fields) < _FIELD_LIMIT else "npy", part.dtype)
        self.fields.setdefault(key, _Field()).add(part, header.shape)

    def note(self) -> str | None:
        """Return what is to be said about the archive as a whole."""
        if self.stopped is None and self.damaged:
            return "some members are damaged or not what their names say"
        return self.stopped or (NESTED_NOTE if self.has_nested else None)

    def arrays(self) -> Iterator[Part]:
        """Yield the arrays, those of one field counted together."""
        for (name, dtype), counted in sorted(self.fields.items(), key=lambda item: str(item[0])):
            yield Part(
                format=self.format,
                kind="array",
                samples=counted.files,
                shape=next(iter(counted.shapes)) if len(counted.shapes) == 1 else None,
                elements=counted.elements,
                dtype=dtype,
                name=name,
                memory_bytes=counted.memory_bytes,
                is_compressed=True,
                is_exact=self.stopped is None,
                note=self.note() or counted.note,
            )
        if not self.images and not self.fields:
            raise Unreadable(self.note() or "an archive without images or arrays")


def _zip_members(file: BinaryIO, size_bytes: int) -> Iterator[tuple[str, int, Look]]:
    for member in zips.members(file, size_bytes, limit=MEMBER_LIMIT):
        if not member.is_folder:
            yield member.name, member.unpacked_bytes, _ZipLook(file, member)


@dataclass(slots=True)
class _ZipLook:
    file: BinaryIO
    member: zips.Member

    def __call__(self, limit_bytes: int) -> bytes:
        try:
            return zips.head(self.file, self.member, limit_bytes)
        except (OSError, ValueError, zlib.error):
            raise Unreadable("zip member is damaged") from None


def _tar_members(file: BinaryIO, seen: _Seen) -> Iterator[tuple[str, int, Look]]:
    file.seek(0)
    packing = packing_of(file.read(6))
    file.seek(0)
    stream: Unpacked | None = None
    if packing:
        stream = Unpacked(file, packing, limit_bytes=UNPACK_LIMIT_BYTES, ratio_limit=RATIO_LIMIT)
    bounded = _BoundedReads(stream or file)
    try:
        with tarfile.open(fileobj=bounded, mode="r:") as tar:  # type: ignore[call-overload]
            while (member := tar.next()) is not None and seen.members < MEMBER_LIMIT:
                # tarfile would keep every header it read.
                tar.members = []
                bounded.next_member()
                if len(tar.pax_headers) > _TAR_GLOBAL_LIMIT:
                    raise tarfile.ReadError("too many global headers")
                if member.isreg() and not member.issparse():
                    yield member.name, member.size, _TarLook(bounded, member)
    except (tarfile.TarError, EOFError):
        seen.stopped = (
            "stopped: not a tar file to its end" if seen.members else "not a tar file, or damaged"
        )
    if stream is not None and stream.is_cut:
        seen.stopped = stream.is_cut


@dataclass(slots=True)
class _TarLook:
    file: _BoundedReads
    member: tarfile.TarInfo
    _kept: bytes = b""

    def __call__(self, limit_bytes: int) -> bytes:
        # A packed tar cannot be read twice, so a second look goes on where the first ended.
        wanted = min(limit_bytes, self.member.size)
        if len(self._kept) < wanted:
            self.file.seek(self.member.offset_data + len(self._kept))
            self._kept += self.file.read(wanted - len(self._kept))
        return self._kept


class _BoundedReads:
    """A file that refuses what a hostile header makes tarfile ask for.

    Those are large reads, which take memory, and steps back, which never end.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left_bytes = _TAR_HEADER_LIMIT_BYTES

    def next_member(self) -> None:
        """Allow as much again."""
        self._left_bytes = _TAR_HEADER_LIMIT_BYTES

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= self._left_bytes:
            raise tarfile.ReadError("header too long")
        self._left_bytes -= size
        data: bytes = self._file.read(size)
        return data

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        # One byte back is how tarfile probes for the end of a member.
        if whence != os.SEEK_SET or position < self._file.tell() - 1:
            raise tarfile.ReadError("steps back")
        where: int = self._file.seek(position)
        return where

    def tell(self) -> int:
        where: int = self._file.tell()
        return where
