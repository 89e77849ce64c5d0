"""What the names of files, folders and arrays say: a split, a class, a shard of a set."""

from __future__ import annotations

import re

MAX_SUFFIX = 8
"""Longer than any format's own suffix: what follows the last dot is then a shard's number."""

_SPLITS = {
    "train": "train",
    "training": "train",
    "trn": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "tst": "test",
}
_DIGITS = re.compile(r"\d+")
_NOT_LETTERS = re.compile(r"[^a-z]+")


def words(name: str) -> list[str]:
    """Return the lower-case words of a file, folder or array name."""
    return [word for word in _NOT_LETTERS.split(name.lower()) if word]


def split_of(name: str) -> str | None:
    """Return the split a name speaks of, if any."""
    return next((_SPLITS[word] for word in words(name) if word in _SPLITS), None)


def place_of(parts: tuple[str, ...]) -> tuple[str | None, str, str | None]:
    """Return the split, the folder down to it, and the class that a folder's path names."""
    for depth, part in enumerate(parts):
        if part.lower() in _SPLITS:
            below = parts[depth + 1 :]
            return _SPLITS[part.lower()], "/".join(parts[: depth + 1]), below[0] if below else None
    return None, ".", parts[0] if parts else None


def shard_name(name: str) -> str:
    """Return a file name with its numbers as `*`, alike for all shards of one set.

    Example:
        >>> shard_name("part-00017.h5"), shard_name("a.tfrecord-00000-of-00010")
        ('part-*.h5', 'a.tfrecord-*-of-*')
    """
    stem, dot, suffix = name.rpartition(".")
    if dot and len(suffix) <= MAX_SUFFIX:
        return _DIGITS.sub("*", stem) + dot + suffix
    return _DIGITS.sub("*", name)
