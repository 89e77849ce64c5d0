"""Lines in, a `Log` out: every known message as an event, in memory that does not grow.

Of each kind of event the first and the latest are kept. Lines that are not known are counted
and forgotten.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from oomdoctor.diagnose.bfc_dump import DumpReader
from oomdoctor.diagnose.events import Dump, Event, Figure, Frame, Log
from oomdoctor.diagnose.figures import find_figures
from oomdoctor.diagnose.pattern import Pattern
from oomdoctor.diagnose.patterns import NEEDLES, ROOTS
from oomdoctor.diagnose.request import FAILURES
from oomdoctor.diagnose.sizes import dtype_name, printed_bytes, printed_shape
from oomdoctor.units import GIB, KIB, MIB

_MOST_OF_A_KIND = 40
_MOST_FIGURES = 4096
_MOST_TEXT = 400
_MOST_WRAPPED = 2000
_MARGIN = " \t#>*|/"
_OPEN = re.compile(
    r"(?:trying to|trying to allocate|oom when|when allocating|allocating tensor|tensor with"
    r"|failed to allocate|unable to|unable to allocate|out of memory while|allocation of \d{1,20})"
    r"\s*\Z"
)
"""How the first half of a message ends where something has wrapped it."""
_PROGRESS_WORDS = ("epoch", "loss", "/step", "it/s", "step", "accuracy", "[==")
_PROGRESS = re.compile(
    r"\bepoch[ #:=]{1,3}(?P<epoch>\d{1,7})|\b\d{1,9}/\d{1,9} ?\[|\bloss\b ?[:=]|global_step/sec"
    r"|\bstep[ :=#]{1,3}\d|\b(?:it/s|s/it)\b|\baccuracy\b ?[:=]|\bacc\b ?[:=]",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r'File "(?P<file>[^"\n]{1,400})", line (?P<line>\d{1,7})(?:, in (?P<function>[^\s(]{1,120}))?'
    r"|\bFile (?P<file2>[^\s\"]{1,400}\.py):(?P<line2>\d{1,7})"
    r"(?:, in (?P<function2>[^\s(]{1,120}))?"
    r"|(?P<file3>Cell In ?\[\d{1,6}\]), line (?P<line3>\d{1,7})"
    r"|\(defined at (?P<file4>[^()\s]{1,300}):(?P<line4>\d{1,7})\)"
    # A notebook of old shows the lines around, and not the number beside the file.
    r"|^(?P<file5>\S{1,300}\.py) in (?P<function5>\w{1,120})\("
)


def collect(lines: Iterable[tuple[int, str]], notes: Iterable[str] = ()) -> Log:
    """Return what the lines say.

    Args:
        lines: Pairs of line number and text, from `read`.
        notes: What the reader has to say; read when the lines have come to an end.
    """
    collector = _Collector()
    for number, text in lines:
        collector.take(number, text)
    return collector.log(tuple(notes))


class _Collector:
    def __init__(self) -> None:
        self._first: dict[str, list[Event]] = {}
        self._last: dict[str, deque[Event]] = {}
        self._dumps = DumpReader()
        self._figures: list[Figure] = []
        self._figure_stride = 1
        self._figures_seen = 0
        self._frames: deque[Frame] = deque(maxlen=200)
        self._lines = 0
        self._first_progress: int | None = None
        self._last_progress: int | None = None
        self._epochs = 0
        self._has_text = False
        self._half = ""

    def take(self, number: int, text: str) -> None:
        self._lines = max(self._lines, number)
        if not text or text.isspace():
            return
        self._has_text = True
        if self._dumps.feed(number, text):
            return
        low = text.lower()
        if "line " in text or ".py:" in text or "(defined at" in text or ".py in " in text:
            self._frame(number, text)
        known = self._messages(number, text, low)
        if not known:
            self._unknown(number, text, low)

    def _messages(self, number: int, text: str, low: str) -> bool:
        """Keep what the line says; return whether that is anything."""
        if self._half:
            text, self._half = f"{self._half} {text.lstrip(_MARGIN)}"[:_MOST_WRAPPED], ""
            low = text.lower()
        if not _may_be_known(low):
            return False
        if _OPEN.search(low, max(0, len(low) - 60)):
            self._half = text.rstrip()[-_MOST_WRAPPED:]
            return True
        return self._meanings(number, text, low)

    def _meanings(self, number: int, text: str, low: str) -> bool:
        taken = set()
        for needle, place, pattern in NEEDLES:
            if needle in low and place not in taken:
                event = _match(pattern, number, text, low)
                if event is not None:
                    taken.add(place)
                    self._keep(event)
        return bool(taken)

    def _unknown(self, number: int, text: str, low: str) -> None:
        """Look at a line that is no message: progress, or a figure."""
        if any(word in low for word in _PROGRESS_WORDS):
            progress = _PROGRESS.search(text)
            if progress:
                self._last_progress = number
                self._first_progress = self._first_progress or number
                if progress["epoch"]:
                    self._epochs = max(self._epochs, int(progress["epoch"]))
        for figure in find_figures(number, text[:_MOST_TEXT], low):
            self._figures_seen += 1
            if self._figures_seen % self._figure_stride == 0:
                self._figures.append(figure)
            if len(self._figures) > _MOST_FIGURES:
                # Half of them show the same growth.
                self._figures = self._figures[::2]
                self._figure_stride *= 2

    def _frame(self, number: int, text: str) -> None:
        match = _FRAME.search(text)
        if match:
            groups = match.groupdict()
            file = next(filter(None, (groups[f"file{n}"] for n in ("", 2, 3, 4, 5))))
            line = next(filter(None, (groups[f"line{n}"] for n in ("", 2, 3, 4))), "0")
            function = match["function"] or match["function2"] or match["function5"]
            frame = Frame(line=number, file=file, source_line=int(line), function=function)
            self._frames.append(frame)

    def _keep(self, event: Event) -> None:
        if event.kind == "bfc_not_failure" and event.bytes is None:
            event = self._taken_back(event)
        if event.kind == "bfc_failure":
            self._dumps.failed(event.line, event.allocator)
        first = self._first.setdefault(event.kind, [])
        if len(first) < _MOST_OF_A_KIND:
            first.append(event)
        else:
            self._last.setdefault(event.kind, deque(maxlen=_MOST_OF_A_KIND)).append(event)

    def _taken_back(self, event: Event) -> Event:
        """The failure that the line before announced, which was none: logs are wrapped."""
        for kept in (self._last, self._first):
            failures = kept.get("bfc_failure")
            if failures and 0 < event.line - failures[-1].line <= 3:
                return replace(failures.pop(), kind=event.kind)
        return event

    def log(self, notes: tuple[str, ...]) -> Log:
        self._meanings(self._lines, self._half, self._half.lower())
        self._dumps.close()
        events = [event for kept in (self._first, self._last) for k in kept.values() for event in k]
        if not any(event.kind in FAILURES for event in events):
            # The log was cut, and what the allocator prints after a failure is left.
            events += [_dump_event(dump) for dump in self._dumps.dumps if dump.is_complete]
        return Log(
            events=tuple(sorted(events, key=lambda event: event.line)),
            dumps=tuple(self._dumps.dumps),
            figures=tuple(self._figures),
            frames=tuple(self._frames),
            lines=self._lines,
            first_progress=self._first_progress,
            last_progress=self._last_progress,
            epochs=self._epochs,
            has_text=self._has_text,
            notes=notes,
        )


def _dump_event(dump: Dump) -> Event:
    text = dump.places[0][1] if dump.places else "BFCAllocator dump"
    return Event(kind="dump", line=dump.line, text=text.strip(), allocator=dump.allocator)


def _may_be_known(low: str) -> bool:
    # A loop of its own: a generator inside any() takes three times as long.
    for root in ROOTS:  # noqa: SIM110
        if root in low:
            return True
    return False


def _match(pattern: Pattern, number: int, text: str, low: str) -> Event | None:
    if pattern.unless and any(word in low for word in pattern.unless):
        return None
    match = pattern.regex.search(text)
    if match is None:
        return None
    start = max(0, min(match.start() - 120, len(text) - _MOST_TEXT))
    return Event(
        kind=pattern.kind,
        line=number,
        text=text[start : start + _MOST_TEXT].strip(),
        **_fields(match.groupdict()),
    )


def _limit_bytes(size: int | None) -> int | None:
    """A limit; what the kernel prints where there is none is far beyond any machine."""
    return None if size is None or size >= 1 << 60 else size


def _slurm_unit(limit: int) -> int:
    """Slurm printed KiB and later bytes, without a unit; limits are set in whole MiB."""
    return 1 if limit % MIB == 0 and limit >= 4 * GIB else KIB


def _fields(groups: dict[str, str | None]) -> dict[str, Any]:
    """Return the fields of an event by the names of a pattern's groups."""
    exact = groups.get("n") or groups.get("n2")
    size = groups.get("size") or groups.get("size2")
    used = groups.get("used")
    fields: dict[str, Any] = {}
    if exact:
        fields["bytes"] = int(exact)
    elif groups.get("kib"):
        fields["bytes"] = int(groups["kib"] or 0) * KIB
    elif size or used:
        fields["bytes"] = printed_bytes(size or used)
        fields["is_rounded"] = not (size or used or "").rstrip("bB ").isdigit()
    if groups.get("mb"):
        fields["limit_bytes"] = int(groups["mb"] or 0) * MIB
    limit = groups.get("limitn") or groups.get("limit") or groups.get("limit2")
    if limit:
        fields["limit_bytes"] = _limit_bytes(printed_bytes(limit))
    if groups.get("limitkib"):
        unit = _slurm_unit(int(groups["limitkib"] or 0))
        fields["bytes"] = int(groups["usedkib"] or 0) * unit
        fields["limit_bytes"] = int(groups["limitkib"] or 0) * unit
    if groups.get("limitmib"):
        fields["bytes"] = int(groups["usedmib"] or 0) * MIB
        fields["limit_bytes"] = int(groups["limitmib"] or 0) * MIB
    if groups.get("totalmib"):
        fields["total_bytes"] = int(groups["totalmib"] or 0) * MIB
        fields["bytes"] = int(exact or 0) * MIB
    for name in ("free", "total"):
        if groups.get(name):
            fields[f"{name}_bytes"] = printed_bytes(groups[name])
    if groups.get("count") and (groups["count"] or "").isdigit():
        fields["count"] = int(groups["count"] or 0)
    if groups.get("filled"):
        fields["bytes"] = int(groups["filled"] or 0)
    if groups.get("ordinal"):
        fields["device"] = f"GPU:{groups['ordinal']}"
    if groups.get("device"):
        fields["device"] = (groups["device"] or "").upper()
    if "shape" in groups:
        fields["shape"] = printed_shape(groups["shape"])
    if groups.get("dims"):
        fields["shape"] = printed_shape(",".join(re.findall(r"\d+", groups["dims"] or "")))
    if groups.get("dtype"):
        fields["dtype"] = dtype_name((groups["dtype"] or "").rstrip(".,;"))
    for name in ("allocator", "op", "name"):
        if groups.get(name):
            fields[name] = (groups[name] or "").strip()
    return fields
