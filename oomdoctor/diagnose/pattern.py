"""One known message: words to look for, and a regular expression to read it with."""

from __future__ import annotations

import re
from dataclasses import dataclass

SIZE = r"\d{1,20}(?:\.\d{0,6})?\s?[KMGTPE]?i?B?"
DEVICE = r"[^\s,]{0,160}?(?P<device>(?:GPU|CPU|TPU):\d{1,3})"


@dataclass(frozen=True, slots=True)
class Pattern:
    """One known message."""

    kind: str
    needles: tuple[str, ...]
    """In lower case; one of them must be in the line."""
    regex: re.Pattern[str]
    unless: tuple[str, ...] = ()
    """In lower case; none of them may be in the line."""


def known(kind: str, needles: str, regex: str, *, unless: str = "") -> Pattern:
    """Return a pattern; needles are parted by bars."""
    return Pattern(
        kind,
        tuple(needles.split("|")),
        re.compile(regex, re.IGNORECASE),
        tuple(unless.split("|")) if unless else (),
    )
