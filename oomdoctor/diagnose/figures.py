"""Memory figures that a program prints about itself, and whether they grow without end.

A figure is a number after words such as "memory used", "RSS" or "RAM usage". Figures are compared
only with those that have the same words before them. Growth is several clear steps upward: one
jump is a warm-up, when data and libraries are loaded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from oomdoctor.diagnose.events import Figure
from oomdoctor.diagnose.sizes import printed_bytes
from oomdoctor.units import MIB

_WORDS = ("memory", "mem", "rss", "ram")
_ABOUT_MEMORY = re.compile(
    r"(?:memory|\bs?v?mem\b|mem_|vmrss|vmhwm|max_?rss|\brss\b|\bram\b)", re.IGNORECASE
)
_NUMBER = re.compile(
    r"(?P<label>[^\d\n]{1,60}?)[ :=(~]{1,4}(?P<value>\d{1,15}(?:\.\d{1,12})?)"
    r"\s?(?P<unit>[kmgt]i?b\b|bytes\b|[kmg]\b|%)?",
    re.IGNORECASE,
)
_BARE = re.compile(r"\s{0,8}(\d{6,9})\s{0,8}\Z")
_NOT_USED = re.compile(
    r"\b(?:free|available|avail|total|limit|limited|exceeds|allocate|params|parameters|bandwidth"
    r"|clock|fraction|growth|capacity|requested|reserved|required|request|min|mean|swap|size)\b"
    r"|memoryclock",
    re.IGNORECASE,
)
_NOT_BYTES = re.compile(
    r"(?:step|epoch|iter|iteration|batch|gpu|cpu|device|pid|line|round|trial|fold|run|count|objects|#)"
    r"\W*\Z",
    re.IGNORECASE,
)
_LEFT_OVER = re.compile(r"\b(?:free|available|avail)\b", re.IGNORECASE)
_USED = re.compile(
    r"used|usage|use\b|using|rss|vmhwm|current|percent|peak|max|resident|consum|allocated|process"
    r"|memory|\bmem\b|\bram\b",
    re.IGNORECASE,
)
_LOGGED_BY_TENSORFLOW = re.compile(r"[\w.]+\.(?:cc|h):\d+\]")
_MOST_IN_A_LINE = 4
LEFT = " left"
"""The end of a label whose figures are memory that is free: a leak makes them fall."""
STEP_SHARE = 0.05
"""A step upward counts from this share of the whole growth."""
_LEAST_GROWTH = 0.25
_LEAST_STEADY_GROWTH = 0.1
_MANY = 8
"""With at least so many figures, a steady climb says more than its height."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Figures of one kind that rose."""

    figures: tuple[Figure, ...]
    steps: int

    @property
    def is_in_bytes(self) -> bool:
        """Whether the figures are memory in use, and not a share or what is left."""
        return not self.figures[-1].label.endswith(("%", LEFT))

    @property
    def grown_bytes(self) -> int:
        """From the first figure to the last."""
        return abs(self.figures[-1].bytes - self.figures[0].bytes)


def find_figures(line: int, text: str, low: str) -> list[Figure]:
    """Return the figures in a line that are memory in use."""
    bare = _BARE.match(text)
    if bare is not None:
        # Some print `ru_maxrss`, in KiB, and not a word.
        return [Figure(line=line, text=text, label="", bytes=int(bare[1]) * 1024)]
    if not any(word in low for word in _WORDS) or _LOGGED_BY_TENSORFLOW.search(text):
        return []
    about = _ABOUT_MEMORY.search(text)
    if about is None:
        return []
    found: list[Figure] = []
    before = ""
    for match in _NUMBER.finditer(text):
        label, before = before + match["label"], ""
        is_told = match.end("label") >= about.end() and _USED.search(label)
        is_counter = _NOT_BYTES.search(match["label"])
        if is_told and is_counter:
            before = label  # "memory after epoch 3: 512 MB": the words hold after the counter too
        is_left = _is_left(label)
        if not (is_told or is_left) or is_counter or (_NOT_USED.search(label) and not is_left):
            continue
        size = _bytes(match["value"], (match["unit"] or "").lower())
        if size is not None and len(found) < _MOST_IN_A_LINE:
            words = " ".join(re.findall(r"[a-z_]+", label.lower()))
            words += " %" if match["unit"] == "%" else LEFT if is_left else ""
            found.append(Figure(line=line, text=text, label=words or "memory", bytes=size))
    return found


