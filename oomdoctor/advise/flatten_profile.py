"""Flattens a recorded run into the names of the vocabulary."""

from __future__ import annotations

from oomdoctor.advise.flatten_data import Value
from oomdoctor.recording import Growth, Profile, Recording, Suspect

_STAGES = {"cache": "cache", "buffer": "shuffle"}


def profile_values(profile: Profile | None) -> dict[str, Value]:
    """Return the facts of a recorded run; None where there is none."""
    recording = profile.recording if profile else None
    growth = _main(profile.growths) if profile else None
    suspect = _largest(recording) if recording else None
    limit = recording.limit_of("host") if recording else None
    return {
        "profile.growth": ("flat" if growth is None else growth.kind) if profile else None,
        "profile.grown_bytes": growth.grown_bytes if growth else None,
        "profile.step_growth_bytes": _whole(growth.bytes_per_step) if growth else None,
        "profile.epoch_growth_bytes": _whole(growth.bytes_per_epoch) if growth else None,
        "profile.suspect": suspect.kind if suspect else None,
        "profile.suspect_name": suspect.what if suspect else None,
        "profile.stage": _stage(recording, growth) if recording and growth else None,
        "profile.peak_bytes": recording.peak_rss_bytes if recording else None,
        "profile.limit_bytes": limit.limit_bytes if limit else None,
    }


def _main(growths: tuple[Growth, ...]) -> Growth | None:
    leaks = [growth for growth in growths if growth.kind == "leak"]
    return next(iter([*leaks, *growths]), None)


def _largest(recording: Recording) -> Suspect | None:
    return max(recording.suspects, key=lambda one: one.weight, default=None)


def _stage(recording: Recording, growth: Growth) -> str | None:
    wanted = _STAGES.get(growth.kind)
    labels = [stage.label for stage in recording.pipeline if stage.kind == wanted]
    return labels[0] if labels else None


def _whole(size: float | None) -> int | None:
    return None if size is None else round(size)
