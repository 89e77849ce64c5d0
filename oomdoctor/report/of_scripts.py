"""The text on code: how many mistakes, where they are, what to write instead."""

from __future__ import annotations

from oomdoctor.facts import Scripts
from oomdoctor.findings import Finding, Report
from oomdoctor.report.escape import printable
from oomdoctor.report.of_findings import STATES, where
from oomdoctor.report.view import Line, Place

MAX_PLACES = 30


def is_code_alone(report: Report) -> bool:
    """Return whether a report is about scripts and nothing else."""
    return isinstance(report.facts.deciding, Scripts)


def state(report: Report) -> str:
    """Return how bad the worst mistake is; what was not read whole may hold another."""
    found = _fired(report)
    if not found:
        return "unknown" if _unchecked(report) else "fits"
    return STATES[min(found, key=lambda finding: finding.severity.rank).severity.value]


def headline(report: Report) -> str:
    """Return what was found, in one sentence."""
    scripts = report.facts.scripts
    assert scripts is not None
    found = _fired(report)
    of = "1 script" if scripts.files == 1 else f"{scripts.files:,} scripts"
    unchecked = _unchecked(report)
    if unchecked == scripts.files and not found:
        return f"{of[0].upper()}{of[1:]} could not be checked."
    unread = f"; {unchecked:,} could not be checked" if unchecked else ""
    if not found:
        return f"No memory mistakes found in {of}{unread}."
    hints = sum(finding.severity.value == "info" for finding in found)
    counts = ((len(found) - hints, "memory mistake"), (hints, "hint"))
    words = [f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    files = {finding.location.file for finding in found if finding.location}
    within = of if len(files) == scripts.files else f"{len(files):,} of {of}"
    return f"{' and '.join(words)} in {within}{unread}."


def scripts_line(report: Report) -> Line:
    """Return the same as one line among others."""
    return Line(state=state(report), category="Code", text=headline(report).rstrip("."))


def places(report: Report, *, verbose: bool) -> tuple[tuple[Place, ...], int]:
    """Return where each mistake is, by file and line, and how many are not shown.

    Hints are counted, and listed after the mistakes if they are asked for.
    """
    found = sorted(_fired(report), key=_order)
    mistakes = [finding for finding in found if not is_hint(finding)]
    found = mistakes + [finding for finding in found if is_hint(finding)] if verbose else mistakes
    shown = found if verbose else found[:MAX_PLACES]
    made = tuple(
        Place(
            state=STATES[finding.severity.value],
            where=where(finding.location),
            rule=finding.rule,
            message=printable(finding.message),
        )
        for finding in shown
        if finding.location is not None
    )
    return made, len(found) - len(shown)


def is_hint(finding: Finding) -> bool:
    """Return whether a finding about code only matters with larger data or longer runs."""
    return finding.location is not None and finding.severity.value == "info"


def hints_note(report: Report, *, verbose: bool) -> list[str]:
    """Return how the hints that are only counted can be seen."""
    hints = sum(map(is_hint, _fired(report)))
    if verbose or not hints:
        return []
    if hints == 1:
        return ["1 hint not shown; -v lists it."]
    return [f"{hints:,} hints not shown; -v lists them."]


def _unchecked(report: Report) -> int:
    return report.facts.scripts.unchecked if report.facts.scripts else 0


def _fired(report: Report) -> list[Finding]:
    return [finding for finding in report.fired if finding.location is not None]


def _order(finding: Finding) -> tuple[str, int, int, int]:
    at = finding.location
    return (at.file, at.cell or 0, at.line, at.column) if at else ("", 0, 0, 0)
