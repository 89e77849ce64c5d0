"""Which files are logs, and how they are opened: nothing that blocks, never ends, or acts.

Only regular files are opened, and the pipes that a shell makes for `<(command)`. A device would
never end, or do something when it is opened; a named pipe blocks until somebody writes. In a
folder, links that lead out of it are not followed. Every file is asked again what it is once it is
open, because it may have been replaced in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from oomdoctor.errors import InputError

LOG_SUFFIXES = (".log", ".txt", ".out", ".err", ".stdout", ".stderr", ".gz", ".ipynb", "")
MOST_FILES = 2000
MOST_ENTRIES = 100_000
"""Entries of folders that are looked at."""
MOST_ZEROS = 64 << 20
"""Zero bytes on end after which nothing else is expected, as from `/dev/zero`."""
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)
_SHELL_PIPES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")


@dataclass(frozen=True, slots=True)
class Source:
    """A log to be read."""

    path: str
    """`-` is standard input."""
    is_named: bool = True
    """Whether the user named it, so that failing to read it is an error and not a note."""


def find_logs(paths: Iterable[str | os.PathLike[str]], notes: list[str]) -> Iterator[Source]:
    """Yield the logs that paths name; folders are searched.

    Args:
        paths: Files and folders; `-` is standard input.
        notes: What was passed over is added here.

    Raises:
        InputError: A folder holds no logs.
    """
    for path in [os.fsdecode(path) for path in paths]:
        if path == "-" or not os.path.isdir(path):
            yield Source(path)
            continue
        found = sorted(_below(path, notes))
        if not found:
            raise InputError(f"{path} holds no logs: they end in .log, .out, .err, .txt or .gz.")
        if len(found) > MOST_FILES:
            notes.append(f"{path} holds {len(found):,} logs: the first {MOST_FILES:,} were read.")
        yield from (Source(file, is_named=False) for file in found[:MOST_FILES])


def _below(folder: str, notes: list[str]) -> list[str]:
    """Return the logs in a folder and those below it."""
    root = os.path.realpath(folder)
    found: list[str] = []
    waiting = [folder]
    entries = led_out = 0
    while waiting and entries < MOST_ENTRIES:
        try:
            with os.scandir(waiting.pop()) as inside:
                for entry in inside:
                    entries += 1
                    if entries >= MOST_ENTRIES:
                        notes.append(f"{folder} holds over {MOST_ENTRIES:,} files: not all seen.")
                        break
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif is_log(entry.name) and entry.is_file():
                        leads_out = entry.is_symlink() and not _is_below(entry.path, root)
                        led_out += leads_out
                        if not leads_out:
                            found.append(entry.path)
        except OSError as error:
            notes.append(f"{error.filename or folder} was passed over ({error.strerror}).")
    if led_out:
        notes.append(f"{led_out:,} links lead out of {folder}: name what they lead to, to read it.")
    return found


def _is_below(path: str, root: str) -> bool:
    return os.path.realpath(path).startswith(root.rstrip(os.sep) + os.sep)


def is_log(name: str) -> bool:
    """Return whether a file in a folder has the name of a log."""
    suffix = os.path.splitext(name)[1].lower()
    # Slurm and LSF name logs job.o1234 and job.e1234.
    is_job = suffix[:2] in (".o", ".e") and suffix[2:].isdigit()
    return (suffix in LOG_SUFFIXES or is_job) and not name.startswith(".")


def open_log(path: str) -> int:
    """Return a descriptor of a file that can be read to its end.

    Raises:
        InputError: It is a device, a socket, a named pipe or a folder.
        OSError: It cannot be opened.
    """
    _must_be_a_file(path, os.stat(path).st_mode)
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    file = os.open(path, flags)
    try:
        _must_be_a_file(path, os.fstat(file).st_mode)
        os.set_blocking(file, True)
    except BaseException:
        os.close(file)
        raise
    return file


def _must_be_a_file(path: str, mode: int) -> None:
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and path.startswith(_SHELL_PIPES)):
        return
    kind = next((name for test, name in _KINDS if test(mode)), "no file")
    raise InputError(f"{path} is {kind}: give a log file, or - to read standard input.")


class Regular:
    """A regular file as a stream, without its holes.

    A log that was cut off while its writer went on has a hole of any size at its start.
    Of a file with more data than `most` bytes the beginning and the end are read.
    """

    def __init__(self, file: int, most: int) -> None:
        self._file = file
        self._at = 0
        self._size = os.fstat(file).st_size
        self._most = most
        self.taken = 0
        """Bytes that were read."""
        self.is_cut = False
        """Whether its middle was left out."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; none at the end, and when `most` were read."""
        if not self.is_cut and self.taken >= self._most // 4:
            rest = self._most - self.taken
            if self._data_left() > rest:
                self.is_cut = True
                self._at = max(self._at, self._size - rest)
        try:
            self._at = os.lseek(self._file, self._at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                return b""
        except AttributeError:  # systems that do not know holes
            pass
        most = max(0, self._most - self.taken)
        block = os.pread(self._file, min(size if size > 0 else 1 << 19, most), self._at)
        self._at += len(block)
        self.taken += len(block)
        return block

    def _data_left(self) -> int:
        stored = os.fstat(self._file).st_blocks * 512
        return min(self._size - self._at, max(0, stored - self.taken))


class Endless:
    """A stream that may never end, as far as it is worth reading."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._most = most
        self._zeros = 0
        self.taken = 0
        self.is_cut = False

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes; none at the end, and where it is cut."""
        self.is_cut = self.taken >= self._most or self._zeros >= MOST_ZEROS
        if self.is_cut:
            return b""
        block: Any = self._stream.read(min(size if size > 0 else 1 << 19, self._most - self.taken))
        block = block or b""  # None where nothing has come yet and nobody waits
        self.taken += len(block)
        self._zeros = 0 if block.strip(b"\0") else self._zeros + len(block)
        return bytes(block)
