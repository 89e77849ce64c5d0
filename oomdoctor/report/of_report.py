"""A whole report: the verdict first, then what led to it, then what to do."""

from __future__ import annotations

import re
from dataclasses import replace

from oomdoctor.facts import Estimate
from oomdoctor.findings import Finding, Outcome, Report
from oomdoctor.report import (
    of_comparison,
    of_data,
    of_diagnosis,
    of_estimate,
    of_gate,
    of_machine,
    of_profile,
    of_scripts,
    of_tuning,
)
from oomdoctor.report.escape import printable
from oomdoctor.report.view import Line, Remedy, Table, View
from oomdoctor.units import format_bytes

MAX_REMEDIES = 3


def view_report(report: Report, *, verbose: bool = False) -> View:
    """Return the verdict first, then what led to it, then what to do."""
    if report.facts.comparison is not None:
        return of_comparison.view_comparison(
            report.facts.comparison, report.verdict, verbose=verbose
        )
    if report.parts:
        return _view_gate(report, verbose=verbose)
    facts = report.facts
    fired = [finding for finding in report.findings if finding.outcome is Outcome.FIRED]
    fired = of_scripts.once_for_each_rule(fired)
    shown = fired if verbose else fired[:MAX_REMEDIES]
    is_code_alone = of_scripts.is_code_alone(report)
    places, more_places = of_scripts.places(report, verbose=verbose)
    lines: list[Line] = []
    tables: list[Table] = []
    if facts.diagnosis is not None:
        lines += of_diagnosis.diagnosis_lines(facts.diagnosis)
        tables += of_diagnosis.diagnosis_tables(facts.diagnosis)
    if facts.profile is not None:
        lines += of_profile.profile_lines(facts.profile)
        tables += of_profile.profile_tables(facts.profile, verbose=verbose)
    if facts.estimate is not None:
        lines += of_estimate.estimate_lines(facts.estimate)
        tables += of_gate.growth_tables(report)
        tables += of_estimate.estimate_tables(facts.estimate, verbose=verbose)
    if facts.tuning is not None:
        lines += of_tuning.tuning_lines(facts.tuning)
        tables.append(of_tuning.trials_table(facts.tuning.trials, facts.tuning.target_bytes))
    if facts.inventory is not None:
        lines.append(of_data.data_line(facts.inventory))
        tables.append(of_data.groups_table(facts.inventory, facts.footprint, verbose=verbose))
    if facts.footprint is not None:
        lines += of_data.footprint_lines(facts.footprint, facts.inventory)
    if facts.scripts is not None and not is_code_alone:
        lines.append(of_scripts.scripts_line(report))
    if facts.machine is not None and facts.profile is None and not is_code_alone:
        chosen = facts.footprint.chosen if facts.footprint else None
        lines += of_machine.machine_lines(facts.machine, chosen=chosen)
    if facts.footprint is not None:
        has_gpu = bool(facts.machine and facts.machine.gpus)
        if len(facts.footprint.feedings) > 1:
            tables.append(of_data.feeding_table(facts.footprint, has_gpu=has_gpu))
        tables.append(of_data.stages_table(facts.footprint))
    return View(
        title=f"oomdoctor {report.command}",
        state=of_scripts.state(report) if is_code_alone else _state(report),
        headline=headline(report),
        lines=tuple(lines),
        tables=tuple(table for table in tables if table.rows),
        places=places,
        more_places=more_places,
        remedies=tuple(remedy(finding) for finding in shown),
        more_remedies=len(fired) - len(shown),
        trade_offs=_trade_off_table(shown) if len(shown) > 1 and not is_code_alone else None,
        notes=_notes(report, verbose=verbose),
    )


def _view_gate(report: Report, *, verbose: bool) -> View:
    shown, more = of_gate.remedies(report, most=None if verbose else MAX_REMEDIES)
    return View(
        title=f"oomdoctor {report.command}",
        state=of_gate.state(report),
        headline=headline(report),
        tables=tuple(of_gate.target_tables(report) + of_gate.growth_tables(report)),
        remedies=shown,
        more_remedies=more,
        notes=tuple(printable(note) for note in report.notes),
        details=part_views(report, with_good=True) if verbose else (),
    )


def part_views(report: Report, *, with_good: bool) -> tuple[View, ...]:
    """Return a view of each part; those that fit and have no remedy only where asked for."""
    views = [replace(view_report(part), title=of_gate.part_name(part)) for part in report.parts]
    return tuple(view for view in views if with_good or view.state != "fits" or view.remedies)


def headline(report: Report) -> str:
    """Return the verdict in one sentence."""
    if report.parts:
        return of_gate.headline(report)
    footprint, machine = report.facts.footprint, report.facts.machine
    if report.facts.profile is not None and report.facts.diagnosis is not None:
        return of_profile.headline(report.facts.profile, report.facts.diagnosis)
    if report.facts.diagnosis is not None:
        return of_diagnosis.headline(report.facts.diagnosis)
    if report.facts.tuning is not None:
        return of_tuning.headline(report.facts.tuning)
    if report.facts.estimate is not None:
        return _headline_of_step(report.verdict, report.facts.estimate)
    if of_scripts.is_code_alone(report):
        return of_scripts.headline(report)
    if footprint is None or machine is None or footprint.chosen is None:
        return {"fits": "It fits.", "does_not_fit": "It does not fit."}.get(
            report.verdict, "Whether it fits is not known."
        )
    chosen = footprint.chosen
    how = _WAYS_IN_WORDS[chosen.way]
    inventory = report.facts.inventory
    if inventory is not None and not inventory.is_complete:
        how = f"the scan was interrupted; of what was seen, {how}"
    takes = f"the data and TensorFlow take {format_bytes(chosen.ram_bytes)} of RAM"
    if report.verdict == "fits":
        also = f" and {format_bytes(chosen.vram_bytes)} of GPU memory" if machine.gpus else ""
        return f"It fits: {how}, {takes}{also}."
    if chosen.ram_verdict == "does_not_fit":
        need, free = _apart(chosen.ram_bytes, machine.ram.available_bytes)
        return (
            f"It does not fit: {how}, the data and TensorFlow take {need} of RAM; "
            f"{free} is available."
        )
    if report.verdict == "does_not_fit":
        need, free = _apart(chosen.vram_bytes, machine.usable_vram_bytes)
        return f"It does not fit: {how}, the data takes {need} of GPU memory; {free} is free."
    if chosen.ram_bytes is None:
        return f"Whether it fits is not known: {how}, its size in RAM cannot be told."
    return f"Whether it fits is not known: {how}, {takes}."