def _is_left(label: str) -> bool:
    """Whether the words say what is free: of the whole, `free` alone does."""
    last = label.replace("_", " ").split()[-2:]
    return bool(_LEFT_OVER.search(" ".join(last))) and "total" not in last


def _bytes(value: str, unit: str) -> int | None:
    if unit == "%":
        return int(float(value) * MIB)
    if unit:
        return printed_bytes(value + unit.replace("bytes", ""))
    number = float(value)
    # Programs divide by 2**20 or 2**30 before printing; ru_maxrss is KiB; the rest is bytes.
    if number < 64 and "." in value:
        return int(number * 1024 * MIB)
    if number < 1e6:
        return int(number * MIB)
    return int(number * 1024) if number < 1e9 and "." not in value else int(number)


def find_growth(figures: Sequence[Figure]) -> Growth | None:
    """Return the clearest growth, or None."""
    by_label: dict[str, list[Figure]] = defaultdict(list)
    by_ending: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        by_label[figure.label].append(figure)
        by_ending[" ".join(figure.label.split()[-3:])].append(figure)
    falling = [group for label, group in by_label.items() if label.endswith(LEFT)]
    rising = [group for label, group in by_label.items() if not label.endswith(LEFT)]
    endings = [group for label, group in by_ending.items() if not label.endswith(LEFT)]
    same = [growth for group in rising if (growth := _growth(group, 2))]
    same += [fall for group in falling if (fall := _fall(group))]
    alike = [growth for group in endings if (growth := _growth(group, 3))]
    found = max(same + alike, key=lambda growth: (growth.steps, growth.grown_bytes), default=None)
    if found is None:
        return None
    # What was printed last shows where it ended, in whichever words.
    ending = by_ending[" ".join(found.figures[-1].label.split()[-3:])]
    last = ending[-1]
    return Growth((*found.figures, last), found.steps) if last is not found.figures[-1] else found


def _growth(figures: list[Figure], least_steps: int) -> Growth | None:
    if len(figures) < (4 if figures[0].label else 6):
        return None
    first, last = figures[0].bytes, figures[-1].bytes
    grown = last - first
    if grown < 32 * MIB or last < 0.9 * max(f.bytes for f in figures):
        return None
    rises = [after.bytes - before.bytes for before, after in pairwise(figures)]
    steps = sum(rise >= STEP_SHARE * grown for rise in rises)
    falls = -sum(rise for rise in rises if rise < 0)
    # A steady climb in many small steps has none that is large.
    steady = sum(rise > 0 for rise in rises) >= 0.8 * len(rises) and max(rises) < 0.5 * grown
    if falls > 0.5 * grown or (steps < least_steps and not steady) or _has_settled(figures):
        return None
    is_long = steady and len(figures) >= _MANY
    if grown < (_LEAST_STEADY_GROWTH if is_long else _LEAST_GROWTH) * first:
        return None
    return Growth(tuple(figures), max(steps, least_steps))


def _fall(figures: list[Figure]) -> Growth | None:
    """What is free, and becomes less and less in nearly every line to the end."""
    if len(figures) < 6 or figures[0].label.endswith("%"):
        return None
    falls = [before.bytes - after.bytes for before, after in pairwise(figures)]
    lost = figures[0].bytes - figures[-1].bytes
    late = figures[-1 - len(figures) // 3].bytes - figures[-1].bytes
    is_steady = sum(fall > 0 for fall in falls) >= 0.8 * len(falls) and max(falls) < 0.5 * lost
    if lost < 256 * MIB or not is_steady or late < STEP_SHARE * lost:
        return None
    return Growth(tuple(figures), 2)


def _has_settled(figures: list[Figure]) -> bool:
    """Whether nothing was added in the last third of many figures: then it was a warm-up."""
    if len(figures) < 1.5 * _MANY:
        return False
    grown = figures[-1].bytes - figures[0].bytes
    late = figures[-1].bytes - figures[-(len(figures) // 3)].bytes
    return late < STEP_SHARE * grown
