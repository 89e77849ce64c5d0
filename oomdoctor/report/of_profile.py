"""The text and tables on a recorded run: what grew, where, and when a limit is reached."""

from __future__ import annotations

from oomdoctor.comparison import highest_ram
from oomdoctor.recording import End, Growth, Phase, Profile, Recording
from oomdoctor.report.escape import cut, printable
from oomdoctor.report.view import Line, Table, View
from oomdoctor.units import format_bytes

MAX_PHASES = 8
MAX_LAYERS = 6
MAX_SUSPECTS = 3
MAX_COMMAND = 100

NOT_SEEN = "unknown: the recording was cut off"

KINDS_IN_WORDS = {
    "leak": "a leak",
    "cache": "a cache that filled during the first epoch",
    "buffer": "a shuffle buffer that filled before the first step",
    "first_step": "the first step, once",
    "flat": "negligible",
    "unclear": "cause unclear",
}


def profile_lines(profile: Profile) -> list[Line]:
    """Return how the run ended, what grew, what may be kept, and the forecast."""
    recording = profile.recording
    lines = [
        Line(state="info", category="Ran", text=_ran(recording)),
        Line(state=_end_state(recording.end), category="End", text=_end(recording)),
        Line(state="info", category="Highest", text=_highest(recording)),
    ]
    for growth in profile.growths:
        state = "warning" if growth.kind in ("leak", "cache", "buffer") else "info"
        lines.append(Line(state=state, category="Growth", text=_grew(growth)))
        if growth.kind == "leak":
            lines += [
                Line(state="info", category="", text=printable(text)) for text in growth.evidence
            ]
    suspects = sorted(recording.suspects, key=lambda one: -(one.held_bytes or 0))
    if profile.leak is not None:
        for suspect in suspects[:MAX_SUSPECTS]:
            rate = "" if suspect.per_step is None else f", {suspect.per_step:+.2g} per step"
            text = f"{suspect.what}: {suspect.count:,}{rate}; {suspect.advice}"
            lines.append(Line(state="warning", category="Suspect", text=printable(text)))
    lines += [
        Line(state="warning", category="Forecast", text=printable(forecast.text))
        for forecast in profile.forecasts
        if forecast.seconds_left > 0
    ]
    return lines


def _ran(recording: Recording) -> str:
    command = cut(printable(" ".join(recording.command)), MAX_COMMAND)
    samples = f"{recording.sample_count:,} samples, {recording.step_count:,} steps seen"
    return f"{command} ({recording.seconds:.1f} s, {samples})"


def _end_state(end: End | None) -> str:
    if end is None:
        return "unknown"
    return "fits" if end.exit_code == 0 else "does_not_fit"


def _end(recording: Recording) -> str:
    end = recording.end
    if end is None:
        return NOT_SEEN
    kills = f"; the container's oom_kill counter rose by {end.oom_kills}" if end.oom_kills else ""
    during = printable(during_phase(recording))
    return f"{who_ended(end)}{during}, exit code {end.exit_code}{kills}"


def who_ended(end: End) -> str:
    """Return who ended the run, as far as it is known."""
    return {
        "cap": "killed at the cap of --ram",
        "kernel": "killed by the kernel: out of memory",
        "user": "stopped from outside",
        "unknown": f"killed by {end.signal or 'a signal'}, sender unknown",
    }.get(end.killed_by or "", "finished" if not end.signal else f"ended by {end.signal}")


def during_phase(recording: Recording) -> str:
    """Return in which phase a run failed, as the end of a clause; nothing if it ended well."""
    phase = recording.samples[-1].phase if recording.samples else None
    failed = recording.end is not None and recording.end.exit_code
    return f" during {phase}" if phase and failed else ""


def _highest(recording: Recording) -> str:
    limit = recording.limit_of("host")
    told = f"{format_bytes(highest_ram(recording))} of RAM"
    if limit is not None:
        told += f"; the limit is {format_bytes(limit.limit_bytes)} ({printable(limit.source)})"
    peaks = [one.allocator_peak_bytes for one in recording.steps if one.allocator_peak_bytes]
    if peaks:
        told += f"; TensorFlow's allocator {format_bytes(max(peaks))}"
    return told


def _grew(growth: Growth) -> str:
    where = f" during {printable(growth.phase)}" if growth.phase else ""
    rate = ""
    if growth.kind == "leak" and growth.bytes_per_epoch:
        rate = f", {format_bytes(growth.bytes_per_epoch)} per epoch"
    elif growth.bytes_per_second:
        rate = f", {format_bytes(growth.bytes_per_second)}/s"
    place = "device memory" if growth.what == "device" else "RAM"
    return (
        f"{KINDS_IN_WORDS[growth.kind]}: {place} grew by {format_bytes(growth.grown_bytes)}, from "
        f"{format_bytes(growth.start_bytes)} to {format_bytes(growth.end_bytes)}{where}{rate}"
    )


def profile_tables(profile: Profile, *, verbose: bool = False) -> list[Table]:
    """Return the phases with their memory, and what held the peak of the traced step."""
    recording = profile.recording
    phases = recording.phases
    if not verbose and len(phases) > MAX_PHASES:
        phases = (*phases[: MAX_PHASES - 3], *phases[-3:])
    tables = [
        Table(
            title="Phases",
            headers=("phase", "took", "at start", "at end", "peak"),
            rows=tuple(_phase_row(phase, recording.seconds) for phase in phases),
        )
    ]
    breakdown = recording.breakdown
    if breakdown is not None:
        shown = breakdown.layers if verbose else breakdown.layers[:MAX_LAYERS]
        rows = [*((name, size) for name, size in breakdown.parts), *shown]
        tables.append(
            Table(
                title=f"Memory at the peak of step {breakdown.step} "
                f"({format_bytes(breakdown.peak_bytes)}): by part, then by layer",
                headers=("held by", "size", "share"),
                rows=tuple(
                    (printable(name), format_bytes(size), f"{size / breakdown.peak_bytes:.0%}")
                    for name, size in rows
                    if breakdown.peak_bytes
                ),
            )
        )
    return tables


def _phase_row(phase: Phase, seconds: float) -> tuple[str, ...]:
    sizes = (phase.start_bytes, phase.end_bytes, phase.peak_bytes)
    return (
        printable(phase_name(phase)),
        f"{phase_seconds(phase, seconds):.1f} s",
        *(format_bytes(size, unknown="–") for size in sizes),
    )


def phase_name(phase: Phase) -> str:
    """Return what a phase is called, and whether the run ended in it."""
    return phase.label + (" (unfinished)" if phase.end_seconds is None else "")


def phase_seconds(phase: Phase, seconds: float) -> float:
    """Return how long a phase took, in a run of so many seconds."""
    end = seconds if phase.end_seconds is None else phase.end_seconds
    return max(0.0, end - phase.start_seconds)


def view_profile(profile: Profile, *, verbose: bool = False) -> View:
    """Return a profile without its report: what `MemoryCallback` shows."""
    leak = profile.leak
    state, told = "fits", "Memory did not leak."
    if leak is not None:
        state, told = "warning", f"Memory leaks: {_grew(leak)}."
    return View(
        title="oomdoctor profile",
        state=state,
        headline=told,
        lines=tuple(profile_lines(profile)),
        tables=tuple(table for table in profile_tables(profile, verbose=verbose) if table.rows),
        notes=tuple(printable(note) for note in profile.recording.notes),
    )


def view_recording(recording: Recording, *, verbose: bool = False) -> View:
    """Return a recording as it is, without conclusions."""
    return view_profile(Profile(recording=recording), verbose=verbose)