def _state(report: Report) -> str:
    """The verdict; a recorded run that ended well though memory grew deserves a warning."""
    diagnosis = report.facts.diagnosis
    if report.facts.profile is None or diagnosis is None or report.verdict != "fits":
        return report.verdict
    return "warning" if diagnosis.cause in ("leak", "pipeline_buffer") else "fits"


def _headline_of_step(verdict: str, estimate: Estimate) -> str:
    answer = {"fits": "It fits", "does_not_fit": "It does not fit"}.get(verdict, "Too close to say")
    told = of_estimate.headline(estimate)
    return f"{answer}: {told[0].lower()}{told[1:]}"


def _apart(one: int | None, other: int | None) -> tuple[str, str]:
    """Return two sizes as words that differ where the sizes do."""
    words = format_bytes(one), format_bytes(other)
    if one is None or other is None or one == other or words[0] != words[1]:
        return words
    return f"{one:,} bytes", f"{other:,} bytes"


_WAYS_IN_WORDS = {
    "memory": "loaded whole",
    "device": "loaded whole and copied to the GPU by `fit`",
    "stream": "streamed in batches",
    "mixed": "fed as is usual for each kind",
}


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
        state={"error": "does_not_fit", "warning": "warning"}.get(finding.severity.value, "info"),
        title=finding.fix.title if finding.fix else finding.name,
        message=printable(where) + finding.message,
        gain=", ".join(gains),
        code=finding.fix.code if finding.fix else "",
        rule=finding.rule,
    )


def _trade_off_table(findings: list[Finding]) -> Table:
    rows = [
        (
            f"{number}. {finding.remedy}",
            format_bytes(finding.saves_bytes) if finding.saves_bytes is not None else "–",
            _first_clause(finding.cost.speed),
            "all" if finding.cost.whole_dataset else "part",
            finding.cost.effort,
        )
        for number, finding in enumerate(findings, 1)
        if finding.cost is not None
    ]
    return Table(
        title="What each remedy costs",
        headers=("remedy", "saves", "speed", "data", "effort"),
        rows=tuple(rows),
    )


def _first_clause(sentence: str) -> str:
    """Return what a table has room for; the rule's page has the whole sentence."""
    return re.split(r"[,;:.]", sentence, maxsplit=1)[0]


def _notes(report: Report, *, verbose: bool) -> tuple[str, ...]:
    facts = report.facts
    notes: list[str] = list(report.notes)
    if facts.estimate is not None:
        notes += of_estimate.estimate_notes(facts.estimate)
    if facts.tuning is not None:
        notes += facts.tuning.notes
    if facts.diagnosis is not None:
        notes += facts.diagnosis.notes
    if facts.scripts is not None:
        notes += facts.scripts.notes
        notes += _fixable(report)
    if facts.machine is not None and not of_scripts.is_code_alone(report):
        notes += facts.machine.notes
    if facts.inventory is not None:
        notes += facts.inventory.notes
        for group in facts.inventory.groups:
            notes += [f"{group.name}: {note}" for note in group.notes]
        notes += [
            f"{skipped.files:,} passed over: {skipped.reason} ({', '.join(skipped.examples)})"
            for skipped in facts.inventory.skipped
        ]
    notes += _undecided(report, verbose=verbose)
    return tuple(printable(note) for note in dict.fromkeys(notes))


def _undecided(report: Report, *, verbose: bool) -> list[str]:
    """Return what would decide the rules that lacked a fact, one note for each way to give it."""
    unknown = [finding for finding in report.findings if finding.outcome is Outcome.UNKNOWN]
    if not verbose:
        if of_scripts.is_code_alone(report):
            return []  # what is not known is the GPU, and few scripts share one
        told = f"{len(unknown)} rules could not be decided from these facts; -v says what would."
        return [told] if unknown else []
    by_way: dict[str, list[str]] = {}
    for finding in unknown:
        for way in dict.fromkeys(fact.how_to_get for fact in finding.missing):
            by_way.setdefault(way, []).append(f"{finding.rule} {finding.name}")
    return [f"to decide {', '.join(rules)}: {way}" for way, rules in by_way.items()]


def _fixable(report: Report) -> list[str]:
    """Return how many of the mistakes can be changed safely, and how."""
    assert report.facts.scripts is not None
    fired = {
        (at.file, at.cell, at.line, at.column)
        for finding in report.findings
        if finding.outcome is Outcome.FIRED and (at := finding.location) is not None
    }
    count = sum(
        match.is_fixable and (match.file, match.cell, match.line, match.column) in fired
        for match in report.facts.scripts.matches
    )
    return [f"--fix can change {count} of these safely; --diff shows how."] if count else []
