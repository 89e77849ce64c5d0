"""What changed between two recorded runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from oomdoctor._show import Readable
from oomdoctor.recording import End, Growth, Phase, Profile, Recording
from oomdoctor.units import format_bytes

SAME = 0.05
"""Two measured figures this near are the same: runs differ by that without a cause."""
EXACT = ("steps", "batch_size", "ram_limit_bytes", "device_limit_bytes")
"""Figures that are not measured."""
MOST_ROWS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure of both runs."""

    name: str
    """Such as `peak_rss_bytes`."""
    label: str
    unit: str
    """`bytes`, `seconds`, `count` or `text`."""
    before: float | str | None
    after: float | str | None

    @property
    def difference(self) -> float | None:
        """The second less the first, where both are numbers."""
        if isinstance(self.before, str) or isinstance(self.after, str):
            return None
        if self.before is None or self.after is None:
            return None
        return self.after - self.before

    @property
    def is_same(self) -> bool:
        """Whether it hardly changed."""
        if self.difference is None:
            return self.before == self.after
        slack = 0.0 if self.name in EXACT else SAME
        return abs(self.difference) <= slack * abs(float(self.before or 0))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison(Readable):
    """Two runs side by side, and what changed from the first to the second."""

    names: tuple[str, str]
    """Their folders, or else their commands."""
    summary: str
    changes: tuple[Change, ...]
    phases: tuple[Change, ...] = ()
    """The highest RAM of each phase, by its label."""
    layers: tuple[Change, ...] = ()
    """Parts, then layers, at the peak of the traced steps."""


def compare(one: Profile, other: Profile) -> Comparison:
    """Return what changed from the first run to the second."""
    first, second = one.recording, other.recording
    return Comparison(
        names=(_name(one), _name(other)),
        summary=_summary(one, other),
        changes=(*_figures(one, other), *_versions(first, second)),
        phases=_paired("phase", _peaks(first.phases), _peaks(second.phases)),
        layers=(
            *_paired("part", _parts(first), _parts(second)),
            *_paired("layer", _layers(first), _layers(second)),
        ),
    )


def highest_ram(recording: Recording) -> int | None:
    """Return the most RAM it had, by the samples and by the kernel's own figure."""
    of_kernel = recording.end.peak_rss_bytes if recording.end else None
    return max((size for size in (recording.peak_rss_bytes, of_kernel) if size), default=None)


def highest_device(recording: Recording) -> int | None:
    """Return the most device memory it had: by TensorFlow's allocator, else by the driver."""
    peaks = [step.allocator_peak_bytes for step in recording.steps if step.allocator_peak_bytes]
    if recording.breakdown is not None:
        peaks.append(recording.breakdown.peak_bytes)
    if peaks:
        return max(peaks)
    held = [sum(use.used_bytes for use in sample.gpus) for sample in recording.samples]
    return max((size for size in held if size), default=None)


def seconds_per_step(recording: Recording) -> float | None:
    """Return how long a step takes in the middle, leaving out the first of each epoch."""
    from statistics import median  # every command imports this module, few need a median

    steps = recording.steps
    took = [
        (later.seconds - earlier.seconds) / (later.step - earlier.step)
        for earlier, later in pairwise(steps)
        if later.epoch == earlier.epoch and later.step > earlier.step
    ]
    return median(took) if took else None


def how_ended(end: End | None) -> str:
    """Return how a run ended, in two or three words."""
    if end is None:
        return "not seen"
    if end.killed_by == "user":
        return "stopped"
    if end.killed_by or end.signal == "SIGKILL":
        return "killed"
    return "ended well" if end.exit_code == 0 else "failed"


def _name(profile: Profile) -> str:
    return profile.folder or " ".join(profile.recording.command)


