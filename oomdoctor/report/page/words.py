"""Times, sizes and sentences as the page writes them."""

from __future__ import annotations

from oomdoctor.recording import Growth
from oomdoctor.report.of_profile import KINDS_IN_WORDS
from oomdoctor.units import format_bytes

KINDS = {**KINDS_IN_WORDS, "unclear": "cause unclear"}
PLACES = {"host": "RAM", "device": "Device memory"}


def duration(seconds: float | None) -> str:
    """Return a time as a person says it.

    Example:
        >>> duration(20.84), duration(192), duration(7500)
        ('20.8 s', '3 min 12 s', '2 h 05 min')
    """
    if seconds is None:
        return "unknown"
    if seconds < 99.95:
        return f"{seconds:.1f} s" if seconds < 59.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def signed(size_bytes: float) -> str:
    """Return a change of a size.

    Example:
        >>> signed(2**20), signed(-5)
        ('+1.00 MiB', '−5 B')
    """
    return f"{'−' if size_bytes < 0 else '+'}{format_bytes(abs(size_bytes))}"


def rate(growth: Growth) -> str:
    """Return how fast it grew, by step where steps are known."""
    if growth.kind == "flat":
        return "none"
    if growth.kind == "leak" and growth.bytes_per_step:
        return f"{signed(growth.bytes_per_step)} per step"
    return signed(growth.grown_bytes)
