"""Times, sizes and sentences as the page writes them."""

from __future__ import annotations

from oomdoctor.recording import End, Growth, Recording
from oomdoctor.report.of_profile import KINDS_IN_WORDS
from oomdoctor.units import format_bytes

KINDS = {**KINDS_IN_WORDS, "unclear": "what it was cannot be told"}
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


def ended(end: End | None) -> str:
    """Return how the run ended, in two or three words."""
    if end is None:
        return "Not seen"
    if end.killed_by == "user":
        return "Stopped"
    if end.killed_by or end.signal == "SIGKILL":
        return "Killed"
    return "Ended well" if end.exit_code == 0 else "Failed"


def highest(recording: Recording) -> int | None:
    """Return the most RAM it had, by the samples and by the kernel's own figure."""
    of_kernel = recording.end.peak_rss_bytes if recording.end else None
    return max((size for size in (recording.peak_rss_bytes, of_kernel) if size), default=None)


def device_peak(recording: Recording) -> int | None:
    """Return the most device memory it had: by TensorFlow's allocator, else by the driver."""
    peaks = [step.allocator_peak_bytes for step in recording.steps if step.allocator_peak_bytes]
    if recording.breakdown is not None:
        peaks.append(recording.breakdown.peak_bytes)
    if peaks:
        return max(peaks)
    held = [sum(use.used_bytes for use in sample.gpus) for sample in recording.samples]
    return max((size for size in held if size), default=None)
