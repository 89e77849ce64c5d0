"""Answers that were found before, one small file each, in the user's cache folder.

The name of a file is the digest of the question. A file is written whole under another name and
then renamed, so that runs at the same time cannot tear it. What cannot be read is as good as
absent; a folder that cannot be written is left alone.

A cache folder may be shared, restored in CI or written by another program: only regular files of
this user count, and what they hold is for the reader to check.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

MAX_FILES = 200
"""More are not kept: the least recently used go."""


def folder(kind: str) -> Path:
    """Return where answers of a kind are kept: under `XDG_CACHE_HOME`, or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path(os.path.expanduser("~/.cache"))
    return base / "oomdoctor" / kind


def read(kind: str, question: str, *, most: int) -> bytes | None:
    """Return what is kept under a question, if it is at most so many bytes, or None."""
    path = folder(kind) / f"{question}.json"
    try:
        # A link is not followed, and a pipe does not block.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            if not is_ours or status.st_size > most:
                return None
            content = file.read(most)
        os.utime(path, follow_symlinks=False)
    except OSError:
        return None
    return content


def write(kind: str, question: str, content: bytes) -> None:
    """Keep an answer, and drop the oldest if there are too many."""
    target = folder(kind)
    try:
        target.parent.parent.mkdir(parents=True, exist_ok=True)
        for place in (target.parent, target):
            place.mkdir(mode=0o700, exist_ok=True)
        if target.is_symlink() or target.stat().st_uid != os.geteuid():
            return
        descriptor, name = tempfile.mkstemp(dir=target, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, target / f"{question}.json")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        _drop_oldest(target)
    except OSError:
        return


def _drop_oldest(target: Path) -> None:
    ages = []
    for path in target.iterdir():
        with contextlib.suppress(OSError):
            ages.append((path.stat(follow_symlinks=False).st_mtime, path))
    for _, path in sorted(ages)[:-MAX_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()
