"""A report as JSON: one envelope for every command, described by `schema.json` beside this file.

Sections that a command does not produce are null. Sizes are whole bytes. The order is fixed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from oomdoctor._version import __version__
from oomdoctor.facts import (
    Diagnosis,
    Estimate,
    FileGroup,
    Footprint,
    GroupFootprint,
    Growth,
    Inventory,
    Machine,
    Scripts,
    Tuning,
)
from oomdoctor.findings import Finding, Report
from oomdoctor.report.json_profile import plain_comparison, plain_profile

SCHEMA_VERSION = 1


def render(report: Report) -> str:
    """Return the report as one JSON document.

    Names that are not valid UTF-8 stay readable: every character beyond ASCII is escaped.
    """
    return json.dumps(plain(report), indent=2) + "\n"


def plain(report: Report) -> dict[str, Any]:
    """Return the report as plain values, in the order of the contract."""
    facts = report.facts
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "oomdoctor", "version": __version__},
        "command": report.command,
        "verdict": report.verdict,
        "machine": facts.machine and plain_machine(facts.machine),
        "inventory": facts.inventory and plain_inventory(facts.inventory, facts.footprint),
        "footprint": facts.footprint and plain_footprint(facts.footprint),
        "estimate": facts.estimate and plain_estimate(facts.estimate),
        "tuning": facts.tuning and plain_tuning(facts.tuning),
        "diagnosis": facts.diagnosis and plain_diagnosis(facts.diagnosis),
        "profile": facts.profile and plain_profile(facts.profile),
        "scripts": facts.scripts and plain_scripts(facts.scripts),
        "findings": [_plain_finding(finding) for finding in report.findings],
        "notes": list(report.notes),
        "subject": report.subject,
        "target": report.target,
        "growth": facts.growth and plain_growth(facts.growth),
        "comparison": facts.comparison and plain_comparison(facts.comparison),
        "reports": [plain(part) for part in report.parts] or None,
    }


def plain_growth(growth: Growth) -> dict[str, Any]:
    """Return a peak beside the recorded one as plain values."""
    return {
        "recorded_bytes": growth.recorded_bytes,
        "peak_bytes": growth.peak_bytes,
        "growth_bytes": growth.growth_bytes,
        "allowed_bytes": growth.allowed_bytes,
        "layers": [asdict(layer) for layer in growth.layers],
    }


def plain_scripts(scripts: Scripts) -> dict[str, Any]:
    """Return how much code was read as plain values; what was found in it are findings."""
    return {
        "files": scripts.files,
        "lines": scripts.lines,
        "unchecked": scripts.unchecked,
        "notes": list(scripts.notes),
    }


def plain_estimate(estimate: Estimate) -> dict[str, Any]:
    """Return the peak of a step as plain values."""
    return {
        "batch_size": estimate.batch_size,
        "peak_bytes": estimate.peak_bytes,
        "low_bytes": estimate.low_bytes,
        "high_bytes": estimate.high_bytes,
        "parts": dict(estimate.parts),
        "layers": [asdict(layer) for layer in estimate.layers],
        "largest_tensor_bytes": estimate.largest_tensor_bytes,
        "fixed_bytes": estimate.fixed_bytes,
        "per_sample_bytes": estimate.per_sample_bytes,
        "line_from_batch": estimate.line_from_batch,
        "kind": estimate.kind,
        "jit": estimate.jit,
        "origin": estimate.origin,
        "program": estimate.program,
        "target": estimate.target,
        "recorded_sizes": list(estimate.recorded_sizes),
        "device": estimate.device,
        "reason": estimate.reason,
        "allowances": dict(estimate.allowances),
        "without_recomputation_bytes": estimate.without_recomputation_bytes,
        "other_program": estimate.other and asdict(estimate.other),
        "unknown_ops": dict(estimate.unknown_ops),
        "assumptions": list(estimate.assumptions),
        "notes": list(estimate.notes),
    }


def plain_tuning(tuning: Tuning) -> dict[str, Any]:
    """Return a search for a batch size as plain values."""
    return {
        "batch_size": tuning.batch_size,
        "peak_bytes": tuning.peak_bytes,
        "budget_bytes": tuning.budget_bytes,
        "target_bytes": tuning.target_bytes,
        "objective": tuning.objective,
        "limited_by": tuning.limited_by,
        "replicas": tuning.replicas,
        "device": tuning.device,
        "compiled_by": tuning.compiled_by,
        "does_not_fit": tuning.does_not_fit,
        "is_proved": tuning.is_proved,
        "comparison": tuning.comparison,
        "trials": [asdict(trial) for trial in tuning.trials],
        "notes": list(tuning.notes),
    }


def plain_machine(machine: Machine) -> dict[str, Any]:
    """Return a machine as plain values."""
    return {
        "name": machine.name,
        "cpu_count": machine.cpu_count,
        "ram": asdict(machine.ram),
        "gpus": [
            {**asdict(gpu), "processes": _unknown_or_list(gpu.processes)} for gpu in machine.gpus
        ],
        "notes": list(machine.notes),
    }


def _unknown_or_list(values: tuple[Any, ...] | None) -> list[dict[str, Any]] | None:
    return None if values is None else [asdict(value) for value in values]


def plain_inventory(inventory: Inventory, footprint: Footprint | None = None) -> dict[str, Any]:
    """Return an inventory as plain values; a footprint adds what each group holds decoded."""
    held = footprint.groups if footprint else (None,) * len(inventory.groups)
    return {
        "root": inventory.root,
        "samples": inventory.samples,
        "files": inventory.files,
        "stored_bytes": inventory.stored_bytes,
        "exact": inventory.is_exact,
        "complete": inventory.is_complete,
        "groups": [
            _plain_group(group, measured)
            for group, measured in zip(inventory.groups, held, strict=True)
        ],
        "skipped": [asdict(skipped) for skipped in inventory.skipped],
        "notes": list(inventory.notes),
    }


def _plain_group(group: FileGroup, held: GroupFootprint | None) -> dict[str, Any]:
    shapes = group.shapes
    return {
        "name": group.name,
        "format": group.format,
        "kind": group.kind,
        "split": group.split,
        "role": group.role,
        "files": group.files,
        "samples": group.samples,
        "shape": held.shape if held else (shapes.most_common if shapes else None),
        "dtype": held.dtype if held else group.dtype,
        "stored_bytes": group.stored_bytes,
        "decoded_bytes": held.decoded_bytes if held else None,
        "low_bytes": held.low_bytes if held else None,
        "high_bytes": held.high_bytes if held else None,
        "loaded": None if held is None else ("memory" if held.is_whole else "stream"),
        "native": {
            "dtype": group.dtype,
            "elements": group.elements,
            "decoded_bytes": held.native_bytes if held else None,
            "shapes": asdict(shapes) if shapes else None,
        },
        "largest_sample": group.largest_sample,
        "classes": dict(group.classes),
        "compressed": group.is_compressed,
        "exact": group.is_exact,
        "notes": list(group.notes),
    }


def plain_footprint(footprint: Footprint) -> dict[str, Any]:
    """Return a footprint as plain values."""
    return {
        "decoded_bytes": footprint.decoded_bytes,
        "low_bytes": footprint.low_bytes,
        "high_bytes": footprint.high_bytes,
        "native_bytes": footprint.native_bytes,
        "keras_loader_bytes": footprint.keras_loader_bytes,
        "sample_bytes": footprint.sample_bytes,
        "largest_sample_bytes": footprint.largest_sample_bytes,
        "batch_bytes": footprint.batch_bytes,
        "batch_size": footprint.batch_size,
        "load": footprint.load,
        "feedings": [asdict(feeding) for feeding in footprint.feedings],
        "chosen": asdict(footprint.chosen) if footprint.chosen else None,
        "recommended": footprint.recommended,
        "stages": [asdict(stage) for stage in footprint.stages],
    }


def plain_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as plain values."""
    plain = {name: getattr(diagnosis, name) for name in _DIAGNOSIS}
    plain["evidence"] = _plain_lines(diagnosis.evidence)
    plain["alternatives"] = [
        {**asdict(other), "evidence": _plain_lines(other.evidence)}
        for other in diagnosis.alternatives
    ]
    plain["holders"] = [{"what": what, "bytes": size} for what, size in diagnosis.holders]
    return plain


_DIAGNOSIS = tuple(field.name for field in fields(Diagnosis) if field.name != "memory_map")


def _plain_lines(lines: tuple[tuple[int, str], ...]) -> list[dict[str, Any]]:
    return [{"line": line, "text": text} for line, text in lines]


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "name": finding.name,
        "outcome": finding.outcome.value,
        "severity": finding.severity.value,
        "message": finding.message,
        "remedy": finding.remedy,
        "saves_bytes": finding.saves_bytes,
        "makes_it_fit": finding.makes_it_fit,
        "fix": asdict(finding.fix) if finding.fix else None,
        "cost": asdict(finding.cost) if finding.cost else None,
        "location": asdict(finding.location) if finding.location else None,
        "missing": [asdict(missing) for missing in finding.missing],
        "known": finding.is_known,
    }
