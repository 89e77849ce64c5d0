"""Values as pandas DataFrames: a report's findings, an inventory's groups, a machine's GPUs."""

from __future__ import annotations

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


def plain_value(value: Any) -> dict[str, Any]:
    """Return any value that oomdoctor hands out as plain values."""
    if isinstance(value, Report):
        return plain(value)
    if isinstance(value, Machine):
        return plain_machine(value)
    if isinstance(value, Inventory):
        return plain_inventory(value)
    if isinstance(value, Tuning):
        return plain_tuning(value)
    if isinstance(value, Profile):
        return plain_profile(value)
    if isinstance(value, Recording):
        return plain_recording(value)
    if isinstance(value, Comparison):
        return plain_comparison(value)
    if isinstance(value, Estimate):
        return plain_estimate(value)
    assert isinstance(value, Footprint)
    return plain_footprint(value)


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
    rows = {
        Report: "findings",
        Machine: "gpus",
        Inventory: "groups",
        Footprint: "feedings",
        Tuning: "trials",
        Estimate: "layers",
        Comparison: "changes",
    }
    table: pd.DataFrame = pd.DataFrame(plain_value(value)[rows[type(value)]])
    return table
