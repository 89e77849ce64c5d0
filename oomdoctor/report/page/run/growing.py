"""What grew: the evidence for or against a leak, and the memory that each phase added."""

from __future__ import annotations

from oomdoctor.recording import Growth, Phase, Profile
from oomdoctor.report.of_profile import phase_name, phase_seconds
from oomdoctor.report.page import words
from oomdoctor.report.page.markup import Child, Safe, join, tag, with_code
from oomdoctor.report.page.parts import bar, section, table
from oomdoctor.units import format_bytes

MAX_PHASES = 40
MAX_SUSPECTS = 8
LEAST_SHARE = 0.1
"""Of what the leak added: a suspect that holds less explains little of it."""


def growth(profile: Profile) -> Safe | None:
    """Return what grew, how fast and where, why it is or is not a leak, and what may be kept."""
    if not profile.growths:
        return None
    headers = ("memory", "cause", "phase", "from", "to", "growth", "per step", "per epoch")
    rows = [_growth_row(one) for one in profile.growths]
    evidence = [tag("li", with_code(said)) for one in profile.growths for said in one.evidence]
    coming = [one.text for one in profile.forecasts if one.text]
    return section(
        "growth",
        "What grew",
        *(
            tag("p", f"Forecast: {detail}.".replace("..", "."), class_="forecast")
            for detail in coming
        ),
        table(headers, rows, "   nnnnn"),
        join(tag("h3", "Evidence"), tag("ul", *evidence)) if evidence else None,
        _suspects(profile),
    )


def _growth_row(one: Growth) -> tuple[Child, ...]:
    sure = f" (confidence {one.confidence:.0%})" if one.confidence else ""
    is_leak = one.kind == "leak"
    return (
        words.PLACES.get(one.what, one.what),
        f"{words.KINDS.get(one.kind, one.kind)}{sure}",
        one.phase or "–",
        format_bytes(one.start_bytes),
        format_bytes(one.end_bytes),
        words.signed(one.grown_bytes),
        words.signed(one.bytes_per_step) if is_leak and one.bytes_per_step else "–",
        words.signed(one.bytes_per_epoch) if is_leak and one.bytes_per_epoch else "–",
    )


def _suspects(profile: Profile) -> Safe | None:
    """Return objects that may keep memory; without a leak there are no suspects."""
    leak = profile.leak
    if leak is None:
        return None
    # What was counted only before training, such as a registry filled at import, has no rate.
    suspects = [
        one
        for one in profile.recording.suspects
        if (one.per_step or 0) > 0 or (one.held_bytes or 0) >= LEAST_SHARE * leak.grown_bytes
    ]
    suspects.sort(key=lambda one: -(one.held_bytes or 0))
    if not suspects:
        return None
    rows = [
        (
            tag("code", one.what),
            f"{one.count:,}",
            "–" if one.per_step is None else f"+{one.per_step:.2g}",
            format_bytes(one.held_bytes, unknown="–"),
            one.advice,
        )
        for one in suspects[:MAX_SUSPECTS]
    ]
    headers = ("what", "entries", "per step", "size", "what to do")
    return join(tag("h3", "Objects that may keep memory"), table(headers, rows, " nnn "))


def phases(profile: Profile) -> Safe | None:
    """Return the time and memory of each phase."""
    recording = profile.recording
    shown = recording.phases
    if not shown:
        return None
    left = len(shown) - MAX_PHASES
    if left > 0:
        half = MAX_PHASES // 2
        shown = (*shown[:half], *shown[-half:])
    added = [abs((one.end_bytes or 0) - (one.start_bytes or 0)) for one in shown]
    largest = max(added, default=0) or 1
    rows = [_phase_row(one, recording.seconds, largest) for one in shown]
    headers = ("phase", "time", "steps", "RAM at start", "at end", "peak", "added", "")
    note = (
        f"{left} phases in the middle are not shown; report.json has all of them."
        if left > 0
        else None
    )
    return section(
        "phases",
        "Memory by phase",
        table(headers, rows, " nnnnnn "),
        tag("p", note, class_="hint") if note else None,
    )


def _phase_row(phase: Phase, seconds: float, largest: int) -> tuple[Child, ...]:
    sizes = (phase.start_bytes, phase.end_bytes, phase.peak_bytes)
    detail: tuple[Child, ...] = ("–", "")
    if phase.start_bytes is not None and phase.end_bytes is not None:
        added = phase.end_bytes - phase.start_bytes
        detail = (words.signed(added), bar(abs(added) / largest, "less" if added < 0 else ""))
    return (
        phase_name(phase),
        words.duration(phase_seconds(phase, seconds)),
        "–" if phase.steps is None else f"{phase.steps:,}",
        *(format_bytes(size, unknown="–") for size in sizes),
        *detail,
    )
