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
_FIGURE = re.compile(
    r"(?P<label>(?:[^\d\n]{0,60})\b(?:\w{0,20}memory|mem|max_?rss|rss|ram)\b[^\d\n%]{0,40}?)"
    r"[ :=(~]{1,4}(?P<value>\d{1,15}(?:\.\d{1,12})?)\s?(?P<unit>[kmgt]i?b\b|bytes\b|[kmg]\b|%)?",
    re.IGNORECASE,
)
_NOT_USED = re.compile(
    r"\b(?:free|available|total|limit|limited|exceeds|allocate|params|parameters|bandwidth|clock"
    r"|fraction|growth|capacity|requested|reserved|required|request)\b|memoryclock",
    re.IGNORECASE,
)
_LOGGED_BY_TENSORFLOW = re.compile(r"[\w.]+\.(?:cc|h):\d+\]")
STEP_SHARE = 0.05
"""A step upward counts from this share of the whole growth."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Figures of one kind that rose."""

    figures: tuple[Figure, ...]
    steps: int

    @property
    def grown_bytes(self) -> int:
        """From the first figure to the last."""
        return self.figures[-1].bytes - self.figures[0].bytes


def find_figure(line: int, text: str, low: str) -> Figure | None:
    """Return the figure a line holds, if it is memory in use."""
    if not any(word in low for word in _WORDS) or _LOGGED_BY_TENSORFLOW.search(text):
        return None
    match = _FIGURE.search(text)
    if match is None or _NOT_USED.search(match["label"]):
        return None
    size = _bytes(match["value"], (match["unit"] or "").lower())
    if size is None:
        return None
    label = " ".join(re.findall(r"[a-z_]+", match["label"].lower()))
    if match["unit"] == "%":
        label += " %"
    return Figure(line=line, text=text, label=label, bytes=size)


def _bytes(value: str, unit: str) -> int | None:
    if unit == "%":
        return int(float(value) * MIB)
    if unit:
        return printed_bytes(value + unit.replace("bytes", ""))
    number = float(value)
    # Programs divide by 2**20 before printing; ru_maxrss is KiB; what is left is bytes.
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
    same = [growth for group in by_label.values() if (growth := _growth(group, 2))]
    alike = [growth for group in by_ending.values() if (growth := _growth(group, 3))]
    found = max(same + alike, key=lambda growth: (growth.steps, growth.grown_bytes), default=None)
    if found is None:
        return None
    # What was printed last tells where it ended, in whichever words.
    ending = by_ending[" ".join(found.figures[-1].label.split()[-3:])]
    last = ending[-1]
    return Growth((*found.figures, last), found.steps) if last is not found.figures[-1] else found


def _growth(figures: list[Figure], least_steps: int) -> Growth | None:
    if len(figures) < 4:
        return None
    first, last = figures[0].bytes, figures[-1].bytes
    grown = last - first
    if grown < 0.25 * first or grown < 32 * MIB or last < 0.9 * max(f.bytes for f in figures):
        return None
    rises = [after.bytes - before.bytes for before, after in pairwise(figures)]
    steps = sum(rise >= STEP_SHARE * grown for rise in rises)
    falls = -sum(rise for rise in rises if rise < 0)
    # A steady climb in many small steps has none that is large.
    steady = sum(rise > 0 for rise in rises) >= 0.8 * len(rises) and max(rises) < 0.5 * grown
    if falls > 0.5 * grown or (steps < least_steps and not steady):
        return None
    return Growth(tuple(figures), max(steps, least_steps))
