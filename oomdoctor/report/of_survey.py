"""One table of every machine: what fits there, how large a batch, and what is left."""

from __future__ import annotations

from oomdoctor.findings import Report
from oomdoctor.report.escape import printable, shorten
from oomdoctor.report.view import SYMBOLS, Table
from oomdoctor.units import format_bytes

MAX_SUBJECT = 34
_VERDICTS = {"fits": "yes", "does_not_fit": "no", "unknown": "maybe"}
_PROGRAMS = {"xla": "XLA", "executor": "executor"}
_WAYS = {"memory": "in RAM", "device": "to GPU", "stream": "streamed"}


def headline(report: Report) -> str:
    """Return on how many machines it fits, and the smallest of them."""
    fitting = [part for part in report.parts if part.verdict == "fits"]
    count = f"{len(fitting)} of {len(report.parts)} machines"
    if not fitting:
        return f"It fits none of the {len(report.parts)} machines of the catalogue."
    subjects = {part.subject for part in report.parts}
    if len(subjects) > 1:
        return f"{len(fitting)} of {len(report.parts)} combinations fit."
    return f"It fits {count}; the smallest is {printable(fitting[0].target or '')}."


def tables(report: Report) -> list[Table]:
    """Return one table for each model or dataset, the machines by memory."""
    by_subject: dict[str, list[Report]] = {}
    for part in report.parts:
        by_subject.setdefault(part.subject or report.command, []).append(part)
    return [
        _table(shorten(printable(subject), MAX_SUBJECT), parts)
        for subject, parts in by_subject.items()
    ]


def _table(subject: str, parts: list[Report]) -> Table:
    if parts[0].facts.estimate is not None:
        headers = ("machine", "memory", "fits", "peak", "left", "max batch", "program")
        title = f"{subject}: every card, by memory (max batch is predicted)"
        return Table(
            title=title, headers=headers, rows=tuple(map(_on_card, parts)), figure="batches"
        )
    headers = ("machine", "RAM", "GPU", "fits", "RAM used", "GPU used", "instead")
    rows = tuple(map(_on_machine, parts))
    return Table(title=f"{subject}: every machine whose RAM is known", headers=headers, rows=rows)


def _on_card(part: Report) -> tuple[str, ...]:
    estimate, machine = part.facts.estimate, part.facts.machine
    assert estimate is not None
    assert machine is not None
    usable = machine.usable_vram_bytes or 0
    largest = estimate.predicted_batch(usable)
    left = usable - estimate.peak_bytes
    return (
        printable(part.target or ""),
        format_bytes(usable),
        _verdict(part),
        format_bytes(estimate.peak_bytes),
        format_bytes(left) if left >= 0 else "–",
        "–" if largest is None else f"{largest:,}",
        _PROGRAMS.get(estimate.program, estimate.program),
    )


def _on_machine(part: Report) -> tuple[str, ...]:
    footprint, machine = part.facts.footprint, part.facts.machine
    assert footprint is not None
    assert machine is not None
    chosen = footprint.chosen
    assert chosen is not None
    has_gpu = bool(machine.gpus)
    return (
        printable(part.target or ""),
        format_bytes(machine.ram.available_bytes),
        format_bytes(machine.usable_vram_bytes) if has_gpu else "–",
        _verdict(part),
        format_bytes(chosen.ram_bytes),
        format_bytes(chosen.vram_bytes) if has_gpu else "–",
        "–" if part.verdict == "fits" else _WAYS.get(footprint.recommended or "", "none fits"),
    )


def _verdict(part: Report) -> str:
    return f"{SYMBOLS[part.verdict]} {_VERDICTS[part.verdict]}"
