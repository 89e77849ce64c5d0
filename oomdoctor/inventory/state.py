"""A state file: what earlier scans read, so that unchanged files are not opened again.

It is an SQLite database with one row for each file: a digest of its path, a stamp that changes when
the file does (size and time of the last change, or the server's etag), and what was found. A scan
that was interrupted goes on from it, and a scan that is repeated opens only what is new.

It is decoded into the types that readers give, and nothing else; a file that another version wrote
is started again.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from oomdoctor._version import __version__
from oomdoctor.errors import InputError
from oomdoctor.inventory import walk
from oomdoctor.inventory.address import is_address
from oomdoctor.inventory.opening import join
from oomdoctor.inventory.parts import Part

_FORMAT = f"oomdoctor scan 1, {__version__}"
"""Readers of another version may find something else."""

_ROWS_AT_ONCE = 500
_WRITE_EVERY = 20_000
_LARGEST_ROW_BYTES = 16 * 1024 * 1024
"""An archive of many images is read again rather than kept."""


class Row(msgspec.Struct, omit_defaults=True):
    """What was found in one file."""

    image: tuple[tuple[int, int, int, int], int] | None = None
    reason: str | None = None
    parts: list[tuple[Part | str, int]] | None = None


class ScanState:
    """Remembers what was read of files that have not changed since."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a state file, or begin one.

        Raises:
            InputError: There is something else at the path.
        """
        self._path = Path(path)
        if self._path.is_symlink() or (self._path.exists() and not self._path.is_file()):
            raise InputError(f"{path} is not a file of its own: give another name for the state.")
        try:
            self._rows = sqlite3.connect(self._path, check_same_thread=False)
            self._begin()
        except sqlite3.Error:
            raise InputError(
                f"{path} is not a state file, or cannot be written: give another name."
            ) from None
        self._pending: list[tuple[bytes, str, bytes]] = []
        self.reused = 0
        """Files that were not opened again."""

    def _begin(self) -> None:
        rows = self._rows
        version = rows.execute("PRAGMA user_version").fetchone()[0]
        tables = {name for (name,) in rows.execute("SELECT name FROM sqlite_master")}
        if tables - {"about", "files", "sqlite_autoindex_files_1"} and not version:
            raise sqlite3.DatabaseError("not a state file")
        rows.execute("PRAGMA journal_mode=WAL")
        rows.execute("CREATE TABLE IF NOT EXISTS about (format TEXT)")
        if rows.execute("SELECT format FROM about").fetchall() != [(_FORMAT,)]:
            rows.execute("DROP TABLE IF EXISTS files")
            rows.execute("DELETE FROM about")
            rows.execute("INSERT INTO about VALUES (?)", (_FORMAT,))
        rows.execute(
            "CREATE TABLE IF NOT EXISTS files "
            "(path BLOB PRIMARY KEY, stamp TEXT, found BLOB) WITHOUT ROWID"
        )
        rows.commit()

    # ------------------------------------------------------------------ what is known

    def images(self, chunk: walk.Chunk) -> dict[str, Any]:
        """Return what is known of a chunk's images, by name."""
        known: dict[str, Any] = {}
        for name, row in self._known(chunk, chunk.images).items():
            if row.image is not None or row.reason is not None:
                known[name] = row.reason if row.image is None else row.image
        self.reused += len(known)
        return known

    def parts(self, chunk: walk.Chunk, name: str) -> list[tuple[Part | str, int]] | None:
        """Return what is known of another file."""
        row = self._known(chunk, [name]).get(name)
        if row is None or row.parts is None:
            return None
        self.reused += 1
        return row.parts

    def _known(self, chunk: walk.Chunk, names: list[str]) -> dict[str, Row]:
        if self._pending:
            self._write()
        stamps = {key: (name, stamp) for name, key, stamp in self._stamped(chunk, names)}
        known: dict[str, Row] = {}
        keys = list(stamps)
        for start in range(0, len(keys), _ROWS_AT_ONCE):
            some = keys[start : start + _ROWS_AT_ONCE]
            marks = ",".join("?" * len(some))
            query = f"SELECT path, stamp, found FROM files WHERE path IN ({marks})"
            for key, stamp, found in self._rows.execute(query, some):
                name, now = stamps[key]
                if stamp != now:
                    continue
                try:
                    known[name] = msgspec.json.decode(found, type=Row)
                except msgspec.MsgspecError:
                    continue  # it is read again
        return known

    def _stamped(self, chunk: walk.Chunk, names: list[str]) -> list[tuple[str, bytes, str]]:
        """Return name, key and stamp of each file that says when it changed."""
        stamped = []
        for name in names:
            path = join(chunk.folder, name)
            if is_address(path):
                stamp = chunk.stamps.get(name)
                if not stamp:
                    continue
                stamp += f" {chunk.sizes.get(name)}"
            else:
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                stamp = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
                path = os.path.realpath(path)
            stamped.append(
                (name, hashlib.blake2b(os.fsencode(path), digest_size=16).digest(), stamp)
            )
        return stamped

    # ------------------------------------------------------------------ what is new

    def keep_images(self, chunk: walk.Chunk, found: list[tuple[str, Any]]) -> None:
        """Remember images, by name."""
        rows = {}
        for name, what in found:
            rows[name] = Row(reason=what) if isinstance(what, str) else Row(image=what)
        self._keep(chunk, rows)

    def keep_parts(self, chunk: walk.Chunk, name: str, parts: list[Any]) -> None:
        """Remember another file."""
        self._keep(chunk, {name: Row(parts=parts)})

    def _keep(self, chunk: walk.Chunk, rows: dict[str, Row]) -> None:
        for name, key, stamp in self._stamped(chunk, list(rows)):
            try:
                found = msgspec.json.encode(rows[name])
            except UnicodeEncodeError:
                continue  # a name inside that no text can have
            if len(found) <= _LARGEST_ROW_BYTES:
                self._pending.append((key, stamp, found))
        if len(self._pending) >= _WRITE_EVERY:
            self._write()

    def _write(self) -> None:
        with self._rows:
            self._rows.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", self._pending)
        self._pending.clear()

    def close(self) -> None:
        """Write what is not written yet."""
        self._write()
        self._rows.close()
