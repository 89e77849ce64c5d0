"""From a recording to what it means: growth, forecast, and why the run ended. Pure."""

from __future__ import annotations

from dataclasses import replace

from oomdoctor.diagnose.run import diagnose_text, is_about_memory
from oomdoctor.facts import Diagnosis, OtherCause
from oomdoctor.profile.forecast import forecasts_of
from oomdoctor.profile.growth import growths_of
from oomdoctor.recording import End, Growth, Limit, Profile, Recording
from oomdoctor.units import format_bytes

NEAR_LIMIT = 0.8
"""A run that was killed this near to its limit was killed for it."""
LARGE_SHARE = 0.25
"""Of the limit: a buffer above it is worth a word though the run ended well."""
_EMULATED = "--vram"


def profile_of(recording: Recording, folder: str | None = None) -> Profile:
    """Return a recording with what grew in it and when that reaches a limit."""
    growths = growths_of(recording)
    return Profile(
        recording=recording,
        growths=growths,
        forecasts=forecasts_of(recording, growths),
        folder=folder,
    )


def diagnosis_of(profile: Profile) -> Diagnosis:
    """Return why the run ended as it did."""
    recording = profile.recording
    if recording.error is not None:
        said = diagnose_text(recording.error, batch_size=recording.batch_size)
        if is_about_memory(said) and said.is_fatal:
            return _of_exception(said, profile)
    end = recording.end
    if end is not None and _was_killed(end):
        return _of_kill(profile, end)
    if end is None and not _is_near(recording):
        return _cut_off(profile)
    if end is None:
        return _of_kill(profile, End(seconds=recording.seconds, exit_code=None))
    return _of_quiet_end(profile, end)


def _was_killed(end: End) -> bool:
    return end.killed_by != "user" and (
        end.signal in ("SIGKILL", "SIGABRT") or end.exit_code == 137
    )


def _of_exception(said: Diagnosis, profile: Profile) -> Diagnosis:
    """What the exception says, with what the recording knows besides."""
    recording = profile.recording
    leak = next((growth for growth in profile.growths if growth.kind == "leak"), None)
    on_device = said.cause not in ("host_array_too_large", "host_exhausted")
    limit = recording.limit_of("device" if on_device else "host")
    if limit is not None and limit.source.startswith(_EMULATED) and on_device:
        said = _as_device(said, recording, limit)
    share = LARGE_SHARE * (said.limit_bytes or (limit.limit_bytes if limit else 0) or 1)
    if leak is not None and (leak.what == "device") == on_device and leak.grown_bytes > share:
        other = OtherCause(cause=said.cause, confidence=0.3, why="The error that ended the run.")
        summary = f"{_place(leak)} {_grew(leak)} until an allocation failed{_named(recording)}."
        return replace(
            said, cause="leak", confidence=leak.confidence, summary=summary, alternatives=(other,)
        )
    return said


def _as_device(said: Diagnosis, recording: Recording, limit: Limit) -> Diagnosis:
    """The CPU's allocator stood in for a card: what is said of system RAM is not meant."""
    held = next((s.allocator_bytes for s in reversed(recording.steps) if s.allocator_bytes), None)
    asked = format_bytes(said.requested_bytes)
    size = format_bytes(limit.limit_bytes)
    return replace(
        said,
        cause="gpu_exhausted" if said.cause == "host_exhausted" else said.cause,
        limit_bytes=said.limit_bytes or limit.limit_bytes,
        in_use_bytes=said.in_use_bytes if said.in_use_bytes is not None else held,
        summary=f"The GPU ran out of memory: TensorFlow could not get {asked} more of {size}.",
        device="GPU:0 (emulated)",
        notes=tuple(note for note in said.notes if "system RAM" not in note),
    )


def _of_kill(profile: Profile, end: End) -> Diagnosis:
    recording = profile.recording
    limit = recording.limit_of("host")
    highest = _highest(recording)
    is_known = end.killed_by in ("cap", "kernel") or bool(end.oom_kills)
    if not is_known and not _is_near(recording):
        by = end.signal or f"exit code {end.exit_code}"
        return Diagnosis(
            cause="not_memory",
            confidence=0.6,
            in_use_bytes=highest,
            limit_bytes=limit.limit_bytes if limit else None,
            summary=(
                f"The run was ended by {by} with {_of_limit(highest, limit)} in use: why is not "
                "known, and somebody else may have ended it."
            ),
        )
    growth = next((one for one in profile.growths if one.what == "host"), None)
    cause = _cause_of(growth)
    killer = {"cap": "the cap of --ram", "kernel": "the kernel"}.get(end.killed_by or "", "SIGKILL")
    text = f"System RAM ran out: ended by {killer} at {_of_limit(highest, limit)}"
    if end.exit_code is None:
        text = (
            f"System RAM probably ran out: the recording breaks off at {_of_limit(highest, limit)}"
        )
    if growth is not None:
        text += f"; it {_grew(growth)}"
        text += f" during {growth.phase}" if growth.phase else ""
    return Diagnosis(
        cause=cause,
        confidence=0.97 if is_known and cause != "leak" else max(0.5, _sure(growth)),
        device="CPU",
        limit_bytes=limit.limit_bytes if limit else None,
        in_use_bytes=highest,
        summary=f"{text}{_named(recording) if cause == 'leak' else ''}.",
    )


