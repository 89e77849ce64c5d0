"""The words that tell of code: how many mistakes, where each stands, what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oomdoctor.findings import Finding, Location, Outcome, Report
from oomdoctor.report.escape import printable
from oomdoctor.report.view import Line, Place

MAX_PLACES = 30
MAX_NAMED = 3
STATES = {"error": "does_not_fit", "warning": "warning", "info": "info"}


def is_code_alone(report: Report) -> bool:
    """Return whether a report is about scripts and nothing else."""
    return report.facts.scripts is not None and report.facts.inventory is None


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
    """Return where each mistake stands, by file and line, and how many are not shown."""
    found = sorted(_fired(report), key=_order)
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


def where(location: Location) -> str:
    """Return a place as editors read it, `train.py:12:5`; a notebook's names the cell."""
    cell = "" if location.cell is None else f":cell {location.cell}"
    return printable(f"{location.file}{cell}:{location.line}:{location.column}")


def once_for_each_rule(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with those about code once for each rule, with the places as message."""
    by_rule: dict[str, list[Location]] = {}
    for finding in findings:
        if finding.location is not None:
            by_rule.setdefault(finding.rule, []).append(finding.location)
    kept = []
    for finding in findings:
        if finding.location is None:
            kept.append(finding)
        elif finding.rule in by_rule:
            at = by_rule.pop(finding.rule)
            more = f" and {len(at) - MAX_NAMED} more" if len(at) > MAX_NAMED else ""
            named = ", ".join(where(location) for location in at[:MAX_NAMED])
            kept.append(replace(finding, message=f"At {named}{more}."))
    return kept


def _unchecked(report: Report) -> int:
    return report.facts.scripts.unchecked if report.facts.scripts else 0


def _fired(report: Report) -> list[Finding]:
    return [
        finding
        for finding in report.findings
        if finding.outcome is Outcome.FIRED and finding.location is not None
    ]


def _order(finding: Finding) -> tuple[str, int, int, int]:
    at = finding.location
    return (at.file, at.cell or 0, at.line, at.column) if at else ("", 0, 0, 0)
