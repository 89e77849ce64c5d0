"""Two recorded runs on one page: what changed, and both timelines in one chart."""

from __future__ import annotations

from oomdoctor._version import __version__
from oomdoctor.comparison import Change, how_ended
from oomdoctor.findings import Report
from oomdoctor.report import text
from oomdoctor.report.escape import cut
from oomdoctor.report.headline import headline_of
from oomdoctor.report.of_comparison import row, view_comparison
from oomdoctor.report.page import frame
from oomdoctor.report.page.markup import Safe, join, tag, with_code
from oomdoctor.report.page.parts import banner, code_block, folded, section
from oomdoctor.report.page.run import timeline
from oomdoctor.report.page.run.top import MAX_COMMAND
from oomdoctor.report.page.words import duration

SCRIPTS = ("timeline.js", "pointer.js")
_LOWER_IS_BETTER = ("bytes", "seconds")
_NEITHER = ("ram_limit_bytes", "device_limit_bytes", "seconds")


def render(report: Report) -> str:
    """Return a comparison as an HTML page.

    Args:
        report: What `api.run.compare_runs` returns; its parts are the reports on both runs.
    """
    comparison = report.facts.comparison
    assert comparison is not None
    one, other = (part.facts.profile for part in report.parts)
    assert one is not None
    assert other is not None
    head = headline_of(report)
    charts = timeline.comparison_charts(one, other)
    places = [
        tag("div", class_="chart", data_chart=str(number), data_group="run")
        for number in range(len(charts))
    ]
    hint = "Each run from its own start. Drag to zoom, double-click to reset."
    as_text = text.render(view_comparison(comparison, head.state))
    body = join(
        tag("header", tag("span", "oomdoctor profile --compare", class_="brand")),
        banner(head.state, "What changed", head.text),
        tag("div", *(_run(letter, part) for letter, part in zip("AB", report.parts, strict=True)),
            class_="tiles"),
        section("timeline", "Memory over time", *places, tag("p", hint, class_="hint")),
        _changes("changes", "What changed", "what", comparison.changes),
        _changes("phases", "Peak RAM by phase", "phase", comparison.phases),
        _changes("peak", "Memory at the peak of the traced step", "held by", comparison.layers),
        folded("The comparison as text, to paste into an issue", code_block(as_text.rstrip())),
        tag("footer", f"oomdoctor {__version__}. This page needs no network."),
    )  # fmt: skip
    data = {"charts": charts, "step": None}
    return frame.document("oomdoctor profile --compare", body, data, scripts=SCRIPTS)


def _run(letter: str, report: Report) -> Safe:
    profile = report.facts.profile
    assert profile is not None
    recording = profile.recording
    colour = {"A": "s0", "B": "s3"}[letter]
    ended = f"{how_ended(recording.end).capitalize()}, after {duration(recording.seconds)}"
    return tag(
        "div",
        tag("span", tag("span", class_=f"swatch {colour}"), f"Run {letter}", class_="label"),
        tag("code", cut(" ".join(recording.command), MAX_COMMAND)),
        tag("span", with_code(f"{ended}. {headline_of(report).sentence}"), class_="detail"),
        tag("span", profile.folder or "", class_="detail"),
        class_="tile",
    )


def _changes(identity: str, title: str, first: str, changes: tuple[Change, ...]) -> Safe | None:
    if not changes:
        return None
    head = tag(
        "tr", tag("th", first), *(tag("th", one, class_="n") for one in ("A", "B", "change"))
    )
    rows = []
    for change in changes:
        label, before, after, detail = row(change)
        rows.append(
            tag(
                "tr",
                tag("td", label),
                tag("td", before, class_="n"),
                tag("td", after, class_="n"),
                tag("td", detail, class_=f"n {_tone(change)}".strip()),
            )
        )
    drawn = tag("table", tag("thead", head), tag("tbody", *rows))
    return section(identity, title, tag("div", drawn, class_="scroll"))


def _tone(change: Change) -> str:
    """Whether a change is for the better; of some nobody can tell."""
    if change.is_same or change.unit not in _LOWER_IS_BETTER or change.name in _NEITHER:
        return ""
    risen = change.difference
    if risen is None:
        if change.name != "leak_bytes_per_step":
            return ""
        return "better" if change.after is None else "worse"
    return "better" if risen < 0 else "worse"
