"""What grew in a recorded run: a leak, a cache, a buffer, the first step, or nothing. Pure.

Steps tell most, because they come back to the same place of the program. What grows during the
first epoch and rests in the second was filled once; what grows after that grows for ever. Where
the program has no `fit`, only time is known: growth is then called a leak only if something in
the program was seen to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oomdoctor.profile.trend import Trend, floors_of, rise_of, trend_of
from oomdoctor.recording import Growth, Phase, Recording, Step
from oomdoctor.units import MIB, format_bytes

LEAST_JUMP_BYTES = 64 * MIB
LEAST_JUMP_SHARE = 0.1
"""What counts as a growth at one place, above what was there before."""
LEAST_EPOCHS = 5
"""Floors of whole epochs that are needed, the first epoch left out."""

LEAST_TO_REST = 8
"""Steps of a second epoch from which it can be seen whether growth has stopped."""


def growths_of(recording: Recording) -> tuple[Growth, ...]:
    """Return what grew, of the host and of the device: at most one each, the host first."""
    host = _leak(recording, "host", lambda step: step.rss_bytes)
    device = _leak(recording, "device", lambda step: step.allocator_bytes)
    found = [host or _cache(recording) or _at_first_step(recording) or _by_time(recording), device]
    return tuple(growth for growth in found if growth is not None)


def steps_per_epoch(steps: Sequence[Step]) -> float | None:
    """Return how many steps an epoch has; None while the first has not ended."""
    last: dict[int, int] = {}
    for step in steps:
        last[step.epoch] = max(last.get(step.epoch, 0), step.step)
    epochs = sorted(last)
    if len(epochs) < 2:
        return None
    lengths = [last[epochs[0]] - steps[0].step + 1]
    lengths += [last[two] - last[one] for one, two in pairwise(epochs[:-1])]
    return sum(lengths) / len(lengths) or None


def seconds_per_step(steps: Sequence[Step]) -> float | None:
    """Return the time of a step, pauses between epochs included."""
    later = steps[len(steps) // 4 :]
    if len(later) < 2 or later[-1].step <= later[0].step:
        return None
    return (later[-1].seconds - later[0].seconds) / (later[-1].step - later[0].step)


@dataclass(frozen=True, slots=True)
class _Series:
    """The steps of a run as one series of sizes."""

    steps: tuple[Step, ...]
    sizes: tuple[int, ...]

    def part(self, keep: Callable[[Step], bool]) -> _Series:
        pairs = [
            (step, size) for step, size in zip(self.steps, self.sizes, strict=True) if keep(step)
        ]
        return _Series(tuple(step for step, _ in pairs), tuple(size for _, size in pairs))

    @property
    def points(self) -> list[tuple[float, int]]:
        return [(float(step.step), size) for step, size in zip(self.steps, self.sizes, strict=True)]

    def epoch_floors(self) -> list[tuple[float, int]]:
        """The lowest point of each whole epoch; the last may still be going on."""
        by_epoch: dict[int, list[tuple[float, int]]] = {}
        for step, point in zip(self.steps, self.points, strict=True):
            by_epoch.setdefault(step.epoch, []).append(point)
        return [min(points, key=lambda point: point[1]) for points in by_epoch.values()]


def _series(recording: Recording, size_of: Callable[[Step], int | None]) -> _Series:
    known = [(step, size) for step in recording.steps if (size := size_of(step)) is not None]
    return _Series(tuple(step for step, _ in known), tuple(size for _, size in known))


def _leak(recording: Recording, what: str, size_of: Callable[[Step], int | None]) -> Growth | None:
    series = _series(recording, size_of)
    if not series.steps:
        return None
    first_epoch = series.steps[0].epoch
    later = series.part(lambda step: step.epoch > first_epoch)
    trend = trend_of(later.points)
    if trend is not None and trend.is_rising:
        return _growth_of_steps(recording, what, "leak", later, trend, 0.9)
    floors = later.epoch_floors()
    if len(floors) >= LEAST_EPOCHS and (by_epoch := rise_of(floors)).is_rising:
        return _growth_of_steps(recording, what, "leak", later, by_epoch, 0.85)
    if trend is not None:
        return None  # it rests after the first epoch
    whole = trend_of(series.points)
    if whole is None or not whole.is_rising or _rests(later, whole):
        return None
    if what == "host" and _has_cache(recording):
        return _growth_of_steps(recording, what, "cache", series, whole, 0.8)
    if len(later.steps) >= LEAST_TO_REST:
        return _growth_of_steps(recording, what, "leak", series, whole, 0.8)
    only = "only the first epoch was seen: a cache that fills looks the same until it ends"
    return _growth_of_steps(recording, what, "leak", series, whole, 0.6, only)


def _rests(later: _Series, whole: Trend) -> bool:
    """Whether the few steps of a second epoch are enough to see that growth has stopped."""
    if len(later.steps) < LEAST_TO_REST:
        return False
    floors = floors_of(later.points, 4)
    return floors[-1][1] - floors[0][1] < 0.3 * whole.slope * (floors[-1][0] - floors[0][0])


def _cache(recording: Recording) -> Growth | None:
    """What was filled during the first epoch and rested from then on."""
    series = _series(recording, lambda step: step.rss_bytes)
    if not series.steps:
        return None
    first_epoch = series.steps[0].epoch
    first = series.part(lambda step: step.epoch == first_epoch)
    later = series.part(lambda step: step.epoch > first_epoch)
    if len(first.steps) < 8 or not later.steps:
        return None
    start, end = first.sizes[0], min(later.sizes)
    if end - start < max(LEAST_JUMP_BYTES, LEAST_JUMP_SHARE * start):
        return None
    middle = first.sizes[len(first.sizes) // 2] - start
    if not 0.2 * (end - start) < middle < 0.8 * (end - start):
        return None  # it came at once, not little by little
    kept = [stage.label for stage in recording.pipeline if stage.kind == "cache"]
    why = f"`{kept[0]}` keeps what passes it" if kept else "something was filled once"
    return Growth(
        what="host",
        kind="cache",
        start_seconds=first.steps[0].seconds,
        end_seconds=first.steps[-1].seconds,
        start_bytes=start,
        end_bytes=end,
        bytes_per_step=(end - start) / max(1, first.steps[-1].step - first.steps[0].step),
        bytes_per_second=_rate(first, end - start),
        phase=_phase_at(recording.phases, first.steps[-1].seconds),
        confidence=0.9 if kept else 0.6,
        evidence=(
            f"memory grew by {format_bytes(end - start)} during the first epoch and rested after",
            why,
        ),
    )


def _rate(series: _Series, grown: int) -> float | None:
    seconds = series.steps[-1].seconds - series.steps[0].seconds
    return grown / seconds if seconds > 0 else None


def _at_first_step(recording: Recording) -> Growth | None:
    """What came between `fit` asking for data and the end of the first step."""
    began = recording.fit_seconds
    if began is None:
        return None
    phase = next((one for one in recording.phases if one.kind == "first_step"), None)
    ended = phase.end_seconds if phase is not None else None
    before = [one for one in recording.samples if one.seconds <= began and one.rss_bytes]
    inside = [
        one
        for one in recording.samples
        if one.seconds >= began and one.rss_bytes and (ended is None or one.seconds <= ended + 0.2)
    ]
    if not before or not inside:
        return None
    highest = max(inside, key=lambda one: one.rss_bytes or 0)
    start, end = before[-1].rss_bytes or 0, highest.rss_bytes or 0
    grown = end - start
    if grown < max(LEAST_JUMP_BYTES, LEAST_JUMP_SHARE * start):
        return None
    label = _filled_buffer(recording, grown)
    seconds = max(highest.seconds - began, 0.05)
    return Growth(
        what="host",
        kind="first_step" if label is None else "buffer",
        start_seconds=began,
        end_seconds=highest.seconds,
        start_bytes=start,
        end_bytes=end,
        bytes_per_second=grown / seconds,
        phase="first step",
        confidence=0.7 if label is None else 0.9,
        evidence=(
            f"memory grew by {format_bytes(grown)} before the first step had ended",
            "the first step itself took it" if label is None else f"`{label}` was being filled",
        ),
    )


def _filled_buffer(recording: Recording, grown: int) -> str | None:
    """The shuffle buffer that explains a growth, if there is one."""
    for stage in recording.pipeline:
        explains = stage.held_bytes is None or stage.held_bytes >= 0.4 * grown
        if stage.kind == "shuffle" and explains:
            return stage.label
    return None


def _by_time(recording: Recording) -> Growth | None:
    """What grew where no step is known: the last phase of a run that only time measures."""
    if recording.steps:
        return None
    imported = [one.end_seconds for one in recording.phases if one.kind == "import"]
    began = max((end for end in imported if end is not None), default=0.0)
    samples = [one for one in recording.samples if one.seconds >= began and one.rss_bytes]
    if len(samples) < 2:
        return None
    start, end = samples[0].rss_bytes or 0, max(one.rss_bytes or 0 for one in samples)
    if end - start < max(LEAST_JUMP_BYTES, LEAST_JUMP_SHARE * start):
        return None
    trend = trend_of([(one.seconds, one.rss_bytes or 0) for one in samples])
    is_rising = trend is not None and trend.is_rising
    is_leak = is_rising and bool(recording.suspects)
    seconds = max(samples[-1].seconds - samples[0].seconds, 0.05)
    return Growth(
        what="host",
        kind="leak" if is_leak else "unclear",
        start_seconds=samples[0].seconds,
        end_seconds=samples[-1].seconds,
        start_bytes=start,
        end_bytes=end,
        bytes_per_second=trend.slope if is_rising and trend else (end - start) / seconds,
        phase=_phase_at(recording.phases, samples[-1].seconds),
        confidence=0.75 if is_leak else 0.4,
        evidence=(
            f"memory grew by {format_bytes(end - start)} in {seconds:.0f} s without any `fit`",
        ),
    )


def _has_cache(recording: Recording) -> bool:
    return any(stage.kind == "cache" for stage in recording.pipeline)


def _growth_of_steps(
    recording: Recording,
    what: str,
    kind: str,
    series: _Series,
    trend: Trend,
    confidence: float,
    *evidence: str,
) -> Growth:
    per_epoch = steps_per_epoch(recording.steps)
    per_step = seconds_per_step(recording.steps)
    named = [f"`{one.what}` only grows" for one in recording.suspects[:1]]
    return Growth(
        what=what,
        kind=kind,
        start_seconds=series.steps[0].seconds,
        end_seconds=series.steps[-1].seconds,
        start_bytes=trend.first[1],
        end_bytes=trend.last[1],
        bytes_per_step=trend.slope,
        bytes_per_epoch=trend.slope * per_epoch if per_epoch else None,
        bytes_per_second=trend.slope / per_step if per_step else None,
        phase=_phase_at(recording.phases, series.steps[-1].seconds),
        confidence=min(0.97, confidence + (0.07 if named else 0.0)),
        evidence=(
            f"{trend.why}, by {format_bytes(int(trend.slope))} in each step",
            *evidence,
            *named,
        ),
    )


def _phase_at(phases: Sequence[Phase], seconds: float) -> str | None:
    inside = [
        phase
        for phase in phases
        if phase.start_seconds <= seconds
        and (phase.end_seconds is None or phase.end_seconds >= seconds)
    ]
    return inside[-1].label if inside else None
