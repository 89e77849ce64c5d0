"""A recording as a folder: written line by line, loaded into a `Recording`.

The watcher writes `outside.jsonl` and the program `inside.jsonl`, so that no two processes share
a file. Every line is one `write` to a file opened for appending: what was written before a
`kill -9` is there after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from oomdoctor.errors import InputError
from oomdoctor.profile.assemble import Assembly
from oomdoctor.profile.records import MOST_LINE_BYTES, AnyLine, decode, encode
from oomdoctor.recording import Recording

OUTSIDE = "outside.jsonl"
INSIDE = "inside.jsonl"


class Appender:
    """Appends lines to one file of a recording. Never raises once it is open."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
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
    for path in (outside, place / INSIDE):
        if path.is_file():
            for line in _lines(path):
                assembly.add(line)
    if assembly.run is None:
        raise InputError(f"{outside} does not begin with the line that a recording begins with.")
    return assembly.recording()


def _lines(path: Path) -> Iterator[AnyLine | None]:
    """Yield each line; None for one that cannot be believed. A torn last line is left out."""
    try:
        with path.open("rb") as file:
            while data := file.readline(MOST_LINE_BYTES + 1):
                if not data.endswith(b"\n"):
                    if len(data) <= MOST_LINE_BYTES:
                        return  # torn by the end of the writer
                    while data and not data.endswith(b"\n"):
                        data = file.readline(MOST_LINE_BYTES)
                    yield None
                elif data != b"\n":
                    yield decode(data)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}).") from error
