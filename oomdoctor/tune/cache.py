"""Answers that were found before, one small file each, in the user's cache folder.

The name of a file is the digest of the question. A file is written whole under another name and
then renamed, so that runs at the same time cannot tear it. What cannot be read, or is no answer
to this question, is as good as absent; a folder that cannot be written is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from oomdoctor.facts import Tuning

FORMAT = 2
"""Part of every question: answers of another format, or found in another way, do not count."""

MAX_FILES = 200
MAX_BYTES = 256 * 1024
"""No answer is larger; what is, was not written here."""


class _Entry(msgspec.Struct):
    question: str
    tuning: Tuning


def folder() -> Path:
    """Return where answers are kept: under `XDG_CACHE_HOME`, or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path("~/.cache").expanduser()
    return base / "oomdoctor" / "tune"


def digest(question: Mapping[str, Any]) -> str:
    """Return the name of a question: the same for the same values, in any order."""
    text = json.dumps({**question, "format": FORMAT}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def find(question: str) -> Tuning | None:
    """Return what was found before, or None."""
    path = folder() / f"{question}.json"
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        entry = msgspec.json.decode(path.read_bytes(), type=_Entry)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    tuning = entry.tuning
    ran = {t.batch_size for t in tuning.trials if t.outcome == "fits" and not t.is_probe}
    if entry.question != question or tuning.batch_size < 1 or tuning.batch_size not in ran:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    return tuning


def keep(question: str, tuning: Tuning) -> None:
    """Keep an answer, and drop the oldest where there are too many."""
    target = folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target, suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(_Entry(question, tuning)))
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
            ages.append((path.stat().st_mtime, path))
    for _, path in sorted(ages)[:-MAX_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()
