"""What is seen first: the verdict, the figures behind it, the timeline, and what to change."""

from __future__ import annotations

import time

from oomdoctor.comparison import highest_device, highest_ram, how_ended
from oomdoctor.facts import Diagnosis
from oomdoctor.findings import Finding, Report
from oomdoctor.recording import Profile, Recording
from oomdoctor.report.escape import cut
from oomdoctor.report.headline import headline_of
from oomdoctor.report.of_findings import MAX_REMEDIES, once_for_each_rule, remedy
from oomdoctor.report.of_profile import during_phase
from oomdoctor.report.page import words
from oomdoctor.report.page.markup import Safe, join, tag, with_code
from oomdoctor.report.page.parts import banner, bar, code_block, folded, section
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


def hero(report: Report) -> Safe:
    """Return the verdict, large, and the titles of what to do."""
    head = headline_of(report)
    fired = once_for_each_rule(report.fired)
    todo = _todo(fired[:MAX_REMEDIES]) if fired else None
    return banner(head.state, head.topic or "Verdict", head.text, todo)


def _todo(findings: list[Finding]) -> Safe:
    items = []
    for number, finding in enumerate(findings, 1):
        shown = remedy(finding)
        gain = f" ({shown.gain})" if shown.gain else ""
        items.append(tag("li", tag("a", shown.title, href=f"#change-{number}"), gain))
    return tag("div", tag("h2", "What to change"), tag("ol", *items), class_="todo")


def tiles(profile: Profile, diagnosis: Diagnosis | None) -> Safe:
    """Return the few figures that matter."""
    recording = profile.recording
    asked = diagnosis.requested_bytes if diagnosis is not None else None
    drawn = [_ram_tile(recording)]
    peak = highest_device(recording)
    limit = recording.limit_of("device")
    if asked is not None and limit is not None:
        told = f"more, on a card of {format_bytes(limit.limit_bytes)}"
        drawn.append(_tile("Asked of the device", format_bytes(asked), told))
    elif peak is not None or limit is not None:
        size = limit.limit_bytes if limit else None
        drawn.append(_tile_of_limit("Highest device memory", peak, size))
    growth = profile.leak or (profile.growths[0] if profile.growths else None)
    is_beside = asked is not None and growth is not None and growth.kind in ("flat", "unclear")
    if growth is not None and not is_beside:
        during = f", during {growth.phase}" if growth.phase else ""
        told = words.KINDS[growth.kind] + (during if growth.kind == "leak" else "")
        place = "RAM" if growth.what == "host" else "device memory"
        drawn.append(_tile(f"Growth of {place}", words.rate(growth), told))
    coming = [one for one in profile.forecasts if one.seconds_left > 0]
    if coming:
        soon = min(coming, key=lambda one: one.seconds_left)
        where = f"near epoch {soon.epoch}" if soon.epoch is not None else "if it goes on"
        left = f"in about {words.duration(soon.seconds_left)}"
        drawn.append(_tile("Limit reached", where, left))
    drawn.append(_end_tile(recording))
    return tag("div", *drawn, class_="tiles")


def _ram_tile(recording: Recording) -> Safe:
    limit = recording.limit_of("host")
    source = f" ({limit.source})" if limit else ""
    size = limit.limit_bytes if limit else None
    return _tile_of_limit("Highest RAM", highest_ram(recording), size, source)


def _tile_of_limit(label: str, peak: int | None, limit: int | None, source: str = "") -> Safe:
    if limit is None or peak is None:
        told = "" if limit is None else f"the limit is {format_bytes(limit)}"
        return _tile(label, format_bytes(peak), told)
    share = peak / limit
    kind = "bad" if share > 0.95 else "near" if share > 0.8 else ""
    return _tile(
        label,
        format_bytes(peak),
        f"{share:.0%} of {format_bytes(limit)}{source}",
        bar(share, f"meter {kind}".strip()),
    )


def _end_tile(recording: Recording) -> Safe:
    end = recording.end
    if end is None:
        return _tile("End", how_ended(end).capitalize(), "the recording was cut off")
    told = (
        f"exit code {end.exit_code}{during_phase(recording)}, after {words.duration(end.seconds)}"
    )
    return _tile("End", how_ended(end).capitalize(), told)


def _tile(label: str, value: str, told: str, extra: Safe | None = None) -> Safe:
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("strong", value),
        extra,
        tag("span", told, class_="told"),
        class_="tile",
    )


def timeline(profile: Profile, count: int) -> Safe:
    """Return where the script draws memory over time."""
    recording = profile.recording
    thinned = ""
    if recording.sample_count > len(recording.samples):
        kept = "the highest and lowest RAM of each stretch are kept"
        thinned = f" {recording.sample_count:,} samples, thinned: {kept}."
    hint = "Drag to zoom, double-click to see all again, hover for figures." + thinned
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


def remedies(report: Report) -> Safe | None:
    """Return what to change, as code to copy; the first three, the rest folded."""
    fired = once_for_each_rule(report.fired)
    if not fired:
        return None
    cards = [_card(number, finding) for number, finding in enumerate(fired, 1)]
    more = cards[MAX_REMEDIES:]
    return section(
        "change",
        "What to change",
        *cards[:MAX_REMEDIES],
        folded(f"{len(more)} more", *more) if more else None,
    )


def _card(number: int, finding: Finding) -> Safe:
    shown = remedy(finding)
    cost = finding.cost
    costs = [] if cost is None else [("Speed", cost.speed), ("Effort", cost.effort)]
    if cost is not None:
        costs.append(("Result", cost.accuracy))
        costs.append(("Data", "all of it" if cost.whole_dataset else "a part of it"))
    return tag(
        "article",
        tag(
            "h3",
            f"{number}. {shown.title} ",
            tag("span", shown.gain, class_="gain") if shown.gain else None,
            tag("span", shown.rule, class_="rule", title=finding.name),
        ),
        tag("p", with_code(shown.message)),
        code_block(shown.code.rstrip()) if shown.code else None,
        tag("dl", *(join(tag("dt", what), tag("dd", told)) for what, told in costs if told))
        if costs
        else None,
        id=f"change-{number}",
    )