def _figures(one: Profile, other: Profile) -> Iterable[Change]:
    rows: list[tuple[str, str, str, list[float | str | None]]] = []
    both = (one, other)
    runs = (one.recording, other.recording)
    limits = [[run.limit_of(what) for run in runs] for what in ("host", "device")]
    rows = [
        ("command", "command", "text", [" ".join(run.command) for run in runs]),
        ("end", "end", "text", [how_ended(run.end) for run in runs]),
        ("peak_rss_bytes", "highest RAM", "bytes", [highest_ram(run) for run in runs]),
        ("peak_device_bytes", "highest device memory", "bytes", [*map(highest_device, runs)]),
        ("growth", "growth of RAM", "text", [_kind(profile) for profile in both]),
        ("leak_bytes_per_step", "leak in each step", "bytes", [*map(_leak, both)]),
        ("seconds", "took", "seconds", [run.seconds for run in runs]),
        ("seconds_per_step", "a step took", "seconds", [*map(seconds_per_step, runs)]),
        ("steps", "steps", "count", [run.step_count for run in runs]),
        ("batch_size", "batch size", "count", [run.batch_size for run in runs]),
        ("ram_limit_bytes", "limit of RAM", "bytes", [_size(one) for one in limits[0]]),
        ("device_limit_bytes", "limit of the device", "bytes", [_size(one) for one in limits[1]]),
    ]
    for name, label, unit, (before, after) in rows:
        if before is None and after is None:
            continue
        if name == "command" and before == after:
            continue
        yield Change(name=name, label=label, unit=unit, before=before, after=after)


def _size(limit: object) -> int | None:
    size: int | None = getattr(limit, "limit_bytes", None)
    return size


def _host(profile: Profile) -> Growth | None:
    return next((growth for growth in profile.growths if growth.what == "host"), None)


def _kind(profile: Profile) -> str | None:
    growth = _host(profile)
    return None if growth is None else growth.kind


def _leak(profile: Profile) -> float | None:
    growth = profile.leak
    return None if growth is None else growth.bytes_per_step


def _versions(one: Recording, other: Recording) -> Iterable[Change]:
    first, second = dict(one.versions), dict(other.versions)
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield Change(
                name=f"version of {name}",
                label=name,
                unit="text",
                before=first.get(name),
                after=second.get(name),
            )


def _peaks(phases: Iterable[Phase]) -> dict[str, int]:
    """The highest of each label; a phase that came twice counts once."""
    found: dict[str, int] = {}
    for phase in phases:
        if phase.peak_bytes is not None:
            found[phase.label] = max(found.get(phase.label, 0), phase.peak_bytes)
    return found


def _parts(recording: Recording) -> dict[str, int]:
    return dict(recording.breakdown.parts) if recording.breakdown else {}


def _layers(recording: Recording) -> dict[str, int]:
    return dict(recording.breakdown.layers) if recording.breakdown else {}


def _paired(name: str, first: Mapping[str, int], second: Mapping[str, int]) -> tuple[Change, ...]:
    if name != "phase" and not (first and second):
        return ()  # only one of them was traced
    labels = list(dict.fromkeys([*first, *second]))[:MOST_ROWS]
    return tuple(
        Change(
            name=name, label=label, unit="bytes", before=first.get(label), after=second.get(label)
        )
        for label in labels
    )


def _summary(one: Profile, other: Profile) -> str:
    """What changed, in one sentence: the end, the leak, RAM, device memory."""
    ends = [how_ended(profile.recording.end) for profile in (one, other)]
    said = [
        *([f"A {_was(ends[0])}, B {_was(ends[1])}"] if ends[0] != ends[1] else []),
        *_leaking(one, other),
        *_less("RAM", highest_ram(one.recording), highest_ram(other.recording)),
        *_less("device memory", highest_device(one.recording), highest_device(other.recording)),
    ]
    told = "; ".join(said) or "what changed cannot be told"
    return told[0].upper() + told[1:] + "."


def _was(end: str) -> str:
    return end if end in ("ended well", "failed") else f"was {end}"


def _less(what: str, before: int | None, after: int | None) -> list[str]:
    if before is None or after is None:
        return []
    if abs(after - before) <= SAME * before:
        return [f"B needs as much {what} as A, {format_bytes(after)}"]
    word = "less" if after < before else "more"
    return [
        f"B needs {format_bytes(abs(after - before))} {word} {what} than A, "
        f"{format_bytes(after)} instead of {format_bytes(before)}"
    ]


def _leaking(one: Profile, other: Profile) -> list[str]:
    before, after = one.leak, other.leak
    if before is not None and after is None:
        return ["B no longer leaks"]
    if before is None and after is not None:
        rate = after.bytes_per_step
        return [f"B leaks{f', {format_bytes(rate)} in each step' if rate else ''}"]
    if before is not None and after is not None:
        rates = format_bytes(before.bytes_per_step), format_bytes(after.bytes_per_step)
        return [f"both leak, A {rates[0]} and B {rates[1]} in each step"]
    return []
