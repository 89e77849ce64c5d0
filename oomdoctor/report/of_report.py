"""A whole report: the verdict first, then what led to it, then what to do."""

from __future__ import annotations

from dataclasses import replace

from oomdoctor.findings import Outcome, Report
from oomdoctor.report import (
    of_comparison,
    of_data,
    of_diagnosis,
    of_estimate,
    of_findings,
    of_gate,
    of_machine,
    of_profile,
    of_scripts,
    of_tuning,
)
from oomdoctor.report.escape import printable
from oomdoctor.report.headline import headline_of
from oomdoctor.report.of_findings import MAX_REMEDIES
from oomdoctor.report.view import Line, Table, View


def view_report(report: Report, *, verbose: bool = False) -> View:
    """Return the verdict first, then what led to it, then what to do."""
    if report.facts.comparison is not None:
        return of_comparison.view_comparison(
            report.facts.comparison, report.verdict, verbose=verbose
        )
    if report.parts:
        return _view_gate(report, verbose=verbose)
    facts = report.facts
    head = headline_of(report)
    told = [one for one in report.fired if verbose or not of_scripts.is_hint(one)]
    fired = of_findings.once_for_each_rule(told)
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
        lines += of_estimate.tight_lines(facts.estimate, facts.machine)
        lines += of_estimate.program_lines(facts.estimate, facts.machine)
        tables += of_gate.growth_tables(report)
        tables += of_estimate.estimate_tables(facts.estimate, verbose=verbose)
    if facts.tuning is not None:
        lines += of_tuning.tuning_lines(facts.tuning)
        tables.append(of_tuning.trials_table(facts.tuning))
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
        state=head.state,
        headline=head.sentence,
        lines=tuple(lines),
        tables=tuple(table for table in tables if table.rows),
        places=places,
        more_places=more_places,
        remedies=tuple(of_findings.remedy(finding) for finding in shown),
        more_remedies=len(fired) - len(shown),
        trade_offs=of_findings.trade_off_table(shown)
        if len(shown) > 1 and not is_code_alone
        else None,
        notes=_notes(report, verbose=verbose),
    )


def _view_gate(report: Report, *, verbose: bool) -> View:
    head = headline_of(report)
    shown, more = of_gate.remedies(report, most=None if verbose else MAX_REMEDIES)
    return View(
        title=f"oomdoctor {report.command}",
        state=head.state,
        headline=head.sentence,
        tables=tuple(of_gate.target_tables(report) + of_gate.growth_tables(report)),
        remedies=shown,
        more_remedies=more,
        notes=tuple(printable(note) for note in report.notes),
        details=part_views(report, with_good=True) if verbose and not report.is_survey else (),
    )


def part_views(report: Report, *, with_good: bool) -> tuple[View, ...]:
    """Return a view of each part; those that fit and have no remedy only where asked for."""
    views = [replace(view_report(part), title=of_gate.part_name(part)) for part in report.parts]
    return tuple(view for view in views if with_good or view.state != "fits" or view.remedies)


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
        notes += of_scripts.hints_note(report, verbose=verbose)
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


_OPTIONS = {
    "check": ("--vram", "--ram", "--purpose"),
    "estimate": ("--vram", "--ram", "--baseline"),
    "tune": ("--vram", "--ram"),
}
"""What could be passed to a command so that more rules have the facts they need."""


def _undecided(report: Report, *, verbose: bool) -> list[str]:
    """Return which options would let more rules be checked, with how many rules each."""
    if not verbose or of_scripts.is_code_alone(report):
        return []
    count: dict[str, int] = {}
    for finding in report.findings:
        if finding.outcome is not Outcome.UNKNOWN:
            continue
        # An option counts for a rule that it decides alone.
        for option in _OPTIONS.get(report.command, ()):
            if all(option in fact.how_to_get for fact in finding.missing):
                count[option] = count.get(option, 0) + 1
    return [
        f"Pass {option} to check {number} more rule{'' if number == 1 else 's'}."
        for option, number in count.items()
    ]


def _fixable(report: Report) -> list[str]:
    """Return how many of the mistakes can be changed safely, and how."""
    assert report.facts.scripts is not None
    fired = {
        (at.file, at.cell, at.line, at.column)
        for finding in report.fired
        if (at := finding.location) is not None
    }
    count = sum(
        match.is_fixable and (match.file, match.cell, match.line, match.column) in fired
        for match in report.facts.scripts.matches
    )
    return [f"--fix can change {count} of these safely; --diff shows how."] if count else []
