"""Which of the paths given are code, and what is found in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from oomdoctor.errors import InputError
from oomdoctor.facts import Inventory, Scripts
from oomdoctor.findings import Outcome, Report

if TYPE_CHECKING:
    from oomdoctor.scripts.fix import Change


def look_at_scripts(target: Any) -> tuple[Scripts | None, Any]:
    """Return what is found in the code among the paths given, and what is left to be data.

    A file is code by its name, `.py` or `.ipynb`. A folder may hold both: its scripts are checked,
    and the rest of it is scanned as data. Where nothing is left, data is None; where there is no
    code, scripts are.
    """
    paths = list(target) if isinstance(target, (list, tuple)) else [target]
    if not paths or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None, target
    from oomdoctor.scripts.scan import is_script, scan_scripts

    files = [path for path in paths if is_script(path) and not os.path.isdir(path)]
    for path in files:
        if not os.path.lexists(path):
            raise InputError(f"{os.fspath(path)} does not exist: give a script, or a folder.")
    rest = [path for path in paths if path not in files]
    scripts = scan_scripts([*files, *(path for path in rest if os.path.isdir(path))])
    return (scripts if scripts.files else None), (rest or None)


def is_data(inventory: Inventory, scripts: Scripts | None) -> bool:
    """Return whether a scan found a dataset; texts that lie beside scripts are none."""
    if scripts is None:
        return True
    return any(group.format != "text" for group in inventory.groups)


def safe_changes(report: Report) -> list[Change]:
    """Return the changes that are safe, for what a report found in code; nothing is written."""
    from oomdoctor.scripts.fix import fix_scripts

    parts = (report, *report.parts)
    fired = {
        (at.file, at.line, at.column)
        for part in parts
        for finding in part.findings
        if finding.outcome is Outcome.FIRED and (at := finding.location) is not None
    }
    matches = [
        match for part in parts if part.facts.scripts for match in part.facts.scripts.matches
    ]
    return fix_scripts(
        [match for match in matches if (match.file, match.line, match.column) in fired]
    )
