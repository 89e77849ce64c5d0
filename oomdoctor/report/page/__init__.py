"""A recorded run as one self-contained HTML page.

The timeline is drawn by a few hundred lines of our own JavaScript (`chart.js`), so the page needs
no package, no network and no server, and stays small.
"""

from __future__ import annotations

from oomdoctor.findings import Report
from oomdoctor.report.page import chart, comparing, ending, frame, growing, peak, top
from oomdoctor.report.page.markup import join

__all__ = ["render"]


def render(report: Report) -> str:
    """Return the report on a recorded run, or the comparison of two, as an HTML page.

    Args:
        report: What `api.run.report_on` or `api.run.compare_runs` returns.
    """
    if report.facts.comparison is not None:
        return comparing.render(report)
    profile = report.facts.profile
    assert profile is not None
    recording = profile.recording
    data = {"charts": chart.charts(profile), "step": chart.step_chart(recording)}
    body = join(
        top.header(report),
        top.hero(report),
        top.tiles(profile, report.facts.diagnosis),
        top.timeline(profile, len(data["charts"] or ())),
        top.remedies(report),
        ending.last_words(report),
        growing.growth(profile),
        peak.breakdown(profile, report.facts.diagnosis),
        growing.phases(profile),
        ending.rest(report),
    )
    return frame.document(f"{top.name_of(recording)} · oomdoctor profile", body, data)
