"""Runs what is named against every machine, and compares it with the baseline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oomdoctor.api.baseline import EMPTY, Baseline, read_baseline, recorded, with_known
from oomdoctor.api.gate import Plan, combined, run_plan, threads_here
from oomdoctor.api.machine import probe_machine
from oomdoctor.cli.output import tell
from oomdoctor.errors import UsageError
from oomdoctor.facts import Estimate
from oomdoctor.findings import Report


def run_gate(
    command: str,
    *,
    compared: Mapping[str, Any],
    judged: Mapping[str, Any],
    whole: bool = False,
    progress: Any = None,
    **named: Any,
) -> Report:
    """Return one report, with a part for each thing named and each machine.

    Args:
        command: Whose report it is.
        compared: The values of `--machine`, `--ram`, `--vram` and of the options of a baseline.
        judged: Which rules are run and how.
        whole: Whether this is all that the project names: then the baseline is written anew.
        progress: Told of files that were seen.
        **named: Models, datasets and scripts.
    """
    file, update = compared["baseline"], compared["update_baseline"]
    if update and file is None:
        raise UsageError("--update-baseline needs --baseline FILE, or baseline = in the settings.")
    if "all" in compared["machine"]:
        return _survey(command, compared, named, progress)
    known = read_baseline(file) if file is not None and not update else None
    machines = tuple(
        probe_machine(machine=name, ram=compared["ram"], vram=compared["vram"])
        for name in compared["machine"] or (None,)
    )
    plan = Plan(
        machines=machines,
        judged=judged,
        baseline=known,
        tolerance=compared["tolerance"],
        **named,
    )
    reports = run_plan(command, plan, progress=progress)
    report = combined(command, reports) if whole or len(reports) > 1 else reports[0]
    if file is None:
        return report
    if update:
        return _update(file, report, whole=whole)
    assert known is not None
    report = replace(report, notes=(*report.notes, *_news(report, known)))
    return with_known(report, known, root=_root(file))


def _survey(
    command: str, compared: Mapping[str, Any], named: Mapping[str, Any], progress: Any
) -> Report:
    """Return what every machine of the catalogue makes of it."""
    from oomdoctor.api.survey import survey

    if len(compared["machine"]) > 1 or compared["ram"] or compared["vram"]:
        raise UsageError("--machine all compares with every machine: pass no other, and no size.")
    if compared["baseline"] or compared["update_baseline"]:
        raise UsageError("--machine all is no gate: pass no --baseline.")
    models, datasets = named.get("models", ()), named.get("datasets", ())
    return survey(command, models=models, datasets=datasets, progress=progress)


def _root(file: str) -> str:
    """Fingerprints in a baseline are relative to it, wherever it is used from."""
    return os.path.dirname(os.path.abspath(file))


def _update(file: str, report: Report, *, whole: bool) -> Report:
    from oomdoctor.api.baseline import write_baseline

    before = EMPTY if whole or not os.path.exists(file) else read_baseline(file)
    parts = report.parts or (report,)
    new = recorded(parts, root=_root(file), threads=threads_here(), before=before)
    write_baseline(file, new)
    tell(f"Recorded {len(new.peaks)} peak(s) and {len(new.findings)} finding(s) in {file}.")
    return with_known(report, new, root=_root(file))


def _news(report: Report, known: Baseline) -> list[str]:
    """Return what the baseline should be told, in one sentence for each model."""
    notes = []
    for part in report.parts or (report,):
        growth = part.facts.growth
        if part.facts.estimate is None or part.subject is None:
            continue
        if growth is None:
            notes.append(_not_recorded(part.subject, part.facts.estimate, known))
        elif growth.growth_bytes < -growth.allowed_bytes:
            notes.append(
                f"{part.subject} peaks lower than the baseline says; --update-baseline records it."
            )
    return list(dict.fromkeys(notes))


def _not_recorded(subject: str, estimate: Estimate, known: Baseline) -> str:
    others = {peak.device or "the executor" for peak in known.peaks if peak.subject == subject}
    if not others:
        return f"{subject} is not in the baseline; --update-baseline records it."
    mine = estimate.device or "the executor"
    return (
        f"The baseline has {subject} for {', '.join(sorted(others))}, not for {mine}; "
        "--update-baseline records it."
    )
