"""What does it need while it runs? A program recorded, and the report on a recording."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomdoctor.api.conclude import conclude, installed
from oomdoctor.errors import InputError
from oomdoctor.facts import Facts, Machine, Memory, Workload
from oomdoctor.findings import Report

if TYPE_CHECKING:
    from oomdoctor.profile.spawn import Plan
    from oomdoctor.recording import Profile


def record(plan: Plan) -> int:
    """Run a program to its end, record it, and return its exit code."""
    from oomdoctor.profile.watch import Watch

    return Watch(plan).run(dict(installed()))


def report_on(
    folder: str | os.PathLike[str],
    *,
    purpose: str | None = None,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    rules: Iterable[str | os.PathLike[str]] = (),
    severities: Mapping[str, str] | None = None,
) -> Report:
    """Return what a recording tells: what grew, why the run ended, and what to change.

    Args:
        folder: Where `oomdoctor profile` wrote the recording.
        purpose: What the run is for: `prototype`, `train` or `production`. Ranks the remedies.
        select: Rules to run, by id or beginning of an id; all when empty.
        ignore: Rules to leave out.
        rules: Folders with more rules.
        severities: Severity by rule, in place of the rule's own.
    """
    from oomdoctor.profile.conclude import profile_of
    from oomdoctor.profile.store import load

    profile = profile_of(load(folder), str(Path(folder)))
    return report_of(
        profile, purpose=purpose, select=select, ignore=ignore, rules=rules, severities=severities
    )


def compare_runs(one: Report, other: Report) -> Report:
    """Return what changed from one recorded run to another.

    Args:
        one: The report on the first, from `report_on`.
        other: The report on the second.

    Returns:
        A report whose facts have the comparison, and whose parts are both reports. Its verdict is
        that of the second run.
    """
    from oomdoctor.comparison import compare

    first, second = one.facts.profile, other.facts.profile
    if first is None or second is None:
        raise InputError("Only reports on recorded runs can be compared: use report_on(folder).")
    return Report(
        command="profile",
        verdict=other.verdict,
        facts=Facts(comparison=compare(first, second)),
        parts=(one, other),
    )


def report_of(profile: Profile, **how: Any) -> Report:
    """Return the report on a profile; `how` as in `report_on`."""
    from oomdoctor.profile.conclude import diagnosis_of

    recording = profile.recording
    workload = Workload(batch_size=recording.batch_size) if recording.batch_size else None
    facts = Facts(
        machine=_machine(profile),
        workload=workload,
        diagnosis=diagnosis_of(profile),
        profile=profile,
        versions=recording.versions,
    )
    report = conclude("profile", facts, **{"rules": (), **how})
    return replace(report, notes=(*report.notes, *recording.notes))


def _machine(profile: Profile) -> Machine | None:
    """The machine of the recording, which need not be this one: its limits are all we know."""
    total = [
        limit.limit_bytes
        for limit in profile.recording.limits
        if limit.what == "host" and limit.source == "RAM of this machine"
    ]
    lowest = profile.recording.limit_of("host")
    if lowest is None:
        return None
    is_lower = bool(total) and lowest.limit_bytes < total[0]
    return Machine(
        ram=Memory(
            total_bytes=total[0] if total else None,
            available_bytes=None,
            limit_bytes=lowest.limit_bytes if is_lower else None,
            limit_source=lowest.source if is_lower else None,
            origin="measured",
        )
    )
