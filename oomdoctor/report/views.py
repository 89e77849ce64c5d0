"""The view of any value that oomdoctor hands out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oomdoctor.comparison import Comparison
from oomdoctor.facts import Estimate, Footprint, Inventory, Machine, Tuning
from oomdoctor.findings import Report
from oomdoctor.recording import Profile, Recording
from oomdoctor.report.of_comparison import view_comparison
from oomdoctor.report.of_data import view_footprint, view_inventory
from oomdoctor.report.of_estimate import view_estimate
from oomdoctor.report.of_machine import view_machine
from oomdoctor.report.of_profile import view_profile, view_recording
from oomdoctor.report.of_report import view_report
from oomdoctor.report.of_tuning import view_tuning
from oomdoctor.report.view import View

_MAKERS: dict[type, Callable[..., View]] = {
    Report: view_report,
    Machine: view_machine,
    Inventory: view_inventory,
    Footprint: view_footprint,
    Estimate: view_estimate,
    Tuning: view_tuning,
    Profile: view_profile,
    Recording: view_recording,
    Comparison: view_comparison,
}


def view_of(value: Any, *, verbose: bool = False) -> View:
    """Return what a person is shown of a report, a machine, an inventory or a footprint."""
    return _MAKERS[type(value)](value, verbose=verbose)
