"""Values as pandas DataFrames: a report's findings, an inventory's groups, a machine's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from oomdoctor.comparison import Comparison
from oomdoctor.facts import Estimate, Footprint, Inventory, Machine, Tuning
from oomdoctor.findings import Report
from oomdoctor.recording import Profile, Recording
from oomdoctor.report.json import (
    plain,
    plain_estimate,
    plain_footprint,
    plain_inventory,
    plain_machine,
    plain_tuning,
)
from oomdoctor.report.json_profile import (
    plain_comparison,
    plain_profile,
    plain_recording,
    timeline,
)

if TYPE_CHECKING:
    import pandas as pd


_PLAIN: dict[type, Callable[..., dict[str, Any]]] = {
    Report: plain,
    Machine: plain_machine,
    Inventory: plain_inventory,
    Footprint: plain_footprint,
    Estimate: plain_estimate,
    Tuning: plain_tuning,
    Profile: plain_profile,
    Recording: plain_recording,
    Comparison: plain_comparison,
}
_ROWS = {
    Report: "findings",
    Machine: "gpus",
    Inventory: "groups",
    Footprint: "feedings",
    Estimate: "layers",
    Tuning: "trials",
    Comparison: "changes",
}
"""Which of its plain values is a table."""


def plain_value(value: Any) -> dict[str, Any]:
    """Return any value that oomdoctor hands out as plain values."""
    return _PLAIN[type(value)](value)


def frame(value: Any) -> pd.DataFrame:
    """Return the rows of a value: findings, groups, GPUs, ways of feeding, or samples in time."""
    import pandas as pd

    if isinstance(value, Profile):
        value = value.recording
    if isinstance(value, Recording):
        samples: pd.DataFrame = pd.DataFrame(
            timeline(value.samples) or [asdict(step) for step in value.steps]
        )
        return samples
    if isinstance(value, Report) and value.is_survey:
        survey: pd.DataFrame = pd.DataFrame([_machine(part) for part in value.parts])
        return survey
    table: pd.DataFrame = pd.DataFrame(plain_value(value)[_ROWS[type(value)]])
    return table


def _machine(part: Report) -> dict[str, Any]:
    """Return what one machine makes of a model or of data, as a row."""
    machine, estimate, footprint = part.facts.machine, part.facts.estimate, part.facts.footprint
    usable = machine.usable_vram_bytes if machine is not None else None
    row: dict[str, Any] = {
        "subject": part.subject,
        "machine": part.target,
        "verdict": part.verdict,
        "ram_bytes": machine.ram.available_bytes if machine is not None else None,
        "gpu_bytes": usable,
    }
    if estimate is not None:
        row["peak_bytes"] = estimate.peak_bytes
        row["program"] = estimate.program
        row["predicted_batch"] = None if usable is None else estimate.predicted_batch(usable)
    elif footprint is not None and footprint.chosen is not None:
        row["ram_used_bytes"] = footprint.chosen.ram_bytes
        row["gpu_used_bytes"] = footprint.chosen.vram_bytes
    return row
