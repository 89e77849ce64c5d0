"""What was found in source code."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor._show import Readable


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMatch:
    """A place in source code where a check found something."""

    check: str
    """Which check; a rule with the same word says what it means."""
    file: str
    line: int
    """From 1; within the cell, in a notebook."""
    column: int
    """From 1, in characters."""
    cell: int | None = None
    """The cell of a notebook, from 1."""
    text: str = ""
    """The code itself, on one line, shortened."""
    name: str | None = None
    """The variable it is about, where there is one."""
    count: int | None = None
    """The number it is about, such as a size of a buffer."""
    parts: int | None = None
    """The number of replicas or parts it is about."""
    detail: str | None = None
    """A further word by which a rule can choose what to say."""
    size_bytes: int | None = None
    """What it takes, where the code says so."""
    size: str | None = None
    """How that is computed, as a sentence that may follow another."""
    numpy: str | None = None
    """What NumPy is called in the file, where a change needs it."""
    is_fixable: bool = False
    """Whether `--fix` can change it safely."""
    ignored: tuple[str, ...] = ()
    """Rules that a comment beside it suppresses; `*` is all of them."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scripts(Readable):
    """What was found in source code."""

    files: int
    lines: int
    unchecked: int = 0
    """Files that could not be read, or not whole; the notes say why."""
    matches: tuple[CodeMatch, ...] = ()
    """By file, line and column."""
    notes: tuple[str, ...] = ()
    """Files that could not be read or are not Python."""
