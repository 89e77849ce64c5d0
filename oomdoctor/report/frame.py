"""Values as pandas DataFrames: a report's findings, an inventory's groups, a machine's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomdoctor.facts import Estimate, Footprint, Inventory, Machine, Tuning
from oomdoctor.findings import Report
from oomdoctor.report.json import (
    plain,
    plain_estimate,
    plain_footprint,
    plain_inventory,
    plain_machine,
    plain_tuning,
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
    if isinstance(value, Estimate):
        return plain_estimate(value)
    assert isinstance(value, Footprint)
    return plain_footprint(value)


def frame(value: Any) -> pd.DataFrame:
    """Return the rows of a value: findings, groups, GPUs or ways of feeding."""
    import pandas as pd

    rows = {
        Report: "findings",
        Machine: "gpus",
        Inventory: "groups",
        Footprint: "feedings",
        Tuning: "trials",
        Estimate: "layers",
    }
    table: pd.DataFrame = pd.DataFrame(plain_value(value)[rows[type(value)]])
    return table
