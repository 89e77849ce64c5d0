"""The words that tell of findings: where each stands, what to change, what that costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from oomdoctor.findings import Finding, Location
from oomdoctor.report.escape import printable
from oomdoctor.report.view import Remedy, Table
from oomdoctor.units import format_bytes

MAX_REMEDIES = 3
MAX_NAMED = 3
STATES = {"error": "does_not_fit", "warning": "warning", "info": "info"}
"""How a severity is shown."""


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


def remedy(finding: Finding, *, where: str = "") -> Remedy:
    """Return one finding as a thing to change."""
    gains = []
    if finding.saves_bytes is not None and finding.saves_bytes > 0:
        gains.append(f"saves {format_bytes(finding.saves_bytes)}")
    if finding.makes_it_fit:
        gains.append("makes it fit")
    if finding.is_known:
        gains.append("known")
    return Remedy(
        state=STATES[finding.severity.value],
        title=finding.fix.title if finding.fix else finding.name,
        message=printable(where) + finding.message,
        gain=", ".join(gains),
        code=finding.fix.code if finding.fix else "",
        rule=finding.rule,
    )


def trade_off_table(findings: Sequence[Finding]) -> Table:
    """Return what each remedy saves and costs, for the person who decides."""
    rows = [
        (
            f"{number}. {_title(finding)}",
            format_bytes(finding.saves_bytes) if finding.saves_bytes else "–",
            _first_clause(finding.cost.speed),
            "all" if finding.cost.whole_dataset else "part",
            finding.cost.effort,
        )
        for number, finding in enumerate(findings, 1)
        if finding.cost is not None
    ]
    return Table(
        title="What each change costs",
        headers=("what to do", "saves", "speed", "data", "effort"),
        rows=tuple(rows),
    )


def _title(finding: Finding) -> str:
    return printable(finding.fix.title if finding.fix else finding.name)


def _first_clause(sentence: str) -> str:
    """Return what a table has room for; the rule's page has the whole sentence."""
    return re.split(r"[,;:.]", sentence, maxsplit=1)[0]