def _cause_of(growth: Growth | None) -> str:
    kind = growth.kind if growth is not None else None
    if kind == "leak":
        return "leak"
    return "pipeline_buffer" if kind in ("cache", "buffer") else "host_killed"


def _of_quiet_end(profile: Profile, end: End) -> Diagnosis:
    """A run that ended by itself, well or not, without an error about memory."""
    recording = profile.recording
    leak = profile.leak
    limit = recording.limit_of("host")
    highest = _highest(recording)
    if leak is not None:
        told = f"Nothing failed, but memory {_grew(leak)}{_named(recording)}"
        coming = [one.text for one in profile.forecasts if one.what == leak.what]
        told += f"; {coming[0]}" if coming else ""
        return _mild("leak", leak.confidence, f"{told}.", recording)
    growth = next((one for one in profile.growths if one.kind in ("cache", "buffer")), None)
    if growth is not None and _is_large(growth, recording):
        told = f"Nothing failed: {growth.evidence[-1]} and took {format_bytes(growth.grown_bytes)}"
        told += f" of {format_bytes(limit.limit_bytes)}" if limit else ""
        return _mild("pipeline_buffer", growth.confidence, f"{told}.", recording)
    if end.exit_code and end.killed_by != "user":
        told = f"Not a memory problem: the run ended with exit code {end.exit_code}"
        return _mild("not_memory", 0.8, f"{told}.", recording)
    how = "was stopped" if end.killed_by == "user" else "ended by itself"
    told = f"Nothing failed: the run {how}, with {_of_limit(highest, limit)} in use at its peak"
    return _mild("no_failure", 0.95, f"{told}.", recording)


def _mild(cause: str, confidence: float, summary: str, recording: Recording) -> Diagnosis:
    limit = recording.limit_of("host")
    return Diagnosis(
        cause=cause,
        confidence=confidence,
        summary=summary,
        is_fatal=False,
        in_use_bytes=_highest(recording),
        limit_bytes=limit.limit_bytes if limit else None,
    )


def _cut_off(profile: Profile) -> Diagnosis:
    recording = profile.recording
    quiet = _of_quiet_end(profile, End(seconds=recording.seconds, exit_code=0))
    if quiet.cause != "no_failure":
        return quiet
    highest = _of_limit(_highest(recording), recording.limit_of("host"))
    told = f"The recording was cut off, with {highest} in use: how the run ended is not known."
    return replace(quiet, summary=told, confidence=0.3)


def _highest(recording: Recording) -> int | None:
    of_kernel = recording.end.peak_rss_bytes if recording.end else None
    sizes = [size for size in (recording.peak_rss_bytes, of_kernel) if size]
    return max(sizes, default=None)


def _is_near(recording: Recording) -> bool:
    """Whether the last samples are near the lowest limit of the host."""
    limit = recording.limit_of("host")
    sizes = [max(one.rss_bytes or 0, one.container_bytes or 0) for one in recording.samples[-20:]]
    return limit is not None and max(sizes, default=0) >= NEAR_LIMIT * limit.limit_bytes


def _is_large(growth: Growth, recording: Recording) -> bool:
    limit = recording.limit_of("host")
    return limit is not None and growth.grown_bytes >= LARGE_SHARE * limit.limit_bytes


def _sure(growth: Growth | None) -> float:
    return growth.confidence if growth is not None else 0.5


def _place(growth: Growth) -> str:
    return "Device memory" if growth.what == "device" else "System RAM"


def _grew(growth: Growth) -> str:
    """Such as `grew by 2.0 MiB per step`."""
    if growth.kind == "leak" and growth.bytes_per_step:
        return f"grew by {format_bytes(growth.bytes_per_step)} per step"
    rate = f", {format_bytes(growth.bytes_per_second)}/s" if growth.bytes_per_second else ""
    return f"grew by {format_bytes(growth.grown_bytes)}{rate}"


_DONE = {"models_rebuilt": "built", "retracing": "traced", "iterators_made": "called"}


def _named(recording: Recording) -> str:
    """The first suspect, in words."""
    if not recording.suspects:
        return ""
    first = max(recording.suspects, key=lambda one: one.weight)
    if first.kind in _DONE:
        return f"; `{first.what}` was {_DONE[first.kind]} {first.count:,} times"
    held = f" and holds about {format_bytes(first.held_bytes)}" if first.held_bytes else ""
    return f"; `{first.what}` has {first.count:,} entries{held}"


def _of_limit(size: int | None, limit: Limit | None) -> str:
    told = format_bytes(size)
    return told if limit is None else f"{told} of {format_bytes(limit.limit_bytes)}"
