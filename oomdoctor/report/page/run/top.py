"""What is seen first: what was run, the figures behind the verdict, and the timeline."""

from __future__ import annotations

import time

from oomdoctor.comparison import highest_device, highest_ram, how_ended
from oomdoctor.facts import Diagnosis
from oomdoctor.findings import Report
from oomdoctor.recording import Profile, Recording
from oomdoctor.report.escape import cut
from oomdoctor.report.of_profile import during_phase
from oomdoctor.report.page import words
from oomdoctor.report.page.markup import Safe, tag
from oomdoctor.report.page.parts import bar, section, tile
from oomdoctor.units import format_bytes

MAX_TITLE = 80
MAX_COMMAND = 400


def name_of(recording: Recording) -> str:
    """Return the command, short enough for a title."""
    words_ = recording.command[1:] if len(recording.command) > 1 else recording.command
    return cut(" ".join(words_) or "a run", MAX_TITLE)


def header(report: Report) -> Safe:
    """Return what was run, when, and for how long."""
    assert report.facts.profile is not None
    recording = report.facts.profile.recording
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(recording.started_at))
    versions = dict(recording.versions)
    known = [f"{name} {versions[name]}" for name in ("tensorflow", "keras") if name in versions]
    command = cut(" ".join(recording.command), MAX_COMMAND)
    return tag(
        "header",
        tag("span", "oomdoctor profile", class_="brand"),
        tag("code", command, class_="command", title=command),
        tag("span", " · ".join([started, words.duration(recording.seconds), *known])),
    )


def tiles(profile: Profile, diagnosis: Diagnosis | None) -> Safe:
    """Return the few figures that matter."""
    recording = profile.recording
    asked = diagnosis.requested_bytes if diagnosis is not None else None
    drawn = [_ram_tile(recording)]
    peak = highest_device(recording)
    limit = recording.limit_of("device")
    if asked is not None and limit is not None:
        detail = f"on a GPU with {format_bytes(limit.limit_bytes)}"
        drawn.append(tile("Requested on the device", format_bytes(asked), detail))
    elif peak is not None or limit is not None:
        size = limit.limit_bytes if limit else None
        drawn.append(_tile_of_limit("Peak device memory", peak, size))
    growth = profile.leak or (profile.growths[0] if profile.growths else None)
    is_beside = asked is not None and growth is not None and growth.kind in ("flat", "unclear")
    if growth is not None and not is_beside:
        during = f", during {growth.phase}" if growth.phase else ""
        detail = words.KINDS[growth.kind] + (during if growth.kind == "leak" else "")
        place = "RAM" if growth.what == "host" else "device memory"
        drawn.append(tile(f"{place[0].upper()}{place[1:]} growth", words.rate(growth), detail))
    coming = [one for one in profile.forecasts if one.seconds_left > 0]
    if coming:
        soon = min(coming, key=lambda one: one.seconds_left)
        where = f"near epoch {soon.epoch}" if soon.epoch is not None else "if it continues"
        left = f"in about {words.duration(soon.seconds_left)}"
        drawn.append(tile("Limit reached", where, left))
    drawn.append(_end_tile(recording))
    return tag("div", *drawn, class_="tiles")


def _ram_tile(recording: Recording) -> Safe:
    limit = recording.limit_of("host")
    source = f" ({limit.source})" if limit else ""
    size = limit.limit_bytes if limit else None
    return _tile_of_limit("Peak RAM", highest_ram(recording), size, source)


def _tile_of_limit(label: str, peak: int | None, limit: int | None, source: str = "") -> Safe:
    if limit is None or peak is None:
        detail = "" if limit is None else f"the limit is {format_bytes(limit)}"
        return tile(label, format_bytes(peak), detail)
    share = peak / limit
    kind = "bad" if share > 0.95 else "near" if share > 0.8 else ""
    return tile(
        label,
        format_bytes(peak),
        f"{share:.0%} of {format_bytes(limit)}{source}",
        bar(share, f"meter {kind}".strip()),
    )


def _end_tile(recording: Recording) -> Safe:
    end = recording.end
    if end is None:
        return tile("End", how_ended(end).capitalize(), "the recording was cut off")
    detail = (
        f"exit code {end.exit_code}{during_phase(recording)}, after {words.duration(end.seconds)}"
    )
    return tile("End", how_ended(end).capitalize(), detail)


def timeline(profile: Profile, count: int) -> Safe:
    """Return where the script draws memory over time."""
    recording = profile.recording
    thinned = ""
    if recording.sample_count > len(recording.samples):
        kept = "the highest and lowest RAM of each interval are kept"
        thinned = f" {recording.sample_count:,} samples, thinned: {kept}."
    hint = "Drag to zoom, double-click to reset, hover for values." + thinned
    places = [
        tag("div", class_="chart", data_chart=str(number), data_group="run")
        for number in range(count)
    ]
    return section(
        "timeline",
        "Memory over time",
        tag("noscript", tag("p", "The timeline needs JavaScript; the table of phases does not.")),
        *places,
        tag("p", hint, class_="hint"),
    )
