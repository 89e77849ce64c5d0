"""The page of a recorded run, and of the comparison of two.

The timeline is drawn by a few hundred lines of our own JavaScript (`timeline.js`), so the page
needs no package, no network and no server, and stays small.
"""

from __future__ import annotations

from oomdoctor.findings import Report
from oomdoctor.report.page import frame, remedies
from oomdoctor.report.page.markup import join
from oomdoctor.report.page.run import comparing, ending, growing, peak, timeline, top

SCRIPTS = ("timeline.js", "pointer.js")


def render(report: Report) -> str:
    """Return the report on a recorded run, or the comparison of two, as an HTML page."""
    if report.facts.comparison is not None:
        return comparing.render(report)
    profile = report.facts.profile
    assert profile is not None
    recording = profile.recording
    data = {"charts": timeline.charts(profile), "step": timeline.step_chart(recording)}
    body = join(
        top.header(report),
        remedies.hero(report),
        top.tiles(profile, report.facts.diagnosis),
        top.timeline(profile, len(data["charts"] or ())),
        remedies.section_of(report),
        ending.last_words(report),
        growing.growth(profile),
        peak.breakdown(profile, report.facts.diagnosis),
        growing.phases(profile),
        ending.rest(report),
    )
    title = f"{top.name_of(recording)} · oomdoctor profile"
    return frame.document(title, body, data, scripts=SCRIPTS)
