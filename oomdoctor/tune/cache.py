"""Answers that were found before, one small file each, in the user's cache folder.

The name of a file is the digest of the question. A file is written whole under another name and
then renamed, so that runs at the same time cannot tear it. What cannot be read, or is no answer
to this question, is as good as absent; a folder that cannot be written is left alone.

A cache folder may be shared, restored in CI or written by another program, so nothing in it is
believed for being there: only a regular file of this user counts, byte for byte as it is written
here, with an answer that is in bounds and that the question accepts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from oomdoctor.facts import SizeTrial, Tuning

FORMAT = 4
"""Part of every question: answers of another format, or found in another way, do not count."""

MAX_FILES = 200
MAX_BYTES = 256 * 1024
"""No answer is larger; what is, was not written here."""
MOST_BYTES_OF_MEMORY = 1 << 60
LARGEST_BATCH = 1 << 40
MOST_TEXT = 1000
_OUTCOMES = frozenset(("fits", "oom", "died"))


class _Entry(msgspec.Struct):
    question: str
    tuning: Tuning


def folder() -> Path:
    """Return where answers are kept: under `XDG_CACHE_HOME`, or `~/.cache`."""
    home = os.environ.get("XDG_CACHE_HOME")
    base = Path(home) if home and os.path.isabs(home) else Path(os.path.expanduser("~/.cache"))
    return base / "oomdoctor" / "tune"


def digest(question: Mapping[str, Any]) -> str:
    """Return the name of a question: the same for the same values, in any order."""
    text = json.dumps({**question, "format": FORMAT}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def find(question: str, *, accepts: Callable[[Tuning], bool] | None = None) -> Tuning | None:
    """Return what was found before, or None.

    Args:
        question: Its digest.
        accepts: Whether an answer is one to this question: within its bounds of the batch size,
            for its memory and objective.
    """
    path = folder() / f"{question}.json"
    try:
        raw = _read(path)
        entry = msgspec.json.decode(raw, type=_Entry)
        # An answer that was written here is written the same way again.
        is_ours = msgspec.json.encode(entry) == raw
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not is_ours or entry.question != question or not _is_sound(entry.tuning):
        return None
    if accepts is not None and not accepts(entry.tuning):
        return None
    with contextlib.suppress(OSError):
        os.utime(path, follow_symlinks=False)  # the least recently used go first
    return entry.tuning


def _read(path: Path) -> bytes:
    """Return the content of a small regular file of this user; raise OSError for all else."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise OSError("not a file of this user")
        if status.st_size > MAX_BYTES:
            raise OSError("no answer is so large")
        return os.read(file, MAX_BYTES + 1)
    finally:
        os.close(file)


def _is_sound(tuning: Tuning) -> bool:
    """Whether an answer can have come from a search."""
    sizes = (tuning.peak_bytes, tuning.budget_bytes, tuning.target_bytes)
    texts = (tuning.objective, tuning.limited_by, tuning.device or "", *tuning.notes)
    ran = {t.batch_size for t in tuning.trials if t.outcome == "fits"}
    return (
        tuning.batch_size in ran
        and all(0 <= size <= MOST_BYTES_OF_MEMORY for size in sizes)
        and tuning.target_bytes <= tuning.budget_bytes
        and tuning.replicas >= 1
        and all(len(text) <= MOST_TEXT and text.isprintable() for text in texts)
        and all(map(_is_sound_trial, tuning.trials))
    )


def _is_sound_trial(trial: SizeTrial) -> bool:
    return (
        1 <= trial.batch_size <= LARGEST_BATCH
        and trial.outcome in _OUTCOMES
        and 0 <= (trial.peak_bytes or 0) <= MOST_BYTES_OF_MEMORY
        and (trial.seconds or 0) >= 0
        and (trial.samples_per_second or 0) >= 0
    )


def keep(question: str, tuning: Tuning) -> None:
    """Keep an answer, and drop the oldest where there are too many."""
    target = folder()
    try:
        target.parent.parent.mkdir(parents=True, exist_ok=True)
        for place in (target.parent, target):
            place.mkdir(mode=0o700, exist_ok=True)
        if target.is_symlink() or target.stat().st_uid != os.geteuid():
            return
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
            ages.append((path.stat(follow_symlinks=False).st_mtime, path))
    for _, path in sorted(ages)[:-MAX_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()
