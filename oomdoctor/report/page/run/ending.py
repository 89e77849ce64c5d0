"""The end of a run: how it ended, why, the lines of the log; and the notes."""

from __future__ import annotations

from oomdoctor._version import __version__
from oomdoctor.facts import Diagnosis
from oomdoctor.findings import Report
from oomdoctor.recording import End, Recording
from oomdoctor.report import text
from oomdoctor.report.of_diagnosis import diagnosis_lines, others_table
from oomdoctor.report.of_profile import NOT_SEEN, who_ended
from oomdoctor.report.of_report import view_report
from oomdoctor.report.page import words
from oomdoctor.report.page.markup import Safe, join, tag, with_code
from oomdoctor.report.page.parts import code_block, folded, section, table
from oomdoctor.units import format_bytes

MAX_ERROR = 20_000
MAX_QUOTE = 2_000


def last_words(report: Report) -> Safe:
    """Return how it ended, the cause, and the evidence."""
    assert report.facts.profile is not None
    recording, diagnosis = report.facts.profile.recording, report.facts.diagnosis
    rows = [("How", _how(recording)), *_last_sample(recording)]
    evidence, others = None, None
    if diagnosis is not None:
        rows += [
            (line.category, line.text)
            for line in diagnosis_lines(diagnosis)
            if not line.category.startswith("line ")
        ]
        evidence = _evidence(diagnosis)
        others = _others(diagnosis)
    facts = tag("dl", *(join(tag("dt", what), tag("dd", detail)) for what, detail in rows))
    return section("end", "How it ended", facts, evidence, others, _error(recording.error))


def _how(recording: Recording) -> str:
    end = recording.end
    if end is None:
        return NOT_SEEN
    after = f"after {words.duration(end.seconds)}"
    return f"{who_ended(end)}, exit code {end.exit_code}, {after}{_kills(end)}"


def _kills(end: End) -> str:
    if end.oom_kills is None:
        return ""
    risen = f"rose by {end.oom_kills}" if end.oom_kills else "did not change"
    return f"; the container's oom_kill counter {risen}"


def _last_sample(recording: Recording) -> list[tuple[str, str]]:
    if not recording.samples:
        return []
    last = recording.samples[-1]
    detail = format_bytes(last.rss_bytes)
    detail += f" at {words.duration(last.seconds)}"
    detail += f", in {last.phase}" if last.phase else ""
    detail += f", {last.processes} processes" if (last.processes or 0) > 1 else ""
    return [("Last sample", detail)]


def _evidence(diagnosis: Diagnosis) -> Safe | None:
    if not diagnosis.evidence:
        return None
    lines = [
        join(tag("span", f"{number:>5} ", class_="number"), _cut(text, MAX_QUOTE), "\n")
        for number, text in diagnosis.evidence
    ]
    return join(tag("h3", "Lines of the log"), tag("pre", *lines, class_="log"))


def _others(diagnosis: Diagnosis) -> Safe | None:
    if not diagnosis.alternatives:
        return None
    others = others_table(diagnosis)
    return folded(others.title, table(others.headers, others.rows, " n "))


def _error(error: str | None) -> Safe | None:
    if not error:
        return None
    return folded("Full error message", code_block(_cut(error, MAX_ERROR)))


def _cut(detail: str, most: int) -> str:
    if len(detail) <= most:
        return detail
    half = most // 2
    return f"{detail[:half]}\n… {len(detail) - 2 * half:,} characters omitted …\n{detail[-half:]}"


def rest(report: Report) -> Safe:
    """Return the notes, the report as text, and where the recording is."""
    assert report.facts.profile is not None
    notes = list(report.notes)
    if report.facts.diagnosis is not None:
        notes += report.facts.diagnosis.notes
    notes = list(dict.fromkeys(notes))
    as_text = text.render(view_report(report))
    folder = report.facts.profile.folder
    where = f" The recording is in {folder}." if folder else ""
    return join(
        section("notes", "Notes", tag("ul", *(tag("li", with_code(note)) for note in notes)))
        if notes
        else None,
        folded("The report as text, to paste into an issue", code_block(as_text.rstrip())),
        tag("footer", f"oomdoctor {__version__}. This page needs no network.{where}"),
    )
