"""Several reports at once: one table for each target, and what to change first."""

from __future__ import annotations

from oomdoctor.facts import Growth
from oomdoctor.findings import Finding, Report, Severity
from oomdoctor.report import of_survey
from oomdoctor.report.escape import printable, shorten
from oomdoctor.report.of_findings import remedy, where
from oomdoctor.report.view import SYMBOLS, Remedy, Table
from oomdoctor.units import format_bytes

MAX_SUBJECT = 30
MAX_LAYERS = 10
_VERDICTS = {"fits": "fits", "does_not_fit": "does not fit", "unknown": "unknown"}


def part_name(report: Report) -> str:
    """Return what was examined and what it was compared with, in a few words."""
    names = [printable(name) for name in (report.subject, report.target) if name]
    return " on ".join(names) or f"oomdoctor {report.command}"


def headline(report: Report) -> str:
    """Return how many of the parts fit, in one sentence."""
    if report.is_survey:
        return of_survey.headline(report)
    judged = [part for part in report.parts if part.target is not None]
    bad = sum(part.verdict == "does_not_fit" for part in judged)
    unknown = sum(part.verdict == "unknown" for part in judged)
    errors = new_errors(report)
    told = f"{errors or 'no'} new error{'' if errors == 1 else 's'}"
    if not judged:
        return f"{told[0].upper()}{told[1:]}."
    if bad:
        do = "does" if bad == 1 else "do"
        return f"{bad} of {len(judged)} {do} not fit; {told}."
    if unknown:
        return f"{unknown} of {len(judged)} too close to call or unknown; {told}."
    return f"All {len(judged)} fit; {told}." if len(judged) > 1 else f"It fits; {told}."


def state(report: Report) -> str:
    """Return how it stands: new errors are as bad as what does not fit."""
    if report.is_survey:
        return report.verdict
    if new_errors(report):
        return "does_not_fit"
    is_code_alone = all(part.target is None for part in report.parts)
    return "fits" if is_code_alone else report.verdict


def new_errors(report: Report) -> int:
    """Return how many errors the baseline does not have; one on several targets is one."""
    return len(
        {
            (finding.rule, part.subject, finding.location)
            for part in report.parts
            for finding in part.fired
            if finding.severity is Severity.ERROR and not finding.is_known
        }
    )


def target_tables(report: Report) -> list[Table]:
    """Return one table for each target, and one for code."""
    if report.is_survey:
        return of_survey.tables(report)
    by_target: dict[str | None, list[Report]] = {}
    for part in report.parts:
        by_target.setdefault(part.target, []).append(part)
    return [_table(target, parts) for target, parts in by_target.items()]


def growth_tables(report: Report) -> list[Table]:
    """Return what changed by layer, for each model that grew by more than is allowed."""
    tables: dict[str, Table] = {}
    for part in report.parts or (report,):
        growth, subject = part.facts.growth, printable(part.subject or "the model")
        if growth is not None and growth.is_over:
            tables[subject] = _growth_table(subject, growth)
    return list(tables.values())


def remedies(report: Report, *, most: int | None) -> tuple[tuple[Remedy, ...], int]:
    """Return what to change first, and how many more there are: new errors before the rest."""
    found: dict[str, Finding] = {}
    places: dict[str, dict[str, None]] = {}
    for part in report.parts:
        for finding in part.fired:
            if not finding.is_known and finding.fix is not None:
                found.setdefault(finding.rule, finding)
                place = where(finding.location) if finding.location else part.subject
                places.setdefault(finding.rule, {})[place or ""] = None
    ranked = sorted(found.values(), key=lambda finding: finding.severity.rank)
    shown = ranked if most is None else ranked[:most]
    told = tuple(remedy(finding, where=_first(list(places[finding.rule]))) for finding in shown)
    return told, len(ranked) - len(shown)


def _first(places: list[str]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{places[0]}{more}: "


def _table(target: str | None, parts: list[Report]) -> Table:
    if target is None:
        rows = [(_subject(part), _counts(part)) for part in parts]
        return Table(title="In code", headers=("what", "found"), rows=tuple(rows))
    title = f"On {printable(target)}{_memory(parts[0])}"
    with_growth = any(part.facts.growth is not None for part in parts)
    rows_wide = [
        (
            _subject(part),
            f"{SYMBOLS[part.verdict]} {_VERDICTS[part.verdict]}",
            *_needs(part),
            _counts(part),
            _change(part.facts.growth),
        )
        for part in parts
    ]
    headers = ("what", "verdict", "RAM", "VRAM", "found", "baseline")
    wide = len(headers) if with_growth else len(headers) - 1
    return Table(title=title, headers=headers[:wide], rows=tuple(row[:wide] for row in rows_wide))


def _subject(part: Report) -> str:
    return shorten(printable(part.subject or part.command), MAX_SUBJECT)


def _memory(part: Report) -> str:
    machine = part.facts.machine
    if machine is None:
        return ""
    words = [f"{format_bytes(machine.ram.available_bytes)} of RAM"]
    if machine.gpus:
        words.append(f"{format_bytes(machine.usable_vram_bytes)} on the GPU")
    return f" ({', '.join(words)} usable)"


def _needs(part: Report) -> tuple[str, str]:
    """Return the RAM and the GPU memory it takes; a dash where that is not what was asked."""
    has_gpu = bool(part.facts.machine and part.facts.machine.gpus)
    estimate, footprint = part.facts.estimate, part.facts.footprint
    if estimate is not None:
        peak = format_bytes(estimate.peak_bytes)
        return ("–", peak) if has_gpu else (peak, "–")
    if footprint is None or footprint.chosen is None:
        return "–", "–"
    chosen = footprint.chosen
    return format_bytes(chosen.ram_bytes), format_bytes(chosen.vram_bytes) if has_gpu else "–"


def _counts(part: Report) -> str:
    new = [finding for finding in part.fired if not finding.is_known]
    words = []
    for severity in Severity:
        count = sum(finding.severity is severity for finding in new)
        if count and severity is not Severity.INFO:
            words.append(f"{count} {severity.value}{'' if count == 1 else 's'}")
    known = len(part.fired) - len(new)
    return ", ".join(words + ([f"{known} known"] if known else [])) or "–"


def _change(growth: Growth | None) -> str:
    if growth is None:
        return "–"
    if not growth.growth_bytes:
        return "the same"
    return f"{100 * growth.growth_bytes / max(1, growth.recorded_bytes):+.1f} %"


def _growth_table(subject: str, growth: Growth) -> Table:
    def signed(size: int) -> str:
        return f"{'+' if size > 0 else ''}{format_bytes(size)}"

    rows = [
        (
            shorten(printable(layer.name), MAX_SUBJECT),
            format_bytes(layer.recorded_bytes, unknown="–"),
            format_bytes(layer.bytes_at_peak, unknown="–"),
            signed(layer.growth_bytes),
        )
        for layer in growth.layers[:MAX_LAYERS]
    ]
    hidden = growth.layers[MAX_LAYERS:]
    if hidden:
        rest = sum(layer.growth_bytes for layer in hidden)
        rows.append((f"{len(hidden)} more", "", "", signed(rest)))
    rows.append(
        (
            "all",
            format_bytes(growth.recorded_bytes),
            format_bytes(growth.peak_bytes),
            signed(growth.growth_bytes),
        )
    )
    return Table(
        title=f"What changed in {subject}",
        headers=("layer", "recorded", "now", "change"),
        rows=tuple(rows),
    )
