"""A recording as a folder: written line by line, loaded into a `Recording`.

The watcher writes `outside.jsonl` and the program `inside.jsonl`, so that no two processes share
a file. Every line is one `write` to a file opened for appending: what was written before a
`kill -9` is there after it.

A recording may be a stranger's. Nothing is written through a link in it, nor into a file that was
there, and only regular files are read, within bounds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from oomdoctor.diagnose.sources import Regular, open_log
from oomdoctor.errors import InputError
from oomdoctor.profile.assemble import Assembly
from oomdoctor.profile.records import MOST_LINE_BYTES, AnyLine, decode, encode
from oomdoctor.recording import Recording

OUTSIDE = "outside.jsonl"
INSIDE = "inside.jsonl"
MOST_BYTES = 16 << 30
"""Read of each file: a month of the busiest program."""


class Appender:
    """Appends lines to one file of a recording. Never raises once it is open."""

    def __init__(self, path: str | os.PathLike[str], *, is_new: bool = False) -> None:
        """Open the file.

        Args:
            path: The file.
            is_new: Whether it must not be there yet.

        Raises:
            OSError: It is there already, it is a link or a pipe, or it cannot be made.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        flags |= os.O_NONBLOCK | (os.O_EXCL if is_new else 0)
        self._file = os.open(path, flags, 0o644)
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            os.close(self._file)
            raise FileExistsError(errno.EEXIST, "not a regular file", os.fspath(path))
        self.failed = False
        """Whether a line was lost, as on a full disk."""

    def write(self, line: AnyLine) -> None:
        """Append one line."""
        data = encode(line)
        if len(data) > MOST_LINE_BYTES:
            self.failed = True
            return
        try:
            written = os.write(self._file, data)
            if written != len(data):  # a full disk: end the torn line, so that the next is whole
                self.failed = True
                os.write(self._file, b"\n")
        except OSError:
            self.failed = True

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def load(folder: str | os.PathLike[str]) -> Recording:
    """Return the recording in a folder, also one that was cut off.

    Raises:
        InputError: The folder holds no recording.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(f"{place} is not a folder: give the one that `profile` wrote.")
    outside = place / OUTSIDE
    if not outside.is_file():
        raise InputError(f"{place} holds no recording: there is no {OUTSIDE} in it.")
    assembly = Assembly()
    notes: list[str] = []
    for path in (outside, place / INSIDE):
        if path.is_file():
            for line in _lines(path, notes):
                assembly.add(line)
    if assembly.run is None:
        raise InputError(f"{outside} does not begin with the line that a recording begins with.")
    recording = assembly.recording()
    return replace(recording, notes=(*recording.notes, *notes))


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """Give a new file to write to, which takes the place of `path` when it is whole.

    A link at `path` is replaced, not followed. If writing fails, as on a full disk, nothing is left
    and `path` is as it was.

    Example:
        with replacing(folder / "report.html") as new:
            write(page, new)
    """
    place = Path(path)
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=".part")
    try:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(descriptor, 0o666 & ~mask)
        os.close(descriptor)
        yield name
        os.replace(name, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _lines(path: Path, notes: list[str]) -> Iterator[AnyLine | None]:
    """Yield each line; None for one that cannot be believed. A torn last line is left out."""
    try:
        file = open_log(str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
    try:
        source = Regular(file, MOST_BYTES)
        rest, is_too_long = b"", False
        while block := source.read(1 << 19):
            *whole, rest = (rest + block).split(b"\n")
            if whole and is_too_long:
                whole[0], is_too_long = b"!", False
            for line in whole:
                if line:
                    yield decode(line) if len(line) <= MOST_LINE_BYTES else None
            if len(rest) > MOST_LINE_BYTES:
                rest, is_too_long = b"", True
        if source.is_cut:
            notes.append(f"{path.name} is very long: only its beginning and its end were read.")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
    finally:
        os.close(file)
