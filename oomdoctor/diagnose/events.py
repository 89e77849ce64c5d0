"""What a log says, before anyone judges it.

An event is one message that is known: its kind, its line, and the figures it carries. A
dump is what TensorFlow's BFC allocator prints when it fails: who holds the memory, in which sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Place = tuple[int, str]
"""A line number, from 1, and the text of that line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One known message."""

    kind: str
    """A name from the table in `patterns`."""
    line: int
    text: str
    bytes: int | None = None
    """What was asked for, or what is said to be used."""
    is_rounded: bool = False
    """Whether `bytes` was printed for people, such as `3.72GiB`."""
    limit_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    count: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    """`GPU:0` or `CPU:0`."""
    allocator: str | None = None
    op: str | None = None
    name: str | None = None
    """A graphics card, an exception class, or a status word."""

    @property
    def place(self) -> Place:
        """Its line and its text."""
        return (self.line, self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """One report of the BFC allocator."""

    line: int
    allocator: str | None = None
    limit_bytes: int | None = None
    in_use_bytes: int | None = None
    peak_bytes: int | None = None
    largest_bytes: int | None = None
    """The largest allocation it ever made."""
    allocations: int | None = None
    chunks: tuple[tuple[int, int], ...] = ()
    """Pairs of size and count of the chunks in use, as far as they were printed."""
    free_total_bytes: int | None = None
    """The sum of free chunks, where the chunks were printed one by one."""
    free_largest_bytes: int | None = None
    runs: tuple[tuple[int, int], ...] = ()
    """Pairs of bytes and of those in use, by address, where the chunks were printed one by one."""
    sizes: tuple[tuple[int, int, int], ...] = ()
    """Power of two, chunks in use, chunks that are free."""
    sum_bytes: int | None = None
    """The sum of the chunks in use as it is printed, for people."""
    bar: str | None = None
    """The map of memory: `*` used, `x` wasted, `_` free."""
    places: tuple[Place, ...] = ()
    """The lines that matter most in it."""

    @property
    def is_telling(self) -> bool:
        """Whether it holds anything to reason with."""
        has_figures = self.in_use_bytes is not None or self.limit_bytes is not None
        return has_figures or bool(self.chunks) or self.bar is not None

    @property
    def is_complete(self) -> bool:
        """Whether it is surely a dump: limit and use, not a word of some other program."""
        return self.limit_bytes is not None and self.in_use_bytes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Memory in use, as the program itself printed it."""

    line: int
    text: str
    label: str
    """The words around the number, by which figures of one kind are known."""
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One line of a traceback."""

    line: int
    file: str
    source_line: int
    """0 where it is not printed."""
    function: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """All that was understood of a log, bounded however long it was."""

    events: tuple[Event, ...] = ()
    dumps: tuple[Dump, ...] = ()
    figures: tuple[Figure, ...] = ()
    frames: tuple[Frame, ...] = ()
    """The last ones, outermost first."""
    lines: int = 0
    last_progress: int | None = None
    """The last line that shows a run at work: an epoch, a step, a loss."""
    first_progress: int | None = None
    epochs: int = 0
    """The highest epoch that was printed."""
    has_text: bool = False
    notes: tuple[str, ...] = field(default=())

    def of(self, *kinds: str) -> list[Event]:
        """Return the events of these kinds, in the order they were printed."""
        return [event for event in self.events if event.kind in kinds]

    def has(self, *kinds: str) -> bool:
        """Whether there is one of these."""
        return any(event.kind in kinds for event in self.events)


def places(events: Iterable[Event], most: int = 3) -> tuple[Place, ...]:
    """Return the lines of the first few different messages."""
    seen: dict[str, Place] = {}
    for event in events:
        seen.setdefault(event.text[:160], event.place)
        if len(seen) >= most:
            break
    return tuple(seen.values())
