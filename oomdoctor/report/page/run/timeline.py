"""What the timeline draws: series that keep every peak, phases, limits and the forecast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oomdoctor.comparison import how_ended
from oomdoctor.recording import Profile, Recording, Sample, Step
from oomdoctor.report.escape import printable
from oomdoctor.units import format_bytes

MOST_BUCKETS = 2_000
"""Each keeps the highest and the lowest of every series: twice what a screen is wide."""
MOST_PHASES = 3_000
MOST_STEPS = 4_000
_INNER = ("first_step", "validation", "checkpoint")

HOST_SERIES = (
    ("rss_bytes", "the program (RSS)"),
    ("uss_bytes", "private memory (USS)"),
    ("container_bytes", "the container"),
    ("swap_bytes", "swap"),
)
DEVICE_SERIES = (
    ("allocator_peak_bytes", "TensorFlow's allocator, peak so far"),
    ("allocator_bytes", "after each step"),
    ("gpu_bytes", "reported by the driver"),
)


def charts(profile: Profile) -> list[dict[str, Any]]:
    """Return the timeline of RAM, and that of device memory where there are figures."""
    recording = profile.recording
    moments: Sequence[Sample | Step] = recording.samples or recording.steps
    drawn = [_chart(profile, "host", HOST_SERIES, moments)]
    device = _chart(profile, "device", DEVICE_SERIES, moments)
    return [*drawn, device] if device["series"] else drawn


def _chart(
    profile: Profile,
    what: str,
    names: Sequence[tuple[str, str]],
    moments: Sequence[Sample | Step],
) -> dict[str, Any]:
    recording = profile.recording
    columns = {key: [_size(moment, key) for moment in moments] for key, _ in names}
    columns = {key: sizes for key, sizes in columns.items() if any(sizes)}
    kept = kept_indices(list(columns.values()), MOST_BUCKETS)
    aside = _aside(recording)
    return {
        "what": what,
        "x": "s",
        "title": {"host": "RAM", "device": "Device memory"}[what],
        "t": [round(moments[index].seconds, 3) for index in kept],
        "series": [
            {
                "name": name,
                "colour": number,
                "shown": key not in aside,
                "v": [columns[key][index] for index in kept],
            }
            for number, (key, name) in enumerate(names)
            if key in columns
        ],
        "limits": [
            {"name": printable(limit.source), "v": limit.limit_bytes}
            for limit in recording.limits
            if limit.what == what
        ],
        "lines": _growth_lines(profile, what) + _forecast_lines(profile, what),
        "phases": phases(recording),
        "strip": what == "host",
        "steps": steps(recording),
        "end": _end(recording),
        "until": recording.seconds,
    }


def _aside(recording: Recording) -> set[str]:
    """Which series wait for a click: others share the container, unless its limit binds."""
    limit = recording.limit_of("host")
    binds = limit is not None and "cgroup" in limit.source
    return {"uss_bytes"} if binds else {"uss_bytes", "container_bytes"}


def kept_indices(columns: Sequence[Sequence[int | None]], buckets: int) -> list[int]:
    """Return which points to draw: in each bucket the highest and lowest of every column.

    The first and the last point are kept too, so every peak and the end of the run are drawn.
    """
    count = len(columns[0]) if columns else 0
    if count <= 2 * buckets:
        return list(range(count))
    kept = {0, count - 1}
    for number in range(buckets):
        start, stop = number * count // buckets, (number + 1) * count // buckets
        for column in columns:
            known = [index for index in range(start, stop) if column[index] is not None]
            if known:
                kept.add(max(known, key=column.__getitem__))  # type: ignore[arg-type]
                kept.add(min(known, key=column.__getitem__))  # type: ignore[arg-type]
    return sorted(kept)


def _size(moment: Sample | Step, key: str) -> int | None:
    if key == "gpu_bytes":
        uses = getattr(moment, "gpus", ())
        return sum(use.used_bytes for use in uses) if uses else None
    size: int | None = getattr(moment, key, None)
    return size


def phases(recording: Recording) -> list[list[Any]]:
    """Return kind, label, start, end and lane of each phase; of very many, the longest."""
    rows: list[list[Any]] = []
    for phase in recording.phases:
        end = recording.seconds if phase.end_seconds is None else phase.end_seconds
        lane = 1 if phase.kind in _INNER else 0
        label = printable(phase.label)[:60]
        rows.append([phase.kind, label, round(phase.start_seconds, 3), round(end, 3), lane])
    rows = sorted(rows, key=lambda row: row[2] - row[3])[:MOST_PHASES]
    return sorted(rows, key=lambda row: (row[2], row[4]))


def steps(recording: Recording) -> list[list[float]]:
    """Return time and number of steps, so that the pointer can tell where it is."""
    each = max(1, -(-len(recording.steps) // MOST_STEPS))
    return [[round(step.seconds, 3), step.step] for step in recording.steps[::each]]


def _growth_lines(profile: Profile, what: str) -> list[dict[str, Any]]:
    return [
        {
            "kind": "growth",
            "name": f"leak: +{format_bytes(growth.bytes_per_step)} per step"
            if growth.bytes_per_step
            else "leak",
            "from": [growth.start_seconds, growth.start_bytes],
            "to": [growth.end_seconds, growth.end_bytes],
        }
        for growth in profile.growths
        if growth.what == what and growth.kind == "leak"
    ]


def _forecast_lines(profile: Profile, what: str) -> list[dict[str, Any]]:
    leaks = {growth.what: growth for growth in profile.growths if growth.kind == "leak"}
    lines = []
    for forecast in profile.forecasts:
        if forecast.what != what or forecast.seconds_left <= 0:
            continue
        # A run that ended gave its memory back: the line goes on from where it last grew.
        leak = leaks.get(what)
        start = profile.recording.seconds if leak is None else leak.end_seconds
        held = forecast.now_bytes if leak is None else leak.end_bytes
        left = max(0.0, (forecast.limit_bytes - held) / forecast.bytes_per_second)
        where = f" near epoch {forecast.epoch}" if forecast.epoch is not None else ""
        lines.append(
            {
                "kind": "forecast",
                "name": f"limit reached{where}",
                "from": [start, held],
                "to": [start + left, forecast.limit_bytes],
            }
        )
    return lines


def _end(recording: Recording) -> dict[str, Any] | None:
    end = recording.end
    if end is None:
        return None
    return {"t": end.seconds, "name": how_ended(end), "bad": end.exit_code != 0}


def step_chart(recording: Recording) -> dict[str, Any] | None:
    """Return device memory within the traced step."""
    breakdown = recording.breakdown
    if breakdown is None or len(breakdown.curve) < 2:
        return None
    sizes: list[int | None] = [size for _, size in breakdown.curve]
    kept = kept_indices([sizes], MOST_BUCKETS)
    times = [breakdown.curve[index][0] for index in kept]
    return {
        "what": "step",
        "x": "ms",
        "title": f"Within step {breakdown.step}",
        "t": [round(time, 4) for time in times],
        "series": [
            {"name": "in use", "colour": 0, "shown": True, "v": [sizes[index] for index in kept]}
        ],
        "limits": [],
        "lines": [],
        "phases": [],
        "steps": [],
        "end": None,
        "until": times[-1],
    }


def comparison_charts(one: Profile, other: Profile) -> list[dict[str, Any]]:
    """Return both runs in one chart, each from its own start."""
    drawn = []
    for what, key, title in (
        ("host", "rss_bytes", "RAM"),
        ("device", "allocator_bytes", "Device memory"),
    ):
        series: list[dict[str, Any]] = []
        for letter, profile in (("A", one), ("B", other)):
            recording = profile.recording
            moments: Sequence[Sample | Step] = recording.samples or recording.steps
            sizes = [_size(moment, key) for moment in moments]
            kept = kept_indices([sizes], MOST_BUCKETS)
            if any(sizes):
                times = [round(moments[index].seconds, 3) for index in kept]
                drawn_sizes = [sizes[index] for index in kept]
                colour = len(series) * 3
                series.append(
                    {"name": letter, "colour": colour, "shown": True, "t": times, "v": drawn_sizes}
                )
        limits = {
            (printable(limit.source), limit.limit_bytes)
            for profile in (one, other)
            for limit in profile.recording.limits
            if limit.what == what
        }
        if series:
            drawn.append(
                {
                    "what": what,
                    "x": "s",
                    "title": title,
                    "t": [],
                    "series": series,
                    "limits": [{"name": name, "v": size} for name, size in sorted(limits)],
                    "lines": [],
                    "phases": [],
                    "steps": [],
                    "end": None,
                    "until": max(one.recording.seconds, other.recording.seconds),
                }
            )
    return drawn
